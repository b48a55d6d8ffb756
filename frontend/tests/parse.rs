//! Parsing: lossless trees, the owned tree, and how lines end.

use std::fmt::Write as _;

use rowan::NodeOrToken;
use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::source::Sources;
use vlmc_frontend::syntax::ast::{
    BinaryOp, Block, DimTy, Expr, ExprKind, Index, Item, Member, PartExpr, Stmt, TyKind, UnaryOp,
};
use vlmc_frontend::syntax::kind::SyntaxNode;
use vlmc_frontend::syntax::{self, Parse};

const SAMPLE: &str = include_str!("data/all_forms.vlm");

fn parse(text: &str) -> (Parse, String) {
    let mut sources = Sources::new();
    let file = sources.add("test.vlm", text);
    let parse = syntax::parse(file, text);
    assert_eq!(parse.tree.text().to_string(), text, "the tree must have every byte");
    let shown = render::all(&parse.diags, &sources, Format::Short);
    (parse, shown)
}

fn good(text: &str) -> Parse {
    let (parse, shown) = parse(text);
    assert_eq!(shown, "", "{text}");
    parse
}

/// The tree on one line, without blanks.
fn tree(node: &SyntaxNode) -> String {
    let mut out = format!("({:?}", node.kind());
    for element in node.children_with_tokens() {
        match element {
            NodeOrToken::Node(child) => write!(out, " {}", tree(&child)).unwrap_or_default(),
            NodeOrToken::Token(token) if token.text().trim().is_empty() => {}
            NodeOrToken::Token(token) => write!(out, " {}", token.text()).unwrap_or_default(),
        }
    }
    out + ")"
}

#[track_caller]
fn check_tree(text: &str, expected: &str) {
    assert_eq!(tree(&good(text).tree), expected);
}

#[test]
fn every_form_parses() {
    let parse = good(SAMPLE);
    assert_eq!(parse.file.items.len(), 15);
    assert_eq!(
        parse.file.doc,
        "Every form of the grammar, in a spec that could be one.\n\
         It is checked by the parser's and the formatter's tests."
    );
}

#[test]
fn trees_of_items() {
    check_tree(
        "use std.a.{b, c}",
        "(File (Use use (UsePath (Name std) . (Name a)) . (Names { (Name b) , (Name c) })))",
    );
    check_tree(
        "/// d\nenum E { a = \"x\", b }",
        "(File /// d (Enum enum (Name E) (EnumValues { (EnumValue (Name a) = \"x\") , \
         (EnumValue (Name b)) })))",
    );
    check_tree(
        "config A { a : [int] = [1]  as \"k\" require a }",
        "(File (Config config (Name A) (Fields { (Field (Name a) : (ListTy [ (NameTy (Name int)) ]) \
         (Default = (List [ (Literal 1) ])) (Key as \"k\")) (Require require (NameRef a)) })))",
    );
    check_tree(
        "variant M \"a\" from \"b\" { x.y = 1 }",
        "(File (Variant variant (Name M) \"a\" (Base from \"b\") (Settings { \
         (Setting (Path (Name x) . (Name y)) = (Literal 1)) })))",
    );
}

#[test]
fn trees_of_members() {
    check_tree(
        "module M() {\n  param a : f32[q: 1 + k: n] init zeros when b // c\n}",
        "(File (Module module (Name M) (Args ( )) (Members { (Param param (Name a) : (TensorTy (Name \
         f32) (Dims [ (SegmentsDim (Segment (Name q) : (Literal 1)) + (Segment (Name k) : (NameRef \
         n))) ])) (Init init (Name zeros)) (When when (NameRef b))) // c })))",
    );
    check_tree(
        "model M() {\n  stack s[i < 2] : if a { A() as \"x\" } else { B(i) }\n}",
        "(File (Module model (Name M) (Args ( )) (Members { (Part stack (Name s) (Counter [ (Name i) \
         < (Literal 2) ]) : (PartIf if (NameRef a) { (PartNew (Name A) (CallArgs ( )) (Key as \
         \"x\")) } else { (PartNew (Name B) (CallArgs ( (CallArg (NameRef i)) ))) })) })))",
    );
}

#[test]
fn broken_text_has_a_tree_too() {
    let (parse, shown) = parse("module M() {\n  param a [n]\n  param b : [n]\n}\nsymbol s");
    assert_eq!(shown, "test.vlm:2:11: error[V0101]: expected `:` and a type, found `[`\n");
    let Item::Module(module) = &parse.file.items[0] else { panic!("a module") };
    assert_eq!(module.members.len(), 2);
    assert!(matches!(&parse.file.items[1], Item::Symbol(name) if name.name == "s"));
}

