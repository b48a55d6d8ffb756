//! Matrix products.

use super::movement::{strided, strides};
use super::tensor::{Matrix, elements, filled};
use super::{Call, EvalError, EvalResult, Real, Tensor};
use crate::ops::Op;

fn unexpected<R: Real>(call: &Call<'_, R>) -> EvalError {
    EvalError::new(format!("`{}` cannot be evaluated on these operands", call.op.name()))
}

/// Rearranges the dims of `x` into three groups, each then counted as one dim.
fn grouped<R: Real>(x: &Tensor<R>, groups: [&[u32]; 3]) -> Result<(Vec<R>, [usize; 3]), EvalError> {
    let have = strides(&x.dims);
    let order: Vec<usize> = groups.iter().flat_map(|g| g.iter().map(|i| *i as usize)).collect();
    let dims: Vec<usize> = order.iter().map(|i| x.dim(*i)).collect();
    let steps: Vec<usize> = order.iter().map(|i| have.get(*i).copied().unwrap_or(0)).collect();
    let mut sizes = [1; 3];
    for (size, group) in sizes.iter_mut().zip(groups) {
        *size = elements(&group.iter().map(|i| x.dim(*i as usize)).collect::<Vec<_>>())?;
    }
    Ok((strided(x.as_floats()?, &dims, &steps, 0)?, sizes))
}

/// The general product: both operands become stacks of matrices.
pub(crate) fn contract<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Contract { a_batch, b_batch, a_contract, b_contract, .. } = call.op else {
        return Err(unexpected(call));
    };
    let (a, b) = (call.input(0)?, call.input(1)?);
    let free = |x: &Tensor<R>, batch: &[u32], contracted: &[u32]| -> Vec<u32> {
        (0..x.dims.len() as u32).filter(|i| !batch.contains(i) && !contracted.contains(i)).collect()
    };
    let (a_free, b_free) = (free(a, a_batch, a_contract), free(b, b_batch, b_contract));
    let (a, [batch, m, k]) = grouped(a, [a_batch, &a_free, a_contract])?;
    let (b, [b_count, n, b_k]) = grouped(b, [b_batch, &b_free, b_contract])?;
    if batch != b_count || k != b_k {
        return Err(EvalError::new("the dims of the two operands do not match"));
    }
    let mut out = filled(elements(&[batch, m, n])?, R::default())?;
    for (i, c) in out.chunks_exact_mut((m * n).max(1)).enumerate() {
        let a = Matrix::new(&a[i * m * k..(i + 1) * m * k], m, k);
        let b = Matrix::new(&b[i * n * k..(i + 1) * n * k], n, k).transposed();
        R::gemm(a, b, c)?;
    }
    let shape = call.output(0)?;
    Ok(vec![Tensor::floats(shape.dtype, shape.dims.clone(), out)?])
}

/// For each group its rows, in order; rows of no group are left out.
fn rows_of(groups: &[i64], count: usize) -> Vec<Vec<usize>> {
    let mut rows = vec![vec![]; count];
    for (row, group) in groups.iter().enumerate() {
        if let Some(list) = usize::try_from(*group).ok().and_then(|g| rows.get_mut(g)) {
            list.push(row);
        }
    }
    rows
}

fn gather_rows<R: Real>(x: &[R], width: usize, rows: &[usize]) -> Vec<R> {
    rows.iter().flat_map(|r| &x[r * width..(r + 1) * width]).copied().collect()
}

/// `y[m] = w[groups[m]] x[m]`: the rows of one group are gathered, multiplied, put back.
pub(crate) fn grouped_contract<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::GroupedContract { transposed } = call.op else { return Err(unexpected(call)) };
    let (x, w, groups) = (call.input(0)?, call.input(1)?, call.input(2)?.as_ints()?);
    let (rows, k, count) = (x.dim(0), x.dim(1), w.dim(0));
    let n = w.dim(if *transposed { 2 } else { 1 });
    if w.dim(if *transposed { 1 } else { 2 }) != k || groups.len() != rows {
        return Err(EvalError::new("the sizes of rows, weights and groups do not match"));
    }
    let (x, w) = (x.as_floats()?, w.as_floats()?);
    let shape = call.output(0)?;
    let mut out = filled(elements(&[rows, n])?, R::default())?;
    if out.is_empty() || k == 0 || w.is_empty() {
        return Ok(vec![Tensor::floats(shape.dtype, shape.dims.clone(), out)?]);
    }
    for (g, rows) in rows_of(groups, count).iter().enumerate().filter(|(_, r)| !r.is_empty()) {
        let a = gather_rows(x, k, rows);
        let part = &w[g * n * k..(g + 1) * n * k];
        let b = if *transposed {
            Matrix::new(part, k, n)
        } else {
            Matrix::new(part, n, k).transposed()
        };
        let mut c = filled(rows.len() * n, R::default())?;
        R::gemm(Matrix::new(&a, rows.len(), k), b, &mut c)?;
        for (row, y) in rows.iter().zip(c.chunks_exact(n)) {
            out[row * n..(row + 1) * n].copy_from_slice(y);
        }
    }
    Ok(vec![Tensor::floats(shape.dtype, shape.dims.clone(), out)?])
}

/// `w[g] = sum over rows m of group g of a[m] b[m]^T`
pub(crate) fn grouped_outer<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::GroupedOuter { count, .. } = call.op else { return Err(unexpected(call)) };
    let (a, b, groups) = (call.input(0)?, call.input(1)?, call.input(2)?.as_ints()?);
    let (n, k) = (a.dim(1), b.dim(1));
    if a.dim(0) != groups.len() || b.dim(0) != groups.len() {
        return Err(EvalError::new("the sizes of rows and groups do not match"));
    }
    let count = call.sizes.eval(count)?;
    let (a, b) = (a.as_floats()?, b.as_floats()?);
    let shape = call.output(0)?;
    let mut out = filled(elements(&[count, n, k])?, R::default())?;
    if !out.is_empty() {
        let rows = rows_of(groups, count);
        for (rows, c) in rows.iter().zip(out.chunks_exact_mut(n * k)) {
            let (a, b) = (gather_rows(a, n, rows), gather_rows(b, k, rows));
            let a = Matrix::new(&a, rows.len(), n).transposed();
            R::gemm(a, Matrix::new(&b, rows.len(), k), c)?;
        }
    }
    Ok(vec![Tensor::floats(shape.dtype, shape.dims.clone(), out)?])
}
