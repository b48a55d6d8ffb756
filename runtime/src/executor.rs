//! Follows the schedule of one rank. The reference evaluator is its device, beside the host kernels
//! of the artifact for the clusters that have one.

use crate::clusters::Clusters;
use anyhow::{Context, Result, anyhow, bail};
use indexmap::IndexMap;
use std::collections::HashMap;
use vlmc_artifact::{Artifact, Buffer, Parameter, Step};
use vlmc_data::batch::Batch;
use vlmc_data::host_fn::{self, HostFunction};
use vlmc_data::tensor::HostTensor;
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::{EvalError, Evaluator, Real, Sizes, Tensor};
use vlmc_ir::graph::{Function, HostCall, Param, Program};
use vlmc_ir::text::parse;
use vlmc_ir::ty::{DType, Ty};

/// What a step gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StepResult {
    /// The training loss.
    pub loss: f64,
    /// Each loss: its sum over its count, over all microbatches.
    pub losses: IndexMap<String, f64>,
    /// Norm of the gradients before clipping.
    pub grad_norm: f64,
    /// Valid tokens.
    pub tokens: usize,
}

/// A rank.
pub struct Executor<R> {
    artifact: Artifact,
    programs: HashMap<String, Program>,
    buffers: HashMap<Buffer, Tensor<R>>,
    sizes: Sizes,
    /// NaN in padding rows and out-of-range lookups, to prove that nothing reads them.
    poison: bool,
    /// The clusters' host kernels.
    kernels: Option<Clusters>,
}

impl Executor<f32> {
    /// Runs the clusters of the step through these kernels from now on. Returns how many of them have
    /// one, and how many there are; the bodies of the others are evaluated.
    pub fn use_kernels(&mut self, kernels: Clusters) -> (usize, usize) {
        let count = self.programs.get(STEP).map_or((0, 0), |p| kernels.count(p));
        self.kernels = Some(kernels);
        count
    }
}

impl<R: Real> Executor<R> {
    /// Prepares an artifact's programs.
    ///
    /// # Errors
    /// When a program does not parse.
    pub fn new(artifact: Artifact, poison: bool) -> Result<Self> {
        for p in &artifact.manifest.parameters {
            let elements = p.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
            if elements.is_none_or(|n| n > MOST_ELEMENTS) {
                bail!(
                    "manifest.json: `{}` has the shape {:?}, more than {MOST_ELEMENTS} elements",
                    p.name,
                    p.shape
                );
            }
        }
        let mut programs = HashMap::new();
        for (name, text) in &artifact.programs {
            let p = parse::program(text).map_err(|e| {
                let (line, column) = parse::line_column(text, e.at);
                anyhow!("programs/{name}.vir:{line}:{column}: {e}")
            })?;
            programs.insert(name.clone(), p);
        }
        let mut sizes = Sizes::default();
        for (name, value) in &artifact.manifest.capacities {
            sizes.set(&Symbol::new(name), usize::try_from(*value)?);
        }
        Ok(Executor { artifact, programs, buffers: HashMap::new(), sizes, poison, kernels: None })
    }

    /// The artifact.
    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// Puts a parameter's starting value in place: the master weight, its copy in the model's
    /// dtype, and zero moments.
    ///
    /// # Errors
    /// When it has another shape than the artifact says.
    pub fn set_parameter(&mut self, p: &Parameter, value: &HostTensor) -> Result<()> {
        if value.shape != p.shape {
            bail!("`{}` is {:?}, the artifact needs {:?}", p.name, value.shape, p.shape);
        }
        let master = floats::<R>(DType::F32, value)?;
        let zeros = Tensor::zeros(DType::F32, p.shape.clone())?;
        self.buffers.insert(Buffer::Moment1(p.name.clone()), zeros.clone());
        self.buffers.insert(Buffer::Moment2(p.name.clone()), zeros);
        self.buffers.insert(Buffer::Master(p.name.clone()), master);
        self.publish(&p.name)
    }

