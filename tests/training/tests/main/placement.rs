//! Public reports about several ranks and devices, as far as types and one rank show them. More of
//! `docs/cases.md`, as in `cases.rs`.

use crate::cases::library;
use std::collections::{BTreeMap, BTreeSet};
use vlmc::eval::{Inputs, Precision, Tensors, fused, run, with_gradients};
use vlmc_artifact::Step;
use vlmc_data::init::{Distribution, Initializer};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_ir::dim::Symbol;
use vlmc_ir::graph::{OutputKind, Program, Value, join_name};
use vlmc_ir::ops::Op;
use vlmc_ir::text::parse;
use vlmc_ir::ty::DType;
use vlmc_training_tests::{Model, document, image_document, pack};

/// Checkpoint names that a call of a function in a scope reads.
fn reads(program: &Program, callee: &str, scope: &str) -> BTreeSet<String> {
    let f = program.function(callee).unwrap();
    let mut names: BTreeSet<String> = f.params.iter().map(|p| join_name(scope, &p.key)).collect();
    for node in &f.nodes {
        if let Op::Call { callee, scope: inner, .. } = &node.op {
            names.extend(reads(program, callee, &join_name(scope, inner)));
        }
    }
    names
}

/// What a stage runs are calls: each reads the tensors of its own part and no other, forward and
/// backward, and together they read every tensor of the checkpoint, the second head's too.
#[test]
fn case_24_parts_read_their_own_parameters() {
    let model = Model::small(true, &[]).unwrap();
    let batch = pack(&[image_document(2, 11, 200)], 1).unwrap();
    let compiled = model.compile(&[batch], DType::F32, 0).unwrap();
    let all: Vec<&str> =
        compiled.artifact.manifest.parameters.iter().map(|p| p.name.as_str()).collect();
    let main = |p: &Program| p.main().unwrap().clone();

    // The forward program has each tensor at one place: in one call, or in main itself.
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for p in &main(&compiled.graphs.forward).params {
        owners.entry(p.key.clone()).or_default().insert("main".to_string());
    }
    for node in &main(&compiled.graphs.forward).nodes {
        let Op::Call { callee, scope, .. } = &node.op else { continue };
        for name in reads(&compiled.graphs.forward, callee, scope) {
            owners.entry(name).or_default().insert(scope.clone());
        }
    }
    assert!(owners.values().all(|o| o.len() == 1), "{owners:?}");
    let known: BTreeSet<&str> = owners.keys().map(String::as_str).collect();
    assert_eq!(known.len(), all.len());
    assert_eq!(known, all.iter().copied().collect());

    // So has the joint program, whose calls go forward and backward.
    let mut seen: BTreeMap<String, (usize, BTreeSet<String>)> = BTreeMap::new();
    for node in &main(compiled.graphs.joint.as_ref().unwrap()).nodes {
        let Op::Call { callee, scope, .. } = &node.op else { continue };
        let (calls, names) = seen.entry(scope.clone()).or_default();
        *calls += 1;
        names.extend(reads(compiled.graphs.joint.as_ref().unwrap(), callee, scope));
    }
    let layer = |i| format!("model.language_model.layers.{i}");
    let parts = [layer(0), layer(1), layer(2), layer(3), "mtp".into(), "model.visual".into()];
    for part in &parts {
        let own =
            |n: &&str| n.strip_prefix(part.as_str()).is_some_and(|rest| rest.starts_with('.'));
        let own: BTreeSet<String> = all.iter().filter(|n| own(n)).map(|n| n.to_string()).collect();
        let (calls, names) = &seen[part];
        assert!(own.len() > 5 && *calls >= 2, "{part}: {calls} calls");
        assert_eq!(*names, own, "{part}");
    }
    let gradients: BTreeSet<String> = main(compiled.graphs.joint.as_ref().unwrap())
        .outputs
        .iter()
        .filter(|o| o.kind == OutputKind::Gradient)
        .map(|o| o.name.as_ref().unwrap().to_string())
        .collect();
    assert_eq!(gradients, owners.into_keys().collect());
}

