//! Gradient rules: for each op, how the gradients of its results become those of its operands.
//!
//! A rule builds nodes into the function that it differentiates, through a [`GradBuilder`], and may
//! use every forward value; which of them are kept for the backward pass and which are made again
//! is decided elsewhere. What carries a gradient is in the types: floats do, integers and truth
//! values do not.
//!
//! Precision. A gradient has the element type that [`GradBuilder::wanted`] says: that of its value,
//! or f32 where the value is a parameter or a view of one. Rules of more than one rounding compute
//! in f32 ([`GradBuilder::wide`]) and leave it to the builder to narrow once at the end.

pub mod contraction;
pub mod elementwise;
pub mod indexing;
pub mod mesh;
pub mod movement;
pub mod sequence;

use super::{Comparison, Op, Scalar, TypeError};
use crate::dim::Dim;
use crate::graph::{Function, Node, NodeId, Origin, Value};
use crate::ty::{DType, Ty};
use rustc_hash::FxHashMap;

/// How gradients pass through an op.
#[derive(Clone, Copy, Debug)]
pub enum Gradient {
    /// No result carries a gradient, or none passes.
    None,
    /// By this rule.
    Rule(Rule),
    /// It is itself a gradient, and is not differentiated again.
    Once,
    /// Inputs, parameters and calls: whoever differentiates functions handles them.
    Structural,
}

/// The gradients of the operands of `node` from those of its results; `results` are its results as
/// values. An operand without a gradient gets `None`, as does one whose gradient nobody wants.
pub type Rule = fn(
    &mut GradBuilder,
    node: &Node,
    results: &[Value],
    douts: &[Option<Value>],
) -> Result<Gradients, TypeError>;

/// One entry an operand, as far as there are any.
pub type Gradients = Vec<Option<Value>>;

/// Builds the nodes of gradients behind those of a function.
#[derive(Clone, Debug)]
pub struct GradBuilder {
    function: Function,
    /// For each result of each forward node the element type of its gradient, if it is wanted.
    wanted: Vec<Vec<Option<DType>>>,
    origins: Vec<Origin>,
    /// Nodes built so far: rules ask for the same thing again and again.
    built: FxHashMap<(Op, Vec<Value>), NodeId>,
}

impl GradBuilder {
    /// A builder behind the nodes of `function`. `wanted` has, for each result of each node, the
    /// element type of its gradient, or `None` when it is not wanted.
    pub fn new(function: Function, wanted: Vec<Vec<Option<DType>>>) -> Self {
        GradBuilder { function, wanted, origins: vec![], built: FxHashMap::default() }
    }

    /// The function so far.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// The function so far, to add inputs or change calls.
    pub fn function_mut(&mut self) -> &mut Function {
        &mut self.function
    }

    /// The finished function.
    pub fn finish(self) -> Function {
        self.function
    }

    /// Nodes built from now on come from these places of the spec.
    pub fn set_origins(&mut self, origins: &[Origin]) {
        self.origins = origins.to_vec();
    }

    /// The element type of the gradient of a forward value; `None` when it is not wanted.
    pub fn wanted(&self, v: Value) -> Option<DType> {
        *self.wanted.get(v.node.0 as usize)?.get(v.result as usize)?
    }

    /// Operand gradients of a forward node from those of its results, by the rule of its op.
    ///
    /// # Errors
    /// When the op cannot be differentiated, in words about the op.
    pub fn apply(&mut self, id: NodeId, douts: &[Option<Value>]) -> Result<Gradients, TypeError> {
        let node = self.function.node(id).clone();
        self.set_origins(&node.origins);
        let results: Vec<Value> =
            (0..node.tys.len() as u32).map(|result| Value { node: id, result }).collect();
        match node.op.info().gradient {
            Gradient::None => Ok(vec![]),
            Gradient::Rule(rule) => rule(self, &node, &results, douts),
            Gradient::Once => Err(TypeError::new(format!(
                "`{}` is a gradient, which is not differentiated again",
                node.op.name()
            ))),
            Gradient::Structural => {
                Err(TypeError::new(format!("`{}` has no rule of its own", node.op.name())))
            }
        }
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> Ty {
        self.function.ty(v).clone()
    }

    /// A node, or the one like it that is there already.
    ///
    /// # Errors
    /// When the operands do not fit the op.
    pub fn node(&mut self, op: Op, operands: &[Value]) -> Result<NodeId, TypeError> {
        let key = (op, operands.to_vec());
        if let Some(id) = self.built.get(&key) {
            return Ok(*id);
        }
        let id = self.function.push(key.0.clone(), operands)?;
        if let Some(node) = self.function.nodes.last_mut() {
            node.origins.clone_from(&self.origins);
        }
        self.built.insert(key, id);
        Ok(id)
    }

    /// The first result of a node.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn push(&mut self, op: Op, operands: &[Value]) -> Result<Value, TypeError> {
        self.node(op, operands).map(Value::from)
    }

