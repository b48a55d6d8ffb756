//! Evaluators (being written).

use super::{Call, EvalError, EvalResult, Real};

/// Being written.
pub(crate) fn gather<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn scatter_add<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn top_k<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}
