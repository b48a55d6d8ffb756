//! Slices move inward to the loads, where they are an address and no work.

use super::axes::{range_before_reshape, with_size};
use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View, make};
use egg::Id;
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::ops::{Class, Op, Scalar};

pub(super) const RULES: &[Rule] =
    &[Rule { name: "in.slice", on: |op| matches!(op, Op::Slice { .. }), body: slice }];

/// A range along an axis.
#[derive(Clone, Copy)]
struct Range<'a> {
    axis: u32,
    start: &'a Poly,
    size: &'a Poly,
}

impl Range<'_> {
    fn op(&self) -> Op {
        cut(self.axis, self.start.clone(), self.size.clone())
    }

    fn end(&self) -> Poly {
        self.start.add(self.size)
    }
}

fn cut(axis: u32, start: Poly, size: Poly) -> Op {
    Op::Slice { axis, start: Dim::new(start), size: Dim::new(size) }
}

/// `slice(f x) => f(slice x)`
fn slice(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    let (Op::Slice { axis, start, size }, [x]) = (op, c) else { return };
    let range = Range { axis: *axis, start: start.size(), size: size.size() };
    for (inner, c) in v.nodes(*x) {
        match inner.info().class {
            Class::Elementwise => arithmetic(v, range, *x, inner, c, found),
            Class::View => view(v, range, *x, inner, c, found),
            Class::Reduction => reduction(range, inner, c, found),
            Class::Sequence => stencil(range, inner, c, found),
            Class::Source => {
                if let Op::Iota { shape, axis } = inner
                    && *axis != range.axis
                {
                    let shape = with_size(shape, range.axis, range.size);
                    found.equal(Term::Make(Op::Iota { shape, axis: *axis }, vec![]));
                }
            }
            _ => {}
        }
    }
}

fn arithmetic(v: View<'_>, r: Range<'_>, x: Id, inner: &Op, c: &[Id], found: &mut Found) {
    if v.graph[x].data.row && r.axis as usize + 1 == v.ty(x).rank() {
        found.refuse("a reduction of the whole row is in each element");
        return;
    }
    let operands = c.iter().map(|o| match v.constant(*o) {
        Some(value) => v.filled_as(value, *o, with_size(v.dims(*o), r.axis, r.size)),
        None => make(r.op(), Term::Have(*o)),
    });
    found.equal(Term::Make(inner.clone(), operands.collect()));
}

fn view(v: View<'_>, r: Range<'_>, x: Id, inner: &Op, c: &[Id], found: &mut Found) {
    match (inner, c) {
        (Op::Slice { axis, start, .. }, [y]) if *axis == r.axis => {
            let start = start.size().add(r.start);
            found.equal(make(cut(r.axis, start, r.size.clone()), Term::Have(*y)));
        }
        // Of two slices along different axes the one of the outer axis comes first.
        (Op::Slice { axis, .. }, [y]) if *axis > r.axis => {
            found.equal(make(inner.clone(), make(r.op(), Term::Have(*y))));
        }
        (Op::Broadcast { shape, dims }, [y]) => {
            let shape = with_size(shape, r.axis, r.size);
            let source = dims.iter().position(|d| *d == r.axis);
            let part = source.filter(|i| !v.size(*y, *i as u32).is(1));
            let y = match part {
                Some(i) => make(Range { axis: i as u32, ..r }.op(), Term::Have(*y)),
                None => Term::Have(*y),
            };
            found.equal(make(Op::Broadcast { shape, dims: dims.clone() }, y));
        }
        (Op::Repeat { axis, .. }, [y]) if *axis != r.axis => {
            found.equal(make(inner.clone(), make(r.op(), Term::Have(*y))));
        }
        (Op::Repeat { axis, times }, [y]) => {
            let whole = |p: &Poly| p.div_evident(times.size());
            if let (Some(start), Some(size)) = (whole(r.start), whole(r.size)) {
                let part = make(cut(*axis, start, size), Term::Have(*y));
                found.equal(make(inner.clone(), part));
            }
        }
        (Op::Transpose { permutation }, [y]) => {
            let axis = permutation[r.axis as usize];
            let part = make(Range { axis, ..r }.op(), Term::Have(*y));
            found.equal(make(inner.clone(), part));
        }
        (Op::Reshape { shape }, [y]) => {
            if let Some((axis, start, size)) =
                range_before_reshape(v.dims(*y), shape, r.axis, r.start, r.size)
            {
                let shape = with_size(shape, r.axis, r.size);
                let part = make(cut(axis, start, size), Term::Have(*y));
                found.equal(make(Op::Reshape { shape }, part));
            }
        }
        (Op::Pad { axis, .. }, [y]) if *axis != r.axis => {
            found.equal(make(inner.clone(), make(r.op(), Term::Have(*y))));
        }
        (Op::Pad { before, .. }, [y]) => pad(v, r, x, before.size(), *y, found),
        (Op::Concat { axis }, ys) if *axis != r.axis => {
            let each = ys.iter().map(|y| make(r.op(), Term::Have(*y)));
            found.equal(Term::Make(inner.clone(), each.collect()));
        }
        (Op::Concat { .. }, ys) => concat(v, r, ys, found),
        _ => {}
    }
}

