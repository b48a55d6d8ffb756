//! Gradients of products with a sum.

use super::{GradBuilder, Gradients};
use crate::graph::{Node, Value};
use crate::ops::{Op, TypeError};
use crate::ty::DType;

type Result<T> = std::result::Result<T, TypeError>;
type Dout<'a> = &'a [Option<Value>];

/// The dims of one operand of a contraction, each list in its own order.
struct Side {
    value: Value,
    batch: Vec<u32>,
    contracted: Vec<u32>,
    /// The others, increasing.
    free: Vec<u32>,
}

impl Side {
    fn new(b: &GradBuilder, value: Value, batch: &[u32], contracted: &[u32]) -> Self {
        let rank = b.function().ty(value).rank() as u32;
        let free = (0..rank).filter(|i| !batch.contains(i) && !contracted.contains(i)).collect();
        Side { value, batch: batch.to_vec(), contracted: contracted.to_vec(), free }
    }
}

/// `da = dy b` over the free dims of `b`, and `db = dy a` over those of `a`. An f32 gradient of a
/// bf16 weight comes out of the accumulator without rounding.
pub(crate) fn contract(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::Contract { a_batch, b_batch, a_contract, b_contract, .. }, [first, second], Some(dy)) =
        (&n.op, n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let one = Side::new(b, *first, a_batch, a_contract);
    let two = Side::new(b, *second, b_batch, b_contract);
    // Dims of dy: the batch, the free dims of a, the free dims of b.
    let batch = one.batch.len() as u32;
    let middle = batch + one.free.len() as u32;
    let end = middle + two.free.len() as u32;
    let da = operand(b, dy, &one, &two, (middle..end).collect())?;
    let db = operand(b, dy, &two, &one, (batch..middle).collect())?;
    Ok(vec![da, db])
}

/// The gradient of `of`; `summed` are the dims of `dy` that are free ones of `with`.
fn operand(
    b: &mut GradBuilder,
    dy: Value,
    of: &Side,
    with: &Side,
    summed: Vec<u32>,
) -> Result<Option<Value>> {
    let Some(dtype) = b.wanted(of.value) else { return Ok(None) };
    let (dy, other) = alike(b, dy, with.value)?;
    let batch: Vec<u32> = (0..of.batch.len() as u32).collect();
    // The contracted dims of `of` in the order in which `with` has its pairs of them.
    let mut pairs: Vec<(u32, u32)> =
        with.contracted.iter().copied().zip(of.contracted.iter().copied()).collect();
    pairs.sort_unstable();
    let contracted: Vec<u32> = pairs.into_iter().map(|(_, i)| i).collect();
    // Which dim of `of` each dim of the product is, with dy first and with it second.
    let dy_first: Vec<u32> =
        [&of.batch, &of.free, &contracted].into_iter().flatten().copied().collect();
    let dy_second: Vec<u32> =
        [&of.batch, &contracted, &of.free].into_iter().flatten().copied().collect();
    let in_order = |dims: &[u32]| dims.iter().copied().eq(0..dims.len() as u32);
    let second = !in_order(&dy_first) && in_order(&dy_second);
    let (a, a_side, c, c_side) =
        (dy, (batch, summed), other, (with.batch.clone(), with.free.clone()));
    let (product, dims) = if second {
        let op = Op::Contract {
            a_batch: c_side.0,
            b_batch: a_side.0,
            a_contract: c_side.1,
            b_contract: a_side.1,
            dtype,
        };
        (b.push(op, &[c, a])?, dy_second)
    } else {
        let op = Op::Contract {
            a_batch: a_side.0,
            b_batch: c_side.0,
            a_contract: a_side.1,
            b_contract: c_side.1,
            dtype,
        };
        (b.push(op, &[a, c])?, dy_first)
    };
    if in_order(&dims) {
        return Ok(Some(product));
    }
    let mut permutation = vec![0; dims.len()];
    for (i, d) in dims.iter().enumerate() {
        permutation[*d as usize] = i as u32;
    }
    b.push(Op::Transpose { permutation }, &[product]).map(Some)
}

/// Two operands of one element type, without rounding: a widened value as it was before, or else
/// the narrower of the two widened.
fn alike(b: &mut GradBuilder, x: Value, y: Value) -> Result<(Value, Value)> {
    let dtype = |v: Value| b.function().ty(v).dtype;
    let (of_x, of_y) = (dtype(x), dtype(y));
    if of_x == of_y {
        return Ok((x, y));
    }
    let before = |v: Value, narrow: DType| {
        let node = b.function().node(v.node);
        let from = *node.operands.first()?;
        (matches!(node.op, Op::Cast { .. }) && dtype(from) == narrow).then_some(from)
    };
    match (before(x, of_y), before(y, of_x)) {
        (Some(x), _) if of_x == DType::F32 => Ok((x, y)),
        (_, Some(y)) if of_y == DType::F32 => Ok((x, y)),
        _ => Ok((b.wide(x)?, b.wide(y)?)),
    }
}

/// `dx` by the transposed weights, `dw` as the sum over the rows of each group.
pub(crate) fn grouped_contract(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let (Op::GroupedContract { transposed }, [x, w, groups], Some(dy)) =
        (&n.op, n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let dx = match b.wanted(*x) {
        Some(_) => {
            let (dy, w) = alike(b, dy, *w)?;
            Some(b.push(Op::GroupedContract { transposed: !transposed }, &[dy, w, *groups])?)
        }
        None => None,
    };
    let dw = match b.wanted(*w) {
        Some(dtype) => {
            let count = b.function().ty(*w).dims[0].clone();
            let (dy, x) = alike(b, dy, *x)?;
            let (left, right) = if *transposed { (x, dy) } else { (dy, x) };
            Some(b.push(Op::GroupedOuter { count, dtype }, &[left, right, *groups])?)
        }
        None => None,
    };
    Ok(vec![dx, dw])
}

/// `da[m] = dw[g] b[m]`, `db[m] = dw[g]^T a[m]`; rows of no group get zeros.
pub(crate) fn grouped_outer(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([left, right, groups], Some(dw)) =
        (n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let mut by = |of: Value, other: Value, transposed: bool| {
        if b.wanted(of).is_none() {
            return Ok(None);
        }
        let (dw, other) = alike(b, dw, other)?;
        b.push(Op::GroupedContract { transposed }, &[other, dw, *groups]).map(Some)
    };
    Ok(vec![by(*left, *right, false)?, by(*right, *left, true)?])
}
