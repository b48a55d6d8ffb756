//! Small graphs against the golden data, forward, in f32 and f64.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::{Golden, exchange, program, run};
use vlmc_ir::eval::{Real, Tensor};

fn boundaries<R: Real>(count: usize, length: usize) -> Tensor<R> {
    Tensor::ints(vec![count + 1], (0..=count).map(|i| (i * length) as i64).collect()).unwrap()
}

fn rmsnorm<R: Real>(case: &str) {
    let g = Golden::load(case);
    let (dims, x) = g.raw("in.x");
    let d = *dims.last().unwrap();
    let p = program(&format!(
        "program \"rmsnorm\" symbol R
         func @main {{
           input %x : f32[R, {d}]
           input %w : f32[{d}]
           %square = mul %x, %x : f32[R, {d}]
           %sum = reduce_sum %square {{axes = [1]}} : f32[R]
           %scale = constant {{value = {}, dtype = f32, shape = [R]}} : f32[R]
           %eps = constant {{value = 1e-6, dtype = f32, shape = [R]}} : f32[R]
           %mean = mul %sum, %scale : f32[R]
           %shifted = add %mean, %eps : f32[R]
           %r = rsqrt %shifted : f32[R]
           %rb = broadcast %r {{shape = [R, {d}], dims = [0]}} : f32[R, {d}]
           %one = constant {{value = 1.0, dtype = f32, shape = [{d}]}} : f32[{d}]
           %gain = add %one, %w : f32[{d}]
           %gb = broadcast %gain {{shape = [R, {d}], dims = [1]}} : f32[R, {d}]
           %n = mul %x, %rb : f32[R, {d}]
           %y = mul %n, %gb : f32[R, {d}]
           return %y
         }}",
        1.0 / d as f64
    ));
    let rows = x.len() / d;
    let inputs = [("x", g.float("in.x", &[rows, d])), ("w", g.float::<R>("param.weight", &[d]))];
    g.check("out.y", &run::<R>(&p, &inputs).unwrap().0[0].value.to_f64());
}

#[test]
fn rmsnorm_cases() {
    for case in ["rmsnorm_a", "rmsnorm_head256"] {
        rmsnorm::<f32>(case);
        rmsnorm::<f64>(case);
    }
}

fn l2norm<R: Real>() {
    let g = Golden::load("l2norm_a");
    let p = program(
        "program \"l2norm\" symbol R symbol D
         func @main {
           input %x : f32[R, D]
           %square = mul %x, %x : f32[R, D]
           %sum = reduce_sum %square {axes = [1]} : f32[R]
           %eps = constant {value = 1e-6, dtype = f32, shape = [R]} : f32[R]
           %shifted = add %sum, %eps : f32[R]
           %r = rsqrt %shifted : f32[R]
           %rb = broadcast %r {shape = [R, D], dims = [0]} : f32[R, D]
           %y = mul %x, %rb : f32[R, D]
           return %y
         }",
    );
    let y = run::<R>(&p, &[("x", g.float("in.x", &[30, 32]))]).unwrap().0[0].value.to_f64();
    g.check("out.y", &y);
}

#[test]
fn l2norm_case() {
    l2norm::<f32>();
    l2norm::<f64>();
}

fn conv1d<R: Real>(case: &str) {
    let g = Golden::load(case);
    let (dims, x) = g.raw("in.x");
    let [batch, channels, length] = dims[..] else { panic!("three dims") };
    // The files have channels before rows; the op has them after.
    let turn = |x: &[f64], rows: usize, columns: usize| -> Vec<f64> {
        x.chunks(rows * columns).flat_map(|x| exchange(x, rows, columns, 1)).collect()
    };
    let p = program(
        "program \"conv\" symbol T symbol C symbol n
         func @main {
           input %x : f32[T, C]
           input %w : f32[C, 4]
           input %cu : i32[n + 1]
           %y = causal_conv1d %x, %w, %cu, %cu : f32[T, C]
           %s = silu %y : f32[T, C]
           return %s
         }",
    );
    let rows = batch * length;
    let x = Tensor::<R>::from_f64(vec![rows, channels], &turn(&x, channels, length)).unwrap();
    let w = g.float("param.weight", &[channels, 4]);
    let inputs = [("x", x), ("w", w), ("cu", boundaries(batch, length))];
    let y = run(&p, &inputs).unwrap().0[0].value.to_f64();
    g.check("out.y", &turn(&y, length, channels));
}

