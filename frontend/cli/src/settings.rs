//! Where defaults come from: `vlmc.toml` in the working folder, then `VLMC_*`, then flags.

use indexmap::IndexMap;
use std::path::Path;
use vlmc_frontend::diag::{Code, Diag, nearest};
use vlmc_frontend::elab::{Raw, Setter, Setting};

/// Variables that name tools and folders, which are no settings of a compilation.
const PLACES: [&str; 2] = ["VLMC_CACHE", "VLMC_PTXAS"];

/// The file in the working folder.
pub const FILE: &str = "vlmc.toml";

/// What can be set, with the value where nothing says otherwise.
pub const KEYS: &[(&str, &str)] = &[
    ("spec", ""),
    ("variant", ""),
    ("dtype", "f32"),
    ("error-format", "human"),
    ("color", "auto"),
];

/// Layout flags, which the file may hold under `[layout]`.
pub const LAYOUT_KEYS: &[&str] = &[
    "pp",
    "vpp",
    "cp",
    "dp",
    "ep",
    "tp",
    "first-layers",
    "last-layers",
    "account-embedding",
    "account-loss",
    "layout",
    "microbatches",
    "group",
    "schedule",
    "seq",
    "micro-batch",
    "packed",
    "tokens",
    "max-docs",
    "max-patches",
    "max-images",
    "cp-attention",
    "cp-gdn",
    "ep-slots",
    "recompute",
    "memory-limit",
    "pre-gated-delta-rule",
    "no-fuse",
    "aux-loss",
];

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The program.
    Default,
    /// [`FILE`].
    File,
    /// An environment variable.
    Env(String),
    /// A flag, or an argument.
    Flag(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File => f.write_str(FILE),
            Source::Env(name) => f.write_str(name),
            Source::Flag(name) => f.write_str(name),
        }
    }
}

/// Merged settings.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// By key: value and source. Layout keys are `layout.pp`, fields `set.text.layers`.
    pub values: IndexMap<String, (String, Source)>,
}

impl Merged {
    /// The value of a key, unless it is empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|(v, _)| v.as_str()).filter(|v| !v.is_empty())
    }

    /// Sets a value; later ones win.
    pub fn set(&mut self, key: &str, value: impl Into<String>, source: Source) {
        self.values.insert(key.to_string(), (value.into(), source));
    }

    /// The fields of the configuration that are set, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str, &Source)> {
        self.values.iter().filter_map(|(k, (v, s))| Some((k.strip_prefix("set.")?, v.as_str(), s)))
    }

    /// Defaults, the file and the environment. What is wrong in them is told together.
    pub fn load(folder: &Path) -> (Merged, Vec<Diag>) {
        let mut merged = Merged::default();
        let mut diags = vec![];
        for (key, value) in KEYS {
            merged.set(key, *value, Source::Default);
        }
        match std::fs::read_to_string(folder.join(FILE)) {
            Ok(text) => merged.read_file(&text, &mut diags),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => diags.push(
                Diag::error(Code::BadSetting, format!("cannot read `{FILE}`: {e}"))
                    .help("mend or remove the file"),
            ),
        }
        let mut variables: Vec<_> = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v)))
            .filter(|(k, _)| k.starts_with("VLMC_") && !PLACES.contains(&k.as_str()))
            .collect();
        variables.sort();
        for (name, value) in variables {
            match value.into_string() {
                Ok(value) => merged.read_variable(&name, &value, &mut diags),
                Err(_) => diags.push(
                    Diag::error(Code::BadSetting, format!("`{name}` is not UTF-8"))
                        .help("set it to text, or unset it"),
                ),
            }
        }
        (merged, diags)
    }

    fn read_file(&mut self, text: &str, diags: &mut Vec<Diag>) {
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(e) => {
                let e: toml::de::Error = e;
                let at = e.span().map_or(0, |s| s.start);
                let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
                diags.push(
                    Diag::error(Code::BadSetting, format!("{FILE}:{line}: {}", e.message()))
                        .help("the file is TOML, as in `variant = \"tiny\"`"),
                );
                return;
            }
        };
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("set", toml::Value::Table(fields)) => self.fields_of(fields, "set", diags),
                ("layout", toml::Value::Table(keys)) => {
                    for (key, value) in keys {
                        if !LAYOUT_KEYS.contains(&key.as_str()) {
                            diags.push(unknown(FILE, &format!("layout.{key}"), key, LAYOUT_KEYS));
                            continue;
                        }
                        self.one(&format!("layout.{key}"), value, diags);
                    }
                }
                (key, value) if KEYS.iter().any(|(k, _)| *k == key) => self.one(key, value, diags),
                (key, _) => {
                    let mut known: Vec<&str> = KEYS.iter().map(|(k, _)| *k).collect();
                    known.extend(["set", "layout"]);
                    diags.push(unknown(FILE, key, key, &known));
                }
            }
        }
    }

    fn fields_of(&mut self, fields: &toml::Table, prefix: &str, diags: &mut Vec<Diag>) {
        for (key, value) in fields {
            let path = format!("{prefix}.{key}");
            match value {
                toml::Value::Table(inner) if path.split('.').count() < 16 => {
                    self.fields_of(inner, &path, diags);
                }
                value => self.one(&path, value, diags),
            }
        }
    }

    fn one(&mut self, key: &str, value: &toml::Value, diags: &mut Vec<Diag>) {
        match plain(value) {
            Some(text) => self.set(key, text, Source::File),
            None => diags.push(
                Diag::error(Code::BadSetting, format!("`{key}` in {FILE} is a table"))
                    .help("give it one value"),
            ),
        }
    }

    fn read_variable(&mut self, name: &str, value: &str, diags: &mut Vec<Diag>) {
        let key = name.trim_start_matches("VLMC_").to_lowercase().replace('_', "-");
        let source = Source::Env(name.to_string());
        if key == "set" {
            for part in value.split_whitespace() {
                match part.split_once('=') {
                    Some((k, v)) => self.set(&format!("set.{k}"), v, source.clone()),
                    None => diags.push(
                        Diag::error(Code::BadSetting, format!("`{part}` in {name} has no `=`"))
                            .help("write `VLMC_SET=\"text.layers=2 tied=true\"`"),
                    ),
                }
            }
        } else if KEYS.iter().any(|(k, _)| *k == key) {
            self.set(&key, value, source);
        } else if LAYOUT_KEYS.contains(&key.as_str()) {
            self.set(&format!("layout.{key}"), value, source);
        } else {
            let known: Vec<&str> = KEYS
                .iter()
                .map(|(k, _)| *k)
                .chain(["set"])
                .chain(LAYOUT_KEYS.iter().copied())
                .collect();
            diags.push(unknown("the environment", name, &key, &known));
        }
    }
}

