//! Public reports about tied tables, as far as one rank shows them. More of `docs/cases.md`, as in
//! `cases.rs`.

use std::collections::BTreeSet;
use vlmc_artifact::{Buffer, Parameter, Step};
use vlmc_data::safetensors::TensorFile;
use vlmc_data::tensor::HostTensor;
use vlmc_ir::ty::DType;
use vlmc_training_tests::{
    Folder, Model, document, image_document, largest_difference, pack, parameter_value,
};

const TABLE: &str = "model.language_model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// The value of a parameter, with one table for both names.
fn tied_value(p: &Parameter) -> HostTensor {
    let mut of = p.clone();
    if of.name == HEAD {
        of.name = TABLE.to_string();
    }
    parameter_value(&of)
}

/// A table for the ids, the next ids and both heads is one parameter: it has one gradient, the sum
/// of what it would have as two, and is one in the norm that clips.
#[test]
fn case_70_a_tied_table_is_one_parameter() {
    let batch = pack(&[document(1, 9, 0), image_document(2, 11, 200)], 1).unwrap();
    let of = |tied: &str| {
        let model = Model::small(false, &[tied]).unwrap();
        let artifact = model.compile(std::slice::from_ref(&batch), DType::F32, 0).unwrap().artifact;
        let ran = model.gradients_with::<f64>(std::slice::from_ref(&batch), 0, false, &tied_value);
        (artifact, ran.unwrap())
    };
    let ((artifact, tied), (other, untied)) = (of("tied=true"), of("tied=false"));
    assert_eq!(artifact.manifest.parameters.len() + 1, other.manifest.parameters.len());
    assert!((tied.loss - untied.loss).abs() < 1e-12 * untied.loss);
    let mut want = untied.gradients.clone();
    let head = want.shift_remove(HEAD).unwrap();
    let table = want.get_mut(TABLE).unwrap();
    for part in [&head, &*table] {
        assert!(part.iter().any(|v| *v != 0.0));
    }
    table.iter_mut().zip(&head).for_each(|(a, b)| *a += b);
    let (error, at) = largest_difference(&tied.gradients, &want).unwrap();
    assert!(error < 1e-12, "{at} differs by {error:.1e}");

    // One step updates it, from one gradient and one pair of moments.
    let steps = &artifact.schedule.ranks[0];
    let optimizers: Vec<_> = steps
        .iter()
        .filter_map(|s| match s {
            Step::Run { program, inputs, outputs, .. } if program == "optimizer.0" => {
                Some((inputs, outputs))
            }
            _ => None,
        })
        .collect();
    assert_eq!(optimizers.len(), 1);
    let (read, made) = optimizers[0];
    let name = || TABLE.to_string();
    let state = [Buffer::Master(name()), Buffer::Moment1(name()), Buffer::Moment2(name())];
    for b in &state {
        assert_eq!(read.iter().filter(|(_, have)| have == b).count(), 1, "{b:?}");
        assert_eq!(made.iter().filter(|have| *have == b).count(), 1, "{b:?}");
    }
    assert_eq!(read.iter().filter(|(_, b)| *b == Buffer::Grad(name())).count(), 1);
}

/// Three steps of a tied model: the checkpoint has the table once, with one pair of moments, and the
/// norm of the first step counts its whole gradient once.
#[test]
fn case_71_a_tied_table_is_saved_once() {
    let batch = pack(&[document(1, 9, 0), image_document(2, 11, 200)], 1).unwrap();
    let model = Model::small(false, &["tied=true"]).unwrap();
    let artifact = model.compile(std::slice::from_ref(&batch), DType::F32, 0).unwrap().artifact;
    let names: BTreeSet<String> =
        artifact.manifest.parameters.iter().map(|p| p.name.clone()).collect();
    assert!(names.contains(TABLE) && !names.contains(HEAD));
    let folder = Folder::new("case-71").unwrap();
    folder.prepare(&artifact, std::slice::from_ref(&batch)).unwrap();
    let line = "--lr 1e-3 --save @save --save-every 1 --keep 0";
    let first = folder.train(&format!("{line} --steps 1 --weights init:1")).unwrap();
    folder.train("--steps 1 --weights init:1 --grads @g.safetensors").unwrap();
    let gradients = TensorFile::open(folder.at("g.safetensors")).unwrap();
    let mut squares = 0.0;
    for name in &names {
        let g = gradients.read(&format!("grad.param.{name}")).unwrap().to_f64();
        squares += g.iter().map(|v| v * v).sum::<f64>();
    }
    assert_eq!(gradients.names().count(), names.len());
    let norm = first.steps[0].grad_norm;
    assert!((norm - squares.sqrt()).abs() < 1e-5 * norm, "{norm} {}", squares.sqrt());

    folder.train(&format!("{line} --steps 3 --resume @save")).unwrap();
    let open = |step: usize, file: &str| {
        TensorFile::open(folder.at(&format!("save/step-{step:08}/{file}.safetensors"))).unwrap()
    };
    let saved: Vec<String> = open(3, "model").names().map(String::from).collect();
    assert_eq!(saved.len(), names.len());
    assert_eq!(saved.into_iter().collect::<BTreeSet<_>>(), names);
    let moments: Vec<String> = open(3, "optimizer").names().map(String::from).collect();
    assert_eq!(moments.len(), 2 * names.len());
    let of_table: Vec<&String> = moments.iter().filter(|n| n.ends_with(TABLE)).collect();
    assert_eq!(of_table, [&format!("m.{TABLE}"), &format!("v.{TABLE}")]);
    let values = |step| open(step, "model").read(TABLE).unwrap().to_f64();
    assert_ne!(values(1), values(3));
}
