//! What the tests of this crate share: models with settings, documents, a training step whose
//! losses and gradients are kept, trainings in a folder.

mod documents;
pub mod layout;
mod model;
mod training;

pub use documents::{document, image_document, pack};
pub use model::{Model, Ran, clean, largest_difference, parameter_value, program_parameter};
pub use training::{Folder, files};
pub use vlmc::compile::Capacity;
