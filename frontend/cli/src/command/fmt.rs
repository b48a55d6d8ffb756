//! `vlmc fmt`

use crate::Context;
use crate::ui::{Done, Stop, put};
use similar::TextDiff;
use vlmc_frontend::diag::Diags;
use vlmc_frontend::fmt;
use vlmc_frontend::source::Sources;

/// What to format.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Change nothing; show what would change, and end with 1 if something would [default: off]
    #[arg(long)]
    check: bool,
    /// Files to rewrite in place; `-` reads standard input and writes standard output
    #[arg(required = true, value_name = "SPEC")]
    specs: Vec<String>,
}

/// Runs it. Every file is looked at, whatever is wrong in those before.
pub fn run(c: &Context, args: &Args) -> Done {
    let mut good = true;
    for path in &args.specs {
        match one(c, path, args.check) {
            Ok(true) => {}
            Ok(false) | Err(Stop::Told) => good = false,
            Err(Stop::Pipe) => return Err(Stop::Pipe),
        }
    }
    if good { Ok(()) } else { Err(Stop::Told) }
}

/// Formats one file; false when `--check` finds it out of style.
fn one(c: &Context, path: &str, check: bool) -> Done<bool> {
    let bytes = super::read(c, "", path)?;
    let name = if path == "-" { "<stdin>" } else { path };
    let mut sources = Sources::new();
    let file = match sources.add_bytes(name, bytes) {
        Ok(file) => file,
        Err(diag) => {
            let mut diags = Diags::new();
            diags.push(diag);
            c.ui.report(&diags, &sources)?;
            return Ok(false);
        }
    };
    let text = match fmt::format(file, sources.text(file)) {
        Ok(text) => text,
        Err(diags) => {
            c.ui.report(&diags, &sources)?;
            return Ok(false);
        }
    };
    let same = text == sources.text(file);
    if check {
        if !same {
            let diff = TextDiff::from_lines(sources.text(file), &text);
            put(&diff.unified_diff().header(name, "in style").to_string())?;
        }
        return Ok(same);
    }
    if path == "-" {
        put(&text)?;
    } else if !same {
        super::write(c, "", path, &text)?;
    }
    Ok(true)
}
