//! The kernels of a program, built for its targets: the files and the table of an artifact.

use crate::error::Error;
use crate::kernel::{self, Kernel, Machine, Refusal, Shape};
use crate::lower::Lowering;
use crate::ptxas::{Cubin, Ptxas, Source};
use crate::target::Target;
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vlmc_artifact::kernels as table;
use vlmc_ir::graph::{Function, Program};
use vlmc_ir::text::print;

/// What was built.
#[derive(Clone, Debug, Default)]
pub struct Built {
    /// The table, for `kernels/kernels.json`.
    pub kernels: Option<table::Kernels>,
    /// Files by their path below the artifact's directory.
    pub files: Vec<(String, Vec<u8>)>,
    /// Clusters that have no kernel, and why.
    pub refused: Vec<(String, Refusal)>,
    /// Milliseconds that the assembler took, of all.
    pub assembled_ms: u128,
}

/// A structurally distinct cluster, for one kind of machine.
struct Job {
    name: String,
    function: Function,
    machine: Machine,
}

/// What became of it: its kernel, and the code of its launches for each target.
type Made = Result<Result<(Kernel, Vec<(Target, Code)>), Refusal>, Error>;

/// Code of all launches.
enum Code {
    Ptx(String, Option<Cubin>),
    Object(Vec<u8>),
}

/// Builds every cluster of a program for every target. Clusters that differ in names alone share
/// their kernel; the host's kernels are modules of their own, since their blocks are others.
///
/// # Errors
/// What lowering, the assembler or the linker refused.
pub fn build(p: &Program, targets: &[Target], ptxas: Option<&Ptxas>) -> Result<Built, Error> {
    build_with(p, targets, ptxas, &Shape::GPU)
}

/// The same, with GPU kernels of a given shape.
///
/// # Errors
/// As [`build`].
pub fn build_with(
    p: &Program,
    targets: &[Target],
    ptxas: Option<&Ptxas>,
    shape: &Shape,
) -> Result<Built, Error> {
    let gpu: Vec<Target> = targets.iter().copied().filter(|t| t.is_gpu()).collect();
    let machines =
        [(Machine::Gpu, !gpu.is_empty()), (Machine::Host, targets.contains(&Target::Host))];
    let mut jobs: Vec<Job> = vec![];
    let mut by_text: FxHashMap<(String, bool), usize> = FxHashMap::default();
    let mut clusters: Vec<(&Function, usize)> = vec![];
    for f in p.functions.iter().filter(|f| f.cluster.is_some()) {
        let function = anonymous(f);
        let text =
            print::program(&Program { functions: vec![function.clone()], ..Program::default() });
        for (machine, _) in machines.iter().filter(|(_, wanted)| *wanted) {
            let host = *machine == Machine::Host;
            let at = *by_text.entry((text.clone(), host)).or_insert(jobs.len());
            if at == jobs.len() {
                let name = format!("{}{}", name(f, &text), if host { "_host" } else { "" });
                // Lines are those of the first cluster of its kind.
                let mut function = function.clone();
                for (node, of) in function.nodes.iter_mut().zip(&f.nodes) {
                    node.origins.clone_from(&of.origins);
                }
                jobs.push(Job { name, function, machine: *machine });
            }
            clusters.push((f, at));
        }
    }
    let mut out = Built::default();
    let spent = AtomicUsize::new(0);
    let mut modules: Vec<table::Module> = vec![];
    let mut index: Vec<Option<usize>> = vec![];
    let mut objects = vec![];
    for (i, (job, made)) in
        jobs.iter().zip(make(&jobs, &gpu, shape, &p.files, (ptxas, &spent))).enumerate()
    {
        let (kernel, codes) = match made? {
            Ok(made) => made,
            Err(refusal) => {
                let of = clusters.iter().filter(|(_, at)| *at == i);
                out.refused.extend(of.map(|(f, _)| (f.name.clone(), refusal.clone())));
                index.push(None);
                continue;
            }
        };
        let mut module = describe(job, &kernel);
        for (target, code) in codes {
            let mut built = table::Built {
                target: target.to_string(),
                file: HOST_FILE.to_string(),
                cubin: None,
                resources: vec![],
            };
            match code {
                Code::Ptx(ptx, cubin) => {
                    built.file = format!("kernels/{target}/{}.ptx", job.name);
                    out.files.push((built.file.clone(), ptx.into_bytes()));
                    if let Some(cubin) = cubin {
                        let file = format!("kernels/{target}/{}.cubin", job.name);
                        built.resources = resources(&module, &cubin);
                        built.cubin = Some(file.clone());
                        out.files.push((file, cubin.bytes));
                    }
                }
                Code::Object(object) => objects.push(object),
            }
            module.targets.push(built);
        }
        index.push(Some(modules.len()));
        modules.push(module);
    }
    out.assembled_ms = spent.load(Ordering::Relaxed) as u128;
    if !objects.is_empty() {
        out.files.push((HOST_FILE.to_string(), link(&objects)?));
    }
    let entry = |(f, at): &(&Function, usize)| Some(cluster(p, f, &modules.get(index[*at]?)?.name));
    let clusters = clusters.iter().filter_map(entry).collect();
    out.kernels = Some(table::Kernels { format: vlmc_artifact::FORMAT, modules, clusters });
    Ok(out)
}

