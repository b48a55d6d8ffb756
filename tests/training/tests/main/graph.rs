//! The joint graph of the largest variant: small, quickly made, each template once.

use std::process::Command;
use std::time::Instant;
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_training_tests::{Model, clean};

const VARIANT: &str = "397b-a17b";
const CHILD: &str = "VLMC_TEST_ALONE";

fn joint() -> vlmc_ir::graph::Program {
    let model = Model::new("qwen3_5_vl", VARIANT, &[]).unwrap();
    let program = model.losses(DType::Bf16).unwrap();
    let options = Options { seeds: Seeds::Totals, inputs: vec![] };
    let joint = differentiate(&program, &options).unwrap();
    clean(&joint).unwrap()
}

#[test]
fn each_template_once() {
    let text = vlmc_ir::text::print::program(&joint());
    for kind in ["gdn", "attention"] {
        for half in ["fwd", "bwd"] {
            let name = format!("@Layer.{kind}.{half}");
            let made = text.matches(&format!("func {name} {{")).count();
            assert_eq!(made, 1, "{name}");
            // A layer in four is attention.
            let calls = if kind == "gdn" { 45 } else { 15 };
            let call = format!("callee = \"Layer.{kind}.{half}\"");
            assert_eq!(text.matches(&call).count(), calls, "calls of {name}");
        }
    }
    let functions = text.lines().filter(|l| l.starts_with("func ")).count();
    assert!(functions <= 24, "{functions} functions");
    assert!(text.lines().count() < 6000, "{} lines", text.lines().count());
}

fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Seconds that this thread had a processor: unlike the time on the wall, the same on a machine that
/// others use as well.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// In a process of its own, so that no other test's memory is counted.
#[test]
#[ignore = "measures time and memory: with optimisation and little else running"]
fn time_and_memory() {
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.args(["graph::time_and_memory", "--exact", "--ignored", "--nocapture"]);
        let out = command.env(CHILD, "1").output().unwrap();
        print!("{}", String::from_utf8_lossy(&out.stdout));
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let (begun, before) = (Instant::now(), processor_seconds());
    let joint = joint();
    let (wall, seconds) = (begun.elapsed().as_secs_f64(), processor_seconds() - before);
    let nodes: usize = joint.functions.iter().map(|f| f.nodes.len()).sum();
    let megabytes = peak_kilobytes() as f64 / 1024.0;
    println!(
        "joint graph of {VARIANT}: {} functions, {nodes} nodes, {seconds:.2} s ({wall:.2} s on the wall), {megabytes:.0} MB peak",
        joint.functions.len()
    );
    assert!(megabytes < 300.0, "{megabytes} MB");
    // Without optimisation the time says nothing.
    assert!(cfg!(debug_assertions) || seconds < 1.0, "{seconds} s");
}
