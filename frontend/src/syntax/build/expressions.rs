//! Blocks, statements and expressions.

use super::{Builder, child, children, tokens};
use crate::syntax::ast::*;
use crate::syntax::kind::{SyntaxKind as Kind, SyntaxNode, SyntaxToken};
use crate::syntax::literal;

impl Builder {
    pub(super) fn block(&self, node: &SyntaxNode) -> Block {
        let mut block = Block { stmts: Vec::new(), value: None, span: self.span(node) };
        let nodes: Vec<SyntaxNode> = node.children().collect();
        let last = nodes.iter().rposition(|node| node.kind() != Kind::Error);
        for (at, node) in nodes.iter().enumerate() {
            if let Some(stmt) = self.stmt(node) {
                block.stmts.push(stmt);
            } else if node.kind() == Kind::If {
                let choice = self.choice(node);
                // The last `if` with a value in it is the block's; any other does something.
                match choice {
                    Some((condition, yes, Some(no))) if Some(at) == last && has_value(&yes) => {
                        let kind = ExprKind::If(Box::new(condition), yes, no);
                        block.value = Some(Box::new(Expr { kind, span: self.span(node) }));
                    }
                    Some((condition, yes, no)) => {
                        block.stmts.push(Stmt::If(condition, yes, no));
                    }
                    None => {}
                }
            } else if Some(at) == last {
                block.value = self.expr(node).map(Box::new);
            }
        }
        block
    }

    /// Condition and branches; `else if` is a block with an `if` in it.
    fn choice(&self, node: &SyntaxNode) -> Option<(Expr, Block, Option<Block>)> {
        let condition = self.first_expr(node)?;
        let mut blocks = children(node, Kind::Block).map(|block| self.block(&block));
        let yes = blocks.next()?;
        let no = blocks.next().or_else(|| {
            let inner = children(node, Kind::If).find(|inner| {
                // Not the condition, which may be an `if` too.
                self.span(inner).start >= yes.span.end
            })?;
            Some(self.else_if(&inner))
        });
        Some((condition, yes, no))
    }

    fn else_if(&self, node: &SyntaxNode) -> Block {
        let span = self.span(node);
        let mut block = Block { stmts: Vec::new(), value: None, span };
        match self.choice(node) {
            Some((condition, yes, Some(no))) if has_value(&yes) => {
                let kind = ExprKind::If(Box::new(condition), yes, no);
                block.value = Some(Box::new(Expr { kind, span }));
            }
            Some((condition, yes, no)) => block.stmts.push(Stmt::If(condition, yes, no)),
            None => {}
        }
        block
    }

    fn stmt(&self, node: &SyntaxNode) -> Option<Stmt> {
        let name = || self.name(node);
        let value = || self.first_expr(node);
        Some(match node.kind() {
            Kind::Let => {
                let pattern = child(node, Kind::Pattern)?;
                let is_tuple = tokens(&pattern).next().is_some();
                Stmt::Let(self.names(&pattern), is_tuple, value()?)
            }
            Kind::Assign => Stmt::Assign(name()?, value()?),
            Kind::Region => Stmt::Region(name()?, self.block(&child(node, Kind::Block)?)),
            Kind::Emit => Stmt::Emit(name()?, value()?),
            Kind::Loss => {
                let weight = child(node, Kind::Weight).and_then(|w| self.first_expr(&w));
                Stmt::Loss(name()?, weight, value()?)
            }
            Kind::Output => Stmt::Output(name()?, value()?),
            Kind::For => {
                let mut names = self.names(node).into_iter();
                let (layer, stack) = (names.next()?, names.next()?);
                Stmt::For(layer, stack, self.block(&child(node, Kind::Block)?))
            }
            _ => return None,
        })
    }

    /// The first child that is an expression.
    pub(super) fn first_expr(&self, node: &SyntaxNode) -> Option<Expr> {
        node.children().find_map(|child| self.expr(&child))
    }

    /// All children that are expressions.
    pub(super) fn exprs(&self, node: &SyntaxNode) -> Vec<Expr> {
        node.children().filter_map(|child| self.expr(&child)).collect()
    }

