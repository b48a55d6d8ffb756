//! Public reports as tests, one a number of the list; the table is `docs/cases.md`.

use crate::isolation;
use std::collections::BTreeSet;
use vlmc::eval::{Evaluated, Inputs, Precision, Tensors, run, with_gradients};
use vlmc_artifact::{Buffer, Parameter};
use vlmc_data::batch::{Batch, PictureSample, write_batches};
use vlmc_data::host_fn;
use vlmc_data::init::{Distribution, Initializer};
use vlmc_data::pack::{SequenceLayout, alignment, pad_samples, zigzag_indices};
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_data::vision::Grid;
use vlmc_frontend::elab::Library;
use vlmc_ir::graph::Program;
use vlmc_ir::ops::Op;
use vlmc_ir::text::print;
use vlmc_ir::ty::DType;
use vlmc_parity::case::Case;
use vlmc_parity::whole::model_case;
use vlmc_passes::autodiff::{Options, Plan, Seeds};
use vlmc_runtime::executor::Executor;
use vlmc_runtime::weights::{self, Weights};
use vlmc_training_tests::{
    Folder, Model, Ran, document, image_document, largest_difference, pack, parameter_value,
    program_parameter,
};

pub(crate) fn ints(shape: &[usize], values: &[i64]) -> HostTensor {
    HostTensor::new(shape.to_vec(), HostData::I64(values.to_vec())).unwrap()
}

fn host(function: &str, args: &[(&str, i64)], batch: &Batch) -> HostTensor {
    host_fn::evaluate(function, args, batch).unwrap()
}

const PLACEHOLDERS: [(&str, i64); 3] = [("image_token", 1000), ("video_token", 1001), ("merge", 2)];

/// A library of this text.
pub(crate) fn library(text: &str) -> Model {
    let reader = vlmc::spec::FileReader::embedded();
    let (library, diags) = Library::load("m.vlm", text.as_bytes().to_vec(), &reader);
    assert!(!diags.has_errors(), "{diags:?}");
    Model { library, variant: None, settings: vec![] }
}

fn equal(what: &str, a: &Ran, b: &Ran, tolerance: f64) {
    assert!((a.loss - b.loss).abs() <= tolerance * b.loss.abs(), "{what}: {} {}", a.loss, b.loss);
    let (error, at) = largest_difference(&a.gradients, &b.gradients).unwrap();
    assert!(error <= tolerance, "{what}: {at} differs by {error:.1e}");
}

/// 3 text tokens, an image of 2 x 2 rows, 3 text tokens: each axis by hand.
#[test]
fn case_23_positions_of_an_image() {
    let mut d = document(1, 10, 0);
    for row in 3..7 {
        (d.sample.ids[row], d.sample.labels[row], d.sample.types[row]) = (1000, -100, 1);
    }
    let image = image_document(1, 8, 0);
    (d.image_grids, d.image_pixels) = (image.image_grids, image.image_pixels);
    let positions = host("mrope_positions", &[], &pack(&[d], 1).unwrap());
    let want = [
        [0, 1, 2, 3, 3, 3, 3, 5, 6, 7],
        [0, 1, 2, 3, 3, 4, 4, 5, 6, 7],
        [0, 1, 2, 3, 4, 3, 4, 5, 6, 7],
    ];
    assert_eq!(positions.to_i64().unwrap(), want.concat());
    // They are an input of the program, so that every chunk can have them.
    let program = Model::small(false, &[]).unwrap().losses(DType::F32).unwrap();
    let input = program.main().unwrap().inputs.iter().find(|i| &*i.name == "seq.positions");
    assert_eq!(input.unwrap().from.as_ref().unwrap().function, "mrope_positions");
}

/// Every layer takes both boundary arrays, the one that predicts further ahead too.
#[test]
fn case_25_boundaries_reach_every_layer() {
    let program = Model::small(true, &[]).unwrap().losses(DType::F32).unwrap();
    let main = program.main().unwrap();
    let mut layers = 0;
    for node in &main.nodes {
        let Op::Call { callee, .. } = &node.op else { continue };
        if !callee.starts_with("Layer.") && callee != "Mtp" {
            continue;
        }
        layers += 1;
        for name in ["seq.cu_seqlens", "seq.cu_seqlens_padded"] {
            let is = |v: &vlmc_ir::graph::Value| match main.node(v.node).op {
                Op::Input { index } => &*main.inputs[index as usize].name == name,
                _ => false,
            };
            assert!(node.operands.iter().any(is), "{callee} without {name}");
        }
    }
    assert_eq!(layers, 5);
}

