//! Data on standard output, talk on standard error, and how a command ends.

use clap::ValueEnum;
use std::io::{self, IsTerminal, Write};
use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::diag::{Code, Diag, Diags};
use vlmc_frontend::source::Sources;

/// Why a command ended early.
#[derive(Debug)]
pub enum Stop {
    /// The errors have been told.
    Told,
    /// Nobody reads the output any more.
    Pipe,
}

/// The result of a command.
pub type Done<T = ()> = Result<T, Stop>;

/// What `--error-format` may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ErrorFormat {
    /// With the source and what is wrong under it.
    Human,
    /// One line each: `file:line:column: error[code]: message`.
    Short,
    /// One JSON object a line.
    Json,
}

/// What `--color` may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ColorChoice {
    /// When standard error is a terminal and `NO_COLOR` is not set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to talk.
#[derive(Clone, Copy, Debug)]
pub struct Ui {
    format: Format,
}

impl Ui {
    /// Talks in this form.
    pub fn new(format: ErrorFormat, color: ColorChoice) -> Ui {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let color = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => !plain && io::stderr().is_terminal(),
        };
        Ui {
            format: match format {
                ErrorFormat::Human => Format::Human { color },
                ErrorFormat::Short => Format::Short,
                ErrorFormat::Json => Format::Json,
            },
        }
    }

    /// Whether whoever reads the talk is a person.
    fn is_human(self) -> bool {
        matches!(self.format, Format::Human { .. })
    }

    /// Tells all diagnostics; an error when one of them is.
    pub fn report(self, diags: &Diags, sources: &Sources) -> Done {
        let mut text = render::all(diags, sources, self.format);
        let summary = render::summary(diags);
        if self.is_human() && !summary.is_empty() {
            text.push_str(&format!("\n{summary}\n"));
        }
        say(&text);
        if diags.has_errors() { Err(Stop::Told) } else { Ok(()) }
    }

    /// Tells one error that is not of a source.
    pub fn fail(self, diag: Diag) -> Stop {
        self.tell(&diag, &Sources::new());
        Stop::Told
    }

    /// Tells one diagnostic.
    pub fn tell(self, diag: &Diag, sources: &Sources) {
        say(&(render::one(diag, sources, self.format) + "\n"));
    }

    /// Says something that is neither data nor a diagnostic.
    pub fn note(self, text: &str) {
        match self.format {
            Format::Json => say(&format!("{}\n", serde_json::json!({ "note": text }))),
            _ => say(&format!("{text}\n")),
        }
    }

    /// Tells several errors at once.
    pub fn fail_all(self, diags: impl IntoIterator<Item = Diag>) -> Stop {
        let mut all = Diags::new();
        all.extend(diags);
        let _ = self.report(&all, &Sources::new());
        Stop::Told
    }
}

/// Writes to standard error; if that is gone there is nobody to tell.
pub fn say(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}

/// Writes data to standard output.
pub fn put(text: &str) -> Done {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Stop::Pipe,
        _ => {
            say(&format!("error: cannot write to standard output: {}\n", reason(&e)));
            Stop::Told
        }
    })
}

/// What the system says, without the number.
pub fn reason(e: &io::Error) -> String {
    let text = e.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text.to_string(),
    }
}

/// An error at the value of a flag, or at a plain argument when `flag` is empty.
pub fn at_flag(
    code: Code,
    message: impl Into<String>,
    flag: &str,
    value: &str,
    label: &str,
) -> Diag {
    let line = if flag.is_empty() { value.to_string() } else { format!("{flag} {value}") };
    let range = line.len() - value.len()..line.len();
    Diag::error(code, message).flag(line, range, label)
}

/// A file that could not be opened, read or written.
pub fn file_error(action: &str, flag: &str, path: &str, e: &io::Error) -> Diag {
    let help = match e.kind() {
        io::ErrorKind::NotFound if action == "write" => "make the folder first",
        io::ErrorKind::NotFound => "check the path; it is taken from the working folder",
        io::ErrorKind::PermissionDenied => "allow it, or name another file",
        io::ErrorKind::IsADirectory => "name a file, not a folder",
        _ => "name another file",
    };
    let message = format!("cannot {action} `{path}`: {}", reason(e));
    at_flag(Code::FileAccess, message, flag, path, "this file").help(help)
}

/// `1 row`, `2 rows`
pub fn plural(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// `1234567` as `1,234,567`.
pub fn thousands(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if n < 0 { format!("-{out}") } else { out }
}

/// Rows as columns: the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (i, cell) in row.iter().enumerate() {
            let blank = " ".repeat(widths[i].saturating_sub(cell.chars().count()));
            // A third column is text again.
            line += &if i == 1 { format!(" {blank}{cell} ") } else { format!(" {cell}{blank}") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}
