//! Reference models recomputed in every way: losses and gradients stay to the last bit.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use vlmc::compile::{
    Capacity, CompileError, CompileRequest, Compiled, MemoryRefusal, MemoryRequest, Spread, compile,
};
use vlmc_artifact::Buffer;
use vlmc_data::batch::Batch;
use vlmc_data::vision;
use vlmc_frontend::elab::{Library, Setting};
use vlmc_ir::ty::DType;
use vlmc_parity::case::Case;
use vlmc_parity::whole::model_case;
use vlmc_passes::recompute::Mode;
use vlmc_runtime::executor::Executor;

struct Model {
    case: Case,
    lib: Library,
    settings: Vec<Setting>,
    batch: Batch,
}

impl Model {
    fn open(name: &str) -> Model {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/models");
        let case = Case::open(&path.join(format!("{name}.json"))).unwrap();
        let (lib, diags) = vlmc::spec::load("qwen3_5_vl.vlm").unwrap();
        assert!(!diags.has_errors());
        let (settings, batch) = model_case(&lib, &case).unwrap();
        Model { case, lib, settings, batch }
    }

    /// `None` where the choice would be in vain.
    fn compile(&self, memory: MemoryRequest, fused: bool) -> Option<Compiled> {
        let grids = self.batch.grids();
        let request = CompileRequest {
            variant: None,
            settings: self.settings.clone(),
            dtype: DType::F32,
            capacity: Capacity {
                tokens: self.batch.tokens(),
                docs: self.batch.layout.documents().len(),
                patches: vision::patch_count(&grids).unwrap(),
                frames: grids.iter().map(|g| g.t).sum(),
            },
            spread: Spread::one(1),
            fused,
            plan: None,
            fusing: Default::default(),
            memory,
            flags: Default::default(),
        };
        match compile(&self.lib, &request) {
            Ok(compiled) => Some(compiled),
            Err(CompileError::Other(e)) if in_vain(&e) => None,
            Err(e) => panic!("{}: {e:?}", self.case.name),
        }
    }

    /// The loss and every gradient, as bits.
    fn run(&self, compiled: Compiled) -> BTreeMap<String, Vec<u64>> {
        let mut executor = Executor::<f32>::new(compiled.artifact, false).unwrap();
        let parameters = executor.artifact().manifest.parameters.clone();
        for p in &parameters {
            let value = self.case.tensor(&format!("param.{}", p.name)).unwrap();
            executor.set_parameter(p, &value).unwrap();
        }
        let result = executor.step(std::slice::from_ref(&self.batch), &[], false).unwrap();
        let mut out = BTreeMap::from([("loss".to_string(), vec![result.loss.to_bits()])]);
        for p in parameters.iter().filter(|p| p.trained) {
            let t = executor.buffer(&Buffer::Grad(p.name.clone())).unwrap();
            out.insert(p.name.clone(), t.to_f64().iter().map(|v| v.to_bits()).collect());
        }
        out
    }
}

fn in_vain(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(MemoryRefusal::NotLower { .. }))
}

fn check(name: &str, fused: bool, all: bool) {
    let model = Model::open(name);
    let plain = model.compile(MemoryRequest::default(), fused).unwrap();
    let rows = plain.artifact.plan.recompute.clone();
    let none = plain.artifact.plan.memory[0].peak_bytes;
    let want = model.run(plain);
    let mut regions: Vec<&str> =
        rows.iter().filter(|r| r.freed_bytes > 0).map(|r| &*r.region).collect();
    regions.sort_unstable();
    regions.dedup();
    let mut modes: Vec<String> = vec![];
    for (i, a) in regions.iter().enumerate() {
        if a.starts_with("value ") {
            continue;
        }
        modes.push(format!("selective={a}"));
        for b in regions[i + 1..].iter().filter(|b| all && !b.starts_with("value ")) {
            modes.push(format!("selective={a},{b}"));
        }
    }
    modes.extend(["full", "full=uniform:2", "full=block:1"].map(String::from));
    let (mut tried, mut vain) = (0, vec![]);
    for mode in modes {
        let recompute: Mode = mode.parse().unwrap();
        let Some(compiled) = model.compile(MemoryRequest { recompute, limit: None }, fused) else {
            vain.push(mode);
            continue;
        };
        assert!(model.run(compiled) == want, "{name} {mode}, fused {fused}");
        tried += 1;
    }
    // A limit in the middle of what the planner can do.
    let auto = |limit| MemoryRequest { recompute: Mode::Auto, limit: Some(limit) };
    let compiled = model.compile(auto(none - none / 200), fused);
    let compiled = compiled.unwrap();
    assert!(compiled.recompute_note.is_some());
    assert!(model.run(compiled) == want, "{name} auto, fused {fused}");
    println!("{name}, fused {fused}: {tried} modes and auto are bit-equal; in vain: {vain:?}");
    assert!(tried >= 3, "{name}: only {tried} modes, in vain: {vain:?}");
}

#[test]
fn a_dense_model() {
    check("dense_text_mtp", true, false);
}

#[test]
fn experts_and_pictures() {
    check("moe_image_aux", false, false);
}

#[test]
#[ignore = "the full table"]
fn every_model_and_pair() {
    for name in [
        "dense_image",
        "dense_text_mtp",
        "dense_tied_multi_padded",
        "moe_image_aux",
        "moe_image_mtp",
    ] {
        for fused in [false, true] {
            check(name, fused, true);
        }
    }
}
