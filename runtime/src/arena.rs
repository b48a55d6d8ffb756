//! Executes the memory plan of one rank on the host, execution by execution, in the plan's own
//! places.
//!
//! With [`Storage::Packed`] each pool is one allocation, and every value lies at its offset. With
//! [`Storage::Separate`] each block is allocated when it is first written and given back when it is
//! freed, and the bytes that are there are counted. Either way what is freed, and what is about to be
//! written, is poisoned: whoever reads it finds numbers that are none. So a plan that is wrong is
//! seen to be.
//!
//! Ops are those of the reference evaluator; this is a proof, not a fast way to train.

use crate::clusters::{decode, encode};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::{BTreeMap, BTreeSet};
use vlmc_artifact::memory::{Block, Execution, MemoryPlan, Pool, What};
use vlmc_artifact::{Buffer, Step};
use vlmc_ir::eval::{EvalError, Evaluator, Shape, Sizes, Tensor};
use vlmc_ir::graph::{Function, Node, NodeId, Param, Program};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::DType;

/// Every byte of what nobody may read: of floats a number that is none.
const POISON: u8 = 0xff;

/// Where values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// One allocation a pool.
    Packed,
    /// One allocation a block, when it is made.
    Separate,
}

/// A rank to execute.
#[derive(Clone, Copy, Debug)]
pub struct Job<'p> {
    /// Programs by name.
    pub programs: &'p [(&'p str, &'p Program)],
    /// The rank's steps.
    pub steps: &'p [Step],
    /// Values of symbols.
    pub sizes: &'p Sizes,
    /// The plan.
    pub plan: &'p MemoryPlan,
}

/// What an execution of a plan gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Results of the step and everything that stays, as they are in memory at the end.
    pub values: BTreeMap<Buffer, Vec<u8>>,
    /// Bytes of activations that were there during each execution.
    pub live: Vec<u64>,
    /// A digest of every operand of every execution, as it was read.
    pub read: Vec<Vec<u64>>,
}

/// Executes a plan. `source` gives what buffers hold when the step starts: inputs of microbatches,
/// parameters, the optimizer's state and numbers.
///
/// # Errors
/// When the plan names what is not, or an op fails.
pub fn execute(
    job: &Job<'_>,
    storage: Storage,
    source: &dyn Fn(&Buffer) -> Result<Tensor<f32>>,
) -> Result<Outcome> {
    let mut arena = Arena { job, memory: Memory::new(job.plan, storage)?, source };
    let mut out = Outcome::default();
    for b in &job.plan.blocks {
        if let Some(buffer) = &b.buffer {
            let bytes = match buffer {
                Buffer::Grad(_) => vec![POISON; b.bytes as usize],
                other => encode(&source(other)?)?,
            };
            arena.memory.write(b, &bytes)?;
        }
    }
    for (i, e) in job.plan.executions.iter().enumerate() {
        let read = arena.execution(e, &mut out.live);
        out.read.push(read.with_context(|| format!("execution {i} `{}`", e.name))?);
    }
    for (buffer, block) in &job.plan.results {
        out.values.insert(buffer.clone(), arena.memory.read(block_of(job.plan, *block)?)?);
    }
    for b in &job.plan.blocks {
        if let Some(buffer) = &b.buffer {
            out.values.insert(buffer.clone(), arena.memory.read(b)?);
        }
    }
    Ok(out)
}

fn block_of(plan: &MemoryPlan, block: usize) -> Result<&Block> {
    plan.blocks.get(block).ok_or_else(|| anyhow!("there is no block {block}"))
}

/// The bytes of a rank.
enum Memory {
    Packed(BTreeMap<Pool, Vec<u8>>),
    Separate(BTreeMap<(Pool, u64, String), Vec<u8>>),
}

impl Memory {
    fn new(plan: &MemoryPlan, storage: Storage) -> Result<Memory> {
        if storage == Storage::Separate {
            return Ok(Memory::Separate(BTreeMap::new()));
        }
        let mut pools = BTreeMap::new();
        for pool in Pool::ALL {
            // Libraries' room is for devices.
            let bytes = if pool == Pool::Workspace { 0 } else { plan.pool(pool) };
            pools.insert(pool, vec![POISON; usize::try_from(bytes)?]);
        }
        Ok(Memory::Packed(pools))
    }

    fn key(b: &Block) -> (Pool, u64, String) {
        (b.pool, b.offset, b.name.clone())
    }

