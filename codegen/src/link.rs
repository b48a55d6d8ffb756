//! Host objects to a shared library.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Stage};

/// Links objects to the shared library `out` with the C compiler: `cc`, or what `CC` names. A
/// symbol that is in none of them nor in the C library is an error.
///
/// # Errors
///
/// The compiler's words, or that it is missing, or a file that cannot be written.
pub fn link_shared<O: AsRef<[u8]>>(objects: &[O], out: &Path) -> Result<(), Error> {
    let failed = |detail: String| Error::new("", Stage::Link, detail);
    let compiler = std::env::var_os("CC").filter(|name| !name.is_empty());
    let compiler = compiler.as_deref().unwrap_or(OsStr::new("cc"));
    let folder = tempfile::tempdir().map_err(|error| failed(format!("no folder: {error}")))?;
    let mut command = Command::new(compiler);
    // Names in the folder, so that no path of this machine gets into the library.
    command.current_dir(folder.path()).args(["-shared", "-Wl,-z,defs", "-o", "out.so"]);
    for (index, object) in objects.iter().enumerate() {
        let name = format!("{index}.o");
        std::fs::write(folder.path().join(&name), object)
            .map_err(|error| failed(format!("cannot write an object: {error}")))?;
        command.arg(name);
    }
    let output = command.output().map_err(|error| {
        let compiler = compiler.to_string_lossy();
        failed(format!("cannot run the C compiler `{compiler}`: {error}; install gcc or set CC"))
    })?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    // Not renamed: the folder may be on another file system.
    std::fs::copy(folder.path().join("out.so"), out)
        .map(drop)
        .map_err(|error| failed(format!("cannot write {}: {error}", out.display())))
}