    fn expr(&self, node: &SyntaxNode) -> Option<Expr> {
        let kind = match node.kind() {
            Kind::Literal => tokens(node).next().map(|token| self.literal(&token)),
            Kind::NameRef => tokens(node).next().map(|t| ExprKind::Name(t.text().to_owned())),
            Kind::FieldExpr => {
                self.boxed(node).zip(self.name(node)).map(|(of, name)| ExprKind::Field(of, name))
            }
            Kind::Call => self.boxed(node).map(|of| ExprKind::Call(of, self.call_args(node))),
            Kind::IndexExpr => self.boxed(node).map(|of| ExprKind::Index(of, self.indices(node))),
            Kind::Unary => self.unary(node),
            Kind::Binary => self.binary(node),
            Kind::Reshape => self.boxed(node).map(|of| ExprKind::Reshape(of, self.dims(node))),
            Kind::Tuple => {
                let mut values = self.exprs(node);
                if values.len() == 1 {
                    // Brackets only; but the span is that with the brackets.
                    values.pop().map(|value| value.kind)
                } else {
                    Some(ExprKind::Tuple(values))
                }
            }
            Kind::List => Some(ExprKind::List(self.exprs(node))),
            Kind::If => self
                .choice(node)
                .and_then(|(condition, yes, no)| Some(ExprKind::If(Box::new(condition), yes, no?))),
            Kind::Error => Some(ExprKind::Error),
            _ => return None,
        };
        Some(Expr { kind: kind.unwrap_or(ExprKind::Error), span: self.span(node) })
    }

    fn boxed(&self, node: &SyntaxNode) -> Option<Box<Expr>> {
        self.first_expr(node).map(Box::new)
    }

    fn literal(&self, token: &SyntaxToken) -> ExprKind {
        let text = token.text();
        let kind = match token.kind() {
            Kind::Int => literal::int(text).map(ExprKind::Int),
            Kind::Float => literal::float(text).map(ExprKind::Float),
            Kind::String => Some(ExprKind::Str(literal::string(text))),
            Kind::TrueWord => Some(ExprKind::Bool(true)),
            Kind::FalseWord => Some(ExprKind::Bool(false)),
            _ => None,
        };
        kind.unwrap_or(ExprKind::Error)
    }

    fn unary(&self, node: &SyntaxNode) -> Option<ExprKind> {
        let operator = match tokens(node).next()?.kind() {
            Kind::Minus => UnaryOp::Neg,
            _ => UnaryOp::Not,
        };
        Some(ExprKind::Unary(operator, self.boxed(node)?))
    }

    fn binary(&self, node: &SyntaxNode) -> Option<ExprKind> {
        let token = tokens(node).next()?;
        let operator = match token.kind() {
            Kind::Plus => BinaryOp::Add,
            Kind::Minus => BinaryOp::Sub,
            Kind::Star => BinaryOp::Mul,
            Kind::Slash => BinaryOp::Div,
            Kind::Percent => BinaryOp::Rem,
            Kind::StarStar => BinaryOp::Pow,
            Kind::EqualsEquals => BinaryOp::Eq,
            Kind::NotEquals => BinaryOp::Ne,
            Kind::Less => BinaryOp::Lt,
            Kind::LessEquals => BinaryOp::Le,
            Kind::Greater => BinaryOp::Gt,
            Kind::GreaterEquals => BinaryOp::Ge,
            Kind::AndWord => BinaryOp::And,
            _ => BinaryOp::Or,
        };
        let mut sides = node.children().filter_map(|child| self.expr(&child));
        let (left, right) = (sides.next()?, sides.next()?);
        let span = self.range(token.text_range());
        Some(ExprKind::Binary(operator, Box::new(left), Box::new(right), span))
    }

    pub(super) fn call_args(&self, node: &SyntaxNode) -> Vec<CallArg> {
        let Some(args) = child(node, Kind::CallArgs) else { return Vec::new() };
        children(&args, Kind::CallArg)
            .filter_map(|arg| {
                Some(CallArg { name: self.name(&arg), value: self.first_expr(&arg)? })
            })
            .collect()
    }

    fn indices(&self, node: &SyntaxNode) -> Vec<Index> {
        let Some(indices) = child(node, Kind::Indices) else { return Vec::new() };
        indices.children().filter_map(|index| self.index(&index)).collect()
    }

    fn index(&self, node: &SyntaxNode) -> Option<Index> {
        let span = self.span(node);
        match node.kind() {
            Kind::RestIndex => Some(Index::Rest(span)),
            Kind::AtIndex => self.first_expr(node).map(Index::At),
            Kind::RangeIndex => {
                let colon = tokens(node).find(|token| token.kind() == Kind::Colon)?;
                let colon = self.range(colon.text_range());
                let (mut from, mut to) = (None, None);
                for expr in self.exprs(node) {
                    if expr.span.end <= colon.start {
                        from = Some(expr);
                    } else {
                        to = Some(expr);
                    }
                }
                Some(Index::Range(from, to, span))
            }
            _ => None,
        }
    }
}

/// Whether a branch of an `if` gives a value.
fn has_value(block: &Block) -> bool {
    block.value.is_some()
}
