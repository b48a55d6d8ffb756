//! `vlmc-run bench` on artifacts whose host kernels are written by hand.

use indexmap::IndexMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vlmc_artifact::kernels::{
    Argument, Built, Cluster, Direction, Kernels, Launch, Module, Operand, Size,
};
use vlmc_artifact::{Artifact, FORMAT, Manifest, Plan, ProgramRecord, Schedule};

/// Twice the valid rows, zeros elsewhere; and the sum over all rows of x, in two launches.
const PROGRAM: &str = r#"program "p"
symbol T
symbol docs

func @main.k0 cluster "twice" {
  input %cu : i32[docs + 1]
  input %padded : i32[docs + 1]
  input %x : bf16[T, 24]
  %v = row_valid %cu, %padded {rows = T} : bool[T]
  %b = broadcast %v {shape = [T, 24], dims = [0]} : bool[T, 24]
  %y = add %x, %x : bf16[T, 24]
  %z = constant {value = 0.0, dtype = bf16, shape = [T, 24]} : bf16[T, 24]
  %twice = select %b, %y, %z : bf16[T, 24]
  %f = cast %x {dtype = f32} : f32[T, 24]
  %sum = reduce_sum %f {axes = [0]} : f32[24]
  return %twice
  return %sum
}

func @main {
  input %cu : i32[docs + 1]
  input %padded : i32[docs + 1]
  input %x : bf16[T, 24]
  %y = call %cu, %padded, %x {callee = "main.k0", scope = "", path = "", layer = none} : (bf16[T, 24], f32[24])
  return %y#0
  return %y#1
}
"#;

/// Strips of 16 rows by y, 8 columns by x: twice, with the partial sums of each strip; then their
/// sum. `EDGE` and the others are what the tests break.
const SOURCE: &str = r#"
#include <stdint.h>
#ifndef EDGE
#define EDGE(t) (t)
#endif
#ifndef IS_VALID
#define IS_VALID(t) valid(cu, padded, docs, t)
#endif
#ifndef ROWS
#define ROWS T
#endif
static int valid(const int32_t *cu, const int32_t *padded, int docs, int t) {
  for (int d = 0; d < docs; d++)
    if (padded[d] <= t && t < padded[d] + cu[d + 1] - cu[d]) return 1;
  return 0;
}
static float wide(uint16_t b) { union { uint32_t i; float f; } u = {(uint32_t)b << 16}; return u.f; }
static uint16_t narrow(float f) {
  union { float f; uint32_t i; } u = {f};
  return (u.i + 0x7fff + ((u.i >> 16) & 1)) >> 16;
}
void twice(const int32_t *cu, const int32_t *padded, const uint16_t *x, uint16_t *y, float *part,
           int T, int docs, int x0, int x1, int y0, int y1) {
  for (int by = y0; by < y1; by++)
    for (int c = 8 * x0; c < 8 * x1; c++) {
      float sum = 0;
      for (int t = 16 * by; t < 16 * by + 16 && t < ROWS; t++) {
        int from = EDGE(t);
        float v = wide(x[from * 24 + c]);
        y[t * 24 + c] = IS_VALID(t) ? narrow(v + v) : 0;
        sum += wide(x[t * 24 + c]);
      }
      part[by * 24 + c] = sum;
    }
}
void twice_sum(const float *part, float *sum, int T, int docs, int x0, int x1, int y0, int y1) {
  for (int c = 8 * x0; c < 8 * x1; c++) {
    sum[c] = 0;
    for (int s = 0; s < (T + 15) / 16; s++) sum[c] += part[s * 24 + c];
  }
#ifdef BEYOND
  sum[24] = 0;
#endif
}
"#;

/// An artifact in a folder that goes away with the value.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = self.0.parent().map(std::fs::remove_dir_all);
    }
}

fn kernels() -> Kernels {
    let operand = |dtype: &str, dims: &[&str]| Operand {
        dtype: dtype.to_string(),
        dims: dims.iter().map(ToString::to_string).collect(),
    };
    let launch = |symbol: &str, strips: Size, arguments| Launch {
        symbol: symbol.to_string(),
        grid: [Size::constant(3), strips, Size::constant(1)],
        block: 32,
        shared_bytes: 0,
        arguments,
    };
    use Argument::{Input, Output, Scratch};
    let boundaries = operand("i32", &["docs + 1"]);
    Kernels {
        format: FORMAT,
        modules: vec![Module {
            name: "twice".to_string(),
            targets: vec![Built {
                target: "host".to_string(),
                file: "kernels/host.so".to_string(),
                cubin: None,
                resources: vec![],
            }],
            symbols: vec!["T".to_string(), "docs".to_string()],
            inputs: vec![boundaries.clone(), boundaries, operand("bf16", &["T", "24"])],
            outputs: vec![operand("bf16", &["T", "24"]), operand("f32", &["24"])],
            scratch: vec![Size::of(96, "T", 16)],
            launches: vec![
                launch(
                    "twice",
                    Size::of(1, "T", 16),
                    vec![Input(0), Input(1), Input(2), Output(0), Scratch(0)],
                ),
                launch("twice_sum", Size::constant(1), vec![Scratch(0), Output(1)]),
            ],
        }],
        clusters: vec![Cluster {
            function: "main.k0".to_string(),
            module: "twice".to_string(),
            label: "twice.masked".to_string(),
            direction: Direction::Fwd,
            rule: "absorb".to_string(),
            lines: vec!["a.vlm:1".to_string()],
        }],
    }
}

