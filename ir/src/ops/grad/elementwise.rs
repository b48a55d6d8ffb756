//! Gradients of elementwise ops.
//!
//! No form here makes `inf * 0` of a finite operand: where a factor may overflow, the other is made
//! so that it has not vanished, or the operand is held to where the derivative still changes.

use super::{GradBuilder, Gradients};
use crate::graph::{Node, Value};
use crate::ops::{Comparison, Op, TypeError};
use crate::ty::DType;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

type Result<T> = std::result::Result<T, TypeError>;
type Dout<'a> = &'a [Option<Value>];

/// A rule of one operand: `dx` from `x`, `y` and `dy`; the first two as they are, `dy` in f32.
fn unary(
    b: &mut GradBuilder,
    node: &Node,
    results: &[Value],
    douts: Dout<'_>,
    f: impl FnOnce(&mut GradBuilder, Value, Value, Value) -> Result<Value>,
) -> Result<Gradients> {
    let (Some(dy), Some(x), Some(y)) =
        (douts.first().copied().flatten(), node.operands.first(), results.first())
    else {
        return Ok(vec![]);
    };
    let dy = b.wide(dy)?;
    f(b, *x, *y, dy).map(|dx| vec![Some(dx)])
}

/// `dx = -dy`
pub(crate) fn neg(
    b: &mut GradBuilder,
    _: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let Some(dy) = douts.first().copied().flatten() else { return Ok(vec![]) };
    Ok(vec![Some(b.push(Op::Neg, &[dy])?)])
}

/// `dx = dy y`
pub(crate) fn exp(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, y, dy| {
        let y = unrounded(b, Op::Exp, x, y)?;
        b.mul(dy, y)
    })
}

/// The result before it was rounded: made once more of `x` in f32, unless it is f32 itself.
fn unrounded(b: &mut GradBuilder, op: Op, x: Value, y: Value) -> Result<Value> {
    if b.function().ty(y).dtype == DType::F32 {
        return Ok(y);
    }
    let x = b.wide(x)?;
    b.push(op, &[x])
}

/// `dx = dy / x`
pub(crate) fn log(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        b.push(Op::Div, &[dy, x])
    })
}

/// `dx = dy / (2 y)`
pub(crate) fn sqrt(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, y, dy| {
        let y = unrounded(b, Op::Sqrt, x, y)?;
        let half = b.scaled(dy, 0.5)?;
        b.push(Op::Div, &[half, y])
    })
}

/// `dx = -dy y^3 / 2`
pub(crate) fn rsqrt(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, y, dy| {
        let y = unrounded(b, Op::Rsqrt, x, y)?;
        let square = b.mul(y, y)?;
        let cube = b.mul(square, y)?;
        let dx = b.mul(dy, cube)?;
        b.scaled(dx, -0.5)
    })
}

/// `dx = -dy y^2`
pub(crate) fn recip(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, y, dy| {
        let y = unrounded(b, Op::Recip, x, y)?;
        let once = b.mul(dy, y)?;
        let twice = b.mul(once, y)?;
        b.push(Op::Neg, &[twice])
    })
}

/// `dx = dy y (1 - y)`
pub(crate) fn sigmoid(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, y, dy| {
        let y = unrounded(b, Op::Sigmoid, x, y)?;
        let slope = slope_of_sigmoid(b, y)?;
        b.mul(dy, slope)
    })
}

fn slope_of_sigmoid(b: &mut GradBuilder, s: Value) -> Result<Value> {
    let rest = b.one_minus(s)?;
    b.mul(s, rest)
}

/// `dx = dy s (1 + x (1 - s))`, `s = sigmoid x`. Far below zero `s` is 0 and the bracket finite, far
/// above it `1 - s` is 0.
pub(crate) fn silu(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        let s = b.push(Op::Sigmoid, &[x])?;
        let rest = b.one_minus(s)?;
        let bent = b.mul(x, rest)?;
        let one = b.constant_like(1.0, x)?;
        let bracket = b.add(one, bent)?;
        let slope = b.mul(s, bracket)?;
        b.mul(dy, slope)
    })
}

