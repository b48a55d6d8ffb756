//! Exchange between ranks.

mod local;

pub use local::{Local, Port, Waited};

use std::fmt;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::MeshAxis;

/// Ranks that exchange, as a rank sees them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// All ranks.
    World,
    /// The ranks of one stage: those that differ in their data- and context-parallel place alone.
    Replicas,
    /// The context-parallel neighbours.
    Context,
    /// The pipeline: those that differ in their pipeline rank alone.
    Pipeline,
}

impl Group {
    /// The ranks that an op exchanges with.
    pub fn of(op: &Op) -> Option<Group> {
        match op {
            Op::AllReduce { axis, .. }
            | Op::AllGather { axis, .. }
            | Op::ReduceScatter { axis, .. }
            | Op::AllToAll { axis, .. }
            | Op::Shard { axis, .. }
            | Op::Unshard { axis, .. } => match axis {
                MeshAxis::Cp => Some(Group::Context),
                MeshAxis::Dp | MeshAxis::Ep | MeshAxis::Pp | MeshAxis::Tp => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Group::World => "all ranks",
            Group::Replicas => "data- and context-parallel ranks",
            Group::Context => "context-parallel ranks",
            Group::Pipeline => "pipeline ranks",
        })
    }
}
