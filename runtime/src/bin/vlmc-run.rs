//! The executor alone: runs artifacts, with no compiler in it.

use clap::Parser;
use std::process::ExitCode;
use vlmc_runtime::options::RunOptions;
use vlmc_runtime::run::run;

/// Runs a compiled artifact.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    run: RunOptions,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().run) {
        Ok(_) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(1)
        }
    }
}
