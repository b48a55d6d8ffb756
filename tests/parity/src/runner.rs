//! Asking the product for what a case holds, and comparing what comes back.

use crate::case::{Case, ints, permuted, reshaped, rows_of};
use crate::compare::{Row, floats};
use crate::kinds::Specs;
use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;
use vlmc::compile::Spread;
use vlmc::eval::{
    Evaluated, Inputs, Precision, Request, Tensors, fused, program, run_with, with_gradients,
};
use vlmc::kernels::host;
use vlmc_data::pack::SequenceLayout;
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_frontend::elab::{Library, Raw, Setter, Setting, import_section};
use vlmc_ir::graph::{Param, Program};
use vlmc_runtime::clusters::Clusters;

/// What is asked of the product for a case.
#[derive(Clone, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) function: &'a str,
    pub(crate) args: &'a [(&'a str, String)],
    pub(crate) settings: Vec<Setting>,
    /// `in.X` or `param.X` of the case, the function's input, how the one becomes the other.
    pub(crate) ins: Vec<(String, String, Form)>,
    /// `X` of `out.X`, in the order of the function's results.
    pub(crate) outs: Vec<(String, Form)>,
    /// Whether gradients are compared.
    pub(crate) grads: bool,
    /// The gradient of a result that the case gives none for.
    pub(crate) unit: Option<(String, HostTensor)>,
}

impl Ask<'_> {
    pub(crate) fn missing_dout(&self, case: &Case) -> Result<bool> {
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
pub(crate) enum Form {
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
    pub(crate) fn apply(&self, t: &HostTensor) -> Result<HostTensor> {
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

    pub(crate) fn undo(&self, t: &HostTensor, like: &HostTensor) -> Result<HostTensor> {
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

pub(crate) struct Runner<'r> {
    pub(crate) specs: &'r Specs,
    pub(crate) case: &'r Case,
    pub(crate) precision: Precision,
    /// Programs run in clusters.
    pub(crate) fused: bool,
    /// The ranks over which trainings are spread.
    pub(crate) spread: &'r Spread,
}

pub(crate) fn setting(path: &str, value: Raw) -> Setting {
    Setting {
        path: path.split('.').map(String::from).collect(),
        value,
        setter: Setter::Flag("parity".to_string()),
    }
}

impl Runner<'_> {
    pub(crate) fn config(&self) -> Option<&Json> {
        self.case.json.get("config")
    }

    /// Settings of a section of the model's configuration, from the case's.
    pub(crate) fn section(&self, path: &str) -> Vec<Setting> {
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

    pub(crate) fn eval(
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
    pub(crate) fn judge(&self, ask: &Ask<'_>, inputs: Tensors) -> Result<(Evaluated, Vec<Row>)> {
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
    pub(crate) fn parameter_gradients(&self, have: &Tensors, ask: &Ask<'_>) -> Result<Vec<Row>> {
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
    pub(crate) fn has_gradients(&self) -> bool {
        !self.case.names("grad.").is_empty()
    }

    pub(crate) fn ask(&self, ask: &Ask<'_>, mut inputs: Tensors) -> Result<Evaluated> {
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
        // Values on the way are asked for by their names in the forward program.
        if self.fused && ask.grads {
            return self.run_fused(&p, &Inputs::Named(&inputs));
        }
        self.run(&p, &Inputs::Named(&inputs))
    }

    pub(crate) fn lowered(&self, lib: &Library, request: &Request<'_>) -> Result<Program> {
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

    pub(crate) fn run(&self, p: &Program, inputs: &Inputs<'_>) -> Result<Evaluated> {
        self.run_with(p, None, inputs)
    }

    /// Runs a program in clusters, by their kernels.
    pub(crate) fn run_fused(&self, p: &Program, inputs: &Inputs<'_>) -> Result<Evaluated> {
        let p = fused(p)?;
        let kernels = self.kernels(&p)?;
        self.run_with(&p, kernels.as_ref(), inputs)
    }

    fn run_with(
        &self,
        p: &Program,
        kernels: Option<&Clusters>,
        inputs: &Inputs<'_>,
    ) -> Result<Evaluated> {
        let mut weights = |name: &str, p: &Param| self.weight(name, p);
        run_with(p, self.precision, kernels, inputs, &mut weights, &|_| true)
    }

    /// The kernels of a fused program for this machine.
    fn kernels(&self, p: &Program) -> Result<Option<Clusters>> {
        if self.precision == Precision::F64 {
            return Ok(None);
        }
        let (clusters, refused) = host(p)?;
        for (function, refusal) in &refused {
            println!("{:32} @{function} has no kernel: {refusal}", self.case.name);
        }
        Ok(Some(clusters))
    }

    pub(crate) fn weight(&self, name: &str, p: &Param) -> Result<HostTensor> {
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
    pub(crate) fn sequence(
        &self,
        name: &str,
        b: usize,
        l: usize,
        inputs: &mut Tensors,
    ) -> Result<Vec<bool>> {
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
    pub(crate) fn inputs(&self, ask: &Ask<'_>) -> Result<Tensors> {
        let mut inputs = Tensors::new();
        for (name, input, form) in &ask.ins {
            inputs.insert(input.clone(), form.apply(&self.case.tensor(name)?)?);
        }
        Ok(inputs)
    }

    /// A function of rows: leading dims folded into one.
    pub(crate) fn plain(&self, function: &str, ins: &[&str], params: &[&str]) -> Result<Vec<Row>> {
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

    pub(crate) fn float(&self, name: &str, have: &HostTensor) -> Result<Row> {
        floats(self.case, name, have, self.precision, None)
    }
}

pub(crate) fn output<'e>(out: &'e Evaluated, name: &str) -> Result<&'e HostTensor> {
    out.outputs.get(name).ok_or_else(|| anyhow!("there is no output `{name}`"))
}

pub(crate) fn seen<'e>(out: &'e Evaluated, path: &str) -> Result<&'e HostTensor> {
    out.seen.get(path).ok_or_else(|| {
        let known: Vec<_> = out.seen.keys().map(String::as_str).collect();
        anyhow!("no value is called `{path}`; there are {}", known.join(" "))
    })
}

/// `[n, half]` as `[n, 2 * half]`, the halves equal.
pub(crate) fn twice(t: &HostTensor) -> Result<HostTensor> {
    let half = t.shape[1];
    let columns: Vec<usize> = (0..2 * half).map(|i| i % half).collect();
    Ok(t.select(1, &columns)?)
}
