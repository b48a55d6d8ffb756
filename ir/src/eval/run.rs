//! Runs functions of a program.

use super::{Call, Data, EvalError, Real, Shape, Sizes, Tensor, mesh};
use crate::graph::{Function, Node, OutputKind, Param, Program, Value, join_name};
use crate::ops::Op;
use crate::text::print;
use crate::ty::{DType, Ty};
use crate::verify;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Calls nested deeper than this are refused, so that no program can exhaust the stack.
const MAX_DEPTH: usize = 64;

/// Gives the value of a parameter, by its full checkpoint name.
pub type Provider<'p, R> = dyn FnMut(&str, &Param) -> Result<Tensor<R>, EvalError> + 'p;
/// Sees the value of a named node, with its path.
pub type Observer<'p, R> = dyn FnMut(&str, &Tensor<R>) + 'p;
/// Computes the results of a call of a function in another way than by its body, from its inputs in
/// order and the values of the symbols; `None` where it has no other way. Results are in the order of
/// the function's output values.
pub type Substitute<'p, R> =
    dyn FnMut(&Function, &[Tensor<R>], &Sizes) -> Result<Option<Vec<Tensor<R>>>, EvalError> + 'p;

/// Gives the parts that all ranks of an exchange have, from the own one, and which of them is that. For
/// an op that is no collective, the own part may be the only one that counts.
pub type Exchange<'p, R> =
    dyn FnMut(&Op, &Tensor<R>) -> Result<(Vec<Tensor<R>>, usize), EvalError> + 'p;

/// A result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct OutputValue<R> {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The value; of a loss, the sum.
    pub value: Tensor<R>,
    /// Of a loss: the count, and the weight of the quotient.
    pub loss: Option<(Tensor<R>, f64)>,
}

/// The results of a run, in the order of the function's outputs.
#[derive(Clone, PartialEq, Debug)]
pub struct Outputs<R>(pub Vec<OutputValue<R>>);

impl<R: Real> Outputs<R> {
    /// The result of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, name: &str) -> Result<&Tensor<R>, EvalError> {
        self.0
            .iter()
            .find(|o| o.name.as_deref() == Some(name))
            .map(|o| &o.value)
            .ok_or_else(|| EvalError::new(format!("there is no output `{name}`")))
    }

    /// The training loss: the sum of weight * value / count over the loss outputs. A loss with a
    /// count of 0 adds 0; without loss outputs the result is 0.
    pub fn training_loss(&self) -> f64 {
        let number = |t: &Tensor<R>| t.to_f64().first().copied().unwrap_or(0.0);
        let losses = self.0.iter().filter_map(|o| o.loss.as_ref().map(|l| (&o.value, l)));
        losses.fold(0.0, |sum, (value, (count, weight))| {
            let count = number(count);
            if count == 0.0 { sum } else { sum + weight * number(value) / count }
        })
    }
}

/// Runs functions of a program.
///
/// Parameters are asked for once a name and kept for later runs.
pub struct Evaluator<'p, R> {
    program: &'p Program,
    provider: &'p mut Provider<'p, R>,
    observer: Option<&'p mut Observer<'p, R>>,
    substitute: Option<&'p mut Substitute<'p, R>>,
    exchange: Option<&'p mut Exchange<'p, R>>,
    params: FxHashMap<String, Tensor<R>>,
    given: Sizes,
    sizes: Sizes,
    round: bool,
    poison: bool,
    verified: bool,
}

/// Where a function runs.
struct Frame<'a> {
    scope: &'a str,
    path: &'a str,
    depth: usize,
}

impl<'p, R: Real> Evaluator<'p, R> {
    /// An evaluator of this program, which asks `provider` for parameters.
    pub fn new(program: &'p Program, provider: &'p mut Provider<'p, R>) -> Self {
        Evaluator {
            program,
            provider,
            observer: None,
            substitute: None,
            exchange: None,
            params: FxHashMap::default(),
            given: Sizes::default(),
            sizes: Sizes::default(),
            round: true,
            poison: false,
            verified: false,
        }
    }

