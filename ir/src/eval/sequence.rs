//! Ops that follow the rows of packed sequences.

pub(crate) mod grad;

use super::tensor::{Matrix, elements, filled};
use super::{Call, Data, EvalError, EvalResult, Real, Tensor};
use crate::ops::Op;
use crate::ty::DType;
use std::ops::Range;
use std::sync::Arc;

fn unexpected<R: Real>(call: &Call<'_, R>) -> EvalError {
    EvalError::new(format!("`{}` cannot be evaluated on these operands", call.op.name()))
}

/// The valid rows of every segment, from operands `at` (valid) and `at + 1` (padded).
///
/// # Errors
/// When the boundaries fall, reach past `rows`, or a segment has more valid rows than rows.
fn segments<R: Real>(
    call: &Call<'_, R>,
    at: usize,
    rows: usize,
) -> Result<Vec<Range<usize>>, EvalError> {
    let (valid, padded) = (call.input(at)?.as_ints()?, call.input(at + 1)?.as_ints()?);
    let error = |what: String| Err(EvalError::new(format!("segment boundaries: {what}")));
    if valid.len() != padded.len() || valid.is_empty() {
        return error(format!("{} valid and {} padded ones", valid.len(), padded.len()));
    }
    let mut out = vec![];
    for (i, (v, p)) in valid.windows(2).zip(padded.windows(2)).enumerate() {
        let (length, owned) = (v[1] - v[0], p[1] - p[0]);
        if length < 0 || length > owned {
            return error(format!("segment {i} has {length} valid rows of {owned}"));
        }
        let (start, end) = (usize::try_from(p[0]), usize::try_from(p[1]));
        match (start, end) {
            (Ok(start), Ok(end)) if end <= rows => out.push(start..start + length as usize),
            _ => return error(format!("segment {i} is rows {} to {} of {rows}", p[0], p[1])),
        }
    }
    Ok(out)
}

/// Whether each row is a valid row of a segment.
pub(crate) fn row_valid<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let shape = call.output(0)?;
    let rows = elements(&shape.dims)?;
    let mut out = filled(rows, false)?;
    for rows in segments(call, 0, rows)? {
        out[rows].fill(true);
    }
    Ok(vec![Tensor::bools(shape.dims.clone(), out)?])
}

/// Rows moved inside their segments.
pub(crate) fn segment_shift<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    fn shift<A: Copy>(
        x: &[A],
        segments: &[Range<usize>],
        width: usize,
        by: i64,
        fill: A,
    ) -> Result<Arc<Vec<A>>, EvalError> {
        let mut out = filled(x.len(), fill)?;
        for rows in segments {
            for t in rows.clone() {
                let from = (t as i64).checked_add(by).and_then(|f| usize::try_from(f).ok());
                if let Some(f) = from.filter(|f| rows.contains(f)) {
                    out[t * width..(t + 1) * width].copy_from_slice(&x[f * width..(f + 1) * width]);
                }
            }
        }
        Ok(Arc::new(out))
    }
    let Op::SegmentShift { by, fill } = call.op else { return Err(unexpected(call)) };
    let x = call.input(0)?;
    let segments = segments(call, 1, x.dim(0))?;
    let width = elements(x.dims.get(1..).unwrap_or(&[]))?;
    let data = match &x.data {
        Data::Float(v) => Data::Float(shift(v, &segments, width, *by, R::from_f64(fill.0))?),
        Data::Int(v) => Data::Int(shift(v, &segments, width, *by, fill.0 as i64)?),
        Data::Bool(v) => Data::Bool(shift(v, &segments, width, *by, fill.0 != 0.0)?),
    };
    let shape = call.output(0)?;
    Ok(vec![Tensor::new(shape.dtype, shape.dims.clone(), data)?])
}

/// Calls `f(t, s, j)` for every pair of a row `t` and the row `s` that tap `j` of `taps` reads
/// there, both valid rows of one segment.
fn each_tap(segments: &[Range<usize>], taps: usize, mut f: impl FnMut(usize, usize, usize)) {
    for rows in segments {
        for t in rows.clone() {
            // Tap `taps - 1` meets the row itself, tap `taps - 1 - d` the row d before it.
            for d in 0..taps.min(t - rows.start + 1) {
                f(t, t - d, taps - 1 - d);
            }
        }
    }
}

