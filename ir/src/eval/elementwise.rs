//! Sources and elementwise ops.
//!
//! `+ - * /` are those of the numbers; other functions go through f64, for the best f32.

use super::tensor::{elements, filled, room};
use super::{Call, Data, EvalError, EvalResult, Real, Tensor, special};
use crate::ops::Op;
use crate::ty::DType;
use std::sync::Arc;

fn unexpected<R: Real>(call: &Call<'_, R>) -> EvalError {
    EvalError::new(format!("`{}` cannot be evaluated on these operands", call.op.name()))
}

fn one<R: Real>(call: &Call<'_, R>, data: Data<R>) -> EvalResult<R> {
    let shape = call.output(0)?;
    Ok(vec![Tensor::new(shape.dtype, shape.dims.clone(), data)?])
}

/// A tensor filled with one number.
pub(crate) fn constant<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Constant { value, dtype, .. } = call.op else { return Err(unexpected(call)) };
    let n = elements(&call.output(0)?.dims)?;
    let data = match dtype {
        DType::Bf16 | DType::F32 => Data::Float(Arc::new(filled(n, R::from_f64(value.0))?)),
        DType::I32 => Data::Int(Arc::new(filled(n, value.0 as i64)?)),
        DType::Bool => Data::Bool(Arc::new(filled(n, value.0 != 0.0)?)),
    };
    one(call, data)
}

/// The index along one axis.
pub(crate) fn iota<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Iota { axis, .. } = call.op else { return Err(unexpected(call)) };
    let dims = &call.output(0)?.dims;
    let n = elements(dims)?;
    let axis = *axis as usize;
    let inner: usize = if n == 0 { 1 } else { dims.iter().skip(axis + 1).product() };
    let size = dims.get(axis).copied().unwrap_or(1).max(1);
    let mut out = room(n)?;
    out.extend((0..n).map(|i| (i / inner % size) as i64));
    one(call, Data::Int(Arc::new(out)))
}

fn map<A: Copy, B>(x: &[A], f: impl Fn(A) -> B) -> Result<Arc<Vec<B>>, EvalError> {
    let mut out = room(x.len())?;
    out.extend(x.iter().map(|v| f(*v)));
    Ok(Arc::new(out))
}

fn zip<A: Copy, B>(a: &[A], b: &[A], f: impl Fn(A, A) -> B) -> Result<Arc<Vec<B>>, EvalError> {
    if a.len() != b.len() {
        return Err(EvalError::new("operands have different numbers of elements"));
    }
    let mut out = room(a.len())?;
    out.extend(a.iter().zip(b).map(|(a, b)| f(*a, *b)));
    Ok(Arc::new(out))
}

/// Functions of one number.
pub(crate) fn unary<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let x = call.input(0)?;
    if let (Op::Neg, Data::Int(v)) = (call.op, &x.data) {
        return one(call, Data::Int(map(v, |a| -a)?));
    }
    let v = x.as_floats()?;
    // A closure a loop: the loops of the plain ones become vector code.
    let data = match call.op {
        Op::Neg => map(v, |a| -a),
        Op::Exp => wide(v, f64::exp),
        Op::Log => wide(v, f64::ln),
        Op::Sqrt => wide(v, f64::sqrt),
        Op::Rsqrt => wide(v, |x| 1.0 / x.sqrt()),
        Op::Recip => wide(v, |x| 1.0 / x),
        Op::Sigmoid => wide(v, special::sigmoid),
        Op::Silu => wide(v, |x| x * special::sigmoid(x)),
        Op::Softplus => wide(v, special::softplus),
        Op::Gelu => wide(v, special::gelu),
        Op::GeluTanh => wide(v, special::gelu_tanh),
        Op::Tanh => wide(v, f64::tanh),
        Op::Erf => wide(v, special::erf),
        Op::Sin => wide(v, f64::sin),
        Op::Cos => wide(v, f64::cos),
        _ => return Err(unexpected(call)),
    };
    one(call, Data::Float(data?))
}

fn wide<R: Real>(x: &[R], f: impl Fn(f64) -> f64) -> Result<Arc<Vec<R>>, EvalError> {
    map(x, |v| R::from_f64(f(v.to_f64())))
}

/// The larger; not a number when one of them is not.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