/// The library of all host kernels.
const HOST_FILE: &str = "kernels/host.so";

/// A cluster without its names: what is left decides its kernel.
fn anonymous(f: &Function) -> Function {
    let mut out = f.clone();
    out.name = "kernel".to_string();
    for (i, input) in out.inputs.iter_mut().enumerate() {
        input.name = format!("in{i}").into();
    }
    for node in &mut out.nodes {
        (node.name, node.region, node.origins) = (None, None, vec![]);
    }
    out.regions.clear();
    out.outputs.iter_mut().for_each(|o| o.name = None);
    out.cluster = Some("".into());
    out
}

/// Label, direction, shape of the first output, and a hash of the body.
fn name(f: &Function, text: &str) -> String {
    let word = |s: &str| -> String {
        s.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
    };
    let label = word(f.cluster.as_deref().unwrap_or("cluster"));
    let ty = f.outputs.first().map(|o| f.ty(o.value));
    let dims = ty.map_or(vec![], |t| t.dims.iter().map(|d| word(&d.size().to_string())).collect());
    let dtype = ty.map_or("", |t| t.dtype.name());
    let hash: String =
        Sha256::digest(text.as_bytes()).iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("{label}_{}_{}_{dtype}_{hash}", direction(f).1, dims.join("x"))
}

/// Whether a function came from the backward.
fn direction(f: &Function) -> (table::Direction, &'static str) {
    // Autodiff names the halves of a function so.
    if f.name.contains(".bwd") {
        (table::Direction::Bwd, "bwd")
    } else {
        (table::Direction::Fwd, "fwd")
    }
}

/// All jobs on all cores, in order.
fn make(
    jobs: &[Job],
    gpu: &[Target],
    shape: &Shape,
    files: &[String],
    (ptxas, spent): (Option<&Ptxas>, &AtomicUsize),
) -> Vec<Made> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Made)>> = Mutex::new(vec![]);
    let worker = || {
        let tools = Tools { lowering: Lowering::new(), gpu, shape, ptxas, files, spent };
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(i) else { return };
            let made = one(&tools, job);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((i, made));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| {
        for _ in 1..cores.min(jobs.len()) {
            s.spawn(worker);
        }
        worker();
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, made)| made).collect()
}

fn one(tools: &Tools<'_>, job: &Job) -> Made {
    if job.machine == Machine::Host {
        let made = kernel::kernel(&job.function, tools.files, &job.name, job.machine, &Shape::HOST);
        let kernel = match made {
            Ok(k) => k,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let object = Code::Object(tools.lowering.host_object(&kernel.mlir)?);
        return Ok(Ok((kernel, vec![(Target::Host, object)])));
    }
    let mut shape = *tools.shape;
    loop {
        let kernel =
            match kernel::kernel(&job.function, tools.files, &job.name, job.machine, &shape) {
                Ok(k) => k,
                Err(refusal) => return Ok(Err(refusal)),
            };
        let (mut codes, mut spills) = (vec![], false);
        for target in tools.gpu {
            let ptx = tools.lowering.ptx(&kernel.mlir, *target)?;
            let cubin = match tools.ptxas {
                Some(ptxas) => Some(tools.assemble(ptxas, &job.name, &ptx, *target)?),
                None => None,
            };
            let spilled =
                |k: &crate::ptxas::Kernel| k.resources.spill_stores + k.resources.spill_loads > 0;
            spills |= cubin.iter().any(|c| c.kernels.iter().any(spilled));
            codes.push((*target, Code::Ptx(ptx, cubin)));
        }
        // Fewer rows together need fewer registers, and so do more warps for a row.
        if !spills || shape.together <= LEAST_TOGETHER {
            return Ok(Ok((kernel, codes)));
        }
        shape.together /= 4;
        shape.held = (shape.held / 2).max(shape.vector);
    }
}

/// With so few elements of a lane together a shape is not made smaller.
const LEAST_TOGETHER: i64 = 2;

/// What a worker has.
struct Tools<'t> {
    lowering: Lowering,
    gpu: &'t [Target],
    shape: &'t Shape,
    ptxas: Option<&'t Ptxas>,
    /// Files of the spec.
    files: &'t [String],
    /// Milliseconds of all workers' assembling.
    spent: &'t AtomicUsize,
}

