//! The verifier. A program that it accepts has these properties:
//!
//! 1. Names of functions, symbols, regions, segments and nodes can be written in text; functions
//!    and symbols are declared once. A symbol declares a multiple of at least 1.
//! 2. Callees come before callers.
//! 3. Operands come before users, and the results they name exist.
//! 4. The nodes of inputs and parameters match their tables: each declared by exactly one node, in
//!    the order of the tables, without operands. Inputs of a function have different names.
//! 5. Result types are those that the op's shape rule infers, to the last segment and mesh axis.
//! 6. A call passes what the callee declares and has the types of the callee's outputs.
//! 7. Every symbol in a type or an attribute is declared.
//! 8. Regions exist, parents before children; regions of one parent have different names.
//! 9. Outputs exist and have different names. Losses stand only in the last function; sum and count
//!    are f32 scalars.
//! 10. The dims of parameters are constants. A parameter stored in parts has two dims or more.
//! 11. One checkpoint name has one type, whatever function and scope it is used in.
//! 13. Origins name a file of the program.
//! 14. The body of a cluster declares no parameters and has pure ops only.
//! 15. Neither a parameter owes a sum nor a gradient that leaves the program: no step after it would
//!     pay one.

use crate::dim::{Dim, Symbol};
use crate::graph::{
    Function, MAX_SCOPES, Node, NodeId, OutputKind, Program, RegionId, Value, join_name,
};
use crate::ops::{Op, TypeError};
use crate::text::cursor::is_word;
use crate::text::print;
use crate::ty::{DType, Ty};
use rustc_hash::{FxHashMap, FxHashSet};

/// Where a program breaks an invariant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct VerifyError {
    /// Index of the function, when it is about one.
    pub function: Option<usize>,
    /// The node, when it is about one.
    pub node: Option<NodeId>,
    /// The operands at odds.
    pub operands: Vec<usize>,
    /// In words.
    pub message: String,
    /// What to do instead.
    pub help: Option<String>,
}

impl VerifyError {
    /// The error under the line of its node:
    ///
    /// ```text
    /// error: `x` must be a float, not i32
    ///   in @block:
    ///     %y = exp %x : i32[T]
    ///              ^^
    ///   from mixer.y at tiny.vlm:12:7
    /// ```
    pub fn render(&self, program: &Program) -> String {
        let mut out = format!("error: {}\n", self.message);
        let function = self.function.and_then(|i| program.functions.get(i));
        if let Some(f) = function {
            let node = self.node.filter(|n| (n.0 as usize) < f.nodes.len());
            out.push_str(&format!("  in @{}{}\n", f.name, if node.is_some() { ":" } else { "" }));
            if let Some(id) = node {
                let index = id.0 as usize;
                let line = print::node_line(f, index);
                out.push_str(&format!("    {line}\n    {}\n", self.carets(f, index, &line)));
                if let Some(o) = f.node(id).origins.first() {
                    let file = program.files.get(o.file as usize).map_or("?", String::as_str);
                    out.push_str(&format!("  from {} at {file}:{}:{}\n", o.path, o.line, o.column));
                }
            }
        }
        if let Some(help) = &self.help {
            out.push_str(&format!("  help: {help}\n"));
        }
        out
    }

    /// A line that marks the operands at odds, or the whole node.
    fn carets(&self, f: &Function, index: usize, line: &str) -> String {
        let columns = print::operand_columns(f, index);
        let mut marks = vec![' '; line.chars().count()];
        let whole = marks.len();
        let named: Vec<_> = self.operands.iter().filter_map(|i| columns.get(*i).cloned()).collect();
        let ranges = if named.is_empty() { std::iter::once(0..whole).collect() } else { named };
        for range in ranges {
            let end = range.end.min(whole);
            marks[range.start.min(end)..end].fill('^');
        }
        marks.into_iter().collect::<String>().trim_end().to_string()
    }
}

/// Everything that is wrong with a program; nothing when it is sound.
pub fn verify(program: &Program) -> Vec<VerifyError> {
    let mut v = Verifier { program, errors: vec![], function: None, node: None };
    v.declarations();
    for (i, f) in program.functions.iter().enumerate() {
        v.function = Some(i);
        v.function(i, f);
        v.function = None;
    }
    // What follows calls, and needs them to be sound.
    if v.errors.is_empty() {
        v.checkpoint_names();
    }
    v.errors
}

struct Verifier<'p> {
    program: &'p Program,
    errors: Vec<VerifyError>,
    function: Option<usize>,
    node: Option<NodeId>,
}

