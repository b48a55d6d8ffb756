//! Phases of a compilation: their graphs in a folder, and compiling on from one of them.

use crate::compile::sizes;
use crate::fusion::Report;
use crate::report::graph::pictures;
use anyhow::{Context, Result, anyhow, bail};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::Path;
use vlmc_artifact::PassRecord;
use vlmc_ir::graph::Program;
use vlmc_ir::text::{parse, print};
use vlmc_ir::verify::verify;

/// How far a compilation has come.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The forward program, as lowered.
    Forward,
    /// Forward, losses and backward, in normal form.
    Joint,
    /// The same in clusters.
    Fused,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Phase; 3] = [Phase::Forward, Phase::Joint, Phase::Fused];

    /// The file of its graph, in a folder where names sort in the order of phases.
    pub fn file(self) -> &'static str {
        match self {
            Phase::Forward => "10-forward.vir",
            Phase::Joint => "20-joint.vir",
            Phase::Fused => "30-fused.vir",
        }
    }

    /// The phase of a file, by the file's name.
    pub fn of(file: &Path) -> Option<Phase> {
        let name = file.file_name()?.to_str()?;
        Phase::ALL.into_iter().find(|p| p.file() == name)
    }
}

/// A pass that changed a program.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its place among all passes, from 1.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// The program before.
    pub before: Program,
    /// And after.
    pub after: Program,
}

/// The graphs of a compilation, as far as it has come.
#[derive(Clone, Debug, Default)]
pub struct Graphs {
    /// Hash of the spec with everything that it imports.
    pub spec_hash: String,
    /// Text of the spec.
    pub spec: String,
    /// See [`Phase::Forward`].
    pub forward: Program,
    /// See [`Phase::Joint`].
    pub joint: Option<Program>,
    /// See [`Phase::Fused`].
    pub fused: Option<(Program, Report)>,
    /// Passes that ran, with the phase that they led to.
    pub passes: Vec<(Phase, PassRecord)>,
    /// The value of each run-time size at the capacities, once the joint graph is there.
    pub capacities: IndexMap<String, u64>,
    /// What those passes changed that ran in this process.
    pub changes: Vec<Change>,
}

/// What later phases need of a compilation beside its graphs: `compile.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// [`Graphs::spec_hash`]
    pub spec_hash: String,
    /// Flags as merged.
    pub flags: IndexMap<String, String>,
    /// [`Graphs::passes`]
    pub passes: Vec<(Phase, PassRecord)>,
    /// What fusion did, where it is done; what comes after it is not in there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Report>,
}

/// Files beside the graphs.
const SETTINGS: &str = "compile.json";
const SPEC: &str = "00-spec.vlm";
const FUSION: &str = "fusion.json";
const PARTS: &str = "50-partitioned.vir";

impl Settings {
    /// Those of graphs that were made under these flags.
    pub fn of(graphs: &Graphs, flags: IndexMap<String, String>) -> Settings {
        Settings {
            spec_hash: graphs.spec_hash.clone(),
            flags,
            passes: graphs.passes.clone(),
            fusion: graphs.fused.as_ref().map(|(_, report)| report.clone()),
        }
    }
}

/// Reads the graphs up to one of them, of which `file` is the text, from the folder that it is in.
///
/// # Errors
/// When the name is that of no phase, or a file is missing, does not parse or does not verify.
pub fn read(file: &Path) -> Result<(Phase, Graphs, Settings)> {
    let Some(phase) = Phase::of(file) else {
        let names = Phase::ALL.map(Phase::file).join(", ");
        bail!("{} has not the name of a phase's graph: {names}", file.display());
    };
    let folder = file.parent().unwrap_or(Path::new("."));
    let settings: Settings = json(&folder.join(SETTINGS))?;
    let graph = |p: Phase| program(&folder.join(p.file()));
    let mut graphs = Graphs {
        spec_hash: settings.spec_hash.clone(),
        spec: std::fs::read_to_string(folder.join(SPEC)).unwrap_or_default(),
        forward: graph(Phase::Forward)?,
        ..Graphs::default()
    };
    if phase >= Phase::Joint {
        graphs.joint = Some(graph(Phase::Joint)?);
    }
    if phase >= Phase::Fused {
        let report = settings.fusion.clone();
        let report = report.ok_or_else(|| anyhow!("{SETTINGS}: it does not say what was fused"))?;
        graphs.fused = Some((graph(Phase::Fused)?, report));
    }
    graphs.passes = settings.passes.iter().filter(|(p, _)| *p <= phase).cloned().collect();
    Ok((phase, graphs, settings))
}

