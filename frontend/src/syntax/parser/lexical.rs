//! Errors inside tokens, and doc comments that document nothing.

use super::Parser;
use crate::diag::{Code, Diag};
use crate::syntax::ast::Span;
use crate::syntax::kind::SyntaxKind::*;
use crate::syntax::literal;

impl Parser<'_> {
    pub(super) fn lexical_errors(&mut self) {
        for position in 0..self.indices.len() {
            let index = self.indices[position] as usize;
            let text = self.token_text(position);
            let span = self.token_span(position);
            let diag = match self.tokens.kinds[index] {
                Int if literal::int(text).is_none() => Some(
                    Diag::error(Code::BadNumber, "number is too large")
                        .label(span, format!("the largest is {}", i64::MAX))
                        .help("write it as a float if it need not be exact: `1e20`"),
                ),
                Float if literal::float(text).is_none() => Some(
                    Diag::error(Code::BadNumber, "number is too large")
                        .label(span, "not a finite 64-bit float")
                        .help("the largest float is about 1.8e308"),
                ),
                BadNumber => Some(bad_number(text, span)),
                String => bad_escape(text, span),
                UnclosedString => Some(
                    Diag::error(Code::BadString, "string without a closing `\"`")
                        .label(span, "begins here and must end on this line")
                        .help("add the closing `\"`; write a line end inside a string as `\\n`"),
                ),
                QuotedString => Some(
                    Diag::error(Code::BadString, "strings are written with `\"`")
                        .label(span, "")
                        .help_edit("use `\"`", span, format!("\"{}\"", text.trim_matches('\''))),
                ),
                Unknown => Some(unknown(text, span)),
                _ => None,
            };
            if let Some(diag) = diag {
                self.push(diag);
            }
        }
    }

    /// The current token begins something that doc comments above it may document.
    pub(super) fn take_docs(&mut self) {
        if let Some(gap) = self.gaps.get_mut(self.position) {
            gap.docs = false;
        }
    }

    /// Warns of the doc comments that nothing has taken.
    pub(super) fn stray_docs(&mut self) {
        // Where there are errors they are the reason.
        if self.diags.has_errors() {
            return;
        }
        for position in 0..self.gaps.len() {
            if !self.gaps[position].docs {
                continue;
            }
            let end = self.indices.get(position).map_or(self.tokens.len(), |i| *i as usize);
            let start = match position.checked_sub(1) {
                Some(before) => self.indices[before] as usize + 1,
                None => 0,
            };
            let docs = start..end;
            let first =
                docs.clone().find(|i| matches!(self.tokens.kinds[*i], DocComment | FileDoc));
            let Some(first) = first else { continue };
            let range = self.tokens.range(first);
            let span = Span { file: self.file, start: range.start as u32, end: range.end as u32 };
            let diag = if self.tokens.kinds[first] == FileDoc {
                Diag::warning(Code::DocOnNothing, "`//!` is not at the beginning of the file")
                    .label(span, "documents nothing")
                    .help("move it above the first item, or write `//`")
            } else {
                Diag::warning(Code::DocOnNothing, "doc comment on nothing")
                    .label(span, "no item, member or field begins below it")
                    .help("write `//` for a comment that is no documentation")
            };
            self.push(diag);
        }
    }
}

fn bad_number(text: &str, span: Span) -> Diag {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '_');
    let tail = &text[digits.len()..];
    let diag = Diag::error(Code::BadNumber, format!("malformed number `{text}`"));
    if matches!(tail, "e" | "E") {
        return diag.label(span, "digits must follow the `e`").help("write an exponent: `1e-6`");
    }
    let diag = diag.label(span, "");
    if text.starts_with("0x") || text.starts_with("0X") || text.starts_with("0b") {
        diag.help("numbers are decimal")
    } else if text.starts_with(|c: char| c.is_ascii_digit()) && !digits.is_empty() {
        diag.help(format!(
            "for a product write `{digits} * {tail}`; names do not begin with digits"
        ))
    } else {
        diag.help("names do not begin with digits")
    }
}

fn bad_escape(text: &str, span: Span) -> Option<Diag> {
    let (at, escape) = literal::bad_escape(text)?;
    let start = span.start + at as u32;
    let end = start + 1 + escape.len_utf8() as u32;
    Some(
        Diag::error(Code::BadString, format!("unknown escape `\\{}`", escape.escape_debug()))
            .label(Span { start, end, ..span }, "")
            .help("the escapes are `\\n`, `\\t`, `\\\"` and `\\\\`; write `\\\\` for a backslash"),
    )
}

fn unknown(text: &str, span: Span) -> Diag {
    let shown: std::string::String = text.chars().take(20).flat_map(char::escape_debug).collect();
    let word = if text.chars().nth(1).is_some() { "characters" } else { "character" };
    let diag = Diag::error(Code::UnknownCharacter, format!("unknown {word} `{shown}`"));
    let diag = diag.label(span, "");
    match text.chars().next() {
        Some('#') => diag.help("comments begin with `//`"),
        Some('&' | '|') => diag.help("logic is written `and`, `or`, `not`"),
        Some('^') => diag.help("powers are written `a ** b`"),
        Some('×' | '·') => diag.help("products are written `a * b`"),
        Some('“' | '”' | '‘' | '’') => diag.help("strings are written with `\"`"),
        Some(c) if c.is_alphabetic() => {
            diag.help("names consist of the letters a to z, digits and `_`")
        }
        _ => diag.help("remove it; strings and comments may hold any character"),
    }
}
