use thiserror::Error;

use super::{LayoutError, SequenceLayout};
use crate::IGNORED_LABEL;

/// One sample before packing; the three arrays have one entry a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Token ids.
    pub ids: Vec<i64>,
    /// Labels, unshifted: the label of a token is its own id, or [`IGNORED_LABEL`].
    pub labels: Vec<i64>,
    /// Modality of each token: 0 text, 1 image, 2 video.
    pub types: Vec<i64>,
}

/// Why samples cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum PackError {
    #[error("sample {sample} has {ids} ids, {labels} labels and {types} token types")]
    Lengths { sample: usize, ids: usize, labels: usize, types: usize },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("the samples need {rows} rows after alignment to {align}, the pack has {tokens}")]
    Rows { rows: usize, align: usize, tokens: usize },
    #[error("there are {samples} samples, the pack has room for {documents} documents")]
    Documents { samples: usize, documents: usize },
    #[error("{added} rows would be added at the end, not a multiple of the alignment {align}")]
    Tail { added: usize, align: usize },
    #[error("sample {sample} has {length} tokens, more than the {target} of a row")]
    Long { sample: usize, length: usize, target: usize },
    #[error("a row of {seq_length} tokens is not a multiple of the alignment {align}")]
    RowAlignment { seq_length: usize, align: usize },
    #[error("padding needs a sequence length")]
    NoLength,
    #[error(
        "cutting a sample of {length} tokens to {seq_length} would lose the image token at {at}"
    )]
    CutsImage { length: usize, seq_length: usize, at: usize },
    #[error("`{name}` has {values} values, {batch} rows of {length} need {needed}")]
    BatchLength { name: &'static str, values: usize, batch: usize, length: usize, needed: usize },
}

/// How to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// Multiple to which each document is padded; [`super::alignment`] of the layout.
    pub align: usize,
    /// Rows of the pack; as many as needed if not given.
    pub tokens: Option<usize>,
    /// Room for documents in the boundary arrays; as many as there are samples if not given.
    pub documents: Option<usize>,
}

/// A pack of `tokens` rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Token ids, `[tokens]`; 0 in padding rows.
    pub ids: Vec<i64>,
    /// Labels, unshifted, `[tokens]`; [`IGNORED_LABEL`] in padding rows.
    pub labels: Vec<i64>,
    /// Modality, `[tokens]`; 0 in padding rows.
    pub types: Vec<i64>,
    /// Boundaries of the documents.
    pub layout: SequenceLayout,
}

fn check_lengths(samples: &[Sample]) -> Result<(), PackError> {
    for (at, sample) in samples.iter().enumerate() {
        let (ids, labels) = (sample.ids.len(), sample.labels.len());
        let types = sample.types.len();
        if ids != labels || ids != types {
            return Err(PackError::Lengths { sample: at, ids, labels, types });
        }
    }
    Ok(())
}

/// Packs samples, in their order, into one run of rows.
///
/// Rows that are left over under [`PackOptions::tokens`] become padding of the last document, so
/// that every row has an owner and the context-parallel cut covers the pack.
///
/// # Errors
/// If a sample's arrays differ in length, or the samples do not fit.
pub fn pack_samples(samples: &[Sample], options: PackOptions) -> Result<Packed, PackError> {
    check_lengths(samples)?;
    let lengths: Vec<usize> = samples.iter().map(|sample| sample.ids.len()).collect();
    let align = options.align;
    let mut layout = SequenceLayout::from_lengths(&lengths, align)?;
    if let Some(documents) = options.documents
        && documents < samples.len().max(1)
    {
        return Err(PackError::Documents { samples: samples.len(), documents });
    }
    let rows = layout.rows();
    let tokens = options.tokens.unwrap_or(rows);
    let Some(added) = tokens.checked_sub(rows) else {
        return Err(PackError::Rows { rows, align, tokens });
    };
    if added % align != 0 {
        return Err(PackError::Tail { added, align });
    }
    let mut packed = Packed {
        ids: vec![0; tokens],
        labels: vec![IGNORED_LABEL; tokens],
        types: vec![0; tokens],
        layout: layout.clone(),
    };
    for (sample, document) in samples.iter().zip(layout.documents()) {
        let rows = document.valid_rows();
        packed.ids[rows.clone()].copy_from_slice(&sample.ids);
        packed.labels[rows.clone()].copy_from_slice(&sample.labels);
        packed.types[rows].copy_from_slice(&sample.types);
    }
    layout.cover(tokens)?;
    if let Some(documents) = options.documents {
        layout.fill_documents(documents)?;
    }
    packed.layout = layout;
    Ok(packed)
}

