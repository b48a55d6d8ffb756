//! Exchange between ranks. Types are those of one rank.

use super::{Op, TypeError, Types, structural};
use crate::dim::{Dim, Poly};
use crate::ty::Ty;

/// Dim `i` with each of its segments divided by `ranks`, or multiplied.
fn scaled(ty: &Ty, i: u32, ranks: u32, divide: bool) -> Result<Dim, TypeError> {
    let error = |message| TypeError::new(message).at(0, None);
    if ranks == 0 {
        return Err(error("there are no ranks".to_string()));
    }
    let dim = ty.dims.get(i as usize);
    let dim = dim.ok_or_else(|| error(format!("there is no dim {i} in {ty}")))?;
    let by = Poly::constant(i64::from(ranks));
    let change = |p: &Poly| if divide { p.div_evident(&by) } else { Some(p.mul(&by)) };
    dim.try_map(&change).ok_or_else(|| {
        TypeError::new(format!("{ranks} ranks do not divide dim {i} of {ty}")).at(0, i as usize)
    })
}

fn with(ty: &Ty, i: u32, dim: Dim) -> Ty {
    let mut ty = ty.clone();
    if let Some(d) = ty.dims.get_mut(i as usize) {
        *d = dim;
    }
    ty
}

pub(in crate::ops) fn all_gather(op: &Op, tys: &[Ty]) -> Types {
    let Op::AllGather { ranks, dim, .. } = op else { return structural(op, tys) };
    Ok(vec![with(&tys[0], *dim, scaled(&tys[0], *dim, *ranks, false)?)])
}

pub(in crate::ops) fn reduce_scatter(op: &Op, tys: &[Ty]) -> Types {
    let Op::ReduceScatter { ranks, dim, .. } = op else { return structural(op, tys) };
    Ok(vec![with(&tys[0], *dim, scaled(&tys[0], *dim, *ranks, true)?)])
}

pub(in crate::ops) fn all_to_all(op: &Op, tys: &[Ty]) -> Types {
    let Op::AllToAll { ranks, split, gather, .. } = op else { return structural(op, tys) };
    if split == gather {
        let message = format!("dim {split} is both split and gathered");
        return Err(TypeError::new(message).at(0, None));
    }
    let narrow = with(&tys[0], *split, scaled(&tys[0], *split, *ranks, true)?);
    Ok(vec![with(&narrow, *gather, scaled(&tys[0], *gather, *ranks, false)?)])
}

pub(in crate::ops) fn shard(op: &Op, tys: &[Ty]) -> Types {
    let Op::Shard { ranks, dim, .. } = op else { return structural(op, tys) };
    Ok(vec![with(&tys[0], *dim, scaled(&tys[0], *dim, *ranks, true)?)])
}

pub(in crate::ops) fn unshard(op: &Op, tys: &[Ty]) -> Types {
    let Op::Unshard { ranks, dim, .. } = op else { return structural(op, tys) };
    Ok(vec![with(&tys[0], *dim, scaled(&tys[0], *dim, *ranks, false)?)])
}
