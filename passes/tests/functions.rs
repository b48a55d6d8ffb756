//! Whole functions and programs: gradients against central differences, packing, counts, calls.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::{check, exact, floats, get, gradients_of, ints, named, program, typed};
use vlmc_ir::eval::Tensor;
use vlmc_ir::graph::{OutputKind, Program, Value};
use vlmc_ir::testing::Random;
use vlmc_passes::autodiff::{Options, Plan, Seeds};

const CU: [i64; 5] = [0, 3, 4, 6, 6];
const PADDED: [i64; 5] = [0, 4, 5, 8, 8];

/// Zero-centred root mean square norm of `x [8, 4]` with weight `w [4]`, in the wide type.
const NORM: &str = "
func @norm {
  input %x : f32[8, 4]
  param %w = \"weight\" : f32[4] init constant(0.0)
  %s = mul %x, %x
  %sum = reduce_sum %s {axes = [1]}
  %q = constant {value = 0.25, dtype = f32, shape = [8]}
  %mean = mul %sum, %q
  %e = constant {value = 1e-6, dtype = f32, shape = [8]}
  %m = add %mean, %e
  %r = rsqrt %m
  %rb = broadcast %r {shape = [8, 4], dims = [0]}
  %n = mul %x, %rb
  %one = constant {value = 1.0, dtype = f32, shape = [4]}
  %gain = add %one, %w
  %g = broadcast %gain {shape = [8, 4], dims = [1]}
  %y = mul %n, %g
  return \"y\" = %y
}
";

