//! `vlmc run`

use crate::Context;
use crate::ui::Done;
use vlmc_frontend::diag::{Code, Diag};
use vlmc_runtime::options::RunOptions;

/// Runs it.
pub fn run(c: &Context, options: &RunOptions) -> Done {
    vlmc_runtime::run::run_or_tell(options).map(drop).map_err(|failure| {
        let diag = Diag::error(Code::RunFailed, format!("{:#}", failure.error));
        c.ui.fail(diag.help(failure.help))
    })
}
