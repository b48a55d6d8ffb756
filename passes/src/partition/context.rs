//! Context parallelism: the forward program of one of the ranks among which the rows of a pack are
//! dealt out.
//!
//! Works before differentiation: the gradients of exchanges are exchanges ([`vlmc_ir::ops::grad::mesh`]),
//! so the backward pass needs no lowering of its own. Afterwards the symbol of the rows stands for the
//! rows of one rank. A value is in one of three states, and is made in each of them when asked for:
//!
//! - *rows*: this rank's rows. Ops that treat each row alone stay as they are.
//! - *heads*: all rows, and of dim 1 this rank's part, segment by segment. The short convolution and the
//!   delta rule run in this state; what lies between them is made in it, so that one exchange leads
//!   in and one leads out.
//! - *whole*: all rows of everything: keys and values of attention, and what is shifted along a document.
//!
//! A sum over rows is summed over ranks as well, but for a loss, whose sum and count stay shares: both
//! are summed over ranks by whoever divides them.

use super::PartitionError;
use rustc_hash::{FxHashMap, FxHashSet};
use vlmc_ir::dim::{Dim, Poly, Symbol};
use vlmc_ir::graph::{Function, HostCall, Node, NodeId, OutputKind, Program, Value};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::text::print;
use vlmc_ir::ty::{DType, MeshAxis, Ty};

/// How the rows are dealt out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextParallel {
    /// Ranks.
    pub ranks: u32,
    /// The symbol that counts rows.
    pub rows: Symbol,
    /// How attention sees the rows of other ranks.
    pub attention: AttentionForm,
}

/// How attention sees the rows of other ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttentionForm {
    /// Keys and values of all rows on every rank.
    AllGather,
    /// All rows of some heads on every rank; the ranks must divide the key heads.
    AllToAll,
}

impl AttentionForm {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            AttentionForm::AllGather => "all-gather",
            AttentionForm::AllToAll => "a2a",
        }
    }
}

/// Inputs that the lowered program reads beside its own, and the host functions that give them.
const INPUTS: [(&str, &str); 5] = [
    ("cp.cu_seqlens", "pack_cu_seqlens"),
    ("cp.cu_seqlens_padded", "pack_cu_seqlens_padded"),
    ("cp.rows", "pack_rows"),
    ("cp.order", "pack_order"),
    ("cp.places", "pack_places"),
];

/// Those inputs in a function.
#[derive(Clone, Copy)]
struct Pack {
    cu_seqlens: Value,
    cu_seqlens_padded: Value,
    /// For each row of this rank, its row in the pack.
    rows: Value,
    /// For each row of the pack, where it is when the rows of all ranks stand one after the other.
    order: Value,
    /// The reverse.
    places: Value,
}

/// Lowers a forward program.
///
/// # Errors
/// Names the op that mixes rows in a way that has no lowering, or the sizes that the ranks do not divide.
pub fn context_parallel(
    program: &Program,
    options: &ContextParallel,
) -> Result<Program, PartitionError> {
    let shares = Shares::new(program, options);
    let mut out = Program { functions: vec![], ..program.clone() };
    for (i, f) in program.functions.iter().enumerate() {
        let is_main = i + 1 == program.functions.len();
        let lowering = Lowering::new(f, options, is_main, &shares, &boundaries(program)?);
        out.functions.push(lowering.run().map_err(|e| {
            PartitionError::new(format!("context parallelism in @{}: {}", f.name, e.message))
        })?);
    }
    Ok(out)
}

/// The type of the boundaries of documents.
fn boundaries(program: &Program) -> Result<Ty, PartitionError> {
    let inputs = program.main().into_iter().flat_map(|f| &f.inputs);
    let mut of = inputs.filter(|i| i.from.as_ref().is_some_and(|f| f.function == "cu_seqlens"));
    let input = of.next().ok_or_else(|| {
        PartitionError::new("context parallelism needs the boundaries of documents as an input")
    })?;
    Ok(input.ty.clone())
}

/// Sums over rows that stay this rank's share: those that are nothing but the sum and the count of a
/// loss.
struct Shares(FxHashSet<(String, NodeId)>);

