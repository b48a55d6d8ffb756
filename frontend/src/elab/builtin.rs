//! Functions of the language itself, and every op of the table under its own name.

use super::call::Args;
use super::value::Val;
use super::{Elab, Frame};
use crate::diag::{Code, Diag, nearest};
use crate::syntax::ast::Span;
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::graph::Value;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::{DType, Ty};

/// Names of the functions in this file with their arguments, for suggestions and arity errors.
const BUILTINS: &[(&str, &[&str])] = &[
    ("f32", &["x"]),
    ("narrow", &["x"]),
    ("i32", &["x"]),
    ("sum", &["x", "axis", "keep"]),
    ("mean", &["x", "axis", "keep"]),
    ("max", &["x", "axis", "keep"]),
    ("min", &["a", "b"]),
    ("where", &["condition", "a", "b"]),
    ("concat", &["xs", "axis"]),
    ("split", &["x", "sizes", "axis"]),
    ("repeat", &["x", "times", "axis"]),
    ("transpose", &["x", "permutation"]),
    ("iota", &["n"]),
    ("einsum", &["pattern", "a", "b", "wide"]),
    ("Loss", &["sum", "count"]),
    ("total", &["name"]),
    ("len", &["list"]),
    ("int", &["x"]),
    ("float", &["x"]),
    ("sqrt", &["x"]),
];

