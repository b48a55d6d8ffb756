//! Host tensors.

use crate::ty::DType;
use std::fmt::Debug;
use std::sync::Arc;

/// The number type an evaluation computes in.
pub trait Real: Copy + PartialOrd + Debug + Default + Send + Sync + 'static {
    /// Nearest value.
    fn from_f64(v: f64) -> Self;
    /// Exact widening.
    fn to_f64(self) -> f64;
}

impl Real for f32 {
    fn from_f64(v: f64) -> Self {
        v as f32
    }

    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Real for f64 {
    fn from_f64(v: f64) -> Self {
        v
    }

    fn to_f64(self) -> f64 {
        self
    }
}

/// Elements of a tensor, row-major. Shared, so that reshaping copies nothing.
#[derive(Clone, PartialEq, Debug)]
pub enum Data<R> {
    /// bf16 (already rounded) and f32.
    Float(Arc<Vec<R>>),
    /// i32, kept wide.
    Int(Arc<Vec<i64>>),
    /// bool.
    Bool(Arc<Vec<bool>>),
}

/// A tensor on the host.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor<R> {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub dims: Vec<usize>,
    /// Elements.
    pub data: Data<R>,
}