/// A batch `[batch, length]` padded on the right, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padded {
    /// Columns.
    pub length: usize,
    /// Token ids; the pad id in padding.
    pub ids: Vec<i64>,
    /// Labels, unshifted; [`IGNORED_LABEL`] in padding.
    pub labels: Vec<i64>,
    /// Modality; 0 in padding.
    pub types: Vec<i64>,
    /// 1 for real tokens, 0 for padding.
    pub mask: Vec<i64>,
}

/// Pads samples to rows of one length: the longest sample but at most `seq_length`, rounded up to
/// a multiple of `align`. With `exact`, as pipeline stages of fixed size need, the length is
/// `seq_length` itself.
///
/// # Errors
/// If a sample's arrays differ in length, a sample is longer than the row (see
/// [`truncate_sample`]), `seq_length` is missing, or the exact length is not aligned.
pub fn pad_samples(
    samples: &[Sample],
    pad_id: i64,
    align: usize,
    seq_length: Option<usize>,
    exact: bool,
) -> Result<Padded, PackError> {
    check_lengths(samples)?;
    let seq_length = seq_length.ok_or(PackError::NoLength)?;
    if align == 0 {
        return Err(LayoutError::Alignment.into());
    }
    let longest = samples.iter().map(|sample| sample.ids.len()).max().unwrap_or(0);
    let length = if exact {
        if seq_length % align != 0 {
            return Err(PackError::RowAlignment { seq_length, align });
        }
        seq_length
    } else {
        let rows = longest.min(seq_length);
        rows.checked_next_multiple_of(align).ok_or(LayoutError::Overflow { rows })?
    };
    let mut padded = Padded { length, ids: vec![], labels: vec![], types: vec![], mask: vec![] };
    for (number, sample) in samples.iter().enumerate() {
        let real = sample.ids.len();
        if real > seq_length {
            return Err(PackError::Long { sample: number, length: real, target: seq_length });
        }
        let end = (number + 1) * length;
        padded.ids.extend(&sample.ids);
        padded.ids.resize(end, pad_id);
        padded.labels.extend(&sample.labels);
        padded.labels.resize(end, IGNORED_LABEL);
        padded.types.extend(&sample.types);
        padded.types.resize(end, 0);
        padded.mask.resize(number * length + real, 1);
        padded.mask.resize(end, 0);
    }
    Ok(padded)
}

/// Cuts a sample at the end to at most `seq_length` tokens; true if it was longer.
///
/// # Errors
/// [`PackError::CutsImage`] if an image or video token would be lost, since its picture's rows
/// would then have no place.
pub fn truncate_sample(sample: &mut Sample, seq_length: usize) -> Result<bool, PackError> {
    let length = sample.ids.len();
    if length <= seq_length {
        return Ok(false);
    }
    let lost = sample.types.iter().enumerate().skip(seq_length).find(|(_, kind)| **kind != 0);
    if let Some((at, _)) = lost {
        return Err(PackError::CutsImage { length, seq_length, at });
    }
    sample.ids.truncate(seq_length);
    sample.labels.truncate(seq_length);
    sample.types.truncate(seq_length);
    Ok(true)
}

/// Takes the samples out of a batch `[batch, length]` that is padded on the right.
///
/// # Errors
/// If an array has another size or the mask has a hole.
pub fn rows_of_batch(
    ids: &[i64],
    labels: &[i64],
    types: &[i64],
    mask: &[i64],
    (batch, length): (usize, usize),
) -> Result<Vec<Sample>, PackError> {
    let needed = batch.saturating_mul(length);
    for (name, values) in [("input_ids", ids), ("labels", labels), ("mm_token_type_ids", types)] {
        if values.len() != needed {
            let values = values.len();
            return Err(PackError::BatchLength { name, values, batch, length, needed });
        }
    }
    let layout = SequenceLayout::from_mask(mask, batch, length)?;
    Ok(layout
        .documents()
        .map(|document| Sample {
            ids: ids[document.valid_rows()].to_vec(),
            labels: labels[document.valid_rows()].to_vec(),
            types: types[document.valid_rows()].to_vec(),
        })
        .collect())
}
