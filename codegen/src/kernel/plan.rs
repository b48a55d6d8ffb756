//! What a kernel stores, and how the work is laid out on rows, groups and lanes.
//!
//! Every output is taken apart into *pieces*, which are stored to disjoint places of it. Pieces that
//! share work become one *section*, walked together; a launch is a list of sections side by side on
//! the first axis of the grid. A sum over rows is a piece of its own: an accumulator for each
//! element of a row, stored once a strip, which a second launch adds up in a fixed order.

use super::Refusal;
use super::body::{Body, fixed};
use super::index::Ix;
use rustc_hash::FxHashSet;
use vlmc_ir::dim::Poly;
use vlmc_ir::graph::Value;
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::DType;

/// One step from an element of a piece to the place in the output.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// Adds to the index of an axis.
    Shift(usize, i64),
    /// From these dims to those.
    Reshape(Value, Value),
}

/// Where the values of a piece go.
#[derive(Clone, Debug)]
pub(crate) enum To {
    Output {
        output: usize,
        value: Value,
        path: Vec<Way>,
    },
    /// A sum over rows: `taps` accumulators an element.
    Partial {
        node: Value,
        scratch: usize,
        taps: i64,
    },
}

/// Values that are stored alike.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) value: Value,
    pub(crate) to: To,
    /// Whether the outermost dim is the axis of rows.
    pub(crate) rows: bool,
    /// Elements of a row.
    pub(crate) total: i64,
    /// Elements of a row in one group.
    pub(crate) width: i64,
}

/// Pieces that are walked together.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) rows: Poly,
    pub(crate) groups: i64,
    pub(crate) pieces: Vec<Piece>,
    /// Elements a lane.
    pub(crate) vector: i64,
    /// Rows a team, and rows computed together.
    pub(crate) strip: i64,
    pub(crate) unroll: i64,
    /// Whether the chunks of a group are a loop.
    pub(crate) looped: bool,
}

/// Partial sums: elements of a row times taps, for each strip.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    pub(crate) node: Value,
    pub(crate) elements: i64,
    pub(crate) rows: Poly,
    /// Rows that one partial sum stands for.
    pub(crate) per: i64,
}

/// How a launch is laid out.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) lanes: i64,
    pub(crate) warps: i64,
    pub(crate) teams: i64,
    pub(crate) sections: Vec<Section>,
}

/// What may be chosen for a target.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Lanes of a warp, or elements of a vector on the host.
    pub lanes: i64,
    /// Elements that a lane may hold of one row.
    pub held: i64,
    /// Warps of a block.
    pub block: i64,
    /// Rows a team: of plain sections, of those with windows, of those with accumulators.
    pub strip: [i64; 3],
    /// Rows computed together.
    pub unroll: i64,
    /// Elements a lane at most.
    pub vector: i64,
    /// Stages of the ring that rows are fetched through; 0 for none.
    pub stages: i64,
    /// Blocks on a multiprocessor at least, where there are accumulators.
    pub resident: i64,
    /// Elements of a lane, over rows computed together, above which fewer rows are.
    pub together: i64,
    /// Whether rows in the middle of a document have code of their own, without masks.
    pub split: bool,
}

impl Shape {
    /// A warp of 32 threads.
    pub const GPU: Shape = Shape {
        lanes: 32,
        held: 16,
        block: 4,
        strip: [4, 16, 32],
        unroll: 4,
        vector: 8,
        stages: 3,
        resident: 0,
        together: 32,
        split: true,
    };
    /// One vector of 16 elements.
    pub const HOST: Shape = Shape {
        lanes: 16,
        held: 16,
        block: 1,
        strip: [32, 32, 32],
        unroll: 1,
        vector: 1,
        stages: 0,
        resident: 0,
        together: 64,
        split: false,
    };
}

/// Whether a value is an input, seen some way: what two readers of it share is a load.
fn is_view(body: &Body<'_>, v: Value) -> bool {
    let node = body.f.node(v.node);
    match node.op {
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } => true,
        ref op => op.info().class == Class::View && node.operands.iter().all(|x| is_view(body, *x)),
    }
}

/// Nodes of a body that are computed for a value, as far as rows go.
fn below(body: &Body<'_>, v: Value, out: &mut FxHashSet<Value>) {
    if !body.has_rows(v) || is_view(body, v) || !out.insert(v) {
        return;
    }
    body.f.node(v.node).operands.iter().for_each(|x| below(body, *x, out));
}

/// Whether a sum over rows is at or below each node.
pub(crate) fn summed(body: &Body<'_>) -> Vec<bool> {
    let mut out: Vec<bool> = vec![];
    for (i, node) in body.f.nodes.iter().enumerate() {
        let v = vlmc_ir::graph::NodeId(i as u32).into();
        out.push(body.sums_rows(v) || node.operands.iter().any(|x| out[x.node.0 as usize]));
    }
    out
}

