//! Fusion of the block in all its spellings: the clusters that must come, numbers to the last bit,
//! and what happens when a rule is off.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::block::{PLAIN, SMALL, Sizes, block, inputs, spellings, with_gradients};
use support::{Named, sound};
use vlmc_ir::dim::Dim;
use vlmc_ir::eval::{Evaluator, Outputs};
use vlmc_ir::graph::Program;
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::testing::Random;
use vlmc_ir::text::print;
use vlmc_passes::{canon, fuse};

fn canonical(p: &Program) -> Program {
    let (p, log) = canon::program(p, &canon::Options::default()).unwrap();
    assert!(log.warnings.is_empty(), "{:?}", log.warnings);
    p
}

/// Sizes of a real model.
const LARGE: Sizes = Sizes { hk: 16, hv: 32, dk: 128, dv: 128, taps: 4 };

fn fused(p: &Program, without: &[&str]) -> fuse::Fused {
    let without = without.iter().map(|r| r.to_string()).collect();
    let out = fuse::program(p, &fuse::Options { without, ..fuse::Options::default() }).unwrap();
    assert!(out.log.decisions.warnings.is_empty());
    sound(&out.program);
    out
}

fn evaluate(p: &Program, inputs: &Named<f64>) -> Outputs<f64> {
    let mut none = |name: &str, _: &vlmc_ir::graph::Param| {
        Err(vlmc_ir::eval::EvalError::new(format!("there is no parameter {name}")))
    };
    let inputs: Vec<_> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    Evaluator::new(p, &mut none).with_size("T", 8).run_main(&inputs).unwrap()
}

/// Row arithmetic that is left outside clusters.
fn outside(p: &Program) -> Vec<&'static str> {
    let mains = p.functions.iter().filter(|f| f.cluster.is_none());
    let ops = mains.flat_map(|f| &f.nodes).map(|n| &n.op);
    let works = |op: &&Op| {
        matches!(op.info().class, Class::Elementwise | Class::Reduction)
            || op.name().starts_with("causal_conv1d")
    };
    ops.filter(works).map(|op| op.name()).collect()
}

#[test]
fn every_spelling_gets_the_same_clusters() {
    let mut first: Option<[Vec<(String, usize)>; 2]> = None;
    for s in spellings() {
        let forward = canonical(&block(&s, LARGE, Dim::symbol("T")));
        let joint = canonical(&with_gradients(&forward));
        let tables = [&forward, &joint].map(|p| {
            let out = fused(p, &[]);
            assert!(outside(&out.program).iter().all(|op| ["exp", "neg"].contains(op)));
            out.table.into_iter().map(|row| (row.label, row.ops)).collect::<Vec<_>>()
        });
        // One kernel between the products and the delta rule, and one back.
        assert_eq!(tables[0].len(), 1, "{}: {:?}", s.name, tables[0]);
        assert_eq!(tables[0][0].0, "gdn.pre_gated_delta_rule");
        assert_eq!(tables[1].len(), 2, "{}: {:?}", s.name, tables[1]);
        match &first {
            None => first = Some(tables),
            Some(first) => assert_eq!(first, &tables, "{}", s.name),
        }
    }
}

#[test]
fn numbers_stay_to_the_last_bit() {
    let mut rng = Random::new(11);
    for s in spellings() {
        for raw in [false, true] {
            let p = block(&s, SMALL, Dim::symbol("T"));
            // What is not in normal form is fused too, if less well.
            let p = if raw { p } else { canonical(&p) };
            let joint = with_gradients(&p);
            let joint = if raw { joint } else { canonical(&joint) };
            for p in [p, joint] {
                let out = fused(&p, &[]);
                let given = inputs(&p, &mut rng);
                let (a, b) = (evaluate(&p, &given), evaluate(&out.program, &given));
                assert_eq!(format!("{a:?}"), format!("{b:?}"), "{}", s.name);
            }
        }
    }
}

#[test]
fn a_rule_that_is_off_costs_kernels_and_no_numbers() {
    let forward = canonical(&block(&PLAIN, LARGE, Dim::symbol("T")));
    let joint = canonical(&with_gradients(&forward));
    let all = fused(&joint, &[]);
    let cost = |f: &fuse::Fused| f.table.iter().map(|r| r.cost).sum::<f64>();
    let small = canonical(&with_gradients(&canonical(&block(&PLAIN, SMALL, Dim::symbol("T")))));
    let given = inputs(&small, &mut Random::new(3));
    let want = format!("{:?}", evaluate(&small, &given));
    let mut table = vec![];
    for rule in fuse::rule_names() {
        let less = fused(&joint, &[rule]);
        table.push(format!("{rule}: {} kernels, {:.1} us", less.table.len(), cost(&less)));
        assert!(cost(&less) >= cost(&all) - 1e-6, "{rule}");
        let have = evaluate(&fused(&small, &[rule]).program, &given);
        assert_eq!(format!("{have:?}"), want, "{rule}");
    }
    println!("all: {} kernels, {:.1} us\n{}", all.table.len(), cost(&all), table.join("\n"));
    for rule in ["absorb.stencil", "absorb.reduce", "absorb.elementwise"] {
        let less = fused(&joint, &[rule]);
        assert!(less.table.len() > all.table.len(), "without {rule} nothing changes");
    }
}

