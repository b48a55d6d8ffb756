//! From a spec to an artifact.

pub(crate) mod facts;
mod memory;
mod steps;

pub use facts::{sizes, vocabulary};
pub use memory::{MemoryRefusal, MemoryRequest, bytes};

use crate::fusion::Report;
use crate::layout::Layout;
use crate::phase::{self, Change, Graphs};
use crate::plan::Analysis;
use crate::plan::device::Device;
use anyhow::{Result, anyhow, bail};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use steps::{COUNTS, Steps, optimizer, squares};
use vlmc_artifact as artifact;
use vlmc_artifact::{Artifact, Manifest, PassRecord, ProgramRecord};
use vlmc_frontend::diag::Diags;
use vlmc_frontend::elab::{Library, Setting, Target, lower};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, Output, OutputKind, Program};
use vlmc_ir::text::print;
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::fuse::{self, Fused};
use vlmc_passes::manager::{self, Pass, PassError};
use vlmc_passes::optimizer::{OptimizerParam, optimizer_program, squares_program};
use vlmc_passes::partition::parts::Parts;
use vlmc_passes::partition::placement::{Content, Grid, Model, Placement, Split, place};
use vlmc_passes::partition::{
    AttentionForm, ContextParallel, Cut, Part, Phase, Stages, context_parallel, cut,
};
use vlmc_passes::prune::drop_unused_inputs;
use vlmc_passes::schedule::{Kind, schedule};

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
    /// Microbatches of a step, and how they are spread over ranks.
    pub spread: Spread,
    /// The step runs the fused graph; its numbers are those of the other to the last bit.
    pub fused: bool,
    /// The plan of the spread, where it has been made.
    pub plan: Option<artifact::Plan>,
    /// What fusion may do.
    pub fusing: fuse::Options,
    /// What is recomputed, and the memory there is.
    pub memory: MemoryRequest,
    /// Flags as merged, for the manifest.
    pub flags: IndexMap<String, String>,
}

/// Sizes that buffers are made for; the numbers of a batch may be smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// What a symbol of the host functions counts on one of `cp` ranks.
    fn of(&self, symbol: &str, cp: usize) -> Option<usize> {
        match symbol {
            "tokens" => Some(self.tokens / cp.max(1)),
            "pack" => Some(self.tokens),
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

/// How a step is spread over ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Pipeline ranks and the chunks of each.
    pub grid: Grid,
    /// How layers are divided among them.
    pub split: Split,
    /// The order of chunks and microbatches.
    pub kind: Kind,
    /// Microbatches of a step, per data-parallel rank.
    pub microbatches: u32,
    /// Microbatches that a chunk takes in a row.
    pub group: u32,
    /// Context-parallel ranks.
    pub cp: usize,
    /// How attention sees the rows of other context-parallel ranks.
    pub cp_attention: AttentionForm,
    /// Data-parallel ranks.
    pub dp: usize,
}

impl From<&Layout> for Spread {
    fn from(l: &Layout) -> Spread {
        Spread {
            grid: l.grid,
            split: l.split.clone(),
            kind: l.kind,
            microbatches: l.microbatches,
            group: l.group,
            cp: l.cp as usize,
            cp_attention: AttentionForm::AllGather,
            dp: l.dp as usize,
        }
    }
}

impl Spread {
    /// One rank.
    pub fn one(microbatches: u32) -> Spread {
        let grid = Grid { pp: 1, vpp: 1 };
        Spread {
            grid,
            split: Split::Even { embedding: false, loss: false },
            kind: Kind::default_for(grid),
            microbatches,
            group: 1,
            cp: 1,
            cp_attention: AttentionForm::AllGather,
            dp: 1,
        }
    }

    /// The layout that it is of a model.
    ///
    /// # Errors
    /// When the model's layers do not go where the split says.
    pub fn layout(&self, model: &Model) -> Result<Layout> {
        Ok(Layout {
            grid: self.grid,
            cp: u32::try_from(self.cp)?,
            dp: u32::try_from(self.dp)?,
            ep: 1,
            split: self.split.clone(),
            placement: place(model, self.grid, &self.split)?,
            microbatches: self.microbatches,
            group: self.group,
            kind: self.kind,
            notes: vec![],
        })
    }

    /// The ranks.
    pub fn mesh(&self) -> artifact::Mesh {
        artifact::Mesh { pp: self.grid.pp as usize, cp: self.cp, dp: self.dp }
    }
}

/// A compilation.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The graph of every phase; in the last all but main is in clusters.
    pub graphs: Graphs,
    /// Every cluster, those of main and of the optimizer, too.
    pub report: Report,
    /// What runs, before it is cut into stages: what is recomputed is in it.
    pub recomputed: Program,
    /// How that was chosen, for people.
    pub recompute_note: Option<String>,
    /// Where values are, for each pipeline rank.
    pub memory: Vec<artifact::MemoryPlan>,
    /// The programs of all stages, each function once.
    pub parts: Program,
    /// Every cluster once, those of the optimizer, too: what kernels are made of.
    pub clusters: Program,
    /// What is written.
    pub artifact: Artifact,
}

