use super::SequenceLayout;
use crate::IGNORED_LABEL;

/// Moves `values` (`[tokens]`, one a row) forward by `by` rows inside each document: row t gets
/// the value of row t + `by`. Rows for which that is past the last real token of the document,
/// and all padding rows, get `fill`.
///
/// With labels, `by` 1 and [`IGNORED_LABEL`] this is next-token prediction; a multi-token
/// prediction head of depth k uses `by` k + 1. It has to run on the whole sequence: after a
/// context-parallel cut the next row may be on another rank.
///
/// `values` may be shorter or longer than the layout's rows; rows that it lacks count as `fill`.
pub fn shift_within_documents<T: Copy>(
    values: &[T],
    layout: &SequenceLayout,
    by: usize,
    fill: T,
) -> Vec<T> {
    let mut shifted = vec![fill; values.len()];
    for document in layout.documents() {
        let end = document.valid_rows().end.min(values.len());
        let from = document.start.saturating_add(by);
        if from < end {
            shifted[document.start..end - by].copy_from_slice(&values[from..end]);
        }
    }
    shifted
}

/// Which rows of already shifted labels count in the loss: those that are not
/// [`IGNORED_LABEL`].
pub fn loss_mask(shifted_labels: &[i64]) -> Vec<bool> {
    shifted_labels.iter().map(|&label| label != IGNORED_LABEL).collect()
}
