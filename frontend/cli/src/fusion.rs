//! The fusion table: which clusters there are, which rules fired, and which growth was refused,
//! where and why.

use anyhow::Result;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use vlmc_artifact as artifact;
use vlmc_artifact::NearMiss;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, Origin, Program, Value};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::Ty;
use vlmc_passes::canon::Outcome;
use vlmc_passes::fuse::{Fused, Row};

/// `fusion.json`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// How often each rule made a cluster that was not there, chosen in the end or not.
    pub fired: IndexMap<String, usize>,
    /// Chosen clusters.
    pub clusters: Vec<Cluster>,
    /// What is left in functions that are no clusters.
    pub outside: Vec<Outside>,
    /// Growth that was refused, each place, rule and reason once.
    pub near_misses: Vec<NearMiss>,
    /// Budgets that were reached.
    pub warnings: Vec<String>,
}

/// A chosen cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// The function that it was taken from.
    pub function: String,
    /// The function that it became.
    pub cluster: String,
    /// What it is called.
    pub label: String,
    /// `fwd`, `bwd`, or `opt` in the optimizer.
    pub direction: String,
    /// How often a microbatch runs it; in the optimizer, a step.
    pub runs: usize,
    /// Row ops in it.
    pub ops: usize,
    /// Values that it stores.
    pub stores: usize,
    /// Microseconds, as the model has it.
    pub model_us: f64,
    /// Bytes that its ops would read and write one by one, at the capacities.
    pub bytes_before: u64,
    /// Bytes that it reads and writes.
    pub bytes_after: u64,
    /// Lines of the spec that it computes.
    pub lines: Vec<String>,
}

/// Ops of one kind outside clusters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outside {
    /// The function.
    pub function: String,
    /// The op.
    pub op: String,
    /// How many.
    pub count: usize,
}

impl Report {
    /// What came of fusing a program, with bytes at these sizes. `part` is the direction of all its
    /// clusters, where it is one.
    pub fn new(fused: &Fused, sizes: &Sizes, part: Option<&str>) -> Report {
        let p = &fused.program;
        let runs = runs(p);
        let entry = |r: &Row| {
            let f = p.function(&r.cluster);
            let (before, after) = f.map_or((0, 0), |f| bytes(f, sizes));
            Cluster {
                function: r.function.clone(),
                cluster: r.cluster.clone(),
                label: r.label.clone(),
                direction: part.unwrap_or(direction(&r.function)).to_string(),
                runs: runs.get(&*r.cluster).copied().unwrap_or(0),
                ops: r.ops,
                stores: r.stores,
                model_us: (r.cost * 10.0).round() / 10.0,
                bytes_before: before,
                bytes_after: after,
                lines: f.map(|f| lines(p, f)).unwrap_or_default(),
            }
        };
        let fired = fused.log.decisions.fired().into_iter();
        Report {
            fired: fired.map(|(rule, n)| (rule.to_string(), n)).collect(),
            clusters: fused.table.iter().map(entry).collect(),
            outside: outside(p),
            near_misses: near_misses(fused),
            warnings: fused.log.decisions.warnings.clone(),
        }
    }

    /// Adds that of another program.
    pub fn append(&mut self, other: Report) {
        for (rule, n) in other.fired {
            *self.fired.entry(rule).or_insert(0) += n;
        }
        self.clusters.extend(other.clusters);
        self.outside.extend(other.outside);
        self.near_misses.extend(other.near_misses);
        self.warnings.extend(other.warnings);
        self.fired.sort_keys();
    }

    /// The clusters for `plan.json`.
    pub fn fusions(&self) -> Vec<artifact::Fusion> {
        let entry = |c: &Cluster| artifact::Fusion {
            rule: c.label.clone(),
            function: c.function.clone(),
            direction: c.direction.clone(),
            count: c.runs,
            kernel: c.cluster.clone(),
            launches: 1,
            bytes_before: c.bytes_before,
            bytes_after: c.bytes_after,
        };
        self.clusters.iter().map(entry).collect()
    }

    /// `fusion.txt`
    pub fn text(&self) -> String {
        let mut out = String::from("families");
        let mut families: IndexMap<(&str, &str), (usize, usize)> = IndexMap::new();
        for c in &self.clusters {
            let (clusters, runs) = families.entry((&c.label, &c.direction)).or_insert((0, 0));
            (*clusters, *runs) = (*clusters + 1, *runs + c.runs);
        }
        families.sort_keys();
        let _ = writeln!(out, "{:41}clusters   runs", "");
        for ((label, direction), (clusters, runs)) in families {
            let _ = writeln!(out, "  {label:40} {direction} {clusters:10} {runs:6}");
        }
        let _ = writeln!(
            out,
            "\n{:41} {:36}  runs   ops  stores  model us  MB before  MB after",
            "clusters", "label"
        );
        let mb = |bytes: u64| bytes as f64 / 1e6;
        for c in &self.clusters {
            let _ = writeln!(
                out,
                "  {:39} {:36} {:5} {:5} {:7} {:9.1} {:10.1} {:9.1}",
                c.cluster,
                c.label,
                c.runs,
                c.ops,
                c.stores,
                c.model_us,
                mb(c.bytes_before),
                mb(c.bytes_after)
            );
        }
        out.push_str("\nrules that made clusters, chosen or not\n");
        for (rule, n) in &self.fired {
            let _ = writeln!(out, "  {rule:40} x{n}");
        }
        out.push_str("\nops outside clusters\n");
        for o in &self.outside {
            let _ = writeln!(out, "  {:40} {} x{}", o.function, o.op, o.count);
        }
        out.push_str("\nnot grown\n");
        for m in &self.near_misses {
            let _ = writeln!(out, "  {:18} {}  {} ({})", m.rule, m.function, m.reason, m.at);
        }
        for w in &self.warnings {
            let _ = writeln!(out, "warning: {w}");
        }
        out
    }