fn make(name: &str, defines: &[&str], kernels: Option<&Kernels>) -> Made {
    let root = std::env::temp_dir().join(format!("vlmc-bench-{}-{name}", std::process::id()));
    let made = Made(root.join("bench"));
    let directory = &made.0;
    let mut capacities = IndexMap::new();
    capacities.insert("T".to_string(), 1000);
    capacities.insert("docs".to_string(), 7);
    let manifest = Manifest {
        format: FORMAT,
        tool_version: "0".to_string(),
        model: "M".to_string(),
        variant: "v".to_string(),
        spec_hash: "0".to_string(),
        flags: IndexMap::new(),
        targets: vec!["host".to_string()],
        passes: vec![],
        programs: vec![ProgramRecord { name: "step".to_string(), purpose: "all".to_string() }],
        capacities,
        vocabulary: None,
        dtype: "bf16".to_string(),
        losses: vec![],
        parameters: vec![],
    };
    let artifact = Artifact {
        manifest,
        plan: Plan::default(),
        schedule: Schedule { ranks: vec![vec![]], ..Schedule::default() },
        programs: vec![("step".to_string(), PROGRAM.to_string())],
    };
    artifact.write(directory).expect("an artifact");
    if let Some(kernels) = kernels {
        kernels.write(directory).expect("a table");
        let source = directory.join("kernels/host.c");
        std::fs::write(&source, SOURCE).expect("a source");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wno-unused-function"])
            .args(defines.iter().map(|d| format!("-D{d}")))
            .arg("-o")
            .arg(directory.join("kernels/host.so"))
            .arg(&source)
            .output()
            .expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
    made
}

fn bench(directory: &Path, flags: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vlmc-run"));
    let Output { status, stdout, stderr } =
        command.arg("bench").arg(directory).args(flags).output().expect("it runs");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("text");
    (status.code().expect("it ends"), text(stdout), text(stderr))
}

/// What is wrong with a kernel that was built with these definitions.
fn failure(name: &str, defines: &[&str]) -> String {
    let made = make(name, defines, Some(&kernels()));
    let (code, out, err) = bench(&made.0, &["--device", "cpu", "--json"]);
    assert_eq!(code, 1, "{out}{err}");
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(json["kernels"][0]["timing"].is_null(), "a wrong kernel is timed: {out}");
    assert!(err.contains("error: 1 of 1 kernels failed"), "{err}");
    err
}

#[test]
fn a_right_kernel_passes_and_is_timed() {
    let made = make("right", &[], Some(&kernels()));
    for flags in [&["--device", "cpu"][..], &["--device", "cpu", "--packed", "--tokens", "333"]] {
        let (code, out, err) = bench(&made.0, flags);
        assert_eq!(code, 0, "{out}{err}");
        let lines: Vec<&str> = out.lines().collect();
        let rows = if flags.len() == 2 { "T 1000  docs 7" } else { "T 333  docs 7" };
        let rows =
            if flags.len() == 2 { rows.to_string() } else { format!("{rows}  uneven documents") };
        assert!(lines[0].starts_with("host, ") && lines[0].ends_with(&rows), "{out}");
        assert!(lines[1].starts_with("kernel  uses"), "{out}");
        assert!(lines[2].starts_with("twice      1  ") && lines[2].ends_with("twice.masked"));
    }
    let (code, out, err) =
        bench(&made.0, &["--device", "cpu", "--json", "--kernel", "twice.masked"]);
    assert_eq!(code, 0, "{out}{err}");
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let kernel = &json["kernels"][0];
    assert_eq!(kernel["checks"][0]["sizes"]["T"], 307);
    assert_eq!(kernel["checks"][1]["sizes"]["T"], 1);
    let outputs = kernel["checks"][0]["outputs"].as_array().expect("outputs");
    assert_eq!(outputs[0]["name"], "twice");
    assert_eq!(outputs[0]["error"], 0.0);
    assert_eq!(outputs[1]["tolerance"], 1e-5);
    assert!(outputs[1]["error"].as_f64().expect("a number") < 1e-6);
    let timing = &kernel["timing"];
    assert_eq!(timing["bytes"], 2 * (4 * 8 + 1000 * 24 * 2) + 24 * 4 - 4 * 8 + 4 * 8);
    assert!(timing["ms"].as_f64().expect("a time") > 0.0);
    assert!(timing["copy_gbs"].as_f64().expect("a rate") > 0.0);
    assert!(timing["sets"].as_u64().expect("a number") >= 3);
}

#[test]
fn a_row_off_by_one_fails() {
    // Right at one row, and wrong at more.
    let err = failure("off", &["EDGE(t)=(t+1<T?t+1:t)"]);
    assert!(err.contains("twice (@main.k0) at T 307  docs 11: `twice` bf16[307, 24]: error "));
    assert!(err.contains("above 3e-3; worst at ["), "{err}");
    assert!(!err.contains("at T 1 "), "{err}");
    assert!(!err.contains("`sum`"), "{err}");
}

#[test]
fn padding_rows_count() {
    let err = failure("padding", &["IS_VALID(t)=1"]);
    assert!(err.contains("`twice` bf16[307, 24]: error "), "{err}");
    // Boundaries of the other kind are noticed, too.
    let err = failure("kind", &["IS_VALID(t)=valid(padded,padded,docs,t)"]);
    assert!(err.contains("`twice` bf16[307, 24]: error "), "{err}");
    let err = failure("kind2", &["IS_VALID(t)=valid(cu,cu,docs,t)"]);
    assert!(err.contains("`twice` bf16[307, 24]: error "), "{err}");
}

#[test]
fn unwritten_outputs_fail() {
    let err = failure("unwritten", &["ROWS=(T-1)"]);
    assert!(err.contains("`twice` bf16[307, 24]: 24 elements are never written, or"));
    assert!(err.contains("at T 1  docs 3: `twice` bf16[1, 24]: 24 elements are never"), "{err}");
}

#[test]
fn unwritten_scratch_is_no_number() {
    // A strip that is never run leaves its partial sums as they were.
    let mut k = kernels();
    k.modules[0].launches[0].grid[1] = Size::of(1, "T", 32);
    let made = make("scratch", &[], Some(&k));
    let (code, _, err) = bench(&made.0, &["--device", "cpu"]);
    assert_eq!(code, 1);
    // Some processors hand what was there on, others make another not-a-number of it.
    let sum = err.lines().find(|l| l.contains("at T 307") && l.contains("`sum`")).expect("named");
    assert!(sum.contains("never was") || sum.contains("it holds what is no number"), "{err}");
    assert!(!err.contains("at T 1 "), "{err}");
}

#[test]
fn writing_beyond_the_end_fails() {
    let err = failure("beyond", &["BEYOND"]);
    assert!(err.contains("output 1: it is written to beyond its end"), "{err}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let none = make("none", &[], None);
    let (code, out, err) = bench(&none.0, &["--device", "cpu"]);
    assert_eq!((code, &*out), (1, ""));
    assert!(err.contains("kernels.json: the artifact has no kernels\nhelp: make "), "{err}");

    let mut k = kernels();
    k.modules[0].outputs[1].dims[0] = "25".to_string();
    let other = make("shape", &[], Some(&k));
    let (code, _, err) = bench(&other.0, &["--device", "cpu"]);
    assert_eq!(code, 1);
    assert!(err.contains("outputs[1] is f32[25], but that of @main.k0 is f32[24]"), "{err}");
    let (code, _, err) = bench(&other.0, &["--device", "cpu", "--kernel", "thrice"]);
    assert_eq!(code, 1);
    assert!(err.contains("no kernel, cluster or label is called `thrice`; kernels: twice"));

    let mut k = kernels();
    k.modules[0].launches[1].symbol = "absent".to_string();
    let other = make("symbol", &[], Some(&k));
    let (code, _, err) = bench(&other.0, &["--device", "cpu"]);
    assert_eq!(code, 1);
    assert!(err.contains("function `absent`"), "{err}");
}

#[test]
fn without_cuda_there_is_one_line() {
    if Path::new("/proc/driver/nvidia").exists() {
        return;
    }
    let made = make("cuda", &[], Some(&kernels()));
    let (code, out, err) = bench(&made.0, &[]);
    assert_eq!((code, &*out), (1, ""));
    assert_eq!(
        err,
        "error: this machine has no CUDA driver: no libcuda was found\n\
         help: run with `--device cpu`, on an artifact compiled for the host\n"
    );
}

#[test]
fn a_folder_may_be_called_bench() {
    let made = make("folder", &[], None);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vlmc-run"));
        command.current_dir(made.0.parent().expect("a folder")).args(arguments);
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // The artifact is found, and the batch is not.
    let (code, err) = run(&["./bench", "--batch", "absent.safetensors"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.starts_with("error: no file matches absent.safetensors\n"), "{err}");
    let (code, err) = run(&["bench"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("vlmc-run bench <ARTIFACT>"), "{err}");
    let (code, err) = run(&["./bench"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("--batch <BATCH>"), "{err}");
    let (code, err) = run(&[]);
    assert_eq!(code, Some(2), "{err}");
}