    /// A tensor filled with one number, with the type of `like`.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn constant_like(&mut self, value: f64, like: Value) -> Result<Value, TypeError> {
        let ty = self.ty(like);
        self.constant(value, ty.dtype, ty.dims)
    }

    /// A tensor filled with one number.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn constant(
        &mut self,
        value: f64,
        dtype: DType,
        shape: Vec<Dim>,
    ) -> Result<Value, TypeError> {
        self.push(Op::Constant { value: Scalar(value), dtype, shape }, &[])
    }

    /// `x` as another element type.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn cast(&mut self, x: Value, dtype: DType) -> Result<Value, TypeError> {
        if self.function.ty(x).dtype == dtype {
            return Ok(x);
        }
        self.push(Op::Cast { dtype }, &[x])
    }

    /// `x` in f32.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn wide(&mut self, x: Value) -> Result<Value, TypeError> {
        self.cast(x, DType::F32)
    }

    /// `x` under other dims of as many elements.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn reshape(&mut self, x: Value, shape: &[Dim]) -> Result<Value, TypeError> {
        if self.function.ty(x).dims == shape {
            return Ok(x);
        }
        self.push(Op::Reshape { shape: shape.to_vec() }, &[x])
    }

    /// `x` repeated to `shape`, its dims being those of `shape` without `axes` (increasing).
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn spread(&mut self, x: Value, shape: &[Dim], axes: &[u32]) -> Result<Value, TypeError> {
        if axes.is_empty() {
            return Ok(x);
        }
        let dims = (0..shape.len() as u32).filter(|i| !axes.contains(i)).collect();
        self.push(Op::Broadcast { shape: shape.to_vec(), dims }, &[x])
    }

    /// The sum over `axes` (increasing).
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn sum(&mut self, x: Value, axes: Vec<u32>) -> Result<Value, TypeError> {
        if axes.is_empty() { Ok(x) } else { self.push(Op::ReduceSum { axes }, &[x]) }
    }

    /// `a * b`
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn mul(&mut self, a: Value, b: Value) -> Result<Value, TypeError> {
        self.push(Op::Mul, &[a, b])
    }

    /// `a + b`
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn add(&mut self, a: Value, b: Value) -> Result<Value, TypeError> {
        self.push(Op::Add, &[a, b])
    }

    /// `factor * x`
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn scaled(&mut self, x: Value, factor: f64) -> Result<Value, TypeError> {
        let factor = self.constant_like(factor, x)?;
        self.mul(x, factor)
    }

    /// `1 - x`
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn one_minus(&mut self, x: Value) -> Result<Value, TypeError> {
        let one = self.constant_like(1.0, x)?;
        self.push(Op::Sub, &[one, x])
    }

    /// Whether the comparison holds.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn compare(&mut self, kind: Comparison, a: Value, b: Value) -> Result<Value, TypeError> {
        self.push(Op::Compare { kind }, &[a, b])
    }

    /// `x` where `condition`, else 0: what is left out may be anything, infinite too.
    ///
    /// # Errors
    /// See [`GradBuilder::node`].
    pub fn masked(&mut self, condition: Value, x: Value) -> Result<Value, TypeError> {
        let zero = self.constant_like(0.0, x)?;
        self.push(Op::Select, &[condition, x, zero])
    }
}