/// Arithmetic on two numbers.
pub(crate) fn binary<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if let (Data::Int(a), Data::Int(b)) = (&a.data, &b.data) {
        // Elements fit 32 bits, so nothing here overflows 64.
        let f: fn(i64, i64) -> i64 = match call.op {
            Op::Add => |a, b| a.wrapping_add(b),
            Op::Sub => |a, b| a.wrapping_sub(b),
            Op::Mul => |a, b| a.wrapping_mul(b),
            Op::Div => floor_div,
            Op::Rem => |a, b| if b == 0 { 0 } else { a - b * floor_div(a, b) },
            Op::Max => i64::max,
            Op::Min => i64::min,
            _ => return Err(unexpected(call)),
        };
        return one(call, Data::Int(zip(a, b, f)?));
    }
    let (a, b) = (a.as_floats()?, b.as_floats()?);
    let data = match call.op {
        Op::Add => zip(a, b, |a, b| a + b),
        Op::Sub => zip(a, b, |a, b| a - b),
        Op::Mul => zip(a, b, |a, b| a * b),
        Op::Div => zip(a, b, |a, b| a / b),
        Op::Max => zip(a, b, |a, b| R::from_f64(larger(a.to_f64(), b.to_f64()))),
        Op::Min => zip(a, b, |a, b| R::from_f64(smaller(a.to_f64(), b.to_f64()))),
        _ => return Err(unexpected(call)),
    };
    one(call, Data::Float(data?))
}

/// Division toward minus infinity; by zero to zero.
fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// The six comparisons.
pub(crate) fn compare<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Compare { kind } = call.op else { return Err(unexpected(call)) };
    let out = match (&call.input(0)?.data, &call.input(1)?.data) {
        (Data::Float(a), Data::Float(b)) => zip(a, b, |a, b| kind.holds(a, b))?,
        (Data::Int(a), Data::Int(b)) => zip(a, b, |a, b| kind.holds(a, b))?,
        (Data::Bool(a), Data::Bool(b)) => zip(a, b, |a, b| kind.holds(a, b))?,
        _ => return Err(unexpected(call)),
    };
    one(call, Data::Bool(out))
}

/// `not`, `and`, `or`.
pub(crate) fn logic<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let a = call.input(0)?.as_bools()?;
    let out = match call.op {
        Op::Not => map(a, |a| !a)?,
        Op::And => zip(a, call.input(1)?.as_bools()?, |a, b| a & b)?,
        Op::Or => zip(a, call.input(1)?.as_bools()?, |a, b| a | b)?,
        _ => return Err(unexpected(call)),
    };
    one(call, Data::Bool(out))
}

/// The value as another element type. Rounding to bf16 is the caller's, as for every result. A
/// float outside i32 becomes the nearest i32, as devices do it; not-a-number becomes 0.
pub(crate) fn cast<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let x = call.input(0)?;
    let dtype = call.output(0)?.dtype;
    let data = match (&x.data, dtype) {
        (Data::Float(v), DType::Bf16 | DType::F32) => Data::Float(v.clone()),
        (Data::Float(v), DType::I32) => Data::Int(map(v, |a| i64::from(a.to_f64() as i32))?),
        (Data::Float(v), DType::Bool) => Data::Bool(map(v, |a| a.to_f64() != 0.0)?),
        (Data::Int(v), DType::Bf16 | DType::F32) => Data::Float(map(v, |a| R::from_f64(a as f64))?),
        (Data::Int(v), DType::I32) => Data::Int(v.clone()),
        (Data::Int(v), DType::Bool) => Data::Bool(map(v, |a| a != 0)?),
        (Data::Bool(v), DType::Bf16 | DType::F32) => {
            Data::Float(map(v, |a| R::from_f64(f64::from(u8::from(a))))?)
        }
        (Data::Bool(v), DType::I32) => Data::Int(map(v, i64::from)?),
        (Data::Bool(v), DType::Bool) => Data::Bool(v.clone()),
    };
    one(call, data)
}

/// One of two values.
pub(crate) fn select<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    fn pick<A: Copy>(c: &[bool], a: &[A], b: &[A]) -> Result<Arc<Vec<A>>, EvalError> {
        if c.len() != a.len() || c.len() != b.len() {
            return Err(EvalError::new("operands have different numbers of elements"));
        }
        let mut out = room(a.len())?;
        out.extend((0..c.len()).map(|i| if c[i] { a[i] } else { b[i] }));
        Ok(Arc::new(out))
    }
    let c = call.input(0)?.as_bools()?;
    let data = match (&call.input(1)?.data, &call.input(2)?.data) {
        (Data::Float(a), Data::Float(b)) => Data::Float(pick(c, a, b)?),
        (Data::Int(a), Data::Int(b)) => Data::Int(pick(c, a, b)?),
        (Data::Bool(a), Data::Bool(b)) => Data::Bool(pick(c, a, b)?),
        _ => return Err(unexpected(call)),
    };
    one(call, data)
}
