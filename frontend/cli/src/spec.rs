//! Finding and loading specs: files beside each other, or the models that come with the program.

use std::path::{Path, PathBuf};
use vlmc_frontend::diag::Diags;
use vlmc_frontend::elab::{Library, Reader};

/// Models that come with the program, by file name without extension.
pub const MODELS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// Reads modules from the folder of the root file, then from the models that come along.
pub struct FileReader {
    folder: Option<PathBuf>,
}

impl FileReader {
    /// Reads only the models that come along.
    pub fn embedded() -> Self {
        FileReader { folder: None }
    }
}

impl Reader for FileReader {
    fn module(&self, name: &str) -> Option<(String, Vec<u8>)> {
        if let Some(folder) = &self.folder {
            let path = folder.join(format!("{}.vlm", name.replace('.', "/")));
            if let Ok(bytes) = std::fs::read(&path) {
                return Some((path.display().to_string(), bytes));
            }
        }
        embedded(name).map(|text| (format!("{name}.vlm"), text.as_bytes().to_vec()))
    }

    fn modules(&self) -> Vec<String> {
        let mut names: Vec<String> = MODELS.iter().map(|(n, _)| n.to_string()).collect();
        let files = self.folder.iter().filter_map(|f| std::fs::read_dir(f).ok()).flatten();
        for path in files.filter_map(|e| Some(e.ok()?.path())) {
            if path.extension().is_some_and(|e| e == "vlm")
                && let Some(stem) = path.file_stem()
            {
                names.push(stem.to_string_lossy().into_owned());
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

fn embedded(name: &str) -> Option<&'static str> {
    MODELS.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// Loads a spec: a file, `-` for standard input, or the name of a model that comes along.
///
/// # Errors
/// When there is no such file; what is wrong in it is in the diagnostics.
pub fn load(spec: &str) -> std::io::Result<(Library, Diags)> {
    let path = Path::new(spec);
    if spec == "-" {
        let mut bytes = vec![];
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes)?;
        return Ok(Library::load("<stdin>", bytes, &FileReader { folder: Some(".".into()) }));
    }
    match std::fs::read(path) {
        Ok(bytes) => {
            let folder =
                path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
            Ok(Library::load(spec, bytes, &FileReader { folder: folder.map(Path::to_path_buf) }))
        }
        Err(e) => {
            let name = path.file_stem().map(|s| s.to_string_lossy().into_owned());
            match name
                .as_deref()
                .filter(|_| !path.exists())
                .and_then(|n| embedded(n).map(|t| (n, t)))
            {
                Some((name, text)) => {
                    let bytes = text.as_bytes().to_vec();
                    Ok(Library::load(&format!("{name}.vlm"), bytes, &FileReader { folder: None }))
                }
                None => Err(e),
            }
        }
    }
}
