//! Evaluators (being written).

use super::{Call, EvalError, EvalResult, Real};

/// Being written.
pub(crate) fn contract<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn grouped_contract<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn grouped_outer<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}
