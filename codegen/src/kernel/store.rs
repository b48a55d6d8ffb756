//! Stores of outputs, and sums over rows that are kept in memory.

use super::Refusal;
use super::body::Offset;
use super::emit::{Argument, Elements, Emitter};
use super::index::{Ix, Var};
use super::ir::{Binary, Cmp, Reg, Ty};
use super::plan::{Piece, Section, To, forward};
use vlmc_ir::ty::DType;

impl Emitter<'_, '_> {
    /// Stores the elements of a lane to their place in an output.
    pub(crate) fn store(
        &mut self,
        p: &Piece,
        index: &[Ix],
        e: &Elements,
        (chunk, end): (&Ix, &Ix),
        row: Option<i64>,
    ) -> Result<(), Refusal> {
        let To::Output { output, value, path } = &p.to else { return Ok(()) };
        let at = forward(self.body, path, index.to_vec())?;
        let dims = self.body.dims(*value);
        let (from, row) = match (at.first().and_then(Ix::as_row), row) {
            (Some(_), Some(_)) => {
                let r = self.index(&at[0], 0)?;
                (1, Some(r))
            }
            _ => (0, None),
        };
        let rest = self.body.flatten(*value, &at[from..], &dims[from..])?;
        let stride = self.body.extent(*value, &dims[from..])?;
        let offset = Offset { row: row.map(|_| (at[0].clone(), stride)), rest };
        let mask = self.storing(p, (chunk, end))?;
        let dtype = self.body.dtype(*value);
        self.put((Argument::Output(*output as u32), dtype), &offset, row, e, mask)
    }

    /// Stores neighbours together where the address allows it.
    pub(crate) fn put(
        &mut self,
        what: (Argument, DType),
        offset: &Offset,
        row: Option<Reg>,
        e: &Elements,
        mask: Option<Reg>,
    ) -> Result<(), Refusal> {
        let v = self.vector;
        let pick = |i: i64| e[(i as usize).min(e.len() - 1)];
        if offset.rest.lane_stride() == Some(1) {
            let mut place = self.place(what, offset, (0, v), row)?;
            place.dense = v == 1;
            let size = super::plan::bytes(what.1);
            if place.align == (v * size) as u64 {
                let most = (16 / size).max(1);
                for from in (0..v).step_by(most as usize) {
                    let n = most.min(v - from);
                    let part = super::ir::Place {
                        constant: place.constant + from,
                        count: n as usize,
                        align: ((n * size) as u64).min(16),
                        ..place.clone()
                    };
                    let values = (from..from + n).map(pick).map(|r| self.code.splat(r)).collect();
                    self.code.store(values, part, mask);
                }
                return Ok(());
            }
        }
        let count = if offset.rest.varies() { v } else { 1 };
        for i in 0..count {
            let place = self.place(what, offset, (i, 1), row)?;
            let value = if offset.rest.varies() { self.code.splat(pick(i)) } else { pick(i) };
            self.code.store(vec![value], place, mask);
        }
        Ok(())
    }

    pub(crate) fn sum_offset(
        &mut self,
        s: &Section,
        p: &Piece,
        taps: i64,
        tap: i64,
        at: (&Ix, &Ix),
    ) -> Offset {
        let rest = self.flat_index(s, p, at).times(taps).add(tap);
        Offset { row: Some((Ix::var(Var::Row), p.total * taps)), rest }
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn load_sums(
        &mut self,
        s: &Section,
        p: &Piece,
        scratch: usize,
        taps: i64,
        strip: Reg,
        at: (&Ix, &Ix),
        row: i64,
    ) -> Result<Vec<Reg>, Refusal> {
        let mut out = vec![];
        let zero = self.code.i32(0);
        let first = {
            let start = self.row.ok_or_else(|| Refusal::new("a row where there is none"))?;
            let rows = self.code.i32(s.strip);
            let r = self.code.binary(Binary::Remainder, start, rows);
            let same = self.code.compare(Cmp::Eq, r, zero);
            if row == 0 { same } else { self.code.whole(0, Ty::Bool) }
        };
        for tap in 0..taps {
            let offset = self.sum_offset(s, p, taps, tap, at);
            let e =
                self.elements(Argument::Scratch(scratch as u32), DType::F32, &offset, Some(strip))?;
            for r in e.iter() {
                let zero = self.code.f32(0.0);
                out.push(self.code.select(first, zero, *r));
            }
        }
        Ok(out)
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn put_sums(
        &mut self,
        s: &Section,
        p: &Piece,
        scratch: usize,
        taps: i64,
        strip: Reg,
        at: (&Ix, &Ix),
        sums: &[Reg],
    ) -> Result<(), Refusal> {
        let mask = self.storing(p, at)?;
        let v = self.held(p) as usize;
        for tap in 0..taps {
            let offset = self.sum_offset(s, p, taps, tap, at);
            let e: Elements = sums[tap as usize * v..(tap as usize + 1) * v].into();
            self.put(
                (Argument::Scratch(scratch as u32), DType::F32),
                &offset,
                Some(strip),
                &e,
                mask,
            )?;
        }
        Ok(())
    }
}
