//! A small model learns four documents by heart.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;
use vlmc_artifact::Artifact;
use vlmc_data::batch::Batch;
use vlmc_ir::ty::DType;
use vlmc_runtime::report::Report;
use vlmc_training_tests::{Folder, Model, document, files, image_document, pack};

/// One period of four layers, width 256, 1024 ids.
const SETTINGS: &[&str] = &[
    "text.hidden=256",
    "text.head_dim=64",
    "text.mrope_section=[3,3,2]",
    "text.key_dim=32",
    "text.value_dim=32",
    "text.ffn=512",
    "text.expert_ffn=128",
    "text.shared_ffn=128",
    "vision.out=256",
];
const STEPS: usize = 200;
const OPTIONS: &str = "--lr 2e-3 --min-lr 2e-4 --lr-decay cosine --warmup 10 \
                       --total-steps 200 --weight-decay 0.0";

fn batch() -> Batch {
    let documents = [
        document(1, 16, 0),
        image_document(2, 24, 100),
        document(3, 20, 300),
        document(4, 12, 500),
    ];
    pack(&documents, 1).unwrap()
}

fn artifact(experts: bool) -> Artifact {
    let model = Model::small(experts, SETTINGS).unwrap();
    model.compile(&[batch()], DType::F32, 0).unwrap().artifact
}

fn losses(report: &Report) -> Vec<f64> {
    report.steps.iter().map(|s| s.losses["lm_loss"]).collect()
}

#[test]
#[ignore = "200 steps, half a minute with optimisation"]
fn four_documents_in_200_steps() {
    let mut curves = vec![];
    for (name, experts) in [("dense", false), ("experts", true)] {
        let folder = Folder::new(&format!("overfit-{name}")).unwrap();
        folder.prepare(&artifact(experts), &[batch()]).unwrap();
        let begun = Instant::now();
        let whole = format!("{OPTIONS} --steps {STEPS} --save @whole --save-every 100 --keep 0");
        let report = folder.train(&whole).unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        let curve = losses(&report);
        println!("{name}: {} to {} in {seconds:.0} s", curve[0], curve[STEPS - 1]);
        assert!((curve[0] - 1024f64.ln()).abs() < 0.5, "starts near ln 1024: {}", curve[0]);
        assert!(curve[STEPS - 1] < 0.05, "{}", curve[STEPS - 1]);
        // Without optimisation the time says nothing.
        assert!(cfg!(debug_assertions) || seconds < 180.0, "{seconds} s");
        folder.train(&format!("{OPTIONS} --steps 100 --save @halves")).unwrap();
        let rest = format!("{OPTIONS} --steps {STEPS} --resume @halves --save @halves");
        let resumed = folder.train(&rest).unwrap();
        assert_eq!(losses(&resumed), curve[100..], "losses after the stop");
        let at_end = |name: &str| files(&folder.at(name).join("step-00000200")).unwrap();
        assert_eq!(at_end("whole").len(), 3);
        assert!(at_end("whole") == at_end("halves"), "the checkpoints differ");
        curves.push((name, curve, seconds));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/overfit.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&page, text(&curves)).unwrap();
        std::fs::write(page.with_extension("svg"), drawing(&curves)).unwrap();
    }
}

/// With weights rounded to bf16 for the model and kept in f32 for the optimizer.
#[test]
#[ignore = "200 steps, half a minute with optimisation"]
fn four_documents_in_bf16() {
    let model = Model::small(true, SETTINGS).unwrap();
    let artifact = model.compile(&[batch()], DType::Bf16, 0).unwrap().artifact;
    let folder = Folder::new("overfit-bf16").unwrap();
    folder.prepare(&artifact, &[batch()]).unwrap();
    let curve = losses(&folder.train(&format!("{OPTIONS} --steps {STEPS}")).unwrap());
    println!("bf16: {} to {}", curve[0], curve[STEPS - 1]);
    assert!(curve[STEPS - 1] < 0.05, "{}", curve[STEPS - 1]);
}

