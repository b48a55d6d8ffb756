//! The verifier finds every kind of damage to a graph, and shows it without a panic.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc_ir::dim::Dim;
use vlmc_ir::graph::{
    Function, NodeId, Origin, OutputKind, Program, Region, RegionId, SymbolDecl, Value,
};
use vlmc_ir::ops::Op;
use vlmc_ir::testing::{Random, random_program};
use vlmc_ir::text::print;
use vlmc_ir::ty::DType;
use vlmc_ir::verify::verify;

/// Damages a program; returns whether there was something to damage.
type Damage = fn(&mut Program, &mut Random) -> bool;

fn any_function<'p>(p: &'p mut Program, rng: &mut Random) -> &'p mut Function {
    let i = rng.below(p.functions.len());
    &mut p.functions[i]
}

/// The index of a node for which `f` holds.
fn some(f: &Function, rng: &mut Random, want: impl Fn(usize) -> bool) -> Option<usize> {
    let all: Vec<usize> = (0..f.nodes.len()).filter(|i| want(*i)).collect();
    if all.is_empty() { None } else { Some(all[rng.below(all.len())]) }
}

const DAMAGES: &[(&str, Damage)] = &[
    ("element type", |p, rng| {
        let f = any_function(p, rng);
        let Some(i) = some(f, rng, |i| !f.nodes[i].tys.is_empty()) else { return false };
        let ty = &mut f.nodes[i].tys[0];
        ty.dtype = if ty.dtype == DType::I32 { DType::Bool } else { DType::I32 };
        true
    }),
    ("one dim more", |p, rng| {
        let f = any_function(p, rng);
        let Some(i) = some(f, rng, |i| !f.nodes[i].tys.is_empty()) else { return false };
        f.nodes[i].tys[0].dims.push(Dim::from(3));
        true
    }),
    ("later operand", |p, rng| {
        let f = any_function(p, rng);
        let Some(i) = some(f, rng, |i| !f.nodes[i].operands.is_empty()) else { return false };
        f.nodes[i].operands[0].node = NodeId((i + rng.below(3)) as u32);
        true
    }),
    ("missing result", |p, rng| {
        let f = any_function(p, rng);
        let Some(i) = some(f, rng, |i| !f.nodes[i].operands.is_empty()) else { return false };
        f.nodes[i].operands[0].result = 7;
        true
    }),
    ("operand count", |p, rng| {
        let f = any_function(p, rng);
        // Only where the number of operands is bounded does one more always hurt.
        let fixed = |i: usize| {
            let n = &f.nodes[i];
            n.op.info().arity().max.is_some_and(|m| n.operands.len() == m)
        };
        let Some(i) = some(f, rng, fixed) else { return false };
        let last = f.nodes[i].operands.last().copied();
        f.nodes[i].operands.push(last.unwrap_or(Value { node: NodeId(0), result: 0 }));
        true
    }),
    ("missing output", |p, rng| {
        let f = any_function(p, rng);
        let end = f.nodes.len() as u32;
        f.add_output(Some("beyond"), NodeId(end).into());
        true
    }),
    ("outputs named alike", |p, rng| {
        let f = any_function(p, rng);
        for _ in 0..2 {
            f.add_output(Some("twice"), NodeId(0).into());
        }
        // The callers' types change as well, unless the function is main.
        true
    }),
    ("function named twice", |p, _| {
        let again = p.functions[0].clone();
        p.functions.push(again);
        true
    }),
    ("unknown callee", |p, rng| {
        let f = any_function(p, rng);
        let Some(i) = some(f, rng, |i| matches!(f.nodes[i].op, Op::Call { .. })) else {
            return false;
        };
        if let Op::Call { callee, .. } = &mut f.nodes[i].op {
            callee.push('x');
        }
        true
    }),
    ("callers before callees", |p, _| {
        let calls = p.functions.iter().flat_map(|f| &f.nodes);
        if !calls.clone().any(|n| matches!(n.op, Op::Call { .. })) {
            return false;
        }
        p.functions.reverse();
        true
    }),
    ("input without a declaration", |p, rng| {
        let f = any_function(p, rng);
        let index = f.inputs.len() as u32;
        let tys = vec![
            f.nodes[0].tys.first().cloned().unwrap_or_else(|| vlmc_ir::ty::Ty::scalar(DType::F32)),
        ];
        f.push_node(Op::Input { index }, vec![], tys, None);
        true
    }),
    ("declaration without a node", |p, rng| {
        let f = any_function(p, rng);
        let Some(mut input) = f.inputs.first().cloned() else { return false };
        input.name = "other".into();
        f.inputs.push(input);
        true
    }),
    ("declarations exchanged", |p, rng| {
        let f = any_function(p, rng);
        let Some(first) = some(f, rng, |i| matches!(f.nodes[i].op, Op::Input { index: 0 })) else {
            return false;
        };
        if f.inputs.len() < 2 {
            return false;
        }
        f.nodes[first].op = Op::Input { index: 1 };
        true
    }),
    ("missing region", |p, rng| {
        let f = any_function(p, rng);
        f.nodes[0].region = Some(RegionId(f.regions.len() as u32));
        true
    }),
    ("regions around each other", |p, rng| {
        let f = any_function(p, rng);
        for (name, parent) in [("one", 1), ("two", 0)] {
            let parent = Some(RegionId(f.regions.len() as u32 + 1 - 2 * u32::from(parent == 0)));
            f.regions.push(Region { name: name.into(), parent });
        }
        f.nodes[0].region = Some(RegionId(f.regions.len() as u32 - 1));
        true
    }),
    ("regions named alike", |p, rng| {
        let f = any_function(p, rng);
        for _ in 0..2 {
            f.regions.push(Region { name: "same".into(), parent: None });
        }
        true
    }),
    ("node name", |p, rng| {
        let f = any_function(p, rng);
        let i = rng.below(f.nodes.len());
        let names = ["", "a b", "12", "ä", ".", "a.", "x-y"];
        f.nodes[i].name = Some(names[rng.below(names.len())].into());
        true
    }),
    ("function name", |p, rng| {
        any_function(p, rng).name = "a b".to_string();
        true
    }),
    ("origin", |p, rng| {
        let f = any_function(p, rng);
        let origin = Origin { path: "p".into(), file: 2, line: 1, column: 1 };
        f.nodes[0].origins.push(origin);
        true
    }),
    ("undeclared symbols", |p, _| {
        let used = p.functions.iter().flat_map(|f| &f.nodes).flat_map(|n| &n.tys);
        let is_used = used.flat_map(|t| &t.dims).any(|d| !d.size().symbols().is_empty());
        p.symbols.clear();
        is_used
    }),
    ("symbol declared twice", |p, _| {
        p.symbols.push(SymbolDecl { multiple_of: 5, ..p.symbols[0].clone() });
        true
    }),
    ("symbol multiple", |p, _| {
        p.symbols[0].multiple_of = -1;
        true
    }),
    ("loss of a callee", |p, rng| {
        if p.functions.len() < 2 {
            return false;
        }
        let f = &mut p.functions[0];
        let Some(i) = some(f, rng, |i| !f.nodes[i].tys.is_empty()) else { return false };
        f.add_output(None, NodeId(i as u32).into());
        let count = NodeId(i as u32).into();
        f.outputs.last_mut().unwrap().kind = OutputKind::Loss { count, weight: 1.0 };
        true
    }),
    ("missing count", |p, _| {
        let f = p.functions.last_mut().unwrap();
        let count = NodeId(f.nodes.len() as u32).into();
        let Some(o) = f.outputs.last_mut() else { return false };
        o.kind = OutputKind::Loss { count, weight: 1.0 };
        true
    }),
    ("parameter type", |p, rng| {
        let f = any_function(p, rng);
        let Some(param) = f.params.first_mut() else { return false };
        param.ty.dims.push(Dim::symbol("T"));
        true
    }),
    ("one checkpoint name for two types", |p, _| {
        let f = p.functions.last_mut().unwrap();
        for rank in 1..3 {
            f.add_param(vlmc_ir::graph::Param {
                name: format!("clash{rank}").into(),
                key: "clash".to_string(),
                each: vec![],
                ty: vlmc_ir::ty::Ty::new(DType::F32, vec![Dim::from(2); rank]),
                init: vlmc_ir::graph::Init::Constant(0.0),
                decay: true,
            });
        }
        true
    }),
];

#[test]
fn damage_is_found() {
    for (name, damage) in DAMAGES {
        let mut found = 0;
        for seed in 0..150 {
            let mut rng = Random::new(seed);
            let mut p = random_program(&mut rng);
            if !damage(&mut p, &mut rng) {
                continue;
            }
            let errors = verify(&p);
            assert!(!errors.is_empty(), "{name}, seed {seed}:\n{}", print::program(&p));
            for e in &errors {
                assert!(e.render(&p).starts_with("error: "));
            }
            // Text of a damaged program is for people only, but it must come.
            assert!(!print::program(&p).is_empty());
            found += 1;
        }
        println!("{name}: {found}");
        assert!(found >= 20, "{name} was possible only {found} times");
    }
}
