//! For people: the source with labels under it.
//!
//! The drawing is that of `annotate-snippets`. It is given only the lines it needs: it indexes
//! whatever it gets, and a hundred errors in a large file would index it a hundred times.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Patch, Renderer, Snippet};

use crate::diag::{Diag, Edit, Flag, Label, Severity};
use crate::source::{Sources, floor_char};
use crate::syntax::ast::FileId;

/// What stands for a file where flags are shown.
const COMMAND_LINE: &str = "command line";

/// Lines longer than this are cut around the label: nobody can read them anyway.
const LONGEST_LINE: usize = 400;

/// One diagnostic with the source it speaks of.
pub fn human(diag: &Diag, sources: &Sources, color: bool) -> String {
    let level = match diag.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group =
        Group::with_title(level.primary_title(diag.message.as_str()).id(diag.code.number()));
    for file in files(diag) {
        group = group.element(labelled(diag, file, sources));
    }
    for line in lines(&diag.flags) {
        let marks = diag.flags.iter().filter(|flag| flag.line == line).map(|flag| {
            let range = clip(&flag.range, line, 0);
            annotation(range, flag.primary, &flag.text)
        });
        let snippet = Snippet::source(line).path(COMMAND_LINE).line_numbering(false);
        group = group.element(snippet.annotations(marks));
    }
    for note in &diag.notes {
        group = group.element(Level::NOTE.message(note.as_str()));
    }
    // Without any source to draw, what to do is said on a line of its own under the claim.
    let bare = diag.labels.is_empty() && diag.flags.is_empty();
    let (words, drawn): (Vec<_>, Vec<_>) =
        diag.helps.iter().partition(|help| bare && help.edit.is_none());
    for help in words {
        group = group.element(Level::HELP.message(help.text.as_str()));
    }
    let mut groups = vec![group];
    for help in drawn {
        let group = Group::with_title(Level::HELP.secondary_title(help.text.as_str()));
        groups.push(match &help.edit {
            Some(edit) => group.element(edited(edit, sources)),
            None => group,
        });
    }
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let text = renderer.render(&groups);
    if diag.flags.is_empty() { text } else { without_columns(&text) }
}

/// A command line has no lines and columns worth telling.
fn without_columns(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let place = line.find(COMMAND_LINE).map(|at| at + COMMAND_LINE.len());
        let digits = |c: char| c.is_ascii_digit() || c == ':';
        match place {
            Some(at) if line[at..].trim_end().trim_end_matches("\u{1b}[0m").chars().all(digits) => {
                out.push_str(&line[..at]);
                out.push_str(line[at..].trim_start_matches(digits));
            }
            _ => out.push_str(line),
        }
    }
    out
}

/// The files a diagnostic speaks of, that of the mistake first.
fn files(diag: &Diag) -> Vec<FileId> {
    let mut files: Vec<FileId> = diag.span().map(|s| s.file).into_iter().collect();
    for label in &diag.labels {
        if !files.contains(&label.span.file) {
            files.push(label.span.file);
        }
    }
    files
}

fn lines(flags: &[Flag]) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    for flag in flags {
        if !lines.contains(&flag.line.as_str()) {
            lines.push(&flag.line);
        }
    }
    lines
}

fn labelled<'a>(diag: &'a Diag, file: FileId, sources: &'a Sources) -> Snippet<'a, Annotation<'a>> {
    let labels: Vec<&Label> = diag.labels.iter().filter(|l| l.span.file == file).collect();
    let ranges = labels.iter().map(|l| l.span.start as usize..l.span.end as usize);
    let window = Window::around(ranges, file, sources);
    let annotations = labels.iter().map(|label| {
        let range =
            clip(&(label.span.start as usize..label.span.end as usize), window.text, window.start);
        annotation(range, label.primary, &label.text)
    });
    Snippet::source(window.text)
        .path(sources.name(file))
        .line_start(window.line)
        .annotations(annotations)
}

fn edited<'a>(edit: &'a Edit, sources: &'a Sources) -> Snippet<'a, Patch<'a>> {
    let range = edit.span.start as usize..edit.span.end as usize;
    let window = Window::around([range.clone()].into_iter(), edit.span.file, sources);
    Snippet::source(window.text)
        .path(sources.name(edit.span.file))
        .line_start(window.line)
        .patch(Patch::new(clip(&range, window.text, window.start), edit.replacement.as_str()))
}

