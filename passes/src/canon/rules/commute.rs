//! Operands in either order, for rules that look at one of them.

use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View};
use egg::Id;
use vlmc_ir::ops::Op;

pub(super) const RULES: &[Rule] = &[
    Rule { name: "comm.add", on: |op| matches!(op, Op::Add), body: swap },
    Rule { name: "comm.mul", on: |op| matches!(op, Op::Mul), body: swap },
    Rule { name: "comm.extreme", on: |op| matches!(op, Op::Max | Op::Min), body: swap },
    Rule { name: "comm.logic", on: |op| matches!(op, Op::And | Op::Or), body: swap },
];

/// Whether operands may be swapped.
pub(in crate::canon) fn commutes(op: &Op) -> bool {
    RULES.iter().any(|r| (r.on)(op))
}

fn swap(_: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    if let [a, b] = c {
        found.equal(Term::Make(op.clone(), vec![Term::Have(*b), Term::Have(*a)]));
    }
}
