//! Ops of the op table as instructions, one element at a time.

use super::code::Code;
use super::ir::{Binary, Cmp, Reg, Ty, Unary};
use std::f64::consts::{FRAC_2_SQRT_PI, LOG2_E, TAU};
use vlmc_ir::ops::{Comparison, Op};
use vlmc_ir::ty::DType;

/// The register type of an element type.
pub(crate) fn register(dtype: DType) -> Ty {
    match dtype {
        DType::Bf16 | DType::F32 => Ty::F32,
        DType::I32 => Ty::I32,
        DType::Bool => Ty::Bool,
    }
}

/// One element of an elementwise op; `None` when it is none.
pub(crate) fn apply(c: &mut Code, op: &Op, a: &[Reg], to: DType) -> Option<Reg> {
    let unary = |op: &Op| {
        Some(match op {
            Op::Neg => Unary::Neg,
            Op::Log => Unary::Log,
            Op::Sqrt => Unary::Sqrt,
            Op::Rsqrt => Unary::Rsqrt,
            Op::Recip => Unary::Recip,
            Op::Not => Unary::Not,
            _ => return None,
        })
    };
    let binary = |op: &Op| {
        Some(match op {
            Op::Add => Binary::Add,
            Op::Sub => Binary::Sub,
            Op::Mul => Binary::Mul,
            Op::Div => Binary::Div,
            Op::Rem => Binary::Rem,
            Op::Max => Binary::Max,
            Op::Min => Binary::Min,
            Op::And => Binary::And,
            Op::Or => Binary::Or,
            _ => return None,
        })
    };
    if let (Some(u), [x]) = (unary(op), a) {
        return Some(c.unary(u, *x));
    }
    if let (Some(b), [x, y]) = (binary(op), a) {
        return Some(c.binary(b, *x, *y));
    }
    Some(match (op, a) {
        (Op::Exp, [x]) => exp(c, *x, 1.0),
        (Op::Sigmoid, [x]) => sigmoid(c, *x),
        (Op::Softplus, [x]) => softplus(c, *x),
        (Op::Tanh, [x]) => tanh(c, *x),
        (Op::Erf, [x]) => erf(c, *x),
        (Op::Sin, [x]) => circle(c, Unary::Sin, *x),
        (Op::Cos, [x]) => circle(c, Unary::Cos, *x),
        (Op::Silu, [x]) => {
            let s = sigmoid(c, *x);
            c.mul(*x, s)
        }
        // x (1 + erf(x / sqrt 2)) / 2
        (Op::Gelu, [x]) => {
            let (scale, half) = (c.f32(std::f64::consts::FRAC_1_SQRT_2), c.f32(0.5));
            let z = c.mul(*x, scale);
            let e = erf(c, z);
            let e = c.fma(e, half, half);
            c.mul(*x, e)
        }
        // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
        (Op::GeluTanh, [x]) => {
            let (k, b) = (c.f32((2.0 / std::f64::consts::PI).sqrt()), c.f32(0.044715));
            let square = c.mul(*x, *x);
            let cube = c.mul(square, *x);
            let z = c.fma(b, cube, *x);
            let z = c.mul(k, z);
            let (t, half) = (tanh(c, z), c.f32(0.5));
            let t = c.fma(t, half, half);
            c.mul(*x, t)
        }
        (Op::Compare { kind }, [x, y]) => {
            let cmp = match kind {
                Comparison::Eq => Cmp::Eq,
                Comparison::Ne => Cmp::Ne,
                Comparison::Lt => Cmp::Lt,
                Comparison::Le => Cmp::Le,
                Comparison::Gt => Cmp::Gt,
                Comparison::Ge => Cmp::Ge,
            };
            c.compare(cmp, *x, *y)
        }
        (Op::Select, [p, x, y]) => c.select(*p, *x, *y),
        (Op::Cast { .. }, [x]) => cast(c, *x, to),
        _ => return None,
    })
}

fn cast(c: &mut Code, x: Reg, to: DType) -> Reg {
    match (c.kind(x).ty, to) {
        (Ty::F32, DType::Bf16) => c.unary(Unary::Round, x),
        (Ty::F32, DType::F32) | (Ty::I32, DType::I32) | (Ty::Bool, DType::Bool) => x,
        (_, DType::F32) => c.unary(Unary::ToF32, x),
        (_, DType::Bf16) => {
            let f = c.unary(Unary::ToF32, x);
            c.unary(Unary::Round, f)
        }
        (_, DType::I32) => c.unary(Unary::ToI32, x),
        (ty, DType::Bool) => {
            let zero = c.constant(0.0, ty);
            c.compare(Cmp::Ne, x, zero)
        }
    }
}

