//! What `vlmc-run bench` tells: a table for people, the same as JSON for programs.

use super::check::{Check, Verdict, at};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use vlmc_artifact::kernels::{Cluster, Resources};

/// All kernels of an artifact on a device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BenchReport {
    /// The device, in words.
    pub device: String,
    /// Values of the symbols at which kernels are timed.
    pub sizes: BTreeMap<String, usize>,
    /// Whether documents are uneven there.
    pub packed: bool,
    /// Kernels in the order of the artifact.
    pub kernels: Vec<KernelReport>,
}

/// A kernel.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelReport {
    /// Its name.
    pub kernel: String,
    /// The clusters that it computes; the first one is the reference.
    pub clusters: Vec<Cluster>,
    /// The target that it was built for.
    pub target: String,
    /// Whether all checks passed.
    pub passed: bool,
    /// Why it could not be checked or timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Checks.
    pub checks: Vec<Check>,
    /// What each launch needs; none where nothing tells.
    pub resources: Vec<Resources>,
    /// How long it takes; missing where a check failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
}

/// How long a kernel takes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Timing {
    /// Milliseconds of a run, the median.
    pub ms: f64,
    /// Bytes of inputs and outputs, each once.
    pub bytes: u64,
    /// 10^9 of these bytes a second.
    pub gbs: f64,
    /// Milliseconds of a copy that moves as many bytes.
    pub copy_ms: f64,
    /// Its 10^9 bytes a second.
    pub copy_gbs: f64,
    /// Time of the copy over time of the kernel.
    pub of_copy: f64,
    /// Sets of buffers that the runs took in turn.
    pub sets: usize,
    /// Whether all of them fit the cache, so that the kernel did not read memory.
    pub cached: bool,
}

impl KernelReport {
    fn worst(&self) -> Option<&Verdict> {
        let all = self.checks.iter().flat_map(|c| &c.outputs);
        // A failed one first, then the one closest to its tolerance.
        let share = |v: &Verdict| match v.error {
            Some(e) if v.tolerance > 0.0 => e / v.tolerance,
            Some(e) => e,
            None => f64::INFINITY,
        };
        all.max_by(|a, b| (!a.passed).cmp(&!b.passed).then(share(a).total_cmp(&share(b))))
    }
}

impl BenchReport {
    /// Whether every kernel passed and could be timed.
    pub fn passed(&self) -> bool {
        self.kernels.iter().all(|k| k.passed && k.failure.is_none())
    }

