//! The memory plan of a rank: what is live when, and at which offset.
//!
//! 1. [`flatten`]: the rank's steps become executions, one a kernel. Calls are entered; a cluster is
//!    one kernel. A reshape is the value that it reshapes. A gradient is added to the main gradient
//!    as soon as it is made, so that the gradients of a microbatch are never there together; the
//!    order of additions to one gradient stays that of the steps.
//! 2. [`live`]: values become blocks. A value is there from the execution that makes it to the last
//!    that reads it. An elementwise op writes over an operand that nobody reads any more; a
//!    parameter's new state over the old.
//! 3. [`pack`]: blocks get offsets.
//!
//! Parameters, gradients and optimizer state have their places for good, as in Megatron-LM's
//! buffers. Sizes are those of the capacities.

mod flatten;
mod live;
pub mod pack;
pub mod report;

pub use live::Live;

use vlmc_artifact::memory::{Block, MemoryPlan, Pool};
use vlmc_artifact::{Buffer, Step};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::Program;

/// Offsets are multiples of this many bytes: what the tensor copy engine and vector loads want.
pub const ALIGNMENT: u64 = 256;

/// Bytes that matrix libraries get; what cuBLAS recommends on Hopper.
pub const WORKSPACE: u64 = 32 << 20;

/// Pairs of blocks that are looked at in all packings of a rank, about.
const PAIRS: usize = 1 << 31;

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct MemoryError {
    /// In words.
    pub message: String,
}

impl MemoryError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        MemoryError { message: message.into() }
    }
}

/// A rank: its programs by name, and its steps.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'p> {
    /// Programs by the names that steps use.
    pub programs: &'p [(&'p str, &'p Program)],
    /// The steps of one training step.
    pub steps: &'p [Step],
    /// Values of symbols.
    pub sizes: &'p Sizes,
}

/// `bytes` up to the next multiple of the alignment.
pub fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT)
}

/// What is live when, without offsets.
///
/// # Errors
/// Steps that read what nothing gives, and sizes that are not known.
pub fn simulate(rank: &Rank<'_>) -> Result<Live, MemoryError> {
    live::blocks(flatten::flatten(rank)?)
}

/// The memory plan; `effort` is how many packings are tried.
///
/// # Errors
/// As [`simulate`].
pub fn plan(rank: &Rank<'_>, effort: usize) -> Result<MemoryPlan, MemoryError> {
    let live = simulate(rank)?;
    let mut plan = MemoryPlan {
        alignment: ALIGNMENT,
        pools: vec![0; Pool::ALL.len()],
        lower_bound: live.peak(),
        blocks: live.blocks.clone(),
        executions: live.executions.clone(),
        results: live.results.clone(),
    };
    for (i, pool) in Pool::ALL.into_iter().enumerate() {
        let resident = |b: &&mut Block| b.resident() && b.pool == pool;
        for b in plan.blocks.iter_mut().filter(resident) {
            b.offset = plan.pools[i];
            plan.pools[i] = plan.pools[i].saturating_add(aligned(b.bytes));
        }
    }
    let spans = live.spans();
    let pairs = spans.len().saturating_mul(spans.len()).max(1);
    let packing = pack::pack(&spans, effort.min((PAIRS / pairs).max(1)));
    for (span, offset) in spans.iter().zip(&packing.offsets) {
        plan.blocks[span.block].offset = *offset;
    }
    let sizes = [(Pool::Activations, packing.bytes), (Pool::Workspace, WORKSPACE)];
    for (i, pool) in Pool::ALL.into_iter().enumerate() {
        let of = sizes.iter().find(|(p, _)| *p == pool);
        plan.pools[i] = plan.pools[i].saturating_add(of.map_or(0, |(_, bytes)| *bytes));
    }
    Ok(plan)
}

/// The pool of a buffer that stays, `None` for one that comes and goes.
fn pool_of(b: &Buffer) -> Option<Pool> {
    match b {
        Buffer::Param(_) => Some(Pool::Params),
        Buffer::Grad(_) => Some(Pool::Grads),
        Buffer::Master(_) | Buffer::Moment1(_) | Buffer::Moment2(_) => Some(Pool::Optimizer),
        _ => None,
    }
}

/// The name of a buffer in reports.
pub fn buffer_name(b: &Buffer) -> String {
    match b {
        Buffer::Input(m, n) => format!("{n} of microbatch {m}"),
        Buffer::Param(n) => n.clone(),
        Buffer::Grad(n) => format!("gradient of {n}"),
        Buffer::LocalGrad(n) => format!("new gradient of {n}"),
        Buffer::Master(n) => format!("master of {n}"),
        Buffer::Moment1(n) => format!("first moment of {n}"),
        Buffer::Moment2(n) => format!("second moment of {n}"),
        Buffer::LossSum(m, n) => format!("sum of {n} of microbatch {m}"),
        Buffer::LossCount(m, n) => format!("count of {n} of microbatch {m}"),
        Buffer::TotalCount(n) => format!("count of {n}"),
        Buffer::GradSquares(n) => format!("squares of the gradient of {n}"),
        Buffer::Value(m, n) => format!("{n} of microbatch {m}"),
        Buffer::GradNorm => "norm of the gradients".to_string(),
        Buffer::Scalar(n) => n.clone(),
    }
}
