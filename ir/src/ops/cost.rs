//! Floating-point work of ops.

use crate::dim::Poly;
use crate::ops::Op;
use crate::ty::Ty;

/// How the work of an op follows from its types. Units are issue slots of one multiply-add lane;
/// the weights of transcendental functions are those of `facts/fusion.md` section 7.
#[derive(Clone, Copy, Debug)]
pub enum Cost {
    /// No arithmetic.
    Free,
    /// So many an element of the first result.
    PerResult(i64),
    /// So many an element of the first operand.
    PerOperand(i64),
    /// A formula of its own.
    Custom(fn(&Op, &[Ty]) -> Poly),
}

impl Op {
    /// Floating-point operations of one execution, as a formula in the symbols of the types.
    pub fn flops(&self, operands: &[Ty], results: &[Ty]) -> Poly {
        let elements = |t: Option<&Ty>| t.map_or_else(Poly::default, Ty::elements);
        match self.info().cost {
            Cost::Free => Poly::default(),
            Cost::PerResult(n) => elements(results.first()).mul(&n.into()),
            Cost::PerOperand(n) => elements(operands.first()).mul(&n.into()),
            Cost::Custom(f) => f(self, operands),
        }
    }

    /// Bytes read and written when every operand and result is in memory.
    pub fn bytes(&self, operands: &[Ty], results: &[Ty]) -> Poly {
        operands.iter().chain(results).fold(Poly::default(), |sum, t| sum.add(&t.bytes()))
    }
}

/// Size of dim `i` of operand `operand`; 0 when there is none, which the verifier has reported.
fn size(tys: &[Ty], operand: usize, i: usize) -> Poly {
    tys.get(operand).and_then(|t| t.dims.get(i)).map_or_else(Poly::default, |d| d.size().clone())
}

fn elements(tys: &[Ty], operand: usize) -> Poly {
    tys.get(operand).map_or_else(Poly::default, Ty::elements)
}

/// Two for each element of `a` and each free element of `b`.
pub(super) fn contract(op: &Op, tys: &[Ty]) -> Poly {
    let Op::Contract { b_batch, b_contract, .. } = op else { return Poly::default() };
    let Some(b) = tys.get(1) else { return Poly::default() };
    let free = b.dims.iter().enumerate().filter(|(i, _)| {
        let i = *i as u32;
        !b_batch.contains(&i) && !b_contract.contains(&i)
    });
    crate::dim::product(free.map(|(_, d)| d)).mul(&elements(tys, 0)).mul(&2.into())
}

pub(super) fn grouped_contract(op: &Op, tys: &[Ty]) -> Poly {
    let Op::GroupedContract { transposed } = op else { return Poly::default() };
    let n = size(tys, 1, if *transposed { 2 } else { 1 });
    elements(tys, 0).mul(&n).mul(&2.into())
}

pub(super) fn grouped_outer(_: &Op, tys: &[Ty]) -> Poly {
    elements(tys, 0).mul(&size(tys, 1, 1)).mul(&2.into())
}

pub(super) fn causal_conv1d(_: &Op, tys: &[Ty]) -> Poly {
    elements(tys, 0).mul(&size(tys, 1, 1)).mul(&2.into())
}

pub(super) fn causal_conv1d_weight(op: &Op, tys: &[Ty]) -> Poly {
    let Op::CausalConv1dWeightGrad { taps, .. } = op else { return Poly::default() };
    elements(tys, 0).mul(taps.size()).mul(&2.into())
}

/// Step by step: decay, prediction, update and read of a Dk x Dv state, 7 operations an entry.
pub(super) fn gated_delta_rule(_: &Op, tys: &[Ty]) -> Poly {
    elements(tys, 2).mul(&size(tys, 1, 2)).mul(&7.into())
}

/// Two products of every query with every key of its rows; an upper bound for segments and masks.
pub(super) fn attention(_: &Op, tys: &[Ty]) -> Poly {
    let scores = size(tys, 0, 0).mul(&size(tys, 0, 0)).mul(&size(tys, 0, 1));
    scores.mul(&size(tys, 0, 2).add(&size(tys, 2, 2))).mul(&2.into())
}

/// Twice the forward steps, which it repeats to have the states, and the gradients of each part.
pub(super) fn gated_delta_rule_grad(op: &Op, tys: &[Ty]) -> Poly {
    gated_delta_rule(op, tys).mul(&3.into())
}

/// Five products where the forward has two: scores again, and the gradients of the four operands.
pub(super) fn attention_grad(_: &Op, tys: &[Ty]) -> Poly {
    let scores = size(tys, 0, 0).mul(&size(tys, 0, 0)).mul(&size(tys, 0, 1));
    let (d, dv) = (size(tys, 0, 2), size(tys, 2, 2));
    scores.mul(&d.mul(&3.into()).add(&dv.mul(&2.into()))).mul(&2.into())
}
