//! The executor alone: runs artifacts, with no compiler in it.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use vlmc_runtime::bench::bench_or_tell;
use vlmc_runtime::options::{BenchOptions, RunOptions};
use vlmc_runtime::output::say;
use vlmc_runtime::run::run_or_tell;

/// Runs a compiled artifact, or measures its kernels.
///
/// An artifact in a folder with the name of a command is given with its path, as in `./bench`.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(flatten)]
    run: Option<RunOptions>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Bench(BenchOptions),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match (&arguments.command, &arguments.run) {
        (Some(Command::Bench(options)), _) => bench_or_tell(options),
        (None, Some(options)) => run_or_tell(options).map(drop),
        // The parser asks for one of the two.
        (None, None) => return ExitCode::from(2),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("error: {:#}", failure.error));
            say(&format!("help: {}", failure.help));
            ExitCode::from(1)
        }
    }
}
