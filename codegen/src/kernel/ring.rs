//! Rows on their way from memory: a ring of groups of rows on the chip.
//!
//! Loads in flight cost registers; copies in flight do not. Where rows are walked in trips, each lane
//! fetches its own elements of the rows some trips ahead into slots that it alone reads, so that no
//! lane waits for another. Rows that are not there are filled with zeros.

use super::Refusal;
use super::body::{Offset, Step};
use super::emit::{Argument, Emitter, Key};
use super::index::{Ix, gcd};
use super::ir::{Binary, Cmp, Place, Reg, Slot};
use super::plan::{Plan, Section, bytes};
use super::walk::{Line, Walk, on};
use rustc_hash::FxHashSet;
use vlmc_ir::ty::DType;

/// A load of a trip.
struct Load {
    key: Key,
    argument: Argument,
    dtype: DType,
    offset: Offset,
    vector: i64,
    /// Bytes a lane of the loads before it.
    before: i64,
}

/// What a section fetches ahead; empty when it fetches nothing.
#[derive(Default)]
pub(crate) struct Ring {
    loads: Vec<Load>,
    stages: i64,
    /// Bytes a lane of a trip.
    group: i64,
}

/// Bytes of a block's ring at most: two blocks or more fit a multiprocessor.
const MOST: i64 = 96 * 1024;

impl Emitter<'_, '_> {
    /// The loads of a section's trips that can be fetched.
    pub(crate) fn ring(
        &mut self,
        s: &Section,
        carried: &[(Line, (i64, i64))],
        plan: &Plan,
    ) -> Result<Ring, Refusal> {
        let mut ring = Ring::default();
        // A ring that is filled but once is a detour.
        let trips = s.strip / s.unroll;
        if self.stages < 2 || s.looped || trips < self.stages {
            return Ok(ring);
        }
        let known: FxHashSet<Key> =
            carried.iter().flat_map(|(l, (lo, hi))| (*lo..=*hi).map(|r| on(l, r))).collect();
        let mut walk = Walk::default();
        for (line, (lo, hi)) in carried {
            for r in *lo..=*hi {
                let (v, at) = on(line, r + s.unroll);
                self.walk((v, &at), &known, &mut walk)?;
            }
        }
        self.walk_pieces(s, &known, &mut walk)?;
        for key in walk.loads {
            let Step::Input { input, offset } = self.body.step(key.0, &key.1)? else { continue };
            let (Some((row, stride)), Some(vector)) = (&offset.row, offset.rest.vector()) else {
                continue;
            };
            let dtype = self.body.dtype(key.0);
            let aligned = gcd(gcd(offset.rest.divisor(vector), *stride), vector) == vector;
            let size = vector * bytes(dtype);
            let fits = size >= 4 && (size <= 16 || size % 16 == 0);
            if row.as_row().is_none()
                || offset.rest.lane_stride() != Some(1)
                || !aligned
                || !fits
                || !dtype.is_float()
            {
                continue;
            }
            let argument = Argument::Input(input);
            ring.loads.push(Load { key, argument, dtype, vector, before: ring.group, offset });
            ring.group += size;
        }
        let threads = plan.lanes * plan.warps * plan.teams;
        ring.stages = self.stages.min(MOST / (ring.group * threads).max(1));
        if ring.stages < 2 {
            return Ok(Ring::default());
        }
        // All sections share the bytes of one ring.
        self.group_bytes =
            self.group_bytes.max((ring.group * ring.stages + self.stages - 1) / self.stages);
        Ok(ring)
    }

    /// Fetches the first trips.
    pub(crate) fn fill(
        &mut self,
        ring: &Ring,
        s: &Section,
        start: Reg,
        trips: i64,
    ) -> Result<(), Refusal> {
        for trip in 0..(ring.stages - 1).max(0) {
            let ahead = self.code.i32(trip * s.unroll);
            let row = self.code.add(start, ahead);
            let stage = self.code.i32(trip);
            let there =
                if trip < trips { None } else { Some(self.code.whole(0, super::ir::Ty::Bool)) };
            self.fetch_rows(ring, row, stage, there)?;
        }
        Ok(())
    }

    /// Waits for the rows of this trip, fetches those of a later one, and learns the former.
    pub(crate) fn turn(
        &mut self,
        ring: &Ring,
        s: &Section,
        (start, var): (Reg, Reg),
        trips: i64,
    ) -> Result<(), Refusal> {
        if ring.loads.is_empty() {
            return Ok(());
        }
        let unroll = self.code.i32(s.unroll);
        let trip = self.code.binary(Binary::Quotient, var, unroll);
        self.code.wait((ring.stages - 2) as usize);
        let count = self.code.i32(ring.stages);
        let ahead = self.code.i32(ring.stages - 1);
        let later = self.code.add(trip, ahead);
        let stage = self.code.binary(Binary::Remainder, later, count);
        let last = self.code.i32(trips);
        let there = self.code.compare(Cmp::Lt, later, last);
        let rows = self.code.mul(later, unroll);
        let row = self.code.add(start, rows);
        let stage_now = self.code.binary(Binary::Remainder, trip, count);
        // Read before the next rows are fetched: they go where those of the trip before were.
        for load in &ring.loads {
            let mut regs = vec![];
            for (from, count) in parts(load) {
                let slot = slot(ring, load, from, count, stage_now);
                regs.extend(self.code.fetched(load.dtype, count as usize, slot));
            }
            self.learn(load.key.clone(), regs.into());
        }
        let here = self.row;
        self.fetch_rows(ring, row, stage, Some(there))?;
        self.row = here;
        Ok(())
    }

    fn fetch_rows(
        &mut self,
        ring: &Ring,
        row: Reg,
        stage: Reg,
        there: Option<Reg>,
    ) -> Result<(), Refusal> {
        let here = self.row.replace(row);
        self.enter_rows();
        for load in &ring.loads {
            let Some(k) = load.offset.row.as_ref().and_then(|(r, _)| r.as_row()) else { continue };
            let at = self.clamped(k)?;
            let exact = self.index(&Ix::var(super::index::Var::Row).add(k), 0)?;
            let same = self.code.compare(Cmp::Eq, at, exact);
            let ok = match there {
                Some(t) => self.code.binary(Binary::And, same, t),
                None => same,
            };
            let before = (self.vector, self.span);
            (self.vector, self.span) = (load.vector, load.vector * self.team_lanes);
            let place =
                self.place((load.argument, load.dtype), &load.offset, (0, load.vector), Some(at));
            self.deal_back(before);
            let place = place?;
            for (from, count) in parts(load) {
                let part = Place {
                    constant: place.constant + from,
                    count: count as usize,
                    align: (count * bytes(load.dtype)) as u64,
                    ..place.clone()
                };
                self.code.fetch(part, Some(ok), slot(ring, load, from, count, stage));
            }
        }
        self.code.commit();
        self.leave();
        self.row = here;
        Ok(())
    }
}

/// A load's elements in pieces of at most 16 bytes.
fn parts(load: &Load) -> Vec<(i64, i64)> {
    let most = (16 / bytes(load.dtype)).min(load.vector);
    (0..load.vector).step_by(most as usize).map(|from| (from, most)).collect()
}

fn slot(ring: &Ring, load: &Load, from: i64, count: i64, stage: Reg) -> Slot {
    Slot {
        stage,
        before: (load.before + from * bytes(load.dtype)) as usize,
        group: ring.group as usize,
        bytes: (count * bytes(load.dtype)) as usize,
    }
}
