//! The rows of a trip: what they need, their values, their sums, then all stores.

use super::Refusal;
use super::emit::{Elements, Emitter, Key};
use super::index::Ix;
use super::ir::Reg;
use super::plan::{Piece, Section, To};
use super::walk::Walk;
use rustc_hash::FxHashSet;
use vlmc_ir::graph::Value;

/// What a team does alike for all its trips.
pub(crate) struct Trip {
    /// Accumulators, where the chunks are held.
    pub(crate) sums: Vec<Reg>,
}

/// A store that waits for the end of the trip.
#[derive(Clone)]
struct Pending {
    piece: usize,
    index: Vec<Ix>,
    elements: Elements,
    chunk: Ix,
    end: Ix,
}

impl Emitter<'_, '_> {
    pub(crate) fn fresh_sums(&mut self, s: &Section) -> Vec<Reg> {
        let mut out = vec![];
        if s.looped {
            return out;
        }
        for p in &s.pieces {
            if let To::Partial { taps, .. } = p.to {
                let before = self.deal(p.width);
                let chunks = self.piece_chunks(s, p).len() as i64;
                for _ in 0..chunks * taps * self.held(p) {
                    let zero = self.code.f32(0.0);
                    out.push(self.code.splat(zero));
                }
                self.deal_back(before);
            }
        }
        out
    }

    /// Loads and reductions below some elements, so that they can be computed.
    pub(crate) fn prepare(&mut self, keys: &[Key]) -> Result<(), Refusal> {
        let mut walk = Walk::default();
        for (v, at) in keys {
            self.walk((*v, at), &FxHashSet::default(), &mut walk)?;
        }
        self.ready(walk)
    }

    pub(crate) fn ready(&mut self, walk: Walk) -> Result<(), Refusal> {
        if !self.looped {
            for (v, at) in &walk.loads {
                self.value(*v, at)?;
            }
        }
        let deepest = walk.folds.iter().map(|f| f.2).max().map_or(0, |d| d + 1);
        for depth in 0..deepest {
            let level: Vec<(Value, Vec<Ix>)> =
                walk.folds.iter().filter(|f| f.2 == depth).map(|f| (f.0, f.1.clone())).collect();
            self.folds(&level)?;
        }
        Ok(())
    }

    /// The rows of a trip: what they need, their values, then all stores.
    pub(crate) fn trip(&mut self, s: &Section, trip: &mut Trip, strip: Reg) -> Result<(), Refusal> {
        let mut walk = Walk::default();
        self.walk_pieces(s, &FxHashSet::default(), &mut walk)?;
        for key in walk.fixed.clone() {
            self.value(key.0, &key.1)?;
        }
        self.ready(walk)?;
        if s.looped {
            return self.looped_pieces(s, strip);
        }
        let mut stores: Vec<Vec<Pending>> = vec![vec![]; s.unroll as usize];
        for row in 0..s.unroll {
            let mut at = 0;
            for (i, p) in s.pieces.iter().enumerate() {
                let before = self.deal(p.width);
                for (chunk, end) in self.piece_chunks(s, p) {
                    let index = self.piece_index(s, p, row, &chunk, &end)?;
                    match &p.to {
                        To::Output { .. } => {
                            let elements = self.value(p.value, &index)?;
                            let piece = i;
                            stores[row as usize].push(Pending {
                                piece,
                                index,
                                elements,
                                chunk,
                                end,
                            });
                        }
                        To::Partial { node, taps, .. } => {
                            let n = (*taps * self.held(p)) as usize;
                            let sums = self.accumulate(
                                *node,
                                *taps,
                                p,
                                &index,
                                row,
                                &trip.sums[at..at + n],
                            )?;
                            trip.sums.splice(at..at + n, sums);
                            at += n;
                        }
                    }
                }
                self.deal_back(before);
            }
        }
        for (row, stores) in stores.into_iter().enumerate() {
            if stores.is_empty() {
                continue;
            }
            let there = self.row_there(row as i64)?;
            self.code.begin();
            self.enter();
            for p in stores {
                let before = self.deal(s.pieces[p.piece].width);
                let piece = &s.pieces[p.piece];
                self.store(piece, &p.index, &p.elements, (&p.chunk, &p.end), Some(row as i64))?;
                self.deal_back(before);
            }
            self.leave();
            let then = self.code.end();
            self.code.if_(there, (then, vec![]), (vec![], vec![]));
        }
        Ok(())
    }

