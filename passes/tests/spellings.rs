//! One block written in many ways: the normal form is one, forward and with gradients, and every
//! spelling computes what it did before.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::block::{SMALL, Sizes, block, inputs, spellings, with_gradients};
use support::{Named, exact, floats};
use vlmc_ir::dim::Dim;
use vlmc_ir::eval::Outputs;
use vlmc_ir::graph::Program;
use vlmc_ir::ops::Op;
use vlmc_ir::testing::Random;
use vlmc_ir::text::print;
use vlmc_ir::verify::verify;
use vlmc_passes::canon;

/// The text without names, which differ by what the spelling had of them.
fn form(p: &Program) -> String {
    let mut p = p.clone();
    for f in &mut p.functions {
        for n in &mut f.nodes {
            if !matches!(n.op, Op::Input { .. } | Op::Param { .. }) {
                n.name = None;
            }
            n.origins.clear();
        }
    }
    print::program(&p)
}

fn canonical(p: &Program) -> Program {
    let (p, log) = canon::program(p, &canon::Options::default()).unwrap();
    assert!(log.warnings.is_empty(), "{:?}", log.warnings);
    assert!(verify(&p).is_empty(), "{}", print::program(&p));
    p
}

fn assert_same(name: &str, first: &str, other: &str) {
    if first != other {
        let lines = |t: &str| t.lines().map(str::to_string).collect::<Vec<_>>();
        let (a, b) = (lines(first), lines(other));
        let at = a.iter().zip(&b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
        panic!("`{name}` differs at line {at}\n{first}\n----\n{other}");
    }
}

#[test]
fn spellings_meet() {
    let rows = Dim::symbol("T");
    let mut first: Option<(String, String)> = None;
    for s in spellings() {
        let p = canonical(&block(&s, SMALL, rows.clone()));
        let forward = form(&p);
        let joint = form(&canonical(&with_gradients(&p)));
        match &first {
            None => first = Some((forward, joint)),
            Some((f, j)) => {
                assert_same(s.name, f, &forward);
                assert_same(&format!("{}, joint", s.name), j, &joint);
            }
        }
    }
}

fn close(what: &str, a: &Outputs<f64>, b: &Outputs<f64>) {
    assert_eq!(a.0.len(), b.0.len(), "{what}");
    for (x, y) in a.0.iter().zip(&b.0) {
        assert_eq!((&x.name, &x.value.dims), (&y.name, &y.value.dims), "{what}");
        for (p, q) in x.value.to_f64().into_iter().zip(y.value.to_f64()) {
            assert!((p - q).abs() <= 1e-12 * (1.0 + p.abs()), "{what}: {:?} {p} {q}", x.name);
        }
    }
}

/// Each spelling before and after, forward and gradients, in f64, on documents of one row, with
/// padding between and behind.
#[test]
fn numbers_stay() {
    let mut rng = Random::new(5);
    for (i, z) in [SMALL, Sizes { hk: 1, hv: 3, dk: 2, dv: 1, taps: 2 }].into_iter().enumerate() {
        for s in spellings() {
            let p = block(&s, z, Dim::from(8));
            let c = canonical(&p);
            let inputs = inputs(&p, &mut rng);
            let what = format!("{} {i}", s.name);
            let none: Named<f64> = vec![];
            let plain = exact(&p, &inputs, &none).unwrap();
            close(&what, &plain, &exact(&c, &inputs, &none).unwrap());
            let mut seeds = inputs.clone();
            seeds.push(("dout.y".into(), floats(&mut rng, &plain.0[0].value.dims)));
            let raw = exact(&with_gradients(&p), &seeds, &none).unwrap();
            let joint = canonical(&with_gradients(&c));
            close(&what, &raw, &exact(&joint, &seeds, &none).unwrap());
        }
    }
}

#[test]
fn normal_forms_stay_and_runs_agree() {
    for s in spellings() {
        let p = block(&s, SMALL, Dim::symbol("T"));
        let once = canonical(&p);
        assert_eq!(print::program(&once), print::program(&canonical(&p)), "{}", s.name);
        assert_eq!(print::program(&once), print::program(&canonical(&once)), "{}", s.name);
        let joint = canonical(&with_gradients(&once));
        assert_eq!(print::program(&joint), print::program(&canonical(&joint)), "{}", s.name);
    }
}