const MLP: &str = "
func @mlp {
  input %x : f32[8, 4]
  param %gate = \"gate\" : f32[6, 4] init normal(0.1)
  param %up = \"up\" : f32[6, 4] init normal(0.1)
  param %down = \"down\" : f32[4, 6] init normal(0.1)
  %a = contract %x, %gate {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  %b = contract %x, %up {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  %act = silu %a
  %h = mul %act, %b
  %y = contract %h, %down {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  return \"y\" = %y
}
";

/// Convolution, SiLU, l2 norms and the delta rule, with two value heads a key head.
const DELTA: &str = "
func @delta {
  input %x : f32[8, 8]
  input %beta_in : f32[8, 2]
  input %g_in : f32[8, 2]
  input %cu : i32[5]
  input %padded : i32[5]
  param %w = \"conv\" : f32[8, 3] init normal(0.5)
  param %a_log = \"a_log\" : f32[2] init constant(0.0)
  %c = causal_conv1d %x, %w, %cu, %padded
  %m = silu %c
  %q0 = slice %m {axis = 1, start = 0, size = 2}
  %k0 = slice %m {axis = 1, start = 2, size = 2}
  %v0 = slice %m {axis = 1, start = 4, size = 4}
  %q1 = reshape %q0 {shape = [8, 1, 2]}
  %k1 = reshape %k0 {shape = [8, 1, 2]}
  %v = reshape %v0 {shape = [8, 2, 2]}
  %kk = mul %k1, %k1
  %ks = reduce_sum %kk {axes = [2]}
  %eps = constant {value = 1e-6, dtype = f32, shape = [8, 1]}
  %ke = add %ks, %eps
  %kr = rsqrt %ke
  %kb = broadcast %kr {shape = [8, 1, 2], dims = [0, 1]}
  %k = mul %k1, %kb
  %beta = sigmoid %beta_in
  %sp = softplus %g_in
  %a = exp %a_log
  %na = neg %a
  %ab = broadcast %na {shape = [8, 2], dims = [1]}
  %g = mul %ab, %sp
  %o = gated_delta_rule %q1, %k, %v, %g, %beta, %cu, %padded
  return \"o\" = %o#0
}
";

/// Attention of four heads over two, each gated.
const ATTENTION: &str = "
func @attention {
  input %x : f32[8, 4]
  input %cu : i32[5]
  input %padded : i32[5]
  param %wq = \"q\" : f32[q: 8 + gate: 8, 4] init normal(0.5)
  param %wk = \"k\" : f32[4, 4] init normal(0.5)
  param %wv = \"v\" : f32[4, 4] init normal(0.5)
  param %wo = \"o\" : f32[4, 8] init normal(0.5)
  %qg = contract %x, %wq {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  %qf = slice %qg {axis = 1, start = 0, size = 8}
  %gf = slice %qg {axis = 1, start = 8, size = 8}
  %q = reshape %qf {shape = [8, 4, 2]}
  %kf = contract %x, %wk {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  %vf = contract %x, %wv {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  %k = reshape %kf {shape = [8, 2, 2]}
  %v = reshape %vf {shape = [8, 2, 2]}
  %o = attention %q, %k, %v, %cu, %padded {scale = 0.7, causal = true, window = none}
  %of = reshape %o#0 {shape = [8, 8]}
  %s = sigmoid %gf
  %og = mul %of, %s
  %y = contract %og, %wo {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  return \"y\" = %y
}
";

/// Cross entropy long-hand: labels below zero are left out.
const LOSS: &str = "
func @token_loss {
  input %h : f32[8, 4]
  input %table : f32[5, 4]
  input %labels : i32[8]
  %logits = contract %h, %table {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}
  %top = reduce_max %logits {axes = [1]}
  %held = stop_gradient %top
  %tb = broadcast %held {shape = [8, 5], dims = [0]}
  %d = sub %logits, %tb
  %e = exp %d
  %s = reduce_sum %e {axes = [1]}
  %l = log %s
  %at = iota {shape = [8, 5], axis = 1}
  %lb = broadcast %labels {shape = [8, 5], dims = [0]}
  %is = compare %at, %lb {kind = eq}
  %zero = constant {value = 0.0, dtype = f32, shape = [8, 5]}
  %picked = select %is, %d, %zero
  %p = reduce_sum %picked {axes = [1]}
  %nll = sub %l, %p
  %no = constant {value = 0.0, dtype = i32, shape = [8]}
  %counts = compare %labels, %no {kind = ge}
  %none = constant {value = 0.0, dtype = f32, shape = [8]}
  %kept = select %counts, %nll, %none
  %total = reduce_sum %kept {axes = [0]}
  %ones = cast %counts {dtype = f32}
  %n = reduce_sum %ones {axes = [0]}
  return \"sum\" = %total
  return \"count\" = %n
}
";

/// A model: a table used twice, two layers, a tower of blocks, two losses.
fn model() -> Program {
    let text = format!(
        "{NORM}{MLP}{DELTA}{ATTENTION}{LOSS}
func @layer {{
  input %h : f32[8, 4]
  input %cu : i32[5]
  input %padded : i32[5]
  %x = call %h {{callee = \"norm\", scope = \"norm1\", path = \"norm1\", layer = none}}
  %y = call %x, %cu, %padded {{callee = \"attention\", scope = \"mix\", path = \"mix\", layer = none}}
  %h2 = add %h, %y
  %x2 = call %h2 {{callee = \"norm\", scope = \"norm2\", path = \"norm2\", layer = none}}
  %z = call %x2 {{callee = \"mlp\", scope = \"mlp\", path = \"mlp\", layer = none}}
  %h3 = add %h2, %z
  %sq = mul %z, %z
  %energy = reduce_sum %sq {{axes = [0, 1]}}
  return \"h\" = %h3
  return \"energy\" = %energy
}}
func @main {{
  input %ids : i32[8]
  input %labels : i32[8]
  input %cu : i32[5]
  input %padded : i32[5]
  param %table = \"embed\" : f32[5, 4] init normal(0.5)
  param %idle = \"idle\" : f32[4] init normal(0.5)
  %h = gather %table, %ids
  %a = call %h, %cu, %padded {{callee = \"layer\", scope = \"layers.0\", path = \"layers.0\", layer = 0}}
  %b = call %a#0, %cu, %padded {{callee = \"layer\", scope = \"layers.1\", path = \"layers.1\", layer = 1}}
  %c = call %b#0, %cu, %padded {{callee = \"layer\", scope = \"layers.1\", path = \"again\", layer = 1}}
  %l = call %c#0, %table, %labels {{callee = \"token_loss\", scope = \"\", path = \"head\", layer = none}}
  %n = constant {{value = 8.0, dtype = f32, shape = []}}
  loss \"lm\" = %l#0 / %l#1 weight 1.0
  loss \"energy\" = %a#1 / %n weight 0.25
  return \"h\" = %c#0
  return \"unused\" = %idle
}}"
    );
    program(&typed(&text))
}

fn model_params(rng: &mut Random, p: &Program) -> Vec<(String, Tensor<f64>)> {
    let list = p.parameters().into_iter();
    let list = list.map(|(n, q)| {
        let dims: Vec<usize> =
            q.ty.dims.iter().map(|d| d.size().as_constant().unwrap() as usize).collect();
        (n, floats(rng, &dims))
    });
    list.collect()
}

fn model_inputs(labels: &[i64]) -> Vec<(String, Tensor<f64>)> {
    named(&[
        ("ids", ints(&[1, 4, 0, 2, 3, 1, 1, 0])),
        ("labels", ints(labels)),
        ("cu", ints(&CU)),
        ("padded", ints(&PADDED)),
    ])
}

const LABELS: [i64; 8] = [4, 0, -100, -100, -100, 1, -100, -100];

fn one(text: &str) -> Program {
    program(&typed(text))
}

fn params(rng: &mut Random, list: &[(&str, &[usize])]) -> Vec<(String, Tensor<f64>)> {
    list.iter().map(|(n, d)| (n.to_string(), floats(rng, d))).collect()
}

#[test]
fn small_functions_against_central_differences() {
    let mut r = Random::new(1);
    let x = floats(&mut r, &[8, 4]);
    let boundaries = [("cu", ints(&CU)), ("padded", ints(&PADDED))];
    let w = params(&mut r, &[("weight", &[4])]);
    check("norm", &one(NORM), &named(&[("x", x.clone())]), &w);
    let w = params(&mut r, &[("gate", &[6, 4]), ("up", &[6, 4]), ("down", &[4, 6])]);
    check("mlp", &one(MLP), &named(&[("x", x.clone())]), &w);
    let w = params(&mut r, &[("conv", &[8, 3]), ("a_log", &[2])]);
    let mut inputs = named(&[
        ("x", floats(&mut r, &[8, 8])),
        ("beta_in", floats(&mut r, &[8, 2])),
        ("g_in", floats(&mut r, &[8, 2])),
    ]);
    inputs.extend(named(&boundaries));
    check("delta", &one(DELTA), &inputs, &w);
    let w = params(&mut r, &[("q", &[16, 4]), ("k", &[4, 4]), ("v", &[4, 4]), ("o", &[4, 8])]);
    let mut inputs = named(&[("x", x.clone())]);
    inputs.extend(named(&boundaries));
    check("attention", &one(ATTENTION), &inputs, &w);
    let inputs = named(&[("h", x), ("table", floats(&mut r, &[5, 4])), ("labels", ints(&LABELS))]);
    check("loss", &one(LOSS), &inputs, &vec![]);
}

#[test]
fn a_model_with_tied_and_repeated_weights() {
    let p = model();
    let mut r = Random::new(2);
    let params = model_params(&mut r, &p);
    let found = check("model", &p, &model_inputs(&LABELS), &params);
    assert!(!found.contains_key("idle"), "no loss reaches it");
    // The table as embedding and as head, and the second layer's weights from two calls.
    for name in ["embed", "layers.0.mlp.up", "layers.1.mix.q", "layers.1.norm2.weight"] {
        assert!(found[name].iter().any(|g| *g != 0.0), "{name}");
    }
    let d = gradients_of(&p, &Options::default());
    let grads: Vec<_> =
        d.main().unwrap().outputs.iter().filter(|o| o.kind == OutputKind::Gradient).collect();
    let names: Vec<String> = p.parameters().into_iter().map(|(n, _)| n).collect();
    let have: Vec<String> = grads.iter().map(|o| o.name.as_deref().unwrap().to_string()).collect();
    assert_eq!(have, names.into_iter().filter(|n| n != "idle").collect::<Vec<_>>());
    // The first layer's energy is a loss and the others' is not: two ways to differentiate it. The
    // functions of which only the differentiated form is called are gone.
    let functions: Vec<&str> = d.functions.iter().map(|f| &*f.name).collect();
    assert!(functions.contains(&"layer.bwd") && functions.contains(&"layer.bwd.2"));
    assert!(!functions.contains(&"layer") && !functions.contains(&"norm"));
    let bwd = functions.iter().filter(|f| f.starts_with("mlp.bwd")).count();
    assert_eq!(bwd, 1, "once for both ways: {functions:?}");
}

/// Counting nothing gives zeros everywhere, with the count of the program or a total from outside.
#[test]
fn nothing_to_count_gives_zeros() {
    let p = model();
    let mut r = Random::new(3);
    let params = model_params(&mut r, &p);
    let inputs = model_inputs(&[-100; 8]);
    let text = vlmc_ir::text::print::program(&p).replace("weight 0.25", "weight 0.0");
    let p = program(&text);
    let with_totals = |total: f64| {
        let scalar = |v| Tensor::from_f64(vec![], &[v]).unwrap();
        [inputs.clone(), named(&[("lm.total", scalar(total)), ("energy.total", scalar(8.0))])]
            .concat()
    };
    for (seeds, inputs) in [(Seeds::Counts, inputs.clone()), (Seeds::Totals, with_totals(0.0))] {
        let d = gradients_of(&p, &Options { seeds, inputs: vec![] });
        let out = exact(&d, &inputs, &params).unwrap();
        let grads = d.main().unwrap().outputs.iter().filter(|o| o.kind == OutputKind::Gradient);
        for o in grads {
            let name = o.name.as_deref().unwrap();
            assert!(get(&out, name).iter().all(|g| *g == 0.0), "{name}");
        }
    }
    // A total of twice the count halves the gradient.
    let inputs = model_inputs(&LABELS);
    let run = |seeds, inputs: &Vec<(String, Tensor<f64>)>| {
        let d = gradients_of(&p, &Options { seeds, inputs: vec![] });
        get(&exact(&d, inputs, &params).unwrap(), "embed")
    };
    let one = run(Seeds::Counts, &inputs);
    let scalar = |v| Tensor::from_f64(vec![], &[v]).unwrap();
    let totals = named(&[("lm.total", scalar(6.0)), ("energy.total", scalar(8.0))]);
    let half = run(Seeds::Totals, &[inputs, totals].concat());
    assert!(one.iter().zip(&half).all(|(a, b)| (a - 2.0 * b).abs() < 1e-12));
}

/// Documents packed in one sequence get the gradients that they get alone.
#[test]
fn packed_equals_separate() {
    // The energy counts rows whatever they belong to: without it.
    let text = vlmc_ir::text::print::program(&model()).replace("weight 0.25", "weight 0.0");
    let p = program(&text);
    let mut r = Random::new(4);
    let params = model_params(&mut r, &p);
    let d = gradients_of(&p, &Options::default());
    let ids = [1, 4, 0, 2, 3, 1, 1, 0];
    let run = |cu: &[i64], padded: &[i64], ids: &[i64], labels: &[i64]| {
        let inputs = named(&[
            ("ids", ints(ids)),
            ("labels", ints(labels)),
            ("cu", ints(cu)),
            ("padded", ints(padded)),
        ]);
        let out = exact(&d, &inputs, &params).unwrap();
        let grads = d.main().unwrap().outputs.iter().filter(|o| o.kind == OutputKind::Gradient);
        let grads: Vec<f64> = grads.flat_map(|o| get(&out, o.name.as_deref().unwrap())).collect();
        let lm = out.0.iter().find(|o| o.name.as_deref() == Some("lm")).unwrap();
        (grads, lm.loss.as_ref().unwrap().0.to_f64()[0])
    };
    let (packed, total) = run(&CU, &PADDED, &ids, &LABELS);
    let mut sum = vec![0.0; packed.len()];
    for i in 0..3 {
        let (from, n) = (PADDED[i] as usize, (CU[i + 1] - CU[i]) as usize);
        let (mut own, mut labels) = ([0; 8], [-100; 8]);
        own[..n].copy_from_slice(&ids[from..from + n]);
        labels[..n].copy_from_slice(&LABELS[from..from + n]);
        let n = n as i64;
        let (grads, count) = run(&[0, n, n, n, n], &[0, n, n, n, n], &own, &labels);
        for (s, g) in sum.iter_mut().zip(&grads) {
            *s += g * count / total;
        }
    }
    assert!(packed.iter().any(|g| g.abs() > 1e-3));
    for (a, b) in packed.iter().zip(&sum) {
        assert!((a - b).abs() < 1e-10, "{a} {b}");
    }
}

/// What is kept decides nothing about the values.
#[test]
fn saved_sets_change_no_gradient() {
    let p = model();
    let mut r = Random::new(5);
    let params = model_params(&mut r, &p);
    let inputs = model_inputs(&LABELS);
    let run = |d: &Program| {
        support::sound(d);
        let out = exact(d, &inputs, &params).unwrap();
        let grads = d.main().unwrap().outputs.iter().filter(|o| o.kind == OutputKind::Gradient);
        grads.map(|o| get(&out, o.name.as_deref().unwrap())).collect::<Vec<_>>()
    };
    let options = Options::default();
    let by_rule = run(&Plan::new(&p, &options).unwrap().build().unwrap());
    // Everything made again, products and calls too.
    let mut plan = Plan::new(&p, &options).unwrap();
    for list in plan.saved() {
        let set = plan.saved_set_mut(&list.template).unwrap();
        list.values.iter().for_each(|s| set.rebuild(s.value));
    }
    while let Some(list) = plan.saved().into_iter().find(|l| !l.values.is_empty()) {
        let set = plan.saved_set_mut(&list.template).unwrap();
        list.values.iter().for_each(|s| set.rebuild(s.value));
    }
    assert!(plan.saved().iter().all(|l| l.bytes().is(0)));
    assert_eq!(run(&plan.build().unwrap()), by_rule);
    // Everything kept.
    let mut plan = Plan::new(&p, &options).unwrap();
    let templates: Vec<String> = plan.templates().map(str::to_string).collect();
    for name in templates {
        let f = p
            .functions
            .iter()
            .find(|f| name == f.name || name.starts_with(&format!("{}.", f.name)));
        let set = plan.saved_set_mut(&name).unwrap();
        let f = f.unwrap();
        for node in f.node_ids() {
            for result in 0..f.node(node).tys.len() as u32 {
                set.keep(Value { node, result });
            }
        }
    }
    assert!(plan.saved().iter().all(|l| l.rebuilt == 0));
    assert_eq!(run(&plan.build().unwrap()), by_rule);
}

/// The saved set of each function, by the rule.
#[test]
fn saved_sets_as_text() {
    let lists = |p: &Program| {
        let plan = Plan::new(p, &Options::default()).unwrap();
        plan.saved().iter().map(|l| l.to_string()).collect::<Vec<_>>().join("")
    };
    assert_eq!(lists(&model()), SAVED);
    // What comes before and after the recurrence is made again of the convolution's input.
    let head = DELTA.split_once('{').unwrap().1.lines().filter(|l| l.contains("input %"));
    let inputs: Vec<&str> = head.map(str::trim).collect();
    let main = format!(
        "{DELTA}func @main {{
        {}
        param %p = \"p\" : f32[8, 8] init constant(1.0)
        %px = mul %x, %p
        %o = call %px, %beta_in, %g_in, %cu, %padded {{callee = \"delta\", scope = \"d\", path = \"d\", layer = none}}
        %oo = mul %o, %o
        %s = reduce_sum %oo {{axes = [0, 1, 2]}}
        %n = constant {{value = 1.0, dtype = f32, shape = []}}
        loss \"sum\" = %s / %n weight 1.0
        }}",
        inputs.join("\n")
    );
    assert_eq!(
        lists(&program(&typed(&main))),
        "@delta
  input x : f32[8, 8]
  input beta_in : f32[8, 2]
  input g_in : f32[8, 2]
  input cu : i32[5]
  input padded : i32[5]
  0 bytes, 21 nodes made again
"
    );
}

const SAVED: &str = "\
@token_loss
  input h : f32[8, 4]
  input table : f32[5, 4]
  input labels : i32[8]
  saved logits : f32[8, 5]  contract
  160 bytes, 11 nodes made again
@mlp
  input x : f32[8, 4]
  saved a : f32[8, 6]  contract
  saved b : f32[8, 6]  contract
  384 bytes, 2 nodes made again
@norm
  input x : f32[8, 4]
  0 bytes, 12 nodes made again
@attention
  input x : f32[8, 4]
  input cu : i32[5]
  input padded : i32[5]
  saved qg : f32[8, q: 8 + gate: 8]  contract
  saved kf : f32[8, 4]  contract
  saved vf : f32[8, 4]  contract
  saved o.y : f32[8, 4, 2]  attention
  saved o.lse : f32[8, 4]  attention
  1152 bytes, 8 nodes made again
@layer
  input h : f32[8, 4]
  input cu : i32[5]
  input padded : i32[5]
  saved y.y : f32[8, 4]  call
  saved y.qg : f32[8, q: 8 + gate: 8]  call
  saved y.kf : f32[8, 4]  call
  saved y.vf : f32[8, 4]  call
  saved y.o.y : f32[8, 4, 2]  call
  saved y.o.lse : f32[8, 4]  call
  saved z.a : f32[8, 6]  call
  saved z.b : f32[8, 6]  call
  1664 bytes, 3 nodes made again
@layer.2
  input h : f32[8, 4]
  input cu : i32[5]
  input padded : i32[5]
  saved y.y : f32[8, 4]  call
  saved y.qg : f32[8, q: 8 + gate: 8]  call
  saved y.kf : f32[8, 4]  call
  saved y.vf : f32[8, 4]  call
  saved y.o.y : f32[8, 4, 2]  call
  saved y.o.lse : f32[8, 4]  call
  saved z.y : f32[8, 4]  call
  saved z.a : f32[8, 6]  call
  saved z.b : f32[8, 6]  call
  1792 bytes, 3 nodes made again
";
