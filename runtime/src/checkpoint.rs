//! Checkpoints of a training: everything that the next step depends on.
//!
//! ```text
//! DIR/step-00000100/model.safetensors       parameters under their checkpoint names, f32 masters
//! DIR/step-00000100/optimizer.safetensors   moments: `m.NAME`, `v.NAME`
//! DIR/step-00000100/state.json              step, optimizer, artifact hash; written last
//! ```
//!
//! A checkpoint is written into a folder with a temporary name, each file and the folder synced, and
//! the folder then renamed: whatever happens, `step-*` folders are whole. The newest one counts.

use crate::executor::Executor;
use crate::optimizer::Optimizer;
use crate::output::about;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use vlmc_artifact::Buffer;
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_ir::eval::{Real, Tensor};

/// `state.json`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// The optimizer and its schedule.
    pub optimizer: Optimizer,
    /// Hash of the spec that the artifact was compiled from.
    pub spec_hash: String,
    /// Model and variant, for people.
    pub model: String,
}

const TEMPORARY: &str = ".writing-";

/// Writes a checkpoint and removes what earlier writes left unfinished. With `keep` > 0 only so many
/// of the newest stay.
///
/// # Errors
/// When the file system says no; the checkpoints that were there stay whole.
pub fn save<R: Real>(
    directory: &Path,
    executor: &Executor<R>,
    state: &State,
    keep: usize,
) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    clean(directory)?;
    let name = format!("step-{:08}", state.step);
    let temporary = directory.join(format!("{TEMPORARY}{name}"));
    let target = directory.join(&name);
    std::fs::create_dir(&temporary).with_context(|| temporary.display().to_string())?;
    let trained = executor.artifact().manifest.parameters.iter();
    let mut model = vec![];
    let mut moments = vec![];
    for p in trained {
        let get = |b: Buffer| {
            let t = executor.buffer(&b).ok_or_else(|| anyhow!("`{}` has no value", p.name))?;
            to_f32(t)
        };
        model.push((p.name.clone(), get(Buffer::Master(p.name.clone()))?));
        moments.push((format!("m.{}", p.name), get(Buffer::Moment1(p.name.clone()))?));
        moments.push((format!("v.{}", p.name), get(Buffer::Moment2(p.name.clone()))?));
    }
    for (file, tensors) in [("model", &model), ("optimizer", &moments)] {
        let list = tensors.iter().map(|(n, t)| (n.as_str(), t));
        write_file(temporary.join(format!("{file}.safetensors")), list, &Default::default())?;
    }
    let path = temporary.join("state.json");
    std::fs::write(&path, serde_json::to_string_pretty(state)?)
        .and_then(|()| File::open(&path)?.sync_all())
        .with_context(|| path.display().to_string())?;
    sync(&temporary)?;
    // A training that was resumed from an older step comes by again.
    let before = target.exists().then(|| set_aside(&target)).transpose()?;
    std::fs::rename(&temporary, &target).with_context(|| target.display().to_string())?;
    sync(directory)?;
    let mut unwanted: Vec<PathBuf> = before.into_iter().collect();
    if keep > 0 {
        // The one just written stays, whatever else is there.
        let mut others = checkpoints(directory)?;
        others.retain(|(step, _)| *step != state.step);
        let surplus = (others.len() + 1).saturating_sub(keep);
        for (_, old) in others.iter().take(surplus) {
            unwanted.push(set_aside(old)?);
        }
    }
    for old in unwanted {
        std::fs::remove_dir_all(&old).with_context(|| old.display().to_string())?;
    }
    Ok(target)
}

/// Takes a checkpoint out of sight: one that is half removed must not look like a whole one.
fn set_aside(checkpoint: &Path) -> Result<PathBuf> {
    let aside = checkpoint.with_file_name(format!("{TEMPORARY}old-{}", name_of(checkpoint)));
    std::fs::rename(checkpoint, &aside).with_context(|| checkpoint.display().to_string())?;
    Ok(aside)
}

