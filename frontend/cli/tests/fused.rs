//! Programs whose clusters run by generated host kernels.
#![cfg(feature = "codegen")]
#![allow(missing_docs, clippy::unwrap_used)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// f32 sums in another order.
const TOLERANCE: f64 = 2e-5;

/// A fresh folder that goes away with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vlmc-fused-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the program in the repository; its standard output and error.
fn vlmc(args: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vlmc"));
    let out = command.current_dir(root()).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

/// Every number of a report's steps that training gives.
fn numbers(report: &str) -> Vec<f64> {
    let json: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    let steps = json["steps"].as_array().unwrap();
    let keys = ["loss", "lm_loss", "aux_loss", "mtp_loss", "grad_norm"];
    steps.iter().flat_map(|s| keys.map(|k| s[k].as_f64().unwrap())).collect()
}

fn close(a: &[f64], b: &[f64]) {
    assert!(a.len() == b.len() && !a.is_empty());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= TOLERANCE * b.abs(), "{a} and {b}");
    }
}

/// `N of M clusters by host kernels`
fn clusters(text: &str) -> (usize, usize) {
    let line = text.lines().find(|l| l.ends_with(" clusters by host kernels")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    (words[0].parse().unwrap(), words[2].parse().unwrap())
}

#[test]
fn training_by_kernels_is_training() {
    let folder = Folder::new("run");
    let artifact = folder.file("artifact");
    let sizes = "--variant tiny --packed --tokens 64 --max-docs 4 --max-patches 64 \
                 --max-images 4 --microbatches 2 --target host -o";
    let mut args = vec!["compile", "models/qwen3_5_vl.vlm"];
    args.extend(sizes.split_whitespace().chain([&*artifact]));
    let (good, _, text) = vlmc(&args);
    assert!(good, "{text}");
    let run = |name: &str, more: &[&str]| {
        let report = folder.file(name);
        let mut args = vec!["run", &artifact, "--batch", "models/demo/batch.safetensors"];
        args.extend(["--weights", "init:1", "--steps", "3", "--report", &report]);
        args.extend(more);
        let (good, _, text) = vlmc(&args);
        assert!(good, "{text}");
        (numbers(&report), text)
    };
    let (kernels, text) = run("kernels.json", &[]);
    let (with, all) = clusters(&text);
    assert!(with <= all && with * 10 >= all * 9, "{text}");
    let (reference, text) = run("reference.json", &["--reference"]);
    assert!(!text.contains("host kernels"), "{text}");
    close(&kernels, &reference);
    // Not the same to the last bit: the kernels did run.
    assert_ne!(kernels, reference);
    // A library that is gone is told, and not passed over.
    std::fs::remove_file(folder.0.join("artifact/kernels/host.so")).unwrap();
    let (good, _, text) =
        vlmc(&["run", &artifact, "--batch", "models/demo/batch.safetensors", "--steps", "1"]);
    assert!(!good && text.contains("host.so") && text.contains("--reference"), "{text}");
}

#[test]
fn limits_of_fusion_change_the_graph_and_no_numbers() {
    let folder = Folder::new("limits");
    let sizes = "--variant tiny --packed --tokens 64 --max-docs 4 --max-patches 64 \
                 --max-images 4 --microbatches 2 --target host";
    let step = |name: &str, limits: &[&str], more: &[&str]| {
        let artifact = folder.file(name);
        let mut args = vec!["compile", "models/qwen3_5_vl.vlm", "-o", &artifact];
        args.extend(sizes.split_whitespace().chain(limits.iter().copied()));
        let (good, _, text) = vlmc(&args);
        assert!(good, "{text}");
        let report = folder.file(&format!("{name}.json"));
        let mut args = vec!["run", &artifact, "--batch", "models/demo/batch.safetensors"];
        args.extend(["--weights", "init:1", "--steps", "1", "--report", &report]);
        args.extend(more);
        let (good, _, text) = vlmc(&args);
        assert!(good, "{text}");
        let manifest = std::fs::read_to_string(folder.0.join(name).join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        let table = std::fs::read_to_string(folder.0.join(name).join("fusion.txt")).unwrap();
        let of = |part: &str| {
            let is = |l: &&str| l.trim_start().starts_with("Layer.gdn.") && l.contains(part);
            table.lines().filter(is).count()
        };
        (numbers(&report), manifest["flags"].clone(), of("gdn.pre_gated_delta_rule"))
    };
    let (want, ..) = step("reference", &[], &["--reference"]);
    let rule = "--no-fuse=absorb.stencil";
    let forms = ["mega", "streamed", "unfused"].map(|f| format!("--pre-gated-delta-rule={f}"));
    let limits = [vec![&*forms[0]], vec![&forms[1]], vec![&forms[2], rule]];
    let names = ["mega", "streamed", "both"];
    let counts = names.iter().zip(limits).map(|(name, limits)| {
        let (have, flags, count) = step(name, &limits, &[]);
        close(&have, &want);
        for limit in limits {
            let (key, value) = limit.trim_start_matches("--").split_once('=').unwrap();
            assert_eq!(flags[format!("layout.{key}")], value, "{limit}");
        }
        count
    });
    let counts: Vec<usize> = counts.collect();
    // Forward, the same again before the way back, and what becomes of the gradients.
    assert_eq!(counts[0], 3, "{counts:?}");
    assert!(counts[1] > counts[0] && counts[2] > counts[0], "{counts:?}");
}

#[test]
fn unknown_rules_and_forms_are_told_with_those_that_there_are() {
    let refused = |args: &[&str], words: &[&str]| {
        let base =
            ["compile", "models/qwen3_5_vl.vlm", "--variant", "tiny", "-o", "no-such-folder"];
        let (good, _, text) = vlmc(&[&base, args].concat());
        assert!(!good && words.iter().all(|w| text.contains(w)), "{text}");
    };
    let rules = ["no fusing rule `absorb.stensil`", "absorb.stencil", "join.pair"];
    refused(&["--no-fuse", "absorb.stensil"], &rules);
    let forms = ["no form `giga`", "unfused", "streamed", "mega"];
    refused(&["--pre-gated-delta-rule", "giga"], &forms);
    // Both at once.
    refused(&["--no-fuse", "x", "--pre-gated-delta-rule", "y"], &["`x`", "`y`", "2 errors"]);
}

#[test]
fn evaluating_by_kernels_is_evaluating() {
    let eval = |more: &[&str]| {
        let mut args = vec!["eval", "models/qwen3_5_vl.vlm", "--variant", "tiny"];
        args.extend(["--batch", "models/demo/batch.safetensors", "--weights", "init:1"]);
        args.extend(more);
        vlmc(&args)
    };
    let losses = |text: &str| -> Vec<f64> {
        let lines = text.lines().filter(|l| l.starts_with("  "));
        lines.map(|l| l.split_whitespace().nth(1).unwrap().parse().unwrap()).collect()
    };
    let (good, plain, text) = eval(&[]);
    assert!(good, "{text}");
    let (good, fused, text) = eval(&["--fused"]);
    assert!(good && clusters(&text).0 > 30, "{text}");
    close(&losses(&fused), &losses(&plain));
    let (good, _, text) = eval(&["--fused", "--dtype", "f64"]);
    assert!(!good && text.contains("kernels compute in f32, not in f64"), "{text}");
}
