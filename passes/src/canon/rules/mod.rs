//! The rules, by family. Each is directional: its right side is nearer to the normal form, in which
//! slices stand at the loads, concatenations at the stores, repeats in the consumer, and arithmetic
//! between them in one row shape. There is no associativity: nothing here needs it, and chains of
//! residual sums would explode.

mod axes;
mod casts;
mod collapse;
mod commute;
mod inward;
mod names;
mod outward;
mod pads;
mod roll;
mod sink;

use super::saturate::Rule;

pub(super) use commute::commutes;

/// Every rule, in a fixed order.
pub(super) fn all() -> Vec<Rule> {
    [
        names::RULES,
        commute::RULES,
        casts::RULES,
        outward::RULES,
        pads::RULES,
        inward::RULES,
        collapse::RULES,
        roll::RULES,
        sink::RULES,
    ]
    .concat()
}

/// The names of every rule.
pub(super) fn names() -> Vec<&'static str> {
    all().iter().map(|r| r.name).collect()
}
