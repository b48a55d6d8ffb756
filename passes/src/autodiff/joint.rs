//! The main function with forward, losses and backward.

use super::reverse::{Differentiator, Joint, add_input};
use super::split::{Lowered, connect, copy_node};
use super::{AutodiffError, Options, Seeds, Target};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use vlmc_ir::graph::{Function, NodeId, Output, OutputKind, Program, Value};
use vlmc_ir::ops::grad::GradBuilder;
use vlmc_ir::ops::{Comparison, Op};
use vlmc_ir::text::cursor::is_word;
use vlmc_ir::ty::{DType, Ty};

/// Differentiates main.
pub(super) fn main(d: &mut Differentiator<'_>, options: &Options) -> Result<Joint, AutodiffError> {
    let Some(index) = d.program.functions.len().checked_sub(1) else {
        return Err(AutodiffError::new("the program is empty"));
    };
    let f = &d.program.functions[index];
    for name in &options.inputs {
        let input = f.inputs.iter().find(|i| *i.name == **name);
        if input.is_none_or(|i| !i.ty.dtype.is_float()) {
            return Err(AutodiffError::new(format!("@{} has no float input `{name}`", f.name)));
        }
    }
    let wanted: Vec<Option<DType>> = f
        .inputs
        .iter()
        .map(|i| options.inputs.iter().any(|n| **n == *i.name).then_some(i.ty.dtype))
        .collect();
    d.function(index, &wanted, |b| {
        let mut seeds = vec![];
        for (i, o) in f.outputs.iter().enumerate() {
            let label = o.name.as_deref().filter(|n| is_word(n));
            let label = label.map_or_else(|| i.to_string(), str::to_string);
            match (options.seeds, &o.kind) {
                (Seeds::Counts, OutputKind::Loss { count, weight }) => {
                    seeds.push((o.value, quotient(b, *weight, *count)?));
                }
                (Seeds::Totals, OutputKind::Loss { weight, .. }) => {
                    let ty = Ty::scalar(DType::F32);
                    let total = add_input(b.function_mut(), &format!("{label}.total"), ty);
                    seeds.push((o.value, quotient(b, *weight, total)?));
                }
                (Seeds::Outputs, OutputKind::Value) if f.ty(o.value).dtype.is_float() => {
                    let ty = f.ty(o.value).clone();
                    let dout = add_input(b.function_mut(), &format!("dout.{label}"), ty);
                    seeds.push((o.value, dout));
                }
                _ => {}
            }
        }
        if seeds.is_empty() {
            return Err(AutodiffError::new(format!("@{} has no loss to start from", f.name)));
        }
        Ok(seeds)
    })
}

/// `weight / count`, and 0 for a count of 0: chosen, not multiplied, so that nothing infinite
/// enters.
fn quotient(b: &mut GradBuilder, weight: f64, count: Value) -> Result<Value, AutodiffError> {
    let weight = b.constant(weight, DType::F32, vec![])?;
    let share = b.push(Op::Div, &[weight, count])?;
    let zero = b.constant(0.0, DType::F32, vec![])?;
    let some = b.compare(Comparison::Ne, count, zero)?;
    Ok(b.push(Op::Select, &[some, share, zero])?)
}

/// Main with its calls connected, without gradients that nobody needs, and with its outputs.
pub(super) fn finish(joint: &Joint, lowered: &[Lowered]) -> Result<Function, AutodiffError> {
    let mut connected = joint.function.clone();
    connect(&mut connected, &joint.calls, lowered);
    let mut live: Vec<bool> = connected
        .nodes
        .iter()
        .enumerate()
        .map(|(i, n)| i < joint.forward || matches!(n.op, Op::Input { .. }))
        .collect();
    let mut open: Vec<Value> = joint.gradients.iter().map(|g| g.value).collect();
    while let Some(v) = open.pop() {
        if !std::mem::replace(&mut live[v.node.0 as usize], true) {
            open.extend_from_slice(&connected.node(v.node).operands);
        }
    }
    let mut f = Function { nodes: vec![], ..connected.clone() };
    let mut map = BTreeMap::new();
    for i in (0..connected.nodes.len()).filter(|i| live[*i]) {
        copy_node(&mut f, &connected, NodeId(i as u32), &mut map);
    }
    for g in &joint.gradients {
        let (name, kind) = match &g.target {
            Target::Input(i) => (format!("grad.in.{}", f.inputs[*i].name), OutputKind::Value),
            Target::Param(name) => (name.clone(), OutputKind::Gradient),
        };
        if f.outputs.iter().any(|o| o.name.as_deref() == Some(&name)) {
            return Err(AutodiffError::new(format!(
                "`{name}` is the name of an output and of a gradient"
            )));
        }
        let value = map.get(&g.value).copied().unwrap_or(g.value);
        f.outputs.push(Output { name: Some(name.into()), value, kind });
    }
    Ok(f)
}

/// Drops functions that main does not reach: those of which only the differentiated form is called.
pub(crate) fn drop_unreached(program: &mut Program) {
    let mut called: FxHashSet<String> =
        program.main().map(|f| f.name.clone()).into_iter().collect();
    let mut kept = vec![];
    // Callers come after callees.
    while let Some(f) = program.functions.pop() {
        if !called.contains(&f.name) {
            continue;
        }
        called.extend(f.nodes.iter().filter_map(|n| match &n.op {
            Op::Call { callee, .. } => Some(callee.clone()),
            _ => None,
        }));
        kept.push(f);
    }
    kept.reverse();
    program.functions = kept;
}
