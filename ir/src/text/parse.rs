//! Text to programs.
//!
//! The parser builds what the text says; whether it makes sense is for the verifier. Types of
//! results are read, not inferred, so that a wrong one is reported rather than repaired.

use super::cursor::{Cursor, ParseError};
use crate::dim::Symbol;
use crate::graph::{
    Function, HostCall, Init, Input, NodeId, Origin, Output, OutputKind, Param, Program, Region,
    RegionId, SymbolDecl, Value,
};
use crate::ops::Op;
use crate::ty::Ty;
use rustc_hash::FxHashMap;
use std::sync::Arc;

type Result<T> = std::result::Result<T, ParseError>;

/// Reads a program.
///
/// # Errors
/// The first thing that is not as the grammar says, with its place.
pub fn program(text: &str) -> Result<Program> {
    let mut c = Cursor::new(text);
    let mut p = Program::default();
    c.expect_word("program")?;
    p.name = c.string()?;
    if c.eat_word("variant") {
        p.variant = c.string()?;
    }
    while c.eat_word("symbol") {
        let symbol = Symbol::new(c.word()?);
        let multiple_of = if c.eat("%") { c.integer()? } else { 1 };
        p.symbols.push(SymbolDecl { symbol, multiple_of });
    }
    while c.eat_word("file") {
        p.files.push(c.string()?);
    }
    while !c.at_end() {
        p.functions.push(function(&mut c)?);
    }
    Ok(p)
}

/// An error with its place and line, as people read it:
///
/// ```text
/// 3:14: expected `:`, found `bf16`
///   %y = exp %x bf16[T]
///               ^
/// ```
pub fn render(text: &str, error: &ParseError) -> String {
    let (line, column) = line_column(text, error.at);
    let source = text.lines().nth(line - 1).unwrap_or("");
    // Tabs stay tabs, so that the caret stands under its character.
    let blank: String =
        source.chars().take(column - 1).map(|c| if c == '\t' { c } else { ' ' }).collect();
    format!("{line}:{column}: {error}\n  {source}\n  {blank}^\n")
}

/// Line and column (in characters), from 1, of a byte offset.
pub fn line_column(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[derive(Default)]
struct Scope<'a> {
    labels: FxHashMap<&'a str, NodeId>,
    regions: FxHashMap<String, RegionId>,
}

fn function(c: &mut Cursor<'_>) -> Result<Function> {
    c.expect_word("func")?;
    c.expect("@")?;
    let mut f = Function::new(c.word()?);
    let mut scope = Scope::default();
    if c.eat_word("cluster") {
        f.cluster = Some(c.string()?.into());
    }
    c.expect("{")?;
    loop {
        match c.peek_word() {
            "input" => input(c, &mut f, &mut scope)?,
            "param" => param(c, &mut f, &mut scope)?,
            "return" | "loss" | "grad" => output(c, &mut f, &scope)?,
            "" if c.peek("%") => op(c, &mut f, &mut scope)?,
            _ if c.eat("}") => return Ok(f),
            _ => return c.error("expected `input`, `param`, `%`, `return`, `loss`, `grad` or `}`"),
        }
    }
}

/// Takes `%label` of a definition. A label of digits is a number, not a name.
fn define<'a>(
    c: &mut Cursor<'a>,
    f: &Function,
    scope: &mut Scope<'a>,
) -> Result<(&'a str, Option<Arc<str>>)> {
    let at = c.position();
    c.expect("%")?;
    let label = c.word()?;
    if scope.labels.insert(label, NodeId(f.nodes.len() as u32)).is_some() {
        return Err(ParseError::new(at, format!("%{label} is defined twice")));
    }
    let name = (!label.bytes().all(|b| b.is_ascii_digit())).then(|| label.into());
    Ok((label, name))
}

fn value(c: &mut Cursor<'_>, f: &Function, scope: &Scope<'_>) -> Result<Value> {
    let at = c.position();
    c.expect("%")?;
    let label = c.word()?;
    let Some(node) = scope.labels.get(label).copied().filter(|n| (n.0 as usize) < f.nodes.len())
    else {
        return Err(ParseError::new(at, format!("%{label} is not defined before this line")));
    };
    let results = f.node(node).tys.len();
    let result = if c.eat("#") { c.integer()? } else { 0 };
    match u32::try_from(result) {
        Ok(r) if (r as usize) < results => Ok(Value { node, result: r }),
        _ => {
            Err(ParseError::new(at, format!("%{label} has no result #{result} ({results} in all)")))
        }
    }
}

fn input<'a>(c: &mut Cursor<'a>, f: &mut Function, scope: &mut Scope<'a>) -> Result<()> {
    c.expect_word("input")?;
    let (label, name) = define(c, f, scope)?;
    let input_name: Arc<str> = if c.eat("=") { c.string()?.into() } else { label.into() };
    c.expect(":")?;
    let ty = c.ty()?;
    let from = if c.eat_word("from") {
        let function = c.word()?.to_string();
        let mut arguments = vec![];
        c.expect("(")?;
        while !c.eat(")") {
            if !arguments.is_empty() {
                c.expect(",")?;
            }
            let key = c.word()?.to_string();
            c.expect("=")?;
            arguments.push((key, c.integer()?));
        }
        Some(HostCall { function, arguments })
    } else {
        None
    };
    let index = f.inputs.len() as u32;
    f.inputs.push(Input { name: input_name, ty: ty.clone(), from });
    f.push_node(Op::Input { index }, vec![], vec![ty], name);
    suffix(c, f, scope)
}

