//! Running a schedule by the clock: when each slot starts and ends, given the time of each chunk.
//!
//! A rank runs its slots one after the other. A slot starts when the rank is free and what it needs
//! has come: a forward needs the chunk before it, a backward its own forward and the chunk after
//! it, the gradients of weights their backward.

use super::combined::Pair;
use super::{Phase, Schedule, Slot};
use crate::partition::placement::Grid;

/// Times of the chunks, by `g = v * P + p`, in one unit, usually milliseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Times {
    /// Of forwards.
    pub forward: Vec<f64>,
    /// Of backwards; of their input half where the schedule splits them.
    pub backward: Vec<f64>,
    /// Of the gradients of weights; read only where the schedule splits backwards.
    pub weight: Vec<f64>,
    /// From a rank to the next.
    pub send: f64,
}

impl Times {
    /// The same times for every chunk, and sends that take none.
    pub fn equal(grid: Grid, forward: f64, backward: f64, weight: f64) -> Times {
        let all = |t| vec![t; grid.chunks() as usize];
        Times { forward: all(forward), backward: all(backward), weight: all(weight), send: 0.0 }
    }

    fn of(&self, phase: Phase, g: usize) -> f64 {
        let times = match phase {
            Phase::F => &self.forward,
            Phase::B => &self.backward,
            Phase::W => &self.weight,
        };
        times.get(g).copied().unwrap_or(0.0)
    }
}

/// When a slot runs.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Span {
    /// Start.
    pub start: f64,
    /// End.
    pub end: f64,
}

/// A schedule with times.
#[derive(Clone, PartialEq, Debug)]
pub struct Timeline {
    /// Spans by rank, in the order of its slots.
    pub ranks: Vec<Vec<Span>>,
    /// When the last rank is done.
    pub makespan: f64,
}

impl Timeline {
    /// Time in which a rank has something to do; what runs beside something else counts once.
    pub fn busy(&self, rank: usize) -> f64 {
        let (mut sum, mut until) = (0.0f64, 0.0f64);
        for s in self.ranks.get(rank).into_iter().flatten() {
            sum += (s.end - s.start.max(until)).max(0.0);
            until = until.max(s.end);
        }
        sum
    }

    /// Idle time of a rank from the start of the step to its end.
    pub fn bubble(&self, rank: usize) -> f64 {
        self.makespan - self.busy(rank)
    }

    /// Idle time of all ranks over their busy time.
    pub fn bubble_ratio(&self) -> f64 {
        let busy: f64 = (0..self.ranks.len()).map(|p| self.busy(p)).sum();
        let idle: f64 = (0..self.ranks.len()).map(|p| self.bubble(p)).sum();
        if busy > 0.0 { idle / busy } else { 0.0 }
    }
}

/// Ranks wait for each other without end: each next slot of those that are not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no rank can go on: {}", waiting.iter().map(|(p, s)| format!("rank {p} at {s}")).collect::<Vec<_>>().join(", "))]
pub struct Deadlock {
    /// Rank and slot.
    pub waiting: Vec<(usize, Slot)>,
}

/// The times of a pair of a forward and a backward that run beside each other, by the `g` of both.
pub type Pairs<'a> = dyn Fn(usize, usize) -> Pair + 'a;

/// Gives a schedule times.
///
/// # Errors
/// When some slot can never run.
pub fn simulate(schedule: &Schedule, times: &Times) -> Result<Timeline, Deadlock> {
    run(Clock::new(schedule, times, None))
}

/// Gives a schedule times in which each forward of the steady state runs beside the backward that
/// follows it. Both start when both can.
///
/// # Errors
/// When some slot can never run.
pub fn simulate_pairs(
    schedule: &Schedule,
    times: &Times,
    pairs: &Pairs<'_>,
) -> Result<Timeline, Deadlock> {
    run(Clock::new(schedule, times, Some(pairs)))
}

