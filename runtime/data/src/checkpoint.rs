//! Parameters in a checkpoint: found by name, checked by shape, joined from several tensors.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::safetensors::{FileError, TensorFolder};
use crate::tensor::{HostData, HostTensor, TensorError};

/// A parameter that a model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What the model calls it, for messages.
    pub path: String,
    /// Its checkpoint name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Second stored form: one tensor for each index of axis 0, `{e}` in the names, axis 1 the
    /// concatenation of those listed with these sizes.
    pub each: Vec<(String, usize)>,
}

/// What does not fit between a model and a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[allow(missing_docs)]
pub enum Mismatch {
    #[error("`{name}` is missing{}", or_each(each))]
    Missing { name: String, each: Vec<String> },
    #[error("`{name}` is missing, though other tensors of its kind are there")]
    MissingPiece { name: String },
    #[error("`{name}` has the shape {found:?}, the model has {expected:?}")]
    Shape { name: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("`{name}` is read by `{first}` and by `{second}`")]
    Twice { name: String, first: String, second: String },
    #[error("`{name}` is stored whole and one by one")]
    BothForms { name: String },
    #[error("`{name}` is not of the model")]
    Unexpected { name: String },
}

fn or_each(each: &[String]) -> String {
    if each.is_empty() { String::new() } else { format!(", and so is `{}`", each.join("`, `")) }
}

/// Why a parameter could not be read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum CheckpointError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
}

impl Wanted {
    /// The pieces of one index in the second form: names and shapes.
    fn pieces(&self, index: usize) -> Vec<(String, Vec<usize>)> {
        let rest = self.shape.get(2..).unwrap_or_default();
        let piece = |(pattern, size): &(String, usize)| {
            let name = pattern.replace("{e}", &index.to_string());
            (name, std::iter::once(*size).chain(rest.iter().copied()).collect())
        };
        self.each.iter().map(piece).collect()
    }

    /// Whether any piece of the second form is there.
    fn has_pieces(&self, has: &dyn Fn(&str) -> bool) -> bool {
        let count = self.shape.first().copied().unwrap_or(0);
        // A model may have many; the first few tell.
        (0..count.min(4)).any(|e| self.pieces(e).iter().any(|(name, _)| has(name)))
    }
}

/// Compares all parameters of a model with the headers of a checkpoint; reads no values.
pub fn compare(wanted: &[Wanted], found: &TensorFolder) -> Vec<Mismatch> {
    let shapes: BTreeMap<&str, &[usize]> = found
        .names()
        .filter_map(|name| Some((name, found.info(name).ok()?.shape.as_slice())))
        .collect();
    compare_shapes(wanted, &shapes)
}

/// As [`compare`], for shapes by name.
pub fn compare_shapes(wanted: &[Wanted], found: &BTreeMap<&str, &[usize]>) -> Vec<Mismatch> {
    let mut out = vec![];
    let mut users: BTreeMap<String, &str> = BTreeMap::new();
    let has = |name: &str| found.contains_key(name);
    for want in wanted {
        let whole = has(&want.name);
        let pieces = !want.each.is_empty() && want.has_pieces(&has);
        if whole && pieces {
            out.push(Mismatch::BothForms { name: want.name.clone() });
        }
        let mut read = vec![];
        if pieces && !whole {
            let count = want.shape.first().copied().unwrap_or(0);
            read.extend((0..count).flat_map(|e| want.pieces(e)));
        } else {
            read.push((want.name.clone(), want.shape.clone()));
        }
        for (name, expected) in read {
            match found.get(name.as_str()) {
                Some(shape) if **shape == *expected => {}
                Some(shape) => {
                    let (name, found) = (name.clone(), shape.to_vec());
                    out.push(Mismatch::Shape { name, found, expected });
                }
                None if pieces && !whole => {
                    out.push(Mismatch::MissingPiece { name: name.clone() });
                }
                None => {
                    let each = want.each.iter().map(|(pattern, _)| pattern.clone()).collect();
                    out.push(Mismatch::Missing { name: name.clone(), each });
                }
            }
            if let Some(first) = users.insert(name.clone(), &want.path)
                && first != want.path
            {
                let (first, second) = (first.to_string(), want.path.clone());
                out.push(Mismatch::Twice { name, first, second });
            }
        }
        if whole && pieces {
            // Reported as one thing; the pieces are not strangers as well.
            let count = want.shape.first().copied().unwrap_or(0);
            let names = (0..count).flat_map(|e| want.pieces(e)).map(|(name, _)| name);
            names.for_each(|name| {
                users.insert(name, &want.path);
            });
        }
    }
    let used: BTreeSet<&str> = users.keys().map(String::as_str).collect();
    let strangers = found.keys().filter(|name| !used.contains(**name));
    out.extend(strangers.map(|name| Mismatch::Unexpected { name: name.to_string() }));
    out
}

