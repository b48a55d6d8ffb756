//! The fewest bytes that suffice.
//!
//! A value that is needed can be kept itself, or, when it is cheap to make, made again from others.
//! Which to keep is a minimum cut: every path from a value that is not to be made again to a value
//! that is needed passes through one that is kept, and the bytes of those kept are the fewest. Of
//! equal choices the one nearest to where the values come from is taken, so that products are kept
//! rather than what is made of them. Source: Ford and Fulkerson, 1956; that a saved set is a minimum
//! cut is Chen's observation on the joint graph, PyTorch AOTAutograd, 2022.

use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use vlmc_ir::graph::Value;

/// How a value can be had in the backward pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Supply {
    /// It is there anyhow: an input or a parameter.
    Free,
    /// It is kept, whatever it takes.
    Kept,
    /// It is kept, or something made of it.
    Origin,
    /// It can be made again of these.
    Made(Vec<Value>),
}

const ENDLESS: i64 = i64::MAX / 4;
const SOURCE: usize = 0;
const SINK: usize = 1;

/// The values to keep for those that are `needed`.
pub(super) fn fewest_bytes(
    needed: &BTreeSet<Value>,
    supply: impl Fn(Value) -> Supply,
    bytes: impl Fn(Value) -> i64,
) -> BTreeSet<Value> {
    let mut kept = BTreeSet::new();
    let mut flow = Flow { edges: vec![], of: vec![vec![], vec![]] };
    // Each value is two vertices with its bytes between them.
    let mut vertices: FxHashMap<Value, Option<usize>> = FxHashMap::default();
    let mut values = vec![];
    let mut open: Vec<(Value, Option<usize>)> = needed.iter().map(|v| (*v, None)).collect();
    while let Some((v, user)) = open.pop() {
        let known = vertices.get(&v).copied();
        let vertex = known.unwrap_or_else(|| {
            let supply = supply(v);
            let vertex = match supply {
                Supply::Free => None,
                Supply::Kept => {
                    kept.insert(v);
                    None
                }
                Supply::Origin | Supply::Made(_) => Some(flow.vertex()),
            };
            if let Some(i) = vertex {
                let out = flow.vertex();
                flow.edge(i, out, bytes(v).clamp(1, ENDLESS / 4096));
                values.push((v, i));
                match supply {
                    Supply::Made(of) => open.extend(of.into_iter().map(|u| (u, Some(i)))),
                    _ => flow.edge(SOURCE, i, ENDLESS),
                }
            }
            vertices.insert(v, vertex);
            vertex
        });
        if let Some(i) = vertex {
            flow.edge(i + 1, user.unwrap_or(SINK), ENDLESS);
        }
    }
    while flow.augment() {}
    let reached = flow.reached();
    let cut = values.into_iter().filter(|(_, i)| reached[*i] && !reached[i + 1]);
    kept.extend(cut.map(|(v, _)| v));
    kept
}

/// A network: edge `2 n` and its reverse `2 n + 1`, with what they can still carry.
struct Flow {
    edges: Vec<(usize, i64)>,
    of: Vec<Vec<usize>>,
}

impl Flow {
    fn vertex(&mut self) -> usize {
        self.of.push(vec![]);
        self.of.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize, capacity: i64) {
        self.of[from].push(self.edges.len());
        self.edges.push((to, capacity));
        self.of[to].push(self.edges.len());
        self.edges.push((from, 0));
    }

    /// For each vertex the edge by which it is reached from the source, along free capacity.
    fn paths(&self) -> Vec<Option<usize>> {
        let mut by = vec![None; self.of.len()];
        let mut open = VecDeque::from([SOURCE]);
        while let Some(at) = open.pop_front() {
            for e in &self.of[at] {
                let (to, capacity) = self.edges[*e];
                if capacity > 0 && to != SOURCE && by[to].is_none() {
                    by[to] = Some(*e);
                    open.push_back(to);
                }
            }
        }
        by
    }

    fn reached(&self) -> Vec<bool> {
        let mut reached: Vec<bool> = self.paths().iter().map(Option::is_some).collect();
        reached[SOURCE] = true;
        reached
    }

    /// Sends what fits along one shortest path. Returns whether there was one.
    fn augment(&mut self) -> bool {
        let by = self.paths();
        let mut path = vec![];
        let mut at = SINK;
        while let Some(e) = by[at] {
            path.push(e);
            at = self.edges[e ^ 1].0;
        }
        let Some(amount) = path.iter().map(|e| self.edges[*e].1).min() else { return false };
        for e in path {
            self.edges[e].1 -= amount;
            self.edges[e ^ 1].1 += amount;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlmc_ir::graph::NodeId;

    fn v(n: u32) -> Value {
        NodeId(n).into()
    }

    /// Values 0 and 1 are products; 2 is made of both, 3 of an input and 2, 4 of 1.
    fn supply(x: Value) -> Supply {
        match x.node.0 {
            0 | 1 => Supply::Origin,
            2 => Supply::Made(vec![v(0), v(1)]),
            3 => Supply::Made(vec![v(9), v(2)]),
            4 => Supply::Made(vec![v(1)]),
            _ => Supply::Free,
        }
    }

    fn keep(needed: &[u32], bytes: [i64; 5]) -> Vec<u32> {
        let needed = needed.iter().map(|n| v(*n)).collect();
        let kept = fewest_bytes(&needed, supply, |x| bytes[x.node.0 as usize]);
        kept.into_iter().map(|x| x.node.0).collect()
    }

    #[test]
    fn the_fewest_bytes_are_kept() {
        assert_eq!(keep(&[3], [8, 8, 8, 8, 8]), [2], "one sum, not its two parts");
        assert_eq!(keep(&[3], [8, 8, 32, 32, 8]), [0, 1], "two parts, not their wide sum");
        assert_eq!(keep(&[3, 4], [8, 8, 8, 8, 8]), [0, 1], "nearest to where they come from");
        assert_eq!(keep(&[3, 4], [64, 8, 8, 8, 8]), [1, 2]);
        assert_eq!(keep(&[4], [8, 8, 8, 8, 2]), [4], "the narrow one");
        assert_eq!(keep(&[9], [8; 5]), [0; 0]);
        assert_eq!(keep(&[], [8; 5]), [0; 0]);
    }
}
