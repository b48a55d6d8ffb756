//! Every canonical and every fusing rule: it has a case in which it fires and one in which it must
//! not, and where it fires, random numbers stay, forward and back, at awkward lengths.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{Named, exact, floats, ints, program};
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::Tensor;
use vlmc_ir::graph::{Input, Program};
use vlmc_ir::ops::Op;
use vlmc_ir::testing::Random;
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::{canon, fuse};

/// Rows of the first shapes; more are drawn.
const LENGTHS: [usize; 5] = [1, 3, 63, 64, 65];

/// Relative to the norm of a tensor: rules of the normal form are equal in real numbers.
const TOLERANCE: f64 = 1e-11;

/// A case by its path: what goes in, the rules that fire, and those that must not.
struct Case {
    path: PathBuf,
    text: String,
    fires: Vec<String>,
    must_not: Vec<String>,
}

fn cases(folder: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("\n// ----\n").next().unwrap().to_string() + "\n";
        let of = |key: &str| -> Vec<String> {
            text.lines().filter_map(|l| l.strip_prefix(key)).map(str::to_string).collect()
        };
        let fires =
            of("// fires: ").iter().flat_map(|l| l.split(", ")).map(str::to_string).collect();
        let must_not = of("// must-not-fire: ");
        let must_not = must_not.iter().map(|l| l.split_once(": ").unwrap().0.to_string()).collect();
        Case { path, fires, must_not, text }
    };
    paths.into_iter().map(read).collect()
}

fn has_both(rules: &[&str], folder: &str) {
    let cases = cases(folder);
    let fires: BTreeSet<&str> = cases.iter().flat_map(|c| &c.fires).map(String::as_str).collect();
    let not: BTreeSet<&str> = cases.iter().flat_map(|c| &c.must_not).map(String::as_str).collect();
    let missing: Vec<&&str> =
        rules.iter().filter(|r| !fires.contains(*r) || !not.contains(*r)).collect();
    assert!(missing.is_empty(), "in tests/cases/{folder} a case is missing for {missing:?}");
}

#[test]
fn every_canonical_rule_has_a_case_each_way() {
    has_both(&canon::rule_names(), "canon");
}

#[test]
fn every_fusing_rule_has_a_case_each_way() {
    has_both(&fuse::rule_names(), "fuse");
}

/// Which inputs are boundaries of documents, and whether they are the padded ones.
fn boundaries(p: &Program, input: &Input) -> Option<bool> {
    let main = p.main()?;
    let at = main.inputs.iter().position(|i| i.name == input.name)?;
    for n in &main.nodes {
        for (k, v) in n.operands.iter().enumerate() {
            let is = matches!(main.node(v.node).op, Op::Input { index } if index as usize == at);
            match n.op.info().operand_name(k) {
                "cu_seqlens" if is => return Some(false),
                "cu_seqlens_padded" if is => return Some(true),
                _ => {}
            }
        }
    }
    None
}

/// Boundaries of some documents in so many rows: lengths of 1 are frequent, and so is padding.
fn pack(rng: &mut Random, documents: usize, rows: usize) -> [Vec<i64>; 2] {
    let (mut valid, mut padded, mut left) = (vec![0i64], vec![0i64], rows);
    for i in 0..documents {
        let most = if i + 1 == documents { left } else { left.min(rows / 2 + 1) };
        let room = if rng.chance(40) { most.min(1) } else { rng.below(most + 1) };
        let length = if rng.chance(50) { room } else { rng.below(room + 1) };
        valid.push(valid[i] + length as i64);
        padded.push(padded[i] + room as i64);
        left -= room;
    }
    [valid, padded]
}

