//! Golden files and temporary folders.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::PathBuf;

use vlmc_data::safetensors::TensorFile;
use vlmc_data::vision::grids_of;
use vlmc_data::{Grid, HostTensor};

/// Folder of the golden files.
pub fn golden_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// A golden case, `ops/NAME` or `models/NAME`.
pub struct Golden(pub TensorFile);

impl Golden {
    pub fn open(name: &str) -> Golden {
        let path = golden_folder().join(format!("{name}.safetensors"));
        Golden(TensorFile::open(path).unwrap())
    }

    pub fn tensor(&self, name: &str) -> HostTensor {
        self.0.read(name).unwrap()
    }

    pub fn integers(&self, name: &str) -> Vec<i64> {
        self.tensor(name).to_i64().unwrap()
    }

    pub fn grids(&self, name: &str) -> Vec<Grid> {
        if !self.0.contains(name) {
            return Vec::new();
        }
        grids_of("grid_thw", &self.integers(name)).unwrap()
    }
}

/// A folder that goes away with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("vlmc-data-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
