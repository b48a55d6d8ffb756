//! Builds kernel IR: blocks are opened and closed, types follow from operands.

use super::ir::{
    Binary, Cmp, Fold, Inst, Kind, Line, Number, Place, Reg, Slot, Special, Ty, Unary,
};
use rustc_hash::FxHashMap;

/// Kernel IR under construction.
#[derive(Default)]
pub(crate) struct Code {
    pub(crate) kinds: Vec<Kind>,
    /// For each value the node of the body that it is computed for.
    lines: Vec<Line>,
    /// The node that code is written for at present.
    pub(crate) at: Line,
    open: Vec<Vec<Inst>>,
    /// Constants of the outermost block.
    constants: FxHashMap<(u64, Ty), Reg>,
    top: Vec<Inst>,
}

impl Code {
    pub(crate) fn new() -> Self {
        Code { open: vec![vec![]], ..Code::default() }
    }

    /// All instructions; constants first.
    pub(crate) fn finish(mut self) -> (Vec<Kind>, Vec<Line>, Vec<Inst>) {
        let mut body = self.top;
        body.extend(self.open.pop().unwrap_or_default());
        (self.kinds, self.lines, body)
    }

    pub(crate) fn kind(&self, r: Reg) -> Kind {
        self.kinds[r.0 as usize]
    }

    pub(crate) fn varies(&self, r: Reg) -> bool {
        self.kind(r).varying
    }

    fn reg(&mut self, ty: Ty, varying: bool) -> Reg {
        self.kinds.push(Kind { ty, varying });
        self.lines.push(self.at);
        Reg(self.kinds.len() as u32 - 1)
    }

    fn push(&mut self, i: Inst) {
        if let Some(block) = self.open.last_mut() {
            block.push(i);
        }
    }

    /// Puts instructions that were built apart here.
    pub(crate) fn append(&mut self, block: Vec<Inst>) {
        if let Some(open) = self.open.last_mut() {
            open.extend(block);
        }
    }

    pub(crate) fn begin(&mut self) {
        self.open.push(vec![]);
    }

    pub(crate) fn end(&mut self) -> Vec<Inst> {
        self.open.pop().unwrap_or_default()
    }

    fn number(&mut self, value: Number, ty: Ty) -> Reg {
        let bits = match value {
            Number::Float(f) => f.to_bits(),
            Number::Whole(i) => i as u64,
        };
        if let Some(r) = self.constants.get(&(bits, ty)) {
            return *r;
        }
        let r = self.reg(ty, false);
        self.top.push(Inst::Const(r, value));
        // It is for all that come to need the number.
        if let Some(line) = self.lines.last_mut() {
            *line = None;
        }
        self.constants.insert((bits, ty), r);
        r
    }

    /// A number of any type; whole ones are cut off.
    pub(crate) fn constant(&mut self, value: f64, ty: Ty) -> Reg {
        match ty {
            Ty::F32 => self.f32(value),
            ty => self.whole(value as i64, ty),
        }
    }

    pub(crate) fn whole(&mut self, value: i64, ty: Ty) -> Reg {
        self.number(Number::Whole(value), ty)
    }

    pub(crate) fn f32(&mut self, value: f64) -> Reg {
        self.number(Number::Float(value), Ty::F32)
    }

    pub(crate) fn i32(&mut self, value: i64) -> Reg {
        self.number(Number::Whole(value), Ty::I32)
    }

    pub(crate) fn special(&mut self, s: Special) -> Reg {
        let r = self.reg(Ty::I32, s == Special::Lane);
        self.push(Inst::Special(r, s));
        r
    }

    pub(crate) fn unary(&mut self, op: Unary, a: Reg) -> Reg {
        let ty = match op {
            Unary::ToF32 => Ty::F32,
            Unary::ToI32 => Ty::I32,
            Unary::ToI64 => Ty::I64,
            _ => self.kind(a).ty,
        };
        let r = self.reg(ty, self.varies(a));
        self.push(Inst::Unary(r, op, a));
        r
    }

    pub(crate) fn binary(&mut self, op: Binary, a: Reg, b: Reg) -> Reg {
        let r = self.reg(self.kind(a).ty, self.varies(a) || self.varies(b));
        self.push(Inst::Binary(r, op, a, b));
        r
    }

