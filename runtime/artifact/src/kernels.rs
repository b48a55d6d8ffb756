//! `kernels/kernels.json`: the kernels of an artifact and how they are launched.
//!
//! A *module* is one structurally distinct kernel; a *cluster* is a function of a program that a
//! module computes. Input `i` of a module is input `i` of the function, output `i` its result `i`.
//!
//! A launch takes, in this order, one pointer for each of its arguments and one `i32` for each
//! symbol of its module. On the host a function of the same name runs a range of blocks: after the
//! symbols it takes `i32 x_begin, i32 x_end, i32 y_begin, i32 y_end`, ends excluded, and is called
//! once or many times so that every block runs once, in any order and at the same time. A launch
//! sees everything that the launch before it wrote.

use crate::{ArtifactError, FORMAT, io, read, write};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

/// The target of a module that runs on the host.
pub const HOST: &str = "host";

/// Most threads of a block.
pub const MOST_THREADS: u32 = 1024;

/// The kernels of an artifact.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kernels {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Kernels, each once.
    pub modules: Vec<Module>,
    /// What they compute.
    pub clusters: Vec<Cluster>,
}

/// One structurally distinct kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Module {
    /// Its name, a file's stem.
    pub name: String,
    /// Its builds.
    pub targets: Vec<Built>,
    /// Sizes known when running, in the order in which launches take them.
    pub symbols: Vec<String>,
    /// Inputs.
    pub inputs: Vec<Operand>,
    /// Outputs.
    pub outputs: Vec<Operand>,
    /// Scratch buffers, each in bytes; what they hold before is undefined.
    pub scratch: Vec<Size>,
    /// Launches, one after another.
    pub launches: Vec<Launch>,
}

/// A module built for one target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Built {
    /// `sm_90a`, `sm_80`, .. or [`HOST`].
    pub target: String,
    /// PTX or a shared object, below the artifact's directory.
    pub file: String,
    /// The same assembled, below the artifact's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin: Option<String>,
    /// What each launch needs, where that is known: as many as launches, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resources>,
}

/// What the assembler says of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes spilled a thread.
    pub spill_bytes: u32,
    /// Bytes of shared memory a block, static and dynamic.
    pub shared_bytes: u32,
}

/// Type of an input or output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operand {
    /// `bf16`, `f32`, `i32` or `bool`.
    pub dtype: String,
    /// Dims, outermost first, as programs write them: `T`, `docs + 1`, `128`.
    pub dims: Vec<String>,
}

/// One launch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Name of the function.
    pub symbol: String,
    /// Blocks by x, y and z; on the host z is 1.
    pub grid: [Size; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Pointers, in order.
    pub arguments: Vec<Argument>,
}

/// What a pointer points at: an index into the lists of the module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// An input.
    Input(u32),
    /// An output.
    Output(u32),
    /// A scratch buffer.
    Scratch(u32),
}

/// A number that may depend on a run-time size: `times * ceil(dim / per)`, or `times` alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Size {
    /// The factor.
    pub times: u64,
    /// What it multiplies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
}

/// `ceil(dim / per)`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Over {
    /// A dim as programs write it.
    pub dim: String,
    /// The divisor, not 0.
    pub per: u64,
}

/// A function of a program that a module computes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// The function in `programs/step.vir`.
    pub function: String,
    /// Name of the module.
    pub module: String,
    /// What people call it.
    pub label: String,
    /// Whether it belongs to the forward or the backward.
    pub direction: Direction,
    /// The rule that made it.
    pub rule: String,
    /// Places in the spec that it comes from, `file:line`.
    pub lines: Vec<String>,
}

/// Forward or backward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Forward.
    Fwd,
    /// Backward.
    Bwd,
}

impl Size {
    /// A constant.
    pub fn constant(times: u64) -> Self {
        Size { times, over: None }
    }

    /// `times * ceil(dim / per)`
    pub fn of(times: u64, dim: impl Into<String>, per: u64) -> Self {
        Size { times, over: Some(Over { dim: dim.into(), per }) }
    }

    /// Its value, where `dim` gives the value of a dim's text. Saturates; a divisor of 0, which
    /// [`Kernels::read`] refuses, counts as 1.
    ///
    /// # Errors
    /// Those of `dim`.
    pub fn value<E>(&self, dim: impl FnOnce(&str) -> Result<u64, E>) -> Result<u64, E> {
        let Some(over) = &self.over else { return Ok(self.times) };
        Ok(self.times.saturating_mul(dim(&over.dim)?.div_ceil(over.per.max(1))))
    }
}

impl Module {
    /// The build for a target.
    pub fn built(&self, target: &str) -> Option<&Built> {
        self.targets.iter().find(|b| b.target == target)
    }
}