/// `y[t, c] = sum over j of w[c, j] x[t - K + 1 + j, c]`
pub(crate) fn causal_conv1d<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    convolve(call, |y, w, x, (to, from, tap)| y[to] += w[tap] * x[from])
}

/// `dx[s, c] = sum over j of w[c, j] dy[s + K - 1 - j, c]`: the same pairs, read the other way.
pub(crate) fn causal_conv1d_input_grad<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    convolve(call, |dx, w, dy, (to, from, tap)| dx[from] += w[tap] * dy[to])
}

fn convolve<R: Real>(
    call: &Call<'_, R>,
    f: impl Fn(&mut [R], &[R], &[R], (usize, usize, usize)),
) -> EvalResult<R> {
    let (x, w) = (call.input(0)?, call.input(1)?);
    let (channels, taps) = (x.dim(1), w.dim(1));
    if w.dim(0) != channels {
        return Err(unexpected(call));
    }
    let segments = segments(call, 2, x.dim(0))?;
    let (x, w) = (x.as_floats()?, w.as_floats()?);
    let mut out = filled(x.len(), R::default())?;
    each_tap(&segments, taps, |t, s, j| {
        for c in 0..channels {
            f(&mut out, w, x, (t * channels + c, s * channels + c, c * taps + j));
        }
    });
    let shape = call.output(0)?;
    Ok(vec![Tensor::floats(shape.dtype, shape.dims.clone(), out)?])
}

/// `dw[c, j] = sum over t of dy[t, c] x[t - K + 1 + j, c]`
pub(crate) fn causal_conv1d_weight_grad<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::CausalConv1dWeightGrad { taps, .. } = call.op else { return Err(unexpected(call)) };
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let taps = call.sizes.eval(taps)?;
    let channels = x.dim(1);
    let segments = segments(call, 2, x.dim(0))?;
    let (x, dy) = (x.as_floats()?, dy.as_floats()?);
    if x.len() != dy.len() {
        return Err(unexpected(call));
    }
    let mut out = filled(elements(&[channels, taps])?, R::default())?;
    each_tap(&segments, taps, |t, s, j| {
        for c in 0..channels {
            out[c * taps + j] += dy[t * channels + c] * x[s * channels + c];
        }
    });
    let shape = call.output(0)?;
    Ok(vec![Tensor::floats(shape.dtype, shape.dims.clone(), out)?])
}

/// How many heads of `many` share one of `few`.
fn heads_per_group(many: usize, few: usize) -> Result<usize, EvalError> {
    match many.checked_rem(few) {
        Some(0) => Ok(many / few),
        _ if many == 0 => Ok(1),
        _ => Err(EvalError::new(format!("{many} heads are no multiple of {few}"))),
    }
}

/// The recurrence, step by step.
pub(crate) fn gated_delta_rule<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let (q, k, v) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (rows, key_heads, dk) = (k.dim(0), k.dim(1), k.dim(2));
    let (heads, dv) = (v.dim(1), v.dim(2));
    let group = heads_per_group(heads, key_heads)?;
    let segments = segments(call, 5, rows)?;
    let (q, k, v) = (q.as_floats()?, k.as_floats()?, v.as_floats()?);
    let (g, beta) = (call.input(3)?.as_floats()?, call.input(4)?.as_floats()?);
    let (y_shape, state_shape) = (call.output(0)?, call.output(1)?);
    let mut y = filled(elements(&[rows, heads, dv])?, R::default())?;
    let mut states = match call.inputs.get(7) {
        Some(s) => s.as_floats()?.to_vec(),
        None => filled(elements(&state_shape.dims)?, R::default())?,
    };
    let per_head = elements(&[dk, dv])?;
    let fits = states.len() == elements(&[segments.len(), heads, per_head])?
        && [q.len(), k.len()] == [elements(&[rows, key_heads, dk])?; 2]
        && [g.len(), beta.len()] == [elements(&[rows, heads])?; 2]
        && v.len() == y.len();
    if !fits {
        return Err(unexpected(call));
    }
    let mut u = filled(dv, R::default())?;
    for (i, segment) in segments.iter().enumerate() {
        for h in 0..heads {
            let at = (i * heads + h) * per_head;
            let state = &mut states[at..at + per_head];
            for t in segment.clone() {
                let key = (t * key_heads + h / group) * dk;
                let (q, k) = (&q[key..key + dk], &k[key..key + dk]);
                let value = (t * heads + h) * dv;
                let (v, y) = (&v[value..value + dv], &mut y[value..value + dv]);
                let decay = R::from_f64(g[t * heads + h].to_f64().exp());
                let beta = beta[t * heads + h];
                step(state, &mut u, decay, beta, q, k, v, y);
            }
        }
    }
    Ok(vec![
        Tensor::floats(y_shape.dtype, y_shape.dims.clone(), y)?,
        Tensor::floats(state_shape.dtype, state_shape.dims.clone(), states)?,
    ])
}

