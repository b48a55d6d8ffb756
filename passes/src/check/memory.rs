//! Whether a memory plan computes what its programs say.
//!
//! The plan is followed execution by execution with names in place of numbers. What is in memory is
//! known as ranges of bytes with the value in each. An execution must find in every block that it
//! reads exactly the value that the program has there; what it is, the checker finds out from the
//! programs and steps alone. A write destroys whatever it overlaps, a free what it frees. So it is
//! found when something is read after it is freed, overwritten while it is needed, replayed in the
//! wrong order, or not made again before its use. A fault names the execution that misses the value
//! and the one that took it away.

use std::collections::BTreeMap;
use vlmc_artifact::memory::{Block, Execution, MemoryPlan, Pool, What};
use vlmc_artifact::{Buffer, Step};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, Node, Program, Value, join_name};
use vlmc_ir::ops::{Class, Op};

/// What is wrong with a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The execution that does not find what it needs.
    pub at: usize,
    /// The execution that is to blame, when there is one.
    pub by: Option<usize>,
    /// In words, with the names of both.
    pub message: String,
}

/// A value, as the programs have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Name {
    /// What a buffer holds when the step starts.
    Start(Buffer),
    /// A result of a node, by the step and the indices of nodes from main inwards.
    Result(usize, Vec<u32>, u32),
    /// The main gradient of a parameter after so many additions.
    Sum(String, usize),
    /// What a step makes that runs no program.
    Made(usize, usize),
    /// A parameter's rounded copy.
    Published(String),
}

/// The programs and steps of a rank, whose plan is checked.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'p> {
    /// Programs by name.
    pub programs: &'p [(&'p str, &'p Program)],
    /// The steps.
    pub steps: &'p [Step],
    /// Values of symbols.
    pub sizes: &'p Sizes,
}

/// Everything that is wrong with a plan, in the order of its executions.
pub fn check(subject: &Subject<'_>, plan: &MemoryPlan) -> Vec<Fault> {
    let mut checker = match Checker::new(subject, plan) {
        Ok(checker) => checker,
        Err(message) => return vec![Fault { at: 0, by: None, message }],
    };
    for i in 0..plan.executions.len() {
        checker.execution(i);
    }
    checker.end();
    checker.faults
}

/// What buffers hold before each step, by the steps alone.
struct History {
    before: Vec<BTreeMap<Buffer, Name>>,
    end: BTreeMap<Buffer, Name>,
    /// The gradients that are added for each parameter, in order.
    added: BTreeMap<String, Vec<Name>>,
}

struct Checker<'p> {
    subject: &'p Subject<'p>,
    plan: &'p MemoryPlan,
    history: History,
    /// Ranges by pool and first byte: the byte behind, and the value.
    memory: BTreeMap<(Pool, u64), (u64, Name)>,
    /// Who destroyed what: pool, range, execution, and how.
    destroyed: Vec<(Pool, u64, u64, usize, &'static str)>,
    additions: BTreeMap<String, usize>,
    faults: Vec<Fault>,
}

impl<'p> Checker<'p> {
    fn new(subject: &'p Subject<'p>, plan: &'p MemoryPlan) -> Result<Self, String> {
        let history = history(subject)?;
        let mut memory = BTreeMap::new();
        for b in plan.blocks.iter().filter(|b| b.bytes > 0) {
            if let Some(buffer) = &b.buffer {
                let name = Name::Start(buffer.clone());
                memory.insert((b.pool, b.offset), (b.offset + b.bytes, name));
            }
        }
        Ok(Checker {
            subject,
            plan,
            history,
            memory,
            destroyed: vec![],
            additions: BTreeMap::new(),
            faults: vec![],
        })
    }

    fn fault(&mut self, at: usize, by: Option<usize>, message: String) {
        self.faults.push(Fault { at, by, message });
    }

    fn title(&self, i: usize) -> String {
        let name = self.plan.executions.get(i).map_or("", |e| &*e.name);
        format!("{i} `{name}`")
    }

