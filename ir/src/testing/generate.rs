//! Random programs that verify.

use super::operands::Builder;
use super::{Random, SYMBOLS};
use crate::dim::{Dim, Symbol, product};
use crate::graph::{
    Function, NodeId, Origin, Output, OutputKind, Program, Region, RegionId, SymbolDecl, Value,
};
use crate::ops::{Comparison, Effect, Op, Scalar};
use crate::ty::{DType, MeshAxis, Ty};

/// A program of one to four functions. It verifies, and prints as text that reads back equal.
pub fn random_program(rng: &mut Random) -> Program {
    let symbols = SYMBOLS
        .iter()
        .map(|(name, multiple_of, _)| SymbolDecl {
            symbol: Symbol::new(name),
            multiple_of: *multiple_of,
        })
        .collect();
    let mut p = Program {
        name: "random \"quoted\" \\ name".to_string(),
        variant: if rng.chance(50) { "v".to_string() } else { String::new() },
        symbols,
        files: vec!["a.vlm".to_string(), "b\nc.vlm".to_string()],
        functions: vec![],
    };
    let count = 1 + rng.below(4);
    for tag in 0..count {
        let is_main = tag + 1 == count;
        let name = if is_main { "main".to_string() } else { format!("part.f{tag}") };
        let mut b = Builder { f: Function::new(name), rng: &mut *rng, is_main, tag };
        let mut regions = Regions::default();
        for _ in 0..3 + b.rng.below(12) {
            let before = b.f.nodes.len();
            if !p.functions.is_empty() && b.rng.chance(15) {
                call(&mut b, &p.functions);
            } else {
                // Index 3 on: what comes before is structure, which is made where it is needed.
                let names = Op::all();
                let i = 3 + b.rng.below(names.len() - 3);
                node(&mut b, names[i].name);
            }
            if b.rng.chance(15) {
                twin(&mut b);
            }
            decorate(&mut b, &mut regions, before);
        }
        outputs(&mut b);
        p.functions.push(b.f);
    }
    p
}

/// Adds a node that computes what another one does.
fn twin(b: &mut Builder<'_>) {
    let i = b.rng.below(b.f.nodes.len());
    let node = b.f.nodes[i].clone();
    if node.op.info().effect == Effect::Pure {
        let id = b.f.push_node(node.op, node.operands, node.tys, None);
        b.f.nodes[id.0 as usize].region = node.region;
    }
}

/// Regions of a function by their path, made at first use as the parser does.
#[derive(Default)]
struct Regions(Vec<(String, RegionId)>);

/// Names, regions and origins of the nodes added since `before`.
fn decorate(b: &mut Builder<'_>, regions: &mut Regions, before: usize) {
    for i in before..b.f.nodes.len() {
        if b.f.nodes[i].name.is_none() && b.rng.chance(40) {
            b.f.nodes[i].name = Some(format!("n{i}.x").into());
        }
        if b.rng.chance(30) {
            b.f.nodes[i].region = Some(region(b, regions));
        }
        for k in 0..[0, 0, 1, 3][b.rng.below(4)] {
            let origin = Origin {
                path: format!("mixer.\"{k}\"\\").into(),
                file: b.rng.below(2) as u32,
                line: b.rng.below(500) as u32,
                column: b.rng.below(80) as u32,
            };
            b.f.nodes[i].origins.push(origin);
        }
    }
}

fn region(b: &mut Builder<'_>, regions: &mut Regions) -> RegionId {
    let (mut path, mut at) = (String::new(), None);
    loop {
        let name = b.pick(&["core", "outer", "r1"]);
        path = format!("{path}/{name}");
        let known = regions.0.iter().find(|(p, _)| *p == path).map(|(_, id)| *id);
        let id = known.unwrap_or_else(|| {
            let id = RegionId(b.f.regions.len() as u32);
            b.f.regions.push(Region { name: name.into(), parent: at });
            regions.0.push((path.clone(), id));
            id
        });
        at = Some(id);
        if !b.rng.chance(30) {
            return id;
        }
    }
}

