//! The language reference: its blocks are checked, its tables are complete.

use std::path::Path;
use vlmc_data::host_fn::HOST_FUNCTIONS;
use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::elab::{self, Library, NoModules, Target};
use vlmc_frontend::fmt;
use vlmc_frontend::syntax::ast::FileId;
use vlmc_ir::ty::DType;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The fenced blocks of a page: kind and text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut out = vec![];
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(kind)) => open = Some((kind.to_string(), String::new())),
            (Some(_), Some(_)) => out.extend(open.take()),
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    out
}

#[test]
fn blocks_are_one_good_spec() {
    let page = file("docs/language.md");
    let mut spec = String::new();
    let mut count = 0;
    for (kind, text) in blocks(&page) {
        match kind.as_str() {
            "vlm" => {
                let formatted = fmt::format(FileId(0), &text).expect("it parses");
                assert_eq!(formatted, text, "not in style");
                spec.push_str(&text);
                spec.push('\n');
                count += 1;
            }
            "text" | "console" => {}
            kind => panic!("a block of kind {kind:?}: write vlm, text or console"),
        }
    }
    assert!(count >= 7, "{count} blocks");
    let (lib, mut diags) = Library::load("language.md", spec.into_bytes(), &NoModules);
    diags.append(elab::check(&lib));
    for variant in ["small", "small-tied"] {
        let target = Target {
            function: None,
            args: &[],
            variant: Some(variant),
            settings: &[],
            shapes: &[],
            dtype: DType::Bf16,
        };
        diags.append(elab::lower(&lib, &target).diags);
    }
    assert!(diags.is_empty(), "{}", render::all(&diags, &lib.sources, Format::PLAIN));
}

#[test]
fn every_function_of_the_library_is_listed() {
    let page = file("docs/language.md");
    let library = file("frontend/std/std.vlm");
    for text in library.split("\nfn ").skip(1) {
        // On one line, as the page has it.
        let form = text.split(" {").next().unwrap_or_default();
        let form = form.split_whitespace().collect::<Vec<_>>().join(" ");
        let form = form.replace("( ", "(").replace(", )", ")");
        assert!(page.contains(&format!("- `{form}`\n")), "section 10 lacks `{form}`");
    }
}

#[test]
fn every_host_function_is_listed() {
    let page = file("docs/language.md");
    for f in HOST_FUNCTIONS {
        let argument = |p: &vlmc_data::host_fn::Param| match p.default {
            Some(default) => format!("{} = {default}", p.name),
            None => p.name.to_string(),
        };
        let list: Vec<String> = f.params.iter().map(argument).collect();
        let row = format!("| `{}({})` | {} | ", f.name, list.join(", "), f.doc);
        assert!(page.contains(&row), "section 11 lacks {row:?}");
    }
}

#[test]
fn every_keyword_is_listed() {
    let page = file("docs/language.md");
    let (_, list) = page.split_once("Words that are never names: `").expect("the list");
    let list: Vec<&str> = list.split('`').next().unwrap_or_default().split(' ').collect();
    let kinds = file("frontend/src/syntax/kind.rs");
    let words: Vec<&str> = kinds
        .lines()
        .filter_map(|l| l.trim().strip_prefix("#[token(\"")?.split('"').next())
        .filter(|w| w.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    assert!(words.len() > 20);
    for word in &words {
        assert!(list.contains(word), "the list lacks `{word}`");
    }
    assert!(list.iter().all(|w| words.contains(w)), "the list has words that are none: {list:?}");
}
