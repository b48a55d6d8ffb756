//! Evaluating a function or a model of a spec on host tensors, with the reference evaluator and, of
//! a fused program, with kernels.

use anyhow::{Context, Result, anyhow, bail};
use indexmap::IndexMap;
use vlmc_data::batch::Batch;
use vlmc_data::host_fn;
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_frontend::elab::{Library, Lowered, Setting, Target, lower};
use vlmc_ir::eval::{Evaluator, Real, Sizes, Tensor};
use vlmc_ir::graph::{Function, Input, OutputKind, Param, Program};
use vlmc_ir::ty::{DType, Ty};
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::{fuse, manager};
use vlmc_runtime::clusters::Clusters;

/// Numbers an evaluation computes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// Everything in f64; the model dtype is f32, widened.
    F64,
    /// The model dtype is f32.
    F32,
    /// The model dtype is bf16: values of that type are rounded, arithmetic is f32.
    Bf16,
}

impl Precision {
    /// What the model dtype stands for.
    pub fn model_dtype(self) -> DType {
        match self {
            Precision::Bf16 => DType::Bf16,
            _ => DType::F32,
        }
    }
}

/// What to evaluate.
#[derive(Clone, Debug)]
pub struct Request<'r> {
    /// A function of the spec; `None` for the model.
    pub function: Option<&'r str>,
    /// Arguments that are not tensors.
    pub args: Vec<(String, String)>,
    /// The variant.
    pub variant: Option<&'r str>,
    /// Further settings.
    pub settings: Vec<Setting>,
    /// Shapes of the tensors that the function gets.
    pub shapes: Vec<(String, Vec<usize>)>,
    /// The numbers.
    pub precision: Precision,
}

/// Tensors by name.
pub type Tensors = IndexMap<String, HostTensor>;

/// What an evaluation gave.
#[derive(Debug, Default)]
pub struct Evaluated {
    /// Results by name; those without one are `0`, `1`, ...
    pub outputs: Tensors,
    /// Gradients of parameters by checkpoint name.
    pub gradients: Tensors,
    /// Losses by name: sum, count, weight.
    pub losses: IndexMap<String, (f64, f64, f64)>,
    /// Every named value on the way that was asked for.
    pub seen: Tensors,
}

impl Evaluated {
    /// The training loss: the sum of weight * sum / count.
    pub fn loss(&self) -> f64 {
        let term = |(sum, count, weight): &(f64, f64, f64)| {
            if *count == 0.0 { 0.0 } else { weight * sum / count }
        };
        self.losses.values().map(term).sum()
    }
}

/// Lowers what is asked for.
pub fn program(lib: &Library, r: &Request<'_>) -> Lowered {
    lower(
        lib,
        &Target {
            function: r.function,
            args: &r.args,
            variant: r.variant,
            settings: &r.settings,
            shapes: &r.shapes,
            dtype: r.precision.model_dtype(),
        },
    )
}

/// The program that also gives gradients: of the losses where it has some, else of the sum over its
/// results of `<result, dout>`, with an input `dout.NAME` a float result. It gives `grad.in.NAME` for
/// each of `inputs`.
///
/// # Errors
/// When an op on the way cannot be differentiated.
pub fn with_gradients(program: &Program, inputs: &[String]) -> Result<Program> {
    let outputs = program.main().into_iter().flat_map(|f| &f.outputs);
    let has_loss = outputs.clone().any(|o| matches!(o.kind, OutputKind::Loss { .. }));
    let seeds = if has_loss { Seeds::Counts } else { Seeds::Outputs };
    let options = Options { seeds, inputs: inputs.to_vec() };
    Ok(differentiate(program, &options)?)
}

/// The program in normal form with its row arithmetic in clusters, which the evaluator runs as it
/// runs any function.
///
/// # Errors
/// When a pass fails, which would be a bug.
pub fn fused(program: &Program) -> Result<Program> {
    let canon = manager::find("canon").ok_or_else(|| anyhow!("there is no pass `canon`"))?;
    let normal = manager::run(program, &[canon])?.program;
    Ok(fuse::program(&normal, &fuse::Options::default())?.program)
}

/// Inputs of a program that carry gradients.
pub fn float_inputs(program: &Program) -> Vec<String> {
    let inputs = program.main().into_iter().flat_map(|f| &f.inputs);
    inputs.filter(|i| i.ty.dtype.is_float()).map(|i| i.name.to_string()).collect()
}

/// Adds the `dout.NAME` of scalar results that nobody gives: it is 1.
///
/// # Errors
/// When the tensor cannot be made, which would be a bug.
pub fn unit_gradients(program: &Program, inputs: &mut Tensors) -> Result<()> {
    for i in program.main().into_iter().flat_map(|f| &f.inputs) {
        if i.name.starts_with("dout.") && i.ty.rank() == 0 && !inputs.contains_key(&*i.name) {
            inputs.insert(i.name.to_string(), HostTensor::new(vec![], HostData::F64(vec![1.0]))?);
        }
    }
    Ok(())
}