const HEADS: &str = "
use std.{rope, zero_centered_rms_norm}
fn turn[h, d, half](x: [T, h, d], w: [d], c: f32[T, half], s: f32[T, half]) -> f32[T, h, d] {
  rope(f32(zero_centered_rms_norm(x, w, eps = 1e-6)), c, s)
}
";

/// The same written out: norm of a head with gain `1 + w`, then the first six of ten numbers turned.
fn turned(x: &[f64], w: &[f64], c: &[f64], s: &[f64], heads: usize) -> Vec<f64> {
    let (d, half) = (10, 3);
    let mut out = vec![];
    for (i, head) in x.chunks(d).enumerate() {
        let row = i / heads;
        let scale = (head.iter().map(|v| v * v).sum::<f64>() / d as f64 + 1e-6).sqrt();
        let n: Vec<f64> = head.iter().zip(w).map(|(x, w)| x / scale * (1.0 + w)).collect();
        let (c, s) = (&c[row * half..], &s[row * half..]);
        out.extend((0..half).map(|j| n[j] * c[j] - n[j + half] * s[j]));
        out.extend((0..half).map(|j| n[j + half] * c[j] + n[j] * s[j]));
        out.extend(&n[2 * half..]);
    }
    out
}

/// Five heads of ten numbers, three of them to a half: no block of 4 or 8 fits anywhere. Both the
/// program and its clusters, forward and backward, in f64.
#[test]
fn case_65_five_heads() {
    const ROWS: usize = 3;
    let shapes: [(&str, &[usize]); 4] =
        [("x", &[ROWS, 5, 10]), ("w", &[10]), ("c", &[ROWS, 3]), ("s", &[ROWS, 3])];
    let program = library(HEADS).program(Some("turn"), &[], &shapes).unwrap();
    let names = ["x", "w"].map(String::from);
    let joint = with_gradients(&program, &names).unwrap();
    let clusters = fused(&joint).unwrap();
    assert!(clusters.functions.iter().any(|f| f.cluster.is_some()));
    let values = |name: &str, shape: &[usize]| -> Vec<f64> {
        let n = shape.iter().product::<usize>() as u64;
        let v = Initializer::new(4, name, Distribution::Normal(1.0)).values(0..n);
        v.into_iter().map(f64::from).collect()
    };
    let dout: [(&str, &[usize]); 1] = [("dout.0", shapes[0].1)];
    let all: BTreeMap<&str, Vec<f64>> =
        shapes.iter().chain(&dout).map(|(n, s)| (*n, values(n, s))).collect();
    let tensor = |(name, shape): &(&str, &[usize])| {
        let data = HostData::F64(all[name].clone());
        (name.to_string(), HostTensor::new(shape.to_vec(), data).unwrap())
    };
    let inputs: Tensors = shapes.iter().chain(&dout).map(tensor).collect();
    let inputs = Inputs::Named(&inputs);

    let f = |x: &[f64], w: &[f64]| turned(x, w, &all["c"], &all["s"], 5);
    let want = f(&all["x"], &all["w"]);
    // Along one direction a gradient is a difference quotient of the formula.
    let along = |of: &str| {
        let direction = values("direction", &[all[of].len()]);
        let moved = |by: f64| {
            let v: Vec<f64> = all[of].iter().zip(&direction).map(|(v, u)| v + by * u).collect();
            let out = if of == "x" { f(&v, &all["w"]) } else { f(&all["x"], &v) };
            out.iter().zip(&all["dout.0"]).map(|(a, b)| a * b).sum::<f64>()
        };
        let quotient = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        (direction, quotient)
    };
    for p in [&joint, &clusters] {
        let mut none = |n: &str, _: &_| anyhow::bail!("no parameter {n}");
        let out = run(p, Precision::F64, &inputs, &mut none, &|_| false).unwrap().outputs;
        let have = out["0"].to_f64();
        assert_eq!(have.len(), want.len());
        let error = have.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 1e-13, "{error}");
        for name in ["x", "w"] {
            let (direction, quotient) = along(name);
            let g = out[&format!("grad.in.{name}")].to_f64();
            let product: f64 = g.iter().zip(&direction).map(|(a, b)| a * b).sum();
            assert!(
                (product - quotient).abs() < 1e-8 * quotient.abs(),
                "{name}: {product} {quotient}"
            );
        }
    }
}

