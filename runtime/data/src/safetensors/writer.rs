use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{FileError, MAX_HEADER_BYTES};
use crate::tensor::{Dtype, HostData, HostTensor};

/// Declaration of a tensor that a [`TensorWriter`] will be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in the file.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each dim, outermost first.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    fn form(dtype: Dtype, shape: &[usize]) -> String {
        format!("{dtype} {shape:?}")
    }

    fn bytes(&self) -> Option<u64> {
        let bits = self
            .shape
            .iter()
            .try_fold(self.dtype.bits(), |all, &dim| all.checked_mul(u64::try_from(dim).ok()?))?;
        Some(bits / 8)
    }
}

/// Writes a tensor file piece by piece, so that a checkpoint larger than memory can be saved.
///
/// The bytes go to a temporary name in the same folder. [`TensorWriter::finish`] flushes them to
/// the disk and renames; a reader sees the old file or the whole new one, never a part. A writer
/// that is dropped before that removes its temporary file.
#[derive(Debug)]
pub struct TensorWriter {
    path: PathBuf,
    temporary: PathBuf,
    out: Option<BufWriter<File>>,
    specs: Vec<TensorSpec>,
    written: usize,
    renamed: bool,
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl TensorWriter {
    /// Starts the file that will be `path`, and writes its header.
    ///
    /// # Errors
    /// If a name repeats, a dtype cannot be written, a size overflows, or the folder cannot be
    /// written to.
    pub fn create(
        path: impl AsRef<Path>,
        specs: Vec<TensorSpec>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<TensorWriter, FileError> {
        let path = path.as_ref().to_owned();
        let header = header_bytes(&specs, metadata)?;
        let Some(name) = path.file_name() else {
            return Err(FileError::NoName { path });
        };
        // The rename at the end would put a file in the place of a device or a link.
        if std::fs::symlink_metadata(&path).is_ok_and(|m| !m.is_file()) {
            return Err(FileError::NotAFile { path });
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        hidden.push(format!(".{}-{count}.tmp", std::process::id()));
        let temporary = path.with_file_name(hidden);
        let failed = |error| FileError::Io { action: "create", path: temporary.clone(), error };
        let file =
            OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(failed)?;
        let out = Some(BufWriter::with_capacity(1 << 20, file));
        let mut writer = TensorWriter { path, temporary, out, specs, written: 0, renamed: false };
        writer.put(&header)?;
        Ok(writer)
    }

    /// Appends the next declared tensor.
    ///
    /// # Errors
    /// If all are written already, or `tensor` has not the declared dtype and shape.
    pub fn write(&mut self, tensor: &HostTensor) -> Result<(), FileError> {
        let Some(spec) = self.specs.get(self.written) else {
            let declared = self.specs.len();
            return Err(FileError::TooMany { given: declared + 1, declared });
        };
        let fits = spec.shape.iter().product::<usize>() == tensor.len();
        if spec.dtype != tensor.dtype() || spec.shape != tensor.shape || !fits {
            return Err(FileError::NotAsDeclared {
                name: spec.name.clone(),
                declared: TensorSpec::form(spec.dtype, &spec.shape),
                given: TensorSpec::form(tensor.dtype(), &tensor.shape),
            });
        }
        self.put_data(&tensor.data)?;
        self.written += 1;
        Ok(())
    }

    /// Makes the file durable under its real name.
    ///
    /// # Errors
    /// If a declared tensor was not written, or the disk refuses.
    pub fn finish(mut self) -> Result<(), FileError> {
        if self.written != self.specs.len() {
            let (written, declared) = (self.written, self.specs.len());
            return Err(FileError::Unfinished { written, declared });
        }
        let failed = |action| {
            let path = self.temporary.clone();
            move |error| FileError::Io { action, path, error }
        };
        if let Some(mut out) = self.out.take() {
            out.flush().map_err(failed("write"))?;
            out.get_ref().sync_all().map_err(failed("sync"))?;
        }
        std::fs::rename(&self.temporary, &self.path).map_err(failed("rename"))?;
        self.renamed = true;
        // The rename itself is durable only once the folder is. Not every system can sync one.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        out.write_all(bytes).map_err(|error| FileError::Io {
            action: "write",
            path: self.temporary.clone(),
            error,
        })
    }

    fn put_data(&mut self, data: &HostData) -> Result<(), FileError> {
        match data {
            HostData::F64(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::F32(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::BF16(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::F16(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::I64(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::I32(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::I16(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::I8(values) => self.put_values(values, |value| value.to_le_bytes()),
            HostData::U8(values) => self.put(values),
            HostData::Bool(values) => self.put_values(values, |value| [u8::from(value)]),
        }
    }

    fn put_values<T: Copy, const N: usize>(
        &mut self,
        values: &[T],
        encode: fn(T) -> [u8; N],
    ) -> Result<(), FileError> {
        let mut buffer = Vec::with_capacity((values.len() * N).min(1 << 16));
        for chunk in values.chunks((1 << 16) / N) {
            buffer.clear();
            buffer.extend(chunk.iter().flat_map(|&value| encode(value)));
            self.put(&buffer)?;
        }
        Ok(())
    }
}

impl Drop for TensorWriter {
    fn drop(&mut self) {
        if !self.renamed {
            drop(self.out.take());
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// The length and the JSON, padded with spaces so that the buffer starts at a multiple of 8.
fn header_bytes(
    specs: &[TensorSpec],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, FileError> {
    let mut names = HashSet::new();
    let mut map = serde_json::Map::new();
    if !metadata.is_empty() {
        map.insert("__metadata__".to_owned(), serde_json::json!(metadata));
    }
    let mut begin = 0u64;
    for spec in specs {
        let name = spec.name.clone();
        if !names.insert(&spec.name) || name == "__metadata__" {
            return Err(FileError::Duplicate { name });
        }
        if !spec.dtype.supported() {
            return Err(FileError::Unsupported { name, dtype: spec.dtype });
        }
        let end = spec.bytes().and_then(|bytes| begin.checked_add(bytes));
        let Some(end) = end else {
            let shape = spec.shape.iter().map(|&dim| dim as u64).collect();
            return Err(FileError::Overflow { name, shape, dtype: spec.dtype });
        };
        let entry = serde_json::json!({
            "dtype": spec.dtype.name(), "shape": spec.shape, "data_offsets": [begin, end],
        });
        map.insert(name, entry);
        begin = end;
    }
    let mut json = serde_json::to_vec(&map)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    let header_bytes = json.len() as u64;
    if header_bytes > MAX_HEADER_BYTES {
        return Err(FileError::HeaderTooLong { header_bytes, limit: MAX_HEADER_BYTES });
    }
    let mut bytes = header_bytes.to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok(bytes)
}

/// Writes `tensors` to `path` in the order given, in one go; see [`TensorWriter`].
///
/// # Errors
/// As [`TensorWriter::create`].
pub fn write_file<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (&'a str, &'a HostTensor)>,
    metadata: &BTreeMap<String, String>,
) -> Result<(), FileError> {
    let tensors: Vec<_> = tensors.into_iter().collect();
    let specs = tensors
        .iter()
        .map(|(name, tensor)| TensorSpec {
            name: (*name).to_owned(),
            dtype: tensor.dtype(),
            shape: tensor.shape.clone(),
        })
        .collect();
    let mut writer = TensorWriter::create(path, specs, metadata)?;
    for (_, tensor) in tensors {
        writer.write(tensor)?;
    }
    writer.finish()
}