fn outputs(b: &mut Builder<'_>) {
    for i in 0..1 + b.rng.below(3) {
        let node = NodeId(b.rng.below(b.f.nodes.len()) as u32);
        let results = b.f.node(node).tys.len();
        if results > 0 {
            let value = Value { node, result: b.rng.below(results) as u32 };
            let name = (b.is_main || b.rng.chance(30)).then(|| format!("out {i}"));
            b.f.add_output(name.as_deref(), value);
        }
    }
    if b.is_main && b.rng.chance(60) {
        let (value, count) = (b.value_of(DType::F32, &[]), b.value_of(DType::F32, &[]));
        let kind = OutputKind::Loss { count, weight: b.rng.real() };
        b.f.outputs.push(Output { name: Some("loss".into()), value, kind });
    }
}

fn call(b: &mut Builder<'_>, functions: &[Function]) {
    let f = &functions[b.rng.below(functions.len())];
    let arguments = f
        .inputs
        .iter()
        .map(|i| match &*i.name {
            name @ ("cu" | "padded") => b.boundary(name),
            _ => b.value(&i.ty),
        })
        .collect();
    let layer = b.rng.chance(50).then(|| b.rng.below(60) as u32);
    let op = Op::Call {
        callee: f.name.clone(),
        scope: format!("layers.{}", b.rng.below(3)),
        path: "decoder".to_string(),
        layer,
    };
    let tys = f.outputs.iter().map(|o| f.ty(o.value).clone()).collect();
    b.f.push_node(op, arguments, tys, None);
}

fn push(b: &mut Builder<'_>, op: Op, operands: &[Value]) {
    let pushed = b.f.push(op, operands);
    debug_assert!(pushed.is_ok(), "the generator made a node that does not fit: {pushed:?}");
}

fn t() -> Dim {
    Dim::symbol("T")
}

/// Adds a node of the op of this name, and the operands it needs.
fn node(b: &mut Builder<'_>, name: &str) {
    let has_attributes = Op::all().iter().any(|i| i.name == name && !i.attributes.is_empty());
    if !has_attributes && let Some(Ok(op)) = Op::from_attributes(name, &mut |_, _| None) {
        return plain(b, op);
    }
    match name {
        "constant" => {
            let dtype = b.pick(&DType::ALL);
            let value = if dtype.is_float() { b.scalar() } else { Scalar(1.0) };
            let shape = b.dims(3);
            push(b, Op::Constant { value, dtype, shape }, &[]);
        }
        "iota" => {
            let mut shape = b.dims(2);
            shape.push(b.dim());
            let axis = b.rng.below(shape.len()) as u32;
            push(b, Op::Iota { shape, axis }, &[]);
        }
        "cast" => {
            let (from, dtype) = (b.pick(&DType::ALL), b.pick(&DType::ALL));
            let ty = b.elementwise_ty(from);
            let x = b.value(&ty);
            push(b, Op::Cast { dtype }, &[x]);
        }
        "compare" => {
            let kind = b.pick(&Comparison::ALL);
            let dtype = b.pick(&[DType::Bf16, DType::F32, DType::I32]);
            let ty = b.elementwise_ty(dtype);
            let operands = [b.value(&ty), b.value(&ty)];
            push(b, Op::Compare { kind }, &operands);
        }
        "reduce_sum" | "reduce_max" => {
            let dims = b.dims(3);
            let axes = (0..dims.len() as u32).filter(|_| b.rng.chance(50)).collect();
            let dtype = b.pick(&[DType::Bf16, DType::F32, DType::I32]);
            let x = b.value_of(dtype, &dims);
            let sum = name == "reduce_sum";
            push(b, if sum { Op::ReduceSum { axes } } else { Op::ReduceMax { axes } }, &[x]);
        }
        "contract" => contract(b),
        "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "shard" | "unshard" => {
            collective(b, name);
        }
        _ if movement(b, name) => {}
        _ => rows(b, name),
    }
}

