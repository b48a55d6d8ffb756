//! Views move outward, past arithmetic and reductions: what is equal many times over is computed
//! once, and rows are put side by side when they are done.

use super::axes::with_size;
use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View, make};
use egg::Id;
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::ops::{Class, Op};

pub(super) const RULES: &[Rule] = &[
    Rule { name: "out.unary", on: is_unary, body: elementwise },
    Rule { name: "out.binary", on: is_wider, body: elementwise },
    Rule { name: "out.sum", on: is_reduction, body: reduction },
    Rule { name: "out.stencil", on: is_stencil, body: stencil },
];

fn is_unary(op: &Op) -> bool {
    op.info().class == Class::Elementwise && op.info().operands.len() == 1
}

fn is_wider(op: &Op) -> bool {
    op.info().class == Class::Elementwise && op.info().operands.len() > 1
}

fn is_reduction(op: &Op) -> bool {
    matches!(op, Op::ReduceSum { .. } | Op::ReduceMax { .. })
}

fn is_stencil(op: &Op) -> bool {
    matches!(op, Op::CausalConv1d | Op::CausalConv1dInputGrad | Op::CausalConv1dWeightGrad { .. })
}

/// Whether the op takes zeros to zero.
pub(super) fn keeps_zero(op: &Op) -> bool {
    matches!(
        op,
        Op::Neg
            | Op::Cast { .. }
            | Op::Tanh
            | Op::Erf
            | Op::Sin
            | Op::Silu
            | Op::Gelu
            | Op::GeluTanh
            | Op::Sqrt
            | Op::StopGradient
            | Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Max
            | Op::Min
    )
}

/// `f(view a, view b) => view(f(a, b))`, a constant being any view of itself;
/// `f(concat(a..), b) => concat(f(a, slice b)..)`.
fn elementwise(v: View<'_>, class: Id, op: &Op, c: &[Id], found: &mut Found) {
    spread(v, class, op, c, found);
    for (k, pivot) in c.iter().enumerate().filter(|(_, x)| v.constant(**x).is_none()) {
        for (view, source) in v.nodes(*pivot) {
            let moves = match view {
                Op::Reshape { .. } | Op::Transpose { .. } | Op::Repeat { .. } => true,
                Op::Pad { .. } => keeps_zero(op),
                _ => false,
            };
            if let ([x], true) = (source, moves) {
                let operands = c.iter().enumerate().map(|(j, o)| {
                    if j == k { Some(Term::Have(*x)) } else { follow(v, view, *x, *o) }
                });
                if let Some(operands) = operands.collect::<Option<Vec<Term>>>() {
                    found.equal(make(view.clone(), Term::Make(op.clone(), operands)));
                }
            }
            if let Op::Concat { axis } = view {
                pieces(v, op, c, k, *axis, source, found);
            }
            if let (Op::Pad { axis, before, .. }, [x], Op::Mul) = (view, source, op) {
                // What meets the zeros is not needed.
                let size = Dim::new(v.size(*x, *axis).clone());
                let cut = Op::Slice { axis: *axis, start: before.clone(), size };
                let operands = c.iter().enumerate().map(|(j, o)| {
                    if j == k { Term::Have(*x) } else { make(cut.clone(), Term::Have(*o)) }
                });
                found.equal(make(view.clone(), Term::Make(op.clone(), operands.collect())));
            }
        }
    }
}

/// Another operand before the view that was taken off `x`.
fn follow(v: View<'_>, view: &Op, x: Id, other: Id) -> Option<Term> {
    if let Some(value) = v.constant(other) {
        let zeros_stay = !matches!(view, Op::Pad { .. }) || value == 0.0;
        return zeros_stay.then(|| v.filled_as(value, other, v.dims(x).to_vec()));
    }
    for (op, c) in v.nodes(other) {
        match (op, view, c) {
            (op, view, [y]) if op == view && v.dims(*y) == v.dims(x) => {
                return Some(Term::Have(*y));
            }
            (Op::Broadcast { shape, dims }, Op::Repeat { axis, .. }, [y])
                if !dims.contains(axis) =>
            {
                let shape = with_size(shape, *axis, v.size(x, *axis));
                let dims = dims.clone();
                return Some(make(Op::Broadcast { shape, dims }, Term::Have(*y)));
            }
            _ => {}
        }
    }
    None
}

