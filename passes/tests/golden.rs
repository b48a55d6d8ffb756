//! Gradients of single operations against the golden files, in f32 at the files' own tolerances.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::path::PathBuf;
use support::{exact, gradients_of, program, typed};
use vlmc_data::safetensors::TensorFile;
use vlmc_ir::eval::Tensor;
use vlmc_passes::autodiff::{Options, Seeds};

struct Golden {
    name: String,
    file: TensorFile,
    facts: serde_json::Value,
}

impl Golden {
    fn open(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/ops").join(name);
        let facts = std::fs::read(path.with_extension("json")).unwrap();
        Golden {
            name: name.to_string(),
            file: TensorFile::open(path.with_extension("safetensors")).unwrap(),
            facts: serde_json::from_slice(&facts).unwrap(),
        }
    }

    fn dims(&self, name: &str) -> Vec<usize> {
        let shape = self.facts["tensors"][name]["shape"].as_array().unwrap();
        shape.iter().map(|d| d.as_u64().unwrap() as usize).collect()
    }

    fn tensor(&self, name: &str) -> Tensor<f32> {
        let t = self.file.read(name).unwrap();
        Tensor::from_f32(self.dims(name), &t.to_f32()).unwrap()
    }

    fn close(&self, name: &str, have: &Tensor<f32>) {
        let want = self.file.read(name).unwrap().to_f64();
        let have = have.to_f64();
        assert_eq!(have.len(), want.len(), "{}: {name}", self.name);
        let facts = &self.facts["errors_vs_float64"][name];
        let error: f64 = have.iter().zip(&want).map(|(a, b)| (a - b) * (a - b)).sum();
        let norm: f64 = want.iter().map(|b| b * b).sum();
        if facts["ref_rms"].as_f64().unwrap() < 1e-7 {
            let worst = have.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst <= 1e-6, "{}: {name} is off by {worst:e}", self.name);
            return;
        }
        let (relative, tolerance) =
            ((error / norm).sqrt(), facts["fp32_rel_l2_tol"].as_f64().unwrap());
        println!("{}: {name} {relative:.1e} of {tolerance:.1e}", self.name);
        assert!(relative <= tolerance, "{}: {name} {relative:e} > {tolerance:e}", self.name);
    }

    /// Runs the text with the file's inputs, and compares results and gradients. Inputs are named
    /// as in the file, parameters have the keys of the file, results the names of the file.
    fn check(&self, text: &str, boundaries: Option<(usize, usize)>) {
        let p = program(&typed(text));
        let main = p.main().unwrap();
        let is_float = |n: &str| main.inputs.iter().any(|i| *i.name == *n && i.ty.dtype.is_float());
        let names: Vec<&str> = self.file.names().collect();
        let floats: Vec<String> = names
            .iter()
            .filter_map(|n| n.strip_prefix("in.").filter(|n| is_float(n)).map(str::to_string))
            .collect();
        let losses = main.outputs.iter().any(|o| o.name.as_deref() == Some("loss"));
        let seeds = if losses { Seeds::Counts } else { Seeds::Outputs };
        let d = gradients_of(&p, &Options { seeds, inputs: floats });
        let mut inputs = vec![];
        for i in &d.main().unwrap().inputs {
            let value = match (&*i.name, boundaries) {
                ("cu" | "padded", Some((batch, rows))) => {
                    let b = (0..=batch).map(|i| (i * rows) as i64).collect();
                    Tensor::ints(vec![batch + 1], b).unwrap()
                }
                ("labels", _) => {
                    let t = self.file.read("in.labels").unwrap().to_i64().unwrap();
                    Tensor::ints(self.dims("in.labels"), t).unwrap()
                }
                (n, _) if n.starts_with("dout.") => self.tensor(n),
                (n, _) => self.tensor(&format!("in.{n}")),
            };
            inputs.push((i.name.to_string(), value));
        }
        let params: Vec<_> = p
            .parameters()
            .into_iter()
            .map(|(n, _)| (n.clone(), self.tensor(&format!("param.{n}"))))
            .collect();
        let out = exact(&d, &inputs, &params).unwrap();
        for name in names {
            let value = if let Some(n) = name.strip_prefix("out.") {
                out.get(n)
            } else if let Some(n) = name.strip_prefix("grad.param.") {
                out.get(n)
            } else if name.starts_with("grad.in.") {
                out.get(name)
            } else {
                continue;
            };
            let value = value.unwrap_or_else(|e| panic!("{}: {e}", self.name));
            if name == "out.loss" {
                let mean = Tensor::from_f64(vec![], &[out.training_loss()]).unwrap();
                self.close(name, &mean);
            } else {
                self.close(name, value);
            }
        }
    }
}

