//! Tensor IR.
