//! Rows among documents, and sums over rows from their partial sums.

use super::Refusal;
use super::body::{Offset, fixed};
use super::emit::{Argument, Bits, Elements, Emitter};
use super::index::{Ix, Var};
use super::ir::{Binary, Cmp, Reg, Ty, Unary};
use super::math::register;
use vlmc_ir::graph::Value;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;

impl Emitter<'_, '_> {
    /// Whether rows `lo..=hi` are valid rows of one document.
    pub(crate) fn one_document(&mut self, lo: i64, hi: i64) -> Option<Reg> {
        let bits = self.bits?;
        let mask = |from: i64| {
            ((from + self.back)..=(hi + self.back)).fold(0u64, |m, i| m | 1 << i.clamp(0, 63))
                as i64
        };
        let (all, inner) = (mask(lo), mask(lo + 1));
        let (all, inner, zero) = (
            self.code.whole(all, Ty::I64),
            self.code.whole(inner, Ty::I64),
            self.code.whole(0, Ty::I64),
        );
        let valid = self.code.binary(Binary::And, bits.valid, all);
        let valid = self.code.compare(Cmp::Eq, valid, all);
        let starts = self.code.binary(Binary::And, bits.starts, inner);
        let none = self.code.compare(Cmp::Eq, starts, zero);
        Some(self.code.binary(Binary::And, valid, none))
    }

    /// The bit of a word for row `Row + row`.
    pub(crate) fn bit(&mut self, word: Reg, from: i64, to: i64) -> Reg {
        let mask =
            ((from + self.back)..=(to + self.back)).fold(0u64, |m, i| m | 1 << i.clamp(0, 63));
        let (mask, zero) = (self.code.whole(mask as i64, Ty::I64), self.code.whole(0, Ty::I64));
        let bits = self.code.binary(Binary::And, word, mask);
        self.code.compare(Cmp::Ne, bits, zero)
    }

    pub(crate) fn words(&self, v: Value) -> Result<Bits, Refusal> {
        self.bits.ok_or_else(|| self.body.refuse(v, "documents where there are none"))
    }

    pub(crate) fn valid(&mut self, v: Value, row: i64) -> Result<Reg, Refusal> {
        if self.clean {
            return Ok(self.code.whole(1, Ty::Bool));
        }
        let word = self.words(v)?.valid;
        Ok(self.bit(word, row, row))
    }

    /// The elements where row `row + by` lies in the document of row `row`, both valid; else a
    /// number. The values are selected, not multiplied, so that nothing of another document is left
    /// of them, not even what is no number.
    pub(crate) fn same_document(
        &mut self,
        v: Value,
        row: i64,
        by: i64,
        x: &Elements,
        fill: f64,
    ) -> Result<Elements, Refusal> {
        if self.clean {
            return Ok(x.clone());
        }
        let c = self.inside(v, row, by)?;
        let ty = register(self.body.dtype(v));
        let fill = self.code.constant(fill, ty);
        Ok(x.iter().map(|x| self.code.select(c, *x, fill)).collect())
    }

    /// Whether rows `row` and `row + by` are valid rows of one document.
    pub(crate) fn inside(&mut self, v: Value, row: i64, by: i64) -> Result<Reg, Refusal> {
        if self.clean {
            return Ok(self.code.whole(1, Ty::Bool));
        }
        let words = self.words(v)?;
        // The later of two rows in one run of rows without a start is valid only if the earlier is.
        let (lo, hi) = (row.min(row + by), row.max(row + by));
        let valid = self.bit(words.valid, hi, hi);
        if by == 0 {
            return Ok(valid);
        }
        let started = self.bit(words.starts, lo + 1, hi);
        let together = self.code.unary(Unary::Not, started);
        Ok(self.code.binary(Binary::And, valid, together))
    }