/// A sum over rows, and the result of a function through which main has it.
type Traced = ((String, NodeId), Option<(String, u32)>);

impl Shares {
    fn new(program: &Program, options: &ContextParallel) -> Self {
        let mut found = FxHashSet::default();
        let Some(main) = program.main() else { return Shares(found) };
        let mut uses: FxHashMap<(&str, Value), usize> = FxHashMap::default();
        let mut results: FxHashMap<(&str, u32), usize> = FxHashMap::default();
        for f in &program.functions {
            let operands = f.nodes.iter().flat_map(|n| n.operands.iter().copied());
            for v in operands.chain(f.output_values()) {
                *uses.entry((&f.name, v)).or_default() += 1;
                if let Op::Call { callee, .. } = &f.node(v.node).op {
                    *results.entry((callee, v.result)).or_default() += 1;
                }
            }
        }
        // The sum over rows that a value is, when nothing else reads it; and the result of a function
        // that it passes through.
        let trace = |v: Value| -> Option<Traced> {
            let n = main.node(v.node);
            if uses.get(&(&*main.name, v)) != Some(&1) {
                return None;
            }
            match &n.op {
                Op::Call { callee, .. } => {
                    let f = program.function(callee)?;
                    let inner = f.output_values().nth(v.result as usize)?;
                    let is_sum = uses.get(&(&*f.name, inner)) == Some(&1)
                        && sums_rows(f, f.node(inner.node), options);
                    is_sum.then(|| ((f.name.clone(), inner.node), Some((callee.clone(), v.result))))
                }
                _ => sums_rows(main, n, options).then(|| ((main.name.clone(), v.node), None)),
            }
        };
        let mut through: FxHashMap<(String, u32), usize> = FxHashMap::default();
        let mut pairs = vec![];
        for o in &main.outputs {
            let OutputKind::Loss { count, .. } = o.kind else { continue };
            // A share goes with a share: sum and count are summed over ranks alike.
            if let (Some(sum), Some(count)) = (trace(o.value), trace(count)) {
                for result in [&sum.1, &count.1].into_iter().flatten() {
                    *through.entry(result.clone()).or_default() += 1;
                }
                pairs.push([sum, count]);
            }
        }
        // Every call of the function must use the results so.
        let all_so = |r: &Option<(String, u32)>| {
            r.as_ref().is_none_or(|r| through.get(r) == results.get(&(&*r.0, r.1)))
        };
        for pair in pairs {
            if pair.iter().all(|(_, r)| all_so(r)) {
                found.extend(pair.into_iter().map(|(node, _)| node));
            }
        }
        Shares(found)
    }
}

fn mentions(dim: &Dim, rows: &Symbol) -> bool {
    dim.size().symbols().contains(rows)
}

fn per_row(ty: &Ty, rows: &Symbol) -> bool {
    ty.dims.iter().any(|d| mentions(d, rows))
}

/// Whether a node sums over rows.
fn sums_rows(f: &Function, n: &Node, options: &ContextParallel) -> bool {
    let Op::ReduceSum { axes } = &n.op else { return false };
    let dims = n.operands.first().map(|v| &f.ty(*v).dims);
    dims.is_some_and(|dims| axes.iter().any(|a| mentions(&dims[*a as usize], &options.rows)))
}

struct Lowering<'p> {
    f: &'p Function,
    options: &'p ContextParallel,
    shares: &'p Shares,
    out: Function,
    pack: Pack,
    rows: FxHashMap<NodeId, NodeId>,
    heads: FxHashMap<Value, Value>,
    whole: FxHashMap<Value, Value>,
}

type Lowered<T> = Result<T, PartitionError>;

