//! In which order each pipeline rank runs its chunks over the microbatches.
//!
//! A schedule is data: a list of slots for each rank. [`schedule`] writes them by closed forms;
//! [`simulate`] gives them times. The forms are those of Megatron-LM's 1F1B and interleaved 1F1B,
//! of GPipe, and of ZB-H1 ("Zero Bubble Pipeline Parallelism", Qi et al.).

pub mod combined;
pub mod simulate;

use super::partition::placement::Grid;
use std::fmt;

/// Slots of all ranks at most.
pub const MAX_SLOTS: u64 = 1 << 24;

/// A family of schedules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// One forward, one backward; one chunk a rank.
    OneFOneB,
    /// 1F1B over several chunks a rank, microbatches in groups.
    Interleaved,
    /// All forwards, then all backwards.
    GPipe,
    /// 1F1B with the backward split: gradients of weights fill the bubble.
    ZbH1,
    /// Interleaved 1F1B with one more forward of warm-up, so that the forward and the backward of a
    /// steady step are independent and overlap, layer by layer, with each other's exchanges.
    CombinedOneFOneB,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] =
        [Kind::OneFOneB, Kind::Interleaved, Kind::GPipe, Kind::ZbH1, Kind::CombinedOneFOneB];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OneFOneB => "1f1b",
            Kind::Interleaved => "interleaved",
            Kind::GPipe => "gpipe",
            Kind::ZbH1 => "zb-h1",
            Kind::CombinedOneFOneB => "combined-1f1b",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Whether gradients of weights have slots of their own.
    pub fn splits_backward(self) -> bool {
        self == Kind::ZbH1
    }

    /// What is used where no kind is named: interleaved when there are chunks to interleave.
    pub fn default_for(grid: Grid) -> Kind {
        if grid.vpp > 1 { Kind::Interleaved } else { Kind::OneFOneB }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a slot does with a microbatch on a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// The forward.
    F,
    /// The backward; in schedules with [`Phase::W`], the gradient of the input alone.
    B,
    /// The gradients of the weights.
    W,
}

/// One run of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot {
    /// Forward or backward.
    pub phase: Phase,
    /// The microbatch, from 0.
    pub microbatch: u32,
    /// Which of the rank's chunks, from 0.
    pub chunk: u32,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}.{}", self.phase, self.microbatch, self.chunk)
    }
}

/// The slots of every rank, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Its kind.
    pub kind: Kind,
    /// Ranks and chunks.
    pub grid: Grid,
    /// Microbatches of a step.
    pub microbatches: u32,
    /// Microbatches that a chunk takes in a row before the rank turns to its next chunk.
    pub group: u32,
    /// Slots by pipeline rank.
    pub ranks: Vec<Vec<Slot>>,
}

/// Why there is no such schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// No microbatches, ranks or chunks.
    #[error("there is nothing to schedule")]
    Nothing,
    /// More than [`MAX_SLOTS`].
    #[error("the schedule has {slots} slots, more than {MAX_SLOTS}")]
    TooManySlots {
        /// Slots.
        slots: u64,
    },
    /// A schedule of one chunk a rank was asked to run several.
    #[error("{kind} runs one chunk a rank, not {vpp}")]
    OneChunk {
        /// The schedule.
        kind: Kind,
        /// Chunks of a rank.
        vpp: u32,
    },
    /// A schedule that interleaves chunks was given one.
    #[error("{kind} needs two chunks a rank or more")]
    NeedsChunks {
        /// The schedule.
        kind: Kind,
    },
    /// A schedule that interleaves was given one rank.
    #[error("{kind} of {vpp} chunks needs two pipeline ranks or more")]
    NeedsRanks {
        /// The schedule.
        kind: Kind,
        /// Chunks of a rank.
        vpp: u32,
    },
    /// Fewer microbatches in a group than ranks: rank 0 would wait for what is still on its way.
    #[error("a group of {group} microbatches is smaller than pp {pp}")]
    GroupBelowRanks {
        /// The group.
        group: u32,
        /// Pipeline ranks.
        pp: u32,
    },
    /// More microbatches in a group than there are.
    #[error("a group of {group} microbatches is larger than the step of {microbatches}")]
    GroupAboveMicrobatches {
        /// The group.
        group: u32,
        /// Microbatches.
        microbatches: u32,
    },
    /// A last group that is smaller than the ranks are many: the pipeline would stall.
    #[error("{microbatches} microbatches in groups of {group} leave {rest}, fewer than pp {pp}")]
    Remainder {
        /// Microbatches.
        microbatches: u32,
        /// The group.
        group: u32,
        /// Those of the last group.
        rest: u32,
        /// Pipeline ranks.
        pp: u32,
    },
}

