//! Rules that grow clusters in an e-graph.
//!
//! The graph holds the values of the function, one `Sink` for each consumer, and clusters: a
//! `Cluster(body)` over what it loads, and `Get(value)` of it, made equal to the value. Seeds stand at
//! what sinks ask for. `absorb.*` takes in one producer, always the last of those it loads, so that
//! a cluster grows along a path and not through a lattice. `join.*` merges finished ones.

use super::body::Body;
use super::choose::Kernel;
use super::device::{Device, in_memory};
use super::facts::{Facts, Role};
use super::legality::{Legal, check};
use super::log::{Log, Outcome};
use super::set::Set;
use egg::{EGraph, Id, Language};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vlmc_ir::ops::{Class, Op};

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

/// The rules, by name.
pub(super) const RULES: &[&str] = &[
    "absorb.cast",
    "absorb.elementwise",
    "absorb.reduce",
    "absorb.saved",
    "absorb.stencil",
    "absorb.token_reduce",
    "absorb.view",
    "join.inputs",
    "join.operands",
    "join.pair",
];

/// Clusters of a function, and the graph that says which of them make which value.
pub(super) struct Pool<'p, 'f> {
    pub(super) facts: &'p Facts<'f>,
    device: &'p Device,
    without: &'p [String],
    pub(super) bodies: Vec<Body>,
    pub(super) legal: Vec<Legal>,
    known: BTreeMap<Body, usize>,
    graph: EGraph<ENode, ()>,
    ids: Vec<Id>,
    /// Values that some cluster loads although it could compute them.
    saved: Set,
    fresh: VecDeque<usize>,
}

/// More clusters than this are not grown for one function.
const MOST_CLUSTERS: usize = 6000;

