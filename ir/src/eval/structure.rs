//! Evaluators (being written).

use super::{Call, EvalError, EvalResult, Real};

/// Being written.
pub(crate) fn refuse<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn collective<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}
