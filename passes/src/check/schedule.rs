//! A proof that the steps of all ranks run to their end and mean one training step.
//!
//! What holds of steps that pass:
//!
//! 1. **Stages tile.** A program that works on microbatches runs once for each, in one place: on
//!    one pipeline rank, or on every one. Every program runs.
//! 2. **Nothing is read before it is there,** or after it is freed. Nothing is lost: a value, an
//!    input or a gradient is freed or added before the step ends or another takes its place.
//! 3. **Every message meets its receive:** what a rank sends to another is received there once,
//!    with the type that its readers take. Messages are told apart by source, target and buffer.
//! 4. **Nobody waits for ever.** Steps wait for the step before them, receives for their sends, and
//!    meetings for all who meet; that graph has no cycle.
//! 5. **Counts are whole:** losses are counted over every microbatch before anything reads a total,
//!    and every rank comes to as many norms.
//!
//! Sends do not wait. Ranks that differ in data and context alone have the same steps, so their
//! meetings are in one order by construction.

use indexmap::IndexMap;
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use vlmc_artifact::{Buffer, Schedule, Step};
use vlmc_ir::graph::{OutputKind, Program};

/// What a program takes and gives, as the text of types.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Signature {
    /// Inputs by name.
    pub inputs: Vec<(String, String)>,
    /// Outputs in order; a loss is its sum and then its count.
    pub outputs: Vec<String>,
}

impl Signature {
    /// That of a program's main.
    pub fn of(program: &Program) -> Signature {
        let Some(main) = program.main() else { return Signature::default() };
        let inputs = main.inputs.iter().map(|i| (i.name.to_string(), i.ty.to_string()));
        let mut outputs = vec![];
        for o in &main.outputs {
            outputs.push(main.ty(o.value).to_string());
            if let OutputKind::Loss { count, .. } = o.kind {
                outputs.push(main.ty(count).to_string());
            }
        }
        Signature { inputs: inputs.collect(), outputs }
    }
}

/// A step of a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct At {
    /// The pipeline rank.
    pub rank: usize,
    /// The index of the step.
    pub step: usize,
}

/// Steps that wait for each other, each with the ranks that it expects.
type Meeting = Vec<(At, Vec<usize>)>;

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} step {}", self.rank, self.step)
    }
}

/// Why steps are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// A program that the artifact does not have, or a step that does not fit its signature.
    #[error("{at}: `{program}` {reason}")]
    Program {
        /// Where.
        at: At,
        /// The program.
        program: String,
        /// What does not fit.
        reason: String,
    },
    /// A program that does not run once for each microbatch in its place.
    #[error("`{program}` {reason}")]
    Tiling {
        /// The program.
        program: String,
        /// How often it runs, and how often it should.
        reason: String,
    },
    /// Something read that is not there.
    #[error("{at}: {buffer:?} is read and not there")]
    Missing {
        /// Where.
        at: At,
        /// What.
        buffer: Buffer,
    },
    /// Something lost: neither read to the end nor freed.
    #[error("{at}: {buffer:?} is lost")]
    Lost {
        /// Where it is overwritten; the last step for what is left at the end.
        at: At,
        /// What.
        buffer: Buffer,
    },
    /// A message without a partner.
    #[error("{at}: {buffer:?} is {done}, and rank {peer} never {wants} it")]
    Unmatched {
        /// Where.
        at: At,
        /// What.
        buffer: Buffer,
        /// The other rank.
        peer: usize,
        /// `sent` or `received`.
        done: &'static str,
        /// `receives` or `sends`.
        wants: &'static str,
    },
    /// The same message twice.
    #[error("{at}: {buffer:?} is sent or received a second time")]
    Twice {
        /// Where.
        at: At,
        /// What.
        buffer: Buffer,
    },
    /// A value that is read as another type than it was made.
    #[error("{at}: {buffer:?} is `{made}`, and is read as `{read}`")]
    Shape {
        /// Where it is read.
        at: At,
        /// What.
        buffer: Buffer,
        /// The type it was made with.
        made: String,
        /// The type it is read with.
        read: String,
    },
    /// Ranks that do not meet equally often, or in other company.
    #[error("{at}: {what} meets ranks that do not come")]
    Meeting {
        /// Where.
        at: At,
        /// Which meeting.
        what: String,
    },
    /// A rank or microbatch that does not exist.
    #[error("{at}: {what} does not exist")]
    Range {
        /// Where.
        at: At,
        /// What.
        what: String,
    },
    /// Ranks wait for each other in a circle.
    #[error("ranks wait for each other: {}", path.join(" -> "))]
    Cycle {
        /// The steps of the circle in words, the first again at the end.
        path: Vec<String>,
    },
}