    /// A buffer's value.
    pub fn buffer(&self, b: &Buffer) -> Option<&Tensor<R>> {
        self.buffers.get(b)
    }

    /// Forgets a buffer's value.
    pub fn drop_buffer(&mut self, b: &Buffer) {
        self.buffers.remove(b);
    }

    /// Replaces a buffer's value, as a resumed training does.
    ///
    /// # Errors
    /// When it cannot be one.
    pub fn set_buffer(&mut self, b: Buffer, value: &HostTensor) -> Result<()> {
        let t = floats::<R>(DType::F32, value)?;
        let publish = match &b {
            Buffer::Master(name) => Some(name.clone()),
            _ => None,
        };
        self.buffers.insert(b, t);
        publish.map_or(Ok(()), |name| self.publish(&name))
    }

    /// Makes a master's copy in the model's dtype.
    fn publish(&mut self, name: &str) -> Result<()> {
        let p = self.artifact.manifest.parameters.iter().find(|p| p.name == name);
        let p = p.ok_or_else(|| anyhow!("there is no parameter `{name}`"))?;
        let dtype = DType::from_name(&p.dtype).ok_or_else(|| anyhow!("dtype `{}`", p.dtype))?;
        let master = self.get(&Buffer::Master(name.to_string()))?;
        // The evaluator rounds what a program reads as bf16.
        let copy = Tensor { dtype, ..master.clone() };
        self.buffers.insert(Buffer::Param(name.to_string()), copy);
        Ok(())
    }

    fn get(&self, b: &Buffer) -> Result<&Tensor<R>> {
        self.buffers.get(b).ok_or_else(|| anyhow!("{b:?} is read before it is made"))
    }

    /// One training step: the microbatches of `batches`, with the optimizer's scalars. With
    /// `update` off it stops before the optimizer, and the gradients stay.
    ///
    /// # Errors
    /// When the batch does not fit the artifact, or a program fails.
    pub fn step(
        &mut self,
        batches: &[Batch],
        scalars: &[(&str, f64)],
        update: bool,
    ) -> Result<StepResult> {
        let schedule = &self.artifact.schedule;
        if batches.len() != schedule.microbatches {
            bail!(
                "the batch has {} microbatches, the artifact is compiled for {}",
                batches.len(),
                schedule.microbatches
            );
        }
        for (name, value) in scalars {
            let t = Tensor::from_f64(vec![], &[*value])?;
            self.buffers.insert(Buffer::Scalar((*name).to_string()), t);
        }
        let steps = schedule.ranks.first().cloned().unwrap_or_default();
        let mut result = StepResult {
            tokens: batches.iter().map(|b| b.layout.valid_tokens()).sum(),
            ..StepResult::default()
        };
        for step in &steps {
            let Step::Run { program, inputs, outputs, .. } = step else {
                self.execute(step, batches)?;
                continue;
            };
            if program != OPTIMIZER {
                self.execute(step, batches)?;
                continue;
            }
            self.sum_losses(&mut result)?;
            if !update {
                // Who asks for gradients alone may want to see those that are not finite.
                result.grad_norm = self.gradient_norm();
                return Ok(result);
            }
            check_loss(&result)?;
            // The new state replaces the old only once the gradients are known to be good.
            let values =
                self.evaluate(program, inputs).with_context(|| format!("program `{program}`"))?;
            let norm = outputs.iter().zip(&values).find(|(b, _)| **b == Buffer::GradNorm);
            result.grad_norm = norm.map_or_else(|| self.gradient_norm(), |(_, t)| scalar(t));
            self.check_norm(result.grad_norm)?;
            self.keep(values, outputs).with_context(|| format!("program `{program}`"))?;
        }
        Ok(result)
    }

