//! File tests.
