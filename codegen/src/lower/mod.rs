//! MLIR text to PTX or a host object.

mod host;
mod lines;
mod llvm;
mod math;
mod mlir;
mod nvptx;

use lines::Lines;

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
    /// Of the math dialect, exp2, log2, rsqrt and, with `fastmath<afn>`, exp, log, sin and cos are
    /// the hardware's approximations; exp, log, log1p, sin, cos, tanh and erf without it are the
    /// host's functions in scalar form.
    ///
    /// # Errors
    ///
    /// The stage that failed with the tool's diagnostics; also for [`Target::Host`].
    pub fn ptx(&self, mlir: &str, target: Target) -> Result<String, Error> {
        let Some(feature) = target.ptx_feature() else {
            let name = kernel_name(mlir);
            return Err(Error::new(&name, Stage::Emit, "the host target has no PTX"));
        };
        self.gpu(mlir, target, feature, |unit| nvptx::ptx(unit, target, feature))
    }

    /// An object file of the `func.func`s of `mlir`: position-independent x86-64 ELF for
    /// [`Target::Host`].
    ///
    /// The text is a `module { func.func @name(!llvm.ptr, .., i32) { .. } }` over the dialects arith,
    /// scf, cf, func, llvm, math and vector, say with `vector<16xf32>`. A public function is called
    /// by its name under the C convention. The math dialect's f32 cos, erf, exp, exp2, log, log1p,
    /// sin and tanh, scalar or of any number of lanes, are our own: within 2 ulp, except that sin
    /// and cos are NaN for |x| > 2^48. Equal texts give equal objects.
    ///
    /// # Errors
    ///
    /// The stage that failed with the tool's diagnostics. Also where a function is called that would
    /// need a library.
    pub fn host_object(&self, mlir: &str) -> Result<Vec<u8>, Error> {
        self.host(mlir, host::object)
    }

    /// The optimised LLVM IR from which [`Lowering::ptx`] or, for [`Target::Host`],
    /// [`Lowering::host_object`] makes code. For people to read.
    ///
    /// # Errors
    ///
    /// Those of the other two.
    pub fn llvm_ir(&self, mlir: &str, target: Target) -> Result<String, Error> {
        match target.ptx_feature() {
            Some(feature) => self.gpu(mlir, target, feature, |unit| {
                nvptx::optimized(unit, target, feature).map(|_| unit.module.to_string())
            }),
            None => self.host(mlir, |unit| host::optimized(unit).map(|_| unit.module.to_string())),
        }
    }

    fn gpu<T>(
        &self,
        mlir: &str,
        target: Target,
        feature: &str,
        finish: impl FnOnce(&llvm::Unit<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let name = kernel_name(mlir);
        let mut module = self.mlir.parse(mlir, &name)?;
        self.mlir.run(&mut module, &nvptx::pipeline(target, feature), &name)?;
        let kernel = nvptx::gpu_module(&module, &name)?;
        let body = nvptx::body(kernel, &name)?;
        lines::scope(self.mlir.context(), body, &name, Lines::Directives)?;
        llvm::emit(&self.mlir, kernel, &name, finish)
    }

    fn host<T>(
        &self,
        mlir: &str,
        finish: impl FnOnce(&llvm::Unit<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let name = kernel_name(mlir);
        let mut module = self.mlir.parse(mlir, &name)?;
        host::own_math(self.mlir.context(), &module, &name)?;
        self.mlir.run(&mut module, host::PIPELINE, &name)?;
        lines::scope(self.mlir.context(), module.body(), &name, Lines::Table)?;
        llvm::emit(&self.mlir, module.as_operation(), &name, finish)
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
