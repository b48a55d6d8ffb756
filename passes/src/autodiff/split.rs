//! A forward and a backward function from a differentiated one.

use super::Target;
use super::cut::{Supply, fewest_bytes};
use super::reverse::{CallPair, Template, add_input};
use super::saved::{Saved, SavedList, is_cheap};
use super::unique;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use vlmc_ir::graph::{Function, Node, NodeId, Output, OutputKind, Program, Value};
use vlmc_ir::ops::Op;
use vlmc_ir::text::cursor::is_word;
use vlmc_ir::ty::Ty;

/// What sizes that are known only when running count as, where bytes are compared.
const NOMINAL_SIZE: i64 = 4096;

/// The two functions of a template, and how they are called.
pub(super) struct Lowered {
    pub(super) forward: Function,
    pub(super) backward: Function,
    pub(super) list: SavedList,
    /// Types of the results of the forward function after those of the template.
    extra: Vec<Ty>,
    /// Operands of the backward function: inputs of the template, results of the forward function,
    /// gradients by their place among those given.
    inputs: Vec<usize>,
    results: Vec<u32>,
    douts: Vec<usize>,
}

/// Splits every template, callees before callers.
pub(super) fn lower_all(program: &Program, templates: &[Template]) -> Vec<Lowered> {
    let mut cheap: FxHashMap<String, bool> = FxHashMap::default();
    for f in &program.functions {
        let is = f.nodes.iter().all(|n| is_cheap_node(n, &cheap));
        cheap.insert(f.name.clone(), is);
    }
    let mut lowered: Vec<Lowered> = vec![];
    for t in templates {
        let mut joint = t.joint.function.clone();
        connect(&mut joint, &t.joint.calls, &lowered);
        let is = cheap.get(&program.functions[t.source].name).copied().unwrap_or(false);
        lowered
            .push(Splitter::new(t, &joint, &cheap, &lowered).split(&program.functions[t.source]));
        cheap.insert(t.forward_name.clone(), is);
    }
    lowered
}

fn is_cheap_node(n: &Node, cheap: &FxHashMap<String, bool>) -> bool {
    match &n.op {
        Op::Input { .. } | Op::Param { .. } => true,
        Op::Call { callee, .. } => cheap.get(callee).copied().unwrap_or(false),
        op => is_cheap(op),
    }
}

/// Gives forward calls the results that their functions keep, and backward calls the operands that
/// theirs take.
pub(super) fn connect(f: &mut Function, calls: &[CallPair], lowered: &[Lowered]) {
    for c in calls {
        let l = &lowered[c.template];
        let forward = &mut f.nodes[c.forward.0 as usize];
        forward.tys.extend_from_slice(&l.extra);
        if let Op::Call { callee, .. } = &mut forward.op {
            callee.clone_from(&l.forward.name);
        }
        let mut operands: Vec<Value> = l.inputs.iter().map(|i| forward.operands[*i]).collect();
        operands.extend(l.results.iter().map(|r| Value { node: c.forward, result: *r }));
        let backward = &mut f.nodes[c.backward.0 as usize];
        operands.extend(l.douts.iter().map(|i| backward.operands[*i]));
        backward.operands = operands;
    }
}

/// Works out what the backward function needs, and makes it.
struct Splitter<'a> {
    t: &'a Template,
    joint: &'a Function,
    cheap: &'a FxHashMap<String, bool>,
    lowered: &'a [Lowered],
    /// Nodes that the backward function has: gradients, and forward nodes made again.
    live: Vec<bool>,
    inputs: BTreeSet<usize>,
    params: BTreeSet<NodeId>,
    /// What to keep of what may be needed, and what of it is.
    chosen: BTreeSet<Value>,
    saved: BTreeSet<Value>,
}

