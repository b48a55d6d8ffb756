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
    for e in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = e?.path();
        if name_of(&path).starts_with(TEMPORARY) {
            std::fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
    }
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
        let all = checkpoints(directory)?;
        for old in all.iter().take(all.len().saturating_sub(keep)) {
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

/// Finished checkpoints in a directory, oldest first.
fn checkpoints(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut all: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    all.retain(|p| name_of(p).starts_with("step-") && p.join("state.json").exists());
    all.sort();
    Ok(all)
}

/// Puts the newest checkpoint of a directory, or the checkpoint that the path is, in place.
///
/// # Errors
/// When there is none, it does not belong to the artifact, or a file is damaged.
pub fn load<R: Real>(path: &Path, executor: &mut Executor<R>) -> Result<State> {
    let folder = if path.join("state.json").exists() {
        path.to_path_buf()
    } else {
        checkpoints(path)?
            .pop()
            .ok_or_else(|| anyhow!("{}: there is no checkpoint", path.display()))?
    };
    let text = std::fs::read_to_string(folder.join("state.json"))
        .with_context(|| folder.display().to_string())?;
    let state: State =
        serde_json::from_str(&text).with_context(|| format!("{}: state.json", folder.display()))?;
    let model = TensorFile::open(folder.join("model.safetensors"))?;
    let moments = TensorFile::open(folder.join("optimizer.safetensors"))?;
    for p in executor.artifact().manifest.parameters.clone() {
        let name = &p.name;
        for (file, key, buffer) in [
            (&model, name.clone(), Buffer::Master(name.clone())),
            (&moments, format!("m.{name}"), Buffer::Moment1(name.clone())),
            (&moments, format!("v.{name}"), Buffer::Moment2(name.clone())),
        ] {
            let t = file.read(&key).with_context(|| folder.display().to_string())?;
            if t.shape != p.shape {
                bail!("{}: `{key}` is {:?}, not {:?}", folder.display(), t.shape, p.shape);
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
