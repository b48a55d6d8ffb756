//! Stopping after a phase and continuing from its graph gives what compiling at once gives.
#![allow(missing_docs, clippy::unwrap_used)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const SPEC: &str = "models/qwen3_5_vl.vlm";
const SIZES: &str = "--variant tiny --packed --tokens 64 --max-docs 4 --max-patches 64 \
                     --max-images 4 --microbatches 2";

/// A fresh folder that goes away with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vlmc-phases-{}-{name}", std::process::id()));
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

/// Runs `vlmc compile` in the repository; its standard error.
fn compile(args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vlmc"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = command.current_dir(root).arg("compile").args(args).output().unwrap();
    (out.status.success(), String::from_utf8(out.stderr).unwrap())
}

fn good(args: &[&str]) {
    let (good, text) = compile(args);
    assert!(good, "{args:?}: {text}");
}

fn from_spec(more: &[&str]) {
    let args: Vec<&str> = [SPEC].into_iter().chain(SIZES.split_whitespace()).collect();
    good(&[&args, more].concat());
}

/// Every file of a folder by its path, but for what passes changed: that is told where they ran.
fn files(folder: &str) -> BTreeMap<String, Vec<u8>> {
    fn add(root: &Path, at: &Path, out: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(root, &path, out);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                out.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let mut out = BTreeMap::new();
    add(Path::new(folder), Path::new(folder), &mut out);
    out.retain(|name, _| !name.starts_with("passes/"));
    out
}

fn same(a: &str, b: &str) {
    let (a, b) = (files(a), files(b));
    assert!(a.contains_key("manifest.json") && a.contains_key("fusion.json"));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in &a {
        assert!(bytes == &b[name], "{name} differs");
    }
}

#[test]
fn continuing_from_a_phase_gives_the_artifact_of_a_straight_compilation() {
    let folder = Folder::new("straight");
    let straight = folder.file("straight");
    from_spec(&["-o", &straight]);
    for (phase, file) in
        [("forward", "10-forward.vir"), ("joint", "20-joint.vir"), ("fused", "30-fused.vir")]
    {
        let (part, whole) = (folder.file(phase), folder.file(&format!("{phase}-whole")));
        from_spec(&["--to", phase, "-o", &part]);
        let there = files(&part);
        assert!(there.contains_key(file) && !there.contains_key("manifest.json"));
        good(&["--from", &format!("{part}/{file}"), "-o", &whole]);
        same(&straight, &whole);
    }
    // A whole compilation can be continued from as well, phase by phase.
    let (joint, again) = (folder.file("joint-again"), folder.file("again"));
    let graph = format!("{straight}/10-forward.vir");
    good(&["--from", &graph, "--to", "joint", "-o", &joint]);
    good(&["--from", &format!("{joint}/20-joint.vir"), "-o", &again]);
    same(&straight, &again);
}

#[test]
#[cfg(feature = "codegen")]
fn kernels_of_a_graph_that_was_read_are_those_of_a_straight_compilation() {
    let folder = Folder::new("kernels");
    let [straight, part, whole] = ["straight", "part", "whole"].map(|n| folder.file(n));
    let limits = ["--no-fuse", "join.pair", "--pre-gated-delta-rule", "streamed"];
    from_spec(&[&limits[..], &["--target", "host", "-o", &straight]].concat());
    from_spec(&[&limits[..], &["--to", "fused", "-o", &part]].concat());
    let graph = format!("{part}/30-fused.vir");
    good(&["--from", &graph, "--target", "host", "-o", &whole]);
    same(&straight, &whole);
    assert!(files(&whole).contains_key("kernels/host.so"));
    // Each cluster says which lines it computes, and which kernel computes it.
    let text = std::fs::read_to_string(format!("{whole}/30-fused.vir")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut clusters = 0;
    for (i, _) in lines.iter().enumerate().filter(|(_, l)| l.contains(" cluster \"")) {
        clusters += 1;
        assert!(lines[i - 2].starts_with("// of "), "{}", lines[i]);
        let kernel = lines[i - 1];
        assert!(kernel.starts_with("// kernel ") || kernel.starts_with("// no kernel: "));
    }
    assert!(clusters > 30);
    assert!(lines.iter().any(|l| l.starts_with("// of ") && l.contains("qwen3_5_text.vlm:")));
}

#[test]
fn passes_that_changed_something_have_a_diff_and_no_others() {
    let folder = Folder::new("diffs");
    let whole = folder.file("whole");
    from_spec(&["-o", &whole]);
    let manifest = std::fs::read_to_string(format!("{whole}/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let passes = manifest["passes"].as_array().unwrap();
    let changed = passes.iter().enumerate().filter(|(_, p)| p["changed"] == true);
    let want: Vec<String> = changed
        .map(|(i, p)| format!("{:03}-{}.diff", i + 1, p["name"].as_str().unwrap()))
        .collect();
    assert!(passes.len() > want.len() && want.len() > 3, "{want:?}");
    let names = std::fs::read_dir(format!("{whole}/passes")).unwrap();
    let mut have: Vec<String> =
        names.map(|n| n.unwrap().file_name().into_string().unwrap()).collect();
    have.sort();
    assert_eq!(have, want);
    let canon = std::fs::read_to_string(format!("{whole}/passes/{}", want[0])).unwrap();
    assert!(canon.starts_with("--- @") && canon.lines().any(|l| l.starts_with('+')));
}

#[test]
fn what_does_not_go_together_is_told() {
    let folder = Folder::new("refused");
    let part = folder.file("part");
    from_spec(&["--to", "fused", "-o", &part]);
    let graph = format!("{part}/30-fused.vir");
    let out = folder.file("out");
    let refused = |args: &[&str], words: &str| {
        let (good, text) = compile(&[args, &["-o", &out]].concat());
        assert!(!good && text.contains(words), "{args:?}: {text}");
    };
    refused(&["--from", &graph, "--no-fuse", "absorb.cast"], "fused already");
    refused(&["--from", &graph, "--to", "joint"], "past the phase");
    refused(&[SPEC, "--from", &graph], "cannot be used with");
    refused(&["--from", "none/20-joint.vir"], "none/compile.json");
    refused(&["--from", "any.vir"], "10-forward.vir, 20-joint.vir, 30-fused.vir");
    // A graph that was edited is checked.
    let text = std::fs::read_to_string(&graph).unwrap();
    std::fs::write(&graph, text.replacen("silu %", "silu %no.", 1)).unwrap();
    refused(&["--from", &graph], "30-fused.vir");
}

#[test]
fn every_kind_of_layer_has_a_picture_each_way() {
    let folder = Folder::new("pictures");
    let part = folder.file("part");
    from_spec(&["--to", "fused", "-o", &part]);
    let report = std::fs::read_to_string(format!("{part}/fusion.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    for function in ["Layer.gdn.fwd", "Layer.gdn.bwd", "Layer.attention.fwd", "Layer.attention.bwd"]
    {
        let svg = std::fs::read_to_string(format!("{part}/graphs/{function}.svg")).unwrap();
        let clusters = report["clusters"].as_array().unwrap();
        let of: Vec<&Value> = clusters.iter().filter(|c| c["function"] == function).collect();
        assert!(of.len() > 4);
        // A box for each cluster, with all its families.
        assert_eq!(svg.matches("fill=\"#d8e6fb\"").count(), of.len(), "{function}");
        for c in &of {
            for family in c["label"].as_str().unwrap().split('+') {
                assert!(svg.contains(&format!(">{family}</text>")), "{function}: {family}");
            }
        }
        // The line with the most bytes is the widest, and nothing is fetched from elsewhere.
        assert!(svg.contains("stroke-width=\"16.0\""), "{function}");
        assert_eq!(svg.matches("http").count(), 1, "only the name space of SVG");
        for tag in ["svg", "g", "title", "text"] {
            let (open, shut) = (format!("<{tag}"), format!("</{tag}>"));
            let opened =
                svg.matches(&format!("{open} ")).count() + svg.matches(&format!("{open}>")).count();
            assert_eq!(opened, svg.matches(&shut).count(), "{function}: {tag}");
        }
        assert_eq!(svg.contains(">saved, "), function.ends_with("fwd"), "{function}");
    }
}
