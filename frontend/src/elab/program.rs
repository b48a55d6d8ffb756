//! From a model, or one function of a spec, to a program.

use super::config::Setting;
use super::library::{Decl, Def, Library};
use super::module::Place;
use super::value::{Sequence, Val};
use super::{Building, Elab, Frame};
use crate::diag::{Code, Diag, Diags};
use crate::syntax::ast::{self, Member, TyKind};
use indexmap::IndexMap;
use std::sync::Arc;
use vlmc_ir::dim::{Poly, Symbol};
use vlmc_ir::graph::{Function, HostCall, Program, SymbolDecl};
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
        self.one_name_each(model.as_ref());
        (!self.diags.has_errors()).then_some(())
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
            if let Some((function, _)) = &i.from {
                self.diags.push(
                    Diag::error(Code::WrongArguments, "a `Sequence` comes from the batch itself")
                        .label(function.span, "no host function gives one")
                        .help(format!("write `input {} : Sequence`", i.name.name)),
                );
            }
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
            Some(ty) => {
                self.check_host_result(i, &ty);
                Val::Tensor(self.at().f.add_input(&i.name.name, ty, from))
            }
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

    /// The declared type of an input must be what its host function gives. Sizes that neither the
    /// pack nor a number tells, as of pictures, are checked when a batch is read.
    fn check_host_result(&mut self, i: &ast::Input, ty: &Ty) {
        let Some((function, _)) = &i.from else { return };
        let Ok(host) = vlmc_data::host_fn::find(&function.name) else { return };
        use vlmc_data::Dtype::{BF16, F16, F32};
        let floats = matches!(host.dtype, F32 | BF16 | F16);
        let gives = format!(
            "{}[{}]",
            if floats { "float" } else { "i32" },
            host.dims.iter().map(|d| rows_in_spec(d)).collect::<Vec<_>>().join(", ")
        );
        let code = if ty.dtype.is_float() != floats || ty.dtype == DType::Bool {
            Code::DtypeMismatch
        } else if ty.dims.len() != host.dims.len() {
            Code::RankMismatch
        } else if ty.dims.iter().zip(host.dims).any(|(d, h)| differs(d.size(), h)) {
            Code::DimMismatch
        } else {
            return;
        };
        self.diags.push(
            Diag::error(code, format!("`{}` is not what `{}` gives", i.name.name, function.name))
                .label(i.ty.span, format!("is {ty}"))
                .secondary(function.span, format!("gives {gives}: {}", host.doc))
                .help("declare the input with the type of its host function"),
        );
    }

    pub(super) fn sequence_inputs(&mut self, name: &str, from: [Option<HostCall>; 3]) -> Val {
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

/// A dim of a host function in the words of a spec.
fn rows_in_spec(dim: &str) -> &str {
    if dim == "tokens" { "T" } else { dim }
}

/// Whether a size cannot be the dim of a host function.
fn differs(size: &Poly, dim: &str) -> bool {
    let wanted = match (rows_in_spec(dim), dim.parse()) {
        (_, Ok(n)) => Poly::constant(n),
        ("T", _) => Poly::symbol("T"),
        ("docs + 1", _) => Poly::symbol("docs").add(&Poly::constant(1)),
        _ => return false,
    };
    *size != wanted
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

fn host_call(name: &str) -> HostCall {
    let function = if name == "positions" { "mrope_positions" } else { name };
    HostCall { function: function.to_string(), arguments: vec![] }
}
