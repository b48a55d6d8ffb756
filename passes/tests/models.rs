//! The templates of the models: normal form, gradients, normal form again, fusion. How long each
//! takes is printed; what must come out of them is asserted.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};
use vlmc_frontend::elab::{Library, Reader, Target, lower};
use vlmc_ir::graph::{OutputKind, Program};
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;
use vlmc_ir::verify::verify;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::{canon, fuse};

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

fn lowered(variant: &str) -> Program {
    let text = std::fs::read(folder().join("qwen3_5_vl.vlm")).unwrap();
    let (library, _) = Library::load("qwen3_5_vl.vlm", text, &Models);
    let target = Target {
        function: None,
        args: &[],
        variant: Some(variant),
        settings: &[],
        shapes: &[],
        dtype: DType::Bf16,
    };
    let mut p = lower(&library, &target).program.unwrap();
    // Training wants the losses alone.
    let main = p.functions.last_mut().unwrap();
    main.outputs.retain(|o| matches!(o.kind, OutputKind::Loss { .. }));
    p
}

fn sound(p: &Program) {
    let errors = verify(p);
    assert!(errors.is_empty(), "{}", errors[0].render(p));
}

fn canonical(p: &Program, slowest: &mut Duration) -> Program {
    let mut log = canon::Log::default();
    let mut functions = vec![];
    for f in &p.functions {
        let start = Instant::now();
        functions.push(canon::function(f, &canon::Options::default(), &mut log).unwrap());
        *slowest = start.elapsed().max(*slowest);
    }
    assert!(log.warnings.is_empty(), "{:?}", log.warnings);
    let p = Program { functions, ..p.clone() };
    sound(&p);
    p
}

/// The same program with no name that a spec gives: functions, parameters and inputs are numbered,
/// values have no names, and there are no regions.
fn renamed(p: &Program) -> Program {
    let mut out = p.clone();
    let names: Vec<String> = p.functions.iter().map(|f| f.name.clone()).collect();
    let number = |name: &str| format!("f{}", names.iter().position(|n| n == name).unwrap());
    for f in &mut out.functions {
        f.name = number(&f.name);
        f.regions.clear();
        for (i, input) in f.inputs.iter_mut().enumerate() {
            input.name = format!("i{i}").into();
        }
        for (i, param) in f.params.iter_mut().enumerate() {
            param.name = format!("p{i}").into();
            param.key = format!("k{i}");
        }
        for n in &mut f.nodes {
            (n.region, n.name) = (None, None);
            if let Op::Call { callee, scope, path, .. } = &mut n.op {
                *callee = number(callee);
                scope.clear();
                path.clear();
            }
        }
    }
    out
}

fn check(variant: &str) {
    let mut slowest = Duration::ZERO;
    let forward = canonical(&lowered(variant), &mut slowest);
    let options = Options { seeds: Seeds::Totals, ..Options::default() };
    let joint = canonical(&differentiate(&forward, &options).unwrap(), &mut slowest);
    assert!(canonical(&joint, &mut slowest) == joint, "the normal form has another normal form");
    let start = Instant::now();
    let fused = fuse::program(&joint, &fuse::Options::default()).unwrap();
    let whole = start.elapsed();
    sound(&fused.program);
    assert!(fused.log.decisions.warnings.is_empty(), "{:?}", fused.log.decisions.warnings);
    println!("{variant}: canon {slowest:.1?} for the slowest function, fusion {whole:.1?} in all");
    for r in &fused.table {
        println!(
            "  {} {}: {} ops, {} stores, {:.1} us",
            r.cluster, r.label, r.ops, r.stores, r.cost
        );
    }
    let bare = fuse::program(&renamed(&joint), &fuse::Options::default()).unwrap();
    let told = |f: &fuse::Fused| -> Vec<(String, usize, usize, String)> {
        let row = |r: &fuse::Row| (r.label.clone(), r.ops, r.stores, format!("{:.3}", r.cost));
        f.table.iter().map(row).collect()
    };
    assert_eq!(told(&fused), told(&bare), "names change what is fused");
    let count = |label: &str, function: &str| {
        fused.table.iter().filter(|r| r.label == label && r.function == function).count()
    };
    // What lies between the projections and the delta rule, or attention, is one kernel.
    assert_eq!(count("gdn.pre_gated_delta_rule", "Layer.gdn.fwd"), 1);
    // What becomes of the gradients; the same again for them is with the gated norm's way back.
    assert_eq!(count("gdn.pre_gated_delta_rule", "Layer.gdn.bwd"), 1);
    assert_eq!(count("attn.qkv_prep", "Layer.attention.fwd"), 1);
    assert_eq!(count("norm.gated_rms", "Layer.gdn.fwd"), 1);
}

#[test]
fn dense_model() {
    check("9b");
}

#[test]
fn mixture_of_experts() {
    check("35b-a3b");
}
