//! Which divided operands an op takes, and how its results lie.
//!
//! 1. Elementwise: every operand lies alike. A sum that is owed passes only through ops that are
//!    linear in all operands that owe it.
//! 2. Communication: its own shape rule changes the sharding.
//! 3. Attention and the delta rule work head by head: everything but the boundaries may have its
//!    heads divided, all alike, and so are the results. Query heads stay with their key heads where
//!    the axis divides both numbers, which whoever chooses the axis sees to.
//! 4. A row of attention sees one row of `q`. So `q` and what has a row for each of its own may be
//!    divided along the rows, in any order, where `k` and `v` are whole. What a rank has of the
//!    gradients of `k` and `v` is then a part of a sum.
//! 5. Every other op takes whole tensors. A lowering that wants one divided says so with a
//!    collective, which is how a missing one is found.

use super::{Class, Op, TypeError};
use crate::ty::{DimSharding, Order, Sharding, Ty};

/// Where the operands of attention and of its gradient have `k` and `v`.
const KEYS_AND_VALUES: [usize; 2] = [1, 2];

pub(super) fn check(op: &Op, operands: &[Ty]) -> Result<(), TypeError> {
    let Some(divided) = operands.iter().position(|t| !t.sharding.is_replicated()) else {
        return Ok(());
    };
    let error =
        |message: String| Err(TypeError { message, places: vec![(divided, None)], help: None });
    match op.info().class {
        Class::Communication | Class::Structure => Ok(()),
        Class::Elementwise => {
            let first = &operands[0].sharding;
            if let Some(other) = operands.iter().find(|t| t.sharding != *first) {
                return error(format!("operands lie differently: {} and {other}", operands[0]));
            }
            let linear = matches!(op, Op::Add | Op::Sub | Op::Neg);
            if !linear && !first.partial().is_empty() {
                return error(format!("a sum is still owed: {}", operands[0]));
            }
            Ok(())
        }
        _ if way(op, operands).is_some() => Ok(()),
        _ => {
            let also = match (by_heads(op), by_rows(op)) {
                (true, true) => " or heads or rows of `q` divided alike",
                (true, false) => " or heads divided alike",
                _ => "",
            };
            let name = op.info().operand_name(divided);
            error(format!("`{name}` takes whole tensors{also}, not {}", operands[divided]))
        }
    }
}

/// Gives results that the shape rule has made whole the sharding that follows from the operands.
pub(super) fn place(op: &Op, operands: &[Ty], results: &mut [Ty]) {
    let Some(way) = way(op, operands) else { return };
    for (i, ty) in results.iter_mut().enumerate() {
        ty.sharding = match &way {
            Way::Heads(d) => along(1, d, ty.rank()),
            Way::Rows(d)
                if matches!(op, Op::AttentionGrad { .. }) && KEYS_AND_VALUES.contains(&i) =>
            {
                Sharding::new(vec![], d.axes.clone())
            }
            Way::Rows(d) => along(0, d, ty.rank()),
        };
    }
}

/// How the operands of a sequence op are divided.
enum Way {
    Heads(DimSharding),
    Rows(DimSharding),
}

fn by_heads(op: &Op) -> bool {
    matches!(op, Op::GatedDeltaRule | Op::GatedDeltaRuleGrad) || by_rows(op)
}

fn by_rows(op: &Op) -> bool {
    matches!(op, Op::Attention { .. } | Op::AttentionGrad { .. })
}

fn along(dim: usize, d: &DimSharding, rank: usize) -> Sharding {
    let mut dims = vec![DimSharding::default(); rank];
    dims[dim] = d.clone();
    Sharding::new(dims, vec![])
}

/// The way in which all operands are divided; `None` when they are whole or there is no such way.
fn way(op: &Op, operands: &[Ty]) -> Option<Way> {
    let q = operands.first().filter(|_| by_heads(op))?;
    let boundaries = |i: usize| op.info().operand_name(i).starts_with("cu_seqlens");
    let all = |dim: usize, d: &DimSharding, whole: &dyn Fn(usize) -> bool| {
        operands.iter().enumerate().all(|(i, t)| match whole(i) {
            true => t.sharding.is_replicated(),
            false => t.rank() > dim && t.sharding == along(dim, d, t.rank()),
        })
    };
    if let Some(d) = q.sharding.dim(1).filter(|d| d.order == Order::Contiguous) {
        return all(1, d, &boundaries).then(|| Way::Heads(d.clone()));
    }
    let d = q.sharding.dim(0).filter(|_| by_rows(op))?;
    let whole = |i: usize| boundaries(i) || KEYS_AND_VALUES.contains(&i);
    all(0, d, &whole).then(|| Way::Rows(d.clone()))
}
