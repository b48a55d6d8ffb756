//! Graph to graph passes.
//!
//! A pass takes a program and gives a new one that means the same ([`manager::Pass`]); the
//! [`manager`] runs lists of them by name and verifies after each.

pub mod autodiff;
pub mod canon;
pub mod check;
pub mod cse;
pub mod dce;
pub mod fuse;
pub mod manager;
pub mod memory;
pub mod optimizer;
pub mod partition;
pub mod prune;
pub mod recompute;
pub mod rewrite;
pub mod schedule;
