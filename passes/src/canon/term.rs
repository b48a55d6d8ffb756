//! What rules see of a graph, and what they give back.

use super::language::{ENode, Graph, Head, types_of};
use egg::Id;
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::ops::{Op, Scalar};
use vlmc_ir::ty::{DType, Ty};

/// A term over classes of a graph.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// A class that is there.
    Have(Id),
    /// A pure op on terms.
    Make(Op, Vec<Term>),
}

/// An op of one operand.
pub(super) fn make(op: Op, x: Term) -> Term {
    Term::Make(op, vec![x])
}

/// The graph as rules read it.
#[derive(Clone, Copy)]
pub(super) struct View<'g> {
    pub(super) graph: &'g Graph,
}

impl<'g> View<'g> {
    /// Pure e-nodes of a class.
    pub(super) fn nodes(self, class: Id) -> impl Iterator<Item = (&'g Op, &'g [Id])> {
        let facts = &self.graph.analysis;
        self.graph[class].nodes.iter().filter_map(|n| Some((facts.op(n)?, &*n.children)))
    }

    /// The type of a class, which has one result.
    pub(super) fn ty(self, class: Id) -> &'g Ty {
        self.graph.analysis.ty(self.graph[class].data.tys[0])
    }

    pub(super) fn dims(self, class: Id) -> &'g [Dim] {
        &self.ty(class).dims
    }

    pub(super) fn size(self, class: Id, axis: u32) -> &'g Poly {
        self.ty(class).dims[axis as usize].size()
    }

    pub(super) fn dtype(self, class: Id) -> DType {
        self.ty(class).dtype
    }

    /// The number that fills a class.
    pub(super) fn constant(self, class: Id) -> Option<f64> {
        self.graph[class].data.constant.map(|s| s.0)
    }

    /// A class filled with one number, of the type of another.
    pub(super) fn filled(self, value: f64, like: Id) -> Term {
        self.filled_as(value, like, self.dims(like).to_vec())
    }

    /// The same with other dims.
    pub(super) fn filled_as(self, value: f64, like: Id, shape: Vec<Dim>) -> Term {
        let op = Op::Constant { value: Scalar(value), dtype: self.dtype(like), shape };
        Term::Make(op, vec![])
    }
}

/// Collects what a rule finds at one e-node, up to a number of terms.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) terms: Vec<Term>,
    /// Guards that stopped the rule.
    pub(super) refused: Vec<String>,
    /// How many more terms are taken.
    pub(super) room: usize,
    /// Whether a term was left out for want of room.
    pub(super) full: bool,
}

impl Found {
    /// Takes a term that equals the class.
    pub(super) fn equal(&mut self, term: Term) {
        match self.room.checked_sub(1) {
            Some(rest) => {
                self.room = rest;
                self.terms.push(term);
            }
            None => self.full = true,
        }
    }

    /// Notes why the rule does not apply where it nearly does.
    pub(super) fn refuse(&mut self, guard: impl Into<String>) {
        self.refused.push(guard.into());
    }
}

/// Why a term was not added to a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unbuilt {
    /// The graph has as many nodes as it may.
    Full,
    /// The operands of some op do not fit.
    IllTyped,
}

/// Adds a term, made for `class`, while the graph has fewer than `nodes` e-nodes. Views that change
/// nothing are left out.
pub(super) fn build(
    graph: &mut Graph,
    class: Id,
    term: &Term,
    nodes: usize,
) -> Result<Id, Unbuilt> {
    let (head, children) = match term {
        Term::Have(id) => return Ok(graph.find(*id)),
        Term::Make(op, operands) => {
            let children: Vec<Id> =
                operands.iter().map(|t| build(graph, class, t, nodes)).collect::<Result<_, _>>()?;
            if let Some(same) = children.first().filter(|c| is_nothing(View { graph }, op, **c)) {
                return Ok(*same);
            }
            (Head::Pure(op.clone()), children)
        }
    };
    let n = ENode { head: graph.analysis.head_id(head), children };
    if let Some(id) = graph.lookup(n.clone()) {
        return Ok(id);
    }
    if graph.total_size() >= nodes {
        return Err(Unbuilt::Full);
    }
    types_of(graph, &n).ok_or(Unbuilt::IllTyped)?;
    let id = graph.add(n);
    let maker = &graph[class].data;
    let near = if maker.from.is_empty() { maker.near.clone() } else { maker.from.clone() };
    graph[id].data.near = near;
    Ok(id)
}

/// Whether a view of `x` is `x` itself.
pub(super) fn is_nothing(view: View<'_>, op: &Op, x: Id) -> bool {
    let same = |shape: &[Dim]| view.dims(x) == shape;
    match op {
        Op::Reshape { shape } => same(shape),
        Op::Broadcast { shape, .. } => same(shape),
        Op::Slice { axis, start, size } => {
            start.size().is(0) && view.dims(x).get(*axis as usize) == Some(size)
        }
        Op::Pad { before, after, .. } => before.size().is(0) && after.size().is(0),
        Op::Repeat { times, .. } => times.size().is(1),
        Op::Transpose { permutation } => {
            permutation.iter().copied().eq(0..permutation.len() as u32)
        }
        Op::Cast { dtype } => view.dtype(x) == *dtype,
        _ => false,
    }
}
