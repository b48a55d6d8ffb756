//! The steps of a rank as executions, one a kernel.

use super::{MemoryError, Rank, buffer_name, pool_of};
use crate::recompute::is_replay;
use std::collections::BTreeMap;
use vlmc_artifact::memory::What;
use vlmc_artifact::{Buffer, Step};
use vlmc_ir::graph::{Function, Node, NodeId, Program, join_name};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::Ty;

/// A value of the rank.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The buffer of one that stays.
    pub(super) stays: Option<Buffer>,
}

/// A kernel.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) name: String,
    pub(super) what: What,
    pub(super) reads: Vec<usize>,
    pub(super) writes: Vec<usize>,
    /// Each element of the results depends on the elements of the operands at the same place, so
    /// that it may write over one.
    pub(super) pointwise: bool,
}

/// A rank's values and kernels.
#[derive(Clone, Debug, Default)]
pub(super) struct Flat {
    pub(super) items: Vec<Item>,
    pub(super) works: Vec<Work>,
    /// Values that may be made where one that stays is, which they replace.
    pub(super) targets: BTreeMap<usize, (usize, Buffer)>,
    /// Values that are results of the step.
    pub(super) results: Vec<(Buffer, usize)>,
}

struct Flattener<'r> {
    rank: &'r Rank<'r>,
    flat: Flat,
    /// Where buffers are.
    current: BTreeMap<Buffer, usize>,
}

/// Flattens the steps.
pub(super) fn flatten(rank: &Rank<'_>) -> Result<Flat, MemoryError> {
    let mut f = Flattener { rank, flat: Flat::default(), current: BTreeMap::new() };
    f.scalars()?;
    let mut sunk: Vec<bool> = vec![false; rank.steps.len()];
    for (i, step) in rank.steps.iter().enumerate() {
        match step {
            Step::Load { microbatch } => f.load(*microbatch)?,
            Step::Run { program, inputs, outputs, .. } => {
                // Gradients are added by the next accumulation, if it comes before the next run.
                let next = rank.steps.iter().enumerate().skip(i + 1);
                let next = next.take_while(|(_, s)| !matches!(s, Step::Run { .. }));
                let mut adds = next.filter_map(|(j, s)| match s {
                    Step::Accumulate { params } => Some((j, &params[..])),
                    _ => None,
                });
                let (at, params) = adds.next().unwrap_or((i, &[]));
                sunk[at] = true;
                f.run(i, program, inputs, outputs, params)?;
            }
            Step::Totals => f.totals(i),
            Step::Send { buffers, to } => {
                let reads = buffers.iter().map(|b| f.made_before(b)).collect::<Result<_, _>>()?;
                f.push(format!("send to {to}"), What::Step { step: i }, reads, vec![]);
            }
            Step::Receive { buffers, from } => {
                let types = f.inputs(|b| buffers.contains(b))?;
                let mut writes = vec![];
                for b in buffers {
                    let ty = types.get(b).ok_or_else(|| {
                        MemoryError::new(format!("nobody reads {}", buffer_name(b)))
                    })?;
                    let bytes = f.bytes(ty)?;
                    writes.push(f.buffer(b, bytes));
                }
                f.push(format!("receive from {from}"), What::Step { step: i }, vec![], writes);
            }
            Step::Reduce { params } => {
                let grads = params.iter().map(|p| f.gradient(p));
                let grads: Vec<usize> = grads.collect::<Result<_, _>>()?;
                f.push("reduce gradients".into(), What::Step { step: i }, grads.clone(), grads);
            }
            Step::Tie { param, .. } => {
                let grad = vec![f.gradient(param)?];
                f.push(format!("tie {param}"), What::Step { step: i }, grad.clone(), grad);
            }
            Step::Norm => {
                let squares = f.current.iter().filter(|(b, _)| matches!(b, Buffer::GradSquares(_)));
                let reads = squares.map(|(_, v)| *v).collect();
                let writes = vec![f.buffer(&Buffer::GradNorm, 4)];
                f.push("norm".into(), What::Step { step: i }, reads, writes);
            }
            Step::Accumulate { params } if !sunk[i] => {
                for p in params {
                    let work = f.accumulate(p)?;
                    f.flat.works.push(work);
                }
            }
            Step::Accumulate { .. } => {}
            Step::Publish { params } => f.publish(params)?,
            Step::Free { buffers } => buffers.iter().for_each(|b| {
                if pool_of(b).is_none() {
                    f.current.remove(b);
                }
            }),
        }
    }
    let stays = |b: &Buffer| {
        matches!(
            b,
            Buffer::LossSum(..) | Buffer::LossCount(..) | Buffer::TotalCount(_) | Buffer::GradNorm
        )
    };
    f.flat.results =
        f.current.iter().filter(|(b, _)| stays(b)).map(|(b, v)| (b.clone(), *v)).collect();
    Ok(f.flat)
}

