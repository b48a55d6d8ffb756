//! MLIR text to PTX or a host object.

mod llvm;
mod mlir;
mod nvptx;

use crate::error::{Error, Stage};
use crate::target::Target;

/// The lowering pipelines and the MLIR context that they share. Making one takes some 10 ms, so
/// make one and keep it; each thread needs its own.
pub struct Lowering {
    mlir: mlir::Mlir,
}

impl Lowering {
    /// Registers dialects and passes, and sets up the targets of LLVM.
    pub fn new() -> Lowering {
        llvm::initialize();
        Lowering { mlir: mlir::Mlir::new() }
    }

    /// The PTX of the one `gpu.module` of `mlir`.
    ///
    /// The text is a `module { gpu.module @name { .. } }` of `gpu.func .. kernel` with bare
    /// `!llvm.ptr<1>` arguments, over the dialects arith, scf, cf, gpu, llvm, math, nvvm and vector.
    /// `loc("file":line:column)` on its ops becomes `.loc` in the PTX; without any, the PTX has
    /// none. Equal texts give equal PTX.
    ///
    /// # Errors
    ///
    /// The stage that failed with the tool's diagnostics; also for [`Target::Host`].
    pub fn ptx(&self, mlir: &str, target: Target) -> Result<String, Error> {
        let name = kernel_name(mlir);
        let Some(feature) = target.ptx_feature() else {
            return Err(Error::new(&name, Stage::Emit, "the host target has no PTX"));
        };
        let mut module = self.mlir.parse(mlir, &name)?;
        self.mlir.run(&mut module, &nvptx::pipeline(target, feature), &name)?;
        let kernel = nvptx::gpu_module(&module, &name)?;
        llvm::emit(kernel, &name, |unit| nvptx::ptx(unit, target, feature))
    }
}

impl Default for Lowering {
    fn default() -> Self {
        Lowering::new()
    }
}

/// What to call the kernel in an error before its text can be read: the first symbol of a
/// `gpu.module` or `func.func` in it.
fn kernel_name(mlir: &str) -> String {
    ["gpu.module", "func.func"]
        .iter()
        .filter_map(|keyword| {
            let (_, rest) = mlir.split_once(keyword)?;
            let (_, symbol) = rest.split_once('@')?;
            let end = symbol.find(|c: char| !(c.is_ascii_alphanumeric() || "_$.-".contains(c)));
            Some(&symbol[..end.unwrap_or(symbol.len())])
        })
        .find(|symbol| !symbol.is_empty())
        .unwrap_or("kernel")
        .to_owned()
}
