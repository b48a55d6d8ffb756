//! Rules that grow clusters in an e-graph.
//!
//! Seeds stand at what sinks ask for. `absorb.*` takes in one producer, always the last of those it
//! loads, so that a cluster grows along a path and not through a lattice. `join.*` merges finished
//! ones ([`super::join`]).

use super::body::Body;
use super::device::in_memory;
use super::facts::{Facts, Role};
use super::log::Log;
use super::pool::Pool;
use super::set::Set;
use std::collections::BTreeMap;
use vlmc_ir::ops::{Class, Op};

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

/// More clusters than this are not grown for one function.
const MOST_CLUSTERS: usize = 6000;

impl Pool<'_, '_> {
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
            let together: Vec<Vec<usize>> =
                self.together().iter().map(|g| g.iter().collect()).collect();
            for demand in demands.iter().chain(&together) {
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
}

/// The rule that absorbs an op.
pub(super) fn rule_of(facts: &Facts<'_>, v: usize) -> &'static str {
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
