//! Casts that change nothing. A cast to a narrower type and back is no such: it rounds.

use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View, make};
use egg::Id;
use vlmc_ir::ops::{Op, Scalar};
use vlmc_ir::ty::DType;

pub(super) const RULES: &[Rule] = &[
    Rule { name: "cast.same", on: is_cast, body: same },
    Rule { name: "cast.widen_narrow", on: is_cast, body: widen_narrow },
    Rule { name: "cast.constant", on: is_cast, body: constant },
];

fn is_cast(op: &Op) -> bool {
    matches!(op, Op::Cast { .. })
}

/// `cast_d(x : d) => x`
fn same(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    if let (Op::Cast { dtype }, [x]) = (op, c)
        && v.dtype(*x) == *dtype
    {
        found.equal(Term::Have(*x));
    }
}

/// Whether every value of `from` is one of `to`.
fn widens(from: DType, to: DType) -> bool {
    matches!(
        (from, to),
        (DType::Bf16, DType::F32) | (DType::Bool, DType::Bf16 | DType::F32 | DType::I32)
    )
}

/// `cast_e(cast_d(x)) => cast_e(x)` when the inner cast loses nothing.
fn widen_narrow(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    let (Op::Cast { dtype }, [wide]) = (op, c) else { return };
    for (inner, c) in v.nodes(*wide) {
        let (Op::Cast { .. }, [x]) = (inner, c) else { continue };
        if widens(v.dtype(*x), v.dtype(*wide)) {
            found.equal(make(Op::Cast { dtype: *dtype }, Term::Have(*x)));
        } else if v.dtype(*x) == *dtype {
            found.refuse(format!("the cast to {} rounds", v.dtype(*wide)));
        }
    }
}

/// A number that the other type has is that number there.
fn constant(v: View<'_>, class: Id, op: &Op, c: &[Id], found: &mut Found) {
    let (Op::Cast { dtype }, [x]) = (op, c) else { return };
    let Some(value) = v.constant(*x) else { return };
    let exact = match dtype {
        DType::F32 | DType::Bf16 => representable(value),
        DType::I32 => value == f64::from(value as i32),
        DType::Bool => value == 0.0 || value == 1.0,
    };
    if exact {
        let shape = v.dims(class).to_vec();
        let op = Op::Constant { value: Scalar(value), dtype: *dtype, shape };
        found.equal(Term::Make(op, vec![]));
    }
}

/// Whether bf16 has the number: the lower half of its f32 bits is empty.
fn representable(value: f64) -> bool {
    let single = value as f32;
    f64::from(single) == value && single.to_bits() & 0xffff == 0
}