    /// Adds a row to the accumulators of a lane.
    pub(crate) fn accumulate(
        &mut self,
        node: Value,
        taps: i64,
        p: &Piece,
        index: &[Ix],
        row: i64,
        sums: &[Reg],
    ) -> Result<Vec<Reg>, Refusal> {
        let there = self.row_there(row)?;
        let zero = self.code.f32(0.0);
        let x = self.value(p.value, index)?;
        let pick = |i: usize, e: &Elements| e[i.min(e.len() - 1)];
        let v = self.held(p) as usize;
        let mut out = sums.to_vec();
        if !self.is_weight_grad(node) {
            for (e, sum) in out.iter_mut().enumerate().take(v) {
                let x = self.code.select(there, pick(e, &x), zero);
                *sum = self.code.add(*sum, x);
            }
            return Ok(out);
        }
        // Summed at the row of `x`: the rows after it are those of the window, and what lies past
        // the strip is made again there, so that no row is special.
        let operands = &self.body.f.node(node.node).operands;
        let (dy, valid) = (operands[1], self.inside(node, row, 0)?);
        let x: Vec<Reg> = (0..v).map(|e| self.code.select(valid, pick(e, &x), zero)).collect();
        for m in 0..taps {
            let mut at = index.to_vec();
            at[0] = at[0].add(m);
            let d = self.value(dy, &at)?;
            let d = self.same_document(node, row, m, &d, 0.0)?;
            let tap = (taps - 1 - m) as usize;
            for (e, x) in x.iter().enumerate() {
                let sum = &mut out[tap * v + e];
                *sum = self.code.fma(*x, pick(e, &d), *sum);
            }
        }
        Ok(out)
    }

    /// Outputs of a row whose chunks are a loop, and sums over rows kept in memory.
    pub(crate) fn looped_pieces(&mut self, s: &Section, strip: Reg) -> Result<(), Refusal> {
        for row in 0..s.unroll {
            for p in &s.pieces {
                let dealt = self.deal(p.width);
                let there = self.row_there(row)?;
                let (lo, hi) = (self.code.i32(0), self.code.i32(p.width));
                let (var, _) = self.code.open_for(&[]);
                self.enter_chunks();
                let before = self.chunk.replace(var);
                for (chunk, end) in self.piece_chunks(s, p) {
                    let index = self.piece_index(s, p, row, &chunk, &end)?;
                    match &p.to {
                        To::Output { .. } => {
                            let e = self.value(p.value, &index)?;
                            self.code.begin();
                            self.enter();
                            self.store(p, &index, &e, (&chunk, &end), Some(row))?;
                            self.leave();
                            let then = self.code.end();
                            self.code.if_(there, (then, vec![]), (vec![], vec![]));
                        }
                        To::Partial { node, taps, scratch } => {
                            let sums =
                                self.load_sums(s, p, *scratch, *taps, strip, (&chunk, &end), row)?;
                            let sums = self.accumulate(*node, *taps, p, &index, row, &sums)?;
                            self.code.begin();
                            self.enter();
                            self.put_sums(s, p, *scratch, *taps, strip, (&chunk, &end), &sums)?;
                            self.leave();
                            let then = self.code.end();
                            self.code.if_(there, (then, vec![]), (vec![], vec![]));
                        }
                    }
                }
                self.chunk = before;
                self.leave();
                let step = self.span;
                self.code.close_for((lo, hi, step), var, vec![], vec![], vec![]);
                self.deal_back(dealt);
            }
        }
        Ok(())
    }
}
