//! Choosing one e-node a class: greedy over the graph as it is shared, each class charged once.
//!
//! A class keeps the set of classes that its best term needs. Among terms of one cost the smaller
//! structure hash wins, which does not depend on how the graph came about, so that equal programs
//! come out equal whatever they looked like. Whether a concatenation stands below arithmetic is asked
//! of the chosen e-node of a child, not of its class, which has others too.

use super::language::{ENode, Graph, Head, is_stencil};
use super::rules::commutes;
use super::term::View;
use egg::Id;
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use vlmc_ir::dim::Poly;
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::Ty;

/// What a symbol is taken for in costs: a power of two, which most sizes divide.
const TYPICAL: i64 = 8192;
/// What a piece of a concatenation costs besides its elements.
const PIECE: u64 = 64 * TYPICAL as u64;
/// Rounds of improvement. Each is a pass over the graph; a handful suffice.
const ROUNDS: usize = 60;

/// The chosen e-node of a class.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) node: ENode,
    /// Hash of the term: the same for the same term in any graph.
    pub(super) key: u64,
}

struct Best {
    total: u64,
    own: u64,
    key: u64,
    /// Dense indices of the classes that the term needs, this one too, increasing.
    needs: Vec<u32>,
    node: usize,
    /// Whether it is pieces side by side, seen through casts and reshapes.
    joins: bool,
}

/// Chooses for every class that has a term at all. `rank` tells inputs, parameters, calls and
/// exchanges apart, as the hashes use it. The second result says whether the choice settled; when it
/// did not, it is right but may not be the normal form.
pub(super) fn choose(graph: &Graph, rank: &dyn Fn(&Head) -> u64) -> (BTreeMap<Id, Choice>, bool) {
    let mut ids: Vec<Id> = graph.classes().map(|c| c.id).collect();
    ids.sort_unstable();
    let dense: BTreeMap<Id, u32> = ids.iter().enumerate().map(|(i, id)| (*id, i as u32)).collect();
    let elements: Vec<u64> = ids.iter().map(|id| class_elements(graph, *id)).collect();
    let children: Vec<Vec<Vec<u32>>> = ids
        .iter()
        .map(|id| {
            let nodes = graph[*id].nodes.iter();
            nodes.map(|n| n.children.iter().map(|c| dense[&graph.find(*c)]).collect()).collect()
        })
        .collect();
    let mut best: Vec<Option<Best>> = ids.iter().map(|_| None).collect();
    let mut round = 0;
    let settled = loop {
        let mut changed = false;
        for (i, id) in ids.iter().enumerate() {
            let mut found: Option<Best> = None;
            for (k, n) in graph[*id].nodes.iter().enumerate() {
                let c = &children[i][k];
                let Some(b) = term(graph, rank, &best, &elements, &ids, i as u32, (k, n, c)) else {
                    continue;
                };
                if found.as_ref().is_none_or(|f| (b.total, b.key) < (f.total, f.key)) {
                    found = Some(b);
                }
            }
            let Some(found) = found else { continue };
            let same = best[i].as_ref().is_some_and(|b| {
                (b.total, b.key, b.node) == (found.total, found.key, found.node)
                    && b.needs == found.needs
            });
            if !same {
                best[i] = Some(found);
                changed = true;
            }
        }
        round += 1;
        if !changed {
            break true;
        }
        if round == ROUNDS {
            // The last choices are as good as any, unless they turn in circles.
            if !acyclic(&best, &children) {
                best = shallow(graph, rank, &ids, &elements, &children);
            }
            break false;
        }
    };
    (collect(graph, &ids, best), settled)
}

fn collect(graph: &Graph, ids: &[Id], best: Vec<Option<Best>>) -> BTreeMap<Id, Choice> {
    let chosen = ids.iter().zip(best).filter_map(|(id, b)| {
        let b = b?;
        Some((*id, Choice { node: graph[*id].nodes[b.node].clone(), key: b.key }))
    });
    chosen.collect()
}

