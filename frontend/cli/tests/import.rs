//! `vlmc import` on the configuration and the weights of a reference model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::tensor::{HostData, HostTensor};

type Weights = BTreeMap<String, HostTensor>;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("vlmc-import-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models").join(file)
}

fn weights() -> Weights {
    let file = TensorFile::open(golden("moe_image_mtp.safetensors")).expect("a case");
    let names: Vec<String> = file.names().map(String::from).collect();
    let own = |n: &String| Some((n.strip_prefix("param.")?.to_string(), file.read(n).ok()?));
    names.iter().filter_map(own).collect()
}

/// The configuration of the case, with changes.
fn config(change: impl FnOnce(&mut serde_json::Value)) -> PathBuf {
    let text = std::fs::read_to_string(golden("moe_image_mtp.json")).expect("a case");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut config = json["config"].take();
    config["text_config"]["mtp_num_hidden_layers"] = 1.into();
    change(&mut config);
    let path = folder("config").join(format!("{:?}.json", std::thread::current().id()));
    std::fs::write(&path, config.to_string()).expect("written");
    path
}

fn import(config: &Path, weights: Option<&Weights>, name: &str) -> Output {
    let folder = folder(name);
    let out = folder.join("made.vlm");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vlmc"));
    command.arg("import").arg(config).arg("-o").arg(&out);
    if let Some(weights) = weights {
        let file = folder.join("model.safetensors");
        let list = weights.iter().map(|(n, t)| (n.as_str(), t));
        write_file(&file, list, &BTreeMap::new()).expect("written");
        command.arg("--weights").arg(&file);
    }
    command.output().expect("the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_whole_checkpoint_fits() {
    let out = import(&config(|_| {}), Some(&weights()), "whole");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("all found with their shapes"), "{}", text(&out.stdout));
    // What was made is a spec in style, and checks.
    let made = folder("whole").join("made.vlm");
    for args in [&["check", "--variant", "imported"][..], &["fmt", "--check"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vlmc"));
        let out = command.args(args).arg(&made).output().expect("the program");
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    }
}

/// Rows of axis 0 as tensors of their own; axis 1 cut into `pieces`.
fn apart(all: &mut Weights, name: &str, pieces: &[&str]) {
    let t = all.remove(name).expect("the tensor");
    let (experts, rows, width) = (t.shape[0], t.shape[1], t.shape[2]);
    let values = t.to_f32();
    let part = rows / pieces.len();
    let prefix = name.rsplit_once(".experts.").expect("experts").0;
    for e in 0..experts {
        for (i, piece) in pieces.iter().enumerate() {
            let start = (e * rows + i * part) * width;
            let own = values[start..start + part * width].to_vec();
            let tensor = HostTensor::new(vec![part, width], HostData::F32(own)).expect("fits");
            all.insert(format!("{prefix}.experts.{e}.{piece}.weight"), tensor);
        }
    }
}

#[test]
fn experts_may_be_stored_one_by_one() {
    let mut all = weights();
    let names: Vec<String> = all.keys().filter(|n| n.contains(".experts.")).cloned().collect();
    assert!(names.iter().any(|n| n.starts_with("mtp.")) && names.len() >= 10, "{names:?}");
    for name in &names {
        match name.ends_with("gate_up_proj") {
            true => apart(&mut all, name, &["gate_proj", "up_proj"]),
            false => apart(&mut all, name, &["down_proj"]),
        }
    }
    let out = import(&config(|_| {}), Some(&all), "apart");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    // Values come out the same, whichever form they have.
    let run = |file: &Path| {
        let out = Command::new(env!("CARGO_BIN_EXE_vlmc"))
            .arg("eval")
            .arg(folder("apart").join("made.vlm"))
            .args(["--variant", "imported", "--set", "image_token=150", "--batch"])
            .arg(batch())
            .arg("--weights")
            .arg(file)
            .output()
            .expect("the program");
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    let whole = folder("apart").join("whole.safetensors");
    let list = weights();
    let list = list.iter().map(|(n, t)| (n.as_str(), t));
    write_file(&whole, list, &BTreeMap::new()).expect("written");
    assert_eq!(run(&folder("apart").join("model.safetensors")), run(&whole));
}

/// A pack of text.
fn batch() -> PathBuf {
    use vlmc_data::batch::{Batch, PictureSample, write_batches};
    use vlmc_data::pack::{PackOptions, Sample};
    let ids: Vec<i64> = (0..20).map(|i| i * 7 % 100).collect();
    let sample = Sample { labels: ids.clone(), types: vec![0; 20], ids };
    let sample = PictureSample { sample, ..PictureSample::default() };
    let options = PackOptions { align: 8, tokens: None, documents: None };
    let path = folder("apart").join("batch.safetensors");
    let pack = Batch::pack(&[sample], options).expect("it fits");
    write_batches(&path, &[pack]).expect("written");
    path
}

#[test]
fn every_mismatch_is_named() {
    let mut all = weights();
    let missing = all.keys().find(|n| n.contains("layers.1.")).expect("a layer").clone();
    all.remove(&missing);
    let shape = "model.language_model.norm.weight";
    let values = HostData::F32(vec![0.0; 3]);
    all.insert(shape.into(), HostTensor::new(vec![3], values).expect("fits"));
    let one = HostTensor::new(vec![], HostData::F32(vec![0.0])).expect("fits");
    all.insert("model.stranger".into(), one);
    let out = import(&config(|_| {}), Some(&all), "mismatch");
    let told = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("`{missing}` is missing")), "{told}");
    assert!(told.contains(&format!("`{shape}` has the shape [3], the model has [16]")), "{told}");
    assert!(told.contains("`model.stranger` is not of the model"), "{told}");
    assert!(told.contains("1 missing, 1 not of the model, 1 of another shape"), "{told}");
}

#[test]
fn what_changes_the_maths_is_refused() {
    let path = config(|c| {
        c["text_config"]["hidden_act"] = "gelu".into();
        c["text_config"]["rope_parameters"]["mrope_interleaved"] = false.into();
    });
    let out = import(&path, None, "refused");
    let told = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("`text_config.hidden_act` is gelu"), "{told}");
    assert!(told.contains("`text_config.rope_parameters.mrope_interleaved` is false"), "{told}");
    assert!(!folder("refused").join("made.vlm").exists());
    // A value of the wrong type, and one that breaks a constraint.
    let path = config(|c| c["text_config"]["num_hidden_layers"] = "many".into());
    let told = text(&import(&path, None, "type").stderr);
    assert!(told.contains("error[V0220]") && told.contains("num_hidden_layers"), "{told}");
    let path = config(|c| c["text_config"]["num_key_value_heads"] = 7.into());
    let told = text(&import(&path, None, "constraint").stderr);
    assert!(told.contains("error[V0221]") && told.contains("num_key_value_heads"), "{told}");
    // What nothing reads is listed, and no more.
    let path = config(|c| c["text_config"]["a_new_key"] = 1.into());
    let out = import(&path, None, "listed");
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stderr).contains("text_config.a_new_key"), "{}", text(&out.stderr));
}
