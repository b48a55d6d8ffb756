//! Ops of the op table as instructions, one element at a time.

use super::code::Code;
use super::ir::{Binary, Cmp, Reg, Ty, Unary};
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
            Op::Exp => Unary::Exp,
            Op::Log => Unary::Log,
            Op::Sqrt => Unary::Sqrt,
            Op::Rsqrt => Unary::Rsqrt,
            Op::Recip => Unary::Recip,
            Op::Sigmoid => Unary::Sigmoid,
            Op::Softplus => Unary::Softplus,
            Op::Tanh => Unary::Tanh,
            Op::Erf => Unary::Erf,
            Op::Sin => Unary::Sin,
            Op::Cos => Unary::Cos,
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
        (Op::Silu, [x]) => {
            let s = c.unary(Unary::Sigmoid, *x);
            c.mul(*x, s)
        }
        // x (1 + erf(x / sqrt 2)) / 2
        (Op::Gelu, [x]) => {
            let (scale, half) = (c.f32(std::f64::consts::FRAC_1_SQRT_2), c.f32(0.5));
            let z = c.mul(*x, scale);
            let e = c.unary(Unary::Erf, z);
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
            let (t, half) = (c.unary(Unary::Tanh, z), c.f32(0.5));
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
