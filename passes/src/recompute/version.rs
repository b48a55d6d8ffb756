//! A backward function that makes again what its forward function has discarded.

use super::CHECKPOINT;
use super::replay::{Replay, carry, twin};
use super::site::Site;
use crate::manager::PassError;
use std::collections::BTreeSet;
use vlmc_ir::graph::{Function, Node, NodeId, Value};
use vlmc_ir::ops::Op;

/// A backward function for one choice of what is discarded.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The function.
    pub(super) function: Function,
    /// Operands of the old backward call that it takes, in order.
    pub(super) operands: Vec<usize>,
    /// Operands of the forward call that it takes after those.
    pub(super) inputs: Vec<usize>,
    /// Results of the forward call that a replay reads.
    pub(super) checkpoints: BTreeSet<u32>,
    /// Nodes of the forward function that are repeated, operands first.
    pub(super) replayed: Vec<NodeId>,
}

/// Which input of a backward function is which of the forward function: operands of the two calls
/// that are one value.
pub(super) fn shared_inputs(main: &Function, site: &Site) -> Vec<(usize, usize)> {
    let (forward, backward) = (main.node(site.forward), main.node(site.backward));
    let shared = backward.operands.iter().enumerate().filter_map(|(b, v)| {
        let f = forward.operands.iter().position(|w| w == v)?;
        Some((f, b))
    });
    shared.collect()
}

/// Builds the backward function of a site without the results `discards`.
///
/// # Errors
/// A bug of the pass.
pub(super) fn backward(
    (forward, backward): (&Function, &Function),
    main: &Function,
    site: &Site,
    discards: &BTreeSet<u32>,
    name: String,
) -> Result<Version, PassError> {
    let bug = |what: &str| PassError::new(format!("internal error in @{name}: {what}"));
    let output = |r: u32| forward.outputs.get(r as usize).map(|o| o.value);
    let input_node = |f: &Function, i: usize| {
        let is = |n: &Node| matches!(n.op, Op::Input { index } if index as usize == i);
        f.nodes.iter().position(is).map(|n| Value::from(NodeId(n as u32)))
    };
    let mut out = Function { name: name.clone(), ..Function::default() };
    let mut replay = Replay::new(forward).reusing();
    // Old values of the backward function: what is discarded is `Err` with the forward value.
    let mut old: Vec<Option<Result<Value, Value>>> = vec![None; backward.nodes.len()];
    let mut operands = vec![];
    let mut wanted = vec![];
    for (i, input) in backward.inputs.iter().enumerate() {
        let kept = site.kept.iter().find(|k| k.operand == i);
        let value = match kept.filter(|k| discards.contains(&k.result)) {
            Some(k) => {
                let v = output(k.result).ok_or_else(|| bug("a result is missing"))?;
                wanted.push(v);
                Err(v)
            }
            None => {
                operands.push(i);
                let value = out.add_input(&input.name, input.ty.clone(), None);
                if let Some(v) = kept.and_then(|k| output(k.result)) {
                    replay.have(v, value);
                }
                Ok(value)
            }
        };
        if let Some(node) = input_node(backward, i) {
            old[node.node.0 as usize] = Some(value);
        }
    }
    // A value may be discarded as one result and kept as another; then it is there.
    for (f, b) in shared_inputs(main, site) {
        let Some(position) = operands.iter().position(|i| *i == b) else { continue };
        if let Some(v) = input_node(forward, f) {
            replay.have(v, NodeId(position as u32).into());
        }
    }
    let (replayed, missing) = replay.missing(&wanted);
    let mut inputs = vec![];
    for node in missing {
        let Op::Input { index } = &forward.node(node).op else { continue };
        let input =
            forward.inputs.get(*index as usize).ok_or_else(|| bug("an input is missing"))?;
        let mut label = input.name.to_string();
        while out.inputs.iter().any(|i| *i.name == *label) {
            label.push_str(".fwd");
        }
        let value = out.add_input(&label, input.ty.clone(), None);
        replay.have(node.into(), value);
        inputs.push(*index as usize);
    }
    let read: BTreeSet<Value> =
        replayed.iter().flat_map(|id| forward.node(*id).operands.iter().copied()).collect();
    let kept = site.kept.iter().map(|k| k.result).filter(|r| !discards.contains(r));
    let checkpoints = kept.filter(|r| output(*r).is_some_and(|v| read.contains(&v))).collect();
    for (i, node) in backward.nodes.iter().enumerate() {
        if let Op::Input { .. } = &node.op {
            continue;
        }
        let value = if let Op::Param { index } = &node.op {
            let param = &backward.params[*index as usize];
            let have = replay.param(&param.key);
            let value = have.unwrap_or_else(|| out.add_param(param.clone()));
            replay.have_param(&param.key, value);
            value
        } else {
            let resolve = |v: &Value| -> Result<Value, PassError> {
                match old[v.node.0 as usize] {
                    Some(Ok(new)) => Ok(Value { node: new.node, result: v.result }),
                    Some(Err(of)) => {
                        replay.make(&mut out, of).ok_or_else(|| bug("an input is not there"))
                    }
                    None => Err(bug("an operand comes later")),
                }
            };
            let operands = node.operands.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
            // What a replay has made already is not made once more.
            let known = twin(&out, &node.op, &operands, &node.tys);
            let id = known.unwrap_or_else(|| {
                let region = carry(backward, node.region, &mut out, None);
                out.nodes.push(Node { operands, region, ..node.clone() });
                NodeId(out.nodes.len() as u32 - 1)
            });
            id.into()
        };
        old[i] = Some(Ok(value));
    }
    out.outputs.clone_from(&backward.outputs);
    for i in 0..out.outputs.len() {
        let v = out.outputs[i].value;
        out.outputs[i].value = match old[v.node.0 as usize] {
            Some(Ok(new)) => Value { node: new.node, result: v.result },
            Some(Err(of)) => replay.make(&mut out, of).ok_or_else(|| bug("no such input"))?,
            None => return Err(bug("an output is missing")),
        };
    }
    Ok(Version { function: out, operands, inputs, checkpoints, replayed })
}

/// The name of a result that a replay reads.
pub(super) fn checkpoint_name(name: &str) -> String {
    format!("{CHECKPOINT}{}", name.strip_prefix(super::SAVED).unwrap_or(name))
}