/// Ops without attributes.
fn plain(b: &mut Builder<'_>, op: Op) {
    let dtype = match op {
        Op::Not | Op::And | Op::Or => DType::Bool,
        Op::Rem => DType::I32,
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Max | Op::Min | Op::Neg => {
            b.pick(&[DType::Bf16, DType::F32, DType::I32])
        }
        _ => b.float(),
    };
    let operands = match op {
        Op::Select => {
            let ty = b.elementwise_ty(dtype);
            vec![b.value(&ty.with_dtype(DType::Bool)), b.value(&ty), b.value(&ty)]
        }
        Op::Gather => {
            let mut dims = b.dims(2);
            dims.insert(0, b.dim());
            let index = b.dims(2);
            vec![b.value_of(dtype, &dims), b.value_of(DType::I32, &index)]
        }
        Op::CausalConv1d | Op::CausalConv1dInputGrad => {
            let (channels, taps) = (b.dim(), b.dim());
            let x = b.value_of(dtype, &[t(), channels.clone()]);
            let w = b.value_of(dtype, &[channels, taps]);
            let [cu, padded] = b.boundaries();
            vec![x, w, cu, padded]
        }
        Op::GatedDeltaRule => delta_rule(b),
        Op::GatedDeltaRuleGrad => delta_rule_grad(b),
        _ => {
            let ty = b.elementwise_ty(dtype);
            (0..op.info().operands.len()).map(|_| b.value(&ty)).collect()
        }
    };
    push(b, op, &operands);
}

fn delta_rule(b: &mut Builder<'_>) -> Vec<Value> {
    let (key_heads, group) = (b.small(), b.small());
    let (heads, dk, dv) = (Dim::from(key_heads * group), b.dim(), b.dim());
    let key = [t(), Dim::from(key_heads), dk.clone()];
    let (q, k) = (b.float(), b.float());
    let mut operands = vec![b.value_of(q, &key), b.value_of(k, &key)];
    let v = b.float();
    operands.push(b.value_of(v, &[t(), heads.clone(), dv.clone()]));
    operands.push(b.value_of(DType::F32, &[t(), heads.clone()]));
    let beta = b.float();
    operands.push(b.value_of(beta, &[t(), heads.clone()]));
    operands.extend(b.boundaries());
    if b.rng.chance(50) {
        operands.push(b.value_of(DType::F32, &[Dim::symbol("docs"), heads, dk, dv]));
    }
    operands
}

fn delta_rule_grad(b: &mut Builder<'_>) -> Vec<Value> {
    let mut operands = delta_rule(b);
    let (v, state) = (b.f.ty(operands[2]).clone(), operands.get(7).copied());
    operands.insert(5, b.value(&v));
    if let Some(ty) = state.map(|s| b.f.ty(s).clone())
        && b.rng.chance(50)
    {
        operands.push(b.value(&ty));
    }
    operands
}

fn contract(b: &mut Builder<'_>) {
    let (mut a_dims, mut b_dims): (Vec<Dim>, Vec<Dim>) = (vec![], vec![]);
    let (mut batch, mut contracted) = ((vec![], vec![]), (vec![], vec![]));
    for _ in 0..b.rng.below(5) {
        let d = b.dim();
        match b.rng.below(4) {
            0 => a_dims.push(d),
            1 => b_dims.push(d),
            kind => {
                let pair = if kind == 2 { &mut batch } else { &mut contracted };
                pair.0.push(a_dims.len() as u32);
                pair.1.push(b_dims.len() as u32);
                a_dims.push(d.clone());
                b_dims.push(d);
            }
        }
    }
    let (from, dtype) = (b.float(), b.float());
    let operands = [b.value_of(from, &a_dims), b.value_of(from, &b_dims)];
    let op = Op::Contract {
        a_batch: batch.0,
        b_batch: batch.1,
        a_contract: contracted.0,
        b_contract: contracted.1,
        dtype,
    };
    push(b, op, &operands);
}