#[test]
fn names_do_not_matter_and_runs_agree() {
    let p = canonical(&with_gradients(&canonical(&block(&PLAIN, LARGE, Dim::symbol("T")))));
    let once = fused(&p, &[]);
    assert_eq!(print::program(&once.program), print::program(&fused(&p, &[]).program));
    let mut bare = p.clone();
    for f in &mut bare.functions {
        f.regions.clear();
        for n in &mut f.nodes {
            (n.region, n.name) = (None, None);
        }
    }
    assert_eq!(once.table, fused(&bare, &[]).table);
}

#[test]
fn what_does_not_fit_says_why() {
    let text = r#"program "p"
symbol T

func @main {
  input %x : f32[T, 20000]
  %q = mul %x, %x : f32[T, 20000]
  %s = reduce_sum %q {axes = [1]} : f32[T]
  %b = broadcast %s {shape = [T, 20000], dims = [0]} : f32[T, 20000]
  %y = mul %b, %x : f32[T, 20000]
  %c = reduce_sum %y {axes = [0]} : f32[20000]
  %d = broadcast %c {shape = [T, 20000], dims = [1]} : f32[T, 20000]
  %z = mul %d, %x : f32[T, 20000]
  return %z
}
"#;
    let out = fused(&support::program(text), &[]);
    let refused: Vec<String> = out
        .log
        .decisions
        .events()
        .filter_map(|(e, _)| match &e.outcome {
            fuse::Outcome::Refused(why) => Some(format!("{} {}: {why}", e.rule, e.value)),
            fuse::Outcome::Fired => None,
        })
        .collect();
    let told = |part: &str| refused.iter().any(|r| r.contains(part));
    assert!(told("a row of 20000 lanes does not fit"), "{refused:#?}");
    assert!(told("uses a sum over rows in every row"), "{refused:#?}");
    assert!(out.table.len() > 2);
}

#[test]
fn forms_change_kernels_and_no_numbers() {
    let normal = |sizes| {
        let forward = canonical(&block(&PLAIN, sizes, Dim::symbol("T")));
        canonical(&with_gradients(&forward))
    };
    let (large, small) = (normal(LARGE), normal(SMALL));
    let given = inputs(&small, &mut Random::new(5));
    let want = format!("{:?}", evaluate(&small, &given));
    let formed = |p: &Program, form| {
        let out = fuse::program(p, &fuse::Options { form, ..fuse::Options::default() }).unwrap();
        sound(&out.program);
        let have = |p: &fuse::Fused| format!("{:?}", evaluate(&p.program, &given));
        (out, have)
    };
    // How many clusters compute both a convolution, or its gradients, and a sum over lanes.
    let mixed = |f: &fuse::Fused| {
        let clusters = f.program.functions.iter().filter(|f| f.cluster.is_some());
        let holds = |f: &&vlmc_ir::graph::Function| {
            let any = |test: &dyn Fn(&Op) -> bool| f.nodes.iter().any(|n| test(&n.op));
            any(&|op| op.name().starts_with("causal_conv1d"))
                && any(&|op| matches!(op, Op::ReduceSum { axes } if !axes.contains(&0)))
        };
        clusters.filter(holds).count()
    };
    let mut counts = vec![];
    for form in fuse::Form::ALL {
        let (out, have) = formed(&small, form);
        assert_eq!(have(&out), want, "{form:?}");
        let (out, _) = formed(&large, form);
        counts.push((out.table.len(), mixed(&out)));
    }
    let [auto, unfused, streamed, mega] = counts[..] else { unreachable!() };
    // What is computed again for the way back is one launch, and what becomes of the gradients one.
    assert_eq!(mega, (2, 2));
    assert_eq!(auto, mega);
    // Queries, keys, values, gates and betas; back the same, and the decay rate's sum over rows.
    assert_eq!(streamed.0, 5 + 6);
    assert!(unfused.0 > streamed.0, "{counts:?}");
    assert!(streamed.1 > 0 && unfused.1 == 0, "{counts:?}");
}

#[test]
fn without_stencils_a_block_falls_apart() {
    let forward = canonical(&block(&PLAIN, LARGE, Dim::symbol("T")));
    let joint = canonical(&with_gradients(&forward));
    let count = |p: &Program, without: &[&str]| fused(p, without).table.len();
    assert_eq!([count(&forward, &[]), count(&joint, &[])], [1, 2]);
    // Convolutions are stored: one kernel of them each way, beside what is made of them.
    assert_eq!([count(&forward, &["absorb.stencil"]), count(&joint, &["absorb.stencil"])], [2, 3]);
}
