//! The clusters of a function, in an e-graph.
//!
//! The graph holds the values of the function, one `Sink` for each consumer, and clusters: a
//! `Cluster(body)` over what it loads, and `Get(value)` of it, made equal to the value.

use super::Options;
use super::body::Body;
use super::device::Device;
use super::facts::Facts;
use super::form::{Form, Regions};
use super::grow::rule_of;
use super::legality::{Legal, check};
use super::log::{Log, Outcome};
use super::set::Set;
use egg::{EGraph, Id, Language};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What an e-node is, apart from its children.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// A node of the function.
    Value(u32),
    /// A cluster: its body.
    Cluster(u32),
    /// A value of a cluster.
    Get(u32),
    /// A consumer of values that must be stored.
    Sink(u32),
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct ENode {
    kind: Kind,
    children: Vec<Id>,
}

impl Language for ENode {
    type Discriminant = Kind;

    fn discriminant(&self) -> Kind {
        self.kind
    }

    fn matches(&self, other: &Self) -> bool {
        self.kind == other.kind && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

/// Clusters of a function, and the graph that says which of them make which value.
pub(super) struct Pool<'p, 'f> {
    pub(super) facts: &'p Facts<'f>,
    pub(super) device: &'p Device,
    without: &'p [String],
    form: Form,
    regions: Regions,
    pub(super) bodies: Vec<Body>,
    pub(super) legal: Vec<Legal>,
    known: BTreeMap<Body, usize>,
    pub(super) graph: EGraph<ENode, ()>,
    ids: Vec<Id>,
    /// Values that some cluster loads although it could compute them.
    pub(super) saved: Set,
    pub(super) fresh: VecDeque<usize>,
}

impl<'p, 'f> Pool<'p, 'f> {
    pub(super) fn new(facts: &'p Facts<'f>, options: &'p Options) -> Self {
        let mut graph: EGraph<ENode, ()> = EGraph::default();
        let mut ids = vec![];
        for (i, node) in facts.f.nodes.iter().enumerate() {
            let children = node.operands.iter().map(|v| ids[super::facts::at(*v)]).collect();
            ids.push(graph.add(ENode { kind: Kind::Value(i as u32), children }));
        }
        for (k, demand) in facts.demands.iter().enumerate() {
            let children = demand.iter().map(|v| ids[*v]).collect();
            graph.add(ENode { kind: Kind::Sink(k as u32), children });
        }
        Pool {
            facts,
            device: &options.device,
            without: &options.without,
            form: options.form,
            regions: Regions::new(facts),
            bodies: vec![],
            legal: vec![],
            known: BTreeMap::new(),
            graph,
            ids,
            saved: Set::default(),
            fresh: VecDeque::new(),
        }
    }

    /// For each value the clusters that make it, as the graph has them.
    pub(super) fn providers(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut out: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for class in self.graph.classes() {
            for n in &class.nodes {
                let Kind::Get(v) = n.kind else { continue };
                let of = n.children.iter().flat_map(|c| &self.graph[*c].nodes);
                let clusters = of.filter_map(|n| match n.kind {
                    Kind::Cluster(k) => Some(k as usize),
                    _ => None,
                });
                out.entry(v as usize).or_default().extend(clusters);
            }
        }
        out.into_iter().map(|(v, ks)| (v, ks.into_iter().collect())).collect()
    }

    /// Values that one launch must store.
    pub(super) fn together(&self) -> &[Set] {
        if self.form == Form::Mega { &self.regions.groups } else { &[] }
    }

    /// Whether a rule is not switched off.
    pub(super) fn on(&self, rule: &str) -> bool {
        !self.without.iter().any(|w| w == rule)
    }

    /// Adds a cluster if it is legal and new.
    pub(super) fn add(
        &mut self,
        body: Body,
        rule: &'static str,
        about: usize,
        log: &mut Log,
    ) -> bool {
        if self.known.contains_key(&body) {
            return true;
        }
        let allowed = self.by_rules(&body);
        match allowed.and_then(|()| check(self.facts, self.device, &body)) {
            Ok(legal) => {
                log.note(self.facts, rule, about, Outcome::Fired);
                self.insert(body, legal, rule);
                true
            }
            Err(why) => {
                log.note(self.facts, rule, about, Outcome::Refused(why));
                false
            }
        }
    }

    /// What no rule may absorb is not read inside a cluster, and no form is broken, however the
    /// cluster came about.
    fn by_rules(&self, body: &Body) -> Result<(), String> {
        self.regions.check(self.form, self.facts, body)?;
        if self.without.is_empty() {
            return Ok(());
        }
        let facts = self.facts;
        let read = body.ops.iter().flat_map(|i| facts.kids(i));
        let mut inner = read.filter(|a| body.ops.contains(*a) && !facts.param[*a]);
        match inner.find(|a| !self.on(rule_of(facts, *a))) {
            Some(a) => Err(format!("`{}` is switched off", rule_of(facts, a))),
            None => Ok(()),
        }
    }

    /// Adds a cluster of one op whatever the checks say.
    pub(super) fn force(&mut self, body: Body) {
        if !self.known.contains_key(&body) {
            let legal = check(self.facts, self.device, &body)
                .unwrap_or(Legal { registers: self.device.most_registers });
            self.insert(body, legal, "seed");
        }
    }

    fn insert(&mut self, body: Body, legal: Legal, rule: &'static str) {
        let k = self.bodies.len();
        let loads = body.loads(self.facts);
        let children = loads.iter().map(|v| self.ids[v]).collect();
        let cluster = self.graph.add(ENode { kind: Kind::Cluster(k as u32), children });
        // What a load depends on cannot be taken from the cluster.
        let mut early = Set::default();
        loads.iter().for_each(|v| early.extend(&self.facts.before[v]));
        for v in body.ops.iter().filter(|v| !self.facts.param[*v] && !early.contains(*v)) {
            let get = ENode { kind: Kind::Get(v as u32), children: vec![cluster] };
            let get = self.graph.add(get);
            self.graph.union_trusted(self.ids[v], get, rule);
        }
        self.known.insert(body.clone(), k);
        self.bodies.push(body);
        self.legal.push(legal);
        self.fresh.push_back(k);
    }
}
