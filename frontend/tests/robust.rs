//! No text makes the parser panic, take long, or say too much.

use std::time::{Duration, Instant};

use vlmc_frontend::diag::LIMIT;
use vlmc_frontend::fmt;
use vlmc_frontend::syntax::ast::FileId;
use vlmc_frontend::syntax::{self, Parse, lexer};

const SAMPLE: &str = include_str!("data/all_forms.vlm");

/// Size of large inputs: those of the brief in optimised builds.
const LARGE: usize = if cfg!(debug_assertions) { 1 << 20 } else { 10 << 20 };

fn parse(text: &str) -> Parse {
    let parse = syntax::parse(FileId(0), text);
    assert!(parse.tree.text() == text, "the tree must have every byte");
    assert!(parse.diags.iter().len() <= LIMIT);
    for diag in &parse.diags {
        for label in &diag.labels {
            let range = label.span.start as usize..label.span.end as usize;
            assert!(text.get(range).is_some(), "span outside of the text: {diag:?}");
        }
    }
    parse
}

#[test]
fn cut_off_anywhere() {
    for end in 0..=SAMPLE.len() {
        if SAMPLE.is_char_boundary(end) {
            parse(&SAMPLE[..end]);
            parse(&SAMPLE[end..]);
        }
    }
}

#[test]
fn any_token_missing_or_doubled_or_strange() {
    let tokens = lexer::tokens(SAMPLE);
    for at in 0..tokens.len() {
        let range = tokens.range(at);
        let (before, token, after) =
            (&SAMPLE[..range.start], &SAMPLE[range.clone()], &SAMPLE[range.end..]);
        if token.trim().is_empty() {
            continue;
        }
        let puts = ["", "§", ")", "(", "{", "}", "]", "=", "if", "param", "\"", "x", "1"];
        for (turn, put) in puts.into_iter().enumerate() {
            // All of them take long without optimisation.
            if cfg!(debug_assertions) && (at + turn) % 4 != 0 {
                continue;
            }
            let text = format!("{before}{put}{after}");
            let found = parse(&text);
            // One mistake must not spoil the file: an item around it and a few errors.
            let items = found.file.items.len();
            assert!(items >= 11, "{items} items left after {token:?} became {put:?}\n{text}");
            let errors = found.diags.len();
            assert!(
                errors <= 12,
                "{errors} errors after {token:?} became {put:?} at {}",
                range.start
            );
        }
    }
}

/// Parses a large text within a time that a quadratic parser would not keep.
fn large(piece: &str, head: &str) {
    let mut text = String::with_capacity(LARGE + piece.len() + head.len());
    text.push_str(head);
    while text.len() < LARGE {
        text.push_str(piece);
    }
    let start = Instant::now();
    parse(&text);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(60), "{piece:?} took {took:?}");
    println!("{took:?} for {:?} {:?}", &head[..head.len().min(20)], &piece[..piece.len().min(20)]);
}

#[test]
fn large_inputs_take_linear_time() {
    let body = "fn f(x: [T]) -> [T] {\n  ";
    for piece in ["(", "[", "{", "}", ")", "((]", "if ", "§ ", "a ", "a\n", "\"", "//", "1e", "\n"]
    {
        large(piece, "");
        large(piece, body);
    }
    for piece in
        ["a + ", "a.", "a ** ", "-", "not ", "a as [T]", "f(", "(a)", "[0]", "if a { b } else "]
    {
        large(piece, body);
    }
    large("a\n", "fn f(x: [T]) -> [T] {\n  g(");
    large("param x : [T]\n", "module M() {\n");
    large("param x : [\n", "module M() {\n");
    large("let x = f(a, b) + c\n", body);
    large("/// doc\n", "");
    large("if a { A() } else ", "module M() { part p : ");
    large("[", "config A { a : ");
    large("(", "fn f(x: ");
    large(SAMPLE, "");
}

#[test]
fn deep_nesting_is_an_error() {
    let body = "fn f(x: [T]) -> [T] {\n  ";
    for (head, open, close) in [
        (body, "(", ")"),
        (body, "[", "]"),
        (body, "f(", ")"),
        (body, "x[", "]"),
        (body, "-", ""),
        (body, "not ", ""),
        (body, "a + ", ""),
        (body, "a ** ", ""),
        (body, "x as [", "]"),
        (body, "if a { ", "}"),
        (body, "region r {\n", "\n}"),
        (body, "if a { b } else ", ""),
        ("config A { a : ", "[", "]"),
        ("fn f(x: ", "(", ")"),
        ("module M() { part p : ", "if a { ", "} else { A() }"),
        ("module M() { part p : ", "if a { A() } else ", ""),
    ] {
        let count = 10_000;
        let text = format!("{head}{}a{}", open.repeat(count), close.repeat(count));
        let found = parse(&text);
        let codes: Vec<&str> = found.diags.iter().map(|diag| diag.code.number()).collect();
        assert!(codes.contains(&"V0105"), "{open}: {codes:?}");
        assert!(codes.len() <= 4, "{open}: {codes:?}");
    }
    for (piece, count) in [(".a", 10_000), ("(1)", 10_000), ("[0]", 10_000), (" + a", 10_000)] {
        let text = format!("{body}a{}\n}}", piece.repeat(count));
        assert!(parse(&text).diags.iter().any(|diag| diag.code.number() == "V0105"), "{piece}");
    }
}

#[test]
fn what_is_allowed_can_be_walked() {
    // As deep as it may be: the formatter and the owned tree recurse too.
    let body = "fn f(x: [T]) -> [T] {\n  ";
    for (open, close, count) in
        [("(", ")", 240), ("f(", ")", 240), ("a + ", "", 250), ("-", "", 250)]
    {
        let text = format!("{body}{}a{}\n}}\n", open.repeat(count), close.repeat(count));
        assert!(!parse(&text).diags.has_errors(), "{open}");
        assert!(fmt::format(FileId(0), &text).is_ok());
    }
}
