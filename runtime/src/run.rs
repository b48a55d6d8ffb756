//! A training from its first step to its last.

use crate::checkpoint::{self, State, to_f32};
use crate::clusters::Clusters;
use crate::executor::{Executor, StepResult};
use crate::options::{Device, RunOptions};
use crate::output::{about, say, try_file, try_folder, write_text};
use crate::report::{RankReport, Report, SampleReport, StepReport};
use crate::weights;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use vlmc_artifact::{Artifact, Buffer, Mesh};
use vlmc_data::batch::{Batch, BatchFiles};
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::tensor::HostTensor;

/// Why a run stopped, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub error: anyhow::Error,
    /// What helps.
    pub help: String,
}

/// Runs what the options say. Progress goes to standard error.
///
/// # Errors
/// When a file is missing or does not fit; what was saved before stays.
pub fn run(options: &RunOptions) -> Result<Report> {
    run_or_tell(options).map_err(|f| f.error)
}

/// As [`run`], with a remedy.
///
/// # Errors
/// As [`run`].
pub fn run_or_tell(options: &RunOptions) -> Result<Report, Failure> {
    // Each part of the run says beforehand what helps should it fail.
    let mut help = String::new();
    follow(options, &mut help).map_err(|error| Failure { error, help })
}

const HELP_FLAGS: &str = "see `--help` for what each flag takes";
const HELP_DEVICE: &str = "run with `--device cpu`";
const HELP_ARTIFACT: &str = "make the artifact with `vlmc compile MODEL -o DIR`, and name DIR here";
const HELP_KERNELS: &str =
    "compile for the host again with `--target host`, or evaluate without kernels: `--reference`";
const HELP_BATCH: &str =
    "make batches with `vlmc pack`, of sizes that fit the capacities of `vlmc compile`";
const HELP_OUTPUT: &str = "name a place that can be written to";
const HELP_SAVE: &str = "go on from it with `--resume`, or name another folder with `--save`";
const HELP_RESUME: &str =
    "`--resume` takes a folder that `--save` wrote with this artifact, or one step of it";
const HELP_WEIGHTS: &str = "compare with `vlmc import`, or start with `--weights init:SEED`";
const HELP_STEP: &str =
    "check the batch and the learning rate; with `--save` and `--save-every` less would be lost";

fn follow(options: &RunOptions, help: &mut String) -> Result<Report> {
    let mut tell = |text: &str| *help = text.to_string();
    tell(HELP_DEVICE);
    if options.device == Device::Cuda {
        bail!("this build of the executor has no CUDA device");
    }
    tell(HELP_FLAGS);
    if options.resume.is_none() {
        options.optimizer(None)?;
    }
    tell(HELP_ARTIFACT);
    let artifact = Artifact::read(&options.artifact)?;
    let manifest = artifact.manifest.clone();
    let mut executor: Executor<f32> = Executor::new(artifact, options.poison)
        .with_context(|| options.artifact.display().to_string())?;
    if !options.reference {
        tell(HELP_KERNELS);
        let kernels = Clusters::open(&options.artifact)?;
        if let Some((with, all)) = kernels.map(|k| executor.use_kernels(k)) {
            say(&format!("{with} of {all} clusters by host kernels"));
        }
    }
    tell(HELP_BATCH);
    let files = BatchFiles::find(&options.batch).map_err(|e| about(&options.batch, e))?;
    tell(HELP_OUTPUT);
    try_outputs(options)?;
    tell(HELP_SAVE);
    let held = options.save.as_deref().map(checkpoint::checkpoints).transpose()?;
    let newest = held.as_ref().and_then(|all| all.last());
    if let (None, Some((step, path))) = (&options.resume, newest) {
        bail!(
            "{} holds a checkpoint of step {step}, and this is a new training",
            path.parent().unwrap_or(path).display()
        );
    }
    let mut first = 0;
    let optimizer = match &options.resume {
        Some(path) => {
            tell(HELP_RESUME);
            let state = checkpoint::load(path, &mut executor)?;
            first = state.step;
            if first >= options.steps {
                if options.grads.is_some() {
                    bail!(
                        "the checkpoint is at step {first} of {}: no step is left to give gradients",
                        options.steps
                    );
                }
                say(&format!("step {first} of {} is done, nothing is left to do", options.steps));
                return Ok(Report::default());
            }
            tell(HELP_FLAGS);
            // The schedule goes on as it was begun, but for what the user asks for.
            let optimizer = options.optimizer(Some(&state.optimizer))?;
            say(&format!("resumed after step {first} of {}", options.steps));
            if optimizer != state.optimizer {
                say("note: flags replace what the checkpoint says of the optimizer");
            }
            if let Some((step, path)) = newest.filter(|(step, _)| *step > first) {
                let folder = path.parent().unwrap_or(path).display();
                say(&format!(
                    "note: {folder} holds step {step} already, which counts as newest until this \
                     training is past it"
                ));
            }
            optimizer
        }
        None => {
            tell(HELP_WEIGHTS);
            weights::load(&options.weights, &manifest.parameters, &mut |p, t| {
                executor.set_parameter(p, t)
            })?;
            tell(HELP_FLAGS);
            options.optimizer(None)?
        }
    };
    let mut report = Report::default();
    let mesh = executor.artifact().schedule.mesh;
    let started = Instant::now();
    let mut saved: Option<PathBuf> = None;
    for step in first..options.steps {
        let last = step + 1 == options.steps;
        let place = || format!("step {} of {}", step + 1, options.steps);
        let going_on = |otherwise: &str| match &saved {
            Some(path) => format!(
                "{otherwise}; {} is whole, and `--resume` goes on from there",
                path.display()
            ),
            None => otherwise.to_string(),
        };
        tell(&going_on(HELP_BATCH));
        let path = files.of_step(usize::try_from(step)?);
        let batches = read_batches(path).with_context(place)?;
        let begun = Instant::now();
        let update = !(last && options.grads.is_some());
        let scalars = optimizer.scalars(step);
        let expected = executor.artifact().schedule.microbatches * mesh.dp;
        tell(&going_on(if batches.len() == expected { HELP_STEP } else { HELP_BATCH }));
        let result = executor
            .step(&batches, &scalars, update)
            .and_then(|result| executor.check_finite(&result).map(|()| result))
            .with_context(|| format!("{}, {}", place(), path.display()))?;
        let seconds = begun.elapsed().as_secs_f64();
        show(step, options.steps, &result, optimizer.rate(step), seconds);
        report.steps.push(step_report(step, &result, optimizer.rate(step), seconds, mesh));
        report.samples = samples(&executor)?;
        tell(&going_on(HELP_OUTPUT));
        let state = State {
            step: step + 1,
            optimizer,
            spec_hash: manifest.spec_hash.clone(),
            model: format!("{} {}", manifest.model, manifest.variant),
        };
        let due = options.save_every > 0 && (step + 1) % options.save_every == 0;
        if let Some(directory) = &options.save
            && (due || last)
            && update
        {
            let done = checkpoint::save(directory, &executor, &state, options.keep);
            saved = Some(done.with_context(place)?);
        }
        if let Some(path) = &options.report {
            write_report(path, &report).with_context(place)?;
        }
    }
    if let Some(path) = &options.grads {
        write_gradients(path, &executor)?;
    }
    say(&format!("done in {:.1} s", started.elapsed().as_secs_f64()));
    Ok(report)
}

