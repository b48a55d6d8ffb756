//! Gradients of exchanges. What is differentiated is the sum of what all ranks make, so the adjoint of
//! an exchange is the exchange of the transposed matrix of "who gets what".

use super::{GradBuilder, Gradients};
use crate::graph::{Node, Value};
use crate::ops::{Op, TypeError};

fn one(b: &mut GradBuilder, op: Op, dout: &[Option<Value>]) -> Result<Gradients, TypeError> {
    match dout {
        [Some(d)] => Ok(vec![Some(b.node(op, &[*d])?.into())]),
        _ => Ok(vec![]),
    }
}

macro_rules! rules {
    ($($name:ident: $from:pat => $to:expr;)*) => {$(
        pub(crate) fn $name(
            b: &mut GradBuilder,
            n: &Node,
            _: &[Value],
            dout: &[Option<Value>],
        ) -> Result<Gradients, TypeError> {
            match &n.op {
                $from => one(b, $to, dout),
                _ => Ok(vec![]),
            }
        }
    )*};
}

rules! {
    all_reduce: Op::AllReduce { axis, ranks } => Op::AllReduce { axis: *axis, ranks: *ranks };
    all_gather: Op::AllGather { axis, ranks, dim } =>
        Op::ReduceScatter { axis: *axis, ranks: *ranks, dim: *dim };
    reduce_scatter: Op::ReduceScatter { axis, ranks, dim } =>
        Op::AllGather { axis: *axis, ranks: *ranks, dim: *dim };
    all_to_all: Op::AllToAll { axis, ranks, split, gather } =>
        Op::AllToAll { axis: *axis, ranks: *ranks, split: *gather, gather: *split };
    shard: Op::Shard { axis, ranks, dim } =>
        Op::Unshard { axis: *axis, ranks: *ranks, dim: *dim };
    unshard: Op::Unshard { axis, ranks, dim } =>
        Op::Shard { axis: *axis, ranks: *ranks, dim: *dim };
}
