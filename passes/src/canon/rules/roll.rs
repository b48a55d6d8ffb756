//! Equal work on pieces side by side is work on the whole: code written once a head becomes code
//! over heads.

use super::axes::{axis_after_reshape, with_size};
use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View, make};
use egg::Id;
use std::collections::BTreeSet;
use vlmc_ir::dim::{Dim, Poly, product};
use vlmc_ir::ops::{Class, Op, Scalar};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "roll.concat", on: |op| matches!(op, Op::Concat { .. }), body: roll },
    Rule { name: "roll.runs", on: |op| matches!(op, Op::Concat { .. }), body: runs },
];

/// Names of the ops of a class.
fn kinds(v: View<'_>, class: Id) -> BTreeSet<&'static str> {
    v.nodes(class).map(|(op, _)| op.name()).collect()
}

/// Whether two pieces do the same, apart from the shapes that their views give.
fn alike(v: View<'_>, op: &Op, c: &[Id], other: &Op, d: &[Id]) -> bool {
    let rank = |x: &[Id]| x.first().map(|x| v.ty(*x).rank());
    match (op, other) {
        (Op::Broadcast { dims: a, .. }, Op::Broadcast { dims: b, .. }) => a == b,
        (Op::Reshape { .. }, Op::Reshape { .. }) => rank(c) == rank(d),
        _ => op == other && c.len() == d.len() && !c.is_empty(),
    }
}

/// How well the operands of one piece match those of the first, place by place.
fn match_of(v: View<'_>, c: &[Id], d: &[Id]) -> usize {
    let score =
        |(x, y): (&Id, &Id)| usize::from(x == y) * 3 + usize::from(kinds(v, *x) == kinds(v, *y));
    c.iter().zip(d).map(score).sum()
}

fn roll(v: View<'_>, class: Id, op: &Op, xs: &[Id], found: &mut Found) {
    let (Op::Concat { axis }, [first, others @ ..]) = (op, xs) else { return };
    if others.is_empty() {
        return;
    }
    for (inner, c) in v.nodes(*first) {
        // Of commuted twins the one whose operands look most like those of the first piece.
        let same = others.iter().map(|x| {
            let fits = v.nodes(*x).filter(|(o, d)| alike(v, inner, c, o, d));
            fits.max_by_key(|(o, d)| (match_of(v, c, d), std::cmp::Reverse((*o, *d))))
        });
        let Some(mut pieces) = same.collect::<Option<Vec<(&Op, &[Id])>>>() else { continue };
        pieces.insert(0, (inner, c));
        if let Some(term) = whole(v, class, *axis, &pieces) {
            found.equal(term);
        }
    }
}

/// The operands in one place, side by side along an axis.
fn side_by_side(v: View<'_>, axis: u32, xs: Vec<Id>) -> Term {
    let numbers: Vec<Option<f64>> = xs.iter().map(|x| v.constant(*x)).collect();
    if let Some(Some(value)) = numbers.first()
        && numbers.iter().all(|n| n.map(f64::to_bits) == Some(value.to_bits()))
    {
        let size = xs.iter().fold(Poly::default(), |s, x| s.add(v.size(*x, axis)));
        let shape = with_size(v.dims(xs[0]), axis, &size);
        let op = Op::Constant { value: Scalar(*value), dtype: v.dtype(xs[0]), shape };
        return Term::Make(op, vec![]);
    }
    Term::Make(Op::Concat { axis }, xs.into_iter().map(Term::Have).collect())
}

/// The op on the pieces side by side.
fn whole(v: View<'_>, class: Id, axis: u32, pieces: &[(&Op, &[Id])]) -> Option<Term> {
    let (op, first) = *pieces.first()?;
    let place = |k: usize| pieces.iter().map(|(_, c)| c[k]).collect::<Vec<Id>>();
    let join = |k: usize, axis: u32| side_by_side(v, axis, place(k));
    let shared = |k: usize| place(k).iter().all(|x| *x == first[k]);
    match op {
        _ if op.info().class == Class::Elementwise => {
            let operands = (0..first.len()).map(|k| join(k, axis)).collect();
            Some(Term::Make(op.clone(), operands))
        }
        Op::ReduceSum { axes } | Op::ReduceMax { axes } => {
            // The axis as it is before those that disappear are gone.
            let before = axes.iter().fold(axis, |at, a| if *a <= at { at + 1 } else { at });
            Some(make(op.clone(), join(0, before)))
        }
        Op::Repeat { .. } => Some(make(op.clone(), join(0, axis))),
        Op::Pad { axis: a, .. } if *a != axis => Some(make(op.clone(), join(0, axis))),
        Op::Slice { axis: a, .. } if *a != axis => Some(make(op.clone(), join(0, axis))),
        Op::Transpose { permutation } => {
            Some(make(op.clone(), join(0, permutation[axis as usize])))
        }
        Op::CausalConv1d | Op::CausalConv1dInputGrad if axis == 1 && shared(2) && shared(3) => {
            let operands = vec![join(0, 1), join(1, 0), Term::Have(first[2]), Term::Have(first[3])];
            Some(Term::Make(op.clone(), operands))
        }
        Op::CausalConv1dWeightGrad { .. } if axis == 0 && shared(2) && shared(3) => {
            let operands = vec![join(0, 1), join(1, 1), Term::Have(first[2]), Term::Have(first[3])];
            Some(Term::Make(op.clone(), operands))
        }
        Op::Broadcast { dims, .. } => {
            let full = Op::Broadcast { shape: v.dims(class).to_vec(), dims: dims.clone() };
            match dims.iter().position(|d| *d == axis) {
                None => shared(0).then(|| make(full, Term::Have(first[0]))),
                Some(i) => {
                    let whole = pieces.iter().all(|(op, c)| match op {
                        Op::Broadcast { shape, .. } => {
                            v.dims(c[0])[i].same_size(&shape[axis as usize])
                        }
                        _ => false,
                    });
                    whole.then(|| make(full, join(0, i as u32)))
                }
            }
        }
        Op::Reshape { .. } => reshape(v, class, axis, &place(0)),
        _ => None,
    }
}

/// Pieces along an axis that is the outermost part of what each is made of.
fn reshape(v: View<'_>, class: Id, axis: u32, xs: &[Id]) -> Option<Term> {
    let to = v.dims(class);
    let piece = |x: &Id, j: u32| {
        // One step along the axis of the whole is so many along the axis of what it is made of.
        let unit = product(&to[axis as usize + 1..]);
        let inner = product(&v.dims(*x)[j as usize + 1..]);
        let (a, b) = (unit.div_evident(&inner), inner.div_evident(&unit));
        (a.is_some() || b.is_some()).then_some((a, b))
    };
    // Where the axis of the whole lies in the first piece.
    let shape = |x: &Id| -> Vec<Dim> {
        let mut dims = to.to_vec();
        let rest = product(&[&to[..axis as usize], &to[axis as usize + 1..]].concat());
        dims[axis as usize] = Dim::new(v.ty(*x).elements().div_evident(&rest).unwrap_or_default());
        dims
    };
    let first = xs.first()?;
    let j = axis_after_reshape(&shape(first), v.dims(*first), axis)
        .or_else(|| outermost(&shape(first), v.dims(*first), axis))?;
    let ratio = piece(first, j)?;
    let head = product(&to[..axis as usize]);
    let fits = xs.iter().all(|x| {
        v.ty(*x).rank() == v.ty(*first).rank()
            && product(&v.dims(*x)[..j as usize]) == head
            && piece(x, j) == Some(ratio.clone())
            && (0..v.ty(*x).rank())
                .all(|i| i == j as usize || v.dims(*x)[i].same_size(&v.dims(*first)[i]))
    });
    fits.then(|| make(Op::Reshape { shape: to.to_vec() }, side_by_side(v, j, xs.to_vec())))
}

/// The axis of `to` that starts where axis `axis` of `from` starts and holds it with all that is
/// inside it.
fn outermost(from: &[Dim], to: &[Dim], axis: u32) -> Option<u32> {
    let head = product(&from[..axis as usize]);
    let fits = |j: &usize| {
        product(&to[..*j]) == head && product(&to[*j..]) == product(&from[axis as usize..])
    };
    // The last of several, behind axes of one element.
    (0..to.len()).rev().find(fits).map(|j| j as u32)
}

/// Slices of one value that follow each other are one slice; numbers too.
fn runs(v: View<'_>, _: Id, op: &Op, xs: &[Id], found: &mut Found) {
    let Op::Concat { axis } = op else { return };
    let slices = |x: Id| {
        v.nodes(x).filter_map(|(op, c)| match (op, c) {
            (Op::Slice { axis: a, start, size }, [y]) if a == axis => {
                Some((*y, start.size().clone(), size.size().clone()))
            }
            _ => None,
        })
    };
    let mut parts: Vec<Term> = vec![];
    let mut i = 0;
    while i < xs.len() {
        let mut best: (usize, Option<Term>) = (1, None);
        for (y, start, size) in slices(xs[i]) {
            let (mut end, mut n) = (start.add(&size), 1);
            while let Some(next) = xs.get(i + n) {
                let follows = slices(*next).find(|(z, s, _)| *z == y && *s == end);
                let Some((_, _, size)) = follows else { break };
                end = end.add(&size);
                n += 1;
            }
            if n > best.0 {
                let size = Dim::new(end.sub(&start));
                let op = Op::Slice { axis: *axis, start: Dim::new(start), size };
                best = (n, Some(make(op, Term::Have(y))));
            }
        }
        parts.push(best.1.unwrap_or(Term::Have(xs[i])));
        i += best.0;
    }
    if parts.len() == 1 {
        parts.into_iter().for_each(|p| found.equal(p));
    } else if parts.len() < xs.len() {
        found.equal(Term::Make(op.clone(), parts));
    }
}
