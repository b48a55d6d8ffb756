use std::fs;
use std::time::{Duration, Instant};

use vlmc_codegen::ptxas::{Resources, Source};
use vlmc_codegen::{Lowering, Ptxas, Stage, Target};

const FORWARD: &str = include_str!("../data/fwd_v4c1t1r8u4_wring3.mlir");
const BACKWARD: &str = include_str!("../data/bwd_v4c1t4r32u4_wring4_m4_nz_f_pair.mlir");
const SILU: &str = include_str!("../data/scale_silu.mlir");
const ROW_SUM: &str = include_str!("../data/row_sum.mlir");

const GPUS: [Target; 4] = [Target::Sm90a, Target::Sm90, Target::Sm80, Target::Sm100];

/// Every math op that a GPU kernel may use, one a line of the body.
const MATH: &str = "exp exp2 log log1p log2 sin cos tanh erf rsqrt sqrt absf floor ceil roundeven";

fn assemble(ptx: &str, target: Target) -> vlmc_codegen::ptxas::Cubin {
    Ptxas::find().unwrap().assemble(Source { name: "k", ptx, target }).unwrap()
}

/// The measured row kernels: the same registers as when they were timed, and no spills.
#[test]
fn row_kernels_keep_their_registers() {
    let lowering = Lowering::new();
    for (text, registers) in [(FORWARD, 64), (BACKWARD, 128)] {
        let ptx = lowering.ptx(text, Target::Sm90a).unwrap();
        let cubin = assemble(&ptx, Target::Sm90a);
        assert_eq!(cubin.kernels.len(), 1);
        assert_eq!(cubin.kernels[0].name, "k");
        let expected = Resources { registers, ..Resources::default() };
        assert_eq!(cubin.kernels[0].resources, expected);
        assert!(cubin.warnings.is_empty(), "{:?}", cubin.warnings);
        assert!(cubin.bytes.starts_with(b"\x7fELF"));
        assert!(!ptx.contains(".loc") && !ptx.contains(".file"), "lines of the MLIR text itself");
    }
}

#[test]
fn every_gpu_takes_elementwise_and_reduction() {
    let lowering = Lowering::new();
    for target in GPUS {
        for (text, loads, shuffles) in [(SILU, 2, 0), (ROW_SUM, 1, 5)] {
            let ptx = lowering.ptx(text, target).unwrap();
            assert!(ptx.contains(&format!(".target {target}\n")), "{ptx}");
            let wide = ["ld.global.v4.b32", "ld.global.v2.b64"];
            let wide: usize = wide.iter().map(|load| ptx.matches(load).count()).sum();
            assert_eq!(wide, loads, "{ptx}");
            assert_eq!(ptx.matches("shfl.sync.bfly.b32").count(), shuffles, "{ptx}");
            assert!(!ptx.contains("call"), "{ptx}");
            let resources = assemble(&ptx, target).kernels[0].resources;
            assert_eq!((resources.spill_stores, resources.spill_loads), (0, 0));
        }
    }
}

#[test]
fn math_ops_have_bodies() {
    let mut body = String::from("%v0 = llvm.load %p : !llvm.ptr<1> -> f32\n");
    let mut value = 0;
    for fast in ["", " fastmath<afn>"] {
        for op in MATH.split(' ') {
            body += &format!("%v{} = math.{op} %v{value}{fast} : f32\n", value + 1);
            value += 1;
        }
    }
    let text = format!(
        "module {{ gpu.module @m {{ gpu.func @k(%p: !llvm.ptr<1>) kernel {{\n{body}\
         %a = arith.maxnumf %v{value}, %v0 : f32\n%b = arith.minnumf %a, %v1 : f32\n\
         %c = math.fma %a, %b, %v2 : f32\n%d = math.copysign %c, %a : f32\n\
         llvm.store %d, %p : f32, !llvm.ptr<1>\ngpu.return\n}} }} }}"
    );
    let ptx = Lowering::new().ptx(&text, Target::Sm90a).unwrap();
    assert!(!ptx.contains("__nv_") && !ptx.contains(".func"), "{ptx}");
    assert_eq!(ptx.matches("sin.approx.ftz.f32").count(), 1);
    assert_eq!(assemble(&ptx, Target::Sm90a).kernels[0].resources.spill_stores, 0);
}

