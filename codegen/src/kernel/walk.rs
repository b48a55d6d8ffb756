//! What a set of elements needs before it can be computed: reductions, loads, windows of rows.

use super::Refusal;
use super::body::{At, Step};
use super::emit::{Emitter, Key};
use super::index::{Ix, Var};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use vlmc_ir::graph::Value;
use vlmc_ir::ops::Op;

/// A value in a window: its index with the rows counted from `Row`.
pub(crate) type Line = (Value, Vec<Ix>);

/// Windows, and the first and last row of each.
pub(crate) type Windows = Vec<(Line, (i64, i64))>;

/// What was found.
#[derive(Default)]
pub(crate) struct Walk {
    /// Reductions of lanes: those that others need come first.
    pub(crate) folds: Vec<(Value, Vec<Ix>, usize)>,
    /// How deep the reductions below each element are.
    depth: std::collections::HashMap<Key, usize>,
    /// Rows at which each operand of a stencil is asked for.
    pub(crate) lines: BTreeMap<Line, (i64, i64)>,
    /// Loads that depend on the row, in order.
    pub(crate) loads: Vec<Key>,
    /// Elements that do not depend on the row.
    pub(crate) fixed: Vec<Key>,
    /// First and last row that documents are asked about.
    pub(crate) reach: Option<(i64, i64)>,
    /// Boundary inputs of documents.
    pub(crate) documents: Option<(Value, Value)>,
    /// Below a choice by index: what is not chosen may not be there, and is loaded with care, where
    /// it is asked for.
    guarded: usize,
}

/// The line of an element, and its row.
pub(crate) fn line(v: Value, index: &[Ix]) -> Option<(Line, i64)> {
    let row = index.first()?.as_row()?;
    let mut at = index.to_vec();
    at[0] = Ix::var(Var::Row);
    Some(((v, at), row))
}

/// The element of a line at a row.
pub(crate) fn on(line: &Line, row: i64) -> Key {
    let mut at = line.1.clone();
    at[0] = at[0].add(row);
    (line.0, at)
}

impl Walk {
    pub(crate) fn reaches(&mut self, lo: i64, hi: i64) {
        let (a, b) = self.reach.unwrap_or((lo, hi));
        self.reach = Some((a.min(lo), b.max(hi)));
    }
}

