//! Shape rules of the gradients of sequence ops.

use super::{Op, TypeError, Types, attention, gated_delta_rule, want_dtype};
use crate::ty::{DType, Ty};

/// `given` must be the type of the result whose gradient it is.
fn want_gradient(op: &Op, tys: &[Ty], operand: usize, of: &Ty) -> Result<(), TypeError> {
    let given = &tys[operand];
    if given.same_shape(of) && given.dtype == of.dtype {
        return Ok(());
    }
    let name = op.info().operand_name(operand);
    Err(TypeError::new(format!("`{name}` must be {of}, not {given}")).at(operand, None))
}

/// Gives an error of the forward op's rule the operand numbers of the backward op.
fn renumbered(e: TypeError, operands: &[usize]) -> TypeError {
    let places =
        e.places.into_iter().filter_map(|(i, dim)| Some((*operands.get(i)?, dim))).collect();
    TypeError { places, ..e }
}

pub(in super::super) fn gated_delta_rule_grad(op: &Op, tys: &[Ty]) -> Types {
    let mut operands = vec![0, 1, 2, 3, 4, 6, 7];
    operands.extend((tys.len() > 8).then_some(8));
    let forward: Vec<Ty> = operands.iter().map(|i| tys[*i].clone()).collect();
    let results = gated_delta_rule(&Op::GatedDeltaRule, &forward);
    let results = results.map_err(|e| renumbered(e, &operands))?;
    want_gradient(op, tys, 5, &results[0])?;
    if tys.len() > 9 {
        want_gradient(op, tys, 9, &results[1])?;
    }
    Ok(tys[..5].iter().chain(&results[1..2]).cloned().collect())
}

pub(in super::super) fn attention_grad(op: &Op, tys: &[Ty]) -> Types {
    let Op::AttentionGrad { scale, causal, window } = op else {
        return super::structural(op, tys);
    };
    let operands = match tys.len() {
        8 => vec![0, 1, 2, 6, 7],
        _ => vec![0, 1, 2, 6, 7, 8],
    };
    let forward: Vec<Ty> = operands.iter().map(|i| tys[*i].clone()).collect();
    let of = Op::Attention { scale: *scale, causal: *causal, window: window.clone() };
    let results = attention(&of, &forward).map_err(|e| renumbered(e, &operands))?;
    want_gradient(op, tys, 3, &results[0])?;
    want_dtype(op, tys, 4, DType::F32)?;
    want_gradient(op, tys, 4, &results[1])?;
    want_gradient(op, tys, 5, &results[0])?;
    if tys.len() > 9 {
        want_gradient(op, tys, 9, &results[1])?;
    }
    Ok(tys[..3].to_vec())
}
