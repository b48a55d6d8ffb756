//! The vlm language: parsing, formatting, checking, lowering to the tensor IR.

pub mod diag;
pub mod elab;
pub mod fmt;
pub mod source;
pub mod syntax;
