//! Tables that a vision tower needs beside the pixels.
//!
//! A picture is a grid of t x h x w patches (t counts groups of frames). Its patches come in
//! merge-block order: frame, block row, block column, then row and column inside a block of
//! `merge` x `merge` patches. All tables have one row a patch in that order, pictures one after
//! another; images come before videos. After the tower each block becomes one feature row, which
//! overwrites the embedding of one placeholder token.

use std::fmt;

use thiserror::Error;

use crate::pack::SequenceLayout;

/// Longest side of a position table; keeps its row numbers exact.
const MAX_SIDE: usize = 1 << 16;

/// Extents of one picture in patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Groups of frames; 1 for an image.
    pub t: usize,
    /// Rows of patches.
    pub h: usize,
    /// Columns of patches.
    pub w: usize,
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.t, self.h, self.w)
    }
}

/// What a picture is, and so which token stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PictureKind {
    /// One frame.
    Image,
    /// Frames that are each preceded by text of their own.
    Video,
}

impl fmt::Display for PictureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PictureKind::Image => "image",
            PictureKind::Video => "video",
        })
    }
}

/// Why pictures and tokens do not go together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum VisionError {
    #[error("the merge size is 0, it must be at least 1")]
    MergeZero,
    #[error("the position table has a side of {side}, it must be 1 to {max}")]
    Side { side: usize, max: usize },
    #[error("{name} has {values} values, a grid has 3")]
    GridLength { name: &'static str, values: usize },
    #[error("{name} row {picture} is [{t}, {h}, {w}], a grid needs three values above 0")]
    GridValue { name: &'static str, picture: usize, t: i64, h: i64, w: i64 },
    #[error("image {picture} has the grid {grid}, an image has one frame group")]
    ImageFrames { picture: usize, grid: Grid },
    #[error("{kind} {picture} has the grid {grid}, not a multiple of the merge size {merge}")]
    NotMergeable { kind: PictureKind, picture: usize, grid: Grid, merge: usize },
    #[error("the grids have more patches than can be counted")]
    Overflow,
    #[error("there are {tokens} {kind} tokens and {rows} merged {kind} patches")]
    Count { kind: PictureKind, tokens: usize, rows: usize },
    #[error("the image and the video token are both {token}")]
    SameToken { token: i64 },
    #[error("row {row} has token {id} and the token type {token_type}, they disagree")]
    TypeMismatch { row: usize, id: i64, token_type: i64 },
}

/// Reads `[pictures, 3]` grid values. Rows of zeros at the end only fill the capacity of the
/// array and are dropped.
///
/// # Errors
/// If the values are not in threes or one is not positive.
pub fn grids_of(name: &'static str, values: &[i64]) -> Result<Vec<Grid>, VisionError> {
    let (rows, rest) = values.as_chunks::<3>();
    if !rest.is_empty() {
        return Err(VisionError::GridLength { name, values: values.len() });
    }
    let used = rows.iter().rposition(|row| *row != [0; 3]).map_or(0, |last| last + 1);
    let mut grids = Vec::with_capacity(used);
    for (picture, &[t, h, w]) in rows[..used].iter().enumerate() {
        let extent = |value: i64| usize::try_from(value).ok().filter(|&value| value > 0);
        let (Some(gt), Some(gh), Some(gw)) = (extent(t), extent(h), extent(w)) else {
            return Err(VisionError::GridValue { name, picture, t, h, w });
        };
        grids.push(Grid { t: gt, h: gh, w: gw });
    }
    Ok(grids)
}

/// Patches of all pictures.
///
/// # Errors
/// [`VisionError::Overflow`] if the count does not fit 31 bits, the width of frame boundaries.
pub fn patch_count(grids: &[Grid]) -> Result<usize, VisionError> {
    let count = grids.iter().try_fold(0usize, |sum, grid| {
        sum.checked_add(grid.t.checked_mul(grid.h)?.checked_mul(grid.w)?)
    });
    count.filter(|&count| i32::try_from(count).is_ok()).ok_or(VisionError::Overflow)
}

/// Checks that every picture can be merged; see [`merged_rows`] for what that gives.
///
/// # Errors
/// If `merge` is 0, or h or w of a grid is not a multiple of it, or an image has several frames.
pub fn check_grids(kind: PictureKind, grids: &[Grid], merge: usize) -> Result<(), VisionError> {
    if merge == 0 {
        return Err(VisionError::MergeZero);
    }
    for (picture, &grid) in grids.iter().enumerate() {
        if grid.h % merge != 0 || grid.w % merge != 0 {
            return Err(VisionError::NotMergeable { kind, picture, grid, merge });
        }
        if kind == PictureKind::Image && grid.t != 1 {
            return Err(VisionError::ImageFrames { picture, grid });
        }
    }
    patch_count(grids).map(|_| ())
}

/// Feature rows of all pictures after merging: t * h * w / merge^2 each.
///
/// # Errors
/// As [`check_grids`].
pub fn merged_rows(kind: PictureKind, grids: &[Grid], merge: usize) -> Result<usize, VisionError> {
    check_grids(kind, grids, merge)?;
    Ok(grids.iter().map(|grid| grid.t * (grid.h / merge) * (grid.w / merge)).sum())
}

/// Patch coordinates (row, column) of one frame in merge-block order.
fn frame_order(grid: Grid, merge: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..grid.h / merge).flat_map(move |block_row| {
        (0..grid.w / merge).flat_map(move |block_column| {
            (0..merge * merge).map(move |inside| {
                (block_row * merge + inside / merge, block_column * merge + inside % merge)
            })
        })
    })
}

