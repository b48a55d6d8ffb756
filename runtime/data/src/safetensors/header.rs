use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, Visitor};

use super::FileError;
use crate::tensor::Dtype;

/// Longest header that is accepted, in bytes.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Most dims that a tensor may have.
pub const MAX_RANK: usize = 32;

/// Form and place of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each dim, outermost first.
    pub shape: Vec<usize>,
    /// Bytes of the file that hold the values, counted from the start of the file.
    pub range: Range<u64>,
}

/// A validated header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Tensors in the order of their bytes in the file.
    pub tensors: Vec<(String, TensorInfo)>,
    /// The free text entries under `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    index: HashMap<String, usize>,
}

impl Header {
    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|&at| self.tensors.get(at)).map(|entry| &entry.1)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInfo {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

#[derive(Default)]
struct RawHeader {
    tensors: Vec<(String, RawInfo)>,
    metadata: Vec<(String, String)>,
    duplicate: Option<String>,
}

/// Reads a JSON map into a list, so that a name that repeats is still seen.
struct Pairs;

impl<'de> DeserializeSeed<'de> for Pairs {
    type Value = Vec<(String, String)>;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings under `__metadata__`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut raw = RawHeader::default();
        let mut seen_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if seen_metadata {
                    raw.duplicate.get_or_insert(name);
                }
                seen_metadata = true;
                raw.metadata = map.next_value_seed(Pairs)?;
            } else {
                let info = map.next_value()?;
                raw.tensors.push((name, info));
            }
        }
        Ok(raw)
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<RawHeader, D::Error> {
        from.deserialize_map(Entries)
    }
}

/// Length of the JSON part, from the first eight bytes of a file of `file_bytes` bytes.
///
/// # Errors
/// If the file is shorter than that, or the length is above [`MAX_HEADER_BYTES`].
pub(super) fn header_length(first: &[u8], file_bytes: u64) -> Result<u64, FileError> {
    let (Some(first), Some(left)) = (first.first_chunk::<8>(), file_bytes.checked_sub(8)) else {
        return Err(FileError::NoLength { file_bytes });
    };
    let header_bytes = u64::from_le_bytes(*first);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(FileError::HeaderTooLong { header_bytes, limit: MAX_HEADER_BYTES });
    }
    if header_bytes > left {
        return Err(FileError::HeaderPastEnd { header_bytes, left });
    }
    Ok(header_bytes)
}

/// Validates the start of a file.
///
/// `bytes` is the file's beginning, at least up to the end of the header; `file_bytes` is the
/// length of the whole file. Memory use is bounded by a small multiple of `bytes`, whatever the
/// shapes claim.
///
/// # Errors
/// Any way in which the header breaks the format; see [`FileError`].
pub fn parse_header(bytes: &[u8], file_bytes: u64) -> Result<Header, FileError> {
    let header_bytes = header_length(bytes, file_bytes)?;
    let needed = 8 + header_bytes;
    let json = usize::try_from(needed).ok().and_then(|end| bytes.get(8..end));
    let Some(json) = json else {
        return Err(FileError::HeaderCut { given: bytes.len(), needed });
    };
    let text = std::str::from_utf8(json)
        .map_err(|error| FileError::NotUtf8 { at: error.valid_up_to() })?;
    if !text.starts_with('{') {
        return Err(FileError::NotObject);
    }
    let raw: RawHeader = serde_json::from_str(text)?;
    if let Some(name) = raw.duplicate {
        return Err(FileError::Duplicate { name });
    }
    let mut metadata = BTreeMap::new();
    for (key, value) in raw.metadata {
        if metadata.insert(key.clone(), value).is_some() {
            return Err(FileError::Duplicate { name: format!("__metadata__.{key}") });
        }
    }
    let buffer = file_bytes - needed;
    let mut tensors = Vec::with_capacity(raw.tensors.len());
    for (name, info) in raw.tensors {
        let info = check_entry(&name, info, buffer)?;
        tensors.push((name, info));
    }
    // A stable sort: empty tensors that share an offset keep the order of the header. The end is
    // part of the key, so that an empty tensor comes before the one that starts at its place.
    tensors.sort_by_key(|(_, info)| (info.range.start, info.range.end));
    check_tiling(&tensors, buffer)?;
    let mut index = HashMap::with_capacity(tensors.len());
    for (at, (name, info)) in tensors.iter_mut().enumerate() {
        info.range = info.range.start + needed..info.range.end + needed;
        if index.insert(name.clone(), at).is_some() {
            return Err(FileError::Duplicate { name: name.clone() });
        }
    }
    Ok(Header { tensors, metadata, index })
}

/// Checks one entry alone; the range that it returns counts from the start of the buffer.
fn check_entry(name: &str, raw: RawInfo, buffer: u64) -> Result<TensorInfo, FileError> {
    let name = || name.to_owned();
    let Some(dtype) = Dtype::parse(&raw.dtype) else {
        return Err(FileError::UnknownDtype { name: name(), dtype: raw.dtype });
    };
    if raw.shape.len() > MAX_RANK {
        return Err(FileError::Rank { name: name(), rank: raw.shape.len(), limit: MAX_RANK });
    }
    let (begin, end) = raw.data_offsets;
    let Some(span) = end.checked_sub(begin) else {
        return Err(FileError::Reversed { name: name(), begin, end });
    };
    if end > buffer {
        return Err(FileError::PastEnd { name: name(), end, buffer });
    }
    let bits = raw.shape.iter().try_fold(dtype.bits(), |all, &dim| all.checked_mul(dim));
    let shape: Option<Vec<usize>> =
        raw.shape.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let (Some(bits), Some(shape)) = (bits, shape) else {
        return Err(FileError::Overflow { name: name(), shape: raw.shape, dtype });
    };
    if bits % 8 != 0 {
        return Err(FileError::PartialByte { name: name(), shape: raw.shape, dtype });
    }
    let needed = bits / 8;
    if span != needed {
        return Err(FileError::Span { name: name(), span, needed });
    }
    Ok(TensorInfo { dtype, shape, range: begin..end })
}

/// Checks that the sorted ranges cover `0..buffer` without a hole or an overlap.
fn check_tiling(tensors: &[(String, TensorInfo)], buffer: u64) -> Result<(), FileError> {
    let mut covered = 0;
    let mut before = "";
    for (name, info) in tensors {
        let Range { start: begin, end } = info.range;
        if begin > covered {
            return Err(FileError::Hole { from: covered, to: begin });
        }
        if begin < covered {
            let (name, before) = (name.clone(), before.to_owned());
            return Err(FileError::Overlap { name, begin, before, end: covered });
        }
        covered = end;
        before = name;
    }
    if covered < buffer {
        return Err(FileError::Hole { from: covered, to: buffer });
    }
    Ok(())
}
