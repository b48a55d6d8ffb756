//! NaN in padding rows and in rows that no lookup finds changes no bit.

use vlmc_artifact::Parameter;
use vlmc_data::tensor::HostTensor;
use vlmc_ir::eval::Real;
use vlmc_parity::case::Case;
use vlmc_parity::whole::model_case;
use vlmc_training_tests::{Model, Ran, document, image_document, pack, parameter_value};

fn bits(r: &Ran) -> Vec<(&str, Vec<u64>)> {
    let losses = r.losses.iter().map(|(n, l)| (n.as_str(), vec![l.0.to_bits(), l.1.to_bits()]));
    let gradients = r.gradients.iter();
    let gradients = gradients.map(|(n, g)| (n.as_str(), g.iter().map(|v| v.to_bits()).collect()));
    losses.chain(gradients).collect()
}

fn clean_equals_poisoned<R: Real>(
    name: &str,
    model: &Model,
    batches: &[vlmc_data::batch::Batch],
    room: usize,
    value: &dyn Fn(&Parameter) -> HostTensor,
) {
    let clean = model.gradients_with::<R>(batches, room, false, value).unwrap();
    let poisoned = model.gradients_with::<R>(batches, room, true, value).unwrap();
    assert!(clean.loss.is_finite() && !clean.gradients.is_empty());
    for ((name_a, a), (name_b, b)) in bits(&clean).into_iter().zip(bits(&poisoned)) {
        assert_eq!(name_a, name_b);
        assert!(a == b, "{name}: {name_a} changes");
    }
}

#[test]
fn golden_models() {
    for name in [
        "dense_image",
        "dense_text_mtp",
        "dense_tied_multi_padded",
        "moe_image_aux",
        "moe_image_mtp",
    ] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/models");
        let case = Case::open(&std::path::Path::new(folder).join(name)).unwrap();
        let mut model = Model::new("qwen3_5_vl", "9b", &[]).unwrap();
        model.variant = None;
        let (settings, batch) = model_case(&model.library, &case).unwrap();
        model.settings = settings;
        let value = |p: &Parameter| case.tensor(&format!("param.{}", p.name)).unwrap();
        clean_equals_poisoned::<f32>(name, &model, &[batch], 12, &value);
    }
}

#[test]
fn small_variant() {
    for experts in [false, true] {
        let settings: &[&str] =
            if experts { &["text.aux_loss=stacked", "text.z_loss_weight=0.01"] } else { &[] };
        let model = Model::small(experts, settings).unwrap();
        let documents = [document(1, 5, 0), image_document(2, 11, 200), document(3, 8, 400)];
        let batches = [pack(&documents, 4).unwrap(), pack(&documents[..1], 1).unwrap()];
        clean_equals_poisoned::<f64>("f64", &model, &batches, 8, &parameter_value);
        clean_equals_poisoned::<f32>("f32", &model, &batches, 8, &parameter_value);
    }
}

/// Poison is there: a model that reads an input's padding rows does not stand it.
#[test]
fn a_model_that_reads_padding_is_found() {
    let spec = "symbol features\nmodel M() {\n  input ids : i32[T] from input_ids()\n  \
                input pixels : [features, 96] from pixel_rows(width = 96)\n  \
                param w : [96]  init ones\n  forward {\n    \
                loss lm = Loss(sum(sum(pixels * w, 1), 0), 1.0)\n    \
                loss other = Loss(sum(f32(ids), 0), 1.0)\n  }\n}\n\
                config Nothing { a : int = 1 }\n";
    let reader = vlmc::spec::FileReader::embedded();
    let (library, diags) =
        vlmc_frontend::elab::Library::load("m.vlm", spec.as_bytes().to_vec(), &reader);
    assert!(!diags.has_errors(), "{diags:?}");
    let model = Model { library, variant: None, settings: vec![] };
    let batch = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let clean = model.gradients::<f32>(std::slice::from_ref(&batch), 4, false).unwrap();
    let poisoned = model.gradients::<f32>(&[batch], 4, true).unwrap();
    assert!(clean.gradients["w"].iter().all(|v| v.is_finite()));
    assert!(poisoned.gradients["w"].iter().all(|v| v.is_nan()));
}
