//! What an element of a value is made of: one step back through the body of a cluster.

use super::Refusal;
use super::index::{Ix, Var};
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::graph::{Function, Value};
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;

/// An element: of which value, and where.
pub(crate) type At = (Value, Vec<Ix>);

/// One step back from an element.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The same element of another value.
    Same(At),
    /// Arithmetic on one element of each operand.
    Map(Vec<At>),
    /// An element of an input, by its offset.
    Input {
        input: u32,
        offset: Offset,
    },
    Constant(f64),
    /// The number that an index is.
    Index(Ix),
    /// The element where the index is in `0..size`, else zero.
    Within {
        index: Ix,
        size: i64,
        then: At,
    },
    /// The first part whose end is above the index.
    Parts {
        index: Ix,
        parts: Vec<(i64, At)>,
    },
    /// Sum or maximum over `extent` elements of axes other than that of rows: `at(j)` is one.
    Fold {
        of: Value,
        kept: Vec<Ix>,
        axes: Vec<usize>,
    },
    /// Sum over rows.
    RowSum,
    /// Rows of `x` before and after this one: `x[t + by]` for each, with what multiplies it.
    Stencil {
        x: Value,
        index: Vec<Ix>,
        taps: Vec<(i64, At)>,
    },
    /// `x[t + by]` in the same document, else the number.
    Shift {
        x: At,
        by: i64,
        fill: f64,
    },
    /// Whether the row is valid.
    Valid {
        row: Ix,
    },
}

/// An offset in elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Offset {
    /// The row, where the value has rows outermost, and elements of a row.
    pub(crate) row: Option<(Ix, i64)>,
    pub(crate) rest: Ix,
}

/// A cluster's function with what the kernel generator asks of it.
pub(crate) struct Body<'f> {
    pub(crate) f: &'f Function,
}

/// A size that is known when compiling.
pub(crate) fn fixed(d: &Dim) -> Option<i64> {
    d.size().as_constant()
}

