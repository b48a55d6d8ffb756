//! Gradients of the sequence ops that have backward ops of their own.

use super::{Block, blocks, head, heads_per_group, segments, step, unexpected};
use crate::eval::tensor::{Matrix, elements, filled};
use crate::eval::{Call, EvalError, EvalResult, Real, Tensor};
use crate::ops::Op;
use std::ops::Range;

fn zeros<R: Real>(dims: &[usize]) -> Result<Vec<R>, EvalError> {
    filled(elements(dims)?, R::default())
}

fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    a.iter().zip(b).fold(R::default(), |sum, (a, b)| sum + *a * *b)
}

fn results<R: Real, const N: usize>(call: &Call<'_, R>, data: [Vec<R>; N]) -> EvalResult<R> {
    let shapes = (0..N).map(|i| call.output(i));
    data.into_iter()
        .zip(shapes)
        .map(|(d, shape)| {
            let shape = shape?;
            Tensor::floats(shape.dtype, shape.dims.clone(), d)
        })
        .collect()
}

/// One row of one head in the backward recurrence.
struct Row<'a, R> {
    q: &'a [R],
    k: &'a [R],
    v: &'a [R],
    dy: &'a [R],
    decay: R,
    beta: R,
}

/// The gradients of one row by what belongs to one value head.
struct RowGrad<'a, R> {
    dq: &'a mut [R],
    dk: &'a mut [R],
    dv: &'a mut [R],
    dg: &'a mut R,
    dbeta: &'a mut R,
}

/// One step back. `before` and `after` are the states around the row, `[Dk, Dv]`; `ds` is the
/// gradient of `after` and becomes that of `before`.
fn step_back<R: Real>(
    row: &Row<'_, R>,
    before: &[R],
    after: &[R],
    ds: &mut [R],
    d: RowGrad<'_, R>,
) {
    let width = row.v.len();
    if width == 0 {
        return;
    }
    // r = S'^T k and the error v - r, with S' = decay S(t-1)
    let mut error = row.v.to_vec();
    for (s, k) in before.chunks_exact(width).zip(row.k) {
        for (e, s) in error.iter_mut().zip(s) {
            *e = *e - row.decay * *s * *k;
        }
    }
    let mut du = vec![R::default(); width];
    for (i, ds) in ds.chunks_exact_mut(width).enumerate() {
        d.dq[i] += dot(&after[i * width..(i + 1) * width], row.dy);
        for ((ds, dy), du) in ds.iter_mut().zip(row.dy).zip(&mut du) {
            *ds += row.q[i] * *dy;
            *du += *ds * row.k[i];
        }
    }
    *d.dbeta = dot(&du, &error);
    for (dv, du) in d.dv.iter_mut().zip(&du) {
        *dv = row.beta * *du;
    }
    // dr = -dv, so every use of it is a subtraction.
    let mut dg = R::default();
    for (i, ds) in ds.chunks_exact_mut(width).enumerate() {
        let before = &before[i * width..(i + 1) * width];
        let (mut by_u, mut by_r) = (R::default(), R::default());
        for j in 0..width {
            let decayed = row.decay * before[j];
            by_u += ds[j] * (row.beta * error[j]);
            by_r += decayed * d.dv[j];
            ds[j] = ds[j] - row.k[i] * d.dv[j];
            dg += ds[j] * decayed;
            ds[j] = row.decay * ds[j];
        }
        d.dk[i] += by_u - by_r;
    }
    *d.dg = dg;
}

