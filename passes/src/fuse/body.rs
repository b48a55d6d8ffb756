//! Bodies of clusters: what is computed inside, and what is loaded although it could be.

use super::facts::{Facts, Role, at};
use super::set::Set;
use std::collections::BTreeSet;
use vlmc_ir::graph::Value;

/// A body. The values that it stores are chosen later, among those it computes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(super) struct Body {
    /// Row ops computed inside.
    pub(super) ops: Set,
    /// Values that it was grown for.
    pub(super) outs: Set,
    /// Row ops that it loads: they are not to be absorbed.
    pub(super) frozen: Set,
}

impl Body {
    /// One row op, with the parameter-only values that it reads.
    pub(super) fn seed(facts: &Facts<'_>, v: usize) -> Body {
        let mut ops = Set::of([v]);
        let mut open = vec![v];
        while let Some(i) = open.pop() {
            for a in facts.kids(i) {
                if facts.role[a] == Role::Row && facts.param[a] && !ops.contains(a) {
                    ops.insert(a);
                    open.push(a);
                }
            }
        }
        Body { ops, outs: Set::of([v]), frozen: Set::default() }
    }

    /// What it loads: leaves, results of cuts, and row ops of other kernels.
    pub(super) fn loads(&self, facts: &Facts<'_>) -> Set {
        let mut out = Set::default();
        for i in self.ops.iter() {
            facts.kids(i).filter(|a| !self.ops.contains(*a)).for_each(|a| out.insert(a));
        }
        out
    }

    /// Bytes of what it loads; of a cut with several results those that it reads.
    pub(super) fn read(&self, facts: &Facts<'_>) -> f64 {
        let mut seen: BTreeSet<Value> = BTreeSet::new();
        for i in self.ops.iter() {
            let node = &facts.f.nodes[i];
            let loads = facts.kids(i).filter(|a| !self.ops.contains(*a)).collect::<Vec<usize>>();
            seen.extend(node.operands.iter().filter(|v| loads.contains(&at(**v))));
        }
        seen.into_iter().map(|v| facts.value_bytes(v)).sum()
    }

    /// The last row op that it loads and might compute.
    pub(super) fn next(&self, facts: &Facts<'_>) -> Option<usize> {
        let open = |v: &usize| facts.role[*v] == Role::Row && !self.frozen.contains(*v);
        self.loads(facts).iter().rfind(open)
    }
}
