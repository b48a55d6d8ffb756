//! Gradients of ops that follow the rows of packed sequences. All write zeros to rows that are not
//! valid, and none lets such a row reach a valid one.

use super::{GradBuilder, Gradients};
use crate::graph::{Node, Value};
use crate::ops::{Op, Scalar, TypeError};

type Result<T> = std::result::Result<T, TypeError>;
type Dout<'a> = &'a [Option<Value>];

/// The shift the other way: `dx[s] = dy[s - by]` where both are valid rows of one segment. The rows
/// that got `fill` are those whose partner is outside, and pass nothing on.
pub(crate) fn segment_shift(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::SegmentShift { by, .. }, [_, cu, padded], Some(dy)) =
        (&n.op, n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    // No segment has as many rows as the one number whose negative does not fit.
    let op = Op::SegmentShift { by: by.saturating_neg(), fill: Scalar(0.0) };
    Ok(vec![Some(b.push(op, &[dy, *cu, *padded])?)])
}

/// By the two backward ops of the convolution.
pub(crate) fn causal_conv1d(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([x, w, cu, padded], Some(dy)) = (n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let dx = match b.wanted(*x) {
        Some(_) => Some(b.push(Op::CausalConv1dInputGrad, &[dy, *w, *cu, *padded])?),
        None => None,
    };
    Ok(vec![dx, weight(b, *w, [*x, dy, *cu, *padded])?])
}

/// The gradient by `w`, when it is wanted, from what met it and the gradient of the result.
fn weight(b: &mut GradBuilder, w: Value, operands: [Value; 4]) -> Result<Option<Value>> {
    let Some(dtype) = b.wanted(w) else { return Ok(None) };
    let taps = b.function().ty(w).dims[1].clone();
    b.push(Op::CausalConv1dWeightGrad { taps, dtype }, &operands).map(Some)
}

/// The op is linear in `dy` and in `w`: the convolution itself, and its gradient by the weight.
pub(crate) fn causal_conv1d_input_grad(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([dy, w, cu, padded], Some(ddx)) =
        (n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let ddy = match b.wanted(*dy) {
        Some(_) => Some(b.push(Op::CausalConv1d, &[ddx, *w, *cu, *padded])?),
        None => None,
    };
    Ok(vec![ddy, weight(b, *w, [ddx, *dy, *cu, *padded])?])
}

/// The op is linear in `x` and in `dy`: with its gradient as the weights, the convolution's own
/// gradient and the convolution.
pub(crate) fn causal_conv1d_weight_grad(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([x, dy, cu, padded], Some(ddw)) =
        (n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let dtype = b.function().ty(*x).dtype;
    let ddw = b.cast(ddw, dtype)?;
    let dx = match b.wanted(*x) {
        Some(_) => Some(b.push(Op::CausalConv1dInputGrad, &[*dy, ddw, *cu, *padded])?),
        None => None,
    };
    let ddy = match b.wanted(*dy) {
        Some(_) => Some(b.push(Op::CausalConv1d, &[*x, ddw, *cu, *padded])?),
        None => None,
    };
    Ok(vec![dx, ddy])
}

/// `dy`, or zeros when only another result has a gradient.
fn or_zero(b: &mut GradBuilder, dy: Option<Value>, result: Value) -> Result<Value> {
    dy.map_or_else(|| b.constant_like(0.0, result), Ok)
}

/// By the backward op.
pub(crate) fn gated_delta_rule(
    b: &mut GradBuilder,
    n: &Node,
    results: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([q, k, v, g, beta, cu, padded, state @ ..], [y, final_state], [dy, dfinal]) =
        (n.operands.as_slice(), results, douts)
    else {
        return Ok(vec![]);
    };
    let dy = or_zero(b, *dy, *y)?;
    let mut operands = vec![*q, *k, *v, *g, *beta, dy, *cu, *padded];
    match (state.first(), dfinal) {
        (Some(s), d) => operands.extend(std::iter::once(*s).chain(*d)),
        (None, Some(d)) => {
            operands.push(b.constant_like(0.0, *final_state)?);
            operands.push(*d);
        }
        (None, None) => {}
    }
    let node = b.node(Op::GatedDeltaRuleGrad, &operands)?;
    let result = |result: u32| Some(Value { node, result });
    let mut out: Vec<_> = (0..5).map(result).collect();
    out.extend([None, None, result(5)]);
    out.truncate(n.operands.len());
    Ok(out)
}

/// By the backward op.
pub(crate) fn attention(
    b: &mut GradBuilder,
    n: &Node,
    results: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Attention { scale, causal, window }, [q, k, v, cu, padded, rows @ ..]) =
        (&n.op, n.operands.as_slice())
    else {
        return Ok(vec![]);
    };
    let ([y, lse], [dy, dlse]) = (results, douts) else { return Ok(vec![]) };
    let dy = or_zero(b, *dy, *y)?;
    let mut operands = vec![*q, *k, *v, *y, *lse, dy, *cu, *padded];
    operands.extend(rows);
    if let Some(dlse) = dlse {
        if rows.is_empty() {
            // Operands may be missing at the end only, and every row is its own.
            let shape = vec![b.ty(*q).dims[0].clone()];
            operands.push(b.node(Op::Iota { shape, axis: 0 }, &[])?.into());
        }
        operands.push(*dlse);
    }
    let op = Op::AttentionGrad { scale: *scale, causal: *causal, window: window.clone() };
    let node = b.node(op, &operands)?;
    Ok((0..3).map(|result| Some(Value { node, result })).collect())
}
