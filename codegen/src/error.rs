//! Why a kernel could not be lowered, assembled or linked.

use std::fmt;

/// A failure while a kernel is lowered, with the words of the tool that refused it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{stage}: {detail}", self.prefix())]
pub struct Error {
    /// Name of the kernel's module, or empty where the failure is not of one kernel.
    pub kernel: String,
    /// What was being done.
    pub stage: Stage,
    /// What was wrong: diagnostics of MLIR, LLVM, `ptxas` or the linker, one a line. A place in
    /// the text of the kernel is written `kernel:line:column`.
    pub detail: String,
}

impl Error {
    pub(crate) fn new(kernel: &str, stage: Stage, detail: impl Into<String>) -> Error {
        Error { kernel: kernel.to_owned(), stage, detail: detail.into() }
    }

    fn prefix(&self) -> String {
        if self.kernel.is_empty() { String::new() } else { format!("kernel `{}`: ", self.kernel) }
    }
}

/// The steps from MLIR text to something that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The text is read and verified.
    Parse,
    /// MLIR passes run.
    Passes,
    /// The `llvm` dialect becomes LLVM IR, calls of mathematical functions get their bodies, and
    /// the verifier looks at all of it.
    Translate,
    /// LLVM optimises.
    Optimize,
    /// LLVM writes PTX or an object.
    Emit,
    /// `ptxas` makes a cubin.
    Assemble,
    /// Objects become a shared library.
    Link,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Parse => "cannot read its MLIR",
            Stage::Passes => "MLIR passes failed",
            Stage::Translate => "cannot be LLVM IR",
            Stage::Optimize => "optimisation failed",
            Stage::Emit => "code emission failed",
            Stage::Assemble => "cannot be assembled",
            Stage::Link => "cannot be linked",
        })
    }
}