/// Calls `each` with (grid, row, column) for every patch of every frame.
///
/// The kind only matters to the number of frames of an image, which these tables do not mind.
fn walk(
    grids: &[Grid],
    merge: usize,
    mut each: impl FnMut(Grid, usize, usize),
) -> Result<(), VisionError> {
    check_grids(PictureKind::Video, grids, merge)?;
    for &grid in grids {
        for _ in 0..grid.t {
            for (row, column) in frame_order(grid, merge) {
                each(grid, row, column);
            }
        }
    }
    Ok(())
}

/// Where one axis of a patch lies in the position table: two taps and the weight of the second.
fn axis_taps(at: usize, extent: usize, side: usize) -> (usize, usize, f32) {
    let last = side - 1;
    // In f32 as the public implementation does it: the floor of a product that is rounded
    // otherwise can differ by one where the true value is whole.
    let place = at as f32 * last as f32 / extent.saturating_sub(1).max(1) as f32;
    let low = (place.floor() as usize).min(last);
    (low, (low + 1).min(last), place - place.floor())
}

/// Bilinear taps into a position table of `side` x `side` rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PositionTaps {
    /// Rows of the table, `[patches, 4]`: (low, low), (low, high), (high, low), (high, high) in
    /// (row, column) order.
    pub rows: Vec<i64>,
    /// Weight of each tap, `[patches, 4]`; the four of a patch sum to 1.
    pub weights: Vec<f32>,
}

/// Taps and weights that interpolate the position table for every patch, corners aligned: patch
/// row y of h lies at y * (side - 1) / max(h - 1, 1), and columns likewise; the same for every
/// frame. Source: the vision section of the model's public implementation, bilinear mode.
///
/// # Errors
/// If `side` is 0 or enormous, `merge` is 0, or a grid is not a multiple of `merge`.
pub fn position_taps(
    grids: &[Grid],
    side: usize,
    merge: usize,
) -> Result<PositionTaps, VisionError> {
    if side == 0 || side > MAX_SIDE {
        return Err(VisionError::Side { side, max: MAX_SIDE });
    }
    let mut taps = PositionTaps::default();
    walk(grids, merge, |grid, row, column| {
        let (top, bottom, down) = axis_taps(row, grid.h, side);
        let (left, right, across) = axis_taps(column, grid.w, side);
        for (y, y_weight) in [(top, 1.0 - down), (bottom, down)] {
            for (x, x_weight) in [(left, 1.0 - across), (right, across)] {
                taps.rows.push((y * side + x) as i64);
                taps.weights.push(y_weight * x_weight);
            }
        }
    })?;
    Ok(taps)
}

