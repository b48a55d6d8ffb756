//! The kernels of a compiled program, beside its artifact.

use crate::compile::Compiled;
use crate::fusion::place;
use anyhow::{Context, Result, anyhow};
use indexmap::IndexMap;
use std::path::{Path, PathBuf};
use vlmc_artifact::NearMiss;
use vlmc_codegen::Ptxas;
pub use vlmc_codegen::Target;
use vlmc_codegen::build::{Built, build};
use vlmc_codegen::kernel::Refusal;
use vlmc_ir::graph::Program;
use vlmc_runtime::clusters::Clusters;

/// Builds the kernels of the fused graph, and notes the clusters that have none among the near
/// misses.
///
/// # Errors
/// When a tool is missing, or refuses what it was given, which is a bug.
pub fn make(compiled: &mut Compiled, targets: &[Target], cache: Option<&Path>) -> Result<Built> {
    let ptxas = match targets.iter().any(|t| t.is_gpu()) {
        true => {
            let found = Ptxas::find()?;
            Some(match cache {
                Some(folder) => found.with_cache(folder),
                None => found,
            })
        }
        false => None,
    };
    let program = &compiled.clusters;
    let built = build(program, targets, ptxas.as_ref())?;
    for (function, refusal) in &built.refused {
        let at = refusal.origin.as_ref().map(|o| place(program, o)).unwrap_or_default();
        let miss = NearMiss {
            rule: "kernel".to_string(),
            function: function.clone(),
            at,
            reason: refusal.to_string(),
        };
        if !compiled.artifact.plan.near_misses.contains(&miss) {
            compiled.report.near_misses.push(miss.clone());
            compiled.artifact.plan.near_misses.push(miss);
        }
    }
    let names = targets.iter().map(|t| t.to_string());
    compiled.artifact.manifest.targets.extend(names);
    Ok(built)
}

/// Builds the clusters of a fused program for this machine and opens them. Those that have no kernel
/// are named with the reason; the evaluator evaluates their bodies.
///
/// # Errors
/// When a tool is missing or refuses what it was given, or there is no room for temporary files.
pub fn host(program: &Program) -> Result<(Clusters, Vec<(String, Refusal)>)> {
    let built = build(program, &[Target::Host], None)?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    write(&built, folder.path())?;
    let clusters = Clusters::open(folder.path())?;
    Ok((clusters.ok_or_else(|| anyhow!("no kernels were written"))?, built.refused))
}

/// What there is to say of each cluster's kernel: its name, and what each target's build takes.
pub fn notes(built: &Built) -> IndexMap<String, Vec<String>> {
    let mut out: IndexMap<String, Vec<String>> = IndexMap::new();
    if let Some(kernels) = &built.kernels {
        for c in &kernels.clusters {
            let Some(m) = kernels.modules.iter().find(|m| m.name == c.module) else { continue };
            let targets = m.targets.iter().map(|t| {
                let registers = t.resources.iter().map(|r| r.registers).max();
                let spilled: u32 = t.resources.iter().map(|r| r.spill_bytes).sum();
                match registers {
                    Some(n) => format!("{} {n} registers, {spilled} bytes spilled", t.target),
                    None => t.target.clone(),
                }
            });
            let launches = match m.launches.len() {
                1 => "1 launch".to_string(),
                n => format!("{n} launches"),
            };
            let parts: Vec<String> = [launches].into_iter().chain(targets).collect();
            let line = format!("kernel {}: {}", m.name, parts.join("; "));
            out.entry(c.function.clone()).or_default().push(line);
        }
    }
    for (function, refusal) in &built.refused {
        out.entry(function.clone()).or_default().push(format!("no kernel: {refusal}"));
    }
    out
}

/// Where assembled kernels are kept from one compilation to the next: `VLMC_CACHE`, or `vlmc` in the
/// user's cache folder.
pub fn cache() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    folder("VLMC_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|f| f.join("vlmc")))
        .or_else(|| folder("HOME").map(|f| f.join(".cache").join("vlmc")))
}

/// Writes kernels into an artifact's folder, in place of those that were there.
///
/// # Errors
/// When the file system says no.
pub fn write(built: &Built, directory: &Path) -> Result<()> {
    clear(directory)?;
    for (file, bytes) in &built.files {
        let path = directory.join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    if let Some(kernels) = &built.kernels {
        kernels.write(directory)?;
    }
    Ok(())
}

/// Removes the kernels of an earlier compilation.
///
/// # Errors
/// When the file system says no.
pub fn clear(directory: &Path) -> Result<()> {
    let folder = directory.join("kernels");
    match std::fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| folder.display().to_string())
        }
        _ => Ok(()),
    }
}
