use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::read::{flat_integers, picture_rows};
use super::{Batch, BatchError, PICTURES, PixelRows};
use crate::IGNORED_LABEL;
use crate::pack::{LayoutError, PackError, PackOptions, Sample, pack_samples};
use crate::safetensors::{TensorFile, write_file};
use crate::tensor::{HostData, HostTensor};
use crate::vision::Grid;

/// One sample and its pictures, as a per-sample file holds them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PictureSample {
    /// Ids, labels and token types.
    pub sample: Sample,
    /// Grids of the images in the order of their placeholders.
    pub image_grids: Vec<Grid>,
    /// Grids of the videos.
    pub video_grids: Vec<Grid>,
    /// Patch rows of the images.
    pub image_pixels: PixelRows,
    /// Patch rows of the videos.
    pub video_pixels: PixelRows,
}

impl PictureSample {
    /// Reads a per-sample file: the tensors of a batch without the leading microbatch axis, and
    /// no boundaries or positions. Without `labels` every text token is its own label and
    /// placeholders have none; without `mm_token_type_ids` all tokens are text.
    ///
    /// # Errors
    /// If a tensor is unknown, missing or misshapen, or pixels and grids do not go together.
    pub fn read(file: &TensorFile) -> Result<PictureSample, BatchError> {
        const KNOWN: &[&str] = &["input_ids", "labels", "mm_token_type_ids"];
        for name in file.names() {
            let picture = PICTURES.iter().any(|pair| pair.0 == name || pair.1 == name);
            if !picture && !KNOWN.contains(&name) {
                return Err(BatchError::UnknownInSample { name: name.to_owned() });
            }
        }
        let ids = flat_integers(file, "input_ids")?;
        let ids = ids.ok_or(BatchError::Missing { name: "input_ids" })?;
        let types = flat_integers(file, "mm_token_type_ids")?;
        let types = types.unwrap_or_else(|| vec![0; ids.len()]);
        let labels = flat_integers(file, "labels")?.unwrap_or_else(|| {
            let label = |(&id, &kind): (&i64, &i64)| if kind == 0 { id } else { IGNORED_LABEL };
            ids.iter().zip(&types).map(label).collect()
        });
        let [images, videos] = PICTURES.map(|(pixels, grids)| sample_pictures(file, pixels, grids));
        let (image_grids, image_pixels) = images?;
        let (video_grids, video_pixels) = videos?;
        let sample = Sample { ids, labels, types };
        Ok(PictureSample { sample, image_grids, video_grids, image_pixels, video_pixels })
    }
}

fn sample_pictures(
    file: &TensorFile,
    pixels: &'static str,
    grids: &'static str,
) -> Result<(Vec<Grid>, PixelRows), BatchError> {
    match (file.contains(pixels), file.contains(grids)) {
        (false, false) => return Ok(Default::default()),
        (true, false) => return Err(BatchError::Half { present: pixels, absent: grids }),
        (false, true) => return Err(BatchError::Half { present: grids, absent: pixels }),
        (true, true) => {}
    }
    let found = file.read(grids)?;
    let rows = file.read(pixels)?;
    if found.shape.len() != 2 || found.shape[1] != 3 {
        let (name, shape, form) = (grids, found.shape, "[pictures, 3]");
        return Err(BatchError::Shape { name, shape, form });
    }
    let Some((&count, rest)) = rows.shape.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        let (name, shape, form) = (pixels, rows.shape, "[patches, ..]");
        return Err(BatchError::Shape { name, shape, form });
    };
    let width = rest.iter().product();
    picture_rows((pixels, rows.to_f32()), (grids, &found.to_i64()?), (count, width))
}

/// Splits samples of the given lengths, in their order, into microbatches that each fit in
/// `tokens` rows and `documents` documents; a microbatch is closed when the next sample does not
/// fit.
///
/// # Errors
/// If `align` is 0, or one sample alone does not fit.
pub fn plan_microbatches(
    lengths: &[usize],
    align: usize,
    tokens: usize,
    documents: Option<usize>,
) -> Result<Vec<Range<usize>>, PackError> {
    if align == 0 {
        return Err(LayoutError::Alignment.into());
    }
    let room = documents.unwrap_or(usize::MAX);
    if room == 0 && !lengths.is_empty() {
        return Err(PackError::Documents { samples: lengths.len(), documents: 0 });
    }
    let mut plan = Vec::new();
    let (mut first, mut rows) = (0, 0);
    for (at, &length) in lengths.iter().enumerate() {
        let padded = length.checked_next_multiple_of(align).filter(|&padded| padded <= tokens);
        let padded = padded.ok_or(PackError::Long { sample: at, length, target: tokens })?;
        if rows + padded > tokens || at - first == room {
            plan.push(first..at);
            (first, rows) = (at, 0);
        }
        rows += padded;
    }
    if first < lengths.len() {
        plan.push(first..lengths.len());
    }
    Ok(plan)
}

impl Batch {
    /// Packs samples and their pictures, in their order, into one microbatch.
    ///
    /// # Errors
    /// As [`pack_samples`]; and if the result contradicts itself, as placeholders without pixels
    /// do.
    pub fn pack(samples: &[PictureSample], options: PackOptions) -> Result<Batch, BatchError> {
        let texts: Vec<Sample> = samples.iter().map(|sample| sample.sample.clone()).collect();
        let packed = pack_samples(&texts, options)?;
        let image_grids = samples.iter().flat_map(|sample| sample.image_grids.clone()).collect();
        let video_grids = samples.iter().flat_map(|sample| sample.video_grids.clone()).collect();
        let batch = Batch {
            input_ids: packed.ids,
            labels: packed.labels,
            layout: packed.layout,
            position_ids: None,
            token_types: Some(packed.types),
            image_grids: Some(image_grids).filter(|grids: &Vec<Grid>| !grids.is_empty()),
            video_grids: Some(video_grids).filter(|grids: &Vec<Grid>| !grids.is_empty()),
            image_pixels: join(samples.iter().map(|sample| &sample.image_pixels))?,
            video_pixels: join(samples.iter().map(|sample| &sample.video_pixels))?,
        };
        batch.check_values()?;
        Ok(batch)
    }
}

