//! `vlmc-run bench`: every kernel of an artifact, checked and then timed.

mod check;
mod inputs;
mod reference;
mod report;

pub use check::{Check, Verdict};
pub use report::{BenchReport, KernelReport, Timing};

use crate::device::bound::{self, Bound};
use crate::device::cpu::Cpu;
use crate::device::{Device, Set};
use crate::options::{BenchDevice, BenchOptions};
use crate::output::say;
use crate::run::Failure;
use anyhow::{Context, Result, anyhow, bail};
use check::{Case, Subject, named, unwritten};
use inputs::Layout;
use std::io::Write;
use vlmc_artifact::Artifact;
use vlmc_artifact::kernels::{Cluster, Kernels, Module};
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::Program;
use vlmc_ir::text::parse;

/// Sets of buffers that runs take in turn, at least.
const LEAST_SETS: u64 = 3;
/// Sets of buffers at most, however small they are.
const MOST_SETS: u64 = 256;
/// What all sets together hold, in sizes of the cache.
const CACHES: u64 = 3;
/// Outputs up to here are looked at after a run at the full size.
const MOST_LOOKED_AT: u64 = 1 << 30;

const HELP_ARTIFACT: &str = "make the artifact with `vlmc compile MODEL -o DIR`, and name DIR here";
const HELP_CUDA: &str = "run with `--device cpu`, on an artifact compiled for the host";
const HELP_SIZES: &str = "see `--help` for what each flag takes";
const HELP_FAILED: &str = "this is a mistake of the compiler: report it with the lines above";

/// Checks and times what the options say, and writes the table or JSON to standard output.
///
/// # Errors
/// When the device or the artifact cannot be used, or a kernel fails.
pub fn bench_or_tell(options: &BenchOptions) -> Result<(), Failure> {
    let mut help = HELP_ARTIFACT;
    bench(options, &mut help)
        .and_then(|report| {
            help = HELP_FAILED;
            tell(options, &report)
        })
        .map_err(|error| Failure { error, help: help.to_string() })
}

fn tell(options: &BenchOptions, report: &BenchReport) -> Result<()> {
    let text =
        if options.json { serde_json::to_string_pretty(report)? + "\n" } else { report.table() };
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    let failures = report.failures();
    for f in &failures {
        say(f);
    }
    if report.passed() {
        return Ok(());
    }
    let bad = report.kernels.iter().filter(|k| !k.passed || k.failure.is_some()).count();
    bail!("{bad} of {} kernels failed", report.kernels.len())
}

fn bench(options: &BenchOptions, help: &mut &str) -> Result<BenchReport> {
    *help = HELP_CUDA;
    match options.device {
        BenchDevice::Cuda => {
            #[cfg(feature = "cuda")]
            {
                let device = crate::device::cuda::Cuda::open(0)?;
                *help = HELP_ARTIFACT;
                bench_on(&device, options, help)
            }
            #[cfg(not(feature = "cuda"))]
            bail!("this build of the executor has no CUDA device")
        }
        BenchDevice::Cpu => {
            let device = Cpu::open()?;
            *help = HELP_ARTIFACT;
            bench_on(&device, options, help)
        }
    }
}

/// What is common to all kernels.
struct Bench<'a, D> {
    device: &'a D,
    options: &'a BenchOptions,
    sizes: Sizes,
    layout: Layout,
}

