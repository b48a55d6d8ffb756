//! The vlmc command line.

mod command;
mod ui;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use ui::{ColorChoice, Done, ErrorFormat, Stop, Ui};
use vlmc::settings::{Merged, Source};

/// A compiler for training hybrid vision-language models.
#[derive(Parser, Debug)]
#[command(name = "vlmc", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 good, 1 user error, 2 usage, 101 bug in vlmc. \
                        Data goes to standard output, talk to standard error; `-` is standard input. \
                        Defaults come from vlmc.toml, then from VLMC_* variables, then from flags; \
                        see `vlmc config`.")]
struct Cli {
    /// How errors are shown [default: human]
    #[arg(long, global = true, value_enum, value_name = "FORM")]
    error_format: Option<ErrorFormat>,
    /// When to use colours; auto is never under NO_COLOR [default: auto]
    #[arg(long, global = true, value_enum, value_name = "WHEN")]
    color: Option<ColorChoice>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Check a spec; with a variant also lower and verify it, and count its parameters
    Check(command::check::Args),
    /// Format specs in their one style
    Fmt(command::fmt::Args),
    /// Show the merged settings and where each comes from
    Config(command::config::Args),
    /// Explain an error code or an op
    Explain(command::explain::Args),
    /// Show what a layout costs: chunks, schedule, memory, exchanges
    Plan(command::plan::Args),
    /// Draw the plan of an artifact: one page, the schedule as SVG, Chrome trace and table
    Report(command::report::Args),
    /// Compile a model to an artifact
    Compile(command::compile::Args),
    /// Run an artifact
    Run(vlmc_runtime::options::RunOptions),
    /// Evaluate a model, or one function of a spec, with the reference evaluator
    Eval(command::eval::Args),
    /// Run passes over the text of a graph
    Opt(command::opt::Args),
    /// Make a variant from a checkpoint's config.json, and compare its weights
    Import(command::import::Args),
    /// Pack per-sample files into a batch file
    Pack(command::pack::Args),
    /// Print completions for a shell
    Completions(command::completions::Args),
}

/// What every command gets.
pub struct Context {
    /// How to talk.
    pub ui: Ui,
    /// Settings.
    pub merged: Merged,
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        let place =
            info.location().map_or_else(String::new, |l| format!(" ({}:{})", l.file(), l.line()));
        let payload = info.payload();
        let text = payload
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        let text = text.lines().next().unwrap_or_default();
        ui::say(&format!("error: this is a bug in vlmc{place}: {text}\n"));
    }));
    // Specs nest; a stack of our own size makes the limits of the parser hold everywhere.
    let thread = std::thread::Builder::new().stack_size(256 << 20).spawn(run);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) => ExitCode::from(101),
        Err(e) => {
            ui::say(&format!("error: cannot start a thread: {}\n", ui::reason(&e)));
            ExitCode::from(1)
        }
    }
}

fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help is data, and a closed pipe is no news.
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(cli) {
        Ok(()) | Err(Stop::Pipe) => ExitCode::SUCCESS,
        Err(Stop::Told) => ExitCode::from(1),
    }
}

fn dispatch(cli: Cli) -> Done {
    let (mut merged, diags) = Merged::load(std::path::Path::new("."));
    let word = |v: &dyn std::fmt::Debug| format!("{v:?}").to_lowercase();
    if let Some(format) = &cli.error_format {
        merged.set("error-format", word(format), Source::Flag("--error-format".into()));
    }
    if let Some(color) = &cli.color {
        merged.set("color", word(color), Source::Flag("--color".into()));
    }
    let format = command::choice::<ErrorFormat>(&merged, "error-format");
    let color = command::choice::<ColorChoice>(&merged, "color");
    let ui = Ui::new(
        *format.as_ref().unwrap_or(&ErrorFormat::Human),
        *color.as_ref().unwrap_or(&ColorChoice::Auto),
    );
    let words = format.err().into_iter().chain(color.err()).map(|d| *d);
    let bad: Vec<_> = diags.into_iter().chain(words).collect();
    if !bad.is_empty() {
        return Err(ui.fail_all(bad));
    }
    let mut context = Context { ui, merged };
    match cli.command {
        Command::Check(args) => command::check::run(&mut context, args),
        Command::Fmt(args) => command::fmt::run(&context, &args),
        Command::Config(args) => command::config::run(&mut context, args),
        Command::Explain(args) => command::explain::run(&context, &args),
        Command::Plan(args) => command::plan::run(&mut context, &args),
        Command::Report(args) => command::report::run(&context, &args),
        Command::Compile(args) => command::compile::run(&mut context, args),
        Command::Run(options) => command::run::run(&context, &options),
        Command::Eval(args) => command::eval::run(&mut context, args),
        Command::Opt(args) => command::opt::run(&context, &args),
        Command::Import(args) => command::import::run(&context, &args),
        Command::Pack(args) => command::pack::run(&context, &args),
        Command::Completions(args) => {
            command::completions::run(&args, &mut <Cli as clap::CommandFactory>::command())
        }
    }
}