fn list(dims: &[usize]) -> String {
    dims.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// `x * rsqrt(sum of x^2 * factor + eps)` over the last axis, as `%PREFIX.y`.
fn normalize(prefix: &str, x: &str, dims: &[usize], factor: f64) -> String {
    let outer = &dims[..dims.len() - 1];
    let (axis, kept) = (outer.len(), list(&(0..outer.len()).collect::<Vec<_>>()));
    let (outer, all) = (list(outer), list(dims));
    let p = prefix;
    format!(
        "%{p}.s = mul {x}, {x}
        %{p}.t = reduce_sum %{p}.s {{axes = [{axis}]}}
        %{p}.f = constant {{value = {factor:?}, dtype = f32, shape = [{outer}]}}
        %{p}.m = mul %{p}.t, %{p}.f
        %{p}.e = constant {{value = 1e-6, dtype = f32, shape = [{outer}]}}
        %{p}.d = add %{p}.m, %{p}.e
        %{p}.r = rsqrt %{p}.d
        %{p}.b = broadcast %{p}.r {{shape = [{all}], dims = [{kept}]}}
        %{p}.y = mul {x}, %{p}.b
        "
    )
}

#[test]
fn norms() {
    for name in ["rmsnorm_a", "rmsnorm_head256"] {
        let g = Golden::open(name);
        let dims = g.dims("in.x");
        let (d, axis) = (dims[dims.len() - 1], dims.len() - 1);
        let (all, norm) = (list(&dims), normalize("n", "%x", &dims, 1.0 / d as f64));
        g.check(
            &format!(
                "func @main {{
                input %x : f32[{all}]
                param %w = \"weight\" : f32[{d}] init constant(0.0)
                {norm}
                %one = constant {{value = 1.0, dtype = f32, shape = [{d}]}}
                %gain = add %one, %w
                %g = broadcast %gain {{shape = [{all}], dims = [{axis}]}}
                %y = mul %n.y, %g
                return \"y\" = %y
                }}"
            ),
            None,
        );
    }
    for name in ["gated_rmsnorm_a", "gated_rmsnorm_d128"] {
        let g = Golden::open(name);
        let dims = g.dims("in.x");
        let (d, axis) = (dims[dims.len() - 1], dims.len() - 1);
        let (all, norm) = (list(&dims), normalize("n", "%x", &dims, 1.0 / d as f64));
        g.check(
            &format!(
                "func @main {{
                input %x : f32[{all}]
                input %gate : f32[{all}]
                param %w = \"weight\" : f32[{d}] init constant(1.0)
                {norm}
                %g = broadcast %w {{shape = [{all}], dims = [{axis}]}}
                %h = mul %n.y, %g
                %s = silu %gate
                %y = mul %h, %s
                return \"y\" = %y
                }}"
            ),
            None,
        );
    }
    let g = Golden::open("l2norm_a");
    let dims = g.dims("in.x");
    let (all, norm) = (list(&dims), normalize("n", "%x", &dims, 1.0));
    let text = format!("func @main {{\ninput %x : f32[{all}]\n{norm}\nreturn \"y\" = %n.y\n}}");
    g.check(&text, None);
}

#[test]
fn convolutions() {
    for name in ["conv1d_t1", "conv1d_t3", "conv1d_t17", "conv1d_t65"] {
        let g = Golden::open(name);
        let dims = g.dims("in.x");
        let (b, c, t) = (dims[0], dims[1], dims[2]);
        let (rows, n) = (b * t, b + 1);
        g.check(
            &format!(
                "func @main {{
                input %x : f32[{b}, {c}, {t}]
                input %cu : i32[{n}]
                input %padded : i32[{n}]
                param %w = \"weight\" : f32[{c}, 4] init normal(0.1)
                %xt = transpose %x {{permutation = [0, 2, 1]}}
                %xr = reshape %xt {{shape = [{rows}, {c}]}}
                %k = causal_conv1d %xr, %w, %cu, %padded
                %s = silu %k
                %r = reshape %s {{shape = [{b}, {t}, {c}]}}
                %y = transpose %r {{permutation = [0, 2, 1]}}
                return \"y\" = %y
                }}"
            ),
            Some((b, t)),
        );
    }
}

