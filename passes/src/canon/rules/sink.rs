//! Repeats of heads that the consumer makes itself: attention and the delta rule share heads of
//! keys among heads of queries or values.

use crate::canon::saturate::Rule;
use crate::canon::term::{Found, Term, View};
use egg::Id;
use vlmc_ir::dim::Dim;
use vlmc_ir::ops::Op;

pub(super) const RULES: &[Rule] = &[Rule {
    name: "sink.repeat",
    on: |op| matches!(op, Op::GatedDeltaRule | Op::Attention { .. }),
    body: repeat,
}];

/// The axis of heads.
const HEADS: u32 = 1;

/// What was repeated along the heads, and how many times.
fn repeated<'g>(v: View<'g>, class: Id) -> impl Iterator<Item = (Id, &'g Dim)> {
    v.nodes(class).filter_map(|(op, c)| match (op, c) {
        (Op::Repeat { axis: HEADS, times }, [x]) => Some((*x, times)),
        _ => None,
    })
}

/// `f(repeat q, repeat k, v) => f(q, k, v)` for the delta rule, and for attention with its keys and
/// values. Both must be repeated alike, for they share their heads.
fn repeat(v: View<'_>, _: Id, op: &Op, c: &[Id], found: &mut Found) {
    let [first, second] = match op {
        Op::Attention { .. } => [1, 2],
        _ => [0, 1],
    };
    let (Some(a), Some(b)) = (c.get(first), c.get(second)) else { return };
    for (x, times) in repeated(v, *a) {
        let mut alike = false;
        for (y, _) in repeated(v, *b).filter(|(_, t)| *t == times) {
            alike = true;
            let operands = c.iter().enumerate().map(|(i, o)| {
                Term::Have(if i == first {
                    x
                } else if i == second {
                    y
                } else {
                    *o
                })
            });
            found.equal(Term::Make(op.clone(), operands.collect()));
        }
        if !alike {
            found.refuse("only one of two operands that share their heads is repeated");
        }
    }
}
