//! Loss, every gradient and the parameters after three steps do not depend on the layout.
//!
//! The model has ten layers of both kinds, experts with the stacked balance loss, multi-token prediction
//! and a vision tower; microbatches are packs of documents of 5, 11, 8 and 3 tokens, each different, and
//! ranks see different numbers of labels. What is compared with is one rank on the same microbatches.

use indexmap::IndexMap;
use std::collections::BTreeMap;
use vlmc::compile::{Capacity, MemoryRequest, Spread};
use vlmc_artifact::Buffer;
use vlmc_data::batch::Batch;
use vlmc_ir::eval::Real;
use vlmc_ir::ty::DType;
use vlmc_runtime::executor::Executor;
use vlmc_runtime::optimizer::{Decay, Optimizer};
use vlmc_training_tests::layout::parse;
use vlmc_training_tests::{
    Model, document, image_document, largest_difference, pack, parameter_value,
};

/// Rows of a document come in multiples of this, so that every number of ranks divides them.
const ALIGN: usize = 8;

fn model() -> Model {
    let settings = [
        "text.layers=10",
        "text.hidden=48",
        "vision.out=48",
        "text.kv_heads=4",
        "text.head_dim=16",
        "text.mrope_section=[1,1,0]",
        "text.key_heads=4",
        "text.value_heads=8",
        "text.key_dim=8",
        "text.value_dim=8",
        "text.experts=8",
        "text.expert_ffn=24",
        "text.shared_ffn=24",
        "text.aux_loss=stacked",
        "text.mtp_layers=1",
        "vision.hidden=32",
        "vision.heads=2",
        "vision.ffn=48",
    ];
    Model::new("qwen3_5_vl", "tiny", &settings).unwrap()
}

fn batches(count: usize) -> Vec<Batch> {
    let one = |m: u64| {
        let picture = image_document(10 * m + 1, 11, 200);
        let documents = [
            document(10 * m, 5, 0),
            picture,
            document(10 * m + 2, 8, 400),
            document(10 * m + 3, 3, 600),
        ];
        // The first has pictures, of the others every second.
        let text = document(10 * m + 1, 11, 200);
        match m % 2 {
            0 => pack(&documents, ALIGN).unwrap(),
            _ => pack(
                &[documents[2].clone(), text, documents[0].clone(), documents[3].clone()],
                ALIGN,
            )
            .unwrap(),
        }
    };
    (0..count as u64).map(one).collect()
}

fn optimizer() -> Optimizer {
    Optimizer {
        lr: 1e-3,
        min_lr: 1e-3,
        warmup: 0,
        total: 3,
        decay: Decay::Constant,
        beta1: 0.9,
        beta2: 0.95,
        // Gradients of nearly nothing are rounding alone in f32, and AdamW makes all of them equally large:
        // far below the others they stay small.
        eps: 1e-5,
        weight_decay: 0.1,
        decay_all: false,
        // Gradients are larger than this.
        clip: 0.5,
    }
}

/// What a training gives: losses, gradients of the first step, parameters after three.
struct Trained {
    losses: Vec<f64>,
    norm: f64,
    gradients: IndexMap<String, Vec<f64>>,
    parameters: IndexMap<String, Vec<f64>>,
}

fn train<R: Real>(spread: &Spread, memory: &str, batches: &[Batch]) -> Trained {
    let tokens = batches.iter().map(Batch::tokens).max().unwrap();
    let capacity = Capacity { tokens, docs: 4, patches: 16, frames: 1 };
    let memory = MemoryRequest { recompute: memory.parse().unwrap(), limit: None };
    let compiled = model().compile_spread(spread, DType::F32, capacity, &memory).unwrap();
    let manifest = compiled.artifact.manifest.clone();
    let mut executor: Executor<R> = Executor::new(compiled.artifact, false).unwrap();
    for p in &manifest.parameters {
        executor.set_parameter(p, &parameter_value(p)).unwrap();
    }
    let trained = || manifest.parameters.iter().filter(|p| p.trained).map(|p| p.name.clone());
    let first = executor.step(batches, &optimizer().scalars(0), false).unwrap();
    let mut losses = vec![first.loss];
    losses.extend(first.losses.values());
    let value = |executor: &Executor<R>, b: Buffer| executor.buffer(&b).unwrap().to_f64();
    let gradients = trained().map(|n| (n.clone(), value(&executor, Buffer::Grad(n)))).collect();
    trained().for_each(|n| executor.drop_buffer(&Buffer::Grad(n)));
    for step in 0..3 {
        losses.push(executor.step(batches, &optimizer().scalars(step), true).unwrap().loss);
    }
    let parameters = trained().map(|n| (n.clone(), value(&executor, Buffer::Master(n)))).collect();
    Trained { losses, norm: first.grad_norm, gradients, parameters }
}

/// What one rank gives, by the number of microbatches.
type Known = BTreeMap<usize, Trained>;

