//! Choosing clusters: a greedy cover of what must be stored, with its true cost counted after.
//!
//! A value is stored once, by the smallest chosen cluster that makes it. Clusters that no value is
//! taken from are dropped. A pick in which kernels wait for each other is mended by banning one of
//! them; a pick that costs more than every op on its own is refused.

use super::device::{Device, in_memory};
use super::grow::Pool;
use super::set::Set;
use std::collections::{BTreeMap, BTreeSet};

/// A chosen cluster.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) body: usize,
    /// Values that it stores, increasing.
    pub(super) stores: Vec<usize>,
    /// Microseconds, stores included.
    pub(super) cost: f64,
}

/// Chosen clusters.
#[derive(Clone, Debug, Default)]
pub(super) struct Pick {
    pub(super) kernels: Vec<Kernel>,
    pub(super) cost: f64,
}

pub(super) fn choose(pool: &Pool<'_, '_>, device: &Device) -> Pick {
    let providers = pool.providers();
    let unfused =
        pick(pool, device, &providers, &|k| pool.bodies[k].outs.len() == 1 && is_single(pool, k));
    let mut banned: BTreeSet<usize> = BTreeSet::new();
    // Each turn bans one more, so this ends; singles never wait for each other.
    loop {
        let best = pick(pool, device, &providers, &|k| !banned.contains(&k));
        match waits(pool, &best) {
            Some(cycle) => {
                let large = cycle.into_iter().filter(|k| !is_single(pool, *k));
                let Some(k) = large.max_by_key(|k| (pool.bodies[*k].ops.len(), *k)) else {
                    return unfused;
                };
                banned.insert(k);
            }
            None if best.cost <= unfused.cost => return best,
            None => return unfused,
        }
    }
}

fn is_single(pool: &Pool<'_, '_>, k: usize) -> bool {
    let ops = &pool.bodies[k].ops;
    ops.iter().filter(|i| !pool.facts.param[*i]).count() == 1
}

/// Serves what must be stored from the back, each time by the cluster that is cheapest for each
/// value newly stored; then counts.
fn pick(
    pool: &Pool<'_, '_>,
    device: &Device,
    providers: &BTreeMap<usize, Vec<usize>>,
    allowed: &dyn Fn(usize) -> bool,
) -> Pick {
    let facts = pool.facts;
    let price: Vec<f64> = (0..pool.bodies.len())
        .map(|k| device.kernel(facts, &pool.bodies[k], pool.legal[k].registers))
        .collect();
    let makes: Vec<Set> = {
        let mut out = vec![Set::default(); pool.bodies.len()];
        for (v, ks) in providers {
            ks.iter().for_each(|k| out[*k].insert(*v));
        }
        out
    };
    let outside = |k: usize| {
        let loads = pool.bodies[k].loads(facts);
        loads.iter().filter(|v| !in_memory(facts, *v)).collect::<Vec<usize>>()
    };
    let (mut todo, mut have) = (facts.stored.clone(), Set::default());
    let mut chosen: BTreeSet<usize> = BTreeSet::new();
    while let Some(last) = todo.last() {
        let score = |k: usize| {
            let covered = makes[k].iter().filter(|v| todo.contains(*v)).count() as f64;
            let new = outside(k).into_iter().filter(|v| !have.contains(*v) && !todo.contains(*v));
            let extra: f64 = new.map(|v| device.store(facts, v) + device.launch).sum();
            (price[k] + extra) / covered.max(1.0)
        };
        let candidates = providers.get(&last).into_iter().flatten().copied();
        let best = candidates
            .filter(|k| allowed(*k))
            .map(|k| (score(k), k))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        todo.remove(last);
        have.insert(last);
        let Some((_, k)) = best else { continue };
        chosen.insert(k);
        for v in makes[k].iter().filter(|v| todo.contains(*v)).collect::<Vec<usize>>() {
            todo.remove(v);
            have.insert(v);
        }
        for v in outside(k) {
            if !have.contains(v) {
                todo.insert(v);
            }
        }
    }
    count(pool, device, &chosen, &makes, &price)
}

/// Who stores what: from the back, so that clusters that turn out to be of no use ask for nothing.
fn count(
    pool: &Pool<'_, '_>,
    device: &Device,
    chosen: &BTreeSet<usize>,
    makes: &[Set],
    price: &[f64],
) -> Pick {
    let facts = pool.facts;
    let mut stores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let (mut todo, mut done) = (facts.stored.clone(), Set::default());
    while let Some(v) = todo.last() {
        todo.remove(v);
        done.insert(v);
        let of = chosen.iter().filter(|k| makes[**k].contains(v));
        // One that runs anyway before one that would run for this value alone.
        let k = of.min_by_key(|k| (!stores.contains_key(k), pool.bodies[**k].ops.len(), **k));
        let Some(k) = k.copied() else { continue };
        if !stores.contains_key(&k) {
            for a in pool.bodies[k].loads(facts).iter() {
                if !in_memory(facts, a) && !done.contains(a) {
                    todo.insert(a);
                }
            }
        }
        stores.entry(k).or_default().push(v);
    }
    let kernels: Vec<Kernel> = stores
        .into_iter()
        .map(|(body, mut stores)| {
            stores.sort_unstable();
            let written: f64 = stores.iter().map(|v| device.store(facts, *v)).sum();
            Kernel { body, cost: price[body] + written, stores }
        })
        .collect();
    let cost = kernels.iter().map(|k| k.cost).sum();
    Pick { kernels, cost }
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