fn unknown(place: &str, shown: &str, key: &str, known: &[&str]) -> Diag {
    let diag = Diag::error(Code::BadSetting, format!("`{shown}` in {place} is no setting"));
    match nearest(key, known.iter().copied()) {
        Some(near) => diag.help(format!("did you mean `{near}`?")),
        None => diag.help(format!("settings are {}", known.join(", "))),
    }
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::Table(_) => None,
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(plain).collect();
            Some(format!("[{}]", items?.join(", ")))
        }
        other => Some(other.to_string()),
    }
}

/// Reads `a.b=value` of `--set`.
///
/// # Errors
/// When there is no `=`, or nothing before it.
pub fn field(text: &str, written: &str) -> Result<Setting, Box<Diag>> {
    match text.split_once('=') {
        Some((path, value)) if !path.trim().is_empty() => Ok(Setting {
            path: path.trim().split('.').map(String::from).collect(),
            value: Raw::parse(value),
            setter: Setter::Flag(written.to_string()),
        }),
        _ => {
            let n = written.len();
            let start = n.saturating_sub(text.len());
            let diag = Diag::error(Code::BadSetting, format!("`{text}` sets nothing"))
                .flag(written, start..n, "has no `=`")
                .help("write `--set field=value`, as in `--set text.layers=2`");
            Err(Box::new(diag))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_variables() {
        let mut merged = Merged::default();
        let mut diags = vec![];
        let text = "spec = \"a.vlm\"\n[set]\ntied = true\ntext.layers = 2\n[layout]\npp = 2\n";
        merged.read_file(text, &mut diags);
        merged.read_variable("VLMC_VARIANT", "tiny", &mut diags);
        merged.read_variable("VLMC_SET", "tied=false", &mut diags);
        merged.read_variable("VLMC_PP", "4", &mut diags);
        assert!(diags.is_empty(), "{diags:?}");
        let fields: Vec<_> = merged.fields().map(|(k, v, _)| format!("{k}={v}")).collect();
        assert_eq!(fields, ["text.layers=2", "tied=false"]);
        assert_eq!(merged.get("layout.pp"), Some("4"));
        merged.read_file("varient = \"x\"", &mut diags);
        merged.read_file("spec = ", &mut diags);
        merged.read_variable("VLMC_COLOUR", "x", &mut diags);
        let text: Vec<_> = diags.iter().map(|d| d.message.as_str()).collect();
        assert_eq!(text[0], "`varient` in vlmc.toml is no setting");
        assert!(text[1].starts_with("vlmc.toml:1: "), "{text:?}");
        assert_eq!(diags[2].helps[0].text, "did you mean `color`?");
    }
}