impl<'r> Flattener<'r> {
    fn bytes(&self, ty: &Ty) -> Result<u64, MemoryError> {
        let sizes = self.rank.sizes;
        let v = ty.bytes().eval(&|s| sizes.get(s).and_then(|v| i64::try_from(v).ok()));
        v.and_then(|v| u64::try_from(v).ok())
            .ok_or_else(|| MemoryError::new(format!("the size of {ty} is not known")))
    }

    fn item(&mut self, name: String, bytes: u64) -> usize {
        self.flat.items.push(Item { name, bytes, stays: None });
        self.flat.items.len() - 1
    }

    fn buffer(&mut self, b: &Buffer, bytes: u64) -> usize {
        if let Some(v) = self.current.get(b) {
            return *v;
        }
        let stays = pool_of(b).map(|_| b.clone());
        self.flat.items.push(Item { name: buffer_name(b), bytes, stays });
        let v = self.flat.items.len() - 1;
        self.current.insert(b.clone(), v);
        v
    }

    fn program(&self, name: &str) -> Result<&'r Program, MemoryError> {
        let found = self.rank.programs.iter().find(|(n, _)| *n == name);
        found.map(|(_, p)| *p).ok_or_else(|| MemoryError::new(format!("no program `{name}`")))
    }

    /// Buffers that runs read, with their types, of those that `wanted` holds for.
    fn inputs(
        &self,
        wanted: impl Fn(&Buffer) -> bool,
    ) -> Result<BTreeMap<Buffer, &'r Ty>, MemoryError> {
        let mut out = BTreeMap::new();
        for step in self.rank.steps {
            let Step::Run { program, inputs, .. } = step else { continue };
            let Some(main) = self.program(program)?.main() else { continue };
            for (name, b) in inputs.iter().filter(|(_, b)| wanted(b)) {
                if let Some(i) = main.inputs.iter().find(|i| *i.name == **name) {
                    out.insert(b.clone(), &i.ty);
                }
            }
        }
        Ok(out)
    }

    fn made(&mut self, buffers: &BTreeMap<Buffer, &Ty>) -> Result<Vec<usize>, MemoryError> {
        let mut out = vec![];
        for (b, ty) in buffers {
            let bytes = self.bytes(ty)?;
            out.push(self.buffer(b, bytes));
        }
        Ok(out)
    }

    fn push(&mut self, name: String, what: What, reads: Vec<usize>, writes: Vec<usize>) {
        self.flat.works.push(Work { name, what, reads, writes, pointwise: false });
    }

    fn scalars(&mut self) -> Result<(), MemoryError> {
        let buffers = self.inputs(|b| matches!(b, Buffer::Scalar(_)))?;
        let writes = self.made(&buffers)?;
        if !writes.is_empty() {
            let buffers = buffers.into_keys().collect();
            self.push("scalars".into(), What::Scalars { buffers }, vec![], writes);
        }
        Ok(())
    }

    fn load(&mut self, microbatch: usize) -> Result<(), MemoryError> {
        let of = |b: &Buffer| matches!(b, Buffer::Input(m, _) if *m == microbatch);
        let buffers = self.inputs(of)?;
        let writes = self.made(&buffers)?;
        let buffers = buffers.into_keys().collect();
        let what = What::Load { microbatch, buffers };
        self.push(format!("load microbatch {microbatch}"), what, vec![], writes);
        Ok(())
    }

    /// A buffer that a step before has made.
    fn made_before(&self, b: &Buffer) -> Result<usize, MemoryError> {
        let v = self.current.get(b).copied();
        v.ok_or_else(|| MemoryError::new(format!("{} is not made", buffer_name(b))))
    }

    /// The main gradient of a parameter, which steps before this list may have made.
    fn gradient(&mut self, p: &str) -> Result<usize, MemoryError> {
        let b = Buffer::Grad(p.to_string());
        if let Some(ty) = self.inputs(|of| *of == b)?.get(&b) {
            let bytes = self.bytes(ty)?;
            return Ok(self.buffer(&b, bytes));
        }
        self.made_before(&b)
    }

    fn totals(&mut self, step: usize) {
        let counts: Vec<(Buffer, usize)> = self
            .current
            .iter()
            .filter(|(b, _)| matches!(b, Buffer::LossCount(..)))
            .map(|(b, v)| (b.clone(), *v))
            .collect();
        let mut buffers: Vec<Buffer> = vec![];
        for (b, _) in &counts {
            if let Buffer::LossCount(_, n) = b {
                let total = Buffer::TotalCount(n.clone());
                if !buffers.contains(&total) {
                    buffers.push(total);
                }
            }
        }
        let writes = buffers.iter().map(|b| self.buffer(b, 4)).collect();
        let reads = counts.iter().map(|(_, v)| *v).collect();
        self.push("totals".into(), What::Step { step }, reads, writes);
    }

    fn publish(&mut self, params: &[String]) -> Result<(), MemoryError> {
        for p in params {
            let master = self.current.get(&Buffer::Master(p.clone())).copied();
            let master = master.ok_or_else(|| MemoryError::new(format!("no master of `{p}`")))?;
            let copy = self.current.get(&Buffer::Param(p.clone())).copied();
            // A parameter that no program reads has its copy nevertheless.
            let copy = match copy {
                Some(v) => v,
                None => {
                    let half = self.flat.items[master].bytes / 2;
                    self.buffer(&Buffer::Param(p.clone()), half)
                }
            };
            let what = What::Publish { param: p.clone() };
            self.push(format!("publish {p}"), what, vec![master], vec![copy]);
        }
        Ok(())
    }

    /// The addition of a gradient that is there.
    fn accumulate(&mut self, p: &str) -> Result<Work, MemoryError> {
        let local = self.current.remove(&Buffer::LocalGrad(p.to_string()));
        let local = local.ok_or_else(|| MemoryError::new(format!("no gradient of `{p}`")))?;
        let main = Buffer::Grad(p.to_string());
        let first = !self.current.contains_key(&main);
        let grad = self.buffer(&main, self.flat.items[local].bytes);
        let reads = if first { vec![local] } else { vec![grad, local] };
        let what = What::Accumulate { param: p.to_string(), first };
        let name = format!("accumulate {p}");
        Ok(Work { name, what, reads, writes: vec![grad], pointwise: false })
    }

    fn run(
        &mut self,
        step: usize,
        program: &str,
        inputs: &[(String, Buffer)],
        outputs: &[Buffer],
        accumulated: &[String],
    ) -> Result<(), MemoryError> {
        let p = self.program(program)?;
        let Some(index) = p.functions.len().checked_sub(1) else {
            return Err(MemoryError::new(format!("program `{program}` is empty")));
        };
        let main = &p.functions[index];
        let mut operands = vec![];
        for input in &main.inputs {
            let given = inputs.iter().find(|(n, _)| **n == *input.name);
            let (_, b) = given.ok_or_else(|| {
                MemoryError::new(format!("program `{program}`: nothing gives `{}`", input.name))
            })?;
            let bytes = self.bytes(&input.ty)?;
            if !self.current.contains_key(b) && pool_of(b).is_none() {
                return Err(MemoryError::new(format!("{} is not made", buffer_name(b))));
            }
            operands.push(self.buffer(b, bytes));
        }
        let start = self.flat.works.len();
        let call = Frame { step, scope: "", path: "", at: &[] };
        let results = self.function(p, index, &operands, &call)?;
        if results.len() != outputs.len() {
            return Err(MemoryError::new(format!("program `{program}`: wrong number of outputs")));
        }
        for (b, v) in outputs.iter().zip(results) {
            if pool_of(b).is_some() {
                let target = self.buffer(b, self.flat.items[v].bytes);
                self.flat.targets.insert(v, (target, b.clone()));
                let what = What::Copy { buffer: b.clone() };
                self.push(format!("copy {}", buffer_name(b)), what, vec![v], vec![target]);
            } else {
                self.current.insert(b.clone(), v);
            }
        }
        self.sink(start, accumulated)
    }

    /// Puts additions of gradients behind what makes them.
    fn sink(&mut self, start: usize, params: &[String]) -> Result<(), MemoryError> {
        let mut after: BTreeMap<usize, Vec<Work>> = BTreeMap::new();
        for p in params {
            let work = self.accumulate(p)?;
            let local = work.reads.last().copied().unwrap_or_default();
            let made = self.flat.works[start..].iter().rposition(|w| w.writes.contains(&local));
            let made = made.map_or(self.flat.works.len(), |i| start + i);
            after.entry(made).or_default().push(work);
        }
        if after.is_empty() {
            return Ok(());
        }
        let works = self.flat.works.split_off(start);
        for (i, work) in works.into_iter().enumerate() {
            self.flat.works.push(work);
            self.flat.works.extend(after.remove(&(start + i)).unwrap_or_default());
        }
        self.flat.works.extend(after.into_values().flatten());
        Ok(())
    }

    /// Enters a function. Returns the values of its outputs, a loss's count after its sum.
    fn function(
        &mut self,
        p: &'r Program,
        index: usize,
        operands: &[usize],
        frame: &Frame<'_>,
    ) -> Result<Vec<usize>, MemoryError> {
        let f = &p.functions[index];
        let mut values: Vec<Vec<usize>> = Vec::with_capacity(f.nodes.len());
        let lost = || MemoryError::new("an operand is not there");
        for (i, node) in f.nodes.iter().enumerate() {
            let of = node.operands.iter().map(|v| {
                let results = values.get(v.node.0 as usize)?;
                results.get(v.result as usize).copied()
            });
            let of: Vec<usize> = of.collect::<Option<_>>().ok_or_else(lost)?;
            let mut at = frame.at.to_vec();
            at.push(i as u32);
            let results = match &node.op {
                Op::Input { index } => {
                    vec![*operands.get(*index as usize).ok_or_else(lost)?]
                }
                Op::Param { index } => {
                    let param = f.params.get(*index as usize).ok_or_else(lost)?;
                    let name = join_name(frame.scope, &param.key);
                    let bytes = self.bytes(&param.ty)?;
                    vec![self.buffer(&Buffer::Param(name), bytes)]
                }
                Op::Reshape { .. } => of,
                Op::Call { callee, scope, path, .. } => {
                    let target = p.functions[..index].iter().position(|g| g.name == *callee);
                    let target = target.ok_or_else(lost)?;
                    if p.functions[target].cluster.is_some() {
                        let results = self.node(f, node, of, at, frame)?;
                        if let Some(work) = self.flat.works.last_mut() {
                            work.pointwise = is_pointwise(&p.functions[target]);
                        }
                        results
                    } else {
                        let scope = join_name(frame.scope, scope);
                        let path = join_name(frame.path, path);
                        let frame = Frame { step: frame.step, scope: &scope, path: &path, at: &at };
                        self.function(p, target, &of, &frame)?
                    }
                }
                _ => self.node(f, node, of, at, frame)?,
            };
            values.push(results);
        }
        let outputs = f
            .output_values()
            .map(|v| values.get(v.node.0 as usize)?.get(v.result as usize).copied());
        outputs.collect::<Option<_>>().ok_or_else(lost)
    }

    fn node(
        &mut self,
        f: &Function,
        node: &Node,
        reads: Vec<usize>,
        at: Vec<u32>,
        frame: &Frame<'_>,
    ) -> Result<Vec<usize>, MemoryError> {
        let label = node.name.as_deref().or(node.origins.first().map(|o| &*o.path));
        let name = join_name(frame.path, label.unwrap_or(node.op.name()));
        let replay = at.last().is_some_and(|i| is_replay(f, NodeId(*i)));
        let mut writes = vec![];
        for (i, ty) in node.tys.iter().enumerate() {
            let bytes = self.bytes(ty)?;
            let name = if i == 0 { name.clone() } else { format!("{name}#{i}") };
            writes.push(self.item(name, bytes));
        }
        let what = What::Node { step: frame.step, at, replay };
        let pointwise = node.op.info().class == Class::Elementwise;
        self.flat.works.push(Work { name, what, reads, writes: writes.clone(), pointwise });
        Ok(writes)
    }
}

/// Where a function is called from.
struct Frame<'f> {
    step: usize,
    scope: &'f str,
    path: &'f str,
    at: &'f [u32],
}

/// Whether a cluster computes each element from the elements at the same place and from numbers.
fn is_pointwise(cluster: &Function) -> bool {
    cluster.nodes.iter().all(|n| match &n.op {
        Op::Input { .. } | Op::Constant { .. } => true,
        Op::Broadcast { .. } => n.operands.iter().all(|v| cluster.ty(*v).rank() == 0),
        op => op.info().class == Class::Elementwise,
    })
}
