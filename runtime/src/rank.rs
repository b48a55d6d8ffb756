//! One rank: follows its list of steps. The reference evaluator is its device, beside the host kernels
//! of the artifact for the clusters that have one.

use crate::clusters::Clusters;
use crate::executor::StepResult;
use crate::fabric::{Group, Port};
use anyhow::{Context, Result, anyhow, bail};
use indexmap::IndexMap;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use vlmc_artifact::{Artifact, Buffer, Parameter, Place, Step};
use vlmc_data::batch::Batch;
use vlmc_data::host_fn::{self, HostFunction};
use vlmc_data::tensor::HostTensor;
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::{EvalError, Evaluator, Real, Sizes, Tensor};
use vlmc_ir::graph::{Function, HostCall, Param, Program};
use vlmc_ir::ops::{Effect, Op};
use vlmc_ir::ty::{DType, Ty};

/// The exchange with other ranks: what is sent has the buffer as its tag.
pub(crate) type Exchange<R> = Port<Buffer, Vec<Tensor<R>>>;

/// What all ranks share.
pub(crate) struct Shared {
    pub(crate) artifact: Artifact,
    pub(crate) programs: HashMap<String, Program>,
    pub(crate) sizes: Sizes,
    /// NaN in padding rows and out-of-range lookups, to prove that nothing reads them.
    pub(crate) poison: bool,
}

/// A rank.
pub(crate) struct Rank<R> {
    shared: Arc<Shared>,
    place: Place,
    steps: Arc<Vec<Step>>,
    buffers: HashMap<Buffer, Tensor<R>>,
    /// The parameters that its programs use.
    holds: HashSet<String>,
    /// Hashes of the microbatches of the last step, as it read them.
    samples: Vec<String>,
    /// The clusters' host kernels.
    pub(crate) kernels: Option<Arc<Clusters>>,
}

impl<R: Real> Rank<R> {
    /// A rank at its place, without any parameter yet.
    pub(crate) fn new(shared: Arc<Shared>, place: Place) -> Self {
        let steps = shared.artifact.schedule.ranks.get(place.pp).cloned().unwrap_or_default();
        let mut holds = HashSet::new();
        for step in &steps {
            let Step::Run { program, inputs, .. } = step else { continue };
            let program = shared.programs.get(program);
            holds.extend(program.iter().flat_map(|p| p.parameters()).map(|(name, _)| name));
            holds.extend(inputs.iter().filter_map(|(_, b)| match b {
                Buffer::Master(name) => Some(name.clone()),
                _ => None,
            }));
        }
        let steps = Arc::new(steps);
        Rank {
            shared,
            place,
            steps,
            buffers: HashMap::new(),
            holds,
            samples: vec![],
            kernels: None,
        }
    }

    /// Whether it has this parameter.
    pub(crate) fn holds(&self, parameter: &str) -> bool {
        self.holds.contains(parameter)
    }

    /// Hashes of the microbatches of the last step.
    pub(crate) fn samples(&self) -> &[String] {
        &self.samples
    }

    pub(crate) fn buffers(&self) -> &HashMap<Buffer, Tensor<R>> {
        &self.buffers
    }

