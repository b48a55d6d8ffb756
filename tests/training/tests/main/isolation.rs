//! What happens in one document of a pack changes no bit of another.

use vlmc::eval::{Evaluated, Inputs, Precision, Tensors, run, with_gradients};
use vlmc_data::batch::{Batch, PictureSample};
use vlmc_data::init::{Distribution, Initializer};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_training_tests::{Model, document, image_document, pack, program_parameter};

fn rows(t: &HostTensor, range: std::ops::Range<usize>) -> Vec<u64> {
    let width = t.len() / t.shape[0];
    t.to_f64()[range.start * width..range.end * width].iter().map(|v| v.to_bits()).collect()
}

/// The documents behind the first, which begins at row 0 and has 8 rows with padding.
fn documents(first: PictureSample) -> Batch {
    pack(&[first, image_document(2, 11, 200), document(3, 8, 400)], 4).unwrap()
}

fn whole_model(experts: bool, precision: Precision) {
    let model = Model::small(experts, &[]).unwrap();
    let program = model.program(None, &[], &[]).unwrap();
    let options = Options { seeds: Seeds::Counts, inputs: vec!["pixels".to_string()] };
    let joint = differentiate(&program, &options).unwrap();
    let evaluate = |first: PictureSample| -> (Evaluated, Evaluated) {
        let batch = documents(first);
        let of = |p| {
            let watch = |path: &str| path.ends_with(".out") || path == "last";
            run(p, precision, &Inputs::Batch(&batch), &mut |n, p| program_parameter(n, p), &watch)
        };
        (of(&program).unwrap(), of(&joint).unwrap())
    };
    let (one, one_grads) = evaluate(document(1, 5, 0));
    let (two, two_grads) = evaluate(document(9, 5, 0));
    let layers: Vec<_> = (0..4).map(|i| format!("decoder.{i}.out")).collect();
    let hidden = layers.iter().map(String::as_str).chain(["last"]);
    for path in hidden.map(|p| (p, &one.seen[p], &two.seen[p])).chain([
        ("logits", &one.outputs["logits"], &two.outputs["logits"]),
        ("mtp", &one.outputs["mtp_hidden"], &two.outputs["mtp_hidden"]),
    ]) {
        let (path, a, b) = path;
        assert_ne!(rows(a, 0..5), rows(b, 0..5), "{path}: the change is seen where it is made");
        assert_eq!(rows(a, 8..28), rows(b, 8..28), "{path}");
    }
    let embeddings = "model.language_model.embed_tokens.weight";
    let (a, b) = (&one_grads.gradients[embeddings], &two_grads.gradients[embeddings]);
    assert_ne!(rows(a, 0..100), rows(b, 0..100));
    assert_eq!(rows(a, 200..500), rows(b, 200..500), "rows of ids in the other documents");
    assert!(a.to_f64()[200 * 128..].iter().any(|v| *v != 0.0));
    let (a, b) = (&one_grads.outputs["grad.in.pixels"], &two_grads.outputs["grad.in.pixels"]);
    assert_eq!(rows(a, 0..16), rows(b, 0..16), "pixels");
    assert!(a.to_f64().iter().any(|v| *v != 0.0));
}

#[test]
fn whole_model_dense() {
    whole_model(false, Precision::F64);
    whole_model(false, Precision::F32);
}

#[test]
fn whole_model_experts() {
    whole_model(true, Precision::F64);
    whole_model(true, Precision::F32);
}

#[test]
fn whole_model_bf16() {
    whole_model(true, Precision::Bf16);
}

#[test]
fn layers() {
    for experts in [false, true] {
        ["gdn", "attention"].into_iter().for_each(|kind| layer(kind, experts));
    }
}

