//! Leaves out results and inputs of functions that no call needs.
//!
//! `dce` keeps a call as soon as one of its results is used, and with it the whole callee. Here a
//! function is made anew for each set of results that calls use, with the nodes, inputs and
//! parameters that these need; a call passes only those inputs. What main takes and gives stays.

use crate::manager::{Pass, PassError};
use indexmap::IndexMap;
use std::collections::BTreeMap;
use vlmc_ir::graph::{Function, NodeId, Output, OutputKind, Program, RegionId, Value};
use vlmc_ir::ops::Op;

/// The pass.
pub const PASS: Pass = Pass {
    name: "prune",
    summary: "leaves out results and inputs of functions that no call needs",
    run,
};

fn run(p: &Program) -> Result<Program, PassError> {
    let Some(main) = p.functions.len().checked_sub(1) else { return Ok(p.clone()) };
    let mut pruner = Pruner { program: p, variants: IndexMap::new() };
    let all = vec![true; p.functions[main].outputs.len()];
    let root = pruner.variant(main, &all);
    let reached = pruner.reached(root);
    // A function of which calls use one set of results keeps its name, further sets are numbered.
    let mut order: Vec<usize> = (0..pruner.variants.len()).filter(|i| reached[*i]).collect();
    order.sort_by_key(|i| pruner.variants.get_index(*i).map(|((f, m), _)| (*f, m.clone())));
    let mut names: BTreeMap<usize, String> = BTreeMap::new();
    let mut taken: Vec<String> = p.functions.iter().map(|f| f.name.clone()).collect();
    let mut last = None;
    for i in &order {
        let Some(((f, _), _)) = pruner.variants.get_index(*i) else { continue };
        let base = &p.functions[*f].name;
        let mut name = base.clone();
        if last == Some(*f) {
            let free = (2..).map(|k| format!("{base}.{k}")).find(|n| !taken.contains(n));
            name = free.unwrap_or_default();
            taken.push(name.clone());
        }
        last = Some(*f);
        names.insert(*i, name);
    }
    let functions = order.iter().filter_map(|i| {
        let (_, v) = pruner.variants.get_index(*i)?;
        let mut f = v.function.clone();
        f.name.clone_from(names.get(i)?);
        for (node, callee) in &v.calls {
            if let Op::Call { callee: name, .. } = &mut f.nodes[node.0 as usize].op {
                name.clone_from(names.get(callee)?);
            }
        }
        Some(f)
    });
    Ok(Program { functions: functions.collect(), ..p.clone() })
}

/// A function for one set of results.
struct Variant {
    function: Function,
    /// Which inputs of the old function it takes.
    inputs: Vec<bool>,
    /// Calls in it: node, index of the callee's variant.
    calls: Vec<(NodeId, usize)>,
}

struct Pruner<'p> {
    program: &'p Program,
    variants: IndexMap<(usize, Vec<bool>), Variant>,
}

