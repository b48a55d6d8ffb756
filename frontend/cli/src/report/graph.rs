//! Pictures of the fused graph: a function as boxes from top to bottom, with lines as wide as the
//! bytes that they carry. Plain SVG, which opens without a network.
//!
//! Layers are those of the longest path; long lines go through bends of their own in each layer, and
//! boxes are ordered by where their neighbours stand (Sugiyama, Tagawa and Toda, 1981).

use super::svg::escaped;
use crate::fusion::{Cluster, Report, bytes_of};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, Program, Value};
use vlmc_ir::ops::Op;

/// A picture of every function that is not main and has clusters, by the name of its file.
pub fn pictures(p: &Program, report: &Report, sizes: &Sizes) -> Vec<(String, String)> {
    let main = p.main().map(|f| f.name.clone()).unwrap_or_default();
    let drawn = p.functions.iter().filter(|f| f.cluster.is_none() && f.name != main);
    let drawn = drawn.filter(|f| report.clusters.iter().any(|c| c.function == f.name));
    drawn
        .map(|f| {
            let safe =
                |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' };
            let file: String = f.name.chars().map(safe).collect();
            (format!("{file}.svg"), Picture::of(f, report, sizes).svg(&f.name))
        })
        .collect()
}

/// What a box stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Input,
    Cluster,
    Cut,
    Saved,
    Output,
    /// A place where a long line bends.
    Bend,
}

struct Node {
    kind: Kind,
    lines: Vec<String>,
    tip: String,
    layer: usize,
    x: f64,
}

impl Node {
    fn width(&self) -> f64 {
        match self.kind {
            Kind::Bend => 10.0,
            _ => {
                let longest = self.lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
                // Families are bold.
                let letter = if self.kind == Kind::Cluster { BOLD } else { LETTER };
                (longest as f64 * letter + 20.0).max(70.0)
            }
        }
    }

    fn height(&self) -> f64 {
        if self.kind == Kind::Bend { 0.0 } else { 12.0 + LINE * self.lines.len() as f64 }
    }
}

const LETTER: f64 = 6.6;
const BOLD: f64 = 7.6;
const LINE: f64 = 14.0;
/// Between boxes of a layer, and between layers.
const GAP: f64 = 18.0;
const RISE: f64 = 44.0;
/// The widest line.
const WIDEST: f64 = 16.0;
/// Rounds in which boxes move to their neighbours.
const ROUNDS: usize = 24;

struct Picture {
    nodes: Vec<Node>,
    /// Bytes from one box to another.
    edges: BTreeMap<(usize, usize), u64>,
}

impl Picture {
    fn of(f: &Function, report: &Report, sizes: &Sizes) -> Picture {
        let mut out = Picture { nodes: vec![], edges: BTreeMap::new() };
        // The box that makes a value, and what the box reads of it; views are their operand.
        let mut made_by: Vec<Option<usize>> = vec![None; f.nodes.len()];
        let at = |v: &Value| v.node.0 as usize;
        let mut seen: Vec<(usize, usize, Value)> = vec![];
        for (i, node) in f.nodes.iter().enumerate() {
            let value = Value::from(vlmc_ir::graph::NodeId(i as u32));
            made_by[i] = match &node.op {
                Op::Param { .. } | Op::Constant { .. } | Op::Iota { .. } => None,
                Op::Input { index } => {
                    let name = f.inputs.get(*index as usize).map(|x| x.name.to_string());
                    let name = name.unwrap_or_default();
                    match name.starts_with("cu_") || name.contains(".cu_") {
                        // Boundaries of documents are small, and everybody reads them.
                        true => None,
                        false => Some(out.add(Kind::Input, vec![name])),
                    }
                }
                Op::Reshape { .. } | Op::Slice { .. } => {
                    node.operands.first().and_then(|v| made_by[at(v)])
                }
                op => Some(out.op(f, op, &node.operands, value, report)),
            };
            let (Some(to), false) =
                (made_by[i], matches!(node.op, Op::Reshape { .. } | Op::Slice { .. }))
            else {
                continue;
            };
            for v in &node.operands {
                let Some(from) = made_by[at(v)] else { continue };
                if from != to && !seen.contains(&(from, to, *v)) {
                    seen.push((from, to, *v));
                    *out.edges.entry((from, to)).or_insert(0) += bytes_of(f.ty(*v), sizes);
                }
            }
        }
        out.outputs(f, sizes, &|v| made_by[at(v)]);
        out.layers();
        out.order();
        out
    }

    fn add(&mut self, kind: Kind, lines: Vec<String>) -> usize {
        self.nodes.push(Node { kind, lines, tip: String::new(), layer: 0, x: 0.0 });
        self.nodes.len() - 1
    }

