//! Shape and dtype rules: what operand types an op takes, and the result types that follow.
//!
//! Sizes are compared as polynomials, so one rule serves a spec without a variant, a variant with
//! run-time token counts, and constants.

use super::{Comparison, Op};
use crate::dim::{Dim, Poly, product};
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

mod sequence_grad;
pub(super) use sequence_grad::{attention_grad, gated_delta_rule_grad};

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

fn want_float_result(dtype: DType) -> Result<(), TypeError> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(TypeError::new(format!("the result cannot be {dtype}")))
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
    Ok(vec![Ty { dtype, dims, sharding: tys[0].sharding.clone() }])
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
    Ok(vec![Ty { dtype, dims, sharding: tys[1].sharding.clone() }])
}

// ---- movement ----------------------------------------------------------------------------------

pub(super) fn reshape(op: &Op, tys: &[Ty]) -> Types {
    let Op::Reshape { shape } = op else { return structural(op, tys) };
    want_sizes(shape)?;
    let (have, want) = (tys[0].elements(), product(shape));
    if have != want {
        let list: Vec<_> = shape.iter().map(Dim::to_string).collect();
        return Err(TypeError::new(format!(
            "{} has {have} elements and [{}] has {want}",
            tys[0],
            list.join(", ")
        ))
        .at(0, None));
    }
    Ok(vec![Ty::new(tys[0].dtype, shape.clone())])
}

