//! What a run refuses, and that nothing is lost by it.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use vlmc_artifact::Artifact;
use vlmc_data::batch::Batch;
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_training_tests::{Capacity, Folder, Model, document, files, image_document, pack};

fn batch() -> Batch {
    pack(&[document(1, 6, 0)], 1).unwrap()
}

fn artifact() -> Artifact {
    let settings = ["text.layers=2", "text.pattern=[gdn,attention]", "text.vocab=1024"];
    let model = Model::small(false, &settings).unwrap();
    model.compile(&[batch()], vlmc_ir::ty::DType::F32, 0).unwrap().artifact
}

fn prepared(name: &str) -> Folder {
    let folder = Folder::new(name).unwrap();
    folder.prepare(&artifact(), &[batch()]).unwrap();
    folder
}

fn refused(folder: &Folder, more: &str) -> String {
    format!("{:#}", folder.train(more).unwrap_err())
}

fn saved(folder: &Folder) -> Vec<PathBuf> {
    let all = vlmc_runtime::checkpoint::checkpoints(&folder.at("save")).unwrap();
    all.into_iter().map(|(_, path)| path).collect()
}

#[test]
fn saving_over_another_training() {
    let folder = prepared("refuse-save");
    folder.train("--steps 2 --save @save").unwrap();
    let before = files(&folder.at("save")).unwrap();
    let text = refused(&folder, "--steps 1 --save @save");
    assert!(text.contains("holds a checkpoint of step 2"), "{text}");
    assert!(before == files(&folder.at("save")).unwrap());
    // What is cut short goes with the next save; the one just written stays, though not the newest.
    std::fs::create_dir(folder.at("save").join("step-00000007")).unwrap();
    std::fs::create_dir(folder.at("save").join(".writing-step-00000008")).unwrap();
    folder.train("--steps 4 --resume @save --save @save --save-every 1 --keep 0").unwrap();
    let second = folder.at("save").join("step-00000002").display().to_string();
    folder.train(&format!("--steps 3 --resume {second} --save @save --keep 1")).unwrap();
    assert_eq!(saved(&folder), [folder.at("save").join("step-00000003")]);
    assert_eq!(std::fs::read_dir(folder.at("save")).unwrap().count(), 1);
    // Nothing is left to do, and flags that would be ignored are refused.
    assert!(folder.train("--steps 3 --resume @save").unwrap().steps.is_empty());
    let text = refused(&folder, "--steps 4 --resume @save --weights init:2");
    assert!(text.contains("cannot be used with"), "{text}");
    let report = folder.train("--steps 4 --resume @save --lr 1e-2").unwrap();
    assert_eq!(report.steps[0].lr, 1e-2);
    // A damaged one names its file and what else there is.
    folder.train("--steps 5 --resume @save --save @save").unwrap();
    let model = folder.at("save/step-00000005/model.safetensors");
    std::fs::write(&model, [0; 4]).unwrap();
    let text = refused(&folder, "--steps 6 --resume @save");
    assert!(
        text.contains(&model.display().to_string()) && text.contains("step-00000003"),
        "{text}"
    );
}

#[test]
fn numbers_that_are_not_finite() {
    let folder = prepared("refuse-nan");
    folder.train("--steps 1 --save @save").unwrap();
    let path = folder.at("save/step-00000001/model.safetensors");
    let file = TensorFile::open(&path).unwrap();
    let names: Vec<String> = file.names().map(String::from).collect();
    let read = |n: &String| (n.clone(), file.read(n).unwrap());
    let mut all: Vec<(String, HostTensor)> = names.iter().map(read).collect();
    for (_, t) in &mut all {
        *t = HostTensor::new(t.shape.clone(), HostData::F32(vec![f32::NAN; t.len()])).unwrap();
    }
    let bad = folder.at("bad.safetensors");
    write_file(&bad, all.iter().map(|(n, t)| (n.as_str(), t)), &Default::default()).unwrap();
    let text =
        refused(&folder, "--steps 3 --weights @bad.safetensors --save @other --save-every 1");
    assert!(text.contains("step 1 of 3") && text.contains("nothing is updated"), "{text}");
    assert_eq!(std::fs::read_dir(folder.at("other")).unwrap().count(), 0);
    // A rate that is far too high shows in the next step, which is not saved.
    let text = refused(&folder, "--steps 9 --lr 1e30 --clip 0 --save @high --save-every 1");
    assert!(text.contains("nothing is updated"), "{text}");
}

