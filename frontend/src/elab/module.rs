//! Modules: arguments, members, parts, parameters.

use super::call::{ArgVal, Args};
use super::library::Decl;
use super::value::{Instance, Part, Stack, Template, Val};
use super::{Elab, Frame, MAX_ELEMENTS, MAX_LAYERS, MAX_PARTS, MAX_PARTS_OF_A_MODEL};
use crate::diag::{Code, Diag};
use crate::syntax::ast::{self, FileId, Member, PartExpr, Span};
use indexmap::IndexMap;
use std::rc::Rc;
use std::sync::Arc;
use vlmc_ir::dim::Poly;
use vlmc_ir::graph::{self, Init, Param, join_name};
use vlmc_ir::ty::Ty;

/// Where an instance stands.
#[derive(Clone)]
pub(super) struct Place {
    /// Prefix of checkpoint names.
    pub prefix: String,
    /// Path of the spec.
    pub path: String,
    /// Its functions become functions of the program.
    pub template: Option<Template>,
    /// Its parts do.
    pub parts_are_templates: bool,
    /// Where it is declared.
    pub span: Span,
}

impl Elab<'_> {
    /// A module with these arguments: evaluates its `let`s, constraints and parts.
    pub(super) fn instantiate(
        &mut self,
        module: &Arc<Decl<ast::Module>>,
        args: IndexMap<String, Val>,
        place: Place,
    ) -> Rc<Instance> {
        let mut instance = Instance {
            module: module.clone(),
            env: args,
            absent: IndexMap::new(),
            prefix: place.prefix.clone(),
            path: place.path.clone(),
            template: place.template.clone(),
            span: place.span,
        };
        for m in &module.ast.members {
            let mut frame = Frame::new(module.file);
            for (k, v) in &instance.env {
                frame.bind(k, v.clone());
            }
            match m {
                Member::Let(name, e) => {
                    let v = self.expr(&mut frame, e);
                    instance.env.insert(name.name.clone(), v);
                }
                Member::Require(e) if self.symbolic => self.assume(&mut frame, e),
                Member::Require(e) => {
                    if self.condition(&mut frame, e) == Some(false) {
                        let text = self.source_text(e.span);
                        self.diags.push(
                            Diag::error(
                                Code::ConstraintViolated,
                                format!("`{text}` does not hold"),
                            )
                            .label(e.span, "required here")
                            .secondary(place.span, "for this part")
                            .help("change the arguments of the part"),
                        );
                    }
                }
                Member::Part(p) => {
                    if !self.exists(&mut frame, p.when.as_ref(), &p.name.name, &mut instance) {
                        continue;
                    }
                    let v = match &p.counter {
                        Some((_, n)) => self.stack(&mut frame, p, n, &instance, module.file),
                        None => self.part(&mut frame, &p.value, &p.name.name, &instance, &place),
                    };
                    instance.env.insert(p.name.name.clone(), v);
                }
                Member::Param(p) => {
                    self.exists(&mut frame, p.when.as_ref(), &p.name.name, &mut instance);
                }
                Member::Input(i) => {
                    self.exists(&mut frame, i.when.as_ref(), &i.name.name, &mut instance);
                }
                Member::Collect(..) | Member::Fn(_) | Member::Forward(..) => {}
            }
        }
        Rc::new(instance)
    }

    /// Whether a member exists; one that does not is noted with its condition.
    fn exists(
        &mut self,
        frame: &mut Frame,
        when: Option<&ast::Expr>,
        name: &str,
        instance: &mut Instance,
    ) -> bool {
        let Some(e) = when else { return true };
        if self.condition(frame, e) == Some(false) {
            let text = self.source_text(e.span);
            instance.absent.insert(name.to_string(), text);
            return false;
        }
        true
    }

    fn part(
        &mut self,
        frame: &mut Frame,
        value: &PartExpr,
        name: &str,
        owner: &Instance,
        place: &Place,
    ) -> Val {
        let path = join_name(&owner.path, name);
        let template = place.parts_are_templates;
        match self.part_value(frame, value, &owner.prefix, &path, None, template) {
            Some(p) => Val::Part(p),
            None => Val::Unknown,
        }
    }

    /// The module, or the choice of modules, that a part is.
    fn part_value(
        &mut self,
        frame: &mut Frame,
        value: &PartExpr,
        prefix: &str,
        path: &str,
        layer: Option<&Poly>,
        template: bool,
    ) -> Option<Part> {
        match value {
            PartExpr::New { module, args, prefix: own } => {
                let m = self.module_named(frame.file, module)?;
                if m.ast.is_model {
                    self.diags.push(
                        Diag::error(Code::WrongKind, format!("`{}` is a model", module.name))
                            .label(module.span, "used as a part")
                            .help("declare it as a `module`"),
                    );
                    return None;
                }
                let args = self.args(frame, args);
                let args = self.module_args(&m, &args, module.span)?;
                let own = own.as_ref().map(|t| t.value.clone()).unwrap_or_default();
                let own = match layer.and_then(Poly::as_constant) {
                    Some(i) => own.replace("{i}", &i.to_string()),
                    None => own,
                };
                let full = join_name(prefix, &own);
                let template = template.then(|| Template {
                    scope: full.clone(),
                    path: path.to_string(),
                    layer: layer.and_then(Poly::as_constant).and_then(|i| u32::try_from(i).ok()),
                });
                let place = Place {
                    prefix: full,
                    path: path.to_string(),
                    template,
                    parts_are_templates: false,
                    span: module.span,
                };
                if self.call_depth > super::MAX_CALL_DEPTH {
                    self.diags.push(
                        Diag::error(Code::Recursion, format!("`{}` contains itself", module.name))
                            .label(module.span, "through this part")
                            .help("a module has finitely many parts; use a stack"),
                    );
                    let functions = super::functions(&m.ast).map(|f| f.name.span);
                    self.endless.extend(functions);
                    return None;
                }
                if !self.another_part(module) {
                    return None;
                }
                self.call_depth += 1;
                let i = self.instantiate(&m, args, place);
                self.call_depth -= 1;
                Some(Part::One(i))
            }
            PartExpr::If(c, a, b) => match self.condition(frame, c) {
                Some(true) => self.part_value(frame, a, prefix, path, layer, template),
                Some(false) => self.part_value(frame, b, prefix, path, layer, template),
                None if !self.symbolic => None,
                None => {
                    let yes = self.assuming(c, true, |s| {
                        s.part_value(frame, a, prefix, path, layer, template)
                    });
                    let no = self.assuming(c, false, |s| {
                        s.part_value(frame, b, prefix, path, layer, template)
                    });
                    let condition = self.condition_text(c);
                    Some(Part::Either { condition, yes: Box::new(yes?), no: Box::new(no?) })
                }
            },
        }
    }

    /// Counts a part; false when there are too many, which is told once.
    fn another_part(&mut self, module: &ast::Ident) -> bool {
        let most = if self.symbolic { MAX_PARTS } else { MAX_PARTS_OF_A_MODEL };
        self.parts += 1;
        if self.parts <= most {
            return true;
        }
        if !std::mem::replace(&mut self.too_large, true) {
            self.diags.push(
                Diag::error(Code::InvalidOperands, "there are too many parts in parts")
                    .label(module.span, format!("more than {most} before this one"))
                    .help("a module that has another twice doubles it; use a stack"),
            );
        }
        false
    }

    fn stack(
        &mut self,
        frame: &mut Frame,
        p: &ast::Part,
        count: &ast::Expr,
        owner: &Instance,
        file: FileId,
    ) -> Val {
        let span = count.span;
        let count = match self.size(frame, count) {
            Some(c) => c,
            None => return Val::Unknown,
        };
        if let Some(n) = count.as_constant().filter(|n| *n > MAX_LAYERS) {
            self.diags.push(
                Diag::error(Code::InvalidOperands, format!("a stack of {n} layers"))
                    .label(span, format!("at most {MAX_LAYERS}"))
                    .help("check the number that the configuration gives"),
            );
            return Val::Unknown;
        }
        let stack = Rc::new(Stack {
            part: p.clone(),
            owner_env: owner.env.clone(),
            file,
            count,
            prefix: owner.prefix.clone(),
            path: owner.path.clone(),
        });
        if self.symbolic {
            // The arguments of its modules are checked where the stack is declared.
            let i = p.counter.as_ref().map_or_else(Poly::default, |(i, _)| Poly::symbol(&i.name));
            if self.stack_element(&stack, &i).is_none() {
                return Val::Unknown;
            }
        }
        Val::Part(Part::Stack(stack))
    }

    /// Element `i` of a stack.
    pub(super) fn stack_element(&mut self, s: &Rc<Stack>, i: &Poly) -> Option<Part> {
        let mut frame = Frame::new(s.file);
        for (k, v) in &s.owner_env {
            frame.bind(k, v.clone());
        }
        if let Some((name, _)) = &s.part.counter {
            self.symbols.entry(name.name.clone()).or_insert(name.span);
            frame.bind(&name.name, Val::Int(i.clone()));
        }
        let path = join_name(&s.path, &format!("{}.{i}", s.part.name.name));
        self.part_value(&mut frame, &s.part.value, &s.prefix, &path, Some(i), true)
    }

    /// Binds the arguments of a module to its parameters.
    fn module_args(
        &mut self,
        m: &Arc<Decl<ast::Module>>,
        args: &Args,
        span: Span,
    ) -> Option<IndexMap<String, Val>> {
        // A module's arguments are bound as a function's are.
        let f = ast::Fn {
            doc: String::new(),
            name: m.ast.name.clone(),
            dims: vec![],
            args: m.ast.args.clone(),
            ret: ast::Ty { kind: ast::TyKind::Tuple(vec![]), span },
            body: ast::Block { stmts: vec![], value: None, span },
        };
        let callee = super::call::Callee { file: m.file, function: &f, instance: None };
        let frame = self.enter(&callee, args, span)?;
        let bound = m.ast.args.iter().map(|a| {
            let v = frame.get(&a.name.name).map_or(Val::Unknown, |b| b.val.clone());
            (a.name.name.clone(), v)
        });
        Some(bound.collect())
    }

    /// A module of which nothing is known but its declaration.
    pub(super) fn symbolic_instance(&mut self, m: &Arc<Decl<ast::Module>>) -> Rc<Instance> {
        let mut args = IndexMap::new();
        for a in &m.ast.args {
            let mut frame = Frame::new(m.file);
            let v = self.symbolic_value(&mut frame, &a.ty, &a.name.name, a.name.span);
            args.insert(a.name.name.clone(), v);
        }
        let place = Place {
            prefix: String::new(),
            path: String::new(),
            template: None,
            parts_are_templates: m.ast.is_model,
            span: m.ast.name.span,
        };
        self.instantiate(m, args, place)
    }

    /// The value of a parameter in the function being built; declared there on first use.
    pub(super) fn param_value(&mut self, i: &Rc<Instance>, p: &ast::Param) -> Val {
        let prefix = match &i.template {
            Some(t) => t.scope.clone(),
            None => i.prefix.clone(),
        };
        let own = p.key.as_ref().map_or(p.name.name.as_str(), |k| &k.value);
        let key = join_name(&prefix, own);
        let name = join_name(&i.path, &p.name.name);
        if let Some(v) = self.at().params.get(&key).copied() {
            self.same_param(v, &name, &key, p.name.span);
            return Val::Tensor(v);
        }
        let mut frame = Frame::of(i);
        let Some(ty) = self.tensor_ty(&mut frame, &p.ty) else { return Val::Unknown };
        if !self.check_param_size(p, &ty) {
            return Val::Unknown;
        }
        let init = self.init(&mut frame, p);
        let each = p.each.iter().map(|e| join_name(&prefix, &e.value)).collect();
        let origin = self.origin(p.name.span);
        let at = self.at();
        let param = Param {
            name: name.as_str().into(),
            key: key.clone(),
            each,
            ty,
            init,
            decay: !p.no_decay,
        };
        let v: graph::Value = at.f.add_param(param);
        if let Some(node) = at.f.nodes.last_mut() {
            node.origins.push(graph::Origin { path: name.into(), ..origin });
        }
        at.params.insert(key, v);
        Val::Tensor(v)
    }

    /// A parameter has a size when compiling, and one that a machine could hold.
    fn check_param_size(&mut self, p: &ast::Param, ty: &Ty) -> bool {
        if self.symbolic {
            return true;
        }
        let mut elements: i64 = 1;
        for d in &ty.dims {
            let Some(size) = d.size().as_constant() else {
                self.diags.push(
                    Diag::error(
                        Code::WrongKind,
                        format!("`{}` has a size that only the batch tells", p.name.name),
                    )
                    .label(p.ty.span, format!("`{}` differs from batch to batch", d.size()))
                    .help("sizes of parameters follow from the configuration"),
                );
                return false;
            };
            elements = elements.saturating_mul(size);
        }
        if elements > MAX_ELEMENTS {
            self.diags.push(
                Diag::error(
                    Code::InvalidOperands,
                    format!("`{}` would hold more than 2^48 numbers", p.name.name),
                )
                .label(p.ty.span, format!("is {ty}"))
                .help("check the sizes that the configuration gives"),
            );
            return false;
        }
        true
    }

    fn init(&mut self, frame: &mut Frame, p: &ast::Param) -> Init {
        let Some((kind, args)) = &p.init else { return Init::Constant(0.0) };
        let mut known = true;
        let numbers: Vec<f64> = args
            .iter()
            .map(|e| {
                let v = self.expr(frame, e);
                match self.real(&v, e.span) {
                    Some(f) => f,
                    None => {
                        known = false;
                        if !matches!(v, Val::Int(_) | Val::Float(_)) {
                            self.wrong_kind(e.span, "a number", &v);
                        }
                        0.0
                    }
                }
            })
            .collect();
        let wrong = if known { init_fault(&kind.name, &numbers) } else { "" };
        if !wrong.is_empty() {
            let shown: Vec<_> = numbers.iter().map(|v| format!("{v:?}")).collect();
            self.diags.push(
                Diag::error(
                    Code::InvalidOperands,
                    format!(
                        "`{}` cannot start as {}({})",
                        p.name.name,
                        kind.name,
                        shown.join(", ")
                    ),
                )
                .label(kind.span, wrong)
                .help("correct the numbers"),
            );
        }
        match (kind.name.as_str(), numbers.as_slice()) {
            ("zeros", []) => Init::Constant(0.0),
            ("ones", []) => Init::Constant(1.0),
            ("constant", [v]) => Init::Constant(*v),
            ("normal", [std]) => Init::Normal(*std),
            ("uniform", [a, b]) => Init::Uniform(*a, *b),
            ("log_uniform", [a, b]) => Init::LogUniform(*a, *b),
            (name, given) => {
                let known = [
                    ("zeros", 0),
                    ("ones", 0),
                    ("constant", 1),
                    ("normal", 1),
                    ("uniform", 2),
                    ("log_uniform", 2),
                ];
                match known.iter().find(|(n, _)| *n == name) {
                    Some((_, n)) => self.diags.push(
                        Diag::error(
                            Code::WrongArguments,
                            format!("`{name}` takes {n} numbers, not {}", given.len()),
                        )
                        .label(
                            kind.span,
                            match n {
                                0 => "takes none".to_string(),
                                n => format!("takes {n}"),
                            },
                        )
                        .help("see section 7 of the language reference"),
                    ),
                    None => {
                        let known: Vec<String> = known.map(|(n, _)| n.to_string()).to_vec();
                        self.unknown_name("initial value", kind, &known);
                    }
                }
                Init::Constant(0.0)
            }
        }
    }

    /// One positional argument.
    pub(super) fn arg(name: &str, val: Val, span: Span) -> ArgVal {
        ArgVal { name: Some(ast::Ident { name: name.to_string(), span }), val, span }
    }
}

/// What is wrong with the numbers of a distribution; empty when nothing is.
fn init_fault(kind: &str, numbers: &[f64]) -> &'static str {
    match (kind, numbers) {
        (_, n) if n.iter().any(|v| !v.is_finite()) => "must be finite",
        ("normal", [deviation]) if *deviation < 0.0 => "a deviation is 0 or more",
        ("uniform", [low, high]) if low > high => "the lower end comes first",
        ("log_uniform", [low, high]) if *low <= 0.0 || low > high => "needs 0 < lower <= upper",
        _ => "",
    }
}
