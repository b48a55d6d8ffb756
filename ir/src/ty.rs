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

/// How the rows of a sharded sequence are dealt out to the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Order {
    /// Rank r holds the r-th of equal runs.
    #[default]
    Contiguous,
    /// Each document is cut in 2·C runs and rank r holds runs r and 2C-1-r, which balances causal
    /// attention.
    Zigzag,
}

/// How one dim is divided.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct DimSharding {
    /// Mesh axes that divide the dim, outermost first; each segment of the dim is divided alike.
    pub axes: Vec<MeshAxis>,
    /// Order of the pieces.
    pub order: Order,
}

/// How a tensor lies on the mesh. The default is: whole on every rank.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Sharding {
    /// One entry a dim, or empty when no dim is divided.
    dims: Vec<DimSharding>,
    /// Axes over which a sum is still owed.
    partial: Vec<MeshAxis>,
}

impl Sharding {
    /// Builds the normal form: no entries when no dim is divided, partial axes sorted.
    pub fn new(mut dims: Vec<DimSharding>, mut partial: Vec<MeshAxis>) -> Self {
        for d in dims.iter_mut().filter(|d| d.axes.is_empty()) {
            *d = DimSharding::default();
        }
        if dims.iter().all(|d| d.axes.is_empty()) {
            dims.clear();
        }
        partial.sort();
        partial.dedup();
        Sharding { dims, partial }
    }

    /// Whole on every rank.
    pub fn is_replicated(&self) -> bool {
        self.dims.is_empty() && self.partial.is_empty()
    }

    /// The division of dim `i`.
    pub fn dim(&self, i: usize) -> Option<&DimSharding> {
        self.dims.get(i).filter(|d| !d.axes.is_empty())
    }

    /// Number of entries: 0, or the rank.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Axes over which a sum is still owed.
    pub fn partial(&self) -> &[MeshAxis] {
        &self.partial
    }

    /// Every axis used, with repeats.
    pub fn axes(&self) -> impl Iterator<Item = MeshAxis> + '_ {
        self.dims.iter().flat_map(|d| d.axes.iter().copied()).chain(self.partial.iter().copied())
    }
}

/// The type of a value. Dims are those of the whole tensor; a rank's part follows from `sharding`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ty {
    /// Element type.
    pub dtype: DType,
    /// Dims, outermost first; none for a scalar.
    pub dims: Vec<Dim>,
    /// How it lies on the mesh.
    pub sharding: Sharding,
}

impl Ty {
    /// A tensor that is whole on every rank.
    pub fn new(dtype: DType, dims: Vec<Dim>) -> Self {
        Ty { dtype, dims, sharding: Sharding::default() }
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

    /// The number of bytes of the whole tensor.
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
            if let Some(s) = self.sharding.dim(i) {
                let axes: Vec<_> = s.axes.iter().map(|a| a.name()).collect();
                write!(f, " @{}", axes.join("."))?;
                if s.order == Order::Zigzag {
                    f.write_str(".zigzag")?;
                }
            }
        }
        f.write_str("]")?;
        if !self.sharding.partial().is_empty() {
            let axes: Vec<_> = self.sharding.partial().iter().map(|a| a.name()).collect();
            write!(f, " partial({})", axes.join(", "))?;
        }
        Ok(())
    }
}
