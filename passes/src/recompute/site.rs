//! Calls of main that belong together: a forward call and the backward call that takes what it keeps.

use super::SAVED;
use vlmc_ir::graph::{Function, NodeId, Program};
use vlmc_ir::ops::Op;

/// A value that goes from a forward call to its backward call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Which result of the forward call it is.
    pub result: u32,
    /// Which operand of the backward call.
    pub operand: usize,
}

/// A forward call of main and its backward call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The forward call.
    pub forward: NodeId,
    /// The backward call.
    pub backward: NodeId,
    /// The function of the forward call.
    pub forward_name: String,
    /// That of the backward call.
    pub backward_name: String,
    /// Where it is in the spec: `decoder.3`.
    pub path: String,
    /// Its number, when it is a layer of a stack.
    pub layer: Option<u32>,
    /// Values that are kept for the backward call alone, by result.
    pub kept: Vec<Kept>,
}

impl Site {
    /// The template: the forward function's name without `.fwd`.
    pub fn template(&self) -> &str {
        self.forward_name.strip_suffix(".fwd").unwrap_or(&self.forward_name)
    }
}

/// The function that a node calls, when it is no cluster.
pub(super) fn callee<'p>(p: &'p Program, f: &Function, node: NodeId) -> Option<&'p Function> {
    match &f.nodes.get(node.0 as usize)?.op {
        Op::Call { callee, .. } => p.function(callee).filter(|g| g.cluster.is_none()),
        _ => None,
    }
}

/// Every site of main, in the order of the forward calls.
pub fn sites(p: &Program) -> Vec<Site> {
    let Some(main) = p.main() else { return vec![] };
    let mut sites: Vec<Site> = vec![];
    for backward in main.node_ids() {
        let Some(bwd) = callee(p, main, backward) else { continue };
        let mut site: Option<Site> = None;
        for (operand, v) in main.node(backward).operands.iter().enumerate() {
            let Some(fwd) = callee(p, main, v.node) else { continue };
            let saved = fwd.outputs.get(v.result as usize).and_then(|o| o.name.as_deref());
            if !saved.is_some_and(|n| n.starts_with(SAVED)) {
                continue;
            }
            let site = site.get_or_insert_with(|| Site {
                forward: v.node,
                backward,
                forward_name: fwd.name.clone(),
                backward_name: bwd.name.clone(),
                path: match &main.node(v.node).op {
                    Op::Call { path, .. } => path.clone(),
                    _ => String::new(),
                },
                layer: match &main.node(v.node).op {
                    Op::Call { layer, .. } => *layer,
                    _ => None,
                },
                kept: vec![],
            });
            if site.forward == v.node {
                site.kept.push(Kept { result: v.result, operand });
            }
        }
        sites.extend(site);
    }
    sites.sort_by_key(|s| s.forward);
    sites
}