fn bench_on<D: Device>(device: &D, options: &BenchOptions, help: &mut &str) -> Result<BenchReport> {
    let artifact = Artifact::read(&options.artifact)?;
    let kernels = Kernels::read(&options.artifact)?.ok_or_else(|| {
        anyhow!("{}: the artifact has no kernels", Kernels::path(&options.artifact).display())
    })?;
    let program = program(&artifact)?;
    *help = HELP_SIZES;
    let chosen = choose(&kernels, options.kernel.as_deref())?;
    let sizes = full_sizes(&artifact, &program, options.tokens)?;
    let layout = if options.packed { Layout::Uneven } else { Layout::Whole };
    let bench = Bench { device, options, sizes, layout };
    let mut report = BenchReport {
        device: device.name(),
        sizes: named(&program.symbols, &bench.sizes),
        packed: options.packed,
        kernels: vec![],
    };
    let work: Vec<Work<'_>> = chosen
        .iter()
        .map(|module| Work {
            module,
            clusters: kernels.clusters.iter().filter(|c| c.module == module.name).collect(),
        })
        .collect();
    // The reference takes longer than the kernels, so several are evaluated at a time; no more than
    // there are threads, since each takes memory.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for some in work.chunks(threads) {
        let prepared: Vec<Result<(Subject<'_>, Vec<Case>)>> = std::thread::scope(|scope| {
            let running: Vec<_> =
                some.iter().map(|w| scope.spawn(|| prepare(&program, w))).collect();
            let ended = running.into_iter().map(|r| r.join());
            ended.map(|r| r.unwrap_or_else(|_| Err(anyhow!("the reference failed")))).collect()
        });
        for (w, prepared) in some.iter().zip(prepared) {
            say(&format!("{} of {}  {}", report.kernels.len() + 1, work.len(), w.module.name));
            report.kernels.push(bench.kernel(w, prepared));
        }
    }
    Ok(report)
}

/// A kernel with what it computes.
struct Work<'a> {
    module: &'a Module,
    clusters: Vec<&'a Cluster>,
}

fn prepare<'a>(program: &'a Program, work: &Work<'a>) -> Result<(Subject<'a>, Vec<Case>)> {
    let cluster = work.clusters.first().ok_or_else(|| anyhow!("it computes no cluster"))?;
    let subject = Subject::new(work.module, program, &cluster.function)?;
    let cases = subject.cases().context("the reference")?;
    Ok((subject, cases))
}

/// One program with the functions of all, which have the clusters.
fn program(artifact: &Artifact) -> Result<Program> {
    let mut all = Program::default();
    for (name, text) in &artifact.programs {
        let p = parse::program(text).map_err(|e| {
            let (line, column) = parse::line_column(text, e.at);
            anyhow!("programs/{name}.vir:{line}:{column}: {e}")
        })?;
        for s in p.symbols {
            if !all.symbols.contains(&s) {
                all.symbols.push(s);
            }
        }
        for mut f in p.functions {
            if f.cluster.is_some() && all.function(&f.name).is_none() {
                // Origins point into the files of their program.
                f.nodes.iter_mut().for_each(|n| n.origins.clear());
                all.functions.push(f);
            }
        }
    }
    Ok(all)
}

fn choose<'k>(kernels: &'k Kernels, name: Option<&str>) -> Result<Vec<&'k Module>> {
    let Some(name) = name else { return Ok(kernels.modules.iter().collect()) };
    // Either the kernel itself, or what it computes.
    let of_cluster = |c: &&Cluster| c.function == name || c.label == name;
    let wanted: Vec<&str> =
        kernels.clusters.iter().filter(of_cluster).map(|c| &*c.module).collect();
    let chosen: Vec<&Module> =
        kernels.modules.iter().filter(|m| m.name == name || wanted.contains(&&*m.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = kernels.modules.iter().map(|m| &*m.name).collect();
        bail!("no kernel, cluster or label is called `{name}`; kernels: {}", names.join(", "));
    }
    Ok(chosen)
}

/// The capacities of the artifact, and the rows that were asked for.
fn full_sizes(artifact: &Artifact, program: &Program, tokens: Option<u64>) -> Result<Sizes> {
    let mut sizes = Sizes::default();
    for (name, value) in &artifact.manifest.capacities {
        sizes.set(&Symbol::new(name), usize::try_from(*value)?);
    }
    if let Some(tokens) = tokens {
        sizes.set(&Symbol::new("T"), usize::try_from(tokens)?);
    }
    for s in &program.symbols {
        if sizes.get(&s.symbol).is_none() {
            bail!("manifest.json: no capacity for {}", s.symbol);
        }
    }
    sizes.check(&program.symbols)?;
    Ok(sizes)
}

