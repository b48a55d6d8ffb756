//! A launch: its sections, their rows in trips, and the reductions, windows and stores of a trip.

use super::Refusal;
use super::body::Body;
use super::emit::{Argument, Bits, Emitter, Key};
use super::ir::{Binary, Cmp, Inst, Launch, Reg, Special, Unary};
use super::plan::{Partial, Plan, Section, Shape, To};
use super::trip::Trip;
use super::walk::{Walk, Windows, on};
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
    shape: &Shape,
) -> Result<Emitted, Refusal> {
    let mut e = Emitter::new(body, symbols, partials);
    e.teams = plan.teams;
    e.splits = shape.split;
    e.stages = shape.stages;
    let (x, y) = (e.code.special(Special::BlockX), e.code.special(Special::BlockY));
    if plan.teams > 1 {
        e.team = Some(e.code.special(Special::Team));
    }
    let lane = e.code.special(Special::Lane);
    let mut first = 0;
    let mut rows = 1;
    let mut blocks: Vec<Vec<Inst>> = vec![];
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
        blocks.push(e.code.end());
        first += s.groups;
    }
    // The first section whose blocks these are.
    let mut rest: Vec<Inst> = vec![];
    for (i, block) in blocks.into_iter().enumerate().rev() {
        let next: i64 = plan.sections.iter().take(i + 1).map(|s| s.groups).sum();
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
    let e_ring = (e.stages, e.group_bytes);
    let (kinds, lines, insts) = e.code.finish();
    let launch = Launch {
        name: name.to_string(),
        buffers,
        symbols: symbols.len(),
        lanes: plan.lanes as usize,
        warps: plan.warps as usize,
        teams: plan.teams as usize,
        resident: shape.resident as usize,
        ring: (e_ring.0 as usize, e_ring.1 as usize),
        kinds,
        lines,
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
        let ring = self.ring(s, &carried, plan)?;
        self.fill(&ring, s, start, trips)?;
        let (zero, rows) = (self.code.i32(0), self.code.i32(strip));
        let (var, state) = self.code.open_for(&init);
        self.enter_rows();
        self.row = Some(self.code.add(start, var));
        self.turn(&ring, s, (start, var), trips)?;
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

    /// What each window carries from one trip to the next: rows that both ask for.
    fn windows(&mut self, s: &Section, whole: &Walk) -> Result<Windows, Refusal> {
        let carry = |w: &Walk| -> Windows {
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
    fn documents(
        &mut self,
        whole: &Walk,
        strip: i64,
        unroll: i64,
        start: Reg,
    ) -> Result<Option<Bits>, Refusal> {
        let (Some((lo, hi)), Some((cu, padded))) = (whole.reach, whole.documents) else {
            return Ok(None);
        };
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