/// The choice by the longest path: a term costs more than any term in it, so nothing turns in
/// circles. For graphs in which the better choice does not settle.
fn shallow(
    graph: &Graph,
    rank: &dyn Fn(&Head) -> u64,
    ids: &[Id],
    elements: &[u64],
    children: &[Vec<Vec<u32>>],
) -> Vec<Option<Best>> {
    let mut best: Vec<Option<Best>> = ids.iter().map(|_| None).collect();
    loop {
        let mut changed = false;
        for (i, id) in ids.iter().enumerate() {
            for (k, n) in graph[*id].nodes.iter().enumerate() {
                let below = children[i][k].iter().map(|c| best[*c as usize].as_ref());
                let Some(below) = below.collect::<Option<Vec<&Best>>>() else { continue };
                let own = cost(graph, n, elements, i as u32, &children[i][k], Below::default());
                let longest = below.iter().map(|b| b.total).max().unwrap_or(0);
                let total = longest.saturating_add(own.max(1));
                if best[i].as_ref().is_none_or(|b| total < b.total) {
                    let key = hash(graph, n, below.iter().map(|b| b.key).collect(), rank);
                    best[i] = Some(Best { total, own, key, needs: vec![], node: k, joins: false });
                    changed = true;
                }
            }
        }
        if !changed {
            return best;
        }
    }
}

/// Whether following the chosen e-nodes always ends.
fn acyclic(best: &[Option<Best>], children: &[Vec<Vec<u32>>]) -> bool {
    // 0 new, 1 open, 2 done.
    let mut state = vec![0u8; best.len()];
    for start in 0..best.len() {
        let mut stack = vec![(start as u32, 0usize)];
        while let Some((i, at)) = stack.pop() {
            let (i, Some(b)) = (i as usize, &best[i as usize]) else { continue };
            if at == 0 {
                if state[i] == 2 {
                    continue;
                }
                state[i] = 1;
            }
            let Some(child) = children[i][b.node].get(at) else {
                state[i] = 2;
                continue;
            };
            stack.push((i as u32, at + 1));
            match state[*child as usize] {
                0 => stack.push((*child, 0)),
                1 => return false,
                _ => {}
            }
        }
    }
    true
}

/// The term of an e-node with the best terms of its children; `None` while one has none, or needs
/// the class itself.
fn term(
    graph: &Graph,
    rank: &dyn Fn(&Head) -> u64,
    best: &[Option<Best>],
    elements: &[u64],
    ids: &[Id],
    class: u32,
    (k, n, children): (usize, &ENode, &[u32]),
) -> Option<Best> {
    let mut needs: Vec<u32> = vec![];
    for c in children {
        let b = best[*c as usize].as_ref()?;
        if b.needs.binary_search(&class).is_ok() {
            return None;
        }
        needs.extend(&b.needs);
    }
    needs.sort_unstable();
    needs.dedup();
    let mut below = Below::default();
    for c in children {
        let Some(chosen) = best[*c as usize].as_ref() else { continue };
        below.concat |= chosen.joins;
        let op = graph.analysis.op(&graph[ids[*c as usize]].nodes[chosen.node]);
        below.reshape |= matches!(op, Some(Op::Reshape { .. }));
    }
    let joins = match graph.analysis.op(n) {
        Some(Op::Concat { .. }) => true,
        Some(Op::Cast { .. } | Op::Reshape { .. }) => below.concat,
        _ => false,
    };
    let own = cost(graph, n, elements, class, children, below);
    let rest = needs.iter().filter_map(|c| best[*c as usize].as_ref()).map(|b| b.own);
    let total = rest.fold(own, u64::saturating_add);
    let at = needs.partition_point(|x| *x < class);
    needs.insert(at, class);
    let keys: Vec<u64> =
        children.iter().filter_map(|c| best[*c as usize].as_ref()).map(|b| b.key).collect();
    Some(Best { total, own, key: hash(graph, n, keys, rank), needs, node: k, joins })
}

fn hash(graph: &Graph, n: &ENode, mut keys: Vec<u64>, rank: &dyn Fn(&Head) -> u64) -> u64 {
    let mut h = FxHasher::default();
    match graph.analysis.head(n) {
        Head::Pure(op) => {
            if commutes(op) {
                keys.sort_unstable();
            }
            op.hash(&mut h);
        }
        head @ (Head::Leaf(_) | Head::Fixed(_)) => (1u8, rank(head)).hash(&mut h),
        Head::Part(i) => (2u8, i).hash(&mut h),
    }
    keys.hash(&mut h);
    h.finish()
}

