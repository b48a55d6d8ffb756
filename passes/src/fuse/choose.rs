//! Choosing clusters: a greedy cover of what must be stored, with its true cost counted after.
//!
//! The cover is improved by putting one more cluster in and covering the rest again. A value is
//! stored once, by the smallest chosen cluster that makes it. Clusters that no value is
//! taken from are dropped. A pick in which kernels wait for each other is mended by banning one of
//! them; a pick that costs more than every op on its own is refused.

use super::body::Body;
use super::device::{Device, in_memory};
use super::legality::check;
use super::log::{Log, Outcome};
use super::pool::Pool;
use super::set::Set;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A chosen cluster.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) body: usize,
    /// Values that it stores, increasing.
    pub(super) stores: Vec<usize>,
    /// What they need of the body.
    pub(super) ops: Set,
    /// Microseconds, stores included.
    pub(super) cost: f64,
}

/// Chosen clusters.
#[derive(Clone, Debug, Default)]
pub(super) struct Pick {
    pub(super) kernels: Vec<Kernel>,
    pub(super) cost: f64,
}

/// Chooses, then grows the chosen clusters towards each other and chooses again, until that brings
/// nothing new.
pub(super) fn choose(pool: &mut Pool<'_, '_>, device: &Device, log: &mut Log) -> Pick {
    let mut best = choose_once(pool, device);
    for _ in 0..REFINEMENTS {
        if !pool.refine(&best.kernels, log) {
            break;
        }
        let next = [choose_once(pool, device), merged(pool, device, &best)];
        let next = next.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
        let Some(next) = next else { break };
        let (have, had) = (whole(pool, &next), whole(pool, &best));
        if have < had || have == had && next.cost >= best.cost - 1e-6 {
            break;
        }
        best = next;
    }
    if whole(pool, &best) < pool.together().len() {
        let about = pool.together().iter().find(|g| !stores_whole(&best, g));
        if let Some(v) = about.and_then(|g| g.iter().next()) {
            let why = "the form `mega` asks for one launch, and none can store all";
            log.note(pool.facts, "join.operands", v, Outcome::Refused(why.to_string()));
        }
    }
    best
}

/// How many of the groups that one launch is to store are stored so.
fn whole(pool: &Pool<'_, '_>, pick: &Pick) -> usize {
    pool.together().iter().filter(|g| stores_whole(pick, g)).count()
}

fn stores_whole(pick: &Pick, group: &Set) -> bool {
    pick.kernels.iter().any(|k| group.iter().all(|v| k.stores.contains(&v)))
}

/// Two chosen clusters as one, for as long as some pair that the pool has joined is cheaper so.
fn merged(pool: &Pool<'_, '_>, device: &Device, pick: &Pick) -> Pick {
    let (facts, cover) = (pool.facts, Cover::new(pool, device));
    let mut best = pick.clone();
    loop {
        let mut better: Option<Pick> = None;
        for (i, a) in best.kernels.iter().enumerate() {
            for (j, b) in best.kernels.iter().enumerate().skip(i + 1) {
                let mut ops = a.ops.clone();
                ops.extend(&b.ops);
                let Some(body) = pool.bodies.iter().position(|k| k.ops == ops) else { continue };
                let mut stores: Vec<usize> = a.stores.iter().chain(&b.stores).copied().collect();
                stores.sort_unstable();
                stores.dedup();
                let written: f64 = stores.iter().map(|v| device.store(facts, *v)).sum();
                let cost = cover.price[body] + written;
                if cost >= a.cost + b.cost - 1e-6 {
                    continue;
                }
                let others = best.kernels.iter().enumerate().filter(|(n, _)| *n != i && *n != j);
                let mut kernels: Vec<Kernel> = others.map(|(_, k)| k.clone()).collect();
                kernels.push(Kernel { body, stores, ops, cost });
                let next = Pick { cost: kernels.iter().map(|k| k.cost).sum(), kernels };
                let bound = better.as_ref().map_or(best.cost, |b| b.cost);
                if next.cost < bound - 1e-6 && waits(pool, &next).is_none() {
                    better = Some(next);
                }
            }
        }
        match better {
            Some(next) => best = next,
            None => return best,
        }
    }
}

