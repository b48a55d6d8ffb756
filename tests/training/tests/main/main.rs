//! Proofs of the training graph through the compiler and the executor.
#![allow(clippy::unwrap_used)]

mod cases;
mod graph;
mod isolation;
mod layouts;
mod losses;
mod overfit;
mod packed;
mod placement;
mod poison;
mod random;
mod saved;
mod tied;