/// The gated delta rule backward, step by step; the states are made again first.
pub(crate) fn gated_delta_rule<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let (q, k, v) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (rows, key_heads, dk) = (k.dim(0), k.dim(1), k.dim(2));
    let (heads, dv) = (v.dim(1), v.dim(2));
    let group = heads_per_group(heads, key_heads)?;
    let segments = segments(call, 6, rows)?;
    let (q, k, v) = (q.as_floats()?, k.as_floats()?, v.as_floats()?);
    let (g, beta) = (call.input(3)?.as_floats()?, call.input(4)?.as_floats()?);
    let dy = call.input(5)?.as_floats()?;
    let per_head = elements(&[dk, dv])?;
    let all_states = elements(&[segments.len(), heads, per_head])?;
    let given = |i: usize| match call.inputs.get(i) {
        Some(s) => s.as_floats().map(<[R]>::to_vec),
        None => filled(all_states, R::default()),
    };
    let (initial, mut ds) = (given(8)?, given(9)?);
    let mut out_q = zeros::<R>(&[rows, key_heads, dk])?;
    let mut out_k = out_q.clone();
    let mut out_v = zeros::<R>(&[rows, heads, dv])?;
    let mut out_g = zeros::<R>(&[rows, heads])?;
    let mut out_beta = out_g.clone();
    let fits = [initial.len(), ds.len()] == [all_states; 2]
        && [q.len(), k.len()] == [out_q.len(); 2]
        && [v.len(), dy.len()] == [out_v.len(); 2]
        && [g.len(), beta.len()] == [out_g.len(); 2];
    if !fits {
        return Err(unexpected(call));
    }
    let row = |t: usize, h: usize| {
        let (key, value) = ((t * key_heads + h / group) * dk, (t * heads + h) * dv);
        Row {
            q: &q[key..key + dk],
            k: &k[key..key + dk],
            v: &v[value..value + dv],
            dy: &dy[value..value + dv],
            decay: R::from_f64(g[t * heads + h].to_f64().exp()),
            beta: beta[t * heads + h],
        }
    };
    let (mut u, mut y) = (zeros::<R>(&[dv])?, zeros::<R>(&[dv])?);
    for (i, segment) in segments.iter().enumerate() {
        for h in 0..heads {
            let at = (i * heads + h) * per_head;
            let ds = &mut ds[at..at + per_head];
            let mut states = initial[at..at + per_head].to_vec();
            states.reserve_exact(elements(&[segment.len(), per_head])?);
            for t in segment.clone() {
                let mut state = states[states.len() - per_head..].to_vec();
                let r = row(t, h);
                step(&mut state, &mut u, r.decay, r.beta, r.q, r.k, r.v, &mut y);
                states.extend_from_slice(&state);
            }
            for (n, t) in segment.clone().enumerate().rev() {
                let (before, after) = states[n * per_head..].split_at(per_head);
                let (key, value) = ((t * key_heads + h / group) * dk, (t * heads + h) * dv);
                let grads = RowGrad {
                    dq: &mut out_q[key..key + dk],
                    dk: &mut out_k[key..key + dk],
                    dv: &mut out_v[value..value + dv],
                    dg: &mut out_g[t * heads + h],
                    dbeta: &mut out_beta[t * heads + h],
                };
                step_back(&row(t, h), before, &after[..per_head], ds, grads);
            }
        }
    }
    results(call, [out_q, out_k, out_v, out_g, out_beta, ds])
}

/// Adds rows of a product into one head of `[T, heads, width]`.
fn add_head<R: Real>(
    out: &mut [R],
    from: &[R],
    rows: &Range<usize>,
    heads: [usize; 2],
    width: usize,
) {
    let [heads, h] = heads;
    for (t, from) in rows.clone().zip(from.chunks_exact(width.max(1))) {
        let at = (t * heads + h) * width;
        for (o, f) in out[at..at + width].iter_mut().zip(from) {
            *o += *f;
        }
    }
}

