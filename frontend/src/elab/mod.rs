//! Elaboration: names, types and shapes are checked, and a model becomes a program.
//!
//! One evaluator does both. Without a variant it runs *symbolically*: configuration fields are
//! symbols, both sides of a condition are evaluated, a call is checked against the signature of
//! the callee alone, and the graph that comes out is thrown away. With a variant it runs
//! *concretely*: functions are inlined, parts of a model become functions of the program, and the
//! graph is the result. The op table's shape rules serve both, since sizes are polynomials.

mod builtin;
mod call;
mod check;
mod config;
mod einsum;
mod expr;
mod import;
pub mod library;
mod module;
mod names;
mod program;
mod require;
mod scalar;
mod setting;
mod stmt;
mod target;
mod template;
mod tensor;
mod types;
mod unknown;
mod value;

pub use check::check;
pub use config::{Raw, Setter, Setting};
pub use import::{Imported, import_config, import_section, unset_fields};
pub use library::{Library, NoModules, Reader};
pub use program::{Lowered, Target, lower};

use crate::diag::{Code, Diag, Diags};
use crate::syntax::ast::{self, Expr, FileId, Ident, Span};
use indexmap::IndexMap;
use library::Def;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use value::{Instance, Val};
use vlmc_ir::dim::{Dim, Facts, Poly};
use vlmc_ir::graph::{self, Function, NodeId, Origin, Program, Region, RegionId};
use vlmc_ir::ops::{Op, TypeError};
use vlmc_ir::ty::{DType, Ty};

/// How deep calls may nest; recursion is an error of its own long before the stack ends.
const MAX_CALL_DEPTH: u32 = 64;

/// Operations of one function of the program, and layers of a stack. Far above any model; what is
/// larger is a slip in a number or a function that calls another twice, twenty levels deep.
const MAX_NODES: usize = 200_000;
const MAX_LAYERS: i64 = 10_000;
/// Parts in the parts of a declaration, a stack counted once; and those of a model with all layers.
const MAX_PARTS: usize = 10_000;
const MAX_PARTS_OF_A_MODEL: usize = 500_000;
/// Numbers in one parameter.
const MAX_ELEMENTS: i64 = 1 << 48;

/// Symbols that every spec knows.
const PRELUDE_SYMBOLS: [&str; 2] = ["T", "docs"];

/// The names and values that an expression sees.
struct Frame {
    file: FileId,
    scopes: Vec<IndexMap<String, Binding>>,
    /// Dim parameters with their segments.
    dims: FxHashMap<String, Dim>,
    /// What `..` stands for in the signature.
    rest: Option<Vec<Dim>>,
    /// The widest of the arguments declared `float`.
    float: Option<DType>,
    instance: Option<Rc<Instance>>,
}

#[derive(Clone)]
struct Binding {
    val: Val,
    span: Option<Span>,
}

impl Frame {
    fn new(file: FileId) -> Self {
        Frame {
            file,
            scopes: vec![IndexMap::new()],
            dims: FxHashMap::default(),
            rest: None,
            float: None,
            instance: None,
        }
    }

    fn of(instance: &Rc<Instance>) -> Self {
        Frame { instance: Some(instance.clone()), ..Frame::new(instance.module.file) }
    }

    fn bind(&mut self, name: &str, val: Val) {
        self.bind_at(name, val, None);
    }

    fn bind_at(&mut self, name: &str, val: Val, span: Option<Span>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), Binding { val, span });
        }
    }

    fn get(&self, name: &str) -> Option<&Binding> {
        self.scopes.iter().rev().find_map(|s| s.get(name))
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Binding> {
        self.scopes.iter_mut().rev().find_map(|s| s.get_mut(name))
    }
}

/// A function of the program while it is being built.
#[derive(Default)]
struct Building {
    f: Function,
    params: IndexMap<String, graph::Value>,
    region: Option<RegionId>,
    regions: IndexMap<(Option<RegionId>, String), RegionId>,
    path: Vec<String>,
    emitted: IndexMap<String, graph::Value>,
}

/// A finished template: the function and the form of its results.
struct Finished {
    function: String,
    result: Val,
}