/// The pieces of an output that stands for `value` along `path`.
fn peel(
    body: &Body<'_>,
    v: Value,
    path: &[Way],
    out: &mut Vec<(Value, Vec<Way>)>,
) -> Result<(), Refusal> {
    let node = body.f.node(v.node);
    match &node.op {
        Op::Concat { axis } if joins(body, v) => {
            let mut at = 0;
            for x in &node.operands {
                let mut way = vec![Way::Shift(*axis as usize, at)];
                way.extend_from_slice(path);
                peel(body, *x, &way, out)?;
                let size = fixed(&body.dims(*x)[*axis as usize]);
                at += size.ok_or_else(|| body.refuse(v, "joins rows"))?;
            }
        }
        Op::Reshape { .. } if leads_to_concat(body, node.operands[0]) => {
            let mut way = vec![Way::Reshape(node.operands[0], v)];
            way.extend_from_slice(path);
            peel(body, node.operands[0], &way, out)?;
        }
        _ => out.push((v, path.to_vec())),
    }
    Ok(())
}

/// A concatenation in a row, or of parameters.
fn joins(body: &Body<'_>, v: Value) -> bool {
    let Op::Concat { axis } = body.op(v) else { return false };
    *axis > 0 || !body.has_rows(v)
}

fn leads_to_concat(body: &Body<'_>, v: Value) -> bool {
    match body.op(v) {
        Op::Concat { .. } => joins(body, v),
        Op::Reshape { .. } => leads_to_concat(body, body.f.node(v.node).operands[0]),
        _ => false,
    }
}

/// The two launches of a cluster: rows, and sums over partial sums where there are any.
///
/// # Errors
/// Says what a row program cannot hold.
pub(crate) fn plan(
    body: &Body<'_>,
    shape: &Shape,
) -> Result<(Plan, Vec<Partial>, Option<Plan>), Refusal> {
    let summed = summed(body);
    let (mut rows, mut sums, mut partials) = (vec![], vec![], vec![]);
    for (output, o) in body.f.outputs.iter().enumerate() {
        let mut pieces = vec![];
        peel(body, o.value, &[], &mut pieces)?;
        for (value, path) in pieces {
            let level = summed[value.node.0 as usize];
            if level && body.has_rows(value) {
                return Err(body.refuse(value, "uses a sum over rows in every row"));
            }
            let dims = body.dims(value);
            let by_rows = !level && (dims.len() > 1 || body.has_rows(value));
            let total = if by_rows { body.inner(value)? } else { body.extent(value, dims)? };
            let to = To::Output { output, value: o.value, path };
            let piece = Piece { value, to, rows: by_rows, total, width: total };
            if level { sums.push(piece) } else { rows.push(piece) }
        }
    }
    for (i, node) in body.f.nodes.iter().enumerate() {
        let v: Value = vlmc_ir::graph::NodeId(i as u32).into();
        if !body.sums_rows(v) || !needed(body, v, &sums) {
            continue;
        }
        if node.operands.iter().any(|x| summed[x.node.0 as usize]) {
            return Err(body.refuse(v, "sums sums over rows"));
        }
        let x = node.operands[0];
        let taps = match &node.op {
            Op::CausalConv1dWeightGrad { taps, .. } => {
                fixed(taps).ok_or_else(|| body.refuse(v, "taps are known only when running"))?
            }
            Op::ReduceMax { .. } => return Err(body.refuse(v, "a maximum over rows")),
            _ => 1,
        };
        let total = body.inner(x)?;
        let to = To::Partial { node: v, scratch: partials.len(), taps };
        rows.push(Piece { value: x, to, rows: true, total, width: total });
        let count = body.dims(x)[0].size().clone();
        partials.push(Partial { node: v, elements: total * taps, rows: count, per: 0 });
    }
    let first = lay_out(body, rows, shape)?;
    for p in &mut partials {
        let section = first.sections.iter().find(|s| {
            s.pieces.iter().any(|q| matches!(&q.to, To::Partial { node, .. } if *node == p.node))
        });
        let section = section.ok_or_else(|| body.refuse(p.node, "has no section"))?;
        p.per = section.strip * if section.looped { 1 } else { first.teams };
    }
    let second = if sums.is_empty() { None } else { Some(second(body, sums, shape)) };
    Ok((first, partials, second))
}

fn needed(body: &Body<'_>, v: Value, sums: &[Piece]) -> bool {
    let mut open: Vec<Value> = sums.iter().map(|p| p.value).collect();
    let mut seen = FxHashSet::default();
    while let Some(x) = open.pop() {
        if x == v {
            return true;
        }
        if seen.insert(x) {
            open.extend(&body.f.node(x.node).operands);
        }
    }
    false
}

