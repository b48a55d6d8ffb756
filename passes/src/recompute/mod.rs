//! Recompute: less is kept from forward to backward, and made again.
//!
//! The pass works on the fused joint program. Of the values that a forward function keeps for its
//! backward function (results `saved.NAME`) some are discarded: the forward function no longer
//! returns them, so that their storage is free after the last forward reader, and the backward
//! function makes them again before its first reader of each. What is made again is a copy of the
//! forward nodes, with calls of the very same clusters, so that results are equal bit for bit; nodes
//! that nobody reads are not copied. Producers come before consumers, however regions are chained,
//! since a value is made when somebody asks for it, after what it is made of.
//!
//! A function with its choice is a version: `NAME.rN`. In a version
//! - forward nodes of what is discarded stand in a region `discard`,
//! - backward nodes of what is made again stand in a region `replay`,
//! - results that are kept and read by a replay are called `checkpoint.NAME`.
//!
//! Main can replay calls as well: of a group of layers only the input of the first is kept, and the
//! calls of the group are repeated before the first backward call of it. Source of the protocol:
//! Megatron-LM, discard-output checkpoints and `recompute_granularity`; Chen et al., 2016.

mod apply;
pub mod candidates;
pub mod cost;
mod mode;
mod narrow;
pub mod planner;

mod replay;
mod site;
mod version;

pub use apply::{Choice, apply};
pub use candidates::{Candidate, candidates};
pub use mode::{Granularity, KNOWN_REGIONS, Mode, UnknownMode, full, selective};
pub use site::{Kept, Site, sites};

use crate::manager::{Pass, PassError};
use vlmc_ir::graph::{Function, NodeId, Program};

/// The pass in lists: every layer keeps its input alone.
pub const PASS: Pass = Pass {
    name: "recompute",
    summary: "keeps the input of each layer alone, and makes again what its backward pass needs",
    run,
};

/// Names of the regions that dumps show.
const DISCARD: &str = "discard";
const REPLAY: &str = "replay";
/// What results that are kept are called, before their names; and those that a replay reads.
const SAVED: &str = "saved.";
const CHECKPOINT: &str = "checkpoint.";

fn run(p: &Program) -> Result<Program, PassError> {
    apply(p, &Choice::whole_layers(&sites(p)))
}

/// Whether a node makes something again: it stands in the region `replay`.
pub fn is_replay(f: &Function, id: NodeId) -> bool {
    let mut at = f.node(id).region;
    while let Some(r) = at.and_then(|r| f.regions.get(r.0 as usize)) {
        if r.parent.is_none() {
            return &*r.name == REPLAY;
        }
        at = r.parent;
    }
    false
}