/// Attention backward: for each head five matrix products a block of rows.
pub(crate) fn attention<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    let Op::AttentionGrad { scale, causal, window } = call.op else { return Err(unexpected(call)) };
    let (q, k, v) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (rows, heads, d) = (q.dim(0), q.dim(1), q.dim(2));
    let (key_heads, dv) = (k.dim(1), v.dim(2));
    let group = heads_per_group(heads, key_heads)?;
    let window = window.as_ref().map(|w| call.sizes.eval(w)).transpose()?;
    let key_rows = k.dim(0);
    let segments = segments(call, 6, key_rows)?;
    let at = call.inputs.get(8).map(|t| t.as_ints()).transpose()?;
    let (q, k, v) = (q.as_floats()?, k.as_floats()?, v.as_floats()?);
    let (y, lse) = (call.input(3)?.as_floats()?, call.input(4)?.as_floats()?);
    let dy = call.input(5)?.as_floats()?;
    let dlse = call.inputs.get(9).map(|t| t.as_floats()).transpose()?;
    let mut out_q = zeros::<R>(&[rows, heads, d])?;
    let mut out_k = zeros::<R>(&[key_rows, key_heads, d])?;
    let mut out_v = zeros::<R>(&[key_rows, key_heads, dv])?;
    let per_row = elements(&[rows, heads])?;
    let fits = q.len() == out_q.len()
        && k.len() == out_k.len()
        && v.len() == out_v.len()
        && [y.len(), dy.len()] == [elements(&[rows, heads, dv])?; 2]
        && [lse.len(), dlse.map_or(per_row, <[R]>::len)] == [per_row; 2];
    if !fits {
        return Err(unexpected(call));
    }
    let bounded = *causal || window.is_some();
    for Block { local, rows, segment } in blocks(&segments, rows, at) {
        let keys = segment.start..if bounded { rows.end } else { segment.end };
        for h in 0..heads {
            let kh = h / group;
            let (qs, ks) =
                (head(q, local.clone(), heads, h, d), head(k, keys.clone(), key_heads, kh, d));
            let (vs, dys) =
                (head(v, keys.clone(), key_heads, kh, dv), head(dy, local.clone(), heads, h, dv));
            let mut p = zeros::<R>(&[rows.len(), keys.len()])?;
            R::gemm(qs, ks.transposed(), &mut p)?;
            let mut ds = zeros::<R>(&[rows.len(), keys.len()])?;
            R::gemm(dys, vs.transposed(), &mut ds)?;
            for (n, (i, t)) in local.clone().zip(rows.clone()).enumerate() {
                let at = (i * heads + h) * dv;
                let sum = dot(&dy[at..at + dv], &y[at..at + dv]);
                let shift = dlse.map_or(sum, |l| sum - l[i * heads + h]);
                let from = window.map_or(0, |w| (t + 1).saturating_sub(w));
                let to = if bounded { t } else { usize::MAX };
                let lse = lse[i * heads + h].to_f64();
                for (c, key) in keys.clone().enumerate() {
                    let at = n * keys.len() + c;
                    if (from..=to).contains(&key) {
                        p[at] = R::from_f64((scale.0 * p[at].to_f64() - lse).exp());
                        ds[at] = R::from_f64(scale.0) * p[at] * (ds[at] - shift);
                    } else {
                        p[at] = R::default();
                        ds[at] = R::default();
                    }
                }
            }
            let (p, ds) =
                (Matrix::new(&p, rows.len(), keys.len()), Matrix::new(&ds, rows.len(), keys.len()));
            let mut part = zeros::<R>(&[rows.len(), d])?;
            R::gemm(ds, ks, &mut part)?;
            add_head(&mut out_q, &part, &local, [heads, h], d);
            let mut part = zeros::<R>(&[keys.len(), d])?;
            R::gemm(ds.transposed(), qs, &mut part)?;
            add_head(&mut out_k, &part, &keys, [key_heads, kh], d);
            let mut part = zeros::<R>(&[keys.len(), dv])?;
            R::gemm(p.transposed(), dys, &mut part)?;
            add_head(&mut out_v, &part, &keys, [key_heads, kh], dv);
        }
    }
    results(call, [out_q, out_k, out_v])
}
