//! The normal form of formulas: whatever way the same maths is written, it comes out the same.
//!
//! Each function is loaded into an e-graph, one named set of directional rules is applied until
//! nothing new comes, and one term is chosen for each value. In the normal form
//!
//! 1. slices stand at the loads, where they are an address;
//! 2. concatenations, repeats and reshapes stand at the stores or are made by the consumer;
//! 3. the arithmetic between is done once for each row, in one row shape;
//! 4. formulas have their names: `x / (1 + e^-x)` is `silu x`.
//!
//! That is what makes the question of whether ops fit into one kernel a local one. The pass belongs
//! before differentiation, and once more after it: gradients of long-hand formulas do not meet.
//!
//! Values change by reassociation of floating point only, where a rule says so; casts are exact,
//! and a value that is rounded stays rounded. Rules match maths, never names. Functions whose types
//! are divided over a mesh are left alone, since placed programs are in normal form already.
//!
//! Egg's types stay inside this module.

mod emit;
mod extract;
mod language;
mod load;
mod log;
mod rules;
mod saturate;
mod term;

pub use log::{Event, Log, Outcome};
pub use saturate::Limits;

use crate::manager::{Pass, PassError};
use language::Head;
use saturate::{Report, Rule};
use vlmc_ir::graph::{Function, Program};
use vlmc_ir::ops::{Effect, Op};
use vlmc_ir::text::print::Labels;

/// The pass.
pub const PASS: Pass =
    Pass { name: "canon", summary: "brings formulas into their normal form", run };

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Budgets for each function.
    pub limits: Limits,
    /// Rules to leave out, by name.
    pub without: Vec<String>,
}

/// The names of every rule.
pub fn rule_names() -> Vec<&'static str> {
    rules::names()
}

/// How often the result is taken as a new start before it counts as done.
const REPEATS: usize = 4;

fn run(p: &Program) -> Result<Program, PassError> {
    program(p, &Options::default()).map(|(p, _)| p)
}

/// Brings every function of a program into normal form.
///
/// # Errors
/// When a rule is unsound: that is a bug, not a property of the program.
pub fn program(p: &Program, options: &Options) -> Result<(Program, Log), PassError> {
    let mut log = Log::default();
    let functions: Result<Vec<Function>, PassError> =
        p.functions.iter().map(|f| function(f, options, &mut log)).collect();
    Ok((Program { functions: functions?, ..p.clone() }, log))
}

/// Brings one function into normal form.
///
/// # Errors
/// See [`program`].
pub fn function(f: &Function, options: &Options, log: &mut Log) -> Result<Function, PassError> {
    let rules: Vec<Rule> =
        rules::all().into_iter().filter(|r| !options.without.iter().any(|w| w == r.name)).collect();
    let reached = log.warnings.len();
    let mut current = once(f, &rules, options.limits, log)?;
    for _ in 1..REPEATS {
        // Where the budget is spent once, it would be spent again.
        if log.warnings.len() > reached {
            break;
        }
        // Events of the first round are about values that the user wrote.
        let next = once(&current, &rules, options.limits, &mut Log::default())?;
        if next == current {
            break;
        }
        current = next;
    }
    Ok(current)
}

fn once(
    f: &Function,
    rules: &[Rule],
    limits: Limits,
    log: &mut Log,
) -> Result<Function, PassError> {
    let wrong = |e: String| PassError::new(format!("internal error in @{}: {e}", f.name));
    let mut loaded = load::load(f);
    let labels = Labels::new(f);
    let mut report = |graph: &language::Graph, rule, class, report| {
        let data = &graph[class].data;
        let node = data.from.first().or(data.near.first()).copied();
        let Some(node) = node else { return };
        let id = vlmc_ir::graph::NodeId(node);
        log.note(Event {
            function: f.name.clone(),
            rule,
            value: labels.value(id.into()),
            origin: f.node(id).origins.first().cloned(),
            outcome: match report {
                Report::Fired => Outcome::Fired,
                Report::Refused(guard) => Outcome::Refused(guard),
            },
        });
    };
    let mut warnings =
        saturate::saturate(&mut loaded.graph, rules, limits, &mut report).map_err(wrong)?;
    let rank = |head: &Head| match head {
        Head::Leaf(i) | Head::Fixed(i) => match &f.nodes[*i as usize].op {
            Op::Input { index } => u64::from(*index) * 2,
            Op::Param { index } => u64::from(*index) * 2 + 1,
            // Calls are told apart by their order alone.
            _ => {
                let before = f.nodes[..*i as usize].iter();
                before.filter(|n| n.op.info().effect != Effect::Pure).count() as u64
            }
        },
        _ => 0,
    };
    let (choices, settled) = extract::choose(&loaded.graph, &rank);
    if !settled {
        warnings.push("the choice of terms does not settle".to_string());
    }
    for w in warnings {
        let warning = format!("@{}: {w}", f.name);
        if !log.warnings.contains(&warning) {
            log.warnings.push(warning);
        }
    }
    emit::emit(f, &loaded, &choices).map_err(wrong)
}
