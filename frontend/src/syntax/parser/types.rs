//! Names, types and dims.

use super::{Done, Parser};
use crate::diag::{Code, Diag};
use crate::syntax::kind::SyntaxKind::*;

impl Parser<'_> {
    /// A name that is declared or selected here. Whether there is one, or a keyword that was meant
    /// as one.
    pub(super) fn name(&mut self, what: &str) -> bool {
        let marker = self.start();
        let found = self.eat(Ident);
        if found {
            self.complete(marker, Name);
            return true;
        }
        self.abandon(marker);
        let meant = self.kind().is_keyword()
            && matches!(self.nth(1), Colon | Equals | OpenParen | OpenBrace | Comma | OpenSquare);
        if meant || (self.kind().is_keyword() && !self.begins_line()) {
            let (found, span) = self.found_token();
            let word = self.token_text(self.position);
            let diag =
                Diag::error(Code::UnexpectedToken, format!("expected {what}, found {found}"))
                    .label(span, format!("expected {what}"))
                    .note(format!("`{word}` is a keyword and cannot be a name"))
                    .help(format!("use another name, such as `{word}_`"));
            self.report(diag);
            if meant {
                self.skip_one();
            }
        } else {
            self.expected_with(what, "names consist of letters, digits and `_`");
        }
        meant
    }

    /// `: type`, with a hint for those who write `=`.
    pub(super) fn colon(&mut self, what: &str) {
        if self.eat(Colon) {
            return;
        }
        let expected = format!("`:` and {what}");
        if self.at(Equals) && !self.begins_line() {
            let span = self.token_span(self.position);
            let diag =
                self.expected_diag(&expected).help_edit(format!("{what} follows a `:`"), span, ":");
            self.report(diag);
            self.skip_one();
        } else {
            self.expected_with(&expected, &format!("write `: ` and {what}"));
        }
    }

    pub(super) fn ty(&mut self) {
        self.deeper(Self::ty_inner);
    }

    fn ty_inner(&mut self) -> Done {
        let marker = self.start();
        match self.kind() {
            Ident if self.nth(1) == OpenSquare => {
                self.name("a type");
                self.dims();
                self.complete(marker, TensorTy)
            }
            Ident => {
                self.name("a type");
                self.complete(marker, NameTy)
            }
            OpenSquare => {
                self.dims();
                self.dtype_after();
                self.complete(marker, TensorTy)
            }
            OpenParen => {
                self.list("the types of a tuple", Self::ty);
                self.complete(marker, TupleTy)
            }
            _ => {
                self.expected_with("a type", "types look like `[T, n]`, `f32[n]`, `int`");
                self.complete(marker, Error)
            }
        }
    }

    /// `[T, n] f32` and `[T, n]: f32`.
    fn dtype_after(&mut self) {
        if self.begins_line() {
            return;
        }
        let ahead = usize::from(self.at(Colon));
        let dtype = ["f32", "bf16", "i32", "bool"].into_iter().find(|t| self.nth_word(ahead, t));
        let Some(dtype) = dtype else { return };
        let span = self.token_span(self.position).to(self.token_span(self.position + ahead));
        let found = format!("dtype `{dtype}` behind the dims");
        let diag = Diag::error(Code::UnexpectedToken, found)
            .label(span, "")
            .help(format!("the dtype comes first: `{dtype}[..]`"));
        self.report(diag);
        let marker = self.start();
        for _ in 0..=ahead {
            self.bump();
        }
        self.complete(marker, Error);
    }

    pub(super) fn dims(&mut self) {
        let marker = self.start();
        self.list("the dims", Self::dim);
        self.complete(marker, Dims);
    }

    fn dim(&mut self) {
        let marker = self.start();
        if self.eat(DotDot) {
            self.complete(marker, RestDim);
        } else if self.at(Ident) && self.nth(1) == Colon {
            self.segment();
            while self.eat(Plus) {
                self.segment();
            }
            self.complete(marker, SegmentsDim);
        } else {
            self.expression();
            self.complete(marker, Dim);
        }
    }

    fn segment(&mut self) {
        let marker = self.start();
        self.name("the name of a segment");
        self.expect(Colon, "segments are written `[q: n + k: m]`");
        self.term();
        self.complete(marker, Segment);
    }

    /// The type of a configuration field.
    pub(super) fn config_ty(&mut self) {
        self.deeper(|parser| {
            let marker = parser.start();
            if parser.at(OpenSquare) {
                let open = parser.position;
                let around = parser.enter(true);
                parser.config_ty();
                parser.leave(open, CloseSquare, around);
                return parser.complete(marker, ListTy);
            }
            if parser.at(Ident) {
                parser.name("a type");
                return parser.complete(marker, NameTy);
            }
            parser.expected_with(
                "a type",
                "a field is an `int`, `float`, `bool`, `string`, an enumeration, a configuration \
                 or a list `[..]` of one",
            );
            parser.complete(marker, Error)
        });
    }
}
