//! Places in buffers, and loads from them.

use super::Refusal;
use super::body::Offset;
use super::emit::{Argument, Elements, Emitter};
use super::index::{Ix, gcd};
use super::ir::{Binary, Place, Reg, Ty, Unary};
use super::math::register;
use super::plan::bytes;
use vlmc_ir::graph::Value;
use vlmc_ir::ty::DType;

impl Emitter<'_, '_> {
    /// The place of elements `from..from + count` of a lane.
    pub(crate) fn place(
        &mut self,
        (argument, dtype): (Argument, DType),
        offset: &Offset,
        (from, count): (i64, i64),
        row: Option<Reg>,
    ) -> Result<Place, Refusal> {
        let buffer = self.buffer(argument, dtype);
        let (mut uniform, mut lane) = (Ix::constant(0), Ix::constant(0));
        for (v, c) in &offset.rest.terms {
            let term = Ix { terms: vec![(v.clone(), *c)], k: 0 };
            if term.varies() { lane = lane.plus(&term) } else { uniform = uniform.plus(&term) }
        }
        let mut align = offset.rest.divisor(self.vector);
        let mut base: Option<Reg> = None;
        if let (Some((_, stride)), Some(row)) = (&offset.row, row) {
            align = gcd(align, *stride);
            let (wide, stride) =
                (self.code.unary(Unary::ToI64, row), self.code.whole(*stride, Ty::I64));
            base = Some(self.code.mul(wide, stride));
        }
        if !uniform.terms.is_empty() {
            let r = self.index(&uniform, 0)?;
            let r = self.code.unary(Unary::ToI64, r);
            base = Some(match base {
                Some(b) => self.code.add(b, r),
                None => r,
            });
        }
        align = gcd(align, from);
        let align = if align == 0 { count } else { gcd(align, count) };
        let dense = lane.lane_stride() == Some(1) && self.vector == 1 && !lane.has_tail();
        let lane = if lane.terms.is_empty() { None } else { Some(self.index(&lane, from)?) };
        // `index` has added the element of the lane; a stride of 1 is told by the constant.
        Ok(Place {
            buffer,
            dtype,
            uniform: base,
            lane,
            constant: offset.rest.k,
            count: count as usize,
            align: (align * bytes(dtype)) as u64,
            dense,
        })
    }

    pub(crate) fn input(
        &mut self,
        v: Value,
        input: u32,
        offset: &Offset,
    ) -> Result<Elements, Refusal> {
        let dtype = self.body.dtype(v);
        let what = (Argument::Input(input), dtype);
        let row = match &offset.row {
            Some((ix, _)) => Some(match ix.as_row() {
                Some(k) => self.clamped(k)?,
                None => self.index(ix, 0)?,
            }),
            None => None,
        };
        if self.guarded > 0 {
            return self.guarded_load(v, what, offset, row);
        }
        self.elements(what.0, dtype, offset, row)
    }

    /// The elements of a lane at an offset: one load where they are neighbours.
    pub(crate) fn elements(
        &mut self,
        argument: Argument,
        dtype: DType,
        offset: &Offset,
        row: Option<Reg>,
    ) -> Result<Elements, Refusal> {
        let (what, ty) = ((argument, dtype), register(dtype));
        if !offset.rest.varies() {
            let place = self.place(what, offset, (0, 1), row)?;
            return Ok(self.code.load(place, ty).into());
        }
        if offset.rest.lane_stride() == Some(1) {
            let place = self.place(what, offset, (0, self.vector), row)?;
            if place.align == (self.vector * bytes(dtype)) as u64 {
                return Ok(self.wide(place, ty).into());
            }
        }
        let mut out = vec![];
        for e in 0..self.vector {
            let place = self.place(what, offset, (e, 1), row)?;
            out.extend(self.code.load(place, ty));
        }
        Ok(out.into())
    }

    /// Loads of at most 16 bytes.
    pub(crate) fn wide(&mut self, place: Place, ty: Ty) -> Vec<Reg> {
        let most = (16 / bytes(place.dtype)).max(1) as usize;
        if place.count <= most {
            return self.code.load(place, ty);
        }
        let mut out = vec![];
        for from in (0..place.count).step_by(most) {
            let part = Place {
                constant: place.constant + from as i64,
                count: most,
                align: 16,
                ..place.clone()
            };
            out.extend(self.code.load(part, ty));
        }
        out
    }

    /// Elements one by one, each put into the row or tensor that there is.
    pub(crate) fn guarded_load(
        &mut self,
        v: Value,
        what: (Argument, DType),
        offset: &Offset,
        row: Option<Reg>,
    ) -> Result<Elements, Refusal> {
        let dims = self.body.dims(v);
        let last = match &offset.row {
            Some((_, stride)) => self.code.i32(stride - 1),
            None => {
                let total = vlmc_ir::dim::product(dims);
                let total = self.size(&total)?;
                let one = self.code.i32(1);
                self.code.binary(Binary::Sub, total, one)
            }
        };
        let count = if offset.rest.varies() { self.vector } else { 1 };
        let zero = self.code.i32(0);
        let mut out = vec![];
        for e in 0..count {
            let r = self.index(&offset.rest, e)?;
            let r = self.code.binary(Binary::Min, r, last);
            let r = self.code.binary(Binary::Max, r, zero);
            let none = Offset { row: offset.row.clone(), rest: Ix::constant(0) };
            let mut place = self.place(what, &none, (0, 1), row)?;
            place.align = bytes(what.1) as u64;
            place.dense = false;
            if self.code.varies(r) {
                place.lane = Some(r);
            } else {
                let r = self.code.unary(Unary::ToI64, r);
                place.uniform = Some(match place.uniform {
                    Some(u) => self.code.add(u, r),
                    None => r,
                });
            }
            out.extend(self.code.load(place, register(what.1)));
        }
        Ok(out.into())
    }
}
