//! Losses against formulas written out here, on values that were seen on the way.

use vlmc::eval::{Evaluated, Inputs, Precision, run};
use vlmc_data::batch::Batch;
use vlmc_data::tensor::HostTensor;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_training_tests::{
    Model, document, image_document, largest_difference, pack, program_parameter,
};

const LAYERS: usize = 4;
const EXPERTS: usize = 8;
const TOP_K: usize = 2;
const WIDTH: usize = 128;

/// Lengths 5, 11 and 8 in 28 rows.
fn batch() -> Batch {
    let documents = [document(1, 5, 0), image_document(2, 11, 200), document(3, 8, 400)];
    pack(&documents, 4).unwrap()
}

/// Every value on the way, and the gradients.
fn evaluate(settings: &[&str]) -> Evaluated {
    let model = Model::small(true, settings).unwrap();
    let program = model.program(None, &[], &[]).unwrap();
    let batch = batch();
    let of = |p| {
        let inputs = Inputs::Batch(&batch);
        run(p, Precision::F64, &inputs, &mut |n, p| program_parameter(n, p), &|_| true).unwrap()
    };
    let joint = differentiate(&program, &Options { seeds: Seeds::Counts, inputs: vec![] }).unwrap();
    Evaluated { gradients: of(&joint).gradients, ..of(&program) }
}

/// Rows of real tokens, of a value with `width` numbers a row.
fn valid(t: &HostTensor, width: usize) -> Vec<Vec<f64>> {
    let rows: Vec<Vec<f64>> = t.to_f64().chunks(width).map(<[f64]>::to_vec).collect();
    let keep = |r: &usize| *r < 5 || (8..19).contains(r) || (20..28).contains(r);
    (0..rows.len()).filter(keep).map(|r| rows[r].clone()).collect()
}

struct Router {
    logits: Vec<Vec<f64>>,
    p: Vec<Vec<f64>>,
    /// Rows that the router reads.
    x: Vec<Vec<f64>>,
}

/// What the router of a layer saw and made. The probabilities and the norm before it are made here.
fn router(out: &Evaluated, layer: usize) -> Router {
    let logits = valid(&out.seen[&format!("decoder.{layer}.mlp.logits")], EXPERTS);
    let softmax = |row: &Vec<f64>| {
        let sum: f64 = row.iter().map(|v| v.exp()).sum();
        row.iter().map(|v| v.exp() / sum).collect()
    };
    let p = logits.iter().map(softmax).collect();
    let name = format!("model.language_model.layers.{layer}.post_attention_layernorm.weight");
    let program = Model::small(true, &[]).unwrap().program(None, &[], &[]).unwrap();
    let parameters = program.parameters();
    let (_, declared) = parameters.iter().find(|(n, _)| *n == name).unwrap();
    let gain = program_parameter(&name, declared).unwrap().to_f64();
    let norm = |row: &Vec<f64>| {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / WIDTH as f64;
        row.iter().zip(&gain).map(|(v, g)| v / (mean + 1e-6).sqrt() * (1.0 + g)).collect()
    };
    let x = valid(&out.seen[&format!("decoder.{layer}.h")], WIDTH).iter().map(norm).collect();
    Router { logits, p, x }
}

/// How often each expert is among the `TOP_K` largest.
fn chosen(p: &[Vec<f64>]) -> Vec<f64> {
    let mut counts = vec![0.0; EXPERTS];
    for row in p {
        let mut order: Vec<usize> = (0..EXPERTS).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        order[..TOP_K].iter().for_each(|e| counts[*e] += 1.0);
    }
    counts
}

fn close(what: &str, have: f64, want: f64, tolerance: f64) {
    assert!((have - want).abs() <= tolerance * want.abs(), "{what}: {have} is not {want}");
}

/// The gradient of the last layer's router from `d(logits)` of each row, against the difference
/// that the loss makes: nothing else in the model sees that router's logits but its experts, whose
/// gradient does not depend on the loss's weight.
fn last_router(
    weight: f64,
    with: &Evaluated,
    without: &Evaluated,
    x: &[Vec<f64>],
    logits: &[Vec<f64>],
) {
    let name = "model.language_model.layers.3.mlp.gate.weight";
    let (with, without) = (with.gradients[name].to_f64(), without.gradients[name].to_f64());
    let scale = with.iter().zip(&without).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(scale > 1e-9, "the loss reaches the router");
    for e in 0..EXPERTS {
        for d in 0..WIDTH {
            let want: f64 = x.iter().zip(logits).map(|(x, g)| g[e] * x[d]).sum();
            let have = with[e * WIDTH + d] - without[e * WIDTH + d];
            let error = (have - weight * want).abs();
            assert!(error < 1e-8 * scale, "{e} {d}: {have} is not {}", weight * want);
        }
    }
}

/// Through a softmax: gradients of logits from those of the probabilities of a row.
fn softmax_backward(p: &[f64], dp: &[f64]) -> Vec<f64> {
    let sum: f64 = p.iter().zip(dp).map(|(p, d)| p * d).sum();
    p.iter().zip(dp).map(|(p, d)| p * (d - sum)).collect()
}