fn run(mut clock: Clock<'_>) -> Result<Timeline, Deadlock> {
    // A rank goes on for as long as it can; then the next one has a turn.
    loop {
        let mut moved = false;
        for p in 0..clock.schedule.ranks.len() {
            while clock.step(p) {
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    clock.finish()
}

struct Clock<'s> {
    schedule: &'s Schedule,
    times: &'s Times,
    pairs: Option<&'s Pairs<'s>>,
    /// When a phase of a microbatch on a chunk was done.
    done: Vec<Option<f64>>,
    ranks: Vec<Vec<Span>>,
}

impl<'s> Clock<'s> {
    fn new(schedule: &'s Schedule, times: &'s Times, pairs: Option<&'s Pairs<'s>>) -> Self {
        let cells = schedule.grid.chunks() as usize * schedule.microbatches as usize * 3;
        let ranks = vec![vec![]; schedule.ranks.len()];
        Clock { schedule, times, pairs, done: vec![None; cells], ranks }
    }

    fn cell(&self, phase: Phase, microbatch: u32, g: usize) -> usize {
        let chunks = self.schedule.grid.chunks() as usize;
        (microbatch as usize * chunks + g) * 3 + phase as usize
    }

    fn done(&self, phase: Phase, microbatch: u32, g: usize) -> Option<f64> {
        self.done.get(self.cell(phase, microbatch, g)).copied().flatten()
    }

    /// When what a slot needs has come, if it has.
    fn ready(&self, s: Slot, g: usize) -> Option<f64> {
        let last = self.schedule.grid.chunks() as usize - 1;
        let send = self.sending();
        let m = s.microbatch;
        match s.phase {
            Phase::F if g == 0 => Some(0.0),
            Phase::F => Some(self.done(Phase::F, m, g - 1)? + send),
            Phase::B if g == last => self.done(Phase::F, m, g),
            Phase::B => {
                let own = self.done(Phase::F, m, g)?;
                Some(own.max(self.done(Phase::B, m, g + 1)? + send))
            }
            Phase::W => self.done(Phase::B, m, g),
        }
    }

    /// Between chunks of one rank nothing is sent.
    fn sending(&self) -> f64 {
        if self.schedule.grid.pp > 1 { self.times.send } else { 0.0 }
    }

    /// Runs the next slot of a rank if it can.
    fn step(&mut self, p: usize) -> bool {
        let at = self.ranks[p].len();
        let Some(slot) = self.schedule.ranks[p].get(at).copied() else { return false };
        let g = self.schedule.grid.index(p as u32, slot.chunk);
        let Some(ready) = self.ready(slot, g) else { return false };
        let start = self.free(p).max(ready);
        if let (Some(pairs), Some(other)) = (self.pairs, self.beside(p, at)) {
            let h = self.schedule.grid.index(p as u32, other.chunk);
            let Some(ready) = self.ready(other, h) else { return false };
            let start = start.max(ready);
            let pair = pairs(g, h);
            self.put(p, slot, g, Span { start, end: start + pair.forward });
            self.put(p, other, h, Span { start, end: start + pair.backward });
            return true;
        }
        self.put(p, slot, g, Span { start, end: start + self.times.of(slot.phase, g) });
        true
    }

    /// When a rank has done all that it began.
    fn free(&self, p: usize) -> f64 {
        self.ranks[p].iter().rev().take(2).map(|s| s.end).fold(0.0, f64::max)
    }

    /// The backward that runs beside the forward at a place: the next slot, in the steady state. The
    /// forward that ends the warm-up of a rank with no steady state has no partner.
    fn beside(&self, p: usize, at: usize) -> Option<Slot> {
        let s = self.schedule;
        let warmup = super::warmup(s.kind, s.grid, s.microbatches, s.group, p as u32);
        let slots = &s.ranks[p];
        let steady = at as u64 >= warmup && slots.get(at)?.phase == Phase::F;
        slots.get(at + 1).copied().filter(|next| steady && next.phase == Phase::B)
    }

    fn put(&mut self, p: usize, slot: Slot, g: usize, span: Span) {
        self.ranks[p].push(span);
        let cell = self.cell(slot.phase, slot.microbatch, g);
        if let Some(done) = self.done.get_mut(cell) {
            *done = Some(span.end);
        }
    }

    fn finish(self) -> Result<Timeline, Deadlock> {
        let next = |p: usize| self.schedule.ranks[p].get(self.ranks[p].len()).map(|s| (p, *s));
        let waiting: Vec<(usize, Slot)> = (0..self.ranks.len()).filter_map(next).collect();
        if !waiting.is_empty() {
            return Err(Deadlock { waiting });
        }
        let ends = self.ranks.iter().flatten().map(|s| s.end);
        let makespan = ends.fold(0.0, f64::max);
        Ok(Timeline { ranks: self.ranks, makespan })
    }
}