/// One layer, with gradients of its input rows from given gradients of its output rows: perturbing
/// input, angles and the output's gradient in document 0 of 5 rows changes nothing in document 1 of
/// 6 rows and one of padding.
pub fn layer(kind: &str, experts: bool) {
    let model = Model::small(experts, &[]).unwrap();
    let args = [("c", "c.text"), ("mixer_kind", kind)];
    let shapes: [(&str, &[usize]); 3] = [("h", &[12, 128]), ("cos", &[12, 4]), ("sin", &[12, 4])];
    let program = model.program(Some("Layer"), &args, &shapes).unwrap();
    let joint = with_gradients(&program, &["h".to_string()]).unwrap();
    let evaluate = |seed: u64| {
        let mut inputs = Tensors::new();
        let mut add = |name: &str, width: usize| {
            let of = |seed| Initializer::new(seed, name, Distribution::Normal(1.0));
            let n = 12 * width as u64;
            let mut values = of(1).values(0..n);
            values[..5 * width].copy_from_slice(&of(seed).values(0..5 * width as u64));
            let t = HostTensor::new(vec![12, width], HostData::F32(values)).unwrap();
            inputs.insert(name.to_string(), t);
        };
        ["h", "dout.0"].into_iter().for_each(|name| add(name, 128));
        ["cos", "sin"].into_iter().for_each(|name| add(name, 4));
        let ints = |shape: &[usize], v: &[i64]| {
            HostTensor::new(shape.to_vec(), HostData::I64(v.to_vec())).unwrap()
        };
        inputs.insert("seq.cu_seqlens".into(), ints(&[3], &[0, 5, 11]));
        inputs.insert("seq.cu_seqlens_padded".into(), ints(&[3], &[0, 5, 12]));
        inputs.insert("seq.positions".into(), ints(&[3, 12], &[0; 36]));
        let mut weights = |n: &str, p: &_| program_parameter(n, p);
        run(&joint, Precision::F64, &Inputs::Named(&inputs), &mut weights, &|_| false).unwrap()
    };
    let (a, b) = (evaluate(2), evaluate(3));
    for name in ["0", "grad.in.h"] {
        let (a, b) = (&a.outputs[name], &b.outputs[name]);
        assert_ne!(rows(a, 0..5), rows(b, 0..5), "{kind} {name}");
        assert_eq!(rows(a, 5..11), rows(b, 5..11), "{kind} {name}");
    }
}

/// Padding rows that go into the decoder as zeros come out of every mixer and layer as zeros, and so
/// do their gradients.
#[test]
fn padding_rows_stay_zero() {
    let model = Model::small(true, &[]).unwrap();
    let program = model.program(None, &[], &[]).unwrap();
    let batch = documents(document(1, 5, 0));
    let padding = |t: &HostTensor| {
        let rows = [rows(t, 5..8), rows(t, 19..20)].concat();
        rows.iter().all(|bits| f64::from_bits(*bits) == 0.0)
    };
    let watch = |path: &str| path.starts_with("decoder.") || path == "embeds";
    let mut weights = |n: &str, p: &_| program_parameter(n, p);
    let out = run(&program, Precision::F32, &Inputs::Batch(&batch), &mut weights, &watch).unwrap();
    for layer in 0..4 {
        for name in ["y", "h", "out"] {
            let path = format!("decoder.{layer}.{name}");
            assert!(padding(&out.seen[&path]), "{path}");
            assert!(out.seen[&path].to_f64()[..5 * 128].iter().all(|v| *v != 0.0), "{path}");
        }
    }
    for kind in ["gdn", "attention"] {
        let args = [("c", "c.text"), ("mixer_kind", kind)];
        let shapes: [(&str, &[usize]); 3] =
            [("h", &[28, 128]), ("cos", &[28, 4]), ("sin", &[28, 4])];
        let program = model.program(Some("Layer"), &args, &shapes).unwrap();
        let joint = with_gradients(&program, &["h".to_string()]).unwrap();
        let valid = batch.layout.row_valid(28);
        let mut inputs = Tensors::new();
        for (name, width) in [("h", 128), ("dout.0", 128), ("cos", 4), ("sin", 4)] {
            let normal = Initializer::new(1, name, Distribution::Normal(1.0));
            let mut values = normal.values(0..28 * width as u64);
            if width == 128 {
                let rows = values.chunks_mut(width).zip(&valid).filter(|(_, ok)| !**ok);
                rows.for_each(|(row, _)| row.fill(0.0));
            }
            let t = HostTensor::new(vec![28, width], HostData::F32(values)).unwrap();
            inputs.insert(name.to_string(), t);
        }
        let boundaries = |v: &[i32]| HostTensor::vector(HostData::I32(v.to_vec()));
        inputs.insert("seq.cu_seqlens".into(), boundaries(batch.layout.cu_seqlens()));
        inputs.insert("seq.cu_seqlens_padded".into(), boundaries(batch.layout.cu_seqlens_padded()));
        let positions = HostTensor::new(vec![3, 28], HostData::I64(vec![0; 84])).unwrap();
        inputs.insert("seq.positions".into(), positions);
        let inputs = Inputs::Named(&inputs);
        let out = run(&joint, Precision::F32, &inputs, &mut weights, &|_| false).unwrap();
        for name in ["0", "grad.in.h"] {
            assert!(padding(&out.outputs[name]), "{kind} {name}");
            assert!(!out.outputs[name].to_f64()[..5 * 128].contains(&0.0), "{kind} {name}");
        }
    }
}