fn param<'a>(c: &mut Cursor<'a>, f: &mut Function, scope: &mut Scope<'a>) -> Result<()> {
    c.expect_word("param")?;
    let (label, name) = define(c, f, scope)?;
    c.expect("=")?;
    let key = c.string()?;
    let mut each = vec![];
    if c.eat_word("or") {
        c.expect_word("each")?;
        each.push(c.string()?);
        while c.eat(",") {
            each.push(c.string()?);
        }
    }
    c.expect(":")?;
    let ty = c.ty()?;
    c.expect_word("init")?;
    let init = init(c)?;
    let decay = !c.eat_word("no_decay");
    let param_name: Arc<str> = if c.eat_word("named") { c.string()?.into() } else { label.into() };
    let index = f.params.len() as u32;
    f.params.push(Param { name: param_name, key, each, ty: ty.clone(), init, decay });
    f.push_node(Op::Param { index }, vec![], vec![ty], name);
    suffix(c, f, scope)
}

fn init(c: &mut Cursor<'_>) -> Result<Init> {
    let at = c.position();
    let kind = c.word()?;
    c.expect("(")?;
    let a = c.number()?;
    let b = if c.eat(",") { Some(c.number()?) } else { None };
    c.expect(")")?;
    match (kind, b) {
        ("constant", None) => Ok(Init::Constant(a)),
        ("normal", None) => Ok(Init::Normal(a)),
        ("uniform", Some(b)) => Ok(Init::Uniform(a, b)),
        ("log_uniform", Some(b)) => Ok(Init::LogUniform(a, b)),
        _ => Err(ParseError::new(at, format!("unknown initial value `{kind}`"))),
    }
}

fn op<'a>(c: &mut Cursor<'a>, f: &mut Function, scope: &mut Scope<'a>) -> Result<()> {
    let (_, name) = define(c, f, scope)?;
    c.expect("=")?;
    let at = c.position();
    let op_name = c.word()?;
    let mut operands = vec![];
    if c.peek("%") {
        operands.push(value(c, f, scope)?);
        while c.eat(",") {
            operands.push(value(c, f, scope)?);
        }
    }
    let op = match op_name {
        // Written as declarations, which also fill the tables of the function.
        "input" | "param" => None,
        _ => Op::parse(op_name, c),
    };
    let op = op.unwrap_or_else(|| Err(ParseError::new(at, format!("unknown op `{op_name}`"))))?;
    c.expect(":")?;
    let tys: Vec<Ty> = if c.eat("(") {
        let mut tys = vec![];
        while !c.eat(")") {
            if !tys.is_empty() {
                c.expect(",")?;
            }
            tys.push(c.ty()?);
        }
        tys
    } else {
        vec![c.ty()?]
    };
    f.push_node(op, operands, tys, name);
    suffix(c, f, scope)
}

/// `in region` and `@ origins` of the node just added.
fn suffix(c: &mut Cursor<'_>, f: &mut Function, scope: &mut Scope<'_>) -> Result<()> {
    let mut region = None;
    if c.eat_word("in") {
        let mut path = String::new();
        loop {
            let name = c.word()?;
            path.push('/');
            path.push_str(name);
            let next = RegionId(f.regions.len() as u32);
            let id = *scope.regions.entry(path.clone()).or_insert(next);
            if id == next {
                f.regions.push(Region { name: name.into(), parent: region });
            }
            region = Some(id);
            if !c.eat("/") {
                break;
            }
        }
    }
    let mut origins = vec![];
    if c.eat("@") {
        loop {
            let path = c.string()?.into();
            let file = natural(c)?;
            c.expect(":")?;
            let line = natural(c)?;
            c.expect(":")?;
            origins.push(Origin { path, file, line, column: natural(c)? });
            if !c.eat(",") {
                break;
            }
        }
    }
    if let Some(node) = f.nodes.last_mut() {
        node.region = region;
        node.origins = origins;
    }
    Ok(())
}

fn natural(c: &mut Cursor<'_>) -> Result<u32> {
    let at = c.position();
    let v = c.integer()?;
    u32::try_from(v).map_err(|_| ParseError::new(at, format!("{v} is out of range")))
}

fn output(c: &mut Cursor<'_>, f: &mut Function, scope: &Scope<'_>) -> Result<()> {
    let word = c.word()?;
    let name = if c.peek("\"") {
        let name = c.string()?;
        c.expect("=")?;
        Some(name.into())
    } else {
        None
    };
    let value_of = value(c, f, scope)?;
    let kind = match word {
        "loss" => {
            c.expect("/")?;
            let count = value(c, f, scope)?;
            c.expect_word("weight")?;
            OutputKind::Loss { count, weight: c.number()? }
        }
        "grad" => OutputKind::Gradient,
        _ => OutputKind::Value,
    };
    f.outputs.push(Output { name, value: value_of, kind });
    Ok(())
}
