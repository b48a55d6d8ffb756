//! Lists, ends of lines, and what to do after an error.

use super::{Done, Parser};
use crate::diag::{Code, Diag};
use crate::syntax::kind::SyntaxKind::{self, *};

impl Parser<'_> {
    /// `open item, item, close`, each `item` parsed by the function, a trailing comma allowed.
    /// The current token is the opening one.
    pub(super) fn list(&mut self, what: &str, item: fn(&mut Self)) {
        let open = self.position;
        let close = self.kind().closer();
        let around = self.enter(true);
        while !self.at_list_end(close) {
            let before = self.position;
            item(self);
            if self.at(close) || self.eat(Comma) {
                continue;
            }
            if self.at_list_end(close) || (self.begins_line() && !self.closes_later(close)) {
                break;
            }
            self.missing_comma(what, close, open);
            self.skip_in_list(close, before);
            self.eat(Comma);
        }
        self.leave(open, close, around);
    }

    /// Whether the mark that closes the list comes before the end of the block around: if so, a
    /// comma is missing at the end of a line; if not, the mark is.
    fn closes_later(&self, close: SyntaxKind) -> bool {
        // Where nothing is reported any more there is nothing to choose.
        if self.diags.len() >= crate::diag::LIMIT {
            return true;
        }
        let mut depth = 0_u32;
        // Far enough for any list.
        for ahead in 0..1000 {
            let kind = self.nth(ahead);
            let new_line = self.gaps.get(self.position + ahead).is_none_or(|gap| gap.newline);
            if kind == Eof || (new_line && kind.begins_line()) {
                return false;
            }
            if kind.is_open() {
                depth += 1;
            } else if kind.is_close() {
                if depth == 0 {
                    return kind == close;
                }
                depth -= 1;
            }
        }
        true
    }

    fn missing_comma(&mut self, what: &str, close: SyntaxKind, open: usize) {
        let expected = format!("`,` or {}", close.describe());
        let mut diag = self.expected_diag(&expected);
        if self.position > open + 1 {
            diag = diag.secondary(self.token_span(open), format!("these are {what}"));
        }
        diag = if self.position > open + 1 && begins_operand(self.kind()) {
            let span = self.span_behind(self.position);
            diag.help_edit("add the comma", span, ",")
        } else {
            diag.help(format!("{what} are separated by commas"))
        };
        self.report(diag);
    }

    fn at_list_end(&self, close: SyntaxKind) -> bool {
        let kind = self.kind();
        let lost = if close == CloseBrace {
            self.begins_line() && kind.begins_item_only()
        } else {
            self.at_new_start()
        };
        kind == Eof || kind.is_close() || lost
    }

    /// Skips to the next comma of a list, or its end. Consumes something if nothing was since
    /// `before`.
    fn skip_in_list(&mut self, close: SyntaxKind, before: usize) {
        let marker = self.start();
        let start = self.position;
        let mut depth = 0_u32;
        while !self.at(Eof) {
            let kind = self.kind();
            if depth == 0 && (kind == Comma || self.at_list_end(close)) {
                break;
            }
            if self.begins_line() && kind.begins_line() {
                break;
            }
            if kind.is_open() {
                depth += 1;
            } else if kind.is_close() {
                depth -= 1;
            }
            self.bump();
        }
        if self.position == before && !self.at_list_end(close) && !self.at(Comma) {
            self.bump();
        }
        if self.position == start {
            self.abandon(marker);
        } else {
            self.complete(marker, Error);
        }
    }

    /// Consumes an opening mark; the result goes to [`Self::leave`].
    pub(super) fn enter(&mut self, in_brackets: bool) -> bool {
        match self.kind() {
            OpenParen => self.open_parens += 1,
            OpenSquare => self.open_squares += 1,
            _ => {}
        }
        self.bump();
        std::mem::replace(&mut self.in_brackets, in_brackets)
    }

    /// Consumes the closing mark of the pair that began at `open`, or tells that it is missing.
    pub(super) fn leave(&mut self, open: usize, close: SyntaxKind, around: bool) {
        match close {
            CloseParen => self.open_parens -= 1,
            CloseSquare => self.open_squares -= 1,
            _ => {}
        }
        if !self.at(close) {
            self.unclosed(open, close);
            // A closing mark that closes nothing else was meant for this pair.
            let meant = match self.kind() {
                CloseParen => self.open_parens == 0,
                CloseSquare => self.open_squares == 0,
                _ => false,
            };
            if meant {
                let marker = self.start();
                self.bump();
                self.complete(marker, Error);
            }
        } else {
            if close == CloseBrace && self.crooked.is_none() && self.begins_line() {
                let (opened, closed) = (self.line_indent(open), self.line_indent(self.position));
                if opened != closed {
                    self.crooked = Some((open, self.position));
                }
            }
            self.bump();
        }
        self.in_brackets = around;
    }

    /// How far the line of a token is indented, unless it is long.
    fn line_indent(&self, position: usize) -> Option<usize> {
        let end = self.token_range(position).start;
        let start = self.text.floor_char_boundary(end.saturating_sub(400));
        let before = &self.text[start..end];
        let line = match before.rfind('\n') {
            Some(at) => &before[at + 1..],
            None if start == 0 => before,
            None => return None,
        };
        Some(line.len() - line.trim_start_matches([' ', '\t']).len())
    }

    fn unclosed(&mut self, open: usize, close: SyntaxKind) {
        let opened = self.token_text(open);
        let close = close.describe();
        let span = if self.kind().is_close() {
            self.token_span(self.position)
        } else {
            self.span_behind(self.position)
        };
        let diag = Diag::error(Code::UnclosedDelimiter, format!("`{opened}` is never closed"))
            .label(self.token_span(open), "opened here")
            .secondary(span, format!("expected {close}"))
            .help(format!("add the {close}"));
        let diag = match self.crooked {
            Some((inner, end)) if inner > open && close == "`}`" => diag
                .secondary(self.token_span(inner), "or is it this one? its line and that of")
                .secondary(self.token_span(end), "this `}` are indented differently"),
            _ => diag,
        };
        self.report(diag);
    }

    /// After an item, member or statement: the line must end.
    pub(super) fn end_of_line(&mut self) {
        let after = self.position;
        if self.begins_line() || self.at(CloseBrace) {
            return;
        }
        if self.at(Semicolon) {
            let span = self.token_span(self.position);
            let diag = Diag::error(Code::UnexpectedToken, "there are no semicolons")
                .label(span, "a statement ends with its line");
            let marker = self.start();
            let last = {
                let next = self.gaps.get(after + 1);
                next.is_none_or(|gap| gap.newline) || self.nth(1) == CloseBrace
            };
            self.report(if last {
                diag.help_edit("remove it", span, "")
            } else {
                diag.help("put each statement on a line of its own")
            });
            while self.eat(Semicolon) {}
            self.complete(marker, Error);
            return;
        }
        self.line_goes_on();
        self.skip_line();
    }

    fn line_goes_on(&mut self) {
        let mut diag = self.expected_diag("end of line");
        let kind = self.kind();
        if kind == Equals {
            diag = diag.help("only names can be bound; a tensor never changes, bind a new one");
        } else if kind.begins_line() || kind == IfWord {
            diag = diag.help("put each statement on a line of its own");
        } else if self.at_word("as") {
            diag = diag.help(
                "`as` reshapes: `x as [T, d]`; convert with `f32(x)`, `narrow(x)`, or give a \
                 stored name: `as \"name\"`",
            );
        } else if kind == At {
            diag = diag.help(
                "`x @ w` is written `einsum(\"n k, k m -> n m\", x, w)`; `linear(x, w)` takes a weight \
                 stored [out, in]",
            );
        } else if matches!(kind, AndAnd | OrOr | Bang) {
            diag = diag.help("logic is written `and`, `or`, `not`");
        } else {
            diag = diag.help("a statement ends with its line, and goes on only behind an operator or in brackets");
        }
        self.report(diag);
    }

    /// Skips the rest of the line. What is opened on it is skipped as a whole, unless a line
    /// inside begins like a statement.
    pub(super) fn skip_line(&mut self) {
        let start = self.position;
        let marker = self.start();
        let mut braces = 0_u32;
        let mut others = 0_u32;
        while !self.at(Eof) {
            let kind = self.kind();
            if self.begins_line() && braces == 0 && (others == 0 || kind.begins_line()) {
                break;
            }
            if self.begins_line() && kind.begins_item_only() {
                break;
            }
            match kind {
                OpenBrace => braces += 1,
                CloseBrace if braces == 0 => break,
                CloseBrace => braces -= 1,
                kind if kind.is_open() => others += 1,
                kind if kind.is_close() => others = others.saturating_sub(1),
                _ => {}
            }
            self.bump();
        }
        if self.position == start {
            self.abandon(marker);
        } else {
            self.complete(marker, Error);
        }
    }

    /// Skips one token and then the rest of its line.
    pub(super) fn skip_token_and_line(&mut self) {
        let marker = self.start();
        let opens = self.at(OpenBrace);
        if opens {
            // The brace is skipped with what it holds.
            self.skip_pair();
        } else {
            self.bump();
        }
        self.skip_line();
        self.complete(marker, Error);
    }

    /// Skips from an opening mark to the closing one.
    fn skip_pair(&mut self) {
        let mut depth = 0_u32;
        while !self.at(Eof) {
            if self.kind().is_open() {
                depth += 1;
            } else if self.kind().is_close() {
                depth = depth.saturating_sub(1);
            }
            self.bump();
            if depth == 0 || (self.begins_line() && self.kind().begins_item_only()) {
                return;
            }
        }
    }

    /// Skips something that is nested too deeply, up to the mark that closes the pair around.
    pub(super) fn too_deep(&mut self) -> Done {
        let span = self.token_span(self.position);
        self.report(
            Diag::error(Code::TooDeep, "nested too deeply")
                .label(span, format!("more than {} levels here", super::DEPTH))
                .help("name parts of it with `let`"),
        );
        let marker = self.start();
        let mut depth = 0_u32;
        while !self.at(Eof) {
            let kind = self.kind();
            if kind.is_open() {
                depth += 1;
            } else if kind.is_close() {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            }
            self.bump();
        }
        self.complete(marker, Error)
    }
}

fn begins_operand(kind: SyntaxKind) -> bool {
    matches!(kind, Ident | Int | Float | String | OpenParen | OpenSquare | TrueWord | FalseWord)
}
