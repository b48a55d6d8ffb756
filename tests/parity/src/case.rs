//! A reference case: tensors, configuration and tolerances.

use anyhow::{Context, Result, anyhow};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use vlmc_data::safetensors::TensorFile;
use vlmc_data::tensor::{HostData, HostTensor};

/// One case.
pub struct Case {
    /// `ops/gdn_packed`
    pub name: String,
    /// Its kind; see the README of the reference cases.
    pub kind: String,
    /// The JSON beside the tensors.
    pub json: Json,
    file: TensorFile,
}

impl Case {
    /// Opens a case by either of its two files.
    ///
    /// # Errors
    /// When one is missing or not as it should be.
    pub fn open(path: &Path) -> Result<Case> {
        let json_path = path.with_extension("json");
        let text = std::fs::read_to_string(&json_path)
            .with_context(|| format!("{}", json_path.display()))?;
        let json: Json =
            serde_json::from_str(&text).with_context(|| format!("{}", json_path.display()))?;
        let text_of = |key: &str| -> Result<String> {
            let v = json.get(key).and_then(Json::as_str);
            Ok(v.ok_or_else(|| anyhow!("{}: no `{key}`", json_path.display()))?.to_string())
        };
        let (name, kind) = (text_of("name")?, text_of("kind")?);
        let file = TensorFile::open(path.with_extension("safetensors"))?;
        Ok(Case { name, kind, json, file })
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn tensor(&self, name: &str) -> Result<HostTensor> {
        self.file.read(name).with_context(|| self.name.clone())
    }

    /// The tensor of this name, if there is one.
    pub fn maybe(&self, name: &str) -> Result<Option<HostTensor>> {
        if self.file.contains(name) { self.tensor(name).map(Some) } else { Ok(None) }
    }

    /// Names that start with `prefix`, without it.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.file.names().filter_map(|n| n.strip_prefix(prefix)).map(String::from).collect()
    }

    /// A number of the `case` object.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.json.get("case")?.get(key)?.as_i64()
    }

    /// A switch of the `case` object.
    pub fn flag(&self, key: &str) -> bool {
        self.json.get("case").and_then(|c| c.get(key)).and_then(Json::as_bool).unwrap_or(false)
    }

    /// A number of the error record of a tensor.
    pub fn error_figure(&self, tensor: &str, key: &str) -> Option<f64> {
        self.json.get("errors_vs_float64")?.get(tensor)?.get(key)?.as_f64()
    }
}

/// Every case at or below the paths, sorted by name.
///
/// # Errors
/// When a path does not exist or a folder cannot be read.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut out = vec![];
    for path in paths {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
            let inner: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
            out.extend(find(&inner)?);
        } else if path.extension().is_some_and(|e| e == "safetensors") {
            out.push(path.clone());
        } else if path.extension().is_some_and(|e| e == "json") {
            // `cases.json` and the like have no tensors beside them.
            let tensors = path.with_extension("safetensors");
            if tensors.exists() {
                out.push(tensors);
            }
        } else if path.with_extension("safetensors").exists() {
            out.push(path.with_extension("safetensors"));
        } else if !path.exists() {
            return Err(anyhow!("{} does not exist", path.display()));
        }
    }
    out.sort();
    out.dedup();
    Ok(out)
}

/// The same values under another shape.
///
/// # Errors
/// When the numbers of elements differ.
pub fn reshaped(t: &HostTensor, shape: &[usize]) -> Result<HostTensor> {
    Ok(HostTensor::new(shape.to_vec(), t.data.clone())?)
}

/// `[batch, rows, ..]` as `[batch * rows, ..]`.
///
/// # Errors
/// When there are fewer than two dims.
pub fn rows_of(t: &HostTensor) -> Result<HostTensor> {
    let [b, l, rest @ ..] = t.shape.as_slice() else {
        return Err(anyhow!("expected a batch, found {:?}", t.shape));
    };
    let mut shape = vec![b * l];
    shape.extend_from_slice(rest);
    reshaped(t, &shape)
}

/// Whole numbers as a tensor.
pub fn ints(shape: Vec<usize>, values: Vec<i64>) -> Result<HostTensor> {
    Ok(HostTensor::new(shape, HostData::I64(values))?)
}

/// Dims exchanged, as `permutation` says.
///
/// # Errors
/// When the tensor does not hold floats.
pub fn permuted(t: &HostTensor, permutation: &[usize]) -> Result<HostTensor> {
    let shape: Vec<usize> = permutation.iter().map(|p| t.shape[*p]).collect();
    let mut strides = vec![1usize; t.shape.len()];
    for i in (0..t.shape.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * t.shape[i + 1];
    }
    let values = t.to_f64();
    let mut out = Vec::with_capacity(values.len());
    let mut index = vec![0usize; shape.len()];
    for _ in 0..values.len() {
        let at: usize = index.iter().zip(permutation).map(|(i, p)| i * strides[*p]).sum();
        out.push(values[at]);
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            if index[d] < shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    Ok(HostTensor::new(shape, HostData::F64(out))?)
}
