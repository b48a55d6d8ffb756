//! Places in the spec, carried to the `.loc` lines of PTX and the line table of a host object.
//!
//! LLVM keeps a line only inside a subprogram, and a line of another file only inside a block of
//! that file; MLIR has neither until it is told. Its own pass makes compile units whose PTX is for
//! debugging, which `ptxas` then leaves unoptimised, so this makes units of directives only.

use melior::Context;
use melior::ir::attribute::{AttributeLike, StringAttribute};
use melior::ir::operation::{OperationLike, OperationMutLike, OperationRefMut};
use melior::ir::{Attribute, BlockLike, BlockRef, Location, RegionLike};

use super::mlir::string;
use crate::error::{Error, Stage};

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// The first line in a location that `keep` wants.
pub(super) fn place(location: Location<'_>, keep: &impl Fn(&str) -> bool) -> Option<Place> {
    if location.is_file_line_col_range() {
        let file = string(location.file_line_col_range_filename().as_string_ref());
        return keep(&file).then(|| Place {
            file,
            line: location.file_line_col_range_start_line(),
            column: location.file_line_col_range_start_column(),
        });
    }
    if location.is_name() {
        return place(location.name_child_location(), keep);
    }
    if location.is_call_site() {
        return place(location.call_site_callee(), keep);
    }
    if location.is_fused() {
        return (0..location.fused_num_locations())
            .find_map(|index| place(location.fused_location(index), keep));
    }
    None
}

/// What becomes of the lines.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lines {
    /// Lines between instructions of PTX, and nothing else.
    Directives,
    /// The line table of an object.
    Table,
}

/// Gives every `llvm.func` of a block whose ops name lines of another text than `own`, the kernel's
/// MLIR itself, a subprogram and its ops their scopes. Other functions stay as they are.
pub(super) fn scope<'c>(
    context: &'c Context,
    body: BlockRef<'c, '_>,
    own: &str,
    lines: Lines,
) -> Result<(), Error> {
    let foreign = |file: &str| file != own;
    let mut next = body.first_operation_mut();
    while let Some(mut function) = next {
        next = function.next_in_block_mut();
        let body = function.region(0).ok().and_then(|region| region.first_block());
        if function.name().as_string_ref().as_str() != Ok("llvm.func") || body.is_none() {
            continue;
        }
        let mut first = place(function.location(), &foreign);
        each_operation(&function, |operation| {
            if first.is_none() {
                first = place(operation.location(), &foreign);
            }
        });
        let Some(first) = first else { continue };
        let scope = subprogram(context, &function, &first, lines)
            .ok_or_else(|| Error::new(own, Stage::Translate, "MLIR refused its debug scope"))?;
        function.set_location(Location::fused(context, &[located(context, &first)], scope));
        let mut blocks: Vec<(String, Attribute<'c>)> = Vec::new();
        each_operation(&function, |operation| {
            let location = match place(operation.location(), &foreign) {
                None => Location::unknown(context),
                Some(place) if place.file == first.file => located(context, &place),
                Some(place) => {
                    let block = match blocks.iter().find(|(file, _)| *file == place.file) {
                        Some((_, block)) => *block,
                        None => {
                            let block = block_of_file(context, scope, &place.file);
                            blocks.push((place.file.clone(), block));
                            block
                        }
                    };
                    Location::fused(context, &[located(context, &place)], block)
                }
            };
            operation.set_location(location);
        });
    }
    Ok(())
}

/// Visits the ops of a function, which has no regions inside by now.
fn each_operation<'c, 'a>(
    function: &OperationRefMut<'c, 'a>,
    mut visit: impl FnMut(&mut OperationRefMut<'c, 'a>),
) {
    let mut block = function.region(0).ok().and_then(|region| region.first_block());
    while let Some(current) = block {
        let mut operation = current.first_operation_mut();
        while let Some(mut one) = operation {
            visit(&mut one);
            operation = one.next_in_block_mut();
        }
        block = current.next_in_region();
    }
}

fn located<'c>(context: &'c Context, place: &Place) -> Location<'c> {
    Location::new(context, &place.file, place.line, place.column)
}

fn subprogram<'c>(
    context: &'c Context,
    function: &OperationRefMut<'c, '_>,
    place: &Place,
    lines: Lines,
) -> Option<Attribute<'c>> {
    let name = function.attribute("sym_name").ok()?.to_string();
    let kind = match lines {
        Lines::Directives => "DebugDirectivesOnly",
        Lines::Table => "LineTablesOnly",
    };
    let (file, line) = (quoted(&place.file), place.line);
    Attribute::parse(
        context,
        &format!(
            "#llvm.di_subprogram<id = distinct[0]<>, compileUnit = <id = distinct[1]<>, \
             sourceLanguage = DW_LANG_C, file = <{file} in \"\">, producer = \"vlmc\", \
             isOptimized = true, emissionKind = {kind}>, \
             scope = #llvm.di_file<{file} in \"\">, name = {name}, linkageName = {name}, \
             file = <{file} in \"\">, line = {line}, scopeLine = {line}, \
             subprogramFlags = \"Definition|Optimized\", \
             type = <callingConvention = DW_CC_normal>>"
        ),
    )
}

/// The scope of lines of another file than the function's.
fn block_of_file<'c>(context: &'c Context, scope: Attribute<'c>, file: &str) -> Attribute<'c> {
    let name = StringAttribute::new(context, file);
    let folder = StringAttribute::new(context, "");
    // SAFETY: the attributes are of this context, which owns what is made, and of the kinds that
    // the two calls expect: strings, then a subprogram and a file.
    unsafe {
        let file =
            mlir_sys::mlirLLVMDIFileAttrGet(context.to_raw(), name.to_raw(), folder.to_raw());
        Attribute::from_raw(mlir_sys::mlirLLVMDILexicalBlockFileAttrGet(
            context.to_raw(),
            scope.to_raw(),
            file,
            0,
        ))
    }
}

/// A string as MLIR writes one.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => quoted.push_str(&format!("\\{byte:02X}")),
            _ => quoted.push(char::from(byte)),
        }
    }
    quoted.push('"');
    quoted
}