    fn execution(&mut self, i: usize) {
        let plan = self.plan;
        let e = &plan.executions[i];
        let (reads, writes) = match self.expected(e) {
            Ok(expected) => expected,
            Err(message) => {
                let title = self.title(i);
                return self.fault(i, None, format!("{title}: {message}"));
            }
        };
        if reads.len() != e.reads.len() || writes.len() != e.writes.len() {
            let title = self.title(i);
            return self.fault(
                i,
                None,
                format!("{title} reads or writes another number of blocks"),
            );
        }
        let in_place = self.may_overwrite(e);
        for (block, name) in e.reads.iter().zip(&reads) {
            self.read(i, *block, name);
        }
        for w in &e.writes {
            for r in &e.reads {
                let (Some(a), Some(b)) = (plan.blocks.get(*w), plan.blocks.get(*r)) else {
                    continue;
                };
                if overlap(a, b) && !(in_place && a.offset == b.offset && a.bytes == b.bytes) {
                    let title = self.title(i);
                    let message = format!(
                        "{title} writes `{}` over `{}`, which it reads at the same time",
                        a.name, b.name
                    );
                    self.fault(i, Some(i), message);
                }
            }
        }
        for (w, name) in e.writes.iter().zip(writes) {
            let Some(b) = plan.blocks.get(*w) else { continue };
            if b.bytes == 0 {
                continue;
            }
            self.destroy(b, i, "writes over it");
            self.memory.insert((b.pool, b.offset), (b.offset + b.bytes, name));
        }
        for f in &e.frees {
            if let Some(b) = plan.blocks.get(*f) {
                self.destroy(b, i, "frees it");
            }
        }
    }

    fn destroy(&mut self, b: &Block, by: usize, how: &'static str) {
        if b.bytes == 0 {
            return;
        }
        let end = b.offset + b.bytes;
        let touched = self.memory.range(..(b.pool, end)).rev();
        // Ranges do not overlap one another, so that the first that ends before is the last.
        let gone: Vec<(Pool, u64)> = touched
            .take_while(|((pool, _), (to, _))| *pool == b.pool && *to > b.offset)
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            if let Some((to, _)) = self.memory.remove(&at) {
                self.destroyed.push((b.pool, at.1, to, by, how));
            }
        }
    }

    fn read(&mut self, i: usize, block: usize, name: &Name) {
        let Some(b) = self.plan.blocks.get(block) else {
            return self.fault(i, None, format!("{} reads a block that is not", self.title(i)));
        };
        let end = b.offset + b.bytes;
        let found = self.memory.get(&(b.pool, b.offset));
        if b.bytes == 0 || found.is_some_and(|(to, have)| *to == end && have == name) {
            return;
        }
        let blame = self
            .destroyed
            .iter()
            .rev()
            .find(|(pool, from, to, ..)| *pool == b.pool && *from < end && b.offset < *to);
        let title = self.title(i);
        let (by, what) = match blame {
            Some((.., by, how)) => (Some(*by), format!("{} {how}", self.title(*by))),
            None => (None, "nothing has made it".to_string()),
        };
        self.fault(i, by, format!("{title} reads `{}`, but {what}", b.name));
    }

    /// At the end results and what stays must be there.
    fn end(&mut self) {
        let last = self.plan.executions.len();
        for (buffer, block) in &self.plan.results {
            if let Some(name) = self.history.end.get(buffer).cloned() {
                self.read(last, *block, &name);
            }
        }
        for (i, b) in self.plan.blocks.iter().enumerate() {
            let Some(buffer) = &b.buffer else { continue };
            let held = self.history.end.get(buffer).cloned();
            // A gradient that nothing has made holds nothing.
            if held.is_none() && matches!(buffer, Buffer::Grad(_)) {
                continue;
            }
            self.read(last, i, &held.unwrap_or_else(|| Name::Start(buffer.clone())));
        }
    }

    /// Whether an execution may write where it reads, element by element.
    fn may_overwrite(&self, e: &Execution) -> bool {
        match &e.what {
            What::Node { step, at, .. } => {
                self.node(*step, at).is_some_and(|(p, _, n, _)| is_elementwise(p, n))
            }
            What::Accumulate { .. } | What::Step { .. } => true,
            _ => false,
        }
    }

    /// The program of a run, the function of a node in it, the node, and the scope.
    fn node(
        &self,
        step: usize,
        at: &[u32],
    ) -> Option<(&'p Program, &'p Function, &'p Node, String)> {
        let program = program_of(self.subject, step)?;
        let mut f = program.main()?;
        let mut scope = String::new();
        let (last, calls) = at.split_last()?;
        for i in calls {
            let Op::Call { callee, scope: inner, .. } = &f.nodes.get(*i as usize)?.op else {
                return None;
            };
            scope = join_name(&scope, inner);
            f = program.function(callee)?;
        }
        Some((program, f, f.nodes.get(*last as usize)?, scope))
    }

    /// What an execution must find and what it makes.
    fn expected(&mut self, e: &Execution) -> Result<(Vec<Name>, Vec<Name>), String> {
        let holds = |h: &BTreeMap<Buffer, Name>, b: &Buffer| {
            h.get(b).cloned().unwrap_or_else(|| Name::Start(b.clone()))
        };
        let end = &self.history.end;
        Ok(match &e.what {
            What::Scalars { buffers } => {
                (vec![], buffers.iter().map(|b| Name::Start(b.clone())).collect())
            }
            What::Load { buffers, .. } => {
                (vec![], buffers.iter().map(|b| Name::Start(b.clone())).collect())
            }
            What::Node { step, at, .. } => {
                let (_, _, node, _) = self.node(*step, at).ok_or("there is no such node")?;
                let (_, calls) = at.split_last().ok_or("there is no such node")?;
                let resolver = Resolver { subject: self.subject, history: &self.history.before };
                let reads = node.operands.iter().map(|v| resolver.name(*step, calls, *v));
                let results = 0..node.tys.len() as u32;
                let writes = results.map(|r| Name::Result(*step, at.clone(), r));
                (reads.collect::<Option<_>>().ok_or("an operand has no source")?, writes.collect())
            }
            What::Step { step } => {
                let before = self.history.before.get(*step).ok_or("there is no such step")?;
                let of = |wanted: &dyn Fn(&Buffer) -> bool| -> Vec<Name> {
                    before.iter().filter(|(b, _)| wanted(b)).map(|(_, n)| n.clone()).collect()
                };
                let made = |n: usize| (0..n).map(|i| Name::Made(*step, i)).collect();
                match &self.subject.steps[*step] {
                    Step::Totals => {
                        (of(&|b| matches!(b, Buffer::LossCount(..))), made(totals(before).len()))
                    }
                    Step::Norm => (of(&|b| matches!(b, Buffer::GradSquares(_))), made(1)),
                    Step::Send { buffers, .. } => {
                        (buffers.iter().map(|b| holds(before, b)).collect(), vec![])
                    }
                    Step::Receive { buffers, .. } => (vec![], made(buffers.len())),
                    Step::Reduce { params } => {
                        let grads = params.iter().map(|p| holds(before, &Buffer::Grad(p.clone())));
                        (grads.collect(), made(params.len()))
                    }
                    Step::Tie { param, .. } => {
                        (vec![holds(before, &Buffer::Grad(param.clone()))], made(1))
                    }
                    _ => return Err("this step is no execution by itself".to_string()),
                }
            }
            What::Accumulate { param, first } => {
                let n = self.additions.entry(param.clone()).or_insert(0);
                *n += 1;
                let added = self.history.added.get(param).and_then(|a| a.get(*n - 1));
                let added = added.ok_or("more is added than there is")?.clone();
                if *first != (*n == 1) {
                    return Err("the first addition replaces, the others add".to_string());
                }
                let mut reads = vec![];
                if !first {
                    reads.push(Name::Sum(param.clone(), *n - 1));
                }
                reads.push(added);
                (reads, vec![Name::Sum(param.clone(), *n)])
            }
            What::Copy { buffer } => {
                let name = holds(end, buffer);
                (vec![name.clone()], vec![name])
            }
            What::Publish { param } => (
                vec![holds(end, &Buffer::Master(param.clone()))],
                vec![Name::Published(param.clone())],
            ),
        })
    }
}

