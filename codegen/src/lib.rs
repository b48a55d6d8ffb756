//! Kernel code generation.

pub mod kernel;
