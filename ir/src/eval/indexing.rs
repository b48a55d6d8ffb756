//! Rows chosen by data.

use super::tensor::{elements, filled, room};
use super::{Call, Data, EvalError, EvalResult, Real, Tensor};
use crate::ops::Op;
use std::cmp::Ordering;
use std::sync::Arc;

fn unexpected<R: Real>(call: &Call<'_, R>) -> EvalError {
    EvalError::new(format!("`{}` cannot be evaluated on these operands", call.op.name()))
}

/// The row an index means, when it is one of `rows`.
fn inside(index: i64, rows: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|i| *i < rows)
}

/// Rows of a table; a zero row for an index outside.
pub(crate) fn gather<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    fn pick<A: Copy>(
        table: &[A],
        index: &[i64],
        rows: usize,
        width: usize,
        outside: A,
    ) -> Result<Arc<Vec<A>>, EvalError> {
        let mut out = room(elements(&[index.len(), width])?)?;
        for i in index {
            match inside(*i, rows) {
                Some(r) => out.extend_from_slice(&table[r * width..(r + 1) * width]),
                None => out.resize(out.len() + width, outside),
            }
        }
        Ok(Arc::new(out))
    }
    let (table, index) = (call.input(0)?, call.input(1)?.as_ints()?);
    let rows = table.dim(0);
    let width = elements(table.dims.get(1..).unwrap_or(&[]))?;
    let missing = if call.poison { R::from_f64(f64::NAN) } else { R::default() };
    let data = match &table.data {
        Data::Float(v) => Data::Float(pick(v, index, rows, width, missing)?),
        Data::Int(v) => Data::Int(pick(v, index, rows, width, 0)?),
        Data::Bool(v) => Data::Bool(pick(v, index, rows, width, false)?),
    };
    let shape = call.output(0)?;
    Ok(vec![Tensor::new(shape.dtype, shape.dims.clone(), data)?])
}

/// Adds rows into a table, in their order.
pub(crate) fn scatter_add<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::ScatterAdd { count } = call.op else { return Err(unexpected(call)) };
    let (index, rows) = (call.input(0)?, call.input(1)?);
    let count = call.sizes.eval(count)?;
    let width = elements(rows.dims.get(index.dims.len()..).unwrap_or(&[]))?;
    let (index, rows) = (index.as_ints()?, rows.as_floats()?);
    if elements(&[index.len(), width])? != rows.len() {
        return Err(EvalError::new("there is not one index for each row"));
    }
    let mut out = filled(elements(&[count, width])?, R::default())?;
    if width > 0 {
        for (i, row) in index.iter().zip(rows.chunks_exact(width)) {
            let Some(r) = inside(*i, count) else { continue };
            for (y, x) in out[r * width..(r + 1) * width].iter_mut().zip(row) {
                *y += *x;
            }
        }
    }
    let shape = call.output(0)?;
    Ok(vec![Tensor::floats(shape.dtype, shape.dims.clone(), out)?])
}

/// The largest along the last dim. Not-a-number counts as larger than every number.
pub(crate) fn top_k<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::TopK { k } = call.op else { return Err(unexpected(call)) };
    let x = call.input(0)?;
    let k = call.sizes.eval(k)?;
    let Some((width, outer)) = x.dims.split_last() else { return Err(unexpected(call)) };
    if k > *width {
        return Err(EvalError::new(format!("{k} of {width} cannot be chosen")));
    }
    let n = elements(outer)?;
    let (mut values, mut indices) = (room(elements(&[n, k])?)?, room(elements(&[n, k])?)?);
    let falling = |a: R, b: R| {
        b.partial_cmp(&a).unwrap_or_else(|| {
            let odd = |v: R| v.to_f64().is_nan();
            odd(b).cmp(&odd(a))
        })
    };
    if *width > 0 {
        for row in x.as_floats()?.chunks_exact(*width) {
            let mut order: Vec<usize> = (0..*width).collect();
            order.sort_by(|a, b| match falling(row[*a], row[*b]) {
                Ordering::Equal => a.cmp(b),
                other => other,
            });
            values.extend(order[..k].iter().map(|i| row[*i]));
            indices.extend(order[..k].iter().map(|i| *i as i64));
        }
    }
    let (v, i) = (call.output(0)?, call.output(1)?);
    Ok(vec![
        Tensor::floats(v.dtype, v.dims.clone(), values)?,
        Tensor::ints(i.dims.clone(), indices)?,
    ])
}
