//! How diagnostics look: for people, on one line, for tools.

mod human;
mod json;

pub use human::human;
pub use json::json;

use crate::diag::{Diag, Diags, Severity};
use crate::source::Sources;

/// What `--error-format` chooses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Format {
    /// With the source and labels under it; colours only if the flag is set.
    Human {
        /// Colours by terminal escapes.
        color: bool,
    },
    /// One line each, which editors can follow.
    #[default]
    Short,
    /// One JSON object a line.
    Json,
}

impl Format {
    /// For people, without colours.
    pub const PLAIN: Format = Format::Human { color: false };
}

/// All diagnostics in their order, each ended by a line end, and how many were left out.
pub fn all(diags: &Diags, sources: &Sources, format: Format) -> String {
    let (list, left_out) = diags.sorted();
    let mut out = String::new();
    for diag in list {
        out.push_str(&one(diag, sources, format));
        out.push('\n');
        // People want air between messages.
        if matches!(format, Format::Human { .. }) {
            out.push('\n');
        }
    }
    if left_out > 0 {
        let text = format!("{left_out} more left out");
        match format {
            Format::Json => {
                out.push_str(&serde_json::json!({ "left_out": left_out }).to_string());
            }
            Format::Human { .. } | Format::Short => out.push_str(&format!("note: {text}")),
        }
        out.push('\n');
    } else if matches!(format, Format::Human { .. }) && !out.is_empty() {
        out.pop();
    }
    out
}

/// One diagnostic, without a line end after it.
pub fn one(diag: &Diag, sources: &Sources, format: Format) -> String {
    match format {
        Format::Human { color } => human(diag, sources, color),
        Format::Short => short(diag, sources),
        Format::Json => json(diag, sources),
    }
}

/// `file:line:column: error[V0101]: message`
pub fn short(diag: &Diag, sources: &Sources) -> String {
    let Diag { severity, code, message, .. } = diag;
    let head = format!("{}[{code}]: {message}", severity.word());
    match (diag.span(), diag.flags.first()) {
        (Some(span), _) => {
            let at = sources.position(span.file, span.start);
            format!("{}:{}:{}: {head}", sources.name(span.file), at.line, at.column)
        }
        (None, Some(flag)) => format!("command line:1:{}: {head}", flag.range.start + 1),
        (None, None) => head,
    }
}

/// `3 errors, 1 warning`; nothing if there are none.
pub fn summary(diags: &Diags) -> String {
    let count = |severity| diags.iter().filter(|d| d.severity == severity).count();
    let errors = diags.len() - count(Severity::Warning);
    let word = |n: usize, word: &str| match n {
        0 => None,
        1 => Some(format!("1 {word}")),
        n => Some(format!("{n} {word}s")),
    };
    let parts = [word(errors, "error"), word(count(Severity::Warning), "warning")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::{Code, LIMIT};
    use crate::syntax::ast::Span;

    #[test]
    fn order_and_limit() {
        let mut sources = Sources::new();
        let file = sources.add("a.vlm", "a".repeat(300));
        let mut diags = Diags::new();
        for start in (0..LIMIT as u32 + 50).rev() {
            let span = Span { file, start, end: start + 1 };
            // Said twice, shown once.
            for _ in 0..2 {
                diags.push(Diag::error(Code::BadNumber, "m").label(span, ""));
            }
        }
        let text = all(&diags, &sources, Format::Short);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), LIMIT + 1);
        assert_eq!(lines[0], "a.vlm:1:1: error[V0106]: m");
        assert_eq!(lines[LIMIT - 1], "a.vlm:1:100: error[V0106]: m");
        assert_eq!(lines[LIMIT], "note: 50 more left out");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let mut sources = Sources::new();
        let file = sources.add("a.vlm", "é\nbc");
        let span = Span { file, start: 3, end: 4 };
        let diag = Diag::warning(Code::DocOnNothing, "say \"m\"")
            .label(span, "l")
            .note("n")
            .help_edit("h", span, "x");
        assert_eq!(
            json(&diag, &sources),
            "{\"code\":\"V0109\",\"severity\":\"warning\",\"message\":\"say \\\"m\\\"\",\"spans\":[{\
             \"file\":\"a.vlm\",\"line\":2,\"column\":1,\"end_line\":2,\"end_column\":2,\
             \"byte_start\":3,\"byte_end\":4,\"label\":\"l\",\"primary\":true}],\"flags\":[],\
             \"notes\":[\"n\"],\"helps\":[{\"text\":\"h\",\"span\":{\"file\":\"a.vlm\",\"line\":2,\
             \"column\":1,\"end_line\":2,\"end_column\":2,\"byte_start\":3,\"byte_end\":4},\
             \"replacement\":\"x\"}]}"
        );
    }

    #[test]
    fn a_spec_cannot_speak_to_the_terminal() {
        let mut sources = Sources::new();
        let text = "symbol \u{1b}[31m '\u{1b}[0m' \u{202e}x\r\u{7}";
        let file = sources.add("a.vlm", text);
        let parse = crate::syntax::parse(file, text);
        for format in [Format::PLAIN, Format::Short, Format::Json] {
            let shown = all(&parse.diags, &sources, format);
            let bad = |c: char| c == '\u{1b}' || c == '\u{7}' || c == '\u{202e}' || c == '\r';
            assert!(!shown.contains(bad), "{shown:?}");
        }
    }
}