    /// Whether the loss and the gradients of a step without an update are finite.
    ///
    /// # Errors
    /// Names the loss, or the first gradient that is not.
    pub fn check_finite(&self, result: &StepResult) -> Result<()> {
        check_loss(result)?;
        self.check_norm(result.grad_norm)
    }

    /// The norm of all gradients, where no program tells it.
    fn gradient_norm(&self) -> f64 {
        let parameters = self.artifact.manifest.parameters.iter();
        let all = parameters.filter_map(|p| self.buffers.get(&Buffer::Grad(p.name.clone())));
        all.flat_map(Tensor::to_f64).map(|v| v * v).sum::<f64>().sqrt()
    }

    /// Names the first gradient that is not finite, when the norm is not.
    fn check_norm(&self, norm: f64) -> Result<()> {
        if norm.is_finite() {
            return Ok(());
        }
        for p in &self.artifact.manifest.parameters {
            let Some(t) = self.buffers.get(&Buffer::Grad(p.name.clone())) else { continue };
            let values = t.to_f64();
            if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                bail!(
                    "the gradient of `{}` is {} at element {at}, the norm {norm}; nothing is updated",
                    p.name,
                    values[at]
                );
            }
        }
        bail!("the norm of the gradients is {norm}, though each is finite; nothing is updated")
    }

    fn execute(&mut self, step: &Step, batches: &[Batch]) -> Result<()> {
        match step {
            Step::Load { microbatch } => {
                let batch = batches.get(*microbatch).ok_or_else(|| anyhow!("no microbatch"))?;
                self.load(*microbatch, batch).with_context(|| format!("microbatch {microbatch}"))
            }
            Step::Run { program, inputs, outputs, .. } => self
                .evaluate(program, inputs)
                .and_then(|values| self.keep(values, outputs))
                .with_context(|| format!("program `{program}`")),
            Step::Totals => self.totals(),
            Step::Accumulate { params } => params.iter().try_for_each(|p| self.accumulate(p)),
            Step::Publish { params } => params.iter().try_for_each(|p| self.publish(p)),
            Step::Free { buffers } => {
                buffers.iter().for_each(|b| drop(self.buffers.remove(b)));
                Ok(())
            }
        }
    }

    /// Reads a microbatch, grown to the capacity, into the inputs that the programs name.
    fn load(&mut self, microbatch: usize, batch: &Batch) -> Result<()> {
        if let Some(vocabulary) = self.artifact.manifest.vocabulary {
            batch.check_vocabulary(usize::try_from(vocabulary)?)?;
        }
        let mut batch = batch.clone();
        let capacity = |name: &str| {
            let v = self.sizes.get(&Symbol::new(name));
            v.ok_or_else(|| anyhow!("the artifact has no capacity of `{name}`"))
        };
        batch.grow(capacity("T")?, capacity("docs")?)?;
        let mut wanted: IndexMap<String, (Ty, HostCall)> = IndexMap::new();
        for p in self.programs.values() {
            for i in p.main().iter().flat_map(|f| &f.inputs) {
                if let Some(from) = &i.from {
                    wanted.insert(i.name.to_string(), (i.ty.clone(), from.clone()));
                }
            }
        }
        wanted.sort_keys();
        for (name, (ty, call)) in wanted {
            let t = self.input(&ty, &call, &batch).with_context(|| format!("input `{name}`"))?;
            self.buffers.insert(Buffer::Input(microbatch, name), t);
        }
        Ok(())
    }

    fn input(&self, ty: &Ty, call: &HostCall, batch: &Batch) -> Result<Tensor<R>> {
        let function = host_fn::find(&call.function)?;
        let args: Vec<(&str, i64)> = call.arguments.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        let value = function.evaluate(&function.bind(&args)?, batch)?;
        let rows = value.shape.first().copied().unwrap_or(0);
        let dims = self.sizes.eval_all(&ty.dims)?;
        check_pictures(function, &value.shape, &dims)?;
        let value = function.pad(value, &dims)?;
        Ok(match ty.dtype {
            DType::I32 => {
                let mut v = value.to_i64()?;
                if self.poison && call.function == "input_ids" {
                    // A padding row looks up a row that does not exist.
                    let valid = batch.layout.row_valid(v.len());
                    v.iter_mut().zip(valid).filter(|(_, ok)| !ok).for_each(|(v, _)| *v = -1);
                }
                Tensor::ints(dims, v)?
            }
            DType::Bool => {
                Tensor::bools(dims, value.to_i64()?.into_iter().map(|v| v != 0).collect())?
            }
            dtype => {
                let mut t = floats::<R>(dtype, &value)?;
                if self.poison {
                    let width: usize = dims.iter().skip(1).product();
                    let all = t.to_f64().into_iter().enumerate().map(|(i, v)| {
                        R::from_f64(if i / width.max(1) < rows { v } else { f64::NAN })
                    });
                    t = Tensor::floats(dtype, dims, all.collect())?;
                }
                t
            }
        })
    }

    fn evaluate(&self, name: &str, inputs: &[(String, Buffer)]) -> Result<Vec<Tensor<R>>> {
        let program =
            self.programs.get(name).ok_or_else(|| anyhow!("the artifact has no such program"))?;
        let main = program.main().ok_or_else(|| anyhow!("the program is empty"))?;
        let mut values: Vec<(&str, Tensor<R>)> = vec![];
        for (input, buffer) in inputs {
            let declared = main.inputs.iter().find(|i| *i.name == **input);
            let declared = declared.ok_or_else(|| anyhow!("there is no input `{input}`"))?;
            let t = self.get(buffer)?.clone();
            let dims = self.sizes.eval_all(&declared.ty.dims)?;
            if t.dims.iter().product::<usize>() != dims.iter().product::<usize>() {
                bail!("`{input}` is {:?}, it must be {dims:?}", t.dims);
            }
            values.push((input, Tensor { dims, ..t }));
        }
        let buffers = &self.buffers;
        let mut provider = |name: &str, _: &Param| {
            let b = buffers.get(&Buffer::Param(name.to_string()));
            b.cloned().ok_or_else(|| EvalError::new("has no value"))
        };
        let kernels = self.kernels.as_ref().filter(|_| name == STEP);
        let mut by_kernel = |f: &Function, inputs: &[Tensor<R>], sizes: &Sizes| match kernels {
            Some(kernels) => kernels.call(f, inputs, sizes),
            None => Ok(None),
        };
        let results = {
            let mut evaluator = Evaluator::new(program, &mut provider).substitute(&mut by_kernel);
            if self.poison {
                evaluator = evaluator.with_poison();
            }
            for s in &program.symbols {
                if let Some(v) = self.sizes.get(&s.symbol) {
                    evaluator = evaluator.with_size(&s.symbol.0, v);
                }
            }
            evaluator.run_main(&values).map_err(|e| anyhow!("{e}"))?
        };
        let mut all = vec![];
        for o in results.0 {
            all.push(o.value);
            all.extend(o.loss.map(|(count, _)| count));
        }
        Ok(all)
    }

    fn keep(&mut self, values: Vec<Tensor<R>>, outputs: &[Buffer]) -> Result<()> {
        if values.len() != outputs.len() {
            bail!("{} results for {} buffers", values.len(), outputs.len());
        }
        for (t, b) in values.into_iter().zip(outputs) {
            let dims = self.parameter_dims(b).unwrap_or_else(|| t.dims.clone());
            self.buffers.insert(b.clone(), Tensor { dims, ..t });
        }
        Ok(())
    }

    /// Buffers of parameters keep the parameter's shape; the optimizer sees them flat.
    fn parameter_dims(&self, b: &Buffer) -> Option<Vec<usize>> {
        let (Buffer::Master(n) | Buffer::Moment1(n) | Buffer::Moment2(n)) = b else { return None };
        let p = self.artifact.manifest.parameters.iter().find(|p| p.name == *n)?;
        Some(p.shape.clone())
    }

    /// The count of each loss over all microbatches, by which its sum and gradients are divided.
    fn totals(&mut self) -> Result<()> {
        for loss in self.artifact.manifest.losses.clone() {
            let mut total = 0.0;
            for m in 0..self.artifact.schedule.microbatches {
                total += scalar(self.get(&Buffer::LossCount(m, loss.name.clone()))?);
            }
            let total = Tensor::from_f64(vec![], &[total])?;
            self.buffers.insert(Buffer::TotalCount(loss.name.clone()), total);
        }
        Ok(())
    }

    fn accumulate(&mut self, name: &str) -> Result<()> {
        let local = Buffer::LocalGrad(name.to_string());
        let part = self
            .buffers
            .remove(&local)
            .ok_or_else(|| anyhow!("the gradient of `{name}` is read before it is made"))?;
        let main = Buffer::Grad(name.to_string());
        let sum = match self.buffers.remove(&main) {
            None => part,
            Some(before) => {
                let sum = before.as_floats()?.iter().zip(part.as_floats()?);
                let sum = sum.map(|(a, b)| R::from_f64(a.to_f64() + b.to_f64())).collect();
                Tensor::floats(DType::F32, part.dims, sum)?
            }
        };
        self.buffers.insert(main, sum);
        Ok(())
    }

    fn sum_losses(&self, result: &mut StepResult) -> Result<()> {
        for loss in &self.artifact.manifest.losses {
            let total = scalar(self.get(&Buffer::TotalCount(loss.name.clone()))?);
            let mut sum = 0.0;
            for m in 0..self.artifact.schedule.microbatches {
                sum += scalar(self.get(&Buffer::LossSum(m, loss.name.clone()))?);
            }
            let mean = if total == 0.0 { 0.0 } else { sum / total };
            result.losses.insert(loss.name.clone(), mean);
            result.loss += loss.weight * mean;
        }
        Ok(())
    }
}

