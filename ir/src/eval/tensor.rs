//! Host tensors and the numbers they hold.

use super::{EvalError, Shape};
use crate::ty::DType;
use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use std::sync::Arc;

/// More elements than this are refused: no reference evaluation needs them, and a size that a
/// program text asks for by mistake must not take the machine down.
pub const MAX_ELEMENTS: usize = 1 << 33;

/// The number type an evaluation computes in.
pub trait Real:
    Copy
    + PartialOrd
    + Debug
    + Default
    + Send
    + Sync
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + 'static
{
    /// Nearest value.
    fn from_f64(v: f64) -> Self;
    /// Exact widening.
    fn to_f64(self) -> f64;
    /// The nearest bf16, ties to even.
    fn round_bf16(self) -> Self;
    /// `c[i, j] = sum over k of a[i, k] b[k, j]`, `c` row-major.
    ///
    /// # Errors
    /// When a matrix reaches past its slice or the sizes do not match.
    fn gemm(a: Matrix<'_, Self>, b: Matrix<'_, Self>, c: &mut [Self]) -> Result<(), EvalError>;
}

/// A matrix inside a slice.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, R> {
    /// Where the elements are.
    pub data: &'a [R],
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Distance between rows in elements.
    pub row_stride: usize,
    /// Distance between columns in elements.
    pub column_stride: usize,
}

