//! Expressions, by precedence.

use super::{DEPTH, Done, Marker, Parser};
use crate::diag::{Code, Diag};
use crate::syntax::kind::SyntaxKind::*;

/// How tightly operators bind, loosest first.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const SUM: u8 = 5;
const PRODUCT: u8 = 6;
const RESHAPE: u8 = 7;
const NEGATION: u8 = 8;
const POWER: u8 = 9;

impl Parser<'_> {
    pub(super) fn expression(&mut self) {
        self.binding(OR);
    }

    /// An expression that is a part of a sum: in a segment `+` has a meaning of its own.
    pub(super) fn term(&mut self) {
        self.binding(PRODUCT);
    }

    fn binding(&mut self, least: u8) -> Done {
        self.deeper(|parser| parser.operators(least))
    }

    fn operators(&mut self, least: u8) -> Done {
        let mut left = self.prefix(least);
        while let Some(power) = self.infix() {
            if power < least {
                break;
            }
            if left.height >= DEPTH {
                return self.too_deep();
            }
            let marker = self.precede(left);
            if power == RESHAPE {
                self.bump();
                self.dims();
                left = self.complete(marker, Reshape);
                continue;
            }
            self.bump();
            if self.at(Equals) && !self.begins_line() {
                self.compound_assignment();
            }
            // A power binds to the right, and its exponent may be negative.
            self.binding(if power == POWER { NEGATION } else { power + 1 });
            left = self.complete(marker, Binary);
            if power == COMPARISON && self.infix() == Some(COMPARISON) {
                self.chained();
            }
        }
        left
    }

    fn prefix(&mut self, least: u8) -> Done {
        match self.kind() {
            Minus => {
                let marker = self.start();
                self.bump();
                self.binding(NEGATION);
                self.complete(marker, Unary)
            }
            NotWord => {
                let marker = self.start();
                if least > NOT {
                    self.expected_with(
                        "an operand",
                        "`not` binds loosely; put it in brackets: `(not a)`",
                    );
                }
                self.bump();
                self.binding(NOT);
                self.complete(marker, Unary)
            }
            _ => self.postfix(),
        }
    }

    /// How tightly the operator at the current token binds.
    fn infix(&self) -> Option<u8> {
        Some(match self.kind() {
            Minus if self.line_ended() => return None,
            Plus | Minus => SUM,
            Star | Slash | Percent => PRODUCT,
            StarStar => POWER,
            EqualsEquals | NotEquals | Less | LessEquals | Greater | GreaterEquals => COMPARISON,
            AndWord => AND,
            Ident => match self.token_text(self.position) {
                "or" if !self.nth_word(1, "each") => OR,
                "as" if self.nth(1) == OpenSquare => RESHAPE,
                _ => return None,
            },
            _ => return None,
        })
    }

    fn postfix(&mut self) -> Done {
        let mut left = self.primary();
        loop {
            let kind = self.kind();
            let applies = match kind {
                Dot => true,
                OpenParen | OpenSquare => !self.line_ended(),
                _ => false,
            };
            if !applies {
                return left;
            }
            if left.height >= DEPTH {
                return self.too_deep();
            }
            let marker = self.precede(left);
            left = match kind {
                Dot => {
                    self.bump();
                    self.field_name();
                    self.complete(marker, FieldExpr)
                }
                OpenParen => {
                    self.call_args();
                    self.complete(marker, Call)
                }
                _ => {
                    let indices = self.start();
                    self.list("indices", Self::index);
                    self.complete(indices, Indices);
                    self.complete(marker, IndexExpr)
                }
            };
        }
    }

    fn field_name(&mut self) {
        if self.kind().is_keyword() && !self.begins_line() {
            // After a point any word is a name.
            let marker = self.start();
            self.bump();
            self.complete(marker, Name);
        } else if matches!(self.kind(), Int | Float) {
            self.expected_with("a name", "take tuples apart with `let (a, b) = ..`");
            self.skip_one();
        } else if !self.at(Ident) && self.nth_before(2) == Int {
            let digits = self.token_text(self.position - 2);
            self.expected_with("a name", &format!("write `{digits}.0` for the number"));
        } else {
            self.name("a name");
        }
    }

    pub(super) fn call_args(&mut self) {
        let marker = self.start();
        self.list("the arguments", Self::call_arg);
        self.complete(marker, CallArgs);
    }

    fn call_arg(&mut self) {
        let marker = self.start();
        if self.at(Ident) && self.nth(1) == Equals {
            self.name("a name");
            self.bump();
        } else if self.at(Ident) && self.nth(1) == Colon {
            let span = self.token_span(self.position + 1);
            self.name("a name");
            let diag = self.expected_diag("`,` or `)`").help_edit(
                "named arguments are written with `=`",
                span,
                self.spaced("="),
            );
            self.report(diag);
            self.skip_one();
        }
        self.expression();
        self.complete(marker, CallArg);
    }

    fn index(&mut self) {
        let marker = self.start();
        if self.eat(DotDot) {
            self.complete(marker, RestIndex);
            return;
        }
        let from = !self.at(Colon);
        if from {
            self.expression();
        }
        if !self.eat(Colon) {
            self.complete(marker, AtIndex);
            return;
        }
        if !matches!(self.kind(), Comma | CloseSquare) {
            self.expression();
        }
        self.complete(marker, RangeIndex);
    }

    fn primary(&mut self) -> Done {
        let marker = self.start();
        match self.kind() {
            Int | Float | BadNumber | String | UnclosedString | QuotedString | TrueWord
            | FalseWord => {
                self.bump();
                self.complete(marker, Literal)
            }
            Ident if self.at_word("lambda") && matches!(self.nth(1), Ident | Colon) => {
                self.lambda(marker)
            }
            Ident => {
                self.bump();
                self.complete(marker, NameRef)
            }
            OpenParen => {
                self.list("values", Self::expression);
                self.complete(marker, Tuple)
            }
            OpenSquare => {
                self.list("values", Self::expression);
                self.complete(marker, List)
            }
            IfWord => self.choice(marker, self.position != self.statement),
            _ => self.no_primary(marker),
        }
    }

    /// `if c { a } else { b }`
    pub(super) fn choice(&mut self, marker: Marker, needs_else: bool) -> Done {
        self.bump();
        self.expression();
        self.block();
        if self.at_word("elif") {
            let span = self.token_span(self.position);
            let diag = self.expected_diag("`else`").help_edit("write `else if`", span, "else if");
            self.report(diag);
            self.choice_after_else(needs_else);
        } else if self.eat(ElseWord) {
            if self.at(IfWord) {
                self.choice_after_else(needs_else);
            } else {
                self.block();
            }
        } else if needs_else {
            self.expected_with("`else`", "an `if` that is used as a value needs both branches");
        }
        self.complete(marker, If)
    }

    fn choice_after_else(&mut self, needs_else: bool) {
        self.deeper(|parser| {
            let inner = parser.start();
            parser.choice(inner, needs_else)
        });
    }

    #[inline(never)]
    fn no_primary(&mut self, marker: Marker) -> Done {
        let kind = self.kind();
        let mut diag = self.expected_diag("an expression");
        let mut skip = false;
        match kind {
            _ if self.line_ended() => {
                diag = diag.help("a value must follow, on this line or the next");
            }
            Dot if self.nth(1) == Int => {
                let digits = self.token_text(self.position + 1);
                diag = diag.help(format!("write `0.{digits}`"));
                skip = true;
            }
            Bang => {
                diag = diag.help("logic is written `and`, `or`, `not`");
                skip = true;
            }
            Plus | Star => {
                diag = diag.help("an operator stands between two operands");
                skip = true;
            }
            kind if kind.is_keyword() && !kind.begins_item_only() => {
                diag = diag
                    .note(format!("{} is a keyword and cannot be a name", kind.describe()))
                    .help("use another name");
                skip = !self.begins_line() && kind != InWord && kind != ElseWord;
            }
            Unknown => skip = true,
            _ => {
                let help = "expressions begin with a name, a number, a string, `(`, `[`, `-`, `not` or `if`";
                diag = diag.help(help);
            }
        }
        self.report(diag);
        if skip {
            self.bump();
            // What the mark stands before is an operand all the same.
            if matches!(kind, Dot | Bang | Plus | Star | Unknown)
                && matches!(self.kind(), Int | Float | Ident | OpenParen)
                && !self.line_ended()
            {
                self.deeper(|parser| parser.postfix());
            }
        }
        self.complete(marker, Error)
    }

    #[inline(never)]
    fn lambda(&mut self, marker: Marker) -> Done {
        self.expected_with("an expression", "there are no anonymous functions; declare a `fn`");
        self.bump();
        while matches!(self.kind(), Ident | Comma) && !self.line_ended() {
            self.bump();
        }
        if self.eat(Colon) {
            self.binding(OR);
        }
        self.complete(marker, Error)
    }

    #[inline(never)]
    fn chained(&mut self) {
        let span = self.token_span(self.position);
        self.report(
            Diag::error(Code::ChainedComparison, "comparisons do not chain")
                .label(span, "a second comparison")
                .help("write `a < b and b < c`"),
        );
    }

    #[inline(never)]
    fn compound_assignment(&mut self) {
        let span = self.token_span(self.position);
        let operator = self.token_text(self.position - 1);
        let name = match self.nth_before(2) {
            Ident => self.token_text(self.position - 2),
            _ => "x",
        };
        self.report(
            Diag::error(Code::UnexpectedToken, format!("there is no `{operator}=`"))
                .label(span, "")
                .help(format!("write `{name} = {name} {operator} ..`")),
        );
        self.skip_one();
    }

    /// Puts the current token into an error node.
    pub(super) fn skip_one(&mut self) {
        let marker = self.start();
        self.bump();
        self.complete(marker, Error);
    }
}