/// `dx = dy sigmoid x`, and `dy` above 20 as the op has it.
pub(crate) fn softplus(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        let s = b.push(Op::Sigmoid, &[x])?;
        let below = b.mul(dy, s)?;
        let threshold = b.constant_like(20.0, x)?;
        let above = b.compare(Comparison::Gt, x, threshold)?;
        b.push(Op::Select, &[above, dy, below])
    })
}

/// `dx = dy ((1 + erf(x / sqrt 2)) / 2 + x e^(-x^2 / 2) / sqrt(2 pi))`. The exponential is 0 long
/// before the square overflows, and `x` is finite.
pub(crate) fn gelu(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        let scaled = b.scaled(x, FRAC_1_SQRT_2)?;
        let erf = b.push(Op::Erf, &[scaled])?;
        let one = b.constant_like(1.0, x)?;
        let twice = b.add(one, erf)?;
        let share = b.scaled(twice, 0.5)?;
        let bell = bell(b, scaled)?;
        let bell = b.scaled(bell, 1.0 / (2.0 * PI).sqrt())?;
        let bent = b.mul(x, bell)?;
        let slope = b.add(share, bent)?;
        b.mul(dy, slope)
    })
}

/// `e^(-x^2)`
fn bell(b: &mut GradBuilder, x: Value) -> Result<Value> {
    let square = b.mul(x, x)?;
    let minus = b.push(Op::Neg, &[square])?;
    b.push(Op::Exp, &[minus])
}

/// With `u = sqrt(2 / pi) (x + 0.044715 x^3)` and `s = sigmoid(2 u)`, so that `y = x s`:
/// `dx = dy (s + x s (1 - s) 2 u')`. Where `|x| > 10` the derivative is 0 or 1 to the last bit, so
/// `x` is held to that, which keeps the powers finite.
pub(crate) fn gelu_tanh(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    const CUBIC: f64 = 0.044_715;
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        let (low, high) = (b.constant_like(-10.0, x)?, b.constant_like(10.0, x)?);
        let held = b.push(Op::Max, &[x, low])?;
        let x = b.push(Op::Min, &[held, high])?;
        let factor = 2.0 * (2.0 / PI).sqrt();
        let square = b.mul(x, x)?;
        let one = b.constant_like(1.0, x)?;
        let polynomial = |b: &mut GradBuilder, cubic: f64| {
            let part = b.scaled(square, cubic)?;
            let sum = b.add(one, part)?;
            b.scaled(sum, factor)
        };
        let by_x = polynomial(b, CUBIC)?;
        let twice_u = b.mul(x, by_x)?;
        let s = b.push(Op::Sigmoid, &[twice_u])?;
        let slope = slope_of_sigmoid(b, s)?;
        let inner = polynomial(b, 3.0 * CUBIC)?;
        let bent = b.mul(x, slope)?;
        let bent = b.mul(bent, inner)?;
        let sum = b.add(s, bent)?;
        b.mul(dy, sum)
    })
}

/// `dx = dy (1 - y^2)`
pub(crate) fn tanh(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, y, dy| {
        let y = unrounded(b, Op::Tanh, x, y)?;
        let square = b.mul(y, y)?;
        let slope = b.one_minus(square)?;
        b.mul(dy, slope)
    })
}

/// `dx = dy 2 / sqrt(pi) e^(-x^2)`
pub(crate) fn erf(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        let bell = bell(b, x)?;
        let slope = b.scaled(bell, 2.0 / PI.sqrt())?;
        b.mul(dy, slope)
    })
}

/// `dx = dy cos x`
pub(crate) fn sin(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        let slope = b.push(Op::Cos, &[x])?;
        b.mul(dy, slope)
    })
}

/// `dx = -dy sin x`
pub(crate) fn cos(
    b: &mut GradBuilder,
    n: &Node,
    r: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    unary(b, n, r, douts, |b, x, _, dy| {
        let x = b.wide(x)?;
        let slope = b.push(Op::Sin, &[x])?;
        let minus = b.push(Op::Neg, &[slope])?;
        b.mul(dy, minus)
    })
}

