//! From a model, or one function of a spec, to a program.

use super::call::{Args, Callee};
use super::config::Setting;
use super::library::{Decl, Def, Library};
use super::module::Place;
use super::value::{Instance, Sequence, Val};
use super::{Building, Elab, Finished, Frame, functions};
use crate::diag::{Code, Diag, Diags, nearest};
use crate::syntax::ast::{self, Member, Span, TyKind};
use indexmap::IndexMap;
use std::rc::Rc;
use std::sync::Arc;
use vlmc_ir::dim::{Dim, Poly, Symbol};
use vlmc_ir::graph::{Function, HostCall, Program, SymbolDecl, Value};
use vlmc_ir::ops::Op;
use vlmc_ir::ty::{DType, Ty};

/// What to lower.
#[derive(Clone, Debug)]
pub struct Target<'t> {
    /// `Module.function`, `Module` (its `forward`) or a function of the root file; `None` for the
    /// model.
    pub function: Option<&'t str>,
    /// Arguments of that module, as expressions of the model's argument: `c = c.text`.
    pub args: &'t [(String, String)],
    /// The variant.
    pub variant: Option<&'t str>,
    /// Further settings.
    pub settings: &'t [Setting],
    /// Shapes of the tensors that a function will get, by argument: they tell its dim parameters.
    /// Those that they do not tell stay symbols.
    pub shapes: &'t [(String, Vec<usize>)],
    /// What the model dtype stands for.
    pub dtype: DType,
}

/// The result of lowering.
pub struct Lowered {
    /// The program; `None` when there were errors.
    pub program: Option<Program>,
    /// What there is to say.
    pub diags: Diags,
}

/// Lowers a model with a variant, or one function, to a program.
pub fn lower(lib: &Library, target: &Target<'_>) -> Lowered {
    let mut e = Elab::new(lib, false, target.dtype);
    let done = e.run(target);
    e.tell_other_uses();
    let ok = done.is_some() && !e.diags.has_errors();
    let program = ok.then(|| std::mem::take(&mut e.program));
    Lowered { program, diags: e.diags }
}

