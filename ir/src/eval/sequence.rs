//! Evaluators (being written).

use super::{Call, EvalError, EvalResult, Real};

/// Being written.
pub(crate) fn row_valid<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn segment_shift<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn causal_conv1d<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn causal_conv1d_input_grad<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn causal_conv1d_weight_grad<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn gated_delta_rule<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn attention<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}
