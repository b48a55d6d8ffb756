//! Parity runner.
fn main() {}
