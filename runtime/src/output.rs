//! What a run writes: progress, and files that are tried before the first step.

use anyhow::{Context, Result, bail};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Tells people something on standard error. A closed stream is no reason to stop a training.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// An error about a file, which it names once.
pub fn about(path: &Path, error: impl Display) -> anyhow::Error {
    let (path, text) = (path.display().to_string(), error.to_string());
    if text.contains(&path) { anyhow::Error::msg(text) } else { anyhow::anyhow!("{path}: {text}") }
}

/// Finds out whether a file can be written, so that nobody trains for nothing.
///
/// # Errors
/// When its folder cannot be made or written to, or something else than a file is there: renaming
/// over a device or a link would replace it.
pub fn try_file(flag: &str, path: &Path) -> Result<()> {
    if path.file_name().is_none() {
        bail!("{flag} {}: is no name of a file", path.display());
    }
    if let Ok(m) = std::fs::symlink_metadata(path)
        && !m.is_file()
    {
        bail!("{flag} {}: is there and is no regular file", path.display());
    }
    try_folder(flag, parent(path))
}

/// Finds out whether files can be made in a folder, making it where it does not exist.
///
/// # Errors
/// When they cannot.
pub fn try_folder(flag: &str, folder: &Path) -> Result<()> {
    let trial = folder.join(format!(".try-{}", std::process::id()));
    std::fs::create_dir_all(folder)
        .and_then(|()| OpenOptions::new().append(true).create(true).open(&trial).map(drop))
        .and_then(|()| std::fs::remove_file(&trial))
        .with_context(|| format!("{flag}: cannot write into {}", folder.display()))
}

/// Writes a text whole or not at all.
///
/// # Errors
/// When the file system says no.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(path.file_name().unwrap_or_default());
    hidden.push(format!(".{}.tmp", std::process::id()));
    let temporary: PathBuf = path.with_file_name(hidden);
    std::fs::write(&temporary, text)
        .and_then(|()| std::fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
