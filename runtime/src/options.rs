//! The flags of `vlmc run` and `vlmc-run`, and of `vlmc-run bench`.

use crate::optimizer::{Decay, Optimizer};
use crate::weights::Weights;
use anyhow::bail;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Where it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Device {
    /// The host: the artifact's host kernels, and the reference evaluator for the rest.
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
    #[arg(long, default_value_t = Weights::Seed(1), conflicts_with = "resume")]
    pub weights: Weights,
    /// Batch file, folder or glob; one file a step, from the start again after the last
    #[arg(long)]
    pub batch: PathBuf,
    /// Steps to reach
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Where to run
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// Evaluates everything by the reference, also what has a host kernel [default: off]
    #[arg(long)]
    pub reference: bool,
    /// Writes what each step did [default: none]
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// Writes the gradients of the last step, which then does not update [default: none]
    #[arg(long, conflicts_with = "save")]
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
    /// Largest learning rate [default: 3e-4, or that of --resume; so with all that follow]
    #[arg(long, allow_negative_numbers = true, value_parser = not_negative)]
    pub lr: Option<f64>,
    /// Least learning rate [default: 3e-5, or --lr where that is less]
    #[arg(long, allow_negative_numbers = true, value_parser = not_negative)]
    pub min_lr: Option<f64>,
    /// Steps of warm-up [default: 0]
    #[arg(long)]
    pub warmup: Option<u64>,
    /// Steps of the whole training, for the schedule; 0 for --steps [default: 0]
    #[arg(long)]
    pub total_steps: Option<u64>,
    /// Course of the learning rate after the warm-up [default: constant]
    #[arg(long, value_enum)]
    pub lr_decay: Option<Decay>,
    /// Decay of the first moment [default: 0.9]
    #[arg(long, allow_negative_numbers = true, value_parser = below_one)]
    pub beta1: Option<f64>,
    /// Decay of the second moment [default: 0.95]
    #[arg(long, allow_negative_numbers = true, value_parser = below_one)]
    pub beta2: Option<f64>,
    /// Added to the root of the second moment [default: 1e-8]
    #[arg(long, allow_negative_numbers = true, value_parser = positive)]
    pub eps: Option<f64>,
    /// Decoupled weight decay [default: 0.1]
    #[arg(long, allow_negative_numbers = true, value_parser = not_negative)]
    pub weight_decay: Option<f64>,
    /// Decays every parameter, those declared no_decay too [default: off]
    #[arg(long)]
    pub decay_all: bool,
    /// Largest norm of the gradients; 0 for any [default: 1]
    #[arg(long, allow_negative_numbers = true, value_parser = not_negative)]
    pub clip: Option<f64>,
}

/// Where kernels are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BenchDevice {
    /// The first GPU.
    Cuda,
    /// The host, with the kernels compiled for it.
    Cpu,
}

/// Checks each kernel of an artifact against the reference evaluator, then times it.
///
/// Every kernel runs on 307 rows in documents of 1 to 65 rows with padding between them, and on one
/// row; its outputs are compared with its part of the program evaluated in f64. Where all agree it
/// is timed at the artifact's capacities, beside a copy on the device that moves as many bytes.
#[derive(Clone, Debug, Args)]
pub struct BenchOptions {
    /// The artifact's directory
    pub artifact: PathBuf,
    /// Only this kernel, or those of this cluster or label [default: all]
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Where to run
    #[arg(long, value_enum, default_value_t = BenchDevice::Cuda)]
    pub device: BenchDevice,
    /// Writes JSON instead of a table [default: off]
    #[arg(long)]
    pub json: bool,
    /// Rows to time with [default: the artifact's capacity]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub tokens: Option<u64>,
    /// Times with documents of uneven lengths instead of one [default: off]
    #[arg(long)]
    pub packed: bool,
}

fn number(text: &str) -> Result<f64, String> {
    let v: f64 = text.parse().map_err(|_| "it must be a number".to_string())?;
    if v.is_finite() { Ok(v) } else { Err("it must be finite".to_string()) }
}

fn not_negative(text: &str) -> Result<f64, String> {
    let v = number(text)?;
    if v >= 0.0 { Ok(v) } else { Err("it must not be below 0".to_string()) }
}

fn positive(text: &str) -> Result<f64, String> {
    let v = number(text)?;
    if v > 0.0 { Ok(v) } else { Err("it must be above 0".to_string()) }
}

fn below_one(text: &str) -> Result<f64, String> {
    let v = number(text)?;
    if (0.0..1.0).contains(&v) { Ok(v) } else { Err("it must be from 0 to below 1".to_string()) }
}

impl RunOptions {
    /// The optimizer that the flags describe; what they leave open is that of `saved`, which a
    /// resumed training goes on with.
    ///
    /// # Errors
    /// When a number makes no sense.
    pub fn optimizer(&self, saved: Option<&Optimizer>) -> anyhow::Result<Optimizer> {
        if let Some(total) = self.total_steps
            && total > 0
            && total < self.steps
        {
            bail!("total-steps is {total}, below steps, which is {}", self.steps);
        }
        let lr = self.lr.or(saved.map(|o| o.lr)).unwrap_or(3e-4);
        // A default that does not fit the given rate is no mistake of the user.
        let min_lr = saved.map_or(3e-5, |o| o.min_lr).min(lr);
        let total = match self.total_steps {
            Some(0) => self.steps,
            Some(total) => total,
            None => saved.map_or(self.steps, |o| o.total),
        };
        let optimizer = Optimizer {
            lr,
            min_lr: self.min_lr.unwrap_or(min_lr),
            warmup: self.warmup.or(saved.map(|o| o.warmup)).unwrap_or(0),
            total,
            decay: self.lr_decay.or(saved.map(|o| o.decay)).unwrap_or(Decay::Constant),
            beta1: self.beta1.or(saved.map(|o| o.beta1)).unwrap_or(0.9),
            beta2: self.beta2.or(saved.map(|o| o.beta2)).unwrap_or(0.95),
            eps: self.eps.or(saved.map(|o| o.eps)).unwrap_or(1e-8),
            weight_decay: self.weight_decay.or(saved.map(|o| o.weight_decay)).unwrap_or(0.1),
            decay_all: self.decay_all || saved.is_some_and(|o| o.decay_all),
            clip: self.clip.or(saved.map(|o| o.clip)).unwrap_or(1.0),
        };
        optimizer.check()?;
        Ok(optimizer)
    }
}
