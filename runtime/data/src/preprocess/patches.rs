use thiserror::Error;

use crate::vision::Grid;

/// Greatest size of a patch, a merge block or a run of frames; keeps their products small.
const MAX_SIZE: usize = 1024;

/// Why pixels cannot be cut into patches.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum PixelError {
    #[error("the patch, merge and temporal sizes are {sizes:?}, each must be 1 to {max}")]
    Sizes { sizes: [usize; 3], max: usize },
    #[error("{height} x {width} pixels do not divide into blocks of {block} x {block}")]
    Block { height: usize, width: usize, block: usize },
    #[error("{given} bytes were given for {frames} frames of {channels} x {height} x {width}")]
    Bytes { given: usize, frames: usize, channels: usize, height: usize, width: usize },
    #[error("there are no frames")]
    NoFrames,
    #[error("{given} means or deviations were given for {channels} channels")]
    Channels { given: usize, channels: usize },
}

/// Sizes of the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchSizes {
    /// Pixels of a patch's side.
    pub patch: usize,
    /// Patches of a merge block's side.
    pub merge: usize,
    /// Frames of a patch.
    pub temporal: usize,
}

impl PatchSizes {
    /// The released processors: patch 16, merge 2, 2 frames.
    pub const RELEASED: PatchSizes = PatchSizes { patch: 16, merge: 2, temporal: 2 };
}

/// Mean and standard deviation of each channel, on a scale where the brightest pixel is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    /// Mean of each channel.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel.
    pub deviation: Vec<f32>,
}

impl Default for Normalize {
    /// The released processors: 0.5 for all three channels.
    fn default() -> Normalize {
        Normalize { mean: vec![0.5; 3], deviation: vec![0.5; 3] }
    }
}

/// Cuts frames of bytes into patch rows.
///
/// `bytes` is `[frames, channels, height, width]`; the channels are those of `normalize`. The
/// result is `[patches, channels * temporal * patch * patch]` f32, one row a patch, values in the
/// order (channel, frame, row, column) and rows in merge-block order, together with the grid. A
/// single image is given as one frame; a number of frames that does not divide repeats the last.
/// Each value becomes (byte - 255 mean) / (255 deviation).
///
/// # Errors
/// If a size is 0, the sides are not multiples of patch x merge, or the bytes do not fit.
pub fn patch_rows(
    bytes: &[u8],
    (frames, height, width): (usize, usize, usize),
    normalize: &Normalize,
    sizes: PatchSizes,
) -> Result<(Vec<f32>, Grid), PixelError> {
    let PatchSizes { patch, merge, temporal } = sizes;
    let channels = normalize.mean.len();
    if normalize.deviation.len() != channels {
        return Err(PixelError::Channels { given: normalize.deviation.len(), channels });
    }
    let given = [patch, merge, temporal];
    if given.iter().any(|size| !(1..=MAX_SIZE).contains(size)) {
        return Err(PixelError::Sizes { sizes: given, max: MAX_SIZE });
    }
    let block = patch * merge;
    if frames == 0 {
        return Err(PixelError::NoFrames);
    }
    if height % block != 0 || width % block != 0 {
        return Err(PixelError::Block { height, width, block });
    }
    let plane = height.checked_mul(width);
    let frame = plane.and_then(|plane| plane.checked_mul(channels));
    let (Some(plane), Some(frame)) = (plane, frame) else {
        return Err(PixelError::Bytes { given: bytes.len(), frames, channels, height, width });
    };
    if frame.checked_mul(frames) != Some(bytes.len()) {
        return Err(PixelError::Bytes { given: bytes.len(), frames, channels, height, width });
    }
    let grid = Grid { t: frames.div_ceil(temporal), h: height / patch, w: width / patch };
    // One table a channel: a byte has 256 values, and the rounding is the same for all pixels.
    let tables: Vec<[f32; 256]> = normalize
        .mean
        .iter()
        .zip(&normalize.deviation)
        .map(|(mean, deviation)| {
            std::array::from_fn(|byte| (byte as f32 - mean * 255.0) / (deviation * 255.0))
        })
        .collect();
    let mut rows = Vec::with_capacity(grid.t * temporal * frame);
    for group in 0..grid.t {
        for number in 0..grid.h * grid.w {
            let (top, left) = corner(number, grid, sizes);
            for (channel, table) in tables.iter().enumerate() {
                for inside in 0..temporal {
                    let at = (group * temporal + inside).min(frames - 1);
                    let start = at * frame + channel * plane;
                    for y in top..top + patch {
                        let line = &bytes[start + y * width + left..][..patch];
                        rows.extend(line.iter().map(|&byte| table[usize::from(byte)]));
                    }
                }
            }
        }
    }
    Ok((rows, grid))
}

/// Top left pixel of patch `number` of a frame, in merge-block order.
fn corner(number: usize, grid: Grid, sizes: PatchSizes) -> (usize, usize) {
    let PatchSizes { patch, merge, .. } = sizes;
    let (block, inside) = (number / (merge * merge), number % (merge * merge));
    let blocks = grid.w / merge;
    let row = block / blocks * merge + inside / merge;
    let column = block % blocks * merge + inside % merge;
    (row * patch, column * patch)
}
