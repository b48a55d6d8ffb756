//! The fusion table of the large models: every family of formulas, each way, as often as the model
//! has it, and nothing of a decoder layer left outside.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc::compile::{Capacity, CompileError, CompileRequest, Compiled, Spread, compile};
use vlmc::fusion::Report;
use vlmc_frontend::elab::Library;
use vlmc_ir::ty::DType;
use vlmc_passes::fuse::{Form, Options};

fn compiled(variant: &str, form: Form) -> Compiled {
    let reader = vlmc::spec::FileReader::embedded();
    let spec = include_bytes!("../../../models/qwen3_5_vl.vlm");
    let (lib, diags) = Library::load("qwen3_5_vl.vlm", spec.to_vec(), &reader);
    assert!(!diags.has_errors());
    let request = CompileRequest {
        variant: Some(variant),
        settings: vec![],
        dtype: DType::Bf16,
        capacity: Capacity { tokens: 8192, docs: 16, patches: 4096, frames: 8 },
        spread: Spread::one(1),
        fused: true,
        plan: None,
        fusing: Options { form, ..Options::default() },
        memory: Default::default(),
        flags: Default::default(),
    };
    compile(&lib, &request).unwrap_or_else(|e| match e {
        CompileError::Other(e) => panic!("{e:#}"),
        CompileError::Spec(_) => panic!("the spec is wrong"),
    })
}

/// Runs of clusters of functions that start like this which hold a family, alone or with others.
fn runs(report: &Report, family: &str, direction: &str, function: &str) -> usize {
    let of = report.clusters.iter().filter(|c| {
        c.direction == direction
            && c.function.starts_with(function)
            && c.label.split('+').any(|f| f == family)
    });
    of.map(|c| c.runs).sum()
}

/// Sizes of a model, from its table of variants: layers of each kind, with the predicted token's
/// attention layer, and trained tensors.
struct Model {
    gdn: usize,
    attention: usize,
    experts: bool,
    tensors: usize,
}

fn check(variant: &str, form: Form, model: &Model) {
    let compiled = compiled(variant, form);
    let report = &compiled.report;
    let both = |family: &str, function: &str| {
        [runs(report, family, "fwd", function), runs(report, family, "bwd", function)]
    };
    let Model { gdn, attention, experts, tensors } = *model;
    let layers = gdn + attention;
    // Forward each is one launch a layer, whatever is forced around delta rules.
    assert_eq!(both("norm.gated_rms", "")[0], gdn);
    assert_eq!(both("attn.qkv_prep", "")[0], attention);
    assert_eq!(both("attn.output_gate", "")[0], attention);
    // Back, queries and keys are made again for the gradient, and then their gradients go on.
    assert_eq!(both("attn.qkv_prep", "")[1], 2 * attention);
    assert!(both("attn.output_gate", "")[1] >= attention);
    assert!(both("norm.gated_rms", "")[1] >= gdn);
    match form {
        // One launch forward; back one that makes all again, and one that takes the gradients on.
        Form::Auto | Form::Mega => {
            assert_eq!(both("gdn.pre_gated_delta_rule", "Layer"), [gdn, 2 * gdn]);
        }
        // Queries, keys, values, decays and betas.
        Form::Streamed => {
            let [fwd, bwd] = both("gdn.pre_gated_delta_rule", "Layer");
            assert!(fwd == 5 * gdn && bwd >= 10 * gdn, "{fwd} {bwd}");
        }
        Form::Unfused => {
            let [fwd, bwd] = both("gdn.pre_gated_delta_rule", "Layer");
            assert!(fwd > 5 * gdn && bwd > 10 * gdn, "{fwd} {bwd}");
        }
    }
    // Two norms a layer and one behind the last; the predicted token's layer has three more of them.
    assert_eq!(both("norm.residual_rms", "Layer")[0], 2 * (layers - 1));
    assert_eq!(both("norm.residual_rms", "Norm"), [1, 1]);
    assert!(both("norm.residual_rms", "Layer")[1] >= layers - 1);
    assert!(both("norm.residual_rms", "Mtp").iter().all(|n| *n >= 2));
    // Of experts the routed and the shared one have an activation.
    let gates = if experts { 2 * layers } else { layers };
    assert_eq!(both("mlp.swiglu", ""), [gates, gates]);
    for family in ["moe.router", "moe.shared_gate", "moe.dispatch"] {
        let [fwd, bwd] = both(family, "");
        match experts {
            true => assert!(fwd >= layers && bwd >= layers, "{family}: {fwd} {bwd}"),
            false => assert_eq!([fwd, bwd], [0, 0], "{family}"),
        }
    }
    assert!(both("loss.cross_entropy", "Head").iter().all(|n| *n >= 2));
    for family in ["vision.layer_norm", "vision.rotary", "vision.bias_gelu"] {
        assert!(both(family, "VisionBlock").iter().all(|n| *n >= 27), "{family}");
    }
    assert_eq!(both("vision.position_interpolation", "VisionTower"), [1, 1]);
    assert_eq!(runs(report, "optim.adamw", "opt", ""), tensors);
    assert_eq!(compiled.artifact.manifest.parameters.len(), tensors);
    left_outside(report);
}

/// What may stay outside clusters in a decoder layer: what is no row arithmetic, and addresses.
const OUTSIDE: [(&str, &str); 10] = [
    ("contract", "a product"),
    ("grouped_contract", "a product"),
    ("grouped_outer", "a product"),
    ("attention", "a kernel of its own"),
    ("attention_grad", "a kernel of its own"),
    ("gated_delta_rule", "a kernel of its own"),
    ("gated_delta_rule_grad", "a kernel of its own"),
    ("top_k", "sorts a row"),
    ("reshape", "the same memory under other dims"),
    ("concat", "several launches store to the pieces of one buffer, in a forced form alone"),
];

fn left_outside(report: &Report) {
    let layers = report.outside.iter().filter(|o| o.function.starts_with("Layer."));
    let mut seen = 0;
    for o in layers {
        seen += 1;
        let known = OUTSIDE.iter().any(|(op, _)| *op == o.op);
        assert!(known, "{} x{} stays outside in {}", o.op, o.count, o.function);
    }
    assert!(seen > 10);
}

const DENSE: Model = Model { gdn: 24, attention: 9, experts: false, tensors: 775 };
const EXPERTS: Model = Model { gdn: 30, attention: 11, experts: true, tensors: 1045 };

#[test]
fn dense_model() {
    check("9b", Form::Auto, &DENSE);
}

#[test]
fn mixture_of_experts() {
    check("35b-a3b", Form::Auto, &EXPERTS);
}

#[test]
fn forced_forms() {
    for form in [Form::Mega, Form::Streamed, Form::Unfused] {
        check("9b", form, &DENSE);
    }
}

#[test]
#[ignore = "the same over a larger model: for test-all"]
fn forced_forms_of_experts() {
    for form in [Form::Mega, Form::Streamed, Form::Unfused] {
        check("35b-a3b", form, &EXPERTS);
    }
}
