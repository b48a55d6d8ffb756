//! Position ids of interleaved multi-axis rotary embeddings.
//!
//! Each row has three positions: time, height and width. Text counts all three on together. The
//! merged patches of a picture share one time and spread over height and width; the text after it
//! goes on past the longer side. A video of t frame groups is t pictures, each after text of its
//! own. Positions start anew in each document of a pack. Source: the rope index of the model's
//! public implementation.

use thiserror::Error;

use crate::pack::SequenceLayout;
use crate::vision::{Grid, PictureKind, VisionError, merged_rows};

/// Why positions cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum PositionError {
    #[error(transparent)]
    Vision(#[from] VisionError),
    #[error("there are {types} token types for documents of {rows} rows")]
    Rows { types: usize, rows: usize },
    #[error("row {row} has the token type {token_type}, known are 0 text, 1 image, 2 video")]
    TokenType { row: usize, token_type: i64 },
    #[error(
        "document {document}: {left} {kind} tokens from row {row} on do not hold the {needed} \
         merged patches of {kind} {picture} ({grid})"
    )]
    ShortRun {
        document: usize,
        row: usize,
        kind: PictureKind,
        picture: usize,
        grid: Grid,
        left: usize,
        needed: usize,
    },
    #[error("video {picture} starts in document {first} and goes on in document {second}")]
    SplitVideo { picture: usize, first: usize, second: usize },
}

/// Positions of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MropePositions {
    /// Time, height and width, `[3, tokens]` row-major.
    pub ids: Vec<i64>,
    /// For each document the highest position + 1 - its number of real tokens, `[documents]`: what
    /// a decoder adds to the token count to go on after the document.
    pub deltas: Vec<i64>,
}

/// Pictures of a pack, in the order in which the pack consumes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pictures<'a> {
    /// Images.
    pub images: &'a [Grid],
    /// Videos.
    pub videos: &'a [Grid],
}

/// The grids of one kind, with videos taken apart into pictures of one frame.
struct Queue<'a> {
    kind: PictureKind,
    grids: &'a [Grid],
    picture: usize,
    frame: usize,
    /// Document of the current video's first frame.
    document: usize,
}

impl Queue<'_> {
    fn next(&mut self, document: usize) -> Result<Option<(usize, Grid)>, PositionError> {
        let Some(&grid) = self.grids.get(self.picture) else {
            return Ok(None);
        };
        let picture = self.picture;
        if self.frame == 0 {
            self.document = document;
        } else if self.document != document {
            let first = self.document;
            return Err(PositionError::SplitVideo { picture, first, second: document });
        }
        self.frame += 1;
        if self.frame == grid.t {
            self.picture += 1;
            self.frame = 0;
        }
        Ok(Some((picture, grid)))
    }
}

/// Positions for the rows of a pack.
///
/// `types` (`[tokens]`) is 0 for text, 1 for image and 2 for video placeholders. With `pictures`
/// padding rows get position 0. Without (a batch that has no grids at all) each document counts
/// 0, 1, .. through its padding too; that is what the public implementation does when there is no
/// picture. Rows after the last boundary get 0.
///
/// # Errors
/// If the number of placeholders is not the number of merged patches, a run of placeholders ends
/// inside a picture, a video is split over documents, a grid is not a multiple of `merge`, or a
/// token type is unknown.
pub fn mrope_positions(
    types: &[i64],
    layout: &SequenceLayout,
    pictures: Option<Pictures<'_>>,
    merge: usize,
) -> Result<MropePositions, PositionError> {
    let tokens = types.len();
    if layout.rows() > tokens {
        return Err(PositionError::Rows { types: tokens, rows: layout.rows() });
    }
    let Pictures { images, videos } = pictures.unwrap_or(Pictures { images: &[], videos: &[] });
    check_counts(types, layout, PictureKind::Image, images, merge)?;
    check_counts(types, layout, PictureKind::Video, videos, merge)?;
    let queue = |kind, grids| Queue { kind, grids, picture: 0, frame: 0, document: 0 };
    let mut queues = [queue(PictureKind::Image, images), queue(PictureKind::Video, videos)];
    let mut ids = vec![0; 3 * tokens];
    let mut deltas = Vec::with_capacity(layout.documents().len());
    for (number, document) in layout.documents().enumerate() {
        let rows = document.valid_rows();
        if pictures.is_none() {
            for (position, row) in document.rows().enumerate() {
                put(&mut ids, tokens, row, [position as i64; 3]);
            }
            deltas.push(0);
            continue;
        }
        let (mut next, mut row) = (0, rows.start);
        let mut highest = -1;
        while row < rows.end {
            let kind = types[row];
            let run = types[row..rows.end].iter().take_while(|&&other| other == kind).count();
            let queue = match kind {
                1 => &mut queues[0],
                2 => &mut queues[1],
                // Text; other values were refused with the counts.
                _ => {
                    for at in row..row + run {
                        put(&mut ids, tokens, at, [next; 3]);
                        next += 1;
                    }
                    highest = next - 1;
                    row += run;
                    continue;
                }
            };
            let end = row + run;
            // Pictures may stand side by side, so a run can hold several.
            while row < end {
                let left = end - row;
                let Some((picture, grid)) = queue.next(number)? else {
                    // The counts agree, so a queue that is empty early cannot be met.
                    let (kind, tokens) = (queue.kind, left);
                    return Err(VisionError::Count { kind, tokens, rows: 0 }.into());
                };
                let (height, width) = (grid.h / merge, grid.w / merge);
                let needed = height * width;
                if needed > left {
                    let (document, kind) = (number, queue.kind);
                    return Err(PositionError::ShortRun {
                        document,
                        row,
                        kind,
                        picture,
                        grid,
                        left,
                        needed,
                    });
                }
                for at in 0..needed {
                    let (y, x) = ((at / width) as i64, (at % width) as i64);
                    put(&mut ids, tokens, row + at, [next, next + y, next + x]);
                }
                next += height.max(width) as i64;
                highest = next - 1;
                row += needed;
            }
        }
        deltas.push(highest + 1 - document.valid as i64);
    }
    Ok(MropePositions { ids, deltas })
}

fn put(ids: &mut [i64], tokens: usize, row: usize, position: [i64; 3]) {
    for (axis, value) in position.into_iter().enumerate() {
        ids[axis * tokens + row] = value;
    }
}

/// Compares placeholders in real rows with merged patches, and refuses unknown token types.
fn check_counts(
    types: &[i64],
    layout: &SequenceLayout,
    kind: PictureKind,
    grids: &[Grid],
    merge: usize,
) -> Result<(), PositionError> {
    let rows = merged_rows(kind, grids, merge)?;
    let mark = match kind {
        PictureKind::Image => 1,
        PictureKind::Video => 2,
    };
    let mut found = 0;
    for row in layout.documents().flat_map(|document| document.valid_rows()) {
        let token_type = types[row];
        if !(0..=2).contains(&token_type) {
            return Err(PositionError::TokenType { row, token_type });
        }
        found += usize::from(token_type == mark);
    }
    if found == rows {
        Ok(())
    } else {
        Err(VisionError::Count { kind, tokens: found, rows }.into())
    }
}
