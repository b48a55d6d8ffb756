//! What each kind of case asks of the product, and how its tensors are named and shaped there.

use crate::case::{Case, reshaped};
use crate::compare::{Row, exact, floats};
use crate::runner::{Ask, Form, Runner, output, seen, twice};
use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;
use vlmc::compile::Spread;
use vlmc::eval::{Evaluated, Precision, Tensors};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_frontend::elab::Library;
use vlmc_passes::recompute::Mode;

/// Specs loaded once.
pub struct Specs {
    /// Functions that stand for kinds of operations.
    pub ops: Library,
    /// The model.
    pub model: Library,
    /// What trainings of whole models recompute.
    pub recompute: Mode,
}

/// Runs a case and compares every tensor that it stores.
///
/// # Errors
/// When the case cannot be run at all.
pub fn run_case(
    specs: &Specs,
    case: &Case,
    precision: Precision,
    fused: bool,
    spread: &Spread,
) -> Result<Vec<Row>> {
    let r = Runner { specs, case, precision, fused, spread };
    match case.kind.as_str() {
        "rmsnorm" => r.plain("rmsnorm", &["x"], &["weight"]),
        "gated_rmsnorm" => r.plain("gated_rmsnorm", &["x", "gate"], &["weight"]),
        "l2norm" => r.plain("l2", &["x"], &[]),
        "causal_conv1d" => r.conv(),
        "gated_delta_rule" => r.delta_rule(),
        "gdn_block" => r.block("GatedDeltaNet"),
        "gated_attention" => r.block("AttentionCase"),
        "mrope_apply" => r.mrope(),
        "mlp" => r.token_wise("Mlp", &[("hidden", "c.text.hidden"), ("ffn", "c.text.ffn")]),
        "moe_block" => r.token_wise("MoE", &[("c", "c.text")]),
        "aux_loss" => r.aux(),
        "ce_loss" => r.cross_entropy(),
        "decoder_layer" => r.layer(),
        "vision" => r.tower(),
        "mtp" => r.mtp(),
        "mrope_positions" => r.positions(),
        "preprocess" => r.preprocess(),
        "model" => r.model(),
        other => bail!("{}: unknown kind `{other}`", case.name),
    }
}

