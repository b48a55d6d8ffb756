//! Where the elements of a piece stand, and what a trip asks for.

use super::Refusal;
use super::emit::{Emitter, Key};
use super::index::{Ix, Var};
use super::ir::{Cmp, Reg};
use super::plan::{Piece, Section, To};
use super::walk::Walk;
use rustc_hash::FxHashSet;
use vlmc_ir::graph::Value;
use vlmc_ir::ops::Op;

impl Emitter<'_, '_> {
    /// The chunks of a piece, and the elements of the group.
    pub(crate) fn piece_chunks(&self, s: &Section, p: &Piece) -> Vec<(Ix, Ix)> {
        let end = if p.width * s.groups == p.total || s.groups == 1 && p.width == p.total {
            Ix::constant(p.width)
        } else {
            // The last group has fewer.
            Ix::constant(p.total).plus(&Ix::var(Var::Group(s.groups)).times(-p.width))
        };
        self.chunks(p.width).into_iter().map(|c| (c, end.clone())).collect()
    }

    pub(crate) fn piece_index(
        &mut self,
        s: &Section,
        p: &Piece,
        row: i64,
        chunk: &Ix,
        end: &Ix,
    ) -> Result<Vec<Ix>, Refusal> {
        let flat = self.flat_index(s, p, (chunk, end));
        let dims = self.body.dims(p.value);
        if !p.rows {
            return self.body.unflatten(p.value, flat, dims);
        }
        let mut at = vec![Ix::var(Var::Row).add(row)];
        at.extend(self.body.unflatten(p.value, flat, dims.get(1..).unwrap_or_default())?);
        Ok(at)
    }

    /// The element of a row that a lane's first element of a chunk is.
    pub(crate) fn flat_index(&mut self, s: &Section, p: &Piece, (chunk, end): (&Ix, &Ix)) -> Ix {
        let group = if s.groups > 1 {
            Ix::var(Var::Group(s.groups)).times(p.width)
        } else {
            Ix::constant(0)
        };
        if p.width == 1 {
            return group;
        }
        let lane = self.lane_at(chunk.clone(), end.clone());
        group.plus(&lane)
    }

    /// The lanes that store: the first one alone where a group has one element.
    pub(crate) fn storing(
        &mut self,
        p: &Piece,
        (chunk, end): (&Ix, &Ix),
    ) -> Result<Option<Reg>, Refusal> {
        if p.width == 1 {
            let (lane, zero) = (self.lane_base(), self.code.i32(0));
            return Ok(Some(self.code.compare(Cmp::Eq, lane, zero)));
        }
        self.mask(chunk, end)
    }

    /// Accumulators of a lane in a chunk.
    pub(crate) fn held(&self, p: &Piece) -> i64 {
        if p.width == 1 { 1 } else { self.vector }
    }

    /// The elements of a trip.
    pub(crate) fn walk_pieces(
        &mut self,
        s: &Section,
        carried: &FxHashSet<Key>,
        out: &mut Walk,
    ) -> Result<(), Refusal> {
        for row in 0..s.unroll {
            for p in &s.pieces {
                let before = self.deal(p.width);
                for (chunk, end) in self.piece_chunks(s, p) {
                    let at = self.piece_index(s, p, row, &chunk, &end)?;
                    match &p.to {
                        To::Partial { node, taps, .. }
                            if *taps > 1 || self.is_weight_grad(*node) =>
                        {
                            let n = self.body.f.node(node.node);
                            out.documents = Some((n.operands[2], n.operands[3]));
                            self.on_line(p.value, &at, carried, out)?;
                            for m in 0..*taps {
                                let mut dy = at.clone();
                                dy[0] = dy[0].add(m);
                                out.reaches(row, row + m);
                                self.on_line(n.operands[1], &dy, carried, out)?;
                            }
                        }
                        _ => {
                            self.walk((p.value, &at), carried, out)?;
                        }
                    }
                }
                self.deal_back(before);
            }
        }
        Ok(())
    }

    pub(crate) fn is_weight_grad(&self, node: Value) -> bool {
        matches!(self.body.op(node), Op::CausalConv1dWeightGrad { .. })
    }
}