/// The weights of a checkpoint are a file of weights like any other, under the model's names.
#[test]
fn a_checkpoint_starts_another_training() {
    let batch = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let model = Model::small(true, &["text.layers=2", "text.pattern=[gdn,attention]"]).unwrap();
    let artifact = model.compile(std::slice::from_ref(&batch), DType::Bf16, 0).unwrap().artifact;
    let folder = Folder::new("weights").unwrap();
    folder.prepare(&artifact, &[batch]).unwrap();
    let first = losses(&folder.train("--steps 3 --lr 1e-2 --save @save").unwrap());
    let resumed = losses(&folder.train("--steps 4 --resume @save").unwrap());
    let weights = "--steps 1 --weights @save/step-00000003/model.safetensors";
    let begun = losses(&folder.train(weights).unwrap());
    assert_eq!(resumed, begun);
    assert!(begun[0] < first[0] - 0.1, "{begun:?} after {first:?}");
}

type Curve = (&'static str, Vec<f64>, f64);

fn text(curves: &[Curve]) -> String {
    let mut out = String::from("# Four documents by heart\n\n");
    out.push_str(
        "Loss of a 4-layer model (three Gated DeltaNet layers and one of gated attention, width 256,\n\
         1024 ids, multi-token prediction on) on four documents of 16, 24, 20 and 12 tokens, one with\n\
         an image, packed in one microbatch; f32, AdamW, 2 CPU cores. `dense` has gated MLPs,\n\
         `experts` 8 experts of which each token takes 2. Written by `tests/training` with `BLESS=1`.\n\n\
         ![loss](overfit.svg)\n\n",
    );
    let names: Vec<_> = curves.iter().map(|(n, ..)| *n).collect();
    let _ = writeln!(out, "| step | {} |", names.join(" | "));
    let _ = writeln!(out, "|{}", "---:|".repeat(names.len() + 1));
    for step in (0..STEPS).step_by(10).chain([STEPS - 1]) {
        let row: Vec<_> = curves.iter().map(|(_, c, _)| format!("{:.4}", c[step])).collect();
        let _ = writeln!(out, "| {} | {} |", step + 1, row.join(" | "));
    }
    let times: Vec<_> = curves.iter().map(|(n, _, s)| format!("{n} {s:.0} s")).collect();
    let _ = writeln!(out, "\nTime of the 200 steps: {}.", times.join(", "));
    out
}

fn drawing(curves: &[Curve]) -> String {
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 320\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"640\" height=\"320\" fill=\"white\"/>\n",
    );
    let (x, y) = (|step: f64| 50.0 + step * 2.8, |loss: f64| 280.0 - loss * 34.0);
    for loss in 0..=7 {
        let at = y(f64::from(loss));
        let _ = writeln!(out, "<path d=\"M50 {at}H610\" stroke=\"#ddd\"/>");
        let _ =
            writeln!(out, "<text x=\"42\" y=\"{}\" text-anchor=\"end\">{loss}</text>", at + 4.0);
    }
    for step in (0..=STEPS).step_by(50) {
        let at = x(step as f64);
        let _ = writeln!(out, "<text x=\"{at}\" y=\"300\" text-anchor=\"middle\">{step}</text>");
    }
    for ((name, curve, _), color) in curves.iter().zip(["#1f5fbf", "#c2571a"]) {
        let point = |(i, v): (usize, &f64)| format!("{:.1},{:.1}", x(i as f64 + 1.0), y(*v));
        let points: Vec<_> = curve.iter().enumerate().map(point).collect();
        let points = points.join(" ");
        let _ = writeln!(out, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\"/>");
        let at = if color == "#1f5fbf" { 40 } else { 58 };
        let _ = writeln!(out, "<text x=\"520\" y=\"{at}\" fill=\"{color}\">{name}</text>");
    }
    out.push_str("</svg>\n");
    out
}