    pub(crate) fn add(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Add, a, b)
    }

    pub(crate) fn mul(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Mul, a, b)
    }

    pub(crate) fn fma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        let varying = [a, b, c].iter().any(|r| self.varies(*r));
        let r = self.reg(Ty::F32, varying);
        self.push(Inst::Fma(r, a, b, c));
        r
    }

    pub(crate) fn compare(&mut self, op: Cmp, a: Reg, b: Reg) -> Reg {
        let r = self.reg(Ty::Bool, self.varies(a) || self.varies(b));
        self.push(Inst::Compare(r, op, a, b));
        r
    }

    pub(crate) fn select(&mut self, c: Reg, a: Reg, b: Reg) -> Reg {
        let varying = [a, b, c].iter().any(|r| self.varies(*r));
        let r = self.reg(self.kind(a).ty, varying);
        self.push(Inst::Select(r, c, a, b));
        r
    }

    /// The value as a varying one.
    pub(crate) fn splat(&mut self, a: Reg) -> Reg {
        if self.varies(a) {
            return a;
        }
        let r = self.reg(self.kind(a).ty, true);
        self.push(Inst::Splat(r, a));
        r
    }

    pub(crate) fn load(&mut self, place: Place, ty: Ty) -> Vec<Reg> {
        let varying = place.lane.is_some_and(|l| self.varies(l));
        let regs: Vec<Reg> = (0..place.count).map(|_| self.reg(ty, varying)).collect();
        self.push(Inst::Load(regs.clone(), place));
        regs
    }

    pub(crate) fn store(&mut self, values: Vec<Reg>, place: Place, mask: Option<Reg>) {
        self.push(Inst::Store(values, place, mask));
    }

    pub(crate) fn reduce(&mut self, fold: Fold, values: Vec<Reg>) -> Vec<Reg> {
        let regs: Vec<Reg> = values.iter().map(|v| self.reg(self.kind(*v).ty, false)).collect();
        self.push(Inst::Reduce(regs.clone(), fold, values));
        regs
    }

    pub(crate) fn teams(&mut self, values: Vec<Reg>) -> Vec<Reg> {
        let regs: Vec<Reg> =
            values.iter().map(|v| self.reg(self.kind(*v).ty, self.varies(*v))).collect();
        self.push(Inst::Teams(regs.clone(), values));
        regs
    }

    pub(crate) fn documents(
        &mut self,
        base: Reg,
        cu: usize,
        padded: usize,
        count: Reg,
    ) -> (Reg, Reg) {
        let (starts, valid) = (self.reg(Ty::I64, false), self.reg(Ty::I64, false));
        self.push(Inst::Documents { starts, valid, base, cu, padded, count });
        (starts, valid)
    }

    pub(crate) fn fetch(&mut self, place: Place, ok: Option<Reg>, slot: Slot) {
        self.push(Inst::Fetch(place, ok, slot));
    }

    pub(crate) fn commit(&mut self) {
        self.push(Inst::Commit);
    }

    pub(crate) fn wait(&mut self, groups: usize) {
        self.push(Inst::Wait(groups));
    }

    pub(crate) fn fetched(
        &mut self,
        dtype: vlmc_ir::ty::DType,
        count: usize,
        slot: Slot,
    ) -> Vec<Reg> {
        let regs: Vec<Reg> = (0..count).map(|_| self.reg(Ty::F32, true)).collect();
        self.push(Inst::Fetched(regs.clone(), dtype, slot));
        regs
    }

    /// Opens `for var in (lo..hi).step_by(step)`: its variable, and what it carries from round to
    /// round.
    pub(crate) fn open_for(&mut self, init: &[Reg]) -> (Reg, Vec<Reg>) {
        let var = self.reg(Ty::I32, false);
        let carried = init.iter().map(|r| self.reg(self.kind(*r).ty, self.varies(*r))).collect();
        self.begin();
        (var, carried)
    }

    /// Closes it with the values of the next round; what it carries after the last is returned.
    pub(crate) fn close_for(
        &mut self,
        (lo, hi, step): (Reg, Reg, i64),
        var: Reg,
        carried: Vec<Reg>,
        init: Vec<Reg>,
        yields: Vec<Reg>,
    ) -> Vec<Reg> {
        let yields: Vec<Reg> = yields
            .into_iter()
            .zip(&init)
            .map(|(y, i)| if self.varies(*i) { self.splat(y) } else { y })
            .collect();
        let body = self.end();
        let results: Vec<Reg> =
            init.iter().map(|r| self.reg(self.kind(*r).ty, self.varies(*r))).collect();
        self.push(Inst::For {
            results: results.clone(),
            var,
            lo,
            hi,
            step,
            carried,
            init,
            body,
            yields,
        });
        results
    }

    /// Both blocks have been built with [`Code::begin`] and [`Code::end`].
    pub(crate) fn if_(
        &mut self,
        condition: Reg,
        (then, yields): (Vec<Inst>, Vec<Reg>),
        (otherwise, other): (Vec<Inst>, Vec<Reg>),
    ) -> Vec<Reg> {
        let results: Vec<Reg> = yields
            .iter()
            .zip(&other)
            .map(|(a, b)| self.reg(self.kind(*a).ty, self.varies(*a) || self.varies(*b)))
            .collect();
        self.push(Inst::If { results: results.clone(), condition, then, yields, otherwise, other });
        results
    }
}