/// `e^(k x)`
fn exp(c: &mut Code, x: Reg, k: f64) -> Reg {
    let k = c.f32(k * LOG2_E);
    let x = c.mul(x, k);
    c.unary(Unary::Exp2, x)
}

/// `1 / (1 + e^-x)`: where `e^-x` is too large for a number it is 0, as it should.
fn sigmoid(c: &mut Code, x: Reg) -> Reg {
    let (e, one) = (exp(c, x, -1.0), c.f32(1.0));
    let d = c.add(e, one);
    c.unary(Unary::Recip, d)
}

fn absolute(c: &mut Code, x: Reg) -> Reg {
    let n = c.unary(Unary::Neg, x);
    c.binary(Binary::Max, x, n)
}

/// `first + q (second + ..)`, the highest power first in the list.
fn horner(c: &mut Code, q: Reg, coefficients: &[f64]) -> Reg {
    let mut p = c.f32(coefficients.first().copied().unwrap_or(0.0));
    for k in coefficients.iter().skip(1) {
        let k = c.f32(*k);
        p = c.fma(p, q, k);
    }
    p
}

/// `max(x, 0) + log1p(e^-|x|)`, the logarithm by the series of atanh: it is `x` itself from 20 on to
/// the last bit, and never overflows.
fn softplus(c: &mut Code, x: Reg) -> Reg {
    let abs = absolute(c, x);
    let (z, two) = (exp(c, abs, -1.0), c.f32(2.0));
    let d = c.add(z, two);
    let d = c.unary(Unary::Recip, d);
    let s = c.mul(z, d);
    let q = c.mul(s, s);
    let series: Vec<f64> = [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0].iter().map(|n| 2.0 / n).collect();
    let p = horner(c, q, &series);
    let zero = c.f32(0.0);
    let m = c.binary(Binary::Max, x, zero);
    c.fma(s, p, m)
}

/// `1 - 2 / (e^2x + 1)`, and the series near 0, where that would cancel.
fn tanh(c: &mut Code, x: Reg) -> Reg {
    let (e, one) = (exp(c, x, 2.0), c.f32(1.0));
    let d = c.add(e, one);
    let d = c.unary(Unary::Recip, d);
    let minus = c.f32(-2.0);
    let far = c.fma(d, minus, one);
    let q = c.mul(x, x);
    let p =
        horner(c, q, &[-1382.0 / 155_925.0, 62.0 / 2835.0, -17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0]);
    let cube = c.mul(q, x);
    let near = c.fma(p, cube, x);
    let limit = c.f32(0.09);
    let small = c.compare(Cmp::Lt, q, limit);
    c.select(small, near, far)
}

/// Abramowitz and Stegun 7.1.26, to 1.5e-7, and the series near 0.
fn erf(c: &mut Code, x: Reg) -> Reg {
    let (abs, one, k) = (absolute(c, x), c.f32(1.0), c.f32(0.327_591_1));
    let d = c.fma(abs, k, one);
    let t = c.unary(Unary::Recip, d);
    let p = horner(
        c,
        t,
        &[1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592, 0.0],
    );
    let q = c.mul(x, x);
    let e = exp(c, q, -1.0);
    let e = c.unary(Unary::Neg, e);
    let far = c.fma(p, e, one);
    let minus = c.unary(Unary::Neg, far);
    let zero = c.f32(0.0);
    let negative = c.compare(Cmp::Lt, x, zero);
    let far = c.select(negative, minus, far);
    let series: Vec<f64> =
        [1.0 / 9360.0, -1.0 / 1320.0, 1.0 / 216.0, -1.0 / 42.0, 0.1, -1.0 / 3.0, 1.0]
            .iter()
            .map(|k| k * FRAC_2_SQRT_PI)
            .collect();
    let p = horner(c, q, &series);
    let near = c.mul(p, x);
    let limit = c.f32(0.25);
    let small = c.compare(Cmp::Lt, q, limit);
    c.select(small, near, far)
}

/// The nearest multiple of a turn taken off in three parts, then the function of the rest.
fn circle(c: &mut Code, op: Unary, x: Reg) -> Reg {
    let k = c.f32(1.0 / TAU);
    let n = c.mul(x, k);
    let n = c.unary(Unary::Rint, n);
    // The first two have few bits, so that their products with a number of turns are exact.
    let short = |x: f64| f64::from(f32::from_bits((x as f32).to_bits() & 0xFFFF_F000));
    let (first, second) = (short(TAU), short(TAU - short(TAU)));
    let mut rest = x;
    for part in [first, second, TAU - first - second] {
        let part = c.f32(-part);
        rest = c.fma(n, part, rest);
    }
    c.unary(op, rest)
}
