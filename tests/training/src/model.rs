//! A model with settings, compiled for batches and run.

use anyhow::{Result, anyhow, bail};
use indexmap::IndexMap;
use vlmc::compile::{
    Capacity, CompileError, CompileRequest, Compiled, MemoryRequest, PASSES, Spread, compile,
};
use vlmc::eval::{Precision, Request};
use vlmc_artifact::{Artifact, Buffer, Parameter};
use vlmc_data::batch::Batch;
use vlmc_data::init::{Distribution, Initializer};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_data::vision;
use vlmc_frontend::diag::render::{Format, all};
use vlmc_frontend::elab::{Library, Raw, Setter, Setting, Target, lower};
use vlmc_ir::eval::Real;
use vlmc_ir::graph::{OutputKind, Param, Program};
use vlmc_ir::ty::DType;
use vlmc_passes::manager::{self, Pass};
use vlmc_runtime::executor::Executor;

/// A model of those that come along.
pub struct Model {
    /// Its spec.
    pub library: Library,
    /// The variant.
    pub variant: Option<String>,
    /// Further settings.
    pub settings: Vec<Setting>,
}

/// What a step without update gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ran {
    /// The training loss.
    pub loss: f64,
    /// Each loss: the sum and the count over all microbatches.
    pub losses: IndexMap<String, (f64, f64)>,
    /// The gradient of every trained parameter.
    pub gradients: IndexMap<String, Vec<f64>>,
}

impl Model {
    /// A model by the name of its file, a variant, settings as after `--set`.
    ///
    /// # Errors
    /// When the spec is wrong.
    pub fn new(name: &str, variant: &str, settings: &[&str]) -> Result<Model> {
        let (library, diags) = vlmc::spec::load(name)?;
        if diags.has_errors() {
            bail!("{}", all(&diags, &library.sources, Format::PLAIN));
        }
        let variant = Some(variant.to_string());
        Ok(Model { library, variant, settings: vec![] }.with(settings))
    }

    /// The small variant, with or without experts, with multi-token prediction, without aux loss.
    ///
    /// # Errors
    /// When the spec is wrong.
    pub fn small(experts: bool, settings: &[&str]) -> Result<Model> {
        let model = Model::new("qwen3_5_vl", "tiny", &["text.aux_loss=none", "text.mtp_layers=1"])?;
        let dense: &[&str] = if experts { &[] } else { &["text.experts=0", "text.ffn=192"] };
        Ok(model.with(dense).with(settings))
    }

    /// With further settings.
    pub fn with(mut self, settings: &[&str]) -> Model {
        self.settings.extend(settings.iter().map(|text| {
            let (path, value) = text.split_once('=').unwrap_or((text, ""));
            Setting {
                path: path.split('.').map(String::from).collect(),
                value: Raw::parse(value),
                setter: Setter::Flag(text.to_string()),
            }
        }));
        self
    }

    /// Compiles for as many microbatches as given, with room for the largest of each size.
    ///
    /// # Errors
    /// When the spec is wrong or does not fit.
    pub fn compile(&self, batches: &[Batch], dtype: DType, room: usize) -> Result<Compiled> {
        let mut capacity = Capacity { tokens: 0, docs: 0, patches: 16, frames: 1 };
        for b in batches {
            let grids = b.grids();
            capacity.tokens = capacity.tokens.max(b.tokens() + room);
            capacity.docs = capacity.docs.max(b.layout.documents().len() + room.min(2));
            // Whole pictures of the merge size.
            capacity.patches = capacity.patches.max(vision::patch_count(&grids)? + 4 * room);
            capacity.frames = capacity.frames.max(grids.iter().map(|g| g.t).sum::<usize>() + room);
        }
        self.compile_for(batches.len(), dtype, capacity)
    }

    /// Compiles for these capacities.
    ///
    /// # Errors
    /// When the spec is wrong or they do not fit.
    pub fn compile_for(
        &self,
        microbatches: usize,
        dtype: DType,
        capacity: Capacity,
    ) -> Result<Compiled> {
        let spread = Spread::one(u32::try_from(microbatches)?);
        self.compile_spread(&spread, dtype, capacity, &Default::default())
    }

