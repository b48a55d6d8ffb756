//! `vlmc config`

use super::SpecArgs;
use crate::Context;
use crate::ui::{Done, put};

/// Flags whose effect is to be shown.
#[derive(clap::Args, Debug)]
#[command(after_help = "vlmc.toml in the working folder may hold `spec`, `variant`, `dtype`, \
                        `error-format` and `color`, fields of the configuration under `[set]`, and \
                        defaults of the layout under `[layout]`. VLMC_VARIANT, VLMC_PP and the like \
                        override it, VLMC_SET=\"a=1 b.c=2\" the fields; flags override both.")]
pub struct Args {
    #[command(flatten)]
    spec: SpecArgs,
}

/// Runs it.
pub fn run(c: &mut Context, args: Args) -> Done {
    args.spec.merge(&mut c.merged);
    for text in &args.spec.set {
        let setting = vlmc::settings::field(text, &format!("--set {text}"));
        let setting = setting.map_err(|d| super::refuse(c, *d))?;
        let key = format!("set.{}", setting.path.join("."));
        let source = vlmc::settings::Source::Flag("--set".into());
        c.merged.set(&key, setting.value.to_string(), source);
    }
    let rows = c.merged.values.iter();
    let rows: Vec<(String, String)> =
        rows.map(|(k, (v, s))| (format!("{k} = {}", shown(v)), s.to_string())).collect();
    let width = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let lines = rows.iter().map(|(left, right)| format!("{left:<width$}  # {right}\n"));
    put(&lines.collect::<String>())
}

/// A value as TOML has it.
fn shown(value: &str) -> String {
    let bare = value.parse::<f64>().is_ok() || matches!(value, "true" | "false");
    if bare || value.starts_with('[') {
        value.to_string()
    } else {
        toml::Value::String(value.to_string()).to_string()
    }
}
