//! Shape and dtype rules: what operand types an op takes, and the result types that follow.
//!
//! Sizes are compared as polynomials, so one rule serves a spec without a variant, a variant with
//! run-time token counts, and constants.

mod mesh;
mod movement;
mod rows;
mod sequence_grad;

pub(super) use mesh::*;
pub(super) use movement::*;
pub(super) use rows::*;
pub(super) use sequence_grad::{attention_grad, gated_delta_rule_grad};

use super::{Comparison, Op};
use crate::dim::Dim;
use crate::ty::{DType, Ty};

/// Why operand types do not fit an op.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    /// In words; names operands as the op's declaration does.
    pub message: String,
    /// The operands that are at odds, each with the dim in question.
    pub places: Vec<(usize, Option<usize>)>,
    /// What to write instead.
    pub help: Option<String>,
}

impl TypeError {
    /// An error about the op as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        TypeError { message: message.into(), places: vec![], help: None }
    }

    fn at(mut self, operand: usize, dim: impl Into<Option<usize>>) -> Self {
        self.places.push((operand, dim.into()));
        self
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

type Types = Result<Vec<Ty>, TypeError>;

// ---- helpers -----------------------------------------------------------------------------------

fn name(op: &Op, operand: usize) -> &'static str {
    op.info().operand_name(operand)
}

fn want_rank(op: &Op, tys: &[Ty], operand: usize, rank: usize) -> Result<(), TypeError> {
    let have = tys[operand].rank();
    if have == rank {
        return Ok(());
    }
    let dims = if rank == 1 { "dim" } else { "dims" };
    Err(TypeError::new(format!("`{}` must have {rank} {dims}, not {have}", name(op, operand)))
        .at(operand, None))
}

fn want_dtype(op: &Op, tys: &[Ty], operand: usize, dtype: DType) -> Result<(), TypeError> {
    let have = tys[operand].dtype;
    if have == dtype {
        return Ok(());
    }
    Err(TypeError::new(format!("`{}` must be {dtype}, not {have}", name(op, operand)))
        .at(operand, None))
}

fn want_float_result(dtype: DType) -> Result<(), TypeError> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(TypeError::new(format!("the result cannot be {dtype}")))
}

fn want_float(op: &Op, tys: &[Ty], operand: usize) -> Result<(), TypeError> {
    let have = tys[operand].dtype;
    if have.is_float() {
        return Ok(());
    }
    Err(TypeError::new(format!("`{}` must be a float, not {have}", name(op, operand)))
        .at(operand, None)
        .help(format!("widen it with `f32({})`", name(op, operand))))
}

/// The two dims must have one size.
fn want_same(op: &Op, tys: &[Ty], a: (usize, usize), b: (usize, usize)) -> Result<(), TypeError> {
    let (da, db) = (&tys[a.0].dims[a.1], &tys[b.0].dims[b.1]);
    if da.same_size(db) {
        return Ok(());
    }
    Err(TypeError::new(format!(
        "dim {} of `{}` ({da}) and dim {} of `{}` ({db}) do not match",
        a.1,
        name(op, a.0),
        b.1,
        name(op, b.0)
    ))
    .at(a.0, a.1)
    .at(b.0, b.1))
}

fn want_axis(axis: u32, rank: usize) -> Result<usize, TypeError> {
    let i = axis as usize;
    if i < rank {
        return Ok(i);
    }
    Err(TypeError::new(format!("there is no axis {axis} in {rank} dims")).at(0, None))
}

/// The axes must be increasing and exist.
fn want_axes(axes: &[u32], rank: usize) -> Result<(), TypeError> {
    if axes.windows(2).any(|w| w[0] >= w[1]) {
        return Err(TypeError::new(format!("axes {axes:?} are not increasing")));
    }
    axes.iter().try_for_each(|a| want_axis(*a, rank).map(|_| ()))
}

/// All operands must have the shape of the first; of equal dims the one with segments is kept.
fn same_shapes(op: &Op, tys: &[Ty], from: usize) -> Result<Vec<Dim>, TypeError> {
    let mut dims = tys[from].dims.clone();
    for (j, t) in tys.iter().enumerate().skip(from + 1) {
        if t.rank() != tys[from].rank() {
            return Err(TypeError::new(format!(
                "`{}` has {} dims and `{}` has {}",
                name(op, from),
                tys[from].rank(),
                name(op, j),
                t.rank()
            ))
            .at(from, None)
            .at(j, None));
        }
        for (i, dim) in dims.iter_mut().enumerate() {
            want_same(op, tys, (from, i), (j, i))?;
            if dim.segments().is_empty() {
                dim.clone_from(&t.dims[i]);
            }
        }
    }
    Ok(dims)
}

