//! Checks every declaration of a file, used or not, without any variant.

use super::library::{Decl, Def, Library};
use super::value::{Instance, Val};
use super::{Building, Elab, Frame, functions, params};
use crate::diag::{Code, Diag, Diags};
use crate::syntax::ast::{self, FileId, Member, Span};
use indexmap::IndexMap;
use rustc_hash::FxHashSet;
use std::rc::Rc;
use std::sync::Arc;
use vlmc_ir::dim::{Dim, Facts, Poly};
use vlmc_ir::ty::DType;

/// Checks every declaration of the library's files. The model dtype is taken to be bf16, so that a
/// missing cast shows.
pub fn check(lib: &Library) -> Diags {
    let mut e = Elab::new(lib, true, DType::Bf16);
    for (i, scope) in lib.files.iter().enumerate() {
        let file = FileId(i as u32);
        for name in &scope.own {
            match scope.names.get(name) {
                Some(Def::Fn(d)) => e.check_free_fn(d),
                Some(Def::Module(d)) => e.check_module(d),
                Some(Def::Config(d)) => {
                    e.reset();
                    e.check_config(d);
                }
                Some(Def::Enum(d)) => e.check_enum(d),
                Some(Def::Symbol(_) | Def::Missing(_)) | None => {}
            }
        }
        e.check_variants(file);
    }
    e.recursion();
    e.tell_other_uses();
    e.diags
}

