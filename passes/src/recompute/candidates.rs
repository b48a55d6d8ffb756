//! What may be recomputed: bytes that it frees and the work that it repeats, for each template.
//!
//! Named regions of the spec are candidates, whole layers, and single values with what makes them
//! (`value NAME`), which the compiler finds by itself. A region of which nothing is kept frees
//! nothing: the backward clusters make its values again as it is.

use super::SAVED;
use super::cost::{Costs, Work, bytes_of};
use super::site::{Site, callee};
use super::version::backward;
use crate::manager::PassError;
use std::collections::{BTreeMap, BTreeSet};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, NodeId, Program, RegionId};

/// The region of everything that a template keeps.
pub const LAYER: &str = "layer";

/// A set of values of one template that may be discarded.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// The template: `Layer.gdn`.
    pub template: String,
    /// The region of the spec, [`LAYER`], the template of a nested layer, or `value NAME`.
    pub region: String,
    /// Forward calls of main that it may be chosen for.
    pub sites: Vec<NodeId>,
    /// Results of the forward call that are discarded.
    pub results: BTreeSet<u32>,
    /// Bytes that one call keeps less.
    pub freed: u64,
    /// What one call repeats.
    pub work: Work,
}

/// Every candidate, template by template in the order of main. Regions are looked up in `regions`,
/// the program before fusion, since clusters cross borders of regions.
///
/// # Errors
/// Bugs of the pass.
pub fn candidates(
    p: &Program,
    regions: &Program,
    sites: &[Site],
    sizes: &Sizes,
) -> Result<Vec<Candidate>, PassError> {
    let Some(main) = p.main() else { return Ok(vec![]) };
    let mut out: Vec<Candidate> = vec![];
    let mut templates: Vec<(&Site, Vec<NodeId>)> = vec![];
    for s in sites {
        let same = |t: &&mut (&Site, Vec<NodeId>)| {
            t.0.forward_name == s.forward_name && t.0.backward_name == s.backward_name
        };
        match templates.iter_mut().find(same) {
            Some((_, calls)) => calls.push(s.forward),
            None => templates.push((s, vec![s.forward])),
        }
    }
    for (site, calls) in templates {
        let Some(f) = p.function(&site.forward_name) else { continue };
        let named = regions.function(&site.forward_name).unwrap_or(f);
        let mut sets: Vec<(String, BTreeSet<u32>)> = vec![];
        for (name, results) in named_regions(regions, named, site) {
            sets.push((name, results));
        }
        sets.push((LAYER.to_string(), site.kept.iter().map(|k| k.result).collect()));
        let whole: u64 = site.kept.iter().map(|k| bytes(f, k.result, sizes)).sum();
        for k in &site.kept {
            // What is small is not worth a kernel.
            if bytes(f, k.result, sizes) * 64 >= whole.max(1) {
                let name = f.outputs[k.result as usize].name.as_deref().unwrap_or_default();
                let name = name.strip_prefix(SAVED).unwrap_or(name);
                sets.push((format!("value {name}"), BTreeSet::from([k.result])));
            }
        }
        for (region, results) in sets {
            let is_single = region.starts_with("value ");
            let of_template = |c: &&Candidate| c.template == site.template();
            if is_single && out.iter().filter(of_template).any(|c| c.results == results) {
                continue;
            }
            let (freed, work) = gain(p, main, site, &results, sizes)?;
            if is_single && freed == 0 {
                continue;
            }
            let template = site.template().to_string();
            out.push(Candidate { template, region, sites: calls.clone(), results, freed, work });
        }
    }
    Ok(out)
}

/// Bytes that a site keeps less without some results, and the work that it repeats.
///
/// # Errors
/// Bugs of the pass.
pub fn gain(
    p: &Program,
    main: &Function,
    site: &Site,
    results: &BTreeSet<u32>,
    sizes: &Sizes,
) -> Result<(u64, Work), PassError> {
    let missing = || PassError::new("a function is missing");
    let f = p.function(&site.forward_name).ok_or_else(missing)?;
    let b = p.function(&site.backward_name).ok_or_else(missing)?;
    if results.is_empty() {
        return Ok((0, Work::default()));
    }
    let version = backward((f, b), main, site, results, site.backward_name.clone())?;
    let gone: u64 = results.iter().map(|r| bytes(f, *r, sizes)).sum();
    let forward = main.node(site.forward);
    let more = version.inputs.iter().filter_map(|i| forward.operands.get(*i));
    let more: u64 = more.map(|v| bytes_of(main.ty(*v), sizes)).sum();
    // Results of repeated nodes that somebody reads.
    let mut read: BTreeMap<NodeId, Vec<bool>> = BTreeMap::new();
    let replayed = &version.replayed;
    let operands = replayed.iter().flat_map(|id| f.node(*id).operands.iter().copied());
    let wanted = results.iter().filter_map(|r| f.outputs.get(*r as usize)).map(|o| o.value);
    for v in operands.chain(wanted) {
        let flags = read.entry(v.node).or_insert_with(|| vec![false; f.node(v.node).tys.len()]);
        if let Some(flag) = flags.get_mut(v.result as usize) {
            *flag = true;
        }
    }
    let costs = Costs::new(p, sizes);
    let work = replayed.iter().fold(Work::default(), |sum, id| {
        sum.plus(costs.node(f, *id, read.get(id).map_or(&[], Vec::as_slice)))
    });
    Ok((gone.saturating_sub(more), work))
}

fn bytes(f: &Function, result: u32, sizes: &Sizes) -> u64 {
    f.outputs.get(result as usize).map_or(0, |o| bytes_of(f.ty(o.value), sizes))
}

/// The regions of a function, outer ones before inner ones, with the kept results that are made in
/// each; nested layers of a kind are a region that is called as their template.
fn named_regions(regions: &Program, f: &Function, site: &Site) -> Vec<(String, BTreeSet<u32>)> {
    let mut out: Vec<(String, BTreeSet<u32>)> = vec![];
    let mut at = |name: &str| -> usize {
        let known = out.iter().position(|(n, _)| n == name);
        known.unwrap_or_else(|| {
            out.push((name.to_string(), BTreeSet::new()));
            out.len() - 1
        })
    };
    let chain = |mut r: Option<RegionId>| {
        let mut names = vec![];
        while let Some(region) = r.and_then(|r| f.regions.get(r.0 as usize)) {
            names.push(&*region.name);
            r = region.parent;
        }
        names
    };
    let mut found: Vec<(usize, Option<u32>)> = vec![];
    for r in &f.regions {
        found.push((at(&r.name), None));
    }
    for k in &site.kept {
        let Some(o) = f.outputs.get(k.result as usize) else { continue };
        for name in chain(f.node(o.value.node).region) {
            found.push((at(name), Some(k.result)));
        }
        if let Some(g) = callee(regions, f, o.value.node)
            && let Some(inner) = g.outputs.get(o.value.result as usize)
            && inner.name.as_deref().is_some_and(|n| n.starts_with(SAVED))
        {
            let name = g.name.strip_suffix(".fwd").unwrap_or(&g.name);
            found.push((at(name), Some(k.result)));
        }
    }
    for (i, result) in found {
        out[i].1.extend(result);
    }
    out
}
