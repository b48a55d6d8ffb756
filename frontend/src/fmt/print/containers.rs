//! What holds lines: files, bodies and blocks.

use rowan::NodeOrToken;

use super::{Printer, rows};
use crate::fmt::align;
use crate::fmt::layout::{INDENT, Step, WIDTH, flat_width};
use crate::syntax::kind::SyntaxKind::*;
use crate::syntax::kind::{SyntaxNode, SyntaxToken};

/// A thing that has a line, with what is before it and behind it on the line.
enum Entry {
    Node { node: SyntaxNode, blank: bool, comma: bool },
    Comment { token: SyntaxToken, blank: bool, trailing: bool },
}

impl Printer {
    /// A body whose parts share a line if they are written so and fit, else have one each.
    pub(super) fn container(&mut self, node: &SyntaxNode) {
        if matches!(node.kind(), Fields | Settings) && self.on_one_line(node) {
            return;
        }
        self.braces(node, Step::Hard);
    }

    fn on_one_line(&mut self, node: &SyntaxNode) -> bool {
        if !written_on_one_line(node) {
            return false;
        }
        let mut part = self.part();
        let count = node.children().count();
        part.before = self.before;
        for (at, element) in node.children_with_tokens().enumerate() {
            match element {
                NodeOrToken::Node(child) => {
                    part.children(&child);
                    let last = node.children().last().as_ref() == Some(&child);
                    if !last {
                        part.steps.push(Step::Text(",".into()));
                    }
                }
                NodeOrToken::Token(token) if token.kind() == Comma => {}
                NodeOrToken::Token(token) if token.kind() == CloseBrace && count == 0 => {
                    part.pending = Some(Step::Spaces(0));
                    part.token(&token, node.kind());
                }
                NodeOrToken::Token(token) => part.token(&token, node.kind()),
            }
            // Long bodies do not fit; nobody needs to measure them.
            if at > WIDTH {
                return false;
            }
        }
        let (Some(header), Some(width)) =
            (flat_width(&self.steps[self.line_start()..]), flat_width(&part.steps))
        else {
            return false;
        };
        if header + width > WIDTH {
            return false;
        }
        self.steps.extend(part.steps);
        self.before = part.before;
        true
    }

    /// Where the steps of the current line begin, for items: those are not indented.
    fn line_start(&self) -> usize {
        let line = |step: &Step| matches!(step, Step::Hard | Step::Blank | Step::Comment { .. });
        self.steps.iter().rposition(line).map_or(0, |at| at + 1)
    }

    /// `{ .. }` of a function, region, loop or `forward`.
    pub(super) fn block(&mut self, node: &SyntaxNode) {
        self.steps.push(Step::Open);
        self.branch(node);
        self.steps.push(Step::Close);
    }

    /// A block that breaks with the group around it.
    pub(super) fn branch(&mut self, node: &SyntaxNode) {
        let one_line = written_on_one_line(node) && node.children().count() <= 1;
        self.braces(node, if one_line { Step::Line { blank: true } } else { Step::Hard });
    }

    /// Braces with lines in them; `line` is what separates the lines.
    fn braces(&mut self, node: &SyntaxNode, line: Step) {
        let mut tokens = node.children_with_tokens().filter_map(NodeOrToken::into_token);
        let Some(open) = tokens.find(|token| token.kind() == OpenBrace) else {
            return self.children(node);
        };
        self.token(&open, node.kind());
        self.steps.push(Step::Indent);
        self.indent += INDENT;
        let any = self.lines(node, Some(line.clone()));
        self.indent -= INDENT;
        self.steps.push(Step::Dedent);
        if let Some(close) = tokens.find(|token| token.kind() == CloseBrace) {
            self.pending = Some(if any { line } else { Step::Spaces(0) });
            self.token(&close, node.kind());
        }
    }

