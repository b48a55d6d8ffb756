//! File tests of the graph: text in, text out.
//!
//! A case is one file `cases/KIND/NAME.vir`:
//!
//! ```text
//! // passes: cse, dce
//! program "p"
//! ..
//! // ----
//! what comes out
//! ```
//!
//! Header lines, first in the file, in any order:
//!
//! - `// passes: LIST`: runs these passes, with the verifier before and after each. Without it the
//!   program is only parsed, verified and printed.
//! - `// recompute: MODE`: after the passes, recomputes as `--recompute MODE` does.
//! - `// must-not-change: REASON`: the passes must leave the program as it is; nothing follows.
//! - `// fires: RULE, RULE`: each of these rules of the normal form makes something equal here that
//!   was not, with everything that the other rules do. Of fusing rules: makes a cluster that was not
//!   there, of what the passes before `fuse` leave.
//! - `// must-not-fire: RULE: REASON`: this one does not; may repeat. Where a fusing rule was refused,
//!   REASON is in the words of its refusal.
//! - `// error: WORDS`: the program must be refused, by the parser, the verifier or a pass, with a
//!   message that contains these words; the whole message follows the line.
//!
//! Other comments are free. Places in messages count the lines of the file. With `BLESS=1` what
//! comes out is written to the file.

use std::path::{Path, PathBuf};
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::Program;
use vlmc_ir::text::{parse, print};
use vlmc_ir::verify::verify;
use vlmc_passes::recompute::{self, Choice, Mode};
use vlmc_passes::{canon, fuse, manager};

/// The line between what goes in and what comes out.
const SEPARATOR: &str = "// ----\n";

/// A case, read but not run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Case {
    /// Passes to run.
    pub passes: String,
    /// What to recompute after them, when anything.
    pub recompute: Option<String>,
    /// Why nothing may change, when nothing may.
    pub must_not_change: Option<String>,
    /// Rules that must fire.
    pub fires: Vec<String>,
    /// Rules that must not fire, each with the reason.
    pub must_not_fire: Vec<(String, String)>,
    /// Words of the error that must come, when one must.
    pub error: Option<String>,
    /// Everything before the separator, with the header.
    pub input: String,
    /// Everything after it.
    pub expected: Option<String>,
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// When the header is not as the module's text says.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The separator stands at the start of a line.
        let (input, expected) = match text.split_once(&format!("\n{SEPARATOR}")) {
            Some((input, expected)) => (format!("{input}\n"), Some(expected.to_string())),
            None => (text.to_string(), None),
        };
        let mut case = Case { input, expected, ..Case::default() };
        for line in text.lines().map_while(|l| l.strip_prefix("// ")) {
            let Some((key, value)) = line.split_once(": ") else { continue };
            match key {
                "passes" => case.passes = value.to_string(),
                "recompute" => case.recompute = Some(value.to_string()),
                "must-not-change" => case.must_not_change = Some(value.to_string()),
                "error" => case.error = Some(value.to_string()),
                "fires" => case.fires = value.split(", ").map(str::to_string).collect(),
                "must-not-fire" => {
                    let (rule, reason) = value.split_once(": ").ok_or("a reason is missing")?;
                    case.must_not_fire.push((rule.to_string(), reason.to_string()));
                }
                _ => {}
            }
        }
        if case.must_not_change.is_some() {
            if case.error.is_some() || case.expected.is_some() {
                return Err("what must not change has no output of its own".to_string());
            }
            if case.passes.is_empty() && case.recompute.is_none() {
                return Err("no passes are named".to_string());
            }
        }
        Ok(case)
    }

    /// What comes out: the printed program, or the error.
    fn output(&self) -> Result<(String, bool), String> {
        let p = parse::program(&self.input).map_err(|e| parse::render(&self.input, &e))?;
        let errors = verify(&p);
        if !errors.is_empty() {
            return Err(errors.iter().map(|e| e.render(&p)).collect());
        }
        let text = print::program(&p);
        let again = parse::program(&text).map_err(|e| parse::render(&text, &e))?;
        if print::program(&again) != text {
            return Err("the printed program reads back as another one".to_string());
        }
        let passes = manager::parse_list(&self.passes).map_err(|e| format!("{e}\n"))?;
        let out = manager::run(&p, &passes).map_err(|e| format!("{e}\n"))?;
        let program = match &self.recompute {
            Some(mode) => recomputed(&out.program, mode).map_err(|e| format!("{e}\n"))?,
            None => out.program,
        };
        let errors = verify(&program);
        if !errors.is_empty() {
            return Err(errors.iter().map(|e| e.render(&program)).collect());
        }
        let changed = program != p;
        Ok((print::program(&program), changed))
    }

    /// Whether the rules fired that must, and no other that must not.
    fn rules(&self) -> Result<(), String> {
        if self.fires.is_empty() && self.must_not_fire.is_empty() {
            return Ok(());
        }
        let p = parse::program(&self.input).map_err(|e| parse::render(&self.input, &e))?;
        let (log, known) = match self.passes.rsplit_once("fuse") {
            Some((before, "")) => {
                let passes = manager::parse_list(before).map_err(|e| e.message)?;
                let p = manager::run(&p, &passes).map_err(|e| format!("{e}"))?.program;
                let fused = fuse::program(&p, &fuse::Options::default());
                (fused.map_err(|e| e.message)?.log.decisions, fuse::rule_names())
            }
            _ => {
                let options = canon::Options::default();
                let (_, log) = canon::program(&p, &options).map_err(|e| e.message)?;
                (log, canon::rule_names())
            }
        };
        let fired = log.fired();
        let named = self.fires.iter().chain(self.must_not_fire.iter().map(|(rule, _)| rule));
        if let Some(rule) = named.into_iter().find(|r| !known.contains(&r.as_str())) {
            return Err(format!("there is no rule `{rule}`"));
        }
        if let Some(rule) = self.fires.iter().find(|r| !fired.contains_key(r.as_str())) {
            return Err(format!("`{rule}` did not fire, only {fired:?}"));
        }
        for (rule, reason) in &self.must_not_fire {
            if fired.contains_key(rule.as_str()) {
                return Err(format!("`{rule}` fired, and must not: {reason}"));
            }
            let refusals: Vec<&str> = log
                .events()
                .filter(|(e, _)| e.rule == rule)
                .filter_map(|(e, _)| match &e.outcome {
                    canon::Outcome::Refused(why) => Some(why.as_str()),
                    canon::Outcome::Fired => None,
                })
                .collect();
            let told = refusals.iter().any(|why| why.contains(reason.as_str()));
            if known == fuse::rule_names() && !refusals.is_empty() && !told {
                return Err(format!("`{rule}` was refused for another reason: {refusals:?}"));
            }
        }
        Ok(())
    }

    /// Runs the case. Returns the text that belongs after the separator, `None` when nothing does.
    ///
    /// # Errors
    /// When there is an error that no header announces or the other way round, or the program
    /// changes that must not.
    pub fn run(&self) -> Result<Option<String>, String> {
        self.rules()?;
        match (self.output(), &self.error) {
            (Err(e), Some(words)) if e.contains(words.as_str()) => Ok(Some(e)),
            (Err(e), Some(words)) => Err(format!("`{words}` is not in the error:\n{e}")),
            (Err(e), None) => Err(e),
            (Ok(_), Some(words)) => Err(format!("there is no error, and `{words}` was expected")),
            (Ok((_, false)), None) if self.must_not_change.is_some() => Ok(None),
            (Ok((text, changed)), None) => match &self.must_not_change {
                Some(reason) if changed => {
                    Err(format!("changed, and must not, because {reason}:\n{text}"))
                }
                _ => Ok(Some(text)),
            },
        }
    }
}

