//! Functions of one number, in f64 to about the last bit.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `1 / (1 + e^-x)`
pub fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// `ln(1 + e^x)`, and `x` itself above 20.
pub fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

/// `x * (1 + erf(x / sqrt 2)) / 2`, without the cancellation that this form has far below zero.
pub fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    0.5 * x * erfc(-x * FRAC_1_SQRT_2)
}

/// `x * (1 + tanh u) / 2 = x * sigmoid(2 u)`, `u = sqrt(2 / pi) * (x + 0.044715 x^3)`.
pub fn gelu_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    x * sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x))
}

/// `2 / sqrt(pi)` times the integral of `e^(-t^2)` from 0 to `x`.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    let value = if a < 2.0 { erf_series(a) } else { 1.0 - erfc_fraction(a) };
    value.copysign(x)
}

/// `1 - erf x`, accurate where it is small too.
pub fn erfc(x: f64) -> f64 {
    match x {
        x if x.is_nan() => x,
        x if x < 1.0 => 1.0 - erf(x),
        x => erfc_fraction(x),
    }
}

/// `2 / sqrt(pi) * e^(-x^2) * sum of 2^n x^(2n+1) / (2n+1)!!`: all terms have one sign, so nothing
/// cancels. Abramowitz and Stegun 7.1.6. For `0 <= x < 2`.
fn erf_series(x: f64) -> f64 {
    let square = x * x;
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term > sum * 1e-17 {
        term *= 2.0 * square / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    2.0 / PI.sqrt() * exp_minus_square(x) * sum
}

/// The continued fraction `x + (1/2) / (x + 1 / (x + (3/2) / (x + ..)))`, from its far end.
/// Abramowitz and Stegun 7.1.14. For `x >= 1`; fewer steps are needed the larger `x` is.
fn erfc_fraction(x: f64) -> f64 {
    if x > 27.5 {
        return 0.0;
    }
    let steps = (220.0 / (x * x)) as u32 + 12;
    let tail = (1..=steps).rev().fold(x, |tail, k| x + 0.5 * f64::from(k) / tail);
    exp_minus_square(x) / (PI.sqrt() * tail)
}

/// `e^(-x^2)`; the rounding error of the square is put back, which matters for large squares.
fn exp_minus_square(x: f64) -> f64 {
    let square = x * x;
    let rest = x.mul_add(x, -square);
    (-square).exp() * (1.0 - rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(have: f64, want: f64, relative: f64) {
        assert!((have - want).abs() <= relative * want.abs(), "{have:e} is not {want:e}");
    }

    #[test]
    fn erf_against_tabled_values() {
        // mpmath, 30 digits, rounded to f64.
        for (x, want) in ERF {
            close(erf(x), want, 4e-16);
            close(erf(-x), -want, 4e-16);
        }
        for (x, want) in ERFC {
            close(erfc(x), want, 4e-15);
        }
        assert_eq!(erf(f64::INFINITY), 1.0);
        assert_eq!(erf(0.0), 0.0);
        assert!(erf(f64::NAN).is_nan());
    }

    #[test]
    fn nothing_overflows() {
        for f in [sigmoid, softplus, gelu, gelu_tanh, erf] {
            for x in [-1e300, -800.0, -1.0, 0.0, 1.0, 800.0] {
                assert!(f(x).is_finite(), "{x}");
            }
        }
        assert_eq!(sigmoid(-800.0), 0.0);
        close(sigmoid(-700.0), (-700.0f64).exp(), 1e-15);
        close(softplus(-40.0), (-40.0f64).exp(), 1e-15);
        assert_eq!(softplus(25.0), 25.0);
        close(gelu(-10.0), -10.0 * 7.619853024160525e-24, 1e-14);
    }

    const ERF: [(f64, f64); 8] = [
        (1e-08, 1.1283791670955126e-08),
        (0.1, 0.1124629160182849),
        (0.5, 0.5204998778130465),
        (1.0, 0.8427007929497149),
        (1.5, 0.9661051464753108),
        (1.9375, 0.9938568063952132),
        (2.0, 0.9953222650189527),
        (3.5, 0.9999992569016276),
    ];
    const ERFC: [(f64, f64); 6] = [
        (-1.5, 1.9661051464753108),
        (0.5, 0.4795001221869535),
        (1.0, 0.15729920705028513),
        (1.25, 0.07709987174354177),
        (2.5, 0.0004069520174449589),
        (6.0, 2.1519736712498913e-17),
    ];
}