    /// A sum over rows from its partial sums, for the elements of a lane.
    pub(crate) fn row_sum(&mut self, v: Value, index: &[Ix]) -> Result<Elements, Refusal> {
        let (scratch, p) = self
            .partials
            .iter()
            .enumerate()
            .find(|(_, p)| p.node == v)
            .map(|(i, p)| (i, p.clone()))
            .ok_or_else(|| self.body.refuse(v, "has no partial sums"))?;
        let node = self.body.f.node(v.node);
        let base = self.loops.len() as u32;
        let (offset, inner) = match &node.op {
            Op::CausalConv1dWeightGrad { taps, .. } => {
                (index[0].times(fixed(taps).unwrap_or(1)).plus(&index[1]), 1)
            }
            Op::ReduceSum { axes } => {
                let of = node.operands[0];
                let dropped: Vec<usize> =
                    axes.iter().filter(|a| **a > 0).map(|a| *a as usize).collect();
                let n = self.body.folded(of, &dropped)?;
                let j = if n == 1 { Ix::constant(0) } else { Ix::var(Var::Loop(base + 1, n)) };
                let mut kept = vec![Ix::constant(0)];
                kept.extend_from_slice(index);
                let at = self.body.unfold(of, &kept, &dropped, j)?;
                (self.body.flatten(of, &at[1..], &self.body.dims(of)[1..])?, n)
            }
            _ => return Err(self.body.refuse(v, "no sum over rows")),
        };
        let strips = {
            let rows = self.size(&p.rows)?;
            let (more, per) = (self.code.i32(p.per - 1), self.code.i32(p.per));
            let up = self.code.add(rows, more);
            self.code.binary(Binary::Quotient, up, per)
        };
        let total = {
            let n = self.code.i32(inner);
            self.code.mul(strips, n)
        };
        // Each team adds a run of the partial sums, in order; then the runs are added in order.
        let (lo, hi) = {
            let (more, teams) = (self.code.i32(self.teams - 1), self.code.i32(self.teams));
            let up = self.code.add(total, more);
            let per = self.code.binary(Binary::Quotient, up, teams);
            let team = match self.team {
                Some(t) => t,
                None => self.code.i32(0),
            };
            let lo = self.code.mul(team, per);
            let end = self.code.add(lo, per);
            (lo, self.code.binary(Binary::Min, end, total))
        };
        let n = if offset.varies() { self.vector } else { 1 };
        let zero = self.code.f32(0.0);
        let zero = if offset.varies() { self.code.splat(zero) } else { zero };
        let init = vec![zero; n as usize];
        const FLIGHT: i64 = 4;
        let (var, carried) = self.code.open_for(&init);
        self.enter();
        let mut loads = vec![];
        for f in 0..FLIGHT {
            let q = self.offset(var, f);
            let there = self.code.compare(Cmp::Lt, q, hi);
            let one = self.code.i32(1);
            let last = self.code.binary(Binary::Sub, total, one);
            let q = self.code.binary(Binary::Min, q, last);
            let (strip, j) = if inner == 1 {
                (q, q)
            } else {
                let count = self.code.i32(inner);
                (
                    self.code.binary(Binary::Quotient, q, count),
                    self.code.binary(Binary::Remainder, q, count),
                )
            };
            self.loops.extend([strip, j]);
            self.enter();
            let at = Offset { row: Some((Ix::var(Var::Row), p.elements)), rest: offset.clone() };
            let regs =
                self.elements(Argument::Scratch(scratch as u32), DType::F32, &at, Some(strip));
            self.leave();
            self.loops.truncate(base as usize);
            loads.push((regs?, there));
        }
        let mut sums = carried.clone();
        for (regs, there) in loads {
            for (s, r) in sums.iter_mut().zip(regs.iter()) {
                let zero = self.code.f32(0.0);
                let r = self.code.select(there, *r, zero);
                *s = self.code.add(*s, r);
            }
        }
        self.leave();
        let sums = self.code.close_for((lo, hi, FLIGHT), var, carried, init, sums);
        let sums = if self.teams > 1 { self.code.teams(sums) } else { sums };
        Ok(sums.into())
    }
}
