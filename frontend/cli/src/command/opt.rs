//! `vlmc opt`

use crate::Context;
use crate::ui::{Done, Stop, at_flag, put};
use vlmc_frontend::diag::{Code, Diag, Diags};
use vlmc_frontend::source::Sources;
use vlmc_frontend::syntax::ast::Span;
use vlmc_ir::graph::Program;
use vlmc_ir::text::{parse, print};
use vlmc_ir::verify::verify;
use vlmc_passes::manager::{self, Pass};

/// What to run over what.
#[derive(clap::Args, Debug)]
#[command(after_help = "The program is printed in its canonical form after the last pass.")]
pub struct Args {
    /// Text of a graph; `-` is standard input
    #[arg(value_name = "FILE.vir")]
    file: String,
    /// Passes in order, between commas [default: none, which verifies and prints]
    #[arg(long, value_name = "A,B,C", default_value = "", hide_default_value = true)]
    passes: String,
    /// Print the program after every pass, or after the one named [default: off]
    #[arg(long, value_name = "all|PASS")]
    print_after: Option<String>,
    /// Verify after every pass; it always is, and this flag says so [default: on]
    #[arg(long)]
    verify_each: bool,
}

/// Runs it.
pub fn run(c: &Context, args: &Args) -> Done {
    // Verification cannot be turned off, so there is nothing to turn on.
    let _ = args.verify_each;
    let passes = manager::parse_list(&args.passes).map_err(|e| {
        let list = manager::PASSES.iter().map(|p| format!("`{}` ({})", p.name, p.summary));
        let help = format!("passes: {}", list.collect::<Vec<_>>().join(", "));
        let diag = at_flag(Code::UnknownPass, e.message, "--passes", &args.passes, "in this list");
        c.ui.fail(diag.help(help))
    })?;
    if let Some(name) = args.print_after.as_deref().filter(|n| *n != "all")
        && !passes.iter().any(|p| p.name == name)
    {
        let message = format!("`{name}` is not among the passes that run");
        let diag = at_flag(Code::UnknownPass, message, "--print-after", name, "never runs");
        return Err(c.ui.fail(diag.help("name one of `--passes`, or `all`")));
    }
    let mut program = read(c, &args.file)?;
    sound(c, &program, None)?;
    for pass in passes {
        program = step(c, pass, &program)?;
        if args.print_after.as_deref().is_some_and(|n| n == "all" || n == pass.name) {
            put(&format!("// after {}\n{}\n", pass.name, print::program(&program)))?;
        }
    }
    put(&print::program(&program))
}

fn read(c: &Context, path: &str) -> Done<Program> {
    let bytes = super::read(c, "", path)?;
    let name = if path == "-" { "<stdin>" } else { path };
    let mut sources = Sources::new();
    let mut diags = Diags::new();
    let file = match sources.add_bytes(name, bytes) {
        Ok(file) => file,
        Err(diag) => {
            diags.push(diag);
            c.ui.report(&diags, &sources)?;
            return Err(Stop::Told);
        }
    };
    match parse::program(sources.text(file)) {
        Ok(program) => Ok(program),
        Err(e) => {
            let start = u32::try_from(e.at).unwrap_or(u32::MAX);
            let span = Span { file, start, end: start.saturating_add(1) };
            diags.push(
                Diag::error(Code::BadGraphText, e.message)
                    .label(span, "here")
                    .help("`vlmc opt` prints the form that it reads"),
            );
            c.ui.report(&diags, &sources)?;
            Err(Stop::Told)
        }
    }
}

/// Tells what is unsound; after a pass, that is a bug of the pass.
fn sound(c: &Context, program: &Program, after: Option<&Pass>) -> Done {
    let diags: Vec<Diag> = verify(program)
        .iter()
        .map(|e| {
            let text = e.render(program);
            // The first line says the message again.
            let place = text.split_once('\n').map_or("", |(_, rest)| rest).trim_end();
            let message = match after {
                Some(p) => format!("pass `{}` made an unsound graph: {}", p.name, e.message),
                None => e.message.clone(),
            };
            let diag = Diag::error(Code::InvalidGraph, message);
            let diag = if place.is_empty() { diag } else { diag.note(place) };
            diag.help("the invariants are listed at the head of the verifier; mend the text")
        })
        .collect();
    if diags.is_empty() { Ok(()) } else { Err(c.ui.fail_all(diags)) }
}

fn step(c: &Context, pass: &Pass, program: &Program) -> Done<Program> {
    let next = (pass.run)(program).map_err(|e| {
        let message = format!("pass `{}`: {}", pass.name, e.message);
        c.ui.fail(Diag::error(Code::InvalidGraph, message).help("leave the pass out"))
    })?;
    sound(c, &next, Some(pass))?;
    Ok(next)
}
