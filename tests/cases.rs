//! Runs every `.vir` case as a test of its own.

use libtest_mimic::{Arguments, Trial};
use std::path::Path;

fn main() -> std::io::Result<()> {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let bless = std::env::var_os("BLESS").is_some();
    let cases = vlmc_filetests::find_cases(&folder)?;
    assert!(!cases.is_empty(), "there are no cases in {}", folder.display());
    let trials = cases.into_iter().map(|path| {
        let name = path.strip_prefix(&folder).unwrap_or(&path).with_extension("");
        Trial::test(name.display().to_string(), move || {
            vlmc_filetests::run_file(&path, bless).map_err(Into::into)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit()
}