    fn op(
        &mut self,
        f: &Function,
        op: &Op,
        operands: &[Value],
        v: Value,
        report: &Report,
    ) -> usize {
        let cluster = match op {
            Op::Call { callee, .. } => report.clusters.iter().find(|c| c.cluster == *callee),
            _ => None,
        };
        if let Some(c) = cluster {
            let at = self.add(Kind::Cluster, told(c));
            self.nodes[at].tip = format!("{}\n{}", c.cluster, c.lines.join("\n"));
            return at;
        }
        let name = match op {
            Op::Call { callee, .. } => callee.clone(),
            op => op.name().to_string(),
        };
        // Products are known by their weights.
        let weight = operands.iter().find_map(|v| match &f.node(v.node).op {
            Op::Param { index } => f.params.get(*index as usize).map(|p| p.key.clone()),
            _ => None,
        });
        let lines = [Some(name), weight.filter(|w| !w.is_empty())];
        let at = self.add(Kind::Cut, lines.into_iter().flatten().collect());
        let place = |o: &vlmc_ir::graph::Origin| format!("line {}", o.line);
        let places: Vec<String> = f.node(v.node).origins.iter().map(place).collect();
        self.nodes[at].tip = places.join("\n");
        at
    }

    /// Results: what is saved for the way back, gradients of parameters together, and the others.
    fn outputs(&mut self, f: &Function, sizes: &Sizes, made_by: &dyn Fn(&Value) -> Option<usize>) {
        let mut gradients = None;
        for o in &f.outputs {
            let Some(from) = made_by(&o.value) else { continue };
            let bytes = bytes_of(f.ty(o.value), sizes);
            let name =
                o.name.as_ref().map(|n| n.to_string()).unwrap_or_else(|| "result".to_string());
            let to = if name.starts_with("grad.param.") {
                *gradients.get_or_insert_with(|| {
                    self.add(Kind::Output, vec!["gradients of parameters".to_string()])
                })
            } else {
                let saved = name.starts_with("saved.");
                let short = name.trim_start_matches("saved.").to_string();
                let kind = if saved { Kind::Saved } else { Kind::Output };
                let word = if saved { "saved, " } else { "" };
                self.add(kind, vec![short, format!("{word}{}", human(bytes))])
            };
            *self.edges.entry((from, to)).or_insert(0) += bytes;
        }
    }

    /// The longest path from the top; inputs right above their first reader, and bends on long lines.
    fn layers(&mut self) {
        // Nodes were made operands first.
        let edges: Vec<(usize, usize)> = self.edges.keys().copied().collect();
        for to in 0..self.nodes.len() {
            let before = edges.iter().filter(|(_, t)| *t == to);
            let layer = before.map(|(from, _)| self.nodes[*from].layer + 1).max();
            self.nodes[to].layer = layer.unwrap_or(0);
        }
        for i in 0..self.nodes.len() {
            if self.nodes[i].kind == Kind::Input {
                let readers = edges.iter().filter(|(from, _)| *from == i);
                let first = readers.map(|(_, to)| self.nodes[*to].layer).min();
                self.nodes[i].layer = first.unwrap_or(1).saturating_sub(1);
            }
        }
        let used: Vec<bool> =
            (0..self.nodes.len()).map(|i| edges.iter().any(|(a, b)| *a == i || *b == i)).collect();
        for ((from, to), bytes) in std::mem::take(&mut self.edges) {
            let (top, bottom) = (self.nodes[from].layer, self.nodes[to].layer);
            let mut last = from;
            for layer in top + 1..bottom {
                let bend = self.add(Kind::Bend, vec![]);
                self.nodes[bend].layer = layer;
                self.edges.insert((last, bend), bytes);
                last = bend;
            }
            self.edges.insert((last, to), bytes);
        }
        // An input that nothing here reads says nothing.
        for (i, used) in used.iter().enumerate().filter(|(_, used)| !**used) {
            debug_assert!(!used);
            self.nodes[i].lines.clear();
        }
    }

    /// Moves boxes to the middle of their neighbours, downwards and upwards in turn.
    fn order(&mut self) {
        let layers = self.nodes.iter().map(|n| n.layer + 1).max().unwrap_or(0);
        let mut rows: Vec<Vec<usize>> = vec![vec![]; layers];
        for (i, n) in self.nodes.iter().enumerate() {
            if n.kind == Kind::Bend || !n.lines.is_empty() {
                rows[n.layer].push(i);
            }
        }
        for row in &rows {
            self.spread(row, &|i| i as f64);
        }
        for round in 0..ROUNDS {
            for step in 0..layers {
                let down = round % 2 == 0;
                let layer = if down { step } else { layers - 1 - step };
                let wish = |i: usize| {
                    let near: Vec<f64> = self
                        .edges
                        .keys()
                        .filter_map(|(a, b)| match down {
                            true if *b == i => Some(self.nodes[*a].x),
                            false if *a == i => Some(self.nodes[*b].x),
                            _ => None,
                        })
                        .collect();
                    match near.len() {
                        0 => self.nodes[i].x,
                        n => near.iter().sum::<f64>() / n as f64,
                    }
                };
                let wishes: BTreeMap<usize, f64> =
                    rows[layer].iter().map(|i| (*i, wish(*i))).collect();
                rows[layer].sort_by(|a, b| wishes[a].total_cmp(&wishes[b]).then(a.cmp(b)));
                let row = rows[layer].clone();
                self.spread(&row, &|i| wishes[&i]);
            }
        }
    }

