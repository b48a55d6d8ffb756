//! Packed sequences: boundaries, alignment, label shifts and the context-parallel index.
//!
//! A pack is one run of `tokens` rows that holds several documents one after another. Document i
//! owns the rows `cu_seqlens_padded[i] .. cu_seqlens_padded[i + 1]`; the first
//! `cu_seqlens[i + 1] - cu_seqlens[i]` of them are real and the rest are padding. A padded batch
//! `[B, L]` is the case in which each document owns L rows.

mod layout;
mod samples;
mod shift;
mod zigzag;

pub use layout::{Document, LayoutError, SequenceLayout};
pub use samples::{
    PackError, PackOptions, Packed, Padded, Sample, pack_samples, pad_samples, rows_of_batch,
    truncate_sample,
};
pub use shift::{loss_mask, shift_within_documents};
pub use zigzag::{ZigzagError, alignment, zigzag_indices};
