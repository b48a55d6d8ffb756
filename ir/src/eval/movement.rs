//! Arrangement of elements, and reductions.
//!
//! Everything but joining and padding is one strided read: the result's dims, each with the
//! distance in the operand that one step along it makes.

use super::tensor::{elements, filled, room};
use super::{Call, Data, EvalError, EvalResult, Real, Tensor};
use crate::ops::Op;
use std::sync::Arc;

fn unexpected<R: Real>(call: &Call<'_, R>) -> EvalError {
    EvalError::new(format!("`{}` cannot be evaluated on these operands", call.op.name()))
}

fn one<R: Real>(call: &Call<'_, R>, data: Data<R>) -> EvalResult<R> {
    let shape = call.output(0)?;
    Ok(vec![Tensor::new(shape.dtype, shape.dims.clone(), data)?])
}

/// Row-major strides. They saturate where an empty tensor has enormous other dims.
pub(crate) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut out = vec![1usize; dims.len()];
    for i in (1..dims.len()).rev() {
        out[i - 1] = out[i].saturating_mul(dims[i].max(1));
    }
    out
}

/// Reads `dims` elements at `offset + sum of index * stride`.
pub(crate) fn strided<A: Copy>(
    x: &[A],
    dims: &[usize],
    strides: &[usize],
    offset: usize,
) -> Result<Vec<A>, EvalError> {
    let n = elements(dims)?;
    let mut out = room(n)?;
    if n == 0 {
        return Ok(out);
    }
    let last = dims
        .iter()
        .zip(strides)
        .fold(offset, |last, (d, s)| last.saturating_add((d - 1).saturating_mul(*s)));
    if last >= x.len() {
        return Err(EvalError::new("elements outside the operand were asked for"));
    }
    let Some((inner, outer)) = dims.split_last() else {
        out.push(x[offset]);
        return Ok(out);
    };
    let step = strides[outer.len()];
    let mut index = vec![0; outer.len()];
    let mut at = offset;
    loop {
        match step {
            0 => out.resize(out.len() + inner, x[at]),
            1 => out.extend_from_slice(&x[at..at + inner]),
            _ => out.extend(x[at..].iter().step_by(step).take(*inner)),
        }
        // Counts up the outer indices like the digits of a number.
        let mut i = outer.len();
        loop {
            let Some(below) = i.checked_sub(1) else { return Ok(out) };
            i = below;
            index[i] += 1;
            at += strides[i];
            if index[i] < outer[i] {
                break;
            }
            at -= outer[i] * strides[i];
            index[i] = 0;
        }
    }
}

fn strided_data<R: Real>(
    data: &Data<R>,
    dims: &[usize],
    strides: &[usize],
    offset: usize,
) -> Result<Data<R>, EvalError> {
    Ok(match data {
        Data::Float(v) => Data::Float(Arc::new(strided(v, dims, strides, offset)?)),
        Data::Int(v) => Data::Int(Arc::new(strided(v, dims, strides, offset)?)),
        Data::Bool(v) => Data::Bool(Arc::new(strided(v, dims, strides, offset)?)),
    })
}

/// The same elements.
pub(crate) fn copy<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    one(call, call.input(0)?.data.clone())
}

/// Dims in another order.
pub(crate) fn transpose<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Transpose { permutation } = call.op else { return Err(unexpected(call)) };
    let x = call.input(0)?;
    let have = strides(&x.dims);
    let steps: Option<Vec<usize>> =
        permutation.iter().map(|p| have.get(*p as usize).copied()).collect();
    let steps = steps.ok_or_else(|| unexpected(call))?;
    one(call, strided_data(&x.data, &call.output(0)?.dims, &steps, 0)?)
}

