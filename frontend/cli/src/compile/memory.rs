//! Recompute and the memory plan of each pipeline rank.

use super::steps::Steps;
use anyhow::{Context, Result, anyhow};
use std::fmt;
use vlmc_artifact as artifact;
use vlmc_artifact::memory::{MemoryPlan, Pool};
use vlmc_artifact::{Mesh, Schedule, Step};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{NodeId, Program};
use vlmc_ir::ops::Op;
use vlmc_passes::manager::PassError;
use vlmc_passes::memory::{self, Rank, WORKSPACE, report};
use vlmc_passes::partition::{Cut, Stages, cut};
use vlmc_passes::recompute::planner::{Method, PlanPool, Problem};
use vlmc_passes::recompute::{
    Candidate, Choice, Mode, Site, apply, candidates, full, selective, sites,
};
use vlmc_passes::schedule::Schedule as Slots;

/// How many packings of a rank's activations are tried.
const PACKINGS: usize = 16;

/// What to recompute, and the memory that there is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryRequest {
    /// What is recomputed.
    pub recompute: Mode,
    /// Bytes of a device.
    pub limit: Option<u64>,
}

/// Why no program can be made that fits, or that is worth it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemoryRefusal {
    /// A region that is not.
    Region(String),
    /// The peak does not fall.
    NotLower {
        /// What was asked for.
        mode: String,
        /// Bytes at the peak with nothing recomputed.
        without: u64,
        /// With what was asked for.
        with: u64,
    },
    /// More is needed than there is.
    Limit {
        /// The pipeline rank.
        rank: usize,
        /// What there is.
        limit: u64,
        /// What is needed at least: the smallest limit that would do.
        smallest: u64,
        /// Whether that is with the best recompute, rather than with what was asked for.
        best: bool,
    },
}

impl fmt::Display for MemoryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryRefusal::Region(message) => write!(f, "{message}"),
            MemoryRefusal::NotLower { mode, without, with } => write!(
                f,
                "`--recompute {mode}` does not lower the peak: it is {} with it and {} without",
                bytes(*with),
                bytes(*without)
            ),
            MemoryRefusal::Limit { rank, limit, smallest, best } => {
                let how = if *best { "however much is recomputed" } else { "as asked for" };
                write!(
                    f,
                    "pipeline rank {rank} needs {} {how}, the limit is {}",
                    bytes(*smallest),
                    bytes(*limit)
                )
            }
        }
    }
}

impl std::error::Error for MemoryRefusal {}

/// A number of bytes for people, with the number itself.
pub fn bytes(n: u64) -> String {
    format!("{:.3} GiB ({n} bytes)", n as f64 / f64::from(1u32 << 30))
}

/// What programs are made from a joint program, for any choice of what is recomputed.
pub(super) struct Layout<'l> {
    pub(super) stages: &'l Stages,
    pub(super) mesh: Mesh,
    pub(super) slots: &'l Slots,
    pub(super) counts: &'l Program,
    /// Trained parameters, in the order of the manifest.
    pub(super) trained: &'l [String],
    pub(super) sizes: &'l Sizes,
    /// Programs that do not depend on the choice: counts, and those of the update.
    pub(super) others: Vec<(&'l str, &'l Program)>,
}

/// A program with its choice made.
pub(super) struct Recomputed {
    pub(super) program: Program,
    pub(super) rows: Vec<artifact::Recompute>,
    /// How the choice was found, for people.
    pub(super) note: Option<String>,
}

