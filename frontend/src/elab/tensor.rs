//! Arithmetic on tensors: promotion, broadcasting, reshaping, slicing.

use super::value::Val;
use super::{Elab, Frame};
use crate::diag::{Code, Diag};
use crate::syntax::ast::{BinaryOp, Index, Span};
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::graph::Value;
use vlmc_ir::ops::{Comparison, Op, TypeError};
use vlmc_ir::ty::{DType, Ty};

impl Elab<'_> {
    pub(super) fn tensor_binary(
        &mut self,
        op: BinaryOp,
        a: (Val, Span),
        b: (Val, Span),
        at: Span,
        span: Span,
    ) -> Val {
        let op = match op {
            BinaryOp::Add => Op::Add,
            BinaryOp::Sub => Op::Sub,
            BinaryOp::Mul => Op::Mul,
            BinaryOp::Div => Op::Div,
            BinaryOp::Rem => Op::Rem,
            BinaryOp::And => Op::And,
            BinaryOp::Or => Op::Or,
            BinaryOp::Eq => Op::Compare { kind: Comparison::Eq },
            BinaryOp::Ne => Op::Compare { kind: Comparison::Ne },
            BinaryOp::Lt => Op::Compare { kind: Comparison::Lt },
            BinaryOp::Le => Op::Compare { kind: Comparison::Le },
            BinaryOp::Gt => Op::Compare { kind: Comparison::Gt },
            BinaryOp::Ge => Op::Compare { kind: Comparison::Ge },
            BinaryOp::Pow => return self.power(a, b, span),
        };
        self.elementwise(op, vec![a, b], at, span)
    }

    /// `a ** b`: small integer powers by multiplication, a constant base by `e^(b ln a)`.
    fn power(&mut self, a: (Val, Span), b: (Val, Span), span: Span) -> Val {
        match (&a.0, &b.0) {
            (Val::Tensor(t), Val::Int(n)) => match n.as_constant() {
                Some(n) if (1..=8).contains(&n) => {
                    let mut v = Val::Tensor(*t);
                    for _ in 1..n {
                        v = self.elementwise(Op::Mul, vec![(v, a.1), a.clone()], span, span);
                    }
                    v
                }
                _ => self.wrong_kind(b.1, "a power from 1 to 8", &b.0),
            },
            (Val::Tensor(_), Val::Float(Some(p))) if *p == 0.5 => {
                self.op_call(Op::Sqrt, &[a], span)
            }
            (Val::Tensor(_), Val::Float(Some(p))) if *p == -0.5 => {
                self.op_call(Op::Rsqrt, &[a], span)
            }
            (Val::Int(_) | Val::Float(_), Val::Tensor(_)) => {
                let log = Val::Float(self.real(&a.0, a.1).map(f64::ln));
                let e = self.elementwise(Op::Mul, vec![(log, a.1), b.clone()], span, span);
                self.op_call(Op::Exp, &[(e, span)], span)
            }
            _ => self.wrong_kind(b.1, "a power from 1 to 8, 0.5 or -0.5", &b.0),
        }
    }

    /// An elementwise op: scalars become constants, floats widen, shapes broadcast. The first
    /// operand of `select` is a mask and keeps its type.
    pub(super) fn elementwise(
        &mut self,
        op: Op,
        mut args: Vec<(Val, Span)>,
        at: Span,
        span: Span,
    ) -> Val {
        let first_value = usize::from(op == Op::Select);
        if args.iter().any(|(v, _)| v.is_unknown()) {
            return Val::Unknown;
        }
        let mut widest: Option<DType> = None;
        for (v, _) in &args[first_value..] {
            if let Val::Tensor(t) = v {
                let d = self.ty(*t).dtype;
                widest = Some(match widest {
                    Some(w) if w.is_float() && d.is_float() && d != w => DType::F32,
                    Some(w) => w,
                    None => d,
                });
            }
        }
        // `where(mask, 1.0, 0.0)`: numbers alone are f32, whole numbers i32.
        let whole = args[first_value..].iter().all(|(v, _)| matches!(v, Val::Int(_)));
        let dtype = widest.unwrap_or(if whole { DType::I32 } else { DType::F32 });
        let mut shape: Option<(Ty, Span)> = None;
        let mut values = vec![];
        for (i, (v, s)) in args.iter_mut().enumerate() {
            let want = if i < first_value { DType::Bool } else { dtype };
            let value = match self.operand(v, want, i < first_value, *s) {
                Some(v) => v,
                None => return Val::Unknown,
            };
            let ty = self.ty(value);
            if i >= first_value && ty.dtype != dtype {
                return self.mixed(&op, &args, dtype, &ty, at);
            }
            shape = match shape {
                None => Some((ty, *s)),
                Some((before, before_span)) => match broadcast_dims(&before, &ty) {
                    Ok(dims) => Some((Ty::new(dtype, dims), s.to(before_span))),
                    Err((i, j)) => {
                        return self.shapes_differ((&before, before_span, i), (&ty, *s, j), at);
                    }
                },
            };
            values.push(value);
        }
        let Some((shape, _)) = shape else { return Val::Unknown };
        let mut operands = vec![];
        for v in values {
            match self.broadcast_to(v, &shape.dims, span) {
                Some(v) => operands.push(v),
                None => return Val::Unknown,
            }
        }
        let spans: Vec<Span> = args.iter().map(|(_, s)| *s).collect();
        match self.push(op.clone(), &operands, span) {
            Ok(id) => Val::Tensor(id.into()),
            Err(e) => self.type_error(&op, e, (&operands, &spans), at),
        }
    }

    /// A scalar as a constant, a narrower float widened; anything else as it is.
    fn operand(&mut self, v: &Val, want: DType, is_mask: bool, span: Span) -> Option<Value> {
        match v {
            Val::Tensor(t) => {
                let have = self.ty(*t).dtype;
                if !is_mask && have.is_float() && want == DType::F32 && have != want {
                    return self.push_sure(Op::Cast { dtype: want }, &[*t], span);
                }
                Some(*t)
            }
            Val::Int(_) | Val::Float(_) | Val::Bool(_) => self.scalar_constant(v, want, span),
            other => {
                self.wrong_kind(span, "a tensor or a number", other);
                None
            }
        }
    }

    fn scalar_constant(&mut self, v: &Val, dtype: DType, span: Span) -> Option<Value> {
        let number = match v {
            Val::Bool(b) => {
                if dtype != DType::Bool {
                    self.wrong_kind(span, "a number", v);
                    return None;
                }
                f64::from(b.unwrap_or(false))
            }
            Val::Int(p) => match p.as_constant() {
                Some(c) => c as f64,
                None => {
                    let run_time =
                        p.symbols().into_iter().find(|s| !self.symbols.contains_key(&*s.0));
                    if let Some(s) = run_time {
                        self.run_time_number(&s.0, span);
                        return None;
                    }
                    0.0
                }
            },
            _ => {
                let f = self.real(v, span).unwrap_or(0.0);
                if !dtype.is_float() && f.fract() != 0.0 {
                    self.wrong_kind(span, "a whole number", v);
                    return None;
                }
                f
            }
        };
        self.constant(number, Ty::scalar(dtype), span)
    }

    fn mixed(&mut self, op: &Op, args: &[(Val, Span)], want: DType, have: &Ty, at: Span) -> Val {
        let mut diag = Diag::error(
            Code::DtypeMismatch,
            format!("`{}` of {want} and {}", op.name(), have.dtype),
        )
        .label(at, "");
        for (v, s) in args {
            let shown = self.show(v);
            diag = diag.secondary(*s, shown);
        }
        self.diags.push(diag.help("convert one side, as in `f32(..)`"));
        Val::Unknown
    }

    fn shapes_differ(
        &mut self,
        (a, a_span, i): (&Ty, Span, usize),
        (b, b_span, j): (&Ty, Span, usize),
        at: Span,
    ) -> Val {
        let (da, db) = (&a.dims[i], &b.dims[j]);
        let mut diag =
            Diag::error(Code::DimMismatch, format!("dims `{da}` and `{db}` do not match"))
                .label(at, "")
                .secondary(a_span, format!("dim {i} of {}", self.ty_text(a)))
                .secondary(b_span, format!("dim {j} of {}", self.ty_text(b)));
        diag = self.explain_symbols(diag, &[da.size(), db.size()]);
        // One a multiple of the other: the shape of grouped heads.
        let times = |x: &Dim, y: &Dim| {
            let known = self.facts.divides(x.size(), y.size()) && !x.size().is(1);
            known.then(|| y.size().div(x.size())).flatten()
        };
        diag = match (times(da, db), times(db, da)) {
            (Some(n), _) => {
                let (n, text) = (bare(&n), self.source_text(a_span));
                diag.help(format!("to share each of `{da}` among `{n}`, write `repeat({text}, {n}, {i})`"))
            }
            (_, Some(n)) => {
                let (n, text) = (bare(&n), self.source_text(b_span));
                diag.help(format!("to share each of `{db}` among `{n}`, write `repeat({text}, {n}, {j})`"))
            }
            _ => diag.help("dims are matched from the right; reshape one side with `as`, or give it a dim of 1 to repeat"),
        };
        self.diags.push(diag);
        Val::Unknown
    }

    pub(super) fn broadcast_to(&mut self, v: Value, dims: &[Dim], span: Span) -> Option<Value> {
        let ty = self.ty(v);
        if ty.rank() == dims.len() && ty.dims.iter().zip(dims).all(|(a, b)| a.same_size(b)) {
            return Some(v);
        }
        let lead = dims.len() - ty.rank();
        let map = (0..ty.rank()).map(|i| (i + lead) as u32).collect();
        self.push_sure(Op::Broadcast { shape: dims.to_vec(), dims: map }, &[v], span)
    }

    /// `a as dims`; the spans are those of `a` and of the dims.
    pub(super) fn reshape(
        &mut self,
        v: &Val,
        dims: Vec<Dim>,
        (a, to): (Span, Span),
        span: Span,
    ) -> Val {
        let Val::Tensor(t) = v else { return Val::Unknown };
        let have = self.ty(*t);
        let op = Op::Reshape { shape: dims.clone() };
        match self.push(op, &[*t], span) {
            Ok(id) => Val::Tensor(id.into()),
            Err(_) => {
                let want = Ty::new(have.dtype, dims);
                let mut diag = Diag::error(
                    Code::ReshapeElements,
                    format!(
                        "`{}` cannot become `{}`: the numbers of elements differ",
                        self.ty_text(&have),
                        self.ty_text(&want)
                    ),
                )
                .label(to, format!("{} elements", want.elements()))
                .secondary(a, format!("{} elements", have.elements()));
                diag = self.explain_symbols(diag, &[&have.elements(), &want.elements()]);
                let known = have.elements().as_constant().is_some()
                    && want.elements().as_constant().is_some();
                self.diags.push(diag.help(if known {
                    "the product of the dims must stay the same"
                } else {
                    "if the two are equal by construction, say so where the sizes are declared, as in `require hidden == heads * head_dim`"
                }));
                Val::Unknown
            }
        }
    }

    /// `x[.., a:b, i]`
    pub(super) fn tensor_index(
        &mut self,
        frame: &mut Frame,
        t: Value,
        index: &[Index],
        span: Span,
    ) -> Val {
        let rank = self.ty(t).rank();
        let rests = index.iter().filter(|i| matches!(i, Index::Rest(_))).count();
        let given = index.len() - rests;
        if rests > 1 || given > rank {
            let ty = self.ty(t);
            self.diags.push(
                Diag::error(
                    Code::RankMismatch,
                    format!("{given} indices for {}", super::plural(rank, "dim")),
                )
                .label(span, format!("indexes {}", self.ty_text(&ty)))
                .help("`..` may stand once, for the dims that are not written"),
            );
            return Val::Unknown;
        }
        let mut v = t;
        let mut axis = 0;
        for i in index {
            let size = self.ty(v).dims.get(axis).map_or_else(Poly::default, |d| d.size().clone());
            match i {
                Index::Rest(_) => axis += rank - given,
                Index::Range(None, None, _) => axis += 1,
                Index::Range(a, b, at) => {
                    let start = match a {
                        Some(e) => self.bound(frame, e, &size),
                        None => Some(Poly::default()),
                    };
                    let end = match b {
                        Some(e) => self.bound(frame, e, &size),
                        None => Some(size.clone()),
                    };
                    let (Some(start), Some(end)) = (start, end) else { return Val::Unknown };
                    match self.slice(v, axis, start.clone(), end.sub(&start), *at) {
                        Some(s) => v = s,
                        None => return Val::Unknown,
                    }
                    axis += 1;
                }
                Index::At(e) => {
                    let Some(start) = self.bound(frame, e, &size) else { return Val::Unknown };
                    let Some(s) = self.slice(v, axis, start, Poly::constant(1), e.span) else {
                        return Val::Unknown;
                    };
                    let mut dims = self.ty(s).dims;
                    dims.remove(axis);
                    match self.push_sure(Op::Reshape { shape: dims }, &[s], span) {
                        Some(r) => v = r,
                        None => return Val::Unknown,
                    }
                }
            }
        }
        Val::Tensor(v)
    }

    /// An index; a negative constant counts from the end.
    fn bound(
        &mut self,
        frame: &mut Frame,
        e: &crate::syntax::ast::Expr,
        size: &Poly,
    ) -> Option<Poly> {
        match self.expr(frame, e) {
            Val::Int(p) if p.as_constant().is_some_and(|c| c < 0) => Some(size.add(&p)),
            Val::Int(p) => Some(p),
            Val::Tensor(t) => {
                let (ty, ids) = (self.ty(t), self.source_text(e.span));
                let shown = self.ty_text(&ty);
                self.diags.push(
                    Diag::error(Code::WrongKind, "rows are not chosen by a tensor here")
                        .label(e.span, shown)
                        .help(format!("write `gather(table, {ids})`: row `{ids}[t]` for each t")),
                );
                None
            }
            other => {
                self.wrong_kind(e.span, "an integer", &other);
                None
            }
        }
    }

    pub(super) fn slice(
        &mut self,
        v: Value,
        axis: usize,
        start: Poly,
        size: Poly,
        span: Span,
    ) -> Option<Value> {
        let op = Op::Slice { axis: axis as u32, start: start.into(), size: size.into() };
        match self.push(op.clone(), &[v], span) {
            Ok(id) => Some(id.into()),
            Err(e) => {
                self.type_error(&op, e, (&[v], &[span]), span);
                None
            }
        }
    }

    /// Reports what an op's shape rule refuses, with the type of each operand at its place.
    pub(super) fn type_error(
        &mut self,
        op: &Op,
        e: TypeError,
        (operands, spans): (&[Value], &[Span]),
        at: Span,
    ) -> Val {
        let dims = e.places.iter().filter(|(_, d)| d.is_some()).count();
        let code = if dims == 2 { Code::DimMismatch } else { Code::InvalidOperands };
        let mut diag = Diag::error(code, format!("`{}`: {}", op.name(), e.message));
        let mut labelled = false;
        for (operand, _) in &e.places {
            if let (Some(s), Some(v)) = (spans.get(*operand), operands.get(*operand)) {
                let ty = self.ty(*v);
                let name = op.info().operand_name(*operand);
                diag = diag.label(*s, format!("{name} is {}", self.ty_text(&ty)));
                labelled = true;
            }
        }
        if !labelled {
            let info = op.info();
            diag = diag.label(at, format!("takes {}", info.operands.join(", ")));
        }
        diag = match e.help {
            Some(h) => diag.help(h),
            None => diag.help(format!("`vlmc explain {}` tells what it takes", op.name())),
        };
        self.diags.push(diag);
        Val::Unknown
    }
}

/// A size without brackets around all of it.
fn bare(p: &Poly) -> String {
    let text = p.to_string();
    match text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
        Some(inner) if !inner.contains(['(', ')']) => inner.to_string(),
        _ => text,
    }
}

/// The shape two operands broadcast to, or the dims that are at odds.
fn broadcast_dims(a: &Ty, b: &Ty) -> Result<Vec<Dim>, (usize, usize)> {
    let rank = a.rank().max(b.rank());
    let mut dims = vec![];
    for k in 0..rank {
        let i = (k + a.rank()).checked_sub(rank);
        let j = (k + b.rank()).checked_sub(rank);
        dims.push(match (i, j) {
            (Some(i), Some(j)) => {
                let (x, y) = (&a.dims[i], &b.dims[j]);
                if x.same_size(y) {
                    if x.segments().is_empty() { y.clone() } else { x.clone() }
                } else if x.size().is(1) {
                    y.clone()
                } else if y.size().is(1) {
                    x.clone()
                } else {
                    return Err((i, j));
                }
            }
            (Some(i), None) => a.dims[i].clone(),
            (None, Some(j)) => b.dims[j].clone(),
            (None, None) => return Err((0, 0)),
        });
    }
    Ok(dims)
}
