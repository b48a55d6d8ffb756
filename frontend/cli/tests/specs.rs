//! Every spec of the repository is in style, checks, and gives a sensible loss.

use std::path::{Path, PathBuf};
use vlmc::eval::{Inputs, Precision, Request};
use vlmc::parameters::parameters;
use vlmc::spec;
use vlmc::weights::{Values, Weights};
use vlmc_data::batch::{Batch, PictureSample};
use vlmc_data::pack::{PackOptions, Sample};
use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::elab::{self, Library};
use vlmc_frontend::fmt;
use vlmc_frontend::syntax::ast::FileId;
use vlmc_ir::verify::verify;

fn specs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut out = vec![root.join("frontend/std/std.vlm")];
    for folder in ["models", "tests/specs"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder");
        out.extend(entries.filter_map(|e| Some(e.ok()?.path())));
    }
    out.retain(|p| p.extension().is_some_and(|e| e == "vlm"));
    out.sort();
    assert!(out.len() >= 6);
    out
}

fn load(path: &Path) -> Library {
    let (lib, mut diags) = spec::load(&path.display().to_string()).expect("readable");
    diags.append(elab::check(&lib));
    assert!(diags.is_empty(), "{}", render::all(&diags, &lib.sources, Format::PLAIN));
    lib
}

#[test]
fn specs_are_in_style_and_check() {
    for path in specs() {
        let text = std::fs::read_to_string(&path).expect("text");
        let formatted = fmt::format(FileId(0), &text).expect("it parses");
        assert!(formatted == text, "run `vlmc fmt {}`", path.display());
        load(&path);
    }
}

/// Two documents of text in a pack with padding.
fn batch() -> Batch {
    let sample = |n: usize, seed: usize| {
        let ids: Vec<i64> = (0..n).map(|i| ((i * 37 + seed * 11) % 97) as i64).collect();
        let sample = Sample { labels: ids.clone(), types: vec![0; n], ids };
        PictureSample { sample, ..PictureSample::default() }
    };
    let options = PackOptions { align: 8, tokens: Some(40), documents: None };
    Batch::pack(&[sample(13, 1), sample(18, 2)], options).expect("it fits")
}

#[test]
fn every_tiny_model_starts_near_the_logarithm_of_its_vocabulary() {
    let mut count = 0;
    for path in specs() {
        let lib = load(&path);
        let Some(model) = lib.model() else { continue };
        let variants = lib.variants(&model.ast.name.name);
        assert!(variants.iter().any(|v| v.ast.name.value == "tiny"), "{}", path.display());
        for precision in [Precision::F32, Precision::Bf16, Precision::F64] {
            let request = Request {
                function: None,
                args: vec![],
                variant: Some("tiny"),
                settings: vec![],
                shapes: vec![],
                precision,
            };
            let lowered = vlmc::eval::program(&lib, &request);
            let program = lowered.program.expect("lowered");
            assert!(verify(&program).is_empty());
            let all = parameters(&program);
            let weights = Weights::open("init:5").expect("a seed");
            let values = Values::new(&all, Some(&weights));
            let mut param = |name: &str, _: &vlmc_ir::graph::Param| values.get(name);
            let batch = batch();
            let inputs = Inputs::Batch(&batch);
            let out = vlmc::eval::run(&program, precision, &inputs, &mut param, &|_| false)
                .unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
            let (sum, n, _) = out.losses["lm"];
            let vocabulary = all
                .iter()
                .filter_map(|p| p.shape())
                .filter(|s| s.len() == 2)
                .map(|s| s[0])
                .find(|rows| *rows >= 512)
                .expect("an embedding");
            let (loss, expected) = (sum / n, (vocabulary as f64).ln());
            assert!((loss - expected).abs() < 0.3, "{}: {loss} {expected}", path.display());
            assert_eq!(n, 29.0);
            count += 1;
        }
    }
    assert!(count >= 12);
}
