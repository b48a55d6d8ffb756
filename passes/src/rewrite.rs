//! Making a function anew from another.

use std::collections::BTreeMap;
use vlmc_ir::graph::{Function, Node, NodeId, OutputKind, RegionId, Value};

/// The innermost region of a function around all of some; `None` when there is none.
pub fn common_region(
    f: &Function,
    mut regions: impl Iterator<Item = Option<RegionId>>,
) -> Option<RegionId> {
    let first = regions.next()??;
    let around = |r: RegionId| std::iter::successors(Some(r), |r| f.regions[r.0 as usize].parent);
    let mut chain: Vec<RegionId> = around(first).collect();
    for r in regions {
        let other: Vec<RegionId> = around(r?).collect();
        chain.retain(|r| other.contains(r));
    }
    chain.first().copied()
}

/// The regions that one function took over from another.
#[derive(Default)]
pub(crate) struct Regions(BTreeMap<RegionId, RegionId>);

impl Regions {
    /// The region of `to` that stands for one of `from`; made with those around it at first use, so
    /// that none stays without nodes.
    pub(crate) fn carry(&mut self, from: &Function, old: RegionId, to: &mut Function) -> RegionId {
        if let Some(id) = self.0.get(&old) {
            return *id;
        }
        let mut region = from.regions[old.0 as usize].clone();
        region.parent = region.parent.map(|p| self.carry(from, p, to));
        let id = RegionId(to.regions.len() as u32);
        to.regions.push(region);
        self.0.insert(old, id);
        id
    }
}

/// A function that is made from another node by node, with values of the old one mapped to values
/// of the new one. Tables of inputs and parameters carry over; regions carry over as nodes use
/// them, so that none stays without nodes.
pub struct Rewriter<'a> {
    old: &'a Function,
    new: Function,
    /// New values of each old node's results; empty until the node is handled.
    values: Vec<Vec<Value>>,
    regions: Regions,
}

impl<'a> Rewriter<'a> {
    /// A new function without nodes.
    pub fn new(old: &'a Function) -> Self {
        let new = Function {
            name: old.name.clone(),
            inputs: old.inputs.clone(),
            params: old.params.clone(),
            cluster: old.cluster.clone(),
            ..Function::default()
        };
        Rewriter { old, new, values: vec![vec![]; old.nodes.len()], regions: Regions::default() }
    }

    /// The function so far.
    pub fn function(&self) -> &Function {
        &self.new
    }

    /// A node of the new function, to change its name, region or origins.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.new.nodes[id.0 as usize]
    }

    /// The new value of an old one, once its node is handled.
    pub fn value(&self, old: Value) -> Option<Value> {
        self.values.get(old.node.0 as usize)?.get(old.result as usize).copied()
    }

    /// The new region of an old one; made with those around it at first use.
    pub fn region(&mut self, old: RegionId) -> RegionId {
        self.regions.carry(self.old, old, &mut self.new)
    }

    /// An old node with its operands and region mapped; not yet in the new function.
    ///
    /// # Panics
    /// Never in functions that verify, when nodes are handled in order and users of left out nodes
    /// are left out too.
    pub fn mapped(&mut self, id: NodeId) -> Node {
        let mut node = self.old.node(id).clone();
        for v in &mut node.operands {
            *v = self.value(*v).expect("an operand of a kept node is kept");
        }
        node.region = node.region.map(|r| self.region(r));
        node
    }

    /// Copies an old node.
    pub fn keep(&mut self, id: NodeId) -> NodeId {
        let node = self.mapped(id);
        let results = node.tys.len() as u32;
        let new = NodeId(self.new.nodes.len() as u32);
        self.new.nodes.push(node);
        self.replace(id, (0..results).map(|result| Value { node: new, result }).collect());
        new
    }

    /// Adds a node whose operands and region are those of the new function.
    pub fn add(&mut self, node: Node) -> NodeId {
        let new = NodeId(self.new.nodes.len() as u32);
        self.new.nodes.push(node);
        new
    }

    /// Lets new values stand for the results of an old node.
    pub fn replace(&mut self, old: NodeId, values: Vec<Value>) {
        self.values[old.0 as usize] = values;
    }

    /// The finished function, with the outputs of the old one.
    ///
    /// # Panics
    /// When an output was left out.
    pub fn finish(mut self) -> Function {
        let mut outputs = self.old.outputs.clone();
        for o in &mut outputs {
            o.value = self.value(o.value).expect("outputs are kept");
            if let OutputKind::Loss { count, .. } = &mut o.kind {
                *count = self.value(*count).expect("outputs are kept");
            }
        }
        self.new.outputs = outputs;
        self.new
    }
}
