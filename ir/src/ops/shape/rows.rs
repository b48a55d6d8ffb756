//! Ops that choose or follow rows.

use super::{
    Op, TypeError, Types, name, same, same_dtypes, same_shapes, structural, want_dtype, want_float,
    want_float_result, want_rank, want_same, want_value,
};
use crate::dim::{Dim, Poly};
use crate::ty::{DType, Ty};

// ---- indexing ----------------------------------------------------------------------------------

pub(in crate::ops) fn gather(op: &Op, tys: &[Ty]) -> Types {
    want_dtype(op, tys, 1, DType::I32)?;
    if tys[0].rank() == 0 {
        return Err(TypeError::new("`table` must have rows").at(0, None));
    }
    let dims = tys[1].dims.iter().chain(&tys[0].dims[1..]).cloned().collect();
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(in crate::ops) fn scatter_add(op: &Op, tys: &[Ty]) -> Types {
    let Op::ScatterAdd { count } = op else { return structural(op, tys) };
    want_dtype(op, tys, 0, DType::I32)?;
    want_float(op, tys, 1)?;
    let lead = tys[0].rank();
    if tys[1].rank() < lead {
        return Err(TypeError::new("`rows` has fewer dims than `index`").at(0, None).at(1, None));
    }
    (0..lead).try_for_each(|i| want_same(op, tys, (0, i), (1, i)))?;
    let mut dims = vec![count.clone()];
    dims.extend_from_slice(&tys[1].dims[lead..]);
    Ok(vec![Ty::new(tys[1].dtype, dims)])
}

pub(in crate::ops) fn top_k(op: &Op, tys: &[Ty]) -> Types {
    let Op::TopK { k } = op else { return structural(op, tys) };
    want_float(op, tys, 0)?;
    let Some(last) = tys[0].dims.last() else {
        return Err(TypeError::new("`x` must have a dim to choose from").at(0, None));
    };
    if last.size().sub(k.size()).as_constant().is_some_and(|room| room < 0) {
        return Err(
            TypeError::new(format!("{k} of {last} cannot be chosen")).at(0, tys[0].rank() - 1)
        );
    }
    let mut dims = tys[0].dims.clone();
    dims.pop();
    dims.push(k.clone());
    Ok(vec![Ty::new(tys[0].dtype, dims.clone()), Ty::new(DType::I32, dims)])
}

// ---- sequences ---------------------------------------------------------------------------------

/// Operands `at` and `at + 1` are the valid and the padded boundaries of one list of segments.
/// Returns the number of segments.
fn want_boundaries(op: &Op, tys: &[Ty], at: usize) -> Result<Poly, TypeError> {
    for i in [at, at + 1] {
        want_rank(op, tys, i, 1)?;
        want_dtype(op, tys, i, DType::I32)?;
    }
    want_same(op, tys, (at, 0), (at + 1, 0))?;
    Ok(tys[at].dims[0].size().sub(&1.into()))
}

pub(in crate::ops) fn row_valid(op: &Op, tys: &[Ty]) -> Types {
    let Op::RowValid { rows } = op else { return structural(op, tys) };
    want_boundaries(op, tys, 0)?;
    Ok(vec![Ty::new(DType::Bool, vec![rows.clone()])])
}

pub(in crate::ops) fn segment_shift(op: &Op, tys: &[Ty]) -> Types {
    let Op::SegmentShift { fill, .. } = op else { return structural(op, tys) };
    want_value(tys[0].dtype, fill.0)?;
    want_boundaries(op, tys, 1)?;
    if tys[0].rank() == 0 {
        return Err(TypeError::new("`x` must have rows").at(0, None));
    }
    same(op, tys)
}

pub(in crate::ops) fn causal_conv1d(op: &Op, tys: &[Ty]) -> Types {
    want_rank(op, tys, 0, 2)?;
    want_rank(op, tys, 1, 2)?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..2], 0)?;
    want_same(op, tys, (0, 1), (1, 0))?;
    want_boundaries(op, tys, 2)?;
    same(op, tys)
}

