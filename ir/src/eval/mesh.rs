//! Exchange between ranks: what one of them gets from what all of them have.

use super::{Call, EvalError, EvalResult, Real, Shape, Sizes, Tensor};
use crate::dim::Dim;
use crate::ops::Op;
use crate::ty::{DType, Ty};

/// A mesh of one rank. Where there are more, whoever runs all of them puts their parts together with
/// [`combine`].
pub(crate) fn collective<R: Real>(call: &Call<'_, R>) -> EvalResult<R> {
    match ranks(call.op) {
        Some(1) => Ok(vec![call.input(0)?.clone()]),
        Some(n) => Err(EvalError::new(format!(
            "`{}` is an exchange of {n} ranks, and this evaluation is of one",
            call.op.name()
        ))),
        None => Err(EvalError::new(format!("`{}` is no exchange", call.op.name()))),
    }
}

/// The number of ranks of an exchange.
pub fn ranks(op: &Op) -> Option<u32> {
    match op {
        Op::AllReduce { ranks, .. }
        | Op::AllGather { ranks, .. }
        | Op::ReduceScatter { ranks, .. }
        | Op::AllToAll { ranks, .. }
        | Op::Shard { ranks, .. }
        | Op::Unshard { ranks, .. } => Some(*ranks),
        _ => None,
    }
}

/// What rank `at` gets when rank `i` has `parts[i]` of type `ty`: the meaning of the exchanges. Sums
/// are made in the order of ranks. An op that is no collective reads `parts[at]` alone.
///
/// # Errors
/// When the parts are not those of the op.
pub fn combine<R: Real>(
    op: &Op,
    ty: &Ty,
    result: &Shape,
    parts: &[&Tensor<R>],
    at: usize,
    sizes: &Sizes,
) -> Result<Tensor<R>, EvalError> {
    let own = *parts.get(at).ok_or_else(|| EvalError::new(format!("there is no rank {at}")))?;
    let segments = |i: u32| -> Result<Segments, EvalError> {
        let dim = ty.dims.get(i as usize);
        let dim = dim.ok_or_else(|| EvalError::new(format!("there is no dim {i}")))?;
        Segments::new(dim, i as usize, sizes)
    };
    match op {
        Op::AllReduce { .. } => sum(parts),
        Op::AllGather { dim, .. } => segments(*dim)?.join(result, parts),
        Op::ReduceScatter { ranks, dim, .. } => {
            segments(*dim)?.part(&sum(parts)?, result, at, *ranks as usize)
        }
        Op::AllToAll { ranks, split, gather, .. } => {
            let (from, ranks) = (segments(*split)?, *ranks as usize);
            let mut narrow = own.shape();
            narrow.dims[*split as usize] /= ranks.max(1);
            let taken = parts.iter().map(|p| from.part(p, &narrow, at, ranks));
            let taken: Vec<Tensor<R>> = taken.collect::<Result<_, _>>()?;
            segments(*gather)?.join(result, &taken.iter().collect::<Vec<_>>())
        }
        Op::Shard { ranks, dim, .. } => segments(*dim)?.part(own, result, at, *ranks as usize),
        Op::Unshard { ranks, dim, .. } => {
            let zeros = Tensor::zeros(own.dtype, own.dims.clone())?;
            let parts: Vec<&Tensor<R>> =
                (0..*ranks as usize).map(|r| if r == at { own } else { &zeros }).collect();
            segments(*dim)?.join(result, &parts)
        }
        _ => Err(EvalError::new(format!("`{}` is no exchange", op.name()))),
    }
}