/// How far a layout is from one rank: the largest relative difference, and of what.
fn difference<R: Real>(layout: &str, known: &mut Known) -> (f64, String) {
    let (layout, memory) = layout.split_once(" recompute ").unwrap_or((layout, "none"));
    let spread = parse(layout).unwrap();
    let batches = batches(spread.microbatches as usize * spread.dp);
    let have = train::<R>(&spread, memory, &batches);
    let one = || train::<R>(&Spread::one(batches.len() as u32), "none", &batches);
    let want = known.entry(batches.len()).or_insert_with(one);
    assert!(want.norm > optimizer().clip, "clipping is not active: {}", want.norm);
    assert!(want.losses.iter().all(|l| *l != 0.0), "{:?}", want.losses);
    let losses = have.losses.iter().zip(&want.losses).map(|(a, b)| ((a - b) / b).abs());
    let of = |what: &str, (d, name): (f64, String)| (d, format!("{what} {name}"));
    let all = losses.map(|d| (d, "loss".to_string())).chain([
        of("gradient", largest_difference(&have.gradients, &want.gradients).unwrap()),
        of("parameter", largest_difference(&have.parameters, &want.parameters).unwrap()),
    ]);
    // Not a number is the worst of all.
    all.reduce(|a, b| if b.0 > a.0 || b.0.is_nan() { b } else { a }).unwrap()
}

fn check(layouts: &[String]) {
    let mut known = Known::new();
    for layout in layouts {
        let (d, what) = difference::<f64>(layout, &mut known);
        assert!(d <= 1e-10, "{layout}: {d:e} of {what}");
    }
}

fn owned(layouts: &[&str]) -> Vec<String> {
    layouts.iter().map(|l| l.to_string()).collect()
}

#[test]
fn stages() {
    check(&owned(&[
        "pp=2",
        "pp=2,microbatches=3",
        "pp=2,vpp=5",
        "pp=5,vpp=2,microbatches=5",
        "pp=2,schedule=gpipe",
        "pp=2,vpp=5,microbatches=4,group=4",
        "pp=2,vpp=5,schedule=combined-1f1b",
        "pp=3,layout=Et*3|t*4|t*3mL",
        "pp=2,vpp=2,layout=E|t*5|t*5m|L",
        "pp=4,layout=Et*5||t*5|mL",
    ]));
}

#[test]
fn context() {
    check(&owned(&[
        "cp=2",
        "cp=4",
        "cp=2,cp-attention=a2a",
        "cp=4,cp-attention=a2a",
        "cp=2,microbatches=2",
    ]));
}

#[test]
fn several_axes() {
    check(&owned(&[
        "dp=2",
        "dp=2,cp=2",
        "pp=2,cp=2",
        "pp=2,vpp=5,cp=2",
        "pp=2,dp=2",
        "pp=2,vpp=5,cp=4,cp-attention=a2a",
        "pp=2,cp=2,dp=2",
    ]));
}

#[test]
fn with_recompute() {
    check(&owned(&[
        "pp=2 recompute full",
        "pp=2,vpp=5 recompute selective=gdn_qkv",
        "cp=2 recompute full",
        "pp=2,cp=2 recompute selective=gdn_qkv,gdn_norm_out,moe",
        "dp=2 recompute selective=core_attn",
    ]));
}

/// In f32 sums over ranks round in another order than sums over rows.
#[test]
fn in_single_precision() {
    let mut known = Known::new();
    for layout in ["pp=2,vpp=5", "cp=2", "pp=2,cp=2,dp=2"] {
        let (d, what) = difference::<f32>(layout, &mut known);
        assert!(d <= 1e-5, "{layout}: {d:e} of {what}");
    }
}

/// Without a sum over ranks, and for parameters that one stage uses, the order of every sum is kept.
#[test]
fn stages_keep_every_bit() {
    for layout in ["pp=2", "pp=5,vpp=2,microbatches=5", "pp=2,vpp=5,schedule=gpipe"] {
        let spread = parse(layout).unwrap();
        let batches = batches(spread.microbatches as usize);
        let have = train::<f32>(&spread, "none", &batches);
        let want = train::<f32>(&Spread::one(batches.len() as u32), "none", &batches);
        for (name, g) in &have.gradients {
            // Two stages look up tokens, and each sums what it adds.
            let shared = name.ends_with("embed_tokens.weight");
            assert!(shared || *g == want.gradients[name], "{layout}: {name}");
        }
    }
}

/// Every combination of a table.
#[test]
#[ignore = "the full table: many minutes"]
fn the_full_table() {
    let mut layouts = vec![];
    for pp in [
        "",
        "pp=2",
        "pp=2,vpp=5",
        "pp=5",
        "pp=5,vpp=2,microbatches=5",
        "pp=3,layout=Et*3|t*4|t*3mL",
    ] {
        for cp in ["", "cp=2", "cp=4", "cp=2,cp-attention=a2a", "cp=4,cp-attention=a2a"] {
            for dp in ["", "dp=2"] {
                for rest in ["", "schedule=gpipe", " recompute full"] {
                    let parts = [pp, cp, dp].into_iter().filter(|p| !p.is_empty());
                    let text = parts.collect::<Vec<_>>().join(",");
                    let gpipe = rest.starts_with("schedule");
                    if gpipe && pp.is_empty() {
                        continue;
                    }
                    layouts.push(if gpipe { format!("{text},{rest}") } else { text + rest });
                }
            }
        }
    }
    assert!(layouts.len() >= 150, "{}", layouts.len());
    check(&layouts);
}
