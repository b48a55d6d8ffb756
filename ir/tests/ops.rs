//! Every op that computes, against values worked out by hand.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use support::{program, run, tensor, ty};
use vlmc_ir::eval::{EvalError, Real, Tensor};
use vlmc_ir::ops::{Class, Op};

type Operand<'a> = (&'a str, &'a [f64]);

/// One op on operands `%a`, `%b`, ..: `op` is its name and attributes.
fn eval<R: Real>(
    op: &str,
    operands: &[Operand<'_>],
    results: &[&str],
) -> Result<Vec<Vec<f64>>, EvalError> {
    let (name, attributes) = op.split_once(' ').unwrap_or((op, ""));
    let labels: Vec<String> =
        (0..operands.len()).map(|i| char::from(b'a' + i as u8).to_string()).collect();
    let mut text = String::from("program \"op\"\nfunc @main {\n");
    for (label, (ty, _)) in labels.iter().zip(operands) {
        text += &format!("input %{label} : {ty}\n");
    }
    let args: Vec<String> = labels.iter().map(|l| format!("%{l}")).collect();
    let tys = results.join(", ");
    text += &format!("%r = {name} {} {attributes} : ({tys})\n", args.join(", "));
    for i in 0..results.len() {
        text += &format!("return %r#{i}\n");
    }
    // One result has no number.
    let text = if results.len() == 1 { text.replace("%r#0", "%r") } else { text } + "}";
    let p = program(&text);
    let inputs: Vec<(&str, Tensor<R>)> = labels
        .iter()
        .zip(operands)
        .map(|(l, (ty, values))| (l.as_str(), tensor(ty, values)))
        .collect();
    Ok(run(&p, &inputs)?.0.iter().map(|o| o.value.to_f64()).collect())
}

fn close(op: &str, have: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(have.len(), want.len(), "{op}");
    for (h, w) in have.iter().zip(want) {
        let same = h == w || (h.is_nan() && w.is_nan());
        assert!(same || (h - w).abs() <= tolerance * (1.0 + w.abs()), "{op}: {have:?} {want:?}");
    }
}

struct Seen(BTreeSet<String>);

impl Seen {
    fn check(&mut self, op: &str, operands: &[Operand<'_>], results: &[Operand<'_>]) {
        self.0.insert(op.split(' ').next().unwrap().to_string());
        let tys: Vec<&str> = results.iter().map(|r| r.0).collect();
        let single = eval::<f32>(op, operands, &tys).unwrap_or_else(|e| panic!("{op}: {e}"));
        let double = eval::<f64>(op, operands, &tys).unwrap_or_else(|e| panic!("{op}: {e}"));
        for (i, (t, want)) in results.iter().enumerate() {
            // Values worked out by hand are not rounded to bf16 before they are compared.
            let exact = if t.starts_with("bf16") { 0.0 } else { 1e-12 };
            close(op, &single[i], want, if exact == 0.0 { 0.0 } else { 2e-6 });
            close(op, &double[i], want, exact);
        }
    }

    fn unary(&mut self, op: &str, x: &[f64], y: &[f64]) {
        let ty = format!("f32[{}]", x.len());
        self.check(op, &[(&ty, x)], &[(&ty, y)]);
    }

    fn binary(&mut self, op: &str, dtype: &str, a: &[f64], b: &[f64], y: &[f64]) {
        let ty = format!("{dtype}[{}]", a.len());
        self.check(op, &[(&ty, a), (&ty, b)], &[(&ty, y)]);
    }
}

const INF: f64 = f64::INFINITY;

fn elementwise(s: &mut Seen) {
    s.check("constant {value = 1.5, dtype = f32, shape = [2]}", &[], &[("f32[2]", &[1.5, 1.5])]);
    s.check("constant {value = 2.0, dtype = i32, shape = []}", &[], &[("i32[]", &[2.0])]);
    s.check("iota {shape = [2, 3], axis = 1}", &[], &[("i32[2, 3]", &[0., 1., 2., 0., 1., 2.])]);
    s.check("iota {shape = [2, 2], axis = 0}", &[], &[("i32[2, 2]", &[0., 0., 1., 1.])]);
    s.unary("neg", &[1.0, -2.0], &[-1.0, 2.0]);
    s.check("neg", &[("i32[2]", &[3.0, -4.0])], &[("i32[2]", &[-3.0, 4.0])]);
    s.unary("exp", &[0.0, 1.0], &[1.0, std::f64::consts::E]);
    s.unary("log", &[1.0, 0.0], &[0.0, -INF]);
    s.unary("sqrt", &[4.0, 0.25], &[2.0, 0.5]);
    s.unary("rsqrt", &[4.0, 0.25], &[0.5, 2.0]);
    s.unary("recip", &[4.0, -0.5], &[0.25, -2.0]);
    // ln 3, so that e^-x is 1/3.
    let l3 = 1.0986122886681098;
    s.unary("sigmoid", &[0.0, l3, -l3, -1000.0], &[0.5, 0.75, 0.25, 0.0]);
    s.unary("silu", &[0.0, l3, -l3], &[0.0, 0.75 * l3, -0.25 * l3]);
    s.unary("softplus", &[l3, -l3, 30.0], &[4f64.ln(), (4.0f64 / 3.0).ln(), 30.0]);
    // Phi(1) and Phi(-1) of tables.
    s.unary("gelu", &[0.0, 1.0, -1.0], &[0.0, 0.8413447460685429, -0.15865525393145707]);
    s.unary("gelu_tanh", &[0.0, 1.0, -1.0], &[0.0, 0.8411919906082768, -0.15880800939172324]);
    s.unary("tanh", &[0.0, l3], &[0.0, 0.8]);
    s.unary("erf", &[0.0, 1.0, -1.0], &[0.0, 0.8427007929497149, -0.8427007929497149]);
    s.unary("sin", &[0.0, std::f64::consts::FRAC_PI_2], &[0.0, 1.0]);
    s.unary("cos", &[0.0, std::f64::consts::FRAC_PI_3], &[1.0, 0.5]);
    s.check("not", &[("bool[2]", &[1.0, 0.0])], &[("bool[2]", &[0.0, 1.0])]);
    s.unary("stop_gradient", &[1.0, -2.0], &[1.0, -2.0]);
    let x: Operand<'_> = ("f32[4]", &[1.00390625, -2.75, 0.0, 1.01171875]);
    s.check("cast {dtype = bf16}", &[x], &[("bf16[4]", &[1.0, -2.75, 0.0, 1.015625])]);
    s.check("cast {dtype = i32}", &[x], &[("i32[4]", &[1.0, -2.0, 0.0, 1.0])]);
    s.check("cast {dtype = bool}", &[x], &[("bool[4]", &[1.0, 1.0, 0.0, 1.0])]);
    s.check("cast {dtype = f32}", &[("bool[2]", &[1.0, 0.0])], &[("f32[2]", &[1.0, 0.0])]);
    s.check(
        "cast {dtype = i32}",
        &[("f32[3]", &[1e20, -1e20, f64::NAN])],
        &[("i32[3]", &[2147483647.0, -2147483648.0, 0.0])],
    );
    let (a, b): (&[f64], &[f64]) = (&[7.0, -7.0, 7.0, 5.0], &[2.0, 2.0, -2.0, 0.0]);
    s.binary("add", "f32", a, b, &[9.0, -5.0, 5.0, 5.0]);
    s.binary("sub", "f32", a, b, &[5.0, -9.0, 9.0, 5.0]);
    s.binary("mul", "i32", a, b, &[14.0, -14.0, -14.0, 0.0]);
    s.binary("div", "f32", a, b, &[3.5, -3.5, -3.5, INF]);
    s.binary("div", "i32", a, b, &[3.0, -4.0, -4.0, 0.0]);
    s.binary("rem", "i32", a, b, &[1.0, 1.0, -1.0, 0.0]);
    s.binary("max", "f32", a, b, &[7.0, 2.0, 7.0, 5.0]);
    s.binary("min", "i32", a, b, &[2.0, -7.0, -2.0, 0.0]);
    s.binary("max", "f32", &[f64::NAN, 1.0], &[1.0, f64::NAN], &[f64::NAN, f64::NAN]);
    // Half way between two bf16 numbers: to the even one.
    s.binary("add", "bf16", &[256.0, 258.0], &[1.0, 1.0], &[256.0, 260.0]);
    for (kind, want) in [
        ("eq", [0.0, 1.0, 0.0]),
        ("ne", [1.0, 0.0, 1.0]),
        ("lt", [1.0, 0.0, 0.0]),
        ("le", [1.0, 1.0, 0.0]),
        ("gt", [0.0, 0.0, 1.0]),
        ("ge", [0.0, 1.0, 1.0]),
    ] {
        let operands: [Operand<'_>; 2] = [("i32[3]", &[1., 2., 3.]), ("i32[3]", &[2., 2., 2.])];
        s.check(&format!("compare {{kind = {kind}}}"), &operands, &[("bool[3]", &want)]);
    }
    s.binary("and", "bool", &[0., 0., 1., 1.], &[0., 1., 0., 1.], &[0., 0., 0., 1.]);
    s.binary("or", "bool", &[0., 0., 1., 1.], &[0., 1., 0., 1.], &[0., 1., 1., 1.]);
    s.check(
        "select",
        &[("bool[2]", &[1.0, 0.0]), ("f32[2]", &[1.0, 2.0]), ("f32[2]", &[3.0, 4.0])],
        &[("f32[2]", &[1.0, 4.0])],
    );
}

fn movement(s: &mut Seen) {
    let x: Operand<'_> = ("f32[2, 3]", &[1., 2., 3., 4., 5., 6.]);
    s.check("reshape {shape = [3, 2]}", &[x], &[("f32[3, 2]", x.1)]);
    s.check("transpose {permutation = [1, 0]}", &[x], &[("f32[3, 2]", &[1., 4., 2., 5., 3., 6.])]);
    let cube: Vec<f64> = (0..24).map(f64::from).collect();
    let turned: Vec<f64> = (0..24)
        .map(|i| (i / 6, i / 3 % 2, i % 3))
        .map(|(d, a, b)| f64::from(a * 12 + b * 4 + d))
        .collect();
    s.check(
        "transpose {permutation = [2, 0, 1]}",
        &[("f32[2, 3, 4]", &cube)],
        &[("f32[4, 2, 3]", &turned)],
    );
    s.check(
        "broadcast {shape = [2, 3], dims = [1]}",
        &[("i32[3]", &[1., 2., 3.])],
        &[("i32[2, 3]", &[1., 2., 3., 1., 2., 3.])],
    );
    s.check(
        "broadcast {shape = [2, 2, 2], dims = [0, 2]}",
        &[("f32[2, 1]", &[1., 2.])],
        &[("f32[2, 2, 2]", &[1., 1., 1., 1., 2., 2., 2., 2.])],
    );
    s.check(
        "repeat {axis = 0, times = 2}",
        &[x],
        &[("f32[4, 3]", &[1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.])],
    );
    s.check(
        "repeat {axis = 1, times = 2}",
        &[("bool[2, 1]", &[1., 0.])],
        &[("bool[2, 2]", &[1., 1., 0., 0.])],
    );
    s.check("slice {axis = 1, start = 1, size = 2}", &[x], &[("f32[2, 2]", &[2., 3., 5., 6.])]);
    s.check("slice {axis = 0, start = 1, size = 1}", &[x], &[("f32[1, 3]", &[4., 5., 6.])]);
    s.check(
        "pad {axis = 1, before = 1, after = 0}",
        &[x],
        &[("f32[2, 4]", &[0., 1., 2., 3., 0., 4., 5., 6.])],
    );
    s.check(
        "concat {axis = 1}",
        &[x, ("f32[2, 1]", &[7., 8.])],
        &[("f32[2, 4]", &[1., 2., 3., 7., 4., 5., 6., 8.])],
    );
    s.check("reduce_sum {axes = [0]}", &[x], &[("f32[3]", &[5., 7., 9.])]);
    s.check("reduce_sum {axes = [0, 1]}", &[x], &[("f32[]", &[21.])]);
    s.check("reduce_max {axes = [1]}", &[x], &[("f32[2]", &[3., 6.])]);
    s.check("reduce_max {axes = [1]}", &[("f32[2, 0]", &[])], &[("f32[2]", &[-INF, -INF])]);
    s.check("reduce_sum {axes = [1]}", &[("i32[2, 0]", &[])], &[("i32[2]", &[0., 0.])]);
}

fn products(s: &mut Seen) {
    s.check(
        "contract {a_batch = [], b_batch = [], a_contract = [1], b_contract = [0], dtype = f32}",
        &[("f32[2, 3]", &[1., 2., 3., 4., 5., 6.]), ("f32[3, 1]", &[1., 10., 100.])],
        &[("f32[2, 1]", &[321., 654.])],
    );
    // y[b, m, n] = sum over i, j of x[i, b, m, j] w[n, j, b, i], by plain loops.
    let x: Vec<f64> = (0..2 * 2 * 3 * 2).map(|i| f64::from(i * 7 % 11) - 4.0).collect();
    let w: Vec<f64> = (0..2 * 2 * 2 * 2).map(|i| f64::from(i * 5 % 7) - 2.0).collect();
    let mut want = vec![];
    for b in 0..2 {
        for m in 0..3 {
            for n in 0..2 {
                let mut sum = 0.0;
                for i in 0..2 {
                    for j in 0..2 {
                        sum += x[((i * 2 + b) * 3 + m) * 2 + j] * w[((n * 2 + j) * 2 + b) * 2 + i];
                    }
                }
                want.push(sum);
            }
        }
    }
    s.check(
        "contract {a_batch = [1], b_batch = [2], a_contract = [0, 3], b_contract = [3, 1], dtype = f32}",
        &[("f32[2, 2, 3, 2]", &x), ("f32[2, 2, 2, 2]", &w)],
        &[("f32[2, 3, 2]", &want)],
    );
    // 4 x 64 + 1 is 257, which bf16 does not have: it rounds once, at the end.
    s.check(
        "contract {a_batch = [], b_batch = [], a_contract = [0], b_contract = [0], dtype = bf16}",
        &[("bf16[5]", &[64., 64., 64., 64., 3.]), ("bf16[5]", &[1.; 5])],
        &[("bf16[]", &[260.])],
    );
    let x: Operand<'_> = ("f32[3, 2]", &[1., 2., 3., 4., 5., 6.]);
    let groups: Operand<'_> = ("i32[3]", &[1., 2., 0.]);
    s.check(
        "grouped_contract {transposed = false}",
        &[x, ("f32[2, 1, 2]", &[1., 10., 100., 1000.]), groups],
        &[("f32[3, 1]", &[2100., 0., 65.])],
    );
    s.check(
        "grouped_contract {transposed = true}",
        &[x, ("f32[2, 2, 1]", &[1., 10., 100., 1000.]), groups],
        &[("f32[3, 1]", &[2100., 0., 65.])],
    );
    s.check(
        "grouped_outer {count = 2, dtype = f32}",
        &[x, ("f32[3, 1]", &[1., 10., 100.]), ("i32[3]", &[1., -1., 1.])],
        &[("f32[2, 2, 1]", &[0., 0., 501., 602.])],
    );
}

fn indexing(s: &mut Seen) {
    s.check(
        "gather",
        &[("f32[2, 2]", &[1., 2., 3., 4.]), ("i32[4]", &[1., 0., -1., 2.])],
        &[("f32[4, 2]", &[3., 4., 1., 2., 0., 0., 0., 0.])],
    );
    s.check(
        "gather",
        &[("i32[3]", &[7., 8., 9.]), ("i32[1, 2]", &[2., 0.])],
        &[("i32[1, 2]", &[9., 7.])],
    );
    s.check(
        "scatter_add {count = 3}",
        &[("i32[4]", &[1., 1., -1., 5.]), ("f32[4, 2]", &[1., 2., 3., 4., 5., 6., 7., 8.])],
        &[("f32[3, 2]", &[0., 0., 4., 6., 0., 0.])],
    );
    s.check(
        "top_k {k = 3}",
        &[("f32[2, 4]", &[1., 3., 3., 2., -1., -1., -2., 0.])],
        &[("f32[2, 3]", &[3., 3., 2., 0., -1., -1.]), ("i32[2, 3]", &[1., 2., 3., 3., 0., 1.])],
    );
}

/// Two segments in six rows: rows 0 to 3 with two valid ones, rows 3 to 5 with two; row 5 is none's.
const CU: Operand<'static> = ("i32[3]", &[0., 2., 4.]);
const PADDED: Operand<'static> = ("i32[3]", &[0., 3., 5.]);

fn sequence(s: &mut Seen) {
    s.check("row_valid {rows = 6}", &[CU, PADDED], &[("bool[6]", &[1., 1., 0., 1., 1., 0.])]);
    let x: Operand<'_> = ("f32[6]", &[1., 2., 3., 4., 5., 6.]);
    s.check(
        "segment_shift {by = 1, fill = -1.0}",
        &[x, CU, PADDED],
        &[("f32[6]", &[2., -1., -1., 5., -1., -1.])],
    );
    s.check(
        "segment_shift {by = -1, fill = 0.0}",
        &[("i32[6]", x.1), CU, PADDED],
        &[("i32[6]", &[0., 1., 0., 0., 4., 0.])],
    );
    let x: Operand<'_> = ("f32[6, 1]", x.1);
    let w: Operand<'_> = ("f32[1, 3]", &[100., 10., 1.]);
    s.check("causal_conv1d", &[x, w, CU, PADDED], &[("f32[6, 1]", &[1., 12., 0., 4., 45., 0.])]);
    s.check(
        "causal_conv1d_input_grad",
        &[x, w, CU, PADDED],
        &[("f32[6, 1]", &[21., 2., 0., 54., 5., 0.])],
    );
    // dw[2] = sum x dy, dw[1] = x0 dy1 + x3 dy4.
    s.check(
        "causal_conv1d_weight_grad {taps = 3, dtype = f32}",
        &[x, ("f32[6, 1]", &[1., 10., 99., 100., 1000., 99.]), CU, PADDED],
        &[("f32[1, 3]", &[0., 4010., 5421.])],
    );
    // Widths of 1, decay 1/2 and beta 1/2, worked out step by step.
    let half = 0.5f64.ln();
    s.check(
        "gated_delta_rule",
        &[
            ("f32[6, 1, 1]", &[1., 2., 9., 1., 1., 9.]),
            ("f32[6, 1, 1]", &[1., 2., 9., 1., 1., 9.]),
            ("f32[6, 1, 1]", &[4., 8., 9., 2., 1., 9.]),
            ("f32[6, 1]", &[half; 6]),
            ("f32[6, 1]", &[0.5; 6]),
            CU,
            PADDED,
            ("f32[2, 1, 1, 1]", &[0., 8.]),
        ],
        // S: 0 -> 2 -> 1, u = (8 - 2) / 2 = 3, S = 1 + 2 x 3 = 7, y = 14.
        // S: 8 -> 4, u = -1, S = 3 -> 1.5, u = -0.25, S = 1.25.
        &[("f32[6, 1, 1]", &[2., 14., 0., 3., 1.25, 0.]), ("f32[2, 1, 1, 1]", &[7., 1.25])],
    );
    // Scores 0 and ln 3 (row 1 of segment 0, row 4 of segment 1): weights 1/4 and 3/4.
    let l3 = 3f64.ln();
    let (q, k): (Operand<'_>, Operand<'_>) =
        (("f32[6, 1, 1]", &[1., 1., 9., 1., 1., 9.]), ("f32[6, 1, 1]", &[0., l3, 9., 0., l3, 9.]));
    let v: Operand<'_> = ("f32[6, 1, 1]", &[4., 8., 9., 0., 4., 9.]);
    let l4 = 4f64.ln();
    s.check(
        "attention {scale = 1.0, causal = true, window = none}",
        &[q, k, v, CU, PADDED],
        &[
            ("f32[6, 1, 1]", &[4., 7., 0., 0., 3., 0.]),
            ("f32[6, 1]", &[0., l4, -INF, 0., l4, -INF]),
        ],
    );
    s.check(
        "attention {scale = 1.0, causal = false, window = none}",
        &[q, k, v, CU, PADDED],
        &[
            ("f32[6, 1, 1]", &[7., 7., 0., 3., 3., 0.]),
            ("f32[6, 1]", &[l4, l4, -INF, l4, l4, -INF]),
        ],
    );
    s.check(
        "attention {scale = 1.0, causal = true, window = 1}",
        &[q, k, v, CU, PADDED],
        &[
            ("f32[6, 1, 1]", &[4., 8., 0., 0., 4., 0.]),
            ("f32[6, 1]", &[0., l3, -INF, 0., l3, -INF]),
        ],
    );
}

/// On the operands of [`sequence`].
fn sequence_gradients(s: &mut Seen) {
    let half = 0.5f64.ln();
    let q: Operand<'_> = ("f32[6, 1, 1]", &[1., 2., 9., 1., 1., 9.]);
    s.check(
        "gated_delta_rule_grad",
        &[
            q,
            q,
            ("f32[6, 1, 1]", &[4., 8., 9., 2., 1., 9.]),
            ("f32[6, 1]", &[half; 6]),
            ("f32[6, 1]", &[0.5; 6]),
            ("f32[6, 1, 1]", &[1., 1., 9., 2., 4., 9.]),
            CU,
            PADDED,
            ("f32[2, 1, 1, 1]", &[0., 8.]),
            ("f32[2, 1, 1, 1]", &[1., 0.]),
        ],
        // Row 1: dS = 1 + 2 = 3, du = 6, dv = 3, dk = 3 x 3 - 1 x 3, dS' = -3, dS = -1.5 for row 0.
        // Row 4: dS = 4, du = 4, dv = 2, dk = -1 - 3, dS' = 2, dS = 1 for row 3.
        &[
            ("f32[6, 1, 1]", &[2., 7., 0., 6., 5., 0.]),
            ("f32[6, 1, 1]", &[-1., 6., 0., -9., -4., 0.]),
            ("f32[6, 1, 1]", &[-0.25, 3., 0., 1.5, 2., 0.]),
            ("f32[6, 1]", &[0., -3., 0., 6., 3., 0.]),
            ("f32[6, 1]", &[-2., 36., 0., -6., -2., 0.]),
            ("f32[2, 1, 1, 1]", &[-0.125, 0.75]),
        ],
    );
    let (l3, l4) = (3f64.ln(), 4f64.ln());
    let one = "f32[6, 1, 1]";
    let lse: Operand<'_> = ("f32[6, 1]", &[0., l4, -INF, 0., l4, -INF]);
    let operands: [Operand<'_>; 10] = [
        (one, &[1., 1., 9., 1., 1., 9.]),
        (one, &[0., l3, 9., 0., l3, 9.]),
        (one, &[4., 8., 9., 0., 4., 9.]),
        (one, &[4., 7., 0., 0., 3., 0.]),
        lse,
        (one, &[2., 4., 9., 1., 8., 9.]),
        CU,
        PADDED,
        ("i32[6]", &[0., 1., 2., 3., 4., 5.]),
        ("f32[6, 1]", &[0., 4., 9., 0., 0., 9.]),
    ];
    // Some rows of the pack in an order of their own, a padding row and one that does not exist.
    let rows: Operand<'_> = ("i32[4]", &[4., 2., 1., 7.]);
    let four = "f32[4, 1, 1]";
    s.check(
        "attention {scale = 1.0, causal = true, window = none}",
        &[(four, &[1., 9., 1., 9.]), operands[1], operands[2], CU, PADDED, rows],
        &[(four, &[3., 0., 7., 0.]), ("f32[4, 1]", &[l4, -INF, l4, -INF])],
    );
    s.check(
        "attention_grad {scale = 1.0, causal = true, window = none}",
        &[
            (four, &[1., 9., 1., 9.]),
            operands[1],
            operands[2],
            (four, &[3., 0., 7., 0.]),
            ("f32[4, 1]", &[l4, -INF, l4, -INF]),
            (four, &[8., 9., 4., 9.]),
            CU,
            PADDED,
            rows,
        ],
        &[
            (four, &[6. * l3, 0., 3. * l3, 0.]),
            (one, &[-3., 3., 0., -6., 6., 0.]),
            (one, &[1., 3., 0., 2., 6., 0.]),
        ],
    );
    // Row 1: dp = 16 and 32, sum(dy y) = 28, ds = -3 and 3; with dlse -2 and 6. Row 4: -6 and 6.
    s.check(
        "attention_grad {scale = 1.0, causal = true, window = none}",
        &operands[..8],
        &[
            (one, &[0., 3. * l3, 0., 0., 6. * l3, 0.]),
            (one, &[-3., 3., 0., -6., 6., 0.]),
            (one, &[3., 3., 0., 3., 6., 0.]),
        ],
    );
    s.check(
        "attention_grad {scale = 1.0, causal = true, window = none}",
        &operands,
        &[
            (one, &[0., 6. * l3, 0., 0., 6. * l3, 0.]),
            (one, &[-2., 6., 0., -6., 6., 0.]),
            (one, &[3., 3., 0., 3., 6., 0.]),
        ],
    );
}

/// On a mesh of one rank; `tests/mesh.rs` has more.
fn communication(s: &mut Seen) {
    let x: Operand<'_> = ("f32[2, 2]", &[1., 2., 3., 4.]);
    s.check("all_reduce {axis = cp, ranks = 1}", &[x], &[x]);
    s.check("all_gather {axis = cp, ranks = 1, dim = 0}", &[x], &[x]);
    s.check("reduce_scatter {axis = cp, ranks = 1, dim = 1}", &[x], &[x]);
    s.check("all_to_all {axis = cp, ranks = 1, split = 1, gather = 0}", &[x], &[x]);
    s.check("shard {axis = cp, ranks = 1, dim = 1}", &[x], &[x]);
    s.check("unshard {axis = cp, ranks = 1, dim = 1}", &[x], &[x]);
}

#[test]
fn every_op_computes_what_its_text_says() {
    let mut s = Seen(BTreeSet::new());
    elementwise(&mut s);
    movement(&mut s);
    products(&mut s);
    indexing(&mut s);
    sequence(&mut s);
    sequence_gradients(&mut s);
    communication(&mut s);
    let missing: Vec<&str> = Op::all()
        .iter()
        .filter(|i| i.class != Class::Structure && !s.0.contains(i.name))
        .map(|i| i.name)
        .collect();
    assert!(missing.is_empty(), "no test of {missing:?}");
}

/// Attention of long segments, in blocks, against three plain loops.
#[test]
fn attention_in_blocks() {
    let (rows, heads, key_heads, d, dv) = (300, 4, 2, 3, 2);
    let wave = |n: usize, f: f64| -> Vec<f64> { (0..n).map(|i| (i as f64 * f).sin()).collect() };
    let (q, k) = (wave(rows * heads * d, 0.37), wave(rows * key_heads * d, 0.71));
    let v = wave(rows * key_heads * dv, 0.13);
    for (causal, window) in [(true, None), (false, None), (true, Some(7)), (true, Some(200))] {
        let mut want = vec![0.0; rows * heads * dv];
        for (start, end) in [(0usize, 290usize), (292, 300)] {
            for h in 0..heads {
                for t in start..end {
                    let first = window.map_or(start, |w| start.max((t + 1).saturating_sub(w)));
                    let last = if causal { t + 1 } else { end };
                    let scores: Vec<f64> = (first..last)
                        .map(|s| {
                            (0..d)
                                .map(|i| {
                                    q[(t * heads + h) * d + i] * k[(s * key_heads + h / 2) * d + i]
                                })
                                .sum::<f64>()
                                .mul_add(0.9, 0.0)
                                .exp()
                        })
                        .collect();
                    let sum: f64 = scores.iter().sum();
                    for i in 0..dv {
                        want[(t * heads + h) * dv + i] = (first..last)
                            .zip(&scores)
                            .map(|(s, p)| p / sum * v[(s * key_heads + h / 2) * dv + i])
                            .sum();
                    }
                }
            }
        }
        let w = window.map_or("none".to_string(), |w: usize| w.to_string());
        let op = format!("attention {{scale = 0.9, causal = {causal}, window = {w}}}");
        let boundaries: (&[f64], &[f64]) = (&[0., 290., 298.], &[0., 292., 300.]);
        let have = eval::<f64>(
            &op,
            &[
                ("f32[300, 4, 3]", &q),
                ("f32[300, 2, 3]", &k),
                ("f32[300, 2, 2]", &v),
                ("i32[3]", boundaries.0),
                ("i32[3]", boundaries.1),
            ],
            &["f32[300, 4, 2]", "f32[300, 4]"],
        )
        .unwrap();
        close(&op, &have[0], &want, 1e-12);
    }
}

/// `<dy, conv(x, w)> = <dx, x> = <dw, w>` for any x, w and dy, since the convolution is linear in
/// both; and neither gradient sees rows that are not valid.
#[test]
fn convolution_gradients_are_adjoint() {
    let wave = |n: usize, f: f64| -> Vec<f64> { (1..=n).map(|i| (i as f64 * f).sin()).collect() };
    let (x, dy, w) = (wave(11 * 3, 0.7), wave(11 * 3, 1.3), wave(3 * 4, 2.1));
    let boundaries: [Operand<'_>; 2] =
        [("i32[4]", &[0., 1., 5., 8.]), ("i32[4]", &[0., 2., 6., 10.])];
    let [cu, padded] = boundaries;
    let (rows, taps) = ("f32[11, 3]", "f32[3, 4]");
    let conv = |op: &str, a: &[f64]| {
        eval::<f64>(op, &[(rows, a), (taps, &w), cu, padded], &[rows]).unwrap().remove(0)
    };
    let y = conv("causal_conv1d", &x);
    let dx = conv("causal_conv1d_input_grad", &dy);
    let weight_grad = "causal_conv1d_weight_grad {taps = 4, dtype = f32}";
    let dw = eval::<f64>(weight_grad, &[(rows, &x), (rows, &dy), cu, padded], &[taps]).unwrap();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    close("input", &[dot(&dx, &x)], &[dot(&dy, &y)], 1e-14);
    close("weight", &[dot(&dw[0], &w)], &[dot(&dy, &y)], 1e-14);
    for row in 0..11 {
        let is_valid = ![1, 9, 10].contains(&row);
        assert_eq!(y[row * 3] != 0.0, is_valid, "row {row}");
        assert_eq!(dx[row * 3] != 0.0, is_valid, "row {row}");
    }
}

#[test]
fn bad_data_is_an_error() {
    let fails = |op: &str, operands: &[Operand<'_>], results: &[&str], words: &str| {
        let e = eval::<f32>(op, operands, results).unwrap_err();
        assert!(e.message.contains(words), "{op}: {e}");
        assert!(e.message.contains("in @main"), "{op}: {e}");
    };
    let rows: &[f64] = &[0.; 6];
    for (cu, padded, words) in [
        ([0., 2., 1.], [0., 3., 5.], "segment 1 has -1 valid rows"),
        ([0., 4., 5.], [0., 3., 5.], "segment 0 has 4 valid rows of 3"),
        ([0., 2., 4.], [0., 3., 7.], "segment 1 is rows 3 to 7 of 6"),
        ([0., 2., 4.], [-3., 3., 5.], "segment 0 is rows -3 to 3"),
    ] {
        let operands: [Operand<'_>; 3] = [("f32[6]", rows), ("i32[3]", &cu), ("i32[3]", &padded)];
        fails("segment_shift {by = 1, fill = 0.0}", &operands, &["f32[6]"], words);
    }
    let big: Operand<'_> = ("i32[1]", &[2e9]);
    fails("add", &[big, big], &["i32[1]"], "4000000000 does not fit i32");
    fails(
        "broadcast {shape = [99999999999], dims = [0]}",
        &[("f32[1]", &[0.])],
        &["f32[99999999999]"],
        "too large",
    );
    fails(
        "constant {value = 0.0, dtype = f32, shape = [9223372036854775807, 16]}",
        &[],
        &["f32[9223372036854775807, 16]"],
        "too large",
    );
}

#[test]
fn empty_tensors_are_no_special_case() {
    let e: &[f64] = &[];
    for (op, operands, results) in [
        ("transpose {permutation = [1, 0]}", vec![("f32[0, 3]", e)], vec!["f32[3, 0]"]),
        ("concat {axis = 0}", vec![("f32[0, 3]", e), ("f32[0, 3]", e)], vec!["f32[0, 3]"]),
        (
            "contract {a_batch = [], b_batch = [], a_contract = [1], b_contract = [0], dtype = f32}",
            vec![("f32[2, 0]", e), ("f32[0, 2]", e)],
            vec!["f32[2, 2]"],
        ),
        ("gather", vec![("f32[0, 2]", e), ("i32[1]", &[0.][..])], vec!["f32[1, 2]"]),
        ("top_k {k = 0}", vec![("f32[2, 0]", e)], vec!["f32[2, 0]", "i32[2, 0]"]),
        (
            "grouped_outer {count = 2, dtype = f32}",
            vec![("f32[0, 3]", e), ("f32[0, 2]", e), ("i32[0]", e)],
            vec!["f32[2, 3, 2]"],
        ),
        (
            "attention {scale = 1.0, causal = true, window = none}",
            vec![
                ("f32[0, 2, 4]", e),
                ("f32[0, 1, 4]", e),
                ("f32[0, 1, 4]", e),
                ("i32[1]", &[0.][..]),
                ("i32[1]", &[0.][..]),
            ],
            vec!["f32[0, 2, 4]", "f32[0, 2]"],
        ),
    ] {
        for t in eval::<f32>(op, &operands, &results).unwrap_or_else(|e| panic!("{op}: {e}")) {
            assert!(t.iter().all(|x| *x == 0.0), "{op}");
        }
    }
    let huge = "reshape {shape = [0, 9223372036854775807, 9223372036854775807]}";
    let want = "f32[0, 9223372036854775807, 9223372036854775807]";
    assert!(eval::<f32>(huge, &[("f32[0]", e)], &[want]).is_ok());
    let turn = "transpose {permutation = [2, 1, 0]}";
    let want2 = "f32[9223372036854775807, 9223372036854775807, 0]";
    assert!(eval::<f32>(turn, &[(want, e)], &[want2]).is_ok());
    assert_eq!(ty(want).rank(), 3);
}
