//! Where lines break.
//!
//! A text with possible line ends in it, in groups. A group is laid out flat if it fits, else each
//! line end directly in it is taken. A comment ends its line wherever it is, and so breaks the
//! groups around it.

/// Columns of a line.
pub(super) const WIDTH: usize = 100;
/// Columns of one level.
pub(super) const INDENT: usize = 2;

/// A step of the output.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Text(String),
    Spaces(usize),
    /// A line end in a broken group; in a flat one a blank, or nothing.
    Line {
        blank: bool,
    },
    /// A line end everywhere.
    Hard,
    /// Nothing, but the group is broken.
    Break,
    /// A line without anything on it.
    Blank,
    /// A comma if the group is broken.
    TrailingComma,
    Comment {
        text: String,
        /// It has a line of its own.
        own_line: bool,
        /// It is in the middle of a statement, which goes on indented.
        hangs: bool,
    },
    Open,
    Close,
    /// Deeper by one level, if the group is broken.
    Indent,
    Dedent,
}

/// Width of steps on one line; `None` if they need several.
pub(super) fn flat_width(steps: &[Step]) -> Option<usize> {
    steps.iter().map(flat_step).sum()
}

fn flat_step(step: &Step) -> Option<usize> {
    match step {
        Step::Text(text) => Some(text.chars().count()),
        Step::Spaces(count) => Some(*count),
        Step::Line { blank } => Some(usize::from(*blank)),
        Step::Hard | Step::Break | Step::Blank | Step::Comment { .. } => None,
        _ => Some(0),
    }
}

/// Lays steps out.
pub(super) fn render(steps: &[Step]) -> String {
    let mut writer = Writer { out: String::new(), column: 0, indent: 0, must_break: false };
    // Whether each open group is broken, and the depths that indents added.
    let mut groups = vec![true];
    let mut indents = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let broken = groups.last().copied().unwrap_or(true);
        match step {
            Step::Text(text) => writer.text(text),
            Step::Spaces(count) => writer.spaces(*count),
            Step::Line { .. } if broken => writer.line(writer.indent),
            Step::Line { blank } => writer.spaces(usize::from(*blank)),
            Step::Hard => writer.line(writer.indent),
            Step::Break => {}
            Step::Blank => writer.blank(),
            Step::TrailingComma if broken => writer.text(","),
            Step::TrailingComma => {}
            Step::Comment { text, own_line, hangs } => writer.comment(text, *own_line, *hangs),
            Step::Open => {
                let column = if writer.must_break { writer.indent } else { writer.column };
                groups.push(broken && !fits(&steps[at + 1..], column));
            }
            Step::Close => {
                groups.pop();
            }
            Step::Indent => {
                let added = if broken { INDENT } else { 0 };
                indents.push(added);
                writer.indent += added;
            }
            Step::Dedent => writer.indent -= indents.pop().unwrap_or(0),
        }
    }
    let length = writer.out.trim_end().len();
    writer.out.truncate(length);
    if length > 0 {
        writer.out.push('\n');
    }
    writer.out
}

/// Whether a group whose steps begin here fits, with what follows it up to a line end.
fn fits(steps: &[Step], column: usize) -> bool {
    let mut column = column;
    let mut open = 1_usize;
    for step in steps {
        match step {
            Step::Open => open += usize::from(open > 0),
            Step::Close => open = open.saturating_sub(1),
            // Behind the group the line may end wherever it can.
            Step::Line { .. } if open == 0 => return true,
            _ => {}
        }
        match flat_step(step) {
            Some(width) => column += width,
            // A group behind that must break does so at its first line end, not here.
            None if open == 0 && matches!(step, Step::Break) => {}
            None => return open == 0,
        }
        if column > WIDTH {
            return false;
        }
    }
    true
}

struct Writer {
    out: String,
    column: usize,
    indent: usize,
    /// A comment was written; nothing more may come on this line.
    must_break: bool,
}

impl Writer {
    fn text(&mut self, text: &str) {
        if self.must_break {
            self.line(self.indent + INDENT);
        }
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn spaces(&mut self, count: usize) {
        if !self.must_break && !self.at_line_start() {
            self.out.extend(std::iter::repeat_n(' ', count));
            self.column += count;
        }
    }

    fn at_line_start(&self) -> bool {
        self.out.is_empty() || self.out.ends_with('\n')
    }

    fn line(&mut self, indent: usize) {
        self.must_break = false;
        let length = self.out.trim_end_matches(' ').len();
        self.out.truncate(length);
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    fn blank(&mut self) {
        self.line(0);
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    fn comment(&mut self, text: &str, own_line: bool, hangs: bool) {
        let begun = !self.out.is_empty() && !self.out[self.line_start()..].trim().is_empty();
        if begun && (own_line || self.must_break) {
            self.line(self.indent + if hangs { INDENT } else { 0 });
        } else if begun {
            let length = self.out.trim_end_matches(' ').len();
            self.out.truncate(length);
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.must_break = true;
    }

    fn line_start(&self) -> usize {
        self.out.rfind('\n').map_or(0, |at| at + 1)
    }
}
