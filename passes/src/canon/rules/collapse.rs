//! Views of views become one, and views that change nothing go.

use super::axes::{axis_after_reshape, unsqueezed, with_size};
use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View, is_nothing, make};
use egg::Id;
use vlmc_ir::dim::{Dim, product};
use vlmc_ir::ops::{Class, Op};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "view.nothing", on: is_view, body: nothing },
    Rule { name: "view.constant", on: is_view, body: constant },
    Rule { name: "view.collapse", on: is_view, body: collapse },
    Rule { name: "view.squeeze", on: |op| matches!(op, Op::Broadcast { .. }), body: squeeze },
    Rule { name: "view.repeat", on: |op| matches!(op, Op::Reshape { .. }), body: repeat },
];

/// A concatenation of more pieces is left as it is.
const MOST_PIECES: usize = 128;

fn is_view(op: &Op) -> bool {
    op.info().class == Class::View
}

/// A view with the dims of its operand in the same order is that operand; empty pieces are nothing.
fn nothing(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    if let [x] = c
        && (is_nothing(v, op, *x) || matches!(op, Op::Concat { .. }))
    {
        found.equal(Term::Have(*x));
    }
    if let Op::Concat { axis } = op {
        let full = |x: &Id| !v.size(*x, *axis).is(0);
        let rest: Vec<Term> = c.iter().copied().filter(full).map(Term::Have).collect();
        if !rest.is_empty() && rest.len() < c.len() {
            found.equal(Term::Make(op.clone(), rest));
        }
    }
}

/// A view of a constant is a constant.
fn constant(v: View<'_>, class: Id, op: &Op, c: &[Id], found: &mut Found) {
    let mut numbers = c.iter().map(|x| v.constant(*x));
    let Some(Some(first)) = numbers.next() else { return };
    let filled = numbers.all(|n| n.is_some_and(|n| n.to_bits() == first.to_bits()));
    // Zeros around other numbers are no constant.
    if filled && (!matches!(op, Op::Pad { .. }) || first == 0.0) {
        found.equal(v.filled(first, class));
    }
}

fn collapse(v: View<'_>, class: Id, op: &Op, c: &[Id], found: &mut Found) {
    match (op, c) {
        (Op::Reshape { shape }, [x]) => reshape(v, shape, *x, found),
        (Op::Broadcast { shape, dims }, [x]) => broadcast(v, shape, dims, *x, found),
        (Op::Transpose { permutation }, [x]) => transpose(v, class, permutation, *x, found),
        (Op::Pad { axis, before, after }, [x]) => {
            for (inner, c) in v.nodes(*x) {
                if let (Op::Pad { axis: a, before: b, after: e }, [y]) = (inner, c)
                    && a == axis
                {
                    let before = Dim::new(before.size().add(b.size()));
                    let after = Dim::new(after.size().add(e.size()));
                    found.equal(make(Op::Pad { axis: *axis, before, after }, Term::Have(*y)));
                }
            }
        }
        (Op::Concat { axis }, xs) => {
            // All at once, each into as many pieces as are known: one after the other there would
            // be a form for every subset.
            let pieces = |x: &Id| {
                let cuts = v.nodes(*x).filter_map(|(inner, ys)| match inner {
                    Op::Concat { axis: a } if a == axis => Some(ys),
                    _ => None,
                });
                cuts.max_by_key(|ys| (ys.len(), std::cmp::Reverse(*ys)))
            };
            let flat: Vec<Id> = xs
                .iter()
                .flat_map(|x| pieces(x).unwrap_or(std::slice::from_ref(x)))
                .copied()
                .collect();
            if flat.len() > xs.len() && flat.len() <= MOST_PIECES {
                found.equal(Term::Make(op.clone(), flat.into_iter().map(Term::Have).collect()));
            }
        }
        _ => {}
    }
}

