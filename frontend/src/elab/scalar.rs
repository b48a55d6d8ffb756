//! Arithmetic on values that are known when compiling, and conditions.

use super::value::Val;
use super::{Elab, Frame, condition_key};
use crate::diag::{Code, Diag};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Span, UnaryOp};
use vlmc_ir::dim::Poly;

impl Elab<'_> {
    /// Evaluates a condition on configuration; `None` when it is not known.
    pub(super) fn condition(&mut self, frame: &mut Frame, e: &Expr) -> Option<bool> {
        let key = condition_key(self.lib.sources.snippet(e.span));
        if let Some((_, holds)) = self.assumptions.iter().rev().find(|(k, _)| *k == key) {
            return Some(*holds);
        }
        match self.expr(frame, e) {
            Val::Bool(b) => b,
            Val::Unknown => None,
            other => {
                let shown = self.show(&other);
                let mut diag = Diag::error(
                    Code::ConditionNotConfiguration,
                    format!(
                        "a condition must be a bool of the configuration, not {}",
                        other.kind()
                    ),
                )
                .label(e.span, shown);
                if matches!(other, Val::Tensor(_)) {
                    diag = diag.help("choose between tensors with `where(mask, a, b)`");
                } else {
                    diag = diag.help("compare it, as in `c.experts > 0`");
                }
                self.diags.push(diag);
                None
            }
        }
    }

    /// Takes a condition to hold or not while `f` runs; of `a and b` that holds, both do.
    pub(super) fn assuming<T>(
        &mut self,
        e: &Expr,
        holds: bool,
        f: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = self.assumptions.len();
        self.push_assumption(e, holds);
        let result = f(self);
        self.assumptions.truncate(before);
        result
    }

    fn push_assumption(&mut self, e: &Expr, holds: bool) {
        self.assumptions.push((condition_key(self.lib.sources.snippet(e.span)), holds));
        match &e.kind {
            ExprKind::Binary(BinaryOp::And, a, b, _) if holds => {
                self.push_assumption(a, true);
                self.push_assumption(b, true);
            }
            ExprKind::Binary(BinaryOp::Or, a, b, _) if !holds => {
                self.push_assumption(a, false);
                self.push_assumption(b, false);
            }
            ExprKind::Unary(UnaryOp::Not, a) => self.push_assumption(a, !holds),
            _ => {}
        }
    }

    /// Takes a `require` for granted: what it says about divisibility becomes a fact.
    pub(super) fn assume(&mut self, frame: &mut Frame, e: &Expr) {
        let fact = self.quiet(|s| match &e.kind {
            ExprKind::Binary(BinaryOp::Eq, rem, zero, _)
                if matches!(zero.kind, ExprKind::Int(0)) =>
            {
                let ExprKind::Binary(BinaryOp::Rem, a, b, _) = &rem.kind else { return None };
                match (s.expr(frame, a), s.expr(frame, b)) {
                    (Val::Int(a), Val::Int(b)) => Some((b, a)),
                    _ => None,
                }
            }
            _ => None,
        });
        if let Some((divisor, value)) = fact {
            self.facts.assume_divides(divisor, value);
        }
    }

    pub(super) fn unary(&mut self, frame: &mut Frame, op: UnaryOp, a: &Expr, span: Span) -> Val {
        let v = self.expr(frame, a);
        match (op, v) {
            (_, Val::Unknown) => Val::Unknown,
            (UnaryOp::Neg, Val::Int(p)) => Val::Int(p.neg()),
            (UnaryOp::Neg, Val::Float(f)) => Val::Float(f.map(|f| -f)),
            (UnaryOp::Not, Val::Bool(b)) => Val::Bool(b.map(|b| !b)),
            (UnaryOp::Neg, v @ Val::Tensor(_)) => {
                self.op_call(vlmc_ir::ops::Op::Neg, &[(v, a.span)], span)
            }
            (UnaryOp::Not, v @ Val::Tensor(_)) => {
                self.op_call(vlmc_ir::ops::Op::Not, &[(v, a.span)], span)
            }
            (UnaryOp::Neg, v) => self.wrong_kind(a.span, "a number", &v),
            (UnaryOp::Not, v) => self.wrong_kind(a.span, "a bool", &v),
        }
    }

    /// `a op b` of two scalars; `span` is the whole expression.
    pub(super) fn scalar_binary(
        &mut self,
        op: BinaryOp,
        (a, a_span): (Val, Span),
        (b, b_span): (Val, Span),
        span: Span,
    ) -> Val {
        use BinaryOp::*;
        match (op, &a, &b) {
            (And | Or, Val::Bool(x), Val::Bool(y)) => Val::Bool(match (op, x, y) {
                (And, Some(false), _) | (And, _, Some(false)) => Some(false),
                (Or, Some(true), _) | (Or, _, Some(true)) => Some(true),
                (_, Some(x), Some(y)) => Some(if op == And { *x && *y } else { *x || *y }),
                _ => None,
            }),
            (_, Val::Int(x), Val::Int(y)) => self.int_binary(op, (x, a_span), (y, b_span), span),
            (_, Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => {
                let (x, y) = (self.real(&a, a_span), self.real(&b, b_span));
                let both = x.zip(y);
                match op {
                    Add => Val::Float(both.map(|(x, y)| x + y)),
                    Sub => Val::Float(both.map(|(x, y)| x - y)),
                    Mul => Val::Float(both.map(|(x, y)| x * y)),
                    Div => Val::Float(both.map(|(x, y)| x / y)),
                    Rem => Val::Float(both.map(|(x, y)| x.rem_euclid(y))),
                    Pow => Val::Float(both.map(|(x, y)| x.powf(y))),
                    And | Or => self.wrong_kind(a_span, "a bool", &a),
                    _ => Val::Bool(both.map(|(x, y)| compare(op, x.partial_cmp(&y)))),
                }
            }
            (Eq | Ne, Val::Enum(d, x), Val::Enum(e, y)) if std::sync::Arc::ptr_eq(d, e) => {
                Val::Bool(x.zip(*y).map(|(x, y)| (x == y) == (op == Eq)))
            }
            (Eq | Ne, Val::Bool(x), Val::Bool(y)) => {
                Val::Bool(x.zip(*y).map(|(x, y)| (x == y) == (op == Eq)))
            }
            (Eq | Ne, Val::Str(x), Val::Str(y)) => {
                Val::Bool(x.as_ref().zip(y.as_ref()).map(|(x, y)| (x == y) == (op == Eq)))
            }
            _ => {
                let (x, y) = (self.show(&a), self.show(&b));
                self.diags.push(
                    Diag::error(
                        Code::WrongKind,
                        format!("{} and {} do not go together here", a.kind(), b.kind()),
                    )
                    .label(a_span, x)
                    .label(b_span, y)
                    .help("both sides must be numbers, or values of one enumeration"),
                );
                Val::Unknown
            }
        }
    }

    fn int_binary(
        &mut self,
        op: BinaryOp,
        (x, x_span): (&Poly, Span),
        (y, y_span): (&Poly, Span),
        span: Span,
    ) -> Val {
        use BinaryOp::*;
        let constants = x.as_constant().zip(y.as_constant());
        match op {
            Add => Val::Int(x.add(y)),
            Sub => Val::Int(x.sub(y)),
            Mul => Val::Int(x.mul(y)),
            Div => self.exact_div(x, y, (y_span, span)),
            Rem => match constants {
                Some((_, 0)) => self.division_by_zero(y_span),
                Some((a, b)) => Val::int(a.rem_euclid(b)),
                None if self.facts.divides(y, x) => Val::int(0),
                None => {
                    let text = self.source_text(span);
                    Val::Int(self.opaque(&text, span))
                }
            },
            Pow => match y.as_constant() {
                Some(n) if (0..=16).contains(&n) => Val::Int(x.pow(n as u32)),
                Some(n) => Val::Float(self.real_size(x, x_span).map(|a| a.powf(n as f64))),
                None => Val::Float(self.real_size(y, y_span)),
            },
            And | Or => self.wrong_kind(span, "a bool", &Val::Int(x.clone())),
            Eq | Ne if x == y => Val::Bool(Some(op == Eq)),
            _ => {
                let both = self.real_size(x, x_span).zip(self.real_size(y, y_span));
                let exact = both.and(constants);
                Val::Bool(exact.map(|(a, b)| compare(op, a.partial_cmp(&b))))
            }
        }
    }

    /// A number as a real; `None` when it is not known yet. A size that only the batch tells is
    /// reported.
    pub(super) fn real(&mut self, v: &Val, span: Span) -> Option<f64> {
        match v {
            Val::Int(p) => self.real_size(p, span),
            Val::Float(f) => *f,
            _ => None,
        }
    }

    fn real_size(&mut self, p: &Poly, span: Span) -> Option<f64> {
        if let Some(c) = p.as_constant() {
            return Some(c as f64);
        }
        // Without a variant the configuration is not known either, but will be.
        let of_the_batch = p.symbols().into_iter().find(|s| {
            let prelude = super::PRELUDE_SYMBOLS.contains(&&*s.0);
            !self.symbolic || (prelude && !self.symbols.contains_key(&*s.0))
        });
        if let Some(s) = of_the_batch {
            self.run_time_number(&s.0, span);
        }
        None
    }

    /// Reports a size of the batch where a number is needed when compiling.
    pub(super) fn run_time_number(&mut self, symbol: &str, span: Span) {
        self.diags.push(
            Diag::error(Code::WrongKind, format!("`{symbol}` is known only when the model runs"))
                .label(span, "used as a number")
                .help("count rows on the device, as in `sum(f32(row_valid(seq, rows = T)), 0)`"),
        );
    }

    fn division_by_zero(&mut self, span: Span) -> Val {
        self.diags.push(
            Diag::error(Code::NotDivisible, "division by zero")
                .label(span, "is 0")
                .help("give it another value, or guard it with `if`"),
        );
        Val::Unknown
    }

    /// `x / y` of integers, which must leave no remainder.
    fn exact_div(&mut self, x: &Poly, y: &Poly, (y_span, span): (Span, Span)) -> Val {
        let Some(q) = x.div(y) else { return self.division_by_zero(y_span) };
        if self.facts.divides(y, x) {
            return Val::Int(q);
        }
        let mut diag = match x.as_constant().zip(y.as_constant()) {
            Some((a, b)) => {
                let below = a.div_euclid(b) * b;
                Diag::error(Code::NotDivisible, format!("{a} is not divisible by {b}"))
                    .label(span, format!("leaves {}", a.rem_euclid(b)))
                    .help(format!("{below} and {} are", below + b.abs()))
            }
            None => Diag::error(Code::NotDivisible, format!("`{y}` is not known to divide `{x}`"))
                .label(span, "must be exact")
                .help(format!("add `require {x} % {y} == 0` to the configuration or module")),
        };
        diag = self.explain_symbols(diag, &[x, y]);
        self.diags.push(diag);
        Val::Unknown
    }
}

fn compare(op: BinaryOp, order: Option<std::cmp::Ordering>) -> bool {
    use std::cmp::Ordering::*;
    match op {
        BinaryOp::Eq => order == Some(Equal),
        BinaryOp::Ne => order != Some(Equal),
        BinaryOp::Lt => order == Some(Less),
        BinaryOp::Le => matches!(order, Some(Less | Equal)),
        BinaryOp::Gt => order == Some(Greater),
        _ => matches!(order, Some(Greater | Equal)),
    }
}