fn inputs(p: &Program, rows: usize, rng: &mut Random) -> Named<f64> {
    let size = |s: &Symbol| {
        let multiple = p.symbols.iter().find(|d| d.symbol == *s).map_or(1, |d| d.multiple_of);
        let n = if *s == Symbol::new("T") { rows as i64 } else { 3 };
        Some((n + multiple - 1) / multiple * multiple)
    };
    let mut packs: Vec<(usize, [Vec<i64>; 2])> = vec![];
    let main = p.main().unwrap();
    let values = main.inputs.iter().map(|input| {
        let dims: Vec<usize> =
            input.ty.dims.iter().map(|d| d.size().eval(&size).unwrap() as usize).collect();
        let n: usize = dims.iter().product();
        let t = match (boundaries(p, input), input.ty.dtype) {
            (Some(is_padded), _) => {
                let documents = dims[0] - 1;
                if !packs.iter().any(|(d, _)| *d == documents) {
                    packs.push((documents, pack(rng, documents, rows)));
                }
                let (_, pack) = packs.iter().find(|(d, _)| *d == documents).unwrap();
                ints(&pack[usize::from(is_padded)])
            }
            (None, DType::I32) => {
                Tensor::ints(dims, (0..n).map(|_| rng.below(4) as i64).collect()).unwrap()
            }
            (None, DType::Bool) => {
                Tensor::bools(dims, (0..n).map(|_| rng.chance(50)).collect()).unwrap()
            }
            (None, dtype) => {
                let t = floats(rng, &dims);
                Tensor::new(dtype, t.dims, t.data).unwrap()
            }
        };
        (input.name.to_string(), t)
    });
    values.collect()
}

fn params(p: &Program, rng: &mut Random) -> Named<f64> {
    let all = p.parameters().into_iter().map(|(name, param)| {
        let dims = param.ty.dims.iter().map(|d| d.size().as_constant().unwrap() as usize);
        (name, floats(rng, &dims.collect::<Vec<_>>()))
    });
    all.collect()
}

/// A program and, where it has results that depend on floats, its gradients.
fn both_ways(p: &Program) -> Vec<Program> {
    let main = p.main().unwrap();
    let floats = main.inputs.iter().filter(|i| i.ty.dtype.is_float());
    let inputs: Vec<String> = floats.map(|i| i.name.to_string()).collect();
    let joint = differentiate(p, &Options { seeds: Seeds::Outputs, inputs });
    [p.clone()].into_iter().chain(joint.ok()).collect()
}

/// How far results are apart, relative to their norm; infinities and their like must be equal.
fn compare(
    what: &str,
    a: &Program,
    b: &Program,
    given: &Named<f64>,
    params: &Named<f64>,
    most: f64,
) {
    let run = |p: &Program| exact(p, given, params).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (x, y) = (run(a), run(b));
    assert_eq!(x.0.len(), y.0.len(), "{what}");
    for (x, y) in x.0.iter().zip(&y.0) {
        assert_eq!(x.value.dims, y.value.dims, "{what}");
        let (x, y) = (x.value.to_f64(), y.value.to_f64());
        let (mut off, mut norm) = (0.0, 0.0);
        for (x, y) in x.iter().zip(&y) {
            if x.is_finite() && y.is_finite() {
                off += (x - y) * (x - y);
                norm += x * x;
            } else {
                assert!(x.to_bits() == y.to_bits() || !x.is_finite() && !y.is_finite(), "{what}");
            }
        }
        assert!(off.sqrt() <= most * (1.0 + norm.sqrt()), "{what}: {:e}", off.sqrt());
    }
}

fn check(shapes: usize) {
    let mut programs = 0;
    for (folder, fuses) in [("canon", false), ("fuse", true)] {
        for case in cases(folder).iter().filter(|c| !c.fires.is_empty()) {
            let plain = program(&case.text);
            for p in both_ways(&plain) {
                let (normal, _) = canon::program(&p, &canon::Options::default()).unwrap();
                let (before, after, most) = match fuses {
                    false => (p, normal, TOLERANCE),
                    // Fusing copies nodes as they are.
                    true => {
                        let fused = fuse::program(&normal, &fuse::Options::default()).unwrap();
                        (normal, fused.program, 0.0)
                    }
                };
                programs += 1;
                for shape in 0..shapes {
                    let mut rng = Random::new(shape as u64 + 1);
                    let rows = LENGTHS.get(shape).copied().unwrap_or_else(|| 1 + rng.below(70));
                    let given = inputs(&before, rows, &mut rng);
                    let params = params(&before, &mut rng);
                    let what = format!("{} with {rows} rows", case.path.display());
                    compare(&what, &before, &after, &given, &params, most);
                }
            }
        }
    }
    assert!(programs >= 80, "{programs} programs");
}

#[test]
fn numbers_stay_where_rules_fire() {
    check(12);
}

#[test]
#[ignore = "many shapes"]
fn numbers_stay_where_rules_fire_over_many_shapes() {
    check(200);
}