fn reshape(v: View<'_>, shape: &[Dim], x: Id, found: &mut Found) {
    let to = |shape: Vec<Dim>, y: Term| make(Op::Reshape { shape }, y);
    for (inner, c) in v.nodes(x) {
        match (inner, c) {
            (Op::Reshape { .. }, [y]) => found.equal(to(shape.to_vec(), Term::Have(*y))),
            // Heads side by side, then heads and their lanes as one axis: pieces of that axis.
            (Op::Concat { axis }, ys) => {
                let from = v.dims(x);
                let Some(j) = axis_after_reshape(from, shape, *axis) else { continue };
                let inside = product(&from[*axis as usize + 1..]);
                let unit = product(&shape[j as usize + 1..]);
                let Some(q) = inside.div_evident(&unit) else { continue };
                let each = ys.iter().map(|y| {
                    let size = v.size(*y, *axis).mul(&q);
                    to(with_size(shape, j, &size), Term::Have(*y))
                });
                found.equal(Term::Make(Op::Concat { axis: j }, each.collect()));
            }
            (Op::Pad { axis, before, after }, [y]) => {
                let from = v.dims(x);
                let Some(j) = axis_after_reshape(from, shape, *axis) else { continue };
                let inside = product(&from[*axis as usize + 1..]);
                let unit = product(&shape[j as usize + 1..]);
                let Some(q) = inside.div_evident(&unit) else { continue };
                let size = v.size(*y, *axis).mul(&q);
                let (before, after) = (before.size().mul(&q).into(), after.size().mul(&q).into());
                let y = to(with_size(shape, j, &size), Term::Have(*y));
                found.equal(make(Op::Pad { axis: j, before, after }, y));
            }
            (Op::Broadcast { dims, .. }, [y]) => {
                // New or lost axes of one element do not matter to a broadcast.
                let Some(target) = unsqueezed(v.dims(x), shape) else { continue };
                let kept: Vec<Option<u32>> = dims.iter().map(|d| target[*d as usize]).collect();
                let small = kept.iter().zip(v.dims(*y)).filter(|(t, _)| t.is_some());
                let small = small.map(|(_, d)| d.clone()).collect();
                let dims = kept.into_iter().flatten().collect();
                let y = to(small, Term::Have(*y));
                found.equal(make(Op::Broadcast { shape: shape.to_vec(), dims }, y));
            }
            (Op::Repeat { axis, times }, [y]) => {
                let Some(target) = unsqueezed(v.dims(x), shape) else { continue };
                let Some(Some(axis)) = target.get(*axis as usize).copied() else { continue };
                let Some(size) = shape[axis as usize].size().div_evident(times.size()) else {
                    continue;
                };
                let y = to(with_size(shape, axis, &size), Term::Have(*y));
                found.equal(make(Op::Repeat { axis, times: times.clone() }, y));
            }
            _ => {}
        }
    }
}

fn broadcast(v: View<'_>, shape: &[Dim], dims: &[u32], x: Id, found: &mut Found) {
    for (inner, c) in v.nodes(x) {
        match (inner, c) {
            (Op::Broadcast { dims: first, .. }, [y]) => {
                let dims = first.iter().map(|d| dims[*d as usize]).collect();
                let op = Op::Broadcast { shape: shape.to_vec(), dims };
                found.equal(make(op, Term::Have(*y)));
            }
            (Op::Repeat { axis, times }, [y]) => {
                let axis = dims[*axis as usize];
                let Some(size) = shape[axis as usize].size().div_evident(times.size()) else {
                    continue;
                };
                let shape = with_size(shape, axis, &size);
                let y = make(Op::Broadcast { shape, dims: dims.to_vec() }, Term::Have(*y));
                found.equal(make(Op::Repeat { axis, times: times.clone() }, y));
            }
            (Op::Concat { axis }, ys) => {
                let target = dims[*axis as usize];
                let each = ys.iter().map(|y| {
                    let shape = with_size(shape, target, v.size(*y, *axis));
                    make(Op::Broadcast { shape, dims: dims.to_vec() }, Term::Have(*y))
                });
                found.equal(Term::Make(Op::Concat { axis: target }, each.collect()));
            }
            _ => {}
        }
    }
    // Only axes of one element are new.
    let is_new = |i: &usize| !dims.contains(&(*i as u32));
    let grows = dims.iter().zip(v.dims(x)).any(|(d, s)| !s.same_size(&shape[*d as usize]));
    if !grows && (0..shape.len()).filter(is_new).all(|i| shape[i].size().is(1)) {
        found.equal(make(Op::Reshape { shape: shape.to_vec() }, Term::Have(x)));
    }
}

