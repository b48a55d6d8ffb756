use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use half::{bf16, f16};

use super::header::header_length;
use super::{FileError, Header, TensorInfo, parse_header};
use crate::tensor::{Dtype, HostData, HostTensor};

/// Bytes that are read and converted at a time.
const CHUNK: usize = 1 << 20;

/// An open tensor file of which only the header is in memory.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    header: Header,
    // A lock and not a borrow: loaders read one file from several threads.
    file: Mutex<File>,
}

impl TensorFile {
    /// Opens `path` and validates its header. No tensor bytes are read.
    ///
    /// # Errors
    /// If the file cannot be read or its header breaks the format.
    pub fn open(path: impl AsRef<Path>) -> Result<TensorFile, FileError> {
        let path = path.as_ref().to_owned();
        let failed = |error| FileError::Io { action: "read", path: path.clone(), error };
        let mut file = File::open(&path).map_err(failed)?;
        let file_bytes = file.metadata().map_err(failed)?.len();
        if file_bytes < 8 {
            return Err(FileError::NoLength { file_bytes });
        }
        let mut bytes = vec![0; 8];
        file.read_exact(&mut bytes).map_err(failed)?;
        // At most the file's own length and the limit, so that this cannot exhaust memory.
        let header_bytes = header_length(&bytes, file_bytes)?;
        let read = (&mut file).take(header_bytes).read_to_end(&mut bytes).map_err(failed)?;
        if read as u64 != header_bytes {
            return Err(FileError::HeaderCut { given: bytes.len(), needed: 8 + header_bytes });
        }
        let header = parse_header(&bytes, file_bytes)?;
        Ok(TensorFile { path, header, file: Mutex::new(file) })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names in the order of their bytes in the file.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.header.tensors.iter().map(|entry| entry.0.as_str())
    }

    /// The free text entries of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// Whether there is a tensor `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.header.get(name).is_some()
    }

    /// Form and place of the tensor `name`.
    ///
    /// # Errors
    /// [`FileError::Missing`] if there is none.
    pub fn info(&self, name: &str) -> Result<&TensorInfo, FileError> {
        self.header.get(name).ok_or_else(|| FileError::Missing { name: name.to_owned() })
    }

    /// Reads one whole tensor, and no other byte of the file.
    ///
    /// # Errors
    /// If there is no such tensor, its dtype is not supported, a BOOL is neither 0 nor 1, or the
    /// file cannot be read.
    pub fn read(&self, name: &str) -> Result<HostTensor, FileError> {
        let info = self.info(name)?;
        let data = self.read_range(name, info.dtype, info.range.clone())?;
        Ok(HostTensor { shape: info.shape.clone(), data })
    }

    /// Reads `rows` of the outermost dim of a tensor of shape `[n, ..]`; the result has the shape
    /// `[rows, ..]`. Only the bytes of those rows are read.
    ///
    /// # Errors
    /// As [`TensorFile::read`], and [`FileError::Rows`] if the tensor has no such rows.
    pub fn read_rows(&self, name: &str, rows: Range<usize>) -> Result<HostTensor, FileError> {
        let info = self.info(name)?;
        let bad_rows = || FileError::Rows {
            name: name.to_owned(),
            from: rows.start,
            to: rows.end,
            shape: info.shape.clone(),
        };
        let Some((&count, rest)) = info.shape.split_first() else {
            return Err(bad_rows());
        };
        if rows.start > rows.end || rows.end > count {
            return Err(bad_rows());
        }
        if !info.dtype.supported() {
            return Err(FileError::Unsupported { name: name.to_owned(), dtype: info.dtype });
        }
        // `count` is not zero where rows are asked for; the header's check bounds the products.
        let row_bytes = (info.range.end - info.range.start) / (count.max(1) as u64);
        let begin = info.range.start + rows.start as u64 * row_bytes;
        let end = info.range.start + rows.end as u64 * row_bytes;
        let data = self.read_range(name, info.dtype, begin..end)?;
        let shape = std::iter::once(rows.len()).chain(rest.iter().copied()).collect();
        Ok(HostTensor { shape, data })
    }

    fn read_range(
        &self,
        name: &str,
        dtype: Dtype,
        range: Range<u64>,
    ) -> Result<HostData, FileError> {
        // A thread that panicked while it held the lock left nothing but a seek behind.
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(range.start)).map_err(|error| FileError::Io {
            action: "seek in",
            path: self.path.clone(),
            error,
        })?;
        let mut source = Source { name, path: &self.path, file: &mut file, left: range };
        Ok(match dtype {
            Dtype::F64 => HostData::F64(source.values(f64::from_le_bytes)?),
            Dtype::F32 => HostData::F32(source.values(f32::from_le_bytes)?),
            Dtype::BF16 => HostData::BF16(source.values(bf16::from_le_bytes)?),
            Dtype::F16 => HostData::F16(source.values(f16::from_le_bytes)?),
            Dtype::I64 => HostData::I64(source.values(i64::from_le_bytes)?),
            Dtype::I32 => HostData::I32(source.values(i32::from_le_bytes)?),
            Dtype::I16 => HostData::I16(source.values(i16::from_le_bytes)?),
            Dtype::I8 => HostData::I8(source.values(i8::from_le_bytes)?),
            Dtype::U8 => HostData::U8(source.values(u8::from_le_bytes)?),
            Dtype::BOOL => {
                let bytes = source.values(u8::from_le_bytes)?;
                if let Some(at) = bytes.iter().position(|&byte| byte > 1) {
                    let (name, value) = (name.to_owned(), bytes[at]);
                    return Err(FileError::NotBool { name, at: at as u64, value });
                }
                HostData::Bool(bytes.into_iter().map(|byte| byte == 1).collect())
            }
            _ => return Err(FileError::Unsupported { name: name.to_owned(), dtype }),
        })
    }
}

/// The bytes of one tensor that are still to be read.
struct Source<'a> {
    name: &'a str,
    path: &'a Path,
    file: &'a mut File,
    left: Range<u64>,
}

impl Source<'_> {
    fn values<T, const N: usize>(&mut self, decode: fn([u8; N]) -> T) -> Result<Vec<T>, FileError> {
        let bytes = self.left.end - self.left.start;
        let memory = || FileError::Memory { name: self.name.to_owned(), bytes };
        let count = usize::try_from(bytes).map_err(|_| memory())? / N;
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|_| memory())?;
        let mut buffer = vec![0; CHUNK.min(count * N)];
        let mut left = count * N;
        while left > 0 {
            let chunk = &mut buffer[..left.min(CHUNK)];
            self.file.read_exact(chunk).map_err(|error| FileError::Io {
                action: "read",
                path: self.path.to_owned(),
                error,
            })?;
            values.extend(chunk.as_chunks::<N>().0.iter().map(|&bytes| decode(bytes)));
            left -= chunk.len();
        }
        Ok(values)
    }
}