/// Neither positions nor grids can be left out in silence.
#[test]
fn case_26_missing_positions_are_refused() {
    let model = Model::small(false, &[]).unwrap();
    let program = model.program(None, &[], &[]).unwrap();
    let batch = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let mut inputs = Tensors::new();
    for i in program.main().unwrap().inputs.iter().filter(|i| &*i.name != "seq.positions") {
        let from = i.from.as_ref().unwrap();
        let args: Vec<_> = from.arguments.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        inputs.insert(i.name.to_string(), host(&from.function, &args, &batch));
    }
    let mut weights = |n: &str, p: &_| program_parameter(n, p);
    let inputs = Inputs::Named(&inputs);
    let e = run(&program, Precision::F32, &inputs, &mut weights, &|_| false).unwrap_err();
    assert!(format!("{e:#}").contains("`seq.positions` is missing"), "{e:#}");
    let mut without = batch;
    without.image_grids = None;
    without.image_pixels = Default::default();
    for (function, args) in [("mrope_positions", &[][..]), ("feature_index", &PLACEHOLDERS[..])] {
        assert!(host_fn::evaluate(function, args, &without).is_err(), "{function}");
    }
}

/// A microbatch without pictures: the vision tower is in the graph and gets zeros.
#[test]
fn case_28_no_picture_no_vision_gradient() {
    let model = Model::small(false, &[]).unwrap();
    let text = pack(&[document(1, 9, 0)], 1).unwrap();
    let ran = model.gradients::<f32>(std::slice::from_ref(&text), 0, true).unwrap();
    let vision: Vec<_> =
        ran.gradients.iter().filter(|(n, _)| n.starts_with("model.visual.")).collect();
    assert_eq!(vision.len(), 9 + 2 * 12);
    assert!(vision.iter().all(|(_, g)| g.iter().all(|v| *v == 0.0)));
    // Beside a microbatch with a picture it adds nothing.
    let image = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let both = [text.clone(), image.clone()];
    let both = model.gradients::<f64>(&both, 0, false).unwrap();
    let packed = pack(&[document(1, 9, 0), image_document(2, 11, 200)], 1).unwrap();
    equal("packed", &both, &model.gradients::<f64>(&[packed], 0, false).unwrap(), 1e-10);
}

const OPS: &str = "
fn attend[h, d](q: [T, h, d], k_: [T, h, d], v: [T, h, d], seq: Sequence) -> [T, h, d] {
  let (o, _) = attention(q, k_, v, seq, scale = 0.25, causal = true)
  o
}
fn convolve[c, k](x: [T, c], w: [c, k], seq: Sequence) -> [T, c] { causal_conv1d(x, w, seq) }
fn recur[h, d](q: [T, h, d], k_: [T, h, d], v: [T, h, d], g: f32[T, h], beta: [T, h], seq: Sequence) -> [T, h, d] {
  let (o, _) = gated_delta_rule(q, k_, v, g, beta, seq)
  o
}
fn gated[h, d](q: [T, h, d], k_: [T, h, d], v: [T, h, d], a: [T, h], dt_bias: [h], A_log: f32[h], beta: [T, h], seq: Sequence) -> [T, h, d] {
  let g = -exp(A_log) * softplus(f32(a) + f32(dt_bias))
  let (o, _) = gated_delta_rule(q, k_, v, g, beta, seq)
  o
}
";

/// Values of an input, by its name.
fn values(name: &str, n: usize) -> Vec<f32> {
    let of = |d| Initializer::new(3, name, d).values(0..n as u64);
    match name {
        "g" => of(Distribution::Uniform(-0.1, 0.0)),
        "beta" => of(Distribution::Uniform(0.0, 1.0)),
        _ => of(Distribution::Normal(0.3)),
    }
}

/// Evaluates a function of [`OPS`] with gradients of all float inputs.
fn evaluate_op(
    function: &str,
    floats: &[(&str, Vec<usize>)],
    precision: Precision,
    layout: &SequenceLayout,
    edit: &dyn Fn(&str, &mut Vec<f32>),
) -> Evaluated {
    let shapes: Vec<(&str, &[usize])> = floats.iter().map(|(n, s)| (*n, &s[..])).collect();
    let program = library(OPS).program(Some(function), &[], &shapes).unwrap();
    let names: Vec<String> = floats.iter().map(|(n, _)| n.to_string()).collect();
    let joint: Program = with_gradients(&program, &names).unwrap();
    let rows = floats[0].1[0];
    let mut inputs = Tensors::new();
    let dout = ("dout.0", floats[0].1.clone());
    for (name, shape) in floats.iter().chain([&dout]) {
        let mut v = values(name, shape.iter().product());
        edit(name, &mut v);
        let t = HostTensor::new(shape.clone(), HostData::F32(v)).unwrap();
        inputs.insert(name.to_string(), t);
    }
    let boundaries = |v: &[i32]| HostTensor::vector(HostData::I32(v.to_vec()));
    inputs.insert("seq.cu_seqlens".into(), boundaries(layout.cu_seqlens()));
    inputs.insert("seq.cu_seqlens_padded".into(), boundaries(layout.cu_seqlens_padded()));
    inputs.insert("seq.positions".into(), ints(&[3, rows], &vec![0; 3 * rows]));
    let inputs = Inputs::Named(&inputs);
    let mut none = |n: &str, _: &_| anyhow::bail!("no parameter {n}");
    run(&joint, precision, &inputs, &mut none, &|_| false).unwrap()
}

