//! The steps of every pipeline rank, from the schedule's slots and the parts of the program.

use super::facts::label;
use anyhow::{Result, anyhow, bail};
use vlmc_artifact::{Buffer, Mesh, Schedule, Step};
use vlmc_ir::graph::{OutputKind, Program};
use vlmc_passes::optimizer::SCALARS;
use vlmc_passes::partition::{Crossing, Cut, Part, Phase};
use vlmc_passes::schedule::{self, Slot};

/// The counts of a microbatch's losses.
pub const COUNTS: &str = "counts";

/// The program that gives the squares of a pipeline rank's gradients.
pub fn squares(rank: usize) -> String {
    format!("squares.{rank}")
}

/// The program that updates the parameters of a pipeline rank.
pub fn optimizer(rank: usize) -> String {
    format!("optimizer.{rank}")
}

/// What steps are made from.
pub(super) struct Steps<'s> {
    pub(super) mesh: Mesh,
    pub(super) slots: &'s schedule::Schedule,
    pub(super) cut: &'s Cut,
    pub(super) counts: &'s Program,
    /// Trained parameters, in the order of the manifest.
    pub(super) trained: &'s [String],
}

impl Steps<'_> {
    /// The steps of all ranks.
    ///
    /// # Errors
    /// When a program takes what nothing gives, or the schedule is of a kind that cannot run yet.
    pub(super) fn schedule(&self) -> Result<Schedule> {
        let ranks = 0..self.slots.ranks.len();
        Ok(Schedule {
            mesh: self.mesh,
            microbatches: self.slots.microbatches as usize,
            ranks: ranks.map(|p| self.rank(p)).collect::<Result<_>>()?,
        })
    }

    /// The trained parameters whose gradients a pipeline rank makes.
    pub(super) fn trained_on(&self, rank: usize) -> Vec<String> {
        let has = |name: &String| self.makers(name).any(|p| p == rank);
        self.trained.iter().filter(|n| has(n)).cloned().collect()
    }

    /// The pipeline ranks that make a part of a parameter's gradient.
    fn makers<'n>(&'n self, name: &'n str) -> impl Iterator<Item = usize> + 'n {
        let parts = self.cut.parts.iter();
        parts.filter(move |p| gradients(p).any(|g| g == name)).map(|p| self.rank_of(p.stage))
    }

    fn rank_of(&self, stage: usize) -> usize {
        self.slots.grid.cell(stage).0 as usize
    }

    fn rank(&self, rank: usize) -> Result<Vec<Step>> {
        let mut steps = vec![];
        let counted = self.counts.main().ok_or_else(|| anyhow!("the program is empty"))?;
        let names: Vec<String> = counted.outputs.iter().map(label).collect();
        for m in 0..self.slots.microbatches as usize {
            steps.push(Step::Load { microbatch: m });
            steps.push(Step::Run {
                program: COUNTS.to_string(),
                microbatch: Some(m),
                inputs: inputs(self.counts, m)?,
                outputs: names.iter().map(|n| Buffer::LossCount(m, n.clone())).collect(),
            });
        }
        steps.push(Step::Totals);
        let slots = self.slots.ranks.get(rank).ok_or_else(|| anyhow!("no rank {rank}"))?;
        for (i, slot) in slots.iter().enumerate() {
            self.slot(rank, slot, &mut steps)?;
            let m = slot.microbatch;
            if slots[i + 1..].iter().all(|s| s.microbatch != m) {
                steps.push(Step::Free { buffers: self.read_of(rank, m as usize)? });
            }
        }
        self.update(rank, &mut steps);
        Ok(steps)
    }

    /// One run of a part, with what it needs before and causes afterwards.
    fn slot(&self, rank: usize, slot: &Slot, steps: &mut Vec<Step>) -> Result<()> {
        let phase = match slot.phase {
            schedule::Phase::F => Phase::Forward,
            schedule::Phase::B => Phase::Backward,
            schedule::Phase::W => {
                bail!("gradients of weights in slots of their own do not run yet")
            }
        };
        let m = slot.microbatch as usize;
        let stage = self.slots.grid.index(rank as u32, slot.chunk);
        let at = (phase, stage);
        let Some(part) = self.cut.part(phase, stage) else { return Ok(()) };
        let here = |to: &(Phase, usize)| self.rank_of(to.1) == rank;
        let value = |c: &Crossing| Buffer::Value(m, c.name.clone());
        for c in &self.cut.crossings {
            let from = self.rank_of(c.from.1);
            if from != rank && c.to.iter().find(|to| here(to)) == Some(&at) {
                steps.push(Step::Receive { from, buffers: vec![value(c)] });
            }
        }
        let mut outputs = vec![];
        let main = part.program.main().ok_or_else(|| anyhow!("the program is empty"))?;
        for o in &main.outputs {
            match o.kind {
                OutputKind::Loss { .. } => {
                    outputs.push(Buffer::LossSum(m, label(o)));
                    outputs.push(Buffer::LossCount(m, label(o)));
                }
                OutputKind::Gradient => outputs.push(Buffer::LocalGrad(label(o))),
                OutputKind::Value => outputs.push(Buffer::Value(m, label(o))),
            }
        }
        steps.push(Step::Run {
            program: part.name(),
            microbatch: Some(m),
            inputs: inputs(&part.program, m)?,
            outputs,
        });
        let mut free = vec![];
        for c in &self.cut.crossings {
            if c.from == at {
                let mut ranks: Vec<usize> = c.to.iter().map(|to| self.rank_of(to.1)).collect();
                ranks.sort_unstable();
                ranks.dedup();
                let others = ranks.iter().filter(|to| **to != rank);
                steps.extend(others.map(|to| Step::Send { to: *to, buffers: vec![value(c)] }));
            }
            // Nobody here reads it any more.
            let last = c.to.iter().rfind(|to| here(to));
            if last == Some(&at) || (c.from == at && last.is_none()) {
                free.push(value(c));
            }
        }
        let params: Vec<String> = gradients(part).collect();
        if !params.is_empty() {
            steps.push(Step::Accumulate { params });
        }
        if !free.is_empty() {
            steps.push(Step::Free { buffers: free });
        }
        Ok(())
    }

    /// The inputs of a microbatch that the programs of a rank read.
    fn read_of(&self, rank: usize, m: usize) -> Result<Vec<Buffer>> {
        let parts = self.cut.parts.iter().filter(|p| self.rank_of(p.stage) == rank);
        let programs = parts.map(|p| &p.program).chain([self.counts]);
        let mut read: Vec<Buffer> = vec![];
        for p in programs {
            for (_, b) in inputs(p, m)? {
                if matches!(b, Buffer::Input(..)) && !read.contains(&b) {
                    read.push(b);
                }
            }
        }
        read.sort();
        Ok(read)
    }

    /// From the gradients of all microbatches to new parameters.
    fn update(&self, rank: usize, steps: &mut Vec<Step>) {
        let trained = self.trained_on(rank);
        if self.mesh.dp * self.mesh.cp > 1 && !trained.is_empty() {
            steps.push(Step::Reduce { params: trained.clone() });
        }
        for name in &trained {
            let mut ranks: Vec<usize> = self.makers(name).collect();
            ranks.sort_unstable();
            ranks.dedup();
            if ranks.len() > 1 {
                steps.push(Step::Tie { param: name.clone(), ranks });
            }
        }
        let grads = || trained.iter().map(|n| (format!("g.{n}"), Buffer::Grad(n.clone())));
        steps.push(Step::Run {
            program: squares(rank),
            microbatch: None,
            inputs: grads().collect(),
            outputs: trained.iter().map(|n| Buffer::GradSquares(n.clone())).collect(),
        });
        steps.push(Step::Norm);
        let scalars = SCALARS.iter().map(|s| (s.to_string(), Buffer::Scalar(s.to_string())));
        let mut read: Vec<(String, Buffer)> = scalars.collect();
        read.push(("norm".to_string(), Buffer::GradNorm));
        let mut made = vec![];
        for n in &trained {
            read.push((format!("g.{n}"), Buffer::Grad(n.clone())));
            let state =
                [Buffer::Master(n.clone()), Buffer::Moment1(n.clone()), Buffer::Moment2(n.clone())];
            for (k, b) in ["w", "m", "v"].iter().zip(state) {
                read.push((format!("{k}.{n}"), b.clone()));
                made.push(b);
            }
        }
        steps.push(Step::Run {
            program: optimizer(rank),
            microbatch: None,
            inputs: read,
            outputs: made,
        });
        steps.push(Step::Free {
            buffers: trained.iter().map(|n| Buffer::Grad(n.clone())).collect(),
        });
        steps.push(Step::Publish { params: trained });
    }
}

/// The parameters whose gradients a part gives.
fn gradients(part: &Part) -> impl Iterator<Item = String> + '_ {
    let outputs = part.program.main().into_iter().flat_map(|f| &f.outputs);
    outputs.filter(|o| matches!(o.kind, OutputKind::Gradient)).map(label)
}

/// The buffers that a program reads for a microbatch.
fn inputs(p: &Program, m: usize) -> Result<Vec<(String, Buffer)>> {
    let main = p.main().ok_or_else(|| anyhow!("the program is empty"))?;
    let buffer = |i: &vlmc_ir::graph::Input| {
        let name = i.name.to_string();
        let buffer = match (&i.from, name.strip_suffix(".total")) {
            (Some(_), _) => Buffer::Input(m, name.clone()),
            (None, Some(loss)) => Buffer::TotalCount(loss.to_string()),
            (None, None) => Buffer::Value(m, name.clone()),
        };
        (name, buffer)
    };
    Ok(main.inputs.iter().map(buffer).collect())
}