pub(super) fn transpose(op: &Op, tys: &[Ty]) -> Types {
    let Op::Transpose { permutation } = op else { return structural(op, tys) };
    let rank = tys[0].rank();
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    if !sorted.iter().map(|i| *i as usize).eq(0..rank) {
        return Err(
            TypeError::new(format!("{permutation:?} is no permutation of {rank} dims")).at(0, None)
        );
    }
    let dims = permutation.iter().map(|i| tys[0].dims[*i as usize].clone()).collect();
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(super) fn broadcast(op: &Op, tys: &[Ty]) -> Types {
    let Op::Broadcast { shape, dims } = op else { return structural(op, tys) };
    want_sizes(shape)?;
    want_axes(dims, shape.len())?;
    if dims.len() != tys[0].rank() {
        return Err(TypeError::new(format!("{} dims given for {}", dims.len(), tys[0])).at(0, None));
    }
    for (i, target) in dims.iter().enumerate() {
        let (have, want) = (&tys[0].dims[i], &shape[*target as usize]);
        if !have.size().is(1) && !have.same_size(want) {
            return Err(
                TypeError::new(format!("dim {i} ({have}) cannot repeat to {want}")).at(0, i)
            );
        }
    }
    Ok(vec![Ty::new(tys[0].dtype, shape.clone())])
}

pub(super) fn repeat(op: &Op, tys: &[Ty]) -> Types {
    let Op::Repeat { axis, times } = op else { return structural(op, tys) };
    let i = want_axis(*axis, tys[0].rank())?;
    let mut dims = tys[0].dims.clone();
    dims[i] = Dim::new(dims[i].size().mul(times.size()));
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(super) fn slice(op: &Op, tys: &[Ty]) -> Types {
    let Op::Slice { axis, start, size } = op else { return structural(op, tys) };
    let i = want_axis(*axis, tys[0].rank())?;
    let have = tys[0].dims[i].size();
    let room = have.sub(start.size()).sub(size.size());
    if [start.size(), size.size(), &room].iter().any(|p| p.as_constant().is_some_and(|c| c < 0)) {
        return Err(TypeError::new(format!(
            "rows {} to {} are not inside a dim of {have}",
            start.size(),
            start.size().add(size.size())
        ))
        .at(0, i));
    }
    let mut dims = tys[0].dims.clone();
    dims[i] = size.clone();
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(super) fn pad(op: &Op, tys: &[Ty]) -> Types {
    let Op::Pad { axis, before, after } = op else { return structural(op, tys) };
    let i = want_axis(*axis, tys[0].rank())?;
    want_sizes(&[before.clone(), after.clone()])?;
    let mut dims = tys[0].dims.clone();
    dims[i] = Dim::new(before.size().add(dims[i].size()).add(after.size()));
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(super) fn concat(op: &Op, tys: &[Ty]) -> Types {
    let Op::Concat { axis } = op else { return structural(op, tys) };
    if tys.is_empty() {
        return Err(TypeError::new("there is nothing to join"));
    }
    let dtype = same_dtypes(op, tys, 0)?;
    let i = want_axis(*axis, tys[0].rank())?;
    let mut size = Poly::default();
    for (j, t) in tys.iter().enumerate() {
        want_rank(op, tys, j, tys[0].rank())?;
        (0..t.rank()).filter(|d| *d != i).try_for_each(|d| want_same(op, tys, (0, d), (j, d)))?;
        size = size.add(t.dims[i].size());
    }
    let mut dims = tys[0].dims.clone();
    dims[i] = Dim::new(size);
    Ok(vec![Ty::new(dtype, dims)])
}

// ---- reductions and contractions ---------------------------------------------------------------

pub(super) fn reduce(op: &Op, tys: &[Ty]) -> Types {
    let (Op::ReduceSum { axes } | Op::ReduceMax { axes }) = op else { return structural(op, tys) };
    unary_number(op, tys)?;
    want_axes(axes, tys[0].rank())?;
    let kept = tys[0].dims.iter().enumerate().filter(|(i, _)| !axes.contains(&(*i as u32)));
    Ok(vec![Ty::new(tys[0].dtype, kept.map(|(_, d)| d.clone()).collect())])
}

pub(super) fn contract(op: &Op, tys: &[Ty]) -> Types {
    let Op::Contract { a_batch, b_batch, a_contract, b_contract, dtype } = op else {
        return structural(op, tys);
    };
    want_float(op, tys, 0)?;
    want_float(op, tys, 1)?;
    same_dtypes(op, tys, 0)?;
    want_float_result(*dtype)?;
    if a_batch.len() != b_batch.len() || a_contract.len() != b_contract.len() {
        return Err(TypeError::new("batch and contracted dims must come in pairs"));
    }
    for (operand, used) in [(0, [a_batch, a_contract]), (1, [b_batch, b_contract])] {
        let mut all: Vec<u32> = used.into_iter().flatten().copied().collect();
        all.sort_unstable();
        if all.windows(2).any(|w| w[0] == w[1]) {
            return Err(TypeError::new("a dim is used twice").at(operand, None));
        }
        all.iter().try_for_each(|a| want_axis(*a, tys[operand].rank()).map(|_| ()))?;
    }
    let pairs = a_batch.iter().zip(b_batch).chain(a_contract.iter().zip(b_contract));
    for (a, b) in pairs {
        want_same(op, tys, (0, *a as usize), (1, *b as usize))?;
    }
    let free = |t: &Ty, batch: &[u32], contracted: &[u32]| -> Vec<Dim> {
        let used = |i: usize| batch.contains(&(i as u32)) || contracted.contains(&(i as u32));
        t.dims.iter().enumerate().filter(|(i, _)| !used(*i)).map(|(_, d)| d.clone()).collect()
    };
    let mut dims: Vec<Dim> = a_batch.iter().map(|i| tys[0].dims[*i as usize].clone()).collect();
    dims.extend(free(&tys[0], a_batch, a_contract));
    dims.extend(free(&tys[1], b_batch, b_contract));
    Ok(vec![Ty::new(*dtype, dims)])
}

pub(super) fn grouped_contract(op: &Op, tys: &[Ty]) -> Types {
    let Op::GroupedContract { transposed } = op else { return structural(op, tys) };
    [2, 3, 1].iter().enumerate().try_for_each(|(i, r)| want_rank(op, tys, i, *r))?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..2], 0)?;
    want_dtype(op, tys, 2, DType::I32)?;
    let (n, k) = if *transposed { (2, 1) } else { (1, 2) };
    want_same(op, tys, (0, 1), (1, k))?;
    want_same(op, tys, (0, 0), (2, 0))?;
    Ok(vec![Ty::new(tys[0].dtype, vec![tys[0].dims[0].clone(), tys[1].dims[n].clone()])])
}

pub(super) fn grouped_outer(op: &Op, tys: &[Ty]) -> Types {
    let Op::GroupedOuter { count, dtype } = op else { return structural(op, tys) };
    [2, 2, 1].iter().enumerate().try_for_each(|(i, r)| want_rank(op, tys, i, *r))?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..2], 0)?;
    want_dtype(op, tys, 2, DType::I32)?;
    want_same(op, tys, (0, 0), (1, 0))?;
    want_same(op, tys, (0, 0), (2, 0))?;
    want_float_result(*dtype)?;
    let dims = vec![count.clone(), tys[0].dims[1].clone(), tys[1].dims[1].clone()];
    Ok(vec![Ty::new(*dtype, dims)])
}

