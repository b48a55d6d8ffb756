//! For tools: one object, on one line.

use serde::Serialize;

use crate::diag::Diag;
use crate::source::Sources;
use crate::syntax::ast::Span;

#[derive(Serialize)]
struct Object<'a> {
    code: &'a str,
    severity: &'a str,
    message: &'a str,
    spans: Vec<Place<'a>>,
    flags: Vec<FlagPlace<'a>>,
    notes: &'a [String],
    helps: Vec<Help<'a>>,
}

/// Lines and columns count from 1 and columns count characters; bytes count from 0.
#[derive(Serialize)]
struct Place<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    byte_start: u32,
    byte_end: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    primary: Option<bool>,
}

#[derive(Serialize)]
struct FlagPlace<'a> {
    line: &'a str,
    byte_start: usize,
    byte_end: usize,
    label: &'a str,
    primary: bool,
}

#[derive(Serialize)]
struct Help<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    span: Option<Place<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replacement: Option<&'a str>,
}

/// One diagnostic as a JSON object.
pub fn json(diag: &Diag, sources: &Sources) -> String {
    let object = Object {
        code: diag.code.number(),
        severity: diag.severity.word(),
        message: &diag.message,
        spans: (diag.labels.iter())
            .map(|label| Place {
                label: Some(&label.text),
                primary: Some(label.primary),
                ..place(label.span, sources)
            })
            .collect(),
        flags: (diag.flags.iter())
            .map(|flag| FlagPlace {
                line: &flag.line,
                byte_start: flag.range.start,
                byte_end: flag.range.end,
                label: &flag.text,
                primary: flag.primary,
            })
            .collect(),
        notes: &diag.notes,
        helps: (diag.helps.iter())
            .map(|help| Help {
                text: &help.text,
                span: help.edit.as_ref().map(|edit| place(edit.span, sources)),
                replacement: help.edit.as_ref().map(|edit| edit.replacement.as_str()),
            })
            .collect(),
    };
    // Strings and numbers always have a JSON form.
    serde_json::to_string(&object).unwrap_or_default()
}

fn place(span: Span, sources: &Sources) -> Place<'_> {
    let start = sources.position(span.file, span.start);
    let end = sources.position(span.file, span.end);
    Place {
        file: sources.name(span.file),
        line: start.line,
        column: start.column,
        end_line: end.line,
        end_column: end.column,
        byte_start: span.start,
        byte_end: span.end,
        label: None,
        primary: None,
    }
}