fn sum<R: Real>(parts: &[&Tensor<R>]) -> Result<Tensor<R>, EvalError> {
    let (first, rest) = parts.split_first().ok_or_else(|| EvalError::new("no parts"))?;
    if let Some(other) = rest.iter().find(|p| p.dims != first.dims) {
        return Err(EvalError::new(format!("parts are {:?} and {:?}", first.dims, other.dims)));
    }
    if first.dtype == DType::I32 {
        let mut total = first.as_ints()?.to_vec();
        for p in rest {
            total.iter_mut().zip(p.as_ints()?).for_each(|(a, b)| *a += b);
        }
        return Tensor::ints(first.dims.clone(), total);
    }
    let mut total = first.as_floats()?.to_vec();
    for p in rest {
        for (a, b) in total.iter_mut().zip(p.as_floats()?) {
            *a += *b;
        }
    }
    Tensor::floats(first.dtype, first.dims.clone(), total)
}

/// A dim and the sizes of its segments, or of the one that it is.
struct Segments {
    dim: usize,
    sizes: Vec<usize>,
}

impl Segments {
    fn new(dim: &Dim, i: usize, sizes: &Sizes) -> Result<Self, EvalError> {
        let sizes = match dim.segments() {
            [] => vec![sizes.eval(dim)?],
            many => many
                .iter()
                .map(|(_, p)| sizes.eval(&Dim::new(p.clone())))
                .collect::<Result<_, _>>()?,
        };
        Ok(Segments { dim: i, sizes })
    }

    /// Elements outside and inside of one index of the dim.
    fn around(&self, dims: &[usize]) -> (usize, usize) {
        let inner = dims.iter().skip(self.dim + 1).product();
        (dims.iter().take(self.dim).product(), inner)
    }

    /// Part `at` of `ranks` of each segment of `x`.
    fn part<R: Real>(
        &self,
        x: &Tensor<R>,
        result: &Shape,
        at: usize,
        ranks: usize,
    ) -> Result<Tensor<R>, EvalError> {
        let (outer, inner) = self.around(&x.dims);
        let size: usize = self.sizes.iter().sum();
        let mut runs = vec![];
        for o in 0..outer {
            let mut start = 0;
            for s in &self.sizes {
                let part = s / ranks.max(1);
                runs.push((0, (o * size + start + at * part) * inner, part * inner));
                start += s;
            }
        }
        collect(result, &[x], &runs)
    }

    /// The parts of all ranks, of which each has these segments, side by side in each segment.
    fn join<R: Real>(&self, result: &Shape, parts: &[&Tensor<R>]) -> Result<Tensor<R>, EvalError> {
        let (outer, inner) = self.around(&result.dims);
        let size: usize = self.sizes.iter().sum();
        let mut runs = vec![];
        for o in 0..outer {
            let mut start = 0;
            for s in &self.sizes {
                let at = (o * size + start) * inner;
                runs.extend((0..parts.len()).map(|p| (p, at, s * inner)));
                start += s;
            }
        }
        collect(result, parts, &runs)
    }
}

/// Runs of elements one after the other: which part, from where, how many.
fn collect<R: Real>(
    result: &Shape,
    parts: &[&Tensor<R>],
    runs: &[(usize, usize, usize)],
) -> Result<Tensor<R>, EvalError> {
    fn pick<T: Copy>(parts: &[&[T]], runs: &[(usize, usize, usize)]) -> Result<Vec<T>, EvalError> {
        let mut out = vec![];
        for (part, at, n) in runs {
            let run = parts.get(*part).and_then(|p| p.get(*at..at + n));
            let run = run.ok_or_else(|| EvalError::new("a part is smaller than its type"))?;
            out.extend_from_slice(run);
        }
        Ok(out)
    }
    let dims = result.dims.clone();
    match result.dtype {
        DType::I32 => {
            let parts = parts.iter().map(|p| p.as_ints()).collect::<Result<Vec<_>, _>>()?;
            Tensor::ints(dims, pick(&parts, runs)?)
        }
        DType::Bool => {
            let parts = parts.iter().map(|p| p.as_bools()).collect::<Result<Vec<_>, _>>()?;
            Tensor::bools(dims, pick(&parts, runs)?)
        }
        dtype => {
            let parts = parts.iter().map(|p| p.as_floats()).collect::<Result<Vec<_>, _>>()?;
            Tensor::floats(dtype, dims, pick(&parts, runs)?)
        }
    }
}
