//! Passes on random programs: the result verifies, computes the same to the last bit, and a second
//! run changes nothing.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc_ir::testing::{Random, evaluate, random_program};
use vlmc_ir::text::{parse, print};
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
            assert!(!out.steps[1].changed, "seed {seed}: {} is not done at once", pass.name);
            let text = print::program(&out.program);
            assert!(parse::program(&text).unwrap() == out.program, "seed {seed}: {text}");
            let after = evaluate::<f32>(&out.program, seed);
            // Dead nodes may be what failed. Debug text, since some values are no numbers.
            if before.is_ok() {
                assert_eq!(format!("{before:?}"), format!("{after:?}"), "seed {seed} {text}");
            }
        }
    }
    println!("changed: {changed:?}");
    assert!(changed.iter().all(|n| *n > 100), "{changed:?}");
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
    assert_eq!(e.message, "there is no pass `dcee`, only cse, dce, prune");
    assert!(PASSES.is_sorted_by_key(|p| p.name));
}