impl Layout<'_> {
    /// The schedule and the programs of a joint program, and what they are called.
    fn lay_out(&self, p: &Program) -> Result<(Cut, Schedule)> {
        let cut = cut(p, self.stages)?;
        let (mesh, slots, counts, trained) = (self.mesh, self.slots, self.counts, self.trained);
        let schedule = Steps { mesh, slots, cut: &cut, counts, trained }.schedule()?;
        Ok((cut, schedule))
    }

    /// Bytes of activations at the peak of a rank, of the steps before the update or of those from
    /// there on.
    fn activations(
        &self,
        cut: &Cut,
        schedule: &Schedule,
        rank: usize,
        update: bool,
    ) -> Result<u64> {
        let live = self.live(cut, schedule, rank, update)?;
        Ok(live.peak())
    }

    fn live(
        &self,
        cut: &Cut,
        schedule: &Schedule,
        rank: usize,
        update: bool,
    ) -> Result<memory::Live> {
        let steps = schedule.ranks.get(rank).ok_or_else(|| anyhow!("no rank {rank}"))?;
        let (before, after) = steps.split_at(update_of(steps));
        let steps = if update { after } else { before };
        let parts = cut.parts.iter().map(|p| (p.name(), &p.program));
        let others = self.others.iter().map(|(n, p)| (n.to_string(), *p));
        let named: Vec<(String, &Program)> = parts.chain(others).collect();
        let programs: Vec<(&str, &Program)> = named.iter().map(|(n, p)| (&**n, *p)).collect();
        Ok(memory::simulate(&Rank { programs: &programs, steps, sizes: self.sizes })?)
    }

    /// Bytes of a rank that do not depend on the choice: what stays, and what the update needs.
    fn fixed(&self, cut: &Cut, schedule: &Schedule, rank: usize) -> Result<Fixed> {
        let forward = self.live(cut, schedule, rank, false)?;
        let update = self.live(cut, schedule, rank, true)?;
        let mut seen = std::collections::BTreeSet::new();
        let blocks = forward.blocks.iter().chain(&update.blocks);
        let stays = blocks.filter(|b| b.buffer.as_ref().is_some_and(|of| seen.insert(of.clone())));
        let resident = stays.map(|b| memory::aligned(b.bytes)).sum();
        Ok(Fixed { resident, update: update.peak() })
    }

    /// The stage of a site: that of its layer; before the layers the first, behind them the last.
    fn stage(&self, sites: &[Site], site: &Site) -> usize {
        let layers: Vec<NodeId> =
            sites.iter().filter(|s| s.layer.is_some()).map(|s| s.forward).collect();
        match layers.iter().position(|l| *l == site.forward) {
            Some(i) => self.stages.layers.get(i).copied().unwrap_or(0),
            None if layers.first().is_some_and(|l| site.forward < *l) => 0,
            None => self.stages.mtp,
        }
    }

    /// Chooses and rewrites.
    ///
    /// # Errors
    /// A [`MemoryRefusal`], and bugs.
    pub(super) fn recompute(
        &self,
        p: &Program,
        regions: &Program,
        request: &MemoryRequest,
    ) -> Result<Recomputed> {
        let sites = sites(p);
        let all = candidates(p, regions, &sites, self.sizes)?;
        let ranks = self.slots.ranks.len();
        let of_rank = |r: usize| -> Vec<Site> {
            let here = |s: &&Site| self.slots.grid.cell(self.stage(&sites, s)).0 as usize == r;
            sites.iter().filter(here).cloned().collect()
        };
        if request.recompute == Mode::None && request.limit.is_none() {
            let none = Choice::default();
            let rows =
                (0..ranks).flat_map(|r| rows(&all, &of_rank(r), r, &none, request)).collect();
            return Ok(Recomputed { program: p.clone(), rows, note: None });
        }
        let (cut, schedule) = self.lay_out(p)?;
        let fixed: Vec<Fixed> =
            (0..ranks).map(|r| self.fixed(&cut, &schedule, r)).collect::<Result<_>>()?;
        let mut note = None;
        let mut choice = Choice::default();
        match &request.recompute {
            Mode::None => {}
            Mode::Full(how) => {
                for r in 0..ranks {
                    let of = full(&of_rank(r), *how);
                    choice.discards.extend(of.discards);
                    choice.groups.extend(of.groups);
                }
            }
            Mode::Selective(names) => {
                choice = selective(&all, names)
                    .map_err(|e| anyhow!(MemoryRefusal::Region(e.message)))?;
            }
            Mode::Auto => {
                let mut words = vec![];
                for (r, fixed) in fixed.iter().enumerate().take(ranks) {
                    let found = self.auto(p, &of_rank(r), &all, r, *fixed, request.limit)?;
                    words.push(format!("rank {r}: {}", found.1));
                    choice.discards.extend(found.0.discards);
                    choice.groups.extend(found.0.groups);
                }
                note = Some(words.join("\n"));
            }
        }
        let program = apply(p, &choice)?;
        let (new_cut, new_schedule) = self.lay_out(&program)?;
        let peaks = |cut: &Cut, schedule: &Schedule| -> Result<Vec<u64>> {
            (0..ranks)
                .map(|r| Ok(fixed[r].with(self.activations(cut, schedule, r, false)?)))
                .collect()
        };
        let (before, after) = (peaks(&cut, &schedule)?, peaks(&new_cut, &new_schedule)?);
        if request.recompute != Mode::None && request.recompute != Mode::Auto {
            let fallen = before.iter().zip(&after).any(|(b, a)| a < b);
            if !fallen {
                let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
                return Err(anyhow!(MemoryRefusal::NotLower {
                    mode: request.recompute.to_string(),
                    without: most(&before),
                    with: most(&after),
                }));
            }
        }
        if let (Some(limit), false) = (request.limit, request.recompute == Mode::Auto)
            && let Some((rank, needs)) = after.iter().enumerate().find(|(_, n)| **n > limit)
        {
            let smallest = *needs;
            return Err(anyhow!(MemoryRefusal::Limit { rank, limit, smallest, best: false }));
        }
        let rows = (0..ranks).flat_map(|r| rows(&all, &of_rank(r), r, &choice, request)).collect();
        Ok(Recomputed { program, rows, note })
    }

    /// The cheapest choice for a rank within the limit.
    fn auto(
        &self,
        p: &Program,
        of_rank: &[Site],
        all: &[Candidate],
        rank: usize,
        fixed: Fixed,
        limit: Option<u64>,
    ) -> Result<(Choice, String)> {
        let limit = limit.unwrap_or(u64::MAX);
        let mut peak = |p: &Program| {
            let bug = |e: anyhow::Error| PassError::new(format!("{e:#}"));
            let (cut, schedule) = self.lay_out(p).map_err(bug)?;
            let of = self.activations(&cut, &schedule, rank, false).map_err(bug)?;
            Ok(fixed.with(of))
        };
        let here: Vec<Candidate> = all
            .iter()
            .map(|c| {
                let is_here = |s: &&NodeId| of_rank.iter().any(|o| o.forward == **s);
                Candidate { sites: c.sites.iter().filter(is_here).copied().collect(), ..c.clone() }
            })
            .filter(|c| !c.sites.is_empty())
            .collect();
        let mut problem = Problem {
            program: p,
            sites: of_rank,
            candidates: &here,
            sizes: self.sizes,
            peak: &mut peak,
        };
        let none = problem.simulate(&Choice::default())?;
        if none.peak <= limit {
            return Ok((
                Choice::default(),
                format!("{} fits, nothing is recomputed", bytes(none.peak)),
            ));
        }
        let pool: PlanPool = problem.pool()?;
        let Some(best) = pool.best(limit) else {
            let smallest = pool.smallest();
            return Err(anyhow!(MemoryRefusal::Limit { rank, limit, smallest, best: true }));
        };
        let method = match pool.method {
            Method::Exact(n) => format!("exact, every combination of {n} decisions"),
            Method::Bounded => format!("bounded, the best of {} plans", pool.plans.len()),
        };
        let percent = 100.0 * (best.micros / none.micros - 1.0);
        let note = format!(
            "{} instead of {}, {percent:.1} % more time ({method})",
            bytes(best.peak),
            bytes(none.peak)
        );
        Ok((best.choice.clone(), note))
    }
}

