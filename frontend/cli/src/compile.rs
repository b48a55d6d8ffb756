//! From a spec to an artifact.

use crate::fusion;
use anyhow::{Context, Result, anyhow, bail};
use indexmap::IndexMap;
use sha2::{Digest, Sha256};
use vlmc_artifact as artifact;
use vlmc_artifact::{Artifact, Buffer, Manifest, PassRecord, Plan, ProgramRecord, Schedule, Step};
use vlmc_data::host_fn;
use vlmc_frontend::diag::Diags;
use vlmc_frontend::elab::{Library, Setting, Target, lower};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, Output, OutputKind, Param, Program, join_name};
use vlmc_ir::ops::Op;
use vlmc_ir::text::print;
use vlmc_ir::ty::{DType, Ty};
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::fuse::{self, Fused};
use vlmc_passes::manager::{self, Pass, PassError};
use vlmc_passes::optimizer::{OptimizerParam, SCALARS, optimizer_program};
use vlmc_passes::prune::drop_unused_inputs;

/// What to compile.
#[derive(Clone, Debug)]
pub struct CompileRequest<'r> {
    /// The variant.
    pub variant: Option<&'r str>,
    /// Further settings.
    pub settings: Vec<Setting>,
    /// What the model dtype stands for.
    pub dtype: DType,
    /// Capacities.
    pub capacity: Capacity,
    /// Microbatches of a step.
    pub microbatches: usize,
    /// The step runs the fused graph; its numbers are those of the other to the last bit.
    pub fused: bool,
    /// Flags as merged, for the manifest.
    pub flags: IndexMap<String, String>,
}

/// Sizes that buffers are made for; the numbers of a batch may be smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Rows of a microbatch.
    pub tokens: usize,
    /// Documents of a microbatch.
    pub docs: usize,
    /// Patches of all pictures of a microbatch.
    pub patches: usize,
    /// Frames of all pictures of a microbatch; an image is one.
    pub frames: usize,
}

impl Capacity {
    fn of(&self, symbol: &str) -> Option<usize> {
        match symbol {
            "tokens" => Some(self.tokens),
            "docs" => Some(self.docs),
            "patches" => Some(self.patches),
            "frames" => Some(self.frames),
            _ => None,
        }
    }
}

/// Why there is no artifact.
#[derive(Debug)]
pub enum CompileError {
    /// The spec is wrong.
    Spec(Diags),
    /// Something else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for CompileError {
    fn from(e: anyhow::Error) -> Self {
        CompileError::Other(e)
    }
}

/// Every stage of a compilation, which dumps show.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The forward program, as lowered.
    pub forward: Program,
    /// Forward, losses and backward.
    pub joint: Program,
    /// The same in clusters.
    pub fused: Fused,
    /// What is written.
    pub artifact: Artifact,
}

/// Compiles a model for one rank.
///
/// # Errors
/// When the spec is wrong, or a capacity does not fit it.
pub fn compile(lib: &Library, r: &CompileRequest<'_>) -> Result<Compiled, CompileError> {
    let lowered = lower(
        lib,
        &Target {
            function: None,
            args: &[],
            variant: r.variant,
            settings: &r.settings,
            shapes: &[],
            dtype: r.dtype,
        },
    );
    let Some(forward) = lowered.program else { return Err(CompileError::Spec(lowered.diags)) };
    Ok(finish(lib, r, forward)?)
}