/// Reductions in rows below a value that lanes do together: elements kept, and elements reduced.
fn folds(body: &Body<'_>, of: &FxHashSet<Value>) -> Result<Vec<(i64, i64)>, Refusal> {
    let mut out = vec![];
    for v in of {
        let (Op::ReduceSum { axes } | Op::ReduceMax { axes }) = body.op(*v) else { continue };
        let x = body.f.node(v.node).operands[0];
        let rank = body.dims(x).len();
        let last = axes.iter().rev().zip((0..rank).rev()).all(|(a, i)| *a as usize == i);
        if !body.sums_rows(*v) && last && body.has_rows(*v) {
            let axes: Vec<usize> = axes.iter().map(|a| *a as usize).collect();
            out.push((body.inner(*v)?, body.folded(x, &axes)?));
        }
    }
    Ok(out)
}

fn lay_out(body: &Body<'_>, pieces: Vec<Piece>, shape: &Shape) -> Result<Plan, Refusal> {
    // Pieces that share work stand together.
    let mut parts: Vec<(FxHashSet<Value>, Vec<Piece>)> = vec![];
    for piece in pieces {
        let mut set = FxHashSet::default();
        below(body, piece.value, &mut set);
        if let To::Partial { node, .. } = piece.to {
            body.f.node(node.node).operands.iter().for_each(|x| below(body, *x, &mut set));
        }
        let rows = rows_of(body, &piece);
        let mut members = vec![piece];
        let mut rest = vec![];
        for (other, theirs) in parts {
            let alike = theirs.first().is_some_and(|p| rows_of(body, p) == rows);
            if alike && other.intersection(&set).next().is_some() {
                set.extend(other);
                members.splice(0..0, theirs);
            } else {
                rest.push((other, theirs));
            }
        }
        rest.push((set, members));
        parts = rest;
    }
    let mut out = Plan { lanes: shape.lanes, warps: 1, teams: 1, sections: vec![] };
    let mut warps = 1;
    let mut sections = vec![];
    for (set, members) in parts {
        let folds = folds(body, &set)?;
        let groups = folds.iter().map(|(kept, _)| *kept).max();
        // Pieces that the groups do not divide walk alone.
        let (together, alone): (Vec<Piece>, Vec<Piece>) =
            members.into_iter().partition(|p| groups.is_none_or(|g| p.total % g == 0));
        let extents: Vec<i64> = folds.iter().map(|(_, d)| *d).collect();
        let mut all = vec![];
        if !together.is_empty() {
            all.push((together, groups, extents.clone()));
        }
        all.extend(alone.into_iter().map(|p| (vec![p], None, extents.clone())));
        for (pieces, groups, extents) in all {
            let heavy =
                set.len() > 24 || !extents.is_empty() || set.iter().any(|v| is_stencil(body, *v));
            let stencil = set.iter().any(|v| is_stencil(body, *v));
            let weight = if heavy { Weight::Heavy { stencil } } else { Weight::Light };
            sections.push((
                section(body, pieces, groups, &extents, weight, shape),
                extents,
                set.len(),
            ));
        }
    }
    for (s, extents, _) in &mut sections {
        let widest =
            s.pieces.iter().map(|p| p.width).chain(extents.iter().copied()).max().unwrap_or(1);
        let span = s.vector * shape.lanes;
        let chunks = (widest + span - 1) / span;
        let fit = (shape.held / s.vector).max(1);
        let mut need = 1;
        while need < shape.block * 2 && chunks > fit * need && shape.block > 1 {
            need *= 2;
        }
        s.looped = chunks > fit * need;
        warps = warps.max(need);
    }
    out.warps = warps;
    out.teams = (shape.block / warps).max(1);
    // One grid: blocks have one number of rows.
    let strip = sections.iter().map(|(s, ..)| s.strip).max().unwrap_or(1);
    for (s, _, work) in &mut sections {
        s.strip = strip;
        let span = s.vector * shape.lanes * out.warps;
        let held = s.pieces.iter().map(|p| (p.width + span - 1) / span * s.vector).max();
        // The more a body computes, the more of it is live for each element.
        let held = held.unwrap_or(1).max(1);
        let fit = shape.together / (held * (1 + *work as i64 / 16));
        // So many registers are on their way from and to memory.
        let fit = fit.min(shape.together * 3 / (held * streams(body, s)));
        s.unroll = if s.looped { 1 } else { shape.unroll.min(strip).min(power(fit)) };
    }
    out.sections = sections.into_iter().map(|(s, ..)| s).collect();
    Ok(out)
}

