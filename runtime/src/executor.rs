//! All ranks of an artifact in one process, a thread a rank.

use crate::clusters::Clusters;
use crate::fabric::{Local, Waited};
use crate::rank::{Rank, Shared};
use anyhow::{Context, Result, anyhow, bail};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use vlmc_artifact::{Artifact, Buffer, Parameter, Place};
use vlmc_data::batch::Batch;
use vlmc_data::tensor::HostTensor;
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::{Real, Sizes, Tensor};
use vlmc_ir::text::parse;

/// What a step gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StepResult {
    /// The training loss.
    pub loss: f64,
    /// Each loss: its sum over its count, over all microbatches and ranks.
    pub losses: IndexMap<String, f64>,
    /// Norm of the gradients before clipping.
    pub grad_norm: f64,
    /// Valid tokens.
    pub tokens: usize,
}

impl StepResult {
    /// Whether the loss is finite.
    ///
    /// # Errors
    /// Names the losses when it is not.
    pub fn check_loss(&self) -> Result<()> {
        if self.loss.is_finite() {
            return Ok(());
        }
        let parts: Vec<String> = self.losses.iter().map(|(n, v)| format!("{n} {v}")).collect();
        bail!("the loss is {} ({}); nothing is updated", self.loss, parts.join(", "))
    }
}

/// The ranks of an artifact.
pub struct Executor<R> {
    shared: Arc<Shared>,
    ranks: Vec<Rank<R>>,
}

impl Executor<f32> {
    /// Runs the clusters of the step through these kernels from now on. Returns how many of them have
    /// one, and how many there are; the bodies of the others are evaluated.
    pub fn use_kernels(&mut self, kernels: Clusters) -> (usize, usize) {
        let programs = self.shared.programs.values();
        let clusters = programs.flat_map(|p| &p.functions).filter(|f| f.cluster.is_some());
        let names: HashSet<&str> = clusters.map(|f| &*f.name).collect();
        let count = (names.iter().filter(|n| kernels.has(n)).count(), names.len());
        let kernels = Arc::new(kernels);
        self.ranks.iter_mut().for_each(|r| r.kernels = Some(kernels.clone()));
        count
    }
}

impl<R: Real> Executor<R> {
    /// Prepares an artifact's programs.
    ///
    /// # Errors
    /// When a program does not parse, or the mesh cannot be.
    pub fn new(artifact: Artifact, poison: bool) -> Result<Self> {
        for p in &artifact.manifest.parameters {
            let elements = p.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
            if elements.is_none_or(|n| n > MOST_ELEMENTS) {
                bail!(
                    "manifest.json: `{}` has the shape {:?}, more than {MOST_ELEMENTS} elements",
                    p.name,
                    p.shape
                );
            }
        }
        let mesh = artifact.schedule.mesh;
        let size = mesh.size().filter(|n| (1..=MOST_RANKS).contains(n));
        let size = size.ok_or_else(|| {
            anyhow!("schedule.json: a mesh of {mesh:?}; one process runs 1 to {MOST_RANKS} ranks")
        })?;
        if artifact.schedule.ranks.len() != mesh.pp {
            bail!(
                "schedule.json: steps for {} stages, the mesh has {}",
                artifact.schedule.ranks.len(),
                mesh.pp
            );
        }
        let mut programs = HashMap::new();
        for (name, text) in &artifact.programs {
            let p = parse::program(text).map_err(|e| {
                let (line, column) = parse::line_column(text, e.at);
                anyhow!("programs/{name}.vir:{line}:{column}: {e}")
            })?;
            programs.insert(name.clone(), p);
        }
        let mut sizes = Sizes::default();
        for (name, value) in &artifact.manifest.capacities {
            sizes.set(&Symbol::new(name), usize::try_from(*value)?);
        }
        let shared = Arc::new(Shared { artifact, programs, sizes, poison });
        let ranks = (0..size).map(|r| Rank::new(shared.clone(), mesh.place(r))).collect();
        Ok(Executor { shared, ranks })
    }

    /// The artifact.
    pub fn artifact(&self) -> &Artifact {
        &self.shared.artifact
    }

    /// Puts a parameter's starting value in place on every rank that has it: the master weight, its
    /// copy in the model's dtype, and zero moments.
    ///
    /// # Errors
    /// When it has another shape than the artifact says.
    pub fn set_parameter(&mut self, p: &Parameter, value: &HostTensor) -> Result<()> {
        if value.shape != p.shape {
            bail!("`{}` is {:?}, the artifact needs {:?}", p.name, value.shape, p.shape);
        }
        self.holders(&p.name).into_iter().try_for_each(|r| r.set_parameter(p, value))
    }

    /// The ranks that have a parameter. One that no program reads is kept by the first rank, since a
    /// checkpoint has it all the same.
    fn holders(&mut self, name: &str) -> Vec<&mut Rank<R>> {
        let any = self.ranks.iter().any(|r| r.holds(name));
        let ranks = self.ranks.iter_mut().enumerate();
        ranks.filter(|(i, r)| if any { r.holds(name) } else { *i == 0 }).map(|(_, r)| r).collect()
    }

