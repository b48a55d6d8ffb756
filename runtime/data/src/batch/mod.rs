//! One microbatch of a batch file.

mod pack;
mod read;
mod source;

pub use pack::{PictureSample, plan_microbatches, write_batches};
pub use source::BatchFiles;

use std::path::PathBuf;

use thiserror::Error;

use crate::pack::{LayoutError, PackError, SequenceLayout};
use crate::positions::{MropePositions, Pictures, PositionError, mrope_positions};
use crate::safetensors::FileError;
use crate::tensor::{Dtype, HostTensor, TensorError};
use crate::vision::{Grid, PictureKind, PlaceholderTokens, VisionError, patch_count};
use crate::{IGNORED_LABEL, tensor::HostData};

/// Names that a batch file may hold, with the form of each; `m` counts microbatches.
pub const BATCH_TENSORS: &[(&str, &str)] = &[
    ("input_ids", "[m, T]"),
    ("labels", "[m, T]"),
    ("cu_seqlens", "[m, docs + 1]"),
    ("cu_seqlens_padded", "[m, docs + 1]"),
    ("position_ids", "[m, 3, T]"),
    ("mm_token_type_ids", "[m, T]"),
    ("pixel_values", "[m, patches, ..]"),
    ("image_grid_thw", "[m, images, 3]"),
    ("pixel_values_videos", "[m, patches, ..]"),
    ("video_grid_thw", "[m, videos, 3]"),
];