/// The program that updates parameters; see the compiler's `optimizer` pass.
pub const OPTIMIZER: &str = "optimizer";

/// The program of forward and backward, whose clusters have kernels.
pub const STEP: &str = "step";

/// Elements of a parameter at most: a damaged manifest must not ask for all memory.
const MOST_ELEMENTS: usize = 1 << 33;

/// Patches and frames must fit; the other sizes of a batch are checked when it is grown.
fn check_pictures(function: &HostFunction, have: &[usize], room: &[usize]) -> Result<()> {
    for ((dim, have), room) in function.dims.iter().zip(have).zip(room) {
        let (what, extra, flag) = match *dim {
            "patches" => ("patches", 0, "--max-patches"),
            "frames + 1" => ("frames of pictures", 1, "--max-images"),
            _ => continue,
        };
        let (have, room) = (have.saturating_sub(extra), room.saturating_sub(extra));
        if have > room {
            bail!("{have} {what}, the artifact holds {room}: compile with {flag} {have}");
        }
    }
    Ok(())
}

fn check_loss(result: &StepResult) -> Result<()> {
    if result.loss.is_finite() {
        return Ok(());
    }
    let parts: Vec<String> = result.losses.iter().map(|(n, v)| format!("{n} {v}")).collect();
    bail!("the loss is {} ({}); nothing is updated", result.loss, parts.join(", "))
}

fn scalar<R: Real>(t: &Tensor<R>) -> f64 {
    t.to_f64().first().copied().unwrap_or(f64::NAN)
}

fn floats<R: Real>(dtype: DType, h: &HostTensor) -> Result<Tensor<R>> {
    let data = h.to_f64().into_iter().map(R::from_f64).collect();
    Ok(Tensor::floats(dtype, h.shape.clone(), data)?)
}
