//! Random size expressions: the printed form reads back the same, and the value is that of the
//! expression.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc_ir::dim::Symbol;
use vlmc_ir::testing::Random;
use vlmc_ir::text::cursor::Cursor;

const SYMBOLS: [(&str, i64); 4] = [("T", 210), ("K", 12), ("hidden", 5040), ("c.d", 420)];

/// An expression and its value.
fn expression(rng: &mut Random, depth: usize) -> (String, f64) {
    if depth == 0 {
        let i = rng.below(10);
        return match SYMBOLS.get(i) {
            Some((name, value)) => (name.to_string(), *value as f64),
            None => ([1, 2, 3, 7, 10, 64][i - 4].to_string(), [1., 2., 3., 7., 10., 64.][i - 4]),
        };
    }
    let ((a, va), (b, vb)) = (expression(rng, depth - 1), expression(rng, depth / 2));
    match rng.below(5) {
        0 => (format!("({a} + {b})"), va + vb),
        1 => (format!("({a} - {b})"), va - vb),
        2 | 3 => (format!("{a}*{b}"), va * vb),
        _ => (format!("({a} / ({b}))"), va / vb),
    }
}

#[test]
fn expressions_print_and_parse() {
    let mut rng = Random::new(3);
    let (mut read, mut valued) = (0, 0);
    for _ in 0..20_000 {
        let depth = rng.below(5);
        let (text, value) = expression(&mut rng, depth);
        let Ok(p) = Cursor::new(&text).poly() else { continue };
        read += 1;
        let printed = p.to_string();
        let mut c = Cursor::new(&printed);
        let again = c.poly().unwrap_or_else(|e| panic!("{text} -> {printed}: {e}"));
        assert!(c.at_end(), "{text} -> {printed}");
        assert_eq!(again.to_string(), printed, "of {text}");
        assert_eq!(again, p, "{text} -> {printed}");
        let bind = |s: &Symbol| SYMBOLS.iter().find(|(n, _)| *n == &*s.0).map(|(_, v)| *v);
        if let Some(have) = p.eval(&bind) {
            assert_eq!(again.eval(&bind), Some(have));
            let error = (have as f64 - value).abs();
            assert!(error <= 1e-9 * value.abs().max(1.0), "{text} is {value}, not {have}");
            valued += 1;
        }
    }
    println!("{read} read, {valued} with a value");
    assert!(read > 15_000 && valued > 5_000);
}
