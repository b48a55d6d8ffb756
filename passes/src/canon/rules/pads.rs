//! Sums of zero-padded pieces, which is what gradients of slices are: the pieces side by side.

use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View, make};
use egg::Id;
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::ops::{Op, Scalar};

pub(super) const RULES: &[Rule] =
    &[Rule { name: "out.pads", on: |op| matches!(op, Op::Add), body: pads }];

/// More pieces than this are not looked at.
const MOST: usize = 64;

/// A piece: where it starts, where it ends, and what it is.
type Piece = (Poly, Poly, Id);

/// `pad(a) + pad(b) + .. => pad(concat(a, b, ..))` for pieces along one axis that do not meet;
/// what lies between them is zero.
fn pads(v: View<'_>, class: Id, _: &Op, c: &[Id], found: &mut Found) {
    let [left, right] = c else { return };
    let axes = v.nodes(*left).filter_map(|(op, _)| match op {
        Op::Pad { axis, .. } => Some(*axis),
        _ => None,
    });
    let mut axes: Vec<u32> = axes.collect();
    axes.sort_unstable();
    axes.dedup();
    for axis in axes {
        let mut pieces = vec![];
        let mut depth = MOST;
        if collect(v, axis, *left, &mut pieces, &mut depth)
            && collect(v, axis, *right, &mut pieces, &mut depth)
        {
            join(v, class, axis, pieces, found);
        }
    }
}

/// The pieces of a sum of padded pieces; false when it is something else.
fn collect(v: View<'_>, axis: u32, class: Id, out: &mut Vec<Piece>, steps: &mut usize) -> bool {
    let Some(rest) = steps.checked_sub(1) else { return false };
    *steps = rest;
    for (op, c) in v.nodes(class) {
        if let (Op::Pad { axis: a, before, .. }, [x]) = (op, c)
            && *a == axis
        {
            let start = before.size().clone();
            let end = start.add(v.size(*x, axis));
            out.push((start, end, *x));
            return true;
        }
    }
    for (op, c) in v.nodes(class) {
        if let (Op::Add, [a, b]) = (op, c) {
            let known = out.len();
            if collect(v, axis, *a, out, steps) && collect(v, axis, *b, out, steps) {
                return true;
            }
            out.truncate(known);
        }
    }
    false
}

fn join(v: View<'_>, class: Id, axis: u32, mut pieces: Vec<Piece>, found: &mut Found) {
    // Places are compared by their difference, which must be a number.
    let Some((zero, ..)) = pieces.first().cloned() else { return };
    let offset = |p: &Poly| p.sub(&zero).as_constant();
    if pieces.iter().any(|(start, end, _)| offset(start).is_none() || offset(end).is_none()) {
        found.refuse("the order of the pieces is known only when running");
        return;
    }
    pieces.sort_by_key(|(start, end, x)| (offset(start), offset(end), *x));
    let mut parts = vec![];
    let Some((first, ..)) = pieces.first().cloned() else { return };
    let mut at = first.clone();
    for (start, end, x) in pieces {
        match start.sub(&at).as_constant() {
            Some(0) => {}
            Some(gap) if gap > 0 => {
                let mut shape = v.dims(x).to_vec();
                shape[axis as usize] = Dim::from(gap);
                let op = Op::Constant { value: Scalar(0.0), dtype: v.dtype(x), shape };
                parts.push(Term::Make(op, vec![]));
            }
            _ => {
                found.refuse("the pieces overlap");
                return;
            }
        }
        parts.push(Term::Have(x));
        at = end;
    }
    let after = Dim::new(v.size(class, axis).sub(&at));
    let whole = Term::Make(Op::Concat { axis }, parts);
    found.equal(make(Op::Pad { axis, before: Dim::new(first), after }, whole));
}
