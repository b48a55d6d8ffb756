//! Random and large programs, element types, and what is refused.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};
use support::{exact, floats, get, gradients_of, named, program, sound, typed};
use vlmc_ir::eval::{Evaluator, Tensor};
use vlmc_ir::graph::{OutputKind, Param, Program};
use vlmc_ir::ops::Op;
use vlmc_ir::testing::{Random, random_program};
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Plan, Seeds, differentiate};

/// Whatever verifies is differentiated to something that verifies, or refused with a reason.
#[test]
fn random_programs() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..2000 {
        let p = random_program(&mut Random::new(seed));
        for seeds in [Seeds::Counts, Seeds::Totals, Seeds::Outputs] {
            let floats = p.main().unwrap().inputs.iter().filter(|i| i.ty.dtype.is_float());
            let inputs = floats.map(|i| i.name.to_string()).collect();
            match differentiate(&p, &Options { seeds, inputs }) {
                Ok(d) => {
                    sound(&d);
                    done += 1;
                }
                Err(e) => {
                    refused += 1;
                    let known = [
                        "is a gradient",
                        "placed programs",
                        "no loss",
                        "lie differently",
                        "is still owed",
                    ];
                    let known = known.iter().any(|k| e.message.contains(k));
                    assert!(known, "seed {seed}: {e}");
                }
            }
        }
    }
    println!("{done} differentiated, {refused} refused");
    assert!(done > refused);
}

/// A tower of sixty layers is a list of calls: each kind of layer is differentiated once.
fn tower(layers: usize) -> Program {
    let product = "{a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = bf16}";
    let steps: String = (0..120)
        .map(|i| format!("%a{} = silu %a{i}\n%b{} = mul %a{}, %x\n", i + 1, i, i + 1))
        .collect();
    let layer = |name: &str| {
        format!(
            "func @{name} {{
            input %h : bf16[64, 8]
            param %w = \"w\" : bf16[8, 8] init normal(0.1)
            param %v = \"v\" : bf16[8, 8] init normal(0.1)
            %x = contract %h, %w {product}
            %a0 = add %h, %x
            {steps}
            %y = contract %a120, %v {product}
            %z = add %h, %y
            return \"h\" = %z
            }}\n"
        )
    };
    let mut text = layer("one") + &layer("two");
    text += "func @main {
        input %ids : i32[64]
        param %table = \"embed\" : bf16[9, 8] init normal(0.1)
        %h0 = gather %table, %ids\n";
    for i in 0..layers {
        let kind = if i % 4 == 3 { "two" } else { "one" };
        text += &format!(
            "%h{} = call %h{i} {{callee = \"{kind}\", scope = \"layers.{i}\", \
             path = \"layers.{i}\", layer = {i}}}\n",
            i + 1
        );
    }
    text += &format!(
        "%f = cast %h{layers} {{dtype = f32}}
        %s = reduce_sum %f {{axes = [0, 1]}}
        %n = constant {{value = 64.0, dtype = f32, shape = []}}
        loss \"sum\" = %s / %n weight 1.0\n}}"
    );
    program(&typed(&text))
}

#[test]
fn sixty_layers_cost_two_templates() {
    let p = tower(60);
    let start = Instant::now();
    let d = differentiate(&p, &Options::default()).unwrap();
    let taken = start.elapsed();
    println!("{taken:?}");
    assert!(taken < Duration::from_millis(500), "{taken:?}");
    sound(&d);
    let names: Vec<&str> = d.functions.iter().map(|f| &*f.name).collect();
    assert_eq!(names, ["two.fwd", "two.bwd", "one.fwd", "one.bwd", "main"]);
    let main = d.main().unwrap();
    assert_eq!(main.nodes.iter().filter(|n| matches!(n.op, Op::Call { .. })).count(), 120);
    assert_eq!(main.outputs.len(), 1 + 1 + 120);
}

/// Gradients of bf16 parameters leave products, sums over rows and tables in f32, unrounded.
#[test]
fn main_gradients_are_f32() {
    let p = program(&typed(
        "func @main {
        input %ids : i32[4]
        input %x : bf16[4, 8]
        param %table = \"table\" : bf16[3, 8] init normal(0.1)
        param %w = \"w\" : bf16[4, 2, 8] init normal(0.1)
        param %bias = \"bias\" : bf16[8] init normal(0.1)
        %e = gather %table, %ids
        %h = add %e, %x
        %b = broadcast %bias {shape = [4, 8], dims = [1]}
        %hb = add %h, %b
        %wr = reshape %w {shape = [8, 8]}
        %y = contract %hb, %wr {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = bf16}
        return \"y\" = %y
        }",
    ));
    let d = gradients_of(&p, &Options { seeds: Seeds::Outputs, inputs: vec!["x".into()] });
    let main = d.main().unwrap();
    for o in main.outputs.iter().filter(|o| o.kind == OutputKind::Gradient) {
        assert_eq!(main.ty(o.value).dtype, DType::F32, "{:?}", o.name);
        // Nothing between the last sum and the output rounds.
        let mut v = o.value;
        loop {
            let n = main.node(v.node);
            assert_eq!(n.tys[0].dtype, DType::F32, "{:?}", o.name);
            match &n.op {
                Op::Reshape { .. } => v = n.operands[0],
                Op::Contract { .. } | Op::ReduceSum { .. } | Op::ScatterAdd { .. } => break,
                other => panic!("{:?} ends with {other:?}", o.name),
            }
        }
    }
    let x = main.outputs.iter().find(|o| o.name.as_deref() == Some("grad.in.x")).unwrap();
    assert_eq!(main.ty(x.value).dtype, DType::Bf16);
    // Rounded bf16 arithmetic stays near the exact one.
    let mut r = Random::new(9);
    let bf16 = |t: Tensor<f64>| Tensor::new(DType::Bf16, t.dims, t.data).unwrap();
    let mut tensor = |dims: &[usize]| bf16(floats(&mut r, dims));
    let inputs = named(&[("x", tensor(&[4, 8])), ("dout.y", tensor(&[4, 8]))]);
    let inputs = [inputs, named(&[("ids", support::ints(&[2, 0, 2, 1]))])].concat();
    let params =
        named(&[("table", tensor(&[3, 8])), ("w", tensor(&[4, 2, 8])), ("bias", tensor(&[8]))]);
    let ideal = exact(&d, &inputs, &params).unwrap();
    let mut provider =
        |name: &str, _: &Param| Ok(params.iter().find(|(n, _)| n == name).unwrap().1.clone());
    let list: Vec<_> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let rounded = Evaluator::new(&d, &mut provider).run_main(&list).unwrap();
    for name in ["table", "w", "bias"] {
        for (a, b) in get(&ideal, name).iter().zip(get(&rounded, name)) {
            assert!((a - b).abs() < 0.03 * (1.0 + a.abs()), "{name}: {a} {b}");
        }
    }
}

