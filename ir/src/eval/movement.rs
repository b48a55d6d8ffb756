//! Evaluators (being written).

use super::{Call, EvalError, EvalResult, Real};

/// Being written.
pub(crate) fn copy<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn transpose<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn broadcast<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn repeat<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn slice<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn pad<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn concat<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}

/// Being written.
pub(crate) fn reduce<R: Real>(_: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new("not written yet"))
}