/// An expression in brackets.
fn show(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Error => "?".into(),
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Float(value) => format!("{value:?}"),
        ExprKind::Str(value) => format!("{value:?}"),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Name(name) => name.clone(),
        ExprKind::Field(of, name) => format!("{}.{}", show(of), name.name),
        ExprKind::Call(of, args) => {
            let args = args.iter().map(|arg| match &arg.name {
                Some(name) => format!("{}={}", name.name, show(&arg.value)),
                None => show(&arg.value),
            });
            format!("{}({})", show(of), args.collect::<Vec<_>>().join(","))
        }
        ExprKind::Index(of, indices) => {
            let part = |part: &Option<Expr>| part.as_ref().map(show).unwrap_or_default();
            let indices = indices.iter().map(|index| match index {
                Index::Rest(_) => "..".to_owned(),
                Index::At(at) => show(at),
                Index::Range(from, to, _) => format!("{}:{}", part(from), part(to)),
            });
            format!("{}[{}]", show(of), indices.collect::<Vec<_>>().join(","))
        }
        ExprKind::Unary(UnaryOp::Neg, of) => format!("(-{})", show(of)),
        ExprKind::Unary(UnaryOp::Not, of) => format!("(not {})", show(of)),
        ExprKind::Binary(op, a, b, _) => {
            let op = match op {
                BinaryOp::Add => "+",
                BinaryOp::Sub => "-",
                BinaryOp::Mul => "*",
                BinaryOp::Div => "/",
                BinaryOp::Rem => "%",
                BinaryOp::Pow => "**",
                BinaryOp::Eq => "==",
                BinaryOp::Ne => "!=",
                BinaryOp::Lt => "<",
                BinaryOp::Le => "<=",
                BinaryOp::Gt => ">",
                BinaryOp::Ge => ">=",
                BinaryOp::And => "and",
                BinaryOp::Or => "or",
            };
            format!("({} {op} {})", show(a), show(b))
        }
        ExprKind::Reshape(of, dims) => {
            let dims = dims.iter().map(|dim| match dim {
                DimTy::Rest(_) => "..".to_owned(),
                DimTy::Expr(expr) => show(expr),
                DimTy::Segments(segments, _) => segments
                    .iter()
                    .map(|(name, size)| format!("{}:{}", name.name, show(size)))
                    .collect::<Vec<_>>()
                    .join("+"),
            });
            format!("({} as [{}])", show(of), dims.collect::<Vec<_>>().join(","))
        }
        ExprKind::Tuple(values) => {
            format!("<{}>", values.iter().map(show).collect::<Vec<_>>().join(","))
        }
        ExprKind::List(values) => {
            format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(","))
        }
        ExprKind::If(condition, yes, no) => {
            format!("if {} {} {}", show(condition), show_block(yes), show_block(no))
        }
    }
}

fn show_block(block: &Block) -> String {
    let mut parts: Vec<String> = block
        .stmts
        .iter()
        .map(|stmt| match stmt {
            Stmt::Let(names, _, value) => {
                let names: Vec<&str> = names.iter().map(|name| name.name.as_str()).collect();
                format!("let {} = {}", names.join(","), show(value))
            }
            Stmt::Assign(name, value) => format!("{} = {}", name.name, show(value)),
            Stmt::Region(name, block) => format!("region {} {}", name.name, show_block(block)),
            Stmt::Emit(name, value) => format!("emit {} = {}", name.name, show(value)),
            Stmt::Loss(name, weight, value) => {
                let weight = weight.as_ref().map(show).unwrap_or_default();
                format!("loss {} [{weight}] = {}", name.name, show(value))
            }
            Stmt::Output(name, value) => format!("output {} = {}", name.name, show(value)),
            Stmt::For(layer, stack, block) => {
                format!("for {} in {} {}", layer.name, stack.name, show_block(block))
            }
            Stmt::If(condition, yes, no) => {
                let no = no.as_ref().map(show_block).unwrap_or_default();
                format!("if! {} {} {no}", show(condition), show_block(yes))
            }
        })
        .collect();
    parts.extend(block.value.iter().map(|value| format!("-> {}", show(value))));
    format!("{{{}}}", parts.join("; "))
}

#[track_caller]
fn check_body(body: &str, expected: &str) {
    let text = format!("fn f(x: [T]) -> [T] {{\n{body}\n}}\n");
    let parse = good(&text);
    let Item::Fn(function) = &parse.file.items[0] else { panic!("a function") };
    assert_eq!(show_block(&function.body), expected, "{body}");
}

#[test]
fn operators_bind_as_documented() {
    check_body("a + b * c - d", "{-> ((a + (b * c)) - d)}");
    check_body("a ** b ** c", "{-> (a ** (b ** c))}");
    check_body("-a ** -b", "{-> (-(a ** (-b)))}");
    check_body("a * -b as [T] / c", "{-> ((a * ((-b) as [T])) / c)}");
    check_body("x as [T] as [T, 1]", "{-> ((x as [T]) as [T,1])}");
    check_body("not a == b and c or d", "{-> (((not (a == b)) and c) or d)}");
    check_body("a % 2 == 0 or b < c + 1", "{-> (((a % 2) == 0) or (b < (c + 1)))}");
    check_body("-a.b(c, k = d)[0, :, 1:, ..].e", "{-> (-a.b(c,k=d)[0,:,1:,..].e)}");
    check_body("((a, b), [c, (d)], ())", "{-> <<a,b>,[c,d],<>>}");
    check_body("x as [q: 2 * n + k: m, ..]", "{-> (x as [q:(2 * n)+k:m,..])}");
    check_body("1e-6 + 0.5 * 1_000", "{-> (1e-6 + (0.5 * 1000))}");
}

