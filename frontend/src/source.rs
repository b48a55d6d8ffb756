//! Source files in memory: names, texts and positions.
//!
//! Everything here answers for any [`FileId`] and any offset: a wrong one gives an empty text or
//! the nearest position, because error reporting must not fail.

use crate::diag::{Code, Diag};
use crate::syntax::ast::{FileId, Span};

/// Largest file that is read. Spans hold 32-bit offsets; this bound also keeps the memory of a
/// tree within reason.
pub const MAX_FILE_BYTES: usize = 16 << 20;

/// A line and a column, both from 1; columns count characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// All files of one compilation.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    files: Vec<SourceFile>,
}

#[derive(Clone, Debug)]
struct SourceFile {
    name: String,
    text: String,
    line_starts: Vec<usize>,
}

impl Sources {
    /// No files yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text under the name that messages show.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let text = text.into();
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let id = FileId(self.files.len() as u32);
        self.files.push(SourceFile { name: name.into(), text, line_starts });
        id
    }

    /// Adds what was read from a disk, which need not be text.
    ///
    /// The file is added in any case, so that the diagnostic can show it.
    #[allow(clippy::result_large_err)] // Rare, and the caller only hands it on.
    pub fn add_bytes(&mut self, name: impl Into<String>, bytes: Vec<u8>) -> Result<FileId, Diag> {
        let name = name.into();
        if bytes.len() > MAX_FILE_BYTES {
            let size = bytes.len();
            let file = self.add(name, "");
            return Err(Diag::error(
                Code::FileTooLarge,
                format!("file of {size} bytes is larger than the limit of {MAX_FILE_BYTES} bytes"),
            )
            .label(Span { file, start: 0, end: 0 }, "")
            .help("split the spec into several files and join them with `use`"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(self.add(name, text)),
            Err(error) => {
                let offset = error.utf8_error().valid_up_to();
                let bad = error.as_bytes().get(offset).copied().unwrap_or_default();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let file = self.add(name, text);
                let start = offset as u32;
                let end = start + char::REPLACEMENT_CHARACTER.len_utf8() as u32;
                Err(Diag::error(Code::NotUtf8, format!("file is not UTF-8 at byte {offset}"))
                    .label(Span { file, start, end }, format!("byte 0x{bad:02x} here"))
                    .help("save the file as UTF-8"))
            }
        }
    }

    /// Files in the order they were added.
    pub fn ids(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files.len() as u32).map(FileId)
    }

    /// The name messages show.
    pub fn name(&self, file: FileId) -> &str {
        self.get(file).map_or("<unknown>", |f| &f.name)
    }

    /// The whole text.
    pub fn text(&self, file: FileId) -> &str {
        self.get(file).map_or("", |f| &f.text)
    }

    /// The text a span covers; empty when the span is not of this file.
    pub fn snippet(&self, span: Span) -> &str {
        self.text(span.file).get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Line and column of a byte.
    pub fn position(&self, file: FileId, byte: u32) -> Position {
        let Some(source) = self.get(file) else { return Position { line: 1, column: 1 } };
        let byte = floor_char(&source.text, byte as usize);
        let line = source.line_starts.partition_point(|start| *start <= byte);
        let start = source.line_starts[line.saturating_sub(1)];
        Position { line, column: source.text[start..byte].chars().count() + 1 }
    }

    /// How many lines a file has; an empty file has one.
    pub fn line_count(&self, file: FileId) -> usize {
        self.get(file).map_or(0, |f| f.line_starts.len())
    }

    /// Byte range of a line (from 1) without its line end.
    pub fn line_range(&self, file: FileId, line: usize) -> std::ops::Range<usize> {
        let Some(source) = self.get(file) else { return 0..0 };
        let Some(&start) = line.checked_sub(1).and_then(|at| source.line_starts.get(at)) else {
            return source.text.len()..source.text.len();
        };
        let end = source.line_starts.get(line).map_or(source.text.len(), |next| next - 1);
        let end = if source.text[start..end].ends_with('\r') { end - 1 } else { end };
        start..end
    }

    /// A line (from 1) without its line end.
    pub fn line_text(&self, file: FileId, line: usize) -> &str {
        &self.text(file)[self.line_range(file, line)]
    }

    fn get(&self, file: FileId) -> Option<&SourceFile> {
        self.files.get(file.0 as usize)
    }
}

/// The nearest character start at or before `byte`.
pub(crate) fn floor_char(text: &str, byte: usize) -> usize {
    text.floor_char_boundary(byte.min(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let mut sources = Sources::new();
        let file = sources.add("a.vlm", "é = 1\r\nab");
        assert_eq!(sources.position(file, 3), Position { line: 1, column: 3 });
        assert_eq!(sources.position(file, 9), Position { line: 2, column: 2 });
        assert_eq!(sources.position(file, 999), Position { line: 2, column: 3 });
        assert_eq!(sources.line_text(file, 1), "é = 1");
        assert_eq!(sources.line_text(file, 2), "ab");
        assert_eq!(sources.line_text(file, 3), "");
        assert_eq!(sources.line_text(FileId(7), 1), "");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let mut sources = Sources::new();
        assert!(sources.add_bytes("a.vlm", b"let".to_vec()).is_ok());
        let bad = sources.add_bytes("b.vlm", b"ab\xffcd".to_vec()).err();
        assert_eq!(bad.map(|d| (d.code, d.message)), {
            Some((Code::NotUtf8, "file is not UTF-8 at byte 2".into()))
        });
        let big = sources.add_bytes("c.vlm", vec![b' '; MAX_FILE_BYTES + 1]).err();
        assert_eq!(big.map(|d| d.code), Some(Code::FileTooLarge));
    }
}