/// A program with what a mode recomputes; regions are those of the program itself.
fn recomputed(p: &Program, mode: &str) -> Result<Program, String> {
    let sites = recompute::sites(p);
    let choice = match mode.parse::<Mode>().map_err(|e| e.to_string())? {
        Mode::None => Choice::default(),
        Mode::Full(how) => recompute::full(&sites, how),
        Mode::Selective(names) => {
            let all = recompute::candidates(p, p, &sites, &Sizes::default());
            let all = all.map_err(|e| e.to_string())?;
            recompute::selective(&all, &names).map_err(|e| e.to_string())?
        }
        Mode::Auto => return Err("`auto` needs a memory limit".to_string()),
    };
    recompute::apply(p, &choice).map_err(|e| e.to_string())
}

/// Runs the case in a file; rewrites what comes out when `bless` is set.
///
/// # Errors
/// See [`Case::run`]; and when what comes out differs from the file, with the difference.
pub fn run_file(path: &Path, bless: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let case = Case::parse(&text)?;
    let have = case.run()?;
    if have == case.expected {
        return Ok(());
    }
    let Some(have) = have else { return Ok(()) };
    if bless {
        let gap = if case.input.ends_with('\n') { "" } else { "\n" };
        return std::fs::write(path, format!("{}{gap}{SEPARATOR}{have}", case.input))
            .map_err(|e| e.to_string());
    }
    let expected = case.expected.unwrap_or_default();
    let diff = similar::TextDiff::from_lines(expected.as_str(), have.as_str());
    Err(format!(
        "another output (BLESS=1 accepts it):\n{}",
        diff.unified_diff().header("expected", "found")
    ))
}

/// Every `.vir` file below a folder, sorted.
///
/// # Errors
/// When a folder cannot be read.
pub fn find_cases(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut out = vec![];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            out.extend(find_cases(&path)?);
        } else if path.extension().is_some_and(|e| e == "vir") {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read() {
        let case = Case::parse("// passes: dce\n// error: no\nprogram \"p\"\n// ----\nout\n");
        let case = case.expect("a case");
        assert_eq!(case.passes, "dce");
        assert_eq!(case.error.as_deref(), Some("no"));
        assert_eq!(case.expected.as_deref(), Some("out\n"));
        assert!(case.run().is_err_and(|e| e.contains("there is no error")));
        assert!(Case::parse("// must-not-change: x\nprogram \"p\"\n").is_err());
        let wrong = Case::parse("// passes: none\nprogram \"p\"\n").expect("a case");
        assert!(wrong.run().is_err_and(|e| e.contains("no pass `none`")));
    }
}