    /// Compiles for these capacities, ranks and memory.
    ///
    /// # Errors
    /// When the spec is wrong or they do not fit.
    pub fn compile_spread(
        &self,
        spread: &Spread,
        dtype: DType,
        capacity: Capacity,
        memory: &MemoryRequest,
    ) -> Result<Compiled> {
        let request = CompileRequest {
            variant: self.variant.as_deref(),
            settings: self.settings.clone(),
            dtype,
            capacity,
            spread: spread.clone(),
            fused: false,
            plan: None,
            fusing: Default::default(),
            memory: memory.clone(),
            flags: Default::default(),
        };
        compile(&self.library, &request).map_err(|e| match e {
            CompileError::Spec(d) => anyhow!("{}", all(&d, &self.library.sources, Format::PLAIN)),
            CompileError::Other(e) => e,
        })
    }

    /// The forward program of the model, or of one of its functions with these arguments.
    ///
    /// # Errors
    /// When the spec is wrong.
    pub fn program(
        &self,
        function: Option<&str>,
        args: &[(&str, &str)],
        shapes: &[(&str, &[usize])],
    ) -> Result<Program> {
        let request = Request {
            function,
            args: args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            variant: self.variant.as_deref(),
            settings: self.settings.clone(),
            shapes: shapes.iter().map(|(k, v)| (k.to_string(), v.to_vec())).collect(),
            precision: Precision::F32,
        };
        let lowered = vlmc::eval::program(&self.library, &request);
        lowered
            .program
            .ok_or_else(|| anyhow!("{}", all(&lowered.diags, &self.library.sources, Format::PLAIN)))
    }

    /// The forward program that training differentiates: the losses and what they need.
    ///
    /// # Errors
    /// When the spec is wrong.
    pub fn losses(&self, dtype: DType) -> Result<Program> {
        let target = Target {
            function: None,
            args: &[],
            variant: self.variant.as_deref(),
            settings: &self.settings,
            shapes: &[],
            dtype,
        };
        let lowered = lower(&self.library, &target);
        let mut program = lowered.program.ok_or_else(|| {
            anyhow!("{}", all(&lowered.diags, &self.library.sources, Format::PLAIN))
        })?;
        let main = program.functions.last_mut().ok_or_else(|| anyhow!("the program is empty"))?;
        main.outputs.retain(|o| matches!(o.kind, OutputKind::Loss { .. }));
        clean(&program)
    }

    /// One step without update. `room` more rows than needed are compiled for.
    ///
    /// # Errors
    /// When it does not compile or run.
    pub fn gradients<R: Real>(&self, batches: &[Batch], room: usize, poison: bool) -> Result<Ran> {
        self.gradients_with::<R>(batches, room, poison, &parameter_value)
    }

    /// The same with other parameters.
    ///
    /// # Errors
    /// When it does not compile or run.
    pub fn gradients_with<R: Real>(
        &self,
        batches: &[Batch],
        room: usize,
        poison: bool,
        value: &dyn Fn(&Parameter) -> HostTensor,
    ) -> Result<Ran> {
        let artifact = self.compile(batches, DType::F32, room)?.artifact;
        run::<R>(artifact, batches, poison, value)
    }

    /// One step without update of an artifact with room for so many patches.
    ///
    /// # Errors
    /// When it does not compile or run.
    pub fn gradients_in_room<R: Real>(&self, batches: &[Batch], patches: usize) -> Result<Ran> {
        let tokens = batches.iter().map(Batch::tokens).max().unwrap_or(0);
        let docs = batches.iter().map(|b| b.layout.documents().len()).max().unwrap_or(0);
        let capacity = Capacity { tokens, docs, patches, frames: patches / 4 };
        let artifact = self.compile_for(batches.len(), DType::F32, capacity)?.artifact;
        run::<R>(artifact, batches, false, &parameter_value)
    }
}

/// Runs the passes that `vlmc compile` runs.
///
/// # Errors
/// When one fails.
pub fn clean(program: &Program) -> Result<Program> {
    let found = PASSES.map(manager::find);
    let passes: Vec<&Pass> = found.into_iter().flatten().collect();
    Ok(manager::run(program, &passes)?.program)
}

