//! The lossless tree to the owned one.
//!
//! A part that did not parse is left out, with the smallest thing around it that cannot do without
//! it. Nothing is reported here: the parser has done so.

mod expressions;
mod members;

use rowan::NodeOrToken;

use crate::syntax::ast::*;
use crate::syntax::kind::{SyntaxKind as Kind, SyntaxNode, SyntaxToken};
use crate::syntax::literal;

/// Builds the owned tree of a file.
pub(super) fn file(id: FileId, tree: &SyntaxNode) -> File {
    let builder = Builder { file: id };
    let mut doc = Vec::new();
    for element in tree.children_with_tokens() {
        match element {
            NodeOrToken::Token(token) if token.kind() == Kind::FileDoc => {
                doc.push(doc_line(&token));
            }
            NodeOrToken::Node(_) => break,
            NodeOrToken::Token(_) => {}
        }
    }
    let items = documented(tree).filter_map(|(doc, node)| builder.item(doc, &node)).collect();
    File { id, doc: doc.join("\n"), items }
}

/// The text of a doc comment's line.
fn doc_line(token: &SyntaxToken) -> String {
    let line = token.text()[3..].trim_end();
    line.strip_prefix(' ').unwrap_or(line).to_owned()
}

/// The child nodes, each with the doc comments above it.
fn documented(node: &SyntaxNode) -> impl Iterator<Item = (String, SyntaxNode)> + use<> {
    let mut lines: Vec<String> = Vec::new();
    node.children_with_tokens().filter_map(move |element| match element {
        NodeOrToken::Token(token) => {
            if token.kind() == Kind::DocComment {
                lines.push(doc_line(&token));
            }
            None
        }
        NodeOrToken::Node(node) => Some((std::mem::take(&mut lines).join("\n"), node)),
    })
}

fn child(node: &SyntaxNode, kind: Kind) -> Option<SyntaxNode> {
    node.children().find(|child| child.kind() == kind)
}

fn children(node: &SyntaxNode, kind: Kind) -> impl Iterator<Item = SyntaxNode> + use<> {
    node.children().filter(move |child| child.kind() == kind)
}

fn tokens(node: &SyntaxNode) -> impl Iterator<Item = SyntaxToken> + use<> {
    node.children_with_tokens()
        .filter_map(NodeOrToken::into_token)
        .filter(|t| !t.kind().is_trivia())
}

struct Builder {
    file: FileId,
}

impl Builder {
    fn range(&self, range: rowan::TextRange) -> Span {
        Span { file: self.file, start: range.start().into(), end: range.end().into() }
    }

    /// Span of a node. Trivia never comes first or last in one.
    fn span(&self, node: &SyntaxNode) -> Span {
        self.range(node.text_range())
    }

    fn ident(&self, node: &SyntaxNode) -> Ident {
        let name = tokens(node).next().map(|token| token.text().to_owned()).unwrap_or_default();
        Ident { name, span: self.span(node) }
    }

    /// The first name that is a child.
    fn name(&self, node: &SyntaxNode) -> Option<Ident> {
        child(node, Kind::Name).map(|name| self.ident(&name))
    }

    fn names(&self, node: &SyntaxNode) -> Vec<Ident> {
        children(node, Kind::Name).map(|name| self.ident(&name)).collect()
    }

    fn texts(&self, node: &SyntaxNode) -> Vec<Text> {
        tokens(node)
            .filter(|token| token.kind() == Kind::String)
            .map(|token| Text {
                value: literal::string(token.text()),
                span: self.range(token.text_range()),
            })
            .collect()
    }

    fn text(&self, node: &SyntaxNode) -> Option<Text> {
        self.texts(node).into_iter().next()
    }

    /// The string of a clause such as `as "x"`.
    fn clause_text(&self, node: &SyntaxNode, clause: Kind) -> Option<Text> {
        child(node, clause).and_then(|clause| self.text(&clause))
    }