    /// Shows `observer` every result of every node that has a name or an origin: its path is the
    /// paths of the calls around it joined with the name, or without one the first origin's path.
    /// Results after the first get `#1`, `#2`.
    pub fn observe(mut self, observer: &'p mut Observer<'p, R>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Asks `substitute` for the results of each call of a cluster, as kernels give them. The body of
    /// a cluster is evaluated where there are none.
    pub fn substitute(mut self, substitute: &'p mut Substitute<'p, R>) -> Self {
        self.substitute = Some(substitute);
        self
    }

    /// Exchanges with other ranks through `exchange`. Without it there is one rank.
    pub fn exchange(mut self, exchange: &'p mut Exchange<'p, R>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Leaves bf16 values unrounded: what the program would give with exact arithmetic.
    pub fn without_rounding(mut self) -> Self {
        self.round = false;
        self
    }

    /// Makes rows that a lookup does not find NaN: what is right with zeros only because something
    /// else hides them stays right.
    pub fn with_poison(mut self) -> Self {
        self.poison = true;
        self
    }

    /// Fixes the value of a symbol that the inputs do not determine.
    pub fn with_size(mut self, symbol: &str, value: usize) -> Self {
        self.given.set(&crate::dim::Symbol::new(symbol), value);
        self
    }

    /// The values of the symbols in the last run.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Runs a function with inputs by name.
    ///
    /// # Errors
    /// When the program does not verify, an input is missing or does not fit, or an op fails; the
    /// message names the function, the node's line and its origin.
    pub fn run(
        &mut self,
        function: &str,
        inputs: &[(&str, Tensor<R>)],
    ) -> Result<Outputs<R>, EvalError> {
        if !self.verified {
            if let Some(e) = verify::verify(self.program).first() {
                return Err(EvalError::new(e.render(self.program)));
            }
            self.verified = true;
        }
        let program = self.program;
        let index = program.functions.iter().position(|f| f.name == function);
        let index = index.ok_or_else(|| EvalError::new(format!("no function @{function}")))?;
        let f = &program.functions[index];
        if let Some((name, _)) =
            inputs.iter().find(|(n, _)| !f.inputs.iter().any(|input| *input.name == **n))
        {
            return Err(EvalError::new(format!("@{function} has no input `{name}`")));
        }
        let mut values = vec![];
        for input in &f.inputs {
            let given = inputs.iter().find(|(n, _)| **n == *input.name);
            let (_, t) = given
                .ok_or_else(|| EvalError::new(format!("input `{}` is missing", input.name)))?;
            if t.dims.len() != input.ty.rank() {
                return Err(EvalError::new(format!(
                    "input `{}` must be {}, not {}{:?}",
                    input.name, input.ty, t.dtype, t.dims
                )));
            }
            values.push(t.clone());
        }
        self.sizes = self.given.clone();
        let pairs = f.inputs.iter().zip(&values);
        self.sizes.solve(pairs.flat_map(|(i, t)| i.ty.dims.iter().zip(t.dims.iter().copied())))?;
        self.sizes.check(&program.symbols)?;
        let frame = Frame { scope: "", path: "", depth: 0 };
        let mut results = self.function(index, values, &frame)?.into_iter();
        let mut next = || results.next().ok_or_else(|| EvalError::new("a result is missing"));
        let outputs = f.outputs.iter().map(|o| {
            let value = next()?;
            let loss = match o.kind {
                OutputKind::Value | OutputKind::Gradient => None,
                OutputKind::Loss { weight, .. } => Some((next()?, weight)),
            };
            Ok(OutputValue { name: o.name.clone(), value, loss })
        });
        outputs.collect::<Result<_, _>>().map(Outputs)
    }

    /// Runs the entry, the last function; see [`Evaluator::run`].
    ///
    /// # Errors
    /// As [`Evaluator::run`].
    pub fn run_main(&mut self, inputs: &[(&str, Tensor<R>)]) -> Result<Outputs<R>, EvalError> {
        let main = self.program.main().map(|f| f.name.clone());
        self.run(&main.ok_or_else(|| EvalError::new("the program is empty"))?, inputs)
    }

    /// Runs a function; returns every output value in order (a loss's count after its sum).
    fn function(
        &mut self,
        index: usize,
        inputs: Vec<Tensor<R>>,
        frame: &Frame<'_>,
    ) -> Result<Vec<Tensor<R>>, EvalError> {
        let f = &self.program.functions[index];
        let mut inputs: Vec<Option<Tensor<R>>> = inputs.into_iter().map(Some).collect();
        let last = last_uses(f);
        let mut values: Vec<Vec<Option<Tensor<R>>>> = vec![];
        for (i, node) in f.nodes.iter().enumerate() {
            let results = self
                .node(
                    index,
                    node,
                    &mut inputs,
                    &mut values,
                    &|v| last[v.node.0 as usize] == i,
                    frame,
                )
                .map_err(|e| located(self.program, f, i, frame.path, e))?;
            self.show(node, &results, frame);
            let kept = last[i] > i;
            values.push(results.into_iter().map(|t| kept.then_some(t)).collect());
        }
        f.output_values().map(|v| operand(&values, v).cloned()).collect()
    }

    fn node(
        &mut self,
        index: usize,
        node: &Node,
        inputs: &mut [Option<Tensor<R>>],
        values: &mut [Vec<Option<Tensor<R>>>],
        is_last: &dyn Fn(Value) -> bool,
        frame: &Frame<'_>,
    ) -> Result<Vec<Tensor<R>>, EvalError> {
        let shapes: Vec<Shape> =
            node.tys.iter().map(|t| self.shape(t)).collect::<Result<_, _>>()?;
        let f = &self.program.functions[index];
        let results = match &node.op {
            Op::Input { index } => {
                let value = inputs.get_mut(*index as usize).and_then(Option::take);
                vec![value.ok_or_else(|| EvalError::new("the input has no value"))?]
            }
            Op::Param { index } => {
                let param = f.params.get(*index as usize);
                let param = param.ok_or_else(|| EvalError::new("there is no such parameter"))?;
                vec![self.parameter(param, &join_name(frame.scope, &param.key), &shapes)?]
            }
            Op::Call { callee, scope, path, .. } => {
                let target = self.program.functions[..index].iter().position(|f| f.name == *callee);
                let target =
                    target.ok_or_else(|| EvalError::new(format!("no @{callee} before")))?;
                if frame.depth == MAX_DEPTH {
                    return Err(EvalError::new(format!("calls nested more than {MAX_DEPTH} deep")));
                }
                let arguments = node.operands.iter().map(|v| operand(values, *v).cloned());
                let arguments: Vec<Tensor<R>> = arguments.collect::<Result<_, _>>()?;
                // The callee frees them after their last use there.
                release(node, values, is_last);
                let callee = &self.program.functions[target];
                let other = match &mut self.substitute {
                    Some(other) if callee.cluster.is_some() => {
                        other(callee, &arguments, &self.sizes)
                            .map_err(|e| EvalError::new(format!("@{}: {e}", callee.name)))?
                    }
                    _ => None,
                };
                match other {
                    Some(results) => results,
                    None => {
                        let scope = join_name(frame.scope, scope);
                        let path = join_name(frame.path, path);
                        let frame = Frame { scope: &scope, path: &path, depth: frame.depth + 1 };
                        self.function(target, arguments, &frame)?
                    }
                }
            }
            op if mesh::ranks(op).is_some() && self.exchange.is_some() => {
                let v = *node.operands.first().ok_or_else(|| EvalError::new("no operand"))?;
                let own = operand(values, v)?.clone();
                release(node, values, is_last);
                let exchange = self.exchange.as_mut();
                let (parts, at) = match exchange {
                    Some(exchange) => exchange(op, &own)?,
                    None => (vec![own], 0),
                };
                let parts: Vec<&Tensor<R>> = parts.iter().collect();
                vec![mesh::combine(op, f.ty(v), &shapes[0], &parts, at, &self.sizes)?]
            }
            op => {
                let operands = node.operands.iter().map(|v| operand(values, *v));
                let operands: Vec<&Tensor<R>> = operands.collect::<Result<_, _>>()?;
                let call = Call {
                    op,
                    inputs: &operands,
                    outputs: &shapes,
                    sizes: &self.sizes,
                    round: self.round,
                    poison: self.poison,
                };
                op.eval(&call)?
            }
        };
        release(node, values, is_last);
        if results.len() != shapes.len() {
            return Err(EvalError::new(format!("{} results, not {}", results.len(), shapes.len())));
        }
        results.into_iter().zip(&shapes).map(|(t, s)| finish(t, s, self.round)).collect()
    }

    fn shape(&self, ty: &Ty) -> Result<Shape, EvalError> {
        let dims = self.sizes.eval_all(&ty.dims)?;
        super::tensor::elements(&dims)?;
        Ok(Shape { dtype: ty.dtype, dims })
    }

    fn parameter(
        &mut self,
        param: &Param,
        name: &str,
        shapes: &[Shape],
    ) -> Result<Tensor<R>, EvalError> {
        if let Some(t) = self.params.get(name) {
            return Ok(t.clone());
        }
        let value = (self.provider)(name, param)
            .map_err(|e| EvalError::new(format!("parameter `{name}`: {e}")))?;
        let value = match shapes {
            [shape] => finish(value, shape, self.round)
                .map_err(|e| EvalError::new(format!("parameter `{name}`: {e}")))?,
            _ => return Err(EvalError::new("a parameter has one type")),
        };
        self.params.insert(name.to_string(), value.clone());
        Ok(value)
    }

    fn show(&mut self, node: &Node, results: &[Tensor<R>], frame: &Frame<'_>) {
        let Some(observer) = &mut self.observer else { return };
        let name = node.name.as_deref().or(node.origins.first().map(|o| &*o.path));
        let Some(name) = name else { return };
        let path = join_name(frame.path, name);
        for (i, t) in results.iter().enumerate() {
            if i == 0 {
                observer(&path, t);
            } else {
                observer(&format!("{path}#{i}"), t);
            }
        }
    }
}

/// For each node the index of its last user: its own when there is none, the largest when an output
/// needs it.
fn last_uses(f: &Function) -> Vec<usize> {
    let mut last: Vec<usize> = (0..f.nodes.len()).collect();
    for (i, node) in f.nodes.iter().enumerate() {
        for v in &node.operands {
            last[v.node.0 as usize] = i;
        }
    }
    for v in f.output_values() {
        last[v.node.0 as usize] = usize::MAX;
    }
    last
}

fn operand<R>(values: &[Vec<Option<Tensor<R>>>], v: Value) -> Result<&Tensor<R>, EvalError> {
    values
        .get(v.node.0 as usize)
        .and_then(|r| r.get(v.result as usize))
        .and_then(Option::as_ref)
        .ok_or_else(|| EvalError::new("an operand has no value"))
}

/// Frees the operands that no later node needs.
fn release<R>(node: &Node, values: &mut [Vec<Option<Tensor<R>>>], is_last: &dyn Fn(Value) -> bool) {
    for v in node.operands.iter().filter(|v| is_last(**v)) {
        if let Some(results) = values.get_mut(v.node.0 as usize) {
            results.fill_with(|| None);
        }
    }
}

/// Checks a value against its type, and rounds what is bf16: the one place where that happens.
fn finish<R: Real>(mut t: Tensor<R>, shape: &Shape, round: bool) -> Result<Tensor<R>, EvalError> {
    if t.shape() != *shape || t.len() != super::tensor::elements(&t.dims)? {
        return Err(EvalError::new(format!(
            "the value is {}{:?}, not {}{:?}",
            t.dtype, t.dims, shape.dtype, shape.dims
        )));
    }
    match &mut t.data {
        // Values that were only moved are round already, and stay shared.
        Data::Float(v)
            if round && t.dtype == DType::Bf16 && v.iter().any(|x| x.round_bf16() != *x) =>
        {
            for x in Arc::make_mut(v) {
                *x = x.round_bf16();
            }
        }
        Data::Int(v) => {
            if let Some(bad) = v.iter().find(|x| i32::try_from(**x).is_err()) {
                return Err(EvalError::new(format!("{bad} does not fit i32")));
            }
        }
        _ => {}
    }
    Ok(t)
}

/// Adds the function, the line of the node and its origin to an error, once.
fn located(p: &Program, f: &Function, node: usize, path: &str, e: EvalError) -> EvalError {
    if e.message.contains("\n  in @") {
        return e;
    }
    let mut message = format!("{}\n  in @{}", e.message, f.name);
    if !path.is_empty() {
        message.push_str(&format!(", called as {path}"));
    }
    message.push_str(&format!(":\n    {}", print::node_line(f, node)));
    if let Some(o) = f.nodes[node].origins.first() {
        let file = p.files.get(o.file as usize).map_or("?", String::as_str);
        message.push_str(&format!("\n  from {} at {file}:{}:{}", o.path, o.line, o.column));
    }
    EvalError::new(message)
}