#[test]
fn conv1d_cases() {
    for case in ["conv1d_t1", "conv1d_t3", "conv1d_t17", "conv1d_t65"] {
        conv1d::<f32>(case);
        conv1d::<f64>(case);
    }
}

const L2: &str = "
  %sq_NAME = mul %NAME, %NAME : f32[T, Hk, Dk]
  %sum_NAME = reduce_sum %sq_NAME {axes = [2]} : f32[T, Hk]
  %eps_NAME = constant {value = 1e-6, dtype = f32, shape = [T, Hk]} : f32[T, Hk]
  %se_NAME = add %sum_NAME, %eps_NAME : f32[T, Hk]
  %r_NAME = rsqrt %se_NAME : f32[T, Hk]
  %rb_NAME = broadcast %r_NAME {shape = [T, Hk, Dk], dims = [0, 1]} : f32[T, Hk, Dk]
  %l_NAME = mul %NAME, %rb_NAME : f32[T, Hk, Dk]
";

fn delta_rule<R: Real>(case: &str) {
    let g = Golden::load(case);
    let (k, v) = (g.raw("in.k").0, g.raw("in.v").0);
    let [batch, length, hk, dk] = k[..] else { panic!("four dims") };
    let (hv, dv) = (v[2], v[3]);
    let initial = g.has("in.initial_state");
    let p = program(&format!(
        "program \"rule\" symbol T symbol Hk symbol Hv symbol Dk symbol Dv symbol n
         func @main {{
           input %q : f32[T, Hk, Dk]
           input %k : f32[T, Hk, Dk]
           input %v : f32[T, Hv, Dv]
           input %g : f32[T, Hv]
           input %beta : f32[T, Hv]
           input %cu : i32[n + 1]
           {}
           {}{}
           %scale = constant {{value = {:?}, dtype = f32, shape = [T, Hk, Dk]}} : f32[T, Hk, Dk]
           %qs = mul %l_q, %scale : f32[T, Hk, Dk]
           %o = gated_delta_rule %qs, %l_k, %v, %g, %beta, %cu, %cu{}
             : (f32[T, Hv, Dv], f32[n, Hv, Dk, Dv])
           return %o#0
           return %o#1
         }}",
        if initial { "input %state : f32[n, Hv, Dk, Dv]" } else { "" },
        L2.replace("NAME", "q"),
        L2.replace("NAME", "k"),
        (dk as f64).powf(-0.5),
        if initial { ", %state" } else { "" },
    ));
    let rows = batch * length;
    let mut inputs = vec![
        ("q", g.float::<R>("in.q", &[rows, hk, dk])),
        ("k", g.float("in.k", &[rows, hk, dk])),
        ("v", g.float("in.v", &[rows, hv, dv])),
        ("g", g.float("in.g", &[rows, hv])),
        ("beta", g.float("in.beta", &[rows, hv])),
        ("cu", boundaries(batch, length)),
    ];
    if initial {
        inputs.push(("state", g.float("in.initial_state", &[batch, hv, dk, dv])));
    }
    let out = run(&p, &inputs).unwrap();
    g.check("out.o", &out.0[0].value.to_f64());
    if g.has("out.final_state") {
        g.check("out.final_state", &out.0[1].value.to_f64());
    }
}

#[test]
fn delta_rule_cases() {
    for case in
        ["gdr_t5", "gdr_t64_b2", "gdr_t70_d128", "gdr_t130_dk16_dv32_init", "gdr_extreme_t96"]
    {
        delta_rule::<f32>(case);
        delta_rule::<f64>(case);
    }
}

