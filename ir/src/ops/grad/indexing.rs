//! Gradients of what data chooses. The choice itself has none.

use super::{GradBuilder, Gradients};
use crate::graph::{Node, Value};
use crate::ops::{Comparison, Op, TypeError};
use crate::ty::DType;

type Result<T> = std::result::Result<T, TypeError>;
type Dout<'a> = &'a [Option<Value>];

/// The rows go back to where they came from; those of an index outside go nowhere.
pub(crate) fn gather(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([table, index], Some(dy)) = (n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let Some(count) = b.function().ty(*table).dims.first().cloned() else { return Ok(vec![]) };
    // Many rows add up in one: before that, not after it, they are made f32.
    let dy = if b.wanted(*table) == Some(DType::F32) { b.wide(dy)? } else { dy };
    Ok(vec![Some(b.push(Op::ScatterAdd { count }, &[*index, dy])?)])
}

/// Each row gets the gradient of the row it was added to, zero when it was dropped.
pub(crate) fn scatter_add(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([index, _], Some(dy)) = (n.operands.as_slice(), douts.first().copied().flatten()) else {
        return Ok(vec![]);
    };
    Ok(vec![None, Some(b.push(Op::Gather, &[dy, *index])?)])
}

/// `dx[.., e] = sum over j of dvalues[.., j] where indices[.., j] = e`. An index appears once in a
/// row, so nothing is added up.
pub(crate) fn top_k(
    b: &mut GradBuilder,
    n: &Node,
    results: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::TopK { k }, [x], [_, indices], Some(dy)) =
        (&n.op, n.operands.as_slice(), results, douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let mut shape = b.function().ty(*x).dims.clone();
    let Some(last) = shape.len().checked_sub(1) else { return Ok(vec![]) };
    shape.insert(last, k.clone());
    let (chosen, axis) = (last as u32, last as u32 + 1);
    let at = b.push(Op::Iota { shape: shape.clone(), axis }, &[])?;
    let indices = b.spread(*indices, &shape, &[axis])?;
    let here = b.compare(Comparison::Eq, indices, at)?;
    let dy = b.spread(dy, &shape, &[axis])?;
    let placed = b.masked(here, dy)?;
    Ok(vec![Some(b.sum(placed, vec![chosen])?)])
}
