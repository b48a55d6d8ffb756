//! Passes by name, and running lists of them.

use vlmc_ir::graph::Program;
use vlmc_ir::verify::{VerifyError, verify};

/// Why a pass could not do its work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PassError {
    /// In words.
    pub message: String,
}

impl PassError {
    /// An error.
    pub fn new(message: impl Into<String>) -> Self {
        PassError { message: message.into() }
    }
}

/// A pass: a new program that means the same.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its name in lists.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// The work. It gets programs that verify.
    pub run: fn(&Program) -> Result<Program, PassError>,
}

/// Every pass, in alphabetical order.
pub const PASSES: &[Pass] = &[
    crate::canon::PASS,
    crate::cse::PASS,
    crate::dce::PASS,
    crate::fuse::PASS,
    crate::prune::PASS,
    crate::recompute::PASS,
];

/// The pass of this name.
pub fn find(name: &str) -> Option<&'static Pass> {
    PASSES.iter().find(|p| p.name == name)
}

/// Passes from names between commas. Blanks do not matter, and no name is an empty list.
///
/// # Errors
/// The first name that no pass has, and those that there are.
pub fn parse_list(names: &str) -> Result<Vec<&'static Pass>, PassError> {
    let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
    names
        .map(|name| {
            find(name).ok_or_else(|| {
                let known: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
                PassError::new(format!("there is no pass `{name}`, only {}", known.join(", ")))
            })
        })
        .collect()
}

/// What one pass did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The pass.
    pub name: &'static str,
    /// Whether the program is another one now.
    pub changed: bool,
}

/// What a list of passes made.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The program after the last pass.
    pub program: Program,
    /// One entry a pass, in order.
    pub steps: Vec<Step>,
}

/// Why a list of passes stopped.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PipelineError {
    /// The program did not verify to begin with.
    #[error("the program does not verify\n{}", rendered(errors, program))]
    Input {
        /// The program.
        program: Box<Program>,
        /// What is wrong with it.
        errors: Vec<VerifyError>,
    },
    /// A pass refused.
    #[error("pass `{pass}`: {error}")]
    Pass {
        /// The pass.
        pass: &'static str,
        /// Why.
        error: PassError,
    },
    /// A pass made a program that does not verify: the pass is wrong.
    #[error("pass `{pass}` made a program that does not verify\n{}", rendered(errors, program))]
    Broken {
        /// The pass.
        pass: &'static str,
        /// What it made.
        program: Box<Program>,
        /// What is wrong with that.
        errors: Vec<VerifyError>,
    },
}

fn rendered(errors: &[VerifyError], program: &Program) -> String {
    errors.iter().map(|e| e.render(program)).collect()
}

/// Runs passes one after the other; the program is verified before the first and after each.
///
/// # Errors
/// See [`PipelineError`].
pub fn run(program: &Program, passes: &[&Pass]) -> Result<Outcome, PipelineError> {
    let errors = verify(program);
    if !errors.is_empty() {
        return Err(PipelineError::Input { program: Box::new(program.clone()), errors });
    }
    let mut outcome = Outcome { program: program.clone(), steps: vec![] };
    for pass in passes {
        let next = (pass.run)(&outcome.program)
            .map_err(|error| PipelineError::Pass { pass: pass.name, error })?;
        let errors = verify(&next);
        if !errors.is_empty() {
            let program = Box::new(next);
            return Err(PipelineError::Broken { pass: pass.name, program, errors });
        }
        outcome.steps.push(Step { name: pass.name, changed: next != outcome.program });
        outcome.program = next;
    }
    Ok(outcome)
}
