//! What to recompute under a memory limit.
//!
//! A pool of plans is made, each with its peak and the time of a step as they are simulated on the
//! program rewritten for it. The answer to a limit is the cheapest plan of the pool that fits. So
//! answers are monotone in the limit by construction, and never worse than any plan of the pool.
//!
//! With at most [`EXACT`] decisions, a candidate at a call each, the pool holds every combination,
//! and answers are exact. Otherwise it holds Megatron's presets (`full`, `block` of each length,
//! every `selective` list) and a chain: candidates of each layer kind are combined, the combinations
//! on the convex hull of time over bytes are steps, and the steps of all layers are taken one by one
//! in the order of time a byte, which is how the continuous knapsack is filled (Dantzig, 1957). Steps
//! that do not lower the simulated peak are left out.

use super::apply::{Choice, apply};
use super::candidates::{Candidate, gain};
use super::cost::Costs;
use super::mode::{Granularity, full};
use super::site::Site;
use crate::manager::PassError;
use std::collections::{BTreeMap, BTreeSet};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{NodeId, Program};

/// The most decisions of which every combination is tried.
pub const EXACT: usize = 12;

/// Candidates of one layer kind that are combined at most.
const COMBINED: usize = 7;

/// How the pool was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Every combination of so many decisions.
    Exact(usize),
    /// Presets and a chain.
    Bounded,
}

/// A choice and what it does.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    /// The choice.
    pub choice: Choice,
    /// Bytes at the peak.
    pub peak: u64,
    /// Microseconds of a step, by the model of [`super::cost`].
    pub micros: f64,
}

/// Plans to choose from.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanPool {
    /// Every plan; the first recomputes nothing.
    pub plans: Vec<Planned>,
    /// How they were found.
    pub method: Method,
}

impl PlanPool {
    /// The cheapest plan within a limit; of equally cheap ones that with the lowest peak.
    pub fn best(&self, limit: u64) -> Option<&Planned> {
        let fits = self.plans.iter().filter(|p| p.peak <= limit);
        fits.min_by(|a, b| a.micros.total_cmp(&b.micros).then(a.peak.cmp(&b.peak)))
    }

    /// The smallest limit that a plan fits.
    pub fn smallest(&self) -> u64 {
        self.plans.iter().map(|p| p.peak).min().unwrap_or(0)
    }
}

/// What to plan for.
pub struct Problem<'p> {
    /// The joint program.
    pub program: &'p Program,
    /// Its sites.
    pub sites: &'p [Site],
    /// Its candidates.
    pub candidates: &'p [Candidate],
    /// Values of symbols.
    pub sizes: &'p Sizes,
    /// The peak of a rewritten program.
    pub peak: &'p mut dyn FnMut(&Program) -> Result<u64, PassError>,
}

impl Problem<'_> {
    /// Simulates a choice.
    ///
    /// # Errors
    /// Of the pass and of the simulation.
    pub fn simulate(&mut self, choice: &Choice) -> Result<Planned, PassError> {
        let p = apply(self.program, choice)?;
        let peak = (self.peak)(&p)?;
        let micros = Costs::new(&p, self.sizes).main().micros;
        Ok(Planned { choice: choice.clone(), peak, micros })
    }

    /// Makes the pool.
    ///
    /// # Errors
    /// Of the pass and of the simulation.
    pub fn pool(&mut self) -> Result<PlanPool, PassError> {
        let useful = self.candidates.iter().filter(|c| c.freed > 0);
        let decisions: Vec<(NodeId, &BTreeSet<u32>)> =
            useful.flat_map(|c| c.sites.iter().map(|s| (*s, &c.results))).collect();
        if decisions.len() <= EXACT {
            let mut plans = vec![];
            for choice in every_combination(&decisions) {
                plans.push(self.simulate(&choice)?);
            }
            return Ok(PlanPool { plans, method: Method::Exact(decisions.len()) });
        }
        let mut plans = vec![self.simulate(&Choice::default())?];
        for choice in presets(self.sites, self.candidates) {
            plans.push(self.simulate(&choice)?);
        }
        let chain = self.chain(plans[0].clone())?;
        plans.extend(chain);
        Ok(PlanPool { plans, method: Method::Bounded })
    }

    /// Takes step after step from `at` on. A step that does not lower the peak as far as its bytes
    /// promise is left out, since the peak is elsewhere; at the end those are tried again.
    fn chain(&mut self, mut at: Planned) -> Result<Vec<Planned>, PassError> {
        let mut steps = self.steps()?;
        steps.sort_by(|a, b| a.slope.total_cmp(&b.slope).then(a.site.cmp(&b.site)));
        let mut plans = vec![];
        for patience in [2.0, f64::INFINITY] {
            let mut left = vec![];
            for step in steps {
                let mut choice = at.choice.clone();
                choice.discard(step.site, step.results.iter().copied());
                let next = self.simulate(&choice)?;
                plans.push(next.clone());
                let fallen = at.peak.saturating_sub(next.peak) as f64;
                if fallen > 0.0 && next.micros - at.micros <= patience * step.slope * fallen {
                    at = next;
                } else {
                    left.push(step);
                }
            }
            steps = left;
        }
        Ok(plans)
    }

    /// The steps of every layer.
    fn steps(&self) -> Result<Vec<Step>, PassError> {
        let mut by_template: BTreeMap<Vec<NodeId>, Vec<&Candidate>> = BTreeMap::new();
        for c in self.candidates.iter().filter(|c| c.freed > 0) {
            by_template.entry(c.sites.clone()).or_default().push(c);
        }
        let mut steps = vec![];
        for (sites, mut of) in by_template {
            // The cheapest a byte; the whole layer is always among them.
            let slope = |c: &Candidate| c.work.micros / c.freed as f64;
            of.sort_by(|a, b| slope(a).total_cmp(&slope(b)));
            let all: BTreeSet<u32> = of.iter().flat_map(|c| c.results.iter().copied()).collect();
            of.truncate(COMBINED);
            let site = self.sites.iter().find(|s| Some(&s.forward) == sites.first());
            let (Some(site), Some(main)) = (site, self.program.main()) else { continue };
            let mut sets: BTreeSet<BTreeSet<u32>> = BTreeSet::from([all]);
            for mask in 1u32..1 << of.len() {
                let picked = of.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
                sets.insert(picked.flat_map(|(_, c)| c.results.iter().copied()).collect());
            }
            let mut points: Vec<Point> = vec![];
            for results in sets {
                let (freed, work) = gain(self.program, main, site, &results, self.sizes)?;
                points.push(Point { results, freed: freed as f64, micros: work.micros });
            }
            let mut before = Point::default();
            for p in hull(points) {
                let slope = (p.micros - before.micros) / (p.freed - before.freed);
                // What the step before discards stays discarded.
                let results: BTreeSet<u32> = p.results.union(&before.results).copied().collect();
                let of_site = |s: &NodeId| Step { slope, site: *s, results: results.clone() };
                steps.extend(sites.iter().map(of_site));
                before = Point { results, ..p };
            }
        }
        Ok(steps)
    }
}

