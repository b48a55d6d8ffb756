//! Mathematical functions of our own, for any number of lanes.
//!
//! LLVM has no code for `llvm.exp.v8f32` and kin: it calls libm once a lane. These are vector
//! polynomials instead, whose results are also the same on every machine; a GPU kernel gets the
//! scalar form of the same text.

use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Linkage;

use super::llvm::Unit;
use crate::error::{Error, Stage};

/// The functions, for 8 lanes.
const TEXT: &str = include_str!("math.ll");

/// What [`TEXT`] defines.
const FUNCTIONS: [&str; 8] = ["cos", "erf", "exp", "exp2", "log", "log1p", "sin", "tanh"];

/// Prefix of our functions where LLVM has `llvm.`.
pub(super) const PREFIX: &str = "vlmc.";

/// Puts our functions in place of the f32 intrinsics of the same name, and behind calls of
/// `vlmc.NAME.vNf32`.
pub(super) fn define(unit: &Unit<'_>) -> Result<(), Error> {
    // Names, not functions: linking replaces a declaration by its definition.
    let wanted: Vec<(String, String, usize)> = unit
        .module
        .get_functions()
        .filter(|function| function.get_first_basic_block().is_none())
        .filter_map(|function| {
            let name = function.get_name().to_string_lossy().into_owned();
            let (ours, lanes) = our_name(&name)?;
            Some((name, ours, lanes))
        })
        .collect();
    let mut widths: Vec<usize> = wanted.iter().map(|(_, _, lanes)| *lanes).collect();
    widths.sort_unstable();
    widths.dedup();
    for lanes in widths {
        link(unit, &instance(lanes))?;
    }
    for (name, ours, _) in wanted {
        let (theirs, ours) = (unit.module.get_function(&name), unit.module.get_function(&ours));
        if let (Some(theirs), Some(ours)) = (theirs, ours)
            && theirs != ours
        {
            theirs.replace_all_uses_with(ours);
        }
    }
    internalize(unit);
    Ok(())
}

/// Adds the definitions of a text to the module, internal to it.
pub(super) fn link(unit: &Unit<'_>, text: &str) -> Result<(), Error> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    let buffer = MemoryBuffer::create_from_memory_range_copy(&bytes, "math");
    let module = unit
        .context
        .create_module_from_ir(buffer)
        .map_err(|said| unit.error(Stage::Translate, said.to_string()))?;
    let linked = unit.module.link_in_module(module);
    unit.listen();
    linked.map_err(|said| unit.error(Stage::Translate, said.to_string()))
}

/// Lets LLVM drop the functions of ours that nothing calls, and export none.
pub(super) fn internalize(unit: &Unit<'_>) {
    for function in unit.module.get_functions() {
        let ours = function.get_name().to_bytes();
        if function.get_first_basic_block().is_some()
            && (ours.starts_with(PREFIX.as_bytes()) || ours.starts_with(b"__nv_"))
        {
            function.set_linkage(Linkage::Internal);
        }
    }
}

/// Our function and its lanes for the name of an intrinsic or of a function of ours.
fn our_name(name: &str) -> Option<(String, usize)> {
    let rest = name.strip_prefix("llvm.").or_else(|| name.strip_prefix(PREFIX))?;
    let (function, shape) = rest.split_once('.')?;
    if !FUNCTIONS.contains(&function) {
        return None;
    }
    let lanes = match shape.strip_suffix("f32")? {
        "" => 1,
        lanes => lanes.strip_prefix('v')?.parse().ok().filter(|&lanes| lanes > 1)?,
    };
    Some((format!("{PREFIX}{function}.{shape}"), lanes))
}

/// [`TEXT`] for another number of lanes.
fn instance(lanes: usize) -> String {
    if lanes > 1 {
        return TEXT
            .replace("<8 x ", &format!("<{lanes} x "))
            .replace(".v8", &format!(".v{lanes}"));
    }
    let mut text = unwrapped(TEXT, "<8 x ", ">");
    for ty in ["float", "double", "i32"] {
        text = unwrapped(&text, &format!("splat ({ty} "), ")");
    }
    text.replace(".v8", ".")
}

/// `text` without each `open` and the `close` that follows it.
fn unwrapped(text: &str, open: &str, close: &str) -> String {
    let mut parts = text.split(open);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(&part.replacen(close, "", 1));
    }
    out
}
