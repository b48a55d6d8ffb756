use thiserror::Error;

/// Longest side over shortest side that is accepted.
const MAX_RATIO: f64 = 200.0;

/// Longest side that is accepted; keeps the products below exact in f64.
const MAX_SIDE: usize = 1 << 24;

/// Why a size was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs)]
pub enum ResizeError {
    #[error("a picture of {height} x {width} pixels cannot be resized, sides are 1 to {max}")]
    Side { height: usize, width: usize, max: usize },
    #[error("the sides of {height} x {width} pixels have a ratio above {max}")]
    Ratio { height: usize, width: usize, max: f64 },
    #[error("the factor is 0, it must be at least 1")]
    Factor,
    #[error("{frames} frames are fewer than the {needed} of a temporal patch")]
    Frames { frames: usize, needed: usize },
    #[error("the least area {min} is above the greatest {max}")]
    Bounds { min: usize, max: usize },
}

/// Rules for the size of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelBounds {
    /// Both sides become multiples of this: patch size x merge size.
    pub factor: usize,
    /// Least area in pixels; over all frames for a video.
    pub min_pixels: usize,
    /// Greatest area in pixels; over all frames for a video.
    pub max_pixels: usize,
}

impl PixelBounds {
    /// The released image processor: patch 16, merge 2.
    pub const IMAGE: PixelBounds =
        PixelBounds { factor: 32, min_pixels: 65_536, max_pixels: 16_777_216 };
    /// The released video processor: patch 16, merge 2.
    pub const VIDEO: PixelBounds =
        PixelBounds { factor: 32, min_pixels: 4_096, max_pixels: 25_165_824 };

    fn check(self, height: usize, width: usize) -> Result<(), ResizeError> {
        if self.factor == 0 {
            return Err(ResizeError::Factor);
        }
        if self.min_pixels > self.max_pixels {
            return Err(ResizeError::Bounds { min: self.min_pixels, max: self.max_pixels });
        }
        let sides = 1..=MAX_SIDE;
        if !sides.contains(&height) || !sides.contains(&width) {
            return Err(ResizeError::Side { height, width, max: MAX_SIDE });
        }
        Ok(())
    }
}

fn check_ratio(height: usize, width: usize) -> Result<(), ResizeError> {
    if height.max(width) as f64 / height.min(width) as f64 > MAX_RATIO {
        return Err(ResizeError::Ratio { height, width, max: MAX_RATIO });
    }
    Ok(())
}

/// Nearest multiple of `factor`, a tie going to the even one.
fn nearest(value: usize, factor: usize) -> usize {
    (value as f64 / factor as f64).round_ties_even() as usize * factor
}

/// `value` times `scale`, cut down to a multiple of `factor` that is not 0.
fn shrunk(value: usize, beta: f64, factor: usize) -> usize {
    ((value as f64 / beta / factor as f64).floor() as usize * factor).max(factor)
}

/// `value` times `beta`, raised to a multiple of `factor`.
fn grown(value: usize, beta: f64, factor: usize) -> usize {
    (value as f64 * beta / factor as f64).ceil() as usize * factor
}

/// Height and width to which an image of `height` x `width` pixels is resized.
///
/// Each side goes to the nearest multiple of the factor; if the area then lies outside the bounds
/// both sides are scaled by the same root. All in f64, in this order of operations, since
/// published checkpoints were trained on exactly these sizes.
///
/// # Errors
/// If a side is 0 or enormous, or the sides' ratio is above 200.
pub fn image_size(
    height: usize,
    width: usize,
    bounds: PixelBounds,
) -> Result<(usize, usize), ResizeError> {
    bounds.check(height, width)?;
    check_ratio(height, width)?;
    let PixelBounds { factor, min_pixels, max_pixels } = bounds;
    let size = (nearest(height, factor), nearest(width, factor));
    let pixels = height as f64 * width as f64;
    Ok(scaled((height, width), size, 1, pixels, (min_pixels, max_pixels), factor))
}

/// Height and width to which the frames of a video are resized.
///
/// A side below the factor is first lifted to it, keeping the ratio. The area that is compared
/// counts the frames rounded to a multiple of `temporal` (a tie to the even multiple); the scale
/// is taken from the true number of frames.
///
/// # Errors
/// As [`image_size`], and if there are fewer than `temporal` frames.
pub fn video_size(
    frames: usize,
    height: usize,
    width: usize,
    temporal: usize,
    bounds: PixelBounds,
) -> Result<(usize, usize), ResizeError> {
    bounds.check(height, width)?;
    if temporal == 0 || frames < temporal {
        return Err(ResizeError::Frames { frames, needed: temporal.max(1) });
    }
    let PixelBounds { factor, min_pixels, max_pixels } = bounds;
    let (mut height, mut width) = (height, width);
    if height < factor || width < factor {
        let scale = (factor as f64 / height as f64).max(factor as f64 / width as f64);
        height = (height as f64 * scale) as usize;
        width = (width as f64 * scale) as usize;
    }
    check_ratio(height, width)?;
    let size = (nearest(height, factor), nearest(width, factor));
    let pixels = frames as f64 * height as f64 * width as f64;
    let counted = nearest(frames, temporal);
    Ok(scaled((height, width), size, counted, pixels, (min_pixels, max_pixels), factor))
}

/// Applies the area bounds to `rounded`, the size after rounding of `sides`.
fn scaled(
    sides: (usize, usize),
    rounded: (usize, usize),
    frames: usize,
    pixels: f64,
    (min, max): (usize, usize),
    factor: usize,
) -> (usize, usize) {
    let area = frames as u128 * rounded.0 as u128 * rounded.1 as u128;
    if area > max as u128 {
        let beta = (pixels / max as f64).sqrt();
        (shrunk(sides.0, beta, factor), shrunk(sides.1, beta, factor))
    } else if area < min as u128 {
        let beta = (min as f64 / pixels).sqrt();
        (grown(sides.0, beta, factor), grown(sides.1, beta, factor))
    } else {
        rounded
    }
}
