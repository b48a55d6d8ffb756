//! Lines as cells of columns.

use rowan::NodeOrToken;

use super::Printer;
use crate::fmt::align::{Cell, Row};
use crate::syntax::kind::SyntaxKind::{self, *};
use crate::syntax::kind::{SyntaxElement, SyntaxNode};

/// Whether lines of this kind are aligned with their neighbours.
pub(super) fn aligns(node: &SyntaxNode) -> bool {
    matches!(node.kind(), Let | Param | Part | Input | Collect | Field)
}

/// The word a line begins with; parts and stacks are different columns.
pub(super) fn word(node: &SyntaxNode) -> SyntaxKind {
    match node.first_token().map(|token| token.kind()) {
        Some(Ident) | None => Error,
        Some(kind) => kind,
    }
}

/// A line in cells; one that does not align is one cell.
pub(super) fn row(printer: &Printer, node: &SyntaxNode) -> Row {
    if !aligns(node) {
        let mut part = printer.part();
        part.node(node);
        let cells = vec![Cell { steps: part.steps, gap: 0 }];
        return Row { cells, single: true, clauses: false };
    }
    let mut cells = Vec::new();
    let mut part = printer.part();
    let mut column = 0;
    for element in flattened(node) {
        let next = starts(node.kind(), &element, column);
        if next > column {
            // Blanks and comments go with what is before them.
            while column < next {
                let steps = std::mem::take(&mut part.steps);
                cells.push(Cell { steps, gap: gap(node.kind(), column) });
                column += 1;
            }
            part.before = None;
        }
        match element {
            NodeOrToken::Node(child) => part.node(&child),
            NodeOrToken::Token(token) => {
                let parent = token.parent().map_or(Error, |parent| parent.kind());
                part.token(&token, parent);
            }
        }
    }
    cells.push(Cell { steps: part.steps, gap: gap(node.kind(), column) });
    // Inside brackets the indent is not known here, and a line with a block in it may break.
    let single = printer.loose && node.descendants().any(|inner| inner.kind() == Block);
    let clauses = matches!(node.kind(), Param | Part | Input);
    Row { cells, single, clauses }
}

/// Children; of a part's value the children too, so that its prefix is a column.
fn flattened(node: &SyntaxNode) -> Vec<SyntaxElement> {
    let mut elements = Vec::new();
    for element in node.children_with_tokens() {
        match element {
            NodeOrToken::Node(child) if matches!(child.kind(), PartNew | Default) => {
                elements.extend(child.children_with_tokens());
            }
            other => elements.push(other),
        }
    }
    elements
}

/// The column an element begins, or the current one.
fn starts(line: SyntaxKind, element: &SyntaxElement, current: usize) -> usize {
    let column = match (line, element.kind()) {
        (Let, Equals) => 1,
        (Param | Part | Input | Collect | Field, Colon) if current == 0 => 1,
        (Field, Equals) | (Param, Init) | (Input, From) | (Part, Key) => 2,
        (Field, Key) | (Input | Part, When) => 3,
        (Param, Key) => 3,
        (Param, Each) => 4,
        (Param, NoDecay) => 5,
        (Param, When) => 6,
        _ => current,
    };
    column.max(current)
}

/// Blanks before a column.
fn gap(line: SyntaxKind, column: usize) -> usize {
    match (line, column) {
        (_, 0) => 0,
        (_, 1) | (Field, 2) => 1,
        _ => 2,
    }
}
