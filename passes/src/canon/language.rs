//! The e-graph language: the op table as it is, and types as an e-class analysis.
//!
//! Ops and types are interned, since e-nodes are hashed and compared all the time. Segments of dims
//! are left out here: they name parts of a size and change no value. Types with them are made anew
//! when a function is built from the graph.

use egg::{Analysis, DidMerge, EGraph, Id, Language};
use rustc_hash::FxHashMap;
use vlmc_ir::dim::Dim;
use vlmc_ir::ops::{Class, Op, Scalar};
use vlmc_ir::ty::Ty;

/// What an e-node is, apart from its children.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Head {
    /// An input or a parameter: the node of the function.
    Leaf(u32),
    /// A call or an exchange, which has no twin: the node of the function.
    Fixed(u32),
    /// One result of a child that has several.
    Part(u32),
    /// A pure op.
    Pure(Op),
}

/// An e-node: an interned [`Head`] and children.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct ENode {
    pub(super) head: u32,
    pub(super) children: Vec<Id>,
}

impl Language for ENode {
    type Discriminant = u32;

    fn discriminant(&self) -> u32 {
        self.head
    }

    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

/// What is known of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    /// Interned result types.
    pub(super) tys: Vec<u32>,
    /// The number that fills it.
    pub(super) constant: Option<Scalar>,
    /// In memory in any case, or a view of such: a slice of it is an address.
    pub(super) loads: bool,
    /// Made with a reduction, by arithmetic and views.
    pub(super) reduced: bool,
    /// Elements along the last axis belong together: a reduction of the row is in each of them.
    pub(super) row: bool,
    /// Nodes of the function that are this value, increasing.
    pub(super) from: Vec<u32>,
    /// For values that rules made: nodes that they were made for.
    pub(super) near: Vec<u32>,
}

/// The tables behind a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    heads: Vec<Head>,
    head_ids: FxHashMap<Head, u32>,
    tys: Vec<Ty>,
    ty_ids: FxHashMap<Ty, u32>,
    /// Result types of heads that are no pure ops.
    given: FxHashMap<u32, Vec<u32>>,
    inferred: FxHashMap<(u32, Vec<u32>), Option<Vec<u32>>>,
    /// The first thing that cannot be, if any: the pass then fails.
    pub(super) wrong: Option<String>,
}

pub(super) type Graph = EGraph<ENode, Facts>;

impl Facts {
    pub(super) fn head_id(&mut self, head: Head) -> u32 {
        if let Some(id) = self.head_ids.get(&head) {
            return *id;
        }
        let id = self.heads.len() as u32;
        self.heads.push(head.clone());
        self.head_ids.insert(head, id);
        id
    }

    pub(super) fn ty_id(&mut self, ty: &Ty) -> u32 {
        if let Some(id) = self.ty_ids.get(ty) {
            return *id;
        }
        let id = self.tys.len() as u32;
        self.tys.push(ty.clone());
        self.ty_ids.insert(ty.clone(), id);
        id
    }

    /// Sets the result types of a head that is no pure op.
    pub(super) fn give(&mut self, head: u32, tys: &[Ty]) {
        let ids = tys.iter().map(|t| self.ty_id(&plain(t))).collect();
        self.given.insert(head, ids);
    }

    pub(super) fn head(&self, n: &ENode) -> &Head {
        &self.heads[n.head as usize]
    }

    /// The op of a pure e-node.
    pub(super) fn op(&self, n: &ENode) -> Option<&Op> {
        match self.head(n) {
            Head::Pure(op) => Some(op),
            _ => None,
        }
    }

    pub(super) fn ty(&self, id: u32) -> &Ty {
        &self.tys[id as usize]
    }

    /// Result types of a head on operands of these types; `None` when they do not fit.
    pub(super) fn infer(&mut self, head: u32, operands: Vec<u32>) -> Option<Vec<u32>> {
        if let Some(tys) = self.given.get(&head) {
            return Some(tys.clone());
        }
        let key = (head, operands);
        if let Some(known) = self.inferred.get(&key) {
            return known.clone();
        }
        let tys: Vec<Ty> = key.1.iter().map(|t| self.ty(*t).clone()).collect();
        let results = match &self.heads[head as usize] {
            Head::Pure(op) => op.infer(&tys).ok(),
            _ => None,
        };
        let results: Option<Vec<u32>> =
            results.map(|tys| tys.iter().map(|t| self.ty_id(&plain(t))).collect());
        self.inferred.insert(key, results.clone());
        results
    }
}

/// A dim without its segments.
pub(super) fn plain_dim(d: &Dim) -> Dim {
    Dim::new(d.size().clone())
}