impl<'f> Body<'f> {
    pub(crate) fn dims(&self, v: Value) -> &'f [Dim] {
        &self.f.ty(v).dims
    }

    pub(crate) fn dtype(&self, v: Value) -> DType {
        self.f.ty(v).dtype
    }

    pub(crate) fn op(&self, v: Value) -> &'f Op {
        &self.f.node(v.node).op
    }

    pub(crate) fn refuse(&self, v: Value, why: impl Into<String>) -> Refusal {
        let node = self.f.node(v.node);
        Refusal {
            op: node.op.name().to_string(),
            origin: node.origins.first().cloned(),
            reason: why.into(),
        }
    }

    /// Whether the outermost dim of a value counts rows.
    pub(crate) fn has_rows(&self, v: Value) -> bool {
        self.dims(v).iter().any(|d| fixed(d).is_none())
    }

    /// Whether the op sums over rows.
    pub(crate) fn sums_rows(&self, v: Value) -> bool {
        match self.op(v) {
            Op::CausalConv1dWeightGrad { .. } => true,
            Op::ReduceSum { axes } | Op::ReduceMax { axes } => {
                let x = self.f.node(v.node).operands[0];
                axes.contains(&0) && self.dims(x).first().is_some_and(|d| fixed(d).is_none())
            }
            _ => false,
        }
    }

    /// Elements of all dims but the first.
    ///
    /// # Errors
    /// When one of them is known only when running.
    pub(crate) fn inner(&self, v: Value) -> Result<i64, Refusal> {
        self.extent(v, self.dims(v).get(1..).unwrap_or_default())
    }

    /// Elements of these dims.
    pub(crate) fn extent(&self, v: Value, dims: &[Dim]) -> Result<i64, Refusal> {
        dims.iter().try_fold(1, |n, d| {
            let d = fixed(d).ok_or_else(|| {
                self.refuse(v, format!("`{d}` elements in a row are known only when running"))
            })?;
            Ok(n * d)
        })
    }

    /// The index with these dims of element `flat` of a row-major tensor.
    pub(crate) fn unflatten(
        &self,
        v: Value,
        mut flat: Ix,
        dims: &[Dim],
    ) -> Result<Vec<Ix>, Refusal> {
        let mut out = vec![];
        for (i, d) in dims.iter().enumerate().rev() {
            if i == 0 {
                out.push(flat);
                break;
            }
            match fixed(d) {
                Some(n) => {
                    let (q, r) = flat.split(n);
                    out.push(r);
                    flat = q;
                }
                // A row alone: below it there is nothing to divide.
                None if flat.as_row().is_some()
                    && dims[..i].iter().all(|d| fixed(d) == Some(1)) =>
                {
                    out.push(std::mem::take(&mut flat));
                }
                None => return Err(self.refuse(v, "rows are not outermost")),
            }
        }
        out.reverse();
        Ok(out)
    }

    /// Row-major offset of an index.
    pub(crate) fn flatten(&self, v: Value, index: &[Ix], dims: &[Dim]) -> Result<Ix, Refusal> {
        let mut stride = Poly::constant(1);
        let mut out = Ix::default();
        for (i, d) in index.iter().zip(dims).rev() {
            let term = match (stride.as_constant(), i.as_constant()) {
                (Some(s), _) => i.times(s),
                (None, Some(0)) => Ix::default(),
                (None, Some(k)) => match stride.as_linear() {
                    Some((symbol, a, b)) => {
                        Ix::var(Var::Size(symbol.clone())).times(a * k).add(b * k)
                    }
                    None => return Err(self.refuse(v, "rows are not outermost")),
                },
                _ => return Err(self.refuse(v, "rows are not outermost")),
            };
            out = out.plus(&term);
            stride = stride.mul(d.size());
        }
        Ok(out)
    }

    /// One step back from an element.
    ///
    /// # Errors
    /// Says what a row program cannot do.
    pub(crate) fn step(&self, v: Value, index: &[Ix]) -> Result<Step, Refusal> {
        let node = self.f.node(v.node);
        let operand = |i: usize| node.operands[i];
        let same = |i: usize, index: Vec<Ix>| Step::Same((operand(i), index));
        Ok(match &node.op {
            Op::Input { index: input } => {
                let dims = self.dims(v);
                let row = match (index.first(), dims.first()) {
                    (Some(row), Some(_)) if row.as_row().is_some() => {
                        Some((row.clone(), self.inner(v)?))
                    }
                    _ => None,
                };
                let from = usize::from(row.is_some());
                let rest = self.flatten(v, &index[from..], &dims[from..])?;
                Step::Input { input: *input, offset: Offset { row, rest } }
            }
            Op::Constant { value, .. } => Step::Constant(value.0),
            Op::Iota { axis, .. } => Step::Index(index[*axis as usize].clone()),
            Op::Reshape { .. } => {
                let x = operand(0);
                let flat = self.flatten(v, index, self.dims(v))?;
                same(0, self.unflatten(x, flat, self.dims(x))?)
            }
            Op::Transpose { permutation } => {
                let mut at = vec![Ix::default(); index.len()];
                for (i, p) in permutation.iter().enumerate() {
                    at[*p as usize] = index[i].clone();
                }
                same(0, at)
            }
            Op::Broadcast { dims, .. } => {
                let x = self.dims(operand(0));
                let at = x.iter().zip(dims).map(|(d, i)| match fixed(d) {
                    Some(1) => Ix::default(),
                    _ => index[*i as usize].clone(),
                });
                same(0, at.collect())
            }
            Op::Repeat { axis, times } => {
                let times = fixed(times).ok_or_else(|| {
                    self.refuse(v, "repeats a number of times known only when running")
                })?;
                let mut at = index.to_vec();
                at[*axis as usize] = at[*axis as usize].split(times).0;
                same(0, at)
            }
            Op::Slice { axis, start, .. } => {
                let start = fixed(start)
                    .ok_or_else(|| self.refuse(v, "starts where it is known only when running"))?;
                let mut at = index.to_vec();
                at[*axis as usize] = at[*axis as usize].add(start);
                same(0, at)
            }
            Op::Pad { axis, before, .. } => {
                let axis = *axis as usize;
                let size = fixed(&self.dims(operand(0))[axis]);
                let (Some(before), Some(size)) = (fixed(before), size) else {
                    return Err(self.refuse(v, "pads rows"));
                };
                let mut at = index.to_vec();
                at[axis] = at[axis].add(-before);
                let index = at[axis].clone();
                match index.bounds() {
                    Some((lo, hi)) if lo >= 0 && hi < size => same(0, at),
                    Some((lo, hi)) if hi < 0 || lo >= size => Step::Constant(0.0),
                    _ => Step::Within { index, size, then: (operand(0), at) },
                }
            }
            Op::Concat { axis } => {
                let axis = *axis as usize;
                let (mut end, mut parts) = (0, vec![]);
                for x in &node.operands {
                    let size =
                        fixed(&self.dims(*x)[axis]).ok_or_else(|| self.refuse(v, "joins rows"))?;
                    let mut at = index.to_vec();
                    at[axis] = at[axis].add(-end);
                    let bounds = at[axis].bounds();
                    end += size;
                    match bounds {
                        Some((lo, hi)) if lo >= 0 && hi < size => return Ok(Step::Same((*x, at))),
                        Some((lo, hi)) if hi < 0 || lo >= size => {}
                        _ => parts.push((end, (*x, at))),
                    }
                }
                Step::Parts { index: index[axis].clone(), parts }
            }
            Op::StopGradient => same(0, index.to_vec()),
            _ if self.sums_rows(v) => Step::RowSum,
            Op::ReduceSum { axes } | Op::ReduceMax { axes } => {
                let axes = axes.iter().map(|a| *a as usize).collect();
                Step::Fold { of: operand(0), kept: index.to_vec(), axes }
            }
            Op::CausalConv1d => {
                let (w, taps) = self.weights(v, operand(1))?;
                let taps =
                    (0..taps).map(|j| (j - taps + 1, (w, vec![index[1].clone(), Ix::constant(j)])));
                Step::Stencil { x: operand(0), index: index.to_vec(), taps: taps.collect() }
            }
            Op::CausalConv1dInputGrad => {
                let (w, taps) = self.weights(v, operand(1))?;
                let taps =
                    (0..taps).map(|m| (m, (w, vec![index[1].clone(), Ix::constant(taps - 1 - m)])));
                Step::Stencil { x: operand(0), index: index.to_vec(), taps: taps.collect() }
            }
            Op::SegmentShift { by, fill } => {
                let mut at = index.to_vec();
                at[0] = at[0].add(*by);
                Step::Shift { x: (operand(0), at), by: *by, fill: fill.0 }
            }
            Op::RowValid { .. } => Step::Valid { row: index[0].clone() },
            op if op.info().class == vlmc_ir::ops::Class::Elementwise => {
                Step::Map(node.operands.iter().map(|x| (*x, index.to_vec())).collect())
            }
            op => {
                return Err(self.refuse(v, format!("`{}` is no part of a row program", op.name())));
            }
        })
    }

    fn weights(&self, v: Value, w: Value) -> Result<(Value, i64), Refusal> {
        let taps = self.dims(w).get(1).and_then(fixed);
        taps.map(|t| (w, t)).ok_or_else(|| self.refuse(v, "taps are known only when running"))
    }

    /// The index of `of` at element `j` of the axes that a fold drops.
    pub(crate) fn unfold(
        &self,
        of: Value,
        kept: &[Ix],
        axes: &[usize],
        j: Ix,
    ) -> Result<Vec<Ix>, Refusal> {
        let dims = self.dims(of);
        let dropped: Vec<Dim> = axes.iter().map(|a| dims[*a].clone()).collect();
        let inner = self.unflatten(of, j, &dropped)?;
        let (mut kept, mut inner) = (kept.iter(), inner.into_iter());
        let at = (0..dims.len()).map(|i| {
            let next = if axes.contains(&i) { inner.next() } else { kept.next().cloned() };
            next.unwrap_or_default()
        });
        Ok(at.collect())
    }

    /// Elements that a fold goes over.
    pub(crate) fn folded(&self, of: Value, axes: &[usize]) -> Result<i64, Refusal> {
        let dims: Vec<Dim> = axes.iter().map(|a| self.dims(of)[*a].clone()).collect();
        self.extent(of, &dims)
    }
}
