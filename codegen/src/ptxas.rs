//! PTX to cubins, with what each kernel takes of a multiprocessor.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sha2::{Digest, Sha256};

use crate::error::{Error, Stage};
use crate::target::Target;

/// The assembler of the CUDA toolkit.
#[derive(Debug, Clone)]
pub struct Ptxas {
    path: PathBuf,
    /// All that `--version` says: two builds of one version are two assemblers.
    version: String,
    cache: Option<PathBuf>,
}

/// An assembled module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// The ELF image that the driver loads.
    pub bytes: Vec<u8>,
    /// Its kernels, in the order of the PTX.
    pub kernels: Vec<Kernel>,
    /// What the assembler warned of, one line each, such as `wgmma`s that it made serial.
    pub warnings: Vec<String>,
}

/// A kernel of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The name of its `.entry`.
    pub name: String,
    /// What it takes.
    pub resources: Resources,
}

/// What a kernel takes of a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// 32-bit registers a thread.
    pub registers: u32,
    /// Bytes of registers stored to memory for want of room, a thread.
    pub spill_stores: u32,
    /// Bytes of them loaded again, a thread.
    pub spill_loads: u32,
    /// Bytes of stack a thread.
    pub stack: u32,
    /// Bytes of static shared memory a block; dynamic shared memory is not the assembler's to know.
    pub shared: u32,
}

/// A module to assemble.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What errors call it.
    pub name: &'a str,
    /// Its text.
    pub ptx: &'a str,
    /// What it is for; not the host.
    pub target: Target,
}

impl Ptxas {
    /// Finds the assembler: where `VLMC_PTXAS` says, else on `PATH`, else in `tools` beside the
    /// folder of this program or one above it, where `.ci/setup` puts it.
    ///
    /// # Errors
    ///
    /// One line where there is none, or where it does not run.
    pub fn find() -> Result<Ptxas, Error> {
        let failed = |detail: String| Error::new("", Stage::Assemble, detail);
        let path = match env::var_os("VLMC_PTXAS").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => search().ok_or_else(|| {
                failed(
                    "ptxas is missing: run `make setup`, put it on PATH, or set VLMC_PTXAS to it"
                        .to_owned(),
                )
            })?,
        };
        // It runs in another folder later.
        let path = std::path::absolute(&path).unwrap_or(path);
        let output = Command::new(&path)
            .arg("--version")
            .output()
            .map_err(|error| failed(format!("cannot run {}: {error}", path.display())))?;
        if !output.status.success() {
            return Err(failed(format!("{} --version failed", path.display())));
        }
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Ptxas { path, version, cache: None })
    }

    /// Keeps what is assembled in a folder, which is made when needed, under a hash of the PTX, the
    /// target and the assembler.
    pub fn with_cache(mut self, folder: impl Into<PathBuf>) -> Ptxas {
        self.cache = Some(folder.into());
        self
    }

    /// The release, such as `13.0.88`, or all that the assembler says of itself.
    pub fn version(&self) -> &str {
        let release =
            self.version.split(", V").nth(1).and_then(|rest| rest.split_whitespace().next());
        release.unwrap_or_else(|| self.version.trim())
    }

    /// Assembles a module, or takes it from the cache.
    ///
    /// # Errors
    ///
    /// What the assembler refused, with the lines of the PTX; the host target; files that cannot be
    /// written.
    pub fn assemble(&self, source: Source<'_>) -> Result<Cubin, Error> {
        let Source { name, ptx, target } = source;
        let failed = |detail: String| Error::new(name, Stage::Assemble, detail);
        if !target.is_gpu() {
            return Err(failed("the host target has no PTX".to_owned()));
        }
        let mut flags = vec![format!("-arch={target}"), "-O3".to_owned(), "-v".to_owned()];
        if ptx.contains("\t.loc\t") {
            flags.push("-lineinfo".to_owned());
        }
        let entry = self.cache.as_ref().map(|folder| folder.join(self.key(ptx, &flags)));
        if let Some(made) = entry.as_deref().and_then(|entry| read_entry(entry, name)) {
            return Ok(made);
        }
        let (log, bytes) = self.run(ptx, &flags).map_err(failed)?;
        let cubin = cubin(&log, bytes, name)?;
        if let Some(entry) = entry {
            write_entry(&entry, &log, &cubin.bytes)
                .map_err(|error| failed(format!("cannot write {}: {error}", entry.display())))?;
        }
        Ok(cubin)
    }

    /// Assembles modules on all cores; results are in the order of `sources`.
    ///
    /// # Errors
    ///
    /// Each module has its own, as of [`Ptxas::assemble`].
    pub fn assemble_all(&self, sources: &[Source<'_>]) -> Vec<Result<Cubin, Error>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(source) = sources.get(index) else { return done };
                done.push((index, self.assemble(*source)));
            }
        };
        let mut done: Vec<(usize, Result<Cubin, Error>)> = thread::scope(|scope| {
            let others: Vec<_> =
                (1..cores.min(sources.len())).map(|_| scope.spawn(worker)).collect();
            let mut done = worker();
            for other in others {
                // A panic of a worker is one of ours.
                done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            done
        });
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Name of a cache entry.
    fn key(&self, ptx: &str, flags: &[String]) -> String {
        let mut hash = Sha256::new();
        for part in flags.iter().map(String::as_str).chain([self.version.as_str(), ptx]) {
            // Lengths first, so that no two lists of parts run together to the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        format!("{:x}", hash.finalize())
    }

    /// Runs the assembler in a folder of its own, where the PTX has a name that tells nothing of
    /// this machine. Gives what it said, and the cubin.
    fn run(&self, ptx: &str, flags: &[String]) -> Result<(String, Vec<u8>), String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
        fs::write(folder.path().join("ptx"), ptx)
            .map_err(|error| format!("cannot write the PTX: {error}"))?;
        let output = Command::new(&self.path)
            .current_dir(folder.path())
            .args(flags)
            .args(["ptx", "-o", "cubin"])
            .output()
            .map_err(|error| format!("cannot run {}: {error}", self.path.display()))?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(log.trim().to_owned());
        }
        let bytes = fs::read(folder.path().join("cubin"))
            .map_err(|error| format!("ptxas left no cubin: {error}"))?;
        Ok((log, bytes))
    }
}

