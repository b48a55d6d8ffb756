//! The formatter: its style, and what it must never do.

use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::fmt;
use vlmc_frontend::source::Sources;
use vlmc_frontend::syntax::ast::FileId;
use vlmc_frontend::syntax::kind::SyntaxKind;
use vlmc_frontend::syntax::{self, lexer};

const SAMPLE: &str = include_str!("data/all_forms.vlm");
const FORMATTED: &str = include_str!("data/all_forms.formatted.vlm");

fn format(text: &str) -> Option<String> {
    fmt::format(FileId(0), text).ok()
}

fn check(text: &str, expected: &str) {
    let mut sources = Sources::new();
    let file = sources.add("test.vlm", text);
    let found = match fmt::format(file, text) {
        Ok(found) => found,
        Err(diags) => render::all(&diags, &sources, Format::PLAIN),
    };
    assert_eq!(found, expected, "\n{found}");
    assert_eq!(format(&found).as_deref(), Some(found.as_str()), "not idempotent");
}

/// Tokens that mean something, commas left out (they may be optional), and the comments.
fn essence(text: &str) -> (Vec<&str>, Vec<&str>) {
    let tokens = lexer::tokens(text);
    let (mut words, mut comments) = (Vec::new(), Vec::new());
    for (at, kind) in tokens.kinds.iter().enumerate() {
        let token = &text[tokens.range(at)];
        if kind.is_comment() {
            comments.push(token.trim_end());
        } else if !kind.is_trivia() && *kind != SyntaxKind::Comma {
            words.push(token);
        }
    }
    (words, comments)
}

/// The owned tree without its places.
fn meaning(text: &str) -> String {
    let parse = syntax::parse(FileId(0), text);
    assert!(!parse.diags.has_errors(), "must parse:\n{text}");
    let shown = format!("{:?}", parse.file.items);
    let mut parts = shown.split("Span {");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    out
}

/// Whether it was formatted, and all that must hold then holds.
fn holds(text: &str) -> bool {
    let Some(once) = format(text) else { return false };
    assert_eq!(essence(&once), essence(text), "changed\n{text}\nto\n{once}");
    assert_eq!(meaning(&once), meaning(text), "changed the meaning of\n{text}\nto\n{once}");
    let again = format(&once);
    assert_eq!(again.as_deref(), Some(once.as_str()), "not idempotent for\n{text}");
    true
}

#[test]
fn sample() {
    assert!(holds(SAMPLE));
    let found = format(SAMPLE).unwrap_or_default();
    if std::env::var_os("BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/all_forms.formatted.vlm");
        std::fs::write(path, &found).expect("the source folder can be written");
    } else {
        assert_eq!(found, FORMATTED, "run with BLESS=1 to accept");
    }
}

#[test]
fn columns() {
    check(
        "config A{a:int=1\nlonger : float=2.5 as \"x\"\n\n\nb : [int]\n}",
        "\
config A {
  a      : int   = 1
  longer : float = 2.5  as \"x\"

  b : [int]
}
",
    );
    check(
        "fn f(x:[T])->[T]{\nlet a=1\nlet (b,c)=x // tail\nx=b\nlet d=2\n}",
        "\
fn f(x: [T]) -> [T] {
  let a      = 1
  let (b, c) = x  // tail
  x = b
  let d = 2
}
",
    );
}

#[test]
fn long_lists_break() {
    check(
        "fn f(x: [T]) -> [T] { some_function(first_argument, second_argument, third_argument = other(1, 2, 3), the_fourth_argument) }",
        "\
fn f(x: [T]) -> [T] {
  some_function(
    first_argument,
    second_argument,
    third_argument = other(1, 2, 3),
    the_fourth_argument,
  )
}
",
    );
    check("fn f(x: [T],) -> [T] { g(x,\n1,) }", "fn f(x: [T]) -> [T] { g(x, 1) }\n");
}

#[test]
fn long_lines_of_declarations() {
    check(
        "\
fn f(first_argument: [T, hidden], second_argument: [T, hidden], third_argument: Sequence) -> [T, hidden] { third_argument }
module M(n: int) {
  param short : [n] init ones no_decay
  param gate_up : [E, gate: F + up: F, hidden] init normal(0.02) as \"experts.gate_up\" or each \"experts.{e}.gate\", \"experts.{e}.up\"
  let a = 1
  let rows = if n > 0 {
    x
  } else { y }
  let longer = 3
  let b = 4
}
",
        "\
fn f(
  first_argument: [T, hidden],
  second_argument: [T, hidden],
  third_argument: Sequence,
) -> [T, hidden] { third_argument }
module M(n: int) {
  param short   : [n]  init ones  no_decay
  param gate_up : [E, gate: F + up: F, hidden]
    init normal(0.02)
    as \"experts.gate_up\"
    or each \"experts.{e}.gate\", \"experts.{e}.up\"
  let a    = 1
  let rows = if n > 0 {
    x
  } else {
    y
  }
  let longer = 3
  let b      = 4
}
",
    );
}

