//! Which divided operands an op takes.
//!
//! 1. Elementwise: every operand lies alike. A sum that is owed passes only through ops that are
//!    linear in all operands that owe it.
//! 2. Communication: its own shape rule changes the sharding.
//! 3. Every other op takes whole tensors. A lowering that wants one divided says so with a
//!    collective, which is how a missing one is found.

use super::{Class, Op, TypeError};
use crate::ty::Ty;

pub(super) fn check(op: &Op, operands: &[Ty]) -> Result<(), TypeError> {
    let Some(divided) = operands.iter().position(|t| !t.sharding.is_replicated()) else {
        return Ok(());
    };
    let error =
        |message: String| Err(TypeError { message, places: vec![(divided, None)], help: None });
    match op.info().class {
        Class::Communication | Class::Structure => Ok(()),
        Class::Elementwise => {
            let first = &operands[0].sharding;
            if let Some(other) = operands.iter().find(|t| t.sharding != *first) {
                return error(format!("operands lie differently: {} and {other}", operands[0]));
            }
            let linear = matches!(op, Op::Add | Op::Sub | Op::Neg);
            if !linear && !first.partial().is_empty() {
                return error(format!("a sum is still owed: {}", operands[0]));
            }
            Ok(())
        }
        _ => error(format!(
            "`{}` takes whole tensors, not {}",
            op.info().operand_name(divided),
            operands[divided]
        )),
    }
}