impl Pruner<'_> {
    /// Variants that calls from `root` on lead to: those of calls that were left out are not wanted.
    fn reached(&self, root: usize) -> Vec<bool> {
        let mut reached = vec![false; self.variants.len()];
        let mut open = vec![root];
        while let Some(i) = open.pop() {
            if !std::mem::replace(&mut reached[i], true)
                && let Some((_, v)) = self.variants.get_index(i)
            {
                open.extend(v.calls.iter().map(|(_, callee)| *callee));
            }
        }
        reached
    }

    /// The index of the variant of function `f` with the results of `wanted`.
    fn variant(&mut self, f: usize, wanted: &[bool]) -> usize {
        let key = (f, wanted.to_vec());
        if let Some(i) = self.variants.get_index_of(&key) {
            return i;
        }
        let variant = self.build(f, wanted);
        self.variants.insert_full(key, variant).0
    }

    fn build(&mut self, index: usize, wanted: &[bool]) -> Variant {
        let program = self.program;
        let old = &program.functions[index];
        let is_main = index + 1 == program.functions.len();
        let mut used: Vec<Vec<bool>> = old.nodes.iter().map(|n| vec![false; n.tys.len()]).collect();
        let mark = |v: Value, used: &mut Vec<Vec<bool>>| {
            used[v.node.0 as usize][v.result as usize] = true;
        };
        let kept = old.outputs.iter().zip(wanted).filter(|(_, w)| **w).map(|(o, _)| o);
        for o in kept.clone() {
            mark(o.value, &mut used);
            if let OutputKind::Loss { count, .. } = o.kind {
                mark(count, &mut used);
            }
        }
        // Backward over the nodes: a call needs what the variant of its callee needs.
        let mut live = vec![false; old.nodes.len()];
        let mut callees: BTreeMap<usize, usize> = BTreeMap::new();
        for i in (0..old.nodes.len()).rev() {
            let n = &old.nodes[i];
            let any = used[i].iter().any(|u| *u);
            match &n.op {
                Op::Call { callee, .. } => {
                    let target = program.functions[..index].iter().position(|f| f.name == *callee);
                    let Some(target) = target else { continue };
                    let variant = self.variant(target, &used[i]);
                    let Some((_, v)) = self.variants.get_index(variant) else { continue };
                    live[i] = any;
                    if live[i] {
                        callees.insert(i, variant);
                        let needed = n.operands.iter().zip(&v.inputs).filter(|(_, k)| **k);
                        needed.for_each(|(o, _)| mark(*o, &mut used));
                    }
                }
                _ => {
                    live[i] = any;
                    if live[i] {
                        n.operands.iter().for_each(|o| mark(*o, &mut used));
                    }
                }
            }
        }
        let keeps_input = |i: usize| is_main || live[i];
        let mut f = Function::new(old.name.clone());
        let mut values: BTreeMap<Value, Value> = BTreeMap::new();
        let mut regions: BTreeMap<RegionId, RegionId> = BTreeMap::new();
        let mut inputs = vec![false; old.inputs.len()];
        let mut calls = vec![];
        for (i, n) in old.nodes.iter().enumerate() {
            let id = NodeId(f.nodes.len() as u32);
            let mut results: Vec<u32> = (0..n.tys.len() as u32).collect();
            let mut operands = n.operands.clone();
            let op = match &n.op {
                Op::Input { index } if keeps_input(i) => {
                    inputs[*index as usize] = true;
                    f.inputs.push(old.inputs[*index as usize].clone());
                    Op::Input { index: f.inputs.len() as u32 - 1 }
                }
                Op::Param { index } if keeps_input(i) => {
                    f.params.push(old.params[*index as usize].clone());
                    Op::Param { index: f.params.len() as u32 - 1 }
                }
                _ if !live[i] => continue,
                op => {
                    if let Some(variant) = callees.get(&i)
                        && let Some((_, v)) = self.variants.get_index(*variant)
                    {
                        results.retain(|r| used[i][*r as usize]);
                        let mut kept = v.inputs.iter();
                        operands.retain(|_| kept.next().copied().unwrap_or(false));
                        calls.push((id, *variant));
                    }
                    op.clone()
                }
            };
            let operands = operands.iter().filter_map(|o| values.get(o).copied()).collect();
            let tys = results.iter().map(|r| n.tys[*r as usize].clone()).collect();
            f.push_node(op, operands, tys, n.name.clone());
            for (new, old) in results.iter().enumerate() {
                let old = Value { node: NodeId(i as u32), result: *old };
                values.insert(old, Value { node: id, result: new as u32 });
            }
            let region = n.region.map(|r| region(old, &mut f, &mut regions, r));
            if let Some(node) = f.nodes.last_mut() {
                node.region = region;
                node.origins.clone_from(&n.origins);
            }
        }
        let new = |v: Value| values.get(&v).copied().unwrap_or(v);
        let outputs = kept.map(|o| {
            let kind = match o.kind {
                OutputKind::Loss { count, weight } => {
                    OutputKind::Loss { count: new(count), weight }
                }
                ref other => other.clone(),
            };
            Output { name: o.name.clone(), value: new(o.value), kind }
        });
        f.outputs = outputs.collect();
        Variant { function: f, inputs, calls }
    }
}

/// The region in the new function, made with those around it at first use.
fn region(
    old: &Function,
    new: &mut Function,
    map: &mut BTreeMap<RegionId, RegionId>,
    r: RegionId,
) -> RegionId {
    if let Some(id) = map.get(&r) {
        return *id;
    }
    let mut copy = old.regions[r.0 as usize].clone();
    copy.parent = copy.parent.map(|p| region(old, new, map, p));
    let id = RegionId(new.regions.len() as u32);
    new.regions.push(copy);
    map.insert(r, id);
    id
}

/// Drops inputs and parameters of main that nothing uses, for programs whose caller passes inputs by
/// name.
pub fn drop_unused_inputs(p: &mut Program) {
    let Some(main) = p.functions.last_mut() else { return };
    let mut used = vec![false; main.nodes.len()];
    for v in main.nodes.iter().flat_map(|n| n.operands.iter().copied()).chain(main.output_values())
    {
        used[v.node.0 as usize] = true;
    }
    let mut map = vec![NodeId(0); main.nodes.len()];
    let (mut inputs, mut params, mut nodes) = (vec![], vec![], vec![]);
    for (i, mut n) in std::mem::take(&mut main.nodes).into_iter().enumerate() {
        match &mut n.op {
            Op::Input { .. } | Op::Param { .. } if !used[i] => continue,
            Op::Input { index } => {
                inputs.push(main.inputs[*index as usize].clone());
                *index = inputs.len() as u32 - 1;
            }
            Op::Param { index } => {
                params.push(main.params[*index as usize].clone());
                *index = params.len() as u32 - 1;
            }
            _ => {}
        }
        map[i] = NodeId(nodes.len() as u32);
        n.operands.iter_mut().for_each(|v| v.node = map[v.node.0 as usize]);
        nodes.push(n);
    }
    for o in &mut main.outputs {
        o.value.node = map[o.value.node.0 as usize];
        if let OutputKind::Loss { count, .. } = &mut o.kind {
            count.node = map[count.node.0 as usize];
        }
    }
    main.inputs = inputs;
    main.params = params;
    main.nodes = nodes;
}
