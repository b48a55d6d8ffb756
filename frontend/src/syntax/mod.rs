//! Text to tree and back.
//!
//! `lexer` makes tokens, `parser` makes events of them, `tree` makes a lossless tree of both, and
//! `build` reads the owned tree in [`ast`] off it. Nothing here fails: a wrong text gives a tree
//! with error nodes, and diagnostics.

pub mod ast;
mod build;
pub mod kind;
pub mod lexer;
pub mod literal;
mod parser;
mod tree;

use crate::diag::{Code, Diag, Diags};
use kind::SyntaxNode;

/// What parsing gives.
#[derive(Clone, Debug)]
pub struct Parse {
    /// Every byte of the text.
    pub tree: SyntaxNode,
    /// What it means.
    pub file: ast::File,
    /// What is wrong with it.
    pub diags: Diags,
}

/// Parses a text. `file` is what the spans name.
pub fn parse(file: ast::FileId, text: &str) -> Parse {
    let tokens = lexer::tokens(text);
    let (events, mut diags) = parser::parse(file, text, &tokens);
    if let Some(diag) = lone_return(file, text) {
        // Lines are not what they look like, so nothing else that was found can be trusted.
        diags = Diags::new();
        diags.push(diag);
    }
    let tree = tree::build(text, &tokens, events);
    let file = build::file(file, &tree);
    Parse { tree, file, diags }
}

/// A carriage return that ends no line: an editor shows a new line, and a comment would go on.
fn lone_return(file: ast::FileId, text: &str) -> Option<Diag> {
    let bytes = text.as_bytes();
    let at = (0..bytes.len()).find(|i| bytes[*i] == b'\r' && bytes.get(i + 1) != Some(&b'\n'))?;
    let span = ast::Span { file, start: at as u32, end: at as u32 + 1 };
    Some(
        Diag::error(Code::UnknownCharacter, "carriage return without a line feed")
            .label(span, "ends no line")
            .help("save the file with line ends of Unix or Windows"),
    )
}