// ---- indexing ----------------------------------------------------------------------------------

pub(super) fn gather(op: &Op, tys: &[Ty]) -> Types {
    want_dtype(op, tys, 1, DType::I32)?;
    if tys[0].rank() == 0 {
        return Err(TypeError::new("`table` must have rows").at(0, None));
    }
    let dims = tys[1].dims.iter().chain(&tys[0].dims[1..]).cloned().collect();
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(super) fn scatter_add(op: &Op, tys: &[Ty]) -> Types {
    let Op::ScatterAdd { count } = op else { return structural(op, tys) };
    want_dtype(op, tys, 0, DType::I32)?;
    want_float(op, tys, 1)?;
    let lead = tys[0].rank();
    if tys[1].rank() < lead {
        return Err(TypeError::new("`rows` has fewer dims than `index`").at(0, None).at(1, None));
    }
    (0..lead).try_for_each(|i| want_same(op, tys, (0, i), (1, i)))?;
    let mut dims = vec![count.clone()];
    dims.extend_from_slice(&tys[1].dims[lead..]);
    Ok(vec![Ty::new(tys[1].dtype, dims)])
}

pub(super) fn top_k(op: &Op, tys: &[Ty]) -> Types {
    let Op::TopK { k } = op else { return structural(op, tys) };
    want_float(op, tys, 0)?;
    let Some(last) = tys[0].dims.last() else {
        return Err(TypeError::new("`x` must have a dim to choose from").at(0, None));
    };
    if last.size().sub(k.size()).as_constant().is_some_and(|room| room < 0) {
        return Err(
            TypeError::new(format!("{k} of {last} cannot be chosen")).at(0, tys[0].rank() - 1)
        );
    }
    let mut dims = tys[0].dims.clone();
    dims.pop();
    dims.push(k.clone());
    Ok(vec![Ty::new(tys[0].dtype, dims.clone()), Ty::new(DType::I32, dims)])
}

// ---- sequences ---------------------------------------------------------------------------------

/// Operands `at` and `at + 1` are the valid and the padded boundaries of one list of segments.
/// Returns the number of segments.
fn want_boundaries(op: &Op, tys: &[Ty], at: usize) -> Result<Poly, TypeError> {
    for i in [at, at + 1] {
        want_rank(op, tys, i, 1)?;
        want_dtype(op, tys, i, DType::I32)?;
    }
    want_same(op, tys, (at, 0), (at + 1, 0))?;
    Ok(tys[at].dims[0].size().sub(&1.into()))
}

pub(super) fn row_valid(op: &Op, tys: &[Ty]) -> Types {
    let Op::RowValid { rows } = op else { return structural(op, tys) };
    want_boundaries(op, tys, 0)?;
    Ok(vec![Ty::new(DType::Bool, vec![rows.clone()])])
}

pub(super) fn segment_shift(op: &Op, tys: &[Ty]) -> Types {
    let Op::SegmentShift { fill, .. } = op else { return structural(op, tys) };
    want_value(tys[0].dtype, fill.0)?;
    want_boundaries(op, tys, 1)?;
    if tys[0].rank() == 0 {
        return Err(TypeError::new("`x` must have rows").at(0, None));
    }
    same(op, tys)
}

pub(super) fn causal_conv1d(op: &Op, tys: &[Ty]) -> Types {
    want_rank(op, tys, 0, 2)?;
    want_rank(op, tys, 1, 2)?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..2], 0)?;
    want_same(op, tys, (0, 1), (1, 0))?;
    want_boundaries(op, tys, 2)?;
    same(op, tys)
}