/// Arithmetic of broadcasts is done where they differ: `f(broadcast a, broadcast b)` becomes the
/// broadcast of `f` over the axes that either depends on.
fn spread(v: View<'_>, class: Id, op: &Op, c: &[Id], found: &mut Found) {
    let shape = v.dims(class);
    let mut sources: Vec<Option<(&[u32], Id)>> = vec![];
    let mut axes: Vec<u32> = vec![];
    for x in c {
        if v.constant(*x).is_some() {
            sources.push(None);
            continue;
        }
        let narrowest = v
            .nodes(*x)
            .filter_map(|(op, c)| match (op, c) {
                (Op::Broadcast { dims, .. }, [y]) => Some((&**dims, *y)),
                _ => None,
            })
            .min_by_key(|(dims, y)| (dims.len(), *y));
        let Some((dims, y)) = narrowest else { return };
        axes.extend(dims);
        sources.push(Some((dims, y)));
    }
    axes.sort_unstable();
    axes.dedup();
    if axes.len() == shape.len() || sources.iter().all(Option::is_none) {
        return;
    }
    let small: Vec<Dim> = axes.iter().map(|a| shape[*a as usize].clone()).collect();
    let operands = c.iter().zip(&sources).map(|(x, source)| match source {
        None => v.filled_as(v.constant(*x).unwrap_or_default(), *x, small.clone()),
        Some((dims, y)) => {
            let inner = dims.iter().filter_map(|d| axes.iter().position(|a| a == d));
            let dims = inner.map(|i| i as u32).collect();
            make(Op::Broadcast { shape: small.clone(), dims }, Term::Have(*y))
        }
    });
    let inner = Term::Make(op.clone(), operands.collect());
    found.equal(make(Op::Broadcast { shape: shape.to_vec(), dims: axes.clone() }, inner));
}

/// The op on each piece of a concatenation, with the same piece of the other operands.
fn pieces(v: View<'_>, op: &Op, c: &[Id], pivot: usize, axis: u32, xs: &[Id], found: &mut Found) {
    let mut operands: Vec<Vec<Term>> = vec![vec![]; xs.len()];
    for (j, other) in c.iter().enumerate() {
        if j == pivot {
            operands.iter_mut().zip(xs).for_each(|(o, x)| o.push(Term::Have(*x)));
            continue;
        }
        if let Some(value) = v.constant(*other) {
            let each = operands.iter_mut().zip(xs);
            each.for_each(|(o, x)| o.push(v.filled_as(value, *other, v.dims(*x).to_vec())));
            continue;
        }
        let same_cut = |ys: &[Id]| {
            ys.len() == xs.len()
                && xs.iter().zip(ys).all(|(x, y)| v.size(*x, axis) == v.size(*y, axis))
        };
        let matching = v.nodes(*other).find_map(|(op, ys)| match op {
            Op::Concat { axis: a } if *a == axis && same_cut(ys) => Some(ys),
            _ => None,
        });
        if let Some(ys) = matching {
            operands.iter_mut().zip(ys).for_each(|(o, y)| o.push(Term::Have(*y)));
            continue;
        }
        if v.nodes(*other).any(|(op, _)| matches!(op, Op::Concat { .. } | Op::Pad { .. })) {
            found.refuse("the operands are cut in different places");
            return;
        }
        let last = v.ty(*other).rank() as u32 == axis + 1;
        if last && v.graph[*other].data.row {
            found.refuse("a reduction of the whole row is in each element");
            return;
        }
        let mut start = Poly::default();
        for (o, x) in operands.iter_mut().zip(xs) {
            let size = v.size(*x, axis);
            let cut =
                Op::Slice { axis, start: Dim::new(start.clone()), size: Dim::new(size.clone()) };
            o.push(make(cut, Term::Have(*other)));
            start = start.add(size);
        }
    }
    let done = operands.into_iter().map(|o| Term::Make(op.clone(), o)).collect();
    found.equal(Term::Make(Op::Concat { axis }, done));
}

fn reduced(op: &Op, axes: Vec<u32>) -> Op {
    match op {
        Op::ReduceMax { .. } => Op::ReduceMax { axes },
        _ => Op::ReduceSum { axes },
    }
}

/// Axis `axis`, counted without `gone`.
fn without(gone: &[u32], axis: u32) -> u32 {
    axis - gone.iter().filter(|g| **g < axis).count() as u32
}