impl<'a> Splitter<'a> {
    fn new(
        t: &'a Template,
        joint: &'a Function,
        cheap: &'a FxHashMap<String, bool>,
        lowered: &'a [Lowered],
    ) -> Self {
        let mut s = Splitter {
            t,
            joint,
            cheap,
            lowered,
            live: vec![false; joint.nodes.len()],
            inputs: BTreeSet::new(),
            params: BTreeSet::new(),
            chosen: BTreeSet::new(),
            saved: BTreeSet::new(),
        };
        // First the gradients alone: what they need decides what is kept.
        let mut needed = BTreeSet::new();
        let mut open: Vec<Value> = t.joint.gradients.iter().map(|g| g.value).collect();
        while let Some(v) = open.pop() {
            if (v.node.0 as usize) < t.joint.forward {
                needed.insert(v);
            } else if !std::mem::replace(&mut s.live[v.node.0 as usize], true) {
                open.extend_from_slice(&joint.node(v.node).operands);
            }
        }
        let nominal = |v: Value| joint.ty(v).bytes().eval(&|_| Some(NOMINAL_SIZE));
        let bytes = |v: Value| match t.saved.exception(v) {
            Some(false) => i64::MAX,
            _ => nominal(v).unwrap_or(i64::MAX),
        };
        s.chosen = fewest_bytes(&needed, |v| s.supply(v), bytes);
        let mut open: Vec<Value> = needed.into_iter().collect();
        while let Some(v) = open.pop() {
            if s.needs_node(v) && !std::mem::replace(&mut s.live[v.node.0 as usize], true) {
                open.extend_from_slice(&joint.node(v.node).operands);
            }
        }
        s
    }

    /// How a forward value can be had.
    fn supply(&self, v: Value) -> Supply {
        let node = self.joint.node(v.node);
        match &node.op {
            Op::Input { .. } | Op::Param { .. } => Supply::Free,
            _ => match self.t.saved.exception(v) {
                Some(true) => Supply::Kept,
                None if !self.is_cheap(v) => Supply::Origin,
                _ => Supply::Made(node.operands.clone()),
            },
        }
    }

    /// Notes that a forward value is needed. Returns whether its node is made again.
    fn needs_node(&mut self, v: Value) -> bool {
        match &self.joint.node(v.node).op {
            Op::Input { index } => {
                self.inputs.insert(*index as usize);
                false
            }
            Op::Param { .. } => {
                self.params.insert(v.node);
                false
            }
            _ if self.chosen.contains(&v) => {
                self.saved.insert(v);
                false
            }
            _ => true,
        }
    }

    /// What a callee keeps is kept, though the callee be cheap: somebody asked for it.
    fn is_cheap(&self, v: Value) -> bool {
        let call = self.t.joint.calls.iter().find(|c| c.forward == v.node);
        let is_kept = call.is_some_and(|c| {
            let l = &self.lowered[c.template];
            v.result as usize >= l.forward.outputs.len() - l.extra.len()
        });
        !is_kept && is_cheap_node(self.joint.node(v.node), self.cheap)
    }

    fn split(self, source: &Function) -> Lowered {
        let (forward, results, names) = self.forward(source);
        let (backward, rebuilt) = self.backward(source, &names);
        let values = self.saved.iter().zip(&names).zip(&results).map(|((v, name), result)| Saved {
            name: name.clone(),
            value: *v,
            op: self.joint.node(v.node).op.name(),
            ty: self.joint.ty(*v).clone(),
            is_output: (*result as usize) < source.outputs.len(),
        });
        let list = SavedList {
            template: self.t.name.clone(),
            inputs: self
                .inputs
                .iter()
                .map(|i| (source.inputs[*i].name.to_string(), source.inputs[*i].ty.clone()))
                .collect(),
            values: values.collect(),
            rebuilt,
        };
        let extra = forward.outputs[source.outputs.len()..].iter();
        let is_live = |(_, n): &(usize, &NodeId)| self.live[n.0 as usize];
        Lowered {
            extra: extra.map(|o| forward.ty(o.value).clone()).collect(),
            inputs: self.inputs.iter().copied().collect(),
            results,
            douts: self.t.douts.iter().enumerate().filter(is_live).map(|(i, _)| i).collect(),
            forward,
            backward,
            list,
        }
    }

    /// What to call a saved value: the name of its node, or where it comes from, or its op; of
    /// several results with the name of the result.
    fn name_of(&self, v: Value) -> String {
        let node = self.joint.node(v.node);
        let op = node.op.info();
        let path = node.origins.first().map(|o| &*o.path).filter(|p| is_word(p));
        let label = node.name.as_deref().or(path).unwrap_or(op.name);
        if node.tys.len() == 1 {
            return label.to_string();
        }
        let call = self.t.joint.calls.iter().find(|c| c.forward == v.node);
        let output = call.and_then(|c| {
            let l = &self.lowered[c.template];
            l.forward.outputs.get(v.result as usize)?.name.as_deref()
        });
        let name = output.map(|n| n.strip_prefix("saved.").unwrap_or(n));
        match name.or(op.results.get(v.result as usize).copied().filter(|r| !r.ends_with(".."))) {
            Some(r) if is_word(r) => format!("{label}.{r}"),
            _ => format!("{label}.{}", v.result),
        }
    }

