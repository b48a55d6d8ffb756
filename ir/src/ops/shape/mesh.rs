//! Exchange between ranks.

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

fn undivide(ty: &Ty, dims: &mut [DimSharding], i: u32, axis: MeshAxis) -> Result<(), TypeError> {
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

pub(in crate::ops) fn all_reduce(op: &Op, tys: &[Ty]) -> Types {
    let Op::AllReduce { axes } = op else { return structural(op, tys) };
    let partial = without_partial(&tys[0], axes)?;
    let sharding = Sharding::new(dims_of(&tys[0]), partial);
    Ok(vec![Ty { sharding, ..tys[0].clone() }])
}

pub(in crate::ops) fn all_gather(op: &Op, tys: &[Ty]) -> Types {
    let Op::AllGather { axis, dim } = op else { return structural(op, tys) };
    let mut dims = dims_of(&tys[0]);
    undivide(&tys[0], &mut dims, *dim, *axis)?;
    let sharding = Sharding::new(dims, tys[0].sharding.partial().to_vec());
    Ok(vec![Ty { sharding, ..tys[0].clone() }])
}

pub(in crate::ops) fn reduce_scatter(op: &Op, tys: &[Ty]) -> Types {
    let Op::ReduceScatter { axis, dim } = op else { return structural(op, tys) };
    let partial = without_partial(&tys[0], &[*axis])?;
    let mut dims = dims_of(&tys[0]);
    divide(&tys[0], &mut dims, *dim, *axis)?;
    Ok(vec![Ty { sharding: Sharding::new(dims, partial), ..tys[0].clone() }])
}

pub(in crate::ops) fn all_to_all(op: &Op, tys: &[Ty]) -> Types {
    let Op::AllToAll { axis, split, gather } = op else { return structural(op, tys) };
    let mut dims = dims_of(&tys[0]);
    undivide(&tys[0], &mut dims, *gather, *axis)?;
    divide(&tys[0], &mut dims, *split, *axis)?;
    let sharding = Sharding::new(dims, tys[0].sharding.partial().to_vec());
    Ok(vec![Ty { sharding, ..tys[0].clone() }])
}
