//! What dumps call a cluster: from what it computes and from the ops around it, after the choice.
//! Nothing is decided by it.

use super::body::Body;
use super::choose::Kernel;
use super::facts::{Facts, at};
use vlmc_ir::ops::{Class, Op};

/// The label of a chosen cluster, of which only what its stores need counts.
pub(super) fn label(facts: &Facts<'_>, kernel: &Kernel) -> String {
    let f = facts.f;
    let body = Body { ops: kernel.ops.clone(), ..Body::default() };
    let any =
        |test: &dyn Fn(&Op) -> bool| body.ops.iter().any(|i| !facts.param[i] && test(facts.op(i)));
    let reduces = body.ops.iter().any(|i| {
        matches!(facts.op(i), Op::ReduceSum { .. }) && !facts.sums_rows(i) && !facts.param[i]
    });
    let sums = body.ops.iter().any(|i| facts.sums_rows(i) && !facts.param[i]);
    let stencil = any(&|op| {
        matches!(op, Op::CausalConv1d | Op::CausalConv1dInputGrad)
            || matches!(op, Op::CausalConv1dWeightGrad { .. })
    });
    let gates =
        any(&|op| matches!(op, Op::Silu | Op::Sigmoid | Op::Tanh | Op::Gelu | Op::GeluTanh));
    // Ops that read what it stores, through places to store to, and ops that made what it loads.
    let mut readers: Vec<&Op> = vec![];
    let mut stored: Vec<usize> = kernel.stores.clone();
    for (i, node) in f.nodes.iter().enumerate() {
        if facts.live[i] && node.operands.iter().any(|v| stored.contains(&at(*v))) {
            readers.push(&node.op);
            if facts.places(i) {
                stored.push(i);
            }
        }
    }
    let loads = body.loads(facts);
    let makers = || loads.iter().map(|v| facts.op(facts.root(v)));
    let read_by = |test: &dyn Fn(&Op) -> bool| readers.iter().any(|op| test(op));
    let made_by = |test: &dyn Fn(&Op) -> bool| makers().any(test);
    let delta = |op: &Op| matches!(op, Op::GatedDeltaRule);
    let delta_grad = |op: &Op| matches!(op, Op::GatedDeltaRuleGrad);
    let attention = |op: &Op| matches!(op, Op::Attention { .. });
    let attention_grad = |op: &Op| matches!(op, Op::AttentionGrad { .. });
    let name = if made_by(&delta_grad) {
        "gdn.pre_gated_delta_rule.grad"
    } else if read_by(&delta) {
        "gdn.pre_gated_delta_rule"
    } else if read_by(&delta_grad) {
        if stencil { "gdn.pre_gated_delta_rule.again" } else { "norm.gated_rms.grad" }
    } else if made_by(&attention_grad) {
        "attn.qkv_prep.grad"
    } else if read_by(&attention) {
        "attn.qkv_prep"
    } else if made_by(&delta) && reduces {
        "norm.gated_rms"
    } else if made_by(&attention) && gates {
        "attn.output_gate"
    } else if read_by(&|op| matches!(op, Op::TopK { .. })) {
        "moe.router"
    } else if reduces {
        if sums { "norm.residual.grad" } else { "norm.residual" }
    } else if gates {
        "mlp.gate"
    } else if sums {
        "row.sum"
    } else if any(&|op| op.info().class == Class::Elementwise) {
        "row.elementwise"
    } else {
        "row.view"
    };
    name.to_string()
}
