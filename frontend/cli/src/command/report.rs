//! `vlmc report`

use crate::Context;
use crate::ui::{Done, at_flag, file_error};
use std::path::Path;
use vlmc_artifact::Plan;
use vlmc_frontend::diag::Code;

/// What to draw.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A folder with a plan.json: an artifact, or what `vlmc plan -o` wrote
    #[arg(value_name = "DIR")]
    folder: String,
}

/// Runs it.
pub fn run(c: &Context, args: &Args) -> Done {
    let folder = Path::new(&args.folder);
    let path = folder.join("plan.json");
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(&path)
        .map_err(|e| c.ui.fail(file_error("read", "", &shown, &e)))?;
    let plan: Plan = serde_json::from_str(&text).map_err(|e| {
        let message = format!("`{shown}` is no plan: {e}");
        let diag = at_flag(Code::BadInput, message, "", &args.folder, "this folder");
        c.ui.fail(diag.help("compile again, or write one with `vlmc plan -o DIR`"))
    })?;
    write(c, folder, &plan)
}

/// Draws a plan into a folder and names the page.
pub fn write(c: &Context, folder: &Path, plan: &Plan) -> Done {
    c.ui.note(&format!("report  {}", draw(c, folder, plan)?));
    Ok(())
}

/// Draws a plan into a folder; gives the name of the page.
pub fn draw(c: &Context, folder: &Path, plan: &Plan) -> Done<String> {
    let page = vlmc::report::write(folder, plan)
        .map_err(|e| c.ui.fail(file_error("write", "", &folder.display().to_string(), &e)))?;
    Ok(page.display().to_string())
}
