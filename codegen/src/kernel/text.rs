//! MLIR text: numbered values and the ops that both targets write alike.

use std::fmt::Write as _;

/// Lines of MLIR with fresh names.
#[derive(Default)]
pub(crate) struct Text {
    pub(crate) out: String,
    next: usize,
}

impl Text {
    /// A line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    /// A fresh name.
    pub(crate) fn name(&mut self) -> String {
        self.next += 1;
        format!("%t{}", self.next)
    }

    /// An op with one result.
    pub(crate) fn op(&mut self, text: impl AsRef<str>) -> String {
        let name = self.name();
        let _ = writeln!(self.out, "{name} = {}", text.as_ref());
        name
    }

    /// `a op b` of a type.
    pub(crate) fn binary(&mut self, op: &str, a: &str, b: &str, ty: &str) -> String {
        let fast = if ["arith.addf", "arith.subf", "arith.mulf"].contains(&op) {
            " fastmath<contract>"
        } else {
            ""
        };
        self.op(format!("{op} {a}, {b}{fast} : {ty}"))
    }
}

/// An f32 constant by its bits, so that nothing is lost in text.
pub(crate) fn bits(x: f64) -> String {
    format!("0x{:08X}", (x as f32).to_bits())
}