/// NaN in padding rows of inputs and of the result's gradient: the results have zeros there, and so
/// have the gradients.
#[test]
fn case_32_rows_past_the_boundaries_are_zero() {
    let layout = SequenceLayout::new(vec![0, 3, 6], vec![0, 4, 8], 12).unwrap();
    let valid = layout.row_valid(12);
    let heads = |names: &[&'static str]| -> Vec<(&'static str, Vec<usize>)> {
        names.iter().map(|n| (*n, vec![12, 2, 4])).collect()
    };
    let mut recur = heads(&["q", "k_", "v"]);
    recur.extend([("g", vec![12, 2]), ("beta", vec![12, 2])]);
    for (function, floats) in [
        ("attend", heads(&["q", "k_", "v"])),
        ("convolve", vec![("x", vec![12, 5]), ("w", vec![5, 4])]),
        ("recur", recur),
    ] {
        let poison = |name: &str, v: &mut Vec<f32>| {
            let width = v.len() / 12;
            let rows = (0..12).filter(|r| !valid[*r] && name != "w");
            rows.for_each(|r| v[r * width..(r + 1) * width].fill(f32::NAN));
        };
        let out = evaluate_op(function, &floats, Precision::F32, &layout, &poison);
        for (name, t) in &out.outputs {
            let width = t.len() / t.shape[0];
            for (row, v) in t.to_f64().chunks(width).enumerate() {
                if name == "grad.in.w" || valid[row] {
                    assert!(v.iter().all(|v| v.is_finite()), "{function} {name} {row}");
                } else {
                    assert!(v.iter().all(|v| *v == 0.0), "{function} {name} {row}: {v:?}");
                }
            }
            assert!(t.to_f64().iter().any(|v| *v != 0.0), "{function} {name}");
        }
    }
}

/// Targets of the second head in padded documents: none comes from a neighbour.
#[test]
fn case_33_shifts_stop_at_padded_boundaries() {
    let layout = SequenceLayout::new(vec![0, 3, 6], vec![0, 4, 8], 8).unwrap();
    let mut batch = pack(&[document(1, 8, 0)], 1).unwrap();
    batch.layout = layout;
    batch.input_ids = vec![10, 11, 12, 0, 20, 21, 22, 0];
    batch.labels = vec![10, 11, 12, -100, 20, 21, 22, -100];
    let shifted = |f, by| host(f, &[("by", by)], &batch).to_i64().unwrap();
    assert_eq!(shifted("next_ids", 1), [11, 12, 0, 0, 21, 22, 0, 0]);
    assert_eq!(shifted("next_labels", 1), [11, 12, -100, -100, 21, 22, -100, -100]);
    assert_eq!(shifted("next_labels", 2), [12, -100, -100, -100, 22, -100, -100, -100]);
}

/// Positions are cut along the rows, not along the axes.
#[test]
fn case_36_positions_are_cut_along_rows() {
    let index = zigzag_indices(&[0, 8], 2, 0).unwrap();
    assert_eq!(index, [0, 1, 6, 7]);
    let positions = ints(&[3, 8], &(0..24).collect::<Vec<_>>());
    let cut = positions.select(1, &index).unwrap();
    assert_eq!(cut.shape, [3, 4]);
    assert_eq!(cut.to_i64().unwrap(), [0, 1, 6, 7, 8, 9, 14, 15, 16, 17, 22, 23]);
}

/// An image in the second of two padded documents: its positions start at 0.
#[test]
fn case_37_positions_restart_at_padded_boundaries() {
    let mut d = document(2, 3, 200);
    (d.sample.ids[1], d.sample.labels[1], d.sample.types[1]) = (1000, -100, 1);
    d.image_grids = vec![Grid { t: 1, h: 2, w: 2 }];
    d.image_pixels.width = 96;
    d.image_pixels.values = vec![0.5; 4 * 96];
    let batch = pack(&[document(1, 5, 0), d], 4).unwrap();
    assert_eq!(batch.layout.cu_seqlens_padded(), [0, 8, 12]);
    let positions = host("mrope_positions", &[], &batch).to_i64().unwrap();
    for axis in 0..3 {
        assert_eq!(positions[12 * axis..12 * axis + 5], [0, 1, 2, 3, 4]);
        assert_eq!(positions[12 * axis + 8..12 * axis + 11], [0, 1, 2]);
    }
}

/// The documents as rows of a batch padded on the right, against the same packed.
fn padded(documents: &[PictureSample]) -> Batch {
    let samples: Vec<_> = documents.iter().map(|d| d.sample.clone()).collect();
    let p = pad_samples(&samples, 0, 1, Some(64), false).unwrap();
    let mut batch = pack(documents, 1).unwrap();
    batch.layout = SequenceLayout::from_mask(&p.mask, documents.len(), p.length).unwrap();
    (batch.input_ids, batch.labels, batch.token_types) = (p.ids, p.labels, Some(p.types));
    batch
}

