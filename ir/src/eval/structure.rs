//! Ops that stand for structure of the program, and exchange between ranks.

use super::{Call, EvalError, EvalResult, Real, movement};

/// Inputs, parameters and calls: the evaluator of functions handles them itself.
pub(crate) fn refuse<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    Err(EvalError::new(format!("`{}` is no op that computes", call.op.name())))
}

/// An exchange on a mesh of one rank: every sum is over one part and every part is the whole.
pub(crate) fn collective<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    movement::copy(call)
}
