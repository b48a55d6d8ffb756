//! Runs golden reference cases through the product's own path and compares every tensor.

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use vlmc::eval::Precision;
use vlmc_frontend::diag::render::{Format, all};
use vlmc_frontend::elab::Library;
use vlmc_parity::{case, compare, kinds};
use vlmc_passes::recompute::Mode;
use vlmc_training_tests::layout;

/// Functions that stand for kinds of cases that are no module by themselves.
const GOLDEN: &str = include_str!("../specs/golden.vlm");

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    F32,
    Bf16,
    F64,
}

/// Compares what the product computes with reference cases.
#[derive(Parser)]
struct Args {
    /// Cases, or folders of cases.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Model dtype.
    #[arg(long, value_enum, default_value = "f32")]
    dtype: Dtype,
    /// Fuse programs and run their clusters by kernels generated for this machine; in f64 by the
    /// reference
    #[arg(long)]
    fused: bool,
    /// Spread the trainings of whole models over ranks: `pp=2,vpp=2,cp=2,dp=2`, with
    /// `schedule=NAME` and `layout=LETTERS` where they are not the defaults.
    #[arg(long, default_value = "")]
    layout: String,
    /// What trainings of whole models make again instead of keeping it, as for `vlmc compile`
    #[arg(long, default_value = "none")]
    recompute: Mode,
    /// Print every tensor, not only those that fail.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let precision = match args.dtype {
        Dtype::F32 => Precision::F32,
        Dtype::Bf16 => Precision::Bf16,
        Dtype::F64 => Precision::F64,
    };
    let spread = layout::parse(&args.layout)?;
    let specs = kinds::Specs {
        ops: load("golden.vlm", GOLDEN)?,
        model: {
            let (lib, diags) = vlmc::spec::load("qwen3_5_vl.vlm")?;
            checked(lib, diags)?
        },
        recompute: args.recompute.clone(),
    };
    let (mut passed, mut failed) = (0, 0);
    for path in case::find(&args.paths)? {
        let case = case::Case::open(&path)?;
        let rows = match kinds::run_case(&specs, &case, precision, args.fused, &spread) {
            Ok(rows) => rows,
            Err(e) => {
                println!("{:32} {e:#}", case.name);
                failed += 1;
                continue;
            }
        };
        for r in rows.iter().filter(|r| args.verbose || !r.passed()) {
            let mark = if r.passed() { "ok" } else { "FAILED" };
            println!("{:32} {:40} {:9.2e} {:9.2e} {mark}", case.name, r.name, r.error, r.tolerance);
        }
        if rows.is_empty() {
            bail!("{}: nothing was compared", case.name);
        }
        if rows.iter().all(compare::Row::passed) {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}

fn load(name: &str, text: &str) -> Result<Library> {
    let reader = vlmc::spec::FileReader::embedded();
    let (lib, diags) = Library::load(name, text.as_bytes().to_vec(), &reader);
    checked(lib, diags)
}

fn checked(lib: Library, diags: vlmc_frontend::diag::Diags) -> Result<Library> {
    if diags.has_errors() {
        bail!("{}", all(&diags, &lib.sources, Format::Human { color: false }));
    }
    Ok(lib)
}
