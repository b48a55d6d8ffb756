//! Copying forward nodes to where their values are needed again.

use super::REPLAY;
use std::collections::BTreeMap;
use std::sync::Arc;
use vlmc_ir::graph::{Function, Node, NodeId, Region, RegionId, Value};
use vlmc_ir::ops::{Effect, Op};
use vlmc_ir::ty::Ty;

/// The region of this name below another; added when it is new.
pub(super) fn region(f: &mut Function, parent: Option<RegionId>, name: &Arc<str>) -> RegionId {
    let known = f.regions.iter().position(|r| r.parent == parent && r.name == *name);
    let at = known.unwrap_or_else(|| {
        f.regions.push(Region { name: name.clone(), parent });
        f.regions.len() - 1
    });
    RegionId(at as u32)
}

/// The region of `to` that stands for one of `from`, inside `around`.
pub(super) fn carry(
    from: &Function,
    old: Option<RegionId>,
    to: &mut Function,
    around: Option<&str>,
) -> Option<RegionId> {
    let mut path: Vec<Arc<str>> = vec![];
    let mut at = old;
    while let Some(r) = at.and_then(|r| from.regions.get(r.0 as usize)) {
        path.push(r.name.clone());
        at = r.parent;
    }
    path.extend(around.map(Arc::from));
    path.iter().rev().fold(None, |parent, name| Some(region(to, parent, name)))
}

/// Makes values of a function again in another one.
pub(super) struct Replay<'f> {
    from: &'f Function,
    /// Where values of `from` are in the new function.
    values: BTreeMap<Value, Value>,
    /// Parameters of the new function, by key.
    params: BTreeMap<String, Value>,
    /// A node of the new function that computes the same stands for one to be made.
    reuse: bool,
}

/// A node that computes what one with this op and these operands would; not calls of functions that
/// are no clusters, which stand for themselves.
pub(super) fn twin(f: &Function, op: &Op, operands: &[Value], tys: &[Ty]) -> Option<NodeId> {
    let may = match op {
        Op::Call { scope, path, .. } => scope.is_empty() && path.is_empty(),
        op => op.info().effect == Effect::Pure,
    };
    let same = |n: &Node| n.op == *op && n.operands == operands && n.tys == tys;
    f.nodes.iter().position(same).filter(|_| may).map(|i| NodeId(i as u32))
}

impl<'f> Replay<'f> {
    pub(super) fn new(from: &'f Function) -> Self {
        Replay { from, values: BTreeMap::new(), params: BTreeMap::new(), reuse: false }
    }

    /// Lets nodes that are there stand for those that would compute the same.
    pub(super) fn reusing(mut self) -> Self {
        self.reuse = true;
        self
    }

    /// A value is there.
    pub(super) fn have(&mut self, old: Value, new: Value) {
        self.values.insert(old, new);
    }

    /// A value is not there any more.
    pub(super) fn discard(&mut self, old: Value) {
        self.values.remove(&old);
    }

    /// A parameter is there.
    pub(super) fn have_param(&mut self, key: &str, new: Value) {
        self.params.insert(key.to_string(), new);
    }

    /// Where a parameter is, when it is there.
    pub(super) fn param(&self, key: &str) -> Option<Value> {
        self.params.get(key).copied()
    }

    /// Where a value is, when it is there.
    pub(super) fn value(&self, old: Value) -> Option<Value> {
        self.values.get(&old).copied()
    }

    /// Nodes that making `wanted` repeats, operands first, and the inputs that it needs and that
    /// are not there.
    pub(super) fn missing(&self, wanted: &[Value]) -> (Vec<NodeId>, Vec<NodeId>) {
        let (mut nodes, mut inputs) = (vec![], vec![]);
        let mut seen = vec![false; self.from.nodes.len()];
        let mut stack: Vec<(Value, bool)> = wanted.iter().rev().map(|v| (*v, false)).collect();
        while let Some((v, entered)) = stack.pop() {
            let node = self.from.node(v.node);
            if entered {
                nodes.push(v.node);
                continue;
            }
            if self.values.contains_key(&v) || std::mem::replace(&mut seen[v.node.0 as usize], true)
            {
                continue;
            }
            match &node.op {
                Op::Input { .. } => inputs.push(v.node),
                Op::Param { .. } => {}
                _ => {
                    stack.push((v, true));
                    stack.extend(node.operands.iter().rev().map(|o| (*o, false)));
                }
            }
        }
        (nodes, inputs)
    }

    /// Makes a value in `to`, with all that it takes and is not there. Returns where it is; `None`
    /// when it takes an input that is not there.
    pub(super) fn make(&mut self, to: &mut Function, wanted: Value) -> Option<Value> {
        if let Op::Param { index } = &self.from.node(wanted.node).op {
            let param = self.from.params.get(*index as usize)?;
            let have = self.params.get(&param.key).copied();
            let new = have.unwrap_or_else(|| to.add_param(param.clone()));
            self.params.insert(param.key.clone(), new);
            return Some(new);
        }
        let (nodes, inputs) = self.missing(&[wanted]);
        if !inputs.is_empty() {
            return None;
        }
        for id in nodes {
            let old = self.from.node(id);
            let operands = old.operands.iter().map(|v| match self.value(*v) {
                Some(new) => Some(new),
                None => self.make(to, *v),
            });
            let operands: Vec<Value> = operands.collect::<Option<_>>()?;
            let known = twin(to, &old.op, &operands, &old.tys).filter(|_| self.reuse);
            let new = known.unwrap_or_else(|| {
                let region = carry(self.from, old.region, to, Some(REPLAY));
                to.nodes.push(Node { operands, region, ..old.clone() });
                NodeId(to.nodes.len() as u32 - 1)
            });
            for result in 0..old.tys.len() as u32 {
                // What is there already stays what readers take.
                let value = Value { node: id, result };
                self.values.entry(value).or_insert(Value { node: new, result });
            }
        }
        self.value(wanted)
    }
}
