//! Elements of values as kernel IR.
//!
//! A value is computed where it is asked for, one step back at a time ([`Body::step`]), and kept
//! under its value and index, so that whatever asks for the same element again gets the same
//! register. Views cost nothing, loads of neighbours are one load, and an element that two outputs
//! need is computed once.

use super::Refusal;
use super::body::{At, Body, Offset, Step, fixed};
use super::code::Code;
use super::index::{Ix, Var};
use super::ir::{Binary, Cmp, Fold, Place, Reg, Special, Ty, Unary};
use super::math::{apply, register};
use super::plan::{Partial, bytes};
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;
use vlmc_ir::dim::{Poly, Symbol};
use vlmc_ir::graph::Value;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;

/// What a buffer of a launch is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Argument {
    /// An input of the cluster.
    Input(u32),
    /// An output of the cluster.
    Output(u32),
    /// A buffer between the launches of the module.
    Scratch(u32),
}

/// The elements of a lane: one for each, or a single one that is the same for all.
pub(crate) type Elements = Rc<[Reg]>;

/// A key of what has been computed.
pub(crate) type Key = (Value, Vec<Ix>);

/// Where lanes stand in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lanes {
    /// First element of the chunk.
    chunk: Ix,
    /// Elements that there are, counted from the start of the group.
    end: Ix,
    /// Elements of a lane.
    vector: i64,
}

/// What is known inside one block of code.
#[derive(Default)]
struct Scope {
    /// Rows, or chunks, mean others from here on.
    rows: bool,
    chunks: bool,
    values: FxHashMap<Key, Elements>,
    indices: FxHashMap<(Ix, i64, bool), Reg>,
}

/// Bits of the rows of a trip.
#[derive(Clone, Copy)]
pub(crate) struct Bits {
    pub(crate) starts: Reg,
    pub(crate) valid: Reg,
}

/// Emits one launch.
pub(crate) struct Emitter<'b, 'f> {
    pub(crate) body: &'b Body<'f>,
    pub(crate) code: Code,
    pub(crate) buffers: Vec<(Argument, DType)>,
    pub(crate) symbols: &'b [Symbol],
    pub(crate) partials: &'b [Partial],
    pub(crate) stored: &'b FxHashSet<Value>,
    /// Elements a lane, and those of all lanes of a team, for what is computed at present.
    pub(crate) vector: i64,
    pub(crate) span: i64,
    /// Elements a lane at most, and lanes of a team.
    pub(crate) most: i64,
    pub(crate) team_lanes: i64,
    pub(crate) teams: i64,
    /// Coordinates.
    pub(crate) row: Option<Reg>,
    pub(crate) rows: Poly,
    pub(crate) group: Option<Reg>,
    pub(crate) chunk: Option<Reg>,
    pub(crate) lane: Option<Reg>,
    pub(crate) team: Option<Reg>,
    loops: Vec<Reg>,
    lanes: Vec<Lanes>,
    scopes: Vec<Scope>,
    /// Documents: rows that the bits begin before the first row of the trip.
    pub(crate) back: i64,
    pub(crate) bits: Option<Bits>,
    /// Whether rows in the middle of a document have code of their own.
    pub(crate) splits: bool,
    /// The rows at hand are valid rows of one document.
    pub(crate) clean: bool,
    /// Whether the chunks of a group are a loop.
    pub(crate) looped: bool,
    /// Loads may be asked for elements that are not there, whose values are not used.
    guarded: usize,
}

impl<'b, 'f> Emitter<'b, 'f> {
    pub(crate) fn new(
        body: &'b Body<'f>,
        symbols: &'b [Symbol],
        partials: &'b [Partial],
        stored: &'b FxHashSet<Value>,
    ) -> Self {
        Emitter {
            body,
            code: Code::new(),
            buffers: vec![],
            symbols,
            partials,
            stored,
            vector: 1,
            span: 1,
            most: 1,
            team_lanes: 1,
            teams: 1,
            row: None,
            rows: Poly::constant(1),
            group: None,
            chunk: None,
            lane: None,
            team: None,
            loops: vec![],
            lanes: vec![],
            scopes: vec![Scope::default()],
            back: 0,
            bits: None,
            splits: false,
            clean: false,
            looped: false,
            guarded: 0,
        }
    }

