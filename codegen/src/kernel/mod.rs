//! Kernels from clusters.
//!
//! A cluster's body becomes one launch over rows, and a second one where it sums over rows. Nothing
//! here knows a model, a layer or a rule: [`plan`] takes the outputs apart and lays the work out,
//! [`launch`] and [`emit`] compute elements on demand into kernel IR ([`ir`]), and [`gpu`] and
//! [`host`] write that down as MLIR.

mod body;
mod code;
mod control;
mod coordinates;
mod emit;
mod exchange;
mod folds;
mod gpu;
mod host;
mod index;
mod ir;
mod launch;
mod math;
mod memory;
mod pieces;
mod plan;
mod ring;
mod rows;
mod store;
mod text;
mod trip;
mod walk;

pub use emit::Argument;
pub use plan::Shape;

use body::Body;
use std::fmt;
use vlmc_ir::dim::{Poly, Symbol, product};
use vlmc_ir::graph::{Function, Origin};

/// Why a cluster has no kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// The op that does not fit; empty when it is none in particular.
    pub op: String,
    /// Where it was written.
    pub origin: Option<Origin>,
    /// The reason.
    pub reason: String,
}

impl Refusal {
    fn new(reason: impl Into<String>) -> Self {
        Refusal { op: String::new(), origin: None, reason: reason.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.op.is_empty() {
            write!(f, "`{}`: ", self.op)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

/// `times * ceil(over / per)`, where `over` is a size in the program's symbols.
#[derive(Clone, PartialEq, Debug)]
pub struct Size {
    /// The factor.
    pub times: i64,
    /// The size.
    pub over: Poly,
    /// What it is divided by.
    pub per: i64,
}

/// One launch of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Launch {
    /// Name of the function.
    pub symbol: String,
    /// Pointers, in order; the symbols follow as `i32`.
    pub arguments: Vec<Argument>,
    /// Blocks.
    pub grid: [Size; 2],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

/// A kernel for one kind of target.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Symbols that every launch takes.
    pub symbols: Vec<Symbol>,
    /// Bytes of the buffers between launches.
    pub scratch: Vec<Size>,
    /// Launches in order.
    pub launches: Vec<Launch>,
    /// Its MLIR text.
    pub mlir: String,
}

/// What a kernel is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// A GPU.
    Gpu,
    /// The processor.
    Host,
}

/// The kernel of a cluster; `files` are those that the origins of its nodes index.
///
/// # Errors
/// Says which op a row program cannot hold, and why.
pub fn kernel(
    f: &Function,
    files: &[String],
    name: &str,
    machine: Machine,
    shape: &Shape,
) -> Result<Kernel, Refusal> {
    let body = Body { f };
    let symbols = symbols(f);
    let (first, partials, second) = plan::plan(&body, shape)?;
    let mut rows = Poly::constant(1);
    for s in &first.sections {
        rows = more(&rows, &s.rows)
            .ok_or_else(|| Refusal::new(format!("{} and {} rows", s.rows, rows)))?;
    }
    let scratch = partials
        .iter()
        .map(|p| Size { times: p.elements * 4, over: p.rows.clone(), per: p.per })
        .collect();
    let mut kernel =
        Kernel { name: name.to_string(), symbols, scratch, launches: vec![], mlir: String::new() };
    let (mut functions, mut uses_shared) = (vec![], false);
    let one = Size { times: 1, over: Poly::constant(1), per: 1 };
    let stages = [(Some(&first), ""), (second.as_ref(), "_sum")];
    for (plan, suffix) in stages {
        let Some(plan) = plan else { continue };
        if plan.sections.is_empty() {
            continue;
        }
        let symbol = format!("{name}{suffix}");
        // The second launch has no rows to fetch, and as many threads as a block may have.
        let own = Shape { resident: 0, stages: 0, ..*shape };
        let own = if suffix.is_empty() { shape } else { &own };
        let out = launch::launch(&symbol, &body, plan, &partials, &kernel.symbols, own)?;
        let y = if suffix.is_empty() {
            Size { times: 1, over: rows.clone(), per: out.rows }
        } else {
            one.clone()
        };
        let (mlir, shared) = match machine {
            Machine::Gpu => gpu::print(&out.launch),
            Machine::Host => (host::print(&out.launch), 0),
        };
        kernel.launches.push(Launch {
            symbol,
            arguments: out.arguments,
            grid: [Size { times: out.blocks, ..one.clone() }, y],
            block: (out.launch.lanes * out.launch.warps * out.launch.teams) as u32,
            shared_bytes: shared as u32,
        });
        functions.push(mlir);
        uses_shared |= shared > 0;
    }
    let mlir = match machine {
        Machine::Gpu => gpu::module(name, &functions, uses_shared),
        Machine::Host => format!("module {{\n{}}}\n", functions.concat()),
    };
    kernel.mlir = text::places(f, files) + &mlir;
    Ok(kernel)
}

/// Symbols in the types of a function, sorted.
fn symbols(f: &Function) -> Vec<Symbol> {
    let mut out: Vec<Symbol> = vec![];
    for ty in f.nodes.iter().flat_map(|n| &n.tys) {
        out.extend(product(&ty.dims).symbols());
    }
    out.sort();
    out.dedup();
    out
}

/// The larger of two numbers of rows, where that is evident.
fn more(a: &Poly, b: &Poly) -> Option<Poly> {
    let line = |p: &Poly| match p.as_constant() {
        Some(k) => Some((None, 0, k)),
        None => p.as_linear().map(|(s, a, b)| (Some(s.clone()), a, b)),
    };
    let ((s, k, c), (t, l, d)) = (line(a)?, line(b)?);
    match (s, t) {
        // A size is at least 1 wherever a kernel runs.
        (None, None) => Some(if c >= d { a.clone() } else { b.clone() }),
        (Some(_), None) if c + k >= d => Some(a.clone()),
        (None, Some(_)) if d + l >= c => Some(b.clone()),
        (Some(s), Some(t)) if s == t && c == d => Some(if k >= l { a.clone() } else { b.clone() }),
        _ => None,
    }
}
