//! Arrangement of elements, reductions and contractions.

use super::{
    Op, TypeError, Types, same_dtypes, structural, unary_number, want_axes, want_axis, want_dtype,
    want_float, want_float_result, want_rank, want_same, want_sizes,
};
use crate::dim::{Dim, Poly, product};
use crate::ty::{DType, Ty};

// ---- movement ----------------------------------------------------------------------------------

pub(in crate::ops) fn reshape(op: &Op, tys: &[Ty]) -> Types {
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

pub(in crate::ops) fn transpose(op: &Op, tys: &[Ty]) -> Types {
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

pub(in crate::ops) fn broadcast(op: &Op, tys: &[Ty]) -> Types {
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

pub(in crate::ops) fn repeat(op: &Op, tys: &[Ty]) -> Types {
    let Op::Repeat { axis, times } = op else { return structural(op, tys) };
    let i = want_axis(*axis, tys[0].rank())?;
    let mut dims = tys[0].dims.clone();
    dims[i] = Dim::new(dims[i].size().mul(times.size()));
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(in crate::ops) fn slice(op: &Op, tys: &[Ty]) -> Types {
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

pub(in crate::ops) fn pad(op: &Op, tys: &[Ty]) -> Types {
    let Op::Pad { axis, before, after } = op else { return structural(op, tys) };
    let i = want_axis(*axis, tys[0].rank())?;
    want_sizes(&[before.clone(), after.clone()])?;
    let mut dims = tys[0].dims.clone();
    dims[i] = Dim::new(before.size().add(dims[i].size()).add(after.size()));
    Ok(vec![Ty::new(tys[0].dtype, dims)])
}

pub(in crate::ops) fn concat(op: &Op, tys: &[Ty]) -> Types {
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

pub(in crate::ops) fn reduce(op: &Op, tys: &[Ty]) -> Types {
    let (Op::ReduceSum { axes } | Op::ReduceMax { axes }) = op else { return structural(op, tys) };
    unary_number(op, tys)?;
    want_axes(axes, tys[0].rank())?;
    let kept = tys[0].dims.iter().enumerate().filter(|(i, _)| !axes.contains(&(*i as u32)));
    Ok(vec![Ty::new(tys[0].dtype, kept.map(|(_, d)| d.clone()).collect())])
}

pub(in crate::ops) fn contract(op: &Op, tys: &[Ty]) -> Types {
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

pub(in crate::ops) fn grouped_contract(op: &Op, tys: &[Ty]) -> Types {
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

pub(in crate::ops) fn grouped_outer(op: &Op, tys: &[Ty]) -> Types {
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