fn annotation(range: Range<usize>, primary: bool, text: &str) -> Annotation<'_> {
    let kind = if primary { AnnotationKind::Primary } else { AnnotationKind::Context };
    let annotation = kind.span(range);
    if text.is_empty() { annotation } else { annotation.label(text) }
}

/// A range of the whole, as one of `part`, which begins at `offset` of the whole.
fn clip(range: &Range<usize>, part: &str, offset: usize) -> Range<usize> {
    let start = floor_char(part, range.start.saturating_sub(offset));
    let end = floor_char(part, range.end.saturating_sub(offset));
    start..end.max(start)
}

/// The part of a file that is drawn.
struct Window<'a> {
    text: &'a str,
    start: usize,
    line: usize,
}

impl<'a> Window<'a> {
    fn around(
        ranges: impl Iterator<Item = Range<usize>>,
        file: FileId,
        sources: &'a Sources,
    ) -> Self {
        let whole = sources.text(file);
        let (start, end) = ranges.fold((usize::MAX, 0), |(start, end), range| {
            (start.min(range.start), end.max(range.end.max(range.start)))
        });
        let start = floor_char(whole, start);
        let end = floor_char(whole, end.max(start));
        let line = sources.position(file, start as u32).line;
        let last_line = sources.position(file, end as u32).line;
        let (lines_start, lines_end) =
            (sources.line_range(file, line).start, sources.line_range(file, last_line).end);
        let near_start = floor_char(whole, start.saturating_sub(LONGEST_LINE / 2));
        let near_end = floor_char(whole, end.saturating_add(LONGEST_LINE / 2));
        let first = if start - lines_start > LONGEST_LINE { near_start } else { lines_start };
        let last = if lines_end.saturating_sub(end) > LONGEST_LINE { near_end } else { lines_end };
        Window { text: &whole[first..last.max(first)], start: first, line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::{Code, render};
    use crate::syntax::ast::Span;

    #[test]
    fn all_the_parts() {
        let mut sources = Sources::new();
        let file = sources.add("models/mine.vlm", "fn f() -> [] {\n    let s = q * v\n}\n");
        let other = sources.add("other.vlm", "\n\nlet q = 3\n");
        let span = |start, end| Span { file, start, end };
        let diag = Diag::error(Code::UnexpectedToken, "dims `a` (128) and `b` (64) do not match")
            .label(span(31, 32), "v : [T, b = 64]")
            .secondary(span(27, 28), "q : [T, a = 128]")
            .secondary(Span { file: other, start: 6, end: 7 }, "from here")
            .secondary_flag("--pp 4 --vpp 2", 7..14, "makes 8 chunks")
            .note("a note")
            .help("in words")
            .help_edit("as an edit", span(29, 30), "+");
        let text = human(&diag, &sources, false);
        let expected = "\
error[V0101]: dims `a` (128) and `b` (64) do not match
 --> models/mine.vlm:2:17
  |
2 |     let s = q * v
  |             -   ^ v : [T, b = 64]
  |             |
  |             q : [T, a = 128]
  |
 ::: other.vlm:3:5
  |
3 | let q = 3
  |     - from here
  |
 ::: command line
  |
  | --pp 4 --vpp 2
  |        ------- makes 8 chunks
  |
  = note: a note
help: in words
help: as an edit
  |
2 -     let s = q * v
2 +     let s = q + v
  |";
        assert_eq!(text, expected, "\n{text}");
        assert_eq!(
            render::short(&diag, &sources),
            "models/mine.vlm:2:17: error[V0101]: dims `a` (128) and `b` (64) do not match"
        );
    }

    #[test]
    fn odd_places_do_not_fail() {
        let mut sources = Sources::new();
        let file = sources.add("a.vlm", "é".repeat(5000));
        let empty = sources.add("b.vlm", "");
        let far = FileId(9);
        for (file, start, end) in
            [(file, 3, 1), (file, 9999, 10_000), (file, 0, 10_000), (empty, 0, 0), (far, 3, 4)]
        {
            let span = Span { file, start, end };
            let diag =
                Diag::error(Code::UnexpectedToken, "m").label(span, "l").help_edit("e", span, "");
            for format in [render::Format::PLAIN, render::Format::Short, render::Format::Json] {
                assert!(!render::one(&diag, &sources, format).is_empty());
            }
        }
    }
}