fn choose_once(pool: &Pool<'_, '_>, device: &Device) -> Pick {
    let mut cover = Cover::new(pool, device);
    let unfused = cover.pick(&BTreeSet::new(), &|k| is_single(pool, k));
    if !pool.together().is_empty() {
        let free = Cover::new(pool, device);
        cover.keep_together();
        let forced = settle(pool, &cover).filter(|best| stores_all(pool, best));
        return forced.or_else(|| settle(pool, &free)).unwrap_or(unfused);
    }
    let best = settle(pool, &cover).filter(|best| best.cost <= unfused.cost);
    best.unwrap_or(unfused)
}

/// The best pick in which no kernels wait for each other; `None` where no ban of one helps.
fn settle(pool: &Pool<'_, '_>, cover: &Cover<'_, '_, '_>) -> Option<Pick> {
    let mut banned: BTreeSet<usize> = BTreeSet::new();
    // Each turn bans one more, so this ends; singles never wait for each other.
    loop {
        let best = cover.improve(&|k| !banned.contains(&k));
        let Some(cycle) = waits(pool, &best) else { return Some(best) };
        let large = cycle.into_iter().filter(|k| !is_single(pool, *k));
        banned.insert(large.max_by_key(|k| (pool.bodies[*k].ops.len(), *k))?);
    }
}

/// Whether nothing that must be stored has lost all its clusters.
fn stores_all(pool: &Pool<'_, '_>, pick: &Pick) -> bool {
    let have = Set::of(pick.kernels.iter().flat_map(|k| &k.stores).copied());
    pool.facts.stored.iter().all(|v| have.contains(v))
}

fn is_single(pool: &Pool<'_, '_>, k: usize) -> bool {
    let ops = &pool.bodies[k].ops;
    ops.iter().filter(|i| !pool.facts.param[*i]).count() == 1
}

/// Rounds in which chosen clusters grow towards each other.
const REFINEMENTS: usize = 8;
/// Rounds of improvement after the first cover.
const ROUNDS: usize = 20;

/// What every cover of a function asks for, looked up once.
struct Cover<'c, 'p, 'f> {
    pool: &'c Pool<'p, 'f>,
    device: &'c Device,
    providers: BTreeMap<usize, Vec<usize>>,
    /// For each cluster the values that can be taken from it.
    makes: Vec<Set>,
    /// For each cluster the row ops that it loads.
    asks: Vec<Vec<usize>>,
    /// For each cluster its cost without stores.
    price: Vec<f64>,
    /// Looked up again and again.
    parts: RefCell<BTreeMap<(usize, usize), Rc<Part>>>,
    prices: RefCell<BTreeMap<Set, f64>>,
}

impl<'c, 'p, 'f> Cover<'c, 'p, 'f> {
    fn new(pool: &'c Pool<'p, 'f>, device: &'c Device) -> Self {
        let (facts, n) = (pool.facts, pool.bodies.len());
        let providers = pool.providers();
        let mut makes = vec![Set::default(); n];
        for (v, ks) in &providers {
            ks.iter().for_each(|k| makes[*k].insert(*v));
        }
        let asks = pool.bodies.iter().map(|b| {
            b.loads(facts).iter().filter(|v| !in_memory(facts, *v) && !facts.param[*v]).collect()
        });
        let price = (0..n).map(|k| device.kernel(facts, &pool.bodies[k], pool.legal[k].registers));
        Cover {
            asks: asks.collect(),
            price: price.collect(),
            pool,
            device,
            providers,
            makes,
            parts: RefCell::default(),
            prices: RefCell::default(),
        }
    }