#[test]
fn case_38_packed_logits_equal_padded() {
    let documents = [image_document(1, 7, 0), image_document(2, 11, 200)];
    let program = Model::small(true, &[]).unwrap().program(None, &[], &[]).unwrap();
    let logits = |batch: &Batch| {
        let mut weights = |n: &str, p: &_| program_parameter(n, p);
        let inputs = Inputs::Batch(batch);
        let out = run(&program, Precision::F64, &inputs, &mut weights, &|_| false).unwrap();
        let valid = batch.layout.row_valid(batch.tokens());
        let rows: Vec<usize> = (0..valid.len()).filter(|r| valid[*r]).collect();
        out.outputs["logits"].select(0, &rows).unwrap().to_f64()
    };
    let (a, b) = (logits(&pack(&documents, 1).unwrap()), logits(&padded(&documents)));
    assert_eq!(a.len(), 18 * 1024);
    let error = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(error < 1e-12, "{error}");
}

#[test]
fn case_39_positions_of_another_length_are_refused() {
    let folder = Folder::new("case-39").unwrap();
    let path = folder.at("b.safetensors");
    let tensors = [
        ("input_ids", ints(&[1, 12], &[1; 12])),
        ("labels", ints(&[1, 12], &[1; 12])),
        ("cu_seqlens", ints(&[1, 2], &[0, 12])),
        ("cu_seqlens_padded", ints(&[1, 2], &[0, 12])),
        ("position_ids", ints(&[1, 3, 10], &[0; 30])),
    ];
    write_file(&path, tensors.iter().map(|(n, t)| (*n, t)), &Default::default()).unwrap();
    let e = Batch::count(&TensorFile::open(&path).unwrap()).unwrap_err();
    assert_eq!(e.to_string(), "`position_ids` has 10 tokens, `input_ids` has 12");
}

/// Boundaries come from the packer: positions that repeat or fall inside a document make no new one.
#[test]
fn case_40_positions_make_no_boundaries() {
    let model = Model::small(false, &[]).unwrap();
    let batch = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let positions = host("mrope_positions", &[], &batch).to_i64().unwrap();
    assert_eq!(positions[2..6], [2, 2, 2, 2], "the time of the image's rows is one");
    let mut given = batch.clone();
    given.position_ids = Some(positions);
    assert_eq!(given.layout.documents().len(), 1);
    let of = |b: Batch| model.gradients::<f64>(&[b], 0, false).unwrap();
    assert_eq!(of(given), of(batch));
}

#[test]
fn case_41_one_rank_takes_any_length() {
    assert_eq!(alignment(1), 1);
    assert_eq!(zigzag_indices(&[0, 7], 1, 0).unwrap(), [0, 1, 2, 3, 4, 5, 6]);
    let e = zigzag_indices(&[0, 7], 2, 0).unwrap_err().to_string();
    assert!(e.contains("7 padded rows, not a multiple of 4"), "{e}");
}

/// Packing takes documents and gives a pack, so a pack cannot be packed; its documents, taken out,
/// give the same pack.
#[test]
fn case_43_packing_twice_is_packing_once() {
    let documents = [document(1, 5, 0), image_document(2, 11, 200), document(3, 8, 400)];
    let once = pack(&documents, 4).unwrap();
    let types = once.token_types.clone().unwrap();
    let out = once.layout.documents().zip(&documents).map(|(rows, d)| {
        let mut copy = d.clone();
        copy.sample.ids = once.input_ids[rows.valid_rows()].to_vec();
        copy.sample.labels = once.labels[rows.valid_rows()].to_vec();
        copy.sample.types = types[rows.valid_rows()].to_vec();
        copy
    });
    let out: Vec<PictureSample> = out.collect();
    assert_eq!(out, documents);
    assert_eq!(pack(&out, 4).unwrap(), once);
}

#[test]
fn case_44_packed_equals_padded_batch() {
    let documents = [document(1, 5, 0), image_document(2, 11, 200), document(3, 8, 400)];
    for experts in [false, true] {
        let model = Model::small(experts, &[]).unwrap();
        let a = model.gradients::<f64>(&[pack(&documents, 1).unwrap()], 0, false).unwrap();
        let b = model.gradients::<f64>(&[padded(&documents)], 0, false).unwrap();
        equal("padded", &a, &b, 1e-10);
    }
}

/// Labels are shifted on the whole sequence and cut afterwards.
#[test]
fn case_45_labels_are_shifted_before_the_cut() {
    let mut batch = pack(&[document(1, 8, 0)], 1).unwrap();
    batch.labels = (100..108).collect();
    let shifted = host("next_labels", &[], &batch);
    let of = |rank| {
        let index = zigzag_indices(batch.layout.cu_seqlens_padded(), 2, rank).unwrap();
        shifted.select(0, &index).unwrap().to_i64().unwrap()
    };
    assert_eq!(of(0), [101, 102, 107, -100], "the label of row 1 is the token of row 2, of rank 1");
    assert_eq!(of(1), [103, 104, 105, 106]);
}