/// A type without segments.
fn plain(ty: &Ty) -> Ty {
    Ty { dims: ty.dims.iter().map(plain_dim).collect(), ..ty.clone() }
}

/// The types of an e-node's results from those of its children; `None` when they do not fit.
pub(super) fn types_of(graph: &mut Graph, n: &ENode) -> Option<Vec<u32>> {
    let first = |c: &Id| graph[*c].data.tys.first().copied();
    if let Head::Part(i) = graph.analysis.head(n) {
        let child = n.children.first()?;
        return graph[*child].data.tys.get(*i as usize).map(|t| vec![*t]);
    }
    let operands: Option<Vec<u32>> = n.children.iter().map(first).collect();
    graph.analysis.infer(n.head, operands?)
}

impl Analysis<ENode> for Facts {
    type Data = Data;

    fn make(graph: &mut Graph, n: &ENode, _: Id) -> Data {
        let Some(tys) = types_of(graph, n) else {
            let head = format!("{:?}", graph.analysis.head(n));
            graph.analysis.wrong.get_or_insert(format!("operands do not fit {head}"));
            return Data::default();
        };
        let mut data = Data { tys, ..Data::default() };
        let child = |i: usize| n.children.get(i).map(|c| &graph[*c].data);
        let op = match graph.analysis.head(n) {
            Head::Leaf(_) | Head::Fixed(_) => {
                data.loads = true;
                return data;
            }
            Head::Part(_) => {
                data.loads = child(0).is_some_and(|d| d.loads);
                return data;
            }
            Head::Pure(op) => op,
        };
        if let Op::Constant { value, .. } = op {
            data.constant = Some(*value);
        }
        let any = |f: &dyn Fn(&Data) -> bool| n.children.iter().any(|c| f(&graph[*c].data));
        match op.info().class {
            Class::Elementwise => {
                data.reduced = any(&|d| d.reduced);
                data.row = any(&|d| d.row);
            }
            Class::Reduction => data.reduced = true,
            Class::View => {
                data.reduced = any(&|d| d.reduced);
                let views =
                    matches!(op, Op::Slice { .. } | Op::Reshape { .. } | Op::Transpose { .. });
                data.loads = views && child(0).is_some_and(|d| d.loads);
                let last = graph.analysis.ty(data.tys[0]).rank().saturating_sub(1) as u32;
                data.row = match op {
                    Op::Broadcast { dims, .. } => {
                        let spread = !dims.contains(&last);
                        child(0).is_some_and(|d| if spread { d.reduced } else { d.row })
                    }
                    Op::Repeat { axis, .. } | Op::Concat { axis } => {
                        *axis != last && any(&|d| d.row)
                    }
                    Op::Reshape { shape } => child(0).is_some_and(|d| {
                        d.row && graph.analysis.ty(d.tys[0]).dims.last() == shape.last()
                    }),
                    _ => false,
                };
            }
            Class::Contraction | Class::Indexing | Class::Sequence | Class::Communication => {
                data.loads = !is_stencil(op);
            }
            Class::Source | Class::Structure => {}
        }
        data
    }

    fn merge(&mut self, a: &mut Data, b: Data) -> DidMerge {
        if a.tys != b.tys {
            let list = |tys: &[u32]| {
                tys.iter().map(|t| self.ty(*t).to_string()).collect::<Vec<_>>().join(", ")
            };
            let message = format!("({}) and ({}) were made equal", list(&a.tys), list(&b.tys));
            self.wrong.get_or_insert(message);
        }
        let flags = |d: &Data| (d.constant.is_some(), d.loads, d.reduced, d.row);
        let (before_a, before_b) = (flags(a), flags(&b));
        // Of two numbers that differ in the last digit the smaller stays, whichever comes first.
        a.constant = match (a.constant, b.constant) {
            (Some(x), Some(y)) => Some(x.min(y)),
            (x, y) => x.or(y),
        };
        a.loads |= b.loads;
        a.reduced |= b.reduced;
        a.row |= b.row;
        join(&mut a.from, b.from);
        if a.near.is_empty() || (!b.near.is_empty() && b.near < a.near) {
            a.near = b.near;
        }
        // Nothing that is made from children reads where they come from.
        DidMerge(flags(a) != before_a, flags(a) != before_b)
    }
}

fn join(a: &mut Vec<u32>, b: Vec<u32>) {
    if !b.is_empty() && *a != b {
        a.extend(b);
        a.sort_unstable();
        a.dedup();
    }
}

/// The depthwise convolution and its gradients, which are row arithmetic with neighbours.
pub(super) fn is_stencil(op: &Op) -> bool {
    matches!(op, Op::CausalConv1d | Op::CausalConv1dInputGrad | Op::CausalConv1dWeightGrad { .. })
}