    /// The lines of a container; the first begins with `line`, if there is one. Whether there are
    /// any.
    pub(super) fn lines(&mut self, node: &SyntaxNode, line: Option<Step>) -> bool {
        let entries = entries(node);
        let mut at = 0;
        while at < entries.len() {
            let separator = match &line {
                Some(line) => Some(line.clone()),
                None if at > 0 => Some(Step::Hard),
                None => None,
            };
            match &entries[at] {
                Entry::Comment { token, blank, trailing } => {
                    if *blank && at > 0 {
                        self.steps.push(Step::Blank);
                    }
                    if !trailing {
                        self.steps.extend(separator);
                    }
                    let text = token.text().trim_end().to_owned();
                    self.steps.push(Step::Comment { text, own_line: !trailing, hangs: false });
                    at += 1;
                }
                Entry::Node { node: first, blank, .. } => {
                    if *blank && at > 0 {
                        self.steps.push(Step::Blank);
                    }
                    let end = group_end(&entries, at, first);
                    self.group(&entries[at..end], separator.as_ref());
                    at = end;
                }
            }
        }
        !entries.is_empty()
    }

    /// Neighbouring lines that are aligned with each other.
    fn group(&mut self, entries: &[Entry], separator: Option<&Step>) {
        let nodes = entries.iter().filter_map(|entry| match entry {
            Entry::Node { node, .. } => Some(node),
            Entry::Comment { .. } => None,
        });
        let table = nodes.map(|node| rows::row(self, node)).collect();
        let mut aligned = align::align(table, self.indent).into_iter();
        for (at, entry) in entries.iter().enumerate() {
            match entry {
                Entry::Comment { token, .. } => {
                    let text = token.text().trim_end().to_owned();
                    self.steps.push(Step::Comment { text, own_line: false, hangs: false });
                }
                Entry::Node { comma, .. } => {
                    if at > 0 {
                        self.steps.push(Step::Hard);
                    } else {
                        self.steps.extend(separator.cloned());
                    }
                    self.steps.extend(aligned.next().into_iter().flatten());
                    if *comma {
                        self.steps.push(Step::Text(",".into()));
                    }
                }
            }
        }
        self.before = None;
        self.pending = None;
    }
}

/// The end of the group that begins with `first`: lines of its kind without a blank line or a
/// comment between; comments behind them on the line are a part of it.
fn group_end(entries: &[Entry], start: usize, first: &SyntaxNode) -> usize {
    let mut end = start + 1;
    let aligned = rows::aligns(first);
    for (at, entry) in entries.iter().enumerate().skip(start + 1) {
        match entry {
            Entry::Node { node, blank, .. } if aligned => {
                let same = node.kind() == first.kind() && rows::word(node) == rows::word(first);
                if *blank || !same {
                    break;
                }
                end = at + 1;
            }
            // Only if it is between two of the group.
            Entry::Comment { trailing: true, .. } => {}
            _ => break,
        }
    }
    end
}

/// What is in a container, without the braces.
fn entries(container: &SyntaxNode) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut newlines = 1;
    if container.kind() != File {
        newlines = 0;
    }
    for element in container.children_with_tokens() {
        match element {
            NodeOrToken::Node(node) => {
                // Operators of an expression may begin a line: the comma before stays.
                let word = node.first_token().map(|token| token.text() == "or");
                if let (Some(true), Some(Entry::Node { comma, .. })) =
                    (word, last_node(&mut entries))
                {
                    *comma = true;
                }
                entries.push(Entry::Node { node, blank: newlines > 1, comma: false });
                newlines = 0;
            }
            NodeOrToken::Token(token) if token.kind() == Newline => newlines += 1,
            NodeOrToken::Token(token) if token.kind().is_comment() => {
                let (blank, trailing) = (newlines > 1, newlines == 0);
                entries.push(Entry::Comment { token, blank, trailing });
                newlines = 0;
            }
            NodeOrToken::Token(_) => {}
        }
    }
    entries
}

fn last_node(entries: &mut [Entry]) -> Option<&mut Entry> {
    entries.iter_mut().rev().find(|entry| matches!(entry, Entry::Node { .. }))
}

/// Whether no line ends directly in it, and there is no comment.
fn written_on_one_line(node: &SyntaxNode) -> bool {
    !node
        .children_with_tokens()
        .any(|element| element.kind() == Newline || element.kind().is_comment())
}
