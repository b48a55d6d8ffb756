//! What the commands of `vlmc` do, apart from reading arguments and printing.

pub mod compile;
pub mod eval;
pub mod spec;
