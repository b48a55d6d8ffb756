//! Random programs: text form, verifier, evaluator.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc_ir::testing::{Coverage, Random, evaluate, random_program};
use vlmc_ir::text::{parse, print};
use vlmc_ir::verify::verify;

#[test]
fn ten_thousand_programs_print_and_parse() {
    let mut coverage = Coverage::default();
    for seed in 0..10_000 {
        let p = random_program(&mut Random::new(seed));
        if let Some(e) = verify(&p).first() {
            panic!("seed {seed}: {}", e.render(&p));
        }
        let text = print::program(&p);
        let back = parse::program(&text)
            .unwrap_or_else(|e| panic!("seed {seed}: {}", parse::render(&text, &e)));
        assert_eq!(print::program(&back), text, "seed {seed}");
        assert!(back == p, "seed {seed}: {text}\n{p:?}\n{back:?}");
        coverage.add(&p);
    }
    println!("{:#?}", coverage);
    assert!(coverage.missing().is_empty(), "never made: {:?}", coverage.missing());
}

/// The evaluator runs what the generator makes, without a panic; the only error is an integer that
/// has grown too large.
#[test]
fn random_programs_evaluate() {
    let (mut done, mut failed) = (0, 0);
    for seed in 0..1500 {
        let p = random_program(&mut Random::new(seed));
        match evaluate::<f32>(&p, seed) {
            Ok(_) => done += 1,
            Err(e) => {
                failed += 1;
                assert!(e.message.contains("does not fit i32"), "seed {seed}: {e}");
            }
        }
    }
    println!("{done} evaluated, {failed} grew too large");
    assert!(done > 20 * failed);
}
