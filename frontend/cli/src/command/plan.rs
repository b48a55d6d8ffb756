//! `vlmc plan`

use super::SpecArgs;
use super::layout::{LayoutArgs, capacity};
use crate::Context;
use crate::ui::{Done, Stop, at_flag, file_error};
use std::path::Path;
use vlmc::layout::{Facts, Layout, choose};
use vlmc::plan::device::Device;
use vlmc::plan::{Analysis, Planned, auto, text};
use vlmc_frontend::diag::{Code, Diag};
use vlmc_frontend::elab::{self, Target, lower};
use vlmc_ir::ty::DType;

/// What to plan.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Nothing is compiled or run. Times are those of a cost model with the device's \
                        figures; `vlmc explain` has a page for every refusal."
)]
pub struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    layout: LayoutArgs,
    /// Model dtype: bf16 or f32 [default: bf16]
    #[arg(long)]
    dtype: Option<String>,
    /// Figures of the device, a file such as the one that comes along [default: H200]
    #[arg(long, value_name = "FILE")]
    device: Option<String>,
    /// The plan as JSON, as in plan.json [default: off]
    #[arg(long)]
    json: bool,
    /// Write plan.json, report.html and the schedule's pictures here, too [default: nowhere]
    #[arg(short, long, value_name = "DIR")]
    output: Option<String>,
}

/// Runs it.
pub fn run(c: &mut Context, args: &Args) -> Done {
    let chosen = args.spec.choose(c)?;
    args.layout.merge(&mut c.merged);
    let rows = capacity(c).map_err(|bad| c.ui.fail_all(bad))?;
    let dtype = dtype(c, args.dtype.as_deref())?;
    let device = device(c, args.device.as_deref())?;
    let lib = super::load_good(c, &chosen.spec)?;
    c.ui.report(&elab::check(&lib), &lib.sources)?;
    let lowered = lower(
        &lib,
        &Target {
            function: None,
            args: &[],
            variant: chosen.variant.as_deref(),
            settings: &chosen.settings,
            shapes: &[],
            dtype,
        },
    );
    c.ui.report(&lowered.diags, &lib.sources)?;
    let Some(forward) = lowered.program else { return Err(Stop::Told) };
    let cannot = |e: anyhow::Error| {
        c.ui.fail(
            Diag::error(Code::CannotCompile, format!("{e:#}")).help("see `vlmc explain V0404`"),
        )
    };
    let analysis = Analysis::new(&forward, &rows.of, dtype, device).map_err(cannot)?;
    let facts = Facts {
        model: &analysis.model,
        rows: rows.divided as u64,
        experts: &analysis.costs.experts,
        auto: &|layout| auto::shares(&analysis, layout),
    };
    let layout = choose(&c.merged, &facts).map_err(|bad| c.ui.fail_all(bad))?;
    let planned = analysis.plan(&layout).map_err(cannot)?;
    show(&analysis, &planned, &layout, args.json)?;
    match &args.output {
        Some(folder) => save(c, Path::new(folder), &planned),
        None => Ok(()),
    }
}

fn save(c: &Context, folder: &Path, planned: &Planned) -> Done {
    let path = folder.join("plan.json");
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, json(planned)))
        .map_err(|e| c.ui.fail(file_error("write", "-o", &path.display().to_string(), &e)));
    written?;
    super::report::write(c, folder, &planned.plan)
}

fn json(planned: &Planned) -> String {
    serde_json::to_string_pretty(&planned.plan).unwrap_or_default() + "\n"
}

fn show(analysis: &Analysis, planned: &Planned, layout: &Layout, as_json: bool) -> Done {
    if as_json {
        return crate::ui::put(&json(planned));
    }
    crate::ui::put(&text::text(planned, layout, &analysis.device.name, analysis.rows))
}

/// The model dtype: what is named here, or in a file or variable, else bf16, in which models train.
fn dtype(c: &Context, flag: Option<&str>) -> Done<DType> {
    let set = c.merged.values.get("dtype");
    let named = set.filter(|(_, s)| *s != vlmc::settings::Source::Default).map(|(v, _)| v.as_str());
    match flag.or(named).unwrap_or("bf16") {
        "bf16" => Ok(DType::Bf16),
        "f32" => Ok(DType::F32),
        other => {
            let message = format!("`{other}` is no model dtype");
            let diag = at_flag(Code::BadSetting, message, "--dtype", other, "set here");
            Err(c.ui.fail(diag.help("write bf16 or f32")))
        }
    }
}

fn device(c: &Context, path: Option<&str>) -> Done<Device> {
    let read = path.map_or_else(Device::usual, |p| Device::read(Path::new(p)));
    read.map_err(|e| {
        let shown = path.unwrap_or_default();
        let diag =
            at_flag(Code::FileAccess, format!("no figures: {e}"), "--device", shown, "this file");
        c.ui.fail(diag.help("copy `frontend/cli/src/plan/h200.toml` and change its figures"))
    })
}