/// Makes a schedule. `group` is N, the microbatches of a group; without interleaving it has no
/// effect. The usual group is `grid.pp`.
///
/// # Errors
/// See [`ScheduleError`].
pub fn schedule(
    kind: Kind,
    grid: Grid,
    microbatches: u32,
    group: u32,
) -> Result<Schedule, ScheduleError> {
    check(kind, grid, microbatches, group)?;
    let make = |p: u32| match kind {
        Kind::ZbH1 => zb_h1(grid.pp, p, microbatches),
        Kind::OneFOneB | Kind::Interleaved | Kind::GPipe | Kind::CombinedOneFOneB => {
            let table = table(grid.vpp, microbatches, group);
            one_f_one_b(&table, grid.vpp, warmup(kind, grid, microbatches, group, p) as usize)
        }
    };
    Ok(Schedule { kind, grid, microbatches, group, ranks: (0..grid.pp).map(make).collect() })
}

/// Whether there is such a schedule; [`schedule`] makes it.
///
/// # Errors
/// See [`ScheduleError`].
pub fn check(kind: Kind, grid: Grid, m: u32, group: u32) -> Result<(), ScheduleError> {
    let Grid { pp, vpp } = grid;
    if m == 0 || pp == 0 || vpp == 0 || group == 0 {
        return Err(ScheduleError::Nothing);
    }
    let phases = if kind.splits_backward() { 3 } else { 2 };
    let slots = grid.chunks().saturating_mul(u64::from(m)).saturating_mul(phases);
    if slots > MAX_SLOTS {
        return Err(ScheduleError::TooManySlots { slots });
    }
    match kind {
        Kind::OneFOneB | Kind::ZbH1 if vpp > 1 => {
            return Err(ScheduleError::OneChunk { kind, vpp });
        }
        Kind::Interleaved if vpp == 1 => return Err(ScheduleError::NeedsChunks { kind }),
        Kind::CombinedOneFOneB if vpp == 1 && pp > 1 => {
            return Err(ScheduleError::NeedsChunks { kind });
        }
        Kind::Interleaved | Kind::CombinedOneFOneB if pp == 1 && vpp > 1 => {
            return Err(ScheduleError::NeedsRanks { kind, vpp });
        }
        _ => {}
    }
    if vpp == 1 {
        return Ok(());
    }
    if group < pp {
        return Err(ScheduleError::GroupBelowRanks { group, pp });
    }
    if group > m {
        return Err(ScheduleError::GroupAboveMicrobatches { group, microbatches: m });
    }
    let rest = m % group;
    if rest != 0 && rest < pp {
        return Err(ScheduleError::Remainder { microbatches: m, group, rest, pp });
    }
    Ok(())
}

/// Forwards of rank `p` before its first pair of a forward and a backward: `min(m, P - p - 1)` of
/// 1F1B, `min(m V, 2 (P - p - 1) + (V - 1) N)` when interleaved, one more when combined.
pub fn warmup(kind: Kind, grid: Grid, microbatches: u32, group: u32, p: u32) -> u64 {
    let all = u64::from(microbatches) * u64::from(grid.vpp);
    let behind = u64::from(grid.pp.saturating_sub(p + 1));
    let interleaved = 2 * behind + u64::from(grid.vpp.saturating_sub(1)) * u64::from(group);
    let forwards = match kind {
        Kind::OneFOneB | Kind::ZbH1 => behind,
        Kind::Interleaved => interleaved,
        Kind::CombinedOneFOneB => interleaved + 1,
        Kind::GPipe => all,
    };
    forwards.min(all)
}

