//! What is kept from forward to backward.

use std::collections::BTreeSet;
use std::fmt;
use vlmc_ir::dim::Poly;
use vlmc_ir::graph::Value;
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::Ty;

/// Which values of a function its backward pass gets, and which it makes again.
///
/// The rule: of the values from which all that the backward pass needs can be made cheaply
/// ([`is_cheap`]), together with inputs and parameters, those with the fewest bytes are kept. Where
/// that leaves a choice, it is the values that are not cheap. The two sets are exceptions from the
/// rule, by the function's own node numbers. Both may name any value: one that the backward pass has
/// no use for is not kept, and one that is not to be kept is made again with all that it takes, or
/// something made of it is kept; a call that keeps nothing is repeated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedSet {
    kept: BTreeSet<Value>,
    made: BTreeSet<Value>,
}

impl SavedSet {
    /// Keeps a value that the rule would make again.
    pub fn keep(&mut self, v: Value) {
        self.made.remove(&v);
        self.kept.insert(v);
    }

    /// Makes a value again that the rule would keep.
    pub fn rebuild(&mut self, v: Value) {
        self.kept.remove(&v);
        self.made.insert(v);
    }

    /// Leaves a value to the rule.
    pub fn by_rule(&mut self, v: Value) {
        self.kept.remove(&v);
        self.made.remove(&v);
    }

    /// Whether a value is an exception: to be kept, or not to be.
    pub(super) fn exception(&self, v: Value) -> Option<bool> {
        match (self.kept.contains(&v), self.made.contains(&v)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }
}

/// Whether an op costs little to repeat, next to storing its results: elementwise work, views,
/// reductions inside a row (over any axes but the first), the short convolution and masks. Products,
/// attention, recurrences, rows chosen by data and sums over rows do not; the results of the last
/// are small.
pub fn is_cheap(op: &Op) -> bool {
    match op.info().class {
        Class::Elementwise | Class::View | Class::Source => true,
        Class::Reduction => match op {
            Op::ReduceSum { axes } | Op::ReduceMax { axes } => !axes.contains(&0),
            _ => false,
        },
        Class::Sequence => {
            matches!(op, Op::RowValid { .. } | Op::SegmentShift { .. } | Op::CausalConv1d)
        }
        Class::Contraction | Class::Indexing | Class::Communication | Class::Structure => false,
    }
}

/// A value that a backward function takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Its name there.
    pub name: String,
    /// The value, by the node numbers of the forward function.
    pub value: Value,
    /// Name of the op that made it.
    pub op: &'static str,
    /// Its type.
    pub ty: Ty,
    /// Whether the forward function returns it anyhow.
    pub is_output: bool,
}

/// What a function keeps, as its [`SavedSet`] has it.
///
/// As text, one value a line: the inputs that the backward pass needs again, and the saved values,
/// `output` marking those that the function returns anyhow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedList {
    /// The function.
    pub template: String,
    /// Inputs of the function that the backward pass takes.
    pub inputs: Vec<(String, Ty)>,
    /// Saved values.
    pub values: Vec<Saved>,
    /// The number of nodes that the backward pass repeats.
    pub rebuilt: usize,
}

impl SavedList {
    /// Bytes of the saved values that the forward function does not return anyhow.
    pub fn bytes(&self) -> Poly {
        let extra = self.values.iter().filter(|s| !s.is_output);
        extra.fold(Poly::default(), |sum, s| sum.add(&s.ty.bytes()))
    }
}

impl fmt::Display for SavedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "@{}", self.template)?;
        for (name, ty) in &self.inputs {
            writeln!(f, "  input {name} : {ty}")?;
        }
        for s in &self.values {
            let word = if s.is_output { "output" } else { "saved" };
            writeln!(f, "  {word} {} : {}  {}", s.name, s.ty, s.op)?;
        }
        writeln!(f, "  {} bytes, {} nodes made again", self.bytes(), self.rebuilt)
    }
}
