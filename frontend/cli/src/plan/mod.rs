//! `vlmc plan`: what a layout costs, before anything runs.
//!
//! An [`Analysis`] counts a model once; [`Analysis::plan`] spreads the counts over the ranks of a
//! layout and runs the schedule by the clock. Milliseconds, bytes and FLOPs of a chunk are those of
//! one rank and one microbatch.

pub mod auto;
pub mod cost;
pub mod device;
mod exchange;
mod memory;
pub mod text;

use crate::compile::{self, Capacity, Trail, facts};
use crate::layout::Layout;
use anyhow::{Context, Result};
use cost::{Cost, Costs, costs};
use device::Device;
use vlmc_artifact as artifact;
use vlmc_artifact::Plan;
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::Program;
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::partition::parts::Parts;
use vlmc_passes::partition::placement::{Chunk, Content, Model};
use vlmc_passes::schedule::combined::{Layer, pair};
use vlmc_passes::schedule::simulate::{Deadlock, Timeline, Times, simulate, simulate_pairs};
use vlmc_passes::schedule::{self, Kind, Phase, Schedule};

/// A model that has been counted.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The model's name and variant.
    pub name: (String, String),
    /// What placement must know.
    pub model: Model,
    /// What its parts cost.
    pub costs: Costs,
    /// The device.
    pub device: Device,
    /// Rows of a microbatch.
    pub rows: usize,
}

/// A plan with the run of its schedule by the clock.
#[derive(Clone, Debug)]
pub struct Planned {
    /// As written.
    pub plan: Plan,
    /// The slots.
    pub schedule: Schedule,
    /// When each slot runs, in milliseconds.
    pub timeline: Timeline,
    /// Milliseconds of the exchanges of experts on all pipeline ranks, and of them those that work
    /// hides.
    pub exchange: (f64, f64),
    /// What is worth a word.
    pub warnings: Vec<String>,
}

impl Analysis {
    /// Counts a model, as lowered.
    ///
    /// # Errors
    /// When it has no loss, cannot be differentiated, or a capacity does not fit it.
    pub fn new(
        forward: &Program,
        capacity: &Capacity,
        dtype: DType,
        device: Device,
    ) -> Result<Analysis> {
        let mut training = forward.clone();
        compile::only_losses(&mut training)?;
        let training = compile::passes(&training, &mut Trail::default())?;
        let options = Options { seeds: Seeds::Totals, ..Options::default() };
        let joint = differentiate(&training, &options)?;
        let mut sizes = Sizes::default();
        for (name, v) in facts::capacities(&joint, capacity, 1)? {
            sizes.set(&Symbol::new(&name), usize::try_from(v).context("capacity")?);
        }
        let costs = costs(&training, &joint, &sizes, dtype, &device);
        let model = Parts::of(&training).model;
        let name = (forward.name.clone(), forward.variant.clone());
        Ok(Analysis { name, model, costs, device, rows: capacity.tokens })
    }

    /// Plans a layout.
    ///
    /// # Errors
    /// When the schedule cannot run, which the checks of the layout leave out.
    pub fn plan(&self, layout: &Layout) -> Result<Planned> {
        let (grid, m) = (layout.grid, layout.microbatches);
        let (schedule, times, timeline) = self.timeline(layout)?;
        let memory = memory::memory(self, layout, &schedule);
        let mut plan = Plan {
            model: self.name.0.clone(),
            variant: self.name.1.clone(),
            layout: artifact::Layout {
                pp: grid.pp as usize,
                vpp: grid.vpp as usize,
                cp: layout.cp as usize,
                dp: layout.dp as usize,
                ep: layout.ep as usize,
                tp: 1,
            },
            world_size: usize::try_from(layout.world_size()).unwrap_or(usize::MAX),
            chunks: self.chunks(layout),
            schedule: artifact::SchedulePlan {
                kind: layout.kind.to_string(),
                microbatches: m as usize,
                group: layout.group as usize,
                warmup: (0..grid.pp)
                    .map(|p| schedule::warmup(layout.kind, grid, m, layout.group, p) as usize)
                    .collect(),
                bubble_ratio: round(timeline.bubble_ratio()),
                in_flight: schedule.ranks.iter().map(|r| schedule::in_flight(r) as usize).collect(),
                ranks: schedule
                    .ranks
                    .iter()
                    .map(|r| r.iter().map(ToString::to_string).collect())
                    .collect(),
            },
            memory,
            saved: self.saved(layout),
            timeline: timeline
                .ranks
                .iter()
                .map(|r| r.iter().map(|s| (round(s.start), round(s.end))).collect())
                .collect(),
            communication: exchange::communication(self, layout),
            ..Plan::default()
        };
        let warnings = self.warnings(layout, &plan);
        plan.diagnostics = warnings
            .iter()
            .map(|w| serde_json::json!({ "severity": "warning", "message": w }))
            .collect();
        let exchange = self.exchange_ms(layout, &schedule, &times, &timeline);
        Ok(Planned { plan, schedule, timeline, exchange, warnings })
    }