impl<'p> Lowering<'p> {
    fn new(
        f: &'p Function,
        options: &'p ContextParallel,
        is_main: bool,
        shares: &'p Shares,
        boundaries: &Ty,
    ) -> Self {
        let mut out = Function::new(f.name.clone());
        out.regions.clone_from(&f.regions);
        let mut rows = FxHashMap::default();
        // Inputs and parameters keep their numbers.
        for id in f.node_ids() {
            let n = f.node(id);
            match &n.op {
                Op::Input { index } => out.inputs.push(f.inputs[*index as usize].clone()),
                Op::Param { index } => out.params.push(f.params[*index as usize].clone()),
                _ => continue,
            }
            rows.insert(id, NodeId(out.nodes.len() as u32));
            out.nodes.push(n.clone());
        }
        let local = Ty::new(DType::I32, vec![Dim::new(Poly::symbol(&options.rows.0))]);
        let all = Ty::new(DType::I32, vec![all_rows(options)]);
        let tys = [boundaries.clone(), boundaries.clone(), local, all.clone(), all];
        let mut values = INPUTS.iter().zip(tys).map(|((name, function), ty)| {
            let from = HostCall { function: (*function).to_string(), arguments: vec![] };
            let v = out.add_input(name, ty, is_main.then_some(from));
            // An input may have any name, a node may not.
            out.nodes[v.node.0 as usize].name = None;
            v
        });
        let mut next = || values.next().unwrap_or(Value { node: NodeId(0), result: 0 });
        let (cu_seqlens, cu_seqlens_padded) = (next(), next());
        let (at, order, places) = (next(), next(), next());
        drop(values);
        let pack = Pack { cu_seqlens, cu_seqlens_padded, rows: at, order, places };
        Lowering {
            f,
            options,
            shares,
            out,
            pack,
            rows,
            heads: FxHashMap::default(),
            whole: FxHashMap::default(),
        }
    }

    fn run(mut self) -> Lowered<Function> {
        let mut outputs = vec![];
        for o in &self.f.outputs {
            let mut o = o.clone();
            o.value = self.rows(o.value)?;
            if let OutputKind::Loss { count, .. } = &mut o.kind {
                *count = self.rows(*count)?;
            }
            outputs.push(o);
        }
        self.out.outputs = outputs;
        Ok(self.out)
    }

    fn per_row(&self, v: Value) -> bool {
        per_row(self.f.ty(v), &self.options.rows)
    }

    /// Whether the first dim is the rows of the pack, one by one.
    fn has_rows(&self, v: Value) -> bool {
        let dims = &self.f.ty(v).dims;
        dims.first().is_some_and(|d| *d.size() == Poly::symbol(&self.options.rows.0))
            && !dims[1..].iter().any(|d| mentions(d, &self.options.rows))
    }

    fn emit(&mut self, like: &Node, op: Op, operands: &[Value]) -> Lowered<NodeId> {
        let id = self.out.push(op, operands)?;
        let n = &mut self.out.nodes[id.0 as usize];
        n.region = like.region;
        n.origins.clone_from(&like.origins);
        Ok(id)
    }

    fn refuse<T>(&self, id: NodeId, why: &str) -> Lowered<T> {
        let line = print::node_line(self.f, id.0 as usize);
        Err(PartitionError::new(format!("{why}\n    {line}")))
    }

    // ---- rows ----------------------------------------------------------------------------------

    /// A value in the state of rows; what has no rows is the same on all ranks.
    fn rows(&mut self, v: Value) -> Lowered<Value> {
        let node = match self.rows.get(&v.node) {
            Some(id) => *id,
            None => {
                let id = self.node(v.node)?;
                self.rows.insert(v.node, id);
                id
            }
        };
        Ok(Value { node, result: v.result })
    }

    fn all_in_rows(&mut self, n: &Node) -> Lowered<Vec<Value>> {
        n.operands.iter().map(|v| self.rows(*v)).collect()
    }

