//! Bytes of a rank by formula: parameters, gradients, optimizer state, and what forwards keep.
//!
//! Main gradients are f32, the state is a master copy and two moments in f32, shared among the
//! `cp * dp` ranks of a stage (of experts among those that hold the same ones).

use super::cost::Size;
use super::{Analysis, round};
use crate::layout::Layout;
use vlmc_artifact::MemoryPeak;
use vlmc_passes::partition::placement::{Chunk, Content};
use vlmc_passes::schedule::{Phase, Schedule};

/// Bytes of a main gradient, and of a parameter's optimizer state.
const GRADIENT: f64 = 4.0;
const STATE: f64 = 12.0;

/// The peak of each pipeline and context-parallel rank.
pub(super) fn memory(a: &Analysis, layout: &Layout, schedule: &Schedule) -> Vec<MemoryPeak> {
    let mut out = vec![];
    for p in 0..layout.grid.pp {
        let one = rank(a, layout, schedule, p);
        // Zigzag pieces make the ranks of a sequence equal.
        out.extend((0..layout.cp as usize).map(|cp| MemoryPeak { cp, ..one.clone() }));
    }
    out
}

/// Elements of parameters that a rank holds, and bytes of its share of their state.
fn elements(params: Vec<(String, Size)>, layout: &Layout) -> (f64, f64) {
    let replicas = f64::from(layout.cp) * f64::from(layout.dp);
    let ep = f64::from(layout.ep);
    let (mut held, mut state) = (0.0, 0.0);
    for (_, size) in params {
        let n = size.elements as f64 / if size.of_experts { ep } else { 1.0 };
        let copies = if size.of_experts { (replicas / ep).max(1.0) } else { replicas };
        held += n;
        state += STATE * n / copies;
    }
    (held, state)
}

/// Bytes of parameters, gradients and state of some parts together.
pub(super) fn held(a: &Analysis, layout: &Layout, contents: &[Content]) -> f64 {
    let chunk = Chunk { contents: contents.to_vec(), ..Chunk::default() };
    let (held, state) = elements(a.params(std::iter::once(&chunk)), layout);
    held * (a.costs.element as f64 + GRADIENT) + state
}

fn rank(a: &Analysis, layout: &Layout, schedule: &Schedule, p: u32) -> MemoryPeak {
    let chunks = a.on(layout, p);
    let (held, state) = elements(a.params(chunks.iter().map(|(_, c)| *c)), layout);
    let costs: Vec<_> = chunks.iter().map(|(g, c)| a.chunk(layout, *g, c)).collect();
    let last = if layout.kind.splits_backward() { Phase::W } else { Phase::B };
    let (mut now, mut most, mut at) = (0.0f64, 0.0f64, String::new());
    for s in schedule.ranks.get(p as usize).into_iter().flatten() {
        let saved = costs.get(s.chunk as usize).map_or(0.0, |c| c.saved);
        if s.phase == Phase::F {
            now += saved;
            if now > most || at.is_empty() {
                most = now.max(most);
                at = s.to_string();
            }
        } else if s.phase == last {
            now -= saved;
        }
    }
    let workspace = costs.iter().map(|c| c.workspace).fold(0.0, f64::max);
    let bytes = |v: f64| round(v).max(0.0) as u64;
    let parts = [
        bytes(held * a.costs.element as f64),
        bytes(held * GRADIENT),
        bytes(state),
        bytes(most),
        bytes(workspace),
    ];
    MemoryPeak {
        pp: p as usize,
        cp: 0,
        peak_bytes: parts.iter().sum(),
        params: parts[0],
        grads: parts[1],
        optimizer: parts[2],
        activations: parts[3],
        workspace: parts[4],
        at_step: at,
    }
}
