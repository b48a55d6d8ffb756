//! From one program to the programs of many ranks: which stage holds what, and the parts of the
//! joint program that each stage runs.

mod assign;
pub mod auto;
mod context;
mod cut;
pub mod letters;
pub mod parts;
pub mod placement;
pub mod suggest;

pub use assign::{Phase, Stages, further_layers, layers};
pub use context::{AttentionForm, ContextParallel, context_parallel};
pub use cut::{Crossing, Cut, Part, cut};

use vlmc_ir::ops::TypeError;

/// Why a program could not be partitioned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PartitionError {
    /// In words.
    pub message: String,
}

impl PartitionError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        PartitionError { message: message.into() }
    }
}

impl From<TypeError> for PartitionError {
    fn from(e: TypeError) -> Self {
        PartitionError { message: e.message }
    }
}