fn transpose(v: View<'_>, class: Id, permutation: &[u32], x: Id, found: &mut Found) {
    for (inner, c) in v.nodes(x) {
        match (inner, c) {
            (Op::Transpose { permutation: first }, [y]) => {
                let permutation = permutation.iter().map(|p| first[*p as usize]).collect();
                found.equal(make(Op::Transpose { permutation }, Term::Have(*y)));
            }
            (Op::Broadcast { dims, .. }, [y]) => {
                let place = |d: &u32| permutation.iter().position(|p| p == d);
                let Some(to) = dims.iter().map(place).collect::<Option<Vec<usize>>>() else {
                    continue;
                };
                // The operand's axes may need another order themselves.
                let mut order: Vec<usize> = (0..to.len()).collect();
                order.sort_by_key(|i| to[*i]);
                let inner = order.iter().map(|i| *i as u32).collect();
                let dims = order.iter().map(|i| to[*i] as u32).collect();
                let y = make(Op::Transpose { permutation: inner }, Term::Have(*y));
                let shape = v.dims(class).to_vec();
                found.equal(make(Op::Broadcast { shape, dims }, y));
            }
            _ => {}
        }
    }
    // Only axes of one element move.
    let have = v.dims(x);
    let real = permutation.iter().filter(|p| !have[**p as usize].size().is(1));
    if real.is_sorted() {
        found.equal(make(Op::Reshape { shape: v.dims(class).to_vec() }, Term::Have(x)));
    }
}

/// Axes of one element in the operand of a broadcast say nothing.
fn squeeze(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    let (Op::Broadcast { shape, dims }, [x]) = (op, c) else { return };
    let have = v.dims(*x);
    let real: Vec<usize> = (0..have.len()).filter(|i| !have[*i].size().is(1)).collect();
    if real.len() == have.len() {
        return;
    }
    let small = real.iter().map(|i| have[*i].clone()).collect();
    let dims = real.iter().map(|i| dims[*i]).collect();
    let x = make(Op::Reshape { shape: small }, Term::Have(*x));
    found.equal(make(Op::Broadcast { shape: shape.clone(), dims }, x));
}

/// A new axis behind another, then both as one: each slice several times in a row.
fn repeat(v: View<'_>, class: Id, _: &Op, c: &[Id], found: &mut Found) {
    let [x] = c else { return };
    let to = v.dims(class);
    for (inner, c) in v.nodes(*x) {
        let (Op::Broadcast { shape, dims }, [y]) = (inner, c) else { continue };
        let new: Vec<usize> = (0..shape.len()).filter(|i| !dims.contains(&(*i as u32))).collect();
        let [new] = new[..] else { continue };
        let Some(axis) = new.checked_sub(1) else { continue };
        let rest = [&shape[..new], &shape[new + 1..]].concat();
        let merged = to.len() == rest.len()
            && (0..to.len()).all(|i| {
                let want = rest[i].size();
                let size = to[i].size();
                if i == axis { *size == want.mul(shape[new].size()) } else { size == want }
            });
        if merged && v.dims(*y) == rest {
            let op = Op::Repeat { axis: axis as u32, times: shape[new].clone() };
            found.equal(make(op, Term::Have(*y)));
        }
    }
}
