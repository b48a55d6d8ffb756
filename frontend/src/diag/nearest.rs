//! "Did you mean".

/// The candidate most like `name`, if one is like enough: at most a third of the letters differ.
/// The earlier of two equally good ones wins.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = name.chars().collect();
    // Comparing is quadratic in the length; nobody mistypes a name this long.
    if wanted.is_empty() || wanted.len() > 100 {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let letters: Vec<char> = candidate.chars().take(101).collect();
        let allowed = wanted.len().max(letters.len()).div_ceil(3);
        if candidate == name || letters.is_empty() || letters.len().abs_diff(wanted.len()) > allowed
        {
            continue;
        }
        let found = distance(&wanted, &letters);
        // A name of one or two letters is like any other; only case may differ there.
        let alike = if wanted.len() < 3 {
            candidate.eq_ignore_ascii_case(name)
        } else {
            found <= allowed && found < wanted.len().min(letters.len())
        };
        if alike && best.is_none_or(|(least, _)| found < least) {
            best = Some((found, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let same = x == y;
            let mut least = (last[j] + usize::from(!same)).min(last[j + 1] + 1);
            least = least.min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y && !same {
                least = least.min(before_last[j - 1] + 1);
            }
            row[j + 1] = least;
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let names = ["hidden", "heads", "head_dim", "layers", "T"];
        assert_eq!(nearest("hiden", names), Some("hidden"));
        assert_eq!(nearest("haeds", names), Some("heads"));
        assert_eq!(nearest("head_dmi", names), Some("head_dim"));
        assert_eq!(nearest("t", names), Some("T"));
        assert_eq!(nearest("vocabulary", names), None);
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest("", names), None);
    }
}