    /// Makes a node in the state of rows.
    fn node(&mut self, id: NodeId) -> Lowered<NodeId> {
        let n = self.f.node(id).clone();
        let value = Value::from(id);
        match &n.op {
            Op::CausalConv1d | Op::GatedDeltaRule if self.per_row(value) => {
                if n.tys.len() > 1 && self.second_is_used(id) {
                    return self.refuse(id, "the final states of documents are on other ranks");
                }
                return self.exchange_to_rows(&n, value);
            }
            Op::Attention { .. } if self.per_row(value) => match self.options.attention {
                AttentionForm::AllToAll => return self.exchange_to_rows(&n, value),
                AttentionForm::AllGather => {
                    let [q, k, v, ..] = n.operands[..] else {
                        return self.refuse(id, "attention without operands");
                    };
                    let operands = [
                        self.rows(q)?,
                        self.whole(k)?,
                        self.whole(v)?,
                        self.pack.cu_seqlens,
                        self.pack.cu_seqlens_padded,
                        self.pack.rows,
                    ];
                    let new = self.emit(&n, n.op.clone(), &operands)?;
                    self.out.nodes[new.0 as usize].name.clone_from(&n.name);
                    return Ok(new);
                }
            },
            Op::SegmentShift { .. } if self.per_row(value) => {
                let x = self.whole(n.operands[0])?;
                let operands = [x, self.pack.cu_seqlens, self.pack.cu_seqlens_padded];
                let shifted = self.emit(&n, n.op.clone(), &operands)?;
                return self.emit(&n, Op::Gather, &[shifted.into(), self.pack.rows]);
            }
            _ => self.check_alone(id, &n)?,
        }
        let mut operands = self.all_in_rows(&n)?;
        if matches!(n.op, Op::Call { .. }) {
            let p = self.pack;
            operands.extend([p.cu_seqlens, p.cu_seqlens_padded, p.rows, p.order, p.places]);
        }
        let new = NodeId(self.out.nodes.len() as u32);
        self.out.nodes.push(Node { operands, ..n.clone() });
        if self.sums(&n) && !self.shares.0.contains(&(self.f.name.clone(), id)) {
            let op = Op::AllReduce { axis: MeshAxis::Cp, ranks: self.options.ranks };
            return self.emit(&n, op, &[new.into()]);
        }
        Ok(new)
    }

    fn second_is_used(&self, id: NodeId) -> bool {
        let second = Value { node: id, result: 1 };
        let mut operands = self.f.nodes.iter().flat_map(|n| &n.operands);
        operands.any(|v| *v == second) || self.f.output_values().any(|v| v == second)
    }

    /// Whether a node adds up rows.
    fn sums(&self, n: &Node) -> bool {
        let rows = &self.options.rows;
        match &n.op {
            Op::ReduceSum { .. } => sums_rows(self.f, n, self.options),
            Op::Contract { a_contract, .. } => {
                let dims = n.operands.first().map(|v| &self.f.ty(*v).dims);
                dims.is_some_and(|d| a_contract.iter().any(|a| mentions(&d[*a as usize], rows)))
            }
            Op::ScatterAdd { count } => {
                !mentions(count, rows) && n.operands.iter().any(|v| self.per_row(*v))
            }
            _ => false,
        }
    }

    /// Refuses ops that mix rows in other ways.
    fn check_alone(&self, id: NodeId, n: &Node) -> Lowered<()> {
        let rows = &self.options.rows;
        let along = |v: Value, axis: u32| {
            self.f.ty(v).dims.get(axis as usize).is_some_and(|d| mentions(d, rows))
        };
        let first = n.operands.first().copied();
        let on_first = |axis: u32| first.is_some_and(|v| along(v, axis));
        let mixes = match &n.op {
            Op::Slice { axis, .. } | Op::Pad { axis, .. } | Op::Concat { axis } => on_first(*axis),
            Op::ReduceMax { axes } => axes.iter().any(|a| on_first(*a)),
            Op::Iota { axis, .. } => along(id.into(), *axis),
            Op::Gather => on_first(0),
            Op::ScatterAdd { count } => mentions(count, rows),
            Op::TopK { .. } => {
                first.is_some_and(|v| along(v, self.f.ty(v).rank().saturating_sub(1) as u32))
            }
            op => {
                let sequence = op.info().class == Class::Sequence;
                let alone = matches!(op, Op::RowValid { .. });
                sequence && !alone && n.tys.iter().any(|t| per_row(t, rows))
            }
        };
        if mixes {
            return self.refuse(id, "rows of different ranks meet here");
        }
        Ok(())
    }

    // ---- whole ---------------------------------------------------------------------------------

