//! Whole blocks against the golden data: routing to experts, and a recurrent mixer with packed and
//! with padded documents.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::{Golden, expand, program, run_with_params};
use vlmc_ir::eval::{Real, Tensor};

fn experts<R: Real>(case: &str) {
    let g = Golden::load(case);
    let (e, d) = (g.raw("param.gate.weight").0[0], g.raw("param.gate.weight").0[1]);
    let k = g.raw("mid.topk_indices").0[1];
    let i = g.raw("param.experts.down_proj").0[2];
    let (s, two) = (g.raw("param.shared_expert.up_proj.weight").0[0], 2 * i);
    let init = "init normal(0.02)";
    let p = program(&expand(&format!(
        "program \"experts\" symbol T
         func @shared {{
           input %x : f32[T, {d}]
           param %gate = \"gate_proj.weight\" : f32[{s}, {d}] {init}
           param %up = \"up_proj.weight\" : f32[{s}, {d}] {init}
           param %down = \"down_proj.weight\" : f32[{d}, {s}] {init}
           %g = linear %x, %gate : f32[T, {s}]
           %u = linear %x, %up : f32[T, {s}]
           %a = silu %g : f32[T, {s}]
           %h = mul %a, %u : f32[T, {s}]
           %y = linear %h, %down : f32[T, {d}]
           return %y
         }}
         func @main {{
           input %x : f32[T, {d}]
           param %router = \"gate.weight\" : f32[{e}, {d}] {init}
           param %gate_up = \"experts.gate_up_proj\" : f32[{e}, {two}, {d}] {init}
           param %down = \"experts.down_proj\" : f32[{e}, {d}, {i}] {init}
           param %sg = \"shared_expert_gate.weight\" : f32[1, {d}] {init}
           %logits = linear %x, %router : f32[T, {e}]
           %m = reduce_max %logits {{axes = [1]}} : f32[T]
           %mb = broadcast %m {{shape = [T, {e}], dims = [0]}} : f32[T, {e}]
           %shifted = sub %logits, %mb : f32[T, {e}]
           %ex = exp %shifted : f32[T, {e}]
           %sum = reduce_sum %ex {{axes = [1]}} : f32[T]
           %sb = broadcast %sum {{shape = [T, {e}], dims = [0]}} : f32[T, {e}]
           %p = div %ex, %sb : f32[T, {e}]
           %top = top_k %p {{k = {k}}} : (f32[T, {k}], i32[T, {k}])
           %ts = reduce_sum %top#0 {{axes = [1]}} : f32[T]
           %tsb = broadcast %ts {{shape = [T, {k}], dims = [0]}} : f32[T, {k}]
           %weights = div %top#0, %tsb : f32[T, {k}]
           %rows = repeat %x {{axis = 0, times = {k}}} : f32[{k}*T, {d}]
           %groups = reshape %top#1 {{shape = [{k}*T]}} : i32[{k}*T]
           %gu = grouped_contract %rows, %gate_up, %groups {{transposed = false}} : f32[{k}*T, {two}]
           %ga = slice %gu {{axis = 1, start = 0, size = {i}}} : f32[{k}*T, {i}]
           %up = slice %gu {{axis = 1, start = {i}, size = {i}}} : f32[{k}*T, {i}]
           %act = silu %ga : f32[{k}*T, {i}]
           %h = mul %act, %up : f32[{k}*T, {i}]
           %o = grouped_contract %h, %down, %groups {{transposed = false}} : f32[{k}*T, {d}]
           %wf = reshape %weights {{shape = [{k}*T]}} : f32[{k}*T]
           %wb = broadcast %wf {{shape = [{k}*T, {d}], dims = [0]}} : f32[{k}*T, {d}]
           %ow = mul %o, %wb : f32[{k}*T, {d}]
           %o3 = reshape %ow {{shape = [T, {k}, {d}]}} : f32[T, {k}, {d}]
           %routed = reduce_sum %o3 {{axes = [1]}} : f32[T, {d}]
           %sh = call %x {{callee = \"shared\", scope = \"shared_expert\", path = \"shared\", layer = none}} : f32[T, {d}]
           %sgl = linear %x, %sg : f32[T, 1]
           %sgs = sigmoid %sgl : f32[T, 1]
           %sgb = broadcast %sgs {{shape = [T, {d}], dims = [0, 1]}} : f32[T, {d}]
           %gated = mul %sh, %sgb : f32[T, {d}]
           %y = add %routed, %gated : f32[T, {d}]
           return %y
           return %logits
           return %top#1
           return %weights
         }}"
    )));
    let (dims, x) = g.raw("in.x");
    let x = Tensor::<R>::from_f64(vec![dims[0] * dims[1], d], &x).unwrap();
    let out = run_with_params(&p, &g, &[("x", x)]);
    assert_eq!(out.0[2].value.to_f64(), g.raw("mid.topk_indices").1);
    g.check("mid.router_logits", &out.0[1].value.to_f64());
    g.check("mid.topk_weights", &out.0[3].value.to_f64());
    g.check("out.y", &out.0[0].value.to_f64());
}

#[test]
fn expert_cases() {
    for case in ["moe_e8_k2", "moe_e8_k3_t1", "moe_e16_k4_skew"] {
        experts::<f32>(case);
        experts::<f64>(case);
    }
}

/// Sizes of the recurrent mixer: key heads, their width, value heads, their width.
struct Heads(usize, usize, usize, usize);

fn mixer_text(width: usize, Heads(hk, dk, hv, dv): Heads) -> String {
    let (key, value) = (hk * dk, hv * dv);
    let (all, init) = (2 * key + value, "init normal(0.02)");
    let norm = |x: &str| {
        format!(
            "%sq_{x} = mul %{x}, %{x} : f32[T, {hk}, {dk}]
             %ss_{x} = reduce_sum %sq_{x} {{axes = [2]}} : f32[T, {hk}]
             %se_{x} = add %ss_{x}, %eps : f32[T, {hk}]
             %sr_{x} = rsqrt %se_{x} : f32[T, {hk}]
             %sb_{x} = broadcast %sr_{x} {{shape = [T, {hk}, {dk}], dims = [0, 1]}} : f32[T, {hk}, {dk}]
             %n_{x} = mul %{x}, %sb_{x} : f32[T, {hk}, {dk}]"
        )
    };
    expand(&format!(
        "program \"mixer\" symbol T symbol n
         func @main {{
           input %x : f32[T, {width}]
           input %cu : i32[n + 1]
           input %padded : i32[n + 1]
           param %wqkv = \"in_proj_qkv.weight\" : f32[{all}, {width}] {init}
           param %wz = \"in_proj_z.weight\" : f32[{value}, {width}] {init}
           param %wb = \"in_proj_b.weight\" : f32[{hv}, {width}] {init}
           param %wa = \"in_proj_a.weight\" : f32[{hv}, {width}] {init}
           param %wo = \"out_proj.weight\" : f32[{width}, {value}] {init}
           param %wc = \"conv1d.weight\" : f32[{all}, 1, 4] {init}
           param %a_log = \"A_log\" : f32[{hv}] init log_uniform(0.01, 16.0)
           param %dt_bias = \"dt_bias\" : f32[{hv}] init constant(1.0)
           param %wn = \"norm.weight\" : f32[{dv}] init constant(1.0)
           %qkv = linear %x, %wqkv : f32[T, {all}]
           %w2 = reshape %wc {{shape = [{all}, 4]}} : f32[{all}, 4]
           %conv = causal_conv1d %qkv, %w2, %cu, %padded : f32[T, {all}]
           %act = silu %conv : f32[T, {all}]
           %qf = slice %act {{axis = 1, start = 0, size = {key}}} : f32[T, {key}]
           %kf = slice %act {{axis = 1, start = {key}, size = {key}}} : f32[T, {key}]
           %vf = slice %act {{axis = 1, start = {key2}, size = {value}}} : f32[T, {value}]
           %q = reshape %qf {{shape = [T, {hk}, {dk}]}} : f32[T, {hk}, {dk}]
           %k = reshape %kf {{shape = [T, {hk}, {dk}]}} : f32[T, {hk}, {dk}]
           %v = reshape %vf {{shape = [T, {hv}, {dv}]}} : f32[T, {hv}, {dv}]
           %eps = constant {{value = 1e-6, dtype = f32, shape = [T, {hk}]}} : f32[T, {hk}]
           {}
           {}
           %sc = constant {{value = {:?}, dtype = f32, shape = [T, {hk}, {dk}]}} : f32[T, {hk}, {dk}]
           %qs = mul %n_q, %sc : f32[T, {hk}, {dk}]
           %b = linear %x, %wb : f32[T, {hv}]
           %beta = sigmoid %b : f32[T, {hv}]
           %a = linear %x, %wa : f32[T, {hv}]
           %dt = broadcast %dt_bias {{shape = [T, {hv}], dims = [1]}} : f32[T, {hv}]
           %adt = add %a, %dt : f32[T, {hv}]
           %sp = softplus %adt : f32[T, {hv}]
           %ea = exp %a_log : f32[{hv}]
           %na = neg %ea : f32[{hv}]
           %nab = broadcast %na {{shape = [T, {hv}], dims = [1]}} : f32[T, {hv}]
           %g = mul %nab, %sp : f32[T, {hv}]
           %r = gated_delta_rule %qs, %n_k, %v, %g, %beta, %cu, %padded : (f32[T, {hv}, {dv}], f32[n, {hv}, {dk}, {dv}])
           %osq = mul %r#0, %r#0 : f32[T, {hv}, {dv}]
           %os = reduce_sum %osq {{axes = [2]}} : f32[T, {hv}]
           %inv = constant {{value = {:?}, dtype = f32, shape = [T, {hv}]}} : f32[T, {hv}]
           %om = mul %os, %inv : f32[T, {hv}]
           %oeps = constant {{value = 1e-6, dtype = f32, shape = [T, {hv}]}} : f32[T, {hv}]
           %oe = add %om, %oeps : f32[T, {hv}]
           %or = rsqrt %oe : f32[T, {hv}]
           %orb = broadcast %or {{shape = [T, {hv}, {dv}], dims = [0, 1]}} : f32[T, {hv}, {dv}]
           %on = mul %r#0, %orb : f32[T, {hv}, {dv}]
           %wnb = broadcast %wn {{shape = [T, {hv}, {dv}], dims = [2]}} : f32[T, {hv}, {dv}]
           %ow = mul %on, %wnb : f32[T, {hv}, {dv}]
           %z = linear %x, %wz : f32[T, {value}]
           %zs = silu %z : f32[T, {value}]
           %zr = reshape %zs {{shape = [T, {hv}, {dv}]}} : f32[T, {hv}, {dv}]
           %oz = mul %ow, %zr : f32[T, {hv}, {dv}]
           %of = reshape %oz {{shape = [T, {value}]}} : f32[T, {value}]
           %y = linear %of, %wo : f32[T, {width}]
           return %y
         }}",
        norm("q"),
        norm("k"),
        (dk as f64).powf(-0.5),
        1.0 / dv as f64,
        key2 = 2 * key,
    ))
}

/// `valid` and `padded` are the boundaries of the documents in the rows of the whole batch.
fn mixer<R: Real>(case: &str, valid: &[i64], padded: &[i64]) {
    let g = Golden::load(case);
    let (dims, x) = g.raw("in.hidden_states");
    let (hv, dv) = (g.raw("param.A_log").0[0], g.raw("param.norm.weight").0[0]);
    let all = g.raw("param.in_proj_qkv.weight").0[0];
    let (dk, width) = (16, dims[2]);
    let hk = (all - hv * dv) / 2 / dk;
    let p = program(&mixer_text(width, Heads(hk, dk, hv, dv)));
    let list = |v: &[i64]| Tensor::ints(vec![v.len()], v.to_vec()).unwrap();
    let x = Tensor::<R>::from_f64(vec![dims[0] * dims[1], width], &x).unwrap();
    let inputs = [("x", x), ("cu", list(valid)), ("padded", list(padded))];
    let y = run_with_params(&p, &g, &inputs).0[0].value.to_f64();
    let mut is_valid = vec![false; dims[0] * dims[1]];
    for (v, p) in valid.windows(2).zip(padded) {
        is_valid[*p as usize..(*p + v[1] - v[0]) as usize].fill(true);
    }
    g.check_where("out.y", &y, &|i| is_valid[i / width]);
    // Rows that are not valid give zeros.
    for (t, row) in y.chunks(width).enumerate() {
        assert!(is_valid[t] || row.iter().all(|v| *v == 0.0), "row {t}");
    }
}

#[test]
fn mixer_cases() {
    let packed = [0, 3, 70, 71, 150];
    for (case, valid, padded) in [
        ("gdn_t1", &[0, 1][..], &[0, 1][..]),
        ("gdn_t9_mids", &[0, 9], &[0, 9]),
        ("gdn_t64_b2", &[0, 64, 128], &[0, 64, 128]),
        ("gdn_packed", &packed, &packed),
        ("gdn_padded_b3", &[0, 40, 47, 70], &[0, 40, 80, 120]),
    ] {
        mixer::<f32>(case, valid, padded);
        mixer::<f64>(case, valid, padded);
    }
}