    /// What one launch must store is taken from clusters that store all of it, where there are such.
    fn keep_together(&mut self) {
        for group in self.pool.together() {
            let makes_all = |k: &usize| group.iter().all(|v| self.makes[*k].contains(v));
            let wholes = Set::of((0..self.makes.len()).filter(makes_all));
            if wholes.is_empty() {
                continue;
            }
            for v in group.iter() {
                let others = self.makes.iter_mut().enumerate();
                others.filter(|(k, _)| !wholes.contains(*k)).for_each(|(_, makes)| makes.remove(v));
                if let Some(ks) = self.providers.get_mut(&v) {
                    ks.retain(|k| wholes.contains(*k));
                }
            }
        }
    }

    /// A first cover, then the same around one cluster more for as long as that pays: the greedy
    /// cover takes the cheapest cluster for each value and misses one that serves many.
    fn improve(&self, allowed: &dyn Fn(usize) -> bool) -> Pick {
        let finished: Vec<usize> = (0..self.pool.bodies.len())
            .filter(|k| allowed(*k) && self.pool.bodies[*k].next(self.pool.facts).is_none())
            .collect();
        let mut best = self.pick(&BTreeSet::new(), allowed);
        for _ in 0..ROUNDS {
            let mut better: Option<Pick> = None;
            for k in &finished {
                let outs = &self.makes[*k];
                let keeps = |other: &&Kernel| other.stores.iter().any(|v| !outs.contains(*v));
                let mut start: BTreeSet<usize> =
                    best.kernels.iter().filter(keeps).map(|other| other.body).collect();
                if !start.insert(*k) {
                    continue;
                }
                let pick = self.pick(&start, allowed);
                let bound = better.as_ref().map_or(best.cost, |b| b.cost);
                if pick.cost < bound - 1e-6 {
                    better = Some(pick);
                }
            }
            match better {
                Some(pick) => best = pick,
                None => break,
            }
        }
        best
    }

    /// Serves what must be stored and some clusters do not from the back, each time by the cluster
    /// that is cheapest for each value newly stored; then counts.
    fn pick(&self, start: &BTreeSet<usize>, allowed: &dyn Fn(usize) -> bool) -> Pick {
        let facts = self.pool.facts;
        let (mut todo, mut have) = (facts.stored.clone(), Set::default());
        let mut chosen = start.clone();
        start.iter().for_each(|k| have.extend(&self.makes[*k]));
        start.iter().flat_map(|k| &self.asks[*k]).for_each(|v| todo.insert(*v));
        have.iter().for_each(|v| todo.remove(v));
        while let Some(last) = todo.last() {
            let score = |k: usize| {
                let covered = self.makes[k].iter().filter(|v| todo.contains(*v)).count() as f64;
                let new =
                    self.asks[k].iter().filter(|v| !have.contains(**v) && !todo.contains(**v));
                let extra: f64 =
                    new.map(|v| self.device.store(facts, *v) + self.device.launch).sum();
                (self.price[k] + extra) / covered.max(1.0)
            };
            let candidates = self.providers.get(&last).into_iter().flatten().copied();
            let best = candidates
                .filter(|k| allowed(*k))
                .map(|k| (score(k), k))
                .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            todo.remove(last);
            have.insert(last);
            let Some((_, k)) = best else { continue };
            chosen.insert(k);
            for v in self.makes[k].iter().filter(|v| todo.contains(*v)).collect::<Vec<usize>>() {
                todo.remove(v);
                have.insert(v);
            }
            for v in &self.asks[k] {
                if !have.contains(*v) {
                    todo.insert(*v);
                }
            }
        }
        self.count(&chosen)
    }

