//! `manifest.json`.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Who made an artifact from what.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`crate::FORMAT`] of the writer.
    pub format: u32,
    /// Version of the compiler.
    pub tool_version: String,
    /// The model and its variant.
    pub model: String,
    /// The variant.
    pub variant: String,
    /// Hash of the formatted spec with everything that it imports, in hexadecimal.
    pub spec_hash: String,
    /// Flags of the compilation as merged, sorted by name.
    pub flags: IndexMap<String, String>,
    /// Targets.
    pub targets: Vec<String>,
    /// Passes that ran.
    pub passes: Vec<PassRecord>,
    /// Programs in `programs/`.
    pub programs: Vec<ProgramRecord>,
    /// Capacities: the value of each run-time size that buffers are made for.
    pub capacities: IndexMap<String, u64>,
    /// Rows of the table that token ids look up, where there is one: ids and labels are below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<u64>,
    /// Model dtype: `bf16` or `f32`.
    pub dtype: String,
    /// Losses, in the order of the programs' outputs.
    pub losses: Vec<Loss>,
    /// Parameters, each once, by checkpoint name.
    pub parameters: Vec<Parameter>,
}

/// A pass that ran.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PassRecord {
    /// Its name.
    pub name: String,
    /// Whether it changed anything.
    pub changed: bool,
    /// Ops before.
    pub ops_before: usize,
    /// Ops after.
    pub ops_after: usize,
}

/// A program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProgramRecord {
    /// Its name: the file is `programs/NAME.vir`.
    pub name: String,
    /// What it is for.
    pub purpose: String,
}

/// A loss.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loss {
    /// Its name.
    pub name: String,
    /// Its weight in the training loss.
    pub weight: f64,
}

/// A parameter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Parameter {
    /// Checkpoint name.
    pub name: String,
    /// Second stored form: one tensor for each index of axis 0 (`{e}`), axis 1 the concatenation of
    /// those listed with these sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<(String, usize)>,
    /// Shape.
    pub shape: Vec<usize>,
    /// Dtype in the model: `bf16` or `f32`.
    pub dtype: String,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies.
    pub decay: bool,
    /// Its path in the spec.
    pub path: String,
    /// Whether a loss reaches it; one that none reaches is left alone.
    pub trained: bool,
}

/// How a parameter starts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Every element this number.
    Constant(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Uniform from a to b.
    Uniform(f64, f64),
    /// The logarithm of a number uniform from a to b.
    LogUniform(f64, f64),
}