    /// The forward function, and for each saved value which of its results it is, and its name.
    fn forward(&self, source: &Function) -> (Function, Vec<u32>, Vec<String>) {
        let mut f = Function {
            name: self.t.forward_name.clone(),
            nodes: self.joint.nodes[..self.t.joint.forward].to_vec(),
            ..source.clone()
        };
        let (mut results, mut names): (Vec<u32>, Vec<String>) = (vec![], vec![]);
        for v in &self.saved {
            let base = self.name_of(*v);
            let taken = |n: &str| {
                names.iter().any(|m| m == n) || source.inputs.iter().any(|i| &*i.name == n)
            };
            let name = unique(&base, taken);
            let have = source.outputs.iter().position(|o| o.value == *v);
            let at = have.unwrap_or_else(|| {
                let label = unique(&format!("saved.{name}"), |n| {
                    f.outputs.iter().any(|o| o.name.as_deref() == Some(n))
                });
                f.add_output(Some(&label), *v);
                f.outputs.len() - 1
            });
            results.push(at as u32);
            names.push(name);
        }
        (f, results, names)
    }

    /// The backward function, and the number of nodes that it makes again.
    fn backward(&self, source: &Function, names: &[String]) -> (Function, usize) {
        let mut f = Function::new(self.t.backward_name.clone());
        f.regions.clone_from(&source.regions);
        let mut map: BTreeMap<Value, Value> = BTreeMap::new();
        let forward = self.t.joint.forward;
        for (i, node) in self.joint.nodes[..forward].iter().enumerate() {
            if let Op::Input { index } = &node.op
                && self.inputs.contains(&(*index as usize))
            {
                let input = &source.inputs[*index as usize];
                let new = add_input(&mut f, &input.name, input.ty.clone());
                map.insert(NodeId(i as u32).into(), new);
            }
        }
        for (v, name) in self.saved.iter().zip(names) {
            map.insert(*v, add_input(&mut f, name, self.joint.ty(*v).clone()));
        }
        for id in self.t.douts.iter().filter(|id| self.live[id.0 as usize]) {
            let node = self.joint.node(*id);
            let name = node.name.as_deref().unwrap_or("d");
            map.insert((*id).into(), add_input(&mut f, name, node.tys[0].clone()));
        }
        for id in &self.params {
            let node = self.joint.node(*id);
            if let Op::Param { index } = &node.op {
                map.insert((*id).into(), f.add_param(source.params[*index as usize].clone()));
            }
        }
        let mut rebuilt = 0;
        let kept = (0..self.joint.nodes.len()).filter(|i| self.live[*i]);
        for i in kept.filter(|i| !matches!(self.joint.nodes[*i].op, Op::Input { .. })) {
            rebuilt += usize::from(i < forward);
            copy_node(&mut f, self.joint, NodeId(i as u32), &mut map);
        }
        for g in &self.t.joint.gradients {
            let name = match &g.target {
                Target::Input(i) => format!("grad.in.{}", source.inputs[*i].name),
                Target::Param(name) => format!("grad.param.{name}"),
            };
            let value = map.get(&g.value).copied().unwrap_or(g.value);
            f.outputs.push(Output { name: Some(name.into()), value, kind: OutputKind::Value });
        }
        (f, rebuilt)
    }
}

/// Copies a node; a result that `map` has already stays what it is there.
pub(super) fn copy_node(
    f: &mut Function,
    from: &Function,
    id: NodeId,
    map: &mut BTreeMap<Value, Value>,
) {
    let mut node = from.node(id).clone();
    for v in &mut node.operands {
        // Every operand has been copied: nodes come in order, and what is needed is live.
        *v = map.get(v).copied().unwrap_or(*v);
    }
    let new = NodeId(f.nodes.len() as u32);
    for result in 0..node.tys.len() as u32 {
        map.entry(Value { node: id, result }).or_insert(Value { node: new, result });
    }
    f.nodes.push(node);
}