/// The state of an elaboration.
struct Elab<'a> {
    lib: &'a Library,
    diags: Diags,
    symbolic: bool,
    /// What the model dtype stands for.
    dtype: DType,
    facts: Facts,
    /// Conditions taken to hold or not, as written, innermost last.
    assumptions: Vec<(String, bool)>,
    symbols: FxHashMap<String, Span>,
    program: Program,
    building: Vec<Building>,
    templates: IndexMap<String, Finished>,
    collects: IndexMap<String, (Ty, Span)>,
    config_depth: u32,
    call_depth: u32,
    /// Function calls seen while checking, for recursion: (caller, callee, place).
    edges: Vec<(Span, Span, Span)>,
    /// Modules that have been reported to contain themselves.
    endless: Vec<Span>,
    unknown: unknown::Unknown,
    /// Number of the declaration being checked.
    declaration: u32,
    current_fn: Option<Span>,
    /// Parts that were made for the declaration being checked, or for the model.
    parts: usize,
    /// Whether it has been said that the program grows too large.
    too_large: bool,
}

impl<'a> Elab<'a> {
    fn new(lib: &'a Library, symbolic: bool, dtype: DType) -> Self {
        Elab {
            lib,
            diags: Diags::new(),
            symbolic,
            dtype,
            facts: Facts::default(),
            assumptions: vec![],
            symbols: FxHashMap::default(),
            program: Program::default(),
            building: vec![Building::default()],
            templates: IndexMap::new(),
            collects: IndexMap::new(),
            config_depth: 0,
            call_depth: 0,
            edges: vec![],
            endless: vec![],
            unknown: unknown::Unknown::default(),
            declaration: 0,
            current_fn: None,
            parts: 0,
            too_large: false,
        }
    }

    /// Runs `f` and drops what it reports: for facts that are reported where they are declared.
    fn quiet<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::take(&mut self.diags);
        let unknown = self.unknown.clone();
        let result = f(self);
        self.diags = before;
        self.unknown = unknown;
        result
    }

    /// The function being built. There always is one: a scratch function when checking.
    fn at(&mut self) -> &mut Building {
        if self.building.is_empty() {
            self.building.push(Building::default());
        }
        let last = self.building.len() - 1;
        &mut self.building[last]
    }

    fn ty(&mut self, v: graph::Value) -> Ty {
        self.at().f.ty(v).clone()
    }

    /// A symbol named by the text of an integer that is not known.
    fn opaque(&mut self, text: &str, span: Span) -> Poly {
        self.symbols.entry(text.to_string()).or_insert(span);
        Poly::symbol(text)
    }

    /// The text of a span on one line, with single blanks.
    fn source_text(&self, span: Span) -> String {
        self.lib.sources.snippet(span).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn origin(&mut self, span: Span) -> Origin {
        let p = self.lib.sources.position(span.file, span.start);
        let path = self.at().path.join(".").into();
        Origin { path, file: span.file.0, line: p.line as u32, column: p.column as u32 }
    }

    /// Adds a node to the function being built.
    fn push(&mut self, op: Op, operands: &[graph::Value], span: Span) -> Result<NodeId, TypeError> {
        let origin = self.origin(span);
        let at = self.at();
        let id = at.f.push(op, operands)?;
        let region = at.region;
        if let Some(node) = at.f.nodes.last_mut() {
            node.region = region;
            node.origins.push(origin);
        }
        Ok(id)
    }

    /// Adds a node whose operands fit by construction; a surprise is reported as a bug.
    fn push_sure(&mut self, op: Op, operands: &[graph::Value], span: Span) -> Option<graph::Value> {
        let name = op.name();
        match self.push(op, operands, span) {
            Ok(id) => Some(id.into()),
            Err(e) => {
                self.diags.push(
                    Diag::error(Code::InvalidOperands, format!("{name}: {e}")).label(span, ""),
                );
                None
            }
        }
    }

    /// A value of a type of which nothing else is known.
    fn placeholder(&mut self, ty: Ty) -> graph::Value {
        self.at().f.push_node(Op::Input { index: 0 }, vec![], vec![ty], None).into()
    }

    fn region(&mut self, name: &str) -> RegionId {
        let at = self.at();
        let key = (at.region, name.to_string());
        if let Some(id) = at.regions.get(&key) {
            return *id;
        }
        let id = RegionId(at.f.regions.len() as u32);
        at.f.regions.push(Region { name: name.into(), parent: at.region });
        at.regions.insert(key, id);
        id
    }

    fn names_of(&self, file: FileId, which: impl Fn(&Def) -> bool) -> Vec<String> {
        let scope = self.lib.scope(file);
        let all = scope.iter().flat_map(|s| s.names.iter());
        all.filter(|(_, d)| which(d)).map(|(n, _)| n.clone()).collect()
    }

    fn duplicate(&mut self, name: &Ident, first: Span) {
        self.diags.push(
            Diag::error(Code::Duplicate, format!("`{}` is declared twice", name.name))
                .label(name.span, "here again")
                .secondary(first, "first here")
                .help("rename one of the two"),
        );
    }

    /// Reports a value of the wrong kind.
    fn wrong_kind(&mut self, span: Span, want: &str, have: &Val) -> Val {
        if !have.is_unknown() {
            let shown = self.show(have);
            self.diags.push(
                Diag::error(Code::WrongKind, format!("expected {want}, found {}", have.kind()))
                    .label(span, shown)
                    .help(kind_help(want, have)),
            );
        }
        Val::Unknown
    }

    /// A value as labels show it: tensors by their type.
    fn show(&mut self, v: &Val) -> String {
        match v {
            Val::Tensor(t) => {
                let ty = self.ty(*t);
                self.ty_text(&ty)
            }
            Val::Int(p) if p.as_constant().is_some() => format!("int {p}"),
            Val::Int(_) => "int".to_string(),
            Val::Float(Some(f)) => format!("float {f:?}"),
            Val::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|i| self.show(i)).collect();
                format!("({})", items.join(", "))
            }
            other => other.kind().to_string(),
        }
    }

    /// A type as a spec would have it: without a variant the model dtype is not written.
    fn ty_text(&self, ty: &Ty) -> String {
        let text = ty.to_string();
        let model = self.dtype.name();
        match text.strip_prefix(model) {
            Some(dims) if self.symbolic && ty.dtype == self.dtype => dims.to_string(),
            _ => text,
        }
    }

    /// Labels that show where the symbols of some sizes are declared.
    fn explain_symbols(&self, mut diag: Diag, polys: &[&Poly]) -> Diag {
        let mut seen = vec![];
        for p in polys {
            for s in p.symbols() {
                let Some(span) = self.symbols.get(&*s.0) else { continue };
                if !seen.contains(span) && diag.labels.iter().all(|l| l.span != *span) {
                    seen.push(*span);
                    diag = diag.secondary(*span, format!("`{s}` is declared here"));
                }
            }
        }
        diag
    }
}

