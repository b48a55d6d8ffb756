//! What one row program can hold: the table of design section 5, as checks with reasons.
//!
//! The iteration space of a section is rows by lanes. Sections are the parts of a body that are
//! connected through values with rows; a launch is a list of sections over the same rows.

use super::body::Body;
use super::device::{Device, taps};
use super::facts::{Facts, at};
use std::collections::{BTreeMap, BTreeSet};
use vlmc_ir::dim::product;
use vlmc_ir::ops::Op;

/// What a legal body needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Legal {
    /// Registers of the widest section.
    pub(super) registers: f64,
}

/// Checks a body.
///
/// # Errors
/// The reason, in words for the list of near misses.
pub(super) fn check(facts: &Facts<'_>, device: &Device, body: &Body) -> Result<Legal, String> {
    let work: Vec<usize> = body.ops.iter().filter(|i| !facts.param[*i]).collect();
    for i in &work {
        if facts.summed[*i] && !facts.sums_rows(*i) && facts.has_rows(*i) {
            return Err("uses a sum over rows in every row".to_string());
        }
        moves_rows(facts, *i)?;
    }
    depends_on_itself(facts, body)?;
    let section = sections(facts, &work);
    rows_agree(facts, &work)?;
    let mut extents: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for (i, s) in work.iter().zip(&section) {
        let extents = extents.entry(*s).or_default();
        if let Op::ReduceSum { axes } | Op::ReduceMax { axes } = facts.op(*i)
            && !facts.sums_rows(*i)
        {
            let from = facts.ty(at(facts.f.nodes[*i].operands[0]));
            let first = axes.first().map_or(0, |a| *a as usize);
            extents.insert(facts.size(&product(&from.dims[first..])) as u64);
        }
    }
    for lanes in extents.values() {
        let longest = lanes.last().copied().unwrap_or(1) as f64;
        let list: Vec<u64> = lanes.iter().copied().collect();
        let nest = list.windows(2).all(|w| w[0] > 0 && w[1] % w[0] == 0);
        if !nest && longest > device.masked_row {
            return Err(format!("rows of {list:?} lanes do not nest"));
        }
        if longest > device.longest_row {
            return Err(format!("a row of {longest} lanes does not fit"));
        }
    }
    let mut worst: f64 = 0.0;
    for s in extents.keys() {
        let of = work.iter().zip(&section).filter(|(_, t)| *t == s);
        let ops: Vec<usize> = of.map(|(i, _)| *i).collect();
        worst = worst.max(live_values(facts, &ops));
    }
    let registers = |lanes: f64| device.base_registers + lanes * worst;
    [8.0, 4.0, 2.0, 1.0]
        .into_iter()
        .map(registers)
        .find(|r| *r <= device.most_registers)
        .map(|registers| Legal { registers })
        .ok_or_else(|| format!("{worst:.0} live row values exceed the registers"))
}

/// Views along the axis of rows put rows elsewhere.
fn moves_rows(facts: &Facts<'_>, i: usize) -> Result<(), String> {
    let moves = match facts.op(i) {
        Op::Slice { axis, .. } | Op::Pad { axis, .. } | Op::Repeat { axis, .. } => *axis == 0,
        Op::Concat { axis } => *axis == 0,
        _ => false,
    };
    if moves && facts.has_rows(i) { Err("rows change their places".to_string()) } else { Ok(()) }
}

/// Nothing that the body loads may depend, through other kernels, on what it stores.
fn depends_on_itself(facts: &Facts<'_>, body: &Body) -> Result<(), String> {
    for v in body.loads(facts).iter() {
        // A load that depends on an inner value is a way out of the cluster and back.
        if facts.before[v].meets(&body.outs) {
            return Err("what it loads depends on what it stores".to_string());
        }
    }
    Ok(())
}

/// For each op the first op of its section.
pub(super) fn sections(facts: &Facts<'_>, work: &[usize]) -> Vec<usize> {
    let place: BTreeMap<usize, usize> = work.iter().enumerate().map(|(k, i)| (*i, k)).collect();
    let mut up: Vec<usize> = (0..work.len()).collect();
    fn root(up: &[usize], mut k: usize) -> usize {
        while up[k] != k {
            k = up[k];
        }
        k
    }
    for (k, i) in work.iter().enumerate() {
        for a in facts.kids(*i) {
            if let Some(j) = place.get(&a) {
                let (x, y) = (root(&up, *j), root(&up, k));
                up[x.max(y)] = x.min(y);
            }
        }
    }
    (0..work.len()).map(|k| work[root(&up, k)]).collect()
}

/// Numbers of rows may differ by a constant factor, as those of heads do.
fn rows_agree(facts: &Facts<'_>, work: &[usize]) -> Result<(), String> {
    let mut first = None;
    for i in work {
        let Some(rows) = facts.rows(*i) else { continue };
        let first = *first.get_or_insert(rows);
        let (a, b) = (first.size(), rows.size());
        let alike = a == b || a.div_evident(b).is_some() || b.div_evident(a).is_some();
        if !alike {
            return Err(format!("{a} and {b} rows"));
        }
    }
    Ok(())
}

/// Row values that are live at once, with the delay lines of stencils.
fn live_values(facts: &Facts<'_>, ops: &[usize]) -> f64 {
    let last_use: BTreeMap<usize, usize> =
        ops.iter().flat_map(|i| facts.kids(*i).map(|a| (a, *i))).collect();
    let full = |i: usize| {
        let lanes = facts.ty(i).dims.last().map_or(1.0, |d| facts.size(d.size()));
        lanes > 1.0 && !facts.summed[i] && !facts.param[i] && facts.ty(i).rank() > 1
    };
    let mut live: BTreeSet<usize> = BTreeSet::new();
    let (mut peak, mut lines) = (0usize, 0.0);
    for i in ops {
        live.extend(facts.kids(*i).chain([*i]).filter(|v| full(*v)));
        peak = peak.max(live.len());
        live.retain(|v| last_use.get(v).is_some_and(|u| u > i));
        let taps = taps(facts, *i);
        if taps > 0.0 {
            let sums = if facts.sums_rows(*i) { 3.0 * taps - 1.0 } else { 2.0 * taps - 1.0 };
            lines += sums;
        }
    }
    peak as f64 + lines / 2.0
}
