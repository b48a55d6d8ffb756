//! The plan of what was compiled.

use super::Spread;
use super::facts::inputs_of;
use anyhow::{Context, Result, anyhow};
use indexmap::{IndexMap, IndexSet};
use vlmc_artifact as artifact;
use vlmc_artifact::Plan;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::Program;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::Ty;
use vlmc_passes::partition::placement::{Model, Placement};
use vlmc_passes::partition::{Cut, Phase};
use vlmc_passes::schedule;

/// The plan of a program that is cut and scheduled.
///
/// # Errors
/// When a capacity does not fit.
pub(super) fn plan(
    forward: &Program,
    model: &Model,
    placement: &Placement,
    cut: &Cut,
    slots: &schedule::Schedule,
    capacities: &IndexMap<String, u64>,
    spread: &Spread,
) -> Result<Plan> {
    let mut sizes = Sizes::default();
    for (name, v) in capacities {
        sizes.set(&vlmc_ir::dim::Symbol::new(name), usize::try_from(*v).context("capacity")?);
    }
    let mut chunks = vec![];
    for (stage, c) in placement.chunks.iter().enumerate() {
        let of = |phase| cut.part(phase, stage).map(|p| &p.program);
        let programs = [of(Phase::Forward), of(Phase::Backward)];
        let inputs: IndexSet<String> =
            programs.iter().flatten().flat_map(|p| inputs_of(p)).collect();
        let mut params: IndexMap<String, u64> = IndexMap::new();
        for (name, p) in programs.iter().flatten().flat_map(|p| p.parameters()) {
            let sizes = p.ty.dims.iter().map(|d| d.size().as_constant().unwrap_or(0) as u64);
            params.insert(name, sizes.product());
        }
        let [flops_fwd, flops_bwd] = programs.map(|p| p.map_or(0, |p| flops(p, &sizes)));
        chunks.push(artifact::Chunk {
            pp: c.pp as usize,
            vp: c.vp as usize,
            contents: c.contents.iter().map(|c| model.name(*c)).collect(),
            inputs: inputs.into_iter().collect(),
            params: params.values().sum(),
            flops_fwd,
            flops_bwd,
            ms_fwd: None,
            ms_bwd: None,
        });
    }
    let layout = artifact::Layout {
        pp: spread.grid.pp as usize,
        vpp: spread.grid.vpp as usize,
        cp: spread.cp,
        dp: spread.dp,
        ..artifact::Layout::default()
    };
    let mesh = spread.mesh();
    let ranks = slots.ranks.iter().map(|r| r.iter().map(ToString::to_string).collect());
    Ok(Plan {
        model: forward.name.clone(),
        variant: forward.variant.clone(),
        layout,
        world_size: mesh.size().ok_or_else(|| anyhow!("too many ranks"))?,
        chunks,
        schedule: artifact::SchedulePlan {
            kind: slots.kind.to_string(),
            microbatches: slots.microbatches as usize,
            group: slots.group as usize,
            warmup: slots.ranks.iter().map(|r| warmup(r)).collect(),
            bubble_ratio: 0.0,
            in_flight: slots.ranks.iter().map(|r| in_flight(r)).collect(),
            ranks: ranks.collect(),
        },
        ..Plan::default()
    })
}

/// Forwards before the first backward.
fn warmup(slots: &[schedule::Slot]) -> usize {
    slots.iter().take_while(|s| s.phase == schedule::Phase::F).count()
}

/// Most chunk runs whose backward is still to come.
fn in_flight(slots: &[schedule::Slot]) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for s in slots {
        match s.phase {
            schedule::Phase::F => now += 1,
            schedule::Phase::B => now = now.saturating_sub(1),
            schedule::Phase::W => {}
        }
        most = most.max(now);
    }
    most
}

/// Floating-point operations of a run of main.
fn flops(p: &Program, sizes: &Sizes) -> u64 {
    let mut of: IndexMap<&str, u64> = IndexMap::new();
    for f in &p.functions {
        let mut sum = 0u64;
        for n in &f.nodes {
            if let Op::Call { callee, .. } = &n.op {
                sum = sum.saturating_add(of.get(callee.as_str()).copied().unwrap_or(0));
                continue;
            }
            let operands: Vec<Ty> = n.operands.iter().map(|v| f.ty(*v).clone()).collect();
            let size = n.op.flops(&operands, &n.tys);
            let v = size.eval(&|s| sizes.get(s).and_then(|v| i64::try_from(v).ok()));
            sum = sum.saturating_add(v.and_then(|v| u64::try_from(v).ok()).unwrap_or(0));
        }
        of.insert(&f.name, sum);
    }
    of.values().next_back().copied().unwrap_or(0)
}
