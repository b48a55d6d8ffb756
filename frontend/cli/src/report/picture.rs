//! A plan's schedule with times: what pictures are drawn from.

use std::collections::BTreeMap;
use vlmc_artifact::Plan;
use vlmc_passes::partition::placement::Grid;
use vlmc_passes::schedule::simulate::{Times, simulate};
use vlmc_passes::schedule::{Kind, Phase, Schedule, Slot};

/// A slot with its times, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// What runs.
    pub slot: Slot,
    /// When it starts.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

/// A message from the end of a slot to the start of another one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arrow {
    /// The rank that sends, and when.
    pub from: (usize, f64),
    /// The rank that receives, and when what needs it starts.
    pub to: (usize, f64),
    /// What receives it.
    pub slot: Slot,
}

/// A schedule with times.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    /// Runs by rank, in order.
    pub ranks: Vec<Vec<Run>>,
    /// Messages between ranks, by receiver and time.
    pub arrows: Vec<Arrow>,
    /// Bytes in memory of each rank: from when on how many.
    pub memory: Vec<Vec<(f64, u64)>>,
    /// The end of the step.
    pub end: f64,
}

impl Picture {
    /// The picture of a plan; `None` for a plan whose schedule is not one.
    pub fn of(plan: &Plan) -> Option<Picture> {
        let number = |n: usize| u32::try_from(n).ok();
        let grid = Grid { pp: number(plan.layout.pp)?, vpp: number(plan.layout.vpp)? };
        let ranks: Vec<Vec<Slot>> = plan
            .schedule
            .ranks
            .iter()
            .map(|r| r.iter().map(|s| slot(s)).collect())
            .collect::<Option<_>>()?;
        if plan.chunks.len() as u64 != grid.chunks() || ranks.len() != plan.layout.pp {
            return None;
        }
        let m = plan.schedule.microbatches;
        let inside = |s: &Slot| s.chunk < grid.vpp && (s.microbatch as usize) < m;
        if !ranks.iter().flatten().all(inside) {
            return None;
        }
        let schedule = Schedule {
            kind: Kind::from_name(&plan.schedule.kind)?,
            grid,
            microbatches: number(m)?,
            group: number(plan.schedule.group)?,
            ranks,
        };
        let spans = spans(plan, &schedule)?;
        let runs: Vec<Vec<Run>> = schedule
            .ranks
            .iter()
            .zip(&spans)
            .map(|(slots, spans)| {
                let each = slots.iter().zip(spans);
                each.map(|(slot, (start, end))| Run { slot: *slot, start: *start, end: *end })
                    .collect()
            })
            .collect();
        let end = spans.iter().flatten().map(|s| s.1).fold(0.0, f64::max);
        let memory = (0..runs.len()).map(|p| memory(plan, grid, p, &runs[p])).collect();
        Some(Picture { arrows: arrows(grid, &runs), memory, ranks: runs, end })
    }
}

/// `F3.1`
fn slot(text: &str) -> Option<Slot> {
    let phase = match text.chars().next()? {
        'F' => Phase::F,
        'B' => Phase::B,
        'W' => Phase::W,
        _ => return None,
    };
    let (microbatch, chunk) = text.get(1..)?.split_once('.')?;
    Some(Slot { phase, microbatch: microbatch.parse().ok()?, chunk: chunk.parse().ok()? })
}

/// Starts and ends of the slots: those of the plan, or of a run by the clock.
fn spans(plan: &Plan, schedule: &Schedule) -> Option<Vec<Vec<(f64, f64)>>> {
    let lengths = |r: &[Vec<(f64, f64)>]| r.iter().map(Vec::len).collect::<Vec<_>>();
    let slots: Vec<usize> = schedule.ranks.iter().map(Vec::len).collect();
    let good = |(start, end): &(f64, f64)| start.is_finite() && end.is_finite() && start <= end;
    if lengths(&plan.timeline) == slots && plan.timeline.iter().flatten().all(good) {
        return Some(plan.timeline.clone());
    }
    let line = simulate(schedule, &times(plan, schedule)).ok()?;
    Some(line.ranks.iter().map(|r| r.iter().map(|s| (s.start, s.end)).collect()).collect())
}

/// Times of the chunks; those of a plan without any are one to two.
fn times(plan: &Plan, schedule: &Schedule) -> Times {
    let split = schedule.kind.splits_backward();
    let mut times = Times::default();
    for c in &plan.chunks {
        let (f, b) = (c.ms_fwd.unwrap_or(1.0), c.ms_bwd.unwrap_or(2.0));
        times.forward.push(f);
        times.backward.push(if split { b / 2.0 } else { b });
        times.weight.push(if split { b / 2.0 } else { 0.0 });
    }
    times
}