fn run<R: Real>(
    artifact: Artifact,
    batches: &[Batch],
    poison: bool,
    value: &dyn Fn(&Parameter) -> HostTensor,
) -> Result<Ran> {
    let manifest = artifact.manifest.clone();
    let mut executor: Executor<R> = Executor::new(artifact, poison)?;
    for p in &manifest.parameters {
        executor.set_parameter(p, &value(p))?;
    }
    let result = executor.step(batches, &[], false)?;
    let mut ran = Ran { loss: result.loss, ..Ran::default() };
    let number = |b: Buffer| {
        let t = executor.buffer(&b).ok_or_else(|| anyhow!("no {b:?}"))?;
        Ok::<f64, anyhow::Error>(t.to_f64()[0])
    };
    for loss in &manifest.losses {
        let mut sum = 0.0;
        for m in 0..batches.len() {
            sum += number(Buffer::LossSum(m, loss.name.clone()))?;
        }
        let count = number(Buffer::TotalCount(loss.name.clone()))?;
        ran.losses.insert(loss.name.clone(), (sum, count));
    }
    for p in manifest.parameters.iter().filter(|p| p.trained) {
        let b = Buffer::Grad(p.name.clone());
        let t = executor.buffer(&b).ok_or_else(|| anyhow!("no {b:?}"))?;
        ran.gradients.insert(p.name.clone(), t.to_f64());
    }
    Ok(ran)
}

/// A value that makes everything in the model matter: matrices much larger than a training starts
/// with, vectors away from their neutral values, and a decay so slow that a state which leaks from
/// one document into the next is seen.
pub fn parameter_value(p: &Parameter) -> HostTensor {
    let middle = match p.init {
        vlmc_artifact::Init::Constant(v) => Some(v),
        _ => None,
    };
    value_of(&p.name, &p.shape, middle)
}

/// The same for a parameter of a program whose sizes are all known.
///
/// # Errors
/// When one is not.
pub fn program_parameter(name: &str, p: &Param) -> Result<HostTensor> {
    let shape = p.ty.dims.iter().map(|d| {
        let size = d.size().as_constant().and_then(|c| usize::try_from(c).ok());
        size.ok_or_else(|| anyhow!("`{name}` has no fixed shape"))
    });
    let middle = match p.init {
        vlmc_ir::graph::Init::Constant(v) => Some(v),
        _ => None,
    };
    Ok(value_of(name, &shape.collect::<Result<Vec<_>>>()?, middle))
}

fn value_of(name: &str, shape: &[usize], middle: Option<f64>) -> HostTensor {
    let (middle, deviation) = match (name.rsplit('.').next(), middle) {
        (Some("A_log"), _) => (-4.0, 0.3),
        (Some("dt_bias"), _) => (0.0, 0.3),
        (_, Some(v)) => (v, 0.2),
        _ => (0.0, 0.1),
    };
    let normal = Initializer::new(7, name, Distribution::Normal(deviation));
    let n = shape.iter().product::<usize>() as u64;
    let values = normal.values(0..n).into_iter().map(|v| v + middle as f32).collect();
    HostTensor { shape: shape.to_vec(), data: HostData::F32(values) }
}

/// The largest difference between gradients of one parameter, as a norm relative to that of the
/// second list's, with the name of the parameter.
///
/// # Errors
/// When they are not gradients of the same parameters.
pub fn largest_difference(
    a: &IndexMap<String, Vec<f64>>,
    b: &IndexMap<String, Vec<f64>>,
) -> Result<(f64, String)> {
    if a.len() != b.len() || a.is_empty() {
        bail!("{} and {} parameters", a.len(), b.len());
    }
    let mut worst = (0.0, String::new());
    for (name, x) in a {
        let y = b.get(name).ok_or_else(|| anyhow!("`{name}` is only in one"))?;
        if x.len() != y.len() {
            bail!("`{name}` has {} and {} values", x.len(), y.len());
        }
        let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
        let scale = norm(&mut y.iter().copied());
        let error = norm(&mut x.iter().zip(y).map(|(x, y)| x - y));
        let error = if scale == 0.0 { error } else { error / scale };
        // Not a number is the worst of all.
        if error.is_nan() || error > worst.0 {
            worst = (error, name.clone());
        }
    }
    Ok(worst)
}
