use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{FileError, TensorFile, TensorInfo};
use crate::tensor::HostTensor;

const INDEX: &str = "model.safetensors.index.json";

/// A checkpoint folder: one tensor file, or several under an index.
#[derive(Debug)]
pub struct TensorFolder {
    files: Vec<TensorFile>,
    place: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl TensorFolder {
    /// Opens a folder, or a single file. With a `model.safetensors.index.json` the files it names
    /// are opened, else every `*.safetensors` of the folder in the order of their names.
    ///
    /// # Errors
    /// If a file is refused, the index does not match the files or leaves the folder, or two
    /// files hold one name.
    pub fn open(path: impl AsRef<Path>) -> Result<TensorFolder, FileError> {
        let path = path.as_ref();
        if !path.is_dir() {
            return TensorFolder::of_files(vec![path.to_owned()]);
        }
        let index = path.join(INDEX);
        if index.is_file() {
            return TensorFolder::of_index(path, &index);
        }
        let failed = |error| FileError::Io { action: "list", path: path.to_owned(), error };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let found = entry.map_err(failed)?.path();
            // Hidden names are writers' temporary files.
            let hidden = found.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            if !hidden && found.extension().is_some_and(|end| end == "safetensors") {
                paths.push(found);
            }
        }
        if paths.is_empty() {
            return Err(FileError::EmptyFolder { path: path.to_owned() });
        }
        paths.sort();
        TensorFolder::of_files(paths)
    }

    fn of_files(paths: Vec<PathBuf>) -> Result<TensorFolder, FileError> {
        let mut folder = TensorFolder { files: Vec::new(), place: BTreeMap::new() };
        for path in paths {
            let file = TensorFile::open(path)?;
            for name in file.names() {
                if let Some(first) = folder.place.insert(name.to_owned(), folder.files.len()) {
                    let first = folder.files[first].path().to_owned();
                    let second = file.path().to_owned();
                    return Err(FileError::TwoFiles { name: name.to_owned(), first, second });
                }
            }
            folder.files.push(file);
        }
        Ok(folder)
    }

    fn of_index(folder: &Path, path: &Path) -> Result<TensorFolder, FileError> {
        let text = std::fs::read(path).map_err(|error| FileError::Io {
            action: "read",
            path: path.to_owned(),
            error,
        })?;
        let index: Index = serde_json::from_slice(&text)?;
        let mut files: Vec<TensorFile> = Vec::new();
        let mut opened: HashMap<String, usize> = HashMap::new();
        let mut place = BTreeMap::new();
        for (name, file) in index.weight_map {
            // An index comes from outside: it may not point out of its own folder.
            if Path::new(&file).file_name() != Some(file.as_ref()) {
                return Err(FileError::IndexPath { name, file });
            }
            let at = match opened.get(&file) {
                Some(&at) => at,
                None => {
                    files.push(TensorFile::open(folder.join(&file))?);
                    opened.insert(file.clone(), files.len() - 1);
                    files.len() - 1
                }
            };
            if !files[at].contains(&name) {
                return Err(FileError::IndexMissing { name, file });
            }
            place.insert(name, at);
        }
        Ok(TensorFolder { files, place })
    }

    /// All names, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.place.keys().map(String::as_str)
    }

    /// The file that holds `name`.
    ///
    /// # Errors
    /// [`FileError::Missing`] if none does.
    pub fn file(&self, name: &str) -> Result<&TensorFile, FileError> {
        let at = self.place.get(name);
        at.map(|&at| &self.files[at]).ok_or_else(|| FileError::Missing { name: name.to_owned() })
    }

    /// Form and place of `name` in its file.
    ///
    /// # Errors
    /// [`FileError::Missing`] if there is none.
    pub fn info(&self, name: &str) -> Result<&TensorInfo, FileError> {
        self.file(name)?.info(name)
    }

    /// Reads one whole tensor.
    ///
    /// # Errors
    /// As [`TensorFile::read`].
    pub fn read(&self, name: &str) -> Result<HostTensor, FileError> {
        self.file(name)?.read(name)
    }
}
