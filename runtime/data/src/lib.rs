//! Host side of a batch.
