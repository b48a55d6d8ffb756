//! Where parameters come from: a seed, a file, a folder of files.

use crate::output::about;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::str::FromStr;
use vlmc_artifact::{Init, Parameter};
use vlmc_data::checkpoint::{Mismatch, Wanted, compare, read};
use vlmc_data::init::{Distribution, Initializer};
use vlmc_data::safetensors::TensorFolder;
use vlmc_data::tensor::{HostData, HostTensor};

/// `--weights`
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Weights {
    /// `init:SEED`
    Seed(u64),
    /// A safetensors file, or a folder of them.
    Path(PathBuf),
}

impl FromStr for Weights {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.strip_prefix("init:") {
            Some(seed) => {
                seed.parse().map(Weights::Seed).map_err(|e| format!("seed `{seed}`: {e}"))
            }
            None => Ok(Weights::Path(s.into())),
        }
    }
}

impl std::fmt::Display for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Weights::Seed(seed) => write!(f, "init:{seed}"),
            Weights::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Gives every parameter to `take`, in order.
///
/// # Errors
/// When a parameter is missing or has another shape; every such is named. Tensors that the model
/// does not have are refused too, as they are usually a sign of another model.
pub fn load(
    weights: &Weights,
    parameters: &[Parameter],
    take: &mut dyn FnMut(&Parameter, &HostTensor) -> Result<()>,
) -> Result<()> {
    match weights {
        Weights::Seed(seed) => {
            for p in parameters {
                let elements: usize = p.shape.iter().product();
                let values = Initializer::new(*seed, &p.name, distribution(p.init))
                    .values(0..elements as u64);
                take(p, &HostTensor::new(p.shape.clone(), HostData::F32(values))?)?;
            }
        }
        Weights::Path(path) => {
            let folder = TensorFolder::open(path).map_err(|e| about(path, e))?;
            let wanted: Vec<Wanted> = parameters.iter().map(wanted).collect();
            let mismatches = compare(&wanted, &folder);
            if !mismatches.is_empty() {
                bail!("{}: {}", path.display(), list(&mismatches));
            }
            for (p, w) in parameters.iter().zip(&wanted) {
                take(p, &read(w, &folder).map_err(|e| about(path, e))?)?;
            }
        }
    }
    Ok(())
}

fn list(mismatches: &[Mismatch]) -> String {
    let mut lines: Vec<String> = mismatches.iter().take(20).map(|m| format!("\n  {m}")).collect();
    if mismatches.len() > 20 {
        lines.push(format!("\n  and {} more", mismatches.len() - 20));
    }
    format!("{} tensors do not fit{}", mismatches.len(), lines.concat())
}

fn wanted(p: &Parameter) -> Wanted {
    Wanted {
        path: p.path.clone(),
        name: p.name.clone(),
        shape: p.shape.clone(),
        each: p.each.clone(),
    }
}

fn distribution(init: Init) -> Distribution {
    match init {
        Init::Constant(v) => Distribution::Constant(v),
        Init::Normal(std) => Distribution::Normal(std),
        Init::Uniform(a, b) => Distribution::Uniform(a, b),
        Init::LogUniform(a, b) => Distribution::LogUniform(a, b),
    }
}