/// Where the value of an input comes from.
pub enum Inputs<'i> {
    /// Tensors by the name of the input.
    Named(&'i Tensors),
    /// One microbatch, through the host functions that the spec names.
    Batch(&'i Batch),
}

/// As [`run_with`], all by the reference evaluator.
///
/// # Errors
/// As [`run_with`].
pub fn run(
    program: &Program,
    precision: Precision,
    inputs: &Inputs<'_>,
    weights: &mut dyn FnMut(&str, &Param) -> Result<HostTensor>,
    watch: &dyn Fn(&str) -> bool,
) -> Result<Evaluated> {
    run_with(program, precision, None, inputs, weights, watch)
}

/// Runs a program; its clusters run by `kernels` where these are given. `weights` gives parameters by checkpoint name; `watch` says which named values
/// to keep.
///
/// # Errors
/// When an input or parameter is missing or does not fit, the batch is not what the spec reads, a
/// kernel fails, or kernels are given for f64.
pub fn run_with(
    program: &Program,
    precision: Precision,
    kernels: Option<&Clusters>,
    inputs: &Inputs<'_>,
    weights: &mut dyn FnMut(&str, &Param) -> Result<HostTensor>,
    watch: &dyn Fn(&str) -> bool,
) -> Result<Evaluated> {
    match precision {
        Precision::F64 if kernels.is_some() => bail!("kernels compute in f32, not in f64"),
        Precision::F64 => run_as::<f64>(program, None, inputs, weights, watch),
        _ => run_as::<f32>(program, kernels, inputs, weights, watch),
    }
}

fn run_as<R: Real>(
    program: &Program,
    kernels: Option<&Clusters>,
    inputs: &Inputs<'_>,
    weights: &mut dyn FnMut(&str, &Param) -> Result<HostTensor>,
    watch: &dyn Fn(&str) -> bool,
) -> Result<Evaluated> {
    let main = program.main().ok_or_else(|| anyhow!("the program is empty"))?;
    let mut values: Vec<(&str, Tensor<R>)> = vec![];
    for input in &main.inputs {
        let host = input_value(input, inputs)?;
        let t = to_tensor(&host, &input.ty).with_context(|| format!("input `{}`", input.name))?;
        values.push((&input.name, t));
    }
    let mut seen = Tensors::new();
    let mut provider = |name: &str, p: &Param| {
        let host = weights(name, p).map_err(|e| vlmc_ir::eval::EvalError::new(format!("{e:#}")))?;
        to_tensor(&host, &p.ty).map_err(|e| vlmc_ir::eval::EvalError::new(format!("{e:#}")))
    };
    let mut observer = |path: &str, t: &Tensor<R>| {
        if watch(path)
            && let Ok(h) = to_host(t)
        {
            seen.insert(path.to_string(), h);
        }
    };
    let mut by_kernel = |f: &Function, inputs: &[Tensor<R>], sizes: &Sizes| match kernels {
        Some(kernels) => kernels.call(f, inputs, sizes),
        None => Ok(None),
    };
    let outputs = {
        let mut evaluator = Evaluator::new(program, &mut provider)
            .observe(&mut observer)
            .substitute(&mut by_kernel);
        evaluator.run_main(&values).map_err(|e| anyhow!("{e}"))?
    };
    let mut result = Evaluated { seen, ..Evaluated::default() };
    for (i, (o, declared)) in outputs.0.iter().zip(&main.outputs).enumerate() {
        let name = o.name.as_ref().map_or_else(|| i.to_string(), |n| n.to_string());
        match &o.loss {
            Some((count, weight)) => {
                let number = |t: &Tensor<R>| t.to_f64().first().copied().unwrap_or(0.0);
                result.losses.insert(name, (number(&o.value), number(count), *weight));
            }
            None if matches!(declared.kind, OutputKind::Gradient) => {
                result.gradients.insert(name, to_host(&o.value)?);
            }
            None => {
                result.outputs.insert(name, to_host(&o.value)?);
            }
        }
    }
    Ok(result)
}

fn input_value(input: &Input, inputs: &Inputs<'_>) -> Result<HostTensor> {
    match (inputs, &input.from) {
        (Inputs::Named(map), _) => map
            .get(&*input.name)
            .cloned()
            .ok_or_else(|| anyhow!("input `{}` is missing", input.name)),
        (Inputs::Batch(batch), Some(call)) => {
            let args: Vec<(&str, i64)> =
                call.arguments.iter().map(|(k, v)| (k.as_str(), *v)).collect();
            host_fn::evaluate(&call.function, &args, batch)
                .with_context(|| format!("input `{}`", input.name))
        }
        (Inputs::Batch(_), None) => {
            bail!("input `{}` has no host function, so a batch does not tell it", input.name)
        }
    }
}

/// A host tensor as the type of the program says; its shape is checked by the evaluator.
fn to_tensor<R: Real>(h: &HostTensor, ty: &Ty) -> Result<Tensor<R>> {
    let dims = h.shape.clone();
    let t = match ty.dtype {
        DType::Bf16 | DType::F32 => {
            let data: Vec<R> = h.to_f64().into_iter().map(R::from_f64).collect();
            Tensor::floats(ty.dtype, dims, data)
        }
        DType::I32 => Tensor::ints(dims, h.to_i64()?),
        DType::Bool => Tensor::bools(dims, h.to_i64()?.into_iter().map(|v| v != 0).collect()),
    };
    t.map_err(|e| anyhow!("{e}"))
}

/// The other way: floats become f64 when computed so, else f32.
pub fn to_host<R: Real>(t: &Tensor<R>) -> Result<HostTensor> {
    let data = match t.dtype {
        DType::I32 => HostData::I64(t.as_ints()?.to_vec()),
        DType::Bool => HostData::Bool(t.as_bools()?.to_vec()),
        _ if std::mem::size_of::<R>() == 8 => HostData::F64(t.to_f64()),
        _ => HostData::F32(t.to_f64().into_iter().map(|v| v as f32).collect()),
    };
    Ok(HostTensor::new(t.dims.clone(), data)?)
}