    /// The schedule of a layout, the times of its chunks, and its run by the clock.
    ///
    /// # Errors
    /// As [`Analysis::plan`].
    pub fn timeline(&self, layout: &Layout) -> Result<(Schedule, Times, Timeline)> {
        let (kind, m, group) = (layout.kind, layout.microbatches, layout.group);
        let schedule = schedule::schedule(kind, layout.grid, m, group)?;
        let times = self.times(layout);
        let timeline = match kind {
            Kind::CombinedOneFOneB => self.combined(layout, &schedule, &times)?,
            _ => simulate(&schedule, &times)?,
        };
        Ok((schedule, times, timeline))
    }

    fn chunks(&self, layout: &Layout) -> Vec<artifact::Chunk> {
        let chunks = layout.placement.chunks.iter().enumerate();
        chunks
            .map(|(g, c)| {
                let cost = self.chunk(layout, g, c);
                let params = self.params(std::iter::once(c));
                artifact::Chunk {
                    pp: c.pp as usize,
                    vp: c.vp as usize,
                    contents: c.contents.iter().map(|c| self.model.name(*c)).collect(),
                    inputs: c.inputs().into_iter().map(String::from).collect(),
                    params: params.iter().map(|(_, s)| s.elements).sum(),
                    flops_fwd: cost.flops[0],
                    flops_bwd: cost.flops[1],
                    ms_fwd: Some(round(cost.ms[0])),
                    ms_bwd: Some(round(cost.ms[1])),
                }
            })
            .collect()
    }

    /// Bytes that a forward of each chunk keeps.
    fn saved(&self, layout: &Layout) -> Vec<u64> {
        let chunks = layout.placement.chunks.iter().enumerate();
        chunks.map(|(g, c)| self.chunk(layout, g, c).saved as u64).collect()
    }

    /// The cost of a chunk for one rank, exchanges within the stage included.
    fn chunk(&self, layout: &Layout, g: usize, chunk: &Chunk) -> Cost {
        let mut sum = Cost::default();
        for content in chunk.contents.iter().filter(|c| counts(**c, g)) {
            let cost = self.costs.of(*content);
            let share = share(*content, layout.cp);
            let exposed = |experts| exchange::exposed_ms(self, layout, &cost, *content, experts);
            let (experts, others) = (exposed(true), exposed(false));
            for (way, ms) in cost.ms.iter().enumerate() {
                sum.flops[way] += (cost.flops[way] as f64 * share) as u64;
                sum.ms[way] += ms * share + experts[way] + others[way];
            }
            sum.saved += cost.saved * share;
            sum.workspace = sum.workspace.max(cost.workspace * share);
        }
        sum
    }

