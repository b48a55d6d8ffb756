//! Types: element type, dims, and how a tensor lies on the device mesh.

use crate::dim::{Dim, Poly, product};
use std::fmt;

/// Element type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    /// bfloat16
    Bf16,
    /// IEEE binary32. The evaluator's f64 mode widens it.
    F32,
    /// 32-bit signed integer: ids, boundaries, positions.
    I32,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every element type.
    pub const ALL: [DType; 4] = [DType::Bf16, DType::F32, DType::I32, DType::Bool];

    /// As written in text.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::I32 => "i32",
            DType::Bool => "bool",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            DType::Bf16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::Bool => 1,
        }
    }

    /// Whether it carries gradients.
    pub fn is_float(self) -> bool {
        matches!(self, DType::Bf16 | DType::F32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An axis of the device mesh.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MeshAxis {
    /// Data parallel.
    Dp,
    /// Context parallel: the sequence is divided.
    Cp,
    /// Expert parallel.
    Ep,
    /// Pipeline parallel.
    Pp,
    /// Tensor parallel.
    Tp,
}

impl MeshAxis {
    /// Every axis.
    pub const ALL: [MeshAxis; 5] =
        [MeshAxis::Dp, MeshAxis::Cp, MeshAxis::Ep, MeshAxis::Pp, MeshAxis::Tp];

    /// As written in text.
    pub fn name(self) -> &'static str {
        match self {
            MeshAxis::Dp => "dp",
            MeshAxis::Cp => "cp",
            MeshAxis::Ep => "ep",
            MeshAxis::Pp => "pp",
            MeshAxis::Tp => "tp",
        }
    }

    /// The axis of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// The type of a value, as a rank has it: programs are written from the view of one rank, and what
/// others have comes through the ops of class communication.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ty {
    /// Element type.
    pub dtype: DType,
    /// Dims, outermost first; none for a scalar.
    pub dims: Vec<Dim>,
}

impl Ty {
    /// A tensor.
    pub fn new(dtype: DType, dims: Vec<Dim>) -> Self {
        Ty { dtype, dims }
    }

    /// A scalar.
    pub fn scalar(dtype: DType) -> Self {
        Ty::new(dtype, vec![])
    }

    /// The number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The number of elements.
    pub fn elements(&self) -> Poly {
        product(&self.dims)
    }

    /// The number of bytes.
    pub fn bytes(&self) -> Poly {
        self.elements().mul(&Poly::constant(self.dtype.bytes() as i64))
    }

    /// The same dims with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Ty { dtype, ..self.clone() }
    }

    /// Whether both have the same sizes, whatever their segments and element types.
    pub fn same_shape(&self, other: &Ty) -> bool {
        self.rank() == other.rank()
            && self.dims.iter().zip(&other.dims).all(|(a, b)| a.same_size(b))
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.dims.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{d}")?;
        }
        f.write_str("]")
    }
}