    /// Puts a parameter's starting value in place: the master weight, its copy in the model's
    /// dtype, and zero moments.
    ///
    /// # Errors
    /// When it has another shape than the artifact says.
    pub(crate) fn set_parameter(&mut self, p: &Parameter, value: &HostTensor) -> Result<()> {
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

    /// Forgets a buffer's value.
    pub(crate) fn drop_buffer(&mut self, b: &Buffer) {
        self.buffers.remove(b);
    }

    /// Replaces a buffer's value, as a resumed training does.
    ///
    /// # Errors
    /// When it cannot be one.
    pub(crate) fn set_buffer(&mut self, b: Buffer, value: &HostTensor) -> Result<()> {
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
        let p = self.shared.artifact.manifest.parameters.iter().find(|p| p.name == name);
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

    /// One training step: the microbatches of this rank, with the optimizer's scalars. With `update`
    /// off it stops before the optimizer, and the gradients stay.
    pub(crate) fn step(
        &mut self,
        batches: &[Batch],
        scalars: &[(&str, f64)],
        update: bool,
        exchange: &mut Exchange<R>,
    ) -> Result<StepResult> {
        for (name, value) in scalars {
            let t = Tensor::from_f64(vec![], &[*value])?;
            self.buffers.insert(Buffer::Scalar((*name).to_string()), t);
        }
        self.samples.clear();
        let mut result = StepResult::default();
        for step in self.steps.clone().iter() {
            self.execute(step, batches, exchange)?;
            if !matches!(step, Step::Norm) {
                continue;
            }
            // Nothing has changed yet: the optimizer runs only on gradients that are known to be good.
            self.sum_losses(&mut result, exchange)?;
            result.grad_norm = scalar(self.get(&Buffer::GradNorm)?);
            if !update {
                // Who asks for gradients alone may want to see those that are not finite.
                return Ok(result);
            }
            result.check_loss()?;
            self.check_norm(result.grad_norm)?;
        }
        Ok(result)
    }

    /// Names the first gradient that is not finite, when the norm is not.
    pub(crate) fn check_norm(&self, norm: f64) -> Result<()> {
        if norm.is_finite() {
            return Ok(());
        }
        for p in &self.shared.artifact.manifest.parameters {
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

    fn execute(
        &mut self,
        step: &Step,
        batches: &[Batch],
        exchange: &mut Exchange<R>,
    ) -> Result<()> {
        match step {
            Step::Load { microbatch } => {
                let batch = batches.get(*microbatch).ok_or_else(|| anyhow!("no microbatch"))?;
                self.load(*microbatch, batch).with_context(|| format!("microbatch {microbatch}"))
            }
            Step::Run { program, inputs, outputs, .. } => self
                .evaluate(program, inputs, exchange)
                .and_then(|values| self.keep(values, outputs))
                .with_context(|| format!("program `{program}`")),
            Step::Totals => self.totals(exchange),
            Step::Send { to, buffers } => {
                let to = Place { pp: *to, ..self.place };
                buffers
                    .iter()
                    .try_for_each(|b| exchange.send(to, b.clone(), vec![self.get(b)?.clone()]))
            }
            Step::Receive { from, buffers } => {
                let from = Place { pp: *from, ..self.place };
                for b in buffers {
                    let t = exchange.receive(from, b.clone())?.pop();
                    let t = t.ok_or_else(|| anyhow!("{b:?} was sent without a value"))?;
                    self.buffers.insert(b.clone(), t);
                }
                Ok(())
            }
            Step::Reduce { params } => self.reduce(params, exchange),
            Step::Tie { param, ranks } => self.tie(param, ranks, exchange),
            Step::Norm => self.norm(exchange),
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
        if let Some(vocabulary) = self.shared.artifact.manifest.vocabulary {
            batch.check_vocabulary(usize::try_from(vocabulary)?)?;
        }
        let mut batch = batch.clone();
        let capacity = |name: &str| {
            let v = self.shared.sizes.get(&Symbol::new(name));
            v.ok_or_else(|| anyhow!("the artifact has no capacity of `{name}`"))
        };
        self.samples.push(sample_hash(&batch));
        let ranks = self.shared.artifact.schedule.mesh.cp;
        batch.grow(capacity("T")?.saturating_mul(ranks), capacity("docs")?)?;
        let mut wanted: IndexMap<String, (Ty, HostCall)> = IndexMap::new();
        for p in self.shared.programs.values() {
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
        let ranks = self.shared.artifact.schedule.mesh.cp;
        let args = function.bind(&args)?;
        let value = function.evaluate_share(&args, batch, ranks, self.place.cp)?;
        let rows = value.shape.first().copied().unwrap_or(0);
        let dims = self.shared.sizes.eval_all(&ty.dims)?;
        check_pictures(function, &value.shape, &dims)?;
        let value = function.pad(value, &dims)?;
        Ok(match ty.dtype {
            DType::I32 => {
                let mut v = value.to_i64()?;
                if self.shared.poison && call.function == "input_ids" {
                    // A padding row looks up a row that does not exist.
                    let valid = host_fn::find("row_valid")?;
                    let valid = valid.evaluate_share(&[], batch, ranks, self.place.cp)?;
                    let each = v.iter_mut().zip(valid.to_i64()?);
                    each.filter(|(_, ok)| *ok == 0).for_each(|(v, _)| *v = -1);
                }
                Tensor::ints(dims, v)?
            }
            DType::Bool => {
                Tensor::bools(dims, value.to_i64()?.into_iter().map(|v| v != 0).collect())?
            }
            dtype => {
                let mut t = floats::<R>(dtype, &value)?;
                if self.shared.poison {
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

    fn evaluate(
        &self,
        name: &str,
        inputs: &[(String, Buffer)],
        exchange: &mut Exchange<R>,
    ) -> Result<Vec<Tensor<R>>> {
        let program = self
            .shared
            .programs
            .get(name)
            .ok_or_else(|| anyhow!("the artifact has no such program"))?;
        let main = program.main().ok_or_else(|| anyhow!("the program is empty"))?;
        let mut values: Vec<(&str, Tensor<R>)> = vec![];
        for (input, buffer) in inputs {
            let declared = main.inputs.iter().find(|i| *i.name == **input);
            let declared = declared.ok_or_else(|| anyhow!("there is no input `{input}`"))?;
            let t = self.get(buffer)?.clone();
            let dims = self.shared.sizes.eval_all(&declared.ty.dims)?;
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
        let kernels = self.kernels.as_deref();
        let mut by_kernel = |f: &Function, inputs: &[Tensor<R>], sizes: &Sizes| match kernels {
            Some(kernels) => kernels.call(f, inputs, sizes),
            None => Ok(None),
        };
        let mut meet = |op: &Op, own: &Tensor<R>| {
            let axis = Group::of(op).ok_or_else(|| EvalError::new("an exchange along no axis"))?;
            let (members, at) = exchange.members(axis);
            if op.info().effect != Effect::Collective {
                return Ok((vec![own.clone(); members.len()], at));
            }
            let all = exchange.exchange(axis, vec![own.clone()]);
            let all = all.map_err(|e| EvalError::new(format!("{e:#}")))?;
            Ok((all.iter().flatten().cloned().collect(), at))
        };
        let results = {
            let mut evaluator = Evaluator::new(program, &mut provider)
                .substitute(&mut by_kernel)
                .exchange(&mut meet);
            if self.shared.poison {
                evaluator = evaluator.with_poison();
            }
            for s in &program.symbols {
                if let Some(v) = self.shared.sizes.get(&s.symbol) {
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
        let p = self.shared.artifact.manifest.parameters.iter().find(|p| p.name == *n)?;
        Some(p.shape.clone())
    }

    /// The count of each loss over all microbatches, by which its sum and gradients are divided.
    fn totals(&mut self, exchange: &mut Exchange<R>) -> Result<()> {
        let losses = self.shared.artifact.manifest.losses.clone();
        let mut own = vec![];
        for loss in &losses {
            let mut total = 0.0;
            for m in 0..self.shared.artifact.schedule.microbatches {
                total += scalar(self.get(&Buffer::LossCount(m, loss.name.clone()))?);
            }
            own.push(Tensor::from_f64(vec![], &[total])?);
        }
        let all = exchange.exchange(Group::Replicas, own)?;
        for (i, loss) in losses.iter().enumerate() {
            let total = all.iter().filter_map(|part| part.get(i)).map(scalar).sum();
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
        let total = match self.buffers.remove(&main) {
            None => part,
            Some(before) => sum([&before, &part])?,
        };
        self.buffers.insert(main, total);
        Ok(())
    }

    fn gradient(&self, name: &str) -> Result<Tensor<R>> {
        self.get(&Buffer::Grad(name.to_string())).cloned()
    }

    /// Sums main gradients over the ranks of one stage, in their order.
    fn reduce(&mut self, params: &[String], exchange: &mut Exchange<R>) -> Result<()> {
        let own = params.iter().map(|p| self.gradient(p)).collect::<Result<Vec<_>>>()?;
        let all = exchange.exchange(Group::Replicas, own)?;
        for (i, p) in params.iter().enumerate() {
            let total = sum(all.iter().filter_map(|part| part.get(i)))?;
            self.buffers.insert(Buffer::Grad(p.clone()), total);
        }
        Ok(())
    }

    /// Sums the gradients that several stages have of one parameter, in the order of ranks.
    fn tie(&mut self, param: &str, ranks: &[usize], exchange: &mut Exchange<R>) -> Result<()> {
        let tag = Buffer::Grad(param.to_string());
        let own = self.gradient(param)?;
        let at = |pp: usize| Place { pp, ..self.place };
        for pp in ranks.iter().filter(|pp| **pp != self.place.pp) {
            exchange.send(at(*pp), tag.clone(), vec![own.clone()])?;
        }
        let mut parts = vec![];
        for pp in ranks {
            match *pp == self.place.pp {
                true => parts.push(own.clone()),
                false => parts.extend(exchange.receive(at(*pp), tag.clone())?),
            }
        }
        let total = sum(&parts)?;
        self.buffers.insert(tag, total);
        Ok(())
    }

    /// The norm of all gradients: the squares of each parameter once, added in the order of the
    /// manifest, so that it does not depend on where parameters are.
    fn norm(&mut self, exchange: &mut Exchange<R>) -> Result<()> {
        let trained = self.shared.artifact.manifest.parameters.iter().filter(|p| p.trained);
        let names: Vec<String> = trained.map(|p| p.name.clone()).collect();
        // A parameter that this rank lacks has an empty part.
        let none = Tensor::floats(DType::F32, vec![0], vec![])?;
        let own = names.iter().map(|n| {
            let b = Buffer::GradSquares(n.clone());
            self.buffers.remove(&b).unwrap_or_else(|| none.clone())
        });
        let own: Vec<Tensor<R>> = own.collect();
        let all = exchange.exchange(Group::Pipeline, own)?;
        let mut squares = R::from_f64(0.0);
        for (i, name) in names.iter().enumerate() {
            let parts = all.iter().filter_map(|part| part.get(i)).filter(|t| !t.is_empty());
            let part = parts.map(scalar).next();
            let part = part.ok_or_else(|| anyhow!("no rank has the gradient of `{name}`"))?;
            squares = R::from_f64(squares.to_f64() + part);
        }
        let norm = R::from_f64(squares.to_f64().sqrt()).to_f64();
        self.buffers.insert(Buffer::GradNorm, Tensor::from_f64(vec![], &[norm])?);
        Ok(())
    }

    /// Every rank learns the losses: sums of the microbatches that this and other ranks have, in the
    /// order of ranks.
    fn sum_losses(&self, result: &mut StepResult, exchange: &mut Exchange<R>) -> Result<()> {
        let losses = &self.shared.artifact.manifest.losses;
        let microbatches = self.shared.artifact.schedule.microbatches;
        let none = Tensor::floats(DType::F32, vec![0], vec![])?;
        let mut own = vec![];
        for loss in losses {
            for m in 0..microbatches {
                let b = Buffer::LossSum(m, loss.name.clone());
                own.push(self.buffers.get(&b).unwrap_or(&none).clone());
            }
        }
        let all = exchange.exchange(Group::World, own)?;
        for (i, loss) in losses.iter().enumerate() {
            let total = scalar(self.get(&Buffer::TotalCount(loss.name.clone()))?);
            let range = i * microbatches..(i + 1) * microbatches;
            let parts = all.iter().filter_map(|part| part.get(range.clone())).flatten();
            let sum: f64 = parts.filter(|t| !t.is_empty()).map(scalar).sum();
            let mean = if total == 0.0 { 0.0 } else { sum / total };
            result.losses.insert(loss.name.clone(), mean);
            result.loss += loss.weight * mean;
        }
        Ok(())
    }
}

/// A hash of what tells microbatches apart: token ids and boundaries.
fn sample_hash(batch: &Batch) -> String {
    let mut h = DefaultHasher::new();
    batch.input_ids.hash(&mut h);
    batch.layout.cu_seqlens_padded().hash(&mut h);
    format!("{:016x}", h.finish())
}

/// The sum of tensors of one shape, in f32, in their order.
fn sum<'t, R: Real + 't>(parts: impl IntoIterator<Item = &'t Tensor<R>>) -> Result<Tensor<R>> {
    let mut parts = parts.into_iter();
    let first = parts.next().ok_or_else(|| anyhow!("a sum of nothing"))?;
    let mut total = first.clone();
    for part in parts {
        if part.dims != total.dims {
            bail!("parts of one sum are {:?} and {:?}", total.dims, part.dims);
        }
        let values = total.as_floats()?.iter().zip(part.as_floats()?);
        let values = values.map(|(a, b)| R::from_f64(a.to_f64() + b.to_f64())).collect();
        total = Tensor::floats(DType::F32, part.dims.clone(), values)?;
    }
    Ok(total)
}

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

fn scalar<R: Real>(t: &Tensor<R>) -> f64 {
    t.to_f64().first().copied().unwrap_or(f64::NAN)
}

fn floats<R: Real>(dtype: DType, h: &HostTensor) -> Result<Tensor<R>> {
    let data = h.to_f64().into_iter().map(R::from_f64).collect();
    Ok(Tensor::floats(dtype, h.shape.clone(), data)?)
}
