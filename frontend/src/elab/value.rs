//! What expressions evaluate to.

use super::library::Decl;
use crate::syntax::ast::{self, Span};
use indexmap::IndexMap;
use std::rc::Rc;
use std::sync::Arc;
use vlmc_ir::dim::Poly;
use vlmc_ir::graph;

/// A value while a spec is elaborated.
///
/// Scalars are known when compiling. While a spec is checked without a variant they may be unknown
/// (`None`); integers then are polynomials over configuration fields.
#[derive(Clone, Debug)]
pub enum Val {
    /// An error here has been reported; whatever is made of it is silently the same.
    Unknown,
    /// An integer.
    Int(Poly),
    /// A real number.
    Float(Option<f64>),
    /// A truth value.
    Bool(Option<bool>),
    /// A string.
    Str(Option<Arc<str>>),
    /// A value of an enumeration.
    Enum(Arc<Decl<ast::Enum>>, Option<usize>),
    /// A list; its elements may be unknown, their type is not.
    List(ListVal),
    /// A configuration.
    Config(Arc<Decl<ast::Config>>, Rc<IndexMap<String, Val>>),
    /// A tensor.
    Tensor(graph::Value),
    /// Several values.
    Tuple(Vec<Val>),
    /// Boundaries and positions of the documents of a microbatch.
    Sequence(Sequence),
    /// A loss: sum and count.
    Loss(graph::Value, graph::Value),
    /// A part of a module.
    Part(Part),
}

/// The tensors of a `Sequence`.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// `i32[docs + 1]`
    pub cu_seqlens: graph::Value,
    /// `i32[docs + 1]`
    pub cu_seqlens_padded: graph::Value,
    /// `i32[3, T]`
    pub positions: graph::Value,
}

/// A list.
#[derive(Clone, Debug)]
pub struct ListVal {
    /// The elements; `None` when they are not known.
    pub items: Option<Vec<Val>>,
    /// A value of the element type, with nothing known of it.
    pub element: Box<Val>,
    /// How it is written, from which unknown elements get their names.
    pub text: String,
}

/// A part of a module.
#[derive(Clone, Debug)]
pub enum Part {
    /// One module.
    One(Rc<Instance>),
    /// One of two, as a condition says that is not known.
    Either {
        /// The condition as written.
        condition: String,
        /// When it holds.
        yes: Box<Part>,
        /// When not.
        no: Box<Part>,
    },
    /// Several in a row.
    Stack(Rc<Stack>),
}

/// A module with its arguments.
#[derive(Debug)]
pub struct Instance {
    /// The module.
    pub module: Arc<Decl<ast::Module>>,
    /// Arguments, `let`s and parts.
    pub env: IndexMap<String, Val>,
    /// Members that do not exist in this variant, with the condition of each.
    pub absent: IndexMap<String, String>,
    /// Prefix of checkpoint names, below the function it is in.
    pub prefix: String,
    /// Path of the spec, below the function it is in.
    pub path: String,
    /// Set when its functions become functions of the program rather than part of the caller.
    pub template: Option<Template>,
    /// Where it is declared.
    pub span: Span,
}

/// How the functions of an instance are called.
#[derive(Clone, Debug)]
pub struct Template {
    /// Prefix of checkpoint names.
    pub scope: String,
    /// Path of the spec.
    pub path: String,
    /// Index in its stack.
    pub layer: Option<u32>,
}

/// A stack that has not been taken apart.
#[derive(Debug)]
pub struct Stack {
    /// Its declaration.
    pub part: ast::Part,
    /// The instance it belongs to: what its expressions may name.
    pub owner_env: IndexMap<String, Val>,
    /// File of the declaration.
    pub file: ast::FileId,
    /// How many.
    pub count: Poly,
    /// Prefix of the owner's checkpoint names.
    pub prefix: String,
    /// Path of the owner.
    pub path: String,
}

impl Val {
    /// Its kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Val::Unknown => "nothing",
            Val::Int(_) => "int",
            Val::Float(_) => "float",
            Val::Bool(_) => "bool",
            Val::Str(_) => "string",
            Val::Enum(..) => "value of an enumeration",
            Val::List(_) => "list",
            Val::Config(..) => "configuration",
            Val::Tensor(_) => "tensor",
            Val::Tuple(_) => "tuple",
            Val::Sequence(_) => "Sequence",
            Val::Loss(..) => "Loss",
            Val::Part(Part::Stack(_)) => "stack",
            Val::Part(_) => "part",
        }
    }

    /// Whether an error has been reported for it.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Val::Unknown)
    }

    /// An integer constant.
    pub fn int(v: i64) -> Val {
        Val::Int(Poly::constant(v))
    }

    /// What tells two scalars apart, for the keys of templates.
    pub fn key(&self) -> String {
        match self {
            Val::Config(d, fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|(k, v)| format!("{k}={}", v.key())).collect();
                format!("{}{{{}}}", d.ast.name.name, fields.join(","))
            }
            Val::Enum(d, i) => format!("{}.{i:?}", d.ast.name.name),
            Val::List(l) => match &l.items {
                Some(items) => {
                    format!("[{}]", items.iter().map(Val::key).collect::<Vec<_>>().join(","))
                }
                None => l.text.clone(),
            },
            Val::Int(p) => p.to_string(),
            other => format!("{other:?}"),
        }
    }
}