    fn item(&self, doc: String, node: &SyntaxNode) -> Option<Item> {
        Some(match node.kind() {
            Kind::Use => Item::Use(Use {
                path: child(node, Kind::UsePath).map(|path| self.names(&path))?,
                names: child(node, Kind::Names).map(|names| self.names(&names))?,
                span: self.span(node),
            }),
            Kind::Symbol => Item::Symbol(self.name(node)?),
            Kind::Enum => {
                Item::Enum(Enum { doc, name: self.name(node)?, values: self.values(node) })
            }
            Kind::Config => Item::Config(self.config(doc, node)?),
            Kind::Fn => Item::Fn(self.function(doc, node)?),
            Kind::Module => Item::Module(self.module(doc, node)?),
            Kind::Variant => Item::Variant(self.variant(doc, node)?),
            Kind::Import => Item::Import(self.import(node)?),
            _ => return None,
        })
    }

    fn values(&self, node: &SyntaxNode) -> Vec<(Ident, Option<Text>)> {
        let Some(values) = child(node, Kind::EnumValues) else { return Vec::new() };
        children(&values, Kind::EnumValue)
            .filter_map(|value| Some((self.name(&value)?, self.text(&value))))
            .collect()
    }

    fn config(&self, doc: String, node: &SyntaxNode) -> Option<Config> {
        let mut config =
            Config { doc, name: self.name(node)?, fields: Vec::new(), requires: Vec::new() };
        let Some(fields) = child(node, Kind::Fields) else { return Some(config) };
        for (doc, node) in documented(&fields) {
            match node.kind() {
                Kind::Field => config.fields.extend(self.field(doc, &node)),
                Kind::Require => config.requires.extend(self.first_expr(&node)),
                _ => {}
            }
        }
        Some(config)
    }

    fn field(&self, doc: String, node: &SyntaxNode) -> Option<Field> {
        Some(Field {
            doc,
            name: self.name(node)?,
            ty: node.children().find_map(|child| self.config_ty(&child))?,
            default: self.default(node),
            key: self.clause_text(node, Kind::Key),
        })
    }

    fn config_ty(&self, node: &SyntaxNode) -> Option<ConfigTy> {
        match node.kind() {
            Kind::NameTy => self.name(node).map(ConfigTy::Name),
            Kind::ListTy => {
                let inner = node.children().find_map(|child| self.config_ty(&child))?;
                Some(ConfigTy::List(Box::new(inner), self.span(node)))
            }
            _ => None,
        }
    }

    fn default(&self, node: &SyntaxNode) -> Option<Expr> {
        child(node, Kind::Default).and_then(|default| self.first_expr(&default))
    }

    fn function(&self, doc: String, node: &SyntaxNode) -> Option<Fn> {
        Some(Fn {
            doc,
            name: self.name(node)?,
            dims: child(node, Kind::DimNames).map(|dims| self.names(&dims)).unwrap_or_default(),
            args: self.args(node),
            ret: self.ty_of(node)?,
            body: child(node, Kind::Block).map(|block| self.block(&block))?,
        })
    }

    fn args(&self, node: &SyntaxNode) -> Vec<Arg> {
        let Some(args) = child(node, Kind::Args) else { return Vec::new() };
        children(&args, Kind::Arg)
            .filter_map(|arg| {
                Some(Arg {
                    name: self.name(&arg)?,
                    ty: self.ty_of(&arg)?,
                    default: self.default(&arg),
                })
            })
            .collect()
    }

    fn variant(&self, doc: String, node: &SyntaxNode) -> Option<Variant> {
        let settings = child(node, Kind::Settings);
        let sets = settings.iter().flat_map(|settings| children(settings, Kind::Setting));
        Some(Variant {
            doc,
            model: self.name(node)?,
            name: self.text(node)?,
            base: self.clause_text(node, Kind::Base),
            sets: sets
                .filter_map(|set| {
                    let path = self.names(&child(&set, Kind::Path)?);
                    Some((path, self.first_expr(&set)?))
                })
                .collect(),
        })
    }

    fn import(&self, node: &SyntaxNode) -> Option<Import> {
        let mut import = Import {
            model: self.name(node)?,
            types: self.texts(node),
            fixed: Vec::new(),
            ignore: Vec::new(),
        };
        let Some(rules) = child(node, Kind::ImportRules) else { return Some(import) };
        for rule in rules.children() {
            match rule.kind() {
                Kind::Fixed => {
                    import.fixed.extend(self.text(&rule).zip(self.first_expr(&rule)));
                }
                Kind::Ignore => import.ignore.extend(self.texts(&rule)),
                _ => {}
            }
        }
        Some(import)
    }
}
