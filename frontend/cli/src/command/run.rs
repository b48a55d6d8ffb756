//! `vlmc run`

use crate::Context;
use crate::ui::Done;
use vlmc_frontend::diag::{Code, Diag};
use vlmc_runtime::options::RunOptions;

/// Runs it.
pub fn run(c: &Context, options: &RunOptions) -> Done {
    match vlmc_runtime::run::run(options) {
        Ok(_) => Ok(()),
        Err(e) => Err(c.ui.fail(
            Diag::error(Code::RunFailed, format!("{e:#}"))
                .help("what was saved before is whole; `--resume` goes on from there"),
        )),
    }
}
