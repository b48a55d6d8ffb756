//! What a device takes for kernels, in microseconds.

use super::body::Body;
use super::facts::{Facts, Role, at};
use vlmc_ir::ops::Op;

/// Constants of a device. Those of the line are fitted to measured copies; the others are estimates
/// to be tuned.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// Microseconds to start and drain a kernel.
    pub launch: f64,
    /// More of them for the second stage of a sum over rows.
    pub second_stage: f64,
    /// Bytes a microsecond.
    pub bandwidth: f64,
    /// Lane slots a microsecond at a usual issue rate.
    pub issue: f64,
    /// Registers of a multiprocessor.
    pub registers: f64,
    /// Bytes that each resident thread keeps in flight.
    pub bytes_a_thread: f64,
    /// Bytes in flight that a multiprocessor needs for the full bandwidth.
    pub bytes_in_flight: f64,
    /// Registers of a thread before any row value is held.
    pub base_registers: f64,
    /// Registers that a thread may use.
    pub most_registers: f64,
    /// Lanes of the longest row.
    pub longest_row: f64,
    /// Lanes of a row in which parts may be reduced under a mask.
    pub masked_row: f64,
    /// What symbols of sizes are taken for.
    pub typical_rows: i64,
}

impl Default for Device {
    /// An H200.
    fn default() -> Self {
        Device {
            launch: 4.5,
            second_stage: 2.5,
            bandwidth: 4.35e6,
            issue: 132.0 * 128.0 * 1755.0 * 0.6,
            registers: 65536.0,
            // Four rows of eight bytes of two tensors: kernels load rows ahead.
            bytes_a_thread: 64.0,
            bytes_in_flight: 23000.0,
            base_registers: 28.0,
            most_registers: 168.0,
            longest_row: 16384.0,
            masked_row: 1024.0,
            typical_rows: 8192,
        }
    }
}

impl Device {
    /// A body without its stores; `registers` as legality found them.
    pub(super) fn kernel(&self, facts: &Facts<'_>, body: &Body, registers: f64) -> f64 {
        let read = body.read(facts);
        let work = body.ops.iter().filter(|i| !facts.param[*i]);
        let slots: f64 = work.map(|i| slots(facts, i)).sum();
        let occupied = self.registers / registers * self.bytes_a_thread / self.bytes_in_flight;
        let second = body.ops.iter().any(|i| facts.sums_rows(i) && !facts.param[i]);
        let second = if second { self.second_stage } else { 0.0 };
        let line = read / self.bandwidth;
        self.launch + second + line / occupied.min(1.0) + (slots / self.issue - 2.0 * line).max(0.0)
    }

    /// The store of a value.
    pub(super) fn store(&self, facts: &Facts<'_>, v: usize) -> f64 {
        facts.bytes(v) / self.bandwidth
    }
}

/// Issue slots of one multiply-add lane.
fn slots(facts: &Facts<'_>, i: usize) -> f64 {
    let elements = facts.elements(i);
    let operand = || facts.f.nodes[i].operands.first().map_or(0.0, |v| facts.elements(at(*v)));
    match facts.op(i) {
        Op::Cast { .. } => 0.5 * elements,
        Op::ReduceSum { .. } | Op::ReduceMax { .. } => 1.2 * operand(),
        Op::CausalConv1d | Op::CausalConv1dInputGrad => taps(facts, i) * elements,
        Op::CausalConv1dWeightGrad { .. } => taps(facts, i) * operand(),
        Op::RowValid { .. } | Op::SegmentShift { .. } => 4.0 * elements,
        op => match op.info().cost {
            vlmc_ir::ops::Cost::PerResult(n) => n as f64 * elements,
            vlmc_ir::ops::Cost::PerOperand(n) => n as f64 * operand(),
            _ => 0.0,
        },
    }
}

/// Rows that a stencil reads around each of its own, that one included; 0 for other ops.
pub(super) fn taps(facts: &Facts<'_>, i: usize) -> f64 {
    let node = &facts.f.nodes[i];
    match &node.op {
        Op::CausalConv1d | Op::CausalConv1dInputGrad => {
            let weights = node.operands.get(1).map(|w| facts.f.ty(*w));
            weights.and_then(|t| t.dims.get(1)).map_or(1.0, |d| facts.size(d.size()))
        }
        Op::CausalConv1dWeightGrad { taps, .. } => facts.size(taps.size()),
        Op::SegmentShift { by, .. } => by.unsigned_abs() as f64 + 1.0,
        _ => 0.0,
    }
}

/// Whether the value is loaded from memory.
pub(super) fn in_memory(facts: &Facts<'_>, i: usize) -> bool {
    matches!(facts.role[i], Role::Leaf | Role::Cut)
}
