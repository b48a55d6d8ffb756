//! The text of errors, and the examples of the pages that explain them.
//!
//! A case is a spec in `tests/cases/errors`, with what is printed beside it. `syntax_*` are parsed
//! only; `names_*` are checked. Comments at the head of a case say what else to do:
//! `// variant: NAME`, `// set: FIELD=VALUE`, `// function: NAME` lower, `// config: JSON` imports.
//! Modules that cases import lie in the folder `modules`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::diag::{Code, Diags, Phase};
use vlmc_frontend::elab::{self, Library, Raw, Reader, Setter, Setting, Target};
use vlmc_frontend::source::Sources;
use vlmc_ir::ty::DType;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/errors")
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder of cases")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "vlm"))
        .collect();
    cases.sort();
    cases
}

struct Modules;

impl Reader for Modules {
    fn module(&self, name: &str) -> Option<(String, Vec<u8>)> {
        let path = folder().join("modules").join(format!("{name}.vlm"));
        Some((format!("{name}.vlm"), std::fs::read(path).ok()?))
    }

    fn modules(&self) -> Vec<String> {
        ["blocks", "circle", "circle_back", "good"].map(String::from).to_vec()
    }
}

/// What is wrong with a spec, and its texts.
fn check(name: &str, text: &str) -> (Diags, Sources) {
    let (lib, mut diags) = Library::load(name, text.as_bytes().to_vec(), &Modules);
    if !diags.iter().any(|d| d.code.phase() == Phase::Syntax) {
        diags.append(elab::check(&lib));
    }
    let head = text.lines().map_while(|l| l.strip_prefix("// "));
    let mut settings = vec![];
    let mut lowers = false;
    let (mut variant, mut function) = (None, None);
    for line in head {
        match line.split_once(": ") {
            Some(("variant", v)) => variant = Some(v),
            Some(("function", f)) => function = Some(f),
            Some(("set", field)) => {
                let (path, value) = field.split_once('=').expect("a field and a value");
                settings.push(Setting {
                    path: path.split('.').map(String::from).collect(),
                    value: Raw::parse(value),
                    setter: Setter::Flag(format!("--set {field}")),
                });
            }
            Some(("lower", _)) => {}
            Some(("config", json)) => {
                let json = serde_json::from_str(json).expect("JSON");
                if let Err(more) = elab::import_config(&lib, &json) {
                    diags.append(more);
                }
                continue;
            }
            _ => break,
        }
        lowers = true;
    }
    if lowers && !diags.has_errors() {
        let target = Target {
            function,
            args: &[],
            variant,
            settings: &settings,
            shapes: &[],
            dtype: DType::Bf16,
        };
        diags.append(elab::lower(&lib, &target).diags);
    }
    (diags, lib.sources)
}

fn codes(diags: &Diags) -> Vec<Code> {
    diags.sorted().0.iter().map(|d| d.code).collect()
}

#[test]
fn messages() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    let cases = cases();
    for path in &cases {
        let text = std::fs::read_to_string(path).expect("a case");
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (diags, sources) = check(name, &text);
        assert!(!diags.is_empty(), "{name} has no errors");
        for diag in &diags {
            seen.insert(diag.code);
            assert!(!diag.helps.is_empty(), "{name}: no help for {:?}", diag.message);
            let placed = diag.span().is_some() || !diag.flags.is_empty();
            let of_file = diag.code == Code::NoModel || diag.code == Code::UnsupportedConfig;
            assert!(placed || of_file, "{name}: no place for {:?}", diag.message);
        }
        let found = render::all(&diags, &sources, Format::PLAIN);
        let expected_path = path.with_extension("stderr");
        if bless {
            std::fs::write(&expected_path, &found).expect("the case can be written");
        } else if std::fs::read_to_string(&expected_path).ok().as_deref() != Some(&found) {
            wrong.push(format!("{name}:\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "run with BLESS=1 to accept\n{}", wrong.join("\n"));
    let names = cases.iter().filter(|p| p.to_string_lossy().contains("/names_")).count();
    assert!(names >= 25, "{names} cases of names");
    let missing: Vec<_> = Code::ALL
        .iter()
        .filter(|c| c.phase() == Phase::Names && !seen.contains(c))
        .map(|c| c.number())
        .collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
}

#[test]
fn pages_show_what_they_explain() {
    let phases = [Phase::Syntax, Phase::Names];
    for code in Code::ALL.iter().filter(|code| phases.contains(&code.phase())) {
        let page = code.explain();
        let Some((_, rest)) = page.split_once("```vlm-error\n") else {
            // A file that is no text, or too large, cannot stand in a page.
            assert!(matches!(code, Code::NotUtf8 | Code::FileTooLarge), "{code} has no example");
            continue;
        };
        let example = rest.split("```").next().unwrap_or_default();
        let (diags, sources) = check("example.vlm", example);
        let text = render::all(&diags, &sources, Format::PLAIN);
        assert_eq!(codes(&diags), [*code], "the example of {code}\n{text}");
        for good in rest.split("```vlm\n").skip(1) {
            let good = good.split("```").next().unwrap_or_default();
            let (diags, sources) = check("example.vlm", good);
            let text = render::all(&diags, &sources, Format::PLAIN);
            assert!(diags.is_empty(), "{code}:\n{text}");
        }
    }
}
