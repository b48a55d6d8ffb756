//! A program with a choice of what is recomputed.

use super::DISCARD;
use super::is_replay;
use super::narrow::{Narrower, Narrowing};
use super::replay::{Replay, carry};
use super::site::{Site, sites};
use super::version::{Version, backward, shared_inputs};
use crate::manager::PassError;
use std::collections::{BTreeMap, BTreeSet};
use vlmc_ir::graph::{Function, Node, NodeId, OutputKind, Program, Value};
use vlmc_ir::ops::Op;

/// What is discarded and made again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Choice {
    /// For a forward call of main the results that its backward function makes again.
    pub discards: BTreeMap<NodeId, BTreeSet<u32>>,
    /// Forward calls of main in order, one feeding the next, of which only the inputs of the first
    /// are kept; main repeats them before the first of their backward calls.
    pub groups: Vec<Vec<NodeId>>,
}

impl Choice {
    /// Each layer keeps its inputs alone.
    pub fn whole_layers(sites: &[Site]) -> Choice {
        let all = |s: &Site| (s.forward, s.kept.iter().map(|k| k.result).collect());
        Choice { discards: sites.iter().map(all).collect(), groups: vec![] }
    }

    /// Discards results of a call, too.
    pub fn discard(&mut self, forward: NodeId, results: impl IntoIterator<Item = u32>) {
        self.discards.entry(forward).or_default().extend(results);
    }

    /// Whether everything is kept.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.discards.values().all(BTreeSet::is_empty)
    }
}

/// Rewrites a joint program for a choice.
///
/// # Errors
/// A choice of calls that are no sites, and bugs of the pass.
pub fn apply(p: &Program, choice: &Choice) -> Result<Program, PassError> {
    let Some(main) = p.main().filter(|_| !choice.is_empty()) else { return Ok(p.clone()) };
    let sites = sites(p);
    let mut narrower = Narrower::new(p);
    let versions = versions(p, main, &sites, choice, &mut narrower)?;
    let (main, forwards) = rewrite(main, &sites, choice, &versions)?;
    let how = |id: NodeId| match forwards.get(&id) {
        Some(how) => Some(how.clone()),
        None => is_replay(&main, id).then(Narrowing::default),
    };
    let new_main = narrower.calls(&main, &how);
    let mut seen = BTreeSet::new();
    for (site, version) in &versions {
        if seen.insert(version.function.name.clone()) {
            let f = &version.function;
            let narrow = |id: NodeId| is_replay(f, id).then(Narrowing::default);
            let f = narrower.calls(f, &narrow);
            let base = sites.iter().find(|s| s.forward == *site).map(|s| s.backward_name.clone());
            narrower.made.push((base.unwrap_or_default(), f));
        }
    }
    narrower.finish(new_main)
}

/// The backward function of each site that discards something; equal ones have one name.
fn versions(
    p: &Program,
    main: &Function,
    sites: &[Site],
    choice: &Choice,
    narrower: &mut Narrower<'_>,
) -> Result<BTreeMap<NodeId, Version>, PassError> {
    let mut known: BTreeMap<_, NodeId> = BTreeMap::new();
    let mut versions: BTreeMap<NodeId, Version> = BTreeMap::new();
    for (forward, discards) in choice.discards.iter().filter(|(_, d)| !d.is_empty()) {
        let site = sites.iter().find(|s| s.forward == *forward);
        let site = site.ok_or_else(|| PassError::new("a call that keeps nothing is recomputed"))?;
        let key = (&site.forward_name, &site.backward_name, discards, shared_inputs(main, site));
        if let Some(same) = known.get(&key).and_then(|n| versions.get(n)).cloned() {
            versions.insert(*forward, same);
            continue;
        }
        let (Some(f), Some(b)) = (p.function(&site.forward_name), p.function(&site.backward_name))
        else {
            return Err(PassError::new("a function is missing"));
        };
        let name = narrower.name(&site.backward_name);
        versions.insert(*forward, backward((f, b), main, site, discards, name)?);
        known.insert(key, *forward);
    }
    Ok(versions)
}