fn finish(lib: &Library, r: &CompileRequest<'_>, forward: Program) -> Result<Compiled> {
    let mut records = vec![];
    let mut training = forward.clone();
    only_losses(&mut training)?;
    let training = passes(&training, &mut records)?;
    let options = Options { seeds: Seeds::Totals, ..Options::default() };
    let differentiated = differentiate(&training, &options)?;
    records.push(PassRecord {
        name: "autodiff".to_string(),
        changed: true,
        ops_before: ops(&training),
        ops_after: ops(&differentiated),
    });
    let joint = passes(&differentiated, &mut records)?;
    let fused = fuse::program(&joint, &fuse::Options::default())?;
    records.push(PassRecord {
        name: "fuse".to_string(),
        changed: fused.program != joint,
        ops_before: ops(&joint),
        ops_after: ops(&fused.program),
    });
    let step = if r.fused { &fused.program } else { &joint };
    let counts = counts(&training, &mut records)?;
    let parameters = parameters(&forward, &joint)?;
    let trained: Vec<OptimizerParam> = parameters
        .iter()
        .filter(|p| p.trained)
        .map(|p| OptimizerParam {
            name: p.name.clone(),
            elements: p.shape.iter().product::<usize>() as i64,
            decay: p.decay,
        })
        .collect();
    let optimizer = optimizer_program(&trained, &mut |name, n| library_function(lib, name, n))?;
    let capacities = capacities(&joint, &r.capacity)?;
    let programs = [
        ("counts", "counts of the losses, by which gradients are divided", &counts),
        ("step", "losses and gradients of a microbatch", step),
        ("optimizer", "norm, clipping and update", &optimizer),
    ];
    let names: Vec<String> = trained.iter().map(|p| p.name.clone()).collect();
    let schedule = schedule(r.microbatches, &counts, &joint, &optimizer, &names)?;
    let mut plan = plan(&forward, &joint, &parameters, &capacities, r)?;
    plan.fusions = fusion::fusions(&fused);
    plan.near_misses = fusion::near_misses(&fused);
    let manifest = Manifest {
        format: artifact::FORMAT,
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
        model: forward.name.clone(),
        variant: forward.variant.clone(),
        spec_hash: spec_hash(lib),
        flags: r.flags.clone(),
        targets: vec!["reference".to_string()],
        passes: records,
        programs: programs
            .iter()
            .map(|(name, purpose, _)| ProgramRecord {
                name: name.to_string(),
                purpose: purpose.to_string(),
            })
            .collect(),
        capacities,
        vocabulary: vocabulary(&forward),
        dtype: r.dtype.name().to_string(),
        losses: losses(&joint),
        parameters,
    };
    let programs = programs.iter().map(|(n, _, p)| (n.to_string(), print::program(p))).collect();
    let artifact = Artifact { manifest, plan, schedule, programs };
    Ok(Compiled { forward, joint, fused, artifact })
}

/// Nodes of all functions.
fn ops(p: &Program) -> usize {
    p.functions.iter().map(|f| f.nodes.len()).sum()
}

/// What cleans a program up, before it is differentiated and after.
pub const PASSES: [&str; 4] = ["canon", "cse", "dce", "prune"];

fn passes(p: &Program, records: &mut Vec<PassRecord>) -> Result<Program> {
    let mut program = p.clone();
    for name in PASSES {
        let pass: &Pass = manager::find(name).ok_or_else(|| anyhow!("no pass `{name}`"))?;
        let before = ops(&program);
        let outcome = manager::run(&program, &[pass])?;
        records.push(PassRecord {
            name: name.to_string(),
            changed: outcome.steps.iter().any(|s| s.changed),
            ops_before: before,
            ops_after: ops(&outcome.program),
        });
        program = outcome.program;
    }
    Ok(program)
}

fn main_of(p: &mut Program) -> Result<&mut Function> {
    p.functions.last_mut().ok_or_else(|| anyhow!("the program is empty"))
}

/// Training drops what is no loss.
fn only_losses(p: &mut Program) -> Result<()> {
    let main = main_of(p)?;
    main.outputs.retain(|o| matches!(o.kind, OutputKind::Loss { .. }));
    if main.outputs.is_empty() {
        bail!("the model has no loss, so there is nothing to train");
    }
    Ok(())
}

/// A program of the losses' counts alone.
fn counts(training: &Program, records: &mut Vec<PassRecord>) -> Result<Program> {
    let mut p = training.clone();
    let main = main_of(&mut p)?;
    let counts = main.outputs.iter().filter_map(|o| match &o.kind {
        OutputKind::Loss { count, .. } => {
            Some(Output { name: o.name.clone(), value: *count, kind: OutputKind::Value })
        }
        _ => None,
    });
    main.outputs = counts.collect();
    let mut p = passes(&p, records)?;
    drop_unused_inputs(&mut p);
    Ok(p)
}

fn losses(p: &Program) -> Vec<artifact::Loss> {
    let outputs = p.main().into_iter().flat_map(|f| &f.outputs);
    outputs
        .filter_map(|o| match o.kind {
            OutputKind::Loss { weight, .. } => Some(artifact::Loss { name: label(o), weight }),
            _ => None,
        })
        .collect()
}

fn label(o: &Output) -> String {
    o.name.as_ref().map(|n| n.to_string()).unwrap_or_default()
}

