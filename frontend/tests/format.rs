//! The formatter.

use vlmc_frontend::fmt;
use vlmc_frontend::syntax::ast::FileId;

const SAMPLE: &str = include_str!("data/all_forms.vlm");

fn format(text: &str) -> Option<String> {
    fmt::format(FileId(0), text).ok()
}

#[test]
fn sample() {
    let once = format(SAMPLE).unwrap_or_default();
    println!("{once}");
    assert_eq!(format(&once).as_deref(), Some(once.as_str()));
}