/// What to do about a value of the wrong kind.
fn kind_help(want: &str, have: &Val) -> String {
    match (want, have) {
        ("a tensor", Val::Int(_) | Val::Float(_)) => {
            "a number alone becomes a tensor with `f32(..)`; beside a tensor it may stand as it is"
        }
        ("a tensor", Val::Sequence(_)) => "take one of its fields, as in `seq.positions`",
        ("a tensor", Val::Tuple(_)) => "take it apart first, as in `let (a, b) = ..`",
        ("a tensor", Val::Part(_)) => "call it, or name one of its parameters",
        (want, Val::Tensor(_)) if want.contains("integer") || want.contains("number") => {
            "sizes and settings are known when compiling, a tensor only when the model runs"
        }
        ("a function or a part", _) => "only functions and parts are called",
        (_, Val::Config(..)) => "name one of its fields, as in `c.hidden`",
        _ => return format!("write {want} here"),
    }
    .to_string()
}

/// `1 name`, `2 names`
fn plural(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// The text of a condition by which it is recognised again.
fn condition_key(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Members of a module of one kind.
fn params(m: &ast::Module) -> impl Iterator<Item = &ast::Param> {
    m.members.iter().filter_map(|m| match m {
        ast::Member::Param(p) => Some(p),
        _ => None,
    })
}

/// The functions of a module.
fn functions(m: &ast::Module) -> impl Iterator<Item = &ast::Fn> {
    m.members.iter().filter_map(|m| match m {
        ast::Member::Fn(f) => Some(f),
        _ => None,
    })
}

/// The name of an expression that is a plain name.
fn plain_name(e: &Expr) -> Option<&str> {
    match &e.kind {
        ast::ExprKind::Name(n) => Some(n),
        _ => None,
    }
}
