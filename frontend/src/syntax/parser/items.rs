//! Files and items.

use super::Parser;
use crate::diag::{Code, Diag};
use crate::syntax::kind::SyntaxKind::{self, *};

impl Parser<'_> {
    pub(super) fn file(&mut self) {
        let marker = self.start();
        while !self.at(Eof) {
            let before = self.position;
            self.item();
            self.end_of_line();
            if self.position == before {
                self.skip_token_and_line();
            }
        }
        self.complete(marker, File);
    }

    fn item(&mut self) {
        self.take_docs();
        let node = match self.kind() {
            UseWord => return self.use_item(),
            SymbolWord => {
                let marker = self.start();
                self.bump();
                self.name("the name of a symbol");
                self.complete(marker, Symbol);
                return;
            }
            EnumWord => return self.enum_item(),
            ConfigWord => return self.config(),
            FnWord => return self.function(),
            ModuleWord | ModelWord => return self.module(),
            VariantWord => return self.variant(),
            ImportWord => return self.import(),
            CloseBrace => {
                let span = self.token_span(self.position);
                self.report(
                    Diag::error(Code::UnexpectedToken, "unexpected `}`")
                        .label(span, "closes nothing")
                        .help("remove it, or look above for a `}` too many"),
                );
                return self.skip_one();
            }
            Ident => match self.token_text(self.position) {
                "def" | "func" | "function" => Some(FnWord),
                "class" | "struct" => Some(ModuleWord),
                _ => None,
            },
            _ => None,
        };
        match node {
            Some(word) if self.nth(1) == Ident => self.foreign_word(word),
            _ => {
                let help = "a file is made of `use`, `symbol`, `enum`, `config`, `fn`, `module`, \
                            `model`, `variant` and `import`";
                self.expected_with("an item", help);
                self.skip_token_and_line();
                while !self.at(Eof) && !self.at_item() {
                    self.skip_token_and_line();
                }
            }
        }
    }

    fn at_item(&self) -> bool {
        self.begins_line()
            && (self.kind().begins_item_only()
                || self.at(FnWord)
                || self.at(CloseBrace)
                || self.at_word("def"))
    }

    /// A word of another language in place of `word`, which is what is parsed.
    pub(super) fn foreign_word(&mut self, word: SyntaxKind) {
        let text = self.token_text(self.position);
        let span = self.token_span(self.position);
        let ours = word.describe();
        let what = if word == FnWord { "functions" } else { "modules" };
        self.report(
            Diag::error(Code::UnexpectedToken, format!("unexpected `{text}`"))
                .label(span, "")
                .help_edit(format!("{what} begin with {ours}"), span, ours.trim_matches('`')),
        );
        match word {
            FnWord => self.function(),
            _ => self.module(),
        }
    }

    fn use_item(&mut self) {
        let marker = self.start();
        self.bump();
        let path = self.start();
        self.name("a path");
        while self.at(Dot) && self.nth(1) != OpenBrace {
            self.bump();
            if !self.name("a name or `{`") {
                break;
            }
        }
        self.complete(path, UsePath);
        self.eat(Dot);
        if self.at(OpenBrace) && !self.begins_line() {
            let names = self.start();
            self.list("the names to import", |parser| {
                parser.name("a name");
            });
            self.complete(names, Names);
        } else {
            self.expected_with("`.{`", "name what you use: `use std.{linear, rms_norm}`");
        }
        self.complete(marker, Use);
    }

    fn enum_item(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of the enumeration");
        if self.at_brace() {
            let values = self.start();
            self.list("the values", |parser| {
                parser.take_docs();
                let marker = parser.start();
                parser.name("a value");
                if parser.eat(Equals) {
                    parser.string();
                }
                parser.complete(marker, EnumValue);
            });
            self.complete(values, EnumValues);
        }
        self.complete(marker, Enum);
    }

    /// Whether a `{` is there, as it should be.
    pub(super) fn at_brace(&mut self) -> bool {
        let found = self.at(OpenBrace);
        if !found {
            self.expected_with("`{`", "the body follows in `{ .. }`");
        }
        found
    }

    pub(super) fn string(&mut self) {
        if matches!(self.kind(), UnclosedString | QuotedString) {
            self.bump();
        } else if self.at(Ident) && !self.begins_line() && self.nth(1) != Equals {
            let span = self.token_span(self.position);
            let text = self.token_text(self.position);
            let diag = self.expected_diag("a string").help_edit(
                "put it in quotes",
                span,
                format!("\"{text}\""),
            );
            self.report(diag);
            self.skip_one();
        } else if !self.eat(String) {
            self.expected_with("a string", "strings are written `\"text\"`");
        }
    }

    pub(super) fn at_string(&self) -> bool {
        matches!(self.kind(), String | UnclosedString | QuotedString)
    }

    /// `{ part part .. }` where parts may share a line.
    pub(super) fn braced(&mut self, node: SyntaxKind, part: fn(&mut Self)) {
        if !self.at_brace() {
            return;
        }
        let marker = self.start();
        let open = self.position;
        let around = self.enter(false);
        while !matches!(self.kind(), CloseBrace | Eof) && !self.at_lost_item() {
            let before = self.position;
            self.take_docs();
            part(self);
            self.eat(Comma);
            if self.at(Semicolon) {
                self.end_of_line();
            }
            if self.position == before {
                self.skip_token_and_line();
            }
        }
        self.leave(open, CloseBrace, around);
        self.complete(marker, node);
    }

    /// At a line that begins an item, inside of one: a `}` is missing.
    pub(super) fn at_lost_item(&self) -> bool {
        self.begins_line() && self.kind().begins_item_only() && self.nth(1) == Ident
    }

    fn config(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of the configuration");
        self.braced(Fields, |parser| match parser.kind() {
            RequireWord => parser.require(),
            _ => parser.field(),
        });
        self.complete(marker, Config);
    }

    fn field(&mut self) {
        let marker = self.start();
        if self.kind().is_keyword() || self.at(Ident) {
            if !self.name("a field") {
                self.skip_token_and_line();
                self.complete(marker, Error);
                return;
            }
        } else {
            let help = "fields are written `name : type = default`, constraints `require a > 0`";
            self.expected_start("a field or `require`", help);
            self.skip_token_and_line();
            self.complete(marker, Error);
            return;
        }
        if self.at(Equals) && matches!(self.nth(1), Int | Float | String | TrueWord | FalseWord) {
            self.field_without_type();
        } else {
            self.colon("a type");
            self.config_ty();
        }
        if self.at(Equals) {
            self.default();
        }
        self.key();
        self.complete(marker, Field);
        // Anything else on the line belongs to nothing.
        if !self.begins_line()
            && !matches!(self.kind(), Ident | RequireWord | Comma | CloseBrace)
            && !self.at(Semicolon)
        {
            self.expected_with(
                "the next field",
                "fields are written `name : type = default as \"key\"`",
            );
            self.skip_line();
        }
    }

    /// `hidden = 64`
    fn field_without_type(&mut self) {
        let ty = match self.nth(1) {
            Int => "int",
            Float => "float",
            String => "string",
            _ => "bool",
        };
        let span = self.span_behind(self.position);
        let diag = self.expected_diag("`:` and a type").help_edit(
            "give the field a type",
            span,
            format!(" : {ty}"),
        );
        self.report(diag);
    }

    pub(super) fn default(&mut self) {
        let marker = self.start();
        self.bump();
        self.expression();
        self.complete(marker, Default);
    }

    /// `as "name"`, if it is there.
    pub(super) fn key(&mut self) {
        let is_key = self.at_word("as")
            && (matches!(self.nth(1), String | UnclosedString | QuotedString)
                || !self.begins_line());
        if is_key {
            let marker = self.start();
            self.bump();
            self.string();
            self.complete(marker, Key);
        }
    }

    pub(super) fn function(&mut self) {
        let marker = self.start();
        self.bump();
        // A function of a module is called behind a point, where any word is a name.
        if self.kind().is_keyword() && matches!(self.nth(1), OpenParen | OpenSquare) {
            let name = self.start();
            self.bump();
            self.complete(name, Name);
        } else {
            self.name("the name of the function");
        }
        if self.at(OpenSquare) {
            let dims = self.start();
            self.list("the dim parameters", |parser| {
                parser.name("a dim parameter");
            });
            self.complete(dims, DimNames);
        }
        self.args();
        if self.at(Arrow) {
            self.bump();
            self.ty();
        } else if matches!(self.kind(), Colon | FatArrow) {
            let span = self.token_span(self.position);
            let diag = self.expected_diag("`->`").help_edit(
                "the type of the value follows `->`",
                span,
                self.spaced("->"),
            );
            self.report(diag);
            self.skip_one();
            if !self.at(OpenBrace) && !self.begins_line() {
                self.ty();
            }
        } else {
            let help = "a function says what it returns: `fn f(x: [T, n]) -> [T, n] { .. }`";
            self.expected_with("`->` and a type", help);
        }
        self.block();
        self.complete(marker, Fn);
    }

    pub(super) fn args(&mut self) {
        let marker = self.start();
        if self.at(OpenParen) {
            self.list("the arguments", |parser| {
                let marker = parser.start();
                if parser.name("an argument") {
                    parser.colon("a type");
                    parser.ty();
                }
                if parser.at(Equals) {
                    parser.default();
                }
                parser.complete(marker, Arg);
            });
        } else {
            self.expected_with("`(`", "write the arguments, or `()` for none");
        }
        self.complete(marker, Args);
    }

    fn variant(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of a model");
        self.string();
        if self.at_word("from") {
            let base = self.start();
            self.bump();
            self.string();
            self.complete(base, Base);
        }
        self.braced(Settings, |parser| {
            let marker = parser.start();
            let path = parser.start();
            let mut found = parser.name("a field of the configuration");
            while found && parser.eat(Dot) {
                found = parser.name("the name of a field");
            }
            parser.complete(path, Path);
            if !found {
                parser.skip_line();
                parser.complete(marker, Error);
                return;
            }
            parser.equals_value();
            parser.complete(marker, Setting);
        });
        self.complete(marker, Variant);
    }

    /// `= value`, with a hint for those who write `:`.
    fn equals_value(&mut self) {
        if self.at(Colon) {
            let span = self.token_span(self.position);
            let diag = self.expected_diag("`=` and a value").help_edit(
                "values follow a `=`",
                span,
                self.spaced("="),
            );
            self.report(diag);
            self.skip_one();
            self.expression();
        } else if self.expect(Equals, "values follow a `=`") {
            self.expression();
        } else {
            self.skip_line();
        }
    }

    fn import(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of a model");
        if !self.eat_word("from") {
            self.expected_with("`from`", "write `import Model from \"model_type\" { .. }`");
        }
        self.strings();
        self.braced(ImportRules, |parser| {
            let marker = parser.start();
            if parser.eat_word("fixed") {
                parser.string();
                parser.equals_value();
                parser.complete(marker, Fixed);
            } else if parser.eat_word("ignore") {
                parser.strings();
                parser.complete(marker, Ignore);
            } else {
                parser.expected_start(
                    "`fixed` or `ignore`",
                    "write `fixed \"key\" = value` for what must hold, `ignore \"key\"` for what does \
                     not matter",
                );
                parser.skip_token_and_line();
                parser.complete(marker, Error);
            }
        });
        self.complete(marker, Import);
    }

    /// `"a", "b"`, a trailing comma allowed.
    pub(super) fn strings(&mut self) {
        self.string();
        while self.at(Comma) {
            self.bump();
            if !self.at_string() {
                return;
            }
            self.bump();
        }
    }
}
