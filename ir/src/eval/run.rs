//! Runs functions of a program.

use super::EvalError;
use crate::dim::{Dim, Symbol};
use crate::graph::Program;
use rustc_hash::FxHashMap;
use std::marker::PhantomData;

/// Values of symbols.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    values: FxHashMap<Symbol, usize>,
}

impl Sizes {
    /// The value of a dim.
    ///
    /// # Errors
    /// When a symbol has no value, a division is not exact or the size is negative.
    pub fn eval(&self, dim: &Dim) -> Result<usize, EvalError> {
        dim.size()
            .eval(&|s| self.values.get(s).and_then(|v| i64::try_from(*v).ok()))
            .and_then(|v| usize::try_from(v).ok())
            .ok_or_else(|| EvalError::new(format!("the size {dim} has no value")))
    }
}

/// Runs functions.
pub struct Evaluator<'p, R> {
    /// The program.
    pub program: &'p Program,
    real: PhantomData<R>,
}
