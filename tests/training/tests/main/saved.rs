//! What each kind of layer keeps from forward to backward, at the sizes of released models, in bf16.
//! With `BLESS=1` the texts are written anew.

use std::fmt::Write;
use std::path::Path;
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Plan, Seeds};
use vlmc_training_tests::Model;

/// A tower keeps the same of each of its blocks: two of them show it.
const TWO_BLOCKS: &[&str] = &["vision.depth=2"];

fn check(file: &str, variant: &str, settings: &[&str]) {
    let model = Model::new("qwen3_5_vl", variant, settings).unwrap();
    let program = model.losses(DType::Bf16).unwrap();
    let options = Options { seeds: Seeds::Totals, inputs: vec![] };
    let plan = Plan::new(&program, &options).unwrap();
    let mut text = String::new();
    for list in plan.saved() {
        let _ = writeln!(text, "{list}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("saved").join(file);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap();
    for template in
        ["Layer.gdn", "Layer.attention", "VisionBlock", "VisionTower", "Mtp", "Head.token_loss"]
    {
        assert!(want.contains(&format!("@{template}\n")), "{template}");
    }
    assert!(text == want, "saved sets of {variant} changed; look at them with BLESS=1:\n{text}");
}

#[test]
fn dense() {
    check("9b.txt", "9b", TWO_BLOCKS);
}

#[test]
fn experts() {
    check("35b-a3b.txt", "35b-a3b", TWO_BLOCKS);
}
