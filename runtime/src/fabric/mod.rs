//! Exchange between ranks.

mod local;

pub use local::{Local, Port, Waited};

use std::fmt;

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