/// Nobody should train for nothing.
fn try_outputs(options: &RunOptions) -> Result<()> {
    if let Some(path) = &options.report {
        try_file("--report", path)?;
    }
    if let Some(path) = &options.grads {
        try_file("--grads", path)?;
    }
    options.save.as_ref().map_or(Ok(()), |path| try_folder("--save", path))
}

fn read_batches(path: &Path) -> Result<Vec<Batch>> {
    let file = TensorFile::open(path).map_err(|e| about(path, e))?;
    let count = Batch::count(&file).map_err(|e| about(path, e))?;
    (0..count).map(|i| Batch::read(&file, i).map_err(|e| about(path, e))).collect()
}

fn list(r: &StepResult) -> String {
    let parts: Vec<String> = r.losses.iter().map(|(n, v)| format!("{n} {v:.6}")).collect();
    parts.join("  ")
}

fn show(step: u64, steps: u64, r: &StepResult, lr: f64, seconds: f64) {
    let mut err = std::io::stderr().lock();
    let line = format!(
        "step {:>6}/{steps}  loss {:.6}  {}  norm {:.4}  lr {lr:.2e}  {:.0} tokens/s",
        step + 1,
        r.loss,
        list(r),
        r.grad_norm,
        r.tokens as f64 / seconds.max(1e-9)
    );
    // On a terminal the line is renewed, in a file each step has its own. A closed stream is no
    // reason to stop a training.
    let _ = if err.is_terminal() && step + 1 < steps {
        write!(err, "\r{line}\x1b[K")
    } else {
        writeln!(err, "{}{line}", if err.is_terminal() { "\r" } else { "" })
    };
}

fn step_report(step: u64, r: &StepResult, lr: f64, seconds: f64, mesh: Mesh) -> StepReport {
    StepReport {
        step,
        loss: r.loss,
        losses: r.losses.iter().map(|(n, v)| (format!("{n}_loss"), *v)).collect(),
        tokens: r.tokens,
        grad_norm: r.grad_norm,
        lr,
        ms: seconds * 1e3,
        per_rank: ranks(mesh),
    }
}

fn ranks(mesh: Mesh) -> Vec<RankReport> {
    let places = (0..mesh.size().unwrap_or(0)).map(|r| mesh.place(r));
    places.map(|p| RankReport { pp: p.pp, cp: p.cp, dp: p.dp, ..RankReport::default() }).collect()
}

/// What each chunk read; they must all have read the same.
fn samples(executor: &Executor<f32>) -> Result<Vec<SampleReport>> {
    let of = |(microbatch, chunks): (usize, Vec<String>)| {
        let hash = chunks.first().cloned().unwrap_or_default();
        if let Some(g) = chunks.iter().position(|h| *h != hash) {
            bail!("chunk {g} read another microbatch {microbatch} than chunk 0");
        }
        Ok(SampleReport { microbatch, hash, chunks })
    };
    executor.samples().into_iter().enumerate().map(of).collect()
}

fn write_report(path: &Path, report: &Report) -> Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    write_text(path, &(text + "\n"))
}

fn write_gradients(path: &Path, executor: &Executor<f32>) -> Result<()> {
    let mut all: Vec<(String, HostTensor)> = vec![];
    for p in &executor.artifact().manifest.parameters {
        if let Some(t) = executor.buffer(&Buffer::Grad(p.name.clone())) {
            all.push((format!("grad.param.{}", p.name), to_f32(t)?));
        }
    }
    let list = all.iter().map(|(n, t)| (n.as_str(), t));
    write_file(path, list, &Default::default()).map_err(|e| about(path, e))
}
