//! GPU kernels: passes, bodies of the `__nv_*` calls, PTX.

use inkwell::targets::{FileType, RelocMode, TargetMachine};
use melior::ir::operation::{OperationLike, OperationRef};
use melior::ir::{BlockLike, BlockRef, Module, RegionLike};

use super::llvm::{self, Unit};
use super::math;
use crate::error::{Error, Stage};
use crate::target::Target;

pub(super) fn pipeline(target: Target, feature: &str) -> String {
    format!(
        "builtin.module(canonicalize,cse,nvvm-attach-target{{chip={target} features={feature} O=3}},\
         gpu.module(convert-scf-to-cf,convert-gpu-to-nvvm{{index-bitwidth=0}},canonicalize,cse,\
         reconcile-unrealized-casts,convert-nvvm-to-llvm))"
    )
}

/// The only `gpu.module` of a module.
pub(super) fn gpu_module<'c, 'a>(
    module: &'a Module<'c>,
    kernel: &str,
) -> Result<OperationRef<'c, 'a>, Error> {
    let mut found = None;
    let mut next = module.body().first_operation();
    while let Some(operation) = next {
        if operation.name().as_string_ref().as_str() == Ok("gpu.module")
            && found.replace(operation).is_some()
        {
            return Err(Error::new(kernel, Stage::Parse, "more than one gpu.module"));
        }
        next = operation.next_in_block();
    }
    found.ok_or_else(|| Error::new(kernel, Stage::Parse, "no gpu.module"))
}

/// The functions of a `gpu.module`.
pub(super) fn body<'c, 'a>(
    module: OperationRef<'c, 'a>,
    kernel: &str,
) -> Result<BlockRef<'c, 'a>, Error> {
    let region = module.region(0).ok().and_then(|region| region.first_block());
    region.ok_or_else(|| Error::new(kernel, Stage::Parse, "an empty gpu.module"))
}

/// Makes the module whole and optimises it.
pub(super) fn optimized(
    unit: &Unit<'_>,
    target: Target,
    feature: &str,
) -> Result<TargetMachine, Error> {
    let machine = llvm::machine(
        "nvptx64-nvidia-cuda",
        target.name(),
        feature,
        RelocMode::Default,
        unit.kernel,
    )?;
    define_math(unit)?;
    unit.seal(&machine, |name| name.starts_with("llvm."))?;
    unit.optimize(&machine)?;
    Ok(machine)
}

pub(super) fn ptx(unit: &Unit<'_>, target: Target, feature: &str) -> Result<String, Error> {
    let machine = optimized(unit, target, feature)?;
    let code = unit.write(&machine, FileType::Assembly)?;
    let end = code.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    String::from_utf8(code[..end].to_vec())
        .map_err(|error| unit.error(Stage::Emit, format!("PTX that is no text: {error}")))
}

/// Bodies for the `__nv_*` calls and the intrinsics that the hardware lacks.
fn define_math(unit: &Unit<'_>) -> Result<(), Error> {
    let calls = unit.module.get_functions().any(|function| {
        function.get_first_basic_block().is_none()
            && function.get_name().to_bytes().starts_with(b"__nv_")
    });
    if calls {
        math::link(unit, include_str!("nvptx.ll"))?;
    }
    math::define(unit)
}