/// Boundaries are operands of the ops that follow them and nothing else: no size, no other value and
/// no step of the schedule depends on what they hold, so nobody has to wait for them.
#[test]
fn case_66_no_boundary_is_read_on_the_host() {
    let model = Model::small(true, &[]).unwrap();
    let batch = pack(&[image_document(2, 11, 200), document(1, 5, 0)], 4).unwrap();
    let compiled = model.compile(&[batch], DType::F32, 0).unwrap();
    let mut all_readers = BTreeSet::new();
    for (name, text) in &compiled.artifact.programs {
        let program = parse::program(text).unwrap();
        // Every size is made of those that the artifact was compiled for.
        let capacities = &compiled.artifact.manifest.capacities;
        let mut symbols: BTreeSet<Symbol> = BTreeSet::new();
        for f in &program.functions {
            for node in &f.nodes {
                node.tys
                    .iter()
                    .flat_map(|t| &t.dims)
                    .for_each(|d| symbols.extend(d.size().symbols()));
                node.op.visit_dims(&mut |d| symbols.extend(d.size().symbols()));
            }
        }
        let unknown: Vec<&Symbol> =
            symbols.iter().filter(|s| !capacities.contains_key(&s.to_string())).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");

        let main = program.functions.len() - 1;
        let declared = &program.functions[main].inputs;
        let mut open: Vec<(usize, usize)> = (0..declared.len())
            .filter(|i| declared[*i].name.rsplit('.').next().is_some_and(|n| n.starts_with("cu_")))
            .map(|i| (main, i))
            .collect();
        let (mut done, mut readers) = (BTreeSet::new(), BTreeSet::new());
        while let Some((f, input)) = open.pop() {
            if !done.insert((f, input)) {
                continue;
            }
            let function = &program.functions[f];
            let is = |v: &Value| matches!(function.node(v.node).op, Op::Input { index } if index as usize == input);
            assert!(
                !function.output_values().any(|v| is(&v)),
                "{name}: @{} gives it out",
                function.name
            );
            for node in &function.nodes {
                for i in (0..node.operands.len()).filter(|i| is(&node.operands[*i])) {
                    if let Op::Call { callee, .. } = &node.op {
                        let at = program.functions.iter().position(|g| g.name == *callee);
                        open.push((at.unwrap(), i));
                        continue;
                    }
                    let operand = node.op.info().operand_name(i);
                    assert!(
                        operand.starts_with("cu_seqlens"),
                        "{name}: {} {operand}",
                        node.op.name()
                    );
                    readers.insert(node.op.name());
                }
            }
        }
        all_readers.extend(readers);
    }
    let want = [
        "attention",
        "attention_grad",
        "causal_conv1d",
        "causal_conv1d_input_grad",
        "causal_conv1d_weight_grad",
        "gated_delta_rule",
        "gated_delta_rule_grad",
        "row_valid",
    ];
    assert_eq!(all_readers.into_iter().collect::<Vec<_>>(), want);
    // The order of steps is fixed, and what a program gives goes into buffers.
    let steps = &compiled.artifact.schedule.ranks[0];
    let loads = steps.iter().filter(|s| matches!(s, Step::Load { .. })).count();
    let runs = steps.iter().filter(|s| matches!(s, Step::Run { .. })).count();
    // Counts, forward, backward, squares of gradients, update.
    assert_eq!((loads, runs), (1, 5));
}
