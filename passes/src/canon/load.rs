//! From a function to a graph.

use super::language::{ENode, Graph, Head, plain_dim};
use egg::Id;
use std::collections::BTreeMap;
use vlmc_ir::dim::Dim;
use vlmc_ir::graph::{Function, Value};
use vlmc_ir::ops::{Effect, Op};

/// A function as a graph.
pub(super) struct Loaded {
    pub(super) graph: Graph,
    /// The class of each node: of all its results when it has not exactly one.
    pub(super) classes: Vec<Id>,
    parts: BTreeMap<Value, Id>,
}

impl Loaded {
    /// The class of a value.
    pub(super) fn class(&self, f: &Function, v: Value) -> Id {
        let id = if f.node(v.node).tys.len() == 1 {
            self.classes[v.node.0 as usize]
        } else {
            self.parts.get(&v).copied().unwrap_or(self.classes[v.node.0 as usize])
        };
        self.graph.find(id)
    }
}

/// What a node is in a graph.
pub(super) fn head(f: &Function, index: usize) -> Head {
    match &f.nodes[index].op {
        Op::Input { .. } | Op::Param { .. } => Head::Leaf(index as u32),
        op if op.info().effect == Effect::Pure => Head::Pure(plain_op(op)),
        _ => Head::Fixed(index as u32),
    }
}

/// For each node whether an output needs it, or it does more than compute its results.
pub(super) fn live(f: &Function) -> Vec<bool> {
    let mut live: Vec<bool> = f.nodes.iter().map(|n| n.op.info().effect != Effect::Pure).collect();
    for v in f.output_values() {
        live[v.node.0 as usize] = true;
    }
    for i in (0..f.nodes.len()).rev() {
        if live[i] {
            for v in &f.nodes[i].operands {
                live[v.node.0 as usize] = true;
            }
        }
    }
    live
}

/// Reads what is needed of a function that verifies.
pub(super) fn load(f: &Function) -> Loaded {
    let mut graph = Graph::default();
    let mut classes: Vec<Id> = vec![];
    let mut parts = BTreeMap::new();
    let live = live(f);
    for (i, node) in f.nodes.iter().enumerate() {
        if !live[i] {
            // Nobody asks for its class.
            classes.push(Id::from(0));
            continue;
        }
        let children = node.operands.iter().map(|v| {
            if f.node(v.node).tys.len() == 1 { classes[v.node.0 as usize] } else { parts[v] }
        });
        let children = children.collect();
        let what = head(f, i);
        let given = !matches!(what, Head::Pure(_));
        let head = graph.analysis.head_id(what);
        if given {
            graph.analysis.give(head, &node.tys);
        }
        let id = graph.add(ENode { head, children });
        graph[id].data.from.push(i as u32);
        classes.push(id);
        if node.tys.len() != 1 {
            for result in 0..node.tys.len() as u32 {
                let head = graph.analysis.head_id(Head::Part(result));
                let part = graph.add(ENode { head, children: vec![id] });
                graph[part].data.near = vec![i as u32];
                parts.insert(Value { node: vlmc_ir::graph::NodeId(i as u32), result }, part);
            }
        }
    }
    Loaded { graph, classes, parts }
}

/// The op without segments in its dims.
fn plain_op(op: &Op) -> Op {
    let all = |dims: &[Dim]| dims.iter().map(plain_dim).collect::<Vec<Dim>>();
    match op {
        Op::Constant { value, dtype, shape } => {
            Op::Constant { value: *value, dtype: *dtype, shape: all(shape) }
        }
        Op::Iota { shape, axis } => Op::Iota { shape: all(shape), axis: *axis },
        Op::Reshape { shape } => Op::Reshape { shape: all(shape) },
        Op::Broadcast { shape, dims } => Op::Broadcast { shape: all(shape), dims: dims.clone() },
        Op::Repeat { axis, times } => Op::Repeat { axis: *axis, times: plain_dim(times) },
        Op::Slice { axis, start, size } => {
            Op::Slice { axis: *axis, start: plain_dim(start), size: plain_dim(size) }
        }
        Op::Pad { axis, before, after } => {
            Op::Pad { axis: *axis, before: plain_dim(before), after: plain_dim(after) }
        }
        // The dims of the others are sizes of results, which types lose their segments of.
        other => other.clone(),
    }
}
