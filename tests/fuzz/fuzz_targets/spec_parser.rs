//! Any bytes: parse, show what is wrong, format what is right, and parse again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::source::Sources;
use vlmc_frontend::{fmt, syntax};

fuzz_target!(|bytes: &[u8]| {
    let mut sources = Sources::new();
    let file = match sources.add_bytes("fuzz.vlm", bytes.to_vec()) {
        Ok(file) => file,
        Err(diag) => {
            for format in [Format::PLAIN, Format::Short, Format::Json] {
                let _ = render::one(&diag, &sources, format);
            }
            return;
        }
    };
    let text = sources.text(file);
    let parse = syntax::parse(file, text);
    assert!(parse.tree.text() == text, "the tree lost something");
    for format in [Format::PLAIN, Format::Short, Format::Json] {
        let _ = render::all(&parse.diags, &sources, format);
    }
    match fmt::format(file, text) {
        Ok(once) => {
            assert!(!parse.diags.has_errors());
            let twice = fmt::format(file, &once);
            assert!(twice.is_ok_and(|twice| twice == once), "not idempotent");
        }
        Err(diags) => assert!(diags.has_errors()),
    }
});
