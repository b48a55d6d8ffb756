//! Kernels of whole models: every cluster has one, the assembler takes them, and nothing spills.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use vlmc_artifact::kernels::Kernels;

fn compile(variant: &str, targets: &str, folder: &Path) -> Kernels {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sizes = ["--tokens", "8192", "--max-docs", "16", "--max-patches", "4096"];
    let out = Command::new(env!("CARGO_BIN_EXE_vlmc"))
        .current_dir(root)
        // Nothing is taken from an earlier run.
        .env("VLMC_CACHE", folder.join("cache"))
        .args(["compile", "models/qwen3_5_vl.vlm", "--variant", variant, "--dtype", "bf16"])
        .args(["--packed", "--max-images", "8", "--target", targets])
        .args(sizes)
        .arg("-o")
        .arg(folder.join("artifact"))
        .output()
        .expect("vlmc starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Kernels::read(&folder.join("artifact")).expect("a table").expect("kernels")
}

/// Clusters of all programs.
fn clusters(folder: &Path) -> Vec<String> {
    let programs = std::fs::read_dir(folder.join("artifact/programs")).expect("programs");
    let mut names = vec![];
    for path in programs.map(|p| p.expect("an entry").path()) {
        let text = std::fs::read_to_string(path).expect("a program");
        let program = vlmc_ir::text::parse::program(&text).expect("it parses");
        let clusters = program.functions.into_iter().filter(|f| f.cluster.is_some());
        names.extend(clusters.map(|f| f.name));
    }
    names
}

/// `file:line` of every `.loc` in PTX, whose `.file` lines say the numbers of files.
fn places(ptx: &str) -> BTreeSet<String> {
    let mut files: BTreeMap<&str, &str> = BTreeMap::new();
    let words = |l: &'static str| move |line: &str| line.trim().starts_with(l);
    for line in ptx.lines().filter(|l| words(".file")(l)) {
        let mut parts = line.split_whitespace().skip(1);
        if let (Some(n), Some(name)) = (parts.next(), line.split('"').nth(1)) {
            files.insert(n, name);
        }
    }
    let mut out = BTreeSet::new();
    for line in ptx.lines().filter(|l| words(".loc")(l)) {
        let mut parts = line.split_whitespace().skip(1);
        let (file, line) = (parts.next().expect("a file"), parts.next().expect("a line"));
        // Line 0 is code of several lines.
        if line != "0" {
            out.insert(format!("{}:{line}", files[file]));
        }
    }
    out
}

/// The lines of kernels are those of a cluster that they compute.
fn lines_are_of_the_spec(folder: &Path, kernels: &Kernels, target: &str) {
    let (mut with, mut all) = (0, 0);
    for m in &kernels.modules {
        let file = &m.built(target).expect("a build").file;
        let ptx = std::fs::read_to_string(folder.join("artifact").join(file)).expect("PTX");
        let have = places(&ptx);
        let mut of = kernels.clusters.iter().filter(|c| c.module == m.name);
        let belongs = of.any(|c| have.iter().all(|p| c.lines.iter().any(|l| p.ends_with(l))));
        assert!(belongs, "{}: {have:?}", m.name);
        // What the optimizer does is written in no spec.
        if !m.name.starts_with("optim_adamw") {
            all += 1;
            with += usize::from(!have.is_empty());
        }
    }
    // Of a few small ones every instruction is made from several lines.
    assert!(with * 10 >= all * 9 && all > 20, "{with} of {all} kernels tell lines");
}

fn check(variant: &str, targets: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let kernels = compile(variant, &targets.join(","), folder.path());
    let covered: Vec<&str> = kernels.clusters.iter().map(|c| c.function.as_str()).collect();
    for name in clusters(folder.path()) {
        assert!(covered.contains(&name.as_str()), "@{name} has no kernel");
    }
    assert!(kernels.modules.len() > 20, "{} kernels", kernels.modules.len());
    lines_are_of_the_spec(folder.path(), &kernels, targets[0]);
    for m in &kernels.modules {
        for target in targets {
            let built = m.built(target).unwrap_or_else(|| panic!("{} for {target}", m.name));
            assert_eq!(built.resources.len(), m.launches.len(), "{}", m.name);
            for (l, r) in m.launches.iter().zip(&built.resources) {
                assert_eq!(r.spill_bytes, 0, "{} spills on {target}", l.symbol);
                assert!(r.registers > 0 && r.registers * l.block <= 65536, "{} {r:?}", l.symbol);
            }
        }
    }
}

#[test]
fn clusters_of_9b_assemble_without_spills() {
    check("9b", &["sm_90a"]);
}

#[test]
#[ignore = "three targets and experts: for test-all"]
fn clusters_assemble_for_other_generations() {
    check("9b", &["sm_80", "sm_90", "sm_100"]);
    check("35b-a3b", &["sm_90a"]);
}

fn files(folder: &Path, out: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, out);
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            out.insert(path, bytes);
        }
    }
}

#[test]
fn two_compilations_are_equal() {
    let [first, second] = [0, 1].map(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        compile("tiny", "sm_90a,host", folder.path());
        let root = folder.path().join("artifact");
        let mut found = BTreeMap::new();
        files(&root, &mut found);
        let relative = |p: PathBuf| p.strip_prefix(&root).map(Path::to_path_buf).expect("below");
        found.into_iter().map(|(p, b)| (relative(p), b)).collect::<BTreeMap<_, _>>()
    });
    assert!(first.keys().any(|p| p.ends_with("host.so")));
    let names = |m: &BTreeMap<PathBuf, Vec<u8>>| m.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&first), names(&second));
    for (path, bytes) in &first {
        assert!(second[path] == *bytes, "{} differs", path.display());
    }
}