/// Elements of all results, with every symbol at its typical value.
fn class_elements(graph: &Graph, id: Id) -> u64 {
    let data = &graph[id].data;
    data.tys.iter().map(|t| ty_elements(graph.analysis.ty(*t))).fold(0, u64::saturating_add)
}

fn ty_elements(ty: &Ty) -> u64 {
    let size = |p: &Poly| p.eval(&|_| Some(TYPICAL)).map_or(TYPICAL as u64, |n| n.max(1) as u64);
    ty.dims.iter().map(|d| size(d.size())).fold(1, u64::saturating_mul)
}

/// What stands directly below an e-node, as chosen.
#[derive(Clone, Copy, Default)]
struct Below {
    concat: bool,
    reshape: bool,
}

/// What an e-node costs, in hundredths of an addition. The numbers only have to prefer the normal
/// form: slices at loads, concatenations and reshapes at stores, nothing computed twice.
fn cost(
    graph: &Graph,
    n: &ENode,
    elements: &[u64],
    class: u32,
    children: &[u32],
    below: Below,
) -> u64 {
    let result = elements[class as usize];
    let operand = children.first().map_or(0, |c| elements[*c as usize]);
    let Some(op) = graph.analysis.op(n) else { return 0 };
    let (weight, count) = match op {
        Op::Constant { .. } => return 0,
        Op::Neg => (40, result),
        Op::Div | Op::Rem => (400, result),
        Op::Exp | Op::Recip | Op::Sqrt | Op::Rsqrt => (200, result),
        Op::Sigmoid | Op::Silu => (250, result),
        Op::Log | Op::Tanh | Op::Erf | Op::Sin | Op::Cos => (300, result),
        Op::Softplus => (500, result),
        Op::Gelu | Op::GeluTanh => (600, result),
        Op::Cast { .. } | Op::StopGradient => (20, result),
        Op::ReduceSum { .. } | Op::ReduceMax { .. } => (100, operand),
        // Not a slot: or the greedy choice would take pieces of a small value for it.
        Op::Reshape { .. } => (0, result),
        Op::Broadcast { .. } => (5, result),
        Op::Repeat { .. } => (10, result),
        Op::Concat { .. } | Op::Transpose { .. } => (30, result),
        Op::Pad { .. } => (500, result),
        Op::Slice { .. } => {
            let loads = n.children.first().is_some_and(|c| graph[*c].data.loads);
            (if loads { 2 } else { 400 }, result)
        }
        Op::CausalConv1dWeightGrad { .. } => (400, operand),
        _ if is_stencil(op) => (400, result),
        _ if op.info().class == Class::Elementwise => (100, result),
        _ => (1000, result.saturating_add(operand)),
    };
    // Above arithmetic a view is a place to store to; below it is work, or another row shape.
    let arranges = matches!(op, Op::Concat { .. } | Op::Reshape { .. } | Op::Cast { .. });
    let works = matches!(op.info().class, Class::Elementwise | Class::Reduction | Class::View)
        || is_stencil(op);
    let arithmetic = op.info().class == Class::Elementwise;
    let concat = if below.concat && works && !arranges { 60 } else { 0 };
    let reshape = if below.reshape && arithmetic { 1 } else { 0 };
    // Few pieces before many, however small they are.
    let pieces = match op {
        Op::Concat { .. } => (children.len() as u64).saturating_mul(PIECE),
        _ => 0,
    };
    let penalty = result.saturating_mul(concat + reshape).saturating_add(pieces);
    // A node more is never better.
    count.saturating_mul(weight).saturating_add(penalty).saturating_add(1)
}

/// Children in the order in which a function has them: for ops whose operands may be swapped, by
/// the hash of their terms, with constants behind the others.
pub(super) fn ordered(graph: &Graph, choices: &BTreeMap<Id, Choice>, n: &ENode) -> Vec<Id> {
    let mut children: Vec<Id> = n.children.iter().map(|c| graph.find(*c)).collect();
    if graph.analysis.op(n).is_some_and(commutes) {
        let view = View { graph };
        children.sort_by_key(|c| {
            (view.constant(*c).is_some(), choices.get(c).map_or(0, |c| c.key), *c)
        });
    }
    children
}