/// What of a rank does not depend on the choice.
#[derive(Clone, Copy)]
struct Fixed {
    resident: u64,
    update: u64,
}

impl Fixed {
    fn with(self, activations: u64) -> u64 {
        self.resident.saturating_add(self.update.max(activations)).saturating_add(WORKSPACE)
    }
}

/// Where the update starts.
fn update_of(steps: &[Step]) -> usize {
    let starts = |s: &Step| match s {
        Step::Run { microbatch, .. } => microbatch.is_none(),
        Step::Reduce { .. } | Step::Tie { .. } | Step::Norm => true,
        _ => false,
    };
    steps.iter().position(starts).unwrap_or(steps.len())
}

/// The table of candidates of a rank.
fn rows(
    all: &[Candidate],
    of_rank: &[Site],
    rank: usize,
    choice: &Choice,
    request: &MemoryRequest,
) -> Vec<artifact::Recompute> {
    let row = |c: &Candidate| {
        let here: Vec<&NodeId> =
            c.sites.iter().filter(|s| of_rank.iter().any(|o| o.forward == **s)).collect();
        let in_group = |s: &NodeId| choice.groups.iter().flatten().any(|g| g == s);
        let discards = |s: &NodeId| {
            !c.results.is_empty()
                && choice.discards.get(s).is_some_and(|d| d.is_superset(&c.results))
        };
        let chosen = here.iter().filter(|s| discards(s) || in_group(s)).count();
        let reason = match (&request.recompute, chosen) {
            _ if c.freed == 0 => "nothing of it is kept: the backward pass makes it again as it is",
            (_, n) if n == here.len() => "chosen",
            (Mode::Auto, 0) => "not needed within the limit, or dearer a byte than what is chosen",
            (_, 0) => "not asked for",
            _ => "chosen for some",
        };
        let reason = match chosen {
            0 => reason.to_string(),
            n => format!("{reason} for {n} of {} calls", here.len()),
        };
        (!here.is_empty()).then(|| artifact::Recompute {
            region: c.region.clone(),
            function: c.template.clone(),
            pp: rank,
            freed_bytes: c.freed.saturating_mul(here.len() as u64),
            extra_flops: c.work.flops.saturating_mul(here.len() as u64),
            chosen: chosen > 0 && c.freed > 0,
            reason: reason.replace("chosen for some for", "chosen for"),
        })
    };
    all.iter().filter_map(row).collect()
}