/// Compiles a model.
///
/// # Errors
/// When the spec is wrong, or a capacity does not fit it.
pub fn compile(lib: &Library, r: &CompileRequest<'_>) -> Result<Compiled, CompileError> {
    Ok(finish(r, advance(forward(lib, r)?, r, phase::Phase::Fused)?)?)
}

/// The first phase: the spec is lowered.
///
/// # Errors
/// When the spec is wrong.
pub fn forward(lib: &Library, r: &CompileRequest<'_>) -> Result<Graphs, CompileError> {
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
    let spec = lib.root.map(|r| lib.sources.text(r).to_string()).unwrap_or_default();
    let forward = phase::as_written(&forward)?;
    Ok(Graphs { spec_hash: spec_hash(lib), spec, forward, ..Graphs::default() })
}

/// Runs what is missing up to a phase.
///
/// # Errors
/// When there is nothing to train, or a capacity does not fit.
pub fn advance(
    mut graphs: Graphs,
    r: &CompileRequest<'_>,
    to: phase::Phase,
) -> Result<Graphs, CompileError> {
    if to >= phase::Phase::Joint && graphs.joint.is_none() {
        let mut trail = Trail::after(&graphs);
        let training = training(&graphs.forward, &r.spread, &mut trail)?;
        let options = Options { seeds: Seeds::Totals, ..Options::default() };
        let differentiated = differentiate(&training, &options).map_err(anyhow::Error::from)?;
        trail.note("autodiff", &training, &differentiated);
        let joint = passes(&differentiated, &mut trail)?;
        graphs.joint = Some(phase::as_written(&joint)?);
        trail.leave(&mut graphs, phase::Phase::Joint);
    }
    if let Some(joint) = &graphs.joint {
        graphs.capacities = facts::capacities(joint, &r.capacity, r.spread.cp)?;
    }
    if let (phase::Phase::Fused, Some(joint), None) = (to, &graphs.joint, &graphs.fused) {
        let mut trail = Trail::after(&graphs);
        let fused = fuse_functions(joint, &r.fusing)?;
        trail.note("fuse", joint, &fused.program);
        let sizes = sizes(&graphs.capacities);
        let report = Report::new(&fused, &sizes, None);
        graphs.fused = Some((phase::as_written(&fused.program)?, report));
        trail.leave(&mut graphs, phase::Phase::Fused);
    }
    Ok(graphs)
}