/// `ptxas` on `PATH`, else in the tools of this build.
fn search() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|folder| folder.join("ptxas"));
    let program = env::current_exe().ok();
    let tools = program.iter().flat_map(|program| program.ancestors().skip(1).take(4));
    let tools = tools.map(|folder| folder.join("tools/ptxas"));
    on_path.chain(tools).find(|file| file.is_file())
}

/// Makes a cubin of what the assembler said and wrote.
fn cubin(log: &str, bytes: Vec<u8>, name: &str) -> Result<Cubin, Error> {
    let kernels = kernels(log).ok_or_else(|| {
        Error::new(name, Stage::Assemble, format!("a report that cannot be read:\n{log}"))
    })?;
    let warnings = log
        .lines()
        .filter(|line| line.contains("warning") || line.contains("Potential Performance Loss"))
        .map(|line| line.trim().to_owned())
        .collect();
    Ok(Cubin { bytes, kernels, warnings })
}

/// Reads the lines of `-v`: an entry, then the frame of each of its functions, then its use.
fn kernels(log: &str) -> Option<Vec<Kernel>> {
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut function = "";
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next()?.to_owned();
            kernels.push(Kernel { name, resources: Resources::default() });
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim();
        } else if line.contains("bytes stack frame") {
            let Some(kernel) = kernels.last_mut().filter(|kernel| kernel.name == function) else {
                continue;
            };
            kernel.resources.stack = count(line, " bytes stack frame")?;
            kernel.resources.spill_stores = count(line, " bytes spill stores")?;
            kernel.resources.spill_loads = count(line, " bytes spill loads")?;
        } else if line.contains(" registers") {
            let kernel = kernels.last_mut()?;
            kernel.resources.registers = count(line, " registers")?;
            kernel.resources.shared = count(line, " bytes smem").unwrap_or(0);
        }
    }
    Some(kernels)
}

/// The number before a unit.
fn count(line: &str, unit: &str) -> Option<u32> {
    line.split_once(unit)?.0.split_whitespace().next_back()?.parse().ok()
}

/// An entry is what the assembler said, a NUL, and the cubin. One that cannot be read is made anew.
fn read_entry(entry: &Path, name: &str) -> Option<Cubin> {
    let bytes = fs::read(entry).ok()?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let log = std::str::from_utf8(&bytes[..end]).ok()?;
    cubin(log, bytes[end + 1..].to_vec(), name).ok()
}

/// Writes an entry whole or not at all, as others may read and write it meanwhile.
fn write_entry(entry: &Path, log: &str, cubin: &[u8]) -> std::io::Result<()> {
    let folder = entry.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(log.replace('\0', " ").as_bytes())?;
    file.write_all(&[0])?;
    file.write_all(cubin)?;
    file.persist(entry).map(drop).map_err(|error| error.error)
}
