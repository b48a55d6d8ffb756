//! Tensor IR.

pub mod dim;
pub mod ty;