/// Messages between chunks of different ranks.
fn arrows(grid: Grid, runs: &[Vec<Run>]) -> Vec<Arrow> {
    let chunks = grid.chunks() as usize;
    let cell = |g: usize, s: Slot| {
        (s.microbatch as usize * chunks + g) * 2 + usize::from(s.phase == Phase::B)
    };
    let mut ends: BTreeMap<usize, (usize, f64)> = BTreeMap::new();
    for (p, rank) in runs.iter().enumerate() {
        for r in rank.iter().filter(|r| r.slot.phase != Phase::W) {
            ends.insert(cell(grid.index(p as u32, r.slot.chunk), r.slot), (p, r.end));
        }
    }
    let mut out = vec![];
    for (p, rank) in runs.iter().enumerate() {
        for r in rank {
            let g = grid.index(p as u32, r.slot.chunk);
            let before = match r.slot.phase {
                Phase::F => g.checked_sub(1),
                Phase::B => Some(g + 1).filter(|g| *g < chunks),
                Phase::W => None,
            };
            let sent = before.and_then(|g| ends.get(&cell(g, r.slot)));
            if let Some(from) = sent.filter(|(q, _)| *q != p) {
                out.push(Arrow { from: *from, to: (p, r.start), slot: r.slot });
            }
        }
    }
    out
}

/// What a rank holds over time: what stays, and what forwards keep until their last backward.
fn memory(plan: &Plan, grid: Grid, p: usize, runs: &[Run]) -> Vec<(f64, u64)> {
    let peak = plan.memory.iter().find(|m| m.pp == p && m.cp == 0);
    let fixed = peak.map_or(0, |m| m.params + m.grads + m.optimizer + m.workspace);
    let last = if runs.iter().any(|r| r.slot.phase == Phase::W) { Phase::W } else { Phase::B };
    let mut now = fixed;
    let mut out = vec![(0.0, now)];
    for r in runs {
        let g = grid.index(p as u32, r.slot.chunk);
        let saved = plan.saved.get(g).copied().unwrap_or(0);
        if r.slot.phase == Phase::F {
            now += saved;
            out.push((r.start, now));
        } else if r.slot.phase == last {
            now = now.saturating_sub(saved);
            out.push((r.end, now));
        }
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use vlmc_artifact::{Chunk, Layout, SchedulePlan};

    /// Two ranks, two microbatches, forwards of 1 ms and backwards of 2: facts B1 by hand.
    pub fn small() -> Plan {
        let chunk = |pp| Chunk { pp, ms_fwd: Some(1.0), ms_bwd: Some(2.0), ..Chunk::default() };
        let slots = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        Plan {
            model: "M".to_string(),
            layout: Layout { pp: 2, ..Layout::default() },
            chunks: vec![chunk(0), chunk(1)],
            saved: vec![10, 20],
            schedule: SchedulePlan {
                kind: "1f1b".to_string(),
                microbatches: 2,
                group: 2,
                ranks: vec![slots("F0.0 F1.0 B0.0 B1.0"), slots("F0.0 B0.0 F1.0 B1.0")],
                ..SchedulePlan::default()
            },
            ..Plan::default()
        }
    }

    #[test]
    fn times_arrows_and_memory() {
        let p = Picture::of(&small()).expect("a schedule");
        let spans = |r: usize| p.ranks[r].iter().map(|r| (r.start, r.end)).collect::<Vec<_>>();
        assert_eq!(spans(0), [(0.0, 1.0), (1.0, 2.0), (4.0, 6.0), (7.0, 9.0)]);
        assert_eq!(spans(1), [(1.0, 2.0), (2.0, 4.0), (4.0, 5.0), (5.0, 7.0)]);
        let arrows: Vec<_> = p.arrows.iter().map(|a| (a.from, a.to)).collect();
        assert_eq!(
            arrows,
            [
                ((1, 4.0), (0, 4.0)),
                ((1, 7.0), (0, 7.0)),
                ((0, 1.0), (1, 1.0)),
                ((0, 2.0), (1, 4.0))
            ]
        );
        assert_eq!(p.memory[0], [(0.0, 0), (0.0, 10), (1.0, 20), (6.0, 10), (9.0, 0)]);
        assert_eq!(p.end, 9.0);
    }

    #[test]
    fn what_is_no_schedule_has_no_picture() {
        for bad in ["F0", "X0.0", "F0.7", "F9.0", ""] {
            let mut plan = small();
            plan.schedule.ranks[0][0] = bad.to_string();
            assert!(Picture::of(&plan).is_none(), "{bad}");
        }
        let mut stuck = small();
        stuck.schedule.ranks[0].swap(0, 2);
        assert!(Picture::of(&stuck).is_none());
    }
}
