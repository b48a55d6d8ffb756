//! Modules, models and their members.

use super::{Done, Parser};
use crate::syntax::kind::SyntaxKind::*;

impl Parser<'_> {
    pub(super) fn module(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of the module");
        self.args();
        if self.at_brace() {
            let members = self.start();
            let open = self.position;
            let around = self.enter(false);
            while !matches!(self.kind(), CloseBrace | Eof) && !self.at_lost_item() {
                let before = self.position;
                self.member();
                self.end_of_line();
                if self.position == before {
                    self.skip_token_and_line();
                }
            }
            self.leave(open, CloseBrace, around);
            self.complete(members, Members);
        }
        self.complete(marker, Module);
    }

    fn member(&mut self) {
        self.take_docs();
        match self.kind() {
            LetWord => self.member_let(),
            RequireWord => self.require(),
            ParamWord => self.param(),
            PartWord => self.part(),
            StackWord => self.stack(),
            InputWord => self.input(),
            CollectWord => {
                let marker = self.start();
                self.bump();
                self.name("the name of the collection");
                self.colon("a type");
                self.ty();
                self.complete(marker, Collect);
            }
            FnWord => self.function(),
            ForwardWord => {
                let marker = self.start();
                self.bump();
                self.block();
                self.complete(marker, Forward);
            }
            Ident if self.at_word("def") && matches!(self.nth(1), Ident | ForwardWord) => {
                self.foreign_word(FnWord);
            }
            kind => {
                let help = match (kind, self.nth(1)) {
                    (Ident, Colon) => "parameters begin with `param`, submodules with `part`",
                    (Ident, Equals) => "constants of a module begin with `let`",
                    _ if kind.begins_line() => "statements belong into a `fn` or `forward` block",
                    _ => {
                        "members are `let`, `require`, `param`, `part`, `stack`, `input`, \
                         `collect`, `fn` and `forward`"
                    }
                };
                self.expected_start("a member", help);
                self.skip_token_and_line();
            }
        }
    }

    fn member_let(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("a name");
        if self.expect(Equals, "constants are written `let name = value`") {
            self.expression();
        }
        self.complete(marker, Let);
    }

    pub(super) fn require(&mut self) {
        let marker = self.start();
        self.bump();
        self.expression();
        self.complete(marker, Require);
    }

    fn param(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of the parameter");
        self.colon("a type");
        self.ty();
        if self.at_word("init") {
            let init = self.start();
            self.bump();
            self.name("an initial value");
            if self.at(OpenParen) && !self.begins_line() {
                self.list("the arguments", Self::expression);
            }
            self.complete(init, Init);
        } else if self.at(Equals) && !self.begins_line() {
            let span = self.token_span(self.position);
            let diag = self.expected_diag("`init`").help_edit(
                "initial values follow `init`",
                span,
                "init",
            );
            self.report(diag);
            self.skip_one();
            self.expression();
        }
        self.key();
        if self.at_word("or") && self.nth_word(1, "each") {
            let each = self.start();
            self.bump();
            self.bump();
            self.strings();
            self.complete(each, Each);
        }
        if self.at_word("no_decay") {
            let word = self.start();
            self.bump();
            self.complete(word, NoDecay);
        }
        self.when();
        if self.at(Ident) && !self.begins_line() {
            let help = "the order is `: type init value as \"name\" or each .. no_decay when ..`";
            self.expected_with("end of line", help);
            self.skip_line();
        }
        self.complete(marker, Param);
    }

    fn when(&mut self) {
        if self.at_word("when") {
            let marker = self.start();
            self.bump();
            self.expression();
            self.complete(marker, When);
        }
    }

    fn part(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of the part");
        self.colon("a module");
        self.part_value();
        self.when();
        self.complete(marker, Part);
    }

    fn stack(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of the stack");
        if self.at(OpenSquare) {
            let counter = self.start();
            let open = self.position;
            let around = self.enter(true);
            self.name("a counter");
            if !self.eat(Less) {
                self.expected_with("`<`", "a stack counts its layers: `stack layers[i < n] : ..`");
            } else {
                self.expression();
            }
            if !self.at(CloseSquare) && !self.at_new_start() {
                self.expected_with("`]`", "a counter is written `[i < n]`");
                while !self.at(CloseSquare) && !self.at_new_start() && !self.kind().is_close() {
                    self.skip_one();
                }
            }
            self.leave(open, CloseSquare, around);
            self.complete(counter, Counter);
        } else {
            self.expected_with("`[`", "a stack counts its layers: `stack layers[i < n] : ..`");
        }
        self.colon("a module");
        self.part_value();
        self.when();
        self.complete(marker, Part);
    }

    fn part_value(&mut self) {
        self.deeper(Self::part_value_inner);
    }

    fn part_value_inner(&mut self) -> Done {
        let marker = self.start();
        if self.eat(IfWord) {
            self.expression();
            self.braced_part();
            if self.eat(ElseWord) {
                if self.at(OpenBrace) {
                    self.braced_part();
                } else {
                    self.part_value();
                }
            } else {
                let help = "a part that may be missing is written `part a : A(c) when condition`";
                self.expected_with("`else`", help);
            }
            return self.complete(marker, PartIf);
        }
        if self.name("a module") {
            if self.at(OpenParen) && !self.begins_line() {
                self.call_args();
            } else {
                self.expected_with("`(`", "a part gives its module arguments: `Mlp(c)`");
            }
            self.key();
        }
        self.complete(marker, PartNew)
    }

    fn braced_part(&mut self) {
        if !self.at_brace() {
            return;
        }
        let open = self.position;
        let around = self.enter(false);
        if !self.at(CloseBrace) {
            self.part_value();
        } else {
            self.expected_with("a module", "write `Mlp(c)`, as without the condition");
        }
        if !self.at(CloseBrace) && !self.at_new_start() {
            self.expected_with("`}`", "each branch holds one module with its arguments");
            self.skip_line();
        }
        self.leave(open, CloseBrace, around);
    }

    fn input(&mut self) {
        let marker = self.start();
        self.bump();
        self.name("the name of the input");
        self.colon("a type");
        self.ty();
        if self.at_word("from") {
            let from = self.start();
            self.bump();
            self.name("a host function");
            if self.at(OpenParen) && !self.begins_line() {
                self.call_args();
            } else {
                self.expected_with("`(`", "write the arguments, or `()` for none");
            }
            self.complete(from, From);
        }
        self.when();
        self.complete(marker, Input);
    }
}
