//! The vlm language.
