//! Configurations: defaults, variants, `--set`, constraints.

use super::library::{Decl, Def};
use super::value::Val;
use super::{Elab, Frame};
use crate::diag::{Code, Diag, nearest};
use crate::syntax::ast::{self, BinaryOp, ConfigTy, Expr, ExprKind, FileId, Span};
use indexmap::IndexMap;
use std::rc::Rc;
use std::sync::Arc;
use vlmc_ir::dim::Poly;

use super::setting::FieldTy;
pub use super::setting::{Raw, Setter, Setting, literal};

impl Elab<'_> {
    fn field_ty(&mut self, file: FileId, ty: &ConfigTy) -> Option<FieldTy> {
        match ty {
            ConfigTy::List(t, _) => Some(FieldTy::List(Box::new(self.field_ty(file, t)?))),
            ConfigTy::Name(n) => match &*n.name {
                "int" => Some(FieldTy::Int),
                "float" => Some(FieldTy::Float),
                "bool" => Some(FieldTy::Bool),
                "string" => Some(FieldTy::Str),
                name => match self.lib.lookup(file, name) {
                    Some(Def::Enum(d)) => Some(FieldTy::Enum(d.clone())),
                    Some(Def::Config(d)) => Some(FieldTy::Config(d.clone())),
                    _ => {
                        let known = ["int", "float", "bool", "string"].map(String::from);
                        let mut all: Vec<String> = known.to_vec();
                        all.extend(
                            self.names_of(file, |d| matches!(d, Def::Enum(_) | Def::Config(_))),
                        );
                        self.unknown_name("type of a configuration field", n, &all);
                        None
                    }
                },
            },
        }
    }

    /// A configuration of which nothing is known; integers are symbols named by their path.
    pub(super) fn symbolic_config(&mut self, d: &Arc<Decl<ast::Config>>, path: &str) -> Val {
        if self.config_depth > 16 {
            return Val::Unknown; // It contains itself, which `check_config` reports.
        }
        self.config_depth += 1;
        let mut fields = IndexMap::new();
        for f in &d.ast.fields {
            let text = format!("{path}.{}", f.name.name);
            let v = match self.field_ty_quiet(d.file, &f.ty) {
                Some(t) => t.symbolic(self, &text, f.name.span),
                None => Val::Unknown,
            };
            fields.insert(f.name.name.clone(), v);
        }
        self.config_depth -= 1;
        let mut fields = Rc::new(fields);
        // `require a == b` with a plain field: from here on it is called b.
        for r in &d.ast.requires {
            if let ExprKind::Binary(BinaryOp::Eq, a, b, _) = &r.kind {
                let mut frame = self.config_frame(d.file, &fields);
                let (a, b) = self.quiet(|s| (s.expr(&mut frame, a), s.expr(&mut frame, b)));
                if let (Val::Int(a), Val::Int(b)) = (a, b)
                    && let [symbol] = a.symbols().as_slice()
                    && a == Poly::symbol(&symbol.0)
                {
                    let v = Val::Config(d.clone(), fields.clone());
                    if let Val::Config(_, replaced) = substitute(&v, &symbol.0, &b) {
                        fields = replaced;
                    }
                }
            }
        }
        for r in &d.ast.requires {
            let mut frame = self.config_frame(d.file, &fields);
            self.assume(&mut frame, r);
        }
        Val::Config(d.clone(), fields)
    }

    /// As [`Elab::field_ty`], without reporting: `check_config` does that once.
    fn field_ty_quiet(&mut self, file: FileId, ty: &ConfigTy) -> Option<FieldTy> {
        self.quiet(|s| s.field_ty(file, ty))
    }

    pub(super) fn config_frame(&self, file: FileId, fields: &IndexMap<String, Val>) -> Frame {
        let mut frame = Frame::new(file);
        for (k, v) in fields {
            frame.bind(k, v.clone());
        }
        frame
    }

    /// Checks the declaration itself: types and defaults of its fields, and its constraints.
    pub(super) fn check_config(&mut self, d: &Arc<Decl<ast::Config>>) {
        let mut seen: IndexMap<&str, Span> = IndexMap::new();
        for f in &d.ast.fields {
            if let Some(first) = seen.insert(&f.name.name, f.name.span) {
                self.duplicate(&f.name, first);
            }
            let Some(t) = self.field_ty(d.file, &f.ty) else { continue };
            if let FieldTy::Config(inner) = &t
                && self.contains(inner, d, 0)
            {
                self.diags.push(
                    Diag::error(
                        Code::Recursion,
                        format!("configuration `{}` contains itself", d.ast.name.name),
                    )
                    .label(f.name.span, "through this field")
                    .help("take the field out, or make its type another configuration"),
                );
            }
            if let Some(e) = &f.default {
                self.default_value(&t, e);
            }
        }
        let Val::Config(_, fields) = self.symbolic_config(d, &d.ast.name.name.to_lowercase())
        else {
            return;
        };
        for r in &d.ast.requires {
            let mut frame = self.config_frame(d.file, &fields);
            self.condition(&mut frame, r);
        }
    }

    fn contains(
        &mut self,
        d: &Arc<Decl<ast::Config>>,
        target: &Arc<Decl<ast::Config>>,
        depth: u32,
    ) -> bool {
        if Arc::ptr_eq(d, target) || depth > 16 {
            return true;
        }
        d.ast.fields.iter().any(|f| match self.field_ty_quiet(d.file, &f.ty) {
            Some(FieldTy::Config(inner)) => self.contains(&inner, target, depth + 1),
            _ => false,
        })
    }

    fn default_value(&mut self, t: &FieldTy, e: &Expr) -> Val {
        let Some(raw) = literal(e) else {
            self.diags.push(
                Diag::error(Code::BadConfigValue, "a default must be a literal")
                    .label(e.span, "is computed")
                    .help("write the value, or compute it with `let` in the module that uses it"),
            );
            return Val::Unknown;
        };
        match t.read(&raw) {
            Ok(v) => v,
            Err(bad) => {
                let text = self.source_text(e.span);
                let name = t.name();
                let diag = Diag::error(Code::BadConfigValue, &*bad.message)
                    .label(e.span, format!("must be {name}"));
                self.diags.push(bad.advise(diag, &name, &text));
                Val::Unknown
            }
        }
    }

    /// Default values; fields without one are collected in `missing`.
    fn default_config(
        &mut self,
        d: &Arc<Decl<ast::Config>>,
        path: &str,
        missing: &mut Vec<(String, Span)>,
        depth: u32,
    ) -> Val {
        let mut fields = IndexMap::new();
        for f in &d.ast.fields {
            let text = if path.is_empty() {
                f.name.name.clone()
            } else {
                format!("{path}.{}", f.name.name)
            };
            let t = self.field_ty(d.file, &f.ty);
            let v = match (&t, &f.default) {
                (Some(FieldTy::Config(inner)), None) if depth < 16 => {
                    self.default_config(inner, &text, missing, depth + 1)
                }
                (Some(t), Some(e)) => self.default_value(t, e),
                _ => {
                    missing.push((text, f.name.span));
                    Val::Unknown
                }
            };
            fields.insert(f.name.name.clone(), v);
        }
        Val::Config(d.clone(), Rc::new(fields))
    }

    /// The settings of a variant: those of its base first.
    fn variant_settings(&mut self, model: &str, name: &str, span: Option<Span>) -> Vec<Setting> {
        let all = self.lib.variants(model);
        let mut chain = vec![];
        let (mut name, mut span) = (name.to_string(), span);
        loop {
            let Some(v) = all.iter().find(|v| v.ast.name.value == name) else {
                let names: Vec<_> = all.iter().map(|v| v.ast.name.value.as_str()).collect();
                let mut diag = Diag::error(
                    Code::UnknownVariant,
                    format!("`{model}` has no variant \"{name}\""),
                );
                diag = match span {
                    Some(s) => diag.label(s, "named here"),
                    None => {
                        let line = format!("--variant {name}");
                        let n = line.len();
                        diag.flag(line, 10..n, "named here")
                    }
                };
                if let Some(n) = nearest(&name, names.iter().copied()) {
                    diag = diag.help(format!("did you mean \"{n}\"?"));
                }
                let list = if names.is_empty() { "none".into() } else { names.join(", ") };
                self.diags.push(diag.help(format!("variants: {list}")));
                break;
            };
            if chain.iter().any(|c: &Arc<Decl<ast::Variant>>| Arc::ptr_eq(c, v)) {
                // Every variant of the circle comes here; it is told at the first of them.
                let first = chain.iter().map(|c| c.ast.name.span).min_by_key(|s| (s.file, s.start));
                if first == Some(v.ast.name.span) {
                    let names = chain.iter().map(|c| c.ast.name.value.as_str()).chain([&*name]);
                    let circle = names.collect::<Vec<_>>().join(" -> ");
                    self.diags.push(
                        Diag::error(
                            Code::Recursion,
                            format!("variant \"{name}\" starts from itself"),
                        )
                        .label(v.ast.name.span, "in a circle")
                        .note(format!("the circle is {circle}"))
                        .help("let one of them start from the defaults"),
                    );
                }
                break;
            }
            chain.push(v.clone());
            match &v.ast.base {
                Some(b) => (name, span) = (b.value.clone(), Some(b.span)),
                None => break,
            }
        }
        let mut out = vec![];
        for v in chain.into_iter().rev() {
            for (path, e) in &v.ast.sets {
                let Some(value) = literal(e) else {
                    self.diags.push(
                        Diag::error(Code::BadConfigValue, "a variant sets fields to literals")
                            .label(e.span, "is computed")
                            .help("write the number"),
                    );
                    continue;
                };
                let span = path.first().map_or(e.span, |p| p.span.to(e.span));
                out.push(Setting {
                    path: path.iter().map(|p| p.name.clone()).collect(),
                    value,
                    setter: Setter::Spec(span),
                });
            }
        }
        out
    }

    /// The configuration of a model: defaults, then the variant, then `settings`; constraints hold.
    pub(super) fn concrete_config(
        &mut self,
        model: &str,
        d: &Arc<Decl<ast::Config>>,
        variant: Option<&str>,
        settings: &[Setting],
    ) -> Val {
        let mut missing = vec![];
        let mut v = self.default_config(d, "", &mut missing, 0);
        let mut all = variant.map(|n| self.variant_settings(model, n, None)).unwrap_or_default();
        all.extend_from_slice(settings);
        let mut setters: IndexMap<String, Setter> = IndexMap::new();
        for s in &all {
            let path = s.path.join(".");
            match self.set(&mut v, &s.path, s) {
                Ok(()) => {
                    missing.retain(|(m, _)| *m != path);
                    setters.insert(path, s.setter.clone());
                }
                Err(diag) => self.diags.push(*diag),
            }
        }
        for (path, span) in missing {
            self.diags.push(
                Diag::error(Code::BadConfigValue, format!("`{path}` has no value"))
                    .label(span, "has no default")
                    .help(format!("set it in a variant, or with `--set {path}=..`")),
            );
        }
        self.check_requires(&v, "", &setters);
        v
    }

    fn set(&mut self, v: &mut Val, path: &[String], s: &Setting) -> Result<(), Box<Diag>> {
        let at = |diag: Diag, text: &str| match &s.setter {
            Setter::Spec(span) => diag.label(*span, text),
            Setter::Flag(line) => diag.flag(line.clone(), 0..line.len(), text),
        };
        let (Val::Config(d, fields), Some((first, rest))) = (v, path.split_first()) else {
            return Err(Box::new(
                at(
                    Diag::error(
                        Code::BadConfigValue,
                        format!("`{}` is no field", s.path.join(".")),
                    ),
                    "names a configuration, or goes on below a value",
                )
                .help("name one field, as in `text.layers`"),
            ));
        };
        let Some(field) = d.ast.fields.iter().find(|f| f.name.name == *first) else {
            let names: Vec<_> = d.ast.fields.iter().map(|f| f.name.name.as_str()).collect();
            let mut diag = at(
                Diag::error(
                    Code::UnknownName,
                    format!("configuration `{}` has no field `{first}`", d.ast.name.name),
                ),
                "no such field",
            );
            diag = match nearest(first, names.iter().copied()) {
                Some(n) => diag.help(format!("did you mean `{n}`?")),
                None => diag.help(format!("fields: {}", names.join(", "))),
            };
            return Err(Box::new(diag));
        };
        let Some(slot) = Rc::make_mut(fields).get_mut(first) else { return Ok(()) };
        if !rest.is_empty() {
            return self.set(slot, rest, s);
        }
        let Some(t) = self.field_ty(d.file, &field.ty) else { return Ok(()) };
        match t.read(&s.value) {
            Ok(v) => {
                *slot = v;
                Ok(())
            }
            Err(bad) => {
                let diag = at(Diag::error(Code::BadConfigValue, &*bad.message), "does not fit")
                    .secondary(field.name.span, format!("`{first}` is {}", t.name()));
                Err(Box::new(bad.advise(diag, &t.name(), &s.value.to_string())))
            }
        }
    }
}

/// The value with a symbol replaced everywhere.
fn substitute(v: &Val, symbol: &str, by: &Poly) -> Val {
    match v {
        Val::Int(p) => {
            let bind = |s: &vlmc_ir::dim::Symbol| (&*s.0 == symbol).then(|| by.clone());
            Val::Int(p.substitute(&bind).unwrap_or_else(|| p.clone()))
        }
        Val::Config(d, fields) => {
            let fields =
                fields.iter().map(|(k, v)| (k.clone(), substitute(v, symbol, by))).collect();
            Val::Config(d.clone(), Rc::new(fields))
        }
        other => other.clone(),
    }
}
