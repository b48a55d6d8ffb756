//! Calls: of the language's functions, of a spec's, of parts.

use super::library::{Decl, Def};
use super::value::{Instance, Part, Val};
use super::{Elab, Frame, MAX_CALL_DEPTH, MAX_NODES, condition_key, functions};
use crate::diag::{Code, Diag, nearest};
use crate::syntax::ast::{self, CallArg, Expr, ExprKind, Ident, Span};
use std::rc::Rc;
use std::sync::Arc;

/// An argument that has been evaluated.
#[derive(Clone)]
pub(super) struct ArgVal {
    pub name: Option<Ident>,
    pub val: Val,
    pub span: Span,
}

/// The arguments of a call.
#[derive(Clone, Default)]
pub(super) struct Args {
    pub list: Vec<ArgVal>,
}

/// A function and, when it is a module's, the module it belongs to.
#[derive(Clone)]
pub(super) struct Callee<'f> {
    pub file: ast::FileId,
    pub function: &'f ast::Fn,
    pub instance: Option<Rc<Instance>>,
}

impl Elab<'_> {
    pub(super) fn call(
        &mut self,
        frame: &mut Frame,
        f: &Expr,
        args: &[CallArg],
        span: Span,
    ) -> Val {
        if let ExprKind::Name(n) = &f.kind
            && n == "total"
        {
            return self.total(frame, args, span);
        }
        let args = self.args(frame, args);
        match &f.kind {
            ExprKind::Name(n) => {
                let local = frame.get(n).map(|b| b.val.clone());
                let local = local.or_else(|| frame.instance.as_ref()?.env.get(n).cloned());
                match local {
                    Some(Val::Part(_)) => {
                        let Val::Part(p) = self.expr(frame, f) else { return Val::Unknown };
                        return self.call_part(&p, "forward", f.span, &args, span);
                    }
                    Some(Val::Unknown) => return Val::Unknown,
                    Some(other) => {
                        return self.wrong_kind(f.span, "a function or a part", &other);
                    }
                    None => {}
                }
                if let Some(i) = frame.instance.clone() {
                    if let Some(condition) = i.absent.get(n) {
                        self.absent(n, condition, f.span);
                        return Val::Unknown;
                    }
                    if let Some(function) = functions(&i.module.ast).find(|f| f.name.name == *n) {
                        let callee =
                            Callee { file: i.module.file, function, instance: Some(i.clone()) };
                        return self.call_fn(&callee, &args, span);
                    }
                }
                match self.lib.lookup(frame.file, n).cloned() {
                    Some(Def::Fn(d)) => {
                        let callee = Callee { file: d.file, function: &d.ast, instance: None };
                        return self.call_fn(&callee, &args, span);
                    }
                    Some(Def::Missing(_)) => return Val::Unknown,
                    Some(d) => {
                        let kind = d.kind();
                        self.diags.push(
                            Diag::error(
                                Code::WrongKind,
                                format!("`{n}` is a {kind}, not a function"),
                            )
                            .label(f.span, "called here")
                            .help(match d {
                                Def::Module(_) => {
                                    format!(
                                        "declare it as a part, `part x : {n}(..)`, and call that"
                                    )
                                }
                                _ => "only functions and parts are called".to_string(),
                            }),
                        );
                        return Val::Unknown;
                    }
                    None => {}
                }
                if let Some(v) = self.builtin(frame, n, &args, span) {
                    return v;
                }
                self.unknown_function(frame.file, n, f.span);
                Val::Unknown
            }
            ExprKind::Field(a, name) => match self.expr(frame, a) {
                Val::Part(p) => self.call_part(&p, &name.name, name.span, &args, span),
                Val::Unknown => Val::Unknown,
                Val::Tensor(t) => {
                    let (ty, of) = (self.ty(t), self.source_text(a.span));
                    let more = if args.list.is_empty() { "" } else { ", .." };
                    let shown = self.ty_text(&ty);
                    self.diags.push(
                        Diag::error(Code::WrongKind, "a tensor has no functions of its own")
                            .label(name.span, "called as one of a part")
                            .secondary(a.span, shown)
                            .help(format!("write `{}({of}{more})`", name.name)),
                    );
                    Val::Unknown
                }
                other => self.wrong_kind(a.span, "a part", &other),
            },
            _ => {
                let v = self.expr(frame, f);
                match v {
                    Val::Part(p) => self.call_part(&p, "forward", f.span, &args, span),
                    other => self.wrong_kind(f.span, "a function or a part", &other),
                }
            }
        }
    }

    pub(super) fn args(&mut self, frame: &mut Frame, args: &[CallArg]) -> Args {
        let list = args
            .iter()
            .map(|a| ArgVal {
                name: a.name.clone(),
                val: self.expr(frame, &a.value),
                span: a.value.span,
            })
            .collect();
        Args { list }
    }

    /// `total(name)`: the sum of what was emitted so far.
    fn total(&mut self, frame: &mut Frame, args: &[CallArg], span: Span) -> Val {
        let _ = &frame;
        let [CallArg { name: None, value: Expr { kind: ExprKind::Name(n), span: at } }] = args
        else {
            self.diags.push(
                Diag::error(Code::WrongArguments, "`total` takes the name of a collection")
                    .label(span, "")
                    .help("write `total(name)`, with `collect name : TYPE` in the model"),
            );
            return Val::Unknown;
        };
        let Some((ty, _)) = self.collects.get(n).cloned() else {
            let known: Vec<_> = self.collects.keys().cloned().collect();
            self.unknown_name("collection", &Ident { name: n.clone(), span: *at }, &known);
            return Val::Unknown;
        };
        if self.symbolic {
            return Val::Tensor(self.placeholder(ty));
        }
        match self.at().emitted.get(n).copied() {
            Some(v) => Val::Tensor(v),
            None => match self.constant(0.0, ty, span) {
                Some(v) => Val::Tensor(v),
                None => Val::Unknown,
            },
        }
    }

    pub(super) fn call_part(
        &mut self,
        part: &Part,
        function: &str,
        at: Span,
        args: &Args,
        span: Span,
    ) -> Val {
        match part {
            Part::One(i) => {
                let Some(f) = functions(&i.module.ast).find(|f| f.name.name == function) else {
                    let known: Vec<_> =
                        functions(&i.module.ast).map(|f| f.name.name.clone()).collect();
                    let what = format!("function of `{}`", i.module.ast.name.name);
                    self.unknown_name(
                        &what,
                        &Ident { name: function.to_string(), span: at },
                        &known,
                    );
                    return Val::Unknown;
                };
                if !self.symbolic && i.template.is_some() {
                    return self.call_template(i, f, args, span);
                }
                let callee = Callee { file: i.module.file, function: f, instance: Some(i.clone()) };
                self.call_fn(&callee, args, span)
            }
            Part::Either { yes, no, .. } => {
                let x = self.call_part(yes, function, at, args, span);
                let y = self.call_part(no, function, at, args, span);
                self.join(x, y, span, span, span)
            }
            Part::Stack(s) => {
                self.diags.push(
                    Diag::error(Code::WrongKind, "a stack is run with `for`")
                        .label(at, "is a stack")
                        .help(format!(
                            "bind `h` before and write `for each in {} {{ h = each(h) }}`",
                            s.part.name.name
                        )),
                );
                Val::Unknown
            }
        }
    }

    /// Binds arguments to the parameters of a function in a new frame. `None` when they do not fit.
    pub(super) fn enter(&mut self, callee: &Callee<'_>, args: &Args, span: Span) -> Option<Frame> {
        let f = callee.function;
        let mut frame = match &callee.instance {
            Some(i) => Frame::of(i),
            None => Frame::new(callee.file),
        };
        let mut slots: Vec<Option<&ArgVal>> = vec![None; f.args.len()];
        let mut good = true;
        for (i, a) in args.list.iter().enumerate() {
            let at = match &a.name {
                Some(n) => f.args.iter().position(|p| p.name.name == n.name),
                None => Some(i).filter(|i| *i < f.args.len()),
            };
            match at {
                Some(at) if slots[at].is_none() => slots[at] = Some(a),
                _ => {
                    let names: Vec<_> = f.args.iter().map(|p| &*p.name.name).collect();
                    let diag = misplaced(&f.name.name, &names, a, at.is_some());
                    self.diags.push(diag.secondary(f.name.span, "declared here"));
                    good = false;
                }
            }
        }
        for (p, slot) in f.args.iter().zip(slots) {
            let (val, at) = match (slot, &p.default) {
                (Some(a), _) => (a.val.clone(), a.span),
                (None, Some(e)) => (self.expr(&mut frame, e), e.span),
                (None, None) => {
                    if !args.list.iter().any(|a| a.val.is_unknown()) {
                        self.diags.push(
                            Diag::error(
                                Code::WrongArguments,
                                format!("`{}` needs `{}`", f.name.name, p.name.name),
                            )
                            .label(span, format!("`{}` is missing", p.name.name))
                            .secondary(p.name.span, "declared here")
                            .help(format!("add `{}`", p.name.name)),
                        );
                    }
                    good = false;
                    continue;
                }
            };
            if val.is_unknown() {
                good = false;
                continue;
            }
            let who = format!("`{}`", p.name.name);
            good &= self.matches_ty(&mut frame, &f.dims, &p.ty, &val, &who, at);
            let val = self.coerce(val, &p.ty, at);
            frame.bind_at(&p.name.name, val, Some(p.name.span));
        }
        good.then_some(frame)
    }

    /// An integer given for a `float`.
    fn coerce(&mut self, v: Val, ty: &ast::Ty, at: Span) -> Val {
        match (&v, &ty.kind) {
            (Val::Int(_), ast::TyKind::Name(n)) if n.name == "float" => {
                Val::Float(self.real(&v, at))
            }
            _ => v,
        }
    }

    /// Calls a function: by its signature when checking, by its body when lowering.
    pub(super) fn call_fn(&mut self, callee: &Callee<'_>, args: &Args, span: Span) -> Val {
        let f = callee.function;
        if self.symbolic
            && let Some(caller) = self.current_fn
        {
            self.edges.push((caller, f.name.span, span));
        }
        let Some(mut frame) = self.enter(callee, args, span) else { return Val::Unknown };
        if self.symbolic {
            let text = self.source_text(span);
            return self.symbolic_value(&mut frame, &f.ret, &text, span);
        }
        if self.call_depth >= MAX_CALL_DEPTH {
            self.diags.push(
                Diag::error(Code::Recursion, format!("`{}` calls itself", f.name.name))
                    .label(span, "calls nest too deeply here")
                    .help("a model has no recursion; use a stack"),
            );
            return Val::Unknown;
        }
        if self.at().f.nodes.len() > MAX_NODES {
            if !std::mem::replace(&mut self.too_large, true) {
                self.diags.push(
                    Diag::error(Code::InvalidOperands, "the model has too many operations")
                        .label(span, format!("more than {MAX_NODES} before this call"))
                        .help("call a function once and use its value, or use a stack"),
                );
            }
            return Val::Unknown;
        }
        self.call_depth += 1;
        let inner = match &callee.instance {
            Some(i) => i.path.clone(),
            None => f.name.name.clone(),
        };
        // A module's functions are found by the module's path, a free function's below its caller.
        let before = self.at().path.clone();
        if callee.instance.is_some() {
            self.at().path = if inner.is_empty() { vec![] } else { vec![inner] };
        } else {
            self.at().path.push(inner);
        }
        let v = self.block(&mut frame, &f.body);
        self.at().path = before;
        self.call_depth -= 1;
        self.returned(&mut frame, f, v)
    }

    /// Checks a value against the declared type of the function.
    pub(super) fn returned(&mut self, frame: &mut Frame, f: &ast::Fn, v: Val) -> Val {
        if v.is_unknown() {
            return v;
        }
        let span = f.body.value.as_ref().map_or(f.body.span, |e| e.span);
        let who = format!("the value of `{}`", f.name.name);
        if f.body.value.is_none() {
            self.diags.push(
                Diag::error(Code::WrongKind, format!("`{}` has no value", f.name.name))
                    .label(f.ret.span, "promised here")
                    .secondary(last_line(&f.body), "the last line is no expression")
                    .help("end the body with the value"),
            );
            return Val::Unknown;
        }
        if self.matches_ty(frame, &[], &f.ret, &v, &who, span) { v } else { Val::Unknown }
    }

    /// Finds a module by name.
    pub(super) fn module_named(
        &mut self,
        file: ast::FileId,
        name: &Ident,
    ) -> Option<Arc<Decl<ast::Module>>> {
        match self.lib.lookup(file, &name.name) {
            Some(Def::Module(d)) => Some(d.clone()),
            _ => {
                let known = self.names_of(file, |d| matches!(d, Def::Module(_)));
                self.unknown_name("module", name, &known);
                None
            }
        }
    }

    pub(super) fn condition_text(&self, e: &Expr) -> String {
        condition_key(self.lib.sources.snippet(e.span))
    }
}

/// The brace that ends a block.
fn last_line(b: &ast::Block) -> Span {
    Span { start: b.span.end.saturating_sub(1), ..b.span }
}

/// An argument that has no place: unknown, given twice, or one too many.
pub(super) fn misplaced(function: &str, names: &[&str], a: &ArgVal, twice: bool) -> Diag {
    let error = |message| Diag::error(Code::WrongArguments, message);
    let list = match names {
        [] => "it takes no arguments".to_string(),
        names => format!("it takes {}", names.join(", ")),
    };
    match &a.name {
        Some(n) if twice => error(format!("`{}` is given twice", n.name))
            .label(n.span, "again here")
            .help("leave one of the two out"),
        Some(n) => {
            let diag = error(format!("`{function}` has no argument `{}`", n.name))
                .label(n.span, "unknown");
            match nearest(&n.name, names.iter().copied()) {
                Some(near) => diag.help_edit(format!("did you mean `{near}`?"), n.span, near),
                None => diag.help(list),
            }
        }
        None if twice => error(format!("an argument of `{function}` is given twice"))
            .label(a.span, "its place is taken by a named one")
            .help("name this one as well"),
        None => error(format!("too many arguments for `{function}`"))
            .label(a.span, "one too many")
            .help(list),
    }
}