impl Emitter<'_, '_> {
    /// Walks down from an element. `chunks` gives the lane coordinates of a reduction of so many
    /// elements; carried elements of lines are known and not walked.
    pub(crate) fn walk(
        &mut self,
        (v, index): (Value, &[Ix]),
        carried: &FxHashSet<Key>,
        out: &mut Walk,
    ) -> Result<usize, Refusal> {
        let key: Key = (v, index.to_vec());
        if let Some(d) = out.depth.get(&key) {
            return Ok(*d);
        }
        if self.known(&key).is_some() || carried.contains(&key) {
            return Ok(0);
        }
        if !self.body.has_rows(v) && !index.iter().any(|i| i.has_row() || i.has_chunk()) {
            if out.guarded == 0 {
                out.depth.insert(key.clone(), 0);
                out.fixed.push(key);
            }
            return Ok(0);
        }
        let mut depth = 0;
        match self.body.step(v, index)? {
            Step::Same(at) => depth = self.walk((at.0, &at.1), carried, out)?,
            Step::Within { then: at, .. } => {
                out.guarded += 1;
                depth = self.walk((at.0, &at.1), carried, out)?;
                out.guarded -= 1;
            }
            Step::Map(ats) => depth = self.walk_all(&ats, carried, out)?,
            Step::Parts { parts, .. } => {
                let ats: Vec<At> = parts.into_iter().map(|(_, at)| at).collect();
                out.guarded += 1;
                depth = self.walk_all(&ats, carried, out)?;
                out.guarded -= 1;
            }
            // Known as walked only where it is loaded: it may be asked for without a guard, too.
            Step::Input { .. } if out.guarded > 0 => return Ok(0),
            Step::Input { .. } => out.loads.push(key.clone()),
            Step::Fold { of, kept, axes } => {
                if kept.iter().any(Ix::varies) {
                    let n = self.body.folded(of, &axes)?;
                    for j in 0..n.min(64) {
                        let at = self.body.unfold(of, &kept, &axes, Ix::constant(j))?;
                        depth = depth.max(self.walk((of, &at), carried, out)?);
                    }
                } else {
                    for at in self.fold_elements(of, &kept, &axes)? {
                        depth = depth.max(self.walk((of, &at), carried, out)?);
                    }
                    if out.guarded > 0 && kept.iter().any(Ix::has_group) {
                        return Err(self.body.refuse(v, "a reduction below a choice by index"));
                    }
                    if !out.folds.iter().any(|f| f.0 == v && f.1 == index) {
                        out.folds.push((v, index.to_vec(), depth));
                    }
                    depth += 1;
                }
            }
            Step::Stencil { x, index: at, taps } => {
                if let Some(row) = at[0].as_row() {
                    let node = self.body.f.node(v.node);
                    out.documents = Some((node.operands[2], node.operands[3]));
                    for (by, w) in taps {
                        out.reaches(row.min(row + by), row.max(row + by));
                        depth = depth.max(self.walk((w.0, &w.1), carried, out)?);
                        let mut at = at.clone();
                        at[0] = at[0].add(by);
                        depth = depth.max(self.on_line(x, &at, carried, out)?);
                    }
                }
            }
            Step::Shift { x, by, .. } => {
                let node = self.body.f.node(v.node);
                out.documents = Some((node.operands[1], node.operands[2]));
                if let Some(row) = x.1[0].as_row() {
                    out.reaches(row.min(row - by), row.max(row - by));
                }
                depth = self.on_line(x.0, &x.1, carried, out)?;
            }
            Step::Valid { row } => {
                let node = self.body.f.node(v.node);
                out.documents = Some((node.operands[0], node.operands[1]));
                if let Some(row) = row.as_row() {
                    out.reaches(row, row);
                }
            }
            Step::Constant(_) | Step::Index(_) | Step::RowSum => {}
        }
        if out.guarded == 0 {
            out.depth.insert(key, depth);
        }
        Ok(depth)
    }

    /// An operand of a stencil.
    pub(crate) fn on_line(
        &mut self,
        v: Value,
        index: &[Ix],
        carried: &FxHashSet<Key>,
        out: &mut Walk,
    ) -> Result<usize, Refusal> {
        // Views of a value are the same window.
        if let Some((line, row)) = line(v, index) {
            let range = out.lines.entry(line).or_insert((row, row));
            *range = (range.0.min(row), range.1.max(row));
        }
        self.walk((v, index), carried, out)
    }

    fn walk_all(
        &mut self,
        ats: &[At],
        carried: &FxHashSet<Key>,
        out: &mut Walk,
    ) -> Result<usize, Refusal> {
        let mut depth = 0;
        for at in ats {
            depth = depth.max(self.walk((at.0, &at.1), carried, out)?);
        }
        Ok(depth)
    }

    /// The elements of a lane that a reduction goes over, chunk by chunk.
    pub(crate) fn fold_elements(
        &mut self,
        of: Value,
        kept: &[Ix],
        axes: &[usize],
    ) -> Result<Vec<Vec<Ix>>, Refusal> {
        let n = self.body.folded(of, axes)?;
        let before = self.deal(n);
        let chunks = self.chunks(n).into_iter();
        let elements = chunks.map(|c| {
            let j = self.lane_at(c, Ix::constant(n));
            self.body.unfold(of, kept, axes, j)
        });
        let elements = elements.collect();
        self.deal_back(before);
        elements
    }

    /// The first elements of the chunks of `n` elements: one that stands for all where they are a
    /// loop.
    pub(crate) fn chunks(&self, n: i64) -> Vec<Ix> {
        if self.looped {
            return vec![Ix::var(Var::Chunk(n))];
        }
        (0..n).step_by(self.span as usize).map(Ix::constant).collect()
    }

    /// The operand and axes of a reduction.
    pub(crate) fn fold_parts(&self, v: Value) -> Option<(Value, Vec<usize>)> {
        match self.body.op(v) {
            Op::ReduceSum { axes } | Op::ReduceMax { axes } => {
                let of = self.body.f.node(v.node).operands[0];
                Some((of, axes.iter().map(|a| *a as usize).collect()))
            }
            _ => None,
        }
    }
}
