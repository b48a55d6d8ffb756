//! The parameters of a program: where each stands in the spec, and how many numbers they are.

use indexmap::IndexMap;
use vlmc_data::checkpoint::Wanted;
use vlmc_data::init::Distribution;
use vlmc_frontend::elab::Library;
use vlmc_frontend::syntax::ast::{Member, Span};
use vlmc_ir::graph::{Function, Init, Param, Program, join_name};
use vlmc_ir::ops::Op;

/// A parameter of a program.
#[derive(Clone, Debug)]
pub struct Parameter<'p> {
    /// Path in the spec: `decoder.3.mixer.q_proj`.
    pub path: String,
    /// Name in checkpoints.
    pub name: String,
    /// Second stored form, with full names.
    pub each: Vec<String>,
    /// Its declaration.
    pub param: &'p Param,
}

/// Every parameter once, in the order of first use. Two declarations with one checkpoint name are
/// two entries.
pub fn parameters(program: &Program) -> Vec<Parameter<'_>> {
    let mut out: IndexMap<(String, String), Parameter<'_>> = IndexMap::new();
    if let Some(main) = program.main() {
        collect(program, main, ("", ""), 0, &mut out);
    }
    out.into_values().collect()
}

fn collect<'p>(
    program: &'p Program,
    function: &'p Function,
    (path, scope): (&str, &str),
    depth: usize,
    out: &mut IndexMap<(String, String), Parameter<'p>>,
) {
    for param in &function.params {
        let (path, name) = (join_name(path, &param.name), join_name(scope, &param.key));
        let each = param.each.iter().map(|e| join_name(scope, e)).collect();
        out.entry((name.clone(), path.clone())).or_insert(Parameter { path, name, each, param });
    }
    for node in &function.nodes {
        let Op::Call { callee, scope: inner, path: below, .. } = &node.op else { continue };
        // Callees come before callers, so the depth is bounded in verified programs.
        if let Some(callee) = program.function(callee)
            && depth < program.functions.len()
        {
            let (path, scope) = (join_name(path, below), join_name(scope, inner));
            collect(program, callee, (&path, &scope), depth + 1, out);
        }
    }
}

impl Parameter<'_> {
    /// Its sizes; `None` when one is known only at run time.
    pub fn shape(&self) -> Option<Vec<usize>> {
        let size = |d: &vlmc_ir::dim::Dim| usize::try_from(d.size().as_constant()?).ok();
        self.param.ty.dims.iter().map(size).collect()
    }

    /// How many numbers it holds.
    pub fn count(&self) -> Option<i64> {
        self.param.ty.elements().as_constant()
    }

    /// What a checkpoint must hold for it.
    pub fn wanted(&self) -> Option<Wanted> {
        let shape = self.shape()?;
        let joined = shape.get(1).copied().unwrap_or(0);
        let segments = self.param.ty.dims.get(1).map(|d| d.segments()).unwrap_or_default();
        let size = |i: usize| match segments.get(i) {
            Some((_, p)) if segments.len() == self.each.len() => {
                p.as_constant().and_then(|c| usize::try_from(c).ok()).unwrap_or(0)
            }
            _ => joined / self.each.len().max(1),
        };
        let each = self.each.iter().enumerate().map(|(i, e)| (e.clone(), size(i))).collect();
        Some(Wanted { path: self.path.clone(), name: self.name.clone(), shape, each })
    }

    /// How it starts.
    pub fn distribution(&self) -> Distribution {
        distribution(&self.param.init)
    }
}

/// The same distribution in the words of the host side.
pub fn distribution(init: &Init) -> Distribution {
    match *init {
        Init::Constant(value) => Distribution::Constant(value),
        Init::Normal(deviation) => Distribution::Normal(deviation),
        Init::Uniform(low, high) => Distribution::Uniform(low, high),
        Init::LogUniform(low, high) => Distribution::LogUniform(low, high),
    }
}

/// How many numbers each part of a model holds.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// All of them.
    pub total: i64,
    /// By the first word of the path, in the order of the spec.
    pub parts: IndexMap<String, i64>,
}

/// Counts parameters. A tensor that two declarations share counts once, for the first.
pub fn count(lib: &Library, program: &Program) -> Counts {
    let mut counts = Counts::default();
    for name in part_names(lib) {
        counts.parts.insert(name, 0);
    }
    let mut seen = std::collections::BTreeSet::new();
    for p in parameters(program) {
        let n = p.count().unwrap_or(0);
        if seen.insert(p.name.clone()) {
            let first = p.path.split('.').next().unwrap_or_default().to_string();
            let part = counts.parts.entry(first).or_default();
            *part = part.saturating_add(n);
            counts.total = counts.total.saturating_add(n);
        }
    }
    counts.parts.retain(|_, n| *n > 0);
    counts
}

/// Names of the parts and parameters of the model, in order.
fn part_names(lib: &Library) -> Vec<String> {
    let Some(model) = lib.model() else { return vec![] };
    let name = |m: &Member| match m {
        Member::Part(p) => Some(p.name.name.clone()),
        Member::Param(p) => Some(p.name.name.clone()),
        _ => None,
    };
    model.ast.members.iter().filter_map(name).collect()
}

/// Parts of the model that exist only under a condition, with its text.
pub fn optional_parts(lib: &Library) -> Vec<(String, String)> {
    let Some(model) = lib.model() else { return vec![] };
    let text =
        |span: Span| lib.sources.snippet(span).split_whitespace().collect::<Vec<_>>().join(" ");
    let part = |m: &Member| match m {
        Member::Part(p) => Some((p.name.name.clone(), text(p.when.as_ref()?.span))),
        Member::Param(p) => Some((p.name.name.clone(), text(p.when.as_ref()?.span))),
        _ => None,
    };
    model.ast.members.iter().filter_map(part).collect()
}
