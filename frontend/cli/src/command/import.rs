//! `vlmc import`

use crate::Context;
use crate::ui::{Done, Stop, at_flag, put};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use vlmc::parameters::parameters;
use vlmc::spec;
use vlmc::weights::Weights;
use vlmc_data::checkpoint::Mismatch;
use vlmc_frontend::diag::{Code, Diag};
use vlmc_frontend::elab::{self, Imported, Library, Raw, Setting, Target};
use vlmc_frontend::syntax::ast::FileId;
use vlmc_ir::ty::DType;

/// What to import.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The result is a small spec with one variant, which imports the model. Keys that change \
                        the maths and are not supported are refused by name; keys that nothing reads are listed."
)]
pub struct Args {
    /// The config.json of a checkpoint; `-` is standard input
    #[arg(value_name = "config.json")]
    config: String,
    /// The spec to write; `-` is standard output
    #[arg(short, long, value_name = "OUT.vlm")]
    output: String,
    /// Compare names and shapes with this checkpoint file or folder [default: nothing]
    #[arg(long, value_name = "DIR|FILE")]
    weights: Option<String>,
    /// The spec whose model it is [default: the model that comes along and takes the model_type]
    #[arg(long, value_name = "SPEC")]
    spec: Option<String>,
    /// What to call the variant
    #[arg(long, value_name = "NAME", default_value = "imported")]
    name: String,
}

/// Runs it.
pub fn run(c: &Context, args: &Args) -> Done {
    let bytes = super::read(c, "", &args.config)?;
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| {
        let message = format!("not JSON: {e}");
        let diag = at_flag(Code::UnsupportedConfig, message, "", &args.config, "this file");
        c.ui.fail(diag.help("give the `config.json` of a checkpoint"))
    })?;
    let (module, lib) = library(c, args, &json)?;
    let imported = match elab::import_config(&lib, &json) {
        Ok(imported) => imported,
        Err(diags) => {
            c.ui.report(&diags, &lib.sources)?;
            return Err(Stop::Told);
        }
    };
    // The values must be of their types and within the constraints before anything is written.
    let target = Target {
        function: None,
        args: &[],
        variant: None,
        settings: &imported.settings,
        shapes: &[],
        dtype: DType::Bf16,
    };
    let lowered = elab::lower(&lib, &target);
    c.ui.report(&lowered.diags, &lib.sources)?;
    let Some(program) = lowered.program else { return Err(Stop::Told) };
    if !imported.unread.is_empty() {
        let list = imported.unread.join(", ");
        c.ui.note(&format!("note: keys that nothing reads: {list}"));
    }
    let kept = elab::unset_fields(&lib, &imported);
    if !kept.is_empty() {
        let list: Vec<_> = kept.iter().map(|(field, key)| format!("{field} (\"{key}\")")).collect();
        c.ui.note(&format!(
            "note: not in the file, kept as the spec has them: {}",
            list.join(", ")
        ));
    }
    let text = text(&imported, &module, &args.name, &args.config);
    let text = vlmc_frontend::fmt::format(FileId(0), &text).unwrap_or(text);
    super::write(c, "-o", &args.output, &text)?;
    if args.output != "-" {
        put(&format!("{}: {} \"{}\"\n", args.output, imported.model, args.name))?;
    }
    match &args.weights {
        Some(path) => compare(c, path, &program),
        None => Ok(()),
    }
}

/// The library with the model: the one named, or the one that takes the `model_type`.
fn library(c: &Context, args: &Args, json: &serde_json::Value) -> Done<(String, Library)> {
    if let Some(spec) = &args.spec {
        let lib = super::load_good(c, spec)?;
        let stem = std::path::Path::new(spec).file_stem();
        let stem = stem.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        return Ok((stem, lib));
    }
    let kind = json.get("model_type").and_then(serde_json::Value::as_str).unwrap_or_default();
    let mut known = vec![];
    for (name, text) in spec::MODELS {
        let reader = spec::FileReader::embedded();
        let (lib, diags) = Library::load(&format!("{name}.vlm"), text.as_bytes().to_vec(), &reader);
        if diags.has_errors() {
            continue;
        }
        let own =
            lib.root.and_then(|r| lib.scope(r)).map(|s| s.imports.clone()).unwrap_or_default();
        let types: Vec<String> =
            own.iter().flat_map(|i| &i.ast.types).map(|t| t.value.clone()).collect();
        if types.iter().any(|t| t == kind) {
            return Ok((name.to_string(), lib));
        }
        known.extend(types);
    }
    let message = match kind {
        "" => "the file has no `model_type`".to_string(),
        kind => format!("no model takes the model_type \"{kind}\""),
    };
    let diag = at_flag(Code::UnsupportedConfig, message, "", &args.config, "this file");
    let help = format!("known types: {}; name another spec with `--spec`", known.join(", "));
    Err(c.ui.fail(diag.help(help)))
}

fn text(imported: &Imported, module: &str, name: &str, from: &str) -> String {
    let mut out = String::new();
    let model = &imported.model;
    let from = from.rsplit('/').next().unwrap_or(from);
    let _ = writeln!(out, "//! Made from `{from}` by `vlmc import`.\n");
    let _ = writeln!(out, "use {module}.{{{model}}}\n\nvariant {model} \"{name}\" {{");
    for s in &imported.settings {
        let _ = writeln!(out, "  {} = {}", s.path.join("."), literal(s));
    }
    out.push_str("}\n");
    out
}

/// A value as a spec has it. Enumerations may be written by their text.
fn literal(s: &Setting) -> String {
    fn raw(v: &Raw) -> String {
        match v {
            Raw::Text(t) => format!("{t:?}"),
            Raw::List(items) => {
                format!("[{}]", items.iter().map(raw).collect::<Vec<_>>().join(", "))
            }
            other => other.to_string(),
        }
    }
    raw(&s.value)
}

/// Compares a checkpoint with the parameters, name by name.
fn compare(c: &Context, path: &str, program: &vlmc_ir::graph::Program) -> Done {
    let weights = Weights::open(path).map_err(|e| {
        let message = format!("cannot use the weights: {e:#}");
        let diag = at_flag(Code::BadTensorFile, message, "--weights", path, "these weights");
        c.ui.fail(diag.help("name a safetensors file or a folder of them"))
    })?;
    let all = parameters(program);
    let mismatches = weights.compare(&all);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let bad: Vec<Diag> = mismatches
        .iter()
        .map(|m| {
            let (kind, help) = match m {
                Mismatch::Missing { .. } | Mismatch::MissingPiece { .. } => {
                    ("missing", "the checkpoint is of another variant, or not whole")
                }
                Mismatch::Shape { .. } => {
                    ("of another shape", "compare config.json with the checkpoint")
                }
                Mismatch::Twice { .. } => {
                    ("read twice", "give each parameter its own name with `as`")
                }
                Mismatch::BothForms { .. } => ("in both forms", "leave one of the two forms out"),
                Mismatch::Unexpected { .. } => {
                    ("not of the model", "the spec lacks what it is for")
                }
            };
            *kinds.entry(kind).or_default() += 1;
            at_flag(Code::BadWeights, m.to_string(), "--weights", path, "in these weights")
                .help(help)
        })
        .collect();
    if bad.is_empty() {
        return put(&format!("{path}: {} parameters, all found with their shapes\n", all.len()));
    }
    let list: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let stop = c.ui.fail_all(bad);
    c.ui.note(&format!("{path}: {}", list.join(", ")));
    Err(stop)
}
