//! From chosen e-nodes back to a function.
//!
//! Nodes come in the order in which the results need them, which does not depend on the order that
//! they had. A node keeps the origins of all nodes that it stands for, the name of the first that
//! has one, and the innermost region around all of them.

use super::extract::{Choice, ordered};
use super::language::{Graph, Head};
use super::load::Loaded;
use crate::rewrite::{Regions, Rewriter, common_region};
use egg::Id;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use vlmc_ir::graph::{Function, Node, NodeId, OutputKind, Value};
use vlmc_ir::ops::Op;
use vlmc_ir::ty::Ty;

struct Emitter<'a> {
    old: &'a Function,
    graph: &'a Graph,
    choices: &'a BTreeMap<Id, Choice>,
    new: Function,
    done: BTreeMap<Id, Value>,
    regions: Regions,
    /// For each new node the name it would like, and whether it is that of a node it stands for.
    wishes: Vec<Option<(bool, Arc<str>)>>,
    retyped: BTreeMap<(Value, Ty), Value>,
}

/// Builds the function of the chosen e-nodes.
///
/// # Errors
/// When the choice is not complete or not sound, which would be a bug here.
pub(super) fn emit(
    old: &Function,
    loaded: &Loaded,
    choices: &BTreeMap<Id, Choice>,
) -> Result<Function, String> {
    let new = Function {
        name: old.name.clone(),
        inputs: old.inputs.clone(),
        params: old.params.clone(),
        cluster: old.cluster.clone(),
        ..Function::default()
    };
    let mut e = Emitter {
        old,
        graph: &loaded.graph,
        choices,
        new,
        done: BTreeMap::new(),
        regions: Regions::default(),
        wishes: vec![],
        retyped: BTreeMap::new(),
    };
    // Inputs and parameters stay, needed or not; so do calls and exchanges, in their order.
    let places = |wanted: fn(&Op) -> bool| {
        old.nodes.iter().enumerate().filter(move |(_, n)| wanted(&n.op)).map(|(i, _)| i)
    };
    let fixed = |op: &Op| !matches!(op, Op::Input { .. } | Op::Param { .. });
    let declared = places(|op| matches!(op, Op::Input { .. }))
        .chain(places(|op| matches!(op, Op::Param { .. })));
    let effects = (0..old.nodes.len()).filter(|i| {
        fixed(&old.nodes[*i].op) && matches!(super::load::head(old, *i), Head::Fixed(_))
    });
    for i in declared.chain(effects) {
        e.class(loaded.classes[i])?;
    }
    let mut outputs = old.outputs.clone();
    for o in &mut outputs {
        o.value = e.output(loaded, o.value)?;
        if let OutputKind::Loss { count, .. } = &mut o.kind {
            *count = e.output(loaded, *count)?;
        }
    }
    e.new.outputs = outputs;
    e.name();
    Ok(without_dead(&e.new))
}

/// The function without pure nodes that nothing reads.
fn without_dead(f: &Function) -> Function {
    let live = super::load::live(f);
    if live.iter().all(|l| *l) {
        return f.clone();
    }
    let mut r = Rewriter::new(f);
    for id in f.node_ids().filter(|id| live[id.0 as usize]) {
        r.keep(id);
    }
    r.finish()
}