/// Repeats along new dims and dims of size 1.
pub(crate) fn broadcast<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Broadcast { dims, .. } = call.op else { return Err(unexpected(call)) };
    let x = call.input(0)?;
    let shape = &call.output(0)?.dims;
    let have = strides(&x.dims);
    let mut steps = vec![0; shape.len()];
    for (i, target) in dims.iter().enumerate() {
        let target = *target as usize;
        let (Some(step), Some(size)) = (steps.get_mut(target), shape.get(target)) else {
            return Err(unexpected(call));
        };
        if x.dim(i) == *size {
            *step = have.get(i).copied().unwrap_or(0);
        } else if x.dim(i) != 1 {
            return Err(EvalError::new(format!("dim {i} ({}) cannot repeat to {size}", x.dim(i))));
        }
    }
    one(call, strided_data(&x.data, shape, &steps, 0)?)
}

/// Each slice several times in a row.
pub(crate) fn repeat<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Repeat { axis, times } = call.op else { return Err(unexpected(call)) };
    let x = call.input(0)?;
    let axis = *axis as usize;
    let times = call.sizes.eval(times)?;
    let (mut dims, mut steps) = (x.dims.clone(), strides(&x.dims));
    if axis >= dims.len() {
        return Err(unexpected(call));
    }
    dims.insert(axis + 1, times);
    steps.insert(axis + 1, 0);
    one(call, strided_data(&x.data, &dims, &steps, 0)?)
}

/// A run of slices.
pub(crate) fn slice<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Slice { axis, start, size } = call.op else { return Err(unexpected(call)) };
    let x = call.input(0)?;
    let axis = *axis as usize;
    let (start, size) = (call.sizes.eval(start)?, call.sizes.eval(size)?);
    let have = x.dim(axis);
    if axis >= x.dims.len() || start.checked_add(size).is_none_or(|end| end > have) {
        return Err(EvalError::new(format!(
            "{size} rows from row {start} are not inside a dim of {have}"
        )));
    }
    let steps = strides(&x.dims);
    let offset = start.saturating_mul(steps[axis]);
    one(call, strided_data(&x.data, &call.output(0)?.dims, &steps, offset)?)
}

/// Sizes before, of and after an axis, multiplied up.
pub(crate) fn around(dims: &[usize], axis: usize) -> (usize, usize, usize) {
    let product = |d: &[usize]| d.iter().product::<usize>();
    (product(&dims[..axis]), dims[axis], product(&dims[axis + 1..]))
}

/// Joins parts along an axis. A part of `None` is zeros, `widths` long.
fn join<A: Copy + Default>(
    parts: &[Option<&[A]>],
    widths: &[usize],
    outer: usize,
    n: usize,
) -> Result<Arc<Vec<A>>, EvalError> {
    let mut out = room(n)?;
    for o in 0..outer {
        for (part, width) in parts.iter().zip(widths) {
            match part {
                Some(p) => out.extend_from_slice(&p[o * width..(o + 1) * width]),
                None => out.resize(out.len() + width, A::default()),
            }
        }
    }
    Ok(Arc::new(out))
}

/// Zeros before and after.
pub(crate) fn pad<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Pad { axis, before, after } = call.op else { return Err(unexpected(call)) };
    let x = call.input(0)?;
    let axis = *axis as usize;
    let n = elements(&call.output(0)?.dims)?;
    if axis >= x.dims.len() {
        return Err(unexpected(call));
    }
    if n == 0 {
        return Ok(vec![Tensor::zeros(call.output(0)?.dtype, call.output(0)?.dims.clone())?]);
    }
    let (outer, size, inner) = around(&x.dims, axis);
    let widths = [call.sizes.eval(before)? * inner, size * inner, call.sizes.eval(after)? * inner];
    let data = match &x.data {
        Data::Float(v) => Data::Float(join(&[None, Some(v), None], &widths, outer, n)?),
        Data::Int(v) => Data::Int(join(&[None, Some(v), None], &widths, outer, n)?),
        Data::Bool(v) => Data::Bool(join(&[None, Some(v), None], &widths, outer, n)?),
    };
    one(call, data)
}