#[test]
fn lines_end_statements() {
    check_body("let a = b\n  + c\n  * d\na", "{let a = (b + (c * d)); -> a}");
    check_body("let a = b +\n c\na", "{let a = (b + c); -> a}");
    check_body("let a =\n  b\na", "{let a = b; -> a}");
    check_body("let a = f(\n b\n - c,\n (d)\n)\na", "{let a = f((b - c),d); -> a}");
    check_body("let a = b\n(a)", "{let a = b; -> a}");
    check_body("let a = b\n[a]", "{let a = b; -> [a]}");
    check_body("let a = b\n-a", "{let a = b; -> (-a)}");
    check_body("let a = b\n  as [T]\na", "{let a = (b as [T]); -> a}");
    check_body(
        "let f = f(if a {\n b\n} else {\n c\n})\nf",
        "{let f = f(if a {-> b} {-> c}); -> f}",
    );
}

#[test]
fn statements() {
    check_body("let (a, b) = c\na = b\na", "{let a,b = c; a = b; -> a}");
    check_body(
        "region r { emit c = x }\nloss l weight 2 * w = (a, b)\noutput o = x",
        "{region r {emit c = x}; loss l [(2 * w)] = <a,b>; output o = x}",
    );
    check_body("for l in ls { h = l(h) }", "{for l in ls {h = l(h)}}");
    check_body("if a { b = c }\nb", "{if! a {b = c} ; -> b}");
    check_body("if a { b } else if c { d } else { e }", "{-> if a {-> b} {-> if c {-> d} {-> e}}}");
    check_body("if a { b = c } else if d { b = e }\nb", "{if! a {b = c} {if! d {b = e} }; -> b}");
    check_body(
        "let from = weight\nlet weight = from\nweight",
        "{let from = weight; let weight = from; -> weight}",
    );
}

#[test]
fn the_owned_tree_has_everything() {
    let parse = good(SAMPLE);
    let module = |wanted: &str| {
        parse.file.items.iter().find_map(|item| match item {
            Item::Module(module) if module.name.name == wanted => Some(module),
            _ => None,
        })
    };
    let Some(attention) = module("Attention") else { panic!("Attention") };
    assert_eq!(attention.doc, "Attention with a gate.");
    assert!(!attention.is_model);
    let params: Vec<_> = (attention.members.iter())
        .filter_map(|member| match member {
            Member::Param(param) => Some(param),
            _ => None,
        })
        .collect();
    assert_eq!(params.len(), 4);
    assert!(matches!(&params[0].ty.kind, TyKind::Tensor(None, dims) if dims.len() == 2));
    assert!(params[2].no_decay && params[2].when.is_some());
    assert_eq!(params[3].each.len(), 2);
    assert_eq!(params[3].key.as_ref().map(|key| key.value.as_str()), Some("experts.gate_up"));
    let Some(example) = module("Example") else { panic!("Example") };
    assert!(example.is_model);
    let part = example.members.iter().rev().find_map(|member| match member {
        Member::Part(part) => Some(part),
        _ => None,
    });
    let Some(part) = part else { panic!("a part") };
    assert!(part.counter.is_some() && part.when.is_some());
    assert!(matches!(part.value, PartExpr::If(..)));
    let Some(Item::Import(import)) = parse.file.items.last() else { panic!("an import") };
    assert_eq!((import.types.len(), import.fixed.len(), import.ignore.len()), (2, 2, 3));
    let Some(Item::Variant(variant)) = parse.file.items.iter().rev().nth(1) else {
        panic!("a variant")
    };
    assert_eq!(variant.base.as_ref().map(|base| base.value.as_str()), Some("small"));
    assert_eq!(variant.doc, "As small, with shared embeddings.");
}

#[test]
fn spans_are_those_of_the_text() {
    let text = "fn f(x: [T]) -> [T] { (x + y) * x }";
    let parse = good(text);
    let Item::Fn(function) = &parse.file.items[0] else { panic!("a function") };
    let Some(value) = &function.body.value else { panic!("a value") };
    let at = |span: syntax::ast::Span| &text[span.start as usize..span.end as usize];
    assert_eq!(at(value.span), "(x + y) * x");
    let ExprKind::Binary(_, left, _, operator) = &value.kind else { panic!("a product") };
    assert_eq!((at(left.span), at(*operator)), ("(x + y)", "*"));
    assert_eq!(at(function.ret.span), "[T]");
    assert_eq!(at(function.name.span), "f");
}