impl Emitter<'_> {
    fn output(&mut self, loaded: &Loaded, v: Value) -> Result<Value, String> {
        let value = self.class(loaded.class(self.old, v))?;
        Ok(self.retype(value, self.old.ty(v)))
    }

    /// The value of a class, with all that it needs.
    fn class(&mut self, class: Id) -> Result<Value, String> {
        let class = self.graph.find(class);
        let mut stack = vec![class];
        let mut open: FxHashSet<Id> = FxHashSet::default();
        while let Some(id) = stack.last().copied() {
            if self.done.contains_key(&id) {
                stack.pop();
                continue;
            }
            let choices = self.choices;
            let choice = choices.get(&id).ok_or("a value has no term")?;
            let children = ordered(self.graph, choices, &choice.node);
            let missing: Vec<Id> =
                children.iter().copied().filter(|c| !self.done.contains_key(c)).collect();
            if missing.is_empty() {
                let value = self.node(id, choice, &children)?;
                self.done.insert(id, value);
                stack.pop();
            } else if open.insert(id) {
                stack.extend(missing.into_iter().rev());
            } else {
                return Err("a value needs itself".to_string());
            }
        }
        self.done.get(&class).copied().ok_or_else(|| "a value was not built".to_string())
    }

    fn node(&mut self, class: Id, choice: &Choice, children: &[Id]) -> Result<Value, String> {
        let mut operands: Vec<Value> =
            children.iter().filter_map(|c| self.done.get(c).copied()).collect();
        let (op, tys) = match self.graph.analysis.head(&choice.node) {
            Head::Part(result) => {
                let of = operands.first().ok_or("a part of nothing")?;
                return Ok(Value { node: of.node, result: *result });
            }
            Head::Pure(op) => {
                let tys: Vec<Ty> = operands.iter().map(|v| self.new.ty(*v).clone()).collect();
                (op.clone(), op.infer(&tys).map_err(|e| format!("{}: {e}", op.name()))?)
            }
            Head::Leaf(i) | Head::Fixed(i) => {
                let node = &self.old.nodes[*i as usize];
                for (v, old) in operands.iter_mut().zip(&node.operands) {
                    let ty = self.old.ty(*old).clone();
                    *v = self.retype(*v, &ty);
                }
                (node.op.clone(), node.tys.clone())
            }
        };
        let data = &self.graph[class].data;
        let own = !data.from.is_empty();
        let from = if own { &data.from } else { &data.near };
        let nodes: Vec<&Node> = from.iter().map(|i| &self.old.nodes[*i as usize]).collect();
        let region = common_region(self.old, nodes.iter().map(|n| n.region));
        let mut origins = vec![];
        for o in nodes.iter().flat_map(|n| &n.origins) {
            if !origins.contains(o) {
                origins.push(o.clone());
            }
        }
        // Constants are made anew so often that a name would mislead.
        let named = own || !matches!(op, Op::Constant { .. });
        let name = nodes.iter().find_map(|n| n.name.clone()).filter(|_| named);
        let region = region.map(|r| self.regions.carry(self.old, r, &mut self.new));
        let id = self.new.push_node(op, operands, tys, None);
        let node = &mut self.new.nodes[id.0 as usize];
        node.region = region;
        node.origins = origins;
        self.wishes.resize(self.new.nodes.len(), None);
        self.wishes[id.0 as usize] = name.map(|n| (own, n));
        Ok(id.into())
    }

    /// The value with the segments that a type has.
    fn retype(&mut self, v: Value, ty: &Ty) -> Value {
        if self.new.ty(v) == ty {
            return v;
        }
        if let Some(known) = self.retyped.get(&(v, ty.clone())) {
            return *known;
        }
        let op = Op::Reshape { shape: ty.dims.clone() };
        let node = self.new.node(v.node);
        let (region, origins) = (node.region, node.origins.clone());
        // The reshape below another one has no user left, unless others read it too.
        let of = if let Op::Reshape { .. } = node.op { node.operands[0] } else { v };
        let id = self.new.push_node(op, vec![of], vec![ty.clone()], None);
        let new = &mut self.new.nodes[id.0 as usize];
        new.region = region;
        new.origins = origins;
        self.retyped.insert((v, ty.clone()), id.into());
        id.into()
    }

    /// Gives names, each to one node: first to nodes that stand for one of that name, then to those
    /// that rules made on the way to one.
    fn name(&mut self) {
        let mut taken: FxHashSet<Arc<str>> = FxHashSet::default();
        for round in [true, false] {
            for (i, wish) in self.wishes.iter().enumerate() {
                let Some((own, base)) = wish else { continue };
                if *own != round {
                    continue;
                }
                let mut name = base.clone();
                let mut again = 2;
                while !taken.insert(name.clone()) {
                    name = format!("{base}_{again}").into();
                    again += 1;
                }
                self.new.nodes[NodeId(i as u32).0 as usize].name = Some(name);
            }
        }
    }
}
