//! The flags of `vlmc run` and `vlmc-run`.

use crate::optimizer::{Decay, Optimizer};
use crate::weights::Weights;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Where it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Device {
    /// The host, with the reference evaluator.
    Cpu,
    /// GPUs.
    Cuda,
}

/// Runs a compiled artifact.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// The artifact's directory
    pub artifact: PathBuf,
    /// Parameters: a safetensors file, a folder of them, or init:SEED
    #[arg(long, default_value_t = Weights::Seed(1))]
    pub weights: Weights,
    /// Batch file, folder or glob; one file a step, from the start again after the last
    #[arg(long)]
    pub batch: PathBuf,
    /// Steps to reach
    #[arg(long, default_value_t = 1)]
    pub steps: u64,
    /// Where to run
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// Writes what each step did [default: none]
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// Writes the gradients of the last step, which then does not update [default: none]
    #[arg(long)]
    pub grads: Option<PathBuf>,
    /// Saves checkpoints here [default: none]
    #[arg(long)]
    pub save: Option<PathBuf>,
    /// Saves every so many steps; 0 for the end only
    #[arg(long, default_value_t = 0)]
    pub save_every: u64,
    /// Keeps so many of the newest checkpoints; 0 for all
    #[arg(long, default_value_t = 2)]
    pub keep: usize,
    /// Continues from the newest checkpoint here [default: none]
    #[arg(long)]
    pub resume: Option<PathBuf>,
    /// Fills padding rows and rows that are not found with NaN [default: off]
    #[arg(long)]
    pub poison: bool,
    /// Largest learning rate
    #[arg(long, default_value_t = 3e-4)]
    pub lr: f64,
    /// Least learning rate
    #[arg(long, default_value_t = 3e-5)]
    pub min_lr: f64,
    /// Steps of warm-up
    #[arg(long, default_value_t = 0)]
    pub warmup: u64,
    /// Steps of the whole training, for the schedule; 0 for --steps
    #[arg(long, default_value_t = 0)]
    pub total_steps: u64,
    /// Course of the learning rate after the warm-up
    #[arg(long, value_enum, default_value_t = Decay::Constant)]
    pub lr_decay: Decay,
    /// Decay of the first moment
    #[arg(long, default_value_t = 0.9)]
    pub beta1: f64,
    /// Decay of the second moment
    #[arg(long, default_value_t = 0.95)]
    pub beta2: f64,
    /// Added to the root of the second moment
    #[arg(long, default_value_t = 1e-8)]
    pub eps: f64,
    /// Decoupled weight decay
    #[arg(long, default_value_t = 0.1)]
    pub weight_decay: f64,
    /// Decays every parameter, those declared no_decay too [default: off]
    #[arg(long)]
    pub decay_all: bool,
    /// Largest norm of the gradients; 0 for any
    #[arg(long, default_value_t = 1.0)]
    pub clip: f64,
}

impl RunOptions {
    /// The optimizer that the flags describe.
    pub fn optimizer(&self) -> Optimizer {
        Optimizer {
            lr: self.lr,
            min_lr: self.min_lr,
            warmup: self.warmup,
            total: if self.total_steps > 0 { self.total_steps } else { self.steps },
            decay: self.lr_decay,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            weight_decay: self.weight_decay,
            decay_all: self.decay_all,
            clip: self.clip,
        }
    }
}
