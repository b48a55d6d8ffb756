//! `vlmc explain`

use crate::Context;
use crate::ui::{Done, at_flag, put};
use vlmc_frontend::diag::{Code, nearest};
use vlmc_frontend::elab::library;
use vlmc_ir::ops::{Op, reference};

/// What to explain.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A code such as V0207, an op such as top_k, a function of the standard library such as linear,
    /// or `codes`, `ops` or `std` for a list
    #[arg(value_name = "CODE|OP|FUNCTION")]
    topic: String,
}

/// Runs it.
pub fn run(c: &Context, args: &Args) -> Done {
    let topic = args.topic.as_str();
    if let Some(code) = Code::from_number(topic) {
        return put(code.explain());
    }
    if let Some(text) = op_page(topic) {
        return put(&text);
    }
    if let Some(text) = std_page(topic) {
        return put(&text);
    }
    let ops = || Op::all().iter().map(|o| o.name);
    let codes = || Code::ALL.iter().map(|c| c.number());
    match topic {
        "codes" => {
            let lines = Code::ALL.iter().map(|c| format!("{}  {}\n", c.number(), c.title()));
            return put(&lines.collect::<String>());
        }
        "ops" => return put(&ops().map(|o| format!("{o}\n")).collect::<String>()),
        "std" => {
            let lines = library::std_functions().into_iter().map(|f| format!("{f}\n"));
            return put(&lines.collect::<String>());
        }
        _ => {}
    }
    let message = format!("there is no code, no op and no function `{topic}`");
    let diag = at_flag(Code::UnknownName, message, "", topic, "not found");
    let upper = topic.to_uppercase();
    let functions = || library::std_functions().into_iter();
    let near = nearest(topic, ops().chain(functions())).or_else(|| nearest(&upper, codes()));
    let diag = match near {
        Some(near) => diag.help(format!("did you mean `{near}`?")),
        None => diag.help("`vlmc explain codes`, `ops` and `std` list what there is"),
    };
    Err(super::refuse(c, diag))
}

/// The section of the reference page about one op.
fn op_page(name: &str) -> Option<String> {
    let page = reference::page();
    let start = page.find(&format!("\n### `{name}`\n"))? + 3;
    let rest = &page[start..];
    let end = rest.find("\n## ").into_iter().chain(rest.find("\n### ")).min();
    Some(format!("#{}\n", rest[..end.unwrap_or(rest.len())].trim_end().trim_start_matches('#')))
}

/// What the standard library says of a function, and its definition.
fn std_page(name: &str) -> Option<String> {
    let (doc, text) = library::std_function(name)?;
    Some(format!("# `{name}`\n\n{doc}\n\n```vlm\nuse std.{{{name}}}\n\n{text}\n```\n"))
}