    fn range<'m>(pools: &'m mut BTreeMap<Pool, Vec<u8>>, b: &Block) -> Result<&'m mut [u8]> {
        let pool = pools.get_mut(&b.pool).ok_or_else(|| anyhow!("no pool"))?;
        let range = b.offset as usize..(b.offset + b.bytes) as usize;
        pool.get_mut(range).ok_or_else(|| anyhow!("`{}` does not lie in its pool", b.name))
    }

    fn fill(&mut self, b: &Block) -> Result<()> {
        match self {
            Memory::Packed(pools) => Memory::range(pools, b)?.fill(POISON),
            Memory::Separate(blocks) => {
                blocks.insert(Memory::key(b), vec![POISON; usize::try_from(b.bytes)?]);
            }
        }
        Ok(())
    }

    fn write(&mut self, b: &Block, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 != b.bytes {
            bail!("`{}` has {} bytes, the plan has {}", b.name, bytes.len(), b.bytes);
        }
        match self {
            Memory::Packed(pools) => Memory::range(pools, b)?.copy_from_slice(bytes),
            Memory::Separate(blocks) => {
                blocks.insert(Memory::key(b), bytes.to_vec());
            }
        }
        Ok(())
    }

    fn read(&mut self, b: &Block) -> Result<Vec<u8>> {
        match self {
            Memory::Packed(pools) => Ok(Memory::range(pools, b)?.to_vec()),
            Memory::Separate(blocks) => {
                let found = blocks.get(&Memory::key(b)).cloned();
                Ok(found.unwrap_or_else(|| vec![POISON; b.bytes as usize]))
            }
        }
    }

    fn free(&mut self, b: &Block) -> Result<()> {
        match self {
            Memory::Packed(_) => self.fill(b),
            Memory::Separate(blocks) => {
                blocks.remove(&Memory::key(b));
                Ok(())
            }
        }
    }

    /// Bytes of what comes and goes that are allocated.
    fn live(&self) -> u64 {
        match self {
            Memory::Packed(_) => 0,
            Memory::Separate(blocks) => {
                let all = blocks.iter().filter(|((pool, ..), _)| *pool == Pool::Activations);
                all.map(|(_, bytes)| bytes.len() as u64).sum()
            }
        }
    }
}

struct Arena<'a, 'p> {
    job: &'a Job<'p>,
    memory: Memory,
    source: &'a dyn Fn(&Buffer) -> Result<Tensor<f32>>,
}

