//! A launch: its sections, their rows in trips, and the reductions, windows and stores of a trip.

use super::Refusal;
use super::body::{Body, Offset};
use super::emit::{Argument, Bits, Elements, Emitter, Key};
use super::index::{Ix, Var};
use super::ir::{Binary, Cmp, Inst, Launch, Reg, Special, Ty, Unary};
use super::plan::{Partial, Piece, Plan, Section, To, forward};
use super::walk::{Line, Walk, on};
use rustc_hash::FxHashSet;
use vlmc_ir::dim::Symbol;
use vlmc_ir::graph::Value;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;

/// A launch and what its buffers are.
pub(crate) struct Emitted {
    pub(crate) launch: Launch,
    pub(crate) arguments: Vec<Argument>,
    /// Blocks on the first axis.
    pub(crate) blocks: i64,
    /// Rows of a block.
    pub(crate) rows: i64,
}

/// What a team does alike for all its trips.
struct Trip {
    /// Accumulators, where the chunks are held.
    sums: Vec<Reg>,
}

/// Emits the launch of a plan.
///
/// # Errors
/// Says what a row program cannot do.
pub(crate) fn launch(
    name: &str,
    body: &Body<'_>,
    plan: &Plan,
    partials: &[Partial],
    symbols: &[Symbol],
    stored: &FxHashSet<Value>,
    (resident, split): (i64, bool),
) -> Result<Emitted, Refusal> {
    let mut e = Emitter::new(body, symbols, partials, stored);
    e.teams = plan.teams;
    e.splits = split;
    let (x, y) = (e.code.special(Special::BlockX), e.code.special(Special::BlockY));
    if plan.teams > 1 {
        e.team = Some(e.code.special(Special::Team));
    }
    let lane = e.code.special(Special::Lane);
    let mut first = 0;
    let mut rows = 1;
    let mut blocks: Vec<(i64, Vec<Inst>)> = vec![];
    for s in &plan.sections {
        rows = rows.max(s.strip * plan.teams);
    }
    for s in &plan.sections {
        e.code.begin();
        e.enter();
        e.most = s.vector;
        e.team_lanes = plan.lanes * plan.warps;
        (e.vector, e.span) = (s.vector, s.vector * plan.lanes * plan.warps);
        e.looped = s.looped;
        e.rows = s.rows.clone();
        let start = e.code.i32(first);
        e.group = Some(e.code.binary(Binary::Sub, x, start));
        e.lane = Some(lane);
        e.section(s, y, rows / plan.teams, plan)?;
        e.leave();
        blocks.push((first, e.code.end()));
        first += s.groups;
    }
    // The first section whose blocks these are.
    let mut rest: Vec<Inst> = vec![];
    for (i, (start, block)) in blocks.into_iter().enumerate().rev() {
        let next: i64 = plan.sections.iter().take(i + 1).map(|s| s.groups).sum();
        let _ = start;
        if rest.is_empty() && i + 1 == plan.sections.len() {
            rest = block;
            continue;
        }
        e.code.begin();
        let end = e.code.i32(next);
        let here = e.code.compare(Cmp::Lt, x, end);
        e.code.if_(here, (block, vec![]), (rest, vec![]));
        rest = e.code.end();
    }
    e.code.append(rest);
    let buffers = e.buffers.iter().map(|(_, d)| *d).collect();
    let arguments = e.buffers.iter().map(|(a, _)| *a).collect();
    let (kinds, insts) = e.code.finish();
    let launch = Launch {
        name: name.to_string(),
        buffers,
        symbols: symbols.len(),
        lanes: plan.lanes as usize,
        warps: plan.warps as usize,
        teams: plan.teams as usize,
        resident: resident as usize,
        ring: (0, 0),
        kinds,
        body: insts,
    };
    Ok(Emitted { launch, arguments, blocks: first, rows })
}