/// Arrangement of elements. Returns whether there is a rule for the op.
fn movement(b: &mut Builder<'_>, name: &str) -> bool {
    let dtype = b.pick(&DType::ALL);
    let mut dims = b.dims(2);
    let i = b.rng.below(dims.len() + 1);
    let axis = i as u32;
    match name {
        "reshape" => {
            dims.push(b.dim());
            let x = b.value_of(dtype, &dims);
            let shape = if b.rng.chance(50) {
                vec![Dim::new(product(&dims))]
            } else {
                dims.iter().rev().cloned().chain([Dim::from(1)]).collect()
            };
            push(b, Op::Reshape { shape }, &[x]);
        }
        "transpose" => {
            dims.push(b.dim());
            let mut left: Vec<u32> = (0..dims.len() as u32).collect();
            let mut permutation = vec![];
            while !left.is_empty() {
                permutation.push(left.swap_remove(b.rng.below(left.len())));
            }
            let x = b.value_of(dtype, &dims);
            push(b, Op::Transpose { permutation }, &[x]);
        }
        "broadcast" => {
            let shape = b.dims(4);
            let dims: Vec<u32> = (0..shape.len() as u32).filter(|_| b.rng.chance(50)).collect();
            let have: Vec<Dim> = dims
                .iter()
                .map(|d| if b.rng.chance(30) { 1.into() } else { shape[*d as usize].clone() })
                .collect();
            let x = b.value_of(dtype, &have);
            push(b, Op::Broadcast { shape, dims }, &[x]);
        }
        "repeat" => {
            dims.insert(i, b.dim());
            let (x, times) = (b.value_of(dtype, &dims), b.dim());
            push(b, Op::Repeat { axis, times }, &[x]);
        }
        "slice" => {
            let (start, size, rest) = (b.dim(), b.dim(), b.dim());
            let all = start.size().add(size.size()).add(rest.size());
            dims.insert(i, Dim::new(all));
            let x = b.value_of(dtype, &dims);
            push(b, Op::Slice { axis, start, size }, &[x]);
        }
        "pad" => {
            dims.insert(i, b.dim());
            let (x, before, after) = (b.value_of(dtype, &dims), b.dim(), b.dim());
            push(b, Op::Pad { axis, before, after }, &[x]);
        }
        "concat" => {
            let operands: Vec<Value> = (0..1 + b.rng.below(3))
                .map(|_| {
                    let mut dims = dims.clone();
                    dims.insert(i, b.dim());
                    b.value_of(dtype, &dims)
                })
                .collect();
            push(b, Op::Concat { axis }, &operands);
        }
        _ => return false,
    }
    true
}