/// One step of one head. The state has a row for each of the entries of `k`.
#[allow(clippy::too_many_arguments)]
fn step<R: Real>(
    state: &mut [R],
    u: &mut [R],
    decay: R,
    beta: R,
    q: &[R],
    k: &[R],
    v: &[R],
    y: &mut [R],
) {
    let dv = v.len();
    if dv == 0 {
        return;
    }
    // u = beta (v - S'^T k) with S' = decay S
    u.fill(R::default());
    for (row, k) in state.chunks_exact_mut(dv).zip(k) {
        for (s, u) in row.iter_mut().zip(&mut *u) {
            *s = decay * *s;
            *u += *s * *k;
        }
    }
    for (u, v) in u.iter_mut().zip(v) {
        *u = beta * (*v - *u);
    }
    // S = S' + k u^T, y = S^T q
    for ((row, k), q) in state.chunks_exact_mut(dv).zip(k).zip(q) {
        for ((s, u), y) in row.iter_mut().zip(&*u).zip(&mut *y) {
            *s += *k * *u;
            *y += *s * *q;
        }
    }
}

/// Query rows whose scores are held at one time.
const QUERY_ROWS: usize = 128;

/// Query rows that follow each other in one segment.
pub(super) struct Block {
    /// Where they are in `q`.
    pub(super) local: Range<usize>,
    /// Where they are in the pack.
    pub(super) rows: Range<usize>,
    /// Their segment's valid rows.
    pub(super) segment: Range<usize>,
}

/// The blocks of `count` query rows, of which `at` tells the rows in the pack when they are not all of
/// them in order. Rows that are not valid are in none.
pub(super) fn blocks(segments: &[Range<usize>], count: usize, at: Option<&[i64]>) -> Vec<Block> {
    let mut out = vec![];
    let Some(at) = at else {
        for segment in segments {
            for start in segment.clone().step_by(QUERY_ROWS) {
                let rows = start..segment.end.min(start + QUERY_ROWS);
                out.push(Block { local: rows.clone(), rows, segment: segment.clone() });
            }
        }
        return out;
    };
    for (i, row) in at.iter().take(count).enumerate() {
        let Ok(row) = usize::try_from(*row) else { continue };
        let Some(segment) = segments.iter().find(|s| s.contains(&row)) else { continue };
        match out.last_mut() {
            Some(b)
                if b.local.end == i
                    && b.rows.end == row
                    && b.segment == *segment
                    && b.rows.len() < QUERY_ROWS =>
            {
                b.local.end += 1;
                b.rows.end += 1;
            }
            _ => {
                let segment = segment.clone();
                out.push(Block { local: i..i + 1, rows: row..row + 1, segment });
            }
        }
    }
    out
}