/// A sum without a count is no loss, and a mean over rows of a batch is not even a value.
#[test]
fn case_46_a_loss_without_count_is_refused() {
    let codes = |loss: &str| -> Vec<String> {
        let spec = format!(
            "config C {{ n : int = 1 }}\nmodel M(c: C) {{\n  input ids : i32[T] from input_ids()\n  \
             forward {{ loss lm = {loss} }}\n}}\n"
        );
        let reader = vlmc::spec::FileReader::embedded();
        let (library, mut diags) = Library::load("m.vlm", spec.into_bytes(), &reader);
        diags.append(vlmc_frontend::elab::check(&library));
        diags.iter().map(|d| d.code.to_string()).collect()
    };
    assert_eq!(codes("Loss(sum(f32(ids), 0), 1.0)"), [""; 0]);
    assert_eq!(codes("sum(f32(ids), 0)"), ["V0218"]);
    assert_eq!(codes("Loss(f32(ids), 1.0)"), ["V0218"]);
    assert_eq!(codes("mean(f32(ids), 0)"), ["V0205"]);
}

/// Three pictures in one microbatch, and two and one in two.
#[test]
fn case_48_pictures_over_microbatches() {
    let model = Model::small(false, &[]).unwrap();
    let all = [image_document(1, 9, 0), image_document(2, 8, 200), image_document(3, 10, 400)];
    let one = model.gradients::<f64>(&[pack(&all, 1).unwrap()], 0, false).unwrap();
    let parts = [pack(&all[..2], 1).unwrap(), pack(&all[2..], 1).unwrap()];
    let two = model.gradients::<f64>(&parts, 0, false).unwrap();
    assert!(two.gradients["model.visual.pos_embed.weight"].iter().any(|v| *v != 0.0));
    equal("microbatches", &two, &one, 1e-10);
}

/// An image across the border of two ranks: rows are chosen after the features are put in.
#[test]
fn case_49_features_go_in_before_the_cut() {
    let batch = pack(&[image_document(2, 8, 200)], 1).unwrap();
    let index = host("feature_index", &PLACEHOLDERS, &batch);
    let of = |rank| {
        let rows = zigzag_indices(batch.layout.cu_seqlens_padded(), 2, rank).unwrap();
        index.select(0, &rows).unwrap().to_i64().unwrap()
    };
    // Rows 2 to 5 are the image; rank 0 has rows 0 1 6 7, rank 1 has 2 3 4 5.
    assert_eq!(of(0), [-1, -1, -1, -1]);
    assert_eq!(of(1), [0, 1, 2, 3]);
    let batch = pack(&[image_document(2, 16, 200)], 1).unwrap();
    let index = host("feature_index", &PLACEHOLDERS, &batch);
    let of = |rank| {
        let rows = zigzag_indices(batch.layout.cu_seqlens_padded(), 2, rank).unwrap();
        index.select(0, &rows).unwrap().to_i64().unwrap()
    };
    assert_eq!(of(0), [-1, -1, 0, 1, -1, -1, -1, -1]);
    assert_eq!(of(1), [2, 3, -1, -1, -1, -1, -1, -1]);
}

/// Losses of the router do not depend on padding or capacity.
#[test]
fn case_51_router_losses_ignore_padding() {
    let documents = [document(1, 5, 0), image_document(2, 11, 200), document(3, 8, 400)];
    for aux in ["stacked", "per_layer"] {
        let aux = format!("text.aux_loss={aux}");
        let settings = [aux.as_str(), "text.aux_weight=0.5", "text.z_loss_weight=0.1"];
        let model = Model::small(true, &settings).unwrap();
        let plain = model.gradients::<f64>(&[pack(&documents, 1).unwrap()], 0, false).unwrap();
        for (align, room) in [(4, 0), (1, 9), (4, 8)] {
            let batch = pack(&documents, align).unwrap();
            let ran = model.gradients::<f64>(&[batch], room, false).unwrap();
            equal(&format!("{aux} {align} {room}"), &ran, &plain, 1e-10);
        }
    }
}

#[test]
fn case_52_no_state_leaks_between_documents() {
    isolation::layer("gdn", false);
}

/// The layout is what the boundaries say: boundaries that repeat, as in an array of fixed size, and
/// one document are the same; none at all are refused.
#[test]
fn case_55_boundaries_without_documents() {
    let model = Model::small(false, &[]).unwrap();
    let batch = pack(&[document(1, 9, 0)], 1).unwrap();
    let mut filled = batch.clone();
    filled.layout = SequenceLayout::new(vec![0, 9, 9, 9], vec![0, 9, 9, 9], 9).unwrap();
    let of = |b: Batch| model.gradients::<f64>(&[b], 0, false).unwrap();
    assert_eq!(of(filled), of(batch.clone()));
    let folder = Folder::new("case-55").unwrap();
    let path = folder.at("b.safetensors");
    write_batches(&path, &[batch]).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let kept: Vec<_> = file.names().filter(|n| !n.starts_with("cu_")).collect();
    let kept: Vec<_> = kept.iter().map(|n| (*n, file.read(n).unwrap())).collect();
    let path = folder.at("without.safetensors");
    write_file(&path, kept.iter().map(|(n, t)| (*n, t)), &Default::default()).unwrap();
    let e = Batch::count(&TensorFile::open(&path).unwrap()).unwrap_err();
    assert_eq!(e.to_string(), "the batch lacks `cu_seqlens`");
}

