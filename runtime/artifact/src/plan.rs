//! `plan.json`: the fields of the contract.

use serde::{Deserialize, Serialize};

/// Where everything goes, and what it costs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The model.
    pub model: String,
    /// Its variant.
    pub variant: String,
    /// Sizes of the mesh.
    pub layout: Layout,
    /// Their product.
    pub world_size: usize,
    /// What each (pipeline rank, virtual stage) holds.
    pub chunks: Vec<Chunk>,
    /// The schedule in short.
    pub schedule: SchedulePlan,
    /// Peak memory per rank.
    pub memory: Vec<MemoryPeak>,
    /// Bytes that a forward keeps for its backward, by chunk; empty where they are not counted.
    #[serde(default)]
    pub saved: Vec<u64>,
    /// Start and end of each slot of `schedule.ranks` in milliseconds, by the cost model; empty
    /// where there is none.
    #[serde(default)]
    pub timeline: Vec<Vec<(f64, f64)>>,
    /// Recompute candidates and choices.
    pub recompute: Vec<Recompute>,
    /// Fusions that fired.
    pub fusions: Vec<Fusion>,
    /// Fusions that did not, and why.
    pub near_misses: Vec<NearMiss>,
    /// Exchanges.
    pub communication: Vec<Communication>,
    /// Warnings of the compilation.
    pub diagnostics: Vec<serde_json::Value>,
}

/// Sizes of the mesh.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// Pipeline ranks.
    pub pp: usize,
    /// Chunks a pipeline rank.
    pub vpp: usize,
    /// Context-parallel ranks.
    pub cp: usize,
    /// Data-parallel ranks.
    pub dp: usize,
    /// Expert-parallel ranks, within dp.
    pub ep: usize,
    /// Tensor-parallel ranks.
    pub tp: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { pp: 1, vpp: 1, cp: 1, dp: 1, ep: 1, tp: 1 }
    }
}

/// What a (pipeline rank, virtual stage) holds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Chunk {
    /// Pipeline rank.
    pub pp: usize,
    /// Virtual stage.
    pub vp: usize,
    /// Parts in order.
    pub contents: Vec<String>,
    /// Inputs that it takes from the batch.
    pub inputs: Vec<String>,
    /// Parameters.
    pub params: u64,
    /// Floating-point operations of the forward of one microbatch.
    pub flops_fwd: u64,
    /// Of the backward.
    pub flops_bwd: u64,
    /// Milliseconds by the cost model; missing where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms_fwd: Option<f64>,
    /// Of the backward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms_bwd: Option<f64>,
}

/// The schedule in short.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SchedulePlan {
    /// Its kind.
    pub kind: String,
    /// Microbatches of a step, per data-parallel rank.
    pub microbatches: usize,
    /// Microbatch group of interleaved schedules.
    pub group: usize,
    /// Warm-up forwards per pipeline rank.
    pub warmup: Vec<usize>,
    /// Idle time of all ranks over their busy time, by the cost model.
    pub bubble_ratio: f64,
    /// Most microbatches in flight per pipeline rank.
    pub in_flight: Vec<usize>,
    /// `F`, `B` or `W`, microbatch, local chunk: per pipeline rank in order.
    pub ranks: Vec<Vec<String>>,
}

/// Peak memory of a rank.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryPeak {
    /// Pipeline rank.
    pub pp: usize,
    /// Context-parallel rank.
    pub cp: usize,
    /// Bytes at the peak.
    pub peak_bytes: u64,
    /// Of them parameters.
    pub params: u64,
    /// Gradients.
    pub grads: u64,
    /// Optimizer state.
    pub optimizer: u64,
    /// Activations.
    pub activations: u64,
    /// Workspace.
    pub workspace: u64,
    /// The step at which it is reached.
    pub at_step: String,
}

/// A recompute candidate.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Recompute {
    pub region: String,
    pub function: String,
    pub pp: usize,
    pub freed_bytes: u64,
    pub extra_flops: u64,
    pub chosen: bool,
    pub reason: String,
}

/// A fusion that fired.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Fusion {
    pub rule: String,
    pub function: String,
    pub direction: String,
    pub count: usize,
    pub kernel: String,
    pub launches: usize,
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// A fusion that did not fire.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct NearMiss {
    pub rule: String,
    pub function: String,
    pub at: String,
    pub reason: String,
}

/// An exchange.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Communication {
    pub kind: String,
    pub group: String,
    pub bytes_per_step: u64,
    pub count: usize,
    #[serde(rename = "where")]
    pub place: String,
    pub alternatives: Vec<Alternative>,
}

/// Another way to exchange the same.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Alternative {
    pub kind: String,
    pub bytes_per_step: u64,
}