/// Whether a node computes each element from elements at the same place, or from single numbers; of
/// a cluster, whether all in it do.
fn is_elementwise(p: &Program, node: &Node) -> bool {
    let Op::Call { callee, .. } = &node.op else {
        return node.op.info().class == Class::Elementwise;
    };
    let body = p.function(callee).filter(|f| f.cluster.is_some());
    body.is_some_and(|f| {
        f.nodes.iter().all(|n| match n.op.info().class {
            Class::Elementwise => true,
            Class::Source => matches!(n.op, Op::Constant { .. }),
            Class::Structure => matches!(n.op, Op::Input { .. }),
            Class::View => {
                let number = |v: &Value| f.ty(*v).dims.is_empty();
                matches!(n.op, Op::Broadcast { .. }) && n.operands.iter().all(number)
            }
            _ => false,
        })
    })
}

fn overlap(a: &Block, b: &Block) -> bool {
    a.pool == b.pool && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
}

fn program_of<'p>(subject: &Subject<'p>, step: usize) -> Option<&'p Program> {
    let Step::Run { program, .. } = subject.steps.get(step)? else { return None };
    subject.programs.iter().find(|(n, _)| n == program).map(|(_, p)| *p)
}

/// The totals that follow from counts, in the order of the counts.
fn totals(before: &BTreeMap<Buffer, Name>) -> Vec<Buffer> {
    let mut out: Vec<Buffer> = vec![];
    for b in before.keys() {
        if let Buffer::LossCount(_, n) = b {
            let total = Buffer::TotalCount(n.clone());
            if !out.contains(&total) {
                out.push(total);
            }
        }
    }
    out
}

/// Finds what makes a value.
struct Resolver<'h, 'p> {
    subject: &'h Subject<'p>,
    history: &'h [BTreeMap<Buffer, Name>],
}

