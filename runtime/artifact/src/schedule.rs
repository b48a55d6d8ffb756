//! `schedule.json`: the steps of one training step.
//!
//! A step names the buffers that it reads and writes. Values that live across steps are buffers;
//! what happens inside a program is the program's own.

use serde::{Deserialize, Serialize};

/// The steps of every rank.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// Microbatches of a step, per data-parallel rank.
    pub microbatches: usize,
    /// Steps in order, one list a pipeline rank.
    pub ranks: Vec<Vec<Step>>,
}

/// A value that lives across steps.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// An input of the microbatch, by the name in the program.
    Input(usize, String),
    /// A parameter in the model's dtype.
    Param(String),
    /// A main gradient, f32.
    Grad(String),
    /// The gradient of a microbatch, before it is added.
    LocalGrad(String),
    /// A master weight, f32.
    Master(String),
    /// First moment, f32.
    Moment1(String),
    /// Second moment, f32.
    Moment2(String),
    /// The sum of a loss in a microbatch.
    LossSum(usize, String),
    /// The count of a loss in a microbatch.
    LossCount(usize, String),
    /// The count of a loss over the whole step.
    TotalCount(String),
    /// The norm of all gradients.
    GradNorm,
    /// A number of the optimizer that changes from step to step.
    Scalar(String),
}

/// One thing to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Step {
    /// Reads a microbatch of the step's batch into its input buffers.
    Load {
        /// Which.
        microbatch: usize,
    },
    /// Runs a program.
    Run {
        /// Its name in the manifest.
        program: String,
        /// The microbatch it works on.
        #[serde(skip_serializing_if = "Option::is_none")]
        microbatch: Option<usize>,
        /// Inputs of the program with the buffer of each.
        inputs: Vec<(String, Buffer)>,
        /// Outputs of the program, in order, with the buffer of each; a loss has its sum and then
        /// its count.
        outputs: Vec<Buffer>,
    },
    /// Sums the counts of each loss over all microbatches and ranks.
    Totals,
    /// Adds the gradients of a microbatch to the main gradients.
    Accumulate {
        /// Parameters.
        params: Vec<String>,
    },
    /// Makes a master weight's rounded copy in the model's dtype.
    Publish {
        /// Parameters.
        params: Vec<String>,
    },
    /// Frees buffers.
    Free {
        /// Which.
        buffers: Vec<Buffer>,
    },
}
