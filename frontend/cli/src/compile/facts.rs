//! What an artifact says of a program: its losses, parameters and capacities.

use super::Capacity;
use anyhow::{Result, anyhow, bail};
use indexmap::IndexMap;
use vlmc_artifact as artifact;
use vlmc_data::host_fn;
use vlmc_data::pack::alignment;
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, Output, OutputKind, Param, Program, join_name};
use vlmc_ir::ops::Op;

pub(super) fn losses(p: &Program) -> Vec<artifact::Loss> {
    let outputs = p.main().into_iter().flat_map(|f| &f.outputs);
    outputs
        .filter_map(|o| match o.kind {
            OutputKind::Loss { weight, .. } => Some(artifact::Loss { name: label(o), weight }),
            _ => None,
        })
        .collect()
}

pub(crate) fn label(o: &Output) -> String {
    o.name.as_ref().map(|n| n.to_string()).unwrap_or_default()
}

/// Capacities as sizes.
pub fn sizes(capacities: &IndexMap<String, u64>) -> Sizes {
    let mut sizes = Sizes::default();
    for (name, v) in capacities {
        sizes.set(&Symbol::new(name), usize::try_from(*v).unwrap_or(usize::MAX));
    }
    sizes
}

/// Every parameter of the forward program; those with a gradient are trained.
pub(super) fn parameters(forward: &Program, joint: &Program) -> Result<Vec<artifact::Parameter>> {
    let main = joint.main().ok_or_else(|| anyhow!("the program is empty"))?;
    let gradients: Vec<String> =
        main.outputs.iter().filter(|o| matches!(o.kind, OutputKind::Gradient)).map(label).collect();
    forward
        .parameters()
        .into_iter()
        .map(|(name, p)| {
            let shape = p.ty.dims.iter().map(|d| {
                let size = d.size().as_constant().and_then(|c| usize::try_from(c).ok());
                size.ok_or_else(|| anyhow!("`{name}` has no fixed shape"))
            });
            Ok(artifact::Parameter {
                each: each(p, &name),
                shape: shape.collect::<Result<_>>()?,
                dtype: p.ty.dtype.name().to_string(),
                init: init(p),
                decay: p.decay,
                path: p.name.to_string(),
                trained: gradients.contains(&name),
                name,
            })
        })
        .collect()
}

/// The second stored form under full names, with the sizes of axis 1.
fn each(p: &Param, full: &str) -> Vec<(String, usize)> {
    let scope = full.strip_suffix(p.key.as_str()).map(|s| s.trim_end_matches('.')).unwrap_or("");
    let axis = p.ty.dims.get(1);
    let total = axis.and_then(|d| d.size().as_constant()).unwrap_or(0) as usize;
    let count = p.each.len().max(1);
    p.each
        .iter()
        .enumerate()
        .map(|(i, e)| {
            let segment = axis.and_then(|d| d.segments().get(i)).and_then(|(_, s)| s.as_constant());
            let size = segment.and_then(|s| usize::try_from(s).ok()).unwrap_or(total / count);
            (join_name(scope, e), size)
        })
        .collect()
}

fn init(p: &Param) -> artifact::Init {
    use vlmc_ir::graph::Init;
    match p.init {
        Init::Constant(v) => artifact::Init::Constant(v),
        Init::Normal(std) => artifact::Init::Normal(std),
        Init::Uniform(a, b) => artifact::Init::Uniform(a, b),
        Init::LogUniform(a, b) => artifact::Init::LogUniform(a, b),
    }
}

