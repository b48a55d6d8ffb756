//! The reference page of the ops, made from the table.

use super::{Class, Cost, Effect, Gradient, Op, OpInfo};
use std::fmt::Write as _;

/// Classes in the order of the page, with what they are.
const CLASSES: [(Class, &str, &str); 9] = [
    (
        Class::Structure,
        "Structure",
        "Inputs, parameters and calls. They have a syntax of their own.",
    ),
    (Class::Source, "Sources", "No operands."),
    (
        Class::Elementwise,
        "Elementwise",
        "Each result element depends on the operand elements of the same index. All operands have \
         one shape: widening is a `broadcast` of its own.",
    ),
    (Class::View, "Movement", "A different arrangement of the same elements."),
    (Class::Reduction, "Reductions", "Dims disappear by a sum or maximum."),
    (Class::Contraction, "Contractions", "A product with a sum; matrix engines do it."),
    (Class::Indexing, "Indexing", "Rows are chosen by data."),
    (
        Class::Sequence,
        "Sequences",
        "They follow the rows of packed documents. `cu_seqlens[n+1]` and `cu_seqlens_padded[n+1]` \
         are cumulative valid and padded lengths: segment `i` owns rows `padded[i] .. \
         padded[i+1]`, of which the first `cu[i+1] - cu[i]` are valid. The other rows get zeros, \
         and none of them reaches a valid row.",
    ),
    (Class::Communication, "Communication", "Exchange between the ranks of a mesh axis."),
];

/// The text of `docs/ops.md`.
pub fn page() -> String {
    let mut out = String::from(
        "# Ops\n\nMade from the op table by `BLESS=1 cargo test -p vlmc-ir --test reference`; do \
         not edit.\n\nA node is written `%y = op %a, %b {attribute = value} : type`. Operands \
         marked `?` may be missing,\nthose marked `..` are any number. Effects: *pure* ops may \
         move, merge with an equal one, be recomputed\nor dropped; every rank of a group executes \
         a *collective*, in the same order; *structural* ops stand\nfor parts of the program. \
         Costs count issue slots of one multiply-add lane.\n",
    );
    for (class, title, text) in CLASSES {
        let _ = write!(out, "\n## {title}\n\n{text}\n");
        for info in Op::all().iter().filter(|i| i.class == class) {
            op(info, &mut out);
        }
    }
    out
}

fn op(info: &OpInfo, out: &mut String) {
    let _ = write!(out, "\n### `{}`\n\n", info.name);
    let operands: Vec<&str> = info.operands.to_vec();
    let results = info.results.join(", ");
    let _ = writeln!(out, "`({}) -> ({results})`\n", operands.join(", "));
    for line in info.doc.lines() {
        // Links between items of the source are names here.
        let _ = writeln!(out, "{}", line.trim().replace("[`Op::", "`").replace("`]", "`"));
    }
    out.push('\n');
    if !info.attributes.is_empty() {
        out.push_str("| attribute | type |\n|---|---|\n");
        for (name, ty) in info.attributes {
            let _ = writeln!(out, "| `{name}` | {} |", attribute_type(ty));
        }
        out.push('\n');
    }
    let effect = match info.effect {
        Effect::Pure => "pure",
        Effect::Collective => "collective",
        Effect::Structural => "structural",
    };
    let cost = match info.cost {
        Cost::Free => "no arithmetic".to_string(),
        Cost::PerResult(n) => format!("{n} an element of the result"),
        Cost::PerOperand(n) => format!("{n} an element of the first operand"),
        Cost::Custom(_) => "by its sizes".to_string(),
    };
    let gradient = match info.gradient {
        Gradient::None => "none",
        Gradient::Rule(_) => "by its rule",
        Gradient::Once => "not differentiated again",
        Gradient::Structural => "through the function",
    };
    let _ = writeln!(out, "Effect: {effect}. Cost: {cost}. Gradient: {gradient}.");
}

/// An attribute's type in words, from its Rust type.
pub fn attribute_type(rust: &str) -> String {
    let inner = |prefix: &str| rust.strip_prefix(prefix).and_then(|r| r.strip_suffix('>'));
    if let Some(item) = inner("Vec<") {
        return format!("list of {}", attribute_type(item));
    }
    if let Some(item) = inner("Option<") {
        return format!("{}, or `none`", attribute_type(item));
    }
    match rust {
        "u32" => "index",
        "i64" => "integer",
        "bool" => "`true` or `false`",
        "Scalar" => "number",
        "DType" => "element type",
        "Comparison" => "`eq`, `ne`, `lt`, `le`, `gt` or `ge`",
        "MeshAxis" => "mesh axis",
        "Dim" => "size",
        "String" => "text",
        other => other,
    }
    .to_string()
}