#[test]
fn comments_stay() {
    check(
        "// a\nfn f( // b\n x: [T], // c\n // d\n y: [T] // e\n) -> [T] { // f\n // g\n\n\n // h\n x + // i\n y // j\n // k\n}\n// l",
        "\
// a
fn f(  // b
  x: [T],  // c
  // d
  y: [T],  // e
) -> [T] {  // f
  // g

  // h
  x +  // i
    y  // j
  // k
}
// l
",
    );
    check("", "");
    check("\n\n// only\n\n\n", "// only\n");
}

#[test]
fn a_file_with_errors_is_left_alone() {
    let diags = fmt::format(FileId(0), "config A {").err();
    assert!(diags.is_some_and(|diags| diags.has_errors()));
}

/// A small generator of random numbers; the same ones in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }
}

/// A text with other blanks, line ends and comments between its tokens.
fn reblank(text: &str, random: &mut Random) -> String {
    let tokens = lexer::tokens(text);
    let mut out = String::new();
    for (at, kind) in tokens.kinds.iter().enumerate() {
        let token = &text[tokens.range(at)];
        match kind {
            SyntaxKind::Newline | SyntaxKind::Whitespace => match random.below(40) {
                0 => out.push('\n'),
                1 => out.push_str("\n\n\n"),
                2 => out.push_str(" // random\n"),
                3 => out.push_str("\n  // own line\n "),
                4 => out.push_str("   "),
                5 if *kind == SyntaxKind::Newline => out.push(' '),
                _ => out.push_str(token),
            },
            _ => {
                out.push_str(token);
                match random.below(60) {
                    0 => out.push('\n'),
                    1 => out.push_str(" // random\n"),
                    2 => out.push(' '),
                    _ => {}
                }
            }
        }
    }
    out
}

fn mutate(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    for _ in 0..random.below(4) {
        let at = random.below(lines.len());
        match random.below(3) {
            0 if lines.len() > 1 => {
                lines.remove(at);
            }
            1 => lines.insert(at, lines[at]),
            _ => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
        }
    }
    lines.join("\n")
}

#[test]
fn mutated_samples_keep_their_meaning() {
    let mut random = Random(7);
    let mut formatted = 0;
    let items: Vec<&str> = SAMPLE.split("\n\n").collect();
    let rounds = if cfg!(debug_assertions) { 3000 } else { 20_000 };
    for round in 0..rounds {
        // Small pieces survive changes more often than the whole.
        let piece = items[round % items.len()];
        let changed = match random.below(3) {
            0 => reblank(piece, &mut random),
            1 => mutate(piece, &mut random),
            _ => {
                let text = mutate(SAMPLE, &mut random);
                reblank(&text, &mut random)
            }
        };
        formatted += usize::from(holds(&changed));
    }
    assert!(formatted > rounds / 10, "only {formatted} of {rounds} could be formatted");
    println!("{formatted} of {rounds} formatted");
}

#[test]
fn narrow_samples_keep_their_meaning() {
    // Long names make everything break.
    for count in [2, 4, 8, 16, 40] {
        for name in ["c", "x", "T", "init", "hidden", "tied", "Mlp", "q", "H"] {
            let mut out = String::new();
            let tokens = lexer::tokens(SAMPLE);
            for (at, kind) in tokens.kinds.iter().enumerate() {
                let token = &SAMPLE[tokens.range(at)];
                out.push_str(token);
                if *kind == SyntaxKind::Ident && token == name && name != "init" {
                    out.push_str(&"_long".repeat(count));
                }
            }
            assert!(holds(&out));
        }
    }
}

#[test]
fn specs_of_the_project_keep_their_meaning() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["../models", "std"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_some_and(|extension| extension == "vlm") {
                let text = std::fs::read_to_string(&path).expect("a spec");
                assert!(holds(&text), "{} has syntax errors", path.display());
            }
        }
    }
}
