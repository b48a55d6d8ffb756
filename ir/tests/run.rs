//! Running functions: calls, parameters, observers, losses, sizes, errors.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::{no_params, program, run, tensor};
use vlmc_ir::eval::{EvalError, Evaluator, Sizes, Tensor};
use vlmc_ir::graph::{Function, Param};
use vlmc_ir::text::{parse, print};

const TWO_LAYERS: &str = r#"program "stack"
symbol T % 2
file "stack.vlm"

func @block {
  input %x : f32[T, 2]
  param %w = "w.weight" : f32[2, 2] init normal(0.02)
  %y = contract %x, %w {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32} : f32[T, 2]  @ "mixer.y" 0:3:7
  %z = add %y, %x : f32[T, 2]
  return %z
}

func @main {
  input %ids : i32[T] from tokens(n = 1)
  param %table = "embed" : f32[3, 2] init normal(0.02)
  %x = gather %table, %ids : f32[T, 2]
  %a = call %x {callee = "block", scope = "layers.0", path = "decoder.0", layer = 0} : f32[T, 2]
  %b = call %a {callee = "block", scope = "layers.1", path = "decoder.1", layer = 1} : f32[T, 2]
  param %head = "embed" : f32[3, 2] init normal(0.02)
  %logits = contract %b, %head {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32} : f32[T, 3]
  %sum = reduce_sum %logits {axes = [0, 1]} : f32[]
  %count = constant {value = 4.0, dtype = f32, shape = []} : f32[]
  %zero = constant {value = 0.0, dtype = f32, shape = []} : f32[]
  return "logits" = %logits
  loss "lm" = %sum / %count weight 0.5
  loss "none" = %sum / %zero weight 1.0
}
"#;

#[test]
fn calls_parameters_observer_and_losses() {
    let p = program(TWO_LAYERS);
    assert_eq!(print::program(&parse::program(TWO_LAYERS).unwrap()), TWO_LAYERS);
    let mut asked = vec![];
    let mut provider = |name: &str, param: &Param| -> Result<Tensor<f64>, EvalError> {
        asked.push(name.to_string());
        assert_eq!(param.ty.rank(), 2);
        Ok(match name {
            "embed" => tensor("f32[3, 2]", &[1., 0., 0., 1., 1., 1.]),
            "layers.0.w.weight" => tensor("f32[2, 2]", &[1., 2., 0., 0.]),
            _ => tensor("f32[2, 2]", &[0., 0., 3., 0.]),
        })
    };
    let mut seen = vec![];
    let mut observer = |path: &str, t: &Tensor<f64>| seen.push((path.to_string(), t.to_f64()));
    let mut e = Evaluator::new(&p, &mut provider).observe(&mut observer);
    let out = e.run_main(&[("ids", tensor("i32[2]", &[0., 2.]))]).unwrap();
    assert_eq!(e.sizes().get(&vlmc_ir::dim::Symbol::new("T")), Some(2));
    // Again: nothing is asked for twice.
    e.run_main(&[("ids", tensor("i32[2]", &[0., 2.]))]).unwrap();
    // x: (1, 0), (1, 1). Block 0 adds (x0 + 2 x1, 0): (2, 0), (4, 1). Block 1 adds (0, 3 x0).
    let b = [2., 6., 4., 13.];
    assert_eq!(out.get("logits").unwrap().to_f64(), [2., 6., 8., 4., 13., 17.]);
    assert_eq!(out.training_loss(), 0.5 * 50.0 / 4.0);
    assert!(out.get("nothing").is_err());
    drop(e);
    let names: Vec<&str> = seen.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names[..5], ["ids", "table", "x", "decoder.0.x", "decoder.0.w"]);
    let last = seen.iter().find(|(n, _)| n == "decoder.1.z").unwrap();
    assert_eq!(last.1, b);
    assert_eq!(asked, ["embed", "layers.0.w.weight", "layers.1.w.weight"]);
    assert_eq!(p.parameters().len(), 3);
}

#[test]
fn errors_say_where() {
    let p = program(TWO_LAYERS);
    let mut provider = |name: &str, param: &Param| -> Result<Tensor<f32>, EvalError> {
        match name {
            "embed" => Ok(tensor("f32[3, 2]", &[0.; 6])),
            "layers.0.w.weight" => Ok(tensor("f32[1, 2]", &[0.; 2])),
            _ => no_params(name, param),
        }
    };
    let mut e = Evaluator::new(&p, &mut provider);
    let mut message = |inputs: &[(&str, Tensor<f32>)]| e.run_main(inputs).unwrap_err().message;
    assert_eq!(message(&[]), "input `ids` is missing");
    assert_eq!(
        message(&[("ids", tensor("i32[3]", &[0.; 3]))]),
        "T is 3, which is no multiple of 2"
    );
    let ids = ("ids", tensor("i32[2]", &[0.; 2]));
    assert_eq!(message(&[ids.clone(), ("x", ids.1.clone())]), "@main has no input `x`");
    assert_eq!(
        message(&[ids]),
        "parameter `layers.0.w.weight`: the value is f32[1, 2], not f32[2, 2]
  in @block, called as decoder.0:
    param %w = \"w.weight\" : f32[2, 2] init normal(0.02)"
    );
    assert!(message(&[("ids", tensor("f32[2]", &[0.; 2]))]).contains("not i32[2]"));
    assert!(message(&[("ids", tensor("i32[]", &[0.]))]).contains("must be i32[T]"));
}