impl Elab<'_> {
    /// Forgets what was known of the last declaration.
    fn reset(&mut self) {
        self.declaration += 1;
        self.facts = Facts::default();
        self.assumptions.clear();
        self.symbols.clear();
        self.collects.clear();
        self.building = vec![Building::default()];
        self.current_fn = None;
        self.parts = 0;
        self.call_depth = 0;
    }

    fn check_enum(&mut self, d: &Arc<Decl<ast::Enum>>) {
        let mut seen: IndexMap<&str, Span> = IndexMap::new();
        for (v, _) in &d.ast.values {
            if let Some(first) = seen.insert(&v.name, v.span) {
                self.duplicate(v, first);
            }
        }
    }

    fn check_free_fn(&mut self, d: &Arc<Decl<ast::Fn>>) {
        self.reset();
        let frame = Frame::new(d.file);
        self.check_fn(&d.ast, frame);
    }

    /// Checks a function by its signature: dim parameters are symbols of their own, `..` is one
    /// unknown dim.
    fn check_fn(&mut self, f: &ast::Fn, mut frame: Frame) {
        self.current_fn = Some(f.name.span);
        frame.rest = Some(vec![Dim::symbol("..")]);
        let mut dims: IndexMap<&str, Span> = IndexMap::new();
        for d in &f.dims {
            if let Some(first) = dims.insert(&d.name, d.span) {
                self.duplicate(d, first);
            }
            if PRELUDE.contains(&d.name.as_str()) {
                self.diags.push(
                    Diag::error(Code::Duplicate, format!("`{}` is a symbol already", d.name))
                        .label(d.span, "declared as a dim parameter")
                        .help("call it by another name"),
                );
            }
            self.symbols.insert(d.name.clone(), d.span);
            frame.bind_at(&d.name, Val::Int(Poly::symbol(&d.name)), Some(d.span));
        }
        let mut seen: IndexMap<&str, Span> = IndexMap::new();
        for a in &f.args {
            if let Some(first) = seen.insert(&a.name.name, a.name.span) {
                self.duplicate(&a.name, first);
            }
            let v = self.symbolic_value(&mut frame, &a.ty, &a.name.name, a.name.span);
            if let Some(e) = &a.default {
                let given = self.expr(&mut frame, e);
                let who = format!("`{}`", a.name.name);
                self.matches_ty(&mut frame, &f.dims, &a.ty, &given, &who, e.span);
            }
            frame.bind_at(&a.name.name, v, Some(a.name.span));
        }
        self.check_inferable(f);
        let v = self.block(&mut frame, &f.body);
        self.returned(&mut frame, f, v);
        self.current_fn = None;
    }

    /// Every dim parameter must be a dim of its own in some argument: that is where it is read.
    fn check_inferable(&mut self, f: &ast::Fn) {
        for d in &f.dims {
            let found = f.args.iter().any(|a| mentions(&a.ty, &d.name));
            if !found {
                self.diags.push(
                    Diag::error(
                        Code::CannotInfer,
                        format!("no argument of `{}` tells `{}`", f.name.name, d.name),
                    )
                    .label(d.span, "is no dim of an argument")
                    .help("use it as a dim of an argument, or make it an `int` argument"),
                );
            }
        }
    }

    fn check_module(&mut self, d: &Arc<Decl<ast::Module>>) {
        self.reset();
        let mut seen: IndexMap<String, Span> = IndexMap::new();
        for m in &d.ast.members {
            let name = match m {
                Member::Let(n, _) | Member::Collect(n, _) => n,
                Member::Param(p) => &p.name,
                Member::Part(p) => &p.name,
                Member::Input(i) => &i.name,
                Member::Fn(f) => &f.name,
                Member::Require(_) | Member::Forward(..) => continue,
            };
            if let Some(first) = seen.insert(name.name.clone(), name.span) {
                self.duplicate(name, first);
            }
        }
        self.check_keys(d);
        let instance = self.symbolic_instance(d);
        self.check_requires_of(d, &instance);
        for p in params(&d.ast) {
            self.param_value(&instance, p);
        }
        for f in functions(&d.ast) {
            let frame = Frame::of(&instance);
            self.check_fn(f, frame);
        }
        if d.ast.is_model {
            self.check_model(d, &instance);
        } else {
            for m in &d.ast.members {
                let at = match m {
                    Member::Input(i) => i.name.span,
                    Member::Collect(n, _) => n.span,
                    Member::Forward(_, s) => *s,
                    _ => continue,
                };
                self.diags.push(
                    Diag::error(
                        Code::WrongKind,
                        "only a model has inputs, collections and a `forward` block",
                    )
                    .label(at, format!("`{}` is a module", d.ast.name.name))
                    .help("take it as an argument of a function, or declare a `model`"),
                );
            }
        }
    }

    /// Two parameters of a module under one checkpoint name would be one tensor.
    fn check_keys(&mut self, d: &Arc<Decl<ast::Module>>) {
        let mut seen: IndexMap<&str, &ast::Param> = IndexMap::new();
        for p in params(&d.ast) {
            let key = p.key.as_ref().map_or(p.name.name.as_str(), |k| &k.value);
            let Some(first) = seen.insert(key, p) else { continue };
            if first.name.name == p.name.name {
                continue; // Declared twice: that has been said.
            }
            let at = |p: &ast::Param| p.key.as_ref().map_or(p.name.span, |k| k.span);
            self.diags.push(
                Diag::error(
                    Code::Duplicate,
                    format!("`{}` and `{}` have one checkpoint name", first.name.name, p.name.name),
                )
                .label(at(p), format!("`{key}` again here"))
                .secondary(at(first), "first here")
                .help(
                    "give each its own name after `as`; to share a tensor, use one parameter twice",
                ),
            );
        }
    }

    fn check_requires_of(&mut self, d: &Arc<Decl<ast::Module>>, instance: &Rc<Instance>) {
        for m in &d.ast.members {
            if let Member::Require(e) = m {
                let mut frame = Frame::of(instance);
                self.condition(&mut frame, e);
            }
        }
    }

    fn check_model(&mut self, d: &Arc<Decl<ast::Module>>, instance: &Rc<Instance>) {
        if let Some(second) = d.ast.args.get(1) {
            self.diags.push(
                Diag::error(Code::WrongArguments, "a model takes one configuration")
                    .label(second.name.span, "a second argument")
                    .help("make it a field of the first, whose type may be another `config`"),
            );
        }
        let mut frame = Frame::of(instance);
        self.collects(&mut frame, d);
        let mut forward = None;
        for m in &d.ast.members {
            match m {
                Member::Input(i) => self.input(&mut frame, i),
                Member::Forward(b, s) => match forward {
                    None => forward = Some((b, *s)),
                    Some((_, first)) => self.diags.push(
                        Diag::error(Code::Duplicate, "`forward` is declared twice")
                            .label(*s, "here again")
                            .secondary(first, "first here")
                            .help("join the two"),
                    ),
                },
                _ => {}
            }
        }
        match forward {
            Some((b, s)) => {
                self.current_fn = Some(s);
                self.block(&mut frame, b);
                self.current_fn = None;
            }
            None => self.diags.push(
                Diag::error(Code::NoModel, format!("model `{}` has no `forward`", d.ast.name.name))
                    .label(d.ast.name.span, "has nothing to run")
                    .help("write `forward { .. }` with its losses and outputs"),
            ),
        }
    }

    /// Variants must set fields that exist, to values of their types, within the constraints.
    fn check_variants(&mut self, file: FileId) {
        let Some(scope) = self.lib.scope(file) else { return };
        for v in &scope.variants {
            self.reset();
            let model = &v.ast.model;
            let Some(Def::Module(m)) = self.lib.lookup(file, &model.name).cloned() else {
                let known = self.names_of(file, |d| matches!(d, Def::Module(m) if m.ast.is_model));
                self.unknown_name("model", model, &known);
                continue;
            };
            let mut set: IndexMap<Vec<&str>, Span> = IndexMap::new();
            for (path, _) in &v.ast.sets {
                let names: Vec<&str> = path.iter().map(|n| n.name.as_str()).collect();
                if let Some(last) = path.last()
                    && let Some(first) = set.insert(names, last.span)
                {
                    self.duplicate(last, first);
                }
            }
            let twins = self.lib.variants(&model.name);
            let same = |w: &&Arc<Decl<ast::Variant>>| w.ast.name.value == v.ast.name.value;
            if let Some(first) = twins.iter().find(same)
                && !Arc::ptr_eq(first, v)
            {
                self.diags.push(
                    Diag::error(
                        Code::Duplicate,
                        format!("variant \"{}\" is declared twice", v.ast.name.value),
                    )
                    .label(v.ast.name.span, "here again")
                    .secondary(first.ast.name.span, "first here")
                    .help("rename one of the two"),
                );
                continue;
            }
            let Some(arg) = m.ast.args.first() else { continue };
            let ast::TyKind::Name(n) = &arg.ty.kind else { continue };
            if let Some(Def::Config(c)) = self.lib.lookup(m.file, &n.name).cloned() {
                self.symbolic = false;
                self.concrete_config(&model.name, &c, Some(&v.ast.name.value), &[]);
                self.symbolic = true;
            }
        }
    }

    /// Reports circles among the calls that were seen, each once.
    fn recursion(&mut self) {
        let mut calls: IndexMap<Span, Vec<(Span, Span)>> = IndexMap::new();
        for (caller, callee, place) in std::mem::take(&mut self.edges) {
            calls.entry(caller).or_default().push((callee, place));
        }
        // Depth first, by hand: chains of calls may be long. A call of a function that is open on
        // the way closes a circle.
        let mut done: FxHashSet<Span> = FxHashSet::default();
        let mut told: FxHashSet<Span> = FxHashSet::default();
        for start in calls.keys() {
            let mut open: IndexMap<Span, usize> = IndexMap::new();
            if !done.contains(start) {
                open.insert(*start, 0);
            }
            while let Some((at, next)) = open.last().map(|(at, next)| (*at, *next)) {
                let Some((callee, place)) = calls.get(&at).and_then(|c| c.get(next)).copied()
                else {
                    open.pop();
                    done.insert(at);
                    continue;
                };
                if let Some(slot) = open.get_mut(&at) {
                    *slot += 1;
                }
                if let Some(from) = open.get_index_of(&callee) {
                    let circle: Vec<Span> = open.keys().skip(from).copied().collect();
                    if !circle.iter().any(|f| told.contains(f)) {
                        self.circle(callee, place);
                    }
                    told.extend(circle);
                } else if !done.contains(&callee) {
                    open.insert(callee, 0);
                }
            }
        }
    }

    fn circle(&mut self, function: Span, place: Span) {
        // A part that contains itself is called by itself; that has been said.
        if self.endless.contains(&function) {
            return;
        }
        let name = self.source_text(function);
        self.diags.push(
            Diag::error(Code::Recursion, format!("`{name}` calls itself"))
                .label(place, "closes the circle")
                .secondary(function, "declared here")
                .help("a model has no recursion; use a stack"),
        );
    }
}

use super::PRELUDE_SYMBOLS as PRELUDE;

/// Whether a type has a dim that is just this name.
fn mentions(ty: &ast::Ty, name: &str) -> bool {
    match &ty.kind {
        ast::TyKind::Tensor(_, dims) => dims
            .iter()
            .any(|d| matches!(d, ast::DimTy::Expr(e) if super::plain_name(e) == Some(name))),
        ast::TyKind::Tuple(items) => items.iter().any(|t| mentions(t, name)),
        ast::TyKind::Name(_) => false,
    }
}