impl Kernels {
    /// Where the table of an artifact is.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join("kernels").join("kernels.json")
    }

    /// The module of this name.
    pub fn module(&self, name: &str) -> Option<&Module> {
        self.modules.iter().find(|m| m.name == name)
    }

    /// Reads the table of an artifact; `None` where it has no kernels.
    ///
    /// # Errors
    /// When it does not parse, was made by another version, or contradicts itself.
    pub fn read(directory: &Path) -> Result<Option<Kernels>, ArtifactError> {
        /// Another version may have other fields, so this one is looked at first.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let path = Kernels::path(directory);
        if !path.try_exists().map_err(io(&path))? {
            return Ok(None);
        }
        let Version { format } = read(&path)?;
        if format != FORMAT {
            return Err(ArtifactError::Format { path, found: format });
        }
        let kernels: Kernels = read(&path)?;
        match kernels.check() {
            Ok(()) => Ok(Some(kernels)),
            Err(error) => Err(ArtifactError::Kernels { path, error }),
        }
    }

    /// Writes the table of an artifact.
    ///
    /// # Errors
    /// When it contradicts itself, or the file system says no.
    pub fn write(&self, directory: &Path) -> Result<(), ArtifactError> {
        let path = Kernels::path(directory);
        if let Err(error) = self.check() {
            return Err(ArtifactError::Kernels { path, error });
        }
        let folder = directory.join("kernels");
        std::fs::create_dir_all(&folder).map_err(io(&folder))?;
        write(&path, self)
    }

    /// Whether every name and index leads somewhere.
    fn check(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for m in &self.modules {
            if !names.insert(&*m.name) {
                return Err(format!("two modules are called `{}`", m.name));
            }
            m.check().map_err(|e| format!("module `{}`: {e}", m.name))?;
        }
        for c in &self.clusters {
            if !names.contains(&*c.module) {
                return Err(format!("cluster @{} names no module `{}`", c.function, c.module));
            }
        }
        Ok(())
    }
}

impl Module {
    fn check(&self) -> Result<(), String> {
        // The name makes names of files.
        if !is_below(&self.name) || self.name.contains('/') {
            return Err("its name is no file's stem".to_string());
        }
        for (i, s) in self.symbols.iter().enumerate() {
            if self.symbols[..i].contains(s) {
                return Err(format!("symbol `{s}` is there twice"));
            }
        }
        for (what, operands) in [("input", &self.inputs), ("output", &self.outputs)] {
            for (i, o) in operands.iter().enumerate() {
                if !["bf16", "f32", "i32", "bool"].contains(&&*o.dtype) {
                    return Err(format!("{what} {i} has the unknown dtype `{}`", o.dtype));
                }
            }
        }
        self.scratch
            .iter()
            .enumerate()
            .try_for_each(|(i, s)| s.check().map_err(|e| format!("scratch {i}: {e}")))?;
        if self.launches.is_empty() {
            return Err("it has no launch".to_string());
        }
        for l in &self.launches {
            self.check_launch(l).map_err(|e| format!("launch `{}`: {e}", l.symbol))?;
        }
        for (i, b) in self.targets.iter().enumerate() {
            if self.targets[..i].iter().any(|o| o.target == b.target) {
                return Err(format!("target {} is there twice", b.target));
            }
            if let Some(f) = std::iter::once(&b.file).chain(&b.cubin).find(|f| !is_below(f)) {
                return Err(format!("file `{f}` is not below the artifact's directory"));
            }
            if !b.resources.is_empty() && b.resources.len() != self.launches.len() {
                return Err(format!(
                    "target {} has resources of {} launches, not {}",
                    b.target,
                    b.resources.len(),
                    self.launches.len()
                ));
            }
        }
        Ok(())
    }

    fn check_launch(&self, l: &Launch) -> Result<(), String> {
        if l.block == 0 || l.block > MOST_THREADS {
            return Err(format!("a block of {} threads, not of 1 to {MOST_THREADS}", l.block));
        }
        l.grid.iter().try_for_each(Size::check)?;
        for a in &l.arguments {
            let (what, index, have) = match *a {
                Argument::Input(i) => ("input", i, self.inputs.len()),
                Argument::Output(i) => ("output", i, self.outputs.len()),
                Argument::Scratch(i) => ("scratch", i, self.scratch.len()),
            };
            if index as usize >= have {
                return Err(format!("it takes {what} {index}, the module has {have}"));
            }
        }
        Ok(())
    }
}

impl Size {
    fn check(&self) -> Result<(), String> {
        match &self.over {
            Some(Over { dim, per: 0 }) => Err(format!("`{dim}` is divided by 0")),
            _ => Ok(()),
        }
    }
}