fn same_dtypes(op: &Op, tys: &[Ty], from: usize) -> Result<DType, TypeError> {
    let first = tys[from].dtype;
    for (j, t) in tys.iter().enumerate().skip(from + 1) {
        if t.dtype != first {
            return Err(TypeError::new(format!(
                "`{}` is {first} and `{}` is {}",
                name(op, from),
                name(op, j),
                t.dtype
            ))
            .at(from, None)
            .at(j, None));
        }
    }
    Ok(first)
}

/// The number must be one of the type's values.
fn want_value(dtype: DType, value: f64) -> Result<(), TypeError> {
    let fits = match dtype {
        DType::Bf16 | DType::F32 => true,
        DType::I32 => value == f64::from(value as i32),
        DType::Bool => value == 0.0 || value == 1.0,
    };
    if fits { Ok(()) } else { Err(TypeError::new(format!("{value} is not a value of {dtype}"))) }
}

/// A constant size must not be negative.
fn want_sizes(shape: &[Dim]) -> Result<(), TypeError> {
    match shape.iter().find(|d| d.size().as_constant().is_some_and(|c| c < 0)) {
        Some(d) => Err(TypeError::new(format!("a dim cannot have the size {d}"))),
        None => Ok(()),
    }
}

// ---- structure and sources ---------------------------------------------------------------------

pub(super) fn structural(op: &Op, _: &[Ty]) -> Types {
    Err(TypeError::new(format!("the type of `{}` follows from its function", op.name())))
}

pub(super) fn constant(op: &Op, _: &[Ty]) -> Types {
    let Op::Constant { value, dtype, shape } = op else { return structural(op, &[]) };
    want_sizes(shape)?;
    want_value(*dtype, value.0)?;
    Ok(vec![Ty::new(*dtype, shape.clone())])
}

pub(super) fn iota(op: &Op, _: &[Ty]) -> Types {
    let Op::Iota { shape, axis } = op else { return structural(op, &[]) };
    want_sizes(shape)?;
    want_axis(*axis, shape.len())?;
    Ok(vec![Ty::new(DType::I32, shape.clone())])
}

// ---- elementwise -------------------------------------------------------------------------------

pub(super) fn same(_: &Op, tys: &[Ty]) -> Types {
    Ok(vec![tys[0].clone()])
}

pub(super) fn unary_float(op: &Op, tys: &[Ty]) -> Types {
    want_float(op, tys, 0)?;
    same(op, tys)
}

pub(super) fn unary_number(op: &Op, tys: &[Ty]) -> Types {
    if tys[0].dtype == DType::Bool {
        return Err(TypeError::new("`x` must be a number, not bool").at(0, None));
    }
    same(op, tys)
}

pub(super) fn unary_bool(op: &Op, tys: &[Ty]) -> Types {
    want_dtype(op, tys, 0, DType::Bool)?;
    same(op, tys)
}

pub(super) fn cast(op: &Op, tys: &[Ty]) -> Types {
    let Op::Cast { dtype } = op else { return structural(op, tys) };
    Ok(vec![tys[0].with_dtype(*dtype)])
}

fn binary(op: &Op, tys: &[Ty], allowed: &dyn Fn(DType) -> bool, what: &str) -> Types {
    let dims = same_shapes(op, tys, 0)?;
    let dtype = same_dtypes(op, tys, 0)?;
    if !allowed(dtype) {
        return Err(TypeError::new(format!("operands must be {what}, not {dtype}")).at(0, None));
    }
    Ok(vec![Ty::new(dtype, dims)])
}

pub(super) fn binary_number(op: &Op, tys: &[Ty]) -> Types {
    binary(op, tys, &|d| d != DType::Bool, "numbers")
}

pub(super) fn binary_integer(op: &Op, tys: &[Ty]) -> Types {
    binary(op, tys, &|d| d == DType::I32, "integers")
}

pub(super) fn binary_bool(op: &Op, tys: &[Ty]) -> Types {
    binary(op, tys, &|d| d == DType::Bool, "bool")
}

pub(super) fn compare(op: &Op, tys: &[Ty]) -> Types {
    let equality = matches!(op, Op::Compare { kind: Comparison::Eq | Comparison::Ne });
    let tys = binary(op, tys, &|d| equality || d != DType::Bool, "numbers")?;
    Ok(vec![tys[0].with_dtype(DType::Bool)])
}

pub(super) fn select(op: &Op, tys: &[Ty]) -> Types {
    want_dtype(op, tys, 0, DType::Bool)?;
    let dims = same_shapes(op, tys, 0)?;
    let dtype = same_dtypes(op, tys, 1)?;
    Ok(vec![Ty::new(dtype, dims)])
}
