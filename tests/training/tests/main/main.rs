//! Proofs of the training graph through the compiler and the executor.
#![allow(clippy::unwrap_used)]

mod isolation;
mod overfit;
mod packed;
mod poison;
