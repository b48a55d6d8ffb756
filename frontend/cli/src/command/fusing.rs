//! Flags that limit what fusion may do.

use crate::Context;
use crate::ui::{Done, at_flag};
use vlmc::settings::Source;
use vlmc_frontend::diag::{Code, Diag, nearest};
use vlmc_passes::fuse::{Form, Options, rule_names};

/// What fusion may do.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct FusingArgs {
    /// Fuse without this rule, as in `--no-fuse absorb.stencil`; may repeat [default: all rules]
    #[arg(long, value_name = "RULE")]
    no_fuse: Vec<String>,
    /// Row arithmetic around delta rules: auto, unfused, streamed, mega [default: auto]
    #[arg(long, value_name = "FORM")]
    pre_gated_delta_rule: Option<String>,
}

const RULES: &str = "layout.no-fuse";
const FORM: &str = "layout.pre-gated-delta-rule";

impl FusingArgs {
    /// Whether any flag is given.
    pub fn any(&self) -> bool {
        !self.no_fuse.is_empty() || self.pre_gated_delta_rule.is_some()
    }

    /// Merges the flags, and gives what fusion may do.
    pub fn choose(&self, c: &mut Context) -> Done<Options> {
        if !self.no_fuse.is_empty() {
            let source = Source::Flag("--no-fuse".into());
            c.merged.set(RULES, self.no_fuse.join(","), source);
        }
        if let Some(form) = &self.pre_gated_delta_rule {
            c.merged.set(FORM, form.as_str(), Source::Flag("--pre-gated-delta-rule".into()));
        }
        let mut bad = vec![];
        let mut options = Options::default();
        if let Some((names, source)) = c.merged.values.get(RULES) {
            for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
                if !rule_names().contains(&name) {
                    bad.push(unknown(name, &source.to_string()));
                } else if !options.without.iter().any(|w| w == name) {
                    options.without.push(name.to_string());
                }
            }
        }
        if let Some((form, source)) = c.merged.values.get(FORM) {
            match form.parse::<Form>() {
                Ok(form) => options.form = form,
                Err(e) => bad.push(
                    at_flag(Code::BadSetting, e, &source.to_string(), form, "set here")
                        .help("leave it out, and costs decide"),
                ),
            }
        }
        if bad.is_empty() { Ok(options) } else { Err(c.ui.fail_all(bad)) }
    }
}

fn unknown(name: &str, source: &str) -> Diag {
    let message = format!("there is no fusing rule `{name}`");
    let diag = at_flag(Code::BadSetting, message, source, name, "set here");
    let diag = match nearest(name, rule_names()) {
        Some(near) => diag.help(format!("a rule `{near}` is there")),
        None => diag,
    };
    diag.help(format!("rules: {}", rule_names().join(", ")))
}
