//! The vlmc command line.
fn main() {}
