//! Documents packed in one microbatch against the same documents alone.

use vlmc_data::batch::{Batch, PictureSample};
use vlmc_ir::eval::Real;
use vlmc_training_tests::{Model, Ran, document, image_document, largest_difference, pack};

fn documents() -> [PictureSample; 3] {
    [document(1, 5, 0), image_document(2, 11, 200), document(3, 8, 400)]
}

fn alone(documents: &[PictureSample]) -> Vec<Batch> {
    documents.iter().map(|d| pack(std::slice::from_ref(d), 1).unwrap()).collect()
}

fn assert_equal(name: &str, a: &Ran, b: &Ran, tolerance: f64) {
    for (loss, (sum, count)) in &a.losses {
        let (other, other_count) = b.losses[loss];
        assert_eq!(*count, other_count, "{name}: count of {loss}");
        assert!((sum - other).abs() <= tolerance * other.abs(), "{name} {loss}: {sum} {other}");
    }
    assert!((a.loss - b.loss).abs() <= tolerance * b.loss.abs(), "{name}: {} {}", a.loss, b.loss);
    let (error, at) = largest_difference(&a.gradients, &b.gradients).unwrap();
    assert!(error <= tolerance, "{name}: {at} differs by {error:.1e}");
}

/// One pack, packs with padding and room to spare, and three microbatches of a document each.
fn packed_equals_microbatches<R: Real>(experts: bool, tolerance: f64) {
    let model = Model::small(experts, &[]).unwrap();
    let all = documents();
    let separate = model.gradients::<R>(&alone(&all), 0, false).unwrap();
    assert_eq!(separate.losses["lm"].1, 3.0 + 5.0 + 5.0, "labels with a target");
    for (align, room) in [(1, 0), (4, 0), (1, 9), (4, 8)] {
        let packed = pack(&all, align).unwrap();
        assert_eq!(packed.tokens(), if align == 4 { 28 } else { 24 });
        let ran = model.gradients::<R>(&[packed], room, false).unwrap();
        assert_equal(&format!("align {align} room {room}"), &ran, &separate, tolerance);
    }
}

#[test]
fn dense_f64() {
    packed_equals_microbatches::<f64>(false, 1e-10);
}

#[test]
fn dense_f32() {
    packed_equals_microbatches::<f32>(false, 1e-5);
}

#[test]
fn experts_f64() {
    packed_equals_microbatches::<f64>(true, 1e-10);
}

#[test]
fn experts_f32() {
    packed_equals_microbatches::<f32>(true, 1e-5);
}

/// Sums of separate runs of one document, each divided by its own counts, put together by hand:
/// a gradient is linear in the weight of the second loss, so two weights tell both losses apart.
fn packed_equals_runs(experts: bool) {
    let all = documents();
    let with = Model::small(experts, &["mtp_weight=0.1"]).unwrap();
    let without = Model::small(experts, &["mtp_weight=0.0"]).unwrap();
    let packed = with.gradients::<f64>(&[pack(&all, 1).unwrap()], 0, false).unwrap();
    let (lm_total, mtp_total) = (packed.losses["lm"].1, packed.losses["mtp"].1);
    let mut sum = Ran::default();
    for batch in alone(&all) {
        let both = with.gradients::<f64>(std::slice::from_ref(&batch), 0, false).unwrap();
        let first = without.gradients::<f64>(&[batch], 0, false).unwrap();
        for (loss, (s, c)) in &both.losses {
            let entry = sum.losses.entry(loss.clone()).or_insert((0.0, 0.0));
            *entry = (entry.0 + s, entry.1 + c);
        }
        let (lm, mtp) = (both.losses["lm"].1 / lm_total, both.losses["mtp"].1 / mtp_total);
        for (name, g) in &both.gradients {
            let f = &first.gradients[name];
            let entry = sum.gradients.entry(name.clone()).or_insert_with(|| vec![0.0; g.len()]);
            for (e, (g, f)) in entry.iter_mut().zip(g.iter().zip(f)) {
                *e += f * lm + (g - f) * mtp;
            }
        }
    }
    sum.loss = sum.losses["lm"].0 / lm_total + 0.1 * sum.losses["mtp"].0 / mtp_total;
    assert_equal("runs", &packed, &sum, 1e-10);
}

#[test]
fn dense_runs_by_hand() {
    packed_equals_runs(false);
}

#[test]
fn expert_runs_by_hand() {
    packed_equals_runs(true);
}

/// The proof is worth something: a leak between documents would be seen, since in one document of
/// all tokens the gradients are quite different.
#[test]
fn one_document_of_all_is_something_else() {
    let model = Model::small(false, &[]).unwrap();
    let all = documents();
    let packed = model.gradients::<f64>(&[pack(&all, 1).unwrap()], 0, false).unwrap();
    let mut joined = all[0].clone();
    for d in &all[1..] {
        joined.sample.ids.extend(&d.sample.ids);
        joined.sample.labels.extend(&d.sample.labels);
        joined.sample.types.extend(&d.sample.types);
        joined.image_grids.extend(&d.image_grids);
        joined.image_pixels.width = joined.image_pixels.width.max(d.image_pixels.width);
        joined.image_pixels.values.extend(&d.image_pixels.values);
    }
    let ran = model.gradients::<f64>(&[pack(&[joined], 1).unwrap()], 0, false).unwrap();
    for part in
        ["layers.0.linear_attn.conv1d.weight", "layers.0.linear_attn.A_log", "q_proj.weight"]
    {
        let of = |r: &Ran| {
            let found = r.gradients.iter().filter(|(n, _)| n.contains(part));
            found.map(|(n, g)| (n.clone(), g.clone())).collect()
        };
        let (error, _) = largest_difference(&of(&ran), &of(&packed)).unwrap();
        assert!(error > 1e-2, "{part} differs by {error:.1e} only");
    }
}