/// The size at which other implementations read out of bounds; here every access is checked.
#[test]
#[ignore = "two documents of 1024 rows and 16 heads, half a minute without optimisation"]
fn case_62_long_documents_stay_in_bounds() {
    let layout = SequenceLayout::from_lengths(&[1024, 1024], 1).unwrap();
    let mut floats: Vec<(&str, Vec<usize>)> =
        ["q", "k_", "v"].iter().map(|n| (*n, vec![2048, 16, 64])).collect();
    floats.extend([("g", vec![2048, 16]), ("beta", vec![2048, 16])]);
    // Keys of unit length, as the model makes them; else the recurrence grows without bound.
    let unit = |name: &str, v: &mut Vec<f32>| {
        if name == "k_" {
            v.chunks_mut(64).for_each(|row| {
                let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                row.iter_mut().for_each(|x| *x /= norm);
            });
        }
    };
    let out = evaluate_op("recur", &floats, Precision::F32, &layout, &unit);
    assert_eq!(out.outputs.len(), 6);
    for (name, t) in &out.outputs {
        assert!(t.to_f64().iter().all(|v| v.is_finite()), "{name}");
        assert!(t.to_f64().iter().any(|v| *v != 0.0), "{name}");
    }
}

/// The recurrence, step by step, in f64, with the gate written out.
fn recurrence(input: &dyn Fn(&str) -> Vec<f64>, rows: usize, heads: usize, d: usize) -> Vec<f64> {
    let (q, k, v) = (input("q"), input("k_"), input("v"));
    let (a, bias, log, beta) = (input("a"), input("dt_bias"), input("A_log"), input("beta"));
    let mut out = vec![0.0; rows * heads * d];
    for h in 0..heads {
        let mut state = vec![0.0; d * d];
        for t in 0..rows {
            let x: f64 = a[t * heads + h] + bias[h];
            let softplus = if x > 20.0 { x } else { x.exp().ln_1p() };
            let decay = (-log[h].exp() * softplus).exp();
            let at = (t * heads + h) * d;
            state.iter_mut().for_each(|s| *s *= decay);
            for j in 0..d {
                let read: f64 = (0..d).map(|i| state[i * d + j] * k[at + i]).sum();
                let u = beta[t * heads + h] * (v[at + j] - read);
                (0..d).for_each(|i| state[i * d + j] += k[at + i] * u);
                out[at + j] = (0..d).map(|i| state[i * d + j] * q[at + i]).sum();
            }
        }
    }
    out
}

#[test]
fn case_63_extreme_gates_stay_finite() {
    const ROWS: usize = 128;
    let layout = SequenceLayout::from_lengths(&[ROWS], 1).unwrap();
    let mut floats: Vec<(&str, Vec<usize>)> =
        ["q", "k_", "v"].iter().map(|n| (*n, vec![ROWS, 2, 4])).collect();
    floats.extend([("a", vec![ROWS, 2]), ("dt_bias", vec![2]), ("A_log", vec![2])]);
    floats.push(("beta", vec![ROWS, 2]));
    for alpha in [-100.0, 0.0, 30.0, 100.0] {
        let edit = |name: &str, v: &mut Vec<f32>| match name {
            "a" => v.fill(alpha),
            "dt_bias" => v.fill(0.0),
            "A_log" => v.copy_from_slice(&[-5.0, 3.0]),
            _ => {}
        };
        let of = |precision| evaluate_op("gated", &floats, precision, &layout, &edit).outputs;
        let (narrow, wide) = (of(Precision::F32), of(Precision::F64));
        let input = |name: &str| {
            let shape = &floats.iter().find(|(n, _)| *n == name).unwrap().1;
            let mut v = values(name, shape.iter().product());
            edit(name, &mut v);
            v.into_iter().map(f64::from).collect()
        };
        let want = recurrence(&input, ROWS, 2, 4);
        let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
        let error = |a: &[f64], b: &[f64]| norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
        let have = wide["0"].to_f64();
        assert!(error(&have, &want) < 1e-12 * norm(&mut want.iter().copied()), "{alpha}");
        for (name, t) in &narrow {
            let (a, b) = (t.to_f64(), wide[name].to_f64());
            assert!(a.iter().chain(&b).all(|v| v.is_finite()), "{alpha} {name}");
            let scale = norm(&mut b.iter().copied());
            assert!(error(&a, &b) <= 1e-5 * scale + 1e-30, "{alpha} {name}: {}", error(&a, &b));
        }
    }
}

/// What is kept and what is made again changes no bit of any gradient.
#[test]
fn case_64_replay_is_bit_equal() {
    let (plain, again) = kept_and_made_again("");
    assert_eq!(plain, again);
}

