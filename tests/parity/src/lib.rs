//! Reference cases through the product's own path.

pub mod case;
pub mod compare;
pub mod kinds;
pub mod training;