impl<'p> Arena<'_, 'p> {
    /// Does one execution. Returns digests of its operands.
    fn execution(&mut self, e: &Execution, live: &mut Vec<u64>) -> Result<Vec<u64>> {
        let plan = self.job.plan;
        let blocks = |of: &[usize]| -> Result<Vec<Block>> {
            of.iter().map(|b| block_of(plan, *b).cloned()).collect()
        };
        let (reads, writes) = (blocks(&e.reads)?, blocks(&e.writes)?);
        let node = match &e.what {
            What::Node { step, at, .. } => Some(self.node(*step, at)?),
            _ => None,
        };
        // A kernel writes while it reads; where it may write is what it reads at the same place.
        let in_place = match &node {
            Some((p, _, n)) => match &n.op {
                Op::Call { callee, .. } => p.function(callee).is_some_and(elementwise),
                op => op.info().class == Class::Elementwise,
            },
            None => matches!(e.what, What::Accumulate { .. } | What::Step { .. }),
        };
        for w in &writes {
            if !(in_place && reads.contains(w)) {
                self.memory.fill(w)?;
            }
        }
        let operands: Vec<Vec<u8>> =
            reads.iter().map(|b| self.memory.read(b)).collect::<Result<_>>()?;
        let digests = operands.iter().map(|b| digest(b)).collect();
        let results = self.results(e, node, &operands)?;
        if results.len() != writes.len() {
            bail!("{} results for {} blocks", results.len(), writes.len());
        }
        for (b, bytes) in writes.iter().zip(&results) {
            self.memory.write(b, bytes)?;
        }
        live.push(self.memory.live());
        for b in blocks(&e.frees)? {
            self.memory.free(&b)?;
        }
        Ok(digests)
    }

    fn results(
        &self,
        e: &Execution,
        node: Option<(&'p Program, &'p Function, &'p Node)>,
        operands: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>> {
        let given = |buffers: &[Buffer]| -> Result<Vec<Vec<u8>>> {
            buffers.iter().map(|b| encode(&(self.source)(b)?)).collect()
        };
        Ok(match &e.what {
            What::Scalars { buffers } | What::Load { buffers, .. } => given(buffers)?,
            What::Node { .. } => {
                let (program, f, node) = node.ok_or_else(|| anyhow!("there is no node"))?;
                self.evaluate(program, f, node, operands)?
            }
            What::Accumulate { first: true, .. } | What::Copy { .. } => operands.to_vec(),
            What::Accumulate { .. } => {
                let [sum, part] = operands else { bail!("an addition has two operands") };
                vec![
                    floats(sum)
                        .zip(floats(part))
                        .flat_map(|(a, b)| (a + b).to_le_bytes())
                        .collect(),
                ]
            }
            What::Publish { param } => {
                let [master] = operands else { bail!("a copy has one operand") };
                vec![self.publish(param, e, master)?]
            }
            What::Step { step } => self.step(*step, operands)?,
        })
    }

    /// A master weight in the dtype of its copy, which the copy's size tells.
    fn publish(&self, param: &str, e: &Execution, master: &[u8]) -> Result<Vec<u8>> {
        let copy = e.writes.first().and_then(|b| self.job.plan.blocks.get(*b));
        let copy = copy.ok_or_else(|| anyhow!("`{param}` has no copy"))?;
        let narrow = copy.bytes < master.len() as u64;
        let dtype = if narrow { DType::Bf16 } else { DType::F32 };
        let values: Vec<f32> = floats(master).collect();
        let round = |v: f32| if narrow { vlmc_ir::eval::Real::round_bf16(v) } else { v };
        let values = values.into_iter().map(round).collect::<Vec<f32>>();
        encode(&Tensor::floats(dtype, vec![values.len()], values)?)
    }

    /// A step that runs no program.
    fn step(&self, step: usize, operands: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let number = |b: &Vec<u8>| f64::from(floats(b).next().unwrap_or(f32::NAN));
        match self.job.steps.get(step) {
            Some(Step::Totals) => {
                let mut counts: BTreeSet<(usize, &str)> = BTreeSet::new();
                for s in &self.job.steps[..step] {
                    let Step::Run { outputs, .. } = s else { continue };
                    counts.extend(outputs.iter().filter_map(|b| match b {
                        Buffer::LossCount(m, n) => Some((*m, &**n)),
                        _ => None,
                    }));
                }
                let mut totals: Vec<(&str, f64)> = vec![];
                for ((_, name), bytes) in counts.iter().zip(operands) {
                    match totals.iter_mut().find(|(n, _)| n == name) {
                        Some((_, sum)) => *sum += number(bytes),
                        None => totals.push((name, number(bytes))),
                    }
                }
                Ok(totals.into_iter().map(|(_, v)| (v as f32).to_le_bytes().to_vec()).collect())
            }
            Some(Step::Norm) => {
                let sum: f64 = operands.iter().map(number).sum();
                Ok(vec![(sum.sqrt() as f32).to_le_bytes().to_vec()])
            }
            Some(Step::Reduce { .. } | Step::Tie { .. }) => Ok(operands.to_vec()),
            _ => bail!("one rank alone cannot do this step"),
        }
    }

    fn node(&self, step: usize, at: &[u32]) -> Result<(&'p Program, &'p Function, &'p Node)> {
        let missing = || anyhow!("there is no such node");
        let Some(Step::Run { program, .. }) = self.job.steps.get(step) else {
            return Err(missing());
        };
        let found = self.job.programs.iter().find(|(n, _)| n == program);
        let (_, program) = found.ok_or_else(missing)?;
        let mut f = program.main().ok_or_else(missing)?;
        let (last, calls) = at.split_last().ok_or_else(missing)?;
        for i in calls {
            let Some(Op::Call { callee, .. }) = f.nodes.get(*i as usize).map(|n| &n.op) else {
                return Err(missing());
            };
            f = program.function(callee).ok_or_else(missing)?;
        }
        Ok((program, f, f.nodes.get(*last as usize).ok_or_else(missing)?))
    }

    /// Runs one node by itself.
    fn evaluate(
        &self,
        program: &Program,
        f: &Function,
        node: &Node,
        operands: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>> {
        if operands.len() != node.operands.len() {
            bail!("{} operands, not {}", operands.len(), node.operands.len());
        }
        let mut main = Function::new("main");
        let mut inputs = vec![];
        for (i, (v, bytes)) in node.operands.iter().zip(operands).enumerate() {
            let ty = f.ty(*v);
            let name = format!("x{i}");
            main.add_input(&name, ty.clone(), None);
            let shape = Shape { dtype: ty.dtype, dims: self.job.sizes.eval_all(&ty.dims)? };
            inputs.push((name, decode::<f32>(&shape, bytes)?));
        }
        let operands = (0..inputs.len() as u32).map(|i| NodeId(i).into()).collect();
        let id = main.push_node(node.op.clone(), operands, node.tys.clone(), None);
        for result in 0..node.tys.len() as u32 {
            main.add_output(None, vlmc_ir::graph::Value { node: id, result });
        }
        let mut functions = vec![];
        if let Op::Call { callee, .. } = &node.op {
            functions.extend(program.function(callee).cloned());
        }
        functions.push(main);
        let alone = Program {
            symbols: program.symbols.clone(),
            files: program.files.clone(),
            functions,
            ..Program::default()
        };
        let mut none = |name: &str, _: &Param| {
            Err(EvalError::new(format!("a kernel reads the parameter {name}")))
        };
        let mut evaluator = Evaluator::new(&alone, &mut none);
        for s in &program.symbols {
            if let Some(v) = self.job.sizes.get(&s.symbol) {
                evaluator = evaluator.with_size(&s.symbol.0, v);
            }
        }
        let inputs: Vec<(&str, Tensor<f32>)> =
            inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let results = evaluator.run_main(&inputs)?;
        results.0.iter().map(|o| encode(&o.value)).collect()
    }
}

/// Whether a cluster works element by element, apart from single numbers that it reads.
fn elementwise(f: &Function) -> bool {
    let number = |n: &Node| n.operands.iter().all(|v| f.ty(*v).rank() == 0);
    f.nodes.iter().all(|n| {
        matches!(n.op, Op::Input { .. } | Op::Constant { .. })
            || matches!(n.op, Op::Broadcast { .. }) && number(n)
            || n.op.info().class == Class::Elementwise
    })
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// FNV-1a, 64 bit.
fn digest(bytes: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
