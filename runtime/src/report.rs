//! `report.json`: what a run did, step by step.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// The whole report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Steps in order.
    pub steps: Vec<StepReport>,
    /// Which sample each chunk saw, by microbatch of the last step.
    pub samples: Vec<SampleReport>,
}

/// One step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StepReport {
    /// From 0.
    pub step: u64,
    /// The training loss.
    pub loss: f64,
    /// `lm_loss` and the like.
    #[serde(flatten)]
    pub losses: IndexMap<String, f64>,
    /// Valid tokens.
    pub tokens: usize,
    /// Norm of the gradients before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Milliseconds.
    pub ms: f64,
    /// Memory per rank.
    pub per_rank: Vec<RankReport>,
}

/// One rank.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RankReport {
    /// Pipeline rank.
    pub pp: usize,
    /// Context-parallel rank.
    pub cp: usize,
    /// Data-parallel rank.
    pub dp: usize,
    /// Most bytes alive; missing where the device does not plan its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
}

/// A microbatch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SampleReport {
    /// Which.
    pub microbatch: usize,
    /// Hash of its ids and boundaries.
    pub hash: String,
    /// The hash that each chunk saw.
    pub chunks: Vec<String>,
}
