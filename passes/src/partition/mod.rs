//! How a model is spread over ranks.

pub mod letters;
pub mod placement;
