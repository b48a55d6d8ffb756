//! `vlmc compile`

use super::SpecArgs;
use super::fusing::FusingArgs;
use super::layout::{LayoutArgs, Rows, capacity};
use super::memory::{MemoryArgs, refused};
use crate::Context;
use crate::ui::{Done, Stop, at_flag};
use clap::ValueEnum;
use indexmap::IndexMap;
use std::path::Path;
use vlmc::compile::{CompileError, CompileRequest, Compiled, Spread, advance, finish, forward};
use vlmc::layout::{Facts, Layout, choose};
use vlmc::phase::{self, Graphs, Phase, Settings};
use vlmc::plan::device::Device;
use vlmc::plan::{Analysis, auto};
use vlmc_artifact::Plan;
use vlmc_frontend::diag::{Code, Diag};
use vlmc_frontend::elab;
use vlmc_ir::ty::DType;

/// What to compile.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Writes an artifact, which `vlmc run` or `vlmc-run` executes, and beside it \
                        the graph of each phase as text."
)]
pub struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    layout: LayoutArgs,
    #[command(flatten)]
    fusing: FusingArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Model dtype [default: `dtype` of the settings, f32]
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// Generate kernels for these: sm_90a, sm_90, sm_80, sm_100, host; the step then runs the fused
    /// graph [default: no kernels]
    #[arg(long, value_name = "TARGET", value_delimiter = ',')]
    target: Vec<String>,
    /// Stop after this phase, and write what `--from` continues from [default: the last]
    #[arg(long, value_enum, value_name = "PHASE")]
    to: Option<Phase>,
    /// Continue from a phase's graph and the settings beside it, as in `--from DIR/30-fused.vir`
    /// [default: the spec]
    #[arg(long, value_name = "FILE.vir", conflicts_with_all = ["spec", "variant", "set", "dtype"])]
    from: Option<String>,
    /// Write the artifact here
    #[arg(short, long, value_name = "DIR")]
    output: String,
}

/// The model dtype.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Dtype {
    Bf16,
    F32,
}

/// Runs it.
pub fn run(c: &mut Context, args: Args) -> Done {
    let started = std::time::Instant::now();
    let earlier = match &args.from {
        Some(file) => Some(resume(c, &args, file)?),
        None => None,
    };
    let chosen = match &earlier {
        Some(_) => None,
        None => Some(args.spec.choose(c)?),
    };
    args.layout.merge(&mut c.merged);
    let rows = capacity(c).map_err(|bad| c.ui.fail_all(bad))?;
    let fusing = args.fusing.choose(c)?;
    let memory = args.memory.choose(c)?;
    if let Some(dtype) = args.dtype {
        let source = vlmc::settings::Source::Flag("--dtype".into());
        c.merged.set("dtype", format!("{dtype:?}").to_lowercase(), source);
    }
    let dtype = match super::choice::<Dtype>(&c.merged, "dtype").map_err(|d| c.ui.fail(*d))? {
        Dtype::Bf16 => DType::Bf16,
        Dtype::F32 => DType::F32,
    };
    let flags = flags(c);
    let mut request = CompileRequest {
        variant: chosen.as_ref().and_then(|s| s.variant.as_deref()),
        settings: chosen.as_ref().map(|s| s.settings.clone()).unwrap_or_default(),
        dtype,
        capacity: rows.of,
        // Until the model is known.
        spread: Spread::one(1),
        plan: None,
        fused: !args.target.is_empty(),
        fusing,
        memory,
        flags: flags.clone(),
    };
    let start = match (earlier, &chosen) {
        (Some(graphs), _) => graphs,
        (None, Some(chosen)) => {
            let lib = super::load_good(c, &chosen.spec)?;
            // Errors without a variant are the same and better told: they name sizes, not numbers.
            c.ui.report(&elab::check(&lib), &lib.sources)?;
            forward(&lib, &request).map_err(|e| failed(c, e, Some(&lib)))?
        }
        (None, None) => Graphs::default(),
    };
    let planned = plan(c, &start, &rows, dtype)?;
    request.spread = Spread::from(&planned.0);
    request.plan = Some(planned.1);
    let directory = Path::new(&args.output);
    let to = args.to.unwrap_or(Phase::Fused);
    let graphs = advance(start, &request, to).map_err(|e| failed(c, e, None))?;
    if args.to.is_some() {
        write(c, directory, &graphs, flags, None, &IndexMap::new())?;
        c.ui.note(&format!("{} in {}", to.file(), directory.display()));
        return Ok(());
    }
    let mut compiled = finish(&request, graphs).map_err(|e| match e.downcast_ref() {
        Some(refusal) => c.ui.fail(refused(refusal, &request.memory)),
        None => failed(c, e.into(), None),
    })?;
    let kernels = kernels(c, &mut compiled, &args.target)?;
    compiled.artifact.write(directory).map_err(|e| {
        c.ui.fail(
            Diag::error(Code::FileAccess, format!("cannot write the artifact: {e}"))
                .help("choose another folder with `-o`"),
        )
    })?;
    kernels.write(c, directory)?;
    write(c, directory, &compiled.graphs, flags, Some(&compiled), &kernels.notes())?;
    let page = super::report::draw(c, directory, &compiled.artifact.plan)?;
    super::memory::write(c, directory, &compiled)?;
    if let Some(note) = &compiled.recompute_note {
        c.ui.note(&format!("recompute   {}", note.replace('\n', "\n            ")));
    }
    c.ui.note(&banner(&compiled, directory, started.elapsed().as_secs_f64()));
    c.ui.note(&format!("report      {page}"));
    Ok(())
}

