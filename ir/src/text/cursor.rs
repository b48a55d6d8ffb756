//! Reads the tokens of `.vir` text, with positions for errors.

use crate::dim::{Dim, Poly};
use crate::ty::{DType, Ty};

/// What is wrong with a text, and at which byte.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// Byte offset.
    pub at: usize,
    /// In words.
    pub message: String,
}

impl ParseError {
    /// An error at a byte offset.
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        ParseError { at, message: message.into() }
    }
}

/// Brackets nested deeper than this are refused, so that no input can exhaust the stack.
const MAX_DEPTH: u32 = 64;
/// A power of a sum grows with the exponent; text never holds more than this many terms.
const MAX_TERMS: usize = 256;

/// A position in a text.
#[derive(Clone)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

type Result<T> = std::result::Result<T, ParseError>;

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    pub fn new(text: &'a str) -> Self {
        Cursor { text, at: 0, depth: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips blanks and `//` comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Byte offset of the next token.
    pub fn position(&mut self) -> usize {
        self.skip();
        self.at
    }

    /// Whether only blanks and comments remain.
    pub fn at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty()
    }

    /// An error at the next token.
    pub fn error<T>(&mut self, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.position(), message))
    }

    /// The next token in words, for messages.
    fn found(&mut self) -> String {
        self.skip();
        let rest = self.rest();
        let len = word_len(rest).max(rest.chars().next().map_or(0, char::len_utf8));
        if len == 0 { "the end of the text".to_string() } else { format!("`{}`", &rest[..len]) }
    }

    /// Whether the next characters are `punctuation`.
    pub fn peek(&mut self, punctuation: &str) -> bool {
        self.skip();
        self.rest().starts_with(punctuation)
    }

    /// Takes `punctuation` if it is next.
    pub fn eat(&mut self, punctuation: &str) -> bool {
        let found = self.peek(punctuation);
        if found {
            self.at += punctuation.len();
        }
        found
    }

    /// Takes `punctuation`.
    ///
    /// # Errors
    /// When something else is next.
    pub fn expect(&mut self, punctuation: &str) -> Result<()> {
        if self.eat(punctuation) {
            return Ok(());
        }
        let found = self.found();
        self.error(format!("expected `{punctuation}`, found {found}"))
    }

    /// The next word without taking it; empty when something else is next.
    pub fn peek_word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        &rest[..word_len(rest)]
    }

    /// Takes the word if it is next.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    /// Takes a word: letters, digits, `_` and `.`.
    ///
    /// # Errors
    /// When something else is next.
    pub fn word(&mut self) -> Result<&'a str> {
        let word = self.peek_word();
        if word.is_empty() {
            let found = self.found();
            return self.error(format!("expected a name, found {found}"));
        }
        self.at += word.len();
        Ok(word)
    }

    /// Takes this very word.
    ///
    /// # Errors
    /// When something else is next.
    pub fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) {
            return Ok(());
        }
        let found = self.found();
        self.error(format!("expected `{word}`, found {found}"))
    }

    /// Takes an integer.
    ///
    /// # Errors
    /// When something else is next, or it does not fit 64 bits.
    pub fn integer(&mut self) -> Result<i64> {
        let at = self.position();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            let found = self.found();
            return self.error(format!("expected an integer, found {found}"));
        }
        let text = &rest[..sign + digits];
        self.at += text.len();
        text.parse().map_err(|_| ParseError::new(at, format!("{text} does not fit 64 bits")))
    }

    /// Takes a real number, `inf`, `-inf` or `NaN`.
    ///
    /// # Errors
    /// When something else is next.
    pub fn number(&mut self) -> Result<f64> {
        self.skip();
        let rest = self.rest();
        let len = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+'))
            .count();
        match rest[..len].parse() {
            Ok(v) => {
                self.at += len;
                Ok(v)
            }
            Err(_) => {
                let found = self.found();
                self.error(format!("expected a number, found {found}"))
            }
        }
    }

    /// Takes a string in double quotes.
    ///
    /// # Errors
    /// When something else is next, or the quote is not closed on its line.
    pub fn string(&mut self) -> Result<String> {
        let start = self.position();
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out);
                }
                '\n' => break,
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => out.push(c),
                    _ => return Err(ParseError::new(self.at + i, "unknown escape")),
                },
                c => out.push(c),
            }
        }
        Err(ParseError::new(start, "this string is not closed"))
    }

    /// Takes an element type.
    ///
    /// # Errors
    /// When something else is next.
    pub fn dtype(&mut self) -> Result<DType> {
        let at = self.position();
        let word = self.word()?;
        DType::from_name(word)
            .ok_or_else(|| ParseError::new(at, format!("unknown element type `{word}`")))
    }

    /// Takes a size: sums, differences and products of integers and symbols, and exact quotients.
    ///
    /// # Errors
    /// When something else is next, or it has too many terms.
    pub fn poly(&mut self) -> Result<Poly> {
        let mut sum = if self.eat("-") { self.poly_term()?.neg() } else { self.poly_term()? };
        loop {
            if self.eat("+") {
                sum = sum.add(&self.poly_term()?);
            } else if self.eat("-") {
                sum = sum.sub(&self.poly_term()?);
            } else {
                return Ok(sum);
            }
        }
    }

    fn poly_term(&mut self) -> Result<Poly> {
        let at = self.position();
        let mut product = self.poly_factor()?;
        loop {
            if self.eat("*") {
                product = product.mul(&self.poly_factor()?);
            } else if self.peek("/") && !self.peek("//") && self.eat("/") {
                product = product
                    .div(&self.poly_factor()?)
                    .ok_or_else(|| ParseError::new(at, "division by zero"))?;
            } else {
                return Ok(product);
            }
            if product.len() > MAX_TERMS {
                return Err(ParseError::new(at, format!("more than {MAX_TERMS} terms")));
            }
        }
    }

    fn poly_factor(&mut self) -> Result<Poly> {
        if self.peek("(") {
            return self.nested(|c| {
                c.expect("(")?;
                let p = c.poly()?;
                c.expect(")")?;
                Ok(p)
            });
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return self.integer().map(Poly::constant);
        }
        let word = self.word()?;
        Ok(Poly::symbol(word))
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return self.error(format!("nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// Takes a dim: a size, or named segments `q: K + v: V`.
    ///
    /// # Errors
    /// When something else is next.
    pub fn dim(&mut self) -> Result<Dim> {
        let mut ahead = self.clone();
        if ahead.word().is_err() || !ahead.peek(":") {
            return self.poly().map(Dim::new);
        }
        let mut segments = vec![];
        loop {
            let name = self.word()?;
            self.expect(":")?;
            segments.push((name.into(), self.poly_term()?));
            if !self.eat("+") {
                return Ok(Dim::from_segments(segments));
            }
        }
    }

    /// Takes a type.
    ///
    /// # Errors
    /// When something else is next.
    pub fn ty(&mut self) -> Result<Ty> {
        let dtype = self.dtype()?;
        self.expect("[")?;
        let mut dims = vec![];
        while !self.eat("]") {
            if !dims.is_empty() {
                self.expect(",")?;
            }
            dims.push(self.dim()?);
        }
        Ok(Ty::new(dtype, dims))
    }
}

/// Whether `text` is one word, as names in text must be.
pub fn is_word(text: &str) -> bool {
    !text.is_empty() && word_len(text) == text.len()
}

/// Length of the word at the start of `text`. A word ends before a `.` that nothing follows, so
/// that `..` is never part of one.
fn word_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let mut len = bytes.iter().take_while(|b| is_word(b)).count();
    while len > 0 && bytes.get(len) == Some(&b'.') && bytes.get(len + 1).is_some_and(is_word) {
        len += 1 + bytes[len + 1..].iter().take_while(|b| is_word(b)).count();
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(text: &str) -> String {
        Cursor::new(text).ty().map(|t| t.to_string()).unwrap_or_else(|e| format!("{}: {e}", e.at))
    }

    #[test]
    fn types_print_as_they_parse() {
        for text in [
            "f32[]",
            "bf16[T, 2*K + V]",
            "i32[docs + 1]",
            "bf16[T, q: 2*K + k: (K + 1)]",
            "f32[T, (hidden / d)*c.heads]",
        ] {
            let once = ty(text);
            assert_eq!(once, ty(&once));
        }
        assert_eq!(ty("bf16[T, q: 2*K]"), "bf16[T, q: 2*K]");
    }

    #[test]
    fn errors_have_places() {
        assert_eq!(ty("f32[T,"), "6: expected a name, found the end of the text");
        assert_eq!(ty("f33[T]"), "0: unknown element type `f33`");
        assert_eq!(ty("f32[T @up]"), "6: expected `,`, found `@`");
        let deep = format!("f32[{}1", "(".repeat(1000));
        assert!(ty(&deep).contains("nested more than 64 deep"));
    }
}
