//! The reference evaluator: what every op means, on the host, one op at a time.
//!
//! It computes in `f32` or `f64` ([`Real`]) and rounds a result to bf16 where its type says so, once,
//! when the op is done: the rounding points of a program are its bf16 values. It is written to be
//! read and trusted; only matrix products are made fast.
//!
//! An integer result that does not fit i32 is an error: devices would wrap around there, and no
//! program means that.

pub mod contract;
pub mod elementwise;
pub mod indexing;
pub mod mesh;
pub mod movement;
pub mod run;
pub mod sequence;
pub mod sizes;
pub mod special;
pub mod structure;
pub mod tensor;

pub use run::{Evaluator, OutputValue, Outputs};
pub use sizes::Sizes;
pub use tensor::{Data, Real, Tensor};

use crate::ops::Op;
use crate::ty::DType;

/// Why an evaluation stopped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    /// In words.
    pub message: String,
}

impl EvalError {
    /// An error.
    pub fn new(message: impl Into<String>) -> Self {
        EvalError { message: message.into() }
    }
}

/// Results of an op.
pub type EvalResult<R> = Result<Vec<Tensor<R>>, EvalError>;

/// Element type and sizes of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub dims: Vec<usize>,
}

/// One execution of an op: what its evaluator reads. Operand and result types have been checked
/// against the op's shape rule.
pub struct Call<'a, R> {
    /// The op.
    pub op: &'a Op,
    /// Operands.
    pub inputs: &'a [&'a Tensor<R>],
    /// What the results must be.
    pub outputs: &'a [Shape],
    /// Values of the symbols, for attributes that are dims.
    pub sizes: &'a Sizes,
    /// Values of bf16 are rounded; off only to see what exact arithmetic gives.
    pub round: bool,
    /// Rows that a lookup does not find are NaN instead of zero, to prove that nothing uses them.
    pub poison: bool,
}

impl<'a, R> Call<'a, R> {
    /// Operand `i`.
    pub(crate) fn input(&self, i: usize) -> Result<&'a Tensor<R>, EvalError> {
        self.inputs
            .get(i)
            .copied()
            .ok_or_else(|| EvalError::new(format!("`{}` lacks operand {i}", self.op.name())))
    }

    /// What result `i` must be.
    pub(crate) fn output(&self, i: usize) -> Result<&'a Shape, EvalError> {
        self.outputs
            .get(i)
            .ok_or_else(|| EvalError::new(format!("`{}` lacks result {i}", self.op.name())))
    }
}