impl Emitter<'_, '_> {
    fn section(&mut self, s: &Section, y: Reg, strip: i64, plan: &Plan) -> Result<(), Refusal> {
        if !s.pieces.iter().any(|p| p.rows) {
            return self.without_rows(s);
        }
        // The rows of this team.
        let (teams, strip_reg) = (self.code.i32(plan.teams), self.code.i32(strip));
        let mut at = self.code.mul(y, teams);
        if let Some(t) = self.team {
            at = self.code.add(at, t);
        }
        let strip_index = at;
        let start = self.code.mul(at, strip_reg);
        self.row = Some(start);
        let trips = strip / s.unroll;
        let none = FxHashSet::default();
        let mut whole = Walk::default();
        self.walk_pieces(s, &none, &mut whole)?;
        for key in whole.fixed.clone() {
            self.value(key.0, &key.1)?;
        }
        let carried = if trips > 1 { self.windows(s, &whole)? } else { vec![] };
        let documents = self.documents(&whole, strip, s.unroll, start)?;
        if trips == 1 {
            self.bits = documents;
            let sums = self.fresh_sums(s);
            let sums = self.split(whole.reach, &|e| {
                let mut trip = Trip { sums: sums.clone() };
                e.trip(s, &mut trip, strip_index)?;
                Ok(trip.sums)
            })?;
            return self.finish(s, &sums, strip_index, y);
        }
        // The windows before the first trip.
        self.bits = documents;
        let mut init: Vec<Reg> = vec![];
        let mut counts = vec![];
        let mut before: Vec<Key> = vec![];
        for (line, (lo, hi)) in &carried {
            before.extend((*lo..=*hi).map(|r| on(line, r)));
        }
        self.prepare(&before)?;
        for key in &before {
            let e = self.value(key.0, &key.1)?;
            counts.push(e.len());
            init.extend(e.iter());
        }
        let sums = self.fresh_sums(s);
        init.extend(&sums);
        let (zero, rows) = (self.code.i32(0), self.code.i32(strip));
        let (var, state) = self.code.open_for(&init);
        self.enter_rows();
        self.row = Some(self.code.add(start, var));
        if let Some(bits) = documents {
            let by = self.code.unary(Unary::ToI64, var);
            let starts = self.code.binary(Binary::Shr, bits.starts, by);
            let valid = self.code.binary(Binary::Shr, bits.valid, by);
            self.bits = Some(Bits { starts, valid });
        }
        let mut at = 0;
        for (key, n) in before.iter().zip(&counts) {
            self.learn(key.clone(), state[at..at + n].into());
            at += n;
        }
        let mut after: Vec<Key> = vec![];
        for (line, (lo, hi)) in &carried {
            after.extend((*lo..=*hi).map(|r| on(line, r + s.unroll)));
        }
        let yields = self.split(whole.reach, &|e| {
            let mut trip = Trip { sums: state[at..].to_vec() };
            e.prepare(&after)?;
            e.trip(s, &mut trip, strip_index)?;
            let mut yields = vec![];
            for (key, n) in after.iter().zip(&counts) {
                let value = e.value(key.0, &key.1)?;
                // One for all lanes stands for each, where the window has each.
                yields.extend((0..*n).map(|i| value[i.min(value.len() - 1)]));
            }
            yields.extend(&trip.sums);
            Ok(yields)
        })?;
        self.leave();
        let results = self.code.close_for((zero, rows, s.unroll), var, state, init, yields);
        self.row = Some(start);
        let sums = results[at..].to_vec();
        self.finish(s, &sums, strip_index, y)
    }

    /// Code for rows in the middle of a document, without masks, and for all others.
    fn split(
        &mut self,
        reach: Option<(i64, i64)>,
        f: &dyn Fn(&mut Self) -> Result<Vec<Reg>, Refusal>,
    ) -> Result<Vec<Reg>, Refusal> {
        let condition = match reach {
            Some((lo, hi)) if self.splits => self.one_document(lo, hi),
            _ => None,
        };
        let Some(condition) = condition else { return f(self) };
        self.code.begin();
        self.enter();
        self.clean = true;
        let yields = f(self);
        self.clean = false;
        self.leave();
        let then = self.code.end();
        self.code.begin();
        self.enter();
        let other = f(self);
        self.leave();
        let otherwise = self.code.end();
        let (yields, other) = (yields?, other?);
        Ok(self.code.if_(condition, (then, yields), (otherwise, other)))
    }

    /// Pieces without rows.
    fn without_rows(&mut self, s: &Section) -> Result<(), Refusal> {
        for p in &s.pieces {
            let before = self.deal(p.width);
            for (chunk, end) in self.piece_chunks(s, p) {
                let at = self.piece_index(s, p, 0, &chunk, &end)?;
                let mut walk = Walk::default();
                self.walk((p.value, &at), &FxHashSet::default(), &mut walk)?;
                let e = self.value(p.value, &at)?;
                self.code.begin();
                self.enter();
                self.store(p, &at, &e, (&chunk, &end), None)?;
                self.leave();
                let then = self.code.end();
                self.first_team(then);
            }
            self.deal_back(before);
        }
        Ok(())
    }

