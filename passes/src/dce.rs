//! Leaves out what nothing needs.
//!
//! 1. Pure nodes whose results no kept node and no output uses. Unused results of a call or of an
//!    op with several stay, since they come with the others.
//! 2. Calls, when no result is used. With them their parameters leave the program.
//! 3. Functions that main does not reach.
//!
//! Inputs and parameters stay: they are the signature of a function. Exchanges between ranks go like
//! other ops: those who exchange run the same program, so what nobody needs here nobody makes there.

use crate::manager::{Pass, PassError};
use crate::rewrite::Rewriter;
use rustc_hash::FxHashSet;
use vlmc_ir::graph::{Function, Program};
use vlmc_ir::ops::Op;

/// The pass.
pub const PASS: Pass =
    Pass { name: "dce", summary: "leaves out nodes and functions that nothing needs", run };

fn run(p: &Program) -> Result<Program, PassError> {
    let mut functions: Vec<Function> = p.functions.iter().map(function).collect();
    let reached = reached(&functions);
    let mut keep = reached.iter();
    functions.retain(|_| keep.next().copied().unwrap_or(false));
    Ok(Program { functions, ..p.clone() })
}

fn function(f: &Function) -> Function {
    let signature = |op: &Op| matches!(op, Op::Input { .. } | Op::Param { .. });
    let mut live: Vec<bool> = f.nodes.iter().map(|n| signature(&n.op)).collect();
    for v in f.output_values() {
        live[v.node.0 as usize] = true;
    }
    for i in (0..f.nodes.len()).rev() {
        if live[i] {
            for v in &f.nodes[i].operands {
                live[v.node.0 as usize] = true;
            }
        }
    }
    let mut r = Rewriter::new(f);
    for id in f.node_ids().filter(|id| live[id.0 as usize]) {
        r.keep(id);
    }
    r.finish()
}

/// For each function whether main, the last, is it or calls it.
fn reached(functions: &[Function]) -> Vec<bool> {
    let mut called: FxHashSet<&str> = functions.last().map(|f| &*f.name).into_iter().collect();
    // Callers come after callees.
    let mut out: Vec<bool> = vec![];
    for f in functions.iter().rev() {
        let is_reached = called.contains(&*f.name);
        out.push(is_reached);
        if is_reached {
            called.extend(f.nodes.iter().filter_map(|n| match &n.op {
                Op::Call { callee, .. } => Some(&**callee),
                _ => None,
            }));
        }
    }
    out.reverse();
    out
}
