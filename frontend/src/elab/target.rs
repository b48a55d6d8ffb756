//! One function of a spec as the whole program: its tensor arguments are the inputs.

use super::call::{Args, Callee};
use super::config::Setting;
use super::library::Def;
use super::module::Place;
use super::program::Target;
use super::template::flatten;
use super::value::Val;
use super::{Building, Elab, Frame, functions};
use crate::diag::{Code, Diag, nearest};
use crate::syntax::ast::{self, TyKind};
use indexmap::IndexMap;
use vlmc_ir::dim::{Dim, Poly};

impl Elab<'_> {
    /// Lowers one function as the whole program: its tensor arguments are the inputs.
    pub(super) fn function_target(
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
                            None => match frame.get(&a.name.name).map(|b| b.val.clone()) {
                                Some(v) => v,
                                None => self.default_argument(m.file, a, target),
                            },
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

    /// A configuration that nothing else gives: its defaults, with the settings below its name
    /// (`--set c.hidden=32`).
    pub(super) fn default_argument(
        &mut self,
        file: ast::FileId,
        a: &ast::Arg,
        target: &Target<'_>,
    ) -> Val {
        let TyKind::Name(n) = &a.ty.kind else { return Val::Unknown };
        let Some(Def::Config(d)) = self.lib.lookup(file, &n.name).cloned() else {
            return Val::Unknown;
        };
        let below = target.settings.iter().filter_map(|s| {
            let (first, rest) = s.path.split_first()?;
            let ours = *first == a.name.name && !rest.is_empty();
            ours.then(|| Setting { path: rest.to_vec(), ..s.clone() })
        });
        let settings: Vec<Setting> = below.collect();
        self.concrete_config("", &d, None, &settings)
    }

    /// Reports a function on the command line that there is not.
    pub(super) fn unknown_target(&mut self, path: &str, name: &str, claim: &str, known: &[String]) {
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
    pub(super) fn outside_value(
        &mut self,
        frame: &mut Frame,
        text: &str,
        ty: &ast::Ty,
    ) -> Option<Val> {
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
    pub(super) fn free_inputs(&mut self, callee: &Callee<'_>, target: &Target<'_>) -> Option<Args> {
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
