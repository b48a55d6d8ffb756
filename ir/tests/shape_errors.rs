//! What the shape rules refuse, in their words, with the operands they point at.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use support::ty;
use vlmc_ir::ops::{Op, TypeError};
use vlmc_ir::text::cursor::Cursor;
use vlmc_ir::ty::Ty;

fn infer(op: &str, operands: &[&str]) -> Result<Vec<Ty>, TypeError> {
    let (name, attributes) = op.split_once(' ').unwrap_or((op, ""));
    let op = Op::parse(name, &mut Cursor::new(attributes)).unwrap().unwrap();
    let tys: Vec<Ty> = operands.iter().map(|t| ty(t)).collect();
    op.infer(&tys)
}

/// Op, operand types, message, operands pointed at.
type Case<'a> = (&'a str, &'a [&'a str], &'a str, &'a [usize]);

const CU: &str = "i32[n + 1]";

const CASES: &[Case<'_>] = &[
    ("constant {value = 0.5, dtype = i32, shape = []}", &[], "0.5 is not a value of i32", &[]),
    ("constant {value = 3e9, dtype = i32, shape = []}", &[], "3000000000 is not a value", &[]),
    ("constant {value = 2.0, dtype = bool, shape = []}", &[], "2 is not a value of bool", &[]),
    ("constant {value = NaN, dtype = i32, shape = []}", &[], "NaN is not a value", &[]),
    ("constant {value = 0.0, dtype = f32, shape = [-2]}", &[], "cannot have the size -2", &[]),
    ("iota {shape = [2], axis = 1}", &[], "there is no axis 1 in 1 dims", &[0]),
    ("exp", &["i32[T]"], "`x` must be a float, not i32", &[0]),
    ("neg", &["bool[T]"], "`x` must be a number, not bool", &[0]),
    ("not", &["f32[T]"], "`x` must be bool, not f32", &[0]),
    ("add", &["f32[T]", "bf16[T]"], "`a` is f32 and `b` is bf16", &[0, 1]),
    ("add", &["f32[T]", "f32[T, 2]"], "`a` has 1 dims and `b` has 2", &[0, 1]),
    ("add", &["f32[T]", "f32[S]"], "dim 0 of `a` (T) and dim 0 of `b` (S) do not match", &[0, 1]),
    ("add", &["bool[T]", "bool[T]"], "operands must be numbers, not bool", &[0]),
    ("rem", &["f32[T]", "f32[T]"], "operands must be integers, not f32", &[0]),
    ("and", &["i32[T]", "i32[T]"], "operands must be bool, not i32", &[0]),
    ("compare {kind = lt}", &["bool[T]", "bool[T]"], "operands must be numbers", &[0]),
    ("select", &["f32[T]", "f32[T]", "f32[T]"], "`condition` must be bool", &[0]),
    ("select", &["bool[T]", "f32[T]", "i32[T]"], "`a` is f32 and `b` is i32", &[1, 2]),
    ("select", &["bool[T]", "f32[T]", "f32[3]"], "do not match", &[0, 2]),
    ("reshape {shape = [T, 3]}", &["f32[T, 4]"], "has 4*T elements and [T, 3] has 3*T", &[0]),
    ("transpose {permutation = [0, 0]}", &["f32[2, 3]"], "is no permutation of 2 dims", &[0]),
    ("broadcast {shape = [2, 3], dims = [1, 0]}", &["f32[3, 2]"], "are not increasing", &[]),
    ("broadcast {shape = [2, 3], dims = [0]}", &["f32[3]"], "dim 0 (3) cannot repeat to 2", &[0]),
    ("broadcast {shape = [2, 3], dims = []}", &["f32[3]"], "0 dims given for f32[3]", &[0]),
    ("repeat {axis = 2, times = 2}", &["f32[2, 3]"], "there is no axis 2 in 2 dims", &[0]),
    ("slice {axis = 0, start = 2, size = 2}", &["f32[3]"], "rows 2 to 4 are not inside", &[0]),
    ("slice {axis = 0, start = -1, size = 2}", &["f32[3]"], "rows -1 to 1 are not", &[0]),
    ("pad {axis = 0, before = -1, after = 0}", &["f32[3]"], "cannot have the size -1", &[]),
    ("concat {axis = 0}", &[], "there is nothing to join", &[]),
    ("concat {axis = 0}", &["f32[2, 3]", "f32[2, 4]"], "do not match", &[0, 1]),
    ("concat {axis = 0}", &["f32[2]", "f32[2, 4]"], "`xs` must have 1 dim, not 2", &[1]),
    ("reduce_sum {axes = [1, 0]}", &["f32[2, 3]"], "are not increasing", &[]),
    ("reduce_max {axes = [0]}", &["bool[2]"], "must be a number", &[0]),
    (
        "contract {a_batch = [], b_batch = [], a_contract = [0], b_contract = [0], dtype = f32}",
        &["f32[2]", "f32[3]"],
        "do not match",
        &[0, 1],
    ),
    (
        "contract {a_batch = [0], b_batch = [], a_contract = [], b_contract = [], dtype = f32}",
        &["f32[2]", "f32[3]"],
        "must come in pairs",
        &[],
    ),
    (
        "contract {a_batch = [0], b_batch = [0], a_contract = [0], b_contract = [1], dtype = f32}",
        &["f32[2]", "f32[2, 2]"],
        "a dim is used twice",
        &[0],
    ),
    (
        "contract {a_batch = [], b_batch = [], a_contract = [], b_contract = [], dtype = i32}",
        &["f32[2]", "f32[2]"],
        "the result cannot be i32",
        &[],
    ),
    (
        "grouped_contract {transposed = false}",
        &["f32[M, K]", "f32[4, K, N]", "i32[M]"],
        "dim 1 of `x` (K) and dim 2 of `w` (N) do not match",
        &[0, 1],
    ),
    (
        "grouped_contract {transposed = true}",
        &["f32[M, K]", "f32[4, K, N]", "i32[N]"],
        "dim 0 of `x` (M) and dim 0 of `groups` (N) do not match",
        &[0, 2],
    ),
    (
        "grouped_outer {count = 2, dtype = f32}",
        &["f32[M, K]", "f32[N, K]", "i32[M]"],
        "do not match",
        &[0, 1],
    ),
    ("gather", &["f32[]", "i32[2]"], "`table` must have rows", &[0]),
    ("gather", &["f32[2]", "f32[2]"], "`index` must be i32", &[1]),
    ("scatter_add {count = 2}", &["i32[2, 3]", "f32[2]"], "fewer dims", &[0, 1]),
    ("scatter_add {count = 2}", &["i32[2]", "f32[3, 4]"], "do not match", &[0, 1]),
    ("top_k {k = 5}", &["f32[4]"], "5 of 4 cannot be chosen", &[0]),
    ("top_k {k = 1}", &["f32[]"], "must have a dim", &[0]),
    ("row_valid {rows = T}", &["i32[3]", "i32[4]"], "do not match", &[0, 1]),
    ("segment_shift {by = 1, fill = 0.5}", &["i32[T]", CU, CU], "0.5 is not a value", &[]),
    ("segment_shift {by = 1, fill = 0.0}", &["f32[]", CU, CU], "`x` must have rows", &[0]),
    ("causal_conv1d", &["f32[T, 4]", "f32[5, 3]", CU, CU], "do not match", &[0, 1]),
    ("causal_conv1d_input_grad", &["f32[T]", "f32[5, 3]", CU, CU], "must have 2 dims", &[0]),
    (
        "causal_conv1d_weight_grad {taps = 4, dtype = f32}",
        &["f32[T, 4]", "f32[T, 5]", CU, CU],
        "do not match",
        &[0, 1],
    ),
    (
        "gated_delta_rule",
        &["f32[T, 2, 4]", "f32[T, 2, 4]", "f32[T, 3, 4]", "f32[T, 3]", "f32[T, 3]", CU, CU],
        "3 heads of `v` are no multiple of 2 heads of `k`",
        &[2, 1],
    ),
    (
        "gated_delta_rule",
        &["f32[T, 1, 4]", "f32[T, 1, 4]", "f32[T, 3, 5]", "bf16[T, 3]", "f32[T, 3]", CU, CU],
        "`g` must be f32, not bf16",
        &[3],
    ),
    (
        "gated_delta_rule",
        &[
            "f32[T, 1, 4]",
            "f32[T, 1, 4]",
            "f32[T, 3, 5]",
            "f32[T, 3]",
            "f32[T, 3]",
            CU,
            CU,
            "f32[n, 3, 5, 4]",
        ],
        "`state` must be f32[n, 3, 4, 5]",
        &[7],
    ),
    (
        "attention {scale = 1.0, causal = true, window = none}",
        &["f32[T, 4, 8]", "f32[T, 2, 8]", "f32[T, 4, 8]", CU, CU],
        "dim 1 of `k` (2) and dim 1 of `v` (4) do not match",
        &[1, 2],
    ),
    (
        "attention {scale = 1.0, causal = true, window = none}",
        &["f32[T, 4, 8]", "f32[S, 4, 8]", "f32[S, 4, 8]", CU, CU],
        "dim 0 of `q` (T) and dim 0 of `k` (S) do not match",
        &[0, 1],
    ),
    (
        "attention {scale = 1.0, causal = true, window = none}",
        &["f32[T, 4, 8]", "f32[S, 4, 8]", "f32[S, 4, 8]", CU, CU, "i32[S]"],
        "dim 0 of `q` (T) and dim 0 of `rows` (S) do not match",
        &[0, 5],
    ),
    ("all_gather {axis = cp, ranks = 2, dim = 1}", &["f32[T]"], "there is no dim 1", &[0]),
    ("reduce_scatter {axis = dp, ranks = 2, dim = 3}", &["f32[T]"], "there is no dim 3", &[0]),
    ("shard {axis = cp, ranks = 4, dim = 0}", &["f32[q: 8 + k: 6]"], "4 ranks do not divide", &[0]),
    ("unshard {axis = cp, ranks = 0, dim = 0}", &["f32[8]"], "there are no ranks", &[0]),
    (
        "all_to_all {axis = cp, ranks = 2, split = 1, gather = 1}",
        &["f32[T, 4]"],
        "dim 1 is both split and gathered",
        &[0],
    ),
    ("neg", &[], "takes 1, not 0 operands", &[]),
    (
        "attention {scale = 1.0, causal = true, window = none}",
        &["f32[T]"],
        "takes 5 to 6, not 1",
        &[],
    ),
    ("gated_delta_rule", &["f32[T]"], "takes 7 to 8, not 1 operands", &[]),
];

