//! Graph to graph passes.

pub mod autodiff;
