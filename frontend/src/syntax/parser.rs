//! Tokens to events: recursive descent with recovery.
//!
//! What holds for any text:
//! 1. Every token ends up in the tree, in order.
//! 2. Each loop either consumes a token or ends, so the time is linear.
//! 3. Recursion is at most [`DEPTH`] deep, and so is the tree in terms of expressions, types and
//!    blocks: later recursive walks need no limit of their own.
//! 4. One place gives one error; a broken member does not spoil the next.

mod expressions;
mod items;
mod lexical;
mod members;
mod recovery;
mod statements;
mod types;

use crate::diag::{Code, Diag, Diags, LIMIT};
use crate::syntax::ast::{FileId, Span};
use crate::syntax::kind::SyntaxKind::{self, *};
use crate::syntax::lexer::Tokens;

/// How deep expressions, types and blocks may nest.
pub const DEPTH: u32 = 256;

/// A step of building the tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Begins a node. With a parent, given as a distance to a later event, that one begins first.
    Start { kind: SyntaxKind, parent: u32 },
    /// The next token that is not trivia.
    Token,
    /// Ends a node.
    Finish,
    /// Nothing: a start that was moved or given up.
    Gone,
}

/// What is between a token and the one before it.
#[derive(Clone, Copy, Default, Debug)]
struct Gap {
    newline: bool,
    docs: bool,
}

pub(super) struct Parser<'t> {
    file: FileId,
    text: &'t str,
    tokens: &'t Tokens,
    /// Indices of the tokens that are not trivia.
    indices: Vec<u32>,
    gaps: Vec<Gap>,
    position: usize,
    events: Vec<Event>,
    /// Heights of the nodes that are open, counted as [`DEPTH`] says.
    heights: Vec<u32>,
    depth: u32,
    /// Open pairs, by kind: a closing mark without one is skipped.
    open_parens: u32,
    open_squares: u32,
    /// Inside brackets the ends of lines mean nothing.
    in_brackets: bool,
    /// Where the statement begins: an `if` there needs no `else`.
    statement: usize,
    /// The first pair of braces whose lines are indented differently, as `{` and `}`: if a `}` is
    /// missing, it is likely to be missing there.
    crooked: Option<(usize, usize)>,
    diags: Diags,
    last_error: Option<usize>,
}

/// A node that is open.
struct Marker(usize);

/// A node that is closed.
#[derive(Clone, Copy)]
struct Done {
    event: usize,
    height: u32,
}

/// Parses the tokens of a text.
pub(super) fn parse(file: FileId, text: &str, tokens: &Tokens) -> (Vec<Event>, Diags) {
    let mut indices = Vec::new();
    let mut gaps = Vec::new();
    let mut gap = Gap { newline: true, docs: false };
    for (index, kind) in tokens.kinds.iter().enumerate() {
        match kind {
            Newline => gap.newline = true,
            DocComment => gap.docs = true,
            FileDoc => gap.docs |= !indices.is_empty(),
            kind if kind.is_trivia() => {}
            _ => {
                indices.push(index as u32);
                gaps.push(std::mem::take(&mut gap));
            }
        }
    }
    gap.newline = true;
    gaps.push(gap);
    let mut parser = Parser {
        file,
        text,
        tokens,
        indices,
        gaps,
        position: 0,
        events: Vec::new(),
        heights: Vec::new(),
        depth: 0,
        open_parens: 0,
        open_squares: 0,
        in_brackets: false,
        statement: usize::MAX,
        crooked: None,
        diags: Diags::new(),
        last_error: None,
    };
    parser.lexical_errors();
    parser.file();
    parser.stray_docs();
    (parser.events, parser.diags)
}

impl<'t> Parser<'t> {
    // Looking.

    fn kind(&self) -> SyntaxKind {
        self.nth(0)
    }

    fn nth(&self, ahead: usize) -> SyntaxKind {
        match self.indices.get(self.position + ahead) {
            Some(index) => self.tokens.kinds[*index as usize],
            None => Eof,
        }
    }

    /// The kind of the token `back` places before the current one.
    fn nth_before(&self, back: usize) -> SyntaxKind {
        match self.position.checked_sub(back).and_then(|at| self.indices.get(at)) {
            Some(index) => self.tokens.kinds[*index as usize],
            None => Eof,
        }
    }

    fn at(&self, kind: SyntaxKind) -> bool {
        self.kind() == kind
    }

    /// At a word that has a meaning only in its place.
    fn at_word(&self, word: &str) -> bool {
        self.nth_word(0, word)
    }

    fn nth_word(&self, ahead: usize, word: &str) -> bool {
        self.nth(ahead) == Ident && self.token_text(self.position + ahead) == word
    }