/// Every parameter of the forward program; those with a gradient are trained.
fn parameters(forward: &Program, joint: &Program) -> Result<Vec<artifact::Parameter>> {
    let main = joint.main().ok_or_else(|| anyhow!("the program is empty"))?;
    let gradients: Vec<String> =
        main.outputs.iter().filter(|o| matches!(o.kind, OutputKind::Gradient)).map(label).collect();
    forward
        .parameters()
        .into_iter()
        .map(|(name, p)| {
            let shape = p.ty.dims.iter().map(|d| {
                let size = d.size().as_constant().and_then(|c| usize::try_from(c).ok());
                size.ok_or_else(|| anyhow!("`{name}` has no fixed shape"))
            });
            Ok(artifact::Parameter {
                each: each(p, &name),
                shape: shape.collect::<Result<_>>()?,
                dtype: p.ty.dtype.name().to_string(),
                init: init(p),
                decay: p.decay,
                path: p.name.to_string(),
                trained: gradients.contains(&name),
                name,
            })
        })
        .collect()
}

/// The second stored form under full names, with the sizes of axis 1.
fn each(p: &Param, full: &str) -> Vec<(String, usize)> {
    let scope = full.strip_suffix(p.key.as_str()).map(|s| s.trim_end_matches('.')).unwrap_or("");
    let axis = p.ty.dims.get(1);
    let total = axis.and_then(|d| d.size().as_constant()).unwrap_or(0) as usize;
    let count = p.each.len().max(1);
    p.each
        .iter()
        .enumerate()
        .map(|(i, e)| {
            let segment = axis.and_then(|d| d.segments().get(i)).and_then(|(_, s)| s.as_constant());
            let size = segment.and_then(|s| usize::try_from(s).ok()).unwrap_or(total / count);
            (join_name(scope, e), size)
        })
        .collect()
}

fn init(p: &Param) -> artifact::Init {
    use vlmc_ir::graph::Init;
    match p.init {
        Init::Constant(v) => artifact::Init::Constant(v),
        Init::Normal(std) => artifact::Init::Normal(std),
        Init::Uniform(a, b) => artifact::Init::Uniform(a, b),
        Init::LogUniform(a, b) => artifact::Init::LogUniform(a, b),
    }
}

/// A function of the standard library on vectors of `n` elements, lowered.
fn library_function(lib: &Library, name: &str, n: i64) -> Result<Function, PassError> {
    let shapes: Vec<(String, Vec<usize>)> =
        ["w", "g", "m", "v"].iter().map(|a| (a.to_string(), vec![n as usize])).collect();
    let std = lib.standard();
    let target = Target {
        function: Some(name),
        args: &[],
        variant: None,
        settings: &[],
        shapes: &shapes,
        dtype: DType::F32,
    };
    let lowered = lower(&std, &target);
    let program = lowered
        .program
        .ok_or_else(|| PassError::new(format!("the standard library's `{name}` does not lower")))?;
    program
        .functions
        .into_iter()
        .next_back()
        .ok_or_else(|| PassError::new(format!("the standard library's `{name}` is empty")))
}

/// The value of each run-time symbol, from the inputs whose sizes the capacities tell.
fn capacities(joint: &Program, capacity: &Capacity) -> Result<IndexMap<String, u64>> {
    let main = joint.main().ok_or_else(|| anyhow!("the program is empty"))?;
    let mut sizes = Sizes::default();
    let mut pairs = vec![];
    for input in &main.inputs {
        let Some(from) = &input.from else { continue };
        let function = host_fn::find(&from.function)?;
        for (dim, text) in input.ty.dims.iter().zip(function.dims) {
            let (symbol, extra) = text.split_once(" + ").unwrap_or((text, "0"));
            if let (Some(v), Ok(extra)) = (capacity.of(symbol), extra.parse::<usize>()) {
                pairs.push((dim, v + extra));
            }
        }
    }
    sizes.solve(pairs.iter().map(|(d, v)| (*d, *v))).map_err(|e| {
        anyhow!("the capacities do not fit the model: {e}; see --tokens, --max-docs, --max-patches")
    })?;
    let mut out = IndexMap::new();
    for s in &joint.symbols {
        let v = sizes
            .get(&s.symbol)
            .ok_or_else(|| anyhow!("no input tells the capacity of `{}`", s.symbol))?;
        out.insert(s.symbol.to_string(), v as u64);
    }
    // A batch is read even when no program needs its documents.
    out.entry("T".to_string()).or_insert(capacity.tokens as u64);
    out.entry("docs".to_string()).or_insert(capacity.docs as u64);
    out.sort_keys();
    Ok(out)
}