/// The memory plans of all pipeline ranks, and their rows of the plan.
///
/// # Errors
/// When a step reads what nothing gives. `None` for more executions than [`MOST_EXECUTIONS`].
pub(super) fn plans(
    programs: &[(&str, &Program)],
    schedule: &Schedule,
    sizes: &Sizes,
) -> Result<Option<(Vec<MemoryPlan>, Vec<artifact::MemoryPeak>)>> {
    let (mut plans, mut rows) = (vec![], vec![]);
    if executions(programs, schedule) > MOST_EXECUTIONS {
        return Ok(None);
    }
    for (pp, steps) in schedule.ranks.iter().enumerate() {
        let rank = Rank { programs, steps, sizes };
        let plan = memory::plan(&rank, PACKINGS).with_context(|| format!("rank {pp}"))?;
        let at = plan.executions.get(report::peak_at(&plan));
        for cp in 0..schedule.mesh.cp {
            rows.push(artifact::MemoryPeak {
                pp,
                cp,
                peak_bytes: plan.peak(),
                params: plan.pool(Pool::Params),
                grads: plan.pool(Pool::Grads),
                optimizer: plan.pool(Pool::Optimizer),
                activations: plan.pool(Pool::Activations),
                workspace: plan.pool(Pool::Workspace),
                at_step: at.map_or_else(String::new, |e| e.name.clone()),
            });
        }
        plans.push(plan);
    }
    Ok(Some((plans, rows)))
}

/// Executions of all ranks that a plan is made for; places are found in the square of their number.
pub(super) const MOST_EXECUTIONS: usize = 30_000;

/// How often nodes are executed in a step, calls followed, by all pipeline ranks together.
fn executions(programs: &[(&str, &Program)], schedule: &Schedule) -> usize {
    let mut of: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for (name, p) in programs {
        let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
        for f in &p.functions {
            let nodes = f.nodes.iter().map(|n| match &n.op {
                Op::Call { callee, .. } => counts.get(&**callee).copied().unwrap_or(0) + 1,
                _ => 1,
            });
            let sum = nodes.fold(0usize, usize::saturating_add);
            counts.insert(&f.name, sum);
        }
        let main = p.main().and_then(|f| counts.get(&*f.name).copied());
        of.insert(name, main.unwrap_or(0));
    }
    let runs = schedule.ranks.iter().flatten().map(|s| match s {
        Step::Run { program, .. } => of.get(&**program).copied().unwrap_or(0),
        _ => 0,
    });
    runs.fold(0, usize::saturating_add)
}
