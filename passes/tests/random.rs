//! Passes on random programs: the result verifies, computes the same to the last bit, and a second
//! run changes nothing.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc_ir::eval::Outputs;
use vlmc_ir::testing::{Random, evaluate, random_program};
use vlmc_ir::text::{parse, print};
use vlmc_ir::ty::DType;
use vlmc_passes::manager::{PASSES, parse_list, run};

#[test]
fn passes_keep_the_meaning() {
    let mut changed = vec![0; PASSES.len()];
    for seed in 0..600 {
        let p = random_program(&mut Random::new(seed));
        let before = evaluate::<f32>(&p, seed);
        for (i, pass) in PASSES.iter().enumerate() {
            let out = run(&p, &[pass, pass]).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            changed[i] += usize::from(out.steps[0].changed);
            let text = print::program(&out.program);
            assert!(!out.steps[1].changed, "seed {seed}: {} is not done at once", pass.name);
            assert!(parse::program(&text).unwrap() == out.program, "seed {seed}: {text}");
            let after = evaluate::<f32>(&out.program, seed);
            // Dead nodes may be what failed. Debug text, since some values are no numbers.
            match &before {
                Ok(_) if pass.name != "canon" => {
                    assert_eq!(format!("{before:?}"), format!("{after:?}"), "seed {seed} {text}");
                }
                Ok(before) => {
                    let after = after.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                    let old = print::program(&p);
                    assert_close(before, &after, &format!("seed {seed}\n{old}\n{text}"));
                }
                Err(_) => {}
            }
        }
    }
    println!("changed: {changed:?}");
    // Random programs have no forward and backward, so nothing in them is recomputed.
    let idle = |i: usize| PASSES[i].name == "recompute";
    let as_expected = |(i, n): (usize, &usize)| if idle(i) { *n == 0 } else { *n > 90 };
    assert!(changed.iter().enumerate().all(as_expected), "{changed:?}");
}

/// Equal but for rounding. What is infinite or no number in one may be finite in the other: a
/// named form does not overflow where a long one does.
fn assert_close(a: &Outputs<f32>, b: &Outputs<f32>, what: &str) {
    assert_eq!(a.0.len(), b.0.len(), "{what}");
    for (x, y) in a.0.iter().zip(&b.0) {
        assert_eq!((&x.value.dims, x.value.dtype), (&y.value.dims, y.value.dtype), "{what}");
        let tolerance = if x.value.dtype == DType::Bf16 { 0.03 } else { 1e-4 };
        for (x, y) in x.value.to_f64().into_iter().zip(y.value.to_f64()) {
            let close = (x - y).abs() <= tolerance * (1.0 + x.abs().max(y.abs()));
            assert!(close || !x.is_finite() || !y.is_finite(), "{x} and {y}: {what}");
        }
    }
}

#[test]
fn lists_are_read() {
    let names = |list| {
        let passes = parse_list(list).unwrap();
        passes.iter().map(|p| p.name).collect::<Vec<_>>()
    };
    assert_eq!(names(" cse, dce ,"), ["cse", "dce"]);
    assert!(names("").is_empty());
    let e = parse_list("cse, dcee").unwrap_err();
    assert_eq!(e.message, "there is no pass `dcee`, only canon, cse, dce, fuse, prune, recompute");
    assert!(PASSES.is_sorted_by_key(|p| p.name));
}
