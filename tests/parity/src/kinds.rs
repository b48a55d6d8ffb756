//! What each kind of case asks of the product, and how its tensors are named and shaped there.

use crate::case::{Case, ints, permuted, reshaped, rows_of};
use crate::compare::{Row, exact, floats};
use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;
use vlmc::eval::{Evaluated, Inputs, Precision, Request, Tensors, program, run, with_gradients};
use vlmc_data::pack::SequenceLayout;
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_data::{batch, positions, preprocess, vision};
use vlmc_frontend::elab::{Library, Raw, Setter, Setting, import_config, import_section};
use vlmc_ir::graph::{Param, Program};

/// Specs loaded once.
pub struct Specs {
    /// Functions that stand for kinds of operations.
    pub ops: Library,
    /// The model.
    pub model: Library,
}

/// Runs a case and compares every tensor that it stores.
///
/// # Errors
/// When the case cannot be run at all.
pub fn run_case(specs: &Specs, case: &Case, precision: Precision) -> Result<Vec<Row>> {
    let r = Runner { specs, case, precision };
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

/// What is asked of the product for a case.
#[derive(Clone, Default)]
struct Ask<'a> {
    function: &'a str,
    args: &'a [(&'a str, String)],
    settings: Vec<Setting>,
    /// `in.X` or `param.X` of the case, the function's input, how the one becomes the other.
    ins: Vec<(String, String, Form)>,
    /// `X` of `out.X`, in the order of the function's results.
    outs: Vec<(String, Form)>,
    /// Whether gradients are compared.
    grads: bool,
    /// The gradient of a result that the case gives none for.
    unit: Option<(String, HostTensor)>,
}