impl<'a, R> Matrix<'a, R> {
    /// A row-major matrix that fills its slice.
    pub fn new(data: &'a [R], rows: usize, columns: usize) -> Self {
        Matrix { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The transpose, without moving anything.
    pub fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Whether every element lies in the slice, and the strides fit signed arithmetic.
    fn is_inside(&self) -> bool {
        if self.rows == 0 || self.columns == 0 {
            return true;
        }
        let last = (self.rows - 1)
            .checked_mul(self.row_stride)
            .zip((self.columns - 1).checked_mul(self.column_stride))
            .and_then(|(r, c)| r.checked_add(c));
        let fits = |n: usize| isize::try_from(n).is_ok();
        last.is_some_and(|l| l < self.data.len())
            && fits(self.row_stride)
            && fits(self.column_stride)
    }
}

/// Whether `c = a b` stays inside the three slices; what the unsafe call below relies on.
fn check_gemm<R>(a: &Matrix<'_, R>, b: &Matrix<'_, R>, c: &[R]) -> Result<(), EvalError> {
    let fits = a.columns == b.rows
        && a.is_inside()
        && b.is_inside()
        && a.rows.checked_mul(b.columns) == Some(c.len());
    if fits { Ok(()) } else { Err(EvalError::new("the sizes of a matrix product do not match")) }
}

/// Writes [`Real::gemm`] over one function of the `matrixmultiply` crate.
macro_rules! gemm_with {
    ($function:path) => {
        fn gemm(a: Matrix<'_, Self>, b: Matrix<'_, Self>, c: &mut [Self]) -> Result<(), EvalError> {
            check_gemm(&a, &b, c)?;
            if c.is_empty() {
                return Ok(());
            }
            // SAFETY: `check_gemm` has shown that every element of `a` and `b` that their sizes and
            // strides reach lies in their slices, that `c` holds rows x columns elements, row-major
            // without gaps, and that all strides fit `isize`. `c` is borrowed exclusively, so it
            // overlaps neither operand. With beta = 0 the old contents of `c` are not read.
            unsafe {
                $function(
                    a.rows,
                    a.columns,
                    b.columns,
                    1.0,
                    a.data.as_ptr(),
                    a.row_stride as isize,
                    a.column_stride as isize,
                    b.data.as_ptr(),
                    b.row_stride as isize,
                    b.column_stride as isize,
                    0.0,
                    c.as_mut_ptr(),
                    b.columns as isize,
                    1,
                );
            }
            Ok(())
        }
    };
}

impl Real for f32 {
    fn from_f64(v: f64) -> Self {
        v as f32
    }

    fn to_f64(self) -> f64 {
        self.into()
    }

    fn round_bf16(self) -> Self {
        half::bf16::from_f32(self).to_f32()
    }

    gemm_with!(matrixmultiply::sgemm);
}

impl Real for f64 {
    fn from_f64(v: f64) -> Self {
        v
    }

    fn to_f64(self) -> f64 {
        self
    }

    fn round_bf16(self) -> Self {
        f64::from(half::bf16::from_f32(round_to_odd(self)))
    }

    gemm_with!(matrixmultiply::dgemm);
}

/// An f32 that rounds to the same bf16 as `v` does: the number cut off toward zero, its last bit
/// set when anything was cut off. Rounding to the nearest f32 first could make a tie of what is
/// none.
fn round_to_odd(v: f64) -> f32 {
    let near = v as f32;
    if !near.is_finite() || f64::from(near) == v {
        return near;
    }
    let bits = near.to_bits();
    let cut = if f64::from(near).abs() > v.abs() { bits - 1 } else { bits };
    f32::from_bits(cut | 1)
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

impl<R> Data<R> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::Float(v) => v.len(),
            Data::Int(v) => v.len(),
            Data::Bool(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
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

/// The product of the sizes.
///
/// # Errors
/// Above [`MAX_ELEMENTS`].
pub fn elements(dims: &[usize]) -> Result<usize, EvalError> {
    // A zero anywhere makes an empty tensor, however large the other sizes are.
    if dims.contains(&0) {
        return Ok(0);
    }
    dims.iter()
        .try_fold(1usize, |n, d| n.checked_mul(*d))
        .filter(|n| *n <= MAX_ELEMENTS)
        .ok_or_else(|| EvalError::new(format!("a tensor of {dims:?} is too large to evaluate")))
}

/// An empty vector with room for `n`.
///
/// # Errors
/// When the machine does not give that much memory.
pub(crate) fn room<T>(n: usize) -> Result<Vec<T>, EvalError> {
    let mut v = Vec::new();
    v.try_reserve_exact(n)
        .map_err(|_| EvalError::new(format!("there is no memory for {n} elements")))?;
    Ok(v)
}

/// `n` times `value`.
///
/// # Errors
/// See [`room`].
pub(crate) fn filled<T: Clone>(n: usize, value: T) -> Result<Vec<T>, EvalError> {
    let mut v = room(n)?;
    v.resize(n, value);
    Ok(v)
}

impl<R: Real> Tensor<R> {
    /// A tensor from its parts.
    ///
    /// # Errors
    /// When the number or the kind of the elements does not fit.
    pub fn new(dtype: DType, dims: Vec<usize>, data: Data<R>) -> Result<Self, EvalError> {
        let n = elements(&dims)?;
        let kind_fits = match &data {
            Data::Float(_) => dtype.is_float(),
            Data::Int(_) => dtype == DType::I32,
            Data::Bool(_) => dtype == DType::Bool,
        };
        if n != data.len() || !kind_fits {
            return Err(EvalError::new(format!(
                "{} elements do not make {dtype}{dims:?}",
                data.len()
            )));
        }
        Ok(Tensor { dtype, dims, data })
    }

    /// A float tensor.
    ///
    /// # Errors
    /// See [`Tensor::new`].
    pub fn floats(dtype: DType, dims: Vec<usize>, data: Vec<R>) -> Result<Self, EvalError> {
        Self::new(dtype, dims, Data::Float(Arc::new(data)))
    }

    /// An f32 tensor of the nearest values.
    ///
    /// # Errors
    /// See [`Tensor::new`].
    pub fn from_f64(dims: Vec<usize>, data: &[f64]) -> Result<Self, EvalError> {
        Self::floats(DType::F32, dims, data.iter().map(|v| R::from_f64(*v)).collect())
    }

    /// An f32 tensor.
    ///
    /// # Errors
    /// See [`Tensor::new`].
    pub fn from_f32(dims: Vec<usize>, data: &[f32]) -> Result<Self, EvalError> {
        Self::floats(DType::F32, dims, data.iter().map(|v| R::from_f64(f64::from(*v))).collect())
    }

    /// An i32 tensor.
    ///
    /// # Errors
    /// See [`Tensor::new`].
    pub fn ints(dims: Vec<usize>, data: Vec<i64>) -> Result<Self, EvalError> {
        Self::new(DType::I32, dims, Data::Int(Arc::new(data)))
    }

    /// A bool tensor.
    ///
    /// # Errors
    /// See [`Tensor::new`].
    pub fn bools(dims: Vec<usize>, data: Vec<bool>) -> Result<Self, EvalError> {
        Self::new(DType::Bool, dims, Data::Bool(Arc::new(data)))
    }

    /// A tensor of zeros (of `false`).
    ///
    /// # Errors
    /// When it is too large.
    pub fn zeros(dtype: DType, dims: Vec<usize>) -> Result<Self, EvalError> {
        let n = elements(&dims)?;
        let data = match dtype {
            DType::Bf16 | DType::F32 => Data::Float(Arc::new(filled(n, R::default())?)),
            DType::I32 => Data::Int(Arc::new(filled(n, 0)?)),
            DType::Bool => Data::Bool(Arc::new(filled(n, false)?)),
        };
        Self::new(dtype, dims, data)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The elements of a float tensor.
    ///
    /// # Errors
    /// When it holds something else.
    pub fn as_floats(&self) -> Result<&[R], EvalError> {
        match &self.data {
            Data::Float(v) => Ok(v),
            _ => Err(self.holds_no("floats")),
        }
    }

    /// The elements of an i32 tensor.
    ///
    /// # Errors
    /// When it holds something else.
    pub fn as_ints(&self) -> Result<&[i64], EvalError> {
        match &self.data {
            Data::Int(v) => Ok(v),
            _ => Err(self.holds_no("integers")),
        }
    }

    /// The elements of a bool tensor.
    ///
    /// # Errors
    /// When it holds something else.
    pub fn as_bools(&self) -> Result<&[bool], EvalError> {
        match &self.data {
            Data::Bool(v) => Ok(v),
            _ => Err(self.holds_no("truth values")),
        }
    }

    fn holds_no(&self, what: &str) -> EvalError {
        EvalError::new(format!("a {} tensor holds no {what}", self.dtype))
    }

    /// Every element as a number; `true` is 1.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::Float(v) => v.iter().map(|x| x.to_f64()).collect(),
            Data::Int(v) => v.iter().map(|x| *x as f64).collect(),
            Data::Bool(v) => v.iter().map(|x| f64::from(u8::from(*x))).collect(),
        }
    }

    /// Element type and sizes.
    pub fn shape(&self) -> Shape {
        Shape { dtype: self.dtype, dims: self.dims.clone() }
    }

    /// Size of dim `i`; 1 beyond the last.
    pub(crate) fn dim(&self, i: usize) -> usize {
        self.dims.get(i).copied().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_once() {
        // Half way between two bf16 numbers, and a little above in f64 only.
        let tie = 1.0 + 1.0 / 256.0;
        assert_eq!(tie.round_bf16(), 1.0);
        assert_eq!((tie + 1e-15).round_bf16(), 1.0 + 1.0 / 128.0);
        assert_eq!((-tie - 1e-15).round_bf16(), -1.0 - 1.0 / 128.0);
        assert_eq!((tie - 1e-15).round_bf16(), 1.0);
        assert_eq!(3.0e38f32.round_bf16(), 3.0e38f64.round_bf16() as f32);
        assert!(f64::NAN.round_bf16().is_nan());
        assert_eq!(f64::INFINITY.round_bf16(), f64::INFINITY);
        let mut bits = 0x9e37_79b9u32;
        for _ in 0..10_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(bits);
            if x.is_finite() {
                assert_eq!(f64::from(x).round_bf16(), f64::from(x.round_bf16()));
            }
        }
    }

    #[test]
    fn sizes_are_bounded() {
        assert!(elements(&[usize::MAX, 2]).is_err());
        assert!(elements(&[1 << 34]).is_err());
        assert_eq!(elements(&[usize::MAX, 2, 0]), Ok(0));
        assert!(Tensor::<f32>::from_f64(vec![3], &[1.0]).is_err());
    }

    #[test]
    fn products_out_of_bounds_are_refused() {
        let a = [1.0f32; 6];
        let mut c = [0.0; 4];
        assert!(f32::gemm(Matrix::new(&a, 2, 3), Matrix::new(&a, 3, 2), &mut c).is_ok());
        assert_eq!(c, [3.0; 4]);
        assert!(f32::gemm(Matrix::new(&a, 2, 4), Matrix::new(&a, 4, 2), &mut c).is_err());
        assert!(f32::gemm(Matrix::new(&a, 2, 3), Matrix::new(&a, 2, 3), &mut c).is_err());
    }
}
