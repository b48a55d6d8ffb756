//! The text of syntax errors, and the examples of the pages that explain them.

use std::path::{Path, PathBuf};

use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::diag::{Code, Phase};
use vlmc_frontend::source::Sources;
use vlmc_frontend::syntax;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/errors");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of cases")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("syntax_") && name.ends_with(".vlm")
        })
        .collect();
    cases.sort();
    cases
}

#[test]
fn messages() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() >= 15);
    for path in cases {
        let text = std::fs::read_to_string(&path).expect("a case");
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut sources = Sources::new();
        let file = sources.add(name, text.as_str());
        let parse = syntax::parse(file, &text);
        assert!(!parse.diags.is_empty(), "{name} has no errors");
        for diag in &parse.diags {
            assert!(!diag.helps.is_empty(), "{name}: no help for {:?}", diag.message);
            assert!(diag.span().is_some(), "{name}: no place for {:?}", diag.message);
        }
        let found = render::all(&parse.diags, &sources, Format::PLAIN);
        let expected_path = path.with_extension("stderr");
        if bless {
            std::fs::write(&expected_path, &found).expect("the case can be written");
        } else if std::fs::read_to_string(&expected_path).ok().as_deref() != Some(&found) {
            wrong.push(format!("{name}:\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "run with BLESS=1 to accept\n{}", wrong.join("\n"));
}

#[test]
fn pages_show_what_they_explain() {
    for code in Code::ALL.iter().filter(|code| code.phase() == Phase::Syntax) {
        let page = code.explain();
        let Some((_, rest)) = page.split_once("```vlm-error\n") else { continue };
        let example = rest.split("```").next().unwrap_or_default();
        let mut sources = Sources::new();
        let file = sources.add("example.vlm", example);
        let parse = syntax::parse(file, example);
        let codes: Vec<Code> = parse.diags.iter().map(|diag| diag.code).collect();
        assert_eq!(codes, [*code], "the example of {code}");
        for good in rest.split("```vlm\n").skip(1) {
            let good = good.split("```").next().unwrap_or_default();
            let parse = syntax::parse(file, good);
            assert!(parse.diags.is_empty(), "{code}: {:?}\n{good}", parse.diags);
        }
    }
}
