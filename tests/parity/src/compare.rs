//! Comparing results with a case, each tensor against its own tolerance.

use crate::case::Case;
use anyhow::Result;
use vlmc::eval::Precision;
use vlmc_data::tensor::HostTensor;

/// How a tensor came out.
#[derive(Debug)]
pub struct Row {
    /// Its name in the case.
    pub name: String,
    /// ||have - want|| / ||want||, or the largest difference where `want` is nearly zero, or the
    /// number of entries that differ for whole numbers.
    pub error: f64,
    /// The largest error allowed.
    pub tolerance: f64,
}

impl Row {
    /// Whether it is within its tolerance. NaN is not.
    pub fn passed(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// Compares a float tensor; `keep` selects rows of the first dim that hold meaning.
///
/// # Errors
/// When the case has no such tensor.
pub fn floats(
    case: &Case,
    name: &str,
    have: &HostTensor,
    precision: Precision,
    keep: Option<&[bool]>,
) -> Result<Row> {
    let want = case.tensor(name)?;
    let key = match precision {
        Precision::Bf16 => "bf16_rel_l2_tol",
        _ => "fp32_rel_l2_tol",
    };
    let tolerance = case.error_figure(name, key).unwrap_or(1e-5);
    let (a, b) = (have.to_f64(), want.to_f64());
    if a.len() != b.len() {
        return Ok(Row { name: name.to_string(), error: f64::INFINITY, tolerance });
    }
    let width = keep.map_or(1, |k| if k.is_empty() { 1 } else { a.len() / k.len() });
    let used = |i: &usize| keep.is_none_or(|k| k.get(i / width.max(1)).copied().unwrap_or(true));
    let (mut diff, mut norm, mut largest) = (0.0, 0.0, 0.0f64);
    for i in (0..a.len()).filter(used) {
        let d = a[i] - b[i];
        // A NaN must not vanish in a maximum.
        largest = if d.is_nan() { f64::NAN } else { largest.max(d.abs()) };
        diff += d * d;
        norm += b[i] * b[i];
    }
    let small = case.error_figure(name, "ref_rms").unwrap_or(1.0) < 1e-7;
    let (error, tolerance) =
        if small { (largest, 1e-6) } else { (diff.sqrt() / norm.sqrt().max(1e-30), tolerance) };
    let error = if diff.is_nan() { f64::NAN } else { error };
    Ok(Row { name: name.to_string(), error, tolerance })
}

/// Compares whole numbers: none may differ.
///
/// # Errors
/// When the case has no such tensor, or one of the two holds no whole numbers.
pub fn exact(case: &Case, name: &str, have: &HostTensor) -> Result<Row> {
    let (a, b) = (have.to_i64()?, case.tensor(name)?.to_i64()?);
    let differing = if a.len() == b.len() {
        a.iter().zip(&b).filter(|(x, y)| x != y).count() as f64
    } else {
        f64::INFINITY
    };
    Ok(Row { name: name.to_string(), error: differing, tolerance: 0.0 })
}
