//! Modules, members and types.

use super::{Builder, child, children, documented, tokens};
use crate::syntax::ast::*;
use crate::syntax::kind::{SyntaxKind as Kind, SyntaxNode};

impl Builder {
    pub(super) fn module(&self, doc: String, node: &SyntaxNode) -> Option<Module> {
        let is_model = tokens(node).next().is_some_and(|token| token.kind() == Kind::ModelWord);
        let members = child(node, Kind::Members);
        Some(Module {
            doc,
            is_model,
            name: self.name(node)?,
            args: self.args(node),
            members: members
                .iter()
                .flat_map(documented)
                .filter_map(|(doc, member)| self.member(doc, &member))
                .collect(),
        })
    }

    fn member(&self, doc: String, node: &SyntaxNode) -> Option<Member> {
        Some(match node.kind() {
            Kind::Let => Member::Let(self.name(node)?, self.first_expr(node)?),
            Kind::Require => Member::Require(self.first_expr(node)?),
            Kind::Param => Member::Param(self.param(doc, node)?),
            Kind::Part => Member::Part(self.part(doc, node)?),
            Kind::Input => Member::Input(self.input(doc, node)?),
            Kind::Collect => Member::Collect(self.name(node)?, self.ty_of(node)?),
            Kind::Fn => Member::Fn(self.function(doc, node)?),
            Kind::Forward => {
                let word = tokens(node).next()?;
                let block = child(node, Kind::Block)?;
                Member::Forward(self.block(&block), self.range(word.text_range()))
            }
            _ => return None,
        })
    }

    fn param(&self, doc: String, node: &SyntaxNode) -> Option<Param> {
        let init = child(node, Kind::Init);
        Some(Param {
            doc,
            name: self.name(node)?,
            ty: self.ty_of(node)?,
            init: init.and_then(|init| Some((self.name(&init)?, self.exprs(&init)))),
            key: self.clause_text(node, Kind::Key),
            each: child(node, Kind::Each).map(|each| self.texts(&each)).unwrap_or_default(),
            no_decay: child(node, Kind::NoDecay).is_some(),
            when: self.when(node),
        })
    }

    fn when(&self, node: &SyntaxNode) -> Option<Expr> {
        child(node, Kind::When).and_then(|when| self.first_expr(&when))
    }

    fn part(&self, doc: String, node: &SyntaxNode) -> Option<Part> {
        let counter = child(node, Kind::Counter)
            .and_then(|counter| Some((self.name(&counter)?, self.first_expr(&counter)?)));
        Some(Part {
            doc,
            name: self.name(node)?,
            counter,
            value: node.children().find_map(|child| self.part_value(&child))?,
            when: self.when(node),
        })
    }

    fn part_value(&self, node: &SyntaxNode) -> Option<PartExpr> {
        match node.kind() {
            Kind::PartNew => Some(PartExpr::New {
                module: self.name(node)?,
                args: self.call_args(node),
                prefix: self.clause_text(node, Kind::Key),
            }),
            Kind::PartIf => {
                let mut branches = node.children().filter_map(|child| self.part_value(&child));
                let (yes, no) = (branches.next()?, branches.next()?);
                let condition = self.first_expr(node)?;
                Some(PartExpr::If(Box::new(condition), Box::new(yes), Box::new(no)))
            }
            _ => None,
        }
    }

    fn input(&self, doc: String, node: &SyntaxNode) -> Option<Input> {
        let from = child(node, Kind::From);
        Some(Input {
            doc,
            name: self.name(node)?,
            ty: self.ty_of(node)?,
            from: from.and_then(|from| Some((self.name(&from)?, self.call_args(&from)))),
            when: self.when(node),
        })
    }

    /// The first type that is a child.
    pub(super) fn ty_of(&self, node: &SyntaxNode) -> Option<Ty> {
        node.children().find_map(|child| self.ty(&child))
    }

    fn ty(&self, node: &SyntaxNode) -> Option<Ty> {
        let kind = match node.kind() {
            Kind::TensorTy => TyKind::Tensor(self.name(node), self.dims(node)),
            Kind::NameTy => TyKind::Name(self.name(node)?),
            Kind::TupleTy => {
                TyKind::Tuple(node.children().filter_map(|child| self.ty(&child)).collect())
            }
            _ => return None,
        };
        Some(Ty { kind, span: self.span(node) })
    }

    /// The dims of a type or a reshape.
    pub(super) fn dims(&self, node: &SyntaxNode) -> Vec<DimTy> {
        let Some(dims) = child(node, Kind::Dims) else { return Vec::new() };
        dims.children().filter_map(|dim| self.dim(&dim)).collect()
    }

    fn dim(&self, node: &SyntaxNode) -> Option<DimTy> {
        match node.kind() {
            Kind::RestDim => Some(DimTy::Rest(self.span(node))),
            Kind::Dim => self.first_expr(node).map(DimTy::Expr),
            Kind::SegmentsDim => {
                let segments = children(node, Kind::Segment)
                    .filter_map(|segment| self.name(&segment).zip(self.first_expr(&segment)))
                    .collect();
                Some(DimTy::Segments(segments, self.span(node)))
            }
            _ => None,
        }
    }
}