/// The layout that the settings ask for, checked against the model, and its plan.
fn plan(c: &Context, start: &Graphs, rows: &Rows, dtype: DType) -> Done<(Layout, Plan)> {
    let cannot = |e: anyhow::Error| failed(c, CompileError::Other(e), None);
    let device = Device::usual().map_err(|e| cannot(anyhow::anyhow!(e)))?;
    let analysis = Analysis::new(&start.forward, &rows.of, dtype, device).map_err(cannot)?;
    let facts = Facts {
        model: &analysis.model,
        rows: rows.divided as u64,
        experts: &analysis.costs.experts,
        auto: &|layout| auto::shares(&analysis, layout),
    };
    let layout = choose(&c.merged, &facts).map_err(|bad| c.ui.fail_all(bad))?;
    let later = |flag: &str, value: &str, why: &str| {
        let message = format!("`{flag} {value}` {why}; it can be planned, not compiled yet");
        let diag = at_flag(Code::NotYet, message, flag, value, "set here");
        c.ui.fail(diag.help(format!("plan it with `vlmc plan`, or leave `{flag}` out")))
    };
    if layout.ep > 1 {
        return Err(later("--ep", &layout.ep.to_string(), "divides experts over ranks"));
    }
    if layout.kind.splits_backward() {
        let why = "takes the gradients of weights out of the backward";
        return Err(later("--schedule", layout.kind.name(), why));
    }
    let planned = analysis.plan(&layout).map_err(cannot)?;
    layout.notes.iter().for_each(|note| c.ui.note(note));
    Ok((layout, planned.plan))
}

/// The graphs that an earlier compilation left, with its settings merged.
fn resume(c: &mut Context, args: &Args, file: &str) -> Done<Graphs> {
    let (phase, graphs, settings) = phase::read(Path::new(file)).map_err(|e| {
        let diag = at_flag(Code::BadGraphText, format!("{e:#}"), "--from", file, "read from here");
        c.ui.fail(diag.help("`vlmc compile SPEC --to PHASE -o DIR` writes what `--from` reads"))
    })?;
    if args.to.is_some_and(|to| to < phase) {
        let message = format!("{file} is past the phase to stop after");
        let diag = at_flag(Code::BadSetting, message, "--from", file, "from here");
        return Err(c.ui.fail(diag.help("leave `--to` out, or give a later phase")));
    }
    if phase == Phase::Fused && args.fusing.any() {
        let message = "this graph is fused already";
        let diag = at_flag(Code::BadSetting, message, "--from", file, "from here");
        let help = format!("give {} to fuse in another way", Phase::Joint.file());
        return Err(c.ui.fail(diag.help(help)));
    }
    // Settings of the folder and the environment are those of another compilation.
    c.merged.values.retain(|k, _| !shapes(k));
    for (key, value) in settings.flags {
        c.merged.set(&key, value, vlmc::settings::Source::Flag("--from".into()));
    }
    Ok(graphs)
}

fn failed(c: &Context, e: CompileError, lib: Option<&elab::Library>) -> Stop {
    match (e, lib) {
        (CompileError::Spec(diags), Some(lib)) => match c.ui.report(&diags, &lib.sources) {
            Err(stop) => stop,
            Ok(()) => Stop::Told,
        },
        (CompileError::Spec(_), None) => Stop::Told,
        (CompileError::Other(e), _) => c.ui.fail(
            Diag::error(Code::CannotCompile, format!("{e:#}")).help("see `vlmc explain V0404`"),
        ),
    }
}

fn write(
    c: &Context,
    directory: &Path,
    graphs: &Graphs,
    flags: IndexMap<String, String>,
    compiled: Option<&Compiled>,
    notes: &IndexMap<String, Vec<String>>,
) -> Done {
    let compiled = compiled.map(|c| (&c.report, &c.parts));
    graphs.write(directory, &Settings::of(graphs, flags), compiled, notes).map_err(|e| {
        c.ui.fail(
            Diag::error(Code::FileAccess, format!("cannot write the graphs: {e:#}"))
                .help("choose another folder with `-o`"),
        )
    })
}