/// Rows of the smallest table that the batch's token ids look up.
pub fn vocabulary(p: &Program) -> Option<u64> {
    let main = p.main()?;
    let ids = |i: &vlmc_ir::graph::Input| {
        i.from.as_ref().is_some_and(|from| from.function == "input_ids")
    };
    tables(p, main, &main.inputs.iter().map(ids).collect::<Vec<bool>>()).into_iter().min()
}

/// Rows of the tables that a function and those it calls index with the inputs marked in `ids`.
fn tables(p: &Program, f: &Function, ids: &[bool]) -> Vec<u64> {
    let is_ids = |v: &vlmc_ir::graph::Value| match f.nodes.get(v.node.0 as usize).map(|n| &n.op) {
        Some(Op::Input { index }) => ids.get(*index as usize).copied().unwrap_or(false),
        _ => false,
    };
    let mut rows = vec![];
    for n in &f.nodes {
        match &n.op {
            Op::Gather => {
                if let [table, index] = &n.operands[..]
                    && is_ids(index)
                {
                    let size = f.ty(*table).dims.first().and_then(|d| d.size().as_constant());
                    rows.extend(size.and_then(|v| u64::try_from(v).ok()));
                }
            }
            Op::Call { callee, .. } => {
                let marked: Vec<bool> = n.operands.iter().map(is_ids).collect();
                let called = p.functions.iter().find(|g| g.name == **callee);
                if let Some(g) = called.filter(|_| marked.contains(&true)) {
                    rows.extend(tables(p, g, &marked));
                }
            }
            _ => {}
        }
    }
    rows
}

