//! `schedule.json`: the steps of one training step.
//!
//! A step names the buffers that it reads and writes. Values that live across steps are buffers;
//! what happens inside a program is the program's own.

use serde::{Deserialize, Serialize};

/// How many ranks there are along each axis. Context-parallel neighbours have neighbouring numbers,
/// then data-parallel ones, then pipeline stages: rank `(p * dp + d) * cp + c`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mesh {
    /// Pipeline ranks.
    pub pp: usize,
    /// Context-parallel ranks.
    pub cp: usize,
    /// Data-parallel ranks.
    pub dp: usize,
}

impl Default for Mesh {
    fn default() -> Self {
        Mesh { pp: 1, cp: 1, dp: 1 }
    }
}

impl Mesh {
    /// All ranks; `None` when their number does not fit.
    pub fn size(&self) -> Option<usize> {
        self.pp.checked_mul(self.cp)?.checked_mul(self.dp)
    }

    /// The place of a rank.
    pub fn place(&self, rank: usize) -> Place {
        Place { pp: rank / self.cp / self.dp, dp: rank / self.cp % self.dp, cp: rank % self.cp }
    }

    /// The rank at a place.
    pub fn rank(&self, at: Place) -> usize {
        (at.pp * self.dp + at.dp) * self.cp + at.cp
    }
}

/// Where a rank is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place {
    /// Its pipeline rank.
    pub pp: usize,
    /// Its data-parallel rank.
    pub dp: usize,
    /// Its context-parallel rank.
    pub cp: usize,
}

/// The steps of every rank.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// The ranks.
    #[serde(default)]
    pub mesh: Mesh,
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
    /// The sum of the squares of a gradient.
    GradSquares(String),
    /// The norm of all gradients.
    GradNorm,
    /// What one program of a microbatch gives to another, by its name there.
    Value(usize, String),
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
    /// Sums the counts of each loss over all microbatches and the data- and context-parallel ranks.
    Totals,
    /// Adds the gradients of a microbatch to the main gradients.
    Accumulate {
        /// Parameters.
        params: Vec<String>,
    },
    /// Sends buffers to the rank of another stage, which receives them.
    Send {
        /// The stage's pipeline rank.
        to: usize,
        /// Which.
        buffers: Vec<Buffer>,
    },
    /// Waits for buffers from the rank of another stage.
    Receive {
        /// The stage's pipeline rank.
        from: usize,
        /// Which.
        buffers: Vec<Buffer>,
    },
    /// Sums main gradients over the data- and context-parallel ranks.
    Reduce {
        /// Parameters.
        params: Vec<String>,
    },
    /// Sums the main gradient of a parameter that several stages use over them.
    Tie {
        /// The parameter.
        param: String,
        /// The pipeline ranks that have it.
        ranks: Vec<usize>,
    },
    /// Makes the norm of all gradients from the squares that the ranks have, each parameter once.
    Norm,
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
