//! Gradients of arrangement and of reductions.

use super::{GradBuilder, Gradients};
use crate::dim::Dim;
use crate::graph::{Node, Value};
use crate::ops::{Comparison, Op, TypeError};
use crate::ty::DType;

type Result<T> = std::result::Result<T, TypeError>;
type Dout<'a> = &'a [Option<Value>];

/// The first operand with its dims, and the gradient of the result.
fn one(b: &GradBuilder, node: &Node, douts: Dout<'_>) -> Option<(Value, Vec<Dim>, Value)> {
    let (x, dy) = (*node.operands.first()?, douts.first().copied().flatten()?);
    Some((x, b.function().ty(x).dims.clone(), dy))
}

/// Back to the dims of `x`.
pub(crate) fn reshape(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let Some((_, dims, dy)) = one(b, n, douts) else { return Ok(vec![]) };
    Ok(vec![Some(b.reshape(dy, &dims)?)])
}

/// The inverse permutation.
pub(crate) fn transpose(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Transpose { permutation }, Some((_, _, dy))) = (&n.op, one(b, n, douts)) else {
        return Ok(vec![]);
    };
    let mut inverse = vec![0; permutation.len()];
    for (i, p) in permutation.iter().enumerate() {
        inverse[*p as usize] = i as u32;
    }
    Ok(vec![Some(b.push(Op::Transpose { permutation: inverse }, &[dy])?)])
}

/// The sum over what was repeated, in the element type that the gradient is to have.
pub(crate) fn broadcast(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Broadcast { shape, dims }, Some((x, have, dy))) = (&n.op, one(b, n, douts)) else {
        return Ok(vec![]);
    };
    let repeated = |axis: &u32| match dims.iter().position(|d| d == axis) {
        Some(i) => !have[i].same_size(&shape[*axis as usize]),
        None => true,
    };
    let axes: Vec<u32> = (0..shape.len() as u32).filter(repeated).collect();
    let dy = widened(b, dy, x)?;
    let sum = b.sum(dy, axes)?;
    Ok(vec![Some(b.reshape(sum, &have)?)])
}

/// `dy` in f32 when the gradient of `x` is to be f32: then nothing is rounded before the sum.
fn widened(b: &mut GradBuilder, dy: Value, x: Value) -> Result<Value> {
    if b.wanted(x) == Some(DType::F32) { b.wide(dy) } else { Ok(dy) }
}

/// The sum over the copies of each slice.
pub(crate) fn repeat(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Repeat { axis, times }, Some((x, dims, dy))) = (&n.op, one(b, n, douts)) else {
        return Ok(vec![]);
    };
    let mut apart = dims.clone();
    apart.insert(*axis as usize + 1, times.clone());
    let dy = widened(b, dy, x)?;
    let apart = b.reshape(dy, &apart)?;
    let sum = b.sum(apart, vec![axis + 1])?;
    Ok(vec![Some(b.reshape(sum, &dims)?)])
}

/// Zeros around it.
pub(crate) fn slice(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Slice { axis, start, size }, Some((_, dims, dy))) = (&n.op, one(b, n, douts)) else {
        return Ok(vec![]);
    };
    let after = dims[*axis as usize].size().sub(start.size()).sub(size.size());
    if start.size().is(0) && after.is(0) {
        return Ok(vec![Some(dy)]);
    }
    let before = Dim::new(start.size().clone());
    let op = Op::Pad { axis: *axis, before, after: Dim::new(after) };
    Ok(vec![Some(b.push(op, &[dy])?)])
}

/// The part that was not added.
pub(crate) fn pad(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Pad { axis, before, .. }, Some((_, dims, dy))) = (&n.op, one(b, n, douts)) else {
        return Ok(vec![]);
    };
    let size = dims[*axis as usize].clone();
    Ok(vec![Some(b.push(Op::Slice { axis: *axis, start: before.clone(), size }, &[dy])?)])
}

/// Each operand its part.
pub(crate) fn concat(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Concat { axis }, Some((_, _, dy))) = (&n.op, one(b, n, douts)) else {
        return Ok(vec![]);
    };
    let mut start = crate::dim::Poly::default();
    let mut out = vec![];
    for x in &n.operands {
        let size = b.function().ty(*x).dims[*axis as usize].clone();
        let next = start.add(size.size());
        let begin = Dim::new(std::mem::replace(&mut start, next));
        out.push(match b.wanted(*x) {
            Some(_) => Some(b.push(Op::Slice { axis: *axis, start: begin, size }, &[dy])?),
            None => None,
        });
    }
    Ok(out)
}

/// `dy` to every element of its sum.
pub(crate) fn reduce_sum(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::ReduceSum { axes }, Some((_, dims, dy))) = (&n.op, one(b, n, douts)) else {
        return Ok(vec![]);
    };
    Ok(vec![Some(b.spread(dy, &dims, axes)?)])
}

/// `dy` to the elements that are the maximum, in equal parts when there are several.
pub(crate) fn reduce_max(
    b: &mut GradBuilder,
    n: &Node,
    results: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::ReduceMax { axes }, Some((x, dims, dy)), Some(y)) =
        (&n.op, one(b, n, douts), results.first())
    else {
        return Ok(vec![]);
    };
    let largest = b.spread(*y, &dims, axes)?;
    let chosen = b.compare(Comparison::Eq, x, largest)?;
    let ones = b.cast(chosen, DType::F32)?;
    let number = b.sum(ones, axes.clone())?;
    let dy = b.wide(dy)?;
    let part = b.push(Op::Div, &[dy, number])?;
    let part = b.spread(part, &dims, axes)?;
    Ok(vec![Some(b.masked(chosen, part)?)])
}