/// Gradients of the small model by the rule, and with everything made again that a template whose
/// name begins so keeps.
fn kept_and_made_again(prefix: &str) -> (Tensors, Tensors) {
    let model = Model::small(true, &[]).unwrap();
    let program = model.losses(DType::F32).unwrap();
    let batch = pack(&[document(1, 5, 0), image_document(2, 11, 200)], 4).unwrap();
    let of = |plan: &Plan<'_>| {
        let joint = plan.build().unwrap();
        let mut weights = |n: &str, p: &_| program_parameter(n, p);
        let inputs = Inputs::Batch(&batch);
        run(&joint, Precision::F32, &inputs, &mut weights, &|_| false).unwrap().gradients
    };
    let options = Options { seeds: Seeds::Counts, inputs: vec![] };
    let mut plan = Plan::new(&program, &options).unwrap();
    let plain = of(&plan);
    let mut rounds = 0;
    loop {
        let lists = plan.saved();
        let mut open =
            lists.iter().filter(|l| l.template.starts_with(prefix) && !l.values.is_empty());
        let Some(list) = open.next() else { break };
        let set = plan.saved_set_mut(&list.template).unwrap();
        list.values.iter().for_each(|s| set.rebuild(s.value));
        rounds += 1;
    }
    assert!(rounds > 0, "nothing was kept");
    (plain, of(&plan))
}

/// Two microbatches with 1 and 3 labels for both heads: the gradient is the sum over 4.
#[test]
fn case_68_the_count_is_that_of_all_microbatches() {
    let model = Model::small(true, &[]).unwrap();
    let with = |seed, labels: &[usize]| {
        let mut d = document(seed, 8, 0);
        d.sample.labels =
            (0..8).map(|i| if labels.contains(&i) { d.sample.ids[i] } else { -100 }).collect();
        pack(&[d], 1).unwrap()
    };
    let (one, three) = (with(1, &[4]), with(2, &[2, 5, 7]));
    let of = |b: &[Batch]| model.gradients::<f64>(b, 0, false).unwrap();
    let (a, b) = (of(std::slice::from_ref(&one)), of(std::slice::from_ref(&three)));
    let both = of(&[one, three]);
    assert_eq!((both.losses["lm"].1, both.losses["mtp"].1), (4.0, 4.0));
    let mut want = Ran { loss: (a.loss + 3.0 * b.loss) / 4.0, ..Ran::default() };
    for (name, g) in &a.gradients {
        let sum = g.iter().zip(&b.gradients[name]).map(|(a, b)| (a + 3.0 * b) / 4.0);
        want.gradients.insert(name.clone(), sum.collect());
    }
    equal("sum", &both, &want, 1e-12);
}

/// The second head's gradient reaches the trunk, and is the same when the head is made again.
#[test]
fn case_73_the_second_head_reaches_the_trunk() {
    let batch = || pack(&[document(1, 9, 0)], 1).unwrap();
    let of = |settings: &[&str]| {
        Model::small(true, settings).unwrap().gradients::<f64>(&[batch()], 0, false).unwrap()
    };
    let (with, without) = (of(&["mtp_weight=0.5"]), of(&["mtp_weight=0.0"]));
    for name in ["layers.0.linear_attn.out_proj.weight", "layers.3.self_attn.o_proj.weight"] {
        let name = format!("model.language_model.{name}");
        assert_ne!(with.gradients[&name], without.gradients[&name]);
    }
    let (plain, again) = kept_and_made_again("Mtp");
    assert_eq!(plain, again);
}

/// No layers for the second head, and a configuration that says nothing of them.
#[test]
fn case_74_zero_layers_are_no_layers() {
    let text = |settings: &[&str]| {
        let mut model = Model::new("qwen3_5_vl", "9b", settings).unwrap();
        model.variant = None;
        print::program(&model.program(None, &[], &[]).unwrap())
    };
    let unset = text(&["text.layers=4"]);
    assert_eq!(text(&["text.layers=4", "text.mtp_layers=0"]), unset);
    assert_ne!(text(&["text.layers=4", "text.mtp_layers=1"]), unset);
}