    /// Starts a block of code; what is computed in it is known in it alone.
    pub(crate) fn enter(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Starts a block whose rows are others than those before it.
    pub(crate) fn enter_rows(&mut self) {
        self.scopes.push(Scope { rows: true, ..Scope::default() });
    }

    /// Starts a block whose chunk is another.
    pub(crate) fn enter_chunks(&mut self) {
        self.scopes.push(Scope { chunks: true, ..Scope::default() });
    }

    /// The scopes in which something that depends on the row or the chunk is known.
    fn visible(&self, row: bool, chunk: bool) -> impl Iterator<Item = &Scope> {
        let last = self.scopes.iter().rposition(|s| s.rows && row || s.chunks && chunk);
        self.scopes[last.unwrap_or(0)..].iter().rev()
    }

    /// Ends a block of code.
    pub(crate) fn leave(&mut self) {
        self.scopes.pop();
    }

    pub(crate) fn known(&self, key: &Key) -> Option<Elements> {
        let row = key.1.iter().any(Ix::has_row);
        let chunk = key.1.iter().any(Ix::has_chunk);
        self.visible(row, chunk).find_map(|s| s.values.get(key).cloned())
    }

    pub(crate) fn learn(&mut self, key: Key, value: Elements) {
        if let Some(s) = self.scopes.last_mut() {
            s.values.insert(key, value);
        }
    }

    pub(crate) fn buffer(&mut self, a: Argument, dtype: DType) -> usize {
        match self.buffers.iter().position(|(b, _)| *b == a) {
            Some(i) => i,
            None => {
                self.buffers.push((a, dtype));
                self.buffers.len() - 1
            }
        }
    }

    // ---- coordinates ---------------------------------------------------------------------------

    /// Whether every lane of a chunk has elements, where the group ends at `end`.
    fn whole(&self, chunk: &Ix, end: &Ix) -> bool {
        match (chunk.as_constant(), end.as_constant()) {
            (Some(c), Some(n)) => n - c >= self.span,
            (None, Some(n)) => n % self.span == 0,
            _ => false,
        }
    }

    /// The lane coordinate of a chunk of a row of `end` elements, where `end` may depend on the
    /// group.
    pub(crate) fn lane_at(&mut self, chunk: Ix, end: Ix) -> Ix {
        let limit = match (chunk.as_constant(), end.as_constant()) {
            (Some(c), Some(n)) => (n - c).min(self.span),
            _ => self.span,
        };
        let base = if self.whole(&chunk, &end) {
            Ix::var(Var::Lane(limit, self.vector))
        } else {
            let def = Lanes { chunk: chunk.clone(), end, vector: self.vector };
            let id = self.lanes.iter().position(|l| *l == def).unwrap_or_else(|| {
                self.lanes.push(def);
                self.lanes.len() - 1
            });
            Ix::var(Var::Tail(limit, self.vector, id as u32))
        };
        base.plus(&chunk)
    }

    /// Whether a lane's elements of a chunk are there; `None` when all are.
    pub(crate) fn mask(&mut self, chunk: &Ix, end: &Ix) -> Result<Option<Reg>, Refusal> {
        if self.whole(chunk, end) {
            return Ok(None);
        }
        let left = self.index(&end.plus(&chunk.times(-1)), 0)?;
        let lane = self.lane_base();
        Ok(Some(self.code.compare(Cmp::Lt, lane, left)))
    }

    /// First element of this lane in a chunk.
    pub(crate) fn lane_base(&mut self) -> Reg {
        match self.lane {
            Some(r) if self.vector == 1 => r,
            Some(r) => {
                let n = self.code.i32(self.vector);
                self.code.mul(r, n)
            }
            None => self.code.i32(0),
        }
    }

    /// Deals `width` elements out to the lanes until [`Emitter::deal_back`]: as few to each as fill
    /// all lanes.
    pub(crate) fn deal(&mut self, width: i64) -> (i64, i64) {
        let before = (self.vector, self.span);
        let mut v = 1;
        while v < self.most && v * self.team_lanes < width {
            v *= 2;
        }
        while v > 1 && width % v != 0 {
            v /= 2;
        }
        // Chunks of a loop are alike for all.
        self.vector = if self.looped { self.most } else { v };
        self.span = self.vector * self.team_lanes;
        before
    }

    pub(crate) fn deal_back(&mut self, before: (i64, i64)) {
        (self.vector, self.span) = before;
    }

    fn symbol(&mut self, s: &Symbol) -> Result<Reg, Refusal> {
        match self.symbols.iter().position(|t| t == s) {
            Some(i) => Ok(self.code.special(Special::Symbol(i))),
            None => Err(Refusal::new(format!("the size `{s}` is not known to the kernel"))),
        }
    }

    /// A size as `i32`.
    pub(crate) fn size(&mut self, p: &Poly) -> Result<Reg, Refusal> {
        if let Some(n) = p.as_constant() {
            return Ok(self.code.i32(n));
        }
        let Some((s, a, b)) = p.as_linear().map(|(s, a, b)| (s.clone(), a, b)) else {
            return Err(Refusal::new(format!("`{p}` rows are more than a multiple of a size")));
        };
        let s = self.symbol(&s)?;
        let (a, b) = (self.code.i32(a), self.code.i32(b));
        let r = self.code.mul(s, a);
        Ok(self.code.add(r, b))
    }

    fn var(&mut self, v: &Var, element: i64) -> Result<Reg, Refusal> {
        Ok(match v {
            Var::Row => self.row.ok_or_else(|| Refusal::new("a row where there is none"))?,
            Var::Group(_) => self.group.ok_or_else(|| Refusal::new("a group where there is none"))?,
            Var::Chunk(_) => self.chunk.ok_or_else(|| Refusal::new("a chunk where there is none"))?,
            Var::Loop(i, _) => self.loops[*i as usize],
            Var::Size(s) => self.symbol(s)?,
            Var::Lane(..) => {
                let base = self.lane_base();
                self.offset(base, element)
            }
            Var::Tail(_, _, id) => {
                // Lanes past the end take the last elements again, which are there.
                let def = self.lanes[*id as usize].clone();
                let last = def.end.plus(&def.chunk.times(-1)).add(-self.vector);
                let last = self.index(&last, 0)?;
                let base = self.lane_base();
                let base = self.code.binary(Binary::Min, base, last);
                self.offset(base, element)
            }
            Var::Div(x, n) => {
                let (x, n) = (self.index(x, element)?, self.code.i32(*n));
                self.code.binary(Binary::Quotient, x, n)
            }
            Var::Mod(x, n) => {
                let (x, n) = (self.index(x, element)?, self.code.i32(*n));
                self.code.binary(Binary::Remainder, x, n)
            }
        })
    }

    fn offset(&mut self, base: Reg, by: i64) -> Reg {
        if by == 0 {
            return base;
        }
        let by = self.code.i32(by);
        self.code.add(base, by)
    }

    /// An index as `i32`, for element `element` of the lane.
    pub(crate) fn index(&mut self, ix: &Ix, element: i64) -> Result<Reg, Refusal> {
        let element = if ix.varies() { element } else { 0 };
        let key = (ix.clone(), element, false);
        if let Some(r) = self.visible(key.0.has_row(), key.0.has_chunk()).find_map(|s| s.indices.get(&key)) {
            return Ok(*r);
        }
        let mut sum: Option<Reg> = None;
        for (v, c) in &ix.terms {
            let mut r = self.var(v, element)?;
            if *c != 1 {
                let c = self.code.i32(*c);
                r = self.code.mul(r, c);
            }
            sum = Some(match sum {
                Some(s) => self.code.add(s, r),
                None => r,
            });
        }
        let r = match sum {
            Some(s) => self.offset(s, ix.k),
            None => self.code.i32(ix.k),
        };
        if let Some(s) = self.scopes.last_mut() {
            s.indices.insert(key, r);
        }
        Ok(r)
    }

    /// Row `Row + k`, put into the rows that there are.
    fn clamped(&mut self, k: i64) -> Result<Reg, Refusal> {
        let key = (Ix::var(Var::Row).add(k), 0, true);
        if let Some(r) = self.visible(key.0.has_row(), key.0.has_chunk()).find_map(|s| s.indices.get(&key)) {
            return Ok(*r);
        }
        let r = self.index(&key.0, 0)?;
        if self.clean {
            return Ok(r);
        }
        let (zero, one) = (self.code.i32(0), self.code.i32(1));
        let rows = self.rows.clone();
        let rows = self.size(&rows)?;
        let last = self.code.binary(Binary::Sub, rows, one);
        let r = self.code.binary(Binary::Min, r, last);
        let r = if k < 0 { self.code.binary(Binary::Max, r, zero) } else { r };
        if let Some(s) = self.scopes.last_mut() {
            s.indices.insert(key, r);
        }
        Ok(r)
    }

    /// Whether rows `lo..=hi` are valid rows of one document.
    pub(crate) fn one_document(&mut self, lo: i64, hi: i64) -> Option<Reg> {
        let bits = self.bits?;
        let mask = |from: i64| ((from + self.back)..=(hi + self.back)).fold(0u64, |m, i| m | 1 << i.clamp(0, 63)) as i64;
        let (all, inner) = (mask(lo), mask(lo + 1));
        let (all, inner, zero) = (self.code.whole(all, Ty::I64), self.code.whole(inner, Ty::I64), self.code.whole(0, Ty::I64));
        let valid = self.code.binary(Binary::And, bits.valid, all);
        let valid = self.code.compare(Cmp::Eq, valid, all);
        let starts = self.code.binary(Binary::And, bits.starts, inner);
        let none = self.code.compare(Cmp::Eq, starts, zero);
        Some(self.code.binary(Binary::And, valid, none))
    }

    /// Whether row `Row + k` is there.
    pub(crate) fn row_there(&mut self, k: i64) -> Result<Reg, Refusal> {
        if self.clean {
            return Ok(self.code.whole(1, Ty::Bool));
        }
        let r = self.index(&Ix::var(Var::Row).add(k), 0)?;
        let rows = self.rows.clone();
        let rows = self.size(&rows)?;
        Ok(self.code.compare(Cmp::Lt, r, rows))
    }

    // ---- memory --------------------------------------------------------------------------------

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
            let (wide, stride) = (self.code.unary(Unary::ToI64, row), self.code.whole(*stride, Ty::I64));
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

    fn input(&mut self, v: Value, input: u32, offset: &Offset) -> Result<Elements, Refusal> {
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
    fn wide(&mut self, place: Place, ty: Ty) -> Vec<Reg> {
        let most = (16 / bytes(place.dtype)).max(1) as usize;
        if place.count <= most {
            return self.code.load(place, ty);
        }
        let mut out = vec![];
        for from in (0..place.count).step_by(most) {
            let part = Place { constant: place.constant + from as i64, count: most, align: 16, ..place.clone() };
            out.extend(self.code.load(part, ty));
        }
        out
    }

    /// Elements one by one, each put into the row or tensor that there is.
    fn guarded_load(
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

    // ---- values --------------------------------------------------------------------------------

    /// The elements of a value at an index.
    ///
    /// # Errors
    /// Says what a row program cannot do.
    pub(crate) fn value(&mut self, v: Value, index: &[Ix]) -> Result<Elements, Refusal> {
        let key = (v, index.to_vec());
        if let Some(e) = self.known(&key) {
            return Ok(e);
        }
        let before = (self.vector, self.span);
        if let Some(n) = index.iter().find_map(Ix::vector) {
            (self.vector, self.span) = (n, n * self.team_lanes);
        }
        let out = self.element(v, index);
        self.deal_back(before);
        let out = out?;
        self.learn(key, out.clone());
        Ok(out)
    }

    fn element(&mut self, v: Value, index: &[Ix]) -> Result<Elements, Refusal> {
        let step = self.body.step(v, index)?;
        let view = matches!(step, Step::Same(_));
        let mut out = match step {
            Step::RowSum => self.row_sum(v, index)?,
            step => self.compute(v, step)?,
        };
        // What is stored is rounded before it is used again, so that a replay of any part is equal.
        let exact = matches!(self.body.op(v), Op::Cast { .. } | Op::Input { .. });
        if self.stored.contains(&v) && self.body.dtype(v) == DType::Bf16 && !view && !exact {
            out = out.iter().map(|r| self.code.unary(Unary::Round, *r)).collect();
        }
        Ok(out)
    }

    fn at(&mut self, at: &At) -> Result<Elements, Refusal> {
        self.value(at.0, &at.1)
    }

    fn compute(&mut self, v: Value, step: Step) -> Result<Elements, Refusal> {
        let ty = register(self.body.dtype(v));
        match step {
            Step::Same(at) => self.at(&at),
            Step::Input { input, offset } => self.input(v, input, &offset),
            Step::Constant(x) => {
                let r = self.code.constant(x, ty);
                Ok([r].into())
            }
            Step::Index(ix) => {
                let count = if ix.varies() { self.vector } else { 1 };
                let regs: Result<Vec<Reg>, Refusal> = (0..count).map(|e| self.index(&ix, e)).collect();
                Ok(regs?.into())
            }
            Step::Map(ats) => {
                let mut args = vec![];
                for at in &ats {
                    args.push(self.at(at)?);
                }
                self.map(v, &args)
            }
            Step::Within { index, size, then } => {
                self.guarded += 1;
                let inside = self.at(&then);
                self.guarded -= 1;
                let inside = inside?;
                let zero = self.code.constant(0.0, ty);
                self.by_index(&index, &inside, |s, i, x| {
                    let (lo, hi) = (s.code.i32(0), s.code.i32(size));
                    let a = s.code.compare(Cmp::Ge, i, lo);
                    let b = s.code.compare(Cmp::Lt, i, hi);
                    let c = s.code.binary(Binary::And, a, b);
                    s.code.select(c, x, zero)
                })
            }
            Step::Parts { index, parts } => {
                let mut out: Option<Elements> = None;
                for (end, at) in parts.iter().rev() {
                    self.guarded += 1;
                    let part = self.at(at);
                    self.guarded -= 1;
                    let part = part?;
                    out = Some(match out {
                        None => part,
                        Some(rest) => {
                            let n = rest.len().max(part.len());
                            let both: Elements = (0..n).map(|e| part[e.min(part.len() - 1)]).collect();
                            let rest: Vec<Reg> = (0..n).map(|e| rest[e.min(rest.len() - 1)]).collect();
                            let mut e = 0;
                            self.by_index(&index, &both, |s, i, x| {
                                let end = s.code.i32(*end);
                                let c = s.code.compare(Cmp::Lt, i, end);
                                e += 1;
                                s.code.select(c, x, rest[(e - 1).min(rest.len() - 1)])
                            })?
                        }
                    });
                }
                out.ok_or_else(|| self.body.refuse(v, "joins nothing"))
            }
            Step::Fold { of, kept, axes } => self.serial_fold(v, of, &kept, &axes),
            Step::RowSum => Err(self.body.refuse(v, "a sum over rows where it is not ready")),
            Step::Stencil { x, index, taps } => {
                let row = index[0].as_row().ok_or_else(|| self.body.refuse(v, "a convolution of rows that are not in order"))?;
                let mut sum: Option<Vec<Reg>> = None;
                // The tap of the row itself first, as the windows have it.
                for (by, w) in &taps {
                    let mut at = index.clone();
                    at[0] = at[0].add(*by);
                    let w = self.at(w)?;
                    let x = self.value(x, &at)?;
                    let x = self.same_document(v, row, *by, &x, 0.0)?;
                    let n = w.len().max(x.len());
                    let mut out = vec![];
                    for e in 0..n {
                        let (a, b) = (x[e.min(x.len() - 1)], w[e.min(w.len() - 1)]);
                        out.push(match &sum {
                            Some(s) => self.code.fma(a, b, s[e]),
                            None => self.code.mul(a, b),
                        });
                    }
                    sum = Some(out);
                }
                let sum = sum.ok_or_else(|| self.body.refuse(v, "a convolution without taps"))?;
                Ok(sum.into())
            }
            Step::Shift { x, by, fill } => {
                let row = x.1[0].as_row().ok_or_else(|| self.body.refuse(v, "a shift of rows that are not in order"))?;
                let e = self.at(&x)?;
                self.same_document(v, row - by, by, &e, fill)
            }
            Step::Valid { row } => {
                let row = row.as_row().ok_or_else(|| self.body.refuse(v, "rows that are not in order"))?;
                Ok([self.valid(v, row)?].into())
            }
        }
    }

    fn map(&mut self, v: Value, args: &[Elements]) -> Result<Elements, Refusal> {
        let n = args.iter().map(|a| a.len()).max().unwrap_or(1);
        let (op, dtype) = (self.body.op(v), self.body.dtype(v));
        let mut out = vec![];
        for e in 0..n {
            let a: Vec<Reg> = args.iter().map(|a| a[e.min(a.len() - 1)]).collect();
            let r = apply(&mut self.code, op, &a, dtype);
            out.push(r.ok_or_else(|| self.body.refuse(v, format!("`{}` has no kernel form", op.name())))?);
        }
        Ok(out.into())
    }

    fn by_index(
        &mut self,
        ix: &Ix,
        x: &Elements,
        mut f: impl FnMut(&mut Self, Reg, Reg) -> Reg,
    ) -> Result<Elements, Refusal> {
        let n = if ix.varies() { self.vector as usize } else { 1 }.max(x.len());
        let mut out = vec![];
        for e in 0..n {
            let i = self.index(ix, e as i64)?;
            out.push(f(self, i, x[e.min(x.len() - 1)]));
        }
        Ok(out.into())
    }

    /// A reduction that each lane does alone, over elements that it can reach itself.
    fn serial_fold(&mut self, v: Value, of: Value, kept: &[Ix], axes: &[usize]) -> Result<Elements, Refusal> {
        if !kept.iter().any(Ix::varies) {
            return Err(self.body.refuse(v, "a reduction of lanes where it is not ready"));
        }
        let n = self.body.folded(of, axes)?;
        if n > 64 {
            return Err(self.body.refuse(v, format!("each lane would reduce {n} elements alone")));
        }
        let mut sum: Option<Vec<Reg>> = None;
        for j in 0..n {
            let at = self.body.unfold(of, kept, axes, Ix::constant(j))?;
            let x = self.value(of, &at)?;
            sum = Some(match sum {
                None => x.to_vec(),
                Some(s) => {
                    let n = s.len().max(x.len());
                    let op = self.fold_op(v);
                    (0..n).map(|e| self.code.binary(op, s[e.min(s.len() - 1)], x[e.min(x.len() - 1)])).collect()
                }
            });
        }
        sum.map(Elements::from).ok_or_else(|| self.body.refuse(v, "an empty reduction"))
    }

    pub(crate) fn fold_op(&self, v: Value) -> Binary {
        if matches!(self.body.op(v), Op::ReduceMax { .. }) { Binary::Max } else { Binary::Add }
    }

    /// Sums the elements of the lanes of a chunk into a lane's accumulator.
    pub(crate) fn gather(&mut self, v: Value, x: &Elements, mask: Option<Reg>, into: Option<Reg>) -> Reg {
        let op = self.fold_op(v);
        let neutral = self.neutral(v);
        let n = self.vector as usize;
        let mut sum: Option<Reg> = None;
        for e in 0..n {
            let x = x[e.min(x.len() - 1)];
            sum = Some(match sum {
                None => x,
                Some(s) => self.code.binary(op, s, x),
            });
        }
        let sum = sum.unwrap_or(neutral);
        let sum = match mask {
            Some(m) => self.code.select(m, sum, neutral),
            None => sum,
        };
        match into {
            Some(a) => self.code.binary(op, a, sum),
            None => sum,
        }
    }

    pub(crate) fn neutral(&mut self, v: Value) -> Reg {
        let ty = register(self.body.dtype(v));
        match (self.fold_op(v), ty) {
            (Binary::Max, Ty::F32) => self.code.f32(f64::NEG_INFINITY),
            (Binary::Max, _) => self.code.constant(f64::from(i32::MIN), ty),
            _ => self.code.constant(0.0, ty),
        }
    }

    pub(crate) fn fold_of(&self, v: Value) -> Fold {
        if self.fold_op(v) == Binary::Max { Fold::Max } else { Fold::Sum }
    }

    // ---- documents -----------------------------------------------------------------------------

    /// The bit of a word for row `Row + row`.
    fn bit(&mut self, word: Reg, from: i64, to: i64) -> Reg {
        let mask = ((from + self.back)..=(to + self.back)).fold(0u64, |m, i| m | 1 << i.clamp(0, 63));
        let (mask, zero) = (self.code.whole(mask as i64, Ty::I64), self.code.whole(0, Ty::I64));
        let bits = self.code.binary(Binary::And, word, mask);
        self.code.compare(Cmp::Ne, bits, zero)
    }

    fn words(&self, v: Value) -> Result<Bits, Refusal> {
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
    pub(crate) fn same_document(&mut self, v: Value, row: i64, by: i64, x: &Elements, fill: f64) -> Result<Elements, Refusal> {
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

    // ---- sums over rows, in the second launch ----------------------------------------------------

    /// A sum over rows from its partial sums, for the elements of a lane.
    pub(crate) fn row_sum(&mut self, v: Value, index: &[Ix]) -> Result<Elements, Refusal> {
        let (scratch, p) = self.partials.iter().enumerate().find(|(_, p)| p.node == v)
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
                (self.code.binary(Binary::Quotient, q, count), self.code.binary(Binary::Remainder, q, count))
            };
            self.loops.extend([strip, j]);
            self.enter();
            let at = Offset { row: Some((Ix::var(Var::Row), p.elements)), rest: offset.clone() };
            let regs = self.elements(Argument::Scratch(scratch as u32), DType::F32, &at, Some(strip));
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

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
