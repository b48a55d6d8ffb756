//! The artifact: a directory that the compiler writes and the executor reads.
//!
//! ```text
//! manifest.json      who made it from what, parameters, programs
//! plan.json          layout, chunks, schedule, memory: what people and tools read
//! schedule.json      the steps of a training step, rank by rank: what the executor follows
//! programs/*.vir     the programs that steps run, as text
//! kernels/           kernels.json, the table of kernels with their launches, and their files
//! ```
//!
//! These are plain types: the compiler and the executor share nothing else.

pub mod kernels;
mod manifest;
pub mod memory;
mod plan;
mod schedule;

pub use kernels::Kernels;
pub use manifest::{Init, Loss, Manifest, Parameter, PassRecord, ProgramRecord};
pub use memory::MemoryPlan;
pub use plan::{
    Alternative, Chunk, Communication, Fusion, Layout, MemoryPeak, NearMiss, Plan, Recompute,
    SchedulePlan,
};
pub use schedule::{Buffer, Mesh, Place, Schedule, Step};

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The version of the format. An executor refuses every other.
pub const FORMAT: u32 = 2;

/// Why an artifact could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The file system said no.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path}: {error}")]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// Made by another version of the compiler.
    #[error("{path}: format {found}, this executor reads format {FORMAT}; compile it again")]
    Format {
        /// The manifest, or the table of kernels.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The table of kernels contradicts itself.
    #[error("{path}: {error}")]
    Kernels {
        /// The table.
        path: PathBuf,
        /// How.
        error: String,
    },
}

/// An artifact in memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Artifact {
    /// Who made it from what.
    pub manifest: Manifest,
    /// The plan.
    pub plan: Plan,
    /// The steps.
    pub schedule: Schedule,
    /// Program texts by name, in the order of the manifest.
    pub programs: Vec<(String, String)>,
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ArtifactError + '_ {
    |error| ArtifactError::Io { path: path.to_path_buf(), error }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ArtifactError> {
    let text = std::fs::read_to_string(path).map_err(io(path))?;
    serde_json::from_str(&text)
        .map_err(|error| ArtifactError::Json { path: path.to_path_buf(), error })
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), ArtifactError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| ArtifactError::Json { path: path.to_path_buf(), error })?;
    text.push('\n');
    std::fs::write(path, text).map_err(io(path))
}

impl Artifact {
    /// Reads a directory.
    ///
    /// # Errors
    /// When a file is missing, does not parse, or was made by another version.
    pub fn read(directory: &Path) -> Result<Artifact, ArtifactError> {
        let path = directory.join("manifest.json");
        let manifest: Manifest = read(&path)?;
        if manifest.format != FORMAT {
            return Err(ArtifactError::Format { path, found: manifest.format });
        }
        let plan = read(&directory.join("plan.json"))?;
        let schedule = read(&directory.join("schedule.json"))?;
        let mut programs = vec![];
        for p in &manifest.programs {
            let path = directory.join("programs").join(format!("{}.vir", p.name));
            programs.push((p.name.clone(), std::fs::read_to_string(&path).map_err(io(&path))?));
        }
        Ok(Artifact { manifest, plan, schedule, programs })
    }

    /// Writes a directory, making it where it does not exist. The manifest comes last, so that a
    /// directory with one is whole.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn write(&self, directory: &Path) -> Result<(), ArtifactError> {
        let programs = directory.join("programs");
        std::fs::create_dir_all(&programs).map_err(io(&programs))?;
        let manifest = directory.join("manifest.json");
        if manifest.exists() {
            std::fs::remove_file(&manifest).map_err(io(&manifest))?;
        }
        for (name, text) in &self.programs {
            let path = programs.join(format!("{name}.vir"));
            std::fs::write(&path, text).map_err(io(&path))?;
        }
        // Long, and read by programs alone: without spaces.
        let path = directory.join("schedule.json");
        let text = serde_json::to_string(&self.schedule)
            .map_err(|error| ArtifactError::Json { path: path.clone(), error })?;
        std::fs::write(&path, text + "\n").map_err(io(&path))?;
        write(&directory.join("plan.json"), &self.plan)?;
        write(&manifest, &self.manifest)
    }
}
