//! The fusion table: which clusters there are, and which growth was refused, where and why.

use indexmap::IndexMap;
use std::fmt::Write as _;
use vlmc_artifact as artifact;
use vlmc_ir::graph::{Function, Program};
use vlmc_ir::ops::Op;
use vlmc_passes::canon::Outcome;
use vlmc_passes::fuse::{Fused, Row};

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

/// The clusters for `plan.json`.
pub fn fusions(fused: &Fused) -> Vec<artifact::Fusion> {
    let runs = runs(&fused.program);
    let entry = |r: &Row| artifact::Fusion {
        rule: r.label.clone(),
        function: r.function.clone(),
        direction: direction(&r.function).to_string(),
        count: runs.get(&*r.cluster).copied().unwrap_or(0),
        kernel: r.cluster.clone(),
        launches: 1,
        ..artifact::Fusion::default()
    };
    fused.table.iter().map(entry).collect()
}

/// Growth that was refused, for `plan.json`: each place, rule and reason once.
pub fn near_misses(fused: &Fused) -> Vec<artifact::NearMiss> {
    let mut out: Vec<artifact::NearMiss> = vec![];
    for (event, _) in fused.log.decisions.events() {
        let Outcome::Refused(reason) = &event.outcome else { continue };
        let at = event.origin.as_ref().map_or_else(String::new, |o| {
            let file = fused.program.files.get(o.file as usize).map_or("?", String::as_str);
            format!("{file}:{}:{}", o.line, o.column)
        });
        let miss = artifact::NearMiss {
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

/// `fusion.txt`
pub fn text(fused: &Fused) -> String {
    let runs = runs(&fused.program);
    let mut out = String::from(
        "cluster                                   label                            \
         runs   ops  stores  model us\n",
    );
    for r in &fused.table {
        let count = runs.get(&*r.cluster).copied().unwrap_or(0);
        let _ = writeln!(
            out,
            "{:41} {:32} {count:5} {:5} {:7} {:9.1}",
            r.cluster, r.label, r.ops, r.stores, r.cost
        );
    }
    out.push_str("\nops outside clusters\n");
    for (function, op, count) in outside(&fused.program) {
        let _ = writeln!(out, "  {function:40} {op} x{count}");
    }
    out.push_str("\nnot grown\n");
    for m in near_misses(fused) {
        let _ = writeln!(out, "  {:18} {}  {} ({})", m.rule, m.function, m.reason, m.at);
    }
    for w in &fused.log.decisions.warnings {
        let _ = writeln!(out, "warning: {w}");
    }
    out
}

/// What is left in functions that are no clusters, by op.
fn outside(p: &Program) -> Vec<(String, &'static str, usize)> {
    let mut out = vec![];
    for f in p.functions.iter().filter(|f| f.cluster.is_none()) {
        let mut ops: IndexMap<&'static str, usize> = IndexMap::new();
        for n in work(f) {
            *ops.entry(n).or_insert(0) += 1;
        }
        out.extend(ops.into_iter().map(|(op, n)| (f.name.clone(), op, n)));
    }
    out
}

fn work(f: &Function) -> impl Iterator<Item = &'static str> + '_ {
    let structure = |op: &Op| op.info().effect == vlmc_ir::ops::Effect::Structural;
    f.nodes.iter().filter(move |n| !structure(&n.op)).map(|n| n.op.name())
}
