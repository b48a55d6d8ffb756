//! Elements of values as kernel IR.
//!
//! A value is computed where it is asked for, one step back at a time ([`Body::step`]), and kept
//! under its value and index, so that whatever asks for the same element again gets the same
//! register. Views cost nothing, loads of neighbours are one load, and an element that two outputs
//! need is computed once.

use super::Refusal;
use super::body::{At, Body, Step};
use super::code::Code;
use super::index::Ix;
use super::ir::{Binary, Cmp, Fold, Reg, Ty, Unary};
use super::math::{apply, register};
use super::plan::Partial;
use rustc_hash::FxHashMap;
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
pub(crate) struct Lanes {
    /// First element of the chunk.
    pub(crate) chunk: Ix,
    /// Elements that there are, counted from the start of the group.
    pub(crate) end: Ix,
    /// Elements of a lane.
    pub(crate) vector: i64,
}

/// What is known inside one block of code.
#[derive(Default)]
pub(crate) struct Scope {
    /// Rows, or chunks, mean others from here on.
    rows: bool,
    chunks: bool,
    values: FxHashMap<Key, Elements>,
    pub(crate) indices: FxHashMap<(Ix, i64, bool), Reg>,
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
    pub(crate) loops: Vec<Reg>,
    pub(crate) lanes: Vec<Lanes>,
    pub(crate) scopes: Vec<Scope>,
    /// Documents: rows that the bits begin before the first row of the trip.
    pub(crate) back: i64,
    pub(crate) bits: Option<Bits>,
    /// Stages of the ring that rows are fetched through, and bytes a lane of the largest.
    pub(crate) stages: i64,
    pub(crate) group_bytes: i64,
    /// Whether rows in the middle of a document have code of their own.
    pub(crate) splits: bool,
    /// The rows at hand are valid rows of one document.
    pub(crate) clean: bool,
    /// Whether the chunks of a group are a loop.
    pub(crate) looped: bool,
    /// Loads may be asked for elements that are not there, whose values are not used.
    pub(crate) guarded: usize,
}

impl<'b, 'f> Emitter<'b, 'f> {
    pub(crate) fn new(body: &'b Body<'f>, symbols: &'b [Symbol], partials: &'b [Partial]) -> Self {
        Emitter {
            body,
            code: Code::new(),
            buffers: vec![],
            symbols,
            partials,
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
            stages: 0,
            group_bytes: 0,
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
    pub(crate) fn visible(&self, row: bool, chunk: bool) -> impl Iterator<Item = &Scope> {
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

    // ---- memory --------------------------------------------------------------------------------

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
        let node = v.node.0;
        let written = !self.body.f.nodes[node as usize].origins.is_empty();
        let asked = self.code.at;
        if written {
            self.code.at = Some(node);
        }
        let out = self.element(v, index);
        self.code.at = asked;
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
        // A value is rounded where its type says so, stored or not, as the evaluator rounds: fusion
        // changes no number, and a replay of any part is equal.
        let exact = matches!(self.body.op(v), Op::Cast { .. } | Op::Input { .. });
        if self.body.dtype(v) == DType::Bf16 && !view && !exact {
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
                let regs: Result<Vec<Reg>, Refusal> =
                    (0..count).map(|e| self.index(&ix, e)).collect();
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
                            let both: Elements =
                                (0..n).map(|e| part[e.min(part.len() - 1)]).collect();
                            let rest: Vec<Reg> =
                                (0..n).map(|e| rest[e.min(rest.len() - 1)]).collect();
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
                let row = index[0].as_row().ok_or_else(|| {
                    self.body.refuse(v, "a convolution of rows that are not in order")
                })?;
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
                let row = x.1[0]
                    .as_row()
                    .ok_or_else(|| self.body.refuse(v, "a shift of rows that are not in order"))?;
                let e = self.at(&x)?;
                self.same_document(v, row - by, by, &e, fill)
            }
            Step::Valid { row } => {
                let row = row
                    .as_row()
                    .ok_or_else(|| self.body.refuse(v, "rows that are not in order"))?;
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
            out.push(r.ok_or_else(|| {
                self.body.refuse(v, format!("`{}` has no kernel form", op.name()))
            })?);
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
    fn serial_fold(
        &mut self,
        v: Value,
        of: Value,
        kept: &[Ix],
        axes: &[usize],
    ) -> Result<Elements, Refusal> {
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
                    (0..n)
                        .map(|e| self.code.binary(op, s[e.min(s.len() - 1)], x[e.min(x.len() - 1)]))
                        .collect()
                }
            });
        }
        sum.map(Elements::from).ok_or_else(|| self.body.refuse(v, "an empty reduction"))
    }

    pub(crate) fn fold_op(&self, v: Value) -> Binary {
        if matches!(self.body.op(v), Op::ReduceMax { .. }) { Binary::Max } else { Binary::Add }
    }

    /// Sums the elements of the lanes of a chunk into a lane's accumulator.
    pub(crate) fn gather(
        &mut self,
        v: Value,
        x: &Elements,
        mask: Option<Reg>,
        into: Option<Reg>,
    ) -> Reg {
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

    // ---- sums over rows, in the second launch ----------------------------------------------------
}