/// Puts patch rows one after another.
fn join<'a>(parts: impl Iterator<Item = &'a PixelRows>) -> Result<PixelRows, BatchError> {
    let mut all = PixelRows::default();
    for part in parts.filter(|part| !part.values.is_empty()) {
        all.width = common_width(all.width, part.width)?;
        all.values.extend_from_slice(&part.values);
    }
    Ok(all)
}

/// The width of patch rows so far (0 for none yet), after one more.
fn common_width(so_far: usize, next: usize) -> Result<usize, BatchError> {
    if so_far == 0 || so_far == next || next == 0 {
        Ok(so_far.max(next))
    } else {
        Err(BatchError::SampleWidths { first: so_far, second: next })
    }
}

/// Writes microbatches to one batch file. Each is enlarged to the largest of them, see
/// [`Batch::grow`]; pixels are written as F32.
///
/// # Errors
/// If there are none, some have positions or token types and others not, their patch rows differ
/// in width, or the file cannot be written.
pub fn write_batches(path: impl AsRef<Path>, batches: &[Batch]) -> Result<(), BatchError> {
    let count = batches.len();
    let tokens = batches.iter().map(Batch::tokens).max().ok_or(BatchError::NoBatches)?;
    let documents = batches.iter().map(|batch| batch.layout.documents().len()).max().unwrap_or(0);
    let mut batches = batches.to_vec();
    for batch in &mut batches {
        batch.grow(tokens, documents)?;
    }
    let given = |batch: fn(&Batch) -> Option<&[i64]>| batches.iter().map(batch).collect::<Vec<_>>();
    let ids = given(|batch| Some(&batch.input_ids));
    let labels = given(|batch| Some(&batch.labels));
    let types = given(|batch| batch.token_types.as_deref());
    let positions = given(|batch| batch.position_ids.as_deref());
    let mut tensors = Vec::new();
    tensors.extend(stacked("input_ids", &[tokens], &ids)?);
    tensors.extend(stacked("labels", &[tokens], &labels)?);
    tensors.extend(stacked("mm_token_type_ids", &[tokens], &types)?);
    tensors.extend(stacked("position_ids", &[3, tokens], &positions)?);
    let cu = |of: fn(&Batch) -> &[i32]| {
        let values = batches.iter().flat_map(of).copied().collect();
        HostTensor::new(vec![count, documents + 1], HostData::I32(values))
    };
    tensors.push(("cu_seqlens", cu(|batch| batch.layout.cu_seqlens())?));
    tensors.push(("cu_seqlens_padded", cu(|batch| batch.layout.cu_seqlens_padded())?));
    let images: Vec<_> = batches.iter().map(|b| (b.image_grids(), &b.image_pixels)).collect();
    let videos: Vec<_> = batches.iter().map(|b| (b.video_grids(), &b.video_pixels)).collect();
    for (names, pictures) in PICTURES.into_iter().zip([images, videos]) {
        tensors.extend(picture_tensors(names, &pictures)?);
    }
    let borrowed = tensors.iter().map(|(name, tensor)| (*name, tensor));
    Ok(write_file(path, borrowed, &BTreeMap::new())?)
}

type Named = (&'static str, HostTensor);

/// Stacks what the microbatches give, each of `shape`; nothing if none gives any.
fn stacked(
    name: &'static str,
    shape: &[usize],
    parts: &[Option<&[i64]>],
) -> Result<Option<Named>, BatchError> {
    let count = parts.len();
    let given: Vec<&[i64]> = parts.iter().copied().flatten().collect();
    if given.is_empty() {
        return Ok(None);
    }
    if given.len() < count {
        return Err(BatchError::Some { name, given: given.len(), count });
    }
    let shape = std::iter::once(count).chain(shape.iter().copied()).collect();
    Ok(Some((name, HostTensor::new(shape, HostData::I64(given.concat()))?)))
}

/// Stacks pictures of one kind, filled with zeros to the most that a microbatch has.
fn picture_tensors(
    (pixels_name, grids_name): (&'static str, &'static str),
    parts: &[(&[Grid], &PixelRows)],
) -> Result<Vec<Named>, BatchError> {
    let count = parts.len();
    let pictures = parts.iter().map(|part| part.0.len()).max().unwrap_or(0);
    if pictures == 0 {
        return Ok(Vec::new());
    }
    let width = parts.iter().map(|part| part.1.width).try_fold(0, common_width)?;
    let values = parts.iter().map(|part| part.1.values.len()).max().unwrap_or(0);
    let (mut grids, mut pixels) = (Vec::new(), Vec::new());
    for (number, (found, rows)) in parts.iter().enumerate() {
        for grid in *found {
            grids.extend([grid.t as i64, grid.h as i64, grid.w as i64]);
        }
        grids.resize((number + 1) * pictures * 3, 0);
        pixels.extend_from_slice(&rows.values);
        pixels.resize((number + 1) * values, 0.0);
    }
    let patches = values.checked_div(width).unwrap_or(0);
    Ok(vec![
        (grids_name, HostTensor::new(vec![count, pictures, 3], HostData::I64(grids))?),
        (pixels_name, HostTensor::new(vec![count, patches, width], HostData::F32(pixels))?),
    ])
}
