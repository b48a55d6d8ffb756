//! The lossless tree to steps of the layout.

mod containers;
mod lists;
mod rows;
mod spacing;

use rowan::NodeOrToken;

use super::layout::Step;
use crate::syntax::kind::SyntaxKind::{self, *};
use crate::syntax::kind::{SyntaxNode, SyntaxToken};

/// The steps of a file.
pub(super) fn file(tree: &SyntaxNode) -> Vec<Step> {
    let mut printer = Printer::new(0);
    printer.lines(tree, None);
    printer.steps
}

/// Writes tokens with what goes between them.
struct Printer {
    steps: Vec<Step>,
    /// The token before, with the kind of its node.
    before: Option<(SyntaxKind, SyntaxKind)>,
    /// What to put before the next token, instead of what the tokens call for.
    pending: Option<Step>,
    /// A line ended since the last token.
    newline: bool,
    /// Columns that blocks around are indented by.
    indent: usize,
    /// Inside something that may be indented further.
    loose: bool,
    /// The next arguments get a line each.
    break_args: bool,
}

impl Printer {
    fn new(indent: usize) -> Self {
        Printer {
            steps: Vec::new(),
            before: None,
            pending: None,
            newline: false,
            indent,
            loose: false,
            break_args: false,
        }
    }

    /// A printer for a part that is measured first.
    fn part(&self) -> Self {
        Printer { loose: self.loose, ..Printer::new(self.indent) }
    }

    fn node(&mut self, node: &SyntaxNode) {
        match node.kind() {
            Names | EnumValues | DimNames | Args | CallArgs | Indices | Dims | Tuple | List
            | TupleTy => self.list(node),
            Init => self.init(node),
            Fn => self.function(node),
            Pattern if node.children_with_tokens().any(|e| e.kind() == OpenParen) => {
                self.list(node);
            }
            Block => self.block(node),
            If => self.choice(node),
            PartIf => self.part_choice(node),
            Binary => self.binary(node),
            Each | Ignore | Import => self.strings(node),
            Fields | Settings | ImportRules | Members => self.container(node),
            _ => self.children(node),
        }
    }

    fn children(&mut self, node: &SyntaxNode) {
        for element in node.children_with_tokens() {
            match element {
                NodeOrToken::Node(child) => self.node(&child),
                NodeOrToken::Token(token) => self.token(&token, node.kind()),
            }
        }
    }

    /// A token of a node of kind `parent`, blanks and comments included.
    fn token(&mut self, token: &SyntaxToken, parent: SyntaxKind) {
        let kind = token.kind();
        if kind == Newline {
            self.newline = true;
        } else if kind.is_comment() {
            self.comment(token);
        } else if kind != Whitespace {
            self.write(token.text(), kind, parent);
        }
    }

    fn comment(&mut self, token: &SyntaxToken) {
        self.steps.push(Step::Comment {
            text: token.text().trim_end().to_owned(),
            own_line: self.newline,
            hangs: self.pending.is_none(),
        });
    }

    fn write(&mut self, text: &str, kind: SyntaxKind, parent: SyntaxKind) {
        match self.pending.take() {
            Some(step) => self.steps.push(step),
            None => {
                if let Some((before, around)) = self.before
                    && spacing::blank(before, around, kind, parent)
                {
                    self.steps.push(Step::Spaces(1));
                }
            }
        }
        self.steps.push(Step::Text(text.to_owned()));
        self.before = Some((kind, parent));
        self.newline = false;
    }

    /// Runs `inner` where indents may be added.
    fn loosely(&mut self, inner: impl FnOnce(&mut Self)) {
        let around = std::mem::replace(&mut self.loose, true);
        inner(self);
        self.loose = around;
    }
}