pub(in crate::ops) fn causal_conv1d_weight_grad(op: &Op, tys: &[Ty]) -> Types {
    let Op::CausalConv1dWeightGrad { taps, dtype } = op else { return structural(op, tys) };
    want_rank(op, tys, 0, 2)?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..2], 0)?;
    same_shapes(op, &tys[..2], 0)?;
    want_boundaries(op, tys, 2)?;
    want_float_result(*dtype)?;
    Ok(vec![Ty::new(*dtype, vec![tys[0].dims[1].clone(), taps.clone()])])
}

/// Heads of `few` must divide those of `many`, where both are known.
fn want_grouped_heads(op: &Op, tys: &[Ty], many: usize, few: usize) -> Result<(), TypeError> {
    let (m, f) = (&tys[many].dims[1], &tys[few].dims[1]);
    let bad = match (m.size().as_constant(), f.size().as_constant()) {
        (Some(m), Some(f)) => f == 0 || m % f != 0,
        _ => false,
    };
    if !bad {
        return Ok(());
    }
    Err(TypeError::new(format!(
        "{m} heads of `{}` are no multiple of {f} heads of `{}`",
        name(op, many),
        name(op, few)
    ))
    .at(many, 1)
    .at(few, 1))
}

pub(in crate::ops) fn gated_delta_rule(op: &Op, tys: &[Ty]) -> Types {
    const Q: usize = 0;
    const K: usize = 1;
    const V: usize = 2;
    const G: usize = 3;
    const BETA: usize = 4;
    [3, 3, 3, 2, 2].iter().enumerate().try_for_each(|(i, r)| want_rank(op, tys, i, *r))?;
    (0..5).try_for_each(|i| want_float(op, tys, i))?;
    (1..5).try_for_each(|i| want_same(op, tys, (Q, 0), (i, 0)))?;
    want_same(op, tys, (Q, 1), (K, 1))?;
    want_same(op, tys, (Q, 2), (K, 2))?;
    want_same(op, tys, (V, 1), (G, 1))?;
    want_same(op, tys, (V, 1), (BETA, 1))?;
    want_grouped_heads(op, tys, V, K)?;
    want_dtype(op, tys, G, DType::F32)?;
    let segments = want_boundaries(op, tys, 5)?;
    let state = Ty::new(
        DType::F32,
        vec![
            Dim::new(segments),
            tys[V].dims[1].clone(),
            tys[K].dims[2].clone(),
            tys[V].dims[2].clone(),
        ],
    );
    if let Some(given) = tys.get(7)
        && (!given.same_shape(&state) || given.dtype != DType::F32)
    {
        return Err(TypeError::new(format!("`state` must be {state}, not {given}")).at(7, None));
    }
    Ok(vec![tys[V].clone(), state])
}

pub(in crate::ops) fn attention(op: &Op, tys: &[Ty]) -> Types {
    (0..3).try_for_each(|i| want_rank(op, tys, i, 3))?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..3], 0)?;
    match tys.get(5) {
        None => want_same(op, tys, (0, 0), (1, 0))?,
        Some(_) => {
            want_rank(op, tys, 5, 1)?;
            want_dtype(op, tys, 5, DType::I32)?;
            want_same(op, tys, (0, 0), (5, 0))?;
        }
    }
    want_same(op, tys, (1, 0), (2, 0))?;
    want_same(op, tys, (0, 2), (1, 2))?;
    want_same(op, tys, (1, 1), (2, 1))?;
    want_grouped_heads(op, tys, 0, 1)?;
    want_boundaries(op, tys, 3)?;
    if let Op::Attention { window: Some(w), .. } = op
        && w.size().as_constant().is_some_and(|w| w < 1)
    {
        return Err(TypeError::new(format!("`window` must be at least 1, not {w}"))
            .help("`none` lets a row see all rows of its document"));
    }
    let rows = &tys[0].dims;
    let y = vec![rows[0].clone(), rows[1].clone(), tys[2].dims[2].clone()];
    Ok(vec![Ty::new(tys[0].dtype, y), Ty::new(DType::F32, rows[..2].to_vec())])
}