    /// The chunks of a piece, and the elements of the group.
    fn piece_chunks(&self, s: &Section, p: &Piece) -> Vec<(Ix, Ix)> {
        let end = if p.width * s.groups == p.total || s.groups == 1 && p.width == p.total {
            Ix::constant(p.width)
        } else {
            // The last group has fewer.
            Ix::constant(p.total).plus(&Ix::var(Var::Group(s.groups)).times(-p.width))
        };
        self.chunks(p.width).into_iter().map(|c| (c, end.clone())).collect()
    }

    fn piece_index(&mut self, s: &Section, p: &Piece, row: i64, chunk: &Ix, end: &Ix) -> Result<Vec<Ix>, Refusal> {
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
    fn flat_index(&mut self, s: &Section, p: &Piece, (chunk, end): (&Ix, &Ix)) -> Ix {
        let group = if s.groups > 1 { Ix::var(Var::Group(s.groups)).times(p.width) } else { Ix::constant(0) };
        if p.width == 1 {
            return group;
        }
        let lane = self.lane_at(chunk.clone(), end.clone());
        group.plus(&lane)
    }

    /// The lanes that store: the first one alone where a group has one element.
    fn storing(&mut self, p: &Piece, (chunk, end): (&Ix, &Ix)) -> Result<Option<Reg>, Refusal> {
        if p.width == 1 {
            let (lane, zero) = (self.lane_base(), self.code.i32(0));
            return Ok(Some(self.code.compare(Cmp::Eq, lane, zero)));
        }
        self.mask(chunk, end)
    }

    /// Accumulators of a lane in a chunk.
    fn held(&self, p: &Piece) -> i64 {
        if p.width == 1 { 1 } else { self.vector }
    }

    /// The elements of a trip.
    fn walk_pieces(&mut self, s: &Section, carried: &FxHashSet<Key>, out: &mut Walk) -> Result<(), Refusal> {
        for row in 0..s.unroll {
            for p in &s.pieces {
                let before = self.deal(p.width);
                for (chunk, end) in self.piece_chunks(s, p) {
                    let at = self.piece_index(s, p, row, &chunk, &end)?;
                    match &p.to {
                        To::Partial { node, taps, .. } if *taps > 1 || self.is_weight_grad(*node) => {
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

    fn is_weight_grad(&self, node: Value) -> bool {
        matches!(self.body.op(node), Op::CausalConv1dWeightGrad { .. })
    }

    /// What each window carries from one trip to the next: rows that both ask for.
    fn windows(&mut self, s: &Section, whole: &Walk) -> Result<Vec<(Line, (i64, i64))>, Refusal> {
        let carry = |w: &Walk| -> Vec<(Line, (i64, i64))> {
            let kept = w.lines.iter().filter(|(_, (lo, hi))| hi - s.unroll >= *lo);
            kept.map(|(l, (lo, hi))| (l.clone(), (*lo, hi - s.unroll))).collect()
        };
        let mut now = carry(whole);
        // What is carried is not computed, which makes other windows narrower.
        for _ in 0..4 {
            let known: FxHashSet<Key> =
                now.iter().flat_map(|(l, (lo, hi))| (*lo..=*hi).map(|r| on(l, r))).collect();
            let mut next = Walk::default();
            self.walk_pieces(s, &known, &mut next)?;
            let next = carry(&next);
            if next == now {
                break;
            }
            now = next;
        }
        Ok(now)
    }

    /// The bits of the documents for the rows of a team.
    fn documents(&mut self, whole: &Walk, strip: i64, unroll: i64, start: Reg) -> Result<Option<Bits>, Refusal> {
        let (Some((lo, hi)), Some((cu, padded))) = (whole.reach, whole.documents) else { return Ok(None) };
        // Rows before the first trip that its windows look at, and rows after the last.
        let span = hi - lo;
        self.back = (-lo).max(0);
        let rows = self.back + strip + (hi - unroll + 1).max(0);
        if rows > 64 {
            return Err(Refusal::new(format!("{rows} rows of documents at once ({span} apart)")));
        }
        let input = |s: &mut Self, v: Value| match s.body.op(v) {
            Op::Input { index } => Ok(s.buffer(Argument::Input(*index), DType::I32)),
            _ => Err(s.body.refuse(v, "boundaries that are computed")),
        };
        let (c, p) = (input(self, cu)?, input(self, padded)?);
        let back = self.code.i32(self.back);
        let base = self.code.binary(Binary::Sub, start, back);
        let count = self.body.dims(cu)[0].size().clone();
        let count = self.size(&count)?;
        let (starts, valid) = self.code.documents(base, c, p, count);
        Ok(Some(Bits { starts, valid }))
    }

    fn fresh_sums(&mut self, s: &Section) -> Vec<Reg> {
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
    fn prepare(&mut self, keys: &[Key]) -> Result<(), Refusal> {
        let mut walk = Walk::default();
        for (v, at) in keys {
            self.walk((*v, at), &FxHashSet::default(), &mut walk)?;
        }
        self.ready(walk)
    }

    fn ready(&mut self, walk: Walk) -> Result<(), Refusal> {
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

    /// Reductions that do not wait for each other.
    fn folds(&mut self, level: &[(Value, Vec<Ix>)]) -> Result<(), Refusal> {
        let mut partial: Vec<Reg> = vec![];
        if self.looped {
            partial = self.looped_folds(level)?;
        } else {
            for (v, at) in level {
                let (of, axes) = self.fold_parts(*v).ok_or_else(|| self.body.refuse(*v, "no reduction"))?;
                let n = self.body.folded(of, &axes)?;
                let before = self.deal(n);
                let mut sum = None;
                for chunk in self.chunks(n) {
                    let j = self.lane_at(chunk.clone(), Ix::constant(n));
                    let index = self.body.unfold(of, at, &axes, j)?;
                    let x = self.value(of, &index)?;
                    let mask = self.mask(&chunk, &Ix::constant(n))?;
                    sum = Some(self.gather(*v, &x, mask, sum));
                }
                let sum = match sum {
                    Some(s) => self.code.splat(s),
                    None => self.neutral(*v),
                };
                partial.push(sum);
                self.deal_back(before);
            }
        }
        // One exchange for all of a kind.
        for fold in [super::ir::Fold::Sum, super::ir::Fold::Max] {
            let of: Vec<usize> = (0..level.len()).filter(|i| self.fold_of(level[*i].0) == fold).collect();
            if of.is_empty() {
                continue;
            }
            let values: Vec<Reg> = of.iter().map(|i| partial[*i]).collect();
            let results = self.code.reduce(fold, values);
            for (i, r) in of.iter().zip(results) {
                let (v, at) = level[*i].clone();
                let r = if self.stored.contains(&v) && self.body.dtype(v) == DType::Bf16 {
                    self.code.unary(Unary::Round, r)
                } else {
                    r
                };
                self.learn((v, at), [r].into());
            }
        }
        Ok(())
    }

    /// One loop over the chunks for the reductions of one extent.
    fn looped_folds(&mut self, level: &[(Value, Vec<Ix>)]) -> Result<Vec<Reg>, Refusal> {
        let mut out = vec![None; level.len()];
        let mut extents: Vec<i64> = vec![];
        let mut parts = vec![];
        for (v, _) in level {
            let (of, axes) = self.fold_parts(*v).ok_or_else(|| self.body.refuse(*v, "no reduction"))?;
            let n = self.body.folded(of, &axes)?;
            if !extents.contains(&n) {
                extents.push(n);
            }
            parts.push((of, axes, n));
        }
        for n in extents {
            let mine: Vec<usize> = (0..level.len()).filter(|i| parts[*i].2 == n).collect();
            let mut init = vec![];
            for i in &mine {
                let zero = self.neutral(level[*i].0);
                init.push(self.code.splat(zero));
            }
            let (lo, hi) = (self.code.i32(0), self.code.i32(n));
            let dealt = self.deal(n);
            let step = self.span;
            let (var, carried) = self.code.open_for(&init);
            self.enter_chunks();
            let before = self.chunk.replace(var);
            let mut yields = vec![];
            for (i, sum) in mine.iter().zip(&carried) {
                let (v, at) = &level[*i];
                let (of, axes, _) = &parts[*i];
                let chunk = Ix::var(Var::Chunk(n));
                let j = self.lane_at(chunk.clone(), Ix::constant(n));
                let index = self.body.unfold(*of, at, axes, j)?;
                let x = self.value(*of, &index)?;
                let mask = self.mask(&chunk, &Ix::constant(n))?;
                yields.push(self.gather(*v, &x, mask, Some(*sum)));
            }
            self.chunk = before;
            self.leave();
            let results = self.code.close_for((lo, hi, step), var, carried, init, yields);
            self.deal_back(dealt);
            for (i, r) in mine.iter().zip(results) {
                out[*i] = Some(r);
            }
        }
        let zero = self.code.f32(0.0);
        Ok(out.into_iter().map(|r| r.unwrap_or(zero)).collect())
    }

    /// The rows of a trip: what they need, their values, then all stores.
    fn trip(&mut self, s: &Section, trip: &mut Trip, strip: Reg) -> Result<(), Refusal> {
        let mut walk = Walk::default();
        self.walk_pieces(s, &FxHashSet::default(), &mut walk)?;
        for key in walk.fixed.clone() {
            self.value(key.0, &key.1)?;
        }
        self.ready(walk)?;
        if s.looped {
            return self.looped_pieces(s, strip);
        }
        let mut stores: Vec<Vec<(usize, Vec<Ix>, Elements, (Ix, Ix))>> = vec![vec![]; s.unroll as usize];
        for row in 0..s.unroll {
            let mut at = 0;
            for (i, p) in s.pieces.iter().enumerate() {
                let before = self.deal(p.width);
                for (chunk, end) in self.piece_chunks(s, p) {
                    let index = self.piece_index(s, p, row, &chunk, &end)?;
                    match &p.to {
                        To::Output { .. } => {
                            let e = self.value(p.value, &index)?;
                            stores[row as usize].push((i, index, e, (chunk, end)));
                        }
                        To::Partial { node, taps, .. } => {
                            let n = (*taps * self.held(p)) as usize;
                            let sums = self.accumulate(*node, *taps, p, &index, row, &trip.sums[at..at + n])?;
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
            for (i, index, e, (chunk, end)) in stores {
                let before = self.deal(s.pieces[i].width);
                self.store(&s.pieces[i], &index, &e, (&chunk, &end), Some(row as i64))?;
                self.deal_back(before);
            }
            self.leave();
            let then = self.code.end();
            self.code.if_(there, (then, vec![]), (vec![], vec![]));
        }
        Ok(())
    }

    /// Adds a row to the accumulators of a lane.
    fn accumulate(
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

    /// Stores the elements of a lane to their place in an output.
    fn store(
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
    fn put(
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

    /// Outputs of a row whose chunks are a loop, and sums over rows kept in memory.
    fn looped_pieces(&mut self, s: &Section, strip: Reg) -> Result<(), Refusal> {
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
                            let sums = self.load_sums(s, p, *scratch, *taps, strip, (&chunk, &end), row)?;
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

    fn sum_offset(&mut self, s: &Section, p: &Piece, taps: i64, tap: i64, at: (&Ix, &Ix)) -> Offset {
        let rest = self.flat_index(s, p, at).times(taps).add(tap);
        Offset { row: Some((Ix::var(Var::Row), p.total * taps)), rest }
    }

    #[allow(clippy::too_many_arguments)]
    fn load_sums(
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
            let e = self.elements(Argument::Scratch(scratch as u32), DType::F32, &offset, Some(strip))?;
            for r in e.iter() {
                let zero = self.code.f32(0.0);
                out.push(self.code.select(first, zero, *r));
            }
        }
        Ok(out)
    }

    #[allow(clippy::too_many_arguments)]
    fn put_sums(
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
            self.put((Argument::Scratch(scratch as u32), DType::F32), &offset, Some(strip), &e, mask)?;
        }
        Ok(())
    }

    /// Stores the accumulators of a strip.
    fn finish(&mut self, s: &Section, sums: &[Reg], _strip: Reg, y: Reg) -> Result<(), Refusal> {
        if sums.is_empty() {
            return Ok(());
        }
        let sums = if self.teams > 1 { self.code.teams(sums.to_vec()) } else { sums.to_vec() };
        self.code.begin();
        self.enter();
        let mut at = 0;
        for p in &s.pieces {
            let To::Partial { scratch, taps, .. } = p.to else { continue };
            let before = self.deal(p.width);
            for (chunk, end) in self.piece_chunks(s, p) {
                let n = (taps * self.held(p)) as usize;
                self.put_sums(s, p, scratch, taps, y, (&chunk, &end), &sums[at..at + n])?;
                at += n;
            }
            self.deal_back(before);
        }
        self.leave();
        let then = self.code.end();
        // Another section may have more rows, and the grid has them.
        let there = self.row_there(0)?;
        self.code.begin();
        self.code.if_(there, (then, vec![]), (vec![], vec![]));
        let then = self.code.end();
        self.first_team(then);
        Ok(())
    }

    /// What one team does for all of its block.
    fn first_team(&mut self, then: Vec<Inst>) {
        match self.team {
            Some(t) => {
                let zero = self.code.i32(0);
                let first = self.code.compare(Cmp::Eq, t, zero);
                self.code.if_(first, (then, vec![]), (vec![], vec![]));
            }
            None => self.code.append(then),
        }
    }
}