    /// A buffer's value on the first rank that has it.
    pub fn buffer(&self, b: &Buffer) -> Option<&Tensor<R>> {
        self.ranks.iter().find_map(|r| r.buffers().get(b))
    }

    /// Forgets a buffer's value.
    pub fn drop_buffer(&mut self, b: &Buffer) {
        self.ranks.iter_mut().for_each(|r| r.drop_buffer(b));
    }

    /// Replaces a buffer's value, as a resumed training does, wherever it is.
    ///
    /// # Errors
    /// When it cannot be one.
    pub fn set_buffer(&mut self, b: Buffer, value: &HostTensor) -> Result<()> {
        match &b {
            Buffer::Master(n) | Buffer::Moment1(n) | Buffer::Moment2(n) => {
                self.holders(n).into_iter().try_for_each(|r| r.set_buffer(b.clone(), value))
            }
            _ => self.ranks.iter_mut().try_for_each(|r| r.set_buffer(b.clone(), value)),
        }
    }

    /// Hashes of the microbatches of the last step, in the order of the batch, as the rank of each
    /// chunk read them.
    pub fn samples(&self) -> Vec<Vec<String>> {
        let mesh = self.shared.artifact.schedule.mesh;
        let chunks = &self.shared.artifact.plan.chunks;
        let of = |m: usize| {
            let (d, m) = (m % mesh.dp, m / mesh.dp);
            let read = chunks.iter().filter_map(|c| {
                let rank = mesh.rank(Place { pp: c.pp, dp: d, cp: 0 });
                self.ranks.get(rank)?.samples().get(m).cloned()
            });
            read.collect()
        };
        (0..self.shared.artifact.schedule.microbatches * mesh.dp).map(of).collect()
    }

    /// One training step: the microbatches of `batches`, with the optimizer's scalars. Microbatch `i`
    /// of data-parallel rank `d` of `D` is the one at `i * D + d`. With `update` off it stops before
    /// the optimizer, and the gradients stay.
    ///
    /// # Errors
    /// When the batch does not fit the artifact, or a program fails; the rank is named where there
    /// are several.
    pub fn step(
        &mut self,
        batches: &[Batch],
        scalars: &[(&str, f64)],
        update: bool,
    ) -> Result<StepResult> {
        let schedule = &self.shared.artifact.schedule;
        let mesh = schedule.mesh;
        let expected = schedule.microbatches * mesh.dp;
        if batches.len() != expected {
            bail!(
                "the batch has {} microbatches, the artifact is compiled for {expected}",
                batches.len(),
            );
        }
        let fabric = Local::new(mesh);
        let run = |rank: usize, state: &mut Rank<R>| {
            let mut port = fabric.port(rank);
            let d = mesh.place(rank).dp;
            let own: Vec<Batch> = batches.iter().skip(d).step_by(mesh.dp).cloned().collect();
            let done = state.step(&own, scalars, update, &mut port);
            if let Err(e) = &done {
                port.fail(&format!("{e:#}"));
            }
            done
        };
        let results: Vec<Result<StepResult>> = match &mut self.ranks[..] {
            [one] => vec![run(0, one)],
            ranks => std::thread::scope(|scope| {
                let run = &run;
                let ranks = ranks.iter_mut().enumerate();
                let threads: Vec<_> = ranks.map(|(i, r)| scope.spawn(move || run(i, r))).collect();
                let joined = threads.into_iter().map(|t| {
                    t.join().unwrap_or_else(|_| Err(anyhow!("internal error: the rank panicked")))
                });
                joined.collect()
            }),
        };
        let mut result = None;
        let mut failures: Vec<(usize, anyhow::Error)> = vec![];
        let several = results.len() > 1;
        for (i, r) in results.into_iter().enumerate() {
            match r {
                Ok(r) => result = result.or(Some(r)),
                Err(e) => failures.push((i, e)),
            }
        }
        // The rank that failed by itself says more than those that waited for it.
        failures.sort_by_key(|(_, e)| e.chain().any(|e| e.is::<Waited>()));
        if let Some((rank, e)) = failures.into_iter().next() {
            let p = mesh.place(rank);
            return match several {
                true => Err(e).with_context(|| {
                    format!("rank {rank} (pp {}, dp {}, cp {})", p.pp, p.dp, p.cp)
                }),
                false => Err(e),
            };
        }
        let result = result.ok_or_else(|| anyhow!("the artifact has no ranks"))?;
        let tokens = batches.iter().map(|b| b.layout.valid_tokens()).sum();
        Ok(StepResult { tokens, ..result })
    }

    /// Whether the loss and the gradients of a step without an update are finite.
    ///
    /// # Errors
    /// Names the loss, or the first gradient that is not.
    pub fn check_finite(&self, result: &StepResult) -> Result<()> {
        result.check_loss()?;
        self.ranks.iter().try_for_each(|r| r.check_norm(result.grad_norm))
    }
}

/// Elements of a parameter at most: a damaged manifest must not ask for all memory.
const MOST_ELEMENTS: usize = 1 << 33;

/// Ranks of one process at most.
const MOST_RANKS: usize = 4096;