    /// All rows of a value, in the order of the pack.
    fn whole(&mut self, v: Value) -> Lowered<Value> {
        if let Some(w) = self.whole.get(&v) {
            return Ok(*w);
        }
        let n = self.f.node(v.node).clone();
        if !self.has_rows(v) {
            return self.refuse(v.node, "rows are not the first dim of what other ranks need");
        }
        let x = self.rows(v)?;
        let op = Op::AllGather { axis: MeshAxis::Cp, ranks: self.options.ranks, dim: 0 };
        let all = self.emit(&n, op, &[x])?;
        let order = self.pack.order;
        let w = self.emit(&n, Op::Gather, &[all.into(), order])?.into();
        self.whole.insert(v, w);
        Ok(w)
    }

    // ---- heads ---------------------------------------------------------------------------------

    /// All rows of this rank's part of dim 1.
    fn heads(&mut self, v: Value) -> Lowered<Value> {
        if let Some(h) = self.heads.get(&v) {
            return Ok(*h);
        }
        let h = match self.pulled(v)? {
            Some(h) => h,
            None => self.exchange_to_heads(v)?,
        };
        self.heads.insert(v, h);
        Ok(h)
    }

    /// By exchange: each rank sends every other its rows of the other's part.
    fn exchange_to_heads(&mut self, v: Value) -> Lowered<Value> {
        let n = self.f.node(v.node).clone();
        if !self.has_rows(v) {
            return self.refuse(v.node, "rows are not the first dim of what is divided by heads");
        }
        let x = self.rows(v)?;
        let ranks = self.options.ranks;
        let op = Op::AllToAll { axis: MeshAxis::Cp, ranks, split: 1, gather: 0 };
        let all = self.emit(&n, op, &[x])?;
        let order = self.pack.order;
        Ok(self.emit(&n, Op::Gather, &[all.into(), order])?.into())
    }

    fn exchange_to_rows(&mut self, n: &Node, v: Value) -> Lowered<NodeId> {
        let h = self.heads(v)?;
        let places = self.pack.places;
        let sorted = self.emit(n, Op::Gather, &[h, places])?;
        let ranks = self.options.ranks;
        let op = Op::AllToAll { axis: MeshAxis::Cp, ranks, split: 0, gather: 1 };
        let new = self.emit(n, op, &[sorted.into()])?;
        self.out.nodes[new.0 as usize].name.clone_from(&n.name);
        Ok(new)
    }

    /// This rank's part along `dim` of what is the same on all ranks.
    fn shard(&mut self, v: Value, dim: u32) -> Lowered<Value> {
        let n = self.f.node(v.node).clone();
        let x = self.rows(v)?;
        let op = Op::Shard { axis: MeshAxis::Cp, ranks: self.options.ranks, dim };
        Ok(self.emit(&n, op, &[x])?.into())
    }