/// How much a section computes.
#[derive(Clone, Copy)]
enum Weight {
    Light,
    Heavy { stencil: bool },
}

fn is_stencil(body: &Body<'_>, v: Value) -> bool {
    matches!(
        body.op(v),
        Op::CausalConv1d | Op::CausalConv1dInputGrad | Op::CausalConv1dWeightGrad { .. }
    )
}

fn rows_of(body: &Body<'_>, p: &Piece) -> Poly {
    match (p.rows, body.dims(p.value).first()) {
        (true, Some(d)) => d.size().clone(),
        _ => Poly::constant(1),
    }
}

fn section(
    body: &Body<'_>,
    mut pieces: Vec<Piece>,
    groups: Option<i64>,
    extents: &[i64],
    weight: Weight,
    shape: &Shape,
) -> Section {
    let widths: Vec<i64> = match groups {
        Some(g) => pieces.iter().map(|p| p.total / g).chain(extents.iter().copied()).collect(),
        None => pieces.iter().map(|p| p.total).chain(extents.iter().copied()).collect(),
    };
    let widest = widths.iter().copied().max().unwrap_or(1);
    // Windows of rows are held for each element; a row of lanes that is reduced should fit a warp.
    let most = match weight {
        Weight::Light => 8,
        Weight::Heavy { stencil: true } => 4,
        Weight::Heavy { stencil: false } => 4.max(widest.min(256) / shape.lanes),
    };
    let mut vector = shape.vector.min(most);
    let wide = || widths.iter().filter(|w| **w > 1);
    while vector > 1 && (wide().any(|w| w % vector != 0) || widest < vector * shape.lanes / 2) {
        vector /= 2;
    }
    let groups = groups.unwrap_or_else(|| {
        let total = pieces.iter().map(|p| p.total).max().unwrap_or(1);
        let tile = vector * shape.lanes;
        let alike = pieces.iter().all(|p| p.total == total);
        if alike && total > tile { (total + tile - 1) / tile } else { 1 }
    });
    for p in &mut pieces {
        let tile = vector * shape.lanes;
        p.width = if p.total % groups == 0 { p.total / groups } else { tile };
    }
    let sums = pieces.iter().any(|p| matches!(p.to, To::Partial { .. }));
    let rows = pieces.first().map_or(Poly::constant(1), |p| rows_of(body, p));
    let windows = matches!(weight, Weight::Heavy { stencil: true });
    let strip = match (rows.is(1), sums, windows) {
        (true, ..) => 1,
        (_, true, _) => shape.strip[2],
        (_, _, true) => shape.strip[1],
        _ => shape.strip[0],
    };
    Section { rows, groups, pieces, vector, strip, unroll: shape.unroll.min(strip), looped: false }
}

/// Sums of partial sums and what is made of them: no rows; the teams share the strips.
fn second(body: &Body<'_>, pieces: Vec<Piece>, shape: &Shape) -> Plan {
    let sections = pieces.into_iter().map(|p| {
        let mut s = section(body, vec![p], None, &[], Weight::Heavy { stencil: true }, shape);
        (s.strip, s.unroll) = (1, 1);
        s
    });
    let sections = sections.collect();
    Plan { lanes: shape.lanes, warps: 1, teams: if shape.lanes == 32 { 32 } else { 1 }, sections }
}

/// Tensors with rows that a section loads, and pieces that it stores.
fn streams(body: &Body<'_>, s: &Section) -> i64 {
    let mut open: Vec<Value> = s.pieces.iter().map(|p| p.value).collect();
    let (mut seen, mut inputs) = (FxHashSet::default(), 0);
    while let Some(v) = open.pop() {
        if !body.has_rows(v) || !seen.insert(v) {
            continue;
        }
        inputs += i64::from(matches!(body.op(v), Op::Input { .. }) && body.dtype(v) != DType::I32);
        open.extend(&body.f.node(v.node).operands);
    }
    inputs + s.pieces.len() as i64
}

/// The largest power of two that is not above a number; at least 1.
fn power(n: i64) -> i64 {
    if n < 2 { 1 } else { 1 << (63 - n.leading_zeros()) }
}

/// The index of an element of the output that a piece's element is.
pub(crate) fn forward(body: &Body<'_>, path: &[Way], mut at: Vec<Ix>) -> Result<Vec<Ix>, Refusal> {
    for way in path {
        match way {
            Way::Shift(axis, by) => at[*axis] = at[*axis].add(*by),
            Way::Reshape(from, to) => {
                let flat = body.flatten(*from, &at, body.dims(*from))?;
                at = body.unflatten(*to, flat, body.dims(*to))?;
            }
        }
    }
    Ok(at)
}

/// Bytes of an element.
pub(crate) fn bytes(d: DType) -> i64 {
    d.bytes() as i64
}
