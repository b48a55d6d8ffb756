use super::{BATCH_TENSORS, Batch, BatchError, PICTURES, PixelRows};
use crate::pack::SequenceLayout;
use crate::safetensors::TensorFile;
use crate::tensor::Dtype;
use crate::vision::{Grid, grids_of, patch_count};

impl Batch {
    /// Number of microbatches in `file`, after a check of the names, dtypes and shapes of all its
    /// tensors. Reads no values.
    ///
    /// # Errors
    /// If a name is unknown or missing, or forms do not go together.
    pub fn count(file: &TensorFile) -> Result<usize, BatchError> {
        let ids = shape_of(file, "input_ids")?.ok_or(BatchError::Missing { name: "input_ids" })?;
        let &[count, tokens] = ids else {
            return Err(bad_shape("input_ids", ids));
        };
        for name in file.names() {
            let Some(&(name, _)) = BATCH_TENSORS.iter().find(|row| row.0 == name) else {
                return Err(BatchError::Unknown { name: name.to_owned() });
            };
            let info = file.info(name)?;
            let pixels = name.starts_with("pixel_values");
            let wanted = if pixels { "F32, BF16 or F16" } else { "I64 or I32" };
            let fits = match info.dtype {
                Dtype::F32 | Dtype::BF16 | Dtype::F16 => pixels,
                Dtype::I64 | Dtype::I32 => !pixels,
                _ => false,
            };
            if !fits {
                return Err(BatchError::Dtype { name, dtype: info.dtype, wanted });
            }
            let (found, columns) = match (name, info.shape.as_slice()) {
                ("position_ids", &[found, 3, columns]) => (found, Some(columns)),
                ("image_grid_thw" | "video_grid_thw", &[found, _, 3]) => (found, None),
                ("pixel_values" | "pixel_values_videos", &[found, _, _, ..]) => (found, None),
                ("cu_seqlens" | "cu_seqlens_padded", &[found, _]) => (found, None),
                ("input_ids" | "labels" | "mm_token_type_ids", &[found, columns]) => {
                    (found, Some(columns))
                }
                (_, shape) => return Err(bad_shape(name, shape)),
            };
            if found != count {
                return Err(BatchError::Microbatches { name, found, expected: count });
            }
            if let Some(found) = columns.filter(|&columns| columns != tokens) {
                return Err(BatchError::Tokens { name, found, expected: tokens });
            }
        }
        for name in ["labels", "cu_seqlens", "cu_seqlens_padded"] {
            if !file.contains(name) {
                return Err(BatchError::Missing { name });
            }
        }
        for (pixels, grids) in [PICTURES[0], PICTURES[1]] {
            match (file.contains(pixels), file.contains(grids)) {
                (true, false) => return Err(BatchError::Half { present: pixels, absent: grids }),
                (false, true) => return Err(BatchError::Half { present: grids, absent: pixels }),
                _ => {}
            }
        }
        Ok(count)
    }

    /// Reads microbatch `index`, and no other, from `file`.
    ///
    /// # Errors
    /// As [`Batch::count`]; and if the boundaries are refused, a value is out of its range, the
    /// pixel rows do not match the grids, or there are placeholders without any picture.
    pub fn read(file: &TensorFile, index: usize) -> Result<Batch, BatchError> {
        let count = Batch::count(file)?;
        if index >= count {
            return Err(BatchError::Index { index, count });
        }
        Batch::read_one(file, index).map_err(|error| BatchError::Microbatch {
            path: file.path().to_owned(),
            index,
            error: Box::new(error),
        })
    }