/// The value of each run-time symbol, from the inputs whose sizes the capacities tell.
pub(crate) fn capacities(
    joint: &Program,
    capacity: &Capacity,
    cp: usize,
) -> Result<IndexMap<String, u64>> {
    let multiple = alignment(cp);
    if !capacity.tokens.is_multiple_of(multiple) {
        bail!(
            "{} tokens are no multiple of {multiple}, and {cp} context-parallel ranks take two \
             equal runs of every document each; the next are {} and {}",
            capacity.tokens,
            capacity.tokens / multiple * multiple,
            capacity.tokens.next_multiple_of(multiple)
        );
    }
    let main = joint.main().ok_or_else(|| anyhow!("the program is empty"))?;
    let mut sizes = Sizes::default();
    let mut pairs = vec![];
    for input in &main.inputs {
        let Some(from) = &input.from else { continue };
        let function = host_fn::find(&from.function)?;
        for (dim, text) in input.ty.dims.iter().zip(function.dims) {
            let (symbol, extra) = text.split_once(" + ").unwrap_or((text, "0"));
            if let (Some(v), Ok(extra)) = (capacity.of(symbol, cp), extra.parse::<usize>()) {
                pairs.push((dim, v + extra));
            }
        }
    }
    sizes.solve(pairs.iter().map(|(d, v)| (*d, *v))).map_err(|e| {
        anyhow!("the capacities do not fit the model: {e}; see --tokens, --max-docs, --max-patches")
    })?;
    let mut out = IndexMap::new();
    for s in &joint.symbols {
        let v = sizes
            .get(&s.symbol)
            .ok_or_else(|| anyhow!("no input tells the capacity of `{}`", s.symbol))?;
        out.insert(s.symbol.to_string(), v as u64);
    }
    // A batch is read even when no program needs its documents.
    out.entry("T".to_string()).or_insert((capacity.tokens / cp.max(1)) as u64);
    out.entry("docs".to_string()).or_insert(capacity.docs as u64);
    out.sort_keys();
    Ok(out)
}

/// Rows of the smallest table that the batch's token ids look up.
pub fn vocabulary(p: &Program) -> Option<u64> {
    let main = p.main()?;
    let ids = |i: &vlmc_ir::graph::Input| {
        i.from.as_ref().is_some_and(|from| from.function == "input_ids")
    };
    tables(p, main, &main.inputs.iter().map(ids).collect::<Vec<bool>>()).into_iter().min()
}

/// Rows of the tables that a function and those it calls index with the inputs marked in `ids`.
fn tables(p: &Program, f: &Function, ids: &[bool]) -> Vec<u64> {
    let is_ids = |v: &vlmc_ir::graph::Value| match f.nodes.get(v.node.0 as usize).map(|n| &n.op) {
        Some(Op::Input { index }) => ids.get(*index as usize).copied().unwrap_or(false),
        _ => false,
    };
    let mut rows = vec![];
    for n in &f.nodes {
        match &n.op {
            Op::Gather => {
                if let [table, index] = &n.operands[..]
                    && is_ids(index)
                {
                    let size = f.ty(*table).dims.first().and_then(|d| d.size().as_constant());
                    rows.extend(size.and_then(|v| u64::try_from(v).ok()));
                }
            }
            Op::Call { callee, .. } => {
                let marked: Vec<bool> = n.operands.iter().map(is_ids).collect();
                let called = p.functions.iter().find(|g| g.name == **callee);
                if let Some(g) = called.filter(|_| marked.contains(&true)) {
                    rows.extend(tables(p, g, &marked));
                }
            }
            _ => {}
        }
    }
    rows
}

/// The symbol that counts the rows of a rank: that of the token ids.
pub(super) fn rows_symbol(p: &Program) -> Result<Symbol> {
    let inputs = p.main().into_iter().flat_map(|f| &f.inputs);
    let mut ids = inputs.filter(|i| i.from.as_ref().is_some_and(|f| f.function == "input_ids"));
    let dims = ids.next().and_then(|i| i.ty.dims.first().cloned());
    let symbols = dims.map(|d| d.size().symbols()).unwrap_or_default();
    match &symbols[..] {
        [one] => Ok(one.clone()),
        _ => bail!("context parallelism needs an input of token ids, whose rows it deals out"),
    }
}