/// Every tensor of a checkpoint is used once, and experts load packed and one by one, those of the
/// second head too.
#[test]
fn case_75_every_checkpoint_tensor_is_used_once() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/models");
    for name in ["moe_image_mtp", "dense_text_mtp", "dense_tied_multi_padded"] {
        let case = Case::open(&std::path::Path::new(folder).join(name)).unwrap();
        let mut model = Model::new("qwen3_5_vl", "9b", &["images=true"]).unwrap();
        model.variant = None;
        let (settings, _) = model_case(&model.library, &case).unwrap();
        model.settings = settings;
        let model = model.with(&["images=true"]);
        let program = model.program(None, &[], &[]).unwrap();
        let names: Vec<String> = program.parameters().into_iter().map(|(n, _)| n).collect();
        let once: BTreeSet<String> = names.iter().cloned().collect();
        assert_eq!(names.len(), once.len(), "{name}");
        assert_eq!(once, case.names("param.").into_iter().collect(), "{name}");
    }

    let model = Model::small(true, &[]).unwrap();
    let batch = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let parameters = model.compile(&[batch], DType::F32, 0).unwrap().artifact.manifest.parameters;
    let value = |p: &Parameter| parameter_value(p);
    let packed: Vec<(String, HostTensor)> =
        parameters.iter().map(|p| (p.name.clone(), value(p))).collect();
    let mut pieces: Vec<(String, HostTensor)> = vec![];
    for p in &parameters {
        let whole = value(p);
        for expert in 0..p.shape[0].min(if p.each.is_empty() { 0 } else { usize::MAX }) {
            let mut start = 0;
            for (name, size) in &p.each {
                let rows: Vec<usize> = (start..start + size).collect();
                start += size;
                let piece = whole.select(0, &[expert]).unwrap().select(1, &rows).unwrap();
                let piece = HostTensor::new(piece.shape[1..].to_vec(), piece.data).unwrap();
                pieces.push((name.replace("{e}", &expert.to_string()), piece));
            }
        }
        if p.each.is_empty() {
            pieces.push((p.name.clone(), whole));
        }
    }
    let mtp = |n: &&(String, HostTensor)| n.0.starts_with("mtp.layers.0.mlp.experts.");
    assert_eq!(packed.iter().filter(mtp).count(), 2);
    assert_eq!(pieces.iter().filter(mtp).count(), 3 * 8);
    let folder = Folder::new("case-75").unwrap();
    let load = |name: &str, tensors: &[(String, HostTensor)]| {
        let path = folder.at(name);
        let list = tensors.iter().map(|(n, t)| (n.as_str(), t));
        write_file(&path, list, &Default::default()).unwrap();
        let mut all = vec![];
        weights::load(&Weights::Path(path), &parameters, &mut |p, t| {
            all.push((p.name.clone(), t.to_f64()));
            Ok(())
        })
        .map(|()| all)
    };
    let whole = load("packed.safetensors", &packed).unwrap();
    assert_eq!(whole.len(), parameters.len());
    assert!(load("pieces.safetensors", &pieces).unwrap() == whole);
    let missing = load("missing.safetensors", &packed[1..]).unwrap_err().to_string();
    assert!(missing.contains("is missing"), "{missing}");
    let mut more = packed.clone();
    more.push(("model.extra".to_string(), packed[0].1.clone()));
    let more = load("more.safetensors", &more).unwrap_err().to_string();
    assert!(more.contains("`model.extra` is not of the model"), "{more}");
}

/// Four image tokens and no patches.
#[test]
fn case_88_image_tokens_without_patches_are_refused() {
    let mut d = image_document(2, 11, 200);
    d.image_grids.clear();
    d.image_pixels = Default::default();
    assert!(pack(std::slice::from_ref(&d), 1).is_err());
    // Nor do they reach the executor when somebody makes the batch by hand.
    let model = Model::small(false, &[]).unwrap();
    let good = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let artifact = model.compile(std::slice::from_ref(&good), DType::F32, 0).unwrap().artifact;
    let parameters = artifact.manifest.parameters.clone();
    let mut executor: Executor<f32> = Executor::new(artifact, false).unwrap();
    for p in &parameters {
        executor.set_parameter(p, &parameter_value(p)).unwrap();
    }
    let mut bad = good;
    bad.image_grids = Some(vec![]);
    bad.image_pixels = Default::default();
    let e = executor.step(&[bad], &[], false).unwrap_err();
    assert!(format!("{e:#}").contains("image"), "{e:#}");
    assert!(executor.buffer(&Buffer::LossSum(0, "lm".to_string())).is_none());
}

/// Tests of passes that are in the table, too.
const ELSEWHERE: [&str; 4] = [
    include_str!("../../../../passes/tests/check_schedule.rs"),
    include_str!("../../../../passes/tests/memory.rs"),
    include_str!("../../../../passes/tests/placement.rs"),
    include_str!("../../../../passes/tests/recompute.rs"),
];

/// The table in the docs names every test here, and no other.
#[test]
fn the_table_is_complete() {
    let table = include_str!("../../../../docs/cases.md");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|l| l.starts_with("| ") && l.as_bytes()[2].is_ascii_digit())
        .map(|l| l.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let numbers: Vec<u32> = rows.iter().map(|r| r[0].parse().unwrap()).collect();
    let wanted = [
        1, 2, 3, 5, 6, 7, 10, 16, 23, 24, 25, 26, 28, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45,
        46, 48, 49, 51, 52, 55, 56, 58, 59, 61, 62, 63, 64, 65, 66, 68, 70, 71, 73, 74, 75, 77, 78,
        80, 81, 82, 84, 85, 88,
    ];
    assert_eq!(numbers, wanted);
    let here: BTreeSet<&str> =
        [include_str!("cases.rs"), include_str!("placement.rs"), include_str!("tied.rs")]
            .into_iter()
            .chain(ELSEWHERE)
            .flat_map(str::lines)
            .filter_map(|l| l.strip_prefix("fn case_")?.split_once('('))
            .map(|(name, _)| name)
            .collect();
    let mut named = BTreeSet::new();
    for row in &rows {
        for name in row[1].split('`').filter_map(|t| t.strip_prefix("case_")) {
            assert_eq!(name.split('_').next(), Some(row[0]), "{name} stands beside {}", row[0]);
            named.insert(name);
        }
        assert!(
            row[1].contains('`') || row[2].contains("issue"),
            "case {}: no test, no issue",
            row[0]
        );
    }
    assert_eq!(named, here);
}
