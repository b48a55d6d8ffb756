use std::f32::consts;

use super::host::load;

type Exact = fn(f64) -> f64;
type Kernel = unsafe extern "C" fn(*const f32, *mut f32, i32);

/// Functions, what they should be, and the largest |x| that is tried besides special values.
const FUNCTIONS: [(&str, Exact, f32); 8] = [
    ("exp", f64::exp, f32::MAX),
    ("exp2", f64::exp2, f32::MAX),
    ("log", f64::ln, f32::MAX),
    ("log1p", f64::ln_1p, f32::MAX),
    ("sin", f64::sin, 1e6),
    ("cos", f64::cos, 1e6),
    ("tanh", f64::tanh, f32::MAX),
    ("erf", libm::erf, f32::MAX),
];

/// `y[i] = f(x[i])` for i < n, a multiple of the lanes.
fn text(function: &str, lanes: usize) -> String {
    let ty = if lanes == 1 { "f32".to_owned() } else { format!("vector<{lanes}xf32>") };
    format!(
        "func.func @{function}_{lanes}(%x: !llvm.ptr, %y: !llvm.ptr, %n: i32) {{
           %c0 = arith.constant 0 : i32
           %step = arith.constant {lanes} : i32
           scf.for %i = %c0 to %n step %step : i32 {{
             %xp = llvm.getelementptr %x[%i] : (!llvm.ptr, i32) -> !llvm.ptr, f32
             %yp = llvm.getelementptr %y[%i] : (!llvm.ptr, i32) -> !llvm.ptr, f32
             %v = llvm.load %xp {{alignment = 4 : i64}} : !llvm.ptr -> {ty}
             %r = math.{function} %v : {ty}
             llvm.store %r, %yp {{alignment = 4 : i64}} : {ty}, !llvm.ptr
           }}
           return
         }}\n"
    )
}

/// Distance in units of the last place of the exact value, or 0 where both are the same special
/// value.
fn ulps(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if rounded.is_infinite() || got.is_infinite() {
        return if rounded == got { 0.0 } else { f64::INFINITY };
    }
    let exponent = (rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
    (f64::from(got) - exact).abs() / 2f64.powi(exponent - 23)
}

/// Every 1021st f32 of both signs to `limit`, then all of a span around the places where formulas
/// change, then the special values; filled up to a multiple of 16.
fn arguments(limit: f32) -> Vec<f32> {
    let mut x: Vec<f32> = (0..=limit.to_bits())
        .step_by(1021)
        .flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)])
        .collect();
    let edges = [1.0, 4.0, 0.625, 2.0, 0.5, 88.72284, 103.97, 127.0, 128.0, 149.0, 150.0];
    let edges = edges.iter().chain(&[consts::SQRT_2, consts::FRAC_1_SQRT_2, consts::PI]);
    for edge in edges {
        let bits = edge.to_bits();
        let around = (bits - 2000..bits + 2000).map(f32::from_bits);
        x.extend(around.flat_map(|value| [value, -value]));
    }
    x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-45, -1e-45]);
    x.resize(x.len().next_multiple_of(16), 0.0);
    x
}

#[test]
fn functions_are_within_two_ulps() {
    let body: String = FUNCTIONS
        .iter()
        .flat_map(|(function, _, _)| [1, 8, 16].map(|lanes| text(function, lanes)))
        .collect();
    let (library, _folder) = load(&[&format!("module {{\n{body}}}")]);
    for (function, exact, limit) in FUNCTIONS {
        let x = arguments(limit);
        let mut y = [vec![0f32; x.len()], vec![0f32; x.len()], vec![0f32; x.len()]];
        for (y, lanes) in y.iter_mut().zip([1, 8, 16]) {
            // SAFETY: the symbol has this signature, and both arrays hold as many elements.
            unsafe {
                let kernel =
                    library.get::<Kernel>(format!("{function}_{lanes}").as_bytes()).unwrap();
                kernel(x.as_ptr(), y.as_mut_ptr(), x.len() as i32);
            }
        }
        let mut worst = (0.0, 0.0, 0.0);
        for (i, &x) in x.iter().enumerate() {
            let got = y[1][i];
            assert!(
                [y[0][i], y[2][i]].iter().all(|y| y.to_bits() == got.to_bits()),
                "{function}({x:e}) depends on the lanes: {:?}",
                [y[0][i], got, y[2][i]]
            );
            let error = ulps(got, exact(f64::from(x)));
            if error > worst.0 {
                worst = (error, x, got);
            }
        }
        let (error, at, got) = worst;
        println!("{function}: {error:.3} ulp at {at:e} over {} arguments", x.len());
        assert!(error <= 2.0, "{function}({at:e}) = {got:e}, {error} ulp off");
    }
}

#[test]
fn edges_have_their_values() {
    let body: String = FUNCTIONS.iter().map(|(function, _, _)| text(function, 8)).collect();
    let (library, _folder) = load(&[&format!("module {{\n{body}}}")]);
    let value = |function: &str, x: f32| {
        let (x, mut y) = ([x; 8], [0f32; 8]);
        // SAFETY: as above, of eight elements.
        unsafe {
            let kernel = library.get::<Kernel>(format!("{function}_8").as_bytes()).unwrap();
            kernel(x.as_ptr(), y.as_mut_ptr(), 8);
        }
        y[0]
    };
    let (inf, tiny) = (f32::INFINITY, 1e-45);
    for (function, x, expected) in [
        ("exp", 0.0, 1.0),
        ("exp", 89.0, inf),
        ("exp", 1e30, inf),
        ("exp", inf, inf),
        ("exp", -104.0, 0.0),
        ("exp", -inf, 0.0),
        ("exp2", 128.0, inf),
        ("exp2", 127.0, 2f32.powi(127)),
        ("exp2", -149.0, tiny),
        ("exp2", -151.0, 0.0),
        ("exp2", -inf, 0.0),
        ("log", 0.0, -inf),
        ("log", -0.0, -inf),
        ("log", 1.0, 0.0),
        ("log", inf, inf),
        ("log1p", -1.0, -inf),
        ("log1p", inf, inf),
        ("log1p", tiny, tiny),
        ("tanh", inf, 1.0),
        ("tanh", -inf, -1.0),
        ("erf", inf, 1.0),
        ("erf", -inf, -1.0),
        ("cos", 0.0, 1.0),
        ("sin", 0.0, 0.0),
    ] {
        assert_eq!(value(function, x), expected, "{function}({x})");
    }
    for function in ["sin", "tanh", "erf", "log1p"] {
        assert!(value(function, -0.0).is_sign_negative(), "{function}(-0)");
    }
    for (function, _, _) in FUNCTIONS {
        assert!(value(function, f32::NAN).is_nan(), "{function}(NaN)");
    }
    for (function, x) in
        [("log", -1.0), ("log", -inf), ("log1p", -1.5), ("sin", inf), ("cos", -inf)]
    {
        assert!(value(function, x).is_nan(), "{function}({x})");
    }
    // Far beyond what a position times a frequency can be the reduction still holds, then stops.
    for x in [1e7f32, 1.5e9, 2.8e14] {
        for (function, exact) in [("sin", f64::from(x).sin()), ("cos", f64::from(x).cos())] {
            assert!(ulps(value(function, x), exact) <= 2.0, "{function}({x:e})");
        }
    }
    assert!(value("sin", 3e14).is_nan());
}