impl Runner<'_> {
    fn conv(&self) -> Result<Vec<Row>> {
        let x = self.case.tensor("in.x")?;
        let form = Form::PermutedRows(vec![0, 2, 1]);
        let ask = Ask {
            function: "conv",
            ins: vec![
                ("in.x".into(), "x".into(), form.clone()),
                ("param.weight".into(), "weight".into(), Form::Same),
            ],
            outs: vec![("y".into(), form)],
            grads: true,
            ..Ask::default()
        };
        let mut inputs = self.inputs(&ask)?;
        self.sequence("seq", x.shape[0], x.shape[2], &mut inputs)?;
        Ok(self.judge(&ask, inputs)?.1)
    }

    fn delta_rule(&self) -> Result<Vec<Row>> {
        let q = self.case.tensor("in.q")?;
        let scale = [("scale", (q.shape[3] as f64).powf(-0.5).to_string())];
        let named = |n: &&str| (format!("in.{n}"), n.to_string(), Form::Rows);
        let mut ask = Ask {
            function: "delta_rule",
            args: &scale,
            ins: ["q", "k", "v", "g", "beta"].iter().map(named).collect(),
            outs: vec![("o".into(), Form::Rows), ("final_state".into(), Form::Same)],
            grads: true,
            ..Ask::default()
        };
        if self.case.maybe("in.initial_state")?.is_some() {
            ask.ins.push(("in.initial_state".into(), "state".into(), Form::Same));
            ask.function = "delta_rule_from";
        }
        let mut inputs = self.inputs(&ask)?;
        self.sequence("seq", q.shape[0], q.shape[1], &mut inputs)?;
        Ok(self.judge(&ask, inputs)?.1)
    }

    /// A mixer: `x` and a sequence.
    fn block(&self, module: &str) -> Result<Vec<Row>> {
        let x = self.case.tensor("in.hidden_states")?;
        let (b, l) = (x.shape[0], x.shape[1]);
        let args = [("c", "c.text".to_string())];
        let ask = Ask {
            function: module,
            args: &args,
            settings: self.section("text"),
            ins: vec![("in.hidden_states".into(), "x".into(), Form::Rows)],
            outs: vec![("y".into(), Form::Rows)],
            grads: true,
            ..Ask::default()
        };
        let mut inputs = self.inputs(&ask)?;
        self.sequence("seq", b, l, &mut inputs)?;
        let (_, mut rows) = self.judge(&ask, inputs.clone())?;
        // Values on the way have names in the forward program; differentiation may drop some.
        let out = self.ask(&Ask { grads: false, ..ask }, inputs)?;
        for mid in self.case.names("mid.") {
            let path = match mid.as_str() {
                "in_proj_qkv" => "qkv",
                "in_proj_z" => "z",
                "in_proj_a" => "a",
                "norm" => "y",
                "in_proj_b" => {
                    // The spec names beta = sigmoid(b) only; compare that.
                    rows.push(self.beta(&out)?);
                    continue;
                }
                "probs" => {
                    rows.push(self.probabilities(&out, b, l)?);
                    continue;
                }
                other => bail!("{}: nothing stands for mid.{other}", self.case.name),
            };
            rows.push(self.float(&format!("mid.{mid}"), seen(&out, path)?)?);
        }
        Ok(rows)
    }

    fn beta(&self, out: &Evaluated) -> Result<Row> {
        let want = self.case.tensor("mid.in_proj_b")?.to_f64();
        let have = seen(out, "beta")?.to_f64();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let largest =
            want.iter().zip(&have).map(|(w, h)| (sigmoid(*w) - h).abs()).fold(0.0, f64::max);
        let tolerance = if self.precision == Precision::Bf16 { 1e-2 } else { 1e-6 };
        Ok(Row { name: "sigmoid(mid.in_proj_b)".into(), error: largest, tolerance })
    }

    /// Attention keeps its probabilities to itself: they are made again from the queries and keys.
    fn probabilities(&self, out: &Evaluated, b: usize, l: usize) -> Result<Row> {
        let want = self.case.tensor("mid.probs")?;
        let heads = want.shape[1];
        let (q, k) = (seen(out, "mixer.q")?, seen(out, "mixer.k")?);
        let d = q.shape[2];
        let share = heads / k.shape[1];
        let mut all = vec![];
        for i in 0..b {
            let rows: Vec<usize> = (i * l..(i + 1) * l).collect();
            let repeated: Vec<usize> = (0..heads).map(|h| h / share).collect();
            let mut inputs = Tensors::new();
            inputs.insert("q".into(), q.select(0, &rows)?);
            inputs.insert("k_".into(), k.select(0, &rows)?.select(1, &repeated)?);
            let scale = (d as f64).powf(-0.5).to_string();
            let out = self.eval("probabilities", &[("scale", scale)], vec![], &inputs)?;
            all.extend(output(&out, "0")?.to_f64());
        }
        let have = HostTensor::new(want.shape.clone(), HostData::F64(all))?;
        self.float("mid.probs", &have)
    }

    fn mrope(&self) -> Result<Vec<Row>> {
        let q = self.case.tensor("in.q")?;
        let form = Form::PermutedRows(vec![0, 2, 1, 3]);
        let args = [("c", "c.text".to_string())];
        let ask = Ask {
            function: "MropeCase",
            args: &args,
            settings: self.section("text"),
            ins: vec![
                ("in.q".into(), "q".into(), form.clone()),
                ("in.k".into(), "k_".into(), form.clone()),
            ],
            outs: vec![("q".into(), form.clone()), ("k".into(), form)],
            grads: true,
            ..Ask::default()
        };
        let mut inputs = self.inputs(&ask)?;
        self.sequence("seq", q.shape[0], q.shape[2], &mut inputs)?;
        let (_, mut rows) = self.judge(&ask, inputs.clone())?;
        let out = self.ask(&Ask { grads: false, ..ask }, inputs)?;
        for name in ["cos", "sin"] {
            rows.push(self.float(&format!("mid.{name}"), &twice(seen(&out, name)?)?)?);
        }
        // The frequencies are the angles of position 1.
        let want = self.case.tensor("mid.inv_freq")?;
        let mut one = Tensors::new();
        one.insert("position".into(), HostTensor::new(vec![1, 1], HostData::F32(vec![1.0]))?);
        let theta =
            self.config().and_then(|c| c.get("rope_parameters")?.get("rope_theta")?.as_f64());
        let theta = theta.ok_or_else(|| anyhow!("no rope_theta"))?;
        let args = [("count", want.len().to_string()), ("theta", format!("{theta:?}"))];
        let out = self.eval("rope_angles", &args, vec![], &one)?;
        let row = floats(self.case, "mid.inv_freq", output(&out, "0")?, Precision::F32, None)?;
        rows.push(row);
        Ok(rows)
    }

    /// A module of rows that takes a mask of valid ones.
    fn token_wise(&self, module: &str, args: &[(&str, &str)]) -> Result<Vec<Row>> {
        let x = self.case.tensor("in.x")?;
        let args: Vec<_> = args.iter().map(|(k, v)| (*k, v.to_string())).collect();
        let ask = Ask {
            function: module,
            args: &args,
            settings: self.section("text"),
            ins: vec![("in.x".into(), "x".into(), Form::Rows)],
            outs: vec![("y".into(), Form::Rows)],
            grads: true,
            ..Ask::default()
        };
        let mut inputs = self.inputs(&ask)?;
        let n = x.shape[0] * x.shape[1];
        inputs.insert("valid".into(), HostTensor::vector(HostData::Bool(vec![true; n])));
        let (_, mut rows) = self.judge(&ask, inputs.clone())?;
        let out = self.ask(&Ask { grads: false, ..ask }, inputs)?;
        for mid in self.case.names("mid.") {
            let path = match mid.as_str() {
                "router_logits" => "logits",
                "topk_weights" => "weight",
                "topk_indices" => {
                    if self.precision != Precision::Bf16 {
                        let have = seen(&out, "top#1")?;
                        rows.push(exact(self.case, "mid.topk_indices", have)?);
                    }
                    continue;
                }
                other => bail!("{}: nothing stands for mid.{other}", self.case.name),
            };
            rows.push(self.float(&format!("mid.{mid}"), seen(&out, path)?)?);
        }
        Ok(rows)
    }

    fn aux(&self) -> Result<Vec<Row>> {
        let layers = self.case.names("in.router_logits.").len();
        let mut all = vec![];
        let mut shape = vec![0, 0];
        for l in 0..layers {
            let t = self.case.tensor(&format!("in.router_logits.{l}"))?;
            shape = vec![shape[0] + t.shape[0], t.shape[1]];
            all.extend(t.to_f64());
        }
        let mask = match self.case.maybe("in.attention_mask")? {
            Some(m) => m.to_i64()?.into_iter().map(|v| v != 0).collect(),
            None => vec![true; shape[0] / layers],
        };
        let valid: Vec<bool> = (0..layers).flat_map(|_| mask.clone()).collect();
        let mut inputs = Tensors::new();
        inputs.insert("logits".into(), HostTensor::new(shape, HostData::F64(all))?);
        inputs.insert("valid".into(), HostTensor::vector(HostData::Bool(valid)));
        let k = self.case.number("K").ok_or_else(|| anyhow!("no K"))?.to_string();
        let args = [("k", k)];
        let one = HostTensor::new(vec![], HostData::F32(vec![1.0]))?;
        let ask = Ask {
            function: "aux_loss",
            args: &args,
            ins: vec![("in.router_logits".into(), "logits".into(), Form::Same)],
            outs: vec![("aux_loss".into(), Form::Same)],
            grads: true,
            unit: Some(("aux_loss".into(), one)),
            ..Ask::default()
        };
        let (out, mut rows) = self.judge(&ask, inputs)?;
        let gradient = output(&out, "grad.in.logits")?;
        let rows_a_layer = gradient.shape[0] / layers;
        for l in 0..layers {
            let these: Vec<usize> = (l * rows_a_layer..(l + 1) * rows_a_layer).collect();
            let name = format!("grad.in.router_logits.{l}");
            rows.push(self.float(&name, &gradient.select(0, &these)?)?);
        }
        Ok(rows)
    }

    fn cross_entropy(&self) -> Result<Vec<Row>> {
        let logits = self.case.tensor("in.logits")?;
        let labels = self.case.tensor("in.labels")?;
        // The loss is a pair: the mean of the case is sum / count, and so is its gradient.
        let l = labels.shape[1];
        let kept =
            labels.to_i64()?.iter().enumerate().filter(|(i, v)| i % l > 0 && **v >= 0).count();
        let share = HostTensor::new(vec![], HostData::F32(vec![1.0 / kept as f32]))?;
        let ask = Ask {
            function: "ce_loss",
            ins: vec![("in.logits".into(), "logits".into(), Form::Rows)],
            outs: vec![("sum".into(), Form::Same), ("count".into(), Form::Same)],
            grads: true,
            unit: Some(("sum".into(), share)),
            ..Ask::default()
        };
        let mut inputs = self.inputs(&ask)?;
        inputs.insert("labels".into(), reshaped(&labels, &[labels.len()])?);
        self.sequence("seq", logits.shape[0], l, &mut inputs)?;
        let (out, mut rows) = self.judge(&ask, inputs)?;
        let (sum, count) = (output(&out, "0")?.to_f64()[0], output(&out, "1")?.to_f64()[0]);
        let name =
            self.case.names("out.").into_iter().next().ok_or_else(|| anyhow!("no output"))?;
        let mean = HostTensor::new(vec![], HostData::F64(vec![sum / count]))?;
        rows.push(self.float(&format!("out.{name}"), &mean)?);
        Ok(rows)
    }

    fn layer(&self) -> Result<Vec<Row>> {
        let x = self.case.tensor("in.hidden_states")?;
        let kind = self.case.json.get("case").and_then(|c| c.get("layer")).and_then(Json::as_str);
        let kind = match kind {
            Some("full_attention") => "attention",
            _ => "gdn",
        };
        let args = [("c", "c.text".to_string()), ("kind", kind.to_string())];
        let ask = Ask {
            function: "LayerCase",
            args: &args,
            settings: self.section("text"),
            ins: vec![("in.hidden_states".into(), "h".into(), Form::Rows)],
            outs: vec![("y".into(), Form::Rows)],
            grads: true,
            ..Ask::default()
        };
        let mut inputs = self.inputs(&ask)?;
        self.sequence("seq", x.shape[0], x.shape[1], &mut inputs)?;
        Ok(self.judge(&ask, inputs)?.1)
    }

    fn mtp(&self) -> Result<Vec<Row>> {
        let x = self.case.tensor("in.hidden_states")?;
        let args = [("c", "c.text".to_string())];
        let ask = Ask {
            function: "MtpCase",
            args: &args,
            settings: self.section("text"),
            ins: vec![
                ("in.hidden_states".into(), "h".into(), Form::Rows),
                ("in.next_embeds".into(), "next".into(), Form::Rows),
            ],
            outs: vec![("y".into(), Form::Rows)],
            grads: true,
            ..Ask::default()
        };
        let mut inputs = self.inputs(&ask)?;
        self.sequence("seq", x.shape[0], x.shape[1], &mut inputs)?;
        Ok(self.judge(&ask, inputs)?.1)
    }
}