    /// Makes a value in the state of heads from operands in it; `None` where its op does not let it.
    fn pulled(&mut self, v: Value) -> Lowered<Option<Value>> {
        let n = self.f.node(v.node).clone();
        if !self.has_rows(v) {
            return Ok(None);
        }
        let narrow = |dims: &[Dim]| -> Option<Vec<Dim>> {
            let ranks = Poly::constant(i64::from(self.options.ranks));
            let mut dims = dims.to_vec();
            *dims.get_mut(0)? = all_rows(self.options);
            let part = dims.get(1)?.try_map(&|p| p.div_evident(&ranks))?;
            *dims.get_mut(1)? = part;
            Some(dims)
        };
        let divided = narrow(&self.f.ty(v).dims);
        let first = n.operands.first().copied();
        let x_has_rows = first.is_some_and(|x| self.has_rows(x) && self.f.ty(x).rank() > 1);
        let (op, operands) = match &n.op {
            Op::CausalConv1d | Op::GatedDeltaRule | Op::Attention { .. } => {
                if divided.is_none() {
                    let ranks = self.options.ranks;
                    return self.refuse(
                        v.node,
                        &format!("{ranks} context-parallel ranks do not divide the heads"),
                    );
                }
                let mut operands = vec![];
                for (i, o) in n.operands.iter().enumerate() {
                    operands.push(match n.op.info().operand_name(i) {
                        "cu_seqlens" => self.pack.cu_seqlens,
                        "cu_seqlens_padded" => self.pack.cu_seqlens_padded,
                        "w" => self.shard(*o, 0)?,
                        "state" => self.shard(*o, 1)?,
                        _ => self.heads(*o)?,
                    });
                }
                (n.op.clone(), operands)
            }
            _ if divided.is_none() => return Ok(None),
            Op::Constant { value, dtype, .. } => {
                let shape = divided.unwrap_or_default();
                (Op::Constant { value: *value, dtype: *dtype, shape }, vec![])
            }
            op if op.info().class == Class::Elementwise => {
                let operands = n.operands.iter().map(|o| self.heads(*o));
                (op.clone(), operands.collect::<Lowered<Vec<_>>>()?)
            }
            Op::Reshape { .. } if x_has_rows => {
                let Some(x) = first else { return Ok(None) };
                let one = |v: Value| self.f.ty(v).dims[1].segments().len() <= 1;
                if !one(x) || !one(v) || narrow(&self.f.ty(x).dims).is_none() {
                    return Ok(None);
                }
                let shape = divided.unwrap_or_default();
                (Op::Reshape { shape }, vec![self.heads(x)?])
            }
            Op::Slice { axis, start, size } if x_has_rows && *axis > 0 => {
                let Some(x) = first else { return Ok(None) };
                let (mut start, mut size) = (start.clone(), size.clone());
                if *axis == 1 {
                    let Some(part) = self.segment_part(x, &start, &size) else { return Ok(None) };
                    (start, size) = part;
                }
                (Op::Slice { axis: *axis, start, size }, vec![self.heads(x)?])
            }
            Op::Repeat { axis, .. } | Op::Concat { axis } if x_has_rows && *axis > 0 => {
                if *axis == 1 && matches!(n.op, Op::Concat { .. }) {
                    return Ok(None);
                }
                let operands = n.operands.iter().map(|o| self.heads(*o));
                (n.op.clone(), operands.collect::<Lowered<Vec<_>>>()?)
            }
            Op::ReduceSum { axes } | Op::ReduceMax { axes }
                if x_has_rows && axes.iter().all(|a| *a > 1) =>
            {
                let Some(x) = first else { return Ok(None) };
                (n.op.clone(), vec![self.heads(x)?])
            }
            Op::Broadcast { dims, .. } => {
                let Some(x) = first else { return Ok(None) };
                let ty = self.f.ty(x).clone();
                let at = |d: u32| dims.iter().position(|to| *to == d);
                let is_one = |i: usize| ty.dims[i].size().is(1);
                let source = match (at(0).filter(|i| !is_one(*i)), at(1).filter(|i| !is_one(*i))) {
                    (Some(0), Some(1)) => self.heads(x)?,
                    (Some(0), None) => self.whole(x)?,
                    (None, Some(i)) => self.shard(x, i as u32)?,
                    (None, None) => self.rows(x)?,
                    _ => return Ok(None),
                };
                let shape = divided.unwrap_or_default();
                (Op::Broadcast { shape, dims: dims.clone() }, vec![source])
            }
            _ => return Ok(None),
        };
        let node = self.emit(&n, op, &operands)?;
        Ok(Some(Value { node, result: v.result }))
    }

    /// A slice of whole segments of dim 1 of `x`, in the state of heads.
    fn segment_part(&self, x: Value, start: &Dim, size: &Dim) -> Option<(Dim, Dim)> {
        let ranks = Poly::constant(i64::from(self.options.ranks));
        let mut ends = vec![Poly::constant(0)];
        for (_, p) in self.f.ty(x).dims.get(1)?.segments() {
            let end = ends.last()?.add(p);
            ends.push(end);
        }
        let end = start.size().add(size.size());
        if !ends.contains(start.size()) || !ends.contains(&end) {
            return None;
        }
        Some((
            start.try_map(&|p| p.div_evident(&ranks))?,
            size.try_map(&|p| p.div_evident(&ranks))?,
        ))
    }
}

/// The rows of all ranks.
fn all_rows(options: &ContextParallel) -> Dim {
    let ranks = Poly::constant(i64::from(options.ranks));
    Dim::new(Poly::symbol(&options.rows.0).mul(&ranks))
}