    /// `fusion.json`
    ///
    /// # Errors
    /// None that can come of a report.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// How often main runs each function, calls in calls counted.
fn runs(p: &Program) -> IndexMap<&str, usize> {
    let mut counts: IndexMap<&str, usize> = p.functions.iter().map(|f| (&*f.name, 0)).collect();
    if let Some(main) = p.main() {
        counts.insert(&main.name, 1);
    }
    // Callers come after callees.
    for f in p.functions.iter().rev() {
        let times = counts.get(&*f.name).copied().unwrap_or(0);
        for n in &f.nodes {
            if let Op::Call { callee, .. } = &n.op
                && let Some(c) = counts.get_mut(&**callee)
            {
                *c += times;
            }
        }
    }
    counts
}

fn direction(function: &str) -> &'static str {
    if function.contains(".bwd") { "bwd" } else { "fwd" }
}

/// Where something comes from: `file:line:column`.
pub fn place(p: &Program, origin: &Origin) -> String {
    let file = p.files.get(origin.file as usize).map_or("?", String::as_str);
    format!("{file}:{}:{}", origin.line, origin.column)
}

/// Lines of the spec that a function computes, each once, in the order of files and lines.
pub fn lines(p: &Program, f: &Function) -> Vec<String> {
    let origins = f.nodes.iter().flat_map(|n| &n.origins);
    let all: BTreeSet<(u32, u32)> = origins.map(|o| (o.file, o.line)).collect();
    let name = |file: u32| p.files.get(file as usize).map_or("?", String::as_str);
    all.into_iter().map(|(file, line)| format!("{}:{line}", name(file))).collect()
}

fn near_misses(fused: &Fused) -> Vec<NearMiss> {
    let mut out: Vec<NearMiss> = vec![];
    for (event, _) in fused.log.decisions.events() {
        let Outcome::Refused(reason) = &event.outcome else { continue };
        let at = event.origin.as_ref().map(|o| place(&fused.program, o)).unwrap_or_default();
        let miss = NearMiss {
            rule: event.rule.to_string(),
            function: event.function.clone(),
            at,
            reason: format!("{}: {reason}", event.value),
        };
        if !out.contains(&miss) {
            out.push(miss);
        }
    }
    out
}

/// What is left in functions that are no clusters, by op.
fn outside(p: &Program) -> Vec<Outside> {
    let mut out = vec![];
    for f in p.functions.iter().filter(|f| f.cluster.is_none()) {
        let mut ops: IndexMap<&'static str, usize> = IndexMap::new();
        for n in work(f) {
            *ops.entry(n).or_insert(0) += 1;
        }
        let entry = |(op, count): (&str, usize)| Outside {
            function: f.name.clone(),
            op: op.to_string(),
            count,
        };
        out.extend(ops.into_iter().map(entry));
    }
    out
}

fn work(f: &Function) -> impl Iterator<Item = &'static str> + '_ {
    let structure = |op: &Op| op.info().effect == vlmc_ir::ops::Effect::Structural;
    f.nodes.iter().filter(move |n| !structure(&n.op)).map(|n| n.op.name())
}

/// Bytes of a type at these sizes; 0 where one is not known.
pub fn bytes_of(ty: &Ty, sizes: &Sizes) -> u64 {
    let elements = ty.dims.iter().try_fold(1u64, |n, d| {
        n.checked_mul(sizes.eval(d).ok().and_then(|s| u64::try_from(s).ok())?)
    });
    elements.unwrap_or(0).saturating_mul(ty.dtype.bytes())
}

/// What a cluster's ops would move one by one, and what the cluster moves. Views move nothing; of an
/// input that is read in slices, the slices are read.
fn bytes(f: &Function, sizes: &Sizes) -> (u64, u64) {
    let of = |v: Value| bytes_of(f.ty(v), sizes);
    let moves = |op: &Op| {
        let class = op.info().class;
        class != Class::View
            && !matches!(op, Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. })
    };
    let mut before = 0u64;
    for (i, n) in f.nodes.iter().enumerate().filter(|(_, n)| moves(&n.op)) {
        let read: u64 = n.operands.iter().map(|v| of(*v)).sum();
        before = before.saturating_add(read + of(vlmc_ir::graph::NodeId(i as u32).into()));
    }
    let mut after: u64 = f.outputs.iter().map(|o| of(o.value)).sum();
    for (i, n) in f.nodes.iter().enumerate() {
        if !matches!(n.op, Op::Input { .. }) {
            continue;
        }
        let value: Value = vlmc_ir::graph::NodeId(i as u32).into();
        let users = || f.nodes.iter().enumerate().filter(|(_, u)| u.operands.contains(&value));
        let sliced = users().all(|(_, u)| matches!(u.op, Op::Slice { .. }));
        let slices = users().map(|(u, _)| of(vlmc_ir::graph::NodeId(u as u32).into())).sum::<u64>();
        let whole = of(value);
        after = after.saturating_add(if sliced { slices.min(whole) } else { whole });
    }
    (before, after)
}
