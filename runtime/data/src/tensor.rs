//! Tensors in host memory.

use std::fmt;

use half::{bf16, f16};
use thiserror::Error;

/// Element types that the safetensors format names.
///
/// Those for which [`Dtype::supported`] is false can stand in a header, so that a file that holds
/// some of them still opens, but their values cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, non_camel_case_types)]
pub enum Dtype {
    F64,
    F32,
    BF16,
    F16,
    I64,
    I32,
    I16,
    I8,
    U8,
    BOOL,
    U64,
    U32,
    U16,
    C64,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    F8_E5M2FNUZ,
    F8_E4M3FNUZ,
    F6_E2M3,
    F6_E3M2,
    F4,
}

const DTYPES: &[(Dtype, &str, u64)] = &[
    (Dtype::F64, "F64", 64),
    (Dtype::F32, "F32", 32),
    (Dtype::BF16, "BF16", 16),
    (Dtype::F16, "F16", 16),
    (Dtype::I64, "I64", 64),
    (Dtype::I32, "I32", 32),
    (Dtype::I16, "I16", 16),
    (Dtype::I8, "I8", 8),
    (Dtype::U8, "U8", 8),
    (Dtype::BOOL, "BOOL", 8),
    (Dtype::U64, "U64", 64),
    (Dtype::U32, "U32", 32),
    (Dtype::U16, "U16", 16),
    (Dtype::C64, "C64", 64),
    (Dtype::F8_E5M2, "F8_E5M2", 8),
    (Dtype::F8_E4M3, "F8_E4M3", 8),
    (Dtype::F8_E8M0, "F8_E8M0", 8),
    (Dtype::F8_E5M2FNUZ, "F8_E5M2FNUZ", 8),
    (Dtype::F8_E4M3FNUZ, "F8_E4M3FNUZ", 8),
    (Dtype::F6_E2M3, "F6_E2M3", 6),
    (Dtype::F6_E3M2, "F6_E3M2", 6),
    (Dtype::F4, "F4", 4),
];