    /// Puts a row's boxes in order near where they wish to be, none over another.
    fn spread(&mut self, row: &[usize], wish: &dyn Fn(usize) -> f64) {
        let mut edge = f64::NEG_INFINITY;
        let mut off = 0.0;
        for i in row {
            let half = self.nodes[*i].width() / 2.0;
            let x = wish(*i).max(edge + half);
            off += x - wish(*i);
            edge = x + half + GAP;
            self.nodes[*i].x = x;
        }
        let shift = if row.is_empty() { 0.0 } else { off / row.len() as f64 };
        row.iter().for_each(|i| self.nodes[*i].x -= shift);
    }

    fn svg(&self, name: &str) -> String {
        let shown = || self.nodes.iter().filter(|n| n.kind == Kind::Bend || !n.lines.is_empty());
        let left = shown().map(|n| n.x - n.width() / 2.0).fold(f64::INFINITY, f64::min);
        let right = shown().map(|n| n.x + n.width() / 2.0).fold(f64::NEG_INFINITY, f64::max);
        let layers = self.nodes.iter().map(|n| n.layer + 1).max().unwrap_or(0);
        let mut top = 64.0;
        let mut tops = vec![];
        for layer in 0..layers {
            let of = self.nodes.iter().filter(|n| n.layer == layer);
            let height = of.map(Node::height).fold(0.0, f64::max);
            tops.push((top, height));
            top += height + RISE;
        }
        let width = if left.is_finite() { (right - left + 40.0).max(560.0) } else { 560.0 };
        let (dx, height) = (20.0 - if left.is_finite() { left } else { 0.0 }, top - RISE + 30.0);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"20\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{}</text>\n\
             <text x=\"20\" y=\"42\" fill=\"#555555\">blue: a cluster, one kernel; grey: a product or \
             sequence op; green: saved; the width of a line is its bytes</text>\n",
            escaped(name)
        );
        let most = self.edges.values().copied().max().unwrap_or(1).max(1) as f64;
        let middle = |n: &Node| tops[n.layer].0 + tops[n.layer].1 / 2.0;
        for ((a, b), bytes) in &self.edges {
            let (from, to) = (&self.nodes[*a], &self.nodes[*b]);
            let (x1, y1) = (from.x + dx, middle(from) + from.height() / 2.0);
            let (x2, y2) = (to.x + dx, middle(to) - to.height() / 2.0);
            let half = (y1 + y2) / 2.0;
            let stroke = 1.0 + (WIDEST - 1.0) * *bytes as f64 / most;
            let colour = if self.saves(*b) { "#8cc09a" } else { "#b4bccb" };
            let _ = writeln!(
                out,
                "<path d=\"M{x1:.1} {y1:.1}C{x1:.1} {half:.1} {x2:.1} {half:.1} {x2:.1} {y2:.1}\" \
                 fill=\"none\" stroke=\"{colour}\" stroke-width=\"{stroke:.1}\" \
                 stroke-opacity=\"0.8\"><title>{}</title></path>",
                human(*bytes)
            );
        }
        for n in self.nodes.iter().filter(|n| n.kind != Kind::Bend && !n.lines.is_empty()) {
            let (w, h) = (n.width(), n.height());
            let (x, y) = (n.x + dx - w / 2.0, middle(n) - h / 2.0);
            let (fill, stroke, round) = match n.kind {
                Kind::Cluster => ("#d8e6fb", "#3867b0", 4),
                Kind::Cut => ("#ececec", "#8a8a8a", 4),
                Kind::Saved => ("#dcf1e1", "#3c8a52", 12),
                _ => ("#fff6dc", "#b08d38", 12),
            };
            let _ = writeln!(
                out,
                "<g><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" \
                 height=\"{h:.1}\" rx=\"{round}\" fill=\"{fill}\" stroke=\"{stroke}\"/>",
                escaped(&n.tip)
            );
            for (i, line) in n.lines.iter().enumerate() {
                let weight = if i == 0 && n.kind == Kind::Cluster { "bold" } else { "normal" };
                let _ = writeln!(
                    out,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
                     font-weight=\"{weight}\">{}</text>",
                    n.x + dx,
                    y + 16.0 + LINE * i as f64,
                    escaped(line)
                );
            }
            out.push_str("</g>\n");
        }
        out.push_str("</svg>\n");
        out
    }

    /// Whether a line leads to what is saved, at its end.
    fn saves(&self, mut to: usize) -> bool {
        while self.nodes[to].kind == Kind::Bend {
            match self.edges.keys().find(|(from, _)| *from == to) {
                Some((_, next)) => to = *next,
                None => return false,
            }
        }
        self.nodes[to].kind == Kind::Saved
    }
}

/// What a cluster's box says: its families, its function's number, and what it moves.
fn told(c: &Cluster) -> Vec<String> {
    let number = c.cluster.rsplit('.').next().unwrap_or_default();
    let mut lines: Vec<String> = c.label.split('+').map(str::to_string).collect();
    lines.push(format!("{number}  {} ops  {}", c.ops, human(c.bytes_after)));
    lines
}

fn human(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
