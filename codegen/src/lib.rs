//! Kernel code generation.