/// Ops that follow or choose rows.
fn rows(b: &mut Builder<'_>, name: &str) {
    let dtype = b.float();
    let (n, k, m) = (b.dim(), b.dim(), b.dim());
    match name {
        "grouped_contract" => {
            let transposed = b.rng.chance(50);
            let groups = Dim::from(b.small());
            let x = b.value_of(dtype, &[m.clone(), k.clone()]);
            let w = if transposed { [groups, k, n] } else { [groups, n, k] };
            let operands = [x, b.value_of(dtype, &w), b.value_of(DType::I32, &[m])];
            push(b, Op::GroupedContract { transposed }, &operands);
        }
        "grouped_outer" => {
            let x = b.value_of(dtype, &[m.clone(), n]);
            let operands = [x, b.value_of(dtype, &[m.clone(), k]), b.value_of(DType::I32, &[m])];
            let (count, dtype) = (b.dim(), b.float());
            push(b, Op::GroupedOuter { count, dtype }, &operands);
        }
        "scatter_add" => {
            let index = b.dims(2);
            let rows: Vec<Dim> = index.iter().cloned().chain(b.dims(1)).collect();
            let operands = [b.value_of(DType::I32, &index), b.value_of(dtype, &rows)];
            push(b, Op::ScatterAdd { count: n }, &operands);
        }
        "top_k" => {
            let mut dims = b.dims(2);
            let k = Dim::from(b.small());
            dims.push(Dim::new(k.size().add(n.size())));
            let x = b.value_of(dtype, &dims);
            push(b, Op::TopK { k }, &[x]);
        }
        "row_valid" => {
            let operands = b.boundaries();
            push(b, Op::RowValid { rows: t() }, &operands);
        }
        "segment_shift" => {
            let mut dims = b.dims(2);
            dims.insert(0, t());
            let dtype = b.pick(&DType::ALL);
            let x = b.value_of(dtype, &dims);
            let [cu, padded] = b.boundaries();
            let by = b.pick(&[0, 1, -1, 3, i64::MAX, i64::MIN]);
            let fill = if dtype.is_float() { b.scalar() } else { Scalar(0.0) };
            push(b, Op::SegmentShift { by, fill }, &[x, cu, padded]);
        }
        "causal_conv1d_weight_grad" => {
            let operands = [b.value_of(dtype, &[t(), n.clone()]), b.value_of(dtype, &[t(), n])];
            let [cu, padded] = b.boundaries();
            let operands = [operands[0], operands[1], cu, padded];
            let dtype = b.float();
            push(b, Op::CausalConv1dWeightGrad { taps: k, dtype }, &operands);
        }
        "attention" | "attention_grad" => {
            let (key_heads, group) = (b.small(), b.small());
            let (few, many) = (Dim::from(key_heads), Dim::from(key_heads * group));
            let q = b.value_of(dtype, &[t(), many.clone(), n.clone()]);
            let key = b.value_of(dtype, &[t(), few.clone(), n]);
            let v = b.value_of(dtype, &[t(), few, k.clone()]);
            let [cu, padded] = b.boundaries();
            let scale = Scalar(b.rng.real());
            let (causal, window) = (b.rng.chance(50), b.rng.chance(50).then_some(m));
            let rows = b.rng.chance(50).then(|| b.value_of(DType::I32, &[t()]));
            if name == "attention" {
                let mut operands = vec![q, key, v, cu, padded];
                operands.extend(rows);
                push(b, Op::Attention { scale, causal, window }, &operands);
                return;
            }
            let (y, lse) = ([t(), many.clone(), k], [t(), many]);
            let mut operands = vec![q, key, v, b.value_of(dtype, &y)];
            operands.extend([b.value_of(DType::F32, &lse), b.value_of(dtype, &y), cu, padded]);
            if let Some(rows) = rows {
                operands.push(rows);
                if b.rng.chance(50) {
                    operands.push(b.value_of(DType::F32, &lse));
                }
            }
            push(b, Op::AttentionGrad { scale, causal, window }, &operands);
        }
        other => debug_assert!(false, "the generator has no rule for {other}"),
    }
}

/// Exchange between ranks; evaluations are of one.
fn collective(b: &mut Builder<'_>, name: &str) {
    let ty = Ty::new(DType::F32, vec![b.dim(), b.dim()]);
    let axis = b.pick(&MeshAxis::ALL);
    let dim = b.rng.below(2) as u32;
    let x = b.value(&ty);
    let ranks = 1;
    let op = match name {
        "all_reduce" => Op::AllReduce { axis, ranks },
        "all_gather" => Op::AllGather { axis, ranks, dim },
        "reduce_scatter" => Op::ReduceScatter { axis, ranks, dim },
        "shard" => Op::Shard { axis, ranks, dim },
        "unshard" => Op::Unshard { axis, ranks, dim },
        _ => Op::AllToAll { axis, ranks, split: 1 - dim, gather: dim },
    };
    push(b, op, &[x]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Poly;

    #[test]
    fn sizes_are_what_the_generator_assumes() {
        // K V - 1 and the segments are not negative with the values that evaluations use.
        let value = |name: &str| SYMBOLS.iter().find(|s| s.0 == name).map(|s| s.2 as i64);
        let p = Poly::symbol("K").mul(&Poly::symbol("V")).sub(&1.into());
        assert!(p.eval(&|s| value(&s.0)).is_some_and(|v| v >= 0));
    }
}