    /// The table.
    pub fn table(&self) -> String {
        let packed = if self.packed { "  uneven documents" } else { "" };
        let mut out = format!("{}  {}{packed}\n", self.device, at(&self.sizes));
        let head = [
            "kernel", "uses", "error", "ms", "MB", "GB/s", "copy", "of copy", "regs", "spill",
            "cluster",
        ];
        let mut rows = vec![head.map(str::to_string)];
        for k in &self.kernels {
            rows.push(row(k));
        }
        let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for r in &rows {
            let mut line = String::new();
            for (i, (cell, w)) in r.iter().zip(&widths).enumerate() {
                let gap = if i == 0 { "" } else { "  " };
                // Words to the left, numbers to the right.
                let _ = if i == 0 || i + 1 == r.len() {
                    write!(line, "{gap}{cell:<w$}")
                } else {
                    write!(line, "{gap}{cell:>w$}")
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        if self.kernels.iter().any(|k| k.timing.as_ref().is_some_and(|t| t.cached)) {
            out.push_str("* in the cache: too few bytes to measure memory\n");
        }
        out
    }

    /// A line for everything that failed.
    pub fn failures(&self) -> Vec<String> {
        let mut out = vec![];
        for k in &self.kernels {
            let clusters = k.clusters.first().map_or("?", |c| &c.function);
            if let Some(why) = &k.failure {
                out.push(format!("{} (@{clusters}): {why}", k.kernel));
            }
            for c in &k.checks {
                for v in c.outputs.iter().filter(|v| !v.passed) {
                    let place = format!("{} (@{clusters}) at {}", k.kernel, at(&c.sizes));
                    out.push(format!("{place}: {}", why(v)));
                }
            }
        }
        out
    }
}

fn why(v: &Verdict) -> String {
    let mut out = format!("`{}` {}: ", v.name, v.shape);
    if v.unwritten > 0 {
        let _ =
            write!(out, "{} elements are never written, or made of what never was", v.unwritten);
    } else {
        let _ = match v.error {
            Some(e) => write!(out, "error {e:.1e} above {:.0e}", v.tolerance),
            None => write!(out, "it holds what is no number"),
        };
    }
    if let Some((index, have, wanted)) = &v.worst {
        let _ = write!(out, "; worst at {index:?}: {have}, not {wanted}");
    }
    out
}

fn row(k: &KernelReport) -> [String; 11] {
    let none = || "-".to_string();
    let error = match k.worst() {
        _ if !k.passed => "FAILED".to_string(),
        Some(v) => v.error.map_or_else(none, |e| format!("{e:.1e}")),
        None => none(),
    };
    let timing = |f: &dyn Fn(&Timing) -> String| k.timing.as_ref().map_or_else(none, f);
    let most = |f: &dyn Fn(&Resources) -> u32| {
        k.resources.iter().map(f).max().map_or_else(none, |n| n.to_string())
    };
    let label = k.clusters.first().map_or_else(none, |c| c.label.clone());
    [
        k.kernel.clone(),
        k.clusters.len().to_string(),
        error,
        timing(&|t| format!("{:.4}", t.ms)),
        timing(&|t| format!("{:.1}", t.bytes as f64 / 1e6)),
        timing(&|t| format!("{:.0}{}", t.gbs, if t.cached { "*" } else { "" })),
        timing(&|t| format!("{:.0}", t.copy_gbs)),
        timing(&|t| format!("{:.0} %", t.of_copy * 100.0)),
        most(&|r| r.registers),
        most(&|r| r.spill_bytes),
        label,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> BenchReport {
        let verdict = |name: &str, error, passed| Verdict {
            name: name.to_string(),
            shape: "f32[2, 2]".to_string(),
            error,
            tolerance: 1e-5,
            unwritten: 0,
            passed,
            worst: (!passed).then(|| (vec![1, 0], "2e0".to_string(), "1e0".to_string())),
        };
        let check =
            |outputs| Check { sizes: [("T".to_string(), 2)].into(), positive: false, outputs };
        let good = KernelReport {
            kernel: "norm".to_string(),
            clusters: vec![],
            target: "sm_90a".to_string(),
            passed: true,
            failure: None,
            checks: vec![check(vec![
                verdict("a", Some(1e-7), true),
                verdict("b", Some(2e-6), true),
            ])],
            resources: vec![Resources { registers: 40, spill_bytes: 0, shared_bytes: 0 }],
            timing: Some(Timing {
                ms: 0.5,
                bytes: 2_000_000,
                gbs: 4.0,
                copy_ms: 0.25,
                copy_gbs: 8.0,
                of_copy: 0.5,
                sets: 3,
                cached: true,
            }),
        };
        let bad = KernelReport {
            kernel: "gate".to_string(),
            passed: false,
            checks: vec![check(vec![verdict("y", Some(0.5), false), verdict("z", None, false)])],
            timing: None,
            ..good.clone()
        };
        BenchReport {
            device: "a device".to_string(),
            sizes: [("T".to_string(), 64)].into(),
            packed: false,
            kernels: vec![good, bad],
        }
    }

    #[test]
    fn the_table_is_aligned() {
        assert_eq!(
            report().table(),
            "a device  T 64\n\
             kernel  uses    error      ms   MB  GB/s  copy  of copy  regs  spill  cluster\n\
             norm       0  2.0e-6  0.5000  2.0    4*     8     50 %    40      0  -\n\
             gate       0  FAILED       -    -     -     -        -    40      0  -\n\
             * in the cache: too few bytes to measure memory\n"
                .replace("    error", "   error")
        );
    }

    #[test]
    fn failures_name_the_place() {
        let r = report();
        assert!(!r.passed());
        assert_eq!(
            r.failures(),
            [
                "gate (@?) at T 2: `y` f32[2, 2]: error 5.0e-1 above 1e-5; worst at [1, 0]: 2e0, \
                 not 1e0",
                "gate (@?) at T 2: `z` f32[2, 2]: it holds what is no number; worst at [1, 0]: \
                 2e0, not 1e0",
            ]
        );
    }
}
