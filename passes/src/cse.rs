//! Merges pure nodes that compute the same: same op, attributes, operands and types.
//!
//! The first stays, gets the origins of the others, and a name if it has none. Nodes of different
//! regions do not merge: a region is what is recomputed together, and a value used across its
//! border would have to be saved.

use crate::manager::{Pass, PassError};
use crate::rewrite::Rewriter;
use rustc_hash::FxHashMap;
use vlmc_ir::graph::{Function, NodeId, Program, RegionId, Value};
use vlmc_ir::ops::{Effect, Op};
use vlmc_ir::ty::Ty;

/// The pass.
pub const PASS: Pass = Pass { name: "cse", summary: "merges nodes that compute the same", run };

fn run(p: &Program) -> Result<Program, PassError> {
    let functions = p.functions.iter().map(function).collect();
    Ok(Program { functions, ..p.clone() })
}

fn function(f: &Function) -> Function {
    type Key = (Op, Vec<Value>, Vec<Ty>, Option<RegionId>);
    let mut seen: FxHashMap<Key, NodeId> = FxHashMap::default();
    let mut r = Rewriter::new(f);
    for id in f.node_ids() {
        if f.node(id).op.info().effect != Effect::Pure {
            r.keep(id);
            continue;
        }
        let node = r.mapped(id);
        let key = (node.op, node.operands, node.tys, node.region);
        if let Some(first) = seen.get(&key).copied() {
            let results = key.2.len() as u32;
            r.replace(id, (0..results).map(|result| Value { node: first, result }).collect());
            let kept = r.node_mut(first);
            for o in node.origins {
                if !kept.origins.contains(&o) {
                    kept.origins.push(o);
                }
            }
            kept.name = kept.name.take().or(node.name);
        } else {
            let first = r.keep(id);
            seen.insert(key, first);
        }
    }
    r.finish()
}