/// Makes the artifact of graphs that have come to the last phase.
///
/// # Errors
/// When they have not, or something of the request does not fit the model.
pub fn finish(r: &CompileRequest<'_>, mut graphs: Graphs) -> Result<Compiled> {
    let (Some(joint), Some((fused, report))) = (&graphs.joint, &graphs.fused) else {
        bail!("internal error: a phase is missing");
    };
    let forward = &graphs.forward;
    let mut report = report.clone();
    // It was made on the way to the joint graph, and is noted there.
    let training = training(forward, &r.spread, &mut Trail::default())?;
    let mut trail = Trail::after(&graphs);
    let counts = counts(&training, &mut trail)?;
    let parameters = facts::parameters(forward, joint)?;
    let capacities = graphs.capacities.clone();
    let sizes = sizes(&capacities);

    let model = Parts::of(&training).model;
    let placement = place(&model, r.spread.grid, &r.spread.split)?;
    let stages = stages(&model, &placement)?;
    let slots = schedule(r.spread.kind, r.spread.grid, r.spread.microbatches, r.spread.group)?;
    let trained = parameters.iter().filter(|p| p.trained);
    let trained: Vec<String> = trained.map(|p| p.name.clone()).collect();
    let step = if r.fused { fused } else { joint };
    let whole = cut(step, &stages)?;
    let mesh = r.spread.mesh();
    let steps = |cut| Steps { mesh, slots: &slots, cut, counts: &counts, trained: &trained };
    let counted =
        Named::new(COUNTS, "counts of the losses, by which gradients are divided", counts.clone());
    let mut others = vec![counted];
    let mut updates: Vec<Fused> = vec![];
    let std = Library::default().standard();
    for rank in 0..slots.ranks.len() {
        let on = steps(&whole).trained_on(rank);
        let params: Vec<OptimizerParam> = parameters
            .iter()
            .filter(|p| on.contains(&p.name))
            .map(|p| OptimizerParam {
                name: p.name.clone(),
                elements: p.shape.iter().product::<usize>() as i64,
                decay: p.decay,
            })
            .collect();
        let mut library = |name: &str, n: i64| library_function(&std, name, n);
        let squares_of = squares_program(&params, &mut library)?;
        let mut update = optimizer_program(&params, &mut library)?;
        if r.fused {
            let fused = fuse::program(&update, &r.fusing)?;
            update = fused.program.clone();
            updates.push(fused);
        }
        others.push(Named::new(&squares(rank), "squares of gradients", squares_of));
        others.push(Named::new(&optimizer(rank), "clipping and update", update));
    }
    let layout = memory::Layout {
        stages: &stages,
        mesh,
        slots: &slots,
        counts: &counts,
        trained: &trained,
        sizes: &sizes,
        others: others.iter().map(|n| (&*n.record.name, &n.program)).collect(),
    };
    let recomputed = layout.recompute(step, joint, &r.memory)?;
    let mut cut = cut(&recomputed.program, &stages)?;
    if r.fused {
        for part in &mut cut.parts {
            fuse_main(part, &r.fusing, &sizes, &mut report)?;
        }
    }
    let mut programs: Vec<Named> = vec![];
    for part in &cut.parts {
        let purpose = match part.phase {
            Phase::Forward => format!("forward of a microbatch on stage {}", part.stage),
            Phase::Backward => format!("backward of a microbatch on stage {}", part.stage),
        };
        programs.push(Named::new(&part.name(), &purpose, part.program.clone()));
    }
    // Counts come first, updates last.
    let mut others = others.into_iter();
    programs.splice(0..0, others.next());
    programs.extend(others);
    let schedule = steps(&cut).schedule()?;
    let named: Vec<(&str, &Program)> =
        programs.iter().map(|n| (&*n.record.name, &n.program)).collect();
    let planned_memory = memory::plans(&named, &schedule, &sizes)?;
    let clusters = clusters(&cut, &updates);
    // Ranks may update different parameters; one of them is told.
    if let Some(fused) = updates.first() {
        report.append(Report::new(fused, &sizes, Some("opt")));
    }
    let mut plan = match &r.plan {
        Some(plan) => plan.clone(),
        None => {
            let analysis = Analysis::new(
                forward,
                &r.capacity,
                r.dtype,
                Device::usual().map_err(|e| anyhow!(e))?,
            )?;
            analysis.plan(&r.spread.layout(&analysis.model)?)?.plan
        }
    };
    let memory = match planned_memory {
        Some((plans, peaks)) => {
            plan.memory = peaks;
            plans
        }
        None => {
            let message = format!(
                "memory is by formula, and no places are planned: a step has more than {} executions",
                memory::MOST_EXECUTIONS
            );
            plan.diagnostics.push(serde_json::json!({ "severity": "warning", "message": message }));
            vec![]
        }
    };
    plan.recompute = recomputed.rows;
    plan.fusions = report.fusions();
    plan.near_misses.clone_from(&report.near_misses);
    let manifest = Manifest {
        format: artifact::FORMAT,
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
        model: forward.name.clone(),
        variant: forward.variant.clone(),
        spec_hash: graphs.spec_hash.clone(),
        flags: r.flags.clone(),
        targets: vec!["reference".to_string()],
        passes: graphs.passes.iter().map(|(_, p)| p).chain(&trail.records).cloned().collect(),
        programs: programs.iter().map(|p| p.record.clone()).collect(),
        capacities,
        vocabulary: facts::vocabulary(forward),
        dtype: r.dtype.name().to_string(),
        losses: facts::losses(joint),
        parameters,
    };
    let programs =
        programs.into_iter().map(|p| (p.record.name, print::program(&p.program))).collect();
    let artifact = Artifact { manifest, plan, schedule, programs };
    graphs.changes.extend(trail.changes);
    let parts = union(&cut);
    let (recomputed, recompute_note) = (recomputed.program, recomputed.note);
    Ok(Compiled { graphs, report, recomputed, recompute_note, memory, parts, clusters, artifact })
}

