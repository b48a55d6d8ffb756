//! Calls of which some results have no reader any more get a function without them.

use super::DISCARD;
use super::replay::carry;
use super::version::checkpoint_name;
use crate::manager::PassError;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use vlmc_ir::graph::{Function, Node, NodeId, Program, Value};
use vlmc_ir::ops::Op;

/// How a call is made smaller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Narrowing {
    /// What is left out is discarded: its nodes stand in the region `discard`.
    pub(super) discard: bool,
    /// Results that a replay reads.
    pub(super) checkpoints: BTreeSet<u32>,
}

/// New functions, each with the name of the one that it was made from.
pub(super) struct Narrower<'p> {
    program: &'p Program,
    taken: FxHashSet<String>,
    known: BTreeMap<(String, Vec<bool>, Narrowing), String>,
    /// The base and the new function.
    pub(super) made: Vec<(String, Function)>,
}

impl<'p> Narrower<'p> {
    pub(super) fn new(program: &'p Program) -> Self {
        let taken = program.functions.iter().map(|f| f.name.clone()).collect();
        Narrower { program, taken, known: BTreeMap::new(), made: vec![] }
    }

    /// A new name for a version of a function: `NAME.rN`.
    pub(super) fn name(&mut self, base: &str) -> String {
        let mut n = 1;
        while !self.taken.insert(format!("{base}.r{n}")) {
            n += 1;
        }
        format!("{base}.r{n}")
    }

    /// The function with those results alone that are used, without the nodes that only the others
    /// need; its name.
    fn version(&mut self, base: &str, used: &[bool], how: &Narrowing) -> Option<String> {
        let f = self.program.function(base)?;
        if used.iter().all(|u| *u) && how.checkpoints.is_empty() {
            return Some(base.to_string());
        }
        let key = (base.to_string(), used.to_vec(), how.clone());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        let name = self.name(base);
        self.known.insert(key, name.clone());
        let mut out = f.clone();
        out.name.clone_from(&name);
        if how.discard {
            for (o, _) in f.outputs.iter().zip(used).filter(|(_, used)| !**used) {
                let at = o.value.node.0 as usize;
                let region = carry(f, f.nodes[at].region, &mut out, Some(DISCARD));
                out.nodes[at].region = region;
            }
        }
        for r in &how.checkpoints {
            if let Some(o) = out.outputs.get_mut(*r as usize) {
                let name = checkpoint_name(o.name.as_deref().unwrap_or_default());
                o.name = Some(name.into());
            }
        }
        let mut keep = used.iter();
        out.outputs.retain(|_| keep.next().copied().unwrap_or(true));
        let out = live(&out);
        let inner = Narrowing { discard: how.discard, ..Narrowing::default() };
        let out = self.calls(&out, &|_| Some(inner.clone()));
        self.made.push((base.to_string(), out));
        Some(name)
    }

    /// A function whose calls take smaller callees where `how` says so and results have no reader.
    pub(super) fn calls(
        &mut self,
        f: &Function,
        how: &dyn Fn(NodeId) -> Option<Narrowing>,
    ) -> Function {
        let mut read: FxHashSet<Value> = f.output_values().collect();
        read.extend(f.nodes.iter().flat_map(|n| n.operands.iter().copied()));
        let mut out = Function { nodes: vec![], outputs: vec![], regions: vec![], ..f.clone() };
        let mut map: BTreeMap<Value, Value> = BTreeMap::new();
        let moved = |map: &BTreeMap<Value, Value>, v: Value| map.get(&v).copied().unwrap_or(v);
        for (i, node) in f.nodes.iter().enumerate() {
            let id = NodeId(i as u32);
            let mut node: Node = node.clone();
            node.operands.iter_mut().for_each(|v| *v = moved(&map, *v));
            node.region = carry(f, node.region, &mut out, None);
            let new = NodeId(out.nodes.len() as u32);
            let results: Vec<u32> = (0..node.tys.len() as u32).collect();
            let used: Vec<bool> =
                results.iter().map(|r| read.contains(&Value { node: id, result: *r })).collect();
            let mut kept = results.clone();
            if let (Op::Call { callee, .. }, Some(how)) = (&mut node.op, how(id))
                && self.program.function(callee).is_some_and(|g| g.cluster.is_none())
                && let Some(name) = self.version(callee, &used, &how)
            {
                *callee = name;
                kept.retain(|r| used[*r as usize]);
                let mut keep = used.iter();
                node.tys.retain(|_| keep.next().copied().unwrap_or(true));
            }
            for (result, old) in kept.into_iter().enumerate() {
                let value = Value { node: new, result: result as u32 };
                map.insert(Value { node: id, result: old }, value);
            }
            out.nodes.push(node);
        }
        out.outputs.clone_from(&f.outputs);
        for o in &mut out.outputs {
            o.value = moved(&map, o.value);
            if let vlmc_ir::graph::OutputKind::Loss { count, .. } = &mut o.kind {
                *count = moved(&map, *count);
            }
        }
        out
    }

    /// The program with `main` in place of its own, and every function made, each behind the one
    /// that it was made from. Functions that main does not reach are gone.
    pub(super) fn finish(self, main: Function) -> Result<Program, PassError> {
        let mut p = Program { functions: vec![], ..self.program.clone() };
        let old = self.program.functions.len().saturating_sub(1);
        for f in &self.program.functions[..old] {
            p.functions.push(f.clone());
            let made = self.made.iter().filter(|(base, _)| *base == f.name);
            p.functions.extend(made.map(|(_, f)| f.clone()));
        }
        p.functions.push(main);
        (crate::dce::PASS.run)(&p)
    }
}

/// A function with its inputs and what its outputs need.
fn live(f: &Function) -> Function {
    let mut live: Vec<bool> = f.nodes.iter().map(|n| matches!(n.op, Op::Input { .. })).collect();
    f.output_values().for_each(|v| live[v.node.0 as usize] = true);
    for i in (0..f.nodes.len()).rev() {
        if live[i] {
            f.nodes[i].operands.iter().for_each(|v| live[v.node.0 as usize] = true);
        }
    }
    let mut out =
        Function { params: vec![], nodes: vec![], regions: vec![], outputs: vec![], ..f.clone() };
    let mut map = vec![NodeId(0); f.nodes.len()];
    for (i, node) in f.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
        let mut node = node.clone();
        for v in &mut node.operands {
            v.node = map[v.node.0 as usize];
        }
        node.region = carry(f, node.region, &mut out, None);
        if let Op::Param { index } = &mut node.op {
            out.params.push(f.params[*index as usize].clone());
            *index = out.params.len() as u32 - 1;
        }
        map[i] = NodeId(out.nodes.len() as u32);
        out.nodes.push(node);
    }
    out.outputs.clone_from(&f.outputs);
    for o in &mut out.outputs {
        o.value.node = map[o.value.node.0 as usize];
    }
    out
}