    fn token_text(&self, position: usize) -> &'t str {
        &self.text[self.token_range(position)]
    }

    fn token_range(&self, position: usize) -> std::ops::Range<usize> {
        match self.indices.get(position) {
            Some(index) => self.tokens.range(*index as usize),
            None => self.text.len()..self.text.len(),
        }
    }

    fn token_span(&self, position: usize) -> Span {
        let range = self.token_range(position);
        Span { file: self.file, start: range.start as u32, end: range.end as u32 }
    }

    /// The place where something is missing: just behind the token before.
    fn span_behind(&self, position: usize) -> Span {
        match position.checked_sub(1) {
            Some(before) => {
                let end = self.token_span(before).end;
                Span { file: self.file, start: end, end }
            }
            None => Span { file: self.file, start: 0, end: 0 },
        }
    }

    /// Whether the current token begins a line.
    fn begins_line(&self) -> bool {
        self.gaps.get(self.position).is_none_or(|gap| gap.newline)
    }

    /// Whether the statement may end before the current token, by the rule of lines.
    fn line_ended(&self) -> bool {
        !self.in_brackets && self.begins_line()
    }

    /// Whether the current token begins a line with a word that begins a member or statement:
    /// whatever is open here was forgotten.
    fn at_new_start(&self) -> bool {
        self.at(Eof) || (self.begins_line() && self.kind().begins_line())
    }

    // Going on.

    fn bump(&mut self) {
        if self.position < self.indices.len() {
            self.position += 1;
            self.events.push(Event::Token);
        }
    }

    fn eat(&mut self, kind: SyntaxKind) -> bool {
        let found = self.at(kind);
        if found {
            self.bump();
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.bump();
        }
        found
    }

    // Nodes.

    fn start(&mut self) -> Marker {
        self.events.push(Event::Start { kind: Error, parent: 0 });
        self.heights.push(0);
        Marker(self.events.len() - 1)
    }

    fn complete(&mut self, marker: Marker, node: SyntaxKind) -> Done {
        if let Some(Event::Start { kind, .. }) = self.events.get_mut(marker.0) {
            *kind = node;
        }
        self.events.push(Event::Finish);
        let height = self.close_height() + u32::from(counts(node));
        self.raise(height);
        Done { event: marker.0, height }
    }

    /// Gives a node up; what is in it goes to the one around.
    fn abandon(&mut self, marker: Marker) {
        if let Some(event) = self.events.get_mut(marker.0) {
            *event = Event::Gone;
        }
        let height = self.close_height();
        self.raise(height);
    }

    /// Begins a node around one that is closed.
    fn precede(&mut self, done: Done) -> Marker {
        let marker = self.start();
        self.raise(done.height);
        if let Some(Event::Start { parent, .. }) = self.events.get_mut(done.event) {
            *parent = (marker.0 - done.event) as u32;
        }
        marker
    }

    fn close_height(&mut self) -> u32 {
        self.heights.pop().unwrap_or(0)
    }

    fn raise(&mut self, height: u32) {
        if let Some(open) = self.heights.last_mut() {
            *open = height.max(*open);
        }
    }

    /// Runs `inner` one level deeper, or skips what is too deep.
    fn deeper(&mut self, inner: impl FnOnce(&mut Self) -> Done) -> Done {
        if self.depth >= DEPTH {
            return self.too_deep();
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    // Errors.

    /// Adds an error that belongs to the current token, unless it has one.
    fn report(&mut self, diag: Diag) {
        // The lexer's errors say more than "unexpected".
        let unclosed = self.nth_before(1) == UnclosedString;
        let told = self.at(Unknown) || unclosed || self.last_error == Some(self.position);
        self.last_error = Some(self.position);
        if !told {
            self.push(diag);
        }
    }

    fn push(&mut self, diag: Diag) {
        if self.diags.iter().len() < LIMIT {
            self.diags.push(diag);
        } else {
            self.diags.leave_out();
        }
    }

    /// What is there instead of what was expected, and where to point.
    fn found(&self) -> (std::string::String, Span) {
        let kind = self.kind();
        if self.position > 0 && (kind == Eof || self.line_ended()) {
            let found = if kind == Eof { "end of file" } else { "end of line" };
            return (found.into(), self.span_behind(self.position));
        }
        self.found_token()
    }

    fn found_token(&self) -> (std::string::String, Span) {
        let kind = self.kind();
        let text = self.token_text(self.position);
        let found = match kind {
            Eof => "end of file".into(),
            Ident | Int | Float | BadNumber => format!("`{text}`"),
            kind if kind.is_keyword() => format!("keyword `{text}`"),
            kind => kind.describe().into(),
        };
        (found, self.token_span(self.position))
    }

    fn expected_diag(&self, what: &str) -> Diag {
        let (found, span) = self.found();
        Diag::error(Code::UnexpectedToken, format!("expected {what}, found {found}"))
            .label(span, format!("expected {what}"))
    }

    #[inline(never)]
    fn expected_with(&mut self, what: &str, help: &str) {
        let diag = self.expected_diag(what).help(help);
        self.report(diag);
    }

    /// As [`Self::expected_with`], where what is expected begins a line.
    #[inline(never)]
    fn expected_start(&mut self, what: &str, help: &str) {
        let (found, span) = self.found_token();
        let diag = Diag::error(Code::UnexpectedToken, format!("expected {what}, found {found}"))
            .label(span, format!("expected {what}"))
            .help(help);
        self.report(diag);
    }

    /// `text` in place of the current token, with a blank before it.
    fn spaced(&self, text: &str) -> std::string::String {
        let start = self.token_range(self.position).start;
        let blank = if self.text[..start].ends_with(' ') { "" } else { " " };
        format!("{blank}{text}")
    }

    fn expect(&mut self, kind: SyntaxKind, help: &str) -> bool {
        let found = self.eat(kind);
        if !found {
            self.expected_with(kind.describe(), help);
        }
        found
    }
}

/// Nodes that can contain their own kind.
fn counts(kind: SyntaxKind) -> bool {
    matches!(
        kind,
        ListTy
            | TupleTy
            | Block
            | FieldExpr
            | Call
            | IndexExpr
            | Unary
            | Binary
            | Reshape
            | Tuple
            | List
            | If
            | PartIf
    )
}