impl Ask<'_> {
    fn missing_dout(&self, case: &Case) -> Result<bool> {
        for (n, _) in &self.outs {
            if case.maybe(&format!("dout.{n}"))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How a tensor of a case becomes one of the product, whose rows are a pack.
#[derive(Clone, Default)]
enum Form {
    /// As it is.
    #[default]
    Same,
    /// `[batch, rows, ..]` to `[batch * rows, ..]`.
    Rows,
    /// Permuted first, then as [`Form::Rows`].
    PermutedRows(Vec<usize>),
    /// All dims but the last folded.
    Folded,
}

impl Form {
    fn apply(&self, t: &HostTensor) -> Result<HostTensor> {
        match self {
            Form::Same => Ok(t.clone()),
            Form::Rows => rows_of(t),
            Form::PermutedRows(p) => rows_of(&permuted(t, p)?),
            Form::Folded => {
                let d = t.shape.last().copied().unwrap_or(1);
                reshaped(t, &[t.len() / d.max(1), d])
            }
        }
    }

    fn undo(&self, t: &HostTensor, like: &HostTensor) -> Result<HostTensor> {
        match self {
            Form::PermutedRows(p) => {
                let shape: Vec<usize> = p.iter().map(|i| like.shape[*i]).collect();
                let mut inverse = vec![0; p.len()];
                p.iter().enumerate().for_each(|(i, at)| inverse[*at] = i);
                permuted(&reshaped(t, &shape)?, &inverse)
            }
            _ => reshaped(t, &like.shape),
        }
    }
}

struct Runner<'r> {
    specs: &'r Specs,
    case: &'r Case,
    precision: Precision,
}

fn setting(path: &str, value: Raw) -> Setting {
    Setting {
        path: path.split('.').map(String::from).collect(),
        value,
        setter: Setter::Flag("parity".to_string()),
    }
}

impl Runner<'_> {
    fn config(&self) -> Option<&Json> {
        self.case.json.get("config")
    }

    /// Settings of a section of the model's configuration, from the case's.
    fn section(&self, path: &str) -> Vec<Setting> {
        let mut all =
            self.config().map(|c| import_section(&self.specs.ops, &[path], c)).unwrap_or_default();
        // The two sections must agree on the width, which a case of one section does not tell.
        let width = |s: &[Setting], key: &str| {
            s.iter().find(|s| s.path.last().is_some_and(|p| p == key)).map(|s| s.value.clone())
        };
        let other = match path {
            "text" => width(&all, "hidden").map(|v| setting("vision.out", v)),
            _ => width(&all, "out").map(|v| setting("text.hidden", v)),
        };
        all.extend(other);
        all
    }

    fn eval(
        &self,
        function: &str,
        args: &[(&str, String)],
        settings: Vec<Setting>,
        inputs: &Tensors,
    ) -> Result<Evaluated> {
        let ask = Ask { function, args, settings, ..Ask::default() };
        self.ask(&ask, inputs.clone())
    }

    /// Evaluates, with gradients where the case has them, and compares outputs and gradients.
    fn judge(&self, ask: &Ask<'_>, inputs: Tensors) -> Result<(Evaluated, Vec<Row>)> {
        let out = self.ask(ask, inputs)?;
        let mut rows = vec![];
        for (i, (name, form)) in ask.outs.iter().enumerate() {
            let full = format!("out.{name}");
            if self.case.maybe(&full)?.is_some() {
                let have = form.undo(output(&out, &i.to_string())?, &self.case.tensor(&full)?)?;
                rows.push(self.float(&full, &have)?);
            }
        }
        if !ask.grads {
            return Ok((out, rows));
        }
        for (name, input, form) in &ask.ins {
            let full = format!("grad.{name}");
            if self.case.maybe(&full)?.is_some() {
                let have = output(&out, &format!("grad.in.{input}"))?;
                rows.push(self.float(&full, &form.undo(have, &self.case.tensor(&full)?)?)?);
            }
        }
        rows.extend(self.parameter_gradients(&out.gradients, ask)?);
        Ok((out, rows))
    }

    /// Every `grad.param.*` of the case that is no input of the function. One that the program does
    /// not have must be zero in the case.
    fn parameter_gradients(&self, have: &Tensors, ask: &Ask<'_>) -> Result<Vec<Row>> {
        let mut rows = vec![];
        for name in self.case.names("grad.param.") {
            if ask.ins.iter().any(|(n, ..)| *n == format!("param.{name}")) {
                continue;
            }
            let full = format!("grad.param.{name}");
            let t = match have.get(&name) {
                Some(t) => t.clone(),
                None => {
                    let shape = self.case.tensor(&full)?.shape;
                    let n = shape.iter().product();
                    HostTensor::new(shape, HostData::F32(vec![0.0; n]))?
                }
            };
            rows.push(self.float(&full, &t)?);
        }
        Ok(rows)
    }

    /// Whether gradients are compared: the case has some.
    fn has_gradients(&self) -> bool {
        !self.case.names("grad.").is_empty()
    }

    fn ask(&self, ask: &Ask<'_>, mut inputs: Tensors) -> Result<Evaluated> {
        let request = Request {
            function: Some(ask.function),
            args: ask.args.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
            variant: None,
            settings: ask.settings.clone(),
            shapes: inputs.iter().map(|(k, t)| (k.clone(), t.shape.clone())).collect(),
            precision: self.precision,
        };
        let lib = &self.specs.ops;
        let mut p = self.lowered(lib, &request)?;
        if ask.grads {
            let wanted: Vec<String> = ask.ins.iter().map(|(_, i, _)| i.to_string()).collect();
            p = with_gradients(&p, &wanted)?;
            let main = p.main().ok_or_else(|| anyhow!("empty"))?;
            // Outputs that the case gives no gradient for get zeros of their own shape.
            let names: Vec<String> = main
                .inputs
                .iter()
                .filter(|i| i.name.starts_with("dout."))
                .map(|i| i.name.to_string())
                .collect();
            let plain = if ask.outs.len() < names.len() || ask.missing_dout(self.case)? {
                Some(self.run(&self.lowered(lib, &request)?, &Inputs::Named(&inputs))?)
            } else {
                None
            };
            for name in names {
                let index = &name["dout.".len()..];
                let known = index.parse::<usize>().ok().and_then(|i| ask.outs.get(i));
                let dout = match known {
                    Some((n, form)) => match self.case.maybe(&format!("dout.{n}"))? {
                        Some(d) => Some(form.apply(&d)?),
                        None => ask.unit.as_ref().filter(|(k, _)| k == n).map(|(_, t)| t.clone()),
                    },
                    None => None,
                };
                let dout = match (dout, &plain) {
                    (Some(d), _) => d,
                    (None, Some(plain)) => {
                        let like = output(plain, index)?;
                        let n = like.len();
                        HostTensor::new(like.shape.clone(), HostData::F32(vec![0.0; n]))?
                    }
                    (None, None) => bail!("{}: no gradient for output {index}", self.case.name),
                };
                inputs.insert(name, dout);
            }
        }
        self.run(&p, &Inputs::Named(&inputs))
    }

    fn lowered(&self, lib: &Library, request: &Request<'_>) -> Result<Program> {
        let lowered = program(lib, request);
        lowered.program.ok_or_else(|| {
            let text = vlmc_frontend::diag::render::all(
                &lowered.diags,
                &lib.sources,
                vlmc_frontend::diag::render::Format::PLAIN,
            );
            anyhow!("{}: {text}", self.case.name)
        })
    }

    fn run(&self, p: &Program, inputs: &Inputs<'_>) -> Result<Evaluated> {
        let mut weights = |name: &str, p: &Param| self.weight(name, p);
        run(p, self.precision, inputs, &mut weights, &|_| true)
    }

    fn weight(&self, name: &str, p: &Param) -> Result<HostTensor> {
        let t = self.case.tensor(&format!("param.{name}"))?;
        let dims: Option<Vec<usize>> =
            p.ty.dims.iter().map(|d| d.size().as_constant()?.try_into().ok()).collect();
        let dims = dims.ok_or_else(|| anyhow!("`{name}` has no fixed shape"))?;
        if t.shape != dims {
            bail!("`{name}` is {:?} in the case and {dims:?} in the spec", t.shape);
        }
        Ok(t)
    }

    /// Boundaries and positions of a batch of `b` rows of `l` tokens, or of a pack.
    fn sequence(&self, name: &str, b: usize, l: usize, inputs: &mut Tensors) -> Result<Vec<bool>> {
        let layout =
            match (self.case.maybe("in.cu_seqlens")?, self.case.maybe("in.attention_mask")?) {
                (Some(cu), _) => {
                    let cu: Vec<i32> = cu.to_i64()?.iter().map(|v| *v as i32).collect();
                    SequenceLayout::new(cu.clone(), cu, b * l)?
                }
                (None, Some(mask)) => SequenceLayout::from_mask(&mask.to_i64()?, b, l)?,
                (None, None) => {
                    let cu: Vec<i32> = (0..=b).map(|i| (i * l) as i32).collect();
                    SequenceLayout::new(cu.clone(), cu, b * l)?
                }
            };
        let boundaries = |v: &[i32]| ints(vec![v.len()], v.iter().map(|x| i64::from(*x)).collect());
        inputs.insert(format!("{name}.cu_seqlens"), boundaries(layout.cu_seqlens())?);
        inputs.insert(format!("{name}.cu_seqlens_padded"), boundaries(layout.cu_seqlens_padded())?);
        let positions = match self.case.maybe("in.position_ids")? {
            Some(p) => reshaped(&p, &[3, b * l])?,
            None => ints(vec![3, b * l], vec![0; 3 * b * l])?,
        };
        inputs.insert(format!("{name}.positions"), positions);
        Ok(layout.row_valid(b * l))
    }

    /// Inputs of a function from the case, as `ask` says.
    fn inputs(&self, ask: &Ask<'_>) -> Result<Tensors> {
        let mut inputs = Tensors::new();
        for (name, input, form) in &ask.ins {
            inputs.insert(input.clone(), form.apply(&self.case.tensor(name)?)?);
        }
        Ok(inputs)
    }

    /// A function of rows: leading dims folded into one.
    fn plain(&self, function: &str, ins: &[&str], params: &[&str]) -> Result<Vec<Row>> {
        let folded = ins.iter().map(|n| (format!("in.{n}"), n.to_string(), Form::Folded));
        let same = params.iter().map(|n| (format!("param.{n}"), n.to_string(), Form::Same));
        let ask = Ask {
            function,
            ins: folded.chain(same).collect(),
            outs: vec![("y".into(), Form::Folded)],
            grads: self.has_gradients(),
            ..Ask::default()
        };
        let inputs = self.inputs(&ask)?;
        Ok(self.judge(&ask, inputs)?.1)
    }

    fn float(&self, name: &str, have: &HostTensor) -> Result<Row> {
        floats(self.case, name, have, self.precision, None)
    }

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

    fn tower(&self) -> Result<Vec<Row>> {
        let config = self.config().ok_or_else(|| anyhow!("no config"))?;
        let number = |key: &str| {
            config
                .get(key)
                .and_then(Json::as_u64)
                .map(|v| v as usize)
                .ok_or_else(|| anyhow!("no {key}"))
        };
        let merge = number("spatial_merge_size")?;
        let side = (number("num_position_embeddings")? as f64).sqrt() as usize;
        let grids = vision::grids_of("grid_thw", &self.case.tensor("in.grid_thw")?.to_i64()?)?;
        let taps = vision::position_taps(&grids, side, merge)?;
        let n = vision::patch_count(&grids)?;
        let ids = ints(vec![n, 2], vision::rotary_ids(&grids, merge)?)?;
        let frames = vision::frame_boundaries(&grids)?;
        let frames = ints(vec![frames.len()], frames.iter().map(|v| i64::from(*v)).collect())?;
        let weights = HostTensor::new(vec![n, 4], HostData::F32(taps.weights.clone()))?;
        let tap_rows = ints(vec![n, 4], taps.rows.clone())?;
        let mut inputs = Tensors::new();
        inputs.insert("pixels".into(), self.case.tensor("in.pixel_values")?);
        inputs.insert("taps".into(), tap_rows.clone());
        inputs.insert("tap_weights".into(), weights.clone());
        inputs.insert("rotary_ids".into(), ids.clone());
        inputs.insert("cu_frames".into(), frames.clone());
        let args = [("c", "c.vision".to_string())];
        let ask = Ask {
            function: "VisionTower",
            args: &args,
            settings: self.section("vision"),
            outs: vec![("merged".into(), Form::Same)],
            grads: true,
            ..Ask::default()
        };
        let (_, mut rows) = self.judge(&ask, inputs.clone())?;
        let out = self.ask(&Ask { grads: false, ..ask }, inputs)?;
        rows.extend([
            exact(self.case, "mid.rope_position_ids", &ids)?,
            exact(self.case, "mid.cu_seqlens", &frames)?,
            self.float("mid.pos_weights", &weights)?,
            self.tap_rows(&tap_rows, &weights)?,
        ]);
        rows.push(self.float("mid.last_hidden_state", seen(&out, "h")?)?);
        for name in ["cos", "sin"] {
            let have = twice(seen(&out, &format!("rope_{name}"))?)?;
            rows.push(self.float(&format!("mid.rope_{name}"), &have)?);
        }
        Ok(rows)
    }

    /// A tap may differ where its weight is zero: it is the same point.
    fn tap_rows(&self, have: &HostTensor, weights: &HostTensor) -> Result<Row> {
        let (a, b) = (have.to_i64()?, self.case.tensor("mid.pos_taps")?.to_i64()?);
        let w = weights.to_f64();
        let differing = (0..a.len().max(b.len()))
            .filter(|i| a.get(*i) != b.get(*i) && w.get(*i).is_none_or(|w| w.abs() > 1e-12));
        Ok(Row { name: "mid.pos_taps".into(), error: differing.count() as f64, tolerance: 0.0 })
    }

    fn positions(&self) -> Result<Vec<Row>> {
        let types = self.case.tensor("in.mm_token_type_ids")?;
        let (b, l) = (types.shape[0], types.shape[1]);
        let mask = self.case.tensor("in.attention_mask")?;
        let layout = SequenceLayout::from_mask(&mask.to_i64()?, b, l)?;
        let grids = |name: &str| -> Result<Vec<vision::Grid>> {
            match self.case.maybe(&format!("in.{name}"))? {
                Some(t) => Ok(vision::grids_of("grid_thw", &t.to_i64()?)?),
                None => Ok(vec![]),
            }
        };
        let (images, videos) = (grids("image_grid_thw")?, grids("video_grid_thw")?);
        let pictures = positions::Pictures { images: &images, videos: &videos };
        let p = positions::mrope_positions(&types.to_i64()?, &layout, Some(pictures), 2)?;
        let n = p.ids.len();
        Ok(vec![
            exact(self.case, "out.position_ids", &ints(vec![n], p.ids)?)?,
            exact(self.case, "out.rope_deltas", &ints(vec![p.deltas.len()], p.deltas)?)?,
        ])
    }

    fn preprocess(&self) -> Result<Vec<Row>> {
        use preprocess::{Normalize, PatchSizes, PixelBounds, image_size, patch_rows, video_size};
        let mut sizes = vec![];
        for hw in self.case.tensor("in.image_hw")?.to_i64()?.chunks(2) {
            let (h, w) = image_size(hw[0] as usize, hw[1] as usize, PixelBounds::IMAGE)?;
            sizes.extend([h as i64, w as i64]);
        }
        let mut videos = vec![];
        for t in self.case.tensor("in.video_thw")?.to_i64()?.chunks(3) {
            let (f, h, w) = (t[0] as usize, t[1] as usize, t[2] as usize);
            let (h, w) = video_size(f, h, w, 2, PixelBounds::VIDEO)?;
            videos.extend([h as i64, w as i64]);
        }
        let image = self.case.tensor("in.image_u8_chw")?;
        let bytes: Vec<u8> = image.to_i64()?.iter().map(|v| *v as u8).collect();
        let (h, w) = (image.shape[1], image.shape[2]);
        let patches = PatchSizes { patch: 16, temporal: 2, merge: 2 };
        let (values, grid) = patch_rows(&bytes, (1, h, w), &Normalize::default(), patches)?;
        let width = 3 * 2 * 16 * 16;
        let pixels = HostTensor::new(vec![values.len() / width, width], HostData::F32(values))?;
        let grid = ints(vec![1, 3], vec![grid.t as i64, grid.h as i64, grid.w as i64])?;
        Ok(vec![
            exact(self.case, "out.resized_hw", &ints(vec![sizes.len()], sizes)?)?,
            exact(self.case, "out.video_resized_hw", &ints(vec![videos.len()], videos)?)?,
            exact(self.case, "out.image_grid_thw", &grid)?,
            self.float("out.pixel_values", &pixels)?,
        ])
    }

    fn model(&self) -> Result<Vec<Row>> {
        let (settings, batch) = model_case(&self.specs.model, self.case)?;
        let valid = batch.layout.row_valid(batch.tokens());
        let request = Request {
            function: None,
            args: vec![],
            variant: None,
            settings: settings.clone(),
            shapes: vec![],
            precision: self.precision,
        };
        let p = self.lowered(&self.specs.model, &request)?;
        let out = self.run(&p, &Inputs::Batch(&batch))?;
        let bf16 = self.precision == Precision::Bf16;
        let kept =
            |name: &str, t: &HostTensor| floats(self.case, name, t, self.precision, Some(&valid));
        let scalar = |v: f64| HostTensor::new(vec![], HostData::F64(vec![v]));
        let mean = |name: &str| -> Result<f64> {
            let (sum, count, _) =
                out.losses.get(name).ok_or_else(|| anyhow!("there is no loss `{name}`"))?;
            Ok(sum / count)
        };
        let mut rows = vec![];
        for name in self.case.names("out.") {
            let full = format!("out.{name}");
            rows.push(match name.as_str() {
                "loss" => self.float(&full, &scalar(out.loss())?)?,
                "lm_loss" => self.float(&full, &scalar(mean("lm")?)?)?,
                "aux_loss" => self.float(&full, &scalar(mean("aux")?)?)?,
                "mtp_loss" => self.float(&full, &scalar(mean("mtp")?)?)?,
                "logits" | "mtp_logits" => kept(&full, output(&out, &name)?)?,
                other => bail!("{}: nothing stands for out.{other}", self.case.name),
            });
        }
        // Single values on the way are not judged in bf16 (README of the reference cases).
        for name in self.case.names("mid.").into_iter().filter(|_| !bf16) {
            let full = format!("mid.{name}");
            let have = match name.strip_prefix("hidden_states.") {
                Some(i) => {
                    let layers = self.case.names("mid.hidden_states.").len() - 1;
                    match i.parse::<usize>() {
                        Ok(0) => seen(&out, "embeds")?,
                        Ok(i) if i == layers => seen(&out, "last")?,
                        Ok(i) => seen(&out, &format!("decoder.{}.out", i - 1))?,
                        Err(_) => bail!("mid.{name}"),
                    }
                }
                None if name == "mtp_hidden" => output(&out, "mtp_hidden")?,
                None => bail!("{}: nothing stands for mid.{name}", self.case.name),
            };
            rows.push(kept(&full, have)?);
        }
        rows.extend(crate::training::judge(
            self.case,
            &self.specs.model,
            settings,
            &batch,
            self.precision,
        )?);
        Ok(rows)
    }
}