/// The operands one after the other.
pub(crate) fn concat<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Concat { axis } = call.op else { return Err(unexpected(call)) };
    let axis = *axis as usize;
    let shape = call.output(0)?;
    let n = elements(&shape.dims)?;
    if axis >= shape.dims.len() || call.inputs.iter().any(|x| axis >= x.dims.len()) {
        return Err(unexpected(call));
    }
    if n == 0 {
        return Ok(vec![Tensor::zeros(shape.dtype, shape.dims.clone())?]);
    }
    let (outer, _, inner) = around(&shape.dims, axis);
    let widths: Vec<usize> = call.inputs.iter().map(|x| x.dims[axis] * inner).collect();
    fn parts<'a, A: 'a, R: Real>(
        call: &Call<'a, R>,
        get: impl Fn(&'a Tensor<R>) -> Result<&'a [A], EvalError>,
    ) -> Result<Vec<Option<&'a [A]>>, EvalError> {
        call.inputs.iter().map(|x| get(x).map(Some)).collect()
    }
    let data = match &call.input(0)?.data {
        Data::Float(_) => Data::Float(join(&parts(call, Tensor::as_floats)?, &widths, outer, n)?),
        Data::Int(_) => Data::Int(join(&parts(call, Tensor::as_ints)?, &widths, outer, n)?),
        Data::Bool(_) => Data::Bool(join(&parts(call, Tensor::as_bools)?, &widths, outer, n)?),
    };
    one(call, data)
}

/// Sum or maximum over axes. Sums are made in f64 and rounded once.
pub(crate) fn reduce<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let (Op::ReduceSum { axes } | Op::ReduceMax { axes }) = call.op else {
        return Err(unexpected(call));
    };
    let sum = matches!(call.op, Op::ReduceSum { .. });
    let x = call.input(0)?;
    let have = strides(&x.dims);
    // The reduced dims last: then each result is made from a run of elements.
    let (gone, kept): (Vec<usize>, Vec<usize>) =
        (0..x.dims.len()).partition(|i| axes.contains(&(*i as u32)));
    let order: Vec<usize> = kept.iter().chain(&gone).copied().collect();
    let dims: Vec<usize> = order.iter().map(|i| x.dims[*i]).collect();
    let steps: Vec<usize> = order.iter().map(|i| have[*i]).collect();
    let n = elements(&call.output(0)?.dims)?;
    let run = elements(&gone.iter().map(|i| x.dims[*i]).collect::<Vec<_>>())?;
    let data = match &x.data {
        Data::Float(v) => {
            let v = strided(v, &dims, &steps, 0)?;
            let lowest = f64::NEG_INFINITY;
            let start = if sum { 0.0 } else { lowest };
            Data::Float(fold_runs(&v, n, run, R::from_f64(start), |run| {
                let values = run.iter().map(|a| a.to_f64());
                R::from_f64(if sum {
                    values.sum()
                } else {
                    values.fold(lowest, |m, a| if a > m || a.is_nan() { a } else { m })
                })
            })?)
        }
        Data::Int(v) => {
            let v = strided(v, &dims, &steps, 0)?;
            let start = if sum { 0 } else { i64::from(i32::MIN) };
            Data::Int(fold_runs(&v, n, run, start, |run| {
                if sum {
                    run.iter().fold(0, |s: i64, a| s.saturating_add(*a))
                } else {
                    run.iter().copied().fold(start, i64::max)
                }
            })?)
        }
        Data::Bool(_) => return Err(unexpected(call)),
    };
    one(call, data)
}

fn fold_runs<A: Copy>(
    v: &[A],
    n: usize,
    run: usize,
    empty: A,
    f: impl Fn(&[A]) -> A,
) -> Result<Arc<Vec<A>>, EvalError> {
    if run == 0 {
        return Ok(Arc::new(filled(n, empty)?));
    }
    let mut out = room(n)?;
    out.extend(v.chunks_exact(run).map(f));
    Ok(Arc::new(out))
}
