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

/// Texts of random programs with a few bytes changed, cut, doubled or moved. Whatever still parses
/// prints as a text that reads back the same, and nothing panics.
#[test]
fn damaged_texts_are_handled() {
    let mut rng = Random::new(7);
    let (mut parsed, mut refused, mut sound, mut ran) = (0, 0, 0, 0);
    for seed in 0..600 {
        let text = print::program(&random_program(&mut rng));
        for _ in 0..20 {
            let damaged = damage(&text, &mut rng);
            let p = match parse::program(&damaged) {
                Ok(p) => p,
                Err(e) => {
                    assert!(!parse::render(&damaged, &e).is_empty());
                    refused += 1;
                    continue;
                }
            };
            parsed += 1;
            let errors = verify(&p);
            if errors.is_empty() {
                sound += 1;
                // Whatever comes, it is no panic.
                ran += usize::from(evaluate::<f32>(&p, seed).is_ok());
            }
            errors.iter().for_each(|e| drop(e.render(&p)));
            let printed = print::program(&p);
            let again = parse::program(&printed).unwrap_or_else(|e| {
                panic!("seed {seed}: {}\n{damaged}", parse::render(&printed, &e))
            });
            assert_eq!(print::program(&again), printed, "seed {seed}");
        }
    }
    println!("{refused} refused, {parsed} parsed, {sound} of these verify, {ran} run");
    assert!(refused > 1000 && parsed - sound > 200 && sound > 1000);
}

fn damage(text: &str, rng: &mut Random) -> String {
    // Whole tokens are exchanged as well as bytes, which keeps more texts readable.
    let words: Vec<&str> = text.split_inclusive([' ', ',', '[', ']', '{', '}', '(', ')']).collect();
    let at = rng.below(words.len());
    let other = rng.below(words.len());
    let mut out: Vec<String> = words.iter().map(|w| w.to_string()).collect();
    match rng.below(6) {
        0 => out[at] = words[other].to_string(),
        1 => out.swap(at, other),
        2 => drop(out.remove(at)),
        3 => out.insert(at, words[other].to_string()),
        4 => {
            let numbers: [&str; 6] = ["0", "-1", "9223372036854775807", "3", "(T / 2)", "9"];
            if let Some(i) = out[at].find(|c: char| c.is_ascii_digit()) {
                out[at].replace_range(i..i + 1, numbers[rng.below(6)]);
            }
        }
        _ => {
            let mut bytes = text.as_bytes().to_vec();
            let i = rng.below(bytes.len());
            let odd = b" %@#\"\\/-+*:.x0\n\xc3";
            bytes[i] = odd[rng.below(odd.len())];
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    out.concat()
}