/// Checks the steps of all pipeline ranks against the programs that they run.
///
/// # Errors
/// Everything that is wrong, in the order of ranks and steps; a circle of waits comes last.
pub fn check(
    schedule: &Schedule,
    programs: &IndexMap<String, Signature>,
) -> Result<(), Vec<Fault>> {
    let mut checker = Checker { schedule, programs, faults: vec![], types: BTreeMap::new() };
    checker.ranges();
    if checker.faults.is_empty() {
        checker.tiling();
        checker.types();
        (0..schedule.ranks.len()).for_each(|rank| checker.buffers(rank));
        checker.waits();
    }
    if checker.faults.is_empty() { Ok(()) } else { Err(checker.faults) }
}

struct Checker<'a> {
    schedule: &'a Schedule,
    programs: &'a IndexMap<String, Signature>,
    faults: Vec<Fault>,
    /// The types with which values are made, by rank and buffer.
    types: BTreeMap<(usize, Buffer), String>,
}

impl<'a> Checker<'a> {
    fn steps(&self) -> impl Iterator<Item = (At, &'a Step)> + use<'a> {
        let ranks = self.schedule.ranks.iter().enumerate();
        ranks.flat_map(|(rank, steps)| {
            steps.iter().enumerate().map(move |(step, s)| (At { rank, step }, s))
        })
    }

    /// Ranks and microbatches exist, and programs are called as they are declared.
    fn ranges(&mut self) {
        let ranks = self.schedule.ranks.len();
        for (at, step) in self.steps() {
            let peers: Vec<usize> = match step {
                Step::Send { to, .. } => vec![*to],
                Step::Receive { from, .. } => vec![*from],
                Step::Tie { ranks, .. } => ranks.clone(),
                _ => vec![],
            };
            let alone = !matches!(step, Step::Tie { .. });
            for p in peers.into_iter().filter(|p| *p >= ranks || (alone && *p == at.rank)) {
                self.faults.push(Fault::Range { at, what: format!("a peer of rank {p}") });
            }
            let microbatch = match step {
                Step::Load { microbatch } => Some(*microbatch),
                Step::Run { microbatch, .. } => *microbatch,
                _ => None,
            };
            if let Some(m) = microbatch.filter(|m| *m >= self.schedule.microbatches) {
                self.faults.push(Fault::Range { at, what: format!("microbatch {m}") });
            }
            let Step::Run { program, inputs, outputs, .. } = step else { continue };
            let fault = |reason: String| Fault::Program { at, program: program.clone(), reason };
            let Some(signature) = self.programs.get(program) else {
                self.faults.push(fault("does not exist".to_string()));
                continue;
            };
            if outputs.len() != signature.outputs.len() {
                let n = signature.outputs.len();
                self.faults.push(fault(format!("gives {n} results, not {}", outputs.len())));
            }
            let declared: BTreeSet<&String> = signature.inputs.iter().map(|(n, _)| n).collect();
            let given: BTreeSet<&String> = inputs.iter().map(|(n, _)| n).collect();
            if let Some(name) = declared.symmetric_difference(&given).next() {
                self.faults.push(fault(format!("is not called with the inputs it has: `{name}`")));
            }
        }
    }

    /// Each program runs once a microbatch, on one rank or on all.
    fn tiling(&mut self) {
        let mut runs: BTreeMap<(&str, usize), BTreeMap<usize, usize>> = BTreeMap::new();
        let mut once: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, step) in self.steps() {
            match step {
                Step::Run { program, microbatch: Some(m), .. } => {
                    *runs.entry((program, at.rank)).or_default().entry(*m).or_default() += 1;
                }
                Step::Run { program, microbatch: None, .. } => {
                    *once.entry(program).or_default() += 1
                }
                _ => {}
            }
        }
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let m = self.schedule.microbatches;
        let mut faults = vec![];
        for ((program, rank), times) in &runs {
            *places.entry(program).or_default() += 1;
            let wrong = (0..m).find(|i| times.get(i) != Some(&1));
            if let Some(i) = wrong {
                let n = times.get(&i).copied().unwrap_or(0);
                let reason = format!("runs {n} times for microbatch {i} on rank {rank}");
                faults.push(Fault::Tiling { program: program.to_string(), reason });
            }
        }
        for program in self.programs.keys() {
            let ranks = self.schedule.ranks.len();
            let reason = match (places.get(program.as_str()), once.get(program.as_str())) {
                (None, None) => "never runs".to_string(),
                (Some(n), None) if *n != 1 && *n != ranks => {
                    format!("runs on {n} of {ranks} ranks")
                }
                (None, Some(n)) if *n != 1 => format!("runs {n} times in a step"),
                (Some(_), Some(_)) => "runs with and without a microbatch".to_string(),
                _ => continue,
            };
            faults.push(Fault::Tiling { program: program.clone(), reason });
        }
        self.faults.extend(faults);
    }

