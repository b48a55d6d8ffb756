//! A checkpoint's `config.json` as settings of a model's configuration.

use super::config::{Raw, Setter, Setting, literal};
use super::library::{Decl, Def, Library};
use crate::diag::{Code, Diag, Diags};
use crate::syntax::ast::{self, ConfigTy, FileId};
use serde_json::Value as Json;
use std::sync::Arc;

/// What a `config.json` says.
#[derive(Debug, Default)]
pub struct Imported {
    /// The model it belongs to.
    pub model: String,
    /// The fields it sets.
    pub settings: Vec<Setting>,
    /// Keys that nothing reads and nobody has declared harmless.
    pub unread: Vec<String>,
}

/// Reads a whole `config.json` for the model of a spec.
///
/// # Errors
/// When no model takes its `model_type`, or a key says what the model does not support.
pub fn import_config(lib: &Library, json: &Json) -> Result<Imported, Diags> {
    let mut diags = Diags::new();
    let kind = json.get("model_type").and_then(Json::as_str).unwrap_or_default();
    let imports = || lib.files.iter().flat_map(|f| &f.imports);
    let Some(import) = imports().find(|i| i.ast.types.iter().any(|t| t.value == kind)) else {
        let known: Vec<_> =
            imports().flat_map(|i| &i.ast.types).map(|t| format!("\"{}\"", t.value)).collect();
        let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        diags.push(
            Diag::error(
                Code::UnsupportedConfig,
                format!("no model here takes model_type \"{kind}\""),
            )
            .note(format!("known: {known}"))
            .help("name the type in an `import` of the spec, if the maths is the same"),
        );
        return Err(diags);
    };
    let model = import.ast.model.name.clone();
    let mut out = Imported { model, ..Imported::default() };
    let mut used = vec![];
    if let Some(d) = model_config(lib, &import.ast.model.name) {
        read_config(lib, &d, json, "", &mut vec![], &mut out.settings, &mut used);
    }
    check_fixed(import, json, &mut used, &mut diags);
    used.extend(import.ast.ignore.iter().map(|t| t.value.clone()));
    leaves(json, "", &mut |key| {
        let read = used.iter().any(|u| key == u || key.starts_with(&format!("{u}.")));
        if !read {
            out.unread.push(key.to_string());
        }
    });
    if diags.has_errors() { Err(diags) } else { Ok(out) }
}

/// Reads one section: the fields of the configuration at `path` below the model's, from an object
/// that holds only them.
pub fn import_section(lib: &Library, path: &[&str], json: &Json) -> Vec<Setting> {
    let mut settings = vec![];
    let Some(model) = lib.model() else { return settings };
    let Some(mut d) = model_config(lib, &model.ast.name.name) else { return settings };
    for part in path {
        let field = d.ast.fields.iter().find(|f| f.name.name == *part);
        let inner = field.and_then(|f| match &f.ty {
            ConfigTy::Name(n) => config_named(lib, d.file, &n.name),
            ConfigTy::List(..) => None,
        });
        match inner {
            Some(inner) => d = inner,
            None => return settings,
        }
    }
    let mut at: Vec<String> = path.iter().map(|p| p.to_string()).collect();
    read_config(lib, &d, json, "", &mut at, &mut settings, &mut vec![]);
    settings
}

fn config_named(lib: &Library, file: FileId, name: &str) -> Option<Arc<Decl<ast::Config>>> {
    match lib.lookup(file, name) {
        Some(Def::Config(d)) => Some(d.clone()),
        _ => None,
    }
}

fn model_config(lib: &Library, model: &str) -> Option<Arc<Decl<ast::Config>>> {
    let find = |d: &Def| match d {
        Def::Module(m) if m.ast.is_model && m.ast.name.name == model => Some(m.clone()),
        _ => None,
    };
    let m = lib.files.iter().flat_map(|f| f.names.values()).find_map(find)?;
    match &m.ast.args.first()?.ty.kind {
        ast::TyKind::Name(n) => config_named(lib, m.file, &n.name),
        _ => None,
    }
}

/// Follows a dotted key into nested objects.
fn get<'j>(json: &'j Json, key: &str) -> Option<&'j Json> {
    key.split('.').try_fold(json, |at, part| at.get(part))
}

fn raw(json: &Json) -> Option<Raw> {
    match json {
        Json::Bool(b) => Some(Raw::Bool(*b)),
        Json::Number(n) => n.as_i64().map(Raw::Int).or_else(|| n.as_f64().map(Raw::Float)),
        Json::String(s) => Some(Raw::Text(s.clone())),
        Json::Array(items) => items.iter().map(raw).collect::<Option<_>>().map(Raw::List),
        Json::Null | Json::Object(_) => None,
    }
}

fn read_config(
    lib: &Library,
    d: &Arc<Decl<ast::Config>>,
    json: &Json,
    prefix: &str,
    path: &mut Vec<String>,
    settings: &mut Vec<Setting>,
    used: &mut Vec<String>,
) {
    for f in &d.ast.fields {
        let Some(key) = &f.key else { continue };
        let full =
            if prefix.is_empty() { key.value.clone() } else { format!("{prefix}.{}", key.value) };
        let Some(value) = get(json, &key.value) else { continue };
        path.push(f.name.name.clone());
        let inner = match &f.ty {
            ConfigTy::Name(n) => config_named(lib, d.file, &n.name),
            ConfigTy::List(..) => None,
        };
        match inner {
            Some(inner) if path.len() < 16 => {
                read_config(lib, &inner, value, &full, path, settings, used);
            }
            _ => {
                used.push(full.clone());
                if let Some(value) = raw(value) {
                    settings.push(Setting {
                        path: path.clone(),
                        value,
                        setter: Setter::Flag(format!("config.json: {full}")),
                    });
                }
            }
        }
        path.pop();
    }
}

fn check_fixed(
    import: &Arc<Decl<ast::Import>>,
    json: &Json,
    used: &mut Vec<String>,
    diags: &mut Diags,
) {
    for (key, want) in &import.ast.fixed {
        used.push(key.value.clone());
        let have = match get(json, &key.value) {
            None | Some(Json::Null) => continue,
            // An object is never the one value that is supported.
            Some(value) => raw(value).unwrap_or_else(|| Raw::Text(value.to_string())),
        };
        let Some(want_raw) = literal(want) else { continue };
        let same = match (&have, &want_raw) {
            (Raw::Int(a), Raw::Float(b)) | (Raw::Float(b), Raw::Int(a)) => *a as f64 == *b,
            (a, b) => a == b,
        };
        if !same {
            diags.push(
                Diag::error(
                    Code::UnsupportedConfig,
                    format!("`{}` is {have}, and the model supports only {want_raw}", key.value),
                )
                .label(key.span, format!("fixed to {want_raw}"))
                .note(format!("config.json says {have}"))
                .help("the key changes the maths: extend the model, then make it a field"),
            );
        }
    }
}

/// Calls `f` with the dotted key of every value that is no object.
fn leaves(json: &Json, prefix: &str, f: &mut dyn FnMut(&str)) {
    let Json::Object(map) = json else { return f(prefix) };
    for (k, v) in map {
        let key = if prefix.is_empty() { k.clone() } else { format!("{prefix}.{k}") };
        leaves(v, &key, f);
    }
}
