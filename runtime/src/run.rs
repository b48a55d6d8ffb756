//! A training from its first step to its last.

use crate::checkpoint::{self, State, to_f32};
use crate::executor::{Executor, StepResult};
use crate::options::{Device, RunOptions};
use crate::report::{RankReport, Report, SampleReport, StepReport};
use crate::weights;
use anyhow::{Context, Result, bail};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Instant;
use vlmc_artifact::{Artifact, Buffer};
use vlmc_data::batch::{Batch, BatchFiles};
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::tensor::HostTensor;

/// Runs what the options say. Progress goes to standard error.
///
/// # Errors
/// When a file is missing or does not fit; what was saved before stays.
pub fn run(options: &RunOptions) -> Result<Report> {
    if options.device == Device::Cuda {
        bail!("this build of the executor has no CUDA device; run with --device cpu");
    }
    let artifact = Artifact::read(&options.artifact)?;
    let manifest = artifact.manifest.clone();
    let files = BatchFiles::find(&options.batch)?;
    let mut executor: Executor<f32> = Executor::new(artifact, options.poison)?;
    let mut optimizer = options.optimizer();
    let mut first = 0;
    match &options.resume {
        Some(path) => {
            let state = checkpoint::load(path, &mut executor)?;
            if state.spec_hash != manifest.spec_hash {
                bail!(
                    "{}: was made from another spec ({} {})",
                    path.display(),
                    state.model,
                    state.spec_hash
                );
            }
            first = state.step;
            // The schedule goes on as it was begun.
            optimizer = state.optimizer;
            eprintln!("resumed at step {first}");
        }
        None => {
            weights::load(&options.weights, &manifest.parameters, &mut |p, t| {
                executor.set_parameter(p, t)
            })?;
        }
    }
    let mut report = Report::default();
    let started = Instant::now();
    for step in first..options.steps {
        let last = step + 1 == options.steps;
        let path = files.of_step(usize::try_from(step)?);
        let batches = read_batches(path)?;
        let begun = Instant::now();
        let update = !(last && options.grads.is_some());
        let scalars = optimizer.scalars(step);
        let result = executor
            .step(&batches, &scalars, update)
            .with_context(|| format!("step {step}, {}", path.display()))?;
        let seconds = begun.elapsed().as_secs_f64();
        if !result.loss.is_finite() {
            bail!("step {step}: the loss is {}; {}", result.loss, list(&result));
        }
        show(step, options.steps, &result, optimizer.rate(step), seconds);
        report.steps.push(step_report(step, &result, optimizer.rate(step), seconds));
        report.samples = samples(&batches);
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
            checkpoint::save(directory, &executor, &state, options.keep)?;
        }
        if let Some(path) = &options.report {
            write_report(path, &report)?;
        }
    }
    if let Some(path) = &options.grads {
        write_gradients(path, &executor)?;
    }
    eprintln!("done in {:.1} s", started.elapsed().as_secs_f64());
    Ok(report)
}

fn read_batches(path: &Path) -> Result<Vec<Batch>> {
    let file = TensorFile::open(path)?;
    let count = Batch::count(&file)?;
    Ok((0..count).map(|i| Batch::read(&file, i)).collect::<Result<_, _>>()?)
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

fn step_report(step: u64, r: &StepResult, lr: f64, seconds: f64) -> StepReport {
    StepReport {
        step,
        loss: r.loss,
        losses: r.losses.iter().map(|(n, v)| (format!("{n}_loss"), *v)).collect(),
        tokens: r.tokens,
        grad_norm: r.grad_norm,
        lr,
        ms: seconds * 1e3,
        per_rank: vec![RankReport::default()],
    }
}

fn samples(batches: &[Batch]) -> Vec<SampleReport> {
    let one = |(microbatch, b): (usize, &Batch)| {
        let mut h = DefaultHasher::new();
        b.input_ids.hash(&mut h);
        b.layout.cu_seqlens_padded().hash(&mut h);
        let hash = format!("{:016x}", h.finish());
        SampleReport { microbatch, chunks: vec![hash.clone()], hash }
    };
    batches.iter().enumerate().map(one).collect()
}

fn write_report(path: &Path, report: &Report) -> Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    std::fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

fn write_gradients(path: &Path, executor: &Executor<f32>) -> Result<()> {
    let mut all: Vec<(String, HostTensor)> = vec![];
    for p in &executor.artifact().manifest.parameters {
        if let Some(t) = executor.buffer(&Buffer::Grad(p.name.clone())) {
            all.push((format!("grad.param.{}", p.name), to_f32(t)?));
        }
    }
    let list = all.iter().map(|(n, t)| (n.as_str(), t));
    Ok(write_file(path, list, &Default::default())?)
}
