//! Text to tokens. Every byte of any text is in exactly one token.

use logos::Logos;

use crate::syntax::kind::SyntaxKind;

/// Kinds and places of all tokens of a text.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The kind of each.
    pub kinds: Vec<SyntaxKind>,
    /// The first byte of each, and the length of the text.
    pub starts: Vec<u32>,
}

impl Tokens {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Bytes of a token; the one after the last is empty and at the end of the text.
    pub fn range(&self, token: usize) -> std::ops::Range<usize> {
        let last = self.starts.last().copied().unwrap_or(0);
        let at = |token: usize| self.starts.get(token).copied().unwrap_or(last) as usize;
        at(token)..at(token + 1)
    }
}

/// Splits a text.
pub fn tokens(text: &str) -> Tokens {
    let mut kinds = Vec::with_capacity(text.len() / 4);
    let mut starts = Vec::with_capacity(text.len() / 4 + 1);
    for (token, range) in SyntaxKind::lexer(text).spanned() {
        let kind = match token {
            Ok(SyntaxKind::Comment) => comment_kind(&text[range.clone()]),
            Ok(kind) => kind,
            // A run of unknown characters is one token, and one message.
            Err(()) if kinds.last() == Some(&SyntaxKind::Unknown) => continue,
            Err(()) => SyntaxKind::Unknown,
        };
        kinds.push(kind);
        starts.push(range.start as u32);
    }
    starts.push(text.len() as u32);
    Tokens { kinds, starts }
}

fn comment_kind(text: &str) -> SyntaxKind {
    if text.starts_with("//!") {
        SyntaxKind::FileDoc
    } else if text.starts_with("///") && !text.starts_with("////") {
        SyntaxKind::DocComment
    } else {
        SyntaxKind::Comment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let tokens = tokens(text);
        let found: Vec<String> = (0..tokens.len())
            .filter(|i| tokens.kinds[*i] != SyntaxKind::Whitespace)
            .map(|i| format!("{:?} {}", tokens.kinds[i], text[tokens.range(i)].escape_debug()))
            .collect();
        assert_eq!(found.join("|"), expected);
        let whole: String = (0..tokens.len()).map(|i| &text[tokens.range(i)]).collect();
        assert_eq!(whole, text);
    }

    #[test]
    fn numbers() {
        check("1_000 1.5e-3 1e-6", "Int 1_000|Float 1.5e-3|Float 1e-6");
        check("0..2", "Int 0|DotDot ..|Int 2");
        check("12ab 1.5x 1e", "BadNumber 12ab|BadNumber 1.5x|BadNumber 1e");
        check("2*K", "Int 2|Star *|Ident K");
    }

    #[test]
    fn comments_and_strings() {
        check("//! a", "FileDoc //! a");
        check("/// a\n//// b", "DocComment /// a|Newline \\n|Comment //// b");
        check(r#""a\"b" "c"#, r#"String \"a\\\"b\"|UnclosedString \"c"#);
        check("\"a\\\n'b'", "UnclosedString \\\"a\\\\|Newline \\n|QuotedString \\'b\\'");
    }

    #[test]
    fn anything_is_a_token() {
        check("a § é b", "Ident a|Unknown §|Unknown é|Ident b");
        check("#$?", "Unknown #$?");
        check("\u{0}\u{feff}", "Unknown \\0");
        check("fn function", "FnWord fn|Ident function");
    }
}
