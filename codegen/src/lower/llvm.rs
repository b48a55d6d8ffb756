//! The LLVM half: adopting what MLIR translated, optimising it, writing it out.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::llvm_sys::LLVMDiagnosticSeverity;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::prelude::{LLVMDiagnosticInfoRef, LLVMModuleRef};
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple,
};
use inkwell::values::BasicValue;
use melior::ir::operation::OperationRef;

use super::mlir::Mlir;
use crate::error::{Error, Stage};

/// Sets up the targets; more than once does no harm.
pub(super) fn initialize() {
    let all = InitializationConfig::default();
    Target::initialize_nvptx(&all);
    Target::initialize_x86(&all);
}

/// A module of LLVM IR in its own context, and what LLVM said about it.
pub(super) struct Unit<'c> {
    pub(super) context: &'c Context,
    pub(super) module: Module<'c>,
    pub(super) kernel: &'c str,
    said: &'c RefCell<Vec<String>>,
}

/// Translates an operation and hands the module to `finish`, with LLVM's errors collected. Without
/// a handler LLVM prints an error and ends the process.
pub(super) fn emit<T>(
    mlir: &Mlir,
    operation: OperationRef<'_, '_>,
    kernel: &str,
    finish: impl FnOnce(&Unit<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let said = RefCell::new(Vec::new());
    let context = Context::create();
    let module = translate(mlir, operation, &context, kernel)?;
    let unit = Unit { context: &context, module, kernel, said: &said };
    unit.listen();
    finish(&unit)
}

/// Adopts a module that MLIR makes. `mlir-sys` and `llvm-sys` name the same C structs with
/// different types of Rust.
fn translate<'c>(
    mlir: &Mlir,
    operation: OperationRef<'_, '_>,
    context: &'c Context,
    kernel: &str,
) -> Result<Module<'c>, Error> {
    mlir.forget();
    // SAFETY: the operation and the context are live, and the context outlives the module. What is
    // returned is null or a module that nobody else owns.
    unsafe {
        let raw = mlir_sys::mlirTranslateModuleToLLVMIR(
            operation.to_raw(),
            context.raw() as mlir_sys::LLVMContextRef,
        );
        if raw.is_null() {
            return Err(mlir.error(kernel, Stage::Translate, "MLIR's translation failed"));
        }
        Ok(Module::new(raw as LLVMModuleRef))
    }
}

impl<'c> Unit<'c> {
    /// Makes LLVM's errors arrive in `said`. Linking a module puts another handler in its place, so
    /// call this again after it.
    pub(super) fn listen(&self) {
        // SAFETY: `said` outlives the context, which is dropped before it in `emit`.
        unsafe {
            LLVMContextSetDiagnosticHandler(
                self.context.raw(),
                Some(collect),
                std::ptr::from_ref(self.said).cast_mut().cast::<c_void>(),
            );
        }
    }

    pub(super) fn error(&self, stage: Stage, detail: impl Into<String>) -> Error {
        let said = self.said.take();
        let detail = if said.is_empty() { detail.into() } else { said.join("\n") };
        Error::new(self.kernel, stage, detail)
    }

    /// Sets the module up for a machine and checks it. Functions that are called must all have a
    /// body by now, or be intrinsics that `known` admits.
    pub(super) fn seal(
        &self,
        machine: &TargetMachine,
        known: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        self.module.set_triple(&machine.get_triple());
        self.module.set_data_layout(&machine.get_target_data().get_data_layout());
        let unknown: Vec<String> = self
            .module
            .get_functions()
            .filter(|function| {
                let value = function.as_global_value().as_pointer_value();
                function.get_first_basic_block().is_none() && value.get_first_use().is_some()
            })
            .map(|function| function.get_name().to_string_lossy().into_owned())
            .filter(|name| !known(name))
            .map(|name| format!("`{name}`"))
            .collect();
        if !unknown.is_empty() {
            let detail = format!("no body is known for {}", unknown.join(", "));
            return Err(self.error(Stage::Translate, detail));
        }
        self.module.verify().map_err(|said| self.error(Stage::Translate, said.to_string()))
    }

    pub(super) fn optimize(&self, machine: &TargetMachine) -> Result<(), Error> {
        let options = PassBuilderOptions::create();
        options.set_loop_unrolling(true);
        self.module
            .run_passes("default<O3>", machine, options)
            .map_err(|said| self.error(Stage::Optimize, said.to_string()))
    }

    pub(super) fn write(&self, machine: &TargetMachine, file: FileType) -> Result<Vec<u8>, Error> {
        let code = machine
            .write_to_memory_buffer(&self.module, file)
            .map_err(|said| self.error(Stage::Emit, said.to_string()))?;
        if !self.said.borrow().is_empty() {
            return Err(self.error(Stage::Emit, String::new()));
        }
        Ok(code.as_slice().to_vec())
    }
}

/// A machine to compile for.
pub(super) fn machine(
    triple: &str,
    cpu: &str,
    features: &str,
    relocation: RelocMode,
    kernel: &str,
) -> Result<TargetMachine, Error> {
    let triple = TargetTriple::create(triple);
    let target = Target::from_triple(&triple)
        .map_err(|said| Error::new(kernel, Stage::Emit, said.to_string()))?;
    target
        .create_target_machine(
            &triple,
            cpu,
            features,
            OptimizationLevel::Aggressive,
            relocation,
            CodeModel::Default,
        )
        .ok_or_else(|| Error::new(kernel, Stage::Emit, format!("LLVM knows no {cpu}")))
}

/// LLVM's diagnostic handler: keeps errors, drops warnings and remarks.
extern "C" fn collect(diagnostic: LLVMDiagnosticInfoRef, said: *mut c_void) {
    // SAFETY: `said` is the cell that `listen` gave, and LLVM runs on the thread that owns it; the
    // description is a NUL-terminated string of ours to free.
    unsafe {
        if LLVMGetDiagInfoSeverity(diagnostic) != LLVMDiagnosticSeverity::LLVMDSError {
            return;
        }
        let description = LLVMGetDiagInfoDescription(diagnostic);
        let text = CStr::from_ptr(description).to_string_lossy().into_owned();
        LLVMDisposeMessage(description);
        (*said.cast::<RefCell<Vec<String>>>()).borrow_mut().push(text);
    }
}
