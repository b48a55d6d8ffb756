//! `--layout auto`: shares of layers that balance modelled time within the device's memory.
//!
//! The shares are those of [`vlmc_passes::partition::auto`]. They are taken if the schedule, run by
//! the clock, is shorter with them than with equal shares.

use super::{Analysis, GIB, memory};
use crate::layout::{Layout, written};
use vlmc_passes::partition::auto::{Loads, Memory, balance};
use vlmc_passes::partition::letters;
use vlmc_passes::partition::placement::{Chunk, Content, Split, place};
use vlmc_passes::schedule::{Phase, Slot, schedule};

/// Shares for a layout that has equal ones, and why.
pub fn shares(a: &Analysis, equal: &Layout) -> Option<(Split, String)> {
    let chunks = usize::try_from(equal.grid.chunks()).ok()?;
    let mut loads = loads(a, equal);
    let counts = match balance(&loads, chunks) {
        Some(counts) => counts,
        // Too little memory, whatever the shares: the plan will say so.
        None => {
            loads.memory = None;
            balance(&loads, chunks)?
        }
    };
    let by_cost = Split::Letters(letters::write(&counts, chunks - 1, a.model.mtp));
    let even = Split::Even { embedding: false, loss: false };
    let mut tried: Vec<(&str, f64, Split, Layout)> = vec![];
    for (name, split) in [("by cost", by_cost), ("even", even), ("by count", equal.split.clone())] {
        let Ok(placement) = place(&a.model, equal.grid, &split) else { continue };
        let layout = Layout { split: split.clone(), placement, ..equal.clone() };
        let known = |t: &(&str, f64, Split, Layout)| t.3.placement == layout.placement;
        if tried.iter().any(known) {
            continue;
        }
        let (_, _, line) = a.timeline(&layout).ok()?;
        tried.push((name, line.makespan, split, layout));
    }
    let best = tried.iter().min_by(|x, y| x.1.total_cmp(&y.1))?;
    let times: Vec<String> =
        tried.iter().map(|(name, ms, ..)| format!("{name} {ms:.1} ms")).collect();
    let flags = written(equal.grid, &best.2);
    Some((best.2.clone(), format!("auto takes `{flags}`: a step is {}", times.join(", "))))
}

/// What layers and the parts at both ends cost under a layout.
pub fn loads(a: &Analysis, layout: &Layout) -> Loads {
    // The parts of a chunk as if it stood alone, as the first or as a later one.
    let alone = |contents: Vec<Content>, g: usize| {
        let chunk = Chunk { contents, ..Chunk::default() };
        let cost = a.chunk(layout, g, &chunk);
        (cost.ms[0] + cost.ms[1], memory::held(a, layout, &chunk.contents), cost.saved)
    };
    let depth = a.model.layers.len() as u32;
    let layers: Vec<_> = (0..depth).map(|i| alone(vec![Content::Layer(i)], 1)).collect();
    let first = alone(vec![Content::Vision, Content::Embed], 0);
    let mut behind = vec![Content::FinalNorm, Content::LmHead, Content::Loss];
    behind.extend((0..a.model.mtp).map(Content::Mtp));
    let last = alone(behind, 1);
    let chunks = layout.placement.chunks.iter();
    let live = schedule(layout.kind, layout.grid, layout.microbatches, layout.group).map(|s| {
        chunks
            .map(|c| s.ranks.get(c.pp as usize).map_or(1.0, |slots| live(slots, c.vp)))
            .collect::<Vec<f64>>()
    });
    let memory = live.ok().map(|live| Memory {
        held: layers.iter().map(|l| l.1).collect(),
        saved: layers.iter().map(|l| l.2).collect(),
        first: [first.1, first.2],
        last: [last.1, last.2],
        live,
        limit: a.device.memory_gib * GIB / f64::from(layout.grid.vpp),
    });
    Loads { layers: layers.iter().map(|l| l.0).collect(), first: first.0, last: last.0, memory }
}

/// Most microbatches whose activations a chunk holds at once.
fn live(slots: &[Slot], chunk: u32) -> f64 {
    let own: Vec<&Slot> = slots.iter().filter(|s| s.chunk == chunk).collect();
    let last = if own.iter().any(|s| s.phase == Phase::W) { Phase::W } else { Phase::B };
    let (mut now, mut most) = (0i64, 0i64);
    for s in own {
        now += i64::from(s.phase == Phase::F) - i64::from(s.phase == last);
        most = most.max(now);
    }
    most as f64
}
