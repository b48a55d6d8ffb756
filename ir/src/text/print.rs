//! Programs to text.
//!
//! ```text
//! program "tiny" variant "a"
//! symbol T
//! file "tiny.vlm"
//!
//! func @block {
//!   input %x : bf16[T, 64]
//!   param %w = "w.weight" : bf16[64, 64] init normal(0.02)
//!   %y = contract %x, %w {a_batch = [], ..} : bf16[T, 64]  in core  @ mixer.y 0:12:7
//!   return %y
//! }
//! ```

use crate::graph::{Function, Init, Node, Output, OutputKind, Program, Value};
use crate::ops::Op;
use rustc_hash::FxHashSet;
use std::fmt::Write as _;
use std::sync::Arc;

/// Writes `text` in double quotes.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    quote(text, &mut out);
    out
}

/// The text of a program.
pub fn program(p: &Program) -> String {
    let mut out = format!("program {}", quoted(&p.name));
    if !p.variant.is_empty() {
        let _ = write!(out, " variant {}", quoted(&p.variant));
    }
    out.push('\n');
    for s in &p.symbols {
        let _ = write!(out, "symbol {}", s.symbol);
        if s.multiple_of != 1 {
            let _ = write!(out, " % {}", s.multiple_of);
        }
        out.push('\n');
    }
    for f in &p.files {
        let _ = writeln!(out, "file {}", quoted(f));
    }
    for f in &p.functions {
        out.push('\n');
        out.push_str(&function(f));
    }
    out
}

/// The text of a function.
pub fn function(f: &Function) -> String {
    let labels = Labels::new(f);
    let mut out = format!("func @{}", f.name);
    if let Some(label) = &f.cluster {
        out.push_str(" cluster ");
        quote(label, &mut out);
    }
    out.push_str(" {\n");
    for (i, n) in f.nodes.iter().enumerate() {
        out.push_str("  ");
        node(f, n, &labels, i, &mut out);
        out.push('\n');
    }
    for o in &f.outputs {
        out.push_str("  ");
        output(o, &labels, &mut out);
        out.push('\n');
    }
    out.push_str("}\n");
    out
}

/// The line of a node, without indentation.
pub fn node_line(f: &Function, index: usize) -> String {
    let mut out = String::new();
    node(f, &f.nodes[index], &Labels::new(f), index, &mut out);
    out
}

/// Where each operand stands in [`node_line`], in characters.
pub fn operand_columns(f: &Function, index: usize) -> Vec<std::ops::Range<usize>> {
    let labels = Labels::new(f);
    let node = &f.nodes[index];
    let mut at = format!("%{} = {} ", labels.names[index], node.op.name()).chars().count();
    let columns = node.operands.iter().map(|v| {
        let start = at;
        let end = start + labels.value(*v).chars().count();
        at = end + 2;
        start..end
    });
    columns.collect()
}

/// Labels of nodes: their names made unique, or numbers.
pub struct Labels {
    names: Vec<Arc<str>>,
    multiple: Vec<bool>,
}

impl Labels {
    /// Labels of every node of a function.
    pub fn new(f: &Function) -> Self {
        let mut taken: FxHashSet<Arc<str>> = FxHashSet::default();
        let mut number = 0;
        let names = f.nodes.iter().map(|n| {
            let Some(base) = &n.name else {
                number += 1;
                return (number - 1).to_string().into();
            };
            let mut label = base.clone();
            let mut again = 2;
            while !taken.insert(label.clone()) {
                label = format!("{base}_{again}").into();
                again += 1;
            }
            label
        });
        let names = names.collect();
        Labels { names, multiple: f.nodes.iter().map(|n| n.tys.len() != 1).collect() }
    }

    /// The label of a value: `%name`, or `%name#1` for one of several results.
    pub fn value(&self, v: Value) -> String {
        let i = v.node.0 as usize;
        match self.names.get(i) {
            Some(name) if self.multiple[i] => format!("%{name}#{}", v.result),
            Some(name) => format!("%{name}"),
            None => format!("%?{i}"),
        }
    }
}

fn node(f: &Function, n: &Node, labels: &Labels, index: usize, out: &mut String) {
    let label = &labels.names[index];
    match &n.op {
        Op::Input { index } => {
            let _ = write!(out, "input %{label}");
            if let Some(input) = f.inputs.get(*index as usize) {
                if *input.name != **label {
                    let _ = write!(out, " = {}", quoted(&input.name));
                }
                let _ = write!(out, " : {}", input.ty);
                if let Some(from) = &input.from {
                    let args: Vec<_> =
                        from.arguments.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                    let _ = write!(out, " from {}({})", from.function, args.join(", "));
                }
            }
        }
        Op::Param { index } => {
            let _ = write!(out, "param %{label}");
            if let Some(p) = f.params.get(*index as usize) {
                let _ = write!(out, " = {}", quoted(&p.key));
                for (i, e) in p.each.iter().enumerate() {
                    let _ = write!(out, "{}{}", if i == 0 { " or each " } else { ", " }, quoted(e));
                }
                let _ = write!(out, " : {} init {}", p.ty, init(p.init));
                if !p.decay {
                    out.push_str(" no_decay");
                }
                if *p.name != **label {
                    let _ = write!(out, " named {}", quoted(&p.name));
                }
            }
        }
        op => {
            let _ = write!(out, "%{label} = {}", op.name());
            for (i, v) in n.operands.iter().enumerate() {
                let _ = write!(out, "{}{}", if i == 0 { " " } else { ", " }, labels.value(*v));
            }
            op.print_attributes(out);
            out.push_str(" : ");
            let tys: Vec<_> = n.tys.iter().map(|t| t.to_string()).collect();
            if n.tys.len() == 1 {
                out.push_str(&tys[0]);
            } else {
                let _ = write!(out, "({})", tys.join(", "));
            }
        }
    }
    if let Some(r) = n.region.and_then(|r| f.regions.get(r.0 as usize)) {
        let mut path = vec![&*r.name];
        let mut at = r;
        while let Some(parent) = at.parent.and_then(|p| f.regions.get(p.0 as usize)) {
            path.push(&parent.name);
            at = parent;
            if path.len() > f.regions.len() {
                break;
            }
        }
        path.reverse();
        let _ = write!(out, "  in {}", path.join("/"));
    }
    for (i, o) in n.origins.iter().enumerate() {
        let lead = if i == 0 { "  @ " } else { ", " };
        let _ = write!(out, "{lead}{} {}:{}:{}", quoted(&o.path), o.file, o.line, o.column);
    }
}

fn init(init: Init) -> String {
    match init {
        Init::Constant(v) => format!("constant({v:?})"),
        Init::Normal(std) => format!("normal({std:?})"),
        Init::Uniform(a, b) => format!("uniform({a:?}, {b:?})"),
        Init::LogUniform(a, b) => format!("log_uniform({a:?}, {b:?})"),
    }
}

fn output(o: &Output, labels: &Labels, out: &mut String) {
    match &o.kind {
        OutputKind::Value => out.push_str("return"),
        OutputKind::Loss { .. } => out.push_str("loss"),
        OutputKind::Gradient => out.push_str("grad"),
    }
    if let Some(name) = &o.name {
        let _ = write!(out, " {} =", quoted(name));
    }
    let _ = write!(out, " {}", labels.value(o.value));
    if let OutputKind::Loss { count, weight } = &o.kind {
        let _ = write!(out, " / {} weight {weight:?}", labels.value(*count));
    }
}