/// Softmax attention inside each segment: for each head two matrix products a block of rows.
pub(crate) fn attention<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::Attention { scale, causal, window } = call.op else { return Err(unexpected(call)) };
    let (q, k, v) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (rows, heads, d) = (q.dim(0), q.dim(1), q.dim(2));
    let (key_heads, dv) = (k.dim(1), v.dim(2));
    let group = heads_per_group(heads, key_heads)?;
    let window = window.as_ref().map(|w| call.sizes.eval(w)).transpose()?;
    let key_rows = k.dim(0);
    let segments = segments(call, 3, key_rows)?;
    let at = call.inputs.get(5).map(|t| t.as_ints()).transpose()?;
    let (q, k, v) = (q.as_floats()?, k.as_floats()?, v.as_floats()?);
    // With bf16 operands what a product gives is bf16: scores, scaled scores and probabilities are
    // rounded, as in the public implementation's plain form. Sums are f32.
    let narrow = call.round && call.output(0)?.dtype == DType::Bf16;
    let mut y = filled(elements(&[rows, heads, dv])?, R::default())?;
    let mut lse = filled(elements(&[rows, heads])?, R::from_f64(f64::NEG_INFINITY))?;
    let fits = q.len() == elements(&[rows, heads, d])?
        && k.len() == elements(&[key_rows, key_heads, d])?
        && v.len() == elements(&[key_rows, key_heads, dv])?;
    if !fits {
        return Err(unexpected(call));
    }
    for Block { local, rows, segment } in blocks(&segments, rows, at) {
        // No row of the block sees keys outside these.
        let first =
            window.map_or(segment.start, |w| segment.start.max((rows.start + 1).saturating_sub(w)));
        let bounded = *causal || window.is_some();
        let keys = first.min(rows.start)..if bounded { rows.end } else { segment.end };
        for h in 0..heads {
            let part = |x, rows: &Range<usize>, heads: usize, h: usize, width: usize| {
                head(x, rows.clone(), heads, h, width)
            };
            let kh = h / group;
            let mut scores = filled(elements(&[rows.len(), keys.len()])?, R::default())?;
            let keys_t = part(k, &keys, key_heads, kh, d).transposed();
            R::gemm(part(q, &local, heads, h, d), keys_t, &mut scores)?;
            for s in &mut scores {
                *s = if narrow { s.round_bf16() } else { *s };
                *s = R::from_f64(scale.0 * s.to_f64());
                *s = if narrow { s.round_bf16() } else { *s };
            }
            let each = local.clone().zip(rows.clone());
            for ((i, t), scores) in each.zip(scores.chunks_exact_mut(keys.len())) {
                let from = window.map_or(0, |w| (t + 1).saturating_sub(w));
                let to = if bounded { t } else { usize::MAX };
                let seen = |i: usize| (from..=to).contains(&(keys.start + i));
                lse[i * heads + h] = softmax(scores, seen);
                if narrow {
                    scores.iter_mut().for_each(|p| *p = p.round_bf16());
                }
            }
            let mut out = filled(elements(&[rows.len(), dv])?, R::default())?;
            let p = Matrix::new(&scores, rows.len(), keys.len());
            R::gemm(p, part(v, &keys, key_heads, kh, dv), &mut out)?;
            for (i, out) in local.clone().zip(out.chunks_exact(dv.max(1))) {
                y[(i * heads + h) * dv..][..dv].copy_from_slice(out);
            }
        }
    }
    let (y_shape, lse_shape) = (call.output(0)?, call.output(1)?);
    Ok(vec![
        Tensor::floats(y_shape.dtype, y_shape.dims.clone(), y)?,
        Tensor::floats(lse_shape.dtype, lse_shape.dims.clone(), lse)?,
    ])
}

/// Rows of one head of `[T, heads, width]` as a matrix.
fn head<R>(x: &[R], rows: Range<usize>, heads: usize, h: usize, width: usize) -> Matrix<'_, R> {
    let at = (rows.start * heads + h) * width;
    Matrix {
        data: x.get(at..).unwrap_or(&[]),
        rows: rows.len(),
        columns: width,
        row_stride: heads * width,
        column_stride: 1,
    }
}

/// Makes probabilities of scores, zero where `seen` is false; returns the log of the sum of
/// exponentials. A row that sees nothing gives zeros and minus infinity.
fn softmax<R: Real>(scores: &mut [R], seen: impl Fn(usize) -> bool) -> R {
    let visible = scores.iter().enumerate().filter(|(i, _)| seen(*i));
    let largest = visible.map(|(_, s)| s.to_f64()).fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        scores.fill(R::default());
        return R::from_f64(f64::NEG_INFINITY);
    }
    let mut sum = 0.0;
    for (i, s) in scores.iter_mut().enumerate() {
        let e = if seen(i) { (s.to_f64() - largest).exp() } else { 0.0 };
        sum += e;
        *s = R::from_f64(e);
    }
    for s in scores.iter_mut() {
        *s = R::from_f64(s.to_f64() / sum);
    }
    R::from_f64(largest + sum.ln())
}