    fn read_one(file: &TensorFile, index: usize) -> Result<Batch, BatchError> {
        let input_ids = integers(file, "input_ids", index)?;
        let tokens = input_ids.len();
        let cu_seqlens = boundaries(file, "cu_seqlens", index)?;
        let layout =
            SequenceLayout::new(cu_seqlens, boundaries(file, "cu_seqlens_padded", index)?, tokens)?;
        let optional = |name| file.contains(name).then(|| integers(file, name, index)).transpose();
        let [(image_pixels, image_grids), (video_pixels, video_grids)] = PICTURES;
        let (image_grids, image_pixels) = pictures(file, image_pixels, image_grids, index)?;
        let (video_grids, video_pixels) = pictures(file, video_pixels, video_grids, index)?;
        let batch = Batch {
            input_ids,
            labels: integers(file, "labels", index)?,
            layout,
            position_ids: optional("position_ids")?,
            token_types: optional("mm_token_type_ids")?,
            image_grids,
            video_grids,
            image_pixels,
            video_pixels,
        };
        batch.check_values()?;
        Ok(batch)
    }
}

fn bad_shape(name: &'static str, shape: &[usize]) -> BatchError {
    let form = BATCH_TENSORS.iter().find(|row| row.0 == name).map_or("another", |row| row.1);
    BatchError::Shape { name, shape: shape.to_vec(), form }
}

fn shape_of<'a>(file: &'a TensorFile, name: &str) -> Result<Option<&'a [usize]>, BatchError> {
    if !file.contains(name) {
        return Ok(None);
    }
    Ok(Some(&file.info(name)?.shape))
}

fn integers(file: &TensorFile, name: &str, index: usize) -> Result<Vec<i64>, BatchError> {
    Ok(file.read_rows(name, index..index + 1)?.to_i64()?)
}

fn boundaries(file: &TensorFile, name: &'static str, index: usize) -> Result<Vec<i32>, BatchError> {
    let narrow = |(row, value): (usize, i64)| {
        let allowed = "a boundary lies between 0 and 2147483647";
        let bad = BatchError::Value { name, row, value, allowed };
        i32::try_from(value).ok().filter(|value| *value >= 0).ok_or(bad)
    };
    integers(file, name, index)?.into_iter().enumerate().map(narrow).collect()
}

/// Reads grids and pixels of one kind.
fn pictures(
    file: &TensorFile,
    pixels: &'static str,
    grids: &'static str,
    index: usize,
) -> Result<(Option<Vec<Grid>>, PixelRows), BatchError> {
    if !file.contains(grids) {
        return Ok((None, PixelRows::default()));
    }
    let shape = &file.info(pixels)?.shape;
    let size = (shape[1], shape[2..].iter().product());
    let values = file.read_rows(pixels, index..index + 1)?.to_f32();
    let given = integers(file, grids, index)?;
    let (found, rows) = picture_rows((pixels, values), (grids, &given), size)?;
    Ok((Some(found), rows))
}

/// Matches pixel rows, `[rows, width]`, with grids, `[pictures, 3]`, and cuts off the rows that
/// only fill the capacity, after a check that they are empty.
pub(super) fn picture_rows(
    (pixels, mut values): (&'static str, Vec<f32>),
    (grids, given): (&'static str, &[i64]),
    (rows, width): (usize, usize),
) -> Result<(Vec<Grid>, PixelRows), BatchError> {
    let found = grids_of(grids, given)?;
    let patches = patch_count(&found)?;
    if patches > rows {
        return Err(BatchError::Patches { grids, patches, pixels, rows });
    }
    let used = patches * width;
    if let Some(at) = values[used..].iter().position(|&value| value != 0.0) {
        let row = patches + at / width;
        return Err(BatchError::SparePixels { grids, patches, pixels, row });
    }
    values.truncate(used);
    Ok((found, PixelRows { width, values }))
}

/// A tensor of one dim, if the file has it.
pub(super) fn flat_integers(
    file: &TensorFile,
    name: &'static str,
) -> Result<Option<Vec<i64>>, BatchError> {
    if !file.contains(name) {
        return Ok(None);
    }
    let tensor = file.read(name)?;
    if tensor.shape.len() != 1 {
        let (shape, form) = (tensor.shape, "[T]");
        return Err(BatchError::Shape { name, shape, form });
    }
    Ok(Some(tensor.to_i64()?))
}
