//! What is known of a function before clusters grow.
//!
//! Nodes fall into four roles. *Cuts* are what no row program does: products, attention, the delta
//! rule, gathers, calls. *Leaves* are in memory: inputs, parameters, results of cuts, and slices and
//! reshapes of those, which are addresses. *Free* are constants. All others are *row ops*, and what
//! cuts and outputs ask of them must be stored; concatenations and reshapes between the two are
//! places to store to, and stay outside.

use super::set::Set;
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::graph::{Function, NodeId, Value};
use vlmc_ir::ops::{Class, Effect, Op};
use vlmc_ir::ty::Ty;

/// The role of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Cut,
    Leaf,
    Free,
    Row,
}

/// Facts of a function, by node index.
pub(super) struct Facts<'f> {
    pub(super) f: &'f Function,
    pub(super) role: Vec<Role>,
    /// Whether an output needs the node.
    pub(super) live: Vec<bool>,
    /// Row ops and leaf views that read each node.
    pub(super) users: Vec<Vec<usize>>,
    /// No rows below it: parameters and what is made of them.
    pub(super) param: Vec<bool>,
    /// Whether a sum over rows is below it, in the same stretch between cuts.
    pub(super) summed: Vec<bool>,
    /// What each cut or output wants stored, in order.
    pub(super) demands: Vec<Vec<usize>>,
    /// All of that.
    pub(super) stored: Set,
    /// Which of the cuts among the demands read each value.
    pub(super) readers: Vec<Set>,
    /// Leaves with rows that each row op is made of.
    pub(super) below: Vec<Set>,
    /// All nodes that each node depends on, through cuts too.
    pub(super) before: Vec<Set>,
    /// Whether there are only vectors of known sizes, as in an optimizer: they are worked on then.
    pub(super) rowless: bool,
    /// What symbols are taken for.
    typical: i64,
}

/// The index of the node of a value.
pub(super) fn at(v: Value) -> usize {
    v.node.0 as usize
}

impl<'f> Facts<'f> {
    pub(super) fn new(f: &'f Function, typical: i64) -> Self {
        let n = f.nodes.len();
        let role = roles(f);
        let mut facts = Facts {
            f,
            live: live(f),
            users: vec![vec![]; n],
            param: vec![false; n],
            summed: vec![false; n],
            demands: vec![],
            stored: Set::default(),
            readers: vec![Set::default(); n],
            below: vec![Set::default(); n],
            before: vec![Set::default(); n],
            rowless: rowless(f),
            role,
            typical,
        };
        for i in 0..n {
            for v in &f.nodes[i].operands {
                let before = facts.before[at(*v)].clone();
                facts.before[i].extend(&before);
                facts.before[i].insert(at(*v));
            }
            facts.param[i] = match facts.role[i] {
                Role::Free => true,
                Role::Row | Role::Leaf if !f.nodes[i].operands.is_empty() => {
                    facts.rows_read(i).all(|a| facts.param[a])
                }
                Role::Leaf => {
                    !(facts.is_sized_by_rows(i) || facts.rowless && facts.elements(i) > 1.0)
                }
                // What a cut makes is there once it has run.
                _ => false,
            };
            if facts.role[i] == Role::Row {
                let kids: Vec<usize> = facts.rows_read(i).collect();
                let sum = facts.sums_rows(i);
                facts.summed[i] = sum || kids.iter().any(|a| facts.summed[*a]);
                for a in &kids {
                    let below = facts.below[*a].clone();
                    facts.below[i].extend(&below);
                }
            } else if !facts.param[i] {
                facts.below[i].insert(i);
            }
            if facts.live[i] && facts.role[i] == Role::Row {
                for v in &f.nodes[i].operands {
                    if !facts.users[at(*v)].contains(&i) {
                        facts.users[at(*v)].push(i);
                    }
                }
            }
        }
        facts.demand();
        facts
    }

    /// Operands that carry rows or parameters: not the boundaries of documents, which every row
    /// reads in its own way.
    fn rows_read(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        let node = &self.f.nodes[i];
        let info = node.op.info();
        let named = node.operands.iter().enumerate();
        named
            .filter(move |(j, _)| !info.operand_name(*j).starts_with("cu_seqlens"))
            .map(|(_, v)| at(*v))
    }

    /// Operands of a row op that are computed or loaded: no boundaries, no constants.
    pub(super) fn kids(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        self.rows_read(i).filter(|a| self.role[*a] != Role::Free)
    }

    pub(super) fn op(&self, i: usize) -> &Op {
        &self.f.nodes[i].op
    }

    pub(super) fn ty(&self, i: usize) -> &Ty {
        &self.f.nodes[i].tys[0]
    }

    pub(super) fn value(&self, i: usize) -> Value {
        NodeId(i as u32).into()
    }

    /// Whether the outermost dim is a number of rows, which is known only when running.
    pub(super) fn has_rows(&self, i: usize) -> bool {
        let first = self.f.nodes[i].tys.first().and_then(|t| t.dims.first());
        first.is_some_and(|d| d.size().as_constant().is_none())
    }

    /// Whether some dim is known only when running.
    fn is_sized_by_rows(&self, i: usize) -> bool {
        let mut dims = self.f.nodes[i].tys.iter().flat_map(|t| &t.dims);
        dims.any(|d| d.size().as_constant().is_none())
    }

