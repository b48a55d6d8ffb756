//! The executor alone: runs artifacts, with no compiler in it.

use clap::Parser;
use std::process::ExitCode;
use vlmc_runtime::options::RunOptions;
use vlmc_runtime::output::say;
use vlmc_runtime::run::run_or_tell;

/// Runs a compiled artifact.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    run: RunOptions,
}

fn main() -> ExitCode {
    match run_or_tell(&Arguments::parse().run) {
        Ok(_) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("error: {:#}", failure.error));
            say(&format!("help: {}", failure.help));
            ExitCode::from(1)
        }
    }
}