/// A product kept in f32 and rounded later goes back through bf16 products: the gradient that
/// reaches it is a widened bf16 one.
#[test]
fn products_go_back_in_their_own_type() {
    let product = "{a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}";
    let p = program(&typed(&format!(
        "func @main {{
        input %x : bf16[4, 8]
        param %w = \"w\" : bf16[2, 8] init normal(0.1)
        %y = contract %x, %w {product}
        %n = cast %y {{dtype = bf16}}
        return \"n\" = %n
        return \"y\" = %y
        }}"
    )));
    let types = |p: &Program| {
        let d = gradients_of(p, &Options { seeds: Seeds::Outputs, inputs: vec!["x".into()] });
        let main = d.main().unwrap();
        let products = main.nodes.iter().filter(|n| matches!(n.op, Op::Contract { .. }));
        products.map(|n| main.ty(n.operands[0]).dtype).collect::<Vec<_>>()
    };
    // With a gradient of the f32 result itself there is nothing to take back.
    assert_eq!(types(&p), [DType::Bf16, DType::F32, DType::F32]);
    let mut p = p;
    p.functions[0].outputs.pop();
    assert_eq!(types(&p), [DType::Bf16; 3]);
}

/// A split's way back is a join, not a sum of padded parts.
#[test]
fn splits_go_back_as_joins() {
    let p = program(&typed(
        "func @main {
        input %x : f32[2, a: 2 + b: 3 + c: 1]
        %a = slice %x {axis = 1, start = 0, size = 2}
        %b = slice %x {axis = 1, start = 2, size = 3}
        %c = slice %x {axis = 1, start = 5, size = 1}
        %ya = silu %a
        %yb = exp %b
        %yc = neg %c
        return \"a\" = %ya
        return \"b\" = %yb
        return \"c\" = %yc
        }",
    ));
    let d = gradients_of(&p, &Options { seeds: Seeds::Outputs, inputs: vec!["x".into()] });
    let main = d.main().unwrap();
    let count = |name: &str| main.nodes.iter().filter(|n| n.op.name() == name).count();
    assert_eq!((count("pad"), count("concat"), count("add")), (0, 1, 1));
    let o = main.outputs.iter().find(|o| o.name.as_deref() == Some("grad.in.x")).unwrap();
    assert_eq!(main.ty(o.value).to_string(), "f32[2, a: 2 + b: 3 + c: 1]");
}

#[test]
fn what_is_refused() {
    let error = |text: &str, options: &Options| {
        Plan::new(&program(&typed(text)), options).err().map(|e| e.message).unwrap_or_default()
    };
    let none = Options::default();
    let text = "func @main {\ninput %x : f32[2]\n%y = exp %x\nreturn \"y\" = %y\n}";
    assert!(error(text, &none).contains("no loss to start from"));
    let options = Options { seeds: Seeds::Outputs, inputs: vec!["z".into()] };
    assert!(error(text, &options).contains("no float input `z`"));
    let text = "func @main {
        input %x : f32[2]
        param %w = \"y\" : f32[2] init constant(1.0)
        %y = mul %x, %w
        return \"y\" = %y
        }";
    let p = program(&typed(text));
    let options = Options { seeds: Seeds::Outputs, inputs: vec![] };
    let e = differentiate(&p, &options).unwrap_err();
    assert!(e.message.contains("an output and of a gradient"), "{e}");
    let text = "func @main {
        input %x : f32[5, 2]
        input %cu : i32[2]
        input %padded : i32[2]
        input %q : f32[5, 1, 2]
        input %g : f32[5, 1]
        %d = gated_delta_rule_grad %q, %q, %q, %g, %g, %q, %cu, %padded
        return \"d\" = %d#0
        }";
    let options = Options { seeds: Seeds::Outputs, inputs: vec!["q".into()] };
    let e = error(text, &options);
    assert!(e.contains("not differentiated again\n  in @main:\n    %d = "), "{e}");
    let mut p = Program::default();
    assert!(Plan::new(&p, &none).is_err());
    p.functions.push(vlmc_ir::graph::Function::new("main"));
    assert!(Plan::new(&p, &none).is_err());
}