/// Which of two sizes is larger, when that is known.
fn order(a: &Poly, b: &Poly) -> Option<std::cmp::Ordering> {
    a.sub(b).as_constant().map(|d| d.cmp(&0))
}

fn larger(a: &Poly, b: &Poly) -> Option<Poly> {
    order(a, b).map(|o| if o.is_lt() { b.clone() } else { a.clone() })
}

fn smaller(a: &Poly, b: &Poly) -> Option<Poly> {
    order(a, b).map(|o| if o.is_gt() { b.clone() } else { a.clone() })
}

/// The part of `from .. to` that lies in the range; `None` when it cannot be known.
fn overlap(r: Range<'_>, from: &Poly, to: &Poly) -> Option<(Poly, Poly)> {
    // The common cases need no order of symbols: the same ends.
    if r.start == from && r.end() == *to {
        return Some((from.clone(), to.clone()));
    }
    Some((larger(r.start, from)?, smaller(&r.end(), to)?))
}

fn pad(v: View<'_>, r: Range<'_>, x: Id, before: &Poly, y: Id, found: &mut Found) {
    let end = before.add(v.size(y, r.axis));
    let Some((low, high)) = overlap(r, before, &end) else { return };
    let Some(rest) = order(&high, &low) else { return };
    if rest.is_le() {
        let shape = with_size(v.dims(x), r.axis, r.size);
        let op = Op::Constant { value: Scalar(0.0), dtype: v.dtype(x), shape };
        found.equal(Term::Make(op, vec![]));
        return;
    }
    let part = make(cut(r.axis, low.sub(before), high.sub(&low)), Term::Have(y));
    let (front, back) = (Dim::new(low.sub(r.start)), Dim::new(r.end().sub(&high)));
    found.equal(make(Op::Pad { axis: r.axis, before: front, after: back }, part));
}

fn concat(v: View<'_>, r: Range<'_>, ys: &[Id], found: &mut Found) {
    let mut at = Poly::default();
    let mut parts = vec![];
    for y in ys {
        let end = at.add(v.size(*y, r.axis));
        if let Some((low, high)) = overlap(r, &at, &end) {
            match order(&high, &low) {
                Some(o) if o.is_gt() => {
                    let part = cut(r.axis, low.sub(&at), high.sub(&low));
                    parts.push(make(part, Term::Have(*y)));
                }
                Some(_) => {}
                // A piece that is wholly inside, of a size that may be anything.
                None if low == at && high == end => parts.push(Term::Have(*y)),
                None => return,
            }
        } else {
            return;
        }
        at = end;
    }
    if parts.len() == 1 {
        parts.into_iter().for_each(|p| found.equal(p));
    } else if !parts.is_empty() {
        found.equal(Term::Make(Op::Concat { axis: r.axis }, parts));
    }
}

fn reduction(r: Range<'_>, inner: &Op, c: &[Id], found: &mut Found) {
    let (Op::ReduceSum { axes } | Op::ReduceMax { axes }, [y]) = (inner, c) else { return };
    // The axis as it is before those that disappear are gone.
    let mut axis = r.axis;
    for a in axes {
        if *a <= axis {
            axis += 1;
        }
    }
    found.equal(make(inner.clone(), make(Range { axis, ..r }.op(), Term::Have(*y))));
}

/// Channels of a depthwise convolution are independent.
fn stencil(r: Range<'_>, inner: &Op, c: &[Id], found: &mut Found) {
    let part = |axis: u32, x: &Id| make(Range { axis, ..r }.op(), Term::Have(*x));
    let operands: Vec<Term> = match (inner, c) {
        (Op::CausalConv1d | Op::CausalConv1dInputGrad, [x, w, rest @ ..]) if r.axis == 1 => {
            let bounds = rest.iter().map(|b| Term::Have(*b));
            [part(1, x), part(0, w)].into_iter().chain(bounds).collect()
        }
        (Op::CausalConv1dWeightGrad { .. }, [x, dy, rest @ ..]) if r.axis == 0 => {
            let bounds = rest.iter().map(|b| Term::Have(*b));
            [part(1, x), part(1, dy)].into_iter().chain(bounds).collect()
        }
        _ => return,
    };
    found.equal(Term::Make(inner.clone(), operands));
}
