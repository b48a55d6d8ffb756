//! `vlmc compile`

use super::SpecArgs;
use super::fusing::FusingArgs;
use super::layout::LayoutArgs;
use crate::Context;
use crate::ui::{Done, file_error};
use clap::ValueEnum;
use indexmap::IndexMap;
use std::path::Path;
use vlmc::compile::{CompileError, CompileRequest, Compiled, Spread, compile};
use vlmc_frontend::diag::{Code, Diag};
use vlmc_frontend::elab;
use vlmc_ir::text::print;
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
    /// Model dtype [default: `dtype` of the settings, f32]
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// Generate kernels for these: sm_90a, sm_90, sm_80, sm_100, host; the step then runs the fused
    /// graph [default: no kernels]
    #[arg(long, value_name = "TARGET", value_delimiter = ',')]
    target: Vec<String>,
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
    let chosen = args.spec.choose(c)?;
    let (capacity, microbatches) = args.layout.choose(c)?;
    let fusing = args.fusing.choose(c)?;
    if let Some(dtype) = args.dtype {
        let source = vlmc::settings::Source::Flag("--dtype".into());
        c.merged.set("dtype", format!("{dtype:?}").to_lowercase(), source);
    }
    let dtype = match super::choice::<Dtype>(&c.merged, "dtype").map_err(|d| c.ui.fail(*d))? {
        Dtype::Bf16 => DType::Bf16,
        Dtype::F32 => DType::F32,
    };
    let lib = super::load_good(c, &chosen.spec)?;
    // Errors without a variant are the same and better told: they name sizes, not numbers.
    c.ui.report(&elab::check(&lib), &lib.sources)?;
    let request = CompileRequest {
        variant: chosen.variant.as_deref(),
        settings: chosen.settings.clone(),
        dtype,
        capacity,
        spread: Spread::one(u32::try_from(microbatches).unwrap_or(u32::MAX)),
        fused: !args.target.is_empty(),
        fusing,
        flags: flags(c),
    };
    let mut compiled = compile(&lib, &request).map_err(|e| match e {
        CompileError::Spec(diags) => match c.ui.report(&diags, &lib.sources) {
            Err(stop) => stop,
            Ok(()) => crate::ui::Stop::Told,
        },
        CompileError::Other(e) => c.ui.fail(
            Diag::error(Code::CannotCompile, format!("{e:#}")).help("see `vlmc explain V0404`"),
        ),
    })?;
    let directory = Path::new(&args.output);
    let kernels = kernels(c, &mut compiled, &args.target)?;
    compiled.artifact.write(directory).map_err(|e| {
        c.ui.fail(
            Diag::error(Code::FileAccess, format!("cannot write the artifact: {e}"))
                .help("choose another folder with `-o`"),
        )
    })?;
    kernels.write(c, directory)?;
    dump(c, &compiled, &lib, directory)?;
    c.ui.note(&banner(&compiled, directory, started.elapsed().as_secs_f64()));
    Ok(())
}

/// Kernels to write.
#[cfg(feature = "codegen")]
struct Kernels(Option<vlmc_codegen::build::Built>);

#[cfg(feature = "codegen")]
fn kernels(
    c: &Context,
    compiled: &mut Compiled,
    targets: &[String],
) -> Result<Kernels, crate::ui::Stop> {
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
fn kernels(c: &Context, _: &mut Compiled, targets: &[String]) -> Result<Kernels, crate::ui::Stop> {
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
    fn write(&self, _: &Context, _: &Path) -> Done {
        Ok(())
    }
}

/// Settings that shape the artifact, sorted.
fn flags(c: &Context) -> IndexMap<String, String> {
    let shapes = |k: &str| {
        ["spec", "variant", "dtype"].contains(&k)
            || k.starts_with("layout.")
            || k.starts_with("set.")
    };
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

/// The graph of each phase, in files whose names sort in the order of the phases.
fn dump(c: &Context, compiled: &Compiled, lib: &elab::Library, directory: &Path) -> Done {
    let spec = lib.root.map(|r| lib.sources.text(r).to_string()).unwrap_or_default();
    for (name, text) in [
        ("00-spec.vlm", spec),
        ("10-forward.vir", print::program(&compiled.forward)),
        ("20-joint.vir", print::program(&compiled.joint)),
        ("30-fused.vir", print::program(&compiled.fused.program)),
        ("50-partitioned.vir", print::program(&compiled.parts)),
        ("fusion.txt", vlmc::fusion::text(&compiled.fused)),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|e| c.ui.fail(file_error("write", "-o", &path.display().to_string(), &e)))?;
    }
    Ok(())
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
        "{} {}  {}  1 rank  {} microbatches\n\
         parameters  {} in {} tensors, {trained} of them trained\n\
         capacities  {}\n\
         losses      {}\n\
         compiled in {seconds:.2} s: {}",
        m.model,
        m.variant,
        m.dtype,
        compiled.artifact.schedule.microbatches,
        crate::ui::thousands(i64::try_from(parameters).unwrap_or(i64::MAX)),
        m.parameters.len(),
        capacities.join("  "),
        losses.join("  "),
        directory.display(),
    )
}