/// Whether a path stays below the folder that it is joined to.
fn is_below(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some() && parts.all(|c| matches!(c, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels() -> Kernels {
        let operand = |dtype: &str| Operand {
            dtype: dtype.to_string(),
            dims: vec!["T".to_string(), "128".to_string()],
        };
        let launch = |symbol: &str, arguments| Launch {
            symbol: symbol.to_string(),
            grid: [Size::constant(2), Size::of(1, "T", 32), Size::constant(1)],
            block: 128,
            shared_bytes: 65536,
            arguments,
        };
        let module = Module {
            name: "norm".to_string(),
            targets: vec![Built {
                target: "sm_90a".to_string(),
                file: "kernels/norm.sm_90a.ptx".to_string(),
                cubin: Some("kernels/norm.sm_90a.cubin".to_string()),
                resources: vec![Resources { registers: 40, ..Resources::default() }; 2],
            }],
            symbols: vec!["T".to_string()],
            inputs: vec![operand("bf16"), operand("f32")],
            outputs: vec![operand("bf16")],
            scratch: vec![Size::of(512, "T", 32)],
            launches: vec![
                launch("norm", vec![Argument::Input(1), Argument::Scratch(0)]),
                launch("norm_sum", vec![Argument::Scratch(0), Argument::Output(0)]),
            ],
        };
        let cluster = Cluster {
            function: "layer.norm.fwd".to_string(),
            module: "norm".to_string(),
            label: "rms norm".to_string(),
            direction: Direction::Fwd,
            rule: "absorb".to_string(),
            lines: vec!["a.vlm:3".to_string()],
        };
        Kernels { format: FORMAT, modules: vec![module], clusters: vec![cluster] }
    }

    /// A fresh folder that goes away with the value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("vlmc-kernels-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn error(name: &str, change: impl FnOnce(&mut Kernels)) -> String {
        let folder = Folder::new(name);
        let mut k = kernels();
        change(&mut k);
        std::fs::create_dir_all(folder.0.join("kernels")).expect("a folder");
        write(&Kernels::path(&folder.0), &k).expect("written");
        let text = Kernels::read(&folder.0).expect_err("refused").to_string();
        let path = Kernels::path(&folder.0).display().to_string();
        text.strip_prefix(&format!("{path}: ")).expect("names the file").to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = Folder::new("round");
        assert_eq!(Kernels::read(&folder.0).expect("no kernels is no error"), None);
        kernels().write(&folder.0).expect("written");
        assert_eq!(Kernels::read(&folder.0).expect("read"), Some(kernels()));
        let text = std::fs::read_to_string(Kernels::path(&folder.0)).expect("text");
        assert!(text.contains("\"scratch\": 0") && text.contains("\"direction\": \"fwd\""));
    }

    #[test]
    fn sizes() {
        let none = |_: &str| -> Result<u64, String> { panic!("a constant asks for nothing") };
        assert_eq!(Size::constant(7).value(none), Ok(7));
        let of = |n: u64| move |dim: &str| (dim == "T").then_some(n).ok_or("unknown");
        let s = Size::of(3, "T", 16);
        for (t, value) in [(0, 0), (1, 3), (16, 3), (17, 6), (257, 51)] {
            assert_eq!(s.value(of(t)), Ok(value));
        }
        assert_eq!(Size::of(1, "x", 1).value(of(1)), Err("unknown"));
        assert_eq!(Size::of(u64::MAX, "T", 1).value(of(5)), Ok(u64::MAX));
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(
            error("version", |k| k.format = 99),
            format!("format 99, this executor reads format {FORMAT}; compile it again")
        );
        assert_eq!(
            error("twice", |k| k.modules.push(k.modules[0].clone())),
            "two modules are called `norm`"
        );
        assert_eq!(
            error("lost", |k| k.clusters[0].module = "other".to_string()),
            "cluster @layer.norm.fwd names no module `other`"
        );
        assert_eq!(
            error("argument", |k| k.modules[0].launches[1].arguments[1] = Argument::Output(1)),
            "module `norm`: launch `norm_sum`: it takes output 1, the module has 1"
        );
        assert_eq!(
            error("zero", |k| k.modules[0].scratch[0] = Size::of(1, "T", 0)),
            "module `norm`: scratch 0: `T` is divided by 0"
        );
        assert_eq!(
            error("block", |k| k.modules[0].launches[0].block = 2048),
            "module `norm`: launch `norm`: a block of 2048 threads, not of 1 to 1024"
        );
        assert_eq!(
            error("dtype", |k| k.modules[0].inputs[1].dtype = "f16".to_string()),
            "module `norm`: input 1 has the unknown dtype `f16`"
        );
        for (name, file) in [("up", "../x.ptx"), ("root", "/x.ptx"), ("none", "")] {
            assert_eq!(
                error(name, |k| k.modules[0].targets[0].file = file.to_string()),
                format!("module `norm`: file `{file}` is not below the artifact's directory")
            );
        }
        assert_eq!(
            error("resources", |k| {
                k.modules[0].targets[0].resources.pop();
            }),
            "module `norm`: target sm_90a has resources of 1 launches, not 2"
        );
        assert_eq!(
            error("empty", |k| k.modules[0].launches.clear()),
            "module `norm`: it has no launch"
        );
    }

    #[test]
    fn broken_files_are_named() {
        let folder = Folder::new("broken");
        std::fs::create_dir_all(folder.0.join("kernels")).expect("a folder");
        let path = Kernels::path(&folder.0);
        for (text, wanted) in [
            ("{", "EOF"),
            ("{}", "missing field `format`"),
            (&format!("{{\"format\": {FORMAT}}}"), "missing field `modules`"),
        ] {
            std::fs::write(&path, text).expect("written");
            let message = Kernels::read(&folder.0).expect_err("refused").to_string();
            assert!(message.starts_with(&path.display().to_string()), "{message}");
            assert!(message.contains(wanted), "{message}");
        }
    }
}