/// The settings of a whole-model case and its rows as documents of one microbatch.
///
/// # Errors
/// When the case is not one of a whole model, or its configuration does not fit the spec.
pub fn model_case(lib: &Library, case: &Case) -> Result<(Vec<Setting>, batch::Batch)> {
    let config = case.json.get("config").ok_or_else(|| anyhow!("{}: no config", case.name))?;
    let imported = import_config(lib, config)
        .map_err(|d| anyhow!("{}: {} errors in the configuration", case.name, d.len()))?;
    let mut settings = imported.settings;
    settings.push(setting("text.mtp_layers", Raw::Int(case.flag("mtp").into())));
    let aux = if case.flag("aux") { "stacked" } else { "none" };
    settings.push(setting("text.aux_loss", Raw::Text(aux.to_string())));
    let batch = model_batch(case)?;
    settings.push(setting("images", Raw::Bool(!batch.grids().is_empty())));
    Ok((settings, batch))
}

fn model_batch(case: &Case) -> Result<batch::Batch> {
    let ids = case.tensor("in.input_ids")?;
    let (b, l) = (ids.shape[0], ids.shape[1]);
    let mask = case.tensor("in.attention_mask")?;
    let layout = SequenceLayout::from_mask(&mask.to_i64()?, b, l)?;
    let grids = |name: &str| -> Result<Option<Vec<vision::Grid>>> {
        match case.maybe(name)? {
            Some(t) => Ok(Some(vision::grids_of("grid_thw", &t.to_i64()?)?)),
            None => Ok(None),
        }
    };
    let pixels = |name: &str| -> Result<batch::PixelRows> {
        match case.maybe(name)? {
            Some(t) => Ok(batch::PixelRows { width: t.shape[1], values: t.to_f32() }),
            None => Ok(batch::PixelRows::default()),
        }
    };
    Ok(batch::Batch {
        input_ids: ids.to_i64()?,
        labels: case.tensor("in.labels")?.to_i64()?,
        layout,
        // Left out on purpose: the host functions must give what the case has.
        position_ids: None,
        token_types: Some(case.tensor("in.mm_token_type_ids")?.to_i64()?),
        image_grids: grids("in.image_grid_thw")?,
        video_grids: grids("in.video_grid_thw")?,
        image_pixels: pixels("in.pixel_values")?,
        video_pixels: pixels("in.pixel_values_videos")?,
    })
}

fn output<'e>(out: &'e Evaluated, name: &str) -> Result<&'e HostTensor> {
    out.outputs.get(name).ok_or_else(|| anyhow!("there is no output `{name}`"))
}

fn seen<'e>(out: &'e Evaluated, path: &str) -> Result<&'e HostTensor> {
    out.seen.get(path).ok_or_else(|| {
        let known: Vec<_> = out.seen.keys().map(String::as_str).collect();
        anyhow!("no value is called `{path}`; there are {}", known.join(" "))
    })
}

/// `[n, half]` as `[n, 2 * half]`, the halves equal.
fn twice(t: &HostTensor) -> Result<HostTensor> {
    let half = t.shape[1];
    let columns: Vec<usize> = (0..2 * half).map(|i| i % half).collect();
    Ok(t.select(1, &columns)?)
}
