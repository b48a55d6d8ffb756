//! MLIR text in; PTX, cubins and host libraries out. One binary, since each links all of LLVM.
#![cfg(feature = "llvm")]
#![allow(clippy::unwrap_used)]

mod lowering {
    mod gpu;
    mod host;
    mod math;
    mod whole;
}