    /// The types of values where they are made, and of messages where they arrive.
    fn types(&mut self) {
        for (at, step) in self.steps() {
            let Step::Run { program, outputs, .. } = step else { continue };
            let types = self.programs.get(program).into_iter().flat_map(|s| &s.outputs);
            for (b, ty) in outputs.iter().zip(types) {
                self.types.insert((at.rank, b.clone()), ty.clone());
            }
        }
        let mut arrived = vec![];
        for (at, step) in self.steps() {
            let Step::Send { to, buffers } = step else { continue };
            for b in buffers {
                if let Some(ty) = self.types.get(&(at.rank, b.clone())) {
                    arrived.push(((*to, b.clone()), ty.clone()));
                }
            }
        }
        self.types.extend(arrived);
    }

    /// Follows what is in a rank's memory from step to step.
    fn buffers(&mut self, rank: usize) {
        let schedule = self.schedule;
        let mut memory: BTreeSet<Buffer> = BTreeSet::new();
        let steps = schedule.ranks.get(rank).map_or(&[][..], |s| s);
        for (step, s) in steps.iter().enumerate() {
            let at = At { rank, step };
            match s {
                Step::Load { microbatch } => {
                    // The inputs that programs of this rank name; others are not there.
                    let read = steps.iter().flat_map(|s| match s {
                        Step::Run { inputs, .. } => inputs.as_slice(),
                        _ => &[],
                    });
                    let own = |b: &&Buffer| matches!(b, Buffer::Input(m, _) if m == microbatch);
                    memory.extend(read.map(|(_, b)| b).filter(own).cloned());
                }
                Step::Run { program, inputs, outputs, .. } => {
                    self.run(at, program, inputs, &memory);
                    outputs.iter().for_each(|b| self.put(at, b, &mut memory));
                }
                Step::Totals => self.totals(at, &mut memory),
                Step::Accumulate { params } => {
                    for p in params {
                        let local = Buffer::LocalGrad(p.clone());
                        if !memory.remove(&local) {
                            self.faults.push(Fault::Missing { at, buffer: local });
                        }
                        memory.insert(Buffer::Grad(p.clone()));
                    }
                }
                Step::Send { buffers, .. } => {
                    buffers.iter().for_each(|b| self.need(at, b, &memory))
                }
                Step::Receive { buffers, .. } => {
                    buffers.iter().for_each(|b| self.put(at, b, &mut memory));
                }
                Step::Reduce { params } => {
                    params.iter().for_each(|p| self.need(at, &Buffer::Grad(p.clone()), &memory));
                }
                Step::Tie { param, .. } => self.need(at, &Buffer::Grad(param.clone()), &memory),
                Step::Norm => _ = memory.insert(Buffer::GradNorm),
                Step::Publish { params } => {
                    params.iter().for_each(|p| self.need(at, &Buffer::Master(p.clone()), &memory));
                }
                Step::Free { buffers } => {
                    for b in buffers {
                        if !memory.remove(b) && !stays(b) {
                            self.faults.push(Fault::Missing { at, buffer: b.clone() });
                        }
                    }
                }
            }
        }
        let at = At { rank, step: steps.len().saturating_sub(1) };
        let left = memory.into_iter().filter(passes_on);
        self.faults.extend(left.map(|buffer| Fault::Lost { at, buffer }));
    }

    fn need(&mut self, at: At, b: &Buffer, memory: &BTreeSet<Buffer>) {
        if !memory.contains(b) && !stays(b) {
            self.faults.push(Fault::Missing { at, buffer: b.clone() });
        }
    }

    fn put(&mut self, at: At, b: &Buffer, memory: &mut BTreeSet<Buffer>) {
        if !memory.insert(b.clone()) && passes_on(b) {
            self.faults.push(Fault::Lost { at, buffer: b.clone() });
        }
    }

