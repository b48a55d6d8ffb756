//! MLIR text: numbered values and the ops that both targets write alike.

use super::ir::Line;
use std::fmt::Write as _;
use vlmc_ir::graph::Function;

/// Lines of MLIR with fresh names.
#[derive(Default)]
pub(crate) struct Text {
    pub(crate) out: String,
    /// The node that the next ops are written for.
    pub(crate) at: Line,
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
        self.out.push_str(&format!("{name} = "));
        self.effect(text);
        name
    }

    /// An op without results.
    pub(crate) fn effect(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref());
        if let Some(node) = self.at {
            let _ = write!(self.out, " loc(#n{node})");
        }
        self.out.push('\n');
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

/// Where the nodes of a body come from, as the names of locations that [`Text::effect`] refers to.
pub(crate) fn places(f: &Function, files: &[String]) -> String {
    let mut out = String::new();
    for (i, node) in f.nodes.iter().enumerate() {
        let Some(o) = node.origins.first() else { continue };
        let file = files.get(o.file as usize).map_or("?", String::as_str);
        // A string of MLIR: what is not plain stands as hexadecimal.
        let plain = |b: u8| (b' '..=b'~').contains(&b) && b != b'"' && b != b'\\';
        let file: String = file
            .bytes()
            .map(|b| if plain(b) { char::from(b).to_string() } else { format!("\\{b:02X}") })
            .collect();
        let _ = writeln!(out, "#n{i} = loc(\"{file}\":{}:{})", o.line, o.column);
    }
    out
}