pub(super) fn causal_conv1d_weight_grad(op: &Op, tys: &[Ty]) -> Types {
    let Op::CausalConv1dWeightGrad { taps, dtype } = op else { return structural(op, tys) };
    want_rank(op, tys, 0, 2)?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..2], 0)?;
    same_shapes(op, &tys[..2], 0)?;
    want_boundaries(op, tys, 2)?;
    want_float_result(*dtype)?;
    Ok(vec![Ty::new(*dtype, vec![tys[0].dims[1].clone(), taps.clone()])])
}

/// Heads of `few` must divide those of `many`, where both are known.
fn want_grouped_heads(op: &Op, tys: &[Ty], many: usize, few: usize) -> Result<(), TypeError> {
    let (m, f) = (&tys[many].dims[1], &tys[few].dims[1]);
    let bad = match (m.size().as_constant(), f.size().as_constant()) {
        (Some(m), Some(f)) => f == 0 || m % f != 0,
        _ => false,
    };
    if !bad {
        return Ok(());
    }
    Err(TypeError::new(format!(
        "{m} heads of `{}` are no multiple of {f} heads of `{}`",
        name(op, many),
        name(op, few)
    ))
    .at(many, 1)
    .at(few, 1))
}

pub(super) fn gated_delta_rule(op: &Op, tys: &[Ty]) -> Types {
    const Q: usize = 0;
    const K: usize = 1;
    const V: usize = 2;
    const G: usize = 3;
    const BETA: usize = 4;
    [3, 3, 3, 2, 2].iter().enumerate().try_for_each(|(i, r)| want_rank(op, tys, i, *r))?;
    (0..5).try_for_each(|i| want_float(op, tys, i))?;
    (1..5).try_for_each(|i| want_same(op, tys, (Q, 0), (i, 0)))?;
    want_same(op, tys, (Q, 1), (K, 1))?;
    want_same(op, tys, (Q, 2), (K, 2))?;
    want_same(op, tys, (V, 1), (G, 1))?;
    want_same(op, tys, (V, 1), (BETA, 1))?;
    want_grouped_heads(op, tys, V, K)?;
    want_dtype(op, tys, G, DType::F32)?;
    let segments = want_boundaries(op, tys, 5)?;
    let state = Ty::new(
        DType::F32,
        vec![
            Dim::new(segments),
            tys[V].dims[1].clone(),
            tys[K].dims[2].clone(),
            tys[V].dims[2].clone(),
        ],
    );
    if let Some(given) = tys.get(7)
        && (!given.same_shape(&state) || given.dtype != DType::F32)
    {
        return Err(TypeError::new(format!("`state` must be {state}, not {given}")).at(7, None));
    }
    Ok(vec![tys[V].clone(), state])
}

pub(super) fn attention(op: &Op, tys: &[Ty]) -> Types {
    (0..3).try_for_each(|i| want_rank(op, tys, i, 3))?;
    want_float(op, tys, 0)?;
    same_dtypes(op, &tys[..3], 0)?;
    (1..3).try_for_each(|i| want_same(op, tys, (0, 0), (i, 0)))?;
    want_same(op, tys, (0, 2), (1, 2))?;
    want_same(op, tys, (1, 1), (2, 1))?;
    want_grouped_heads(op, tys, 0, 1)?;
    want_boundaries(op, tys, 3)?;
    let rows = &tys[0].dims;
    let y = vec![rows[0].clone(), rows[1].clone(), tys[2].dims[2].clone()];
    Ok(vec![Ty::new(tys[0].dtype, y), Ty::new(DType::F32, rows[..2].to_vec())])
}

