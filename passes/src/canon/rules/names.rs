//! Formulas written out at length become the op of that name, and arithmetic of signs and ones
//! becomes as short as it gets.
//!
//! In real arithmetic both sides agree everywhere. In floating point the named form is finite where
//! a long form overflows (`e^-x` of a very negative x), and rounds less often. Quotients become
//! products with a reciprocal in f32 alone: in bf16 the reciprocal would be rounded on its own.

use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View, make};
use egg::Id;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;

pub(super) const RULES: &[Rule] = &[
    Rule { name: "name.sub", on: |op| matches!(op, Op::Sub), body: sub },
    Rule { name: "name.add_neg", on: |op| matches!(op, Op::Add), body: add_neg },
    Rule { name: "name.neg_neg", on: |op| matches!(op, Op::Neg), body: neg_neg },
    Rule { name: "name.neg_mul", on: |op| matches!(op, Op::Mul), body: neg_mul },
    Rule { name: "name.div", on: |op| matches!(op, Op::Div), body: div },
    Rule { name: "name.recip", on: |op| matches!(op, Op::Div), body: recip },
    Rule { name: "name.rsqrt", on: |op| matches!(op, Op::Recip | Op::Div | Op::Sqrt), body: rsqrt },
    Rule { name: "name.sigmoid", on: |op| matches!(op, Op::Recip | Op::Mul), body: sigmoid },
    Rule { name: "name.silu", on: |op| matches!(op, Op::Mul | Op::Div), body: silu },
    Rule { name: "name.softplus", on: |op| matches!(op, Op::Log), body: softplus },
    Rule { name: "name.mul_one", on: |op| matches!(op, Op::Mul | Op::Div), body: mul_one },
    Rule { name: "name.add_zero", on: |op| matches!(op, Op::Add | Op::Sub), body: add_zero },
    Rule { name: "name.constant", on: folds, body: constant },
];

fn is_float(v: View<'_>, x: Id) -> bool {
    v.dtype(x).is_float()
}

fn binary(op: Op, a: Term, b: Term) -> Term {
    Term::Make(op, vec![a, b])
}

/// Operands of the op in the class, for an op of one operand.
fn unary_of(v: View<'_>, class: Id, wanted: &Op) -> Vec<Id> {
    let hits = v.nodes(class).filter(|(op, _)| *op == wanted);
    hits.filter_map(|(_, c)| c.first().copied()).collect()
}

/// `x` for each `1 + e^x` in the class.
fn one_plus_exp(v: View<'_>, class: Id) -> Vec<Id> {
    let mut out = vec![];
    for (op, c) in v.nodes(class) {
        let (Op::Add, [a, b]) = (op, c) else { continue };
        for (one, e) in [(a, b), (b, a)] {
            if v.constant(*one) == Some(1.0) {
                out.extend(unary_of(v, *e, &Op::Exp));
            }
        }
    }
    out
}

/// `-x` as a term; `x` itself when the class is one.
fn negatives(v: View<'_>, class: Id) -> Vec<Id> {
    unary_of(v, class, &Op::Neg)
}

/// `a - b => a + (-b)`
fn sub(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    if let [a, b] = c
        && is_float(v, *a)
    {
        found.equal(binary(Op::Add, Term::Have(*a), make(Op::Neg, Term::Have(*b))));
    }
}

/// `a + (-b) => a - b`
fn add_neg(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    let [a, b] = c else { return };
    if is_float(v, *a) {
        for x in negatives(v, *b) {
            found.equal(binary(Op::Sub, Term::Have(*a), Term::Have(x)));
        }
    }
}

/// `-(-x) => x`, `-(a - b) => b - a`
fn neg_neg(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    let [x] = c else { return };
    if !is_float(v, *x) {
        return;
    }
    for y in negatives(v, *x) {
        found.equal(Term::Have(y));
    }
    for (op, c) in v.nodes(*x) {
        if let (Op::Sub, [a, b]) = (op, c) {
            found.equal(binary(Op::Sub, Term::Have(*b), Term::Have(*a)));
        }
    }
}

/// `(-a) b => -(a b)`, and `-1 b => -b`
fn neg_mul(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    let [a, b] = c else { return };
    if !is_float(v, *a) {
        return;
    }
    if v.constant(*a) == Some(-1.0) {
        found.equal(make(Op::Neg, Term::Have(*b)));
    }
    // A constant stays where it is, with its sign.
    if v.constant(*a).is_none() {
        for x in negatives(v, *a) {
            found.equal(make(Op::Neg, binary(Op::Mul, Term::Have(x), Term::Have(*b))));
        }
    }
}

