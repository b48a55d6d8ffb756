//! Runs the `console` blocks of the pages: what a reader sees is what the program prints.
//!
//! `$ command` is run by a shell in the root of the repository with `vlmc` on its path. What
//! follows is its output, standard output first; `? N` after the command is the exit code if it
//! is not 0. `...` stands for any lines and `[..]` for any characters.
//! `BLESS=1` writes the output into the pages that have neither.

use std::path::{Path, PathBuf};
use std::process::Command;
use vlmc_frontend::diag::{Code, Phase};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Step {
    command: String,
    expected: String,
    lines: std::ops::Range<usize>,
}

/// The commands of the `console` blocks.
fn steps(page: &str) -> Vec<Step> {
    let mut out: Vec<Step> = vec![];
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) if line.starts_with("$ ") => out.push(Step {
                command: line[2..].to_string(),
                expected: String::new(),
                lines: number + 1..number + 1,
            }),
            (true, line) => {
                let step = out.last_mut().expect("a command before its output");
                if step.expected.is_empty() && step.command.ends_with('\\') {
                    step.command.push('\n');
                    step.command.push_str(line);
                    step.lines = number + 1..number + 1;
                } else {
                    step.expected.push_str(line);
                    step.expected.push('\n');
                    step.lines.end = number + 1;
                }
            }
            _ => {}
        }
    }
    out
}

/// Output and exit code as a page has them.
fn run(command: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_vlmc"));
    let folder = program.parent().expect("a folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let out = Command::new("sh")
        .args(["-c", command])
        .current_dir(root())
        .env("PATH", path)
        .env_remove("NO_COLOR")
        .output()
        .expect("a shell");
    let code = out.status.code().unwrap_or(-1);
    let code = if code == 0 { String::new() } else { format!("? {code}\n") };
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
    };
    format!("{code}{}{}", text(&out.stdout), text(&out.stderr))
}

/// Whether `text` is what `pattern` says.
fn fits(pattern: &[&str], text: &[&str]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=text.len()).any(|at| fits(rest, &text[at..])),
        ([p, rest @ ..], [t, more @ ..]) => line_fits(p, t) && fits(rest, more),
        _ => false,
    }
}

fn line_fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((head, tail)) => line.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|at| rest.is_char_boundary(*at))
                .any(|at| line_fits(tail, &rest[at..]))
        }),
    }
}

fn check(name: &str, page: &str, path: Option<&Path>) -> usize {
    let steps = steps(page);
    let bless = std::env::var_os("BLESS").is_some();
    let mut lines: Vec<String> = page.lines().map(String::from).collect();
    let found: Vec<String> = steps.iter().map(|s| run(&s.command)).collect();
    // From the end, so that the places of earlier outputs stay.
    for (step, found) in steps.iter().zip(found).rev() {
        let pattern: Vec<&str> = step.expected.lines().collect();
        if fits(&pattern, &found.lines().collect::<Vec<_>>()) {
            continue;
        }
        let loose = step.expected.contains("[..]") || step.expected.contains("...\n");
        if bless && !loose && path.is_some() {
            lines.splice(step.lines.clone(), found.lines().map(String::from));
        } else {
            panic!(
                "{name} (BLESS=1 accepts): $ {}\nexpected:\n{}found:\n{found}",
                step.command, step.expected
            );
        }
    }
    if let Some(path) = path
        && bless
    {
        std::fs::write(path, lines.join("\n") + "\n").expect("the page can be written");
    }
    steps.len()
}

#[test]
fn readme() {
    let path = root().join("README.md");
    let page = std::fs::read_to_string(&path).expect("README.md");
    assert!(check("README.md", &page, Some(&path)) >= 5);
}

#[test]
fn training() {
    let path = root().join("docs/training.md");
    let page = std::fs::read_to_string(&path).expect("docs/training.md");
    assert_eq!(check("docs/training.md", &page, Some(&path)), 4);
}

#[test]
fn pages_of_codes() {
    for code in Code::ALL.iter().filter(|c| !matches!(c.phase(), Phase::Syntax | Phase::Names)) {
        let page = code.explain();
        assert!(check(code.number(), page, None) >= 1, "{code} has no failing example");
        assert!(page.contains(&format!("error[{code}]")), "the example of {code} gives another");
    }
}

#[test]
fn patterns() {
    let lines = |text: &'static str| text.lines().collect::<Vec<_>>();
    assert!(fits(&lines("a\n...\nd [..]!"), &lines("a\nb\nc\nd x!")));
    assert!(fits(&lines("a\n..."), &lines("a")));
    assert!(!fits(&lines("a\nb"), &lines("a")) && !fits(&lines("a"), &lines("a\nb")));
}
