//! Values of configuration fields: as they come from outside, and the types that read them.

use super::Elab;
use super::library::Decl;
use super::value::{ListVal, Val};
use crate::diag::{Diag, nearest};
use crate::syntax::ast::{self, Expr, ExprKind, Span, UnaryOp};
use std::sync::Arc;

/// A value from outside: a literal of a spec, `--set`, or a checkpoint's configuration file.
#[derive(Clone, PartialEq, Debug)]
pub enum Raw {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string, or the name of a value of an enumeration.
    Text(String),
    /// A list.
    List(Vec<Raw>),
}

impl Raw {
    /// Reads what stands after `=` in `--set key=value`.
    pub fn parse(text: &str) -> Raw {
        let text = text.trim();
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let items = inner.split(',').map(str::trim).filter(|t| !t.is_empty());
            return Raw::List(items.map(Raw::parse).collect());
        }
        if let Ok(v) = text.replace('_', "").parse() {
            return Raw::Int(v);
        }
        match (text, text.parse()) {
            ("true", _) => Raw::Bool(true),
            ("false", _) => Raw::Bool(false),
            (_, Ok(v)) => Raw::Float(v),
            _ => Raw::Text(text.trim_matches('"').to_string()),
        }
    }
}

impl std::fmt::Display for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Raw::Int(v) => write!(f, "{v}"),
            Raw::Float(v) => write!(f, "{v:?}"),
            Raw::Bool(v) => write!(f, "{v}"),
            Raw::Text(v) => write!(f, "{v}"),
            Raw::List(v) => {
                let items: Vec<_> = v.iter().map(Raw::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}

/// Where a field got its value.
#[derive(Clone, PartialEq, Debug)]
pub enum Setter {
    /// A variant of a spec.
    Spec(Span),
    /// A flag, as written.
    Flag(String),
}

/// `a.b = value` and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// The field, from the root configuration down.
    pub path: Vec<String>,
    /// Its value.
    pub value: Raw,
    /// Where.
    pub setter: Setter,
}

/// The type of a field, resolved.
pub(super) enum FieldTy {
    Int,
    Float,
    Bool,
    Str,
    Enum(Arc<Decl<ast::Enum>>),
    Config(Arc<Decl<ast::Config>>),
    List(Box<FieldTy>),
}

impl FieldTy {
    pub(super) fn name(&self) -> String {
        match self {
            FieldTy::Int => "int".into(),
            FieldTy::Float => "float".into(),
            FieldTy::Bool => "bool".into(),
            FieldTy::Str => "string".into(),
            FieldTy::Enum(d) => d.ast.name.name.clone(),
            FieldTy::Config(d) => d.ast.name.name.clone(),
            FieldTy::List(t) => format!("[{}]", t.name()),
        }
    }

    /// A value of the type of which nothing is known but how it is written.
    pub(super) fn symbolic(&self, elab: &mut Elab<'_>, text: &str, span: Span) -> Val {
        match self {
            FieldTy::Int => Val::Int(elab.opaque(text, span)),
            FieldTy::Float => Val::Float(None),
            FieldTy::Bool => Val::Bool(None),
            FieldTy::Str => Val::Str(None),
            FieldTy::Enum(d) => Val::Enum(d.clone(), None),
            FieldTy::Config(d) => elab.symbolic_config(d, text),
            FieldTy::List(t) => Val::List(ListVal {
                items: None,
                element: Box::new(t.symbolic(elab, &format!("{text}[]"), span)),
                text: text.to_string(),
            }),
        }
    }

    /// The value that `raw` stands for.
    pub(super) fn read(&self, raw: &Raw) -> Result<Val, BadValue> {
        let found = |what: &str| {
            let message = format!("expected {}, found {what}", self.name());
            Err(BadValue { message, near: None })
        };
        match (self, raw) {
            (FieldTy::Int, Raw::Int(v)) => Ok(Val::int(*v)),
            (FieldTy::Float, Raw::Int(v)) => Ok(Val::Float(Some(*v as f64))),
            (FieldTy::Float, Raw::Float(v)) => Ok(Val::Float(Some(*v))),
            (FieldTy::Bool, Raw::Bool(v)) => Ok(Val::Bool(Some(*v))),
            (FieldTy::Str, Raw::Text(v)) => Ok(Val::Str(Some(v.as_str().into()))),
            (FieldTy::Enum(d), Raw::Text(v)) => {
                let matches = |(name, text): &(ast::Ident, Option<ast::Text>)| {
                    name.name == *v || text.as_ref().is_some_and(|t| t.value == *v)
                };
                match d.ast.values.iter().position(matches) {
                    Some(i) => Ok(Val::Enum(d.clone(), Some(i))),
                    None => {
                        let names: Vec<_> = d.ast.values.iter().map(|(n, _)| &*n.name).collect();
                        let near = nearest(v, names.iter().copied()).map(String::from);
                        let message = format!("`{v}` is none of {}", names.join(", "));
                        Err(BadValue { message, near })
                    }
                }
            }
            (FieldTy::List(t), Raw::List(items)) => {
                let items: Result<Vec<Val>, BadValue> = items.iter().map(|i| t.read(i)).collect();
                let element = match &**t {
                    FieldTy::Int => Val::int(0),
                    FieldTy::Float => Val::Float(None),
                    FieldTy::Bool => Val::Bool(None),
                    FieldTy::Enum(d) => Val::Enum(d.clone(), None),
                    _ => Val::Str(None),
                };
                Ok(Val::List(ListVal {
                    items: Some(items?),
                    element: Box::new(element),
                    text: raw.to_string(),
                }))
            }
            (_, Raw::List(_)) => found("a list"),
            (_, raw) => found(&format!("`{raw}`")),
        }
    }
}

/// Why a value is refused.
pub(super) struct BadValue {
    pub(super) message: String,
    /// The name that was meant.
    near: Option<String>,
}

impl BadValue {
    /// Says what to write instead.
    pub(super) fn advise(&self, diag: Diag, ty: &str, have: &str) -> Diag {
        match (&self.near, ty) {
            (Some(near), _) => diag.help(format!("did you mean `{near}`?")),
            (None, "int") if have.parse::<f64>().is_ok() => {
                diag.help("write a whole number, or make the field `float`")
            }
            (None, "bool") => diag.help("write `true` or `false`"),
            (None, "string") => diag.help("write it in double quotes"),
            (None, ty) if ty.starts_with('[') => {
                diag.help(format!("write a list, as in `[a, b]`, whose values fit {ty}"))
            }
            (None, ty) => diag.help(format!("write a value of type {ty}")),
        }
    }
}

/// A literal as a value from outside; `None` when it is none.
pub fn literal(e: &Expr) -> Option<Raw> {
    match &e.kind {
        ExprKind::Int(v) => Some(Raw::Int(*v)),
        ExprKind::Float(v) => Some(Raw::Float(*v)),
        ExprKind::Bool(v) => Some(Raw::Bool(*v)),
        ExprKind::Str(v) => Some(Raw::Text(v.clone())),
        ExprKind::Name(n) => Some(Raw::Text(n.clone())),
        ExprKind::Field(_, n) => Some(Raw::Text(n.name.clone())),
        ExprKind::List(items) => items.iter().map(literal).collect::<Option<_>>().map(Raw::List),
        ExprKind::Unary(UnaryOp::Neg, e) => match literal(e)? {
            Raw::Int(v) => Some(Raw::Int(v.checked_neg()?)),
            Raw::Float(v) => Some(Raw::Float(-v)),
            _ => None,
        },
        _ => None,
    }
}
