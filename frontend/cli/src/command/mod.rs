//! The commands, one file each, and what they share.

pub mod check;
pub mod compile;
pub mod completions;
pub mod config;
pub mod eval;
pub mod explain;
pub mod fmt;
pub mod fusing;
pub mod import;
pub mod layout;
pub mod memory;
pub mod opt;
pub mod pack;
pub mod plan;
pub mod report;
pub mod run;

use crate::Context;
use crate::ui::{Done, Stop, at_flag, file_error};
use clap::ValueEnum;
use vlmc::settings::{self, Merged, Source};
use vlmc::spec;
use vlmc_frontend::diag::{Code, Diag, Diags, nearest};
use vlmc_frontend::elab::{Library, Setting};

/// A spec and what to set in it.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct SpecArgs {
    /// A file, `-`, or the name of a model that comes along [default: `spec` of the settings]
    pub spec: Option<String>,
    /// The variant [default: `variant` of the settings, when the spec is theirs]
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Set a field of the configuration, as in `--set text.layers=2`; may repeat [default: none]
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// A spec that has been found, with what is to be set in it.
pub struct Chosen {
    /// As named.
    pub spec: String,
    /// The variant.
    pub variant: Option<String>,
    /// Further settings.
    pub settings: Vec<Setting>,
}

impl SpecArgs {
    /// Merges flags into the settings.
    pub fn merge(&self, merged: &mut Merged) {
        if let Some(spec) = &self.spec {
            // The variant and fields of the settings belong to the spec of the settings.
            if merged.get("spec").is_some_and(|s| s != spec) {
                merged.set("variant", "", Source::Default);
                merged.values.retain(|k, _| !k.starts_with("set."));
            }
            merged.set("spec", spec, Source::Flag("argument".into()));
        }
        if let Some(variant) = &self.variant {
            merged.set("variant", variant, Source::Flag("--variant".into()));
        }
    }

    /// The spec, variant and settings to use.
    pub fn choose(&self, c: &mut Context) -> Done<Chosen> {
        self.merge(&mut c.merged);
        let mut bad = vec![];
        let mut settings = vec![];
        for (key, value, source) in c.merged.fields() {
            let text = format!("{key}={value}");
            match settings::field(&text, &format!("{source}: {text}")) {
                Ok(s) => settings.push(s),
                Err(d) => bad.push(*d),
            }
        }
        for text in &self.set {
            match settings::field(text, &format!("--set {text}")) {
                Ok(s) => settings.push(s),
                Err(d) => bad.push(*d),
            }
        }
        if !bad.is_empty() {
            return Err(c.ui.fail_all(bad));
        }
        let Some(spec) = c.merged.get("spec") else {
            return Err(c.ui.fail(
                Diag::error(Code::BadSetting, "no spec is named")
                    .help("give a file as argument, or `spec` in vlmc.toml or VLMC_SPEC"),
            ));
        };
        let (spec, variant) = (spec.to_string(), c.merged.get("variant").map(String::from));
        Ok(Chosen { spec, variant, settings })
    }
}

/// Loads a spec; what is wrong in its text is told by the caller, with the rest.
pub fn load(c: &Context, spec: &str) -> Done<(Library, Diags)> {
    spec::load(spec).map_err(|e| {
        let mut diag = file_error("read", "", spec, &e);
        let names = spec::MODELS.iter().map(|(n, _)| *n);
        let stem = std::path::Path::new(spec).file_stem().map(|s| s.to_string_lossy().into_owned());
        if e.kind() == std::io::ErrorKind::NotFound {
            let all: Vec<&str> = names.clone().collect();
            diag.helps.clear();
            diag = match nearest(stem.as_deref().unwrap_or(spec), names) {
                Some(near) => diag.help(format!("a model `{near}` comes with vlmc")),
                None => diag.help(format!("name a file, or one of {}", all.join(", "))),
            };
        }
        c.ui.fail(diag)
    })
}

/// Loads a spec that must parse.
pub fn load_good(c: &Context, spec: &str) -> Done<Library> {
    let (lib, diags) = load(c, spec)?;
    c.ui.report(&diags, &lib.sources)?;
    Ok(lib)
}

/// Reads a file, or standard input for `-`.
pub fn read(c: &Context, flag: &str, path: &str) -> Done<Vec<u8>> {
    let bytes = if path == "-" {
        let mut bytes = vec![];
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    bytes.map_err(|e| c.ui.fail(file_error("read", flag, path, &e)))
}

/// Writes a file, or standard output for `-`.
pub fn write(c: &Context, flag: &str, path: &str, text: &str) -> Done {
    if path == "-" {
        return crate::ui::put(text);
    }
    std::fs::write(path, text).map_err(|e| c.ui.fail(file_error("write", flag, path, &e)))
}

/// The value of a setting that is one of few words.
pub fn choice<T: ValueEnum + Copy>(merged: &Merged, key: &str) -> Result<T, Box<Diag>> {
    let (value, source) = match merged.values.get(key) {
        Some((value, source)) => (value.as_str(), source.to_string()),
        None => ("", String::new()),
    };
    T::from_str(value, true).map_err(|_| {
        let known: Vec<String> = T::value_variants()
            .iter()
            .filter_map(|v| Some(v.to_possible_value()?.get_name().to_string()))
            .collect();
        let message = format!("`{value}` is no value of `{key}`");
        let diag = at_flag(Code::BadSetting, message, &source, value, "set here");
        Box::new(diag.help(format!("write one of {}", known.join(", "))))
    })
}

/// An error about one flag, told.
pub fn refuse(c: &Context, diag: Diag) -> Stop {
    c.ui.fail(diag)
}
