//! Names that mean nothing: told once for all their uses.

use super::Elab;
use super::library::{Def, std_functions};
use crate::diag::{Code, Diag, nearest};
use crate::syntax::ast::{FileId, Ident, Span};
use indexmap::IndexMap;

/// An unknown name in one scope: of the declaration being checked, or of the file.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    message: String,
    file: FileId,
    declaration: Option<u32>,
}

/// Unknown names that have been told, and where else they stand.
#[derive(Clone, Default)]
pub(super) struct Unknown {
    places: IndexMap<Key, Vec<Span>>,
}

/// How many lines a note lists.
const LISTED: usize = 5;

/// Functions of other languages, and what says the same here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("relu", "`where(x > 0.0, x, 0.0)`"),
    ("swish", "`silu(x)`"),
    ("clamp", "`min(max(x, low), high)`, of tensors of one shape"),
    (
        "matmul",
        "`einsum(\"n k, k m -> n m\", x, w)`, or `linear(x, w)` for a weight stored [out, in]",
    ),
    ("embedding", "`gather(table, ids)`"),
    ("permute", "`transpose(x, [1, 0])`"),
    ("view", "`x as [T, d]`"),
    ("cat", "`concat([x, y], -1)`"),
    ("masked_fill", "`where(mask, value, x)`"),
];

impl Elab<'_> {
    /// Reports a name that means nothing. `what` is its kind, as in "function" or "field of `C`".
    pub(super) fn unknown_name(&mut self, what: &str, name: &Ident, known: &[String]) {
        let owned = what.split_once(" of ");
        let message = match owned {
            Some((kind, owner)) => format!("{owner} has no {kind} `{}`", name.name),
            None => format!("unknown {what} `{}`", name.name),
        };
        // What is declared in a body or a module is unknown there only; all else in the file.
        let local = what == "name" && owned.is_none();
        if self.is_told(&message, name, local) {
            return;
        }
        let diag = Diag::error(Code::UnknownName, message).label(name.span, "not found");
        let diag = match nearest(&name.name, known.iter().map(String::as_str)) {
            Some(n) => diag.help_edit(format!("did you mean `{n}`?"), name.span, n),
            None if known.is_empty() => diag.help("declare it, or import it with `use`"),
            None => {
                let mut list: Vec<&str> = known.iter().map(String::as_str).collect();
                list.sort_unstable();
                list.dedup();
                let more = list.len().saturating_sub(12);
                list.truncate(12);
                let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
                diag.help(format!("known here: {}{tail}", list.join(", ")))
            }
        };
        self.diags.push(diag);
    }

    /// A function that is not known here; perhaps it only has to be imported.
    pub(super) fn unknown_function(&mut self, file: FileId, n: &str, span: Span) {
        let message = format!("unknown function `{n}`");
        if self.is_told(&message, &Ident { name: n.to_string(), span }, false) {
            return;
        }
        let mut known = Self::builtin_names();
        known.extend(self.names_of(file, |d| matches!(d, Def::Fn(_))));
        let library = std_functions();
        let near = nearest(n, known.iter().map(String::as_str)).map(String::from);
        let elsewhere = match library.iter().find(|name| **name == n) {
            Some(name) => Some(*name),
            None if near.is_none() => nearest(n, library.iter().copied()),
            None => None,
        };
        let diag = Diag::error(Code::UnknownName, message).label(span, "not found");
        if let Some((_, how)) = ELSEWHERE.iter().find(|(name, _)| *name == n) {
            self.diags.push(diag.help(format!("write {how}")));
            return;
        }
        self.diags.push(match (elsewhere, near) {
            (Some(name), _) => diag.help(format!("import it: `use std.{{{name}}}`")),
            (None, Some(near)) => diag.help_edit(format!("did you mean `{near}`?"), span, near),
            (None, None) => diag.help(
                "`vlmc explain ops` lists the ops; other functions are declared with `fn` or imported with `use`",
            ),
        });
    }

    /// Whether nothing more is to be said: the name was told at its first use, or an import that
    /// failed would have been it.
    fn is_told(&mut self, message: &str, name: &Ident, local: bool) -> bool {
        let file = name.span.file;
        let missing = self.names_of(file, |d| matches!(d, Def::Missing(_)));
        if missing.contains(&name.name)
            || nearest(&name.name, missing.iter().map(String::as_str)).is_some()
        {
            return true;
        }
        let declaration = local.then_some(self.declaration);
        let key = Key { message: message.to_string(), file, declaration };
        match self.unknown.places.get_mut(&key) {
            None => {
                self.unknown.places.insert(key, vec![name.span]);
                false
            }
            Some(places) => {
                if !places.contains(&name.span) {
                    places.push(name.span);
                }
                true
            }
        }
    }

    /// Adds to each unknown name where else it is used.
    pub(super) fn tell_other_uses(&mut self) {
        let places = std::mem::take(&mut self.unknown).places;
        let mut diags = std::mem::take(&mut self.diags);
        for diag in diags.iter_mut() {
            let Some(first) = diag.span().filter(|_| diag.code == Code::UnknownName) else {
                continue;
            };
            let mine = places
                .iter()
                .find(|(k, spans)| k.message == diag.message && spans.first() == Some(&first));
            let Some((_, [_, others @ ..])) = mine.map(|(k, spans)| (k, spans.as_slice())) else {
                continue;
            };
            let mut lines: Vec<usize> =
                others.iter().map(|s| self.lib.sources.position(s.file, s.start).line).collect();
            lines.sort_unstable();
            lines.dedup();
            if lines.is_empty() {
                continue;
            }
            let more = if lines.len() > LISTED { ", .." } else { "" };
            let word = if lines.len() == 1 { "line" } else { "lines" };
            lines.truncate(LISTED);
            let list: Vec<String> = lines.iter().map(usize::to_string).collect();
            diag.notes.push(format!("used again in {word} {}{more}", list.join(", ")));
        }
        self.diags = diags;
    }
}
