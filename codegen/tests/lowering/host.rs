use std::path::{Path, PathBuf};

use libloading::Library;
use tempfile::TempDir;
use vlmc_codegen::{Lowering, Stage, Target, link_shared};

/// Lowers texts, links them and loads the result.
pub fn load(texts: &[&str]) -> (Library, TempDir) {
    let lowering = Lowering::new();
    let objects: Vec<Vec<u8>> =
        texts.iter().map(|text| lowering.host_object(text).unwrap()).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernels.so");
    link_shared(&objects, &path).unwrap();
    // SAFETY: the library was just made of functions that do nothing when it is loaded.
    (unsafe { Library::new(&path) }.unwrap(), folder)
}

/// `y = x * w` in bf16, rounded once, with a rolled tail; and a sum in f32.
const ROWS: &str = r#"
module {
  func.func @scale(%x: !llvm.ptr, %w: !llvm.ptr, %y: !llvm.ptr, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c16 = arith.constant 16 : i32
    %groups = arith.divui %n, %c16 : i32
    %whole = arith.muli %groups, %c16 : i32
    scf.for %i = %c0 to %whole step %c16 : i32 {
      %xp = llvm.getelementptr %x[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i16
      %wp = llvm.getelementptr %w[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i16
      %yp = llvm.getelementptr %y[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i16
      %xb = llvm.load %xp {alignment = 2 : i64} : !llvm.ptr -> vector<16xbf16>
      %wb = llvm.load %wp {alignment = 2 : i64} : !llvm.ptr -> vector<16xbf16>
      %xf = arith.extf %xb : vector<16xbf16> to vector<16xf32> loc("scale.vlm":2:5)
      %wf = arith.extf %wb : vector<16xbf16> to vector<16xf32> loc("scale.vlm":2:9)
      %z = arith.mulf %xf, %wf : vector<16xf32> loc("scale.vlm":2:7)
      %zb = arith.truncf %z : vector<16xf32> to vector<16xbf16> loc("scale.vlm":2:7)
      llvm.store %zb, %yp {alignment = 2 : i64} : vector<16xbf16>, !llvm.ptr
    }
    scf.for %i = %whole to %n step %c1 : i32 {
      %xp = llvm.getelementptr %x[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i16
      %wp = llvm.getelementptr %w[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i16
      %yp = llvm.getelementptr %y[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i16
      %xb = llvm.load %xp : !llvm.ptr -> bf16
      %wb = llvm.load %wp : !llvm.ptr -> bf16
      %xf = arith.extf %xb : bf16 to f32
      %wf = arith.extf %wb : bf16 to f32
      %z = arith.mulf %xf, %wf : f32
      %zb = arith.truncf %z : f32 to bf16
      llvm.store %zb, %yp : bf16, !llvm.ptr
    }
    return
  }
}"#;

const SUM: &str = r#"
module {
  func.func @sum(%x: !llvm.ptr, %y: !llvm.ptr, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c8 = arith.constant 8 : i32
    %zero = arith.constant dense<0.0> : vector<8xf32>
    %s = scf.for %i = %c0 to %n step %c8 iter_args(%a = %zero) -> (vector<8xf32>) : i32 {
      %xp = llvm.getelementptr %x[%i] : (!llvm.ptr, i32) -> !llvm.ptr, f32
      %v = llvm.load %xp {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
      %b = vector.fma %v, %v, %a : vector<8xf32>
      scf.yield %b : vector<8xf32>
    }
    %r = vector.reduction <add>, %s : vector<8xf32> into f32
    llvm.store %r, %y : f32, !llvm.ptr
    return
  }
}"#;

fn narrow(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[test]
fn kernels_of_two_objects_run() {
    type Scale = unsafe extern "C" fn(*const u16, *const u16, *mut u16, i32);
    type Sum = unsafe extern "C" fn(*const f32, *mut f32, i32);
    let (library, _folder) = load(&[ROWS, SUM]);
    let n = 16 * 5 + 7;
    let x: Vec<u16> = (0..n).map(|i| narrow((i as f32 - 31.3) * 0.37)).collect();
    let w: Vec<u16> = (0..n).map(|i| narrow(1.0 + i as f32 * 0.013)).collect();
    let mut y = vec![0u16; n + 1];
    // SAFETY: the symbol has this signature, and the arrays hold n elements.
    unsafe {
        let scale = library.get::<Scale>(b"scale").unwrap();
        scale(x.as_ptr(), w.as_ptr(), y.as_mut_ptr(), n as i32);
    }
    for i in 0..n {
        assert_eq!(y[i], narrow(widen(x[i]) * widen(w[i])), "{i}");
    }
    assert_eq!(y[n], 0, "written past the end");
    let ir = Lowering::new().llvm_ir(ROWS, Target::Host).unwrap();
    assert!(ir.contains("define void @scale("), "{ir}");

    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut total = 0.0f32;
    // SAFETY: as above.
    unsafe {
        let sum = library.get::<Sum>(b"sum").unwrap();
        sum(x.as_ptr(), &mut total, 64);
    }
    assert_eq!(total, (0..64).map(|i| (i * i) as f32).sum::<f32>());
}

#[test]
fn objects_are_the_same_again() {
    let (one, two) = (Lowering::new(), Lowering::new());
    let first = one.host_object(ROWS).unwrap();
    assert_eq!(first, one.host_object(ROWS).unwrap());
    assert_eq!(first, two.host_object(ROWS).unwrap());
    assert!(first.windows(9).any(|bytes| bytes == b"scale.vlm"), "no line table");
    let folder = tempfile::tempdir().unwrap();
    let libraries = ["a.so", "b.so"].map(|name| folder.path().join(name));
    for library in &libraries {
        link_shared(&[&first], library).unwrap();
    }
    assert_eq!(std::fs::read(&libraries[0]).unwrap(), std::fs::read(&libraries[1]).unwrap());
}

#[test]
fn what_needs_a_library_is_refused() {
    let lowering = Lowering::new();
    let text = |op: &str, ty: &str| {
        format!(
            "module {{ func.func @f(%p: !llvm.ptr) {{\n%x = llvm.load %p : !llvm.ptr -> {ty}\n\
             %y = math.{op} %x : {ty}\nllvm.store %y, %p : {ty}, !llvm.ptr\nreturn\n}} }}"
        )
    };
    for (op, ty, name) in [
        ("exp", "f64", "llvm.exp.f64"),
        ("log10", "vector<8xf32>", "llvm.log10.v8f32"),
        ("erf", "vector<4xf64>", "vlmc.erf.v4f64"),
    ] {
        let error = lowering.host_object(&text(op, ty)).unwrap_err();
        assert_eq!(error.stage, Stage::Translate);
        assert_eq!(
            error.to_string(),
            format!("kernel `f`: cannot be LLVM IR: no body is known for `{name}`")
        );
    }
    let unknown = lowering.host_object(&text("nosuch", "f32")).unwrap_err();
    assert!(unknown.detail.starts_with("f:3:"), "{unknown}");

    // A remainder is an instruction that needs a function: the linker finds out.
    let remainder = "module { func.func @f(%p: !llvm.ptr) {\n%x = llvm.load %p : !llvm.ptr -> f32\n\
         %y = arith.remf %x, %x : f32\nllvm.store %y, %p : f32, !llvm.ptr\nreturn\n} }";
    let object = lowering.host_object(remainder).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = link_shared(&[object], &folder.path().join("x.so")).unwrap_err();
    assert_eq!(error.stage, Stage::Link);
    assert!(error.detail.contains("fmodf"), "{error}");
    let nowhere: PathBuf = Path::new("/nonexistent/x.so").into();
    assert!(
        link_shared::<Vec<u8>>(&[], &nowhere).unwrap_err().detail.contains("/nonexistent/x.so")
    );
}
