//! Statements and blocks.

use super::value::{Part, Val};
use super::{Binding, Elab, Frame};
use crate::diag::{Code, Diag};
use crate::syntax::ast::{Block, Expr, Ident, Span, Stmt};
use vlmc_ir::dim::Poly;
use vlmc_ir::graph::{self, Origin, Output, OutputKind};
use vlmc_ir::ops::{Op, Scalar};
use vlmc_ir::ty::{DType, Ty};

impl Elab<'_> {
    /// A block whose names end with it.
    pub(super) fn scoped_block(&mut self, frame: &mut Frame, b: &Block) -> Val {
        frame.scopes.push(indexmap::IndexMap::new());
        let v = self.block(frame, b);
        frame.scopes.pop();
        v
    }

    /// The statements of a block and its value; an empty tuple without one.
    pub(super) fn block(&mut self, frame: &mut Frame, b: &Block) -> Val {
        for s in &b.stmts {
            self.stmt(frame, s);
        }
        match &b.value {
            Some(e) => self.expr(frame, e),
            None => Val::Tuple(vec![]),
        }
    }

    fn stmt(&mut self, frame: &mut Frame, s: &Stmt) {
        match s {
            Stmt::Let(names, is_tuple, e) => self.let_(frame, names, *is_tuple, e),
            Stmt::Assign(name, e) => self.assign(frame, name, e),
            Stmt::Region(name, b) => {
                let outer = self.at().region;
                let id = self.region(&name.name);
                self.at().region = Some(id);
                self.block(frame, b);
                self.at().region = outer;
            }
            Stmt::Emit(name, e) => {
                let v = self.expr(frame, e);
                self.emit(name, &v, e.span);
            }
            Stmt::Loss(name, weight, e) => {
                let weight = weight.as_ref().map(|w| (self.expr(frame, w), w.span));
                let v = self.expr(frame, e);
                self.loss(name, weight, &v, e.span);
            }
            Stmt::Output(name, e) => {
                let first = self.at().f.nodes.len();
                match self.expr(frame, e) {
                    Val::Tensor(v) => {
                        self.name_value(v, &name.name, first);
                        if !self.has_output(name) {
                            self.at().f.add_output(Some(&name.name), v);
                        }
                    }
                    other => {
                        self.wrong_kind(e.span, "a tensor", &other);
                    }
                }
            }
            Stmt::For(name, stack, b) => self.for_(frame, name, stack, b),
            Stmt::If(c, a, b) => {
                self.lost_bindings(frame, a);
                if let Some(b) = b {
                    self.lost_bindings(frame, b);
                }
                match self.condition(frame, c) {
                    Some(true) => {
                        self.assuming(c, true, |s| s.scoped_block(frame, a));
                    }
                    Some(false) => {
                        if let Some(b) = b {
                            self.assuming(c, false, |s| s.scoped_block(frame, b));
                        }
                    }
                    None if !self.symbolic => {}
                    None => {
                        self.assuming(c, true, |s| s.scoped_block(frame, a));
                        if let Some(b) = b {
                            self.assuming(c, false, |s| s.scoped_block(frame, b));
                        }
                    }
                };
            }
        }
    }

    fn let_(&mut self, frame: &mut Frame, names: &[Ident], is_tuple: bool, e: &Expr) {
        let first = self.at().f.nodes.len();
        let v = self.expr(frame, e);
        if !is_tuple {
            if let ([name], Val::Tensor(t)) = (names, &v) {
                self.name_value(*t, &name.name, first);
            }
            if let [name] = names {
                frame.bind_at(&name.name, v, Some(name.span));
            }
            return;
        }
        let items = match v {
            Val::Tuple(items) if items.len() == names.len() => items,
            Val::Unknown => vec![Val::Unknown; names.len()],
            other => {
                let count = match &other {
                    Val::Tuple(items) => format!("{} values", items.len()),
                    other => format!("one {}", other.kind()),
                };
                let shown = self.show(&other);
                self.diags.push(
                    Diag::error(Code::WrongKind, format!("{} names for {count}", names.len()))
                        .label(e.span, shown)
                        .help("name each value; `_` takes one that is not needed"),
                );
                vec![Val::Unknown; names.len()]
            }
        };
        for (name, v) in names.iter().zip(items) {
            if name.name == "_" {
                continue;
            }
            if let Val::Tensor(t) = &v {
                self.name_value(*t, &name.name, first);
            }
            frame.bind_at(&name.name, v, Some(name.span));
        }
    }

    /// Gives a value the name of its binding, if the node was made for it: `first` is the number of
    /// nodes before. Of several results only the first names the node.
    pub(super) fn name_value(&mut self, v: graph::Value, name: &str, first: usize) {
        if (v.node.0 as usize) < first || v.result != 0 {
            return;
        }
        let at = self.at();
        let path = at.path.join(".");
        let path = graph::join_name(&path, name);
        let Some(node) = at.f.nodes.get_mut(v.node.0 as usize) else { return };
        if matches!(node.op, Op::Input { .. } | Op::Param { .. }) {
            return;
        }
        node.name = Some(path.as_str().into());
        if let Some(first) = node.origins.first_mut() {
            *first = Origin { path: path.into(), ..first.clone() };
        }
    }

    fn assign(&mut self, frame: &mut Frame, name: &Ident, e: &Expr) {
        let first = self.at().f.nodes.len();
        let v = self.expr(frame, e);
        if let Val::Tensor(t) = &v {
            self.name_value(*t, &name.name, first);
        }
        let Some(old) = frame.get(&name.name).cloned() else {
            self.diags.push(
                Diag::error(Code::UnknownName, format!("`{}` is not bound", name.name))
                    .label(name.span, "assigned here")
                    .help(format!("bind it before with `let {} = ..`", name.name)),
            );
            return;
        };
        if let (Val::Tensor(a), Val::Tensor(b)) = (&old.val, &v) {
            let (a, b) = (self.ty(*a), self.ty(*b));
            if !a.same_shape(&b) || a.dtype != b.dtype {
                let mut diag = Diag::error(
                    Code::BranchesDiffer,
                    format!("`{}` changes its type from layer to layer", name.name),
                )
                .label(e.span, format!("is {}", self.ty_text(&b)));
                if let Some(s) = old.span {
                    diag = diag.secondary(s, format!("is {}", self.ty_text(&a)));
                }
                self.diags.push(diag.help("every layer must give back what it takes"));
            }
        }
        if let Some(b) = frame.get_mut(&name.name) {
            *b = Binding { val: v, span: old.span };
        }
    }

    /// Refuses a `let` in the block of a `for` or `if` that binds a name from outside again: the
    /// new value ends with the block, so that a layer written so would be run and dropped.
    fn lost_bindings(&mut self, frame: &Frame, b: &Block) {
        for s in &b.stmts {
            match s {
                Stmt::Let(names, _, _) => {
                    for n in names {
                        let Some(outer) = frame.get(&n.name) else { continue };
                        let mut diag = Diag::error(
                            Code::Duplicate,
                            format!("`{}` is bound again in a block, and ends with it", n.name),
                        )
                        .label(n.span, "is gone after the block");
                        if let Some(s) = outer.span {
                            diag = diag.secondary(s, "this one stays as it was");
                        }
                        self.diags.push(diag.help(format!(
                            "write `{} = ..` without `let` to change it, or bind another name",
                            n.name
                        )));
                    }
                }
                Stmt::Region(_, inner) => self.lost_bindings(frame, inner),
                _ => {}
            }
        }
    }

    fn for_(&mut self, frame: &mut Frame, name: &Ident, stack: &Ident, b: &Block) {
        let e =
            Expr { kind: crate::syntax::ast::ExprKind::Name(stack.name.clone()), span: stack.span };
        let s = match self.expr(frame, &e) {
            Val::Part(Part::Stack(s)) => s,
            other => {
                self.wrong_kind(stack.span, "a stack", &other);
                return;
            }
        };
        self.lost_bindings(frame, b);
        let layers = if self.symbolic {
            vec![s.part.counter.as_ref().map_or_else(Poly::default, |(i, _)| Poly::symbol(&i.name))]
        } else {
            let Some(n) = s.count.as_constant() else { return };
            (0..n).map(Poly::constant).collect()
        };
        for i in layers {
            let Some(part) = self.stack_element(&s, &i) else { return };
            frame.scopes.push(indexmap::IndexMap::new());
            frame.bind_at(&name.name, Val::Part(part), Some(name.span));
            let before = self.diags.len();
            self.block(frame, b);
            frame.scopes.pop();
            if self.diags.len() > before {
                return; // The next layer would say the same.
            }
        }
    }

    fn emit(&mut self, name: &Ident, v: &Val, span: Span) {
        let t = match v {
            Val::Tensor(t) => *t,
            other => {
                self.wrong_kind(span, "a tensor", other);
                return;
            }
        };
        if !self.symbolic {
            let Some((want, declared)) = self.collects.get(&name.name).cloned() else {
                let known: Vec<_> = self.collects.keys().cloned().collect();
                self.unknown_name("collection", name, &known);
                return;
            };
            let have = self.ty(t);
            if !have.same_shape(&want) || have.dtype != want.dtype {
                self.diags.push(
                    Diag::error(
                        Code::DimMismatch,
                        format!("`{}` collects {want}, not {have}", name.name),
                    )
                    .label(span, have.to_string())
                    .secondary(declared, format!("collects {want}"))
                    .help("emit what the model declares"),
                );
                return;
            }
        }
        self.add_emitted(&name.name, t, span);
    }

    /// Adds to what has been emitted under a name in the function being built.
    pub(super) fn add_emitted(&mut self, name: &str, t: graph::Value, span: Span) {
        let sum = match self.at().emitted.get(name).copied() {
            Some(before) => self.push_sure(Op::Add, &[before, t], span),
            None => Some(t),
        };
        if let Some(sum) = sum {
            self.at().emitted.insert(name.to_string(), sum);
        }
    }

    fn loss(&mut self, name: &Ident, weight: Option<(Val, Span)>, v: &Val, span: Span) {
        let weight = match weight {
            None => 1.0,
            Some((Val::Float(f), _)) => f.unwrap_or(1.0),
            Some((Val::Int(p), _)) => p.as_constant().unwrap_or(1) as f64,
            Some((other, span)) => {
                self.wrong_kind(span, "a number", &other);
                return;
            }
        };
        let (sum, count) = match v {
            Val::Loss(a, b) => (*a, *b),
            Val::Unknown => return,
            other => {
                let shown = self.show(other);
                self.diags.push(
                    Diag::error(Code::NotALoss, "a loss must be a pair of sum and count")
                        .label(span, shown)
                        .note("a mean cannot be combined over ranks and microbatches with unequal counts")
                        .help("write `Loss(sum, count)`"),
                );
                return;
            }
        };
        if self.has_output(name) {
            return;
        }
        let at = self.at();
        let kind = OutputKind::Loss { count, weight };
        at.f.outputs.push(Output { name: Some(name.name.as_str().into()), value: sum, kind });
    }

    /// Whether there is an output of this name, which is an error. Without a variant both sides of a
    /// choice are seen, and each may have one.
    fn has_output(&mut self, name: &Ident) -> bool {
        let symbolic = self.symbolic;
        let found = self.at().f.outputs.iter().any(|o| o.name.as_deref() == Some(&name.name));
        if found && !symbolic {
            self.duplicate(name, name.span);
        }
        found && !symbolic
    }

    /// A tensor of one number. An unknown number stands as 0: its graph is thrown away.
    pub(super) fn constant(&mut self, value: f64, ty: Ty, span: Span) -> Option<graph::Value> {
        let value = if ty.dtype == DType::Bool { f64::from(value != 0.0) } else { value };
        let op = Op::Constant { value: Scalar(value), dtype: ty.dtype, shape: ty.dims };
        self.push_sure(op, &[], span)
    }
}
