//! Reference cases through the product's own path.

pub mod case;
pub mod compare;
pub mod kinds;
mod runner;
pub mod training;
pub mod whole;