impl Elab<'_> {
    /// Calls a function of the language or an op; `None` when there is none of that name.
    pub(super) fn builtin(
        &mut self,
        frame: &mut Frame,
        name: &str,
        args: &Args,
        span: Span,
    ) -> Option<Val> {
        let _ = &frame;
        let scalars = args.list.iter().all(|a| !matches!(a.val, Val::Tensor(_)));
        let entry = BUILTINS.iter().find(|(n, _)| *n == name);
        // `sqrt` of a tensor is the op; `max` of two tensors, too.
        let is_op = match name {
            "sqrt" => !scalars,
            "max" => {
                args.list.len() == 2 && args.list.iter().all(|a| matches!(a.val, Val::Tensor(_)))
            }
            "min" => !scalars,
            _ => false,
        };
        match entry {
            Some((_, names)) if !is_op => {
                if args.list.iter().any(|a| a.val.is_unknown()) {
                    return Some(Val::Unknown);
                }
                let bound = match self.bind_names(name, names, args) {
                    Some(b) => b,
                    None => return Some(Val::Unknown),
                };
                Some(self.run_builtin(name, &bound, span))
            }
            _ => self.table_op(name, args, span),
        }
    }

    /// Names that can be called, for suggestions.
    pub(super) fn builtin_names() -> Vec<String> {
        let ops = Op::all().iter().filter(|o| o.effect == vlmc_ir::ops::Effect::Pure);
        BUILTINS.iter().map(|(n, _)| n.to_string()).chain(ops.map(|o| o.name.to_string())).collect()
    }

    /// Arguments in the order of `names`, absent ones `None`.
    fn bind_names(
        &mut self,
        function: &str,
        names: &[&str],
        args: &Args,
    ) -> Option<Vec<Option<(Val, Span)>>> {
        let mut out = vec![None; names.len()];
        for (i, a) in args.list.iter().enumerate() {
            let at = match &a.name {
                Some(n) => names.iter().position(|k| *k == n.name),
                None => Some(i).filter(|i| *i < names.len()),
            };
            match at {
                Some(at) if out[at].is_none() => out[at] = Some((a.val.clone(), a.span)),
                _ => {
                    let diag = super::call::misplaced(function, names, a, at.is_some());
                    self.diags.push(diag);
                    return None;
                }
            }
        }
        Some(out)
    }

    fn missing_argument(&mut self, function: &str, name: &str, span: Span) -> Val {
        self.diags.push(
            Diag::error(Code::WrongArguments, format!("`{function}` needs `{name}`"))
                .label(span, format!("`{name}` is missing"))
                .help(match name {
                    "axis" => "add the axis: 0 is the first, -1 the last".to_string(),
                    name => format!("add `{name}`"),
                }),
        );
        Val::Unknown
    }

    fn run_builtin(&mut self, name: &str, b: &[Option<(Val, Span)>], span: Span) -> Val {
        let Some(first) = b[0].clone() else {
            let names =
                BUILTINS.iter().find(|(n, _)| *n == name).map_or("an argument", |(_, a)| a[0]);
            return self.missing_argument(name, names, span);
        };
        match name {
            "f32" => self.cast(first, DType::F32, span),
            "narrow" => self.cast(first, self.dtype, span),
            "i32" => self.cast(first, DType::I32, span),
            "sum" | "mean" | "max" => self.reduction(name, b, span),
            "min" => {
                let Some(other) = b[1].clone() else {
                    return self.missing_argument(name, "b", span);
                };
                match (self.real(&first.0, first.1), self.real(&other.0, other.1)) {
                    (Some(x), Some(y)) if x <= y => first.0,
                    (Some(_), Some(_)) => other.0,
                    _ => Val::Float(None),
                }
            }
            "where" => match (b[1].clone(), b[2].clone()) {
                (Some(x), Some(y)) => {
                    if let Val::Bool(_) = first.0 {
                        self.diags.push(
                            Diag::error(Code::WrongKind, "`where` chooses by a tensor")
                                .label(first.1, "is known when compiling")
                                .help("write `if .. { .. } else { .. }`"),
                        );
                        return Val::Unknown;
                    }
                    self.elementwise(Op::Select, vec![first, x, y], span, span)
                }
                _ => self.missing_argument(name, "b", span),
            },
            "concat" => self.concat(first, b[1].clone(), span),
            "split" => self.split(first, b[1].clone(), b[2].clone(), span),
            "repeat" => {
                let (Some((times, times_span)), Some(axis)) = (b[1].clone(), b[2].clone()) else {
                    return self.missing_argument(name, "axis", span);
                };
                let Val::Int(times) = times else {
                    return self.wrong_kind(times_span, "an integer", &times);
                };
                let Some(axis) = self.axis(&first, &axis) else { return Val::Unknown };
                self.op_call(Op::Repeat { axis, times: times.into() }, &[first], span)
            }
            "transpose" => {
                let Some((Val::List(l), _)) = &b[1] else {
                    return self.missing_argument(name, "permutation", span);
                };
                let items = l.items.iter().flatten();
                let permutation = items
                    .map(|v| match v {
                        Val::Int(p) => p.as_constant().and_then(|c| u32::try_from(c).ok()),
                        _ => None,
                    })
                    .collect::<Option<Vec<u32>>>();
                match permutation {
                    Some(permutation) => {
                        self.op_call(Op::Transpose { permutation }, &[first], span)
                    }
                    None => self.wrong_kind(span, "a list of axes", &Val::List(l.clone())),
                }
            }
            "iota" => match first.0 {
                Val::Int(n) => {
                    self.op_call(Op::Iota { shape: vec![Dim::new(n)], axis: 0 }, &[], span)
                }
                other => self.wrong_kind(first.1, "an integer", &other),
            },
            "einsum" => {
                let wide = matches!(b[3], Some((Val::Bool(Some(true)), _)));
                self.einsum(first, b[1].clone(), b[2].clone(), wide, span)
            }
            "Loss" => {
                let Some(count) = b[1].clone() else {
                    return self.missing_argument(name, "count", span);
                };
                match (self.loss_part(first), self.loss_part(count)) {
                    (Some(s), Some(c)) => Val::Loss(s, c),
                    _ => Val::Unknown,
                }
            }
            "len" => match first.0 {
                Val::List(l) => match l.items {
                    Some(items) => Val::int(items.len() as i64),
                    None => Val::Int(self.opaque(&format!("len({})", l.text), span)),
                },
                other => self.wrong_kind(first.1, "a list", &other),
            },
            "int" => match first.0 {
                Val::Int(p) => Val::Int(p),
                Val::Float(Some(f)) if f.is_finite() => Val::int(f as i64),
                Val::Float(_) => {
                    let text = self.source_text(span);
                    Val::Int(self.opaque(&text, span))
                }
                other => self.wrong_kind(first.1, "a number", &other),
            },
            "float" => Val::Float(self.real(&first.0, first.1)),
            "sqrt" => match first.0 {
                Val::Int(_) | Val::Float(_) => {
                    Val::Float(self.real(&first.0, first.1).map(f64::sqrt))
                }
                other => self.wrong_kind(first.1, "a number", &other),
            },
            _ => Val::Unknown,
        }
    }

    fn loss_part(&mut self, (v, span): (Val, Span)) -> Option<Value> {
        match v {
            Val::Tensor(t) => {
                let ty = self.ty(t);
                if ty.rank() == 0 && ty.dtype == DType::F32 {
                    return Some(t);
                }
                self.diags.push(
                    Diag::error(Code::NotALoss, "the parts of a loss are f32 scalars")
                        .label(span, self.ty_text(&ty))
                        .help("sum over the rows in f32, as in `sum(f32(x), 0)`"),
                );
                None
            }
            Val::Int(_) | Val::Float(_) => {
                let number = self.real(&v, span).unwrap_or(0.0);
                self.constant(number, Ty::scalar(DType::F32), span)
            }
            other => {
                self.wrong_kind(span, "a tensor", &other);
                None
            }
        }
    }

    fn cast(&mut self, (v, at): (Val, Span), dtype: DType, span: Span) -> Val {
        match v {
            // A float of the wanted type needs no node; the maths is the same.
            Val::Tensor(t) if self.ty(t).dtype == dtype => Val::Tensor(t),
            Val::Tensor(_) => self.op_call(Op::Cast { dtype }, &[(v, at)], span),
            Val::Int(_) | Val::Float(_) => {
                let number = self.real(&v, at).unwrap_or(0.0);
                match self.constant(number, Ty::scalar(dtype), span) {
                    Some(t) => Val::Tensor(t),
                    None => Val::Unknown,
                }
            }
            other => self.wrong_kind(at, "a tensor", &other),
        }
    }

    /// An axis argument; negative ones count from the last.
    fn axis(&mut self, x: &(Val, Span), axis: &(Val, Span)) -> Option<u32> {
        let rank = match &x.0 {
            Val::Tensor(t) => self.ty(*t).rank() as i64,
            other => {
                self.wrong_kind(x.1, "a tensor", other);
                return None;
            }
        };
        let i = match &axis.0 {
            Val::Int(p) => p.as_constant(),
            other => {
                self.wrong_kind(axis.1, "an axis", other);
                return None;
            }
        };
        match i.map(|i| if i < 0 { i + rank } else { i }) {
            Some(i) if (0..rank).contains(&i) => Some(i as u32),
            _ => {
                let shown = self.show(&x.0);
                self.diags.push(
                    Diag::error(Code::RankMismatch, "there is no such axis")
                        .label(axis.1, format!("not from {} to {}", -rank, rank - 1))
                        .secondary(x.1, shown)
                        .help("axes count from 0, or from -1 backwards"),
                );
                None
            }
        }
    }

    fn reduction(&mut self, name: &str, b: &[Option<(Val, Span)>], span: Span) -> Val {
        let Some(x) = b[0].clone() else { return Val::Unknown };
        let Some(axis) = b[1].clone() else {
            return self.missing_argument(name, "axis", span);
        };
        let keep = matches!(b[2], Some((Val::Bool(Some(true)), _)));
        let Some(axis) = self.axis(&x, &axis) else { return Val::Unknown };
        let Val::Tensor(t) = x.0 else { return Val::Unknown };
        let ty = self.ty(t);
        let op = match name {
            "max" => Op::ReduceMax { axes: vec![axis] },
            _ => Op::ReduceSum { axes: vec![axis] },
        };
        let mut v = self.op_call(op, &[x], span);
        if name == "mean" {
            let n = ty.dims[axis as usize].size().clone();
            let n = self.reciprocal(&n, span);
            v = self.elementwise(Op::Mul, vec![(v, span), (n, span)], span, span);
        }
        if keep && matches!(v, Val::Tensor(_)) {
            let mut dims = ty.dims;
            dims[axis as usize] = Dim::from(1);
            v = self.reshape(&v, dims, (span, span), span);
        }
        v
    }

    /// `1 / n` of a size that is known when compiling.
    fn reciprocal(&mut self, n: &Poly, span: Span) -> Val {
        if let Some(s) = n.symbols().iter().find(|s| !self.symbols.contains_key(&*s.0)) {
            // Dim parameters of a function under check are not known either, but will be.
            if !self.symbolic || super::PRELUDE_SYMBOLS.contains(&&*s.0) {
                self.diags.push(
                    Diag::error(
                        Code::WrongKind,
                        format!("the mean over `{s}` depends on the batch"),
                    )
                    .label(span, format!("`{s}` rows, padding included"))
                    .help("divide a sum over valid rows by their number"),
                );
                return Val::Unknown;
            }
        }
        Val::Float(n.as_constant().map(|c| 1.0 / c as f64))
    }

    fn concat(&mut self, xs: (Val, Span), axis: Option<(Val, Span)>, span: Span) -> Val {
        let Val::List(l) = &xs.0 else {
            return self.wrong_kind(xs.1, "a list of tensors", &xs.0);
        };
        let items = l.items.clone().unwrap_or_default();
        let Some(first) = items.first() else {
            return self.wrong_kind(xs.1, "a list of tensors", &xs.0);
        };
        let Some(axis) = axis else { return self.missing_argument("concat", "axis", span) };
        let Some(axis) = self.axis(&(first.clone(), xs.1), &axis) else { return Val::Unknown };
        let args: Vec<_> = items.into_iter().map(|v| (v, xs.1)).collect();
        self.op_call(Op::Concat { axis }, &args, span)
    }

    fn split(
        &mut self,
        x: (Val, Span),
        sizes: Option<(Val, Span)>,
        axis: Option<(Val, Span)>,
        span: Span,
    ) -> Val {
        let Val::Tensor(t) = x.0 else { return self.wrong_kind(x.1, "a tensor", &x.0) };
        let ty = self.ty(t);
        let sizes_span = sizes.as_ref().map(|(_, s)| *s);
        let axis = match &axis {
            Some(a) => match self.axis(&x, a) {
                Some(a) => a as usize,
                None => return Val::Unknown,
            },
            None if sizes.is_some() => ty.rank().saturating_sub(1),
            None => match ty.dims.iter().rposition(|d| !d.segments().is_empty()) {
                Some(i) => i,
                None => {
                    self.diags.push(
                        Diag::error(Code::SplitSizes, "no dim of this tensor has named segments")
                            .label(x.1, self.ty_text(&ty))
                            .help("give the sizes, as in `split(x, [a, b])`, or name the segments where the dim is declared"),
                    );
                    return Val::Unknown;
                }
            },
        };
        let Some(dim) = ty.dims.get(axis) else {
            return self.wrong_kind(x.1, "a tensor with dims", &x.0);
        };
        let sizes: Vec<Poly> = match sizes {
            None => dim.segments().iter().map(|(_, p)| p.clone()).collect(),
            Some((Val::List(l), _)) => {
                let items = l.items.unwrap_or_default();
                let ints = items.iter().map(|v| match v {
                    Val::Int(p) => Some(p.clone()),
                    _ => None,
                });
                match ints.collect() {
                    Some(s) => s,
                    None => return self.wrong_kind(span, "a list of sizes", &Val::Unknown),
                }
            }
            Some((other, s)) => return self.wrong_kind(s, "a list of sizes", &other),
        };
        let sum = sizes.iter().fold(Poly::default(), |s, p| s.add(p));
        if sum != *dim.size() {
            let mut diag = Diag::error(
                Code::SplitSizes,
                format!("the sizes add up to `{sum}`, the dim has `{}`", dim.size()),
            )
            .label(sizes_span.unwrap_or(span), format!("together {sum}"))
            .secondary(x.1, format!("dim {axis} of {}", self.ty_text(&ty)));
            diag = self.explain_symbols(diag, &[&sum, dim.size()]);
            let rest = dim.size().sub(&sum);
            self.diags.push(
                diag.help(format!("the pieces must cover the dim; `{rest}` is the difference")),
            );
            return Val::Unknown;
        }
        let mut start = Poly::default();
        let mut out = vec![];
        for size in sizes {
            match self.slice(t, axis, start.clone(), size.clone(), span) {
                Some(v) => out.push(Val::Tensor(v)),
                None => return Val::Unknown,
            }
            start = start.add(&size);
        }
        Val::Tuple(out)
    }

    /// An op applied to tensors.
    pub(super) fn op_call(&mut self, op: Op, args: &[(Val, Span)], span: Span) -> Val {
        let mut operands = vec![];
        let mut spans = vec![];
        for (v, s) in args {
            match v {
                Val::Tensor(t) => operands.push(*t),
                Val::Unknown => return Val::Unknown,
                other => return self.wrong_kind(*s, "a tensor", other),
            }
            spans.push(*s);
        }
        match self.push(op.clone(), &operands, span) {
            Ok(id) => {
                let n = self.at().f.node(id).tys.len();
                match n {
                    1 => Val::Tensor(id.into()),
                    n => {
                        let result = |i| Val::Tensor(Value { node: id, result: i as u32 });
                        Val::Tuple((0..n).map(result).collect())
                    }
                }
            }
            Err(e) => self.type_error(&op, e, (&operands, &spans), span),
        }
    }

    /// Calls an op of the table: operands in order, attributes by name. A Sequence stands for the
    /// boundaries.
    fn table_op(&mut self, name: &str, args: &Args, span: Span) -> Option<Val> {
        let info =
            Op::all().iter().find(|o| o.name == name && o.effect == vlmc_ir::ops::Effect::Pure)?;
        let attribute = |n: &str| info.attributes.iter().any(|(a, _)| *a == n);
        let mut operands: Vec<(Val, Span)> = vec![];
        let mut attributes: Vec<(&str, String, Span)> = vec![];
        for a in &args.list {
            match &a.name {
                Some(n) if attribute(&n.name) => match attribute_text(&a.val) {
                    Some(text) => attributes.push((&n.name, text, a.span)),
                    None if a.val.is_unknown() => return Some(Val::Unknown),
                    None => {
                        return Some(self.wrong_kind(
                            a.span,
                            "a number known when compiling",
                            &a.val,
                        ));
                    }
                },
                Some(n) => {
                    let known: Vec<String> =
                        info.attributes.iter().map(|(a, _)| a.to_string()).collect();
                    let diag = Diag::error(
                        Code::WrongArguments,
                        format!("op `{name}` has no attribute `{}`", n.name),
                    )
                    .label(n.span, "unknown");
                    let diag = match nearest(&n.name, known.iter().map(String::as_str)) {
                        Some(k) => diag.help_edit(format!("did you mean `{k}`?"), n.span, k),
                        None if known.is_empty() => diag.help("it takes operands only"),
                        None => diag.help(format!("attributes: {}", known.join(", "))),
                    };
                    self.diags.push(diag);
                    return Some(Val::Unknown);
                }
                None => match &a.val {
                    Val::Sequence(s) => {
                        operands.push((Val::Tensor(s.cu_seqlens), a.span));
                        operands.push((Val::Tensor(s.cu_seqlens_padded), a.span));
                    }
                    v => operands.push((v.clone(), a.span)),
                },
            }
        }
        // In the text of a graph a bool that is not written is false. In a spec that would make
        // attention see later rows without a word.
        let given = |n: &str| attributes.iter().any(|(k, ..)| *k == n);
        if let Some((n, t)) = info.attributes.iter().find(|(n, t)| *t == "bool" && !given(n)) {
            let form = vlmc_ir::ops::reference::attribute_type(t);
            self.diags.push(missing_attribute(name, n, &form, span));
            return Some(Val::Unknown);
        }
        let mut get = |n: &str, _: &str| {
            attributes.iter().find(|(k, ..)| *k == n).map(|(_, text, _)| text.clone())
        };
        match Op::from_attributes(name, &mut get)? {
            Ok(op) => Some(self.op_call(op, &operands, span)),
            Err(e) => {
                let place = attributes.iter().find(|(k, ..)| *k == e.name).map_or(span, |a| a.2);
                let words = |t: &str| vlmc_ir::ops::reference::attribute_type(t);
                let own = info.attributes.iter().find(|(a, _)| *a == e.name);
                let form = own.map_or_else(String::new, |(_, t)| words(t));
                let diag = if e.reason == "is missing" {
                    missing_attribute(name, e.name, &form, place)
                } else {
                    Diag::error(Code::WrongArguments, format!("op `{name}`: {e}"))
                        .label(place, "does not fit")
                        .help(format!("it takes: {form}"))
                };
                self.diags.push(diag);
                Some(Val::Unknown)
            }
        }
    }
}

fn missing_attribute(op: &str, attribute: &str, form: &str, at: Span) -> Diag {
    Diag::error(Code::WrongArguments, format!("op `{op}` needs the attribute `{attribute}`"))
        .label(at, format!("`{attribute}` is missing"))
        .help(format!("add `{attribute} = ..` (it takes: {form})"))
}

/// A scalar as the text of an attribute. An unknown number stands as 1: its graph is thrown away.
fn attribute_text(v: &Val) -> Option<String> {
    match v {
        Val::Int(p) => Some(p.to_string()),
        Val::Float(f) => Some(format!("{:?}", f.unwrap_or(1.0))),
        Val::Bool(b) => Some(b.unwrap_or(false).to_string()),
        Val::List(l) => {
            let items: Option<Vec<_>> = l.items.as_ref()?.iter().map(attribute_text).collect();
            Some(format!("[{}]", items?.join(", ")))
        }
        _ => None,
    }
}