/// Main with the new backward calls and with groups repeated, and how its forward calls become
/// smaller.
fn rewrite(
    main: &Function,
    sites: &[Site],
    choice: &Choice,
    versions: &BTreeMap<NodeId, Version>,
) -> Result<(Function, BTreeMap<NodeId, Narrowing>), PassError> {
    let mut out = Function {
        params: vec![],
        nodes: vec![],
        regions: vec![],
        outputs: vec![],
        ..main.clone()
    };
    let bug = || PassError::new("internal error in main: a value is not there");
    let mut replay = Replay::new(main);
    let mut forwards: BTreeMap<NodeId, Narrowing> = BTreeMap::new();
    let groups = groups(main, sites, choice);
    for (i, node) in main.nodes.iter().enumerate() {
        let id = NodeId(i as u32);
        for (_, values) in groups.iter().filter(|(start, _)| *start == id) {
            values.iter().for_each(|v| replay.discard(*v));
        }
        if let Op::Param { index } = &node.op {
            let param = main.params.get(*index as usize).ok_or_else(bug)?;
            let new = replay.param(&param.key).unwrap_or_else(|| out.add_param(param.clone()));
            replay.have_param(&param.key, new);
            replay.have(id.into(), new);
            continue;
        }
        let mut node: Node = node.clone();
        let site = sites.iter().find(|s| s.backward == id);
        if let Some((site, version)) = site.and_then(|s| Some((s, versions.get(&s.forward)?))) {
            let kept = version.operands.iter().map(|o| node.operands[*o]);
            let forward = main.node(site.forward);
            let inputs = version.inputs.iter().map(|i| forward.operands[*i]);
            node.operands = kept.chain(inputs).collect();
            if let Op::Call { callee, .. } = &mut node.op {
                callee.clone_from(&version.function.name);
            }
        }
        for v in &mut node.operands {
            *v = replay.value(*v).or_else(|| replay.make(&mut out, *v)).ok_or_else(bug)?;
        }
        let in_group = choice.groups.iter().flatten().any(|n| *n == id);
        node.region = carry(main, node.region, &mut out, in_group.then_some(DISCARD));
        let new = NodeId(out.nodes.len() as u32);
        if in_group || versions.contains_key(&id) {
            let checkpoints = versions.get(&id).map(|v| v.checkpoints.clone()).unwrap_or_default();
            forwards.insert(new, Narrowing { discard: true, checkpoints });
        }
        for result in 0..node.tys.len() as u32 {
            replay.have(Value { node: id, result }, Value { node: new, result });
        }
        out.nodes.push(node);
    }
    out.outputs.clone_from(&main.outputs);
    let mut resolve = |v: Value, out: &mut Function| {
        replay.value(v).or_else(|| replay.make(out, v)).ok_or_else(bug)
    };
    for i in 0..out.outputs.len() {
        let mut o = out.outputs[i].clone();
        o.value = resolve(o.value, &mut out)?;
        if let OutputKind::Loss { count, .. } = &mut o.kind {
            *count = resolve(*count, &mut out)?;
        }
        out.outputs[i] = o;
    }
    Ok((out, forwards))
}

/// For each group the node from which on its values are gone, and those values: what its calls keep,
/// and what one of its calls gives the next.
fn groups(main: &Function, sites: &[Site], choice: &Choice) -> Vec<(NodeId, BTreeSet<Value>)> {
    let of_group = |group: &Vec<NodeId>| {
        let members = || sites.iter().filter(|s| group.contains(&s.forward));
        let mut values: BTreeSet<Value> = BTreeSet::new();
        for s in members() {
            let kept = s.kept.iter().map(|k| Value { node: s.forward, result: k.result });
            values.extend(kept);
            let given = main.node(s.forward).operands.iter().copied();
            values.extend(given.filter(|v| group.contains(&v.node)));
        }
        members().map(|s| s.backward).min().map(|start| (start, values))
    };
    choice.groups.iter().filter_map(of_group).collect()
}
