use thiserror::Error;

/// Why a pack cannot be cut for context parallelism.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum ZigzagError {
    #[error("context-parallel rank {cp_rank} does not exist in a group of {cp_size}")]
    Rank { cp_size: usize, cp_rank: usize },
    #[error(
        "document {document} has {rows} padded rows, not a multiple of {multiple} \
         (2 x {cp_size} context-parallel ranks)"
    )]
    Document { document: usize, rows: usize, multiple: usize, cp_size: usize },
    #[error("cu_seqlens_padded falls from {from} to {to} at entry {entry}")]
    Falls { entry: usize, from: i32, to: i32 },
    #[error("cu_seqlens_padded starts at {first}, it must start at 0")]
    Start { first: i32 },
}

/// Multiple to which each document has to be padded for `cp_size` context-parallel ranks.
pub fn alignment(cp_size: usize) -> usize {
    if cp_size > 1 { cp_size.saturating_mul(2) } else { 1 }
}

/// Rows of a pack that rank `cp_rank` of `cp_size` holds, in the order in which it holds them.
///
/// Each document is cut in 2 x `cp_size` equal chunks; rank r owns the chunks r and
/// 2 x `cp_size` - 1 - r, in this order, so that causal attention costs every rank the same.
/// The local boundaries are `cu_padded` divided by `cp_size`. With one rank the index is the
/// identity, whatever the lengths. Trailing entries that repeat are documents without rows.
///
/// # Errors
/// If a document's padded length is not a multiple of 2 x `cp_size`, the rank does not exist, or
/// the boundaries do not start at 0 or fall.
pub fn zigzag_indices(
    cu_padded: &[i32],
    cp_size: usize,
    cp_rank: usize,
) -> Result<Vec<usize>, ZigzagError> {
    if cp_rank >= cp_size {
        return Err(ZigzagError::Rank { cp_size, cp_rank });
    }
    let first = cu_padded.first().copied().unwrap_or(0);
    if first != 0 {
        return Err(ZigzagError::Start { first });
    }
    let multiple = alignment(cp_size);
    let rows = cu_padded.last().map_or(0, |&end| usize::try_from(end).unwrap_or(0));
    let mut indices = Vec::with_capacity(rows / cp_size);
    for (document, pair) in cu_padded.windows(2).enumerate() {
        let (from, to) = (pair[0], pair[1]);
        if to < from {
            return Err(ZigzagError::Falls { entry: document + 1, from, to });
        }
        let (start, rows) = (from as usize, (to - from) as usize);
        if rows % multiple != 0 {
            return Err(ZigzagError::Document { document, rows, multiple, cp_size });
        }
        if cp_size == 1 {
            indices.extend(start..start + rows);
            continue;
        }
        let chunk = rows / multiple;
        for number in [cp_rank, multiple - 1 - cp_rank] {
            indices.extend(start + number * chunk..start + (number + 1) * chunk);
        }
    }
    Ok(indices)
}
