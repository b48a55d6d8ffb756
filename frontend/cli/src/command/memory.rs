//! Flags about memory: what is recomputed, and how much there is.

use crate::Context;
use crate::ui::{Done, at_flag, file_error};
use std::path::Path;
use vlmc::compile::{Compiled, MemoryRefusal, MemoryRequest};
use vlmc::settings::Source;
use vlmc_frontend::diag::{Code, Diag};
use vlmc_ir::text::print;
use vlmc_passes::memory::report;
use vlmc_passes::recompute::Mode;

/// Memory.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct MemoryArgs {
    /// What the backward pass makes again instead of keeping it: none, full, full=uniform:N,
    /// full=block:N, selective=REGION,.., or auto, the cheapest that fits --memory-limit [default:
    /// none]
    #[arg(long, value_name = "WHAT")]
    recompute: Option<String>,
    /// Memory of a device, as in 80GiB [default: any]
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<String>,
}

impl MemoryArgs {
    /// Merges the flags.
    pub fn choose(&self, c: &mut Context) -> Done<MemoryRequest> {
        let flags = [("recompute", &self.recompute), ("memory-limit", &self.memory_limit)];
        for (key, value) in flags {
            if let Some(v) = value {
                c.merged.set(&format!("layout.{key}"), v.clone(), Source::Flag(format!("--{key}")));
            }
        }
        let mut request = MemoryRequest::default();
        let mut bad = vec![];
        if let Some((value, source)) = c.merged.values.get("layout.recompute") {
            match value.parse::<Mode>() {
                Ok(mode) => request.recompute = mode,
                Err(e) => bad.push(
                    at_flag(Code::BadSetting, e.message, &source.to_string(), value, "set here")
                        .help("write `--recompute selective=mlp`, `full` or `auto`"),
                ),
            }
        }
        if let Some((value, source)) = c.merged.values.get("layout.memory-limit") {
            match size(value) {
                Some(bytes) => request.limit = Some(bytes),
                None => {
                    let message = format!("`{value}` is no number of bytes");
                    let diag =
                        at_flag(Code::BadSetting, message, &source.to_string(), value, "set here");
                    bad.push(diag.help("write a number and B, kB, MB, GB, KiB, MiB or GiB"));
                }
            }
        }
        if bad.is_empty() { Ok(request) } else { Err(c.ui.fail_all(bad)) }
    }
}

/// `80GiB` in bytes.
fn size(text: &str) -> Option<u64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit: u64 = match unit {
        "" | "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    let bytes = number * unit as f64;
    (number > 0.0 && bytes < 1e18).then_some(bytes as u64)
}

/// Writes what is recomputed, and where values are.
pub fn write(c: &Context, directory: &Path, compiled: &Compiled) -> Done {
    let mut files = vec![("40-recomputed.vir".to_string(), print::program(&compiled.recomputed))];
    for (pp, plan) in compiled.memory.iter().enumerate() {
        let name = |end: &str| format!("memory.{pp}.{end}");
        files.push((name("csv"), report::csv(plan)));
        files.push((name("txt"), report::text(plan)));
        files.push((name("svg"), report::svg(plan)));
        files.push((name("trace.json"), report::trace(plan)));
    }
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|e| c.ui.fail(file_error("write", "-o", &path.display().to_string(), &e)))?;
    }
    Ok(())
}

/// A refusal, told.
pub fn refused(r: &MemoryRefusal, request: &MemoryRequest) -> Diag {
    let message = r.to_string();
    let asked = request.recompute.to_string();
    match r {
        MemoryRefusal::Region(_) => {
            at_flag(Code::BadSetting, message, "--recompute", &asked, "set here")
                .help("the table of candidates is `recompute` in plan.json")
        }
        MemoryRefusal::NotLower { .. } => {
            at_flag(Code::RecomputeInVain, message, "--recompute", &asked, "set here")
                .help("see `recompute` in plan.json for what each region frees")
        }
        MemoryRefusal::Limit { smallest, limit, best, .. } => {
            let diag = at_flag(
                Code::MemoryLimit,
                message,
                "--memory-limit",
                &limit.to_string(),
                "set here",
            );
            let least = format!("the smallest limit that fits is `--memory-limit {smallest}B`");
            match best {
                true => diag.help(least),
                false => diag.help("`--recompute auto` looks for what fits").help(least),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("80GiB"), Some(80 << 30));
        assert_eq!(size("1.5GB"), Some(1_500_000_000));
        assert_eq!(size("4096"), Some(4096));
        for bad in ["", "GiB", "-1GB", "12XB", "1e300GB"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }
}
