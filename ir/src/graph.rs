//! Programs: functions as graphs of nodes, called by a main function.
//!
//! A function is a template: written once, called for each layer of its kind with the layer's
//! index and the prefix of its parameters' names. Nodes are stored in an order in which operands
//! come before their users; passes build new functions rather than edit one.

use crate::dim::Symbol;
use crate::ops::{Op, TypeError};
use crate::ty::Ty;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// More pairs of a function and a scope than this are refused: calls can double their number with
/// every line of a program.
pub const MAX_SCOPES: usize = 1 << 20;

/// Index of a node in its function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(pub u32);

/// Index of a region in its function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RegionId(pub u32);

/// A result of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Value {
    /// The node.
    pub node: NodeId,
    /// Which of its results.
    pub result: u32,
}

impl From<NodeId> for Value {
    fn from(node: NodeId) -> Self {
        Value { node, result: 0 }
    }
}

/// Where in a spec a value comes from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Origin {
    /// Path below the function: `mixer.q`. The call adds what stands before it.
    pub path: Arc<str>,
    /// Index in [`Program::files`].
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// One op with its operands and result types.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Operands.
    pub operands: Vec<Value>,
    /// Result types.
    pub tys: Vec<Ty>,
    /// Name in dumps.
    pub name: Option<Arc<str>>,
    /// The named region it belongs to.
    pub region: Option<RegionId>,
    /// Where it comes from: one place, or several when passes have merged nodes.
    pub origins: Vec<Origin>,
}

/// A set of nodes that may be recomputed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its name in the spec.
    pub name: Arc<str>,
    /// The region around it.
    pub parent: Option<RegionId>,
}

/// Where the runtime gets an input: a host function and its arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct HostCall {
    /// The host function.
    pub function: String,
    /// Named integer arguments.
    pub arguments: Vec<(String, i64)>,
}

/// An input of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    pub ty: Ty,
    /// For inputs of main: where it comes from. `None` for an input that its caller passes.
    pub from: Option<HostCall>,
}

/// How a parameter starts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// Every element this number.
    Constant(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Uniform from a to b.
    Uniform(f64, f64),
    /// The logarithm of a number uniform from a to b.
    LogUniform(f64, f64),
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Its name in the spec, from the function down: `mixer.in_qkv`.
    pub name: Arc<str>,
    /// Its name in checkpoints, below the scope of the call.
    pub key: String,
    /// Second stored form: one tensor for each index of axis 0 (`{e}` in the names), its axis 1
    /// the concatenation of those listed.
    pub each: Vec<String>,
    /// Its type.
    pub ty: Ty,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies.
    pub decay: bool,
}

/// What an output of main is for.
#[derive(Clone, PartialEq, Debug)]
pub enum OutputKind {
    /// A plain result.
    Value,
    /// A loss: `value` is the sum and `count` what it is divided by, both over all ranks and
    /// microbatches; `weight` multiplies the quotient in the training loss.
    Loss {
        /// The count.
        count: Value,
        /// The weight.
        weight: f64,
    },
    /// The gradient of the training loss by the parameter whose full checkpoint name the output
    /// has, in f32.
    Gradient,
}

/// A result of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// Its name; results that a caller takes in order may have none.
    pub name: Option<Arc<str>>,
    /// The value.
    pub value: Value,
    /// What it is for.
    pub kind: OutputKind,
}

/// A function.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Function {
    /// Its name, unique in the program.
    pub name: String,
    /// Inputs, in the order in which calls pass them.
    pub inputs: Vec<Input>,
    /// Parameters.
    pub params: Vec<Param>,
    /// Named regions.
    pub regions: Vec<Region>,
    /// Nodes; operands before users.
    pub nodes: Vec<Node>,
    /// Results.
    pub outputs: Vec<Output>,
    /// For the body of a cluster, which becomes kernels: what dumps call it. A call of it means the
    /// same as its nodes in place of the call.
    pub cluster: Option<Arc<str>>,
}

/// A size that is known only when running.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolDecl {
    /// The symbol.
    pub symbol: Symbol,
    /// Every value it takes is a multiple of this.
    pub multiple_of: i64,
}

/// A whole program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// The model it was made from.
    pub name: String,
    /// Its variant; empty when there is none.
    pub variant: String,
    /// Run-time sizes.
    pub symbols: Vec<SymbolDecl>,
    /// Spec files that origins point into.
    pub files: Vec<String>,
    /// Functions; callees before callers, main last.
    pub functions: Vec<Function>,
}