#[test]
fn rules_refuse_what_does_not_fit() {
    let mut seen = BTreeSet::new();
    for (op, operands, words, places) in CASES {
        let e = match infer(op, operands) {
            Ok(tys) => panic!("{op} {operands:?} gives {tys:?}"),
            Err(e) => e,
        };
        assert!(e.message.contains(words), "{op}: `{}` is not `{words}`", e.message);
        let have: Vec<usize> = e.places.iter().map(|p| p.0).collect();
        assert_eq!(have, *places, "{op}: {e}");
        seen.insert(op.split(' ').next().unwrap());
    }
    assert!(seen.len() > 35, "{}", seen.len());
}

#[test]
fn results_keep_segments() {
    let one = |op: &str, operands: &[&str]| infer(op, operands).unwrap()[0].to_string();
    assert_eq!(one("add", &["f32[5]", "f32[q: 2 + k: 3]"]), "f32[q: 2 + k: 3]");
    assert_eq!(one("repeat {axis = 0, times = 2}", &["f32[T]"]), "f32[2*T]");
    assert_eq!(one("pad {axis = 0, before = 1, after = K}", &["f32[T]"]), "f32[K + T + 1]");
    assert_eq!(one("concat {axis = 0}", &["f32[T]", "f32[K]"]), "f32[K + T]");
    let x = &["f32[T, q: 8 + k: 4]"][..];
    assert_eq!(one("all_reduce {axis = cp, ranks = 2}", x), "f32[T, q: 8 + k: 4]");
    assert_eq!(one("all_gather {axis = cp, ranks = 2, dim = 0}", x), "f32[2*T, q: 8 + k: 4]");
    assert_eq!(one("all_gather {axis = cp, ranks = 2, dim = 1}", x), "f32[T, q: 16 + k: 8]");
    assert_eq!(one("reduce_scatter {axis = cp, ranks = 2, dim = 1}", x), "f32[T, q: 4 + k: 2]");
    assert_eq!(one("shard {axis = cp, ranks = 2, dim = 1}", x), "f32[T, q: 4 + k: 2]");
    assert_eq!(one("unshard {axis = cp, ranks = 2, dim = 1}", x), "f32[T, q: 16 + k: 8]");
    assert_eq!(
        one("all_to_all {axis = cp, ranks = 2, split = 1, gather = 0}", x),
        "f32[2*T, q: 4 + k: 2]"
    );
    assert_eq!(
        one("reduce_scatter {axis = cp, ranks = 2, dim = 0}", &["f32[2*T, 3]"]),
        "f32[T, 3]"
    );
}

