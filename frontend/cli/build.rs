//! Lists the models that come with the program, so that no Rust file has to name one.

use std::fmt::Write as _;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let folder = Path::new(&root).join("../../models");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<_> = std::fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "vlm"))
        .collect();
    files.sort();
    let mut table = String::from("&[\n");
    for path in files {
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        println!("cargo::rerun-if-changed={}", path.display());
        let _ = writeln!(table, "    ({stem:?}, include_str!({:?})),", path.display().to_string());
    }
    table.push_str("]\n");
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    std::fs::write(Path::new(&out).join("models.rs"), table)
}
