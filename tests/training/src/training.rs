//! Trainings as `vlmc-run` does them, in a folder of their own.

use anyhow::{Context, Result};
use clap::Parser;
use std::path::{Path, PathBuf};
use vlmc_artifact::Artifact;
use vlmc_data::batch::{Batch, write_batches};
use vlmc_runtime::options::RunOptions;
use vlmc_runtime::report::Report;

/// A folder that goes away with the value.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder whose name begins with `name`.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn new(name: &str) -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("vlmc-{name}-{}", std::process::id()));
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Folder(path))
    }

    /// A path below.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes an artifact and a batch file to train on.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn prepare(&self, artifact: &Artifact, batches: &[Batch]) -> Result<()> {
        artifact.write(&self.at("artifact"))?;
        Ok(write_batches(self.at("batch.safetensors"), batches)?)
    }

    /// Arguments of `vlmc-run` in this folder, before `more`.
    pub fn arguments(&self, more: &str) -> Vec<String> {
        let text = |p: PathBuf| p.display().to_string();
        let mut all = vec![text(self.at("artifact"))];
        all.extend(["--batch".to_string(), text(self.at("batch.safetensors"))]);
        all.extend(more.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(name) => text(self.at(name)),
            None => word.to_string(),
        }));
        all
    }

    /// Trains; `@name` in the arguments is a path below the folder.
    ///
    /// # Errors
    /// As [`vlmc_runtime::run::run`].
    pub fn train(&self, more: &str) -> Result<Report> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            run: RunOptions,
        }
        let words = [vec!["vlmc-run".to_string()], self.arguments(more)].concat();
        vlmc_runtime::run::run(&Line::try_parse_from(words)?.run)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a temporary folder does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Every file below a folder by its relative path, sorted.
///
/// # Errors
/// When the file system says no.
pub fn files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut out = vec![];
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for e in entries {
        let path = e?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            out.extend(files(&path)?.into_iter().map(|(n, b)| (format!("{name}/{n}"), b)));
        } else {
            out.push((name, std::fs::read(&path)?));
        }
    }
    out.sort();
    Ok(out)
}
