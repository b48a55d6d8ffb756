//! Reading and writing of safetensors files.
//!
//! A file is an eight-byte little-endian length, a JSON object of that many bytes, and a buffer.
//! Each entry of the object names a dtype, a shape and a byte range in the buffer. The reader is
//! stricter than the format asks for: the ranges must tile the buffer, and no name may repeat.

mod error;
mod header;
mod reader;
mod sharded;
mod writer;

pub use error::FileError;
pub use header::{Header, MAX_HEADER_BYTES, MAX_RANK, TensorInfo, parse_header};
pub use reader::TensorFile;
pub use sharded::TensorFolder;
pub use writer::{TensorSpec, TensorWriter, write_file};