/// Reads one parameter, whole or from its pieces.
///
/// # Errors
/// If it is missing, has another shape, or the file cannot be read.
pub fn read(want: &Wanted, from: &TensorFolder) -> Result<HostTensor, CheckpointError> {
    let has = |name: &str| from.info(name).is_ok();
    if has(&want.name) || !want.has_pieces(&has) {
        return read_as(&want.name, &want.shape, want, from);
    }
    let count = want.shape.first().copied().unwrap_or(0);
    let mut values = Vec::new();
    for e in 0..count {
        for (name, shape) in want.pieces(e) {
            values.extend(read_as(&name, &shape, want, from)?.to_f32());
        }
    }
    Ok(HostTensor::new(want.shape.clone(), HostData::F32(values))?)
}

fn read_as(
    name: &str,
    shape: &[usize],
    want: &Wanted,
    from: &TensorFolder,
) -> Result<HostTensor, CheckpointError> {
    let Ok(info) = from.info(name) else {
        let each = want.each.iter().map(|(pattern, _)| pattern.clone()).collect();
        return Err(Mismatch::Missing { name: name.to_string(), each }.into());
    };
    if info.shape != shape {
        let (name, found) = (name.to_string(), info.shape.clone());
        return Err(Mismatch::Shape { name, found, expected: shape.to_vec() }.into());
    }
    Ok(from.read(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Vec<Wanted> {
        let plain = |path: &str, name: &str, shape: &[usize]| Wanted {
            path: path.into(),
            name: name.into(),
            shape: shape.into(),
            each: vec![],
        };
        vec![
            plain("embed.weight", "embed", &[8, 4]),
            Wanted {
                path: "mlp.gate_up".into(),
                name: "experts.gate_up".into(),
                shape: vec![2, 6, 4],
                each: vec![("e.{e}.gate".into(), 3), ("e.{e}.up".into(), 3)],
            },
        ]
    }

    fn found<'s>(list: &[(&'s str, &'s [usize])]) -> BTreeMap<&'s str, &'s [usize]> {
        list.iter().copied().collect()
    }

    #[test]
    fn both_forms_are_taken() {
        let packed = found(&[("embed", &[8, 4]), ("experts.gate_up", &[2, 6, 4])]);
        assert_eq!(compare_shapes(&wanted(), &packed), []);
        let single = found(&[
            ("embed", &[8, 4]),
            ("e.0.gate", &[3, 4]),
            ("e.0.up", &[3, 4]),
            ("e.1.gate", &[3, 4]),
            ("e.1.up", &[3, 4]),
        ]);
        assert_eq!(compare_shapes(&wanted(), &single), []);
    }

    #[test]
    fn every_mismatch_is_told() {
        let bad = found(&[
            ("embed", &[4, 8]),
            ("e.0.gate", &[3, 4]),
            ("e.0.up", &[3, 5]),
            ("e.1.gate", &[3, 4]),
            ("stranger", &[1]),
        ]);
        let text: Vec<String> =
            compare_shapes(&wanted(), &bad).iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "`embed` has the shape [4, 8], the model has [8, 4]",
                "`e.0.up` has the shape [3, 5], the model has [3, 4]",
                "`e.1.up` is missing, though other tensors of its kind are there",
                "`stranger` is not of the model",
            ]
        );
        let text: Vec<String> =
            compare_shapes(&wanted(), &found(&[])).iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "`embed` is missing",
                "`experts.gate_up` is missing, and so is `e.{e}.gate`, `e.{e}.up`",
            ]
        );
        let mut twice = wanted();
        twice.push(Wanted { path: "head.weight".into(), ..twice[0].clone() });
        let all = found(&[("embed", &[8, 4]), ("experts.gate_up", &[2, 6, 4])]);
        assert_eq!(
            compare_shapes(&twice, &all)[0].to_string(),
            "`embed` is read by `embed.weight` and by `head.weight`"
        );
    }
}