/// Kernels to write.
#[cfg(feature = "codegen")]
struct Kernels(Option<vlmc_codegen::build::Built>);

#[cfg(feature = "codegen")]
fn kernels(c: &Context, compiled: &mut Compiled, targets: &[String]) -> Result<Kernels, Stop> {
    let mut parsed = vec![];
    for t in targets {
        let target: vlmc::kernels::Target = t
            .parse()
            .map_err(|e| c.ui.fail(Diag::error(Code::BadSetting, format!("`--target`: {e}"))))?;
        if !parsed.contains(&target) {
            parsed.push(target);
        }
    }
    if parsed.is_empty() {
        return Ok(Kernels(None));
    }
    let cache = vlmc::kernels::cache();
    let built = vlmc::kernels::make(compiled, &parsed, cache.as_deref()).map_err(|e| {
        c.ui.fail(
            Diag::error(Code::CannotCompile, format!("{e:#}")).help("see `vlmc explain V0404`"),
        )
    })?;
    Ok(Kernels(Some(built)))
}

#[cfg(feature = "codegen")]
impl Kernels {
    fn notes(&self) -> IndexMap<String, Vec<String>> {
        self.0.as_ref().map(vlmc::kernels::notes).unwrap_or_default()
    }

    fn write(&self, c: &Context, directory: &Path) -> Done {
        let done = match &self.0 {
            Some(built) => vlmc::kernels::write(built, directory),
            None => vlmc::kernels::clear(directory),
        };
        done.map_err(|e| {
            c.ui.fail(
                Diag::error(Code::FileAccess, format!("cannot write the kernels: {e:#}"))
                    .help("choose another folder with `-o`"),
            )
        })
    }
}

/// No kernels: this build has no code generation.
#[cfg(not(feature = "codegen"))]
struct Kernels;

#[cfg(not(feature = "codegen"))]
fn kernels(c: &Context, _: &mut Compiled, targets: &[String]) -> Result<Kernels, Stop> {
    if targets.is_empty() {
        return Ok(Kernels);
    }
    Err(c.ui.fail(Diag::error(
        Code::CannotCompile,
        "this vlmc was built without code generation (`--no-default-features`)",
    )))
}

#[cfg(not(feature = "codegen"))]
impl Kernels {
    fn notes(&self) -> IndexMap<String, Vec<String>> {
        IndexMap::new()
    }

    fn write(&self, _: &Context, _: &Path) -> Done {
        Ok(())
    }
}

/// Whether a setting shapes the artifact.
fn shapes(key: &str) -> bool {
    ["spec", "variant", "dtype"].contains(&key)
        || key.starts_with("layout.")
        || key.starts_with("set.")
}

/// Settings that shape the artifact, sorted.
fn flags(c: &Context) -> IndexMap<String, String> {
    let mut flags: IndexMap<String, String> = c
        .merged
        .values
        .iter()
        .filter(|(k, _)| shapes(k))
        .map(|(k, (v, _))| (k.clone(), v.clone()))
        .collect();
    flags.sort_keys();
    flags
}

fn banner(compiled: &Compiled, directory: &Path, seconds: f64) -> String {
    let m = &compiled.artifact.manifest;
    let parameters: u64 =
        m.parameters.iter().map(|p| p.shape.iter().map(|d| *d as u64).product::<u64>()).sum();
    let trained = m.parameters.iter().filter(|p| p.trained).count();
    let capacities: Vec<String> = m.capacities.iter().map(|(k, v)| format!("{k} {v}")).collect();
    let losses: Vec<String> =
        m.losses.iter().map(|l| format!("{} x {}", l.name, l.weight)).collect();
    format!(
        "{} {}  {}  {}\n\
         parameters  {} in {} tensors, {trained} of them trained\n\
         capacities  {}\n\
         losses      {}\n\
         compiled in {seconds:.2} s: {}",
        m.model,
        m.variant,
        m.dtype,
        spread(&compiled.artifact.plan),
        crate::ui::thousands(i64::try_from(parameters).unwrap_or(i64::MAX)),
        m.parameters.len(),
        capacities.join("  "),
        losses.join("  "),
        directory.display(),
    )
}

/// The ranks and how they run, in short.
fn spread(plan: &Plan) -> String {
    let l = &plan.layout;
    let ranks = if plan.world_size == 1 {
        "1 rank".to_string()
    } else {
        let axes = [("pp", l.pp), ("vpp", l.vpp), ("cp", l.cp), ("dp", l.dp)];
        let axes: Vec<String> =
            axes.iter().filter(|(_, n)| *n > 1).map(|(a, n)| format!("{a} {n}")).collect();
        format!("{} ranks ({}, {})", plan.world_size, axes.join(" "), plan.schedule.kind)
    };
    format!("{ranks}  {} microbatches", plan.schedule.microbatches)
}