/// A program as its text has it: names that were used twice are others there. Phases hand this on, so
/// that it does not matter whether the next one reads a file.
///
/// # Errors
/// None that a program that verifies can give.
pub fn as_written(p: &Program) -> Result<Program> {
    let text = print::program(p);
    parse::program(&text).map_err(|e| anyhow!("internal error: {}", parse::render(&text, &e)))
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn program(path: &Path) -> Result<Program> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let program = parse::program(&text)
        .map_err(|e| anyhow!("{}: {}", path.display(), parse::render(&text, &e)))?;
    let errors = verify(&program);
    if let Some(e) = errors.first() {
        bail!("{}: {}", path.display(), e.render(&program));
    }
    Ok(program)
}

impl Graphs {
    /// Writes the graphs, the settings, and what passes changed. `compiled` is the report of all
    /// clusters and the graph of all parts, where a compilation came to its end; `notes` are comments
    /// to clusters, by their names.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn write(
        &self,
        folder: &Path,
        settings: &Settings,
        compiled: Option<(&Report, &Program)>,
        notes: &IndexMap<String, Vec<String>>,
    ) -> Result<()> {
        let put = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| path.display().to_string())
        };
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        // What an earlier compilation left behind is not of this one.
        for name in Phase::ALL.map(Phase::file).into_iter().chain([PARTS, FUSION, "fusion.txt"]) {
            absent(std::fs::remove_file(folder.join(name)))?;
        }
        for name in ["passes", "graphs"] {
            absent(std::fs::remove_dir_all(folder.join(name)))?;
        }
        put(SETTINGS, &(serde_json::to_string_pretty(settings)? + "\n"))?;
        put(SPEC, &self.spec)?;
        put(Phase::Forward.file(), &print::program(&self.forward))?;
        if let Some(joint) = &self.joint {
            put(Phase::Joint.file(), &print::program(joint))?;
        }
        if let Some((fused, report)) = &self.fused {
            put(Phase::Fused.file(), &annotated(fused, notes))?;
            let report: &Report = compiled.map_or(report, |(report, _)| report);
            put("fusion.txt", &report.text())?;
            put(FUSION, &report.json()?)?;
            let graphs = folder.join("graphs");
            std::fs::create_dir_all(&graphs).with_context(|| graphs.display().to_string())?;
            for (name, svg) in pictures(fused, report, &sizes(&self.capacities)) {
                put(&format!("graphs/{name}"), &svg)?;
            }
        }
        if let Some((_, parts)) = compiled {
            put(PARTS, &annotated(parts, notes))?;
        }
        for change in &self.changes {
            let diff = difference(&change.before, &change.after);
            if !diff.is_empty() {
                std::fs::create_dir_all(folder.join("passes"))?;
                put(&format!("passes/{:03}-{}.diff", change.number, change.name), &diff)?;
            }
        }
        Ok(())
    }
}

fn absent(done: std::io::Result<()>) -> std::io::Result<()> {
    match done {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The text of a program, with comments before its clusters: the lines of the spec that they
/// compute, and notes.
fn annotated(p: &Program, notes: &IndexMap<String, Vec<String>>) -> String {
    let mut out = String::new();
    for line in print::program(p).lines() {
        let name = line.strip_prefix("func @").and_then(|l| l.split_once(" cluster "));
        if let Some(f) = name.and_then(|(name, _)| p.function(name)) {
            let lines = crate::fusion::lines(p, f);
            out.push_str(&format!("// of {}\n", lines.join(", ")));
            let notes = notes.get(&f.name).into_iter().flatten();
            notes.for_each(|n| out.push_str(&format!("// {n}\n")));
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// What a pass changed, function by function.
fn difference(before: &Program, after: &Program) -> String {
    let text = |p: &Program, name: &str| p.function(name).map_or(String::new(), print::function);
    let mut names: Vec<&str> = before.functions.iter().map(|f| &*f.name).collect();
    for f in &after.functions {
        if !names.contains(&&*f.name) {
            names.push(&f.name);
        }
    }
    let mut out = String::new();
    for name in names {
        let (a, b) = (text(before, name), text(after, name));
        if a != b {
            let diff = similar::TextDiff::from_lines(&a, &b);
            let (from, to) = (format!("@{name} before"), format!("@{name} after"));
            out.push_str(&diff.unified_diff().header(&from, &to).to_string());
        }
    }
    out
}
