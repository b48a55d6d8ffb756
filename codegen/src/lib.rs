//! Kernel code generation.
//!
//! The lowering half takes the MLIR text of a kernel and makes PTX, a cubin with its resource
//! report, or a host object of it. Only [`lower`] needs LLVM, behind the cargo feature `llvm`;
//! no type of melior, inkwell or LLVM leaves it.

#[cfg(feature = "llvm")]
pub mod build;
pub mod error;
pub mod kernel;
mod link;
#[cfg(feature = "llvm")]
pub mod lower;
pub mod ptxas;
pub mod target;

pub use error::{Error, Stage};
pub use link::link_shared;
#[cfg(feature = "llvm")]
pub use lower::Lowering;
pub use ptxas::Ptxas;
pub use target::Target;