impl Elab<'_> {
    fn run(&mut self, target: &Target<'_>) -> Option<()> {
        let root = self.lib.root?;
        self.program.files =
            self.lib.sources.ids().map(|i| self.lib.sources.name(i).to_string()).collect();
        self.program.variant = target.variant.unwrap_or_default().to_string();
        let model = self.lib.model();
        let config = match &model {
            Some(m) => Some(self.model_config(m, target)?),
            None => None,
        };
        if self.diags.has_errors() {
            return None;
        }
        match (target.function, &model) {
            (None, Some(m)) => {
                self.program.name = m.ast.name.name.clone();
                self.model(m, config?)
            }
            (None, None) => {
                let name = self.lib.sources.name(root).to_string();
                self.diags.push(
                    Diag::error(Code::NoModel, format!("`{name}` declares no model")).help(
                        "name a function, as in `SPEC::Module.forward`, or declare a `model`",
                    ),
                );
                None
            }
            (Some(path), _) => {
                self.program.name = path.to_string();
                self.function_target(path, target, config)
            }
        }?;
        self.finish_program();
        Some(())
    }

    /// The configuration of a model, which is its one argument.
    fn model_config(
        &mut self,
        m: &Arc<Decl<ast::Module>>,
        target: &Target<'_>,
    ) -> Option<IndexMap<String, Val>> {
        let mut args = IndexMap::new();
        for a in &m.ast.args {
            let config = match &a.ty.kind {
                TyKind::Name(n) => match self.lib.lookup(m.file, &n.name).cloned() {
                    Some(Def::Config(d)) => Some(d),
                    _ => None,
                },
                _ => None,
            };
            let Some(d) = config else {
                self.diags.push(
                    Diag::error(Code::WrongKind, "the argument of a model is a configuration")
                        .label(a.ty.span, "not a configuration")
                        .help("declare a `config` with the fields of the model"),
                );
                return None;
            };
            let name = &m.ast.name.name;
            let v = self.concrete_config(name, &d, target.variant, target.settings);
            args.insert(a.name.name.clone(), v);
        }
        Some(args)
    }

    fn model(&mut self, m: &Arc<Decl<ast::Module>>, args: IndexMap<String, Val>) -> Option<()> {
        let place = Place {
            prefix: String::new(),
            path: String::new(),
            template: None,
            parts_are_templates: true,
            span: m.ast.name.span,
        };
        self.building = vec![Building::default()];
        self.at().f.name = "main".to_string();
        let instance = self.instantiate(m, args, place);
        let mut frame = Frame::of(&instance);
        self.collects(&mut frame, m);
        for i in m.ast.members.iter().filter_map(|m| match m {
            Member::Input(i) => Some(i),
            _ => None,
        }) {
            if !instance.absent.contains_key(&i.name.name) {
                self.input(&mut frame, i);
            }
        }
        let Some((body, _)) = m.ast.members.iter().find_map(|m| match m {
            Member::Forward(b, s) => Some((b, s)),
            _ => None,
        }) else {
            self.diags.push(
                Diag::error(Code::NoModel, format!("model `{}` has no `forward`", m.ast.name.name))
                    .label(m.ast.name.span, "")
                    .help("write `forward { .. }` with its losses and outputs"),
            );
            return None;
        };
        self.block(&mut frame, body);
        if self.diags.has_errors() {
            return None;
        }
        let main = self.building.pop()?.f;
        self.program.functions.push(main);
        Some(())
    }

    pub(super) fn collects(&mut self, frame: &mut Frame, m: &Arc<Decl<ast::Module>>) {
        for member in &m.ast.members {
            if let Member::Collect(name, ty) = member
                && let Some(t) = self.tensor_ty(frame, ty)
            {
                self.collects.insert(name.name.clone(), (t, name.span));
            }
        }
    }

    /// Declares an input of the model and binds its name.
    pub(super) fn input(&mut self, frame: &mut Frame, i: &ast::Input) {
        let is_sequence = matches!(&i.ty.kind, TyKind::Name(n) if n.name == "Sequence");
        if is_sequence {
            let names = ["cu_seqlens", "cu_seqlens_padded", "positions"];
            let v = self.sequence_inputs(&i.name.name, names.map(|n| Some(host_call(n))));
            frame.bind_at(&i.name.name, v, Some(i.name.span));
            return;
        }
        let from = match &i.from {
            Some((function, args)) => {
                let mut arguments = vec![];
                let mut nameless = false;
                for a in args {
                    let v = self.expr(frame, &a.value);
                    let Some(name) = &a.name else {
                        nameless = true;
                        let text = self.source_text(a.value.span);
                        let known = vlmc_data::host_fn::find(&function.name).ok();
                        let first = known.and_then(|f| f.params.first()).map_or("name", |p| p.name);
                        self.diags.push(
                            Diag::error(
                                Code::WrongArguments,
                                "arguments of a host function are named",
                            )
                            .label(a.value.span, "has no name")
                            .help(format!("write `{first} = {text}`")),
                        );
                        continue;
                    };
                    match v {
                        Val::Int(p) => {
                            // Without a variant a size is not known, but in no way too small.
                            let value = p.as_constant().unwrap_or(i64::MAX);
                            arguments.push((name.name.clone(), value));
                        }
                        other => {
                            nameless = true;
                            self.wrong_kind(a.value.span, "an integer", &other);
                        }
                    }
                }
                // What is wrong with single arguments has been said.
                if !nameless {
                    self.check_host_call(function, &arguments);
                }
                Some(HostCall { function: function.name.clone(), arguments })
            }
            None => {
                self.diags.push(
                    Diag::error(
                        Code::WrongArguments,
                        format!("it is not said where `{}` comes from", i.name.name),
                    )
                    .label(i.name.span, "an input of the model")
                    .help("add `from` and a host function, as in `from input_ids()`"),
                );
                None
            }
        };
        let v = match self.tensor_ty(frame, &i.ty) {
            Some(ty) => Val::Tensor(self.at().f.add_input(&i.name.name, ty, from)),
            None => Val::Unknown,
        };
        frame.bind_at(&i.name.name, v, Some(i.name.span));
    }

    fn check_host_call(&mut self, function: &ast::Ident, arguments: &[(String, i64)]) {
        let Ok(host) = vlmc_data::host_fn::find(&function.name) else {
            let known: Vec<String> =
                vlmc_data::host_fn::HOST_FUNCTIONS.iter().map(|f| f.name.to_string()).collect();
            self.unknown_name("host function", function, &known);
            return;
        };
        let list: Vec<(&str, i64)> = arguments.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        if let Err(e) = host.bind(&list) {
            self.diags.push(
                Diag::error(Code::WrongArguments, format!("host function {e}"))
                    .label(function.span, "called here")
                    .help(host_form(host)),
            );
        }
    }

    fn sequence_inputs(&mut self, name: &str, from: [Option<HostCall>; 3]) -> Val {
        let names = ["cu_seqlens", "cu_seqlens_padded", "positions"];
        let mut values = vec![];
        for ((field, ty), from) in names.iter().zip(Self::sequence_tys()).zip(from) {
            values.push(self.at().f.add_input(&format!("{name}.{field}"), ty, from));
        }
        Val::Sequence(Sequence {
            cu_seqlens: values[0],
            cu_seqlens_padded: values[1],
            positions: values[2],
        })
    }

    /// Lowers one function as the whole program: its tensor arguments are the inputs.
    fn function_target(
        &mut self,
        path: &str,
        target: &Target<'_>,
        config: Option<IndexMap<String, Val>>,
    ) -> Option<()> {
        let root = self.lib.root?;
        let (first, method) = path.split_once('.').map_or((path, "forward"), |(a, b)| (a, b));
        self.building = vec![Building::default()];
        self.at().f.name = "main".to_string();
        let def = self.lib.lookup(root, first).cloned();
        let (function, instance) = match &def {
            Some(Def::Fn(d)) => (&d.ast, None),
            Some(Def::Module(m)) => {
                let mut args = IndexMap::new();
                for a in &m.ast.args {
                    let mut frame = Frame::new(root);
                    for (k, v) in config.iter().flatten() {
                        frame.bind(k, v.clone());
                    }
                    let given = target.args.iter().find(|(k, _)| *k == a.name.name);
                    let v = match given {
                        Some((_, text)) => self.outside_value(&mut frame, text, &a.ty)?,
                        None => match &a.default {
                            Some(e) => self.expr(&mut frame, e),
                            None => frame.get(&a.name.name).map_or(Val::Unknown, |b| b.val.clone()),
                        },
                    };
                    if v.is_unknown() {
                        self.diags.push(
                            Diag::error(
                                Code::WrongArguments,
                                format!("`{first}` needs `{}`", a.name.name),
                            )
                            .label(a.name.span, "has no value")
                            .help(format!("give `--arg {}=..`", a.name.name)),
                        );
                        return None;
                    }
                    args.insert(a.name.name.clone(), v);
                }
                let place = Place {
                    prefix: String::new(),
                    path: String::new(),
                    template: None,
                    parts_are_templates: false,
                    span: m.ast.name.span,
                };
                let instance = self.instantiate(m, args, place);
                let Some(f) = functions(&m.ast).find(|f| f.name.name == method) else {
                    let known: Vec<_> = functions(&m.ast).map(|f| f.name.name.clone()).collect();
                    self.unknown_target(
                        path,
                        method,
                        &format!("`{first}` has no function"),
                        &known,
                    );
                    return None;
                };
                (f, Some(instance))
            }
            _ => {
                let known = self.names_of(root, |d| matches!(d, Def::Fn(_) | Def::Module(_)));
                self.unknown_target(path, first, "the spec has no function or module", &known);
                return None;
            }
        };
        let file = match &def {
            Some(Def::Fn(d)) => d.file,
            _ => instance.as_ref()?.module.file,
        };
        let callee = Callee { file, function, instance };
        let args = self.free_inputs(&callee, target)?;
        let span = function.name.span;
        let v = self.call_fn(&callee, &args, span);
        self.emit_outputs();
        let mut flat = vec![];
        flatten(&v, &mut flat);
        let names: Vec<Option<&str>> = vec![None; flat.len()];
        for (v, n) in flat.into_iter().zip(names) {
            self.at().f.add_output(n, v);
        }
        if self.diags.has_errors() {
            return None;
        }
        let main = self.building.pop()?.f;
        self.program.functions.push(main);
        Some(())
    }

    /// Reports a function on the command line that there is not.
    fn unknown_target(&mut self, path: &str, name: &str, claim: &str, known: &[String]) {
        let line = format!("SPEC::{path}");
        let at = line.len() - path.len() + path.find(name).unwrap_or(0);
        let diag = Diag::error(Code::UnknownName, format!("{claim} `{name}`")).flag(
            line,
            at..at + name.len(),
            "not found",
        );
        self.diags.push(match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => diag.help(format!("did you mean `{near}`?")),
            None => diag.help(format!("known: {}", known.join(", "))),
        });
    }

    /// Reads an argument given on the command line: an expression over the configuration.
    fn outside_value(&mut self, frame: &mut Frame, text: &str, ty: &ast::Ty) -> Option<Val> {
        let mut parts = text.split('.');
        let mut v = parts.next().and_then(|p| frame.get(p)).map(|b| b.val.clone());
        for p in parts {
            v = match v {
                Some(Val::Config(_, fields)) => fields.get(p).cloned(),
                _ => None,
            };
        }
        if v.is_some() {
            return v;
        }
        match (super::Raw::parse(text), &ty.kind) {
            (super::Raw::Int(i), TyKind::Name(n)) if n.name == "float" => {
                Some(Val::Float(Some(i as f64)))
            }
            (super::Raw::Int(i), _) => Some(Val::int(i)),
            (super::Raw::Float(f), _) => Some(Val::Float(Some(f))),
            (super::Raw::Bool(b), _) => Some(Val::Bool(Some(b))),
            (super::Raw::Text(t), TyKind::Name(n)) => match self.lib.lookup(frame.file, &n.name) {
                Some(Def::Enum(d)) => {
                    let at = d.ast.values.iter().position(|(v, _)| v.name == t)?;
                    Some(Val::Enum(d.clone(), Some(at)))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Inputs for the tensor arguments of a function; dim parameters become symbols, scalars come
    /// from `target`.
    fn free_inputs(&mut self, callee: &Callee<'_>, target: &Target<'_>) -> Option<Args> {
        let mut frame = match &callee.instance {
            Some(i) => Frame::of(i),
            None => Frame::new(callee.file),
        };
        frame.rest = Some(vec![Dim::symbol("rows")]);
        for d in &callee.function.dims {
            frame.bind(&d.name, Val::Int(Poly::symbol(&d.name)));
        }
        for a in &callee.function.args {
            let given = target.shapes.iter().find(|(k, _)| *k == a.name.name);
            if let (TyKind::Tensor(_, dims), Some((_, shape))) = (&a.ty.kind, given) {
                bind_shape(&mut frame, &callee.function.dims, dims, shape);
            }
        }
        let mut list = vec![];
        for a in &callee.function.args {
            let name = &a.name.name;
            let span = a.name.span;
            let v = match &a.ty.kind {
                TyKind::Tensor(..) if self.list_element(&frame, &a.ty).is_none() => {
                    let ty = self.tensor_ty(&mut frame, &a.ty)?;
                    Val::Tensor(self.at().f.add_input(name, ty, None))
                }
                TyKind::Name(n) if n.name == "Sequence" => {
                    self.sequence_inputs(name, [None, None, None])
                }
                _ => match target.args.iter().find(|(k, _)| k == name) {
                    Some((_, text)) => self.outside_value(&mut frame, text, &a.ty)?,
                    None if a.default.is_some() => continue,
                    None => {
                        self.diags.push(
                            Diag::error(Code::WrongArguments, format!("`{name}` needs a value"))
                                .label(span, "not a tensor")
                                .help(format!("give `--arg {name}=..`")),
                        );
                        return None;
                    }
                },
            };
            frame.bind(name, v.clone());
            list.push(Self::arg(name, v, span));
        }
        Some(Args { list })
    }

    /// Calls a function of a part that is a template: builds it when it is new.
    pub(super) fn call_template(
        &mut self,
        i: &Rc<Instance>,
        f: &ast::Fn,
        args: &Args,
        span: Span,
    ) -> Val {
        let callee = Callee { file: i.module.file, function: f, instance: Some(i.clone()) };
        // Checked here, so that messages are about the call.
        let before = self.diags.len();
        let Some(frame) = self.enter(&callee, args, span) else { return Val::Unknown };
        if self.diags.len() > before {
            return Val::Unknown;
        }
        let bound: Vec<(String, Val)> = f
            .args
            .iter()
            .filter_map(|a| Some((a.name.name.clone(), frame.get(&a.name.name)?.val.clone())))
            .collect();
        let mut flat = vec![];
        let mut key = format!("{}.{}(", i.module.ast.name.name, f.name.name);
        for a in &i.module.ast.args {
            key += &format!("{};", i.env.get(&a.name.name).map_or_else(String::new, Val::key));
        }
        for (name, v) in &bound {
            let start = flat.len();
            flatten(v, &mut flat);
            let tys: Vec<String> = flat[start..].iter().map(|t| self.ty(*t).to_string()).collect();
            let scalar = if tys.is_empty() { v.key() } else { String::new() };
            key += &format!("{name}:{scalar}{};", tys.join(","));
        }
        if !self.templates.contains_key(&key) {
            let Some(done) = self.build_template(i, f, &bound, span) else { return Val::Unknown };
            self.templates.insert(key.clone(), done);
        }
        let Some(done) = self.templates.get(&key) else { return Val::Unknown };
        let (callee, form) = (done.function.clone(), done.result.clone());
        let Some(function) = self.program.function(&callee) else { return Val::Unknown };
        let tys: Vec<Ty> = function.outputs.iter().map(|o| function.ty(o.value).clone()).collect();
        let emitted: Vec<Option<String>> = function
            .outputs
            .iter()
            .map(|o| Some(o.name.as_deref()?.strip_prefix(EMIT)?.to_string()))
            .collect();
        let template = i.template.clone().unwrap_or_else(|| super::value::Template {
            scope: String::new(),
            path: String::new(),
            layer: None,
        });
        let op =
            Op::Call { callee, scope: template.scope, path: template.path, layer: template.layer };
        let origin = self.origin(span);
        let at = self.at();
        let region = at.region;
        let id = at.f.push_node(op, flat, tys, None);
        if let Some(node) = at.f.nodes.last_mut() {
            node.region = region;
            node.origins.push(origin);
        }
        for (result, name) in emitted.iter().enumerate() {
            if let Some(name) = name {
                self.add_emitted(name, Value { node: id, result: result as u32 }, span);
            }
        }
        let mut next = 0;
        rebuild(&form, id, &mut next)
    }

    fn build_template(
        &mut self,
        i: &Rc<Instance>,
        f: &ast::Fn,
        bound: &[(String, Val)],
        span: Span,
    ) -> Option<Finished> {
        let function = self.template_name(i, f);
        let tys: Vec<Vec<Ty>> = bound
            .iter()
            .map(|(_, v)| {
                let mut flat = vec![];
                flatten(v, &mut flat);
                flat.into_iter().map(|t| self.ty(t)).collect()
            })
            .collect();
        let mut building = Building::default();
        building.f.name.clone_from(&function);
        self.building.push(building);
        let place = Place {
            prefix: String::new(),
            path: String::new(),
            template: None,
            parts_are_templates: false,
            span: i.span,
        };
        let args = i
            .module
            .ast
            .args
            .iter()
            .filter_map(|a| Some((a.name.name.clone(), i.env.get(&a.name.name)?.clone())));
        let inner = self.instantiate(&i.module, args.collect(), place);
        let mut list = vec![];
        for ((name, v), tys) in bound.iter().zip(tys) {
            let val = match v {
                Val::Tensor(_) => {
                    let ty = tys.into_iter().next()?;
                    Val::Tensor(self.at().f.add_input(name, ty, None))
                }
                Val::Sequence(_) => self.sequence_inputs(name, [None, None, None]),
                scalar => scalar.clone(),
            };
            list.push(Self::arg(name, val, span));
        }
        let callee = Callee { file: i.module.file, function: f, instance: Some(inner) };
        let result = self.call_fn(&callee, &Args { list }, span);
        let mut flat = vec![];
        flatten(&result, &mut flat);
        for v in flat {
            self.at().f.add_output(None, v);
        }
        self.emit_outputs();
        let built = self.building.pop()?.f;
        if result.is_unknown() {
            return None;
        }
        self.program.functions.push(built);
        Some(Finished { function, result })
    }

    /// What was emitted becomes extra results.
    fn emit_outputs(&mut self) {
        let at = self.at();
        for (name, v) in std::mem::take(&mut at.emitted) {
            at.f.add_output(Some(&format!("{EMIT}{name}")), v);
        }
    }

    /// `Module`, with the enumeration values among its arguments and the function's name unless it
    /// is `forward`; numbered when taken.
    fn template_name(&self, i: &Rc<Instance>, f: &ast::Fn) -> String {
        let mut name = i.module.ast.name.name.clone();
        for a in &i.module.ast.args {
            if let Some(Val::Enum(d, Some(v))) = i.env.get(&a.name.name) {
                name += &format!(".{}", d.ast.values[*v].0.name);
            }
        }
        if f.name.name != "forward" {
            name += &format!(".{}", f.name.name);
        }
        let taken = |n: &str| {
            self.program.functions.iter().any(|g| g.name == n)
                || self.building.iter().any(|b| b.f.name == n)
        };
        if !taken(&name) {
            return name;
        }
        (2..).map(|k| format!("{name}.{k}")).find(|n| !taken(n)).unwrap_or(name)
    }

    /// Fills in what follows from the functions: the symbols in use.
    fn finish_program(&mut self) {
        let mut symbols: Vec<Symbol> = vec![];
        let visit = |f: &Function, symbols: &mut Vec<Symbol>| {
            for n in &f.nodes {
                for t in &n.tys {
                    for d in &t.dims {
                        if d.size().as_constant().is_none() {
                            symbols.extend(d.size().symbols());
                        }
                    }
                }
            }
        };
        for f in &self.program.functions {
            visit(f, &mut symbols);
        }
        symbols.sort();
        symbols.dedup();
        self.program.symbols =
            symbols.into_iter().map(|symbol| SymbolDecl { symbol, multiple_of: 1 }).collect();
    }
}

/// How a host function is called.
fn host_form(f: &vlmc_data::host_fn::HostFunction) -> String {
    let argument = |p: &vlmc_data::host_fn::Param| match p.default {
        Some(d) => format!("{} = {d}", p.name),
        None => format!("{} = ..", p.name),
    };
    let list: Vec<String> = f.params.iter().map(argument).collect();
    format!("it is called as `{}({})`", f.name, list.join(", "))
}

/// Marks outputs that carry what was emitted.
const EMIT: &str = "emit ";

fn host_call(name: &str) -> HostCall {
    let function = if name == "positions" { "mrope_positions" } else { name };
    HostCall { function: function.to_string(), arguments: vec![] }
}

/// Binds the dim parameters, and `..`, that the shape of an argument tells.
fn bind_shape(frame: &mut Frame, free: &[ast::Ident], dims: &[ast::DimTy], shape: &[usize]) {
    let rest = dims.iter().position(|d| matches!(d, ast::DimTy::Rest(_)));
    let fixed = dims.len() - usize::from(rest.is_some());
    if shape.len() < fixed || (rest.is_none() && shape.len() != fixed) {
        return; // The evaluator will say so.
    }
    let extra = shape.len() - fixed;
    let mut at = 0;
    for d in dims {
        match d {
            ast::DimTy::Rest(_) => {
                let sizes = shape[at..at + extra].iter().map(|s| Dim::from(*s as i64));
                frame.rest = Some(sizes.collect());
                at += extra;
            }
            ast::DimTy::Expr(e) => {
                if let Some(n) = super::plain_name(e)
                    && free.iter().any(|f| f.name == n)
                {
                    frame.bind(n, Val::int(shape[at] as i64));
                }
                at += 1;
            }
            ast::DimTy::Segments(..) => at += 1,
        }
    }
}

/// The tensors in a value, in order.
fn flatten(v: &Val, out: &mut Vec<Value>) {
    match v {
        Val::Tensor(t) => out.push(*t),
        Val::Sequence(s) => out.extend([s.cu_seqlens, s.cu_seqlens_padded, s.positions]),
        Val::Loss(a, b) => out.extend([*a, *b]),
        Val::Tuple(items) => items.iter().for_each(|i| flatten(i, out)),
        _ => {}
    }
}

/// A value of the same form whose tensors are the results of a call.
fn rebuild(form: &Val, node: vlmc_ir::graph::NodeId, next: &mut u32) -> Val {
    let mut take = || {
        *next += 1;
        Value { node, result: *next - 1 }
    };
    match form {
        Val::Tensor(_) => Val::Tensor(take()),
        Val::Loss(..) => {
            let sum = take();
            Val::Loss(sum, take())
        }
        Val::Sequence(_) => {
            let (a, b, c) = (take(), take(), take());
            Val::Sequence(Sequence { cu_seqlens: a, cu_seqlens_padded: b, positions: c })
        }
        Val::Tuple(items) => Val::Tuple(items.iter().map(|i| rebuild(i, node, next)).collect()),
        other => other.clone(),
    }
}
