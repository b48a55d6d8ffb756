use std::path::PathBuf;

use thiserror::Error;

use crate::tensor::Dtype;

/// Why a tensor file was refused.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum FileError {
    #[error("cannot {action} {path}: {error}")]
    Io { action: &'static str, path: PathBuf, error: std::io::Error },
    #[error("a file of {file_bytes} bytes is too short for the 8 bytes of a header length")]
    NoLength { file_bytes: u64 },
    #[error("the header claims {header_bytes} bytes, more than the limit of {limit}")]
    HeaderTooLong { header_bytes: u64, limit: u64 },
    #[error("the header claims {header_bytes} bytes, the file has {left} after the length")]
    HeaderPastEnd { header_bytes: u64, left: u64 },
    #[error("{given} bytes were given of a header that ends at byte {needed}")]
    HeaderCut { given: usize, needed: u64 },
    #[error("the header is not utf-8 from its byte {at} on")]
    NotUtf8 { at: usize },
    #[error("the header does not start with an opening brace")]
    NotObject,
    #[error("the header is not what the format asks for: {0}")]
    Json(String),
    #[error("the header names `{name}` twice")]
    Duplicate { name: String },
    #[error("`{name}` has the dtype `{dtype}`, which the format does not know")]
    UnknownDtype { name: String, dtype: String },
    #[error("`{name}` has {rank} dims, more than the limit of {limit}")]
    Rank { name: String, rank: usize, limit: usize },
    #[error("`{name}`: the shape {shape:?} of {dtype} overflows a byte count")]
    Overflow { name: String, shape: Vec<u64>, dtype: Dtype },
    #[error("`{name}`: the shape {shape:?} of {dtype} is not a whole number of bytes")]
    PartialByte { name: String, shape: Vec<u64>, dtype: Dtype },
    #[error("`{name}` ends at byte {end} before it begins at byte {begin}")]
    Reversed { name: String, begin: u64, end: u64 },
    #[error("`{name}` ends at byte {end} of a buffer of {buffer} bytes")]
    PastEnd { name: String, end: u64, buffer: u64 },
    #[error("`{name}` spans {span} bytes, its shape and dtype need {needed}")]
    Span { name: String, span: u64, needed: u64 },
    #[error("`{name}` begins at byte {begin}, before the end of `{before}` at byte {end}")]
    Overlap { name: String, begin: u64, before: String, end: u64 },
    #[error("bytes {from} to {to} of the buffer belong to no tensor")]
    Hole { from: u64, to: u64 },
    #[error("there is no tensor `{name}`")]
    Missing { name: String },
    #[error("`{name}` is {dtype}, which cannot be read here")]
    Unsupported { name: String, dtype: Dtype },
    #[error("`{name}` of {bytes} bytes does not fit in memory")]
    Memory { name: String, bytes: u64 },
    #[error("`{name}` has the value {value} at element {at}, a BOOL is 0 or 1")]
    NotBool { name: String, at: u64, value: u8 },
    #[error("rows {from} to {to} were asked of `{name}`, which has the shape {shape:?}")]
    Rows { name: String, from: usize, to: usize, shape: Vec<usize> },
    #[error("`{name}` was declared as {declared}, the tensor given is {given}")]
    NotAsDeclared { name: String, declared: String, given: String },
    #[error("{written} of {declared} declared tensors were written")]
    Unfinished { written: usize, declared: usize },
    #[error("{given} tensors were given, {declared} were declared")]
    TooMany { given: usize, declared: usize },
    #[error("{path} is there and is no regular file")]
    NotAFile { path: PathBuf },
    #[error("{path} is not a file name")]
    NoName { path: PathBuf },
    #[error("the index places `{name}` in `{file}`, which is not a plain file name")]
    IndexPath { name: String, file: String },
    #[error("the index places `{name}` in `{file}`, which does not hold it")]
    IndexMissing { name: String, file: String },
    #[error("`{name}` is in both {first} and {second}")]
    TwoFiles { name: String, first: PathBuf, second: PathBuf },
    #[error("{path} holds no safetensors file")]
    EmptyFolder { path: PathBuf },
}

impl From<serde_json::Error> for FileError {
    // The text says it all: as a source it would be told twice.
    fn from(e: serde_json::Error) -> Self {
        FileError::Json(e.to_string())
    }
}