    fn run(
        &mut self,
        at: At,
        program: &str,
        inputs: &[(String, Buffer)],
        memory: &BTreeSet<Buffer>,
    ) {
        for (name, b) in inputs {
            self.need(at, b, memory);
            let declared =
                self.programs.get(program).and_then(|s| s.inputs.iter().find(|i| i.0 == *name));
            let made =
                self.types.get(&(at.rank, b.clone())).filter(|_| matches!(b, Buffer::Value(..)));
            if let (Some((_, read)), Some(made)) = (declared, made)
                && read != made
            {
                let (made, read) = (made.clone(), read.clone());
                self.faults.push(Fault::Shape { at, buffer: b.clone(), made, read });
            }
        }
    }

    /// Totals need the count of every microbatch of each loss that anyone counts.
    fn totals(&mut self, at: At, memory: &mut BTreeSet<Buffer>) {
        let counted = self.steps().flat_map(|(_, s)| match s {
            Step::Run { outputs, .. } => outputs.as_slice(),
            _ => &[],
        });
        let names: BTreeSet<&String> = counted
            .filter_map(|b| match b {
                Buffer::LossCount(_, name) => Some(name),
                _ => None,
            })
            .collect();
        for name in names {
            for m in 0..self.schedule.microbatches {
                self.need(at, &Buffer::LossCount(m, name.clone()), memory);
            }
            memory.insert(Buffer::TotalCount(name.clone()));
        }
    }

    /// Messages and meetings have partners, and no circle of waits.
    fn waits(&mut self) {
        let mut graph: DiGraph<At, ()> = DiGraph::new();
        let mut nodes: BTreeMap<At, NodeIndex> = BTreeMap::new();
        for (at, _) in self.steps() {
            nodes.insert(at, graph.add_node(at));
        }
        for at in nodes.keys() {
            let next = At { step: at.step + 1, ..*at };
            if let (Some(a), Some(b)) = (nodes.get(at), nodes.get(&next)) {
                graph.add_edge(*a, *b, ());
            }
        }
        for (from, to) in self.messages() {
            if let (Some(a), Some(b)) = (nodes.get(&from), nodes.get(&to)) {
                graph.add_edge(*a, *b, ());
            }
        }
        // Who meets waits for the steps before the meeting of all the others.
        for group in self.meetings() {
            for one in &group {
                for other in group.iter().filter(|o| *o != one && o.step > 0) {
                    let before = At { step: other.step - 1, ..*other };
                    if let (Some(a), Some(b)) = (nodes.get(&before), nodes.get(one)) {
                        graph.add_edge(*a, *b, ());
                    }
                }
            }
        }
        if let Some(circle) = circle(&graph) {
            // Steps in between only lead from one wait to the next.
            let waits = |at: &&At| {
                let step = self.schedule.ranks.get(at.rank).and_then(|s| s.get(at.step));
                matches!(
                    step,
                    Some(Step::Send { .. } | Step::Receive { .. } | Step::Tie { .. } | Step::Norm)
                )
            };
            let mut path: Vec<String> =
                circle.iter().filter(waits).map(|at| self.shown(*at)).collect();
            path.extend(path.first().cloned());
            self.faults.push(Fault::Cycle { path });
        }
    }

    /// Sends with their receives; what has no partner is told.
    fn messages(&mut self) -> Vec<(At, At)> {
        type Tag = (usize, usize, Buffer);
        let mut sends: BTreeMap<Tag, At> = BTreeMap::new();
        let mut receives: BTreeMap<Tag, At> = BTreeMap::new();
        for (at, step) in self.steps() {
            let (list, source, target, buffers) = match step {
                Step::Send { to, buffers } => (&mut sends, at.rank, *to, buffers),
                Step::Receive { from, buffers } => (&mut receives, *from, at.rank, buffers),
                _ => continue,
            };
            for b in buffers {
                if list.insert((source, target, b.clone()), at).is_some() {
                    self.faults.push(Fault::Twice { at, buffer: b.clone() });
                }
            }
        }
        let mut pairs = vec![];
        for (tag @ (_, target, b), at) in &sends {
            match receives.get(tag) {
                Some(to) => pairs.push((*at, *to)),
                None => self.faults.push(Fault::Unmatched {
                    at: *at,
                    buffer: b.clone(),
                    peer: *target,
                    done: "sent",
                    wants: "receives",
                }),
            }
        }
        for (tag @ (source, _, b), at) in &receives {
            if !sends.contains_key(tag) {
                self.faults.push(Fault::Unmatched {
                    at: *at,
                    buffer: b.clone(),
                    peer: *source,
                    done: "received",
                    wants: "sends",
                });
            }
        }
        pairs
    }

