//! The formatter: one style, no options.
//!
//! It works on the lossless tree and changes nothing but blanks, line ends and commas that may be
//! left out. A file with syntax errors is not formatted.

mod align;
mod layout;
mod print;

use crate::diag::Diags;
use crate::syntax::{self, ast::FileId};

/// The text in its one style, or why it has none. `file` is what the diagnostics name.
pub fn format(file: FileId, text: &str) -> Result<String, Diags> {
    let parse = syntax::parse(file, text);
    if parse.diags.has_errors() {
        return Err(parse.diags);
    }
    Ok(layout::render(&print::file(&parse.tree)))
}