impl Program {
    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// The entry: the last function.
    pub fn main(&self) -> Option<&Function> {
        self.functions.last()
    }

    /// Every function that main reaches (as an index) with every scope in which it runs, once, in
    /// the order of first use. `None` when there are more than [`MAX_SCOPES`].
    pub fn scopes(&self) -> Option<Vec<(usize, String)>> {
        let index: FxHashMap<&str, usize> =
            self.functions.iter().enumerate().map(|(i, f)| (&*f.name, i)).collect();
        let mut seen = FxHashSet::default();
        let mut out = vec![];
        let mut open: Vec<(usize, String)> = self
            .functions
            .len()
            .checked_sub(1)
            .map(|main| (main, String::new()))
            .into_iter()
            .collect();
        while let Some((i, scope)) = open.pop() {
            if !seen.insert((i, scope.clone())) {
                continue;
            }
            if out.len() == MAX_SCOPES {
                return None;
            }
            // The last pushed comes first.
            for node in self.functions[i].nodes.iter().rev() {
                let Op::Call { callee, scope: inner, .. } = &node.op else { continue };
                // Callees come before callers, so this ends.
                if let Some(target) = index.get(&**callee).filter(|t| **t < i) {
                    open.push((*target, join_name(&scope, inner)));
                }
            }
            out.push((i, scope));
        }
        Some(out)
    }

    /// Every parameter of the program once, under its full checkpoint name, in the order of first
    /// use. A tied parameter appears once. Empty for a program with more than [`MAX_SCOPES`] scopes,
    /// which does not verify.
    pub fn parameters(&self) -> Vec<(String, &Param)> {
        let mut seen = FxHashSet::default();
        let mut out = vec![];
        for (i, scope) in self.scopes().unwrap_or_default() {
            for p in &self.functions[i].params {
                let full = join_name(&scope, &p.key);
                if seen.insert(full.clone()) {
                    out.push((full, p));
                }
            }
        }
        out
    }
}

/// `a.b`, or the one that is not empty.
pub fn join_name(a: &str, b: &str) -> String {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b.to_string(),
        (_, true) => a.to_string(),
        _ => format!("{a}.{b}"),
    }
}

impl Function {
    /// An empty function.
    pub fn new(name: impl Into<String>) -> Self {
        Function { name: name.into(), ..Function::default() }
    }

    /// The node with this index.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Ty {
        &self.nodes[v.node.0 as usize].tys[v.result as usize]
    }

    /// Node indices in order.
    pub fn node_ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Declares an input and adds its node.
    pub fn add_input(&mut self, name: &str, ty: Ty, from: Option<HostCall>) -> Value {
        let index = self.inputs.len() as u32;
        self.inputs.push(Input { name: name.into(), ty: ty.clone(), from });
        self.push_node(Op::Input { index }, vec![], vec![ty], Some(name.into())).into()
    }

    /// Declares a parameter and adds its node.
    pub fn add_param(&mut self, param: Param) -> Value {
        let index = self.params.len() as u32;
        let (ty, name) = (param.ty.clone(), param.name.clone());
        self.params.push(param);
        self.push_node(Op::Param { index }, vec![], vec![ty], Some(name)).into()
    }

    /// Adds a node whose result types are known: a call, or a copy of a checked node.
    pub fn push_node(
        &mut self,
        op: Op,
        operands: Vec<Value>,
        tys: Vec<Ty>,
        name: Option<Arc<str>>,
    ) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node { op, operands, tys, name, region: None, origins: vec![] });
        id
    }

    /// Adds a node, inferring its result types.
    ///
    /// # Errors
    /// When the operands do not fit the op.
    pub fn push(&mut self, op: Op, operands: &[Value]) -> Result<NodeId, TypeError> {
        let tys: Vec<Ty> = operands.iter().map(|v| self.ty(*v).clone()).collect();
        let results = op.infer(&tys)?;
        Ok(self.push_node(op, operands.to_vec(), results, None))
    }

    /// Adds a plain output.
    pub fn add_output(&mut self, name: Option<&str>, value: Value) {
        self.outputs.push(Output { name: name.map(Into::into), value, kind: OutputKind::Value });
    }

    /// Every value that an output needs.
    pub fn output_values(&self) -> impl Iterator<Item = Value> + '_ {
        self.outputs.iter().flat_map(|o| {
            let count = match &o.kind {
                OutputKind::Value | OutputKind::Gradient => None,
                OutputKind::Loss { count, .. } => Some(*count),
            };
            std::iter::once(o.value).chain(count)
        })
    }
}
