//! The models that come along, differentiated and fused.

use std::path::Path;
use vlmc_frontend::elab::{Library, Raw, Reader, Setter, Setting, Target, lower};
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{OutputKind, Program};
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::{fuse, manager};

struct Models;

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models"))
}

impl Reader for Models {
    fn module(&self, name: &str) -> Option<(String, Vec<u8>)> {
        let name = format!("{name}.vlm");
        Some((name.clone(), std::fs::read(folder().join(&name)).ok()?))
    }

    fn modules(&self) -> Vec<String> {
        vec![]
    }
}

/// The joint program of a variant as `vlmc compile` makes it, and the same in clusters.
pub fn joint(variant: &str, settings: &[&str]) -> (Program, Program) {
    let text = std::fs::read(folder().join("qwen3_5_vl.vlm")).unwrap();
    let (library, _) = Library::load("qwen3_5_vl.vlm", text, &Models);
    let settings: Vec<Setting> = settings
        .iter()
        .map(|s| {
            let (path, value) = s.split_once('=').unwrap();
            Setting {
                path: path.split('.').map(String::from).collect(),
                value: Raw::parse(value),
                setter: Setter::Flag(s.to_string()),
            }
        })
        .collect();
    let target = Target {
        function: None,
        args: &[],
        variant: Some(variant),
        settings: &settings,
        shapes: &[],
        dtype: DType::Bf16,
    };
    let mut p = lower(&library, &target).program.unwrap();
    // Training wants the losses alone.
    let main = p.functions.last_mut().unwrap();
    main.outputs.retain(|o| matches!(o.kind, OutputKind::Loss { .. }));
    let clean = |p: &Program| {
        let passes = manager::parse_list("canon, cse, dce, prune").unwrap();
        manager::run(p, &passes).unwrap().program
    };
    let options = Options { seeds: Seeds::Totals, ..Options::default() };
    let joint = clean(&differentiate(&clean(&p), &options).unwrap());
    let fused = fuse::program(&joint, &fuse::Options::default()).unwrap().program;
    (joint, fused)
}

/// Sizes of one pack of so many tokens in one document, with pictures of as many patches.
pub fn sizes(tokens: usize) -> Sizes {
    let mut sizes = Sizes::default();
    for (name, value) in [("T", tokens), ("docs", 1), ("features", tokens / 4), ("frames", 16)] {
        sizes.set(&Symbol::new(name), value);
    }
    sizes
}