impl<'p, 'f> Pool<'p, 'f> {
    pub(super) fn new(facts: &'p Facts<'f>, device: &'p Device, without: &'p [String]) -> Self {
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
            device,
            without,
            bodies: vec![],
            legal: vec![],
            known: BTreeMap::new(),
            graph,
            ids,
            saved: Set::default(),
            fresh: VecDeque::new(),
        }
    }

    /// Grows until nothing new comes.
    pub(super) fn grow(&mut self, log: &mut Log) {
        let demands = self.facts.demands.clone();
        for v in demands.iter().flatten() {
            self.add(Body::seed(self.facts, *v), "seed", *v, log);
        }
        while let Some(k) = self.fresh.pop_front() {
            if self.bodies.len() >= MOST_CLUSTERS {
                log.warn(format!(
                    "@{}: {MOST_CLUSTERS} clusters are not enough",
                    self.facts.f.name
                ));
                break;
            }
            self.absorb(k, log);
        }
        let best = self.variants();
        if self.on("join.operands") {
            for demand in &demands {
                self.join_operands(&best, demand, log);
            }
        }
        if self.on("join.inputs") {
            self.join_inputs(&best, log);
        }
        // Every row op as a kernel of its own: a choice exists in any case.
        for v in self.facts.row_ops() {
            self.force(Body::seed(self.facts, v));
        }
        self.graph.rebuild();
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

    fn on(&self, rule: &str) -> bool {
        !self.without.iter().any(|w| w == rule)
    }

    /// Adds a cluster if it is legal and new.
    fn add(&mut self, body: Body, rule: &'static str, about: usize, log: &mut Log) -> bool {
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

    /// What no rule may absorb is not read inside a cluster, however the cluster came about.
    fn by_rules(&self, body: &Body) -> Result<(), String> {
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
    fn force(&mut self, body: Body) {
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

    fn absorb(&mut self, k: usize, log: &mut Log) {
        let (facts, body) = (self.facts, self.bodies[k].clone());
        let Some(v) = body.next(facts) else { return };
        let rule = rule_of(facts, v);
        if !self.on(rule) {
            self.freeze(body, v, log);
            return;
        }
        let mut grown = body.clone();
        grown.ops.extend(&Body::seed(facts, v).ops);
        let legal = self.add(grown, rule, v, log);
        if !legal || self.worth_loading(&body, v) {
            self.freeze(body, v, log);
        }
    }

    /// The body with a value that it could compute, loaded instead.
    fn freeze(&mut self, body: Body, v: usize, log: &mut Log) {
        let mut frozen = body;
        frozen.frozen.insert(v);
        self.add(frozen, "seed", v, log);
        if !self.saved.contains(v) {
            self.saved.insert(v);
            self.add(Body::seed(self.facts, v), "seed", v, log);
        }
    }

    /// A value that another kernel makes too may be loaded where that moves no more bytes than what
    /// it is made of.
    fn worth_loading(&self, body: &Body, v: usize) -> bool {
        let facts = self.facts;
        let shared =
            facts.stored.contains(v) || facts.users[v].iter().any(|u| !body.ops.contains(*u));
        if !shared {
            return false;
        }
        let mut rest = Set::default();
        for a in body.loads(facts).iter().filter(|a| *a != v) {
            if in_memory(facts, a) {
                rest.insert(a);
            } else {
                rest.extend(&facts.below[a]);
            }
        }
        let more = facts.below[v].iter().filter(|a| !rest.contains(*a));
        facts.bytes(v) <= more.map(|a| facts.bytes(a)).sum::<f64>()
    }

    /// For each value the finished clusters worth joining: the cheapest alone, and the one that
    /// loads nothing it could compute.
    fn variants(&self) -> BTreeMap<usize, Vec<usize>> {
        let facts = self.facts;
        let mut by: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (k, b) in self.bodies.iter().enumerate() {
            if b.outs.len() == 1 && b.next(facts).is_none() {
                b.outs.iter().for_each(|v| by.entry(v).or_default().push(k));
            }
        }
        let price = |k: &usize| {
            let b = &self.bodies[*k];
            let saved: f64 = b.frozen.iter().map(|v| self.device.store(facts, v)).sum();
            self.device.kernel(facts, b, 64.0) + saved
        };
        by.into_iter()
            .map(|(v, ks)| {
                let cheapest = ks.iter().copied().min_by(|a, b| price(a).total_cmp(&price(b)));
                let whole = ks.iter().copied().find(|k| self.bodies[*k].frozen.is_empty());
                let mut both: Vec<usize> = [cheapest, whole].into_iter().flatten().collect();
                both.dedup();
                (v, both)
            })
            .collect()
    }

    /// Joins clusters of some values, in both variants. Returns whether one of them is legal.
    fn join(
        &mut self,
        best: &BTreeMap<usize, Vec<usize>>,
        values: &[usize],
        rule: &'static str,
        log: &mut Log,
    ) -> bool {
        let variants: Vec<&Vec<usize>> = values.iter().filter_map(|v| best.get(v)).collect();
        let (Some(about), true) = (values.first(), variants.len() > 1) else { return false };
        let mut any = false;
        for last in [false, true] {
            let mut body = Body::default();
            for v in &variants {
                let k = if last { v.last() } else { v.first() };
                let Some(b) = k.map(|k| &self.bodies[*k]) else { continue };
                body.ops.extend(&b.ops);
                body.outs.extend(&b.outs);
                body.frozen.extend(&b.frozen);
            }
            let inside: Vec<usize> = body.frozen.iter().filter(|v| body.ops.contains(*v)).collect();
            inside.into_iter().for_each(|v| body.frozen.remove(v));
            any |= self.add(body, rule, *about, log);
        }
        any
    }

    /// Clusters near those that were chosen: two of them as one, and one that computes what it
    /// loads from others. Returns whether there is a new one.
    pub(super) fn refine(&mut self, kernels: &[Kernel], log: &mut Log) -> bool {
        let before = self.bodies.len();
        let facts = self.facts;
        let fits = |ops: &Set, loads: &Set| loads.iter().filter(|v| !ops.contains(*v)).collect();
        for (i, a) in kernels.iter().enumerate() {
            let load = |ops: &Set| Body { ops: ops.clone(), ..Body::default() }.loads(facts);
            if self.on("join.pair") {
                for b in kernels[i + 1..].iter().filter(|b| related(facts, a, b)) {
                    let mut ops = a.ops.clone();
                    ops.extend(&b.ops);
                    let outs = Set::of(a.stores.iter().chain(&b.stores).copied());
                    let frozen: Vec<usize> = fits(&ops, &load(&ops));
                    let frozen = frozen.into_iter().filter(|v| facts.role[*v] == Role::Row);
                    let body = Body { frozen: Set::of(frozen), ops, outs };
                    self.add(body, "join.pair", a.stores[0], log);
                }
            }
            if !self.on("absorb.saved") {
                continue;
            }
            let saved: Vec<(usize, &Kernel)> = kernels
                .iter()
                .flat_map(|b| b.stores.iter().map(move |v| (*v, b)))
                .filter(|(v, b)| b.body != a.body && load(&a.ops).contains(*v))
                .collect();
            let all: Vec<Vec<(usize, &Kernel)>> =
                saved.iter().map(|s| vec![*s]).chain([saved.clone()]).collect();
            for some in all.iter().filter(|s| !s.is_empty()) {
                let mut ops = a.ops.clone();
                some.iter().for_each(|(_, b)| ops.extend(&b.ops));
                let outs = Set::of(a.stores.iter().copied());
                let frozen: Vec<usize> = fits(&ops, &load(&ops));
                let frozen = frozen.into_iter().filter(|v| facts.role[*v] == Role::Row);
                let body = Body { frozen: Set::of(frozen), ops, outs };
                self.add(body, "absorb.saved", some[0].0, log);
            }
        }
        self.fresh.clear();
        self.graph.rebuild();
        self.bodies.len() > before
    }

    /// What one consumer reads: as many of the values together as one program can hold, in order.
    fn join_operands(
        &mut self,
        best: &BTreeMap<usize, Vec<usize>>,
        demand: &[usize],
        log: &mut Log,
    ) {
        let mut rest: Vec<usize> =
            demand.iter().copied().filter(|v| best.contains_key(v)).collect();
        while rest.len() > 1 {
            let mut group = vec![rest.remove(0)];
            let mut later = vec![];
            for v in std::mem::take(&mut rest) {
                group.push(v);
                if !self.join(best, &group, "join.operands", log) {
                    group.pop();
                    later.push(v);
                }
            }
            rest = later;
        }
    }

    /// Values that load the same, or parts of the same: the closest pair first, as a tree.
    fn join_inputs(&mut self, best: &BTreeMap<usize, Vec<usize>>, log: &mut Log) {
        let facts = self.facts;
        let start = {
            let mut wanted = facts.stored.clone();
            wanted.extend(&self.saved);
            wanted.iter().filter(|v| best.contains_key(v)).collect::<Vec<usize>>()
        };
        let mut groups: Vec<Group> = start
            .into_iter()
            .map(|v| {
                let (mut loads, mut roots) = (Set::default(), Set::default());
                let bodies = best.get(&v).and_then(|ks| ks.first()).map(|k| &self.bodies[*k]);
                for v in bodies.iter().flat_map(|b| b.loads(facts).iter().collect::<Vec<_>>()) {
                    if !facts.param[v] {
                        loads.insert(v);
                        roots.insert(facts.root(v));
                    }
                }
                Group { values: vec![v], loads, roots }
            })
            .collect();
        let mut refused: BTreeSet<(Vec<usize>, Vec<usize>)> = BTreeSet::new();
        loop {
            let mut closest: Option<(f64, usize, usize)> = None;
            for i in 0..groups.len() {
                for j in i + 1..groups.len() {
                    let (a, b) = (&groups[i], &groups[j]);
                    let near = a.near(b, facts);
                    let nearer = near > 0.0 && closest.is_none_or(|(best, ..)| near > best);
                    if nearer && !refused.contains(&(a.values.clone(), b.values.clone())) {
                        closest = Some((near, i, j));
                    }
                }
            }
            let Some((_, i, j)) = closest else { return };
            let both = [groups[i].values.clone(), groups[j].values.clone()].concat();
            if self.join(best, &both, "join.inputs", log) {
                let other = groups.remove(j);
                groups[i].values = both;
                groups[i].loads.extend(&other.loads);
                groups[i].roots.extend(&other.roots);
            } else {
                refused.insert((groups[i].values.clone(), groups[j].values.clone()));
            }
        }
    }
}

/// Whether two kernels have more in common than a launch: they load parts of one tensor, store for
/// one consumer, or one loads what the other stores.
fn related(facts: &Facts<'_>, a: &Kernel, b: &Kernel) -> bool {
    let loads = |k: &Kernel| Body { ops: k.ops.clone(), ..Body::default() }.loads(facts);
    let (from_a, from_b) = (loads(a), loads(b));
    let roots =
        |loads: &Set| Set::of(loads.iter().filter(|v| !facts.param[*v]).map(|v| facts.root(v)));
    let readers = |k: &Kernel| {
        let mut out = Set::default();
        k.stores.iter().for_each(|v| out.extend(&facts.readers[*v]));
        out
    };
    roots(&from_a).meets(&roots(&from_b))
        || readers(a).meets(&readers(b))
        || from_a.meets(&Set::of(b.stores.iter().copied()))
        || from_b.meets(&Set::of(a.stores.iter().copied()))
}

/// Values that are joined, and what their clusters load.
struct Group {
    values: Vec<usize>,
    loads: Set,
    /// The same without the views.
    roots: Set,
}

impl Group {
    /// Bytes that both load; a byte for parts of one tensor.
    fn near(&self, other: &Group, facts: &Facts<'_>) -> f64 {
        let shared = self.loads.iter().filter(|v| other.loads.contains(*v));
        let bytes: f64 = shared.map(|v| facts.bytes(v)).sum();
        bytes + if self.roots.meets(&other.roots) { 1.0 } else { 0.0 }
    }
}

/// The rule that absorbs an op.
fn rule_of(facts: &Facts<'_>, v: usize) -> &'static str {
    debug_assert!(facts.role[v] == Role::Row);
    match facts.op(v) {
        _ if facts.sums_rows(v) => "absorb.token_reduce",
        Op::CausalConv1d | Op::CausalConv1dInputGrad | Op::SegmentShift { .. } => "absorb.stencil",
        Op::Cast { .. } => "absorb.cast",
        op => match op.info().class {
            Class::Reduction => "absorb.reduce",
            Class::View => "absorb.view",
            _ => "absorb.elementwise",
        },
    }
}
