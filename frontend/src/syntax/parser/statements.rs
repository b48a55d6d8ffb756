//! Blocks and statements.

use super::{Done, Parser};
use crate::diag::{Code, Diag};
use crate::syntax::kind::SyntaxKind::*;

impl Parser<'_> {
    pub(super) fn block(&mut self) {
        self.deeper(Self::block_inner);
    }

    fn block_inner(&mut self) -> Done {
        let marker = self.start();
        if !self.at_brace() {
            return self.complete(marker, Error);
        }
        let open = self.position;
        let around = self.enter(false);
        let statement = self.statement;
        while !self.at_block_end() {
            let before = self.position;
            self.statement = before;
            let errors = self.diags.len();
            let is_value = self.statement();
            let after = self.position;
            self.end_of_line();
            if is_value && after > before && self.diags.len() == errors && !self.at_block_end() {
                self.unused_value(before, after);
            }
            if self.position == before {
                self.skip_token_and_line();
            }
        }
        self.statement = statement;
        self.leave(open, CloseBrace, around);
        self.complete(marker, Block)
    }

    fn at_block_end(&self) -> bool {
        matches!(self.kind(), CloseBrace | Eof) || (self.begins_line() && self.at_member())
    }

    /// At a word that begins a member or an item, with what must follow it: not at one that
    /// somebody took for a name.
    fn at_member(&self) -> bool {
        let next = self.nth(1);
        match self.kind() {
            RequireWord => true,
            ForwardWord => next == OpenBrace,
            FnWord => next == Ident || next.is_keyword(),
            kind => kind.begins_member_only() && next == Ident,
        }
    }

    /// Whether it is an expression.
    fn statement(&mut self) -> bool {
        let marker = self.start();
        let node = match self.kind() {
            LetWord => {
                self.bump();
                self.pattern();
                if self.at(Colon) && !self.begins_line() {
                    self.expected_with("`=`", "`let` takes no type; it is that of the value");
                    self.skip_one();
                    self.ty();
                }
                self.value();
                Let
            }
            RegionWord => {
                self.bump();
                self.name("the name of the region");
                self.block();
                Region
            }
            EmitWord => {
                self.bump();
                self.name("the name of a collection");
                self.value();
                Emit
            }
            LossWord => {
                self.bump();
                self.name("the name of the loss");
                if self.at_word("weight") {
                    let weight = self.start();
                    self.bump();
                    self.expression();
                    self.complete(weight, Weight);
                }
                self.value();
                Loss
            }
            OutputWord => {
                self.bump();
                self.name("the name of the output");
                self.value();
                Output
            }
            ForWord => {
                self.bump();
                self.name("a name for the layer");
                if !self.eat(InWord) {
                    self.expected_with("`in`", "loops run over a stack: `for layer in layers`");
                }
                self.name("the name of a stack");
                self.block();
                For
            }
            Ident if self.nth(1) == Equals => {
                self.name("a name");
                self.bump();
                self.expression();
                Assign
            }
            Ident if self.at_word("return") && !self.next_ends_line() => {
                self.return_word();
                self.statement = self.position;
                self.expression();
                self.abandon(marker);
                return false;
            }
            kind if self.at_member() => {
                let help = match kind {
                    FnWord => "functions are not nested; declare it beside this one",
                    ForwardWord => "`forward` is a member of a model",
                    _ => "it belongs outside of the function",
                };
                self.expected_start("a statement", help);
                self.skip_token_and_line();
                Error
            }
            kind => {
                self.abandon(marker);
                self.expression();
                return kind != IfWord;
            }
        };
        self.complete(marker, node);
        false
    }

    /// Whether the token after the current one begins a line.
    fn next_ends_line(&self) -> bool {
        self.gaps.get(self.position + 1).is_none_or(|gap| gap.newline)
    }

    fn return_word(&mut self) {
        let span = self.token_span(self.position);
        self.report(
            Diag::error(Code::UnexpectedToken, "there is no `return`")
                .label(span, "")
                .help("the last expression of a block is its value; remove the word"),
        );
        self.skip_one();
    }

    fn pattern(&mut self) {
        let marker = self.start();
        if self.at(OpenParen) {
            self.list("names", |parser| {
                parser.name("a name");
            });
        } else {
            self.name("a name");
            if self.at(Comma) && self.nth(1) == Ident && !self.begins_line() {
                self.expected_with("`=`", "bind several names in brackets: `let (a, b) = ..`");
                while self.at(Comma) && self.nth(1) == Ident {
                    self.skip_one();
                    self.skip_one();
                }
            }
        }
        self.complete(marker, Pattern);
    }

    fn value(&mut self) {
        if self.at(Colon) && !self.begins_line() {
            self.expected_with("`=`", "values follow a `=`");
            self.skip_one();
            self.expression();
        } else if self.expect(Equals, "a value follows: `name = value`") {
            self.expression();
        }
    }

    fn unused_value(&mut self, first: usize, after: usize) {
        let span = self.token_span(first).to(self.span_behind(after));
        let mut diag = Diag::error(Code::UnusedValue, "this value is not used")
            .label(span, "only the last line of a block is its value");
        diag = match self.kind() {
            Minus | OpenParen | OpenSquare if self.begins_line() => diag.help(format!(
                "a line that begins with {} is a new statement; end the line above with an \
                 operator, or put brackets around both",
                self.kind().describe()
            )),
            _ => diag.help("bind it to a name with `let`, or remove it"),
        };
        self.push(diag);
    }
}
