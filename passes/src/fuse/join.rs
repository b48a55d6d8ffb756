//! Rules that merge clusters: of one consumer, of what they load, and of what was chosen.

use super::body::Body;
use super::choose::Kernel;
use super::facts::{Facts, Role};
use super::log::Log;
use super::pool::Pool;
use super::set::Set;
use std::collections::{BTreeMap, BTreeSet};

impl Pool<'_, '_> {
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
    pub(super) fn join_operands(
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
    pub(super) fn join_inputs(&mut self, best: &BTreeMap<usize, Vec<usize>>, log: &mut Log) {
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
