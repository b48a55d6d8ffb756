//! What can break over lines: lists, operators, choices.

use rowan::NodeOrToken;

use super::Printer;
use crate::fmt::layout::{Step, WIDTH, flat_width};
use crate::syntax::kind::SyntaxKind::{self, *};
use crate::syntax::kind::SyntaxNode;

impl Printer {
    /// A list in brackets or braces: flat, or one element a line.
    pub(super) fn list(&mut self, node: &SyntaxNode) {
        self.list_of(node, |_| true);
    }

    /// A function: if its header is too long, the arguments break rather than the type behind.
    pub(super) fn function(&mut self, node: &SyntaxNode) {
        let mut header = self.part();
        let parts = node.children_with_tokens().take_while(|part| part.kind() != Block);
        for part in parts {
            match part {
                NodeOrToken::Node(child) => header.node(&child),
                NodeOrToken::Token(token) => header.token(&token, Fn),
            }
        }
        let width = flat_width(&header.steps).map(|width| self.indent + width + " {".len());
        self.break_args = width.is_some_and(|width| width > WIDTH);
        self.children(node);
        self.break_args = false;
    }

    /// `init normal(0.02)`: the name is no element.
    pub(super) fn init(&mut self, node: &SyntaxNode) {
        if node.children_with_tokens().any(|element| element.kind() == OpenParen) {
            self.list_of(node, |kind| kind != Name);
        } else {
            self.children(node);
        }
    }

    fn list_of(&mut self, node: &SyntaxNode, is_element: fn(SyntaxKind) -> bool) {
        let elements = node.children().filter(|child| is_element(child.kind())).count();
        // One value in round brackets is no list.
        let comma = !(node.kind() == Tuple && elements == 1) && elements > 0;
        let braces = node.kind() == EnumValues;
        let mut seen = 0;
        for element in node.children_with_tokens() {
            match element {
                NodeOrToken::Node(child) if is_element(child.kind()) => {
                    seen += 1;
                    self.loosely(|printer| printer.node(&child));
                    let blank = if seen < elements { true } else { braces };
                    if seen == elements && comma {
                        self.steps.push(Step::TrailingComma);
                    }
                    self.pending = Some(Step::Line { blank });
                }
                NodeOrToken::Node(child) => self.node(&child),
                NodeOrToken::Token(token) if token.kind().is_open() => {
                    self.token(&token, node.kind());
                    self.steps.push(Step::Open);
                    self.steps.push(Step::Indent);
                    if node.kind() == Args && elements > 0 && std::mem::take(&mut self.break_args) {
                        self.steps.push(Step::Break);
                    }
                    self.pending = Some(Step::Line { blank: braces && elements > 0 });
                }
                NodeOrToken::Token(token) if token.kind().is_close() => {
                    self.steps.push(Step::Dedent);
                    self.token(&token, node.kind());
                    self.steps.push(Step::Close);
                }
                NodeOrToken::Token(token) if token.kind() == Comma => {
                    if seen < elements {
                        // The line end comes after the comma.
                        let line = self.pending.take();
                        self.token(&token, node.kind());
                        self.pending = line;
                    }
                    self.newline = false;
                }
                NodeOrToken::Token(token) => self.token(&token, node.kind()),
            }
        }
    }

    /// Strings with commas between them, after a word; lines end after commas.
    pub(super) fn strings(&mut self, node: &SyntaxNode) {
        let strings =
            node.children_with_tokens().filter(|element| is_string(element.kind())).count();
        let mut seen = 0;
        self.steps.push(Step::Open);
        self.steps.push(Step::Indent);
        let mut open = true;
        for element in node.children_with_tokens() {
            match element {
                NodeOrToken::Node(child) => {
                    if open && seen > 0 {
                        self.steps.push(Step::Dedent);
                        self.steps.push(Step::Close);
                        open = false;
                    }
                    self.node(&child);
                }
                NodeOrToken::Token(token) if token.kind() == Comma => {
                    if seen < strings {
                        self.token(&token, node.kind());
                        self.pending = Some(Step::Line { blank: true });
                    }
                    self.newline = false;
                }
                NodeOrToken::Token(token) => {
                    seen += usize::from(is_string(token.kind()));
                    self.token(&token, node.kind());
                }
            }
        }
        if open {
            self.steps.push(Step::Dedent);
            self.steps.push(Step::Close);
        }
    }

    /// Operators: those of one precedence break together, each at the end of its line.
    pub(super) fn binary(&mut self, node: &SyntaxNode) {
        let parent = node.parent().filter(|parent| parent.kind() == Binary);
        let own = parent.is_none_or(|parent| precedence(&parent) != precedence(node));
        let start = self.steps.len();
        self.loosely(|printer| {
            for element in node.children_with_tokens() {
                match element {
                    NodeOrToken::Node(child) => printer.node(&child),
                    NodeOrToken::Token(token) => {
                        printer.token(&token, Binary);
                        if !token.kind().is_trivia() {
                            printer.pending = Some(Step::Line { blank: true });
                        }
                    }
                }
            }
        });
        if own {
            // The group begins before its first token, behind what separates it from the last one.
            let first = self.first_text(start);
            self.steps.splice(first..first, [Step::Open, Step::Indent]);
            self.steps.push(Step::Dedent);
            self.steps.push(Step::Close);
        }
    }

    /// The first step from `start` that writes something of the node.
    fn first_text(&self, start: usize) -> usize {
        let at = self.steps[start..]
            .iter()
            .position(|step| !matches!(step, Step::Spaces(_) | Step::Line { .. } | Step::Hard));
        start + at.unwrap_or(0)
    }

    /// `if c { a } else { b }`: all branches on one line, or none.
    pub(super) fn choice(&mut self, node: &SyntaxNode) {
        let nested = node.parent().is_some_and(|parent| {
            parent.kind() == If && parent.children().next().as_ref() != Some(node)
        });
        self.choice_group(node, nested);
    }

    pub(super) fn part_choice(&mut self, node: &SyntaxNode) {
        let nested = node.parent().is_some_and(|parent| parent.kind() == PartIf);
        self.choice_group(node, nested);
    }

    fn choice_group(&mut self, node: &SyntaxNode, nested: bool) {
        let start = self.steps.len();
        for element in node.children_with_tokens() {
            match element {
                NodeOrToken::Node(child) if child.kind() == Block => self.branch(&child),
                NodeOrToken::Node(child) => self.node(&child),
                NodeOrToken::Token(token) if token.kind() == OpenBrace => {
                    self.token(&token, node.kind());
                    self.steps.push(Step::Indent);
                    self.pending = Some(Step::Line { blank: true });
                }
                NodeOrToken::Token(token) if token.kind() == CloseBrace => {
                    self.steps.push(Step::Dedent);
                    self.pending = Some(Step::Line { blank: true });
                    self.token(&token, node.kind());
                }
                NodeOrToken::Token(token) => self.token(&token, node.kind()),
            }
        }
        if !nested {
            let first = self.first_text(start);
            self.steps.insert(first, Step::Open);
            self.steps.push(Step::Close);
        }
    }
}

fn is_string(kind: SyntaxKind) -> bool {
    kind == String
}

fn precedence(node: &SyntaxNode) -> u8 {
    let operator = node
        .children_with_tokens()
        .filter_map(NodeOrToken::into_token)
        .find(|token| !token.kind().is_trivia());
    match operator.map(|token| token.kind()) {
        Some(Plus | Minus) => 5,
        Some(Star | Slash | Percent) => 6,
        Some(StarStar) => 7,
        Some(AndWord) => 2,
        Some(Ident) => 1,
        _ => 4,
    }
}
