//! `vlmc check`

use super::SpecArgs;
use crate::Context;
use crate::ui::{Done, put, table, thousands};
use vlmc::parameters::{count, optional_parts};
use vlmc_frontend::diag::{Code, Diag, Phase};
use vlmc_frontend::elab::{self, Library, Target};
use vlmc_ir::graph::Program;
use vlmc_ir::ty::DType;
use vlmc_ir::verify::verify;

/// What to check.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without a variant every declaration is checked with symbolic sizes: modules \
                        that nothing uses, all imported files and the constraints of all variants. \
                        With one, the model is lowered and verified as well, and its parameters are \
                        counted."
)]
pub struct Args {
    #[command(flatten)]
    spec: SpecArgs,
}

/// Runs it.
pub fn run(c: &mut Context, args: Args) -> Done {
    let chosen = args.spec.choose(c)?;
    let (lib, mut diags) = super::load(c, &chosen.spec)?;
    // What does not parse is not checked: the rest would be full of names that are missing.
    if !diags.iter().any(|d| d.code.phase() == Phase::Syntax) {
        diags.append(elab::check(&lib));
    }
    c.ui.report(&diags, &lib.sources)?;
    if chosen.variant.is_none() && chosen.settings.is_empty() {
        return put(&summary(&lib, &chosen.spec));
    }
    let target = Target {
        function: None,
        args: &[],
        variant: chosen.variant.as_deref(),
        settings: &chosen.settings,
        shapes: &[],
        dtype: DType::Bf16,
    };
    let lowered = elab::lower(&lib, &target);
    c.ui.report(&lowered.diags, &lib.sources)?;
    let Some(program) = lowered.program else { return Err(crate::ui::Stop::Told) };
    let broken: Vec<Diag> = verify(&program)
        .iter()
        .map(|e| {
            Diag::error(Code::InvalidGraph, e.message.clone())
                .note(e.render(&program))
                .help("the graph is made by vlmc: please report this spec")
        })
        .collect();
    if !broken.is_empty() {
        return Err(c.ui.fail_all(broken));
    }
    put(&counts(&lib, &program))
}

/// One line on what was checked, and the names that can be given to `--variant`.
fn summary(lib: &Library, spec: &str) -> String {
    let imported = lib.files.len().saturating_sub(1);
    let files = match imported {
        0 => String::new(),
        1 => " and 1 imported file".to_string(),
        n => format!(" and {n} imported files"),
    };
    let mut out = format!("{spec}{files}: no errors\n");
    if let Some(model) = lib.model() {
        let name = &model.ast.name.name;
        let variants: Vec<_> =
            lib.variants(name).iter().map(|v| v.ast.name.value.clone()).collect();
        let list = if variants.is_empty() { "none".to_string() } else { variants.join(", ") };
        out += &format!("model {name}, variants: {list}\n");
    }
    out
}

fn counts(lib: &Library, program: &Program) -> String {
    let counts = count(lib, program);
    let mut rows: Vec<Vec<String>> = vec![vec!["part".into(), "parameters".into()]];
    for (part, n) in &counts.parts {
        rows.push(vec![part.clone(), thousands(*n)]);
    }
    rows.push(vec!["total".into(), thousands(counts.total)]);
    for (part, condition) in optional_parts(lib) {
        if let Some(n) = counts.parts.get(&part) {
            rows.push(vec![
                format!("total without {part}"),
                thousands(counts.total - n),
                format!("{part} exists when {condition}"),
            ]);
        }
    }
    let variant = match program.variant.as_str() {
        "" => String::new(),
        v => format!(" \"{v}\""),
    };
    format!("{}{variant}: no errors, lowered and verified\n{}", program.name, table(&rows))
}