/// `a / b => a (1 / b)`
fn div(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    let [a, b] = c else { return };
    match v.dtype(*a) {
        DType::F32 => {
            found.equal(binary(Op::Mul, Term::Have(*a), make(Op::Recip, Term::Have(*b))));
        }
        DType::Bf16 => found.refuse("the reciprocal would be rounded to bf16"),
        DType::I32 | DType::Bool => found.refuse("division of integers"),
    }
}

/// `1 / b => recip b`
fn recip(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    if let [a, b] = c
        && is_float(v, *a)
        && v.constant(*a) == Some(1.0)
    {
        found.equal(make(Op::Recip, Term::Have(*b)));
    }
}

/// `1 / sqrt x => rsqrt x`, `sqrt (1 / x) => rsqrt x`, and `a / sqrt b => a rsqrt b` in f32
fn rsqrt(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    match (op, c) {
        (Op::Recip, [x]) => {
            for y in unary_of(v, *x, &Op::Sqrt) {
                found.equal(make(Op::Rsqrt, Term::Have(y)));
            }
        }
        (Op::Sqrt, [x]) => {
            for y in unary_of(v, *x, &Op::Recip) {
                found.equal(make(Op::Rsqrt, Term::Have(y)));
            }
        }
        (Op::Div, [a, b]) if v.dtype(*a) == DType::F32 => {
            for y in unary_of(v, *b, &Op::Sqrt) {
                found.equal(binary(Op::Mul, Term::Have(*a), make(Op::Rsqrt, Term::Have(y))));
            }
        }
        _ => {}
    }
}

/// `1 / (1 + e^-x) => sigmoid x`, `e^x (1 / (1 + e^x)) => sigmoid x`
fn sigmoid(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    match (op, c) {
        (Op::Recip, [s]) => {
            for e in one_plus_exp(v, *s) {
                let x = negatives(v, e);
                // `1 / (1 + e^y)` is the sigmoid of `-y`.
                if x.is_empty() {
                    found.equal(make(Op::Sigmoid, make(Op::Neg, Term::Have(e))));
                }
                for x in x {
                    found.equal(make(Op::Sigmoid, Term::Have(x)));
                }
            }
        }
        (Op::Mul, [a, b]) => {
            for x in unary_of(v, *a, &Op::Exp) {
                let quotient = unary_of(v, *b, &Op::Recip);
                if quotient.iter().any(|s| one_plus_exp(v, *s).contains(&x)) {
                    found.equal(make(Op::Sigmoid, Term::Have(x)));
                }
            }
        }
        _ => {}
    }
}

/// `x sigmoid(x) => silu x`, `x / (1 + e^-x) => silu x`
fn silu(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    let [a, b] = c else { return };
    let fits = match op {
        Op::Mul => unary_of(v, *b, &Op::Sigmoid).contains(a),
        Op::Div => one_plus_exp(v, *b).iter().any(|e| negatives(v, *e).contains(a)),
        _ => false,
    };
    if fits {
        found.equal(make(Op::Silu, Term::Have(*a)));
    }
}

/// `ln(1 + e^x) => softplus x`
fn softplus(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    let [s] = c else { return };
    for x in one_plus_exp(v, *s) {
        found.equal(make(Op::Softplus, Term::Have(x)));
    }
}

/// `x 1 => x`, `x / 1 => x`
fn mul_one(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    if let [x, one] = c
        && v.constant(*one) == Some(1.0)
    {
        found.equal(Term::Have(*x));
    }
}

/// `x + 0 => x`, `x - 0 => x`
fn add_zero(v: View<'_>, _: Id, _: &Op, c: &[Id], found: &mut Found) {
    if let [x, zero] = c
        && v.constant(*zero) == Some(0.0)
    {
        found.equal(Term::Have(*x));
    }
}

fn folds(op: &Op) -> bool {
    matches!(op, Op::Add | Op::Sub | Op::Mul | Op::Neg | Op::Recip)
}

/// Arithmetic on numbers, in f32: bf16 would round each step.
fn constant(v: View<'_>, class: Id, op: &Op, c: &[Id], found: &mut Found) {
    let numbers: Option<Vec<f64>> = c.iter().map(|x| v.constant(*x)).collect();
    let value = match (op, numbers.as_deref()) {
        (Op::Add, Some([a, b])) => a + b,
        (Op::Sub, Some([a, b])) => a - b,
        (Op::Mul, Some([a, b])) => a * b,
        (Op::Neg, Some([a])) => -a,
        (Op::Recip, Some([a])) => 1.0 / a,
        _ => return,
    };
    if v.dtype(class) == DType::F32 {
        found.equal(v.filled(value, class));
    }
}
