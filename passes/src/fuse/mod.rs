//! Fusion: row arithmetic becomes clusters, each of which will be one kernel.
//!
//! Works on the normal form ([`crate::canon`]), one function at a time. Products, attention, the
//! delta rule, gathers and calls cut a function; what lies between is grown into clusters by rules in
//! an e-graph ([`pool`], [`grow`], [`join`]), as far as one row program can hold it ([`legality`]),
//! and a set of clusters that stores everything asked for is chosen by its cost in microseconds
//! ([`choose`], [`device`]). A chosen cluster becomes a function marked as such, and a call in its
//! place: to every other part of the compiler it is a call like any other.
//!
//! A value may be computed in several clusters. All nodes are copied as they are, so that the numbers
//! stay to the last bit.

mod body;
mod choose;
mod device;
mod facts;
mod form;
mod grow;
mod join;
mod label;
mod legality;
mod log;
mod outline;
mod pool;
mod set;

pub use device::Device;
pub use form::Form;
pub use log::{Event, Log, Outcome};

use crate::manager::{Pass, PassError};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use vlmc_ir::dim::Symbol;
use vlmc_ir::graph::{Function, Program};

/// The pass.
pub const PASS: Pass =
    Pass { name: "fuse", summary: "gathers row arithmetic into clusters, one kernel each", run };

/// What to do.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// The device to fuse for.
    pub device: Device,
    /// Rules to leave out, by name.
    pub without: Vec<String>,
    /// How the row arithmetic around delta rules is spread over launches.
    pub form: Form,
}

/// One chosen cluster, for the fusion table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The function that it was taken from.
    pub function: String,
    /// The function that it became.
    pub cluster: String,
    /// What it is called.
    pub label: String,
    /// Row ops in it.
    pub ops: usize,
    /// Values that it stores.
    pub stores: usize,
    /// Microseconds, stores included, as the model has it.
    pub cost: f64,
}

/// A fused program and how it came about.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fused {
    /// The program.
    pub program: Program,
    /// Every cluster.
    pub table: Vec<Row>,
    /// Every decision.
    pub log: Log,
}

/// The names of every rule.
pub fn rule_names() -> Vec<&'static str> {
    grow::RULES.to_vec()
}

fn run(p: &Program) -> Result<Program, PassError> {
    program(p, &Options::default()).map(|f| f.program)
}

/// Fuses every function of a program that is no cluster itself.
///
/// # Errors
/// A bug of the pass, in words.
pub fn program(p: &Program, options: &Options) -> Result<Fused, PassError> {
    let mut out = Fused::default();
    let mut functions = vec![];
    let both_sides = label::both_sides(p);
    let taken: FxHashSet<&str> = p.functions.iter().map(|f| &*f.name).collect();
    for f in &p.functions {
        function(f, options, &both_sides, &taken, &mut functions, &mut out)?;
    }
    out.program = Program { functions, ..p.clone() };
    Ok(out)
}

fn function(
    f: &Function,
    options: &Options,
    both_sides: &BTreeSet<Symbol>,
    taken: &FxHashSet<&str>,
    functions: &mut Vec<Function>,
    out: &mut Fused,
) -> Result<(), PassError> {
    if f.cluster.is_some() {
        functions.push(f.clone());
        return Ok(());
    }
    let facts = facts::Facts::new(f, options.device.typical_rows);
    let mut pool = pool::Pool::new(&facts, options);
    pool.grow(&mut out.log);
    let pick = choose::choose(&mut pool, &options.device, &mut out.log);
    if pick.kernels.is_empty() {
        functions.push(f.clone());
        return Ok(());
    }
    let families = label::Families::new(&facts, both_sides);
    let outlined = outline::outline(&facts, &pick.kernels, &families, taken)
        .map_err(|e| PassError::new(format!("internal error in @{}: {e}", f.name)))?;
    let mut order: Vec<&choose::Kernel> = pick.kernels.iter().collect();
    order.sort_by_key(|k| k.stores.first().copied());
    for (k, c) in order.into_iter().zip(&outlined.clusters) {
        out.table.push(Row {
            function: f.name.clone(),
            cluster: c.name.clone(),
            label: c.cluster.as_deref().unwrap_or_default().to_string(),
            ops: k.ops.len(),
            stores: k.stores.len(),
            cost: k.cost,
        });
    }
    functions.extend(outlined.clusters);
    functions.push(outlined.function);
    Ok(())
}