#[test]
fn work_is_counted() {
    let flops = |op: &str, operands: &[&str]| {
        let (name, attributes) = op.split_once(' ').unwrap_or((op, ""));
        let op = Op::parse(name, &mut Cursor::new(attributes)).unwrap().unwrap();
        let tys: Vec<Ty> = operands.iter().map(|t| ty(t)).collect();
        let results = op.infer(&tys).unwrap();
        (op.flops(&tys, &results).to_string(), op.bytes(&tys, &results).to_string())
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(flops("add", &["f32[T]", "f32[T]"]), pair("T", "12*T"));
    assert_eq!(flops("reduce_sum {axes = [1]}", &["bf16[T, 8]"]), pair("8*T", "18*T"));
    assert_eq!(flops("transpose {permutation = [1, 0]}", &["f32[T, 8]"]).0, "0");
    let contract =
        "contract {a_batch = [0], b_batch = [0], a_contract = [2], b_contract = [2], dtype = f32}";
    // Two for each of B M N K.
    assert_eq!(flops(contract, &["f32[B, M, 3]", "f32[B, 5, 3]"]).0, "30*B*M");
    let grouped = |t| flops(t, &["f32[M, 3]", "f32[4, 5, 3]", "i32[M]"]).0;
    assert_eq!(grouped("grouped_contract {transposed = false}"), "30*M");
    let outer =
        flops("grouped_outer {count = 4, dtype = f32}", &["f32[M, 3]", "f32[M, 5]", "i32[M]"]).0;
    assert_eq!(outer, "30*M");
    assert_eq!(flops("causal_conv1d", &["f32[T, 8]", "f32[8, 4]", CU, CU]).0, "64*T");
    let weight = "causal_conv1d_weight_grad {taps = 4, dtype = f32}";
    assert_eq!(flops(weight, &["f32[T, 8]", "f32[T, 8]", CU, CU]).0, "64*T");
    let rule = ["f32[T, 1, 4]", "f32[T, 1, 4]", "f32[T, 3, 5]", "f32[T, 3]", "f32[T, 3]", CU, CU];
    assert_eq!(flops("gated_delta_rule", &rule).0, (7 * 3 * 4 * 5).to_string() + "*T");
    let attention = "attention {scale = 1.0, causal = true, window = none}";
    let heads = ["f32[T, 4, 8]", "f32[T, 2, 8]", "f32[T, 2, 6]", CU, CU];
    assert_eq!(flops(attention, &heads).0, (2 * 4 * (8 + 6)).to_string() + "*T*T");
    assert_eq!(flops("top_k {k = 2}", &["f32[T, 8]"]).0, "32*T");
}
