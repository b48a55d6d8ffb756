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

use crate::diag::Diags;
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
    let (events, diags) = parser::parse(file, text, &tokens);
    let tree = tree::build(text, &tokens, events);
    let file = build::file(file, &tree);
    Parse { tree, file, diags }
}