impl Verifier<'_> {
    fn error(&mut self, message: impl Into<String>) {
        self.type_error(TypeError::new(message));
    }

    fn type_error(&mut self, e: TypeError) {
        self.errors.push(VerifyError {
            function: self.function,
            node: self.node,
            operands: e.places.iter().map(|(operand, _)| *operand).collect(),
            message: e.message,
            help: e.help,
        });
    }

    fn word(&mut self, what: &str, name: &str) {
        if !is_word(name) {
            self.error(format!("{what} cannot be called {name:?}"));
        }
    }

    fn declarations(&mut self) {
        let mut seen = FxHashSet::default();
        for s in &self.program.symbols {
            let name = &*s.symbol.0;
            self.word("a symbol", name);
            // Words that mean something else where a size may stand.
            if name.starts_with(|c: char| c.is_ascii_digit()) || name == "none" {
                self.error(format!("a symbol cannot be called {name:?}"));
            }
            if !seen.insert(name) {
                self.error(format!("symbol {name} is declared twice"));
            }
            if s.multiple_of < 1 {
                self.error(format!("{name} cannot be a multiple of {}", s.multiple_of));
            }
        }
        let mut seen = FxHashSet::default();
        for f in &self.program.functions {
            self.word("a function", &f.name);
            if !seen.insert(&*f.name) {
                self.error(format!("function @{} is defined twice", f.name));
            }
        }
    }

    fn function(&mut self, index: usize, f: &Function) {
        self.inputs(f);
        self.regions(f);
        self.cluster(f);
        for (i, node) in f.nodes.iter().enumerate() {
            self.node = Some(NodeId(i as u32));
            self.node(index, f, i, node);
            self.node = None;
        }
        for (what, declared) in [("input", f.inputs.len()), ("param", f.params.len())] {
            let nodes = f.nodes.iter().filter(|n| n.op.name() == what).count();
            if nodes < declared {
                self.error(format!("{nodes} of {declared} {what} declarations have a node"));
            }
        }
        self.outputs(index, f);
    }

    fn cluster(&mut self, f: &Function) {
        let allowed = |op: &Op| {
            matches!(op, Op::Input { .. }) || op.info().effect == crate::ops::Effect::Pure
        };
        if f.cluster.is_some()
            && let Some(node) = f.nodes.iter().find(|n| !allowed(&n.op))
        {
            self.error(format!("`{}` does not belong into a cluster", node.op.name()));
        }
    }

    fn inputs(&mut self, f: &Function) {
        let mut seen = FxHashSet::default();
        for input in &f.inputs {
            if !seen.insert(&input.name) {
                self.error(format!("input `{}` is declared twice", input.name));
            }
            if let Some(from) = &input.from {
                self.word("a host function", &from.function);
                from.arguments.iter().for_each(|(key, _)| self.word("an argument", key));
            }
        }
        for p in &f.params {
            if p.ty.dims.iter().any(|d| d.size().as_constant().is_none_or(|c| c < 0)) {
                self.error(format!(
                    "the dims of parameter `{}` are no constants: {}",
                    p.name, p.ty
                ));
            }
            if !p.each.is_empty() && p.ty.rank() < 2 {
                self.error(format!("parameter `{}` in parts has no axis 1: {}", p.name, p.ty));
            }
        }
    }

    fn regions(&mut self, f: &Function) {
        let mut seen = FxHashSet::default();
        for (i, r) in f.regions.iter().enumerate() {
            self.word("a region", &r.name);
            if r.parent.is_some_and(|RegionId(p)| p as usize >= i) {
                self.error(format!("the region around `{}` does not come before it", r.name));
            }
            if !seen.insert((r.parent, &r.name)) {
                self.error(format!("two regions at one place are called `{}`", r.name));
            }
        }
    }

    fn node(&mut self, index: usize, f: &Function, i: usize, node: &Node) {
        if let Some(name) = &node.name {
            self.word("a node", name);
            if name.bytes().all(|b| b.is_ascii_digit()) {
                self.error(format!("a node cannot be called {name:?}, which is a number"));
            }
        }
        if node.region.is_some_and(|r| r.0 as usize >= f.regions.len()) {
            self.error("its region does not exist");
        }
        for o in &node.origins {
            if o.file as usize >= self.program.files.len() {
                self.error(format!(
                    "origin `{}` is in file {}, which is not listed",
                    o.path, o.file
                ));
            }
        }
        node.tys.iter().for_each(|t| self.ty(t));
        let mut dims: Vec<Dim> = vec![];
        node.op.visit_dims(&mut |d| dims.push(d.clone()));
        dims.iter().for_each(|d| self.dim(d));
        if let Some(operands) = self.operands(f, i, node) {
            self.types(index, f, i, node, &operands);
        }
    }

    /// The operand types, when all operands exist before the node.
    fn operands(&mut self, f: &Function, i: usize, node: &Node) -> Option<Vec<Ty>> {
        let mut tys = vec![];
        for (j, v) in node.operands.iter().enumerate() {
            match existing(f, *v).filter(|_| (v.node.0 as usize) < i) {
                Some(ty) => tys.push(ty.clone()),
                None => {
                    let message = format!("operand {j} does not exist before this node");
                    let places = vec![(j, None)];
                    self.type_error(TypeError { message, places, help: None });
                }
            }
        }
        (tys.len() == node.operands.len()).then_some(tys)
    }

    fn types(&mut self, index: usize, f: &Function, i: usize, node: &Node, operands: &[Ty]) {
        let declared = match &node.op {
            Op::Input { index } => {
                self.declaration(f, i, "input", *index);
                f.inputs.get(*index as usize).map(|d| &d.ty)
            }
            Op::Param { index } => {
                self.declaration(f, i, "param", *index);
                f.params.get(*index as usize).map(|d| &d.ty)
            }
            Op::Call { callee, .. } => return self.call(index, node, callee, operands),
            op => {
                match op.infer(operands) {
                    Ok(tys) => self.same_types(&tys, &node.tys),
                    Err(e) => self.type_error(e),
                }
                return;
            }
        };
        if !operands.is_empty() {
            self.error("a declaration has no operands");
        }
        match declared {
            Some(ty) => self.same_types(std::slice::from_ref(ty), &node.tys),
            None => self.error("there is no such declaration"),
        }
    }

    /// The n-th node of its kind must be that of the n-th declaration.
    fn declaration(&mut self, f: &Function, i: usize, what: &str, index: u32) {
        let before = f.nodes[..i].iter().filter(|n| n.op.name() == what).count();
        if before != index as usize {
            self.error(format!("declares {what} {index}, where {what} {before} is due"));
        }
    }

    fn call(&mut self, index: usize, node: &Node, callee: &str, operands: &[Ty]) {
        let before = self.program.functions.get(..index).unwrap_or(&[]);
        let Some(target) = before.iter().find(|f| f.name == callee) else {
            return self.error(format!("there is no function @{callee} before this one"));
        };
        if operands.len() != target.inputs.len() {
            return self.error(format!(
                "@{callee} takes {}, not {} arguments",
                target.inputs.len(),
                operands.len()
            ));
        }
        for (j, (have, input)) in operands.iter().zip(&target.inputs).enumerate() {
            if *have != input.ty {
                let message = format!("`{}` of @{callee} is {}, not {have}", input.name, input.ty);
                self.type_error(TypeError { message, places: vec![(j, None)], help: None });
            }
        }
        let tys: Option<Vec<Ty>> =
            target.outputs.iter().map(|o| existing(target, o.value).cloned()).collect();
        if let Some(tys) = tys {
            self.same_types(&tys, &node.tys);
        }
    }

    fn same_types(&mut self, want: &[Ty], have: &[Ty]) {
        if want != have {
            let list = |tys: &[Ty]| tys.iter().map(Ty::to_string).collect::<Vec<_>>().join(", ");
            self.error(format!("the result is ({}), not ({})", list(want), list(have)));
        }
    }

    fn ty(&mut self, ty: &Ty) {
        ty.dims.iter().for_each(|d| self.dim(d));
    }

    fn dim(&mut self, dim: &Dim) {
        let undeclared = |s: &Symbol| !self.program.symbols.iter().any(|d| d.symbol == *s);
        let missing: Vec<Symbol> = dim.size().symbols().into_iter().filter(undeclared).collect();
        for s in missing {
            self.error(format!("symbol {s} is not declared"));
        }
        // A segment of size 0 leaves no trace in the size.
        for (name, part) in dim.segments() {
            self.word("a segment", name);
            for s in part.symbols() {
                let known = dim.size().symbols().contains(&s);
                if !known && !self.program.symbols.iter().any(|d| d.symbol == s) {
                    self.error(format!("symbol {s} is not declared"));
                }
            }
        }
    }

    fn outputs(&mut self, index: usize, f: &Function) {
        let mut seen = FxHashSet::default();
        for (i, o) in f.outputs.iter().enumerate() {
            let ty = existing(f, o.value);
            if ty.is_none() {
                self.error(format!("output {i} does not exist"));
            }
            if let Some(name) = &o.name
                && !seen.insert(name)
            {
                self.error(format!("two outputs are called `{name}`"));
            }
            let OutputKind::Loss { count, .. } = &o.kind else { continue };
            if index + 1 != self.program.functions.len() {
                self.error("a loss stands only in the last function");
            }
            let count = existing(f, *count);
            if count.is_none() {
                self.error(format!("the count of output {i} does not exist"));
            }
            for (what, ty) in [("sum", ty), ("count", count)] {
                let fits = |t: &&Ty| t.dtype == DType::F32 && t.rank() == 0;
                if let Some(ty) = ty.filter(|t| !fits(t)) {
                    self.error(format!("the {what} of a loss must be f32[], not {ty}"));
                }
            }
        }
    }

    fn checkpoint_names(&mut self) {
        let program = self.program;
        let Some(scopes) = program.scopes() else {
            return self.error(format!("more than {MAX_SCOPES} scopes of parameters"));
        };
        let mut tys: FxHashMap<String, &Ty> = FxHashMap::default();
        for (i, scope) in scopes {
            for p in &program.functions[i].params {
                let name = join_name(&scope, &p.key);
                let first = *tys.entry(name.clone()).or_insert(&p.ty);
                if *first != p.ty {
                    self.function = Some(i);
                    self.error(format!("`{name}` is {} here and {first} elsewhere", p.ty));
                    self.function = None;
                }
            }
        }
    }
}

/// The type of a value, if it exists.
fn existing(f: &Function, v: Value) -> Option<&Ty> {
    f.nodes.get(v.node.0 as usize)?.tys.get(v.result as usize)
}