/// A program of the artifact.
struct Named {
    record: ProgramRecord,
    program: Program,
}

impl Named {
    fn new(name: &str, purpose: &str, program: Program) -> Named {
        let record = ProgramRecord { name: name.to_string(), purpose: purpose.to_string() };
        Named { record, program }
    }
}

/// Fuses every function but main, which is cut into parts first: a cluster must not span stages.
fn fuse_functions(joint: &Program, options: &fuse::Options) -> Result<Fused> {
    let mut functions = joint.clone();
    let main = functions.functions.pop().ok_or_else(|| anyhow!("the program is empty"))?;
    let mut fused = fuse::program(&functions, options)?;
    fused.program.functions.push(main);
    Ok(fused)
}

/// Fuses the main of a part, and adds what was done to the report.
fn fuse_main(
    part: &mut Part,
    options: &fuse::Options,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<()> {
    let main = part.program.functions.pop().ok_or_else(|| anyhow!("the part is empty"))?;
    let alone = Program { functions: vec![main], ..part.program.clone() };
    let fused = fuse::program(&alone, options)?;
    report.append(Report::new(&fused, sizes, None));
    part.program.functions.extend(fused.program.functions);
    Ok(())
}

/// Every function of all parts once: what dumps show and kernels are made from.
fn union(cut: &Cut) -> Program {
    let mut functions: IndexMap<&str, &Function> = IndexMap::new();
    let (mut mains, mut first) = (vec![], None);
    for part in &cut.parts {
        first = first.or(Some(&part.program));
        if let Some((main, callees)) = part.program.functions.split_last() {
            mains.push(main);
            callees.iter().for_each(|f| {
                functions.entry(&f.name).or_insert(f);
            });
        }
    }
    let functions = functions.into_values().chain(mains).cloned().collect();
    Program { functions, ..first.cloned().unwrap_or_default() }
}

/// Every cluster of all parts and updates once.
fn clusters(cut: &Cut, updates: &[Fused]) -> Program {
    let mut all = union(cut);
    let of = updates.iter().flat_map(|u| &u.program.functions);
    for f in all.functions.split_off(0).iter().chain(of) {
        if f.cluster.is_some() && all.function(&f.name).is_none() {
            all.functions.push(f.clone());
        }
    }
    all
}

/// The stage of every layer.
fn stages(model: &Model, placement: &Placement) -> Result<Stages> {
    let count = placement.chunks.len();
    let of = |c: Content| placement.chunk_of(&c);
    let layers = (0..model.layers.len() as u32).map(|i| {
        of(Content::Layer(i)).ok_or_else(|| anyhow!("internal error: layer {i} is not placed"))
    });
    Ok(Stages {
        count,
        layers: layers.collect::<Result<_>>()?,
        mtp: of(Content::Mtp(0)).unwrap_or(count.saturating_sub(1)),
    })
}

/// Nodes of all functions.
fn ops(p: &Program) -> usize {
    p.functions.iter().map(|f| f.nodes.len()).sum()
}

/// What cleans a program up, before it is differentiated and after.
pub const PASSES: [&str; 4] = ["canon", "cse", "dce", "prune"];

pub(crate) fn passes(p: &Program, trail: &mut Trail) -> Result<Program> {
    let mut program = p.clone();
    for name in PASSES {
        let pass: &Pass = manager::find(name).ok_or_else(|| anyhow!("no pass `{name}`"))?;
        let outcome = manager::run(&program, &[pass])?;
        trail.note(name, &program, &outcome.program);
        program = outcome.program;
    }
    Ok(program)
}

/// Passes that ran one after another, and what they changed.
#[derive(Default)]
pub(crate) struct Trail {
    /// Passes that ran before.
    before: usize,
    records: Vec<PassRecord>,
    changes: Vec<Change>,
}

impl Trail {
    fn after(graphs: &Graphs) -> Trail {
        Trail { before: graphs.passes.len(), ..Trail::default() }
    }

    fn note(&mut self, name: &str, before: &Program, after: &Program) {
        let changed = before != after;
        self.records.push(PassRecord {
            name: name.to_string(),
            changed,
            ops_before: ops(before),
            ops_after: ops(after),
        });
        if changed {
            self.changes.push(Change {
                number: self.before + self.records.len(),
                name: name.to_string(),
                before: before.clone(),
                after: after.clone(),
            });
        }
    }

    fn leave(self, graphs: &mut Graphs, phase: phase::Phase) {
        graphs.passes.extend(self.records.into_iter().map(|r| (phase, r)));
        graphs.changes.extend(self.changes);
    }
}

/// The losses alone, in normal form: what is differentiated.
fn training(forward: &Program, spread: &Spread, trail: &mut Trail) -> Result<Program> {
    let mut training = forward.clone();
    only_losses(&mut training)?;
    let training = passes(&training, trail)?;
    if spread.cp <= 1 {
        return Ok(training);
    }
    let options = ContextParallel {
        ranks: u32::try_from(spread.cp)?,
        rows: facts::rows_symbol(&training)?,
        attention: spread.cp_attention,
    };
    let lowered = context_parallel(&training, &options)?;
    trail.note("context-parallel", &training, &lowered);
    let mut lowered = passes(&lowered, trail)?;
    drop_unused_inputs(&mut lowered);
    Ok(lowered)
}

fn main_of(p: &mut Program) -> Result<&mut Function> {
    p.functions.last_mut().ok_or_else(|| anyhow!("the program is empty"))
}

/// Training drops what is no loss.
pub(crate) fn only_losses(p: &mut Program) -> Result<()> {
    let main = main_of(p)?;
    main.outputs.retain(|o| matches!(o.kind, OutputKind::Loss { .. }));
    if main.outputs.is_empty() {
        bail!("the model has no loss, so there is nothing to train");
    }
    Ok(())
}

/// A program of the losses' counts alone.
fn counts(training: &Program, trail: &mut Trail) -> Result<Program> {
    let mut p = training.clone();
    let main = main_of(&mut p)?;
    let counts = main.outputs.iter().filter_map(|o| match &o.kind {
        OutputKind::Loss { count, .. } => {
            Some(Output { name: o.name.clone(), value: *count, kind: OutputKind::Value })
        }
        _ => None,
    });
    main.outputs = counts.collect();
    let mut p = passes(&p, trail)?;
    drop_unused_inputs(&mut p);
    Ok(p)
}

/// A function of the standard library on vectors of `n` elements, lowered.
fn library_function(std: &Library, name: &str, n: i64) -> Result<Function, PassError> {
    let shapes: Vec<(String, Vec<usize>)> =
        ["w", "g", "m", "v"].iter().map(|a| (a.to_string(), vec![n as usize])).collect();
    let target = Target {
        function: Some(name),
        args: &[],
        variant: None,
        settings: &[],
        shapes: &shapes,
        dtype: DType::F32,
    };
    let lowered = lower(std, &target);
    let program = lowered
        .program
        .ok_or_else(|| PassError::new(format!("the standard library's `{name}` does not lower")))?;
    program
        .functions
        .into_iter()
        .next_back()
        .ok_or_else(|| PassError::new(format!("the standard library's `{name}` is empty")))
}

fn spec_hash(lib: &Library) -> String {
    let mut h = Sha256::new();
    for id in lib.sources.ids() {
        h.update(lib.sources.text(id).as_bytes());
        h.update([0]);
    }
    h.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