#[test]
fn flags_and_places() {
    let folder = prepared("refuse-flags");
    for (more, part) in [
        ("--lr nan", "finite"),
        ("--lr -1", "below 0"),
        ("--beta1 1", "below 1"),
        ("--eps 0", "above 0"),
        ("--clip inf", "finite"),
        ("--steps 0", "0 is not in"),
        ("--lr 1e-4 --min-lr 1e-3", "min-lr is 0.001"),
        ("--warmup 5 --steps 3", "warmup is 5"),
        ("--steps 3 --total-steps 2", "total-steps is 2"),
        ("--grads @g --save @s", "cannot be used with"),
        ("--report /dev/null", "no regular file"),
        ("--grads @artifact", "no regular file"),
        ("--save @batch.safetensors", "cannot write into"),
        ("--batch-that-is-none", "unexpected"),
    ] {
        let text = refused(&folder, more);
        assert!(text.contains(part), "{more}: {text}");
    }
    let report = folder.train("--steps 1 --grads @new/g.safetensors --report @new/r.json").unwrap();
    assert!(report.steps[0].grad_norm > 0.0);
    assert_eq!(std::fs::read_dir(folder.at("new")).unwrap().count(), 2);
}

#[test]
fn batches_that_do_not_fit() {
    let folder = Folder::new("refuse-batch").unwrap();
    let mut bad = batch();
    bad.labels[2] = 5000;
    folder.prepare(&artifact(), &[bad]).unwrap();
    let text = refused(&folder, "--steps 1");
    let part = "microbatch 0: `labels` row 2 is 5000, the vocabulary has 1024 rows";
    assert!(text.contains(part) && text.contains("step 1 of 1"), "{text}");
    let two = pack(&[document(1, 3, 0), document(2, 3, 0)], 1).unwrap();
    folder.prepare(&artifact(), &[two]).unwrap();
    let text = refused(&folder, "--steps 1");
    assert!(
        text.contains("2 documents, the artifact holds 1: compile with --max-docs 2"),
        "{text}"
    );
    let text = refused(&folder, "--steps 1 --weights @none");
    assert_eq!(text.matches("No such file").count(), 1, "{text}");
    let mut huge = artifact();
    huge.manifest.parameters[0].shape = vec![usize::MAX, 3];
    folder.prepare(&huge, &[batch()]).unwrap();
    let text = refused(&folder, "--steps 1");
    assert!(text.contains("elements"), "{text}");
}

/// Pictures larger or more than the artifact has room for: the flag that helps is named.
#[test]
fn pictures_that_do_not_fit() {
    let folder = Folder::new("refuse-pictures").unwrap();
    let two = pack(&[image_document(1, 8, 0), image_document(2, 9, 100)], 1).unwrap();
    let model = Model::small(false, &["text.layers=1", "text.pattern=[gdn]"]).unwrap();
    for (patches, frames, part) in [
        (16, 2, "32 patches, the artifact holds 16: compile with --max-patches 32"),
        (32, 1, "2 frames of pictures, the artifact holds 1: compile with --max-images 2"),
    ] {
        let capacity = Capacity { tokens: 17, docs: 2, patches, frames };
        let artifact = model.compile_for(1, vlmc_ir::ty::DType::F32, capacity).unwrap().artifact;
        folder.prepare(&artifact, std::slice::from_ref(&two)).unwrap();
        let text = refused(&folder, "--steps 1");
        assert!(text.contains(part), "{text}");
    }
}
