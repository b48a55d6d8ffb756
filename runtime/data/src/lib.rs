//! Host side of a batch: tensor files, packing, position ids, picture tables and preprocessing.
//!
//! Everything here is plain integer and float code that runs once per microbatch on the host,
//! before any device work. Nothing in this crate knows a model; token ids, merge sizes and table
//! sides are parameters.

#![forbid(unsafe_code)]

pub mod batch;
pub mod checkpoint;
pub mod host_fn;
pub mod init;
pub mod pack;
pub mod positions;
pub mod preprocess;
pub mod safetensors;
pub mod tensor;
pub mod vision;

pub use batch::{Batch, BatchError};
pub use pack::SequenceLayout;
pub use tensor::{Dtype, HostData, HostTensor};
pub use vision::Grid;

/// Label of a row that takes no part in the loss.
pub const IGNORED_LABEL: i64 = -100;