#[test]
fn router_balance_of_all_layers_as_one() {
    let settings = ["text.aux_loss=stacked", "text.aux_weight=0.25"];
    let (out, none) = (evaluate(&settings), evaluate(&[]));
    let routers: Vec<Router> = (0..LAYERS).map(|i| router(&out, i)).collect();
    let p: Vec<Vec<f64>> = routers.iter().flat_map(|r| r.p.clone()).collect();
    assert_eq!(p.len(), 24 * LAYERS);
    let (rows, counts) = (p.len() as f64, chosen(&p));
    let share = |e: usize| counts[e] / rows;
    let mean = |e: usize| p.iter().map(|r| r[e]).sum::<f64>() / rows;
    let want = EXPERTS as f64 * (0..EXPERTS).map(|e| share(e) * mean(e)).sum::<f64>();
    let (sum, count, weight) = out.losses["aux"];
    assert_eq!((count, weight), (1.0, 0.25));
    close("aux", sum, want, 1e-12);
    assert!(want > 2.0, "experts are not used evenly here: {want}");
    let dp: Vec<f64> = (0..EXPERTS).map(|e| EXPERTS as f64 * share(e) / rows).collect();
    let d: Vec<_> = routers[3].p.iter().map(|p| softmax_backward(p, &dp)).collect();
    last_router(0.25, &out, &none, &routers[3].x, &d);
}

#[test]
fn router_balance_layer_by_layer() {
    let settings = ["text.aux_loss=per_layer", "text.aux_weight=0.25"];
    let (out, none) = (evaluate(&settings), evaluate(&[]));
    let mut want = 0.0;
    let (rows, k) = (24.0, TOP_K as f64);
    for layer in 0..LAYERS {
        let r = router(&out, layer);
        let counts = chosen(&r.p);
        let term = |e: usize| counts[e] / (rows * k) * r.p.iter().map(|p| p[e]).sum::<f64>() / rows;
        want += EXPERTS as f64 * (0..EXPERTS).map(term).sum::<f64>();
    }
    let (sum, count, weight) = out.losses["aux"];
    assert_eq!((count, weight), (1.0, 0.25));
    close("aux", sum, want, 1e-12);
    let r = router(&out, 3);
    let counts = chosen(&r.p);
    let dp: Vec<f64> = counts.iter().map(|c| EXPERTS as f64 * c / (rows * k * rows)).collect();
    let d: Vec<_> = r.p.iter().map(|p| softmax_backward(p, &dp)).collect();
    last_router(0.25, &out, &none, &r.x, &d);
}

#[test]
fn router_z() {
    let (out, none) = (evaluate(&["text.z_loss_weight=0.25"]), evaluate(&[]));
    let z = |row: &Vec<f64>| row.iter().map(|v| v.exp()).sum::<f64>().ln();
    let want: f64 = (0..LAYERS)
        .flat_map(|i| router(&out, i).logits.iter().map(z).collect::<Vec<_>>())
        .map(|z| z * z)
        .sum();
    let (sum, count, weight) = out.losses["z"];
    assert_eq!((count, weight), (24.0, 0.25));
    close("z", sum, want, 1e-12);
    let r = router(&out, 3);
    let d = |(logits, p): (&Vec<f64>, &Vec<f64>)| {
        p.iter().map(|p| 2.0 * z(logits) * p / 24.0).collect::<Vec<f64>>()
    };
    let d: Vec<_> = r.logits.iter().zip(&r.p).map(d).collect();
    last_router(0.25, &out, &none, &r.x, &d);
}

/// A weight of 0 leaves a loss out altogether.
#[test]
fn without_weight_there_is_no_z_loss() {
    let text = |settings: &[&str]| {
        let program = Model::small(true, settings).unwrap().program(None, &[], &[]).unwrap();
        vlmc_ir::text::print::program(&program)
    };
    let plain = text(&[]);
    assert_eq!(text(&["text.z_loss_weight=0.0"]), plain);
    assert_ne!(text(&["text.z_loss_weight=0.001"]), plain);
}

/// No label at all: every loss is zero and so is every gradient.
#[test]
fn nothing_to_learn() {
    let mut batch = batch();
    batch.labels.fill(-100);
    for experts in [false, true] {
        let model = Model::small(experts, &[]).unwrap();
        let ran = model.gradients::<f32>(std::slice::from_ref(&batch), 4, true).unwrap();
        assert_eq!(ran.loss, 0.0);
        assert_eq!(ran.losses["lm"], (0.0, 0.0));
        assert_eq!(ran.losses["mtp"], (0.0, 0.0));
        assert!(ran.gradients.len() > 50);
        for (name, g) in &ran.gradients {
            assert!(g.iter().all(|v| *v == 0.0), "{name}");
        }
    }
}

/// One microbatch without labels beside one with: as if it were not there.
#[test]
fn a_microbatch_without_labels_adds_nothing() {
    let model = Model::small(true, &[]).unwrap();
    let full = batch();
    let mut empty = pack(&[document(5, 20, 600)], 1).unwrap();
    empty.labels.fill(-100);
    let alone = model.gradients::<f64>(std::slice::from_ref(&full), 0, false).unwrap();
    let both = model.gradients::<f64>(&[full, empty], 0, false).unwrap();
    close("loss", both.loss, alone.loss, 1e-14);
    let (error, at) = largest_difference(&both.gradients, &alone.gradients).unwrap();
    assert!(error < 1e-14, "{at} {error}");
}

/// Microbatches weigh by their valid tokens, not each the same.
#[test]
fn microbatches_weigh_by_their_tokens() {
    let model = Model::small(false, &[]).unwrap();
    let (long, short) = (document(1, 17, 0), document(2, 4, 200));
    let one = |d| pack(std::slice::from_ref(d), 1).unwrap();
    let separate = model.gradients::<f64>(&[one(&long), one(&short)], 0, false).unwrap();
    let packed = pack(&[long, short], 1).unwrap();
    let packed = model.gradients::<f64>(&[packed], 0, false).unwrap();
    assert_eq!(separate.losses["lm"].1, 12.0 + 2.0);
    close("loss", separate.loss, packed.loss, 1e-12);
    let (error, at) = largest_difference(&separate.gradients, &packed.gradients).unwrap();
    assert!(error < 1e-10, "{at} {error}");
}
