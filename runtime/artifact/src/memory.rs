//! `memory.json`: where every value of a training step is in memory, and when.
//!
//! A rank's steps are cut into executions, one a kernel. A block is a range of bytes in a pool that
//! holds one value, or several one after the other where an op works in place. Executions write
//! blocks, read them, and free those that nobody reads any more.

use crate::Buffer;
use serde::{Deserialize, Serialize};

/// A range that is allocated once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Parameters in the model's dtype.
    Params,
    /// Main gradients.
    Grads,
    /// Master weights and moments.
    Optimizer,
    /// Everything that comes and goes within a step.
    Activations,
    /// Room for libraries' kernels.
    Workspace,
}

impl Pool {
    /// Every pool.
    pub const ALL: [Pool; 5] =
        [Pool::Params, Pool::Grads, Pool::Optimizer, Pool::Activations, Pool::Workspace];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Pool::Params => "params",
            Pool::Grads => "grads",
            Pool::Optimizer => "optimizer",
            Pool::Activations => "activations",
            Pool::Workspace => "workspace",
        }
    }
}

/// A range of bytes in a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Block {
    /// The value in it, by its name in the spec.
    pub name: String,
    /// The pool.
    pub pool: Pool,
    /// First byte in the pool.
    pub offset: u64,
    /// Bytes of the value.
    pub bytes: u64,
    /// The buffer whose place it is for good; `None` for what comes and goes within a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Buffer>,
}

impl Block {
    /// Whether it is there for the whole step, and after it.
    pub fn resident(&self) -> bool {
        self.buffer.is_some()
    }
}

/// What an execution does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum What {
    /// Numbers of the optimizer are set.
    Scalars {
        /// Which, in the order of the blocks written.
        buffers: Vec<Buffer>,
    },
    /// A microbatch is read.
    Load {
        /// Which.
        microbatch: usize,
        /// Its inputs, in the order of the blocks written.
        buffers: Vec<Buffer>,
    },
    /// A node of a program is run.
    Node {
        /// The step of the rank's list that runs the program.
        step: usize,
        /// Index of the node in main, or of a call, then of the node in the function called, and so
        /// on.
        at: Vec<u32>,
        /// What is made again, for the backward pass.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replay: bool,
    },
    /// A step that runs no program: counts, exchanges, the norm. It reads and writes what the step
    /// names, in that order.
    Step {
        /// Its place in the rank's list.
        step: usize,
    },
    /// A gradient of a microbatch is added to the main gradient; the first of a step replaces it.
    Accumulate {
        /// The parameter.
        param: String,
        /// Whether it is the first of the step.
        first: bool,
    },
    /// A result of a program is copied to where it stays.
    Copy {
        /// Where.
        buffer: Buffer,
    },
    /// A master weight is rounded to the model's dtype.
    Publish {
        /// The parameter.
        param: String,
    },
}

/// One kernel, or one thing that the executor does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Execution {
    /// Its name in the spec.
    pub name: String,
    /// What is done.
    #[serde(flatten)]
    pub what: What,
    /// Blocks read, in the order of operands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<usize>,
    /// Blocks written, in the order of results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<usize>,
    /// Blocks that are free afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frees: Vec<usize>,
}

/// The memory plan of one rank.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Offsets are multiples of it.
    pub alignment: u64,
    /// Bytes of each pool, in the order of [`Pool::ALL`].
    pub pools: Vec<u64>,
    /// The most bytes of activations that are live together; no packing takes less.
    pub lower_bound: u64,
    /// Every block.
    pub blocks: Vec<Block>,
    /// Every execution, in order.
    pub executions: Vec<Execution>,
    /// Where results of the step are that have no pool of their own: losses and their counts.
    pub results: Vec<(Buffer, usize)>,
}

impl MemoryPlan {
    /// Bytes of a pool.
    pub fn pool(&self, pool: Pool) -> u64 {
        let at = Pool::ALL.iter().position(|p| *p == pool);
        at.and_then(|i| self.pools.get(i)).copied().unwrap_or(0)
    }

    /// Bytes of all pools: what the device must have.
    pub fn peak(&self) -> u64 {
        self.pools.iter().fold(0, |sum, b| sum.saturating_add(*b))
    }
}