fn spec_hash(lib: &Library) -> String {
    let mut h = Sha256::new();
    for id in lib.sources.ids() {
        h.update(lib.sources.text(id).as_bytes());
        h.update([0]);
    }
    h.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// The steps of one rank.
fn schedule(
    microbatches: usize,
    counts: &Program,
    joint: &Program,
    optimizer: &Program,
    trained: &[String],
) -> Result<Schedule> {
    let inputs = |p: &Program, m: usize| -> Result<Vec<(String, Buffer)>> {
        let main = p.main().ok_or_else(|| anyhow!("the program is empty"))?;
        main.inputs
            .iter()
            .map(|i| {
                let name = i.name.to_string();
                let buffer = match (&i.from, name.strip_suffix(".total")) {
                    (Some(_), _) => Buffer::Input(m, name.clone()),
                    (None, Some(loss)) => Buffer::TotalCount(loss.to_string()),
                    _ => bail!("nothing gives the input `{name}`"),
                };
                Ok((name, buffer))
            })
            .collect()
    };
    let mut steps = vec![];
    let names: Vec<String> = losses(joint).into_iter().map(|l| l.name).collect();
    for m in 0..microbatches {
        steps.push(Step::Load { microbatch: m });
        steps.push(Step::Run {
            program: "counts".to_string(),
            microbatch: Some(m),
            inputs: inputs(counts, m)?,
            outputs: names.iter().map(|n| Buffer::LossCount(m, n.clone())).collect(),
        });
    }
    steps.push(Step::Totals);
    let main = joint.main().ok_or_else(|| anyhow!("the program is empty"))?;
    for m in 0..microbatches {
        let mut outputs = vec![];
        for o in &main.outputs {
            match o.kind {
                OutputKind::Loss { .. } => {
                    outputs.push(Buffer::LossSum(m, label(o)));
                    outputs.push(Buffer::LossCount(m, label(o)));
                }
                OutputKind::Gradient => outputs.push(Buffer::LocalGrad(label(o))),
                OutputKind::Value => bail!("the training step has an output that is no loss"),
            }
        }
        let inputs = inputs(joint, m)?;
        let read: Vec<Buffer> = inputs
            .iter()
            .map(|(_, b)| b.clone())
            .filter(|b| matches!(b, Buffer::Input(..)))
            .collect();
        steps.push(Step::Run { program: "step".to_string(), microbatch: Some(m), inputs, outputs });
        steps.push(Step::Accumulate { params: trained.to_vec() });
        steps.push(Step::Free { buffers: read });
    }
    let mut read: Vec<(String, Buffer)> =
        SCALARS.iter().map(|s| (s.to_string(), Buffer::Scalar(s.to_string()))).collect();
    let mut made = vec![Buffer::GradNorm];
    for n in trained {
        read.push((format!("g.{n}"), Buffer::Grad(n.clone())));
        let state =
            [Buffer::Master(n.clone()), Buffer::Moment1(n.clone()), Buffer::Moment2(n.clone())];
        for (k, b) in ["w", "m", "v"].iter().zip(state) {
            read.push((format!("{k}.{n}"), b.clone()));
            made.push(b);
        }
    }
    let declared = optimizer.main().map_or(0, |f| f.inputs.len());
    if declared != read.len() {
        bail!("the optimizer takes {declared} inputs, not {}", read.len());
    }
    steps.push(Step::Run {
        program: "optimizer".to_string(),
        microbatch: None,
        inputs: read,
        outputs: made,
    });
    steps.push(Step::Publish { params: trained.to_vec() });
    steps.push(Step::Free { buffers: trained.iter().map(|n| Buffer::Grad(n.clone())).collect() });
    Ok(Schedule { microbatches, ranks: vec![steps] })
}

/// The plan of one rank: one chunk that holds everything.
fn plan(
    forward: &Program,
    joint: &Program,
    parameters: &[artifact::Parameter],
    capacities: &IndexMap<String, u64>,
    r: &CompileRequest<'_>,
) -> Result<Plan> {
    let mut sizes = Sizes::default();
    for (name, v) in capacities {
        sizes.set(&vlmc_ir::dim::Symbol::new(name), usize::try_from(*v).context("capacity")?);
    }
    let main = forward.main().ok_or_else(|| anyhow!("the program is empty"))?;
    let contents = main.nodes.iter().filter_map(|n| match &n.op {
        Op::Call { callee, path, layer, .. } => Some(match layer {
            // `Layer.kind` says the kind of a layer of a stack.
            Some(i) => format!("layer:{i}:{}", callee.rsplit('.').next().unwrap_or(callee)),
            None => path.clone(),
        }),
        _ => None,
    });
    let mut seen: Vec<String> = vec![];
    contents.for_each(|c| {
        if !seen.contains(&c) {
            seen.push(c);
        }
    });
    seen.push("loss".to_string());
    let forward_flops = flops(forward, &sizes);
    let chunk = artifact::Chunk {
        pp: 0,
        vp: 0,
        contents: seen,
        inputs: main
            .inputs
            .iter()
            .filter(|i| i.from.is_some())
            .map(|i| i.name.to_string())
            .collect(),
        params: parameters.iter().map(|p| p.shape.iter().product::<usize>() as u64).sum(),
        flops_fwd: forward_flops,
        flops_bwd: flops(joint, &sizes).saturating_sub(forward_flops),
        ms_fwd: None,
        ms_bwd: None,
    };
    let order = (0..r.microbatches).flat_map(|m| [format!("F{m}.0"), format!("B{m}.0")]);
    Ok(Plan {
        model: forward.name.clone(),
        variant: forward.variant.clone(),
        world_size: 1,
        chunks: vec![chunk],
        schedule: artifact::SchedulePlan {
            kind: "1f1b".to_string(),
            microbatches: r.microbatches,
            group: 1,
            warmup: vec![0],
            bubble_ratio: 0.0,
            in_flight: vec![1],
            ranks: vec![order.collect()],
        },
        ..Plan::default()
    })
}

/// Floating-point operations of a run of main.
fn flops(p: &Program, sizes: &Sizes) -> u64 {
    let mut of: IndexMap<&str, u64> = IndexMap::new();
    for f in &p.functions {
        let mut sum = 0u64;
        for n in &f.nodes {
            if let Op::Call { callee, .. } = &n.op {
                sum = sum.saturating_add(of.get(callee.as_str()).copied().unwrap_or(0));
                continue;
            }
            let operands: Vec<Ty> = n.operands.iter().map(|v| f.ty(*v).clone()).collect();
            let size = n.op.flops(&operands, &n.tys);
            let v = size.eval(&|s| sizes.get(s).and_then(|v| i64::try_from(v).ok()));
            sum = sum.saturating_add(v.and_then(|v| u64::try_from(v).ok()).unwrap_or(0));
        }
        of.insert(&f.name, sum);
    }
    of.values().next_back().copied().unwrap_or(0)
}
