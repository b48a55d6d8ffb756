//! Types as written: to sizes, and against the values that meet them.

use super::library::Def;
use super::value::{ListVal, Sequence, Val};
use super::{Elab, Frame, PRELUDE_SYMBOLS};
use crate::diag::{Code, Diag};
use crate::syntax::ast::{self, DimTy, ExprKind, Ident, Span, TyKind};
use vlmc_ir::dim::{Dim, Poly};
use vlmc_ir::ty::{DType, Ty};

/// Element type of a written type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementTy {
    /// This one.
    Exactly(DType),
    /// Any float.
    AnyFloat,
}

impl Elab<'_> {
    pub(super) fn element_ty(&mut self, name: Option<&Ident>) -> Option<ElementTy> {
        let Some(name) = name else { return Some(ElementTy::Exactly(self.dtype)) };
        if name.name == "float" {
            return Some(ElementTy::AnyFloat);
        }
        if let Some(d) = DType::from_name(&name.name) {
            return Some(ElementTy::Exactly(d));
        }
        let mut known: Vec<String> = DType::ALL.iter().map(|d| d.name().to_string()).collect();
        known.push("float".to_string());
        self.unknown_name("element type", name, &known);
        None
    }

    /// The element type of a list type such as `[int]`, which looks like a tensor type of one dim.
    pub(super) fn list_element(&mut self, frame: &Frame, ty: &ast::Ty) -> Option<Val> {
        let TyKind::Tensor(None, dims) = &ty.kind else { return None };
        let [DimTy::Expr(e)] = dims.as_slice() else { return None };
        let ExprKind::Name(n) = &e.kind else { return None };
        match n.as_str() {
            "int" => Some(Val::Int(Poly::default())),
            "float" => Some(Val::Float(None)),
            "bool" => Some(Val::Bool(None)),
            "string" => Some(Val::Str(None)),
            n => match self.lib.lookup(frame.file, n) {
                Some(Def::Enum(d)) => Some(Val::Enum(d.clone(), None)),
                _ => None,
            },
        }
    }

    /// A dim as written. `..` is not one.
    pub(super) fn dim(&mut self, frame: &mut Frame, d: &DimTy) -> Option<Dim> {
        match d {
            DimTy::Rest(span) => {
                self.diags.push(
                    Diag::error(Code::WrongKind, "`..` can stand only in the types of a function")
                        .label(*span, "which dims?")
                        .help("write the dims"),
                );
                None
            }
            DimTy::Segments(segments, _) => {
                let mut out = vec![];
                for (name, e) in segments {
                    out.push((name.name.as_str().into(), self.size(frame, e)?));
                }
                Some(Dim::from_segments(out))
            }
            DimTy::Expr(e) => {
                if let ExprKind::Name(n) = &e.kind
                    && let Some(d) = frame.dims.get(n)
                {
                    return Some(d.clone());
                }
                self.size(frame, e).map(Dim::new)
            }
        }
    }

    /// An integer expression as a size.
    pub(super) fn size(&mut self, frame: &mut Frame, e: &ast::Expr) -> Option<Poly> {
        match self.expr(frame, e) {
            Val::Int(p) => {
                if p.as_constant().is_some_and(|c| c < 0) {
                    self.diags.push(
                        Diag::error(Code::InvalidOperands, format!("a size cannot be {p}"))
                            .label(e.span, "is negative")
                            .help("sizes are 0 or more"),
                    );
                    return None;
                }
                Some(p)
            }
            other => {
                self.wrong_kind(e.span, "an integer", &other);
                None
            }
        }
    }

    /// A tensor type without free dims: of a parameter, an input, a reshape.
    pub(super) fn tensor_ty(&mut self, frame: &mut Frame, ty: &ast::Ty) -> Option<Ty> {
        let TyKind::Tensor(name, dims) = &ty.kind else {
            self.diags.push(
                Diag::error(Code::WrongKind, "expected a tensor type")
                    .label(ty.span, "not a tensor")
                    .help("write the dims in brackets, as in `[T, hidden]`; `[]` is a scalar"),
            );
            return None;
        };
        let element = self.element_ty(name.as_ref())?;
        let dims = self.dims(frame, dims)?;
        match element {
            ElementTy::Exactly(d) => Some(Ty::new(d, dims)),
            ElementTy::AnyFloat => Some(Ty::new(frame.float.unwrap_or(self.dtype), dims)),
        }
    }

    /// Dims as written; `..` stands for what the signature has bound it to.
    pub(super) fn dims(&mut self, frame: &mut Frame, dims: &[DimTy]) -> Option<Vec<Dim>> {
        let mut out = vec![];
        let mut good = true;
        for d in dims {
            match (d, &frame.rest) {
                (DimTy::Rest(_), Some(rest)) => out.extend(rest.iter().cloned()),
                _ => match self.dim(frame, d) {
                    Some(d) => out.push(d),
                    None => good = false,
                },
            }
        }
        good.then_some(out)
    }

    /// A value of a written type of which nothing is known but its name.
    pub(super) fn symbolic_value(
        &mut self,
        frame: &mut Frame,
        ty: &ast::Ty,
        text: &str,
        span: Span,
    ) -> Val {
        if let Some(element) = self.list_element(frame, ty) {
            let text = text.to_string();
            return Val::List(ListVal { items: None, element: Box::new(element), text });
        }
        match &ty.kind {
            TyKind::Tensor(..) => match self.tensor_ty(frame, ty) {
                Some(t) => Val::Tensor(self.placeholder(t)),
                None => Val::Unknown,
            },
            TyKind::Tuple(items) => {
                let items = items.iter().enumerate();
                let items =
                    items.map(|(i, t)| self.symbolic_value(frame, t, &format!("{text}.{i}"), span));
                Val::Tuple(items.collect())
            }
            TyKind::Name(n) => {
                match n.name.as_str() {
                    "int" => Val::Int(self.opaque(text, span)),
                    "float" => Val::Float(None),
                    "bool" => Val::Bool(None),
                    "string" => Val::Str(None),
                    "Sequence" => Val::Sequence(self.sequence_placeholder()),
                    "Loss" => {
                        let t = Ty::scalar(DType::F32);
                        Val::Loss(self.placeholder(t.clone()), self.placeholder(t))
                    }
                    name => match self.lib.lookup(frame.file, name).cloned() {
                        Some(Def::Config(d)) => self.symbolic_config(&d, text),
                        Some(Def::Enum(d)) => Val::Enum(d, None),
                        _ => {
                            let mut known: Vec<String> =
                                ["int", "float", "bool", "string", "Sequence", "Loss"]
                                    .map(String::from)
                                    .to_vec();
                            known.extend(self.names_of(frame.file, |d| {
                                matches!(d, Def::Config(_) | Def::Enum(_))
                            }));
                            self.unknown_name("type", n, &known);
                            Val::Unknown
                        }
                    },
                }
            }
        }
    }

    /// Types of the three tensors of a `Sequence`: boundaries, padded boundaries, positions.
    pub(super) fn sequence_tys() -> [Ty; 3] {
        let boundaries = Ty::new(DType::I32, vec![Dim::new(Poly::symbol("docs").add(&1.into()))]);
        let positions = Ty::new(DType::I32, vec![Dim::from(3), Dim::symbol(PRELUDE_SYMBOLS[0])]);
        [boundaries.clone(), boundaries, positions]
    }

    fn sequence_placeholder(&mut self) -> Sequence {
        let [a, b, c] = Self::sequence_tys().map(|t| self.placeholder(t));
        Sequence { cu_seqlens: a, cu_seqlens_padded: b, positions: c }
    }

    /// Whether a value has a written type; binds dim parameters and `..` on the way. `who` names
    /// the value in messages.
    pub(super) fn matches_ty(
        &mut self,
        frame: &mut Frame,
        free: &[Ident],
        ty: &ast::Ty,
        val: &Val,
        who: &str,
        span: Span,
    ) -> bool {
        if val.is_unknown() {
            return false;
        }
        if self.list_element(frame, ty).is_some() {
            return match val {
                Val::List(_) => true,
                _ => {
                    self.wrong_kind(span, "a list", val);
                    false
                }
            };
        }
        match &ty.kind {
            TyKind::Tensor(name, dims) => match val {
                Val::Tensor(t) => {
                    let have = self.ty(*t);
                    self.matches_tensor(
                        frame,
                        free,
                        (name.as_ref(), dims, ty.span),
                        &have,
                        who,
                        span,
                    )
                }
                _ => {
                    self.wrong_kind(span, "a tensor", val);
                    false
                }
            },
            TyKind::Tuple(tys) => match val {
                Val::Tuple(vals) if vals.len() == tys.len() => {
                    let pairs = tys.iter().zip(vals).enumerate();
                    pairs.fold(true, |good, (i, (t, v))| {
                        self.matches_ty(frame, free, t, v, &format!("{who}.{i}"), span) && good
                    })
                }
                _ => {
                    self.wrong_kind(span, &format!("a tuple of {}", tys.len()), val);
                    false
                }
            },
            TyKind::Name(n) => self.matches_name(frame, n, val, span),
        }
    }

    fn matches_name(&mut self, frame: &mut Frame, n: &Ident, val: &Val, span: Span) -> bool {
        let good = match (n.name.as_str(), val) {
            ("int", Val::Int(_))
            | ("float", Val::Float(_) | Val::Int(_))
            | ("bool", Val::Bool(_))
            | ("string", Val::Str(_))
            | ("Sequence", Val::Sequence(_))
            | ("Loss", Val::Loss(..)) => true,
            (name, val) => match (self.lib.lookup(frame.file, name), val) {
                (Some(Def::Config(d)), Val::Config(have, _)) => std::sync::Arc::ptr_eq(d, have),
                (Some(Def::Enum(d)), Val::Enum(have, _)) => std::sync::Arc::ptr_eq(d, have),
                _ => false,
            },
        };
        if good {
            return true;
        }
        if n.name == "Loss" {
            let shown = self.show(val);
            self.diags.push(
                Diag::error(Code::NotALoss, "a loss must be a pair of sum and count")
                    .label(span, shown)
                    .note(
                        "a mean cannot be combined over ranks and microbatches with unequal counts",
                    )
                    .help("return `Loss(sum, count)`"),
            );
        } else {
            self.wrong_kind(span, &format!("`{}`", n.name), val);
        }
        false
    }

    fn matches_tensor(
        &mut self,
        frame: &mut Frame,
        free: &[Ident],
        (name, dims, ty_span): (Option<&Ident>, &[DimTy], Span),
        have: &Ty,
        who: &str,
        span: Span,
    ) -> bool {
        let Some(element) = self.element_ty(name) else { return false };
        let good = match element {
            ElementTy::Exactly(d) => d == have.dtype,
            ElementTy::AnyFloat => have.dtype.is_float(),
        };
        if !good {
            let want = match element {
                ElementTy::Exactly(d) if name.is_none() => format!("the model dtype ({d})"),
                ElementTy::Exactly(d) => d.to_string(),
                ElementTy::AnyFloat => "a float".to_string(),
            };
            let mut diag = Diag::error(
                Code::DtypeMismatch,
                format!("`{who}` must be {want}, not {}", have.dtype),
            )
            .label(span, have.to_string());
            if ty_span != span {
                diag = diag.secondary(ty_span, "as declared here");
            }
            self.diags.push(match (element, have.dtype) {
                (ElementTy::Exactly(DType::F32), d) if name.is_some() && d.is_float() => {
                    diag.help("widen it with `f32(..)`")
                }
                (ElementTy::Exactly(_), d) if name.is_none() && d.is_float() => {
                    diag.help("round it to the model dtype with `narrow(..)`")
                }
                _ => diag.help("convert it where it is made"),
            });
            return false;
        }
        if element == ElementTy::AnyFloat && frame.float != Some(DType::F32) {
            frame.float = Some(have.dtype);
        }
        let rest = dims.iter().position(|d| matches!(d, DimTy::Rest(_)));
        let fixed = dims.len() - usize::from(rest.is_some());
        if have.rank() < fixed || (rest.is_none() && have.rank() != fixed) {
            let least = if rest.is_some() { "at least " } else { "" };
            let text = self.source_text(ty_span);
            self.diags.push(
                Diag::error(
                    Code::RankMismatch,
                    format!("`{who}` must have {least}{fixed} dims, not {}", have.rank()),
                )
                .label(span, have.to_string())
                .secondary(ty_span, "as declared here")
                .help(format!("reshape it with `as`, to the form of `{text}`")),
            );
            return false;
        }
        let extra = have.rank() - fixed;
        let mut at = 0;
        let mut good = true;
        for (i, d) in dims.iter().enumerate() {
            if matches!(d, DimTy::Rest(_)) {
                good &=
                    self.matches_rest(frame, &have.dims[at..at + extra], have, who, span, ty_span);
                at += extra;
                continue;
            }
            good &= self.matches_dim(
                frame,
                free,
                (d, i),
                (&have.dims[at], at),
                have,
                who,
                (span, ty_span),
            );
            at += 1;
        }
        good
    }

    fn matches_rest(
        &mut self,
        frame: &mut Frame,
        have: &[Dim],
        ty: &Ty,
        who: &str,
        span: Span,
        ty_span: Span,
    ) -> bool {
        let Some(rest) = &frame.rest else {
            frame.rest = Some(have.to_vec());
            return true;
        };
        if rest.len() == have.len() && rest.iter().zip(have).all(|(a, b)| a.same_size(b)) {
            return true;
        }
        let rest: Vec<_> = rest.iter().map(Dim::to_string).collect();
        self.diags.push(
            Diag::error(
                Code::DimMismatch,
                format!("the leading dims of `{who}` do not match those before"),
            )
            .label(span, ty.to_string())
            .secondary(ty_span, format!("here `..` is [{}]", rest.join(", ")))
            .help("give both the same leading dims"),
        );
        false
    }

    #[allow(clippy::too_many_arguments)]
    fn matches_dim(
        &mut self,
        frame: &mut Frame,
        free: &[Ident],
        (want, index): (&DimTy, usize),
        (have, at): (&Dim, usize),
        ty: &Ty,
        who: &str,
        (span, ty_span): (Span, Span),
    ) -> bool {
        if let DimTy::Expr(e) = want
            && let ExprKind::Name(n) = &e.kind
            && free.iter().any(|f| f.name == *n)
            && !frame.dims.contains_key(n)
        {
            frame.dims.insert(n.clone(), have.clone());
            frame.bind_at(n, Val::Int(have.size().clone()), Some(span));
            return true;
        }
        let Some(want_dim) = self.dim(frame, want) else { return false };
        if want_dim.same_size(have) {
            return true;
        }
        let written = match want {
            DimTy::Expr(e) => self.source_text(e.span),
            _ => want_dim.to_string(),
        };
        let is = if want_dim.to_string() == written {
            format!("`{written}`")
        } else {
            format!("`{written}` ({want_dim})")
        };
        let mut diag = Diag::error(
            Code::DimMismatch,
            format!("dim {at} of `{who}` is `{have}`, but {is} is needed"),
        )
        .label(span, format!("{who} : {ty}"));
        let want_span = match want {
            DimTy::Expr(e) => e.span,
            DimTy::Segments(_, s) | DimTy::Rest(s) => *s,
        };
        diag = diag.secondary(want_span, format!("dim {index} as declared"));
        if let DimTy::Expr(e) = want
            && let ExprKind::Name(n) = &e.kind
            && free.iter().any(|f| f.name == *n)
            && let Some(bound) = frame.get(n).and_then(|b| b.span)
            && bound != span
        {
            diag = diag.secondary(bound, format!("`{n}` is {want_dim} because of this"));
        }
        diag = self.explain_symbols(diag, &[want_dim.size(), have.size()]);
        let _ = ty_span;
        self.diags.push(diag.help("the two must be the same expression of sizes; transpose, reshape with `as`, or repeat one of them"));
        false
    }
}
