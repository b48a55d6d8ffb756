//! Proofs that a plan does what the program says. They share no code with the passes that plan.

pub mod memory;
pub mod schedule;