fn sync(directory: &Path) -> Result<()> {
    File::open(directory)
        .and_then(|f| f.sync_all())
        .with_context(|| directory.display().to_string())
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The step that the name of a checkpoint's folder tells.
fn step_of(path: &Path) -> Option<u64> {
    let digits = name_of(path).strip_prefix("step-")?.to_string();
    if digits.len() < 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Removes what writes and removals that were cut short left: hidden folders, and folders that are
/// named like checkpoints but lack the file that is written last.
fn clean(directory: &Path) -> Result<()> {
    for e in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = e.with_context(|| directory.display().to_string())?.path();
        let folder = std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir());
        let cut = step_of(&path).is_some() && !path.join("state.json").exists();
        if folder && (cut || name_of(&path).starts_with(TEMPORARY)) {
            std::fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Finished checkpoints in a directory with their steps, oldest first; none where there is no such
/// directory.
///
/// # Errors
/// When it cannot be listed.
pub fn checkpoints(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.with_context(|| directory.display().to_string())?,
    };
    let mut all = vec![];
    for e in entries {
        let path = e.with_context(|| directory.display().to_string())?.path();
        if let Some(step) = step_of(&path)
            && path.join("state.json").exists()
        {
            all.push((step, path));
        }
    }
    all.sort();
    Ok(all)
}

/// Puts the newest checkpoint of a directory, or the checkpoint that the path is, in place.
///
/// # Errors
/// When there is none, it does not belong to the artifact, or a file is damaged.
pub fn load<R: Real>(path: &Path, executor: &mut Executor<R>) -> Result<State> {
    if path.join("state.json").exists() {
        return load_one(path, executor);
    }
    let mut all = checkpoints(path)?;
    let Some((_, newest)) = all.pop() else {
        bail!("{}: there is no checkpoint", path.display());
    };
    load_one(&newest, executor).map_err(|e| {
        // Going back is a decision for people: steps would be lost without a word.
        let older: Vec<String> = all.iter().rev().map(|(_, p)| name_of(p)).collect();
        let older = if older.is_empty() {
            "there is no older checkpoint".to_string()
        } else {
            format!("older checkpoints beside it: {}", older.join(", "))
        };
        anyhow!("{e:#}; {older}")
    })
}

fn load_one<R: Real>(folder: &Path, executor: &mut Executor<R>) -> Result<State> {
    let path = folder.join("state.json");
    let text = std::fs::read_to_string(&path).map_err(|e| about(&path, e))?;
    let state: State = serde_json::from_str(&text).map_err(|e| about(&path, e))?;
    let manifest = &executor.artifact().manifest;
    if state.spec_hash != manifest.spec_hash {
        bail!(
            "{}: was made from another spec ({}, {}) than the artifact ({} {}, {})",
            path.display(),
            state.model,
            state.spec_hash,
            manifest.model,
            manifest.variant,
            manifest.spec_hash
        );
    }
    state.optimizer.check().map_err(|e| about(&path, e))?;
    let open = |name: &str| {
        let path = folder.join(name);
        TensorFile::open(&path).map_err(|e| about(&path, e))
    };
    let (model, moments) = (open("model.safetensors")?, open("optimizer.safetensors")?);
    for p in executor.artifact().manifest.parameters.clone() {
        let name = &p.name;
        for (file, key, buffer) in [
            (&model, name.clone(), Buffer::Master(name.clone())),
            (&moments, format!("m.{name}"), Buffer::Moment1(name.clone())),
            (&moments, format!("v.{name}"), Buffer::Moment2(name.clone())),
        ] {
            let t = file.read(&key).map_err(|e| about(file.path(), e))?;
            if t.shape != p.shape {
                let file = file.path().display();
                bail!("{file}: `{key}` is {:?}, the artifact needs {:?}", t.shape, p.shape);
            }
            executor.set_buffer(buffer, &t)?;
        }
    }
    Ok(state)
}

/// A tensor as f32 host values.
///
/// # Errors
/// When the shape does not hold the values, which would be a bug.
pub fn to_f32<R: Real>(t: &Tensor<R>) -> Result<HostTensor> {
    let values = t.to_f64().into_iter().map(|v| v as f32).collect();
    Ok(HostTensor::new(t.dims.clone(), HostData::F32(values))?)
}
