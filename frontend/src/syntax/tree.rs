//! Events to the lossless tree.

use rowan::{GreenNodeBuilder, Language};

use crate::syntax::kind::{SyntaxKind, SyntaxNode, Vlm};
use crate::syntax::lexer::Tokens;
use crate::syntax::parser::Event;

/// Builds the tree of a text. Blanks and comments go before the node that follows them, so that
/// a node begins with its first word.
pub(super) fn build(text: &str, tokens: &Tokens, mut events: Vec<Event>) -> SyntaxNode {
    let mut builder =
        Builder { text, tokens, next: 0, depth: 0, builder: GreenNodeBuilder::default() };
    let mut parents = Vec::new();
    for index in 0..events.len() {
        match std::mem::replace(&mut events[index], Event::Gone) {
            Event::Gone => {}
            Event::Finish => builder.finish(),
            Event::Token => {
                builder.trivia();
                builder.token();
            }
            Event::Start { kind, parent } => {
                // Nodes that were put around this one later begin before it.
                parents.push(kind);
                let (mut at, mut distance) = (index, parent as usize);
                while distance != 0 {
                    at += distance;
                    distance = 0;
                    if let Some(Event::Start { kind, parent }) = events.get(at).copied() {
                        parents.push(kind);
                        distance = parent as usize;
                        events[at] = Event::Gone;
                    }
                }
                for kind in parents.drain(..).rev() {
                    builder.start(kind);
                }
            }
        }
    }
    SyntaxNode::new_root(builder.builder.finish())
}

struct Builder<'t> {
    text: &'t str,
    tokens: &'t Tokens,
    next: usize,
    depth: usize,
    builder: GreenNodeBuilder<'static>,
}

impl Builder<'_> {
    fn start(&mut self, kind: SyntaxKind) {
        if self.depth > 0 {
            self.trivia();
        }
        self.depth += 1;
        self.builder.start_node(Vlm::kind_to_raw(kind));
    }

    fn finish(&mut self) {
        self.depth -= 1;
        if self.depth == 0 {
            self.trivia();
            // The parser leaves nothing over; but the tree must have every byte.
            while self.next < self.tokens.len() {
                self.token();
            }
        }
        self.builder.finish_node();
    }

    fn trivia(&mut self) {
        while self.tokens.kinds.get(self.next).is_some_and(|kind| kind.is_trivia()) {
            self.token();
        }
    }

    fn token(&mut self) {
        if let Some(kind) = self.tokens.kinds.get(self.next) {
            let text = &self.text[self.tokens.range(self.next)];
            self.builder.token(Vlm::kind_to_raw(*kind), text);
            self.next += 1;
        }
    }
}