/// Why a batch was refused.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum BatchError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path}: microbatch {index}: {error}")]
    Microbatch { path: PathBuf, index: usize, error: Box<BatchError> },
    #[error("`{name}` is not part of a batch, known are {}", known_names())]
    Unknown { name: String },
    #[error("the batch lacks `{name}`")]
    Missing { name: &'static str },
    #[error("`{name}` has the shape {shape:?}, it must be {form}")]
    Shape { name: &'static str, shape: Vec<usize>, form: &'static str },
    #[error("`{name}` is {dtype}, it must hold {wanted}")]
    Dtype { name: &'static str, dtype: Dtype, wanted: &'static str },
    #[error("`{name}` has {found} microbatches, `input_ids` has {expected}")]
    Microbatches { name: &'static str, found: usize, expected: usize },
    #[error("`{name}` has {found} tokens, `input_ids` has {expected}")]
    Tokens { name: &'static str, found: usize, expected: usize },
    #[error("there is no microbatch {index}, the file has {count}")]
    Index { index: usize, count: usize },
    #[error("`{present}` needs `{absent}`")]
    Half { present: &'static str, absent: &'static str },
    #[error("`{name}` row {row} is {value}, {allowed}")]
    Value { name: &'static str, row: usize, value: i64, allowed: &'static str },
    #[error("`input_ids` row {row} is {id}, the vocabulary has {vocabulary} rows")]
    Vocabulary { row: usize, id: i64, vocabulary: usize },
    #[error("`labels` row {row} is {label}, the vocabulary has {vocabulary} rows")]
    LabelVocabulary { row: usize, label: i64, vocabulary: usize },
    #[error("`{grids}` has {patches} patches, `{pixels}` has {rows} rows")]
    Patches { grids: &'static str, patches: usize, pixels: &'static str, rows: usize },
    #[error("`{pixels}` row {row} is not zero, though `{grids}` ends at {patches} patches")]
    SparePixels { grids: &'static str, patches: usize, pixels: &'static str, row: usize },
    #[error("image rows have {images} pixel values and video rows have {videos}")]
    PixelWidths { images: usize, videos: usize },
    #[error("a patch row has {found} values, the model reads {expected}")]
    PixelWidth { found: usize, expected: usize },
    #[error(
        "the batch has pictures but neither `mm_token_type_ids` nor placeholder ids to look for"
    )]
    NoTypes,
    #[error(
        "`{name}` is not part of a sample, known are input_ids, labels, mm_token_type_ids and \
         pictures"
    )]
    UnknownInSample { name: String },
    #[error("patch rows have {first} values in one place and {second} in another")]
    SampleWidths { first: usize, second: usize },
    #[error("{tokens} rows, the artifact holds {capacity}: compile with --tokens {tokens}")]
    RowCapacity { tokens: usize, capacity: usize },
    #[error(
        "{documents} documents, the artifact holds {capacity}: compile with --max-docs {documents}"
    )]
    DocumentCapacity { documents: usize, capacity: usize },
    #[error("there is no microbatch to write")]
    NoBatches,
    #[error("{given} of {count} microbatches have `{name}`; all or none must")]
    Some { name: &'static str, given: usize, count: usize },
    #[error("cannot list {path}: {error}")]
    Folder { path: PathBuf, error: std::io::Error },
    #[error("no file matches {path}")]
    NoFiles { path: PathBuf },
    #[error("there are {patches} {kind} patches and no {kind} token")]
    NoToken { kind: PictureKind, patches: usize },
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Vision(#[from] VisionError),
    #[error(transparent)]
    Positions(#[from] PositionError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

fn known_names() -> String {
    BATCH_TENSORS.iter().map(|row| row.0).collect::<Vec<_>>().join(", ")
}

/// Patch rows of one kind of picture, without the rows that only fill the capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PixelRows {
    /// Values of a row.
    pub width: usize,
    /// `[patches, width]`.
    pub values: Vec<f32>,
}

/// One microbatch: a pack of T rows and its pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Token ids, `[T]`.
    pub input_ids: Vec<i64>,
    /// Labels, unshifted, `[T]`; [`IGNORED_LABEL`] where no loss is wanted.
    pub labels: Vec<i64>,
    /// Boundaries of the documents.
    pub layout: SequenceLayout,
    /// Positions that the file brings, `[3, T]`.
    pub position_ids: Option<Vec<i64>>,
    /// Modality, `[T]`: 0 text, 1 image, 2 video.
    pub token_types: Option<Vec<i64>>,
    /// Grids of the images; `None` if the file has no such tensor, as opposed to no image in
    /// this microbatch.
    pub image_grids: Option<Vec<Grid>>,
    /// Grids of the videos.
    pub video_grids: Option<Vec<Grid>>,
    /// Patch rows of the images.
    pub image_pixels: PixelRows,
    /// Patch rows of the videos.
    pub video_pixels: PixelRows,
}

impl Batch {
    pub(super) fn check_values(&self) -> Result<(), BatchError> {
        let not_below_zero = |name, values: &[i64]| match values.iter().position(|&id| id < 0) {
            Some(row) => {
                let (value, allowed) = (values[row], "it must not be below 0");
                Err(BatchError::Value { name, row, value, allowed })
            }
            None => Ok(()),
        };
        not_below_zero("input_ids", &self.input_ids)?;
        not_below_zero("position_ids", self.position_ids.as_deref().unwrap_or(&[]))?;
        let bad_label = |&label: &i64| label < 0 && label != IGNORED_LABEL;
        if let Some(row) = self.labels.iter().position(bad_label) {
            let allowed = "it must be -100 or not below 0";
            let value = self.labels[row];
            return Err(BatchError::Value { name: "labels", row, value, allowed });
        }
        let (images, videos) = (self.image_pixels.width, self.video_pixels.width);
        if images != videos && images > 0 && videos > 0 {
            return Err(BatchError::PixelWidths { images, videos });
        }
        let Some(types) = &self.token_types else {
            return Ok(());
        };
        if let Some(row) = types.iter().position(|kind| !(0..=2).contains(kind)) {
            let (name, value) = ("mm_token_type_ids", types[row]);
            let allowed = "known are 0 text, 1 image, 2 video";
            return Err(BatchError::Value { name, row, value, allowed });
        }
        // The merge size is the model's; but a placeholder without any picture is wrong for all.
        for (kind, mark, grids) in [
            (PictureKind::Image, 1, self.image_grids()),
            (PictureKind::Video, 2, self.video_grids()),
        ] {
            let rows = self.layout.documents().flat_map(|document| document.valid_rows());
            let tokens = rows.filter(|&row| types[row] == mark).count();
            if tokens > 0 && grids.is_empty() {
                return Err(VisionError::Count { kind, tokens, rows: 0 }.into());
            }
            if tokens == 0 && !grids.is_empty() {
                return Err(BatchError::NoToken { kind, patches: patch_count(grids)? });
            }
        }
        Ok(())
    }

    /// Enlarges the pack to compiled capacities of `tokens` rows and `documents` documents. The
    /// added rows are padding of the last document, so that every row has an owner and the
    /// context-parallel cut covers all of them.
    ///
    /// # Errors
    /// If the pack is larger than that.
    pub fn grow(&mut self, tokens: usize, documents: usize) -> Result<(), BatchError> {
        let before = self.tokens();
        if before > tokens {
            return Err(BatchError::RowCapacity { tokens: before, capacity: tokens });
        }
        self.layout.cover(tokens)?;
        self.layout.fill_documents(documents).map_err(|e| match e {
            LayoutError::Counts { valid, .. } => BatchError::DocumentCapacity {
                documents: valid.saturating_sub(1),
                capacity: documents,
            },
            e => e.into(),
        })?;
        self.input_ids.resize(tokens, 0);
        self.labels.resize(tokens, IGNORED_LABEL);
        if let Some(types) = &mut self.token_types {
            types.resize(tokens, 0);
        }
        if let Some(ids) = &mut self.position_ids {
            let mut grown = Vec::with_capacity(3 * tokens);
            for axis in 0..3 {
                grown.extend_from_slice(&ids[axis * before..(axis + 1) * before]);
                grown.resize((axis + 1) * tokens, 0);
            }
            *ids = grown;
        }
        Ok(())
    }

    /// Pads each document to a multiple of `multiple` rows, as context-parallel ranks need it.
    ///
    /// # Errors
    /// If `multiple` is 0 or the rows do not fit in 32 bits.
    pub fn align(&mut self, multiple: usize) -> Result<(), BatchError> {
        let tokens = self.tokens();
        let rows: Vec<Vec<usize>> = self.layout.documents().map(|d| d.rows().collect()).collect();
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let padded = SequenceLayout::from_lengths(&lengths, multiple)?;
        // Where each row of the new pack comes from.
        let mut from: Vec<Option<usize>> = vec![None; padded.rows()];
        for (d, rows) in padded.documents().zip(&rows) {
            d.valid_rows().zip(rows).for_each(|(to, row)| from[to] = Some(*row));
        }
        let moved = |values: &[i64], fill: i64| -> Vec<i64> {
            from.iter().map(|row| row.map_or(fill, |row| values[row])).collect()
        };
        self.input_ids = moved(&self.input_ids, 0);
        self.labels = moved(&self.labels, IGNORED_LABEL);
        self.token_types = self.token_types.as_ref().map(|t| moved(t, 0));
        self.position_ids = self.position_ids.as_ref().map(|ids| {
            (0..3).flat_map(|axis| moved(&ids[axis * tokens..(axis + 1) * tokens], 0)).collect()
        });
        let cu_padded = padded.cu_seqlens_padded().to_vec();
        let cu_valid = self.layout.cu_seqlens()[..cu_padded.len()].to_vec();
        self.layout = SequenceLayout::new(cu_valid, cu_padded, from.len())?;
        Ok(())
    }

    /// Rows of the pack.
    pub fn tokens(&self) -> usize {
        self.input_ids.len()
    }

    /// Grids of the images; empty if there are none.
    pub fn image_grids(&self) -> &[Grid] {
        self.image_grids.as_deref().unwrap_or(&[])
    }

    /// Grids of the videos; empty if there are none.
    pub fn video_grids(&self) -> &[Grid] {
        self.video_grids.as_deref().unwrap_or(&[])
    }

    /// All grids in the order of the patch rows: images, then videos.
    pub fn grids(&self) -> Vec<Grid> {
        [self.image_grids(), self.video_grids()].concat()
    }

    /// Patch rows of all pictures, images first, `[patches, width]`. `width` is what the model
    /// reads of each patch.
    ///
    /// # Errors
    /// [`BatchError::PixelWidth`] if the file's rows have another width.
    pub fn pixel_rows(&self, width: usize) -> Result<HostTensor, BatchError> {
        let mut values = Vec::new();
        for pixels in [&self.image_pixels, &self.video_pixels] {
            if !pixels.values.is_empty() && pixels.width != width {
                return Err(BatchError::PixelWidth { found: pixels.width, expected: width });
            }
            values.extend_from_slice(&pixels.values);
        }
        let rows = values.len().checked_div(width).unwrap_or(0);
        Ok(HostTensor::new(vec![rows, width], HostData::F32(values))?)
    }

    /// Modality of each row: the file's, or else by `placeholders`, or else all text if the batch
    /// has no pictures.
    ///
    /// # Errors
    /// [`BatchError::NoTypes`] if none of these is at hand.
    pub fn types(&self, placeholders: Option<PlaceholderTokens>) -> Result<Vec<i64>, BatchError> {
        match (&self.token_types, placeholders) {
            (Some(types), _) => Ok(types.clone()),
            (None, Some(placeholders)) => Ok(placeholders.types_of(&self.input_ids)),
            (None, None) if self.image_grids().is_empty() && self.video_grids().is_empty() => {
                Ok(vec![0; self.tokens()])
            }
            (None, None) => Err(BatchError::NoTypes),
        }
    }

    /// Positions for every row, `[3, T]`; the file's own `position_ids` are not looked at. See
    /// [`mrope_positions`].
    ///
    /// # Errors
    /// If placeholders and pictures do not go together.
    pub fn build_positions(
        &self,
        merge: usize,
        placeholders: Option<PlaceholderTokens>,
    ) -> Result<MropePositions, BatchError> {
        let types = self.types(placeholders)?;
        let pictures = (self.image_grids.is_some() || self.video_grids.is_some())
            .then(|| Pictures { images: self.image_grids(), videos: self.video_grids() });
        Ok(mrope_positions(&types, &self.layout, pictures, merge)?)
    }

    /// Checks the ids and labels of every document against the rows of the embedding table.
    /// Nothing reads those of padding rows.
    ///
    /// # Errors
    /// Names the first row that is out of range.
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<(), BatchError> {
        let outside = |values: &[i64]| {
            let rows = self.layout.documents().flat_map(|document| document.valid_rows());
            let mut all = rows.filter_map(|row| Some((row, *values.get(row)?)));
            all.find(|(_, v)| usize::try_from(*v).is_ok_and(|v| v >= vocabulary))
        };
        if let Some((row, id)) = outside(&self.input_ids) {
            return Err(BatchError::Vocabulary { row, id, vocabulary });
        }
        if let Some((row, label)) = outside(&self.labels) {
            return Err(BatchError::LabelVocabulary { row, label, vocabulary });
        }
        Ok(())
    }
}

/// Pixel and grid tensor of each kind: images, videos.
const PICTURES: [(&str, &str); 2] =
    [("pixel_values", "image_grid_thw"), ("pixel_values_videos", "video_grid_thw")];
