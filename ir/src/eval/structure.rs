//! Ops that stand for structure of the program.

use super::{Call, EvalError, EvalResult, Real};

/// Inputs, parameters and calls: the evaluator of functions handles them itself.
pub(crate) fn refuse<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new(format!("`{}` is no op that computes", call.op.name())))
}
