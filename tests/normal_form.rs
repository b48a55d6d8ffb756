//! The rules of the normal form, on the programs of `cases/canon`: each rule has a case where it
//! fires and one where it must not, and all of them keep the numbers, forward and of gradients, each
//! family alone and all together.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use vlmc_filetests::{Case, find_cases};
use vlmc_ir::eval::{EvalError, Evaluator, Outputs, Tensor};
use vlmc_ir::graph::Program;
use vlmc_ir::testing::Random;
use vlmc_ir::text::{parse, print};
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::canon;

fn cases() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/canon");
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, Case::parse(&std::fs::read_to_string(&path).unwrap()).unwrap())
    };
    find_cases(&folder).unwrap().into_iter().map(read).collect()
}

#[test]
fn every_rule_has_its_cases() {
    let cases = cases();
    let fires: BTreeSet<&str> =
        cases.iter().flat_map(|(_, c)| &c.fires).map(String::as_str).collect();
    let not: BTreeSet<&str> =
        cases.iter().flat_map(|(_, c)| &c.must_not_fire).map(|(rule, _)| rule.as_str()).collect();
    for rule in canon::rule_names() {
        assert!(fires.contains(rule), "no case in which `{rule}` fires");
        assert!(not.contains(rule), "no case in which `{rule}` must not fire");
    }
}

/// Random inputs of main with `rows` for T. Odd seeds give positive numbers, which roots need.
fn inputs(p: &Program, rows: i64, seed: u64) -> Vec<(String, Tensor<f64>)> {
    let mut rng = Random::new(seed);
    let main = p.main().unwrap();
    let inputs = main.inputs.iter().map(|input| {
        let size = |d: &vlmc_ir::dim::Dim| d.size().eval(&|_| Some(rows)).unwrap() as usize;
        let dims: Vec<usize> = input.ty.dims.iter().map(size).collect();
        let n: usize = dims.iter().product();
        // Two documents: one of one row, and one with a row of padding behind when there is room.
        let valid = [0, 1.min(rows), (rows - 1).max(1)];
        let t = match (&*input.name, input.ty.dtype) {
            ("cu", _) => Tensor::ints(dims, valid.to_vec()),
            ("padded", _) => Tensor::ints(dims, vec![0, 1.min(rows), rows]),
            (_, DType::I32) => {
                Tensor::ints(dims, (0..n).map(|_| rng.below(9) as i64 - 4).collect())
            }
            (_, DType::Bool) => Tensor::bools(dims, (0..n).map(|_| rng.chance(50)).collect()),
            (_, float) => {
                let value = |x: f64| if seed % 2 == 1 { x.abs() + 0.1 } else { x * 3.0 };
                Tensor::floats(float, dims, (0..n).map(|_| value(rng.real())).collect())
            }
        };
        (input.name.to_string(), t.unwrap())
    });
    inputs.collect()
}

fn evaluate(
    p: &Program,
    inputs: &[(String, Tensor<f64>)],
    rows: i64,
) -> Result<Outputs<f64>, EvalError> {
    let mut none = |name: &str, _: &vlmc_ir::graph::Param| {
        Err(EvalError::new(format!("there is no parameter {name}")))
    };
    let inputs: Vec<(&str, Tensor<f64>)> =
        inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    Evaluator::new(p, &mut none).without_rounding().with_size("T", rows as usize).run_main(&inputs)
}

fn assert_close(what: &str, a: &Outputs<f64>, b: &Outputs<f64>) {
    assert_eq!(a.0.len(), b.0.len(), "{what}");
    for (i, (x, y)) in a.0.iter().zip(&b.0).enumerate() {
        assert_eq!((&x.name, &x.value.dims), (&y.name, &y.value.dims), "{what}");
        for (p, q) in x.value.to_f64().into_iter().zip(y.value.to_f64()) {
            let close = (p - q).abs() <= 1e-11 * (1.0 + p.abs());
            assert!(close || !p.is_finite(), "{what}: result {i} is {q}, not {p}");
        }
    }
}

/// The program with gradients of every float input, when it has any.
fn with_gradients(p: &Program) -> Option<Program> {
    let floats = p.main()?.inputs.iter().filter(|i| i.ty.dtype.is_float());
    let inputs = floats.map(|i| i.name.to_string()).collect();
    differentiate(p, &Options { seeds: Seeds::Outputs, inputs }).ok()
}

/// All rules, and each family with what it needs alone.
fn families() -> Vec<(String, canon::Options)> {
    let family = |rule: &&str| rule.split('.').next().unwrap().to_string();
    let rules = canon::rule_names();
    let names: BTreeSet<String> = rules.iter().map(family).collect();
    let alone = names.into_iter().map(|name| {
        let without = rules.iter().filter(|r| family(r) != name).map(|r| r.to_string()).collect();
        (name, canon::Options { without, ..canon::Options::default() })
    });
    std::iter::once(("all".to_string(), canon::Options::default())).chain(alone).collect()
}

fn check(rows: &[i64], seeds: std::ops::Range<u64>) {
    for (name, case) in cases() {
        let p = parse::program(&case.input).unwrap();
        let gradients = with_gradients(&p);
        for (family, options) in families() {
            let form = |p: &Program| canon::program(p, &options).unwrap().0;
            let after = form(&p);
            // Gradients of the normal form, and the normal form of gradients.
            let late = gradients.as_ref().map(form);
            let early = with_gradients(&after).map(|p| form(&p));
            for rows in rows {
                for seed in seeds.clone() {
                    let what = format!("{name}, {family}, {rows} rows, seed {seed}");
                    let given = inputs(&p, *rows, seed);
                    let Ok(before) = evaluate(&p, &given, *rows) else {
                        continue;
                    };
                    let text = || format!("{what}\n{}", print::program(&after));
                    assert_close(&text(), &before, &evaluate(&after, &given, *rows).unwrap());
                    let (Some(raw), Some(late), Some(early)) = (&gradients, &late, &early) else {
                        continue;
                    };
                    let given = inputs(raw, *rows, seed);
                    let raw = evaluate(raw, &given, *rows).unwrap();
                    assert_close(&what, &raw, &evaluate(late, &given, *rows).unwrap());
                    assert_close(&what, &raw, &evaluate(early, &given, *rows).unwrap());
                }
            }
        }
    }
}

#[test]
fn rules_keep_numbers_and_gradients() {
    check(&[1, 3, 8, 65], 0..3);
}

#[test]
#[ignore = "many shapes"]
fn rules_keep_numbers_and_gradients_on_many_shapes() {
    check(&[1, 2, 3, 7, 8, 63, 64, 65, 66, 127], 10..30);
}
