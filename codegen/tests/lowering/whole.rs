use std::process::Command;

use vlmc_codegen::Target;

/// One copy of LLVM, inside: a second would come as a shared library.
#[test]
fn needs_no_shared_llvm() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("ldd").arg(&program).output().unwrap();
    let needed = String::from_utf8(output.stdout).unwrap();
    assert!(needed.contains("libc.so"), "{needed}");
    for library in ["libLLVM", "libMLIR"] {
        assert!(!needed.contains(library), "{needed}");
    }
}

#[test]
fn targets_have_names() {
    for target in Target::ALL {
        assert_eq!(target.to_string().parse(), Ok(target));
        assert_eq!(target.is_gpu(), target.ptx_feature().is_some());
    }
    let error = "sm_70".parse::<Target>().unwrap_err().to_string();
    assert_eq!(error, "no target `sm_70`: the targets are host, sm_100, sm_80, sm_90, sm_90a");
}