#[test]
fn lines_of_the_spec_reach_the_ptx() {
    let ptx = Lowering::new().ptx(SILU, Target::Sm90a).unwrap();
    let files: Vec<&str> = ptx.lines().filter(|line| line.starts_with("\t.file")).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let file = |name: &str| {
        let line = files.iter().find(|line| line.contains(&format!("\"{name}\""))).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let (spec, library) = (file("silu.vlm"), file("std.vlm"));
    for (file, place) in [(&spec, "3 12"), (&spec, "5 3"), (&library, "40 7"), (&library, "41 3")] {
        assert!(ptx.contains(&format!("\t.loc\t{file} {place}")), "{file} {place}:\n{ptx}");
    }
    // A unit for debugging would make `ptxas` leave it unoptimised.
    assert!(ptx.contains(".target sm_90a\n"));
    let with = assemble(&ptx, Target::Sm90a);
    let bare = SILU.lines().map(|line| line.split(" loc(").next().unwrap()).collect::<Vec<_>>();
    let bare = Lowering::new().ptx(&bare.join("\n"), Target::Sm90a).unwrap();
    assert!(!bare.contains(".loc"));
    assert!(Lowering::new().llvm_ir(SILU, Target::Sm90a).unwrap().contains("DILocation(line: 40"));
    assert_eq!(with.kernels, assemble(&bare, Target::Sm90a).kernels);
}

#[test]
fn lowering_again_gives_the_same_bytes() {
    let (one, two) = (Lowering::new(), Lowering::new());
    for text in [FORWARD, SILU, ROW_SUM] {
        let first = one.ptx(text, Target::Sm90a).unwrap();
        assert_eq!(first, one.ptx(text, Target::Sm90a).unwrap());
        assert_eq!(first, two.ptx(text, Target::Sm90a).unwrap());
        let cubin = assemble(&first, Target::Sm90a);
        assert_eq!(cubin.bytes, assemble(&first, Target::Sm90a).bytes);
    }
}

#[test]
fn mistakes_name_the_kernel_and_the_line() {
    let lowering = Lowering::new();
    let kernel = |body: &str| {
        format!(
            "module {{ gpu.module @bad {{\ngpu.func @k(%p: !llvm.ptr<1>) kernel {{\n{body}\ngpu.return\n}} }} }}"
        )
    };
    let error = |text: &str| lowering.ptx(text, Target::Sm90a).unwrap_err();

    let syntax = error(&kernel("%a = arith.constant 1 i32"));
    assert_eq!((syntax.kernel.as_str(), syntax.stage), ("bad", Stage::Parse));
    assert!(syntax.detail.starts_with("bad:3:22: "), "{syntax}");

    let types = error(&kernel("%a = arith.constant 1 : i32\n%b = arith.addf %a, %a : i32"));
    assert_eq!(types.stage, Stage::Parse);
    assert!(types.detail.starts_with("bad:4:"), "{types}");

    let load = "%a = llvm.load %p : !llvm.ptr<1> -> f32\n";
    let store = "\nllvm.store %b, %p : f32, !llvm.ptr<1>";
    let unknown = error(&kernel(&format!("{load}%b = math.powf %a, %a : f32{store}")));
    assert_eq!(unknown.stage, Stage::Translate);
    assert_eq!(unknown.detail, "no body is known for `__nv_powf`");

    let left = error(&kernel(&format!("{load}vector.print %a : f32")));
    assert_eq!(left.stage, Stage::Passes);
    assert!(left.detail.starts_with("bad:4:1: ") && left.detail.contains("printF32"), "{left}");

    let types = error(&kernel(&format!("{load}\n%b = math.ctpop %p : !llvm.ptr<1>")));
    assert!(types.detail.starts_with("bad:5:"), "{types}");

    let assembly = error(&kernel(
        "llvm.inline_asm has_side_effects \"mov $0\", \"x\" %p : (!llvm.ptr<1>) -> ()",
    ));
    assert_eq!(assembly.stage, Stage::Emit, "{assembly}");

    assert_eq!(error("module { }").detail, "no gpu.module");
    assert_eq!(
        error("module { gpu.module @a {} gpu.module @b {} }").detail,
        "more than one gpu.module"
    );
    assert_eq!(error("").stage, Stage::Parse);
    assert_eq!(error("module {\0}").stage, Stage::Parse);
    assert_eq!(lowering.ptx(SILU, Target::Host).unwrap_err().stage, Stage::Emit);
    // The context is as good as new afterwards.
    assert!(lowering.ptx(SILU, Target::Sm90a).is_ok());
}

#[test]
fn assembling_is_cached_and_ordered() {
    let lowering = Lowering::new();
    let folder = tempfile::tempdir().unwrap();
    let cached = Ptxas::find().unwrap().with_cache(folder.path().join("cubins"));
    let silu = lowering.ptx(SILU, Target::Sm90a).unwrap();
    let rows = lowering.ptx(ROW_SUM, Target::Sm80).unwrap();
    let sources = [
        Source { name: "silu", ptx: &silu, target: Target::Sm90a },
        Source {
            name: "broken",
            ptx: ".version 8.6\n.target sm_80\nnonsense\n",
            target: Target::Sm80,
        },
        Source { name: "rows", ptx: &rows, target: Target::Sm80 },
        Source { name: "host", ptx: &rows, target: Target::Host },
    ];
    let first = cached.assemble_all(&sources);
    let [Ok(one), Err(broken), Ok(two), Err(host)] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(one, &assemble(&silu, Target::Sm90a));
    assert_eq!(two, &assemble(&rows, Target::Sm80));
    assert_eq!(broken.kernel, "broken");
    assert!(broken.detail.contains("line 3"), "{broken}");
    assert!(!broken.detail.contains(std::env::temp_dir().to_str().unwrap()), "{broken}");
    assert_eq!(host.detail, "the host target has no PTX");

    // Entries are used: a changed one is what comes back. A damaged one is not.
    let mut entries: Vec<_> = fs::read_dir(folder.path().join("cubins"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    assert_eq!(entries.len(), 2);
    for entry in &entries {
        let mut bytes = fs::read(entry).unwrap();
        bytes.push(7);
        fs::write(entry, bytes).unwrap();
    }
    assert_eq!(cached.assemble(sources[0]).unwrap().bytes.last(), Some(&7));
    fs::write(&entries[0], "torn").unwrap();
    fs::write(&entries[1], "torn").unwrap();
    assert_eq!(&cached.assemble(sources[0]).unwrap(), one);
    assert_eq!(&cached.assemble(sources[2]).unwrap(), two);
}

#[test]
fn assembler_has_a_version() {
    assert!(Ptxas::find().unwrap().version().split('.').all(|part| part.parse::<u32>().is_ok()));
}

/// What a kernel costs to make; run it with `--ignored --nocapture` to see.
#[test]
#[ignore = "it measures"]
fn cost_of_lowering() {
    let start = Instant::now();
    let lowering = Lowering::new();
    println!("context {:.1?}", start.elapsed());
    let ptxas = Ptxas::find().unwrap();
    for (name, text) in
        [("scale_silu", SILU), ("row_sum", ROW_SUM), ("forward", FORWARD), ("backward", BACKWARD)]
    {
        // The first lowering also loads what the others find loaded.
        lowering.ptx(text, Target::Sm90a).unwrap();
        let start = Instant::now();
        let ptx = lowering.ptx(text, Target::Sm90a).unwrap();
        let lowered = start.elapsed();
        let start = Instant::now();
        let cubin = ptxas.assemble(Source { name, ptx: &ptx, target: Target::Sm90a }).unwrap();
        let assembled = start.elapsed();
        println!(
            "{name}: lowered in {lowered:.1?}, assembled in {assembled:.1?}; MLIR {} B, PTX {} B, cubin {} B",
            text.len(),
            ptx.len(),
            cubin.bytes.len()
        );
        assert!(lowered < Duration::from_secs(5));
    }
}