impl Resolver<'_, '_> {
    /// The name of a value of the function that is reached by `calls` from the main of a run.
    fn name(&self, step: usize, calls: &[u32], v: Value) -> Option<Name> {
        let program = program_of(self.subject, step)?;
        // The functions on the way, with the scope of each.
        let mut way: Vec<(&Function, String)> = vec![(program.main()?, String::new())];
        for i in calls {
            let (f, scope) = way.last()?;
            let Op::Call { callee, scope: inner, .. } = &f.nodes.get(*i as usize)?.op else {
                return None;
            };
            let scope = join_name(scope, inner);
            way.push((program.function(callee)?, scope));
        }
        let mut calls: Vec<u32> = calls.to_vec();
        let mut v = v;
        loop {
            let (f, scope) = way.last()?;
            let node = f.nodes.get(v.node.0 as usize)?;
            match &node.op {
                Op::Reshape { .. } => v = *node.operands.first()?,
                Op::Param { index } => {
                    let key = &f.params.get(*index as usize)?.key;
                    let b = Buffer::Param(join_name(scope, key));
                    let held = self.history.get(step)?.get(&b).cloned();
                    return Some(held.unwrap_or(Name::Start(b)));
                }
                Op::Input { index } => {
                    if let Some(call) = calls.pop() {
                        way.pop();
                        let (f, _) = way.last()?;
                        v = *f.nodes.get(call as usize)?.operands.get(*index as usize)?;
                        continue;
                    }
                    let input = &f.inputs.get(*index as usize)?.name;
                    let Step::Run { inputs, .. } = self.subject.steps.get(step)? else {
                        return None;
                    };
                    let (_, b) = inputs.iter().find(|(n, _)| **n == **input)?;
                    let held = self.history.get(step)?.get(b).cloned();
                    return Some(held.unwrap_or_else(|| Name::Start(b.clone())));
                }
                Op::Call { callee, scope: inner, .. } => {
                    let g = program.function(callee)?;
                    if g.cluster.is_some() {
                        calls.push(v.node.0);
                        return Some(Name::Result(step, calls, v.result));
                    }
                    let output = g.output_values().nth(v.result as usize)?;
                    let scope = join_name(scope, inner);
                    calls.push(v.node.0);
                    way.push((g, scope));
                    v = output;
                }
                _ => {
                    calls.push(v.node.0);
                    return Some(Name::Result(step, calls, v.result));
                }
            }
        }
    }
}

/// Follows the steps with names of values.
fn history(subject: &Subject<'_>) -> Result<History, String> {
    let mut now: BTreeMap<Buffer, Name> = BTreeMap::new();
    let mut before = vec![];
    let mut added: BTreeMap<String, Vec<Name>> = BTreeMap::new();
    for (i, step) in subject.steps.iter().enumerate() {
        before.push(now.clone());
        match step {
            Step::Load { .. } => {}
            Step::Run { outputs, .. } => {
                let program = program_of(subject, i).ok_or("a program is missing")?;
                let main = program.main().ok_or("a program is empty")?;
                let resolver = Resolver { subject, history: &before };
                for (b, v) in outputs.iter().zip(main.output_values()) {
                    let name = resolver.name(i, &[], v).ok_or("an output has no source")?;
                    now.insert(b.clone(), name);
                }
            }
            Step::Totals => {
                for (n, b) in totals(&now).into_iter().enumerate() {
                    now.insert(b, Name::Made(i, n));
                }
            }
            Step::Accumulate { params } => {
                for p in params {
                    let local = now.remove(&Buffer::LocalGrad(p.clone()));
                    let list = added.entry(p.clone()).or_default();
                    list.push(local.ok_or("a gradient is added before it is made")?);
                    now.insert(Buffer::Grad(p.clone()), Name::Sum(p.clone(), list.len()));
                }
            }
            Step::Receive { buffers, .. } => {
                for (n, b) in buffers.iter().enumerate() {
                    now.insert(b.clone(), Name::Made(i, n));
                }
            }
            Step::Reduce { params } => {
                for (n, p) in params.iter().enumerate() {
                    now.insert(Buffer::Grad(p.clone()), Name::Made(i, n));
                }
            }
            Step::Tie { param, .. } => {
                now.insert(Buffer::Grad(param.clone()), Name::Made(i, 0));
            }
            Step::Norm => {
                now.insert(Buffer::GradNorm, Name::Made(i, 0));
            }
            Step::Publish { params } => {
                for p in params {
                    now.insert(Buffer::Param(p.clone()), Name::Published(p.clone()));
                }
            }
            Step::Send { .. } | Step::Free { .. } => {}
        }
    }
    Ok(History { before, end: now, added })
}
