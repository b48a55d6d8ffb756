//! What the commands of `vlmc` do, apart from reading arguments and printing.

pub mod compile;
pub mod eval;
pub mod fusion;
#[cfg(feature = "codegen")]
pub mod kernels;
pub mod layout;
pub mod parameters;
pub mod phase;
pub mod plan;
pub mod report;
pub mod settings;
pub mod spec;
pub mod weights;
