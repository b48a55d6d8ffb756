//! Artifact executor.