    /// The steps in which ranks meet: the n-th norm of all, the n-th sum of a tied parameter.
    fn meetings(&mut self) -> Vec<Vec<At>> {
        let all: Vec<usize> = (0..self.schedule.ranks.len()).collect();
        let mut had: BTreeMap<(usize, String), usize> = BTreeMap::new();
        let mut groups: BTreeMap<(String, usize), Meeting> = BTreeMap::new();
        for (at, step) in self.steps() {
            let (what, company) = match step {
                Step::Norm => ("the norm".to_string(), all.clone()),
                Step::Tie { param, ranks } => (format!("`{param}`"), ranks.clone()),
                _ => continue,
            };
            let n = had.entry((at.rank, what.clone())).or_default();
            groups.entry((what, *n)).or_default().push((at, company));
            *n += 1;
        }
        let mut out = vec![];
        for ((what, _), group) in groups {
            let here: Vec<usize> = group.iter().map(|(at, _)| at.rank).collect();
            for (at, company) in &group {
                if *company != here {
                    self.faults.push(Fault::Meeting { at: *at, what: what.clone() });
                }
            }
            out.push(group.into_iter().map(|(at, _)| at).collect());
        }
        out
    }

    fn shown(&self, at: At) -> String {
        let step = self.schedule.ranks.get(at.rank).and_then(|s| s.get(at.step));
        let what = match step {
            Some(Step::Send { to, buffers }) => format!("send {} to {to}", names(buffers)),
            Some(Step::Receive { from, buffers }) => {
                format!("receive {} from {from}", names(buffers))
            }
            Some(Step::Run { program, microbatch, .. }) => match microbatch {
                Some(m) => format!("{program}({m})"),
                None => program.clone(),
            },
            Some(Step::Tie { param, .. }) => format!("sum {param}"),
            Some(Step::Norm) => "norm".to_string(),
            Some(Step::Free { .. }) => "free".to_string(),
            Some(other) => {
                format!("{other:?}").split([' ', '{']).next().unwrap_or("").to_lowercase()
            }
            None => String::new(),
        };
        format!("rank{}: {what}", at.rank)
    }
}

fn names(buffers: &[Buffer]) -> String {
    let name = |b: &Buffer| match b {
        Buffer::Value(m, name) => format!("{name}({m})"),
        other => format!("{other:?}"),
    };
    buffers.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Whether a buffer is there at the start of a step and after it.
fn stays(b: &Buffer) -> bool {
    matches!(
        b,
        Buffer::Param(_)
            | Buffer::Master(_)
            | Buffer::Moment1(_)
            | Buffer::Moment2(_)
            | Buffer::Scalar(_)
    )
}

/// Whether a buffer is made for somebody, so that it must not be left or overwritten.
fn passes_on(b: &Buffer) -> bool {
    matches!(b, Buffer::Value(..) | Buffer::LocalGrad(_) | Buffer::Input(..) | Buffer::Grad(_))
}

/// A shortest way round in a part of the graph that waits for itself.
fn circle(graph: &DiGraph<At, ()>) -> Option<Vec<At>> {
    let part = tarjan_scc(graph).into_iter().filter(|c| c.len() > 1).min_by_key(Vec::len)?;
    let inside: BTreeSet<NodeIndex> = part.into_iter().collect();
    let start = *inside.first()?;
    let mut from: BTreeMap<NodeIndex, NodeIndex> = BTreeMap::new();
    let mut open = std::collections::VecDeque::from([start]);
    while let Some(n) = open.pop_front() {
        let mut next: Vec<NodeIndex> = graph.neighbors(n).filter(|m| inside.contains(m)).collect();
        next.sort_unstable();
        for m in next {
            if m == start {
                let mut path = vec![n];
                while let Some(before) = path.last().and_then(|l| from.get(l)) {
                    path.push(*before);
                }
                path.reverse();
                return Some(
                    path.into_iter().filter_map(|n| graph.node_weight(n).copied()).collect(),
                );
            }
            if let Entry::Vacant(e) = from.entry(m) {
                e.insert(n);
                open.push_back(m);
            }
        }
    }
    None
}
