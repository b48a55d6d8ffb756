//! `vlmc completions`

use crate::ui::{Done, put};
use clap_complete::Shell;

/// For which shell.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs it.
pub fn run(args: &Args, command: &mut clap::Command) -> Done {
    let mut bytes = vec![];
    clap_complete::generate(args.shell, command, "vlmc", &mut bytes);
    put(&String::from_utf8_lossy(&bytes))
}