/// Row and column of every patch in its frame, `[patches, 2]`, for the two-axis rotary embedding.
///
/// # Errors
/// If `merge` is 0 or a grid is not a multiple of it.
pub fn rotary_ids(grids: &[Grid], merge: usize) -> Result<Vec<i64>, VisionError> {
    let mut ids = Vec::new();
    walk(grids, merge, |_, row, column| ids.extend([row as i64, column as i64]))?;
    Ok(ids)
}

/// Cumulative patch counts of the frames, `[frames + 1]`. Patches attend within their frame only.
///
/// # Errors
/// [`VisionError::Overflow`] if there are too many patches for 32 bits.
pub fn frame_boundaries(grids: &[Grid]) -> Result<Vec<i32>, VisionError> {
    patch_count(grids)?;
    let mut boundaries = vec![0];
    let mut end = 0;
    for grid in grids {
        for _ in 0..grid.t {
            end += (grid.h * grid.w) as i32;
            boundaries.push(end);
        }
    }
    Ok(boundaries)
}

/// Token ids that stand for merged patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceholderTokens {
    /// Id of an image placeholder.
    pub image: i64,
    /// Id of a video placeholder.
    pub video: i64,
}

impl PlaceholderTokens {
    /// The kind of picture that `id` stands for.
    pub fn kind(self, id: i64) -> Option<PictureKind> {
        if id == self.image {
            Some(PictureKind::Image)
        } else if id == self.video {
            Some(PictureKind::Video)
        } else {
            None
        }
    }

    /// Token type of each row, `[tokens]`: 0 text, 1 image, 2 video.
    pub fn types_of(self, ids: &[i64]) -> Vec<i64> {
        let type_of = |&id: &i64| match self.kind(id) {
            None => 0,
            Some(PictureKind::Image) => 1,
            Some(PictureKind::Video) => 2,
        };
        ids.iter().map(type_of).collect()
    }
}

/// For each row of a pack (`[tokens]`) the merged feature row that overwrites its embedding, or
/// -1. Features are those of all images in order, then those of all videos. Placeholders in
/// padding rows do not count.
///
/// # Errors
/// If the two tokens are the same, a grid cannot be merged, the number of placeholders of a kind
/// is not its number of merged patches, or `types` is given and disagrees with `ids`.
pub fn feature_index(
    ids: &[i64],
    types: Option<&[i64]>,
    layout: &SequenceLayout,
    (images, videos): (&[Grid], &[Grid]),
    tokens: PlaceholderTokens,
    merge: usize,
) -> Result<Vec<i64>, VisionError> {
    if tokens.image == tokens.video {
        return Err(VisionError::SameToken { token: tokens.image });
    }
    let image_rows = merged_rows(PictureKind::Image, images, merge)?;
    let video_rows = merged_rows(PictureKind::Video, videos, merge)?;
    let expected = tokens.types_of(ids);
    let mut index = vec![-1; ids.len()];
    let (mut seen_images, mut seen_videos) = (0, 0);
    for (row, valid) in layout.row_valid(ids.len()).into_iter().enumerate() {
        if !valid {
            continue;
        }
        if let Some(&token_type) = types.and_then(|types| types.get(row))
            && token_type != expected[row]
        {
            return Err(VisionError::TypeMismatch { row, id: ids[row], token_type });
        }
        match tokens.kind(ids[row]) {
            None => {}
            Some(PictureKind::Image) => {
                index[row] = seen_images as i64;
                seen_images += 1;
            }
            Some(PictureKind::Video) => {
                index[row] = (image_rows + seen_videos) as i64;
                seen_videos += 1;
            }
        }
    }
    for (kind, tokens, rows) in [
        (PictureKind::Image, seen_images, image_rows),
        (PictureKind::Video, seen_videos, video_rows),
    ] {
        if tokens != rows {
            return Err(VisionError::Count { kind, tokens, rows });
        }
    }
    Ok(index)
}
