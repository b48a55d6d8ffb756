//! Expressions.

use super::library::Def;
use super::value::{ListVal, Part, Val};
use super::{Elab, Frame, PRELUDE_SYMBOLS, params};
use crate::diag::{Code, Diag};
use crate::syntax::ast::{BinaryOp, Block, Expr, ExprKind, Ident, Index, Span};
use vlmc_ir::dim::Poly;

impl Elab<'_> {
    /// Evaluates an expression. What is wrong is reported here; the value then is
    /// [`Val::Unknown`], about which nothing more is said.
    pub(super) fn expr(&mut self, frame: &mut Frame, e: &Expr) -> Val {
        match &e.kind {
            ExprKind::Error => Val::Unknown,
            ExprKind::Int(v) => Val::int(*v),
            ExprKind::Float(v) => Val::Float(Some(*v)),
            ExprKind::Str(s) => Val::Str(Some(s.as_str().into())),
            ExprKind::Bool(b) => Val::Bool(Some(*b)),
            ExprKind::Name(n) => self.name(frame, n, e.span),
            ExprKind::Field(a, name) => self.field(frame, a, name),
            ExprKind::Call(f, args) => self.call(frame, f, args, e.span),
            ExprKind::Index(a, index) => self.index(frame, a, index, e.span),
            ExprKind::Unary(op, a) => self.unary(frame, *op, a, e.span),
            ExprKind::Binary(op, a, b, at) => self.binary(frame, *op, a, b, *at, e.span),
            ExprKind::Reshape(a, dims) => {
                let v = self.expr(frame, a);
                let dims = self.dims(frame, dims);
                match (v, dims) {
                    (Val::Unknown, _) | (_, None) => Val::Unknown,
                    (v @ Val::Tensor(_), Some(dims)) => self.reshape(&v, dims, a.span, e.span),
                    (v, _) => self.wrong_kind(a.span, "a tensor", &v),
                }
            }
            ExprKind::Tuple(items) => {
                Val::Tuple(items.iter().map(|i| self.expr(frame, i)).collect())
            }
            ExprKind::List(items) => {
                let items: Vec<Val> = items.iter().map(|i| self.expr(frame, i)).collect();
                let element = items.first().cloned().unwrap_or(Val::Unknown);
                let text = self.source_text(e.span);
                Val::List(ListVal { items: Some(items), element: Box::new(element), text })
            }
            ExprKind::If(c, a, b) => self.choice(frame, c, a, b, e.span),
        }
    }

    /// What a name means: a local, a member of the module, a declaration of the file, a value of an
    /// enumeration.
    fn name(&mut self, frame: &mut Frame, n: &str, span: Span) -> Val {
        if let Some(b) = frame.get(n) {
            return b.val.clone();
        }
        if let Some(i) = frame.instance.clone() {
            if let Some(v) = i.env.get(n) {
                return self.resolve_part(v.clone());
            }
            if let Some(condition) = i.absent.get(n) {
                self.absent(n, condition, span);
                return Val::Unknown;
            }
            if let Some(p) = params(&i.module.ast).find(|p| p.name.name == n) {
                return self.param_value(&i, p);
            }
        }
        if PRELUDE_SYMBOLS.contains(&n) {
            return Val::Int(Poly::symbol(n));
        }
        if let Some(Def::Symbol(s)) = self.lib.lookup(frame.file, n) {
            return Val::Int(Poly::symbol(&s.name));
        }
        let enums = self.lib.scope(frame.file).into_iter().flat_map(|s| s.names.values());
        let found: Vec<_> = enums
            .filter_map(|d| match d {
                Def::Enum(d) => {
                    let i = d.ast.values.iter().position(|(v, _)| v.name == n)?;
                    Some((d.clone(), i))
                }
                _ => None,
            })
            .collect();
        match found.as_slice() {
            [(d, i)] => Val::Enum(d.clone(), Some(*i)),
            [] => {
                let name = Ident { name: n.to_string(), span };
                let known = self.visible_names(frame);
                match self.lib.lookup(frame.file, n) {
                    Some(d) => {
                        let kind = d.kind();
                        self.diags.push(
                            Diag::error(Code::WrongKind, format!("`{n}` is a {kind}, not a value"))
                                .label(span, "used as a value")
                                .help(format!("a {kind} is used by calling or declaring with it")),
                        );
                    }
                    None => self.unknown_name("name", &name, &known),
                }
                Val::Unknown
            }
            several => {
                let names: Vec<_> =
                    several.iter().map(|(d, _)| format!("{}.{n}", d.ast.name.name)).collect();
                self.diags.push(
                    Diag::error(
                        Code::UnknownName,
                        format!("`{n}` could be {}", names.join(" or ")),
                    )
                    .label(span, "in several enumerations")
                    .help("write it with the name of its enumeration"),
                );
                Val::Unknown
            }
        }
    }

    pub(super) fn absent(&mut self, name: &str, condition: &str, span: Span) {
        self.diags.push(
            Diag::error(Code::UnknownName, format!("`{name}` does not exist in this variant"))
                .label(span, "used here")
                .note(format!("it exists only when `{condition}`"))
                .help(format!("guard the use with `if {condition} {{ .. }}`")),
        );
    }

    /// Names that an expression may use, for suggestions.
    fn visible_names(&self, frame: &Frame) -> Vec<String> {
        let mut all: Vec<String> = frame.scopes.iter().flat_map(|s| s.keys().cloned()).collect();
        if let Some(i) = &frame.instance {
            all.extend(i.env.keys().cloned());
            all.extend(params(&i.module.ast).map(|p| p.name.name.clone()));
        }
        all.extend(PRELUDE_SYMBOLS.map(String::from));
        all.extend(self.names_of(frame.file, |d| matches!(d, Def::Symbol(_))));
        all
    }

    /// Takes the side of an unknown alternative that the assumptions say.
    fn resolve_part(&self, v: Val) -> Val {
        let Val::Part(mut part) = v else { return v };
        while let Part::Either { condition, yes, no } = part {
            match self.assumptions.iter().rev().find(|(k, _)| *k == condition) {
                Some((_, true)) => part = *yes,
                Some((_, false)) => part = *no,
                None => return Val::Part(Part::Either { condition, yes, no }),
            }
        }
        Val::Part(part)
    }

    fn field(&mut self, frame: &mut Frame, a: &Expr, name: &Ident) -> Val {
        if let ExprKind::Name(n) = &a.kind
            && frame.get(n).is_none()
            && let Some(Def::Enum(d)) = self.lib.lookup(frame.file, n).cloned()
        {
            let at = d.ast.values.iter().position(|(v, _)| v.name == name.name);
            if at.is_none() {
                let known: Vec<_> = d.ast.values.iter().map(|(v, _)| v.name.clone()).collect();
                self.unknown_name(&format!("value of `{n}`"), name, &known);
                return Val::Unknown;
            }
            return Val::Enum(d, at);
        }
        let v = self.expr(frame, a);
        match v {
            Val::Unknown => Val::Unknown,
            Val::Config(d, fields) => match fields.get(&name.name) {
                Some(v) => v.clone(),
                None => {
                    let known: Vec<_> = fields.keys().cloned().collect();
                    self.unknown_name(&format!("field of `{}`", d.ast.name.name), name, &known);
                    Val::Unknown
                }
            },
            Val::Sequence(s) => match name.name.as_str() {
                "cu_seqlens" => Val::Tensor(s.cu_seqlens),
                "cu_seqlens_padded" => Val::Tensor(s.cu_seqlens_padded),
                "positions" => Val::Tensor(s.positions),
                _ => {
                    let known = ["cu_seqlens", "cu_seqlens_padded", "positions"].map(String::from);
                    self.unknown_name("field of a Sequence", name, &known);
                    Val::Unknown
                }
            },
            Val::Part(Part::One(i)) => {
                if let Some(condition) = i.absent.get(&name.name) {
                    self.absent(&name.name, condition, name.span);
                    return Val::Unknown;
                }
                match params(&i.module.ast).find(|p| p.name.name == name.name) {
                    Some(p) => self.param_value(&i, p),
                    None => {
                        let known: Vec<_> =
                            params(&i.module.ast).map(|p| p.name.name.clone()).collect();
                        let what = format!("parameter of `{}`", i.module.ast.name.name);
                        self.unknown_name(&what, name, &known);
                        Val::Unknown
                    }
                }
            }
            other => self.wrong_kind(a.span, "something with fields", &other),
        }
    }

    fn binary(
        &mut self,
        frame: &mut Frame,
        op: BinaryOp,
        a: &Expr,
        b: &Expr,
        at: Span,
        span: Span,
    ) -> Val {
        let x = self.expr(frame, a);
        // `a and b`: b may rely on a.
        let y = match op {
            BinaryOp::And if !matches!(x, Val::Tensor(_)) => {
                if matches!(x, Val::Bool(Some(false))) {
                    return x;
                }
                self.assuming(a, true, |s| s.expr(frame, b))
            }
            _ => self.expr(frame, b),
        };
        match (&x, &y) {
            (Val::Unknown, _) | (_, Val::Unknown) => Val::Unknown,
            (Val::Tensor(_), _) | (_, Val::Tensor(_)) => {
                self.tensor_binary(op, (x, a.span), (y, b.span), at, span)
            }
            _ => self.scalar_binary(op, (x, a.span), (y, b.span), span),
        }
    }

    fn index(&mut self, frame: &mut Frame, a: &Expr, index: &[Index], span: Span) -> Val {
        let v = self.expr(frame, a);
        match v {
            Val::Unknown => Val::Unknown,
            Val::Tensor(t) => self.tensor_index(frame, t, index, span),
            Val::List(l) => {
                let [Index::At(e)] = index else {
                    return self.wrong_kind(span, "one index", &Val::List(l));
                };
                let i = match self.expr(frame, e) {
                    Val::Int(i) => i,
                    other => return self.wrong_kind(e.span, "an integer", &other),
                };
                match (&l.items, i.as_constant()) {
                    (Some(items), Some(i)) => {
                        match usize::try_from(i).ok().and_then(|i| items.get(i)) {
                            Some(v) => v.clone(),
                            None => {
                                let n = items.len();
                                self.diags.push(
                                    Diag::error(
                                        Code::InvalidOperands,
                                        format!("there is no element {i} in a list of {n}"),
                                    )
                                    .label(e.span, format!("is {i}"))
                                    .secondary(a.span, format!("{n} elements"))
                                    .help("elements are counted from 0"),
                                );
                                Val::Unknown
                            }
                        }
                    }
                    _ => match &*l.element {
                        Val::Int(_) => {
                            let text = format!("{}[{i}]", l.text);
                            Val::Int(self.opaque(&text, span))
                        }
                        other => other.clone(),
                    },
                }
            }
            Val::Part(Part::Stack(s)) => {
                let [Index::At(e)] = index else {
                    return self.wrong_kind(span, "one index", &Val::Unknown);
                };
                match self.expr(frame, e) {
                    Val::Int(i) => match self.stack_element(&s, &i) {
                        Some(i) => Val::Part(i),
                        None => Val::Unknown,
                    },
                    other => self.wrong_kind(e.span, "an integer", &other),
                }
            }
            other => self.wrong_kind(a.span, "a tensor or a list", &other),
        }
    }

    /// `if c { a } else { b }`
    fn choice(&mut self, frame: &mut Frame, c: &Expr, a: &Block, b: &Block, span: Span) -> Val {
        match self.condition(frame, c) {
            Some(true) => self.assuming(c, true, |s| s.scoped_block(frame, a)),
            Some(false) => self.assuming(c, false, |s| s.scoped_block(frame, b)),
            None if !self.symbolic => Val::Unknown,
            None => {
                let x = self.assuming(c, true, |s| s.scoped_block(frame, a));
                let y = self.assuming(c, false, |s| s.scoped_block(frame, b));
                self.join(x, y, a.span, b.span, span)
            }
        }
    }

    /// The value of an alternative of which it is not known which side will be taken.
    pub(super) fn join(&mut self, x: Val, y: Val, a: Span, b: Span, span: Span) -> Val {
        match (&x, &y) {
            (Val::Unknown, _) | (_, Val::Unknown) => Val::Unknown,
            (Val::Int(p), Val::Int(q)) if p == q => x,
            (Val::Int(_), Val::Int(_)) => {
                let text = self.source_text(span);
                Val::Int(self.opaque(&text, span))
            }
            (Val::Float(_) | Val::Int(_), Val::Float(_) | Val::Int(_)) => Val::Float(None),
            (Val::Bool(_), Val::Bool(_)) => Val::Bool(None),
            (Val::Str(_), Val::Str(_)) => Val::Str(None),
            (Val::Enum(d, i), Val::Enum(e, j)) if std::sync::Arc::ptr_eq(d, e) => {
                if i == j {
                    x
                } else {
                    Val::Enum(d.clone(), None)
                }
            }
            (Val::Tensor(s), Val::Tensor(t)) => {
                let (s, t) = (self.ty(*s), self.ty(*t));
                if s.same_shape(&t) && s.dtype == t.dtype {
                    return x;
                }
                self.sides_differ(&x, &y, a, b);
                Val::Unknown
            }
            (Val::Tuple(s), Val::Tuple(t)) if s.len() == t.len() => {
                let pairs = s.iter().zip(t);
                let items = pairs.map(|(s, t)| self.join(s.clone(), t.clone(), a, b, span));
                Val::Tuple(items.collect())
            }
            (Val::Sequence(_), Val::Sequence(_)) | (Val::Loss(..), Val::Loss(..)) => x,
            (Val::List(_), Val::List(_)) | (Val::Config(..), Val::Config(..)) => x,
            _ => {
                self.sides_differ(&x, &y, a, b);
                Val::Unknown
            }
        }
    }

    fn sides_differ(&mut self, x: &Val, y: &Val, a: Span, b: Span) {
        let (x, y) = (self.show(x), self.show(y));
        self.diags.push(
            Diag::error(Code::BranchesDiffer, "the two sides of this choice have different types")
                .label(a, x)
                .label(b, y)
                .help("whatever is chosen, what follows must fit both"),
        );
    }
}
