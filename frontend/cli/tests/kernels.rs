//! Kernels of whole models: every cluster has one, the assembler takes them, and nothing spills.

use std::collections::BTreeMap;
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

/// Clusters of the step program, which is the fused graph.
fn clusters(folder: &Path) -> Vec<String> {
    let step = std::fs::read_to_string(folder.join("artifact/programs/step.vir")).expect("a step");
    let program = vlmc_ir::text::parse::program(&step).expect("it parses");
    program.functions.into_iter().filter(|f| f.cluster.is_some()).map(|f| f.name).collect()
}

fn check(variant: &str, targets: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let kernels = compile(variant, &targets.join(","), folder.path());
    let covered: Vec<&str> = kernels.clusters.iter().map(|c| c.function.as_str()).collect();
    for name in clusters(folder.path()) {
        assert!(covered.contains(&name.as_str()), "@{name} has no kernel");
    }
    assert!(kernels.modules.len() > 20, "{} kernels", kernels.modules.len());
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