/// A layer goes from one combination to the next.
struct Step {
    /// Microseconds a byte.
    slope: f64,
    site: NodeId,
    results: BTreeSet<u32>,
}

/// A combination of candidates of a layer.
#[derive(Clone, Default)]
struct Point {
    results: BTreeSet<u32>,
    freed: f64,
    micros: f64,
}

/// The points on the lower convex hull of time over bytes, from nothing freed on.
fn hull(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.freed.total_cmp(&b.freed).then(b.micros.total_cmp(&a.micros)));
    let mut hull: Vec<Point> = vec![];
    for p in points {
        while let Some(last) = hull.last() {
            let before = hull.len().checked_sub(2).map(|i| &hull[i]);
            let (x, y) = before.map_or((0.0, 0.0), |b| (b.freed, b.micros));
            // Left turns alone stay.
            let cross = (last.freed - x) * (p.micros - y) - (last.micros - y) * (p.freed - x);
            if cross > 0.0 && p.freed > last.freed {
                break;
            }
            hull.pop();
        }
        if p.freed > hull.last().map_or(0.0, |l| l.freed) {
            hull.push(p);
        }
    }
    hull
}

/// Every combination of decisions.
fn every_combination(decisions: &[(NodeId, &BTreeSet<u32>)]) -> BTreeSet<Choice> {
    let masks = 0u32..1 << decisions.len();
    let of = |mask: u32| {
        let mut choice = Choice::default();
        let picked = decisions.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
        picked.for_each(|(_, (site, results))| choice.discard(*site, results.iter().copied()));
        choice
    };
    masks.map(of).collect()
}

/// What Megatron-LM offers: whole layers in groups, the first layers alone, lists of regions.
pub fn presets(sites: &[Site], candidates: &[Candidate]) -> BTreeSet<Choice> {
    let mut out = BTreeSet::new();
    let layers = sites.iter().filter(|s| s.layer.is_some()).count();
    for n in 1..=layers {
        out.insert(full(sites, Granularity::Block(n)));
    }
    for n in [1, 2, 4, 8].into_iter().filter(|n| *n <= layers) {
        out.insert(full(sites, Granularity::Uniform(n)));
    }
    let named = super::KNOWN_REGIONS.iter().filter(|n| {
        **n != super::candidates::LAYER && candidates.iter().any(|c| c.region == **n && c.freed > 0)
    });
    let named: Vec<&str> = named.copied().collect();
    for mask in 1u32..1 << named.len() {
        let mut choice = Choice::default();
        for c in candidates {
            let chosen =
                named.iter().enumerate().any(|(i, n)| mask >> i & 1 == 1 && c.region == *n);
            if chosen {
                c.sites.iter().for_each(|s| choice.discard(*s, c.results.iter().copied()));
            }
        }
        out.insert(choice);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hull_has_rising_slopes() {
        let point = |freed: f64, micros: f64| Point { freed, micros, ..Point::default() };
        let points = vec![
            point(4.0, 4.0),
            point(2.0, 1.0),
            point(3.0, 3.5),
            point(6.0, 12.0),
            point(1.0, 3.0),
            point(0.0, 1.0),
        ];
        let hull: Vec<(f64, f64)> = hull(points).iter().map(|p| (p.freed, p.micros)).collect();
        assert_eq!(hull, [(2.0, 1.0), (4.0, 4.0), (6.0, 12.0)]);
    }
}
