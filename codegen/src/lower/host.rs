//! Host kernels: passes, our own mathematical functions, an object.

use inkwell::targets::{FileType, RelocMode, TargetMachine};
use melior::Context;
use melior::ir::attribute::{FlatSymbolRefAttribute, StringAttribute, TypeAttribute};
use melior::ir::operation::{OperationBuilder, OperationLike, OperationRef};
use melior::ir::r#type::FunctionType;
use melior::ir::{BlockLike, Identifier, Location, Module, Region, RegionLike, Type, ValueLike};

use super::llvm::{self, Unit};
use super::math;
use crate::error::{Error, Stage};

/// bf16 becomes integer arithmetic first: without instructions for it, LLVM calls a library that
/// not every machine has.
pub(super) const PIPELINE: &str = "builtin.module(arith-expand{include-bf16=true},canonicalize,cse,\
     convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-func-to-llvm,\
     convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,canonicalize,cse,\
     reconcile-unrealized-casts)";

/// AVX2, FMA and F16C; what an artifact may ask of the machine that runs it.
const CPU: &str = "x86-64-v3";

/// Ops of the math dialect that do not become an intrinsic, or one that loses digits, and our
/// functions for them.
const OWN: [(&str, &str); 2] = [("math.erf", "erf"), ("math.log1p", "log1p")];

/// Intrinsics that LLVM turns into calls of libm, whatever their type. Ours have taken the place
/// of those that they can by the time this is asked.
const LIBM: [&str; 23] = [
    "acos", "asin", "atan", "atan2", "cos", "cosh", "exp", "exp10", "exp2", "frexp", "ldexp",
    "log", "log10", "log2", "modf", "pow", "powi", "sin", "sincos", "sincospi", "sinh", "tan",
    "tanh",
];

/// Replaces the ops of [`OWN`] by calls of our functions.
pub(super) fn own_math<'c>(
    context: &'c Context,
    module: &Module<'c>,
    kernel: &str,
) -> Result<(), Error> {
    let refused = |error: melior::Error| Error::new(kernel, Stage::Parse, error.to_string());
    let mut found = Vec::new();
    collect(module.as_operation(), &mut found);
    let mut declared: Vec<String> = Vec::new();
    for (operation, function) in found {
        let (Some(block), Ok(operand)) = (operation.block(), operation.operand(0)) else {
            continue;
        };
        let ty = operand.r#type();
        let name = format!("{}{function}.{}", math::PREFIX, llvm_type(ty));
        let call = OperationBuilder::new("func.call", operation.location())
            .add_operands(&[operand])
            .add_attributes(&[(
                Identifier::new(context, "callee"),
                FlatSymbolRefAttribute::new(context, &name).into(),
            )])
            .add_results(&[ty])
            .build()
            .map_err(refused)?;
        let call = block.insert_operation_before(operation, call);
        let (old, new) = (operation.result(0).map_err(refused)?, call.result(0).map_err(refused)?);
        // SAFETY: both values are live results of ops in this module, of one type. The old op,
        // which has no effect, is left to canonicalisation.
        unsafe { mlir_sys::mlirValueReplaceAllUsesOfWith(old.to_raw(), new.to_raw()) };
        if !declared.contains(&name) {
            module.body().append_operation(declaration(context, &name, ty).map_err(refused)?);
            declared.push(name);
        }
    }
    Ok(())
}

/// The ops of [`OWN`] in an op, in their order.
fn collect<'c, 'a>(
    operation: OperationRef<'c, 'a>,
    found: &mut Vec<(OperationRef<'c, 'a>, &'static str)>,
) {
    let name = operation.name();
    let name = name.as_string_ref().as_str().unwrap_or_default();
    if let Some((_, function)) = OWN.iter().find(|(op, _)| *op == name) {
        found.push((operation, function));
    }
    for index in 0..operation.region_count() {
        let mut block = operation.region(index).ok().and_then(|region| region.first_block());
        while let Some(current) = block {
            let mut next = current.first_operation();
            while let Some(inner) = next {
                collect(inner, found);
                next = inner.next_in_block();
            }
            block = current.next_in_region();
        }
    }
}

/// `v8f32` for `vector<8xf32>`, `f32` for `f32`, as LLVM mangles them.
fn llvm_type(ty: Type<'_>) -> String {
    let text = ty.to_string();
    match text.strip_prefix("vector<").and_then(|rest| rest.strip_suffix('>')) {
        Some(shape) => format!("v{}", shape.replacen('x', "", 1)),
        None => text,
    }
}

fn declaration<'c>(
    context: &'c Context,
    name: &str,
    ty: Type<'c>,
) -> Result<melior::ir::Operation<'c>, melior::Error> {
    let function = FunctionType::new(context, &[ty], &[ty]);
    OperationBuilder::new("func.func", Location::unknown(context))
        .add_attributes(&[
            (Identifier::new(context, "sym_name"), StringAttribute::new(context, name).into()),
            (Identifier::new(context, "function_type"), TypeAttribute::new(function.into()).into()),
            (
                Identifier::new(context, "sym_visibility"),
                StringAttribute::new(context, "private").into(),
            ),
        ])
        .add_regions([Region::new()])
        .build()
}

/// Makes the module whole and optimises it.
pub(super) fn optimized(unit: &Unit<'_>) -> Result<TargetMachine, Error> {
    let machine = llvm::machine("x86_64-unknown-linux-gnu", CPU, "", RelocMode::PIC, unit.kernel)?;
    math::define(unit)?;
    unit.seal(&machine, |name| name.strip_prefix("llvm.").is_some_and(|rest| !is_libm(rest)))?;
    unit.optimize(&machine)?;
    Ok(machine)
}

pub(super) fn object(unit: &Unit<'_>) -> Result<Vec<u8>, Error> {
    let machine = optimized(unit)?;
    unit.write(&machine, FileType::Object)
}

fn is_libm(intrinsic: &str) -> bool {
    let function = intrinsic.split('.').next().unwrap_or_default();
    LIBM.contains(&function)
}