impl<D: Device> Bench<'_, D> {
    fn kernel(&self, w: &Work<'_>, prepared: Result<(Subject<'_>, Vec<Case>)>) -> KernelReport {
        let mut report = KernelReport {
            kernel: w.module.name.clone(),
            clusters: w.clusters.iter().map(|c| (*c).clone()).collect(),
            target: String::new(),
            passed: false,
            failure: None,
            checks: vec![],
            resources: vec![],
            timing: None,
        };
        let measured =
            prepared.and_then(|(subject, cases)| self.measure(&subject, &cases, &mut report));
        report.failure = measured.err().map(|e| format!("{e:#}"));
        report
    }

    fn measure(&self, s: &Subject<'_>, cases: &[Case], report: &mut KernelReport) -> Result<()> {
        let kernel = self.device.load(&self.options.artifact, s.module)?;
        report.target = self.device.target(&kernel).to_string();
        report.resources = self.device.resources(&kernel);
        for case in cases {
            report.checks.push(s.check(self.device, &kernel, case)?);
        }
        report.passed = report.checks.iter().flat_map(|c| &c.outputs).all(|v| v.passed);
        if report.passed {
            report.timing = Some(self.time(s, &kernel).context("at the full size")?);
        }
        Ok(())
    }

    fn time(&self, subject: &Subject<'_>, kernel: &D::Kernel) -> Result<Timing> {
        let bound = subject.bind(&self.sizes)?;
        let bytes = bound.traffic()?;
        let least = CACHES * self.device.cache_bytes();
        let count = least.div_ceil(bytes.max(1)).clamp(LEAST_SETS, MOST_SETS);
        let sets = usize::try_from(count)?;
        let mut drawn = vec![];
        for (i, shape) in bound.inputs.iter().enumerate() {
            drawn.push(subject.inputs.bytes(i, shape, &self.sizes, self.layout, 2, false)?);
        }
        let mut all = vec![];
        for set in 0..sets {
            let inputs: Vec<Vec<u8>> = (0..drawn.len())
                .map(|i| subject.inputs.varied(i, bound.inputs[i].dtype, &drawn[i], set))
                .collect();
            all.push(check::poisoned(self.device, &bound, &inputs)?);
        }
        if let Some(first) = all.first() {
            self.look(&bound, kernel, first)?;
        }
        let seconds = self.device.time(kernel, &bound, &all)?;
        drop(all);
        let copy = self.device.time_copy(bytes, sets)?;
        let rate = |seconds: f64| bytes as f64 / seconds.max(1e-12) / 1e9;
        Ok(Timing {
            ms: seconds * 1e3,
            bytes,
            gbs: rate(seconds),
            copy_ms: copy * 1e3,
            copy_gbs: rate(copy),
            of_copy: copy / seconds.max(1e-12),
            sets,
            cached: count * bytes < least,
        })
    }

    /// Runs once at the full size, and sees whether everything is written there too.
    fn look(&self, bound: &Bound, kernel: &D::Kernel, set: &Set<D::Buffer>) -> Result<()> {
        self.device.run(kernel, bound, set)?;
        for (i, (shape, buffer)) in bound.outputs.iter().zip(&set.outputs).enumerate() {
            let n = bound::bytes(shape)?;
            if n > MOST_LOOKED_AT {
                continue;
            }
            let bytes = self.device.read(buffer)?;
            let left = unwritten(shape, &bytes[..usize::try_from(n)?]);
            if left > 0 {
                bail!("{left} elements of output {i} are never written");
            }
        }
        Ok(())
    }
}
