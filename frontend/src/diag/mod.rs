//! Diagnostics: what they hold, how they are collected, and (in [`render`]) how they look.
//!
//! A message states one claim in one line. Labels carry the facts, at the place of each; notes
//! explain; a help says what to do, if possible as an edit. Every code has a page in `explain/`.

mod code;
mod nearest;
pub mod render;

pub use code::{Code, Phase};
pub use nearest::nearest;

use std::ops::Range;

use crate::syntax::ast::Span;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing is produced.
    Error,
    /// Suspicious, but well defined.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// A place in a source file and what is to be said about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What; may be empty.
    pub text: String,
    /// The place of the mistake, rather than of a fact that explains it.
    pub primary: bool,
}

/// A place on the command line and what is to be said about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Flag {
    /// The flags as the user may have written them: `--pp 4 --vpp 2`.
    pub line: String,
    /// Bytes of `line` that are meant.
    pub range: Range<usize>,
    /// What; may be empty.
    pub text: String,
    /// The place of the mistake, rather than of a fact that explains it.
    pub primary: bool,
}

/// Something to do about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Help {
    /// In words.
    pub text: String,
    /// As an edit of the source.
    pub edit: Option<Edit>,
}

/// Replacement of a part of a source file.
#[derive(Clone, PartialEq, Debug)]
pub struct Edit {
    /// What goes.
    pub span: Span,
    /// What comes in its place.
    pub replacement: String,
}

/// One diagnostic.
#[derive(Clone, PartialEq, Debug)]
pub struct Diag {
    /// Its code.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// One line.
    pub message: String,
    /// Places in source files.
    pub labels: Vec<Label>,
    /// Places on the command line.
    pub flags: Vec<Flag>,
    /// Explanations.
    pub notes: Vec<String>,
    /// Remedies.
    pub helps: Vec<Help>,
}

impl Diag {
    /// An error.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, message)
    }

    /// A warning.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message)
    }

    fn new(code: Code, severity: Severity, message: impl Into<String>) -> Self {
        Diag {
            code,
            severity,
            message: message.into(),
            labels: Vec::new(),
            flags: Vec::new(),
            notes: Vec::new(),
            helps: Vec::new(),
        }
    }

    /// The place of the mistake.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into(), primary: true });
        self
    }

    /// The place of a fact.
    pub fn secondary(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into(), primary: false });
        self
    }

    /// A flag that is the mistake.
    pub fn flag(
        mut self,
        line: impl Into<String>,
        range: Range<usize>,
        text: impl Into<String>,
    ) -> Self {
        self.flags.push(Flag { line: line.into(), range, text: text.into(), primary: true });
        self
    }

    /// A flag that is a fact about the mistake.
    pub fn secondary_flag(
        mut self,
        line: impl Into<String>,
        range: Range<usize>,
        text: impl Into<String>,
    ) -> Self {
        self.flags.push(Flag { line: line.into(), range, text: text.into(), primary: false });
        self
    }

    /// An explanation.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// A remedy in words.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.helps.push(Help { text: text.into(), edit: None });
        self
    }

    /// A remedy as an edit.
    pub fn help_edit(
        mut self,
        text: impl Into<String>,
        span: Span,
        replacement: impl Into<String>,
    ) -> Self {
        let edit = Some(Edit { span, replacement: replacement.into() });
        self.helps.push(Help { text: text.into(), edit });
        self
    }

    /// Where the mistake is: the first primary label, else the first one.
    pub fn span(&self) -> Option<Span> {
        self.labels.iter().find(|l| l.primary).or(self.labels.first()).map(|l| l.span)
    }
}

/// How many diagnostics are shown.
pub const LIMIT: usize = 100;

/// Collects the diagnostics of a phase.
#[derive(Clone, Default, Debug)]
pub struct Diags {
    list: Vec<Diag>,
    left_out: usize,
}

impl Diags {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, diag: Diag) {
        self.list.push(diag);
    }

    /// Adds all of another collector.
    pub fn append(&mut self, other: Diags) {
        self.list.extend(other.list);
        self.left_out += other.left_out;
    }

    /// Counts one that its finder did not keep, as there were too many already.
    pub fn leave_out(&mut self) {
        self.left_out += 1;
    }

    /// Whether anything stops the compilation.
    pub fn has_errors(&self) -> bool {
        self.left_out > 0 || self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.left_out == 0
    }

    /// How many there are, those left out included.
    pub fn len(&self) -> usize {
        self.list.len() + self.left_out
    }

    /// In the order they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diag> {
        self.list.iter()
    }

    /// As [`Diags::iter`], to add to them.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Diag> {
        self.list.iter_mut()
    }

    /// What to show: by file, offset and code, without repetitions, at most [`LIMIT`]; and how
    /// many were left out.
    pub fn sorted(&self) -> (Vec<&Diag>, usize) {
        let mut list: Vec<&Diag> = self.list.iter().collect();
        // Those without a place come last.
        list.sort_by_key(|d| (d.span().is_none(), d.span().map(|s| (s.file, s.start)), d.code));
        list.dedup_by(|a, b| a == b);
        let cut = list.len().saturating_sub(LIMIT);
        list.truncate(LIMIT);
        (list, cut + self.left_out)
    }
}

impl Extend<Diag> for Diags {
    fn extend<I: IntoIterator<Item = Diag>>(&mut self, diags: I) {
        self.list.extend(diags);
    }
}

impl IntoIterator for Diags {
    type Item = Diag;
    type IntoIter = std::vec::IntoIter<Diag>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Diags {
    type Item = &'a Diag;
    type IntoIter = std::slice::Iter<'a, Diag>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
