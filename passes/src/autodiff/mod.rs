//! Reverse mode differentiation of programs.
//!
//! Every function that a loss reaches becomes two: `NAME.fwd`, which also returns the values that
//! its backward pass needs, and `NAME.bwd`, which takes those values, the inputs it needs and the
//! gradients of the results, and gives the gradients of inputs and parameters. Main becomes the
//! joint graph: its own nodes with calls of the `.fwd` functions, then calls of the `.bwd` functions
//! in reverse, and the sums of what one parameter gets from several places. The rules of the ops
//! are those of the op table ([`vlmc_ir::ops::grad`]).
//!
//! A function is differentiated once for each set of results with gradients and of inputs whose
//! gradients are wanted, however often it is called. Functions call functions to any depth.
//!
//! Which values are kept from forward to backward is a [`SavedSet`] a function, which other passes
//! may edit between [`Plan::new`] and [`Plan::build`]. What is not kept is made again in `.bwd` from
//! what is there.
//!
//! Gradients of parameters are f32, whatever the parameter is, and are summed in f32. A parameter
//! that no loss reaches gets none.

mod cut;
mod flow;
mod joint;
mod reverse;
mod saved;
mod split;
mod total;

pub use saved::{Saved, SavedList, SavedSet};

pub(crate) use joint::drop_unreached;

use reverse::{Differentiator, Joint, Template};
use vlmc_ir::graph::{Program, Value};
use vlmc_ir::ops::TypeError;
use vlmc_ir::ty::Ty;
use vlmc_ir::verify::verify;

/// Why a program could not be differentiated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct AutodiffError {
    /// In words, with the line of the node when it is about one.
    pub message: String,
}

impl AutodiffError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        AutodiffError { message: message.into() }
    }
}

impl From<TypeError> for AutodiffError {
    fn from(e: TypeError) -> Self {
        AutodiffError { message: e.message }
    }
}

/// Where gradients start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Seeds {
    /// At each loss with `weight / count`, with the count that the program computes; 0 when that
    /// is 0.
    #[default]
    Counts,
    /// The same with a count over all ranks and microbatches, which becomes the input
    /// `NAME.total : f32[]` of main.
    Totals,
    /// At each plain result that is a float, with an input `dout.NAME` of its type: the gradients
    /// are those of the sum of all `<result, dout>`.
    Outputs,
}

/// What to differentiate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Where gradients start.
    pub seeds: Seeds,
    /// Inputs of main whose gradients become the outputs `grad.in.NAME` as well.
    pub inputs: Vec<String>,
}

/// A differentiated program before it is decided which values are kept.
pub struct Plan<'p> {
    program: &'p Program,
    templates: Vec<Template>,
    main: Joint,
}

impl<'p> Plan<'p> {
    /// Differentiates a program.
    ///
    /// # Errors
    /// When the program does not verify, has nothing to start from, or uses an op that cannot be
    /// differentiated where a gradient has to pass.
    pub fn new(program: &'p Program, options: &Options) -> Result<Self, AutodiffError> {
        if let Some(e) = verify(program).first() {
            return Err(AutodiffError::new(e.render(program)));
        }
        let mut d = Differentiator::new(program);
        let main = joint::main(&mut d, options)?;
        Ok(Plan { program, templates: d.templates, main })
    }

    /// The names of the functions differentiated, callees before callers: a function that is
    /// differentiated in several ways has several.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.templates.iter().map(|t| &*t.name)
    }

    /// Which values the function keeps, to be edited.
    pub fn saved_set_mut(&mut self, template: &str) -> Option<&mut SavedSet> {
        self.templates.iter_mut().find(|t| t.name == template).map(|t| &mut t.saved)
    }

    /// What each function keeps as things stand, callees before callers.
    pub fn saved(&self) -> Vec<SavedList> {
        split::lower_all(self.program, &self.templates).into_iter().map(|l| l.list).collect()
    }

    /// The program with forward and backward functions and the joint main.
    ///
    /// # Errors
    /// When a parameter and another output of main have one name.
    pub fn build(&self) -> Result<Program, AutodiffError> {
        let lowered = split::lower_all(self.program, &self.templates);
        let main = joint::finish(&self.main, &lowered)?;
        let mut program = self.program.clone();
        program.functions.pop();
        program.functions.extend(lowered.into_iter().flat_map(|l| [l.forward, l.backward]));
        program.functions.push(main);
        joint::drop_unreached(&mut program);
        Ok(program)
    }
}

/// Differentiates a program, with the saved sets that follow from the rule of [`SavedSet`].
///
/// # Errors
/// See [`Plan::new`] and [`Plan::build`].
pub fn differentiate(program: &Program, options: &Options) -> Result<Program, AutodiffError> {
    Plan::new(program, options)?.build()
}

/// The gradient of what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The input of this index.
    Input(usize),
    /// The parameter of this checkpoint name, below the scope of the function.
    Param(String),
}

/// A gradient that a function computes.
#[derive(Clone, Debug)]
pub(crate) struct GradientOf {
    pub(crate) target: Target,
    pub(crate) value: Value,
    pub(crate) ty: Ty,
}

/// `base`, or with a number when that is taken.
pub(crate) fn unique(base: &str, mut taken: impl FnMut(&str) -> bool) -> String {
    let mut name = base.to_string();
    let mut again = 2;
    while taken(&name) {
        name = format!("{base}.{again}");
        again += 1;
    }
    name
}