/// `sum(view x) => view(sum x)` for views that leave the summed axes alone; `sum(sum x) => sum x`,
/// which adds in another order.
fn reduction(v: View<'_>, class: Id, op: &Op, c: &[Id], found: &mut Found) {
    let (Op::ReduceSum { axes } | Op::ReduceMax { axes }, [x]) = (op, c) else { return };
    let have = v.dims(*x);
    for (view, c) in v.nodes(*x) {
        match (view, c) {
            (Op::Repeat { axis, times }, [y]) if !axes.contains(axis) => {
                let inner = make(op.clone(), Term::Have(*y));
                let axis = without(axes, *axis);
                found.equal(make(Op::Repeat { axis, times: times.clone() }, inner));
            }
            (Op::Pad { axis, before, after }, [y])
                if !axes.contains(axis) && matches!(op, Op::ReduceSum { .. }) =>
            {
                let inner = make(op.clone(), Term::Have(*y));
                let (before, after) = (before.clone(), after.clone());
                found.equal(make(Op::Pad { axis: without(axes, *axis), before, after }, inner));
            }
            (Op::Concat { axis }, ys) if !axes.contains(axis) => {
                let each = ys.iter().map(|y| make(op.clone(), Term::Have(*y))).collect();
                found.equal(Term::Make(Op::Concat { axis: without(axes, *axis) }, each));
            }
            (Op::Broadcast { dims, .. }, [y])
                if axes.iter().all(|a| {
                    let source = dims.iter().position(|d| d == a);
                    source.is_some_and(|i| v.dims(*y)[i].same_size(&have[*a as usize]))
                }) && dims.len() > axes.len() =>
            {
                let inner = dims.iter().enumerate().filter(|(_, d)| axes.contains(d));
                let inner =
                    make(reduced(op, inner.map(|(i, _)| i as u32).collect()), Term::Have(*y));
                let kept = dims.iter().filter(|d| !axes.contains(d));
                let dims = kept.map(|d| without(axes, *d)).collect();
                found.equal(make(Op::Broadcast { shape: v.dims(class).to_vec(), dims }, inner));
            }
            (Op::Transpose { permutation }, [y]) => {
                let mut inner: Vec<u32> = axes.iter().map(|a| permutation[*a as usize]).collect();
                inner.sort_unstable();
                let rest = (0..have.len() as u32).filter(|i| !axes.contains(i));
                let rest = rest.map(|i| without(&inner, permutation[i as usize])).collect();
                let sum = make(reduced(op, inner), Term::Have(*y));
                found.equal(make(Op::Transpose { permutation: rest }, sum));
            }
            (Op::Reshape { shape }, [y]) => {
                let inner = axes.iter().map(|a| kept_axis(v.dims(*y), shape, *a));
                if let Some(inner) = inner.collect::<Option<Vec<u32>>>() {
                    let sum = make(reduced(op, inner), Term::Have(*y));
                    found.equal(make(Op::Reshape { shape: v.dims(class).to_vec() }, sum));
                }
            }
            (Op::ReduceSum { axes: first }, [y]) if matches!(op, Op::ReduceSum { .. }) => {
                let kept: Vec<u32> =
                    (0..v.ty(*y).rank() as u32).filter(|i| !first.contains(i)).collect();
                let mut all: Vec<u32> = axes.iter().map(|a| kept[*a as usize]).collect();
                all.extend(first);
                all.sort_unstable();
                found.equal(make(Op::ReduceSum { axes: all }, Term::Have(*y)));
            }
            _ => {}
        }
    }
}

/// The axis of `from` that is axis `axis` of `to`, with the same extent and stride.
fn kept_axis(from: &[Dim], to: &[Dim], axis: u32) -> Option<u32> {
    let a = axis as usize;
    let tail = vlmc_ir::dim::product(&to[a + 1..]);
    // An axis of one element is alike wherever it stands; it is not worth a guess.
    let fits =
        |j: &usize| from[*j].same_size(&to[a]) && vlmc_ir::dim::product(&from[j + 1..]) == tail;
    if to[a].size().is(1) { None } else { (0..from.len()).find(fits).map(|j| j as u32) }
}

/// A depthwise convolution of channels side by side: each with its own weights.
fn stencil(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    let weights = matches!(op, Op::CausalConv1dWeightGrad { .. });
    // Of a gradient by weights both operands have channels, and either may be in pieces.
    let [x, w, bounds @ ..] = c else { return };
    let pivots: &[usize] = if weights { &[0, 1] } else { &[0] };
    for pivot in pivots {
        let (pieces, whole) = if *pivot == 0 { (x, w) } else { (w, x) };
        for (view, xs) in v.nodes(*pieces) {
            let Op::Concat { axis: 1 } = view else { continue };
            let mut start = Poly::default();
            let mut each = vec![];
            for x in xs {
                let size = v.size(*x, 1);
                let (start_here, size_here) = (Dim::new(start.clone()), Dim::new(size.clone()));
                let axis = u32::from(weights);
                let cut = Op::Slice { axis, start: start_here, size: size_here };
                let mut operands = vec![Term::Have(*x), make(cut, Term::Have(*whole))];
                if *pivot == 1 {
                    operands.swap(0, 1);
                }
                operands.extend(bounds.iter().map(|b| Term::Have(*b)));
                each.push(Term::Make(op.clone(), operands));
                start = start.add(size);
            }
            found.equal(Term::Make(Op::Concat { axis: u32::from(!weights) }, each));
        }
    }
}