impl Dtype {
    /// The type that a header spells `name`.
    pub fn parse(name: &str) -> Option<Dtype> {
        DTYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    fn row(self) -> (&'static str, u64) {
        // Every variant stands in the table; a test walks it. The fallback is never taken.
        DTYPES.iter().find(|row| row.0 == self).map_or(("unknown", 8), |row| (row.1, row.2))
    }

    /// Spelling in a header.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Bits of one element.
    pub fn bits(self) -> u64 {
        self.row().1
    }

    /// Whether [`HostData`] can hold it.
    pub fn supported(self) -> bool {
        use Dtype::*;
        matches!(self, F64 | F32 | BF16 | F16 | I64 | I32 | I16 | I8 | U8 | BOOL)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Values of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum HostData {
    F64(Vec<f64>),
    F32(Vec<f32>),
    BF16(Vec<bf16>),
    F16(Vec<f16>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    I16(Vec<i16>),
    I8(Vec<i8>),
    U8(Vec<u8>),
    Bool(Vec<bool>),
}

/// Runs `$body` with `$values` bound to the vector of whichever variant.
macro_rules! each {
    ($data:expr, $values:ident => $body:expr) => {
        match $data {
            HostData::F64($values) => $body,
            HostData::F32($values) => $body,
            HostData::BF16($values) => $body,
            HostData::F16($values) => $body,
            HostData::I64($values) => $body,
            HostData::I32($values) => $body,
            HostData::I16($values) => $body,
            HostData::I8($values) => $body,
            HostData::U8($values) => $body,
            HostData::Bool($values) => $body,
        }
    };
}

/// Applies `$body` to the vector of whichever variant, and wraps the result in the same variant.
macro_rules! map_each {
    ($data:expr, $values:ident => $body:expr) => {
        match $data {
            $crate::tensor::HostData::F64($values) => $crate::tensor::HostData::F64($body),
            $crate::tensor::HostData::F32($values) => $crate::tensor::HostData::F32($body),
            $crate::tensor::HostData::BF16($values) => $crate::tensor::HostData::BF16($body),
            $crate::tensor::HostData::F16($values) => $crate::tensor::HostData::F16($body),
            $crate::tensor::HostData::I64($values) => $crate::tensor::HostData::I64($body),
            $crate::tensor::HostData::I32($values) => $crate::tensor::HostData::I32($body),
            $crate::tensor::HostData::I16($values) => $crate::tensor::HostData::I16($body),
            $crate::tensor::HostData::I8($values) => $crate::tensor::HostData::I8($body),
            $crate::tensor::HostData::U8($values) => $crate::tensor::HostData::U8($body),
            $crate::tensor::HostData::Bool($values) => $crate::tensor::HostData::Bool($body),
        }
    };
}
pub(crate) use map_each;

impl HostData {
    /// Number of elements.
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        match self {
            HostData::F64(_) => Dtype::F64,
            HostData::F32(_) => Dtype::F32,
            HostData::BF16(_) => Dtype::BF16,
            HostData::F16(_) => Dtype::F16,
            HostData::I64(_) => Dtype::I64,
            HostData::I32(_) => Dtype::I32,
            HostData::I16(_) => Dtype::I16,
            HostData::I8(_) => Dtype::I8,
            HostData::U8(_) => Dtype::U8,
            HostData::Bool(_) => Dtype::BOOL,
        }
    }
}

/// What is wrong with a tensor's form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum TensorError {
    #[error("shape {shape:?} does not hold {values} values")]
    Shape { shape: Vec<usize>, values: usize },
    #[error("expected whole numbers, the tensor is {dtype}")]
    NotIntegers { dtype: Dtype },
    #[error("dim {dim} was asked of the shape {shape:?}")]
    NoDim { dim: usize, shape: Vec<usize> },
    #[error("index {index} was asked of dim {dim} of the shape {shape:?}")]
    Index { index: usize, dim: usize, shape: Vec<usize> },
}

/// A dense row-major tensor in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Extent of each dim, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Values; as many as the product of `shape`.
    pub data: HostData,
}

impl HostTensor {
    /// A tensor of `shape` over `data`.
    ///
    /// # Errors
    /// [`TensorError::Shape`] if the product of `shape` is not the number of values.
    pub fn new(shape: Vec<usize>, data: HostData) -> Result<HostTensor, TensorError> {
        let product = shape.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim));
        if product == Some(data.len()) {
            Ok(HostTensor { shape, data })
        } else {
            Err(TensorError::Shape { shape, values: data.len() })
        }
    }

    /// A tensor of one dim.
    pub fn vector(data: HostData) -> HostTensor {
        HostTensor { shape: vec![data.len()], data }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.data.dtype()
    }

    /// The slices `indices` of `dim`, in that order; an index may come again. With
    /// [`crate::pack::zigzag_indices`] and the dim that counts tokens this is a rank's share.
    ///
    /// # Errors
    /// If there is no such dim or index.
    pub fn select(&self, dim: usize, indices: &[usize]) -> Result<HostTensor, TensorError> {
        let shape = &self.shape;
        let Some(&size) = shape.get(dim) else {
            return Err(TensorError::NoDim { dim, shape: shape.clone() });
        };
        if let Some(&index) = indices.iter().find(|&&index| index >= size) {
            return Err(TensorError::Index { index, dim, shape: shape.clone() });
        }
        let inner: usize = shape[dim + 1..].iter().product();
        let data = map_each!(&self.data, values => {
            let mut chosen = Vec::new();
            // Empty only if there is no index to choose, for then a dim is 0.
            for block in values.chunks((size * inner).max(1)) {
                for &index in indices {
                    chosen.extend_from_slice(&block[index * inner..(index + 1) * inner]);
                }
            }
            chosen
        });
        let mut shape = shape.clone();
        shape[dim] = indices.len();
        HostTensor::new(shape, data)
    }

    /// All values as f64; exact except for I64 beyond 2^53. False is 0, true is 1.
    pub fn to_f64(&self) -> Vec<f64> {
        fn widen<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
            values.iter().map(|&value| value.into()).collect()
        }
        match &self.data {
            HostData::F64(values) => values.clone(),
            HostData::F32(values) => widen(values),
            HostData::BF16(values) => widen(values),
            HostData::F16(values) => widen(values),
            HostData::I64(values) => values.iter().map(|&value| value as f64).collect(),
            HostData::I32(values) => widen(values),
            HostData::I16(values) => widen(values),
            HostData::I8(values) => widen(values),
            HostData::U8(values) => widen(values),
            HostData::Bool(values) => {
                values.iter().map(|&value| f64::from(u8::from(value))).collect()
            }
        }
    }

    /// All values as f32, rounded to nearest even where they do not fit.
    pub fn to_f32(&self) -> Vec<f32> {
        match &self.data {
            HostData::F32(values) => values.clone(),
            HostData::BF16(values) => values.iter().map(|value| value.to_f32()).collect(),
            HostData::F16(values) => values.iter().map(|value| value.to_f32()).collect(),
            // Not by way of f64, which would round twice.
            HostData::I64(values) => values.iter().map(|&value| value as f32).collect(),
            _ => self.to_f64().into_iter().map(|value| value as f32).collect(),
        }
    }

    /// All values as i64.
    ///
    /// # Errors
    /// [`TensorError::NotIntegers`] for a float tensor: ids must never be rounded silently.
    pub fn to_i64(&self) -> Result<Vec<i64>, TensorError> {
        fn widen<T: Copy + Into<i64>>(values: &[T]) -> Vec<i64> {
            values.iter().map(|&value| value.into()).collect()
        }
        Ok(match &self.data {
            HostData::I64(values) => values.clone(),
            HostData::I32(values) => widen(values),
            HostData::I16(values) => widen(values),
            HostData::I8(values) => widen(values),
            HostData::U8(values) => widen(values),
            HostData::Bool(values) => widen(values),
            HostData::F64(_) | HostData::F32(_) | HostData::BF16(_) | HostData::F16(_) => {
                return Err(TensorError::NotIntegers { dtype: self.dtype() });
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse_back() {
        for (dtype, name, bits) in DTYPES {
            assert_eq!(Dtype::parse(name), Some(*dtype));
            assert_eq!((dtype.name(), dtype.bits()), (*name, *bits));
        }
        assert_eq!(Dtype::parse("f32"), None);
    }

    #[test]
    fn a_shape_that_overflows_is_refused() {
        let error = HostTensor::new(vec![usize::MAX, 2], HostData::U8(vec![]));
        assert!(matches!(error, Err(TensorError::Shape { .. })));
    }

    #[test]
    fn slices_are_taken_from_the_named_dim() {
        // Positions [3, 1, 8]: rank 0 of two holds the columns 0, 1, 6, 7.
        let values = (0..24).collect();
        let tensor = HostTensor::new(vec![3, 1, 8], HostData::I64(values)).unwrap();
        let share = tensor.select(2, &[0, 1, 6, 7]).unwrap();
        assert_eq!(share.shape, [3, 1, 4]);
        assert_eq!(share.to_i64().unwrap(), [0, 1, 6, 7, 8, 9, 14, 15, 16, 17, 22, 23]);
        let first = tensor.select(0, &[2, 0]).unwrap();
        assert_eq!(first.to_i64().unwrap()[..9], [16, 17, 18, 19, 20, 21, 22, 23, 0]);
        assert!(tensor.select(1, &[]).unwrap().is_empty());
        let error = tensor.select(2, &[8]).unwrap_err().to_string();
        assert_eq!(error, "index 8 was asked of dim 2 of the shape [3, 1, 8]");
        assert!(tensor.select(3, &[]).is_err());
        let none = HostTensor::new(vec![0, 2], HostData::U8(vec![])).unwrap();
        assert_eq!(none.select(1, &[1]).unwrap().shape, [0, 1]);
    }

    #[test]
    fn floats_are_not_ids() {
        let tensor = HostTensor::vector(HostData::F32(vec![1.0]));
        assert_eq!(tensor.to_i64(), Err(TensorError::NotIntegers { dtype: Dtype::F32 }));
    }
}
