use std::path::{Path, PathBuf};

use super::BatchError;

/// The batch files of a run, one a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchFiles {
    paths: Vec<PathBuf>,
}

impl BatchFiles {
    /// Finds the files: `path` is a file, a folder of `*.safetensors`, or a pattern with `*` and
    /// `?` in its last part. They are taken in the order of their names; hidden names are left
    /// out.
    ///
    /// # Errors
    /// If nothing matches or the folder cannot be listed. The files themselves are not opened.
    pub fn find(path: impl AsRef<Path>) -> Result<BatchFiles, BatchError> {
        let path = path.as_ref();
        if path.is_file() {
            return Ok(BatchFiles { paths: vec![path.to_owned()] });
        }
        let (folder, pattern) = if path.is_dir() {
            (path, "*.safetensors".to_owned())
        } else {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            (folder.unwrap_or(Path::new(".")), name.unwrap_or_default())
        };
        let failed = |error| BatchError::Folder { path: folder.to_owned(), error };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && !pattern.starts_with('.');
            if !hidden && matches(pattern.as_bytes(), name.as_bytes()) && entry.path().is_file() {
                paths.push(entry.path());
            }
        }
        if paths.is_empty() {
            return Err(BatchError::NoFiles { path: path.to_owned() });
        }
        paths.sort();
        Ok(BatchFiles { paths })
    }

    /// All files in order.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The file of a step, counted from 0; after the last file the first follows again.
    pub fn of_step(&self, step: usize) -> &Path {
        // `find` gives no empty list.
        &self.paths[step % self.paths.len()]
    }
}

/// Whether `name` fits `pattern`, in which `*` stands for any run and `?` for one byte. Linear in
/// memory and at worst the product of the lengths in time.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where the last star stands, and how much of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, seen) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let fits = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(fits("step-*.safetensors", "step-12.safetensors"));
        assert!(fits("*", "") && fits("a?c", "abc") && fits("*a*b", "xaabab"));
        assert!(!fits("a?c", "ac") && !fits("*.a", "x.ab") && !fits("", "x") && !fits("a", "b"));
    }
}
