//! The tensor IR of vlmc.
//!
//! A [`graph::Program`] is a list of functions over tensors. What an op is stands once, in the op
//! table ([`ops`]); programs print as text and parse back ([`text`]), are checked by the verifier
//! ([`verify`]) and can be evaluated on the host ([`eval`]), slowly and exactly.

pub mod dim;
pub mod eval;
pub mod graph;
pub mod ops;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod ty;
pub mod verify;