/// `dx = dy` in the element type of `x`; integers and truth values have none.
pub(crate) fn cast(
    _: &mut GradBuilder,
    _: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    Ok(vec![douts.first().copied().flatten()])
}

/// The operands, and the gradient of the result.
fn pair(node: &Node, douts: Dout<'_>) -> Option<(Value, Value, Value)> {
    match (node.operands.as_slice(), douts.first().copied().flatten()) {
        ([x, y], Some(dy)) => Some((*x, *y, dy)),
        _ => None,
    }
}

/// `da = dy`, `db = dy`
pub(crate) fn add(
    _: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let Some((_, _, dy)) = pair(n, douts) else { return Ok(vec![]) };
    Ok(vec![Some(dy); 2])
}

/// `da = dy`, `db = -dy`
pub(crate) fn sub(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let Some((_, second, dy)) = pair(n, douts) else { return Ok(vec![]) };
    let minus = if b.wanted(second).is_some() { Some(b.push(Op::Neg, &[dy])?) } else { None };
    Ok(vec![Some(dy), minus])
}

/// `da = dy b`, `db = dy a`
pub(crate) fn mul(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let Some((x, y, dy)) = pair(n, douts) else { return Ok(vec![]) };
    let mut by = |operand: Value, other: Value| {
        Ok(if b.wanted(operand).is_some() { Some(b.mul(dy, other)?) } else { None })
    };
    Ok(vec![by(x, y)?, by(y, x)?])
}

/// `da = dy / b`, `db = -(dy / b) (a / b)`: no square of `b`, which may leave the range.
pub(crate) fn div(
    b: &mut GradBuilder,
    n: &Node,
    results: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let Some((x, y, dy)) = pair(n, douts) else { return Ok(vec![]) };
    let (dy, wide) = (b.wide(dy)?, b.wide(y)?);
    let share = b.push(Op::Div, &[dy, wide])?;
    if b.wanted(y).is_none() {
        return Ok(vec![Some(share), None]);
    }
    let quotient = match results.first() {
        Some(q) if b.function().ty(*q).dtype == DType::F32 => *q,
        _ => {
            let x = b.wide(x)?;
            b.push(Op::Div, &[x, wide])?
        }
    };
    let product = b.mul(share, quotient)?;
    Ok(vec![Some(share), Some(b.push(Op::Neg, &[product])?)])
}

/// Of `max` and `min`: the gradient goes to the operand that is the result, half to each of two
/// equal ones.
pub(crate) fn extreme(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let Some((x, y, dy)) = pair(n, douts) else { return Ok(vec![]) };
    let wins = if matches!(n.op, Op::Max) { Comparison::Gt } else { Comparison::Lt };
    let equal = b.compare(Comparison::Eq, x, y)?;
    let half = b.scaled(dy, 0.5)?;
    let mut share = |first: Value, second: Value| {
        if b.wanted(first).is_none() {
            return Ok(None);
        }
        let alone = b.compare(wins, first, second)?;
        let otherwise = b.masked(equal, half)?;
        b.push(Op::Select, &[alone, dy, otherwise]).map(Some)
    };
    Ok(vec![share(x, y)?, share(y, x)?])
}

/// `da = dy` where the condition holds and `db = dy` where not, else 0.
pub(crate) fn select(
    b: &mut GradBuilder,
    n: &Node,
    _: &[Value],
    douts: Dout<'_>,
) -> Result<Gradients> {
    let ([condition, first, second], Some(dy)) =
        (n.operands.as_slice(), douts.first().copied().flatten())
    else {
        return Ok(vec![]);
    };
    let yes = if b.wanted(*first).is_some() { Some(b.masked(*condition, dy)?) } else { None };
    let no = if b.wanted(*second).is_some() {
        let zero = b.constant_like(0.0, dy)?;
        Some(b.push(Op::Select, &[*condition, zero, dy])?)
    } else {
        None
    };
    Ok(vec![None, yes, no])
}