impl Tools<'_> {
    fn assemble(
        &self,
        ptxas: &Ptxas,
        name: &str,
        ptx: &str,
        target: Target,
    ) -> Result<Cubin, Error> {
        let began = std::time::Instant::now();
        let cubin = ptxas.assemble(Source { name, ptx, target })?;
        self.spent.fetch_add(began.elapsed().as_millis() as usize, Ordering::Relaxed);
        Ok(cubin)
    }
}

fn size(s: &kernel::Size) -> table::Size {
    match s.over.as_constant() {
        Some(n) => table::Size::constant((s.times * ((n + s.per - 1) / s.per)) as u64),
        None => table::Size::of(s.times as u64, s.over.to_string(), s.per as u64),
    }
}

fn describe(job: &Job, k: &Kernel) -> table::Module {
    let operand = |ty: &vlmc_ir::ty::Ty| table::Operand {
        dtype: ty.dtype.name().to_string(),
        dims: ty.dims.iter().map(|d| d.size().to_string()).collect(),
    };
    let f = &job.function;
    let launches = k.launches.iter().map(|l| table::Launch {
        symbol: l.symbol.clone(),
        grid: [size(&l.grid[0]), size(&l.grid[1]), table::Size::constant(1)],
        block: l.block,
        shared_bytes: l.shared_bytes,
        arguments: l
            .arguments
            .iter()
            .map(|a| match *a {
                kernel::Argument::Input(i) => table::Argument::Input(i),
                kernel::Argument::Output(i) => table::Argument::Output(i),
                kernel::Argument::Scratch(i) => table::Argument::Scratch(i),
            })
            .collect(),
    });
    table::Module {
        name: job.name.clone(),
        targets: vec![],
        symbols: k.symbols.iter().map(|s| s.to_string()).collect(),
        inputs: f.inputs.iter().map(|i| operand(&i.ty)).collect(),
        outputs: f.outputs.iter().map(|o| operand(f.ty(o.value))).collect(),
        scratch: k.scratch.iter().map(size).collect(),
        launches: launches.collect(),
    }
}

/// What each launch of a module takes.
fn resources(module: &table::Module, cubin: &Cubin) -> Vec<table::Resources> {
    let of = |l: &table::Launch| {
        let found = cubin.kernels.iter().find(|k| k.name == l.symbol);
        let r = found.map(|k| k.resources).unwrap_or_default();
        table::Resources {
            registers: r.registers,
            spill_bytes: r.spill_stores + r.spill_loads,
            shared_bytes: r.shared + l.shared_bytes,
        }
    };
    module.launches.iter().map(of).collect()
}

fn cluster(p: &Program, f: &Function, module: &str) -> table::Cluster {
    let mut lines: Vec<String> = vec![];
    for o in f.nodes.iter().flat_map(|n| &n.origins) {
        let file = p.files.get(o.file as usize).map_or("?", String::as_str);
        let line = format!("{file}:{}", o.line);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let label = f.cluster.as_deref().unwrap_or_default().to_string();
    table::Cluster {
        function: f.name.clone(),
        module: module.to_string(),
        rule: label.clone(),
        label,
        direction: direction(f).0,
        lines,
    }
}

fn link(objects: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let failed = |e: std::io::Error| Error::new("", crate::Stage::Link, e.to_string());
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("host.so");
    crate::link_shared(objects, &path)?;
    std::fs::read(&path).map_err(failed)
}