#[test]
fn origins_are_in_errors() {
    let p = program(
        "program \"p\" symbol T file \"a.vlm\"
         func @main { input %x : i32[T] %y = mul %x, %x : i32[T] @ \"m.y\" 0:3:7 return %y }",
    );
    let e = run::<f32>(&p, &[("x", tensor("i32[1]", &[1e6]))]).unwrap_err();
    assert_eq!(
        e.message,
        "1000000000000 does not fit i32\n  in @main:\n    %y = mul %x, %x : i32[T]  @ \"m.y\" \
         0:3:7\n  from m.y at a.vlm:3:7"
    );
}

#[test]
fn bf16_results_round_unless_told_not_to() {
    let p = program(
        "program \"p\" func @main { input %x : bf16[1] input %y : bf16[1] %z = add %x, %y : bf16[1]
         %w = cast %z {dtype = f32} : f32[1] return %w }",
    );
    let inputs = [("x", tensor::<f64>("bf16[1]", &[256.0])), ("y", tensor("bf16[1]", &[1.0]))];
    let mut provider = no_params;
    let rounded = Evaluator::new(&p, &mut provider).run_main(&inputs).unwrap();
    assert_eq!(rounded.0[0].value.to_f64(), [256.0]);
    let mut provider = no_params;
    let exact = Evaluator::new(&p, &mut provider).without_rounding().run_main(&inputs).unwrap();
    assert_eq!(exact.0[0].value.to_f64(), [257.0]);
}

#[test]
fn programs_that_do_not_verify_do_not_run() {
    let p = parse::program("program \"p\" func @main { %0 = exp %1 : f32[] return %0 }");
    assert!(p.is_err());
    let p = parse::program(
        "program \"p\" func @main { input %x : f32[2] %y = exp %x : f32[3] return %y }",
    )
    .unwrap();
    let e = run::<f32>(&p, &[("x", tensor("f32[2]", &[0.; 2]))]).unwrap_err();
    assert_eq!(
        e.message,
        "error: the result is (f32[2]), not (f32[3])\n  in @main:\n    %y = exp %x : f32[3]\n    \
         ^^^^^^^^^^^^^^^^^^^^\n"
    );
}