/// Multi-axis rotary: cos and sin tables from three positions a row, then the rotation of the first
/// 64 dims of every head. Frequency f takes position f mod 3: sections of 11, 11 and 10 cover all
/// 32 frequencies.
fn rotary_text() -> String {
    let mut text = String::from(
        "input %x : f32[T, H, 256]
         input %positions : i32[3, T]
         %f = iota {shape = [32], axis = 0} : i32[32]
         %ff = cast %f {dtype = f32} : f32[32]
         %c = constant {value = ",
    );
    text += &format!("{:?}", -2.0 / 64.0 * 1e7f64.ln());
    text += ", dtype = f32, shape = [32]} : f32[32]
         %e = mul %ff, %c : f32[32]
         %inv = exp %e : f32[32]
         %three = constant {value = 3.0, dtype = i32, shape = [32]} : i32[32]
         %m = rem %f, %three : i32[32]
         %by_f = gather %positions, %m : i32[32, T]
         %p = cast %by_f {dtype = f32} : f32[32, T]
         %pt = transpose %p {permutation = [1, 0]} : f32[T, 32]
         %invb = broadcast %inv {shape = [T, 32], dims = [1]} : f32[T, 32]
         %angle = mul %pt, %invb : f32[T, 32]
         %cos = cos %angle : f32[T, 32]
         %sin = sin %angle : f32[T, 32]
         %cosb = broadcast %cos {shape = [T, H, 32], dims = [0, 2]} : f32[T, H, 32]
         %sinb = broadcast %sin {shape = [T, H, 32], dims = [0, 2]} : f32[T, H, 32]
         %a = slice %x {axis = 2, start = 0, size = 32} : f32[T, H, 32]
         %b = slice %x {axis = 2, start = 32, size = 32} : f32[T, H, 32]
         %rest = slice %x {axis = 2, start = 64, size = 192} : f32[T, H, 192]
         %ac = mul %a, %cosb : f32[T, H, 32]
         %bs = mul %b, %sinb : f32[T, H, 32]
         %bc = mul %b, %cosb : f32[T, H, 32]
         %as = mul %a, %sinb : f32[T, H, 32]
         %lo = sub %ac, %bs : f32[T, H, 32]
         %hi = add %bc, %as : f32[T, H, 32]
         %y = concat %lo, %hi, %rest {axis = 2} : f32[T, H, 256]
         %cc = concat %cos, %cos {axis = 1} : f32[T, 64]
         %ss = concat %sin, %sin {axis = 1} : f32[T, 64]
        ";
    text
}

fn mrope<R: Real>(case: &str) {
    let g = Golden::load(case);
    let p = program(&format!(
        "program \"rotary\" symbol T symbol H
         func @main {{ {} return %y return %cc return %ss }}",
        rotary_text()
    ));
    for side in ["q", "k"] {
        let (dims, x) = g.raw(&format!("in.{side}"));
        let (heads, rows) = (dims[1], dims[2]);
        let x = Tensor::<R>::from_f64(vec![rows, heads, 256], &exchange(&x, heads, rows, 256));
        let inputs = [("x", x.unwrap()), ("positions", g.int("in.position_ids", &[3, rows]))];
        let out = run(&p, &inputs).unwrap();
        let y = out.0[0].value.to_f64();
        g.check(&format!("out.{side}"), &exchange(&y, rows, heads, 256));
        g.check("mid.cos", &out.0[1].value.to_f64());
        g.check("mid.sin", &out.0[2].value.to_f64());
    }
}

#[test]
fn mrope_cases() {
    for case in ["mrope_text", "mrope_image"] {
        mrope::<f32>(case);
        mrope::<f64>(case);
    }
}

/// The whole gated attention mixer, in two functions: norm with rotary is called twice.
fn gated_attention<R: Real>(case: &str, heads: usize, key_heads: usize) {
    let g = Golden::load(case);
    let dims = g.raw("in.hidden_states").0;
    let [batch, length, width] = dims[..] else { panic!("three dims") };
    let rows = batch * length;
    let (two, one) = (heads * 512, key_heads * 256);
    let p = program(&format!(
        "program \"attention\" symbol T symbol H symbol n symbol h symbol m
         func @q_side {{ {} return %y }}
         func @k_side {{ {} return %y }}
         func @main {{
           input %hidden : f32[T, {width}]
           input %positions : i32[3, T]
           input %cu : i32[n + 1]
           input %wq : f32[{two}, {width}]
           input %wk : f32[{one}, {width}]
           input %wv : f32[{one}, {width}]
           input %wo : f32[{width}, {half}]
           input %nq : f32[256]
           input %nk : f32[256]
           %pq = contract %hidden, %wq {{a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}} : f32[T, {two}]
           %pk = contract %hidden, %wk {{a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}} : f32[T, {one}]
           %pv = contract %hidden, %wv {{a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}} : f32[T, {one}]
           %hq = reshape %pq {{shape = [T, {heads}, 512]}} : f32[T, {heads}, 512]
           %q = slice %hq {{axis = 2, start = 0, size = 256}} : f32[T, {heads}, 256]
           %gate = slice %hq {{axis = 2, start = 256, size = 256}} : f32[T, {heads}, 256]
           %k = reshape %pk {{shape = [T, {key_heads}, 256]}} : f32[T, {key_heads}, 256]
           %v = reshape %pv {{shape = [T, {key_heads}, 256]}} : f32[T, {key_heads}, 256]
           %qr = call %q, %nq, %positions {{callee = \"q_side\", scope = \"\", path = \"q\", layer = none}} : f32[T, {heads}, 256]
           %kr = call %k, %nk, %positions {{callee = \"k_side\", scope = \"\", path = \"k\", layer = none}} : f32[T, {key_heads}, 256]
           %o = attention %qr, %kr, %v, %cu, %cu {{scale = 0.0625, causal = true, window = none}} : (f32[T, {heads}, 256], f32[T, {heads}])
           %sg = sigmoid %gate : f32[T, {heads}, 256]
           %og = mul %o#0, %sg : f32[T, {heads}, 256]
           %of = reshape %og {{shape = [T, {half}]}} : f32[T, {half}]
           %y = contract %of, %wo {{a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32}} : f32[T, {width}]
           return %y
           return %qr
           return %kr
           return %o#1
         }}",
        side(heads),
        side(key_heads),
        half = heads * 256,
    ));
    let exact = g.raw("in.position_ids").1;
    // Rows of all documents one after the other.
    let positions = Tensor::ints(vec![3, rows], exact.iter().map(|v| *v as i64).collect()).unwrap();
    let cu = if g.has("in.cu_seqlens") {
        let n = g.raw("in.cu_seqlens").1.len();
        g.int("in.cu_seqlens", &[n])
    } else {
        boundaries(batch, length)
    };
    let inputs = [
        ("hidden", g.float::<R>("in.hidden_states", &[rows, width])),
        ("positions", positions),
        ("cu", cu),
        ("wq", g.float("param.q_proj.weight", &[two, width])),
        ("wk", g.float("param.k_proj.weight", &[one, width])),
        ("wv", g.float("param.v_proj.weight", &[one, width])),
        ("wo", g.float("param.o_proj.weight", &[width, heads * 256])),
        ("nq", g.float("param.q_norm.weight", &[256])),
        ("nk", g.float("param.k_norm.weight", &[256])),
    ];
    let out = run(&p, &inputs).unwrap();
    g.check("out.y", &out.0[0].value.to_f64());
    if g.has("mid.probs") {
        // The probabilities are those that the saved log-sum-exp gives back.
        let (q, k, lse) =
            (out.0[1].value.to_f64(), out.0[2].value.to_f64(), out.0[3].value.to_f64());
        let group = heads / key_heads;
        let mut probs = vec![];
        for b in 0..batch {
            for h in 0..heads {
                for t in 0..length {
                    for s in 0..length {
                        let (t, s) = (b * length + t, b * length + s);
                        let q = &q[(t * heads + h) * 256..][..256];
                        let k = &k[(s * key_heads + h / group) * 256..][..256];
                        let score: f64 = q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() / 16.0;
                        let p = (score - lse[t * heads + h]).exp();
                        probs.push(if s <= t { p } else { 0.0 });
                    }
                }
            }
        }
        g.check("mid.probs", &probs);
    }
}

/// Norm over a head, then rotary, for a constant number of heads.
fn side(heads: usize) -> String {
    let norm = "input %raw : f32[T, H, 256]
         input %w : f32[256]
         input %positions : i32[3, T]
         %square = mul %raw, %raw : f32[T, H, 256]
         %sum = reduce_sum %square {axes = [2]} : f32[T, H]
         %scale = constant {value = 0.00390625, dtype = f32, shape = [T, H]} : f32[T, H]
         %eps = constant {value = 1e-6, dtype = f32, shape = [T, H]} : f32[T, H]
         %mean = mul %sum, %scale : f32[T, H]
         %shifted = add %mean, %eps : f32[T, H]
         %r = rsqrt %shifted : f32[T, H]
         %rb = broadcast %r {shape = [T, H, 256], dims = [0, 1]} : f32[T, H, 256]
         %one = constant {value = 1.0, dtype = f32, shape = [256]} : f32[256]
         %gain = add %one, %w : f32[256]
         %gb = broadcast %gain {shape = [T, H, 256], dims = [2]} : f32[T, H, 256]
         %normed = mul %raw, %rb : f32[T, H, 256]
         %x = mul %normed, %gb : f32[T, H, 256]\n";
    let rotary = rotary_text()
        .replace("input %x : f32[T, H, 256]", "")
        .replace("input %positions : i32[3, T]", "");
    format!("{norm}{rotary}").replace(", H", &format!(", {heads}"))
}

#[test]
fn attention_cases() {
    for (case, heads, key_heads) in
        [("attn_t11", 2, 1), ("attn_packed", 2, 2), ("attn_t37_gqa4_image", 4, 1)]
    {
        gated_attention::<f32>(case, heads, key_heads);
        gated_attention::<f64>(case, heads, key_heads);
    }
}