    /// Parameters of chunks, each once, by name.
    fn params<'c>(&self, chunks: impl Iterator<Item = &'c Chunk>) -> Vec<(String, cost::Size)> {
        let contents = chunks.flat_map(|c| c.contents.iter());
        let mut names: Vec<&String> =
            contents.filter_map(|c| self.costs.parts.get(c)).flat_map(|c| &c.params).collect();
        names.sort_unstable();
        names.dedup();
        let size = |n: &String| self.costs.sizes.get(n).copied().unwrap_or_default();
        names.into_iter().map(|n| (n.clone(), size(n))).collect()
    }

    /// Times of the chunks, for the clock.
    pub fn times(&self, layout: &Layout) -> Times {
        let mut times = Times::default();
        for (g, c) in layout.placement.chunks.iter().enumerate() {
            let cost = self.chunk(layout, g, c);
            // Where the backward is split, half of it, that of weights, has slots of its own.
            let weight = if layout.kind.splits_backward() { cost.ms[1] / 2.0 } else { 0.0 };
            times.forward.push(cost.ms[0]);
            times.backward.push(cost.ms[1] - weight);
            times.weight.push(weight);
        }
        let apart = u64::from(layout.cp) * u64::from(layout.dp);
        let bytes = self.costs.boundary / f64::from(layout.cp);
        times.send = self.device.message_ms(bytes, apart.saturating_mul(2));
        times
    }

    /// A part as the layer of a pair.
    fn layer(&self, layout: &Layout, content: Content) -> Layer {
        let cost = self.costs.of(content);
        let share = share(content, layout.cp);
        let sent = exchange::exposed_ms(self, layout, &cost, content, true);
        let other = exchange::exposed_ms(self, layout, &cost, content, false);
        let half = sent.map(|ms| ms / 2.0);
        let attn = |way: usize| (cost.ms[way] - cost.experts_ms[way]) * share + other[way];
        Layer {
            attn: [attn(0), attn(1)],
            attn_weights: cost.products_ms / 2.0 * share,
            dispatch: half,
            mlp: cost.experts_ms.map(|ms| ms * share),
            mlp_weights: cost.experts_weights_ms * share,
            combine: half,
        }
    }

    /// The run of a schedule in which layers of a forward and of a backward run in pairs.
    fn combined(
        &self,
        layout: &Layout,
        schedule: &Schedule,
        times: &Times,
    ) -> Result<Timeline, Deadlock> {
        let is_layer = |c: &&Content| matches!(c, Content::Layer(_) | Content::Mtp(_));
        let layers: Vec<Vec<Layer>> = layout
            .placement
            .chunks
            .iter()
            .map(|c| c.contents.iter().filter(is_layer).map(|c| self.layer(layout, *c)).collect())
            .collect();
        let others = |g: usize, way: usize, times: &[f64]| {
            times[g] - layers[g].iter().map(|l| l.alone(way)).sum::<f64>()
        };
        simulate_pairs(schedule, times, &|f, b| {
            let others = [others(f, 0, &times.forward), others(b, 1, &times.backward)];
            pair(&layers[f], &layers[b], others.map(|ms| ms.max(0.0)))
        })
    }

    /// Milliseconds of the exchanges of experts on all ranks, and of them those that work hides.
    fn exchange_ms(
        &self,
        layout: &Layout,
        schedule: &Schedule,
        times: &Times,
        timeline: &Timeline,
    ) -> (f64, f64) {
        let sent: Vec<[f64; 2]> = layout
            .placement
            .chunks
            .iter()
            .map(|c| {
                let of =
                    |c: &Content| exchange::exposed_ms(self, layout, &self.costs.of(*c), *c, true);
                c.contents.iter().map(of).fold([0.0; 2], |s, ms| [s[0] + ms[0], s[1] + ms[1]])
            })
            .collect();
        let (mut all, mut hidden) = (0.0, 0.0);
        for (p, slots) in schedule.ranks.iter().enumerate() {
            for s in slots {
                let g = layout.grid.index(p as u32, s.chunk);
                match s.phase {
                    Phase::F => (all, hidden) = (all + sent[g][0], hidden + times.forward[g]),
                    Phase::B => (all, hidden) = (all + sent[g][1], hidden + times.backward[g]),
                    Phase::W => hidden += times.weight[g],
                }
            }
            hidden -= timeline.busy(p);
        }
        (all, round(hidden))
    }

    fn warnings(&self, layout: &Layout, plan: &Plan) -> Vec<String> {
        let mut out = vec![];
        let limit = (self.device.memory_gib * GIB) as u64;
        let over: Vec<&artifact::MemoryPeak> =
            plan.memory.iter().filter(|m| m.peak_bytes > limit && m.cp == 0).collect();
        if let Some(worst) = over.iter().max_by_key(|m| m.peak_bytes) {
            let all = over.len();
            out.push(format!(
                "{} of {} pipeline ranks need more than the {:.0} GiB of the {}: rank {} {:.1} GiB",
                all,
                layout.grid.pp,
                self.device.memory_gib,
                self.device.name,
                worst.pp,
                worst.peak_bytes as f64 / GIB,
            ));
        }
        let busy: Vec<f64> = (0..layout.grid.pp as usize)
            .map(|p| {
                let of = plan.chunks.iter().filter(|c| c.pp == p);
                of.map(|c| c.ms_fwd.unwrap_or(0.0) + c.ms_bwd.unwrap_or(0.0)).sum()
            })
            .collect();
        let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
        let most = busy.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        if let Some((p, most)) = most.filter(|(_, most)| **most > 1.2 * mean) {
            let more = (most / mean - 1.0) * 100.0;
            out.push(format!(
                "rank {p} works {more:.0} % longer than the mean, and the others wait for it; \
                 see `--layout auto`"
            ));
        }
        out
    }

    /// The chunks of a rank.
    fn on<'l>(&self, layout: &'l Layout, p: u32) -> Vec<(usize, &'l Chunk)> {
        layout.placement.chunks.iter().enumerate().filter(|(_, c)| c.pp == p).collect()
    }

    /// Rows of a microbatch.
    fn rows(&self) -> f64 {
        self.rows as f64
    }
}

/// Bytes of a GiB.
pub const GIB: f64 = (1u64 << 30) as f64;

/// Whether a content of chunk `g` is worked through there: a replica of the embedding is not, MTP
/// counts the rows that it looks up.
fn counts(content: Content, g: usize) -> bool {
    content != Content::Embed || g == 0
}

/// The share of a part's work that falls to a context-parallel rank. The tower sees whole pictures,
/// so each rank runs it on all of them.
fn share(content: Content, cp: u32) -> f64 {
    if content == Content::Vision { 1.0 } else { 1.0 / f64::from(cp.max(1)) }
}

/// To six digits behind the point, so that a plan does not depend on the last bits of sums.
fn round(v: f64) -> f64 {
    (v * 1e6).round() / 1e6
}
