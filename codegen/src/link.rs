//! Host objects to a shared library.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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
    let mut compiler = PathBuf::from(compiler.unwrap_or_else(|| "cc".into()));
    // It runs in another folder; a bare name is looked up on PATH.
    if compiler.components().count() > 1 {
        compiler = std::path::absolute(&compiler).unwrap_or(compiler);
    }
    let folder = tempfile::tempdir().map_err(|error| failed(format!("no folder: {error}")))?;
    let mut command = Command::new(&compiler);
    // Names in the folder, so that no path of this machine gets into the library.
    command.current_dir(folder.path()).args(["-shared", "-Wl,-z,defs", "-o", "out.so"]);
    for (index, object) in objects.iter().enumerate() {
        let name = format!("{index}.o");
        std::fs::write(folder.path().join(&name), object)
            .map_err(|error| failed(format!("cannot write an object: {error}")))?;
        command.arg(name);
    }
    let output = command.output().map_err(|error| {
        let compiler = compiler.display();
        failed(format!("cannot run the C compiler `{compiler}`: {error}; install gcc or set CC"))
    })?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let made = std::fs::read(folder.path().join("out.so"))
        .map_err(|error| failed(format!("the linker left no library: {error}")))?;
    replace(out, &made).map_err(|error| failed(format!("cannot write {}: {error}", out.display())))
}

/// Puts a whole new file in the place of an old one, which a program may have mapped.
fn replace(out: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755))?;
    file.persist(out).map(drop).map_err(|error| error.error)
}
