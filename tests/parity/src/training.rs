//! Whole models through `compile` and the executor: loss, gradients, five steps of AdamW.

use crate::case::Case;
use crate::compare::{Row, floats};
use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;
use vlmc::compile::{Capacity, CompileError, CompileRequest, MemoryRequest, Spread, compile};
use vlmc::eval::Precision;
use vlmc::kernels::host;
use vlmc_artifact::Buffer;
use vlmc_data::batch::Batch;
use vlmc_data::pack::alignment;
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_data::vision;
use vlmc_frontend::elab::{Library, Setting};
use vlmc_ir::eval::Real;
use vlmc_passes::recompute::Mode;
use vlmc_runtime::executor::Executor;
use vlmc_runtime::optimizer::{Decay, Optimizer};

/// How a training runs.
#[derive(Clone, Copy, Debug)]
pub struct How<'h> {
    /// What numbers are.
    pub precision: Precision,
    /// In clusters, by kernels for this machine.
    pub fused: bool,
    /// Over which ranks.
    pub spread: &'h Spread,
    /// What is recomputed.
    pub recompute: &'h Mode,
}

/// Compiles the model of a case for its batch, trains it and compares.
///
/// # Errors
/// When it does not compile or run.
pub fn judge(
    case: &Case,
    lib: &Library,
    settings: Vec<Setting>,
    batch: &Batch,
    how: &How<'_>,
) -> Result<Vec<Row>> {
    let How { precision, fused, spread, recompute } = *how;
    let mut batch = batch.clone();
    batch.align(alignment(spread.cp))?;
    let grids = batch.grids();
    let request = CompileRequest {
        variant: None,
        settings,
        dtype: precision.model_dtype(),
        capacity: Capacity {
            tokens: batch.tokens(),
            docs: batch.layout.documents().len(),
            patches: vision::patch_count(&grids)?,
            frames: grids.iter().map(|g| g.t).sum(),
        },
        spread: spread.clone(),
        fused,
        plan: None,
        fusing: Default::default(),
        memory: MemoryRequest { recompute: recompute.clone(), limit: None },
        flags: Default::default(),
    };
    let compiled = compile(lib, &request).map_err(|e| match e {
        CompileError::Spec(d) => anyhow!("{}: {} errors in the spec", case.name, d.len()),
        CompileError::Other(e) => e,
    })?;
    if precision == Precision::F64 {
        let executor = Executor::<f64>::new(compiled.artifact, false)?;
        return train(case, executor, &batch, precision);
    }
    let mut executor = Executor::<f32>::new(compiled.artifact, false)?;
    if fused {
        let (clusters, refused) = host(&compiled.parts)?;
        for (function, refusal) in &refused {
            println!("{:32} @{function} has no kernel: {refusal}", case.name);
        }
        executor.use_kernels(clusters);
    }
    train(case, executor, &batch, precision)
}

