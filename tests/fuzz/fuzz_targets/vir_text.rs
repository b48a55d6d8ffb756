//! Any text: parse; what parses must print as a text that reads back the same, and the verifier
//! and the passes must stand it.
//!
//! ```text
//! RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz vir_text
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vlmc_ir::text::{parse, print};
use vlmc_ir::verify::verify;
use vlmc_passes::manager::{PASSES, run};

fuzz_target!(|text: &str| {
    let p = match parse::program(text) {
        Ok(p) => p,
        Err(e) => {
            let _ = parse::render(text, &e);
            return;
        }
    };
    let errors = verify(&p);
    for e in &errors {
        let _ = e.render(&p);
    }
    let printed = print::program(&p);
    let again = match parse::program(&printed) {
        Ok(again) => again,
        Err(e) => panic!("{}", parse::render(&printed, &e)),
    };
    assert_eq!(print::program(&again), printed);
    if errors.is_empty() {
        let passes: Vec<_> = PASSES.iter().collect();
        assert!(run(&p, &passes).is_ok());
    }
});