// ---- communication -----------------------------------------------------------------------------

mod mesh {
    use super::{Op, TypeError, Types, structural};
    use crate::ty::{DimSharding, MeshAxis, Sharding, Ty};

    fn dims_of(ty: &Ty) -> Vec<DimSharding> {
        (0..ty.rank()).map(|i| ty.sharding.dim(i).cloned().unwrap_or_default()).collect()
    }

    fn without_partial(ty: &Ty, axes: &[MeshAxis]) -> Result<Vec<MeshAxis>, TypeError> {
        let owed = ty.sharding.partial();
        if let Some(a) = axes.iter().find(|a| !owed.contains(a)) {
            return Err(TypeError::new(format!("no sum over {} is owed", a.name())).at(0, None));
        }
        Ok(owed.iter().copied().filter(|a| !axes.contains(a)).collect())
    }

    fn undivide(
        ty: &Ty,
        dims: &mut [DimSharding],
        i: u32,
        axis: MeshAxis,
    ) -> Result<(), TypeError> {
        let d = dims.get_mut(i as usize);
        match d {
            Some(d) if d.axes.last() == Some(&axis) => {
                d.axes.pop();
                if d.axes.is_empty() {
                    *d = DimSharding::default();
                }
                Ok(())
            }
            _ => Err(TypeError::new(format!("{} does not divide dim {i} of {ty}", axis.name()))
                .at(0, i as usize)),
        }
    }

    fn divide(ty: &Ty, dims: &mut [DimSharding], i: u32, axis: MeshAxis) -> Result<(), TypeError> {
        match dims.get_mut(i as usize) {
            Some(d) => {
                d.axes.push(axis);
                Ok(())
            }
            None => Err(TypeError::new(format!("there is no dim {i} in {ty}")).at(0, None)),
        }
    }

    pub(in super::super) fn all_reduce(op: &Op, tys: &[Ty]) -> Types {
        let Op::AllReduce { axes } = op else { return structural(op, tys) };
        let partial = without_partial(&tys[0], axes)?;
        let sharding = Sharding::new(dims_of(&tys[0]), partial);
        Ok(vec![Ty { sharding, ..tys[0].clone() }])
    }

    pub(in super::super) fn all_gather(op: &Op, tys: &[Ty]) -> Types {
        let Op::AllGather { axis, dim } = op else { return structural(op, tys) };
        let mut dims = dims_of(&tys[0]);
        undivide(&tys[0], &mut dims, *dim, *axis)?;
        let sharding = Sharding::new(dims, tys[0].sharding.partial().to_vec());
        Ok(vec![Ty { sharding, ..tys[0].clone() }])
    }

    pub(in super::super) fn reduce_scatter(op: &Op, tys: &[Ty]) -> Types {
        let Op::ReduceScatter { axis, dim } = op else { return structural(op, tys) };
        let partial = without_partial(&tys[0], &[*axis])?;
        let mut dims = dims_of(&tys[0]);
        divide(&tys[0], &mut dims, *dim, *axis)?;
        Ok(vec![Ty { sharding: Sharding::new(dims, partial), ..tys[0].clone() }])
    }

    pub(in super::super) fn all_to_all(op: &Op, tys: &[Ty]) -> Types {
        let Op::AllToAll { axis, split, gather } = op else { return structural(op, tys) };
        let mut dims = dims_of(&tys[0]);
        undivide(&tys[0], &mut dims, *gather, *axis)?;
        divide(&tys[0], &mut dims, *split, *axis)?;
        let sharding = Sharding::new(dims, tys[0].sharding.partial().to_vec());
        Ok(vec![Ty { sharding, ..tys[0].clone() }])
    }
}
pub(super) use mesh::{all_gather, all_reduce, all_to_all, reduce_scatter};