#[test]
fn delta_rules() {
    for name in
        ["gdr_t5", "gdr_t64_b2", "gdr_t70_d128", "gdr_t130_dk16_dv32_init", "gdr_extreme_t96"]
    {
        let g = Golden::open(name);
        let (k, v) = (g.dims("in.k"), g.dims("in.v"));
        let (b, t, hk, dk, hv, dv) = (k[0], k[1], k[2], k[3], v[2], v[3]);
        let (rows, n) = (b * t, b + 1);
        let has_state = g.facts["tensors"].get("in.initial_state").is_some();
        let state = format!("input %initial_state : f32[{b}, {hv}, {dk}, {dv}]");
        let (state, operand) =
            if has_state { (state, ", %initial_state") } else { (String::new(), "") };
        let last =
            if g.file.contains("out.final_state") { "return \"final_state\" = %r#1" } else { "" };
        let key = [rows, hk, dk];
        let (qn, kn) = (normalize("qn", "%qr", &key, 1.0), normalize("kn", "%kr", &key, 1.0));
        let scale = (dk as f64).powf(-0.5);
        g.check(
            &format!(
                "func @main {{
                input %q : f32[{b}, {t}, {hk}, {dk}]
                input %k : f32[{b}, {t}, {hk}, {dk}]
                input %v : f32[{b}, {t}, {hv}, {dv}]
                input %g : f32[{b}, {t}, {hv}]
                input %beta : f32[{b}, {t}, {hv}]
                {state}
                input %cu : i32[{n}]
                input %padded : i32[{n}]
                %qr = reshape %q {{shape = [{rows}, {hk}, {dk}]}}
                {qn}
                %scale = constant {{value = {scale:?}, dtype = f32, shape = [{rows}, {hk}, {dk}]}}
                %qs = mul %qn.y, %scale
                %kr = reshape %k {{shape = [{rows}, {hk}, {dk}]}}
                {kn}
                %vr = reshape %v {{shape = [{rows}, {hv}, {dv}]}}
                %gr = reshape %g {{shape = [{rows}, {hv}]}}
                %br = reshape %beta {{shape = [{rows}, {hv}]}}
                %r = gated_delta_rule %qs, %kn.y, %vr, %gr, %br, %cu, %padded{operand}
                %o = reshape %r#0 {{shape = [{b}, {t}, {hv}, {dv}]}}
                return \"o\" = %o
                {last}
                }}"
            ),
            Some((b, t)),
        );
    }
}

#[test]
fn mlp() {
    let g = Golden::open("mlp_a");
    let (x, f) = (g.dims("in.x"), g.dims("param.up_proj.weight")[0]);
    let d = x[2];
    let all = list(&x);
    let product = "{a_batch = [], b_batch = [], a_contract = [2], b_contract = [1], dtype = f32}";
    g.check(
        &format!(
            "func @main {{
            input %x : f32[{all}]
            param %gate = \"gate_proj.weight\" : f32[{f}, {d}] init normal(0.1)
            param %up = \"up_proj.weight\" : f32[{f}, {d}] init normal(0.1)
            param %down = \"down_proj.weight\" : f32[{d}, {f}] init normal(0.1)
            %a = contract %x, %gate {product}
            %b = contract %x, %up {product}
            %s = silu %a
            %h = mul %s, %b
            %y = contract %h, %down {product}
            return \"y\" = %y
            }}"
        ),
        None,
    );
}

/// The mean over the labels that count, each row's label being that of the next.
#[test]
fn cross_entropy() {
    let g = Golden::open("ce_loss_a");
    let dims = g.dims("in.logits");
    let (b, t, v) = (dims[0], dims[1], dims[2]);
    let u = t - 1;
    g.check(
        &format!(
            "func @main {{
            input %logits : f32[{b}, {t}, {v}]
            input %labels : i32[{b}, {t}]
            %x = slice %logits {{axis = 1, start = 0, size = {u}}}
            %l = slice %labels {{axis = 1, start = 1, size = {u}}}
            %top = reduce_max %x {{axes = [2]}}
            %held = stop_gradient %top
            %tb = broadcast %held {{shape = [{b}, {u}, {v}], dims = [0, 1]}}
            %d = sub %x, %tb
            %e = exp %d
            %s = reduce_sum %e {{axes = [2]}}
            %ln = log %s
            %at = iota {{shape = [{b}, {u}, {v}], axis = 2}}
            %lb = broadcast %l {{shape = [{b}, {u}, {v}], dims = [0, 1]}}
            %is = compare %at, %lb {{kind = eq}}
            %zero = constant {{value = 0.0, dtype = f32, shape = [{b}, {u}, {v}]}}
            %picked = select %is, %d, %zero
            %p = reduce_sum %picked {{axes = [2]}}
            %nll = sub %ln, %p
            %no = constant {{value = 0.0, dtype = i32, shape = [{b}, {u}]}}
            %counts = compare %l, %no {{kind = ge}}
            %none = constant {{value = 0.0, dtype = f32, shape = [{b}, {u}]}}
            %kept = select %counts, %nll, %none
            %total = reduce_sum %kept {{axes = [0, 1]}}
            %ones = cast %counts {{dtype = f32}}
            %n = reduce_sum %ones {{axes = [0, 1]}}
            loss \"loss\" = %total / %n weight 1.0
            }}"
        ),
        None,
    );
}
