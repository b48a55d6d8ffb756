use std::io::Cursor;

use image::imageops::{FilterType, resize};
use image::{ImageReader, Limits};
use thiserror::Error;

use super::{Normalize, PatchSizes, PixelBounds, PixelError, ResizeError, image_size, patch_rows};
use crate::vision::Grid;

/// Most memory that decoding one picture may take, in bytes.
const MAX_DECODED: u64 = 1 << 30;

/// Why a picture file was refused.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum ImageError {
    #[error("the picture cannot be decoded: {0}")]
    Decode(#[from] image::ImageError),
    #[error("the picture cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Resize(#[from] ResizeError),
    #[error(transparent)]
    Pixels(#[from] PixelError),
    #[error("blocks of {block} pixels cannot tile sides that are multiples of {factor}")]
    Factor { block: usize, factor: usize },
}

/// Decodes a JPEG or PNG file, resizes it by [`image_size`] and cuts it into patch rows; see
/// [`patch_rows`] for their order. Transparency is dropped.
///
/// The cubic filter (a = -0.5, widened when shrinking) is that of the public processors, but the
/// rounding of its weights is not: expect bytes to differ from theirs by one now and then.
///
/// # Errors
/// If the file cannot be decoded in bounded memory, its sides are refused, or the sizes and
/// bounds do not go together.
pub fn image_patches(
    file: &[u8],
    bounds: PixelBounds,
    normalize: &Normalize,
    sizes: PatchSizes,
) -> Result<(Vec<f32>, Grid), ImageError> {
    let block = sizes.patch.saturating_mul(sizes.merge);
    if block == 0 || !bounds.factor.is_multiple_of(block) {
        return Err(ImageError::Factor { block, factor: bounds.factor });
    }
    let mut reader = ImageReader::new(Cursor::new(file)).with_guessed_format()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    let decoded = reader.decode()?.into_rgb8();
    let (width, height) = decoded.dimensions();
    let (height, width) = image_size(height as usize, width as usize, bounds)?;
    // Not above the bounds' factor times the longest accepted side, so both fit.
    let (columns, lines) = (width as u32, height as u32);
    let resized = if decoded.dimensions() == (columns, lines) {
        decoded
    } else {
        resize(&decoded, columns, lines, FilterType::CatmullRom)
    };
    // From pixels of three to three planes.
    let interleaved = resized.into_raw();
    let planes: Vec<u8> =
        (0..3).flat_map(|channel| interleaved.iter().skip(channel).step_by(3).copied()).collect();
    Ok(patch_rows(&planes, (1, height, width), normalize, sizes)?)
}
