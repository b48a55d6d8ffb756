//! MLIR text in, PTX and host objects out.
#![cfg(feature = "llvm")]
#![allow(clippy::unwrap_used)]

use vlmc_codegen::{Lowering, Target};

const FORWARD: &str = include_str!("data/fwd_v4c1t1r8u4_wring3.mlir");
const BACKWARD: &str = include_str!("data/bwd_v4c1t4r32u4_wring4_m4_nz_f_pair.mlir");

#[test]
fn row_kernels_lower() {
    let lowering = Lowering::new();
    for (text, out) in [(FORWARD, "fwd"), (BACKWARD, "bwd")] {
        let t = std::time::Instant::now();
        let ptx = lowering.ptx(text, Target::Sm90a).unwrap();
        eprintln!("{out} {:?} {}", t.elapsed(), ptx.len());
        std::fs::write(format!("/tmp/{out}.ptx"), ptx).unwrap();
    }
}