fn train<R: Real>(
    case: &Case,
    mut executor: Executor<R>,
    batch: &Batch,
    precision: Precision,
) -> Result<Vec<Row>> {
    let adamw = case.json.get("adamw").ok_or_else(|| anyhow!("{}: no adamw", case.name))?;
    let optimizer = optimizer(adamw)?;
    let parameters = executor.artifact().manifest.parameters.clone();
    for p in &parameters {
        executor.set_parameter(p, &case.tensor(&format!("param.{}", p.name))?)?;
    }
    // Every microbatch is the whole batch: loss and gradients are those of one.
    let schedule = &executor.artifact().schedule;
    let batches = vec![batch.clone(); schedule.microbatches * schedule.mesh.dp];
    let mut rows = vec![];
    let first = executor.step(&batches, &optimizer.scalars(0), false)?;
    let loss = HostTensor::new(vec![], HostData::F64(vec![first.loss]))?;
    let mut row = floats(case, "out.loss", &loss, precision, None)?;
    row.name = "executed out.loss".to_string();
    rows.push(row);
    // Single gradients of whole models are not judged in bf16 (README of the reference cases).
    if precision != Precision::Bf16 {
        for p in &parameters {
            let full = format!("grad.param.{}", p.name);
            let have = match executor.buffer(&Buffer::Grad(p.name.clone())) {
                Some(t) => HostTensor::new(t.dims.clone(), HostData::F64(t.to_f64()))?,
                None => {
                    let n = p.shape.iter().product();
                    HostTensor::new(p.shape.clone(), HostData::F64(vec![0.0; n]))?
                }
            };
            rows.push(floats(case, &full, &have, precision, None)?);
        }
        // A parameter that this program has no use for has a zero gradient.
        for n in case.names("grad.param.") {
            if !parameters.iter().any(|p| p.name == n) {
                let full = format!("grad.param.{n}");
                let largest =
                    case.tensor(&full)?.to_f64().into_iter().fold(0.0, |m: f64, v| m.max(v.abs()));
                rows.push(Row { name: full, error: largest, tolerance: 0.0 });
            }
        }
    }
    for p in &parameters {
        executor.drop_buffer(&Buffer::Grad(p.name.clone()));
    }
    rows.extend(steps(case, adamw, &mut executor, &batches, &optimizer, precision)?);
    if precision != Precision::Bf16 {
        let norms = adamw.get("param_l2_after_5_steps_float64").and_then(Json::as_object);
        for (name, want) in norms.into_iter().flatten() {
            // Left alone when the program has no use for it.
            let have = match executor.buffer(&Buffer::Master(name.clone())) {
                Some(t) => t.to_f64(),
                None => case.tensor(&format!("param.{name}"))?.to_f64(),
            };
            let have = have.iter().map(|v| v * v).sum::<f64>().sqrt();
            let want = want.as_f64().unwrap_or(f64::NAN);
            let error = (have - want).abs() / want.max(1e-30);
            rows.push(Row {
                name: format!("norm after 5 steps of {name}"),
                error,
                tolerance: 1e-4,
            });
        }
    }
    Ok(rows)
}

/// The loss before each of five updates and after the last, against float64.
fn steps<R: Real>(
    case: &Case,
    adamw: &Json,
    executor: &mut Executor<R>,
    batches: &[Batch],
    optimizer: &Optimizer,
    precision: Precision,
) -> Result<Vec<Row>> {
    let list = |key: &str| -> Result<Vec<f64>> {
        let v = adamw.get(key).and_then(Json::as_array);
        let v = v.ok_or_else(|| anyhow!("{}: no {key}", case.name))?;
        Ok(v.iter().filter_map(Json::as_f64).collect())
    };
    let want = list("losses_float64")?;
    let bf16 = list("losses_bfloat16")?;
    let mut rows = vec![];
    for (i, w) in want.iter().enumerate() {
        let last = i + 1 == want.len();
        let result = executor.step(batches, &optimizer.scalars(i as u64), !last)?;
        let tolerance = match precision {
            // As for tensors: twice the error of the public implementation, or one percent.
            Precision::Bf16 => (2.0 * (bf16[i] - w).abs() / w.abs()).max(1e-2),
            _ => 1e-4,
        };
        rows.push(Row {
            name: format!("loss after {i} steps"),
            error: (result.loss - w).abs() / w.abs(),
            tolerance,
        });
    }
    Ok(rows)
}

fn optimizer(json: &Json) -> Result<Optimizer> {
    let number =
        |key: &str| json.get(key).and_then(Json::as_f64).ok_or_else(|| anyhow!("adamw: no {key}"));
    let betas: Vec<f64> = json
        .get("betas")
        .and_then(Json::as_array)
        .map(|b| b.iter().filter_map(Json::as_f64).collect())
        .unwrap_or_default();
    let [beta1, beta2] = betas[..] else { bail!("adamw: no betas") };
    let lr = number("lr")?;
    Ok(Optimizer {
        lr,
        min_lr: lr,
        warmup: 0,
        total: 5,
        decay: Decay::Constant,
        beta1,
        beta2,
        eps: number("eps")?,
        weight_decay: number("weight_decay")?,
        decay_all: true,
        clip: 0.0,
    })
}
