//! The whole golden set through the runner, as a user calls it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

/// Cases in tests/golden; a case that is not found must not look like one that passed.
const CASES: usize = 48;

fn golden() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden").display().to_string()
}

fn parity(args: &[&str]) -> (bool, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_vlmc-parity")).args(args).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap() + &String::from_utf8(out.stderr).unwrap();
    (out.status.success(), text)
}

#[test]
fn f32_forward_gradients_and_training() {
    let (good, text) = parity(&[&golden()]);
    assert!(good && text.ends_with(&format!("{CASES} passed, 0 failed\n")), "{text}");
}

#[test]
fn bf16_operations_losses_and_training() {
    let (good, text) = parity(&[&golden(), "--dtype", "bf16"]);
    assert!(good && text.ends_with(&format!("{CASES} passed, 0 failed\n")), "{text}");
}

#[test]
fn bf16_in_clusters() {
    let (good, text) = parity(&[&golden(), "--fused", "--dtype", "bf16"]);
    assert!(good && text.ends_with(&format!("{CASES} passed, 0 failed\n")), "{text}");
}

/// In clusters the numbers are the same program's.
#[test]
fn f32_in_clusters() {
    let (good, text) = parity(&[&golden(), "--fused"]);
    assert!(good && text.ends_with(&format!("{CASES} passed, 0 failed\n")), "{text}");
}

/// The runner can fail: a case whose stored result is changed by a part in a thousand.
#[test]
fn a_wrong_result_fails() {
    let folder = std::env::temp_dir().join(format!("vlmc-parity-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let from = Path::new(&golden()).join("ops");
    std::fs::copy(from.join("rmsnorm_a.json"), folder.join("rmsnorm_a.json")).unwrap();
    let mut bytes = std::fs::read(from.join("rmsnorm_a.safetensors")).unwrap();
    let file =
        vlmc_data::safetensors::TensorFile::open(from.join("rmsnorm_a.safetensors")).unwrap();
    let range = file.info("out.y").unwrap().range.clone();
    let start = usize::try_from(range.start).unwrap();
    for at in (start..start + 64).step_by(4) {
        let v = f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        bytes[at..at + 4].copy_from_slice(&(v * 1.001).to_le_bytes());
    }
    std::fs::write(folder.join("rmsnorm_a.safetensors"), bytes).unwrap();
    let (good, text) = parity(&[folder.to_str().unwrap()]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!good && text.contains("out.y") && text.ends_with("0 passed, 1 failed\n"), "{text}");
}