    /// Who stores what: from the back, so that clusters that turn out to be of no use ask for
    /// nothing. Of each body only what its stores need is counted.
    fn count(&self, chosen: &BTreeSet<usize>) -> Pick {
        let facts = self.pool.facts;
        let mut kernels: BTreeMap<usize, (Vec<usize>, Set)> = BTreeMap::new();
        let (mut todo, mut done) = (facts.stored.clone(), Set::default());
        while let Some(v) = todo.last() {
            todo.remove(v);
            done.insert(v);
            let of = chosen.iter().filter(|k| self.makes[**k].contains(v));
            // One that runs anyway before one that would run for this value alone.
            let k =
                of.min_by_key(|k| (!kernels.contains_key(k), self.pool.bodies[**k].ops.len(), **k));
            let Some(k) = k.copied() else { continue };
            let part = self.part(k, v);
            for a in &part.asks {
                if !done.contains(*a) {
                    todo.insert(*a);
                }
            }
            let (stores, ops) = kernels.entry(k).or_default();
            stores.push(v);
            ops.extend(&part.ops);
        }
        let kernels: Vec<Kernel> = kernels
            .into_iter()
            .map(|(body, (mut stores, ops))| {
                stores.sort_unstable();
                let written: f64 = stores.iter().map(|v| self.device.store(facts, *v)).sum();
                let cost = self.true_price(body, &ops) + written;
                Kernel { body, cost, stores, ops }
            })
            .collect();
        let cost = kernels.iter().map(|k| k.cost).sum();
        Pick { kernels, cost }
    }

    /// What one value needs of a body.
    fn part(&self, k: usize, v: usize) -> Rc<Part> {
        if let Some(known) = self.parts.borrow().get(&(k, v)) {
            return known.clone();
        }
        let (facts, body) = (self.pool.facts, &self.pool.bodies[k]);
        let (mut ops, mut asks) = (Set::of([v]), Set::default());
        let mut open = vec![v];
        while let Some(i) = open.pop() {
            for a in facts.kids(i) {
                if body.ops.contains(a) {
                    if !ops.contains(a) {
                        ops.insert(a);
                        open.push(a);
                    }
                } else if !in_memory(facts, a) && !facts.param[a] {
                    asks.insert(a);
                }
            }
        }
        let part = Rc::new(Part { ops, asks: asks.iter().collect() });
        self.parts.borrow_mut().insert((k, v), part.clone());
        part
    }

    /// The cost without stores of some ops of a body.
    fn true_price(&self, k: usize, ops: &Set) -> f64 {
        if *ops == self.pool.bodies[k].ops {
            return self.price[k];
        }
        if let Some(known) = self.prices.borrow().get(ops) {
            return *known;
        }
        let facts = self.pool.facts;
        let body = Body { ops: ops.clone(), ..Body::default() };
        let registers = check(facts, self.device, &body)
            .map_or(self.pool.legal[k].registers, |legal| legal.registers);
        let price = self.device.kernel(facts, &body, registers);
        self.prices.borrow_mut().insert(body.ops, price);
        price
    }
}

/// What one value needs of a body.
struct Part {
    ops: Set,
    /// Row ops that other kernels must have stored.
    asks: Vec<usize>,
}

/// Kernels that wait for each other, if there are such.
fn waits(pool: &Pool<'_, '_>, pick: &Pick) -> Option<Vec<usize>> {
    let facts = pool.facts;
    let mut maker: BTreeMap<usize, usize> = BTreeMap::new();
    for (k, kernel) in pick.kernels.iter().enumerate() {
        kernel.stores.iter().for_each(|v| {
            maker.insert(*v, k);
        });
    }
    let mut done = vec![false; pick.kernels.len()];
    loop {
        // What is there once the kernels that are done have run.
        let mut there: Vec<bool> = vec![];
        for (i, node) in facts.f.nodes.iter().enumerate() {
            there.push(match maker.get(&i) {
                Some(k) => done[*k],
                None => node.operands.iter().all(|v| there[super::facts::at(*v)]),
            });
        }
        let mut moved = false;
        for (k, kernel) in pick.kernels.iter().enumerate() {
            let ready = || pool.bodies[kernel.body].loads(facts).iter().all(|v| there[v]);
            if !done[k] && ready() {
                done[k] = true;
                moved = true;
            }
        }
        if done.iter().all(|d| *d) {
            return None;
        }
        if !moved {
            let open = pick.kernels.iter().zip(&done).filter(|(_, done)| !**done);
            return Some(open.map(|(k, _)| k.body).collect());
        }
    }
}
