//! Values of parameters: made from a seed, or read from a checkpoint.

use crate::parameters::Parameter;
use anyhow::{Result, anyhow, bail};
use std::collections::BTreeMap;
use std::path::Path;
use vlmc_data::checkpoint::{self, Mismatch, Wanted};
use vlmc_data::init::Initializer;
use vlmc_data::safetensors::TensorFolder;
use vlmc_data::tensor::{HostData, HostTensor};

/// Where values come from.
pub enum Weights {
    /// `init:SEED`
    Seed(u64),
    /// A file or folder.
    Checkpoint(TensorFolder),
}

impl Weights {
    /// Reads what stands after `--weights`. Of a checkpoint only the headers are read.
    ///
    /// # Errors
    /// When the seed is no number, or the checkpoint cannot be opened.
    pub fn open(text: &str) -> Result<Weights> {
        if let Some(seed) = text.strip_prefix("init:") {
            let seed = seed.parse();
            return Ok(Weights::Seed(
                seed.map_err(|_| anyhow!("a seed is a whole number from 0, as in `init:1`"))?,
            ));
        }
        if !Path::new(text).exists() {
            bail!("there is no such file or folder; for made-up weights write `init:SEED`");
        }
        Ok(Weights::Checkpoint(TensorFolder::open(text)?))
    }

    /// What does not fit the parameters.
    pub fn compare(&self, parameters: &[Parameter<'_>]) -> Vec<Mismatch> {
        match self {
            Weights::Seed(_) => vec![],
            Weights::Checkpoint(folder) => {
                let wanted: Vec<Wanted> = parameters.iter().filter_map(Parameter::wanted).collect();
                checkpoint::compare(&wanted, folder)
            }
        }
    }
}

/// Values by checkpoint name.
pub struct Values<'w> {
    by_name: BTreeMap<String, Entry>,
    weights: Option<&'w Weights>,
}

struct Entry {
    wanted: Option<Wanted>,
    count: u64,
    distribution: vlmc_data::init::Distribution,
}

impl<'w> Values<'w> {
    /// For these parameters.
    pub fn new(parameters: &[Parameter<'_>], weights: Option<&'w Weights>) -> Self {
        let entry = |p: &Parameter<'_>| Entry {
            wanted: p.wanted(),
            count: p.count().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            distribution: p.distribution(),
        };
        let by_name = parameters.iter().map(|p| (p.name.clone(), entry(p))).collect();
        Values { by_name, weights }
    }

    /// The value of one.
    ///
    /// # Errors
    /// When it cannot be read, or nothing tells it.
    pub fn get(&self, name: &str) -> Result<HostTensor> {
        let entry = self.by_name.get(name).ok_or_else(|| anyhow!("no parameter `{name}`"))?;
        let Some(wanted) = &entry.wanted else {
            bail!("the shape of parameter `{name}` is known only when the model runs");
        };
        match self.weights {
            Some(Weights::Seed(seed)) => {
                let init = Initializer::new(*seed, name, entry.distribution);
                let values = HostData::F32(init.values(0..entry.count));
                Ok(HostTensor::new(wanted.shape.clone(), values)?)
            }
            Some(Weights::Checkpoint(folder)) => Ok(checkpoint::read(wanted, folder)?),
            None => bail!("nothing gives the parameter `{name}`"),
        }
    }
}
