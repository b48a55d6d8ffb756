//! Values of literals.

/// The value of digits with `_` between them.
pub fn int(text: &str) -> Option<i64> {
    text.replace('_', "").parse().ok()
}

/// The value of a number with a point or an exponent, if it is finite.
pub fn float(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// The contents of a string literal, quotes included in `text`. Unknown escapes stand for
/// themselves; [`bad_escape`] finds them.
pub fn string(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut letters = inside(text).chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            value.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some(other) => value.push(other),
            None => {}
        }
    }
    value
}

/// Where in `text` the first unknown escape is, and its letter.
pub fn bad_escape(text: &str) -> Option<(usize, char)> {
    let mut letters = inside(text).char_indices();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            match letters.next() {
                Some((_, 'n' | 't' | '"' | '\\')) => {}
                Some((_, other)) => return Some((at + 1, other)),
                None => return None,
            }
        }
    }
    None
}

fn inside(text: &str) -> &str {
    let text = text.strip_prefix('"').unwrap_or(text);
    text.strip_suffix('"').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(int("1_000"), Some(1000));
        assert_eq!(int("99999999999999999999"), None);
        assert_eq!(float("1e400"), None);
        assert_eq!(string(r#""a\n\"\\b""#), "a\n\"\\b");
        assert_eq!(bad_escape(r#""a\q""#), Some((2, 'q')));
        assert_eq!(bad_escape(r#""\\q""#), None);
    }
}
