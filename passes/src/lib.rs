//! Graph to graph passes.
