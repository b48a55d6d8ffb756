//! The sum of what one value gets from its users.

use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::graph::Value;
use vlmc_ir::ops::grad::GradBuilder;
use vlmc_ir::ops::{Op, TypeError};

/// A part of a dim and the gradients that fill it, one after the other.
struct Run {
    axis: u32,
    before: Poly,
    after: Poly,
    size: Poly,
    parts: Vec<Value>,
}

/// The sum of `contributions`, with exactly these dims; `None` without any.
///
/// Users that read a value in slices give zeros around their part. Where the parts of several lie
/// one after the other they are joined, not added: the way back of a split is then a join.
pub(super) fn total(
    b: &mut GradBuilder,
    contributions: &[Value],
    dims: &[Dim],
) -> Result<Option<Value>, TypeError> {
    let (mut runs, mut plain) = (vec![], vec![]);
    for v in contributions {
        match run(b, *v) {
            Some(r) if contributions.len() > 1 => runs.push(r),
            _ => plain.push(*v),
        }
    }
    join(&mut runs);
    for r in runs {
        plain.push(r.build(b)?);
    }
    let Some((first, rest)) = plain.split_first() else { return Ok(None) };
    let mut sum = *first;
    for v in rest {
        sum = b.add(sum, *v)?;
    }
    b.reshape(sum, dims).map(Some)
}

/// A value that is another with zeros around it.
fn run(b: &GradBuilder, v: Value) -> Option<Run> {
    let node = b.function().node(v.node);
    let Op::Pad { axis, before, after } = &node.op else { return None };
    let part = *node.operands.first()?;
    let size = b.function().ty(part).dims.get(*axis as usize)?.size().clone();
    Some(Run {
        axis: *axis,
        before: before.size().clone(),
        after: after.size().clone(),
        size,
        parts: vec![part],
    })
}

/// Joins runs that follow each other, until none do.
fn join(runs: &mut Vec<Run>) {
    let mut i = 0;
    while i < runs.len() {
        let end = runs[i].before.add(&runs[i].size);
        let axis = runs[i].axis;
        match (0..runs.len()).find(|j| *j != i && runs[*j].axis == axis && runs[*j].before == end) {
            Some(j) => {
                let next = runs.remove(j);
                if j < i {
                    i -= 1;
                }
                let r = &mut runs[i];
                r.size = r.size.add(&next.size);
                r.after = next.after;
                r.parts.extend(next.parts);
            }
            None => i += 1,
        }
    }
}

impl Run {
    fn build(self, b: &mut GradBuilder) -> Result<Value, TypeError> {
        let joined = match self.parts.as_slice() {
            [one] => *one,
            many => b.push(Op::Concat { axis: self.axis }, many)?,
        };
        if self.before.is(0) && self.after.is(0) {
            return Ok(joined);
        }
        let (before, after) = (Dim::new(self.before), Dim::new(self.after));
        b.push(Op::Pad { axis: self.axis, before, after }, &[joined])
    }
}
