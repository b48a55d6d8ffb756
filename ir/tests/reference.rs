//! `docs/ops.md` is what the op table makes.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc_ir::ops::{Op, reference};

#[test]
fn page_is_fresh() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ops.md");
    let page = reference::page();
    for info in Op::all() {
        assert!(page.contains(&format!("### `{}`\n", info.name)), "{} is missing", info.name);
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let have = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(have == page, "docs/ops.md is stale: BLESS=1 cargo test -p vlmc-ir --test reference");
}