/// A value is gone once its last user has run, in callees too.
#[test]
fn values_are_freed_after_their_last_use() {
    let p = program(
        "program \"p\"
         func @f { input %in : f32[4] %g = exp %in : f32[4] %h = neg %g : f32[4] return %h }
         func @main { input %x : f32[4] %a = exp %x : f32[4] %b = neg %a : f32[4]
         %c = call %b {callee = \"f\", scope = \"\", path = \"call\", layer = none} : f32[4]
         %d = exp %c : f32[4] %e = add %d, %x : f32[4] return %e }",
    );
    let mut alive: Vec<(String, std::sync::Weak<Vec<f32>>)> = vec![];
    let mut at_end = vec![];
    let mut observer = |path: &str, t: &Tensor<f32>| {
        let vlmc_ir::eval::Data::Float(data) = &t.data else { return };
        let names = alive.iter().filter(|(_, w)| w.strong_count() > 0).map(|(n, _)| n.as_str());
        at_end.push(format!("{path}: {}", names.collect::<Vec<_>>().join(" ")));
        alive.push((path.to_string(), std::sync::Arc::downgrade(data)));
    };
    let mut provider = no_params;
    let inputs = [("x", tensor("f32[4]", &[0.0; 4]))];
    Evaluator::new(&p, &mut provider).observe(&mut observer).run_main(&inputs).unwrap();
    assert_eq!(
        at_end,
        [
            "x: ",
            "a: x",
            "b: x",
            "call.in: x b",
            "call.g: x",
            "call.h: x",
            "c: x call.h",
            "d: x",
            "e: x"
        ]
    );
}

/// Not a test of time; prints what attention over many rows takes.
#[test]
fn speed_of_attention() {
    let p = program(
        "program \"p\" symbol T func @main { input %q : f32[T, 4, 64] input %k : f32[T, 2, 64]
         input %cu : i32[2]
         %y = attention %q, %k, %k, %cu, %cu {scale = 0.125, causal = true, window = none}
           : (f32[T, 4, 64], f32[T, 4]) return %y }",
    );
    let rows = 2048;
    let wave = |n: usize| -> Vec<f64> { (0..n).map(|i| (i as f64).sin()).collect() };
    let inputs = [
        ("q", tensor::<f32>(&format!("f32[{rows}, 4, 64]"), &wave(rows * 256))),
        ("k", tensor(&format!("f32[{rows}, 2, 64]"), &wave(rows * 128))),
        ("cu", tensor("i32[2]", &[0.0, rows as f64])),
    ];
    let start = std::time::Instant::now();
    run(&p, &inputs).unwrap();
    println!("{rows} rows, 4 heads of 64: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
}

/// Not a test of time; prints what a contraction takes.
#[test]
fn speed_of_a_contraction() {
    let n = 256;
    let p = program(&format!(
        "program \"p\" func @main {{ input %a : f32[{n}, {n}] input %b : f32[{n}, {n}]
         %y = contract %a, %b {{a_batch = [], b_batch = [], a_contract = [1], b_contract = [1],
           dtype = f32}} : f32[{n}, {n}] return %y }}"
    ));
    let x = vec![0.5; n * n];
    let ty = format!("f32[{n}, {n}]");
    let inputs = [("a", tensor::<f32>(&ty, &x)), ("b", tensor(&ty, &x))];
    let mut provider = no_params;
    let mut e = Evaluator::new(&p, &mut provider);
    e.run_main(&inputs).unwrap();
    let start = std::time::Instant::now();
    for _ in 0..20 {
        e.run_main(&inputs).unwrap();
    }
    let each = start.elapsed().as_secs_f64() / 20.0;
    let rate = 2.0 * (n * n * n) as f64 / each / 1e9;
    println!("{n} x {n} x {n}: {:.2} ms, {rate:.1} GFLOP/s", each * 1e3);
}

#[test]
fn a_substitute_computes_clusters_only() {
    let text = r#"program "p"

func @double cluster "double" {
  input %x : bf16[2]
  %y = add %x, %x : bf16[2]
  return %y
}

func @triple cluster "triple" {
  input %x : bf16[2]
  %d = add %x, %x : bf16[2]
  %y = add %d, %x : bf16[2]
  return %y
}

func @plain {
  input %x : bf16[2]
  return %x
}

func @main {
  input %x : bf16[2]
  %d = call %x {callee = "double", scope = "", path = "", layer = none} : bf16[2]
  %t = call %d {callee = "triple", scope = "", path = "", layer = none} : bf16[2]
  %p = call %t {callee = "plain", scope = "", path = "", layer = none} : bf16[2]
  return %p
}
"#;
    let p = program(text);
    let mut asked = vec![];
    let mut instead = |f: &Function, inputs: &[Tensor<f32>], _: &Sizes| {
        asked.push(f.name.clone());
        let [x] = inputs else { return Err(EvalError::new("one input")) };
        // What it gives is rounded as any result is: 7 + 2^-8 is no bf16 number.
        let seven = vec![7.0 + 1.0 / 256.0; x.len()];
        let y = Tensor::floats(x.dtype, x.dims.clone(), seven)?;
        Ok((f.name == "double").then(|| vec![y]))
    };
    let mut provider = no_params;
    let mut e = Evaluator::new(&p, &mut provider).substitute(&mut instead);
    let out = e.run_main(&[("x", tensor("bf16[2]", &[1., 2.]))]).unwrap();
    assert_eq!(out.0[0].value.to_f64(), [21.0, 21.0]);
    assert_eq!(asked, ["double", "triple"]);
    // Results that are none of the call, and errors, name the cluster.
    let mut wrong = |_: &Function, _: &[Tensor<f32>], _: &Sizes| Ok(Some(vec![]));
    let mut provider = no_params;
    let mut e = Evaluator::new(&p, &mut provider).substitute(&mut wrong);
    let message = e.run_main(&[("x", tensor("bf16[2]", &[1., 2.]))]).unwrap_err().message;
    assert!(message.starts_with("0 results, not 1\n  in @main"), "{message}");
    let mut fails = |_: &Function, _: &[Tensor<f32>], _: &Sizes| Err(EvalError::new("no room"));
    let mut provider = no_params;
    let mut e = Evaluator::new(&p, &mut provider).substitute(&mut fails);
    let message = e.run_main(&[("x", tensor("bf16[2]", &[1., 2.]))]).unwrap_err().message;
    assert!(message.starts_with("@double: no room\n  in @main"), "{message}");
}