/// The order of forwards on every rank, as (microbatch, chunk): groups of microbatches, each group
/// through all chunks before the next. Backwards take the same table with the chunks reversed.
pub fn table(vpp: u32, microbatches: u32, group: u32) -> Vec<(u32, u32)> {
    let group = group.max(1);
    let starts = (0..microbatches).step_by(group as usize);
    starts
        .flat_map(|start| {
            let end = microbatches.min(start.saturating_add(group));
            (0..vpp).flat_map(move |v| (start..end).map(move |i| (i, v)))
        })
        .collect()
}

/// Warm-up forwards, then pairs of a forward and a backward, then the backwards that are left.
fn one_f_one_b(table: &[(u32, u32)], vpp: u32, warmup: usize) -> Vec<Slot> {
    let forward = |(microbatch, chunk): (u32, u32)| Slot { phase: Phase::F, microbatch, chunk };
    let backward =
        |(microbatch, v): (u32, u32)| Slot { phase: Phase::B, microbatch, chunk: vpp - 1 - v };
    let warmup = warmup.min(table.len());
    let mut slots: Vec<Slot> = table[..warmup].iter().copied().map(forward).collect();
    for (j, f) in table[warmup..].iter().enumerate() {
        slots.push(forward(*f));
        slots.push(backward(table[j]));
    }
    slots.extend(table[table.len() - warmup..].iter().copied().map(backward));
    slots
}

/// 1F1B in which rank `p` computes the gradients of weights `p` microbatches late: later ranks,
/// which have fewer forwards in flight, put them off longer and send gradients up sooner, so that
/// every rank holds P microbatches at most.
fn zb_h1(pp: u32, p: u32, microbatches: u32) -> Vec<Slot> {
    let slot = |phase, microbatch| Slot { phase, microbatch, chunk: 0 };
    let warmup = microbatches.min(pp - p - 1);
    let mut slots: Vec<Slot> = (0..warmup).map(|i| slot(Phase::F, i)).collect();
    for j in 0..microbatches {
        if warmup + j < microbatches {
            slots.push(slot(Phase::F, warmup + j));
        }
        slots.push(slot(Phase::B, j));
        if j >= p {
            slots.push(slot(Phase::W, j - p));
        }
    }
    slots.extend((microbatches.saturating_sub(p)..microbatches).map(|j| slot(Phase::W, j)));
    slots
}

/// Chunk activations that a rank holds at most: forwards whose last backward has not run. What a
/// chunk saved is needed until its weights have their gradients.
pub fn in_flight(slots: &[Slot]) -> u32 {
    let last = if slots.iter().any(|s| s.phase == Phase::W) { Phase::W } else { Phase::B };
    let (mut live, mut most) = (0u32, 0u32);
    for s in slots {
        if s.phase == Phase::F {
            live += 1;
            most = most.max(live);
        } else if s.phase == last {
            live = live.saturating_sub(1);
        }
    }
    most
}

/// Schedules near a refused one, best first, each checked: kind, microbatches and group.
pub fn alternatives(kind: Kind, grid: Grid, m: u32, group: u32) -> Vec<(Kind, u32, u32)> {
    let legal = |(kind, m, group): &(Kind, u32, u32)| check(*kind, grid, *m, *group).is_ok();
    let pp = grid.pp.max(1);
    let up = |of: u32, by: u32| of.checked_next_multiple_of(by.max(1)).filter(|m| *m > 0);
    let kinds = [kind, Kind::default_for(grid)];
    let mut out: Vec<(Kind, u32, u32)> = vec![];
    for kind in kinds {
        let near = [
            Some((kind, m, group)),
            // The same microbatches in other groups.
            (pp..=m)
                .min_by_key(|n| (!legal(&(kind, m, *n)), n.abs_diff(group)))
                .map(|n| (kind, m, n)),
            // More or fewer microbatches in the same groups.
            up(m.max(1), group).map(|m| (kind, m, group)),
            Some((kind, m - m % group.max(1), group)),
            up(m.max(1), pp).map(|m| (kind, m, pp)),
        ];
        for found in near.into_iter().flatten().filter(legal) {
            if !out.contains(&found) {
                out.push(found);
            }
        }
    }
    out.truncate(3);
    out
}