    /// Whether the node itself sums over rows.
    pub(super) fn sums_rows(&self, i: usize) -> bool {
        match self.op(i) {
            Op::CausalConv1dWeightGrad { .. } => true,
            Op::ReduceSum { axes } | Op::ReduceMax { axes } => {
                axes.contains(&0) && self.has_rows(at(self.f.nodes[i].operands[0]))
            }
            _ => false,
        }
    }

    fn demand(&mut self) {
        let f = self.f;
        let mut wanted: Vec<Vec<Value>> = vec![];
        for (i, node) in f.nodes.iter().enumerate() {
            if self.role[i] == Role::Cut && self.live[i] {
                wanted.push(node.operands.clone());
            }
        }
        let cuts = wanted.len();
        wanted.push(f.output_values().collect());
        for (k, values) in wanted.into_iter().enumerate() {
            let mut out = vec![];
            let mut open: Vec<usize> = values.into_iter().rev().map(at).collect();
            let mut seen = Set::default();
            while let Some(i) = open.pop() {
                if self.role[i] != Role::Row || seen.contains(i) {
                    continue;
                }
                seen.insert(i);
                if self.places(i) {
                    open.extend(f.nodes[i].operands.iter().rev().map(|v| at(*v)));
                } else if !self.param[i] {
                    out.push(i);
                }
            }
            for i in &out {
                self.stored.insert(*i);
                if k < cuts {
                    self.readers[*i].insert(k);
                }
            }
            if !out.is_empty() {
                self.demands.push(out);
            }
        }
    }

    /// Whether the node is a place to store to when it stands before a consumer.
    pub(super) fn places(&self, i: usize) -> bool {
        matches!(self.op(i), Op::Concat { .. } | Op::Reshape { .. })
    }

    /// A size with every symbol at its typical value.
    pub(super) fn size(&self, p: &Poly) -> f64 {
        p.eval(&|_| Some(self.typical)).map_or(self.typical as f64, |n| n.max(0) as f64)
    }

    pub(super) fn elements(&self, i: usize) -> f64 {
        self.ty(i).dims.iter().map(|d| self.size(d.size())).product()
    }

    pub(super) fn bytes(&self, i: usize) -> f64 {
        self.elements(i) * self.ty(i).dtype.bytes() as f64
    }

    pub(super) fn value_bytes(&self, v: Value) -> f64 {
        let ty = self.f.ty(v);
        let elements: f64 = ty.dims.iter().map(|d| self.size(d.size())).product();
        elements * ty.dtype.bytes() as f64
    }

    /// Row ops that a kernel must compute somewhere.
    pub(super) fn row_ops(&self) -> Vec<usize> {
        (0..self.f.nodes.len())
            .filter(|i| self.live[*i] && self.role[*i] == Role::Row && !self.param[*i])
            .collect()
    }

    /// The node in memory that a leaf is a view of.
    pub(super) fn root(&self, mut i: usize) -> usize {
        while self.role[i] == Role::Leaf {
            match self.f.nodes[i].operands.first() {
                Some(v) => i = at(*v),
                None => break,
            }
        }
        i
    }

    /// The number of rows of a node, `None` when it has none.
    pub(super) fn rows(&self, i: usize) -> Option<&Dim> {
        self.has_rows(i).then(|| &self.ty(i).dims[0])
    }
}

/// Vectors of known sizes and numbers are all there is.
fn rowless(f: &Function) -> bool {
    let mut tys = f.nodes.iter().flat_map(|n| &n.tys);
    tys.all(|t| t.rank() < 2 && t.dims.iter().all(|d| d.size().as_constant().is_some()))
}

fn roles(f: &Function) -> Vec<Role> {
    let mut role: Vec<Role> = vec![];
    for node in &f.nodes {
        let first = node.operands.first().map(|v| role[at(*v)]);
        role.push(match &node.op {
            Op::Input { .. } | Op::Param { .. } => Role::Leaf,
            op if op.info().effect != Effect::Pure || node.tys.len() != 1 => Role::Cut,
            Op::Constant { .. } | Op::Iota { .. } => Role::Free,
            Op::Slice { .. } | Op::Reshape { .. }
                if matches!(first, Some(Role::Leaf | Role::Cut)) =>
            {
                Role::Leaf
            }
            // Rows and lanes change their places: that is a kernel of another kind.
            Op::Transpose { .. } => Role::Cut,
            Op::CausalConv1d
            | Op::CausalConv1dInputGrad
            | Op::CausalConv1dWeightGrad { .. }
            | Op::SegmentShift { .. }
            | Op::RowValid { .. } => Role::Row,
            op => match op.info().class {
                Class::Elementwise | Class::View | Class::Reduction => Role::Row,
                _ => Role::Cut,
            },
        });
    }
    role
}

fn live(f: &Function) -> Vec<bool> {
    let mut live: Vec<bool> = f.nodes.iter().map(|n| n.op.info().effect != Effect::Pure).collect();
    f.output_values().for_each(|v| live[at(v)] = true);
    for i in (0..f.nodes.len()).rev() {
        if live[i] {
            f.nodes[i].operands.iter().for_each(|v| live[at(*v)] = true);
        }
    }
    live
}
