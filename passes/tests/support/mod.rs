//! Helpers of the gradient tests: programs from text, evaluation, central differences.
#![allow(dead_code, unused_imports, missing_docs, clippy::unwrap_used)]

pub mod block;
pub mod models;
pub mod rank;
mod typed;

pub use typed::typed;

use std::collections::BTreeMap;
use vlmc_ir::eval::{EvalError, Evaluator, Outputs, Real, Tensor};
use vlmc_ir::graph::{Param, Program};
use vlmc_ir::testing::Random;
use vlmc_ir::text::{parse, print};
use vlmc_ir::ty::{DType, Ty};
use vlmc_ir::verify::verify;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};

pub type Named<R> = Vec<(String, Tensor<R>)>;

/// Parses and verifies; panics with the rendered error.
pub fn program(text: &str) -> Program {
    let p = parse::program(text).unwrap_or_else(|e| panic!("{}", parse::render(text, &e)));
    sound(&p);
    p
}

/// Verifies, prints and parses back.
pub fn sound(p: &Program) {
    let text = print::program(p);
    if let Some(e) = verify(p).first() {
        panic!("{}\n{text}", e.render(p));
    }
    let back = parse::program(&text).unwrap_or_else(|e| panic!("{}", parse::render(&text, &e)));
    assert_eq!(print::program(&back), text);
}

/// Differentiates, and checks that the result is sound.
pub fn gradients_of(p: &Program, options: &Options) -> Program {
    let d = differentiate(p, options).unwrap_or_else(|e| panic!("{e}\n{}", print::program(p)));
    sound(&d);
    d
}

/// Runs main with inputs and parameters by name; bf16 stays unrounded.
pub fn exact<R: Real>(
    p: &Program,
    inputs: &Named<R>,
    params: &Named<R>,
) -> Result<Outputs<R>, EvalError> {
    let mut provider = |name: &str, param: &Param| {
        let found = params.iter().find(|(n, _)| n == name);
        let (_, t) = found.ok_or_else(|| EvalError::new(format!("no parameter {name}")))?;
        Tensor::new(param.ty.dtype, t.dims.clone(), t.data.clone())
    };
    let inputs: Vec<(&str, Tensor<R>)> =
        inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    Evaluator::new(p, &mut provider).without_rounding().run_main(&inputs)
}

pub fn get(outputs: &Outputs<f64>, name: &str) -> Vec<f64> {
    outputs.get(name).unwrap_or_else(|e| panic!("{e}")).to_f64()
}

pub fn with_values(t: &Tensor<f64>, values: Vec<f64>) -> Tensor<f64> {
    Tensor::floats(t.dtype, t.dims.clone(), values).unwrap()
}

/// Random values in a range, for a type with constant dims.
pub fn random(rng: &mut Random, ty: &Ty, low: f64, high: f64) -> Tensor<f64> {
    let dims: Vec<usize> =
        ty.dims.iter().map(|d| d.size().as_constant().unwrap() as usize).collect();
    let n: usize = dims.iter().product();
    let values = (0..n).map(|_| (low + high) / 2.0 + rng.real() * (high - low) / 2.0).collect();
    Tensor::floats(ty.dtype, dims, values).unwrap()
}

/// The training loss, or the sum of `<result, dout>` when there are no losses. Results that are not
/// finite, as a log of nothing, count nothing.
pub fn objective(outputs: &Outputs<f64>, inputs: &Named<f64>) -> f64 {
    if outputs.0.iter().any(|o| o.loss.is_some()) {
        return outputs.training_loss();
    }
    let mut sum = 0.0;
    for (i, o) in outputs.0.iter().enumerate() {
        let label = o.name.as_deref().map_or_else(|| i.to_string(), str::to_string);
        let dout = inputs.iter().find(|(n, _)| *n == format!("dout.{label}"));
        let Some((_, dout)) = dout else { continue };
        let pairs = o.value.to_f64().into_iter().zip(dout.to_f64());
        sum += pairs.filter(|(y, _)| y.is_finite()).map(|(y, d)| y * d).sum::<f64>();
    }
    sum
}

/// Checks every gradient that the differentiated program gives, of float inputs and of parameters,
/// against central differences in f64. Returns the gradients, of inputs as `grad.in.NAME`.
pub fn check(
    what: &str,
    p: &Program,
    inputs: &Named<f64>,
    params: &Named<f64>,
) -> BTreeMap<String, Vec<f64>> {
    let main = p.main().unwrap();
    let losses = main.outputs.iter().any(|o| o.kind != vlmc_ir::graph::OutputKind::Value);
    let floats: Vec<String> =
        main.inputs.iter().filter(|i| i.ty.dtype.is_float()).map(|i| i.name.to_string()).collect();
    let seeds = if losses { Seeds::Counts } else { Seeds::Outputs };
    let d = gradients_of(p, &Options { seeds, inputs: floats.clone() });
    let mut given = inputs.clone();
    let plain = exact(p, inputs, params).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut rng = Random::new(7);
    for i in &d.main().unwrap().inputs {
        if let Some(name) = i.name.strip_prefix("dout.") {
            let by_name =
                |i: usize, n: Option<&str>| n.map_or(i.to_string() == name, |n| n == name);
            let (_, o) =
                plain.0.iter().enumerate().find(|(i, o)| by_name(*i, o.name.as_deref())).unwrap();
            let values = (0..o.value.len()).map(|_| rng.real()).collect();
            given.push((i.name.to_string(), with_values(&o.value, values)));
        }
    }
    let joint = exact(&d, &given, params).unwrap_or_else(|e| panic!("{what}: {e}"));
    let at = |inputs: &Named<f64>, params: &Named<f64>| {
        let outputs = exact(p, inputs, params).unwrap_or_else(|e| panic!("{what}: {e}"));
        objective(&outputs, &given)
    };
    let mut found = BTreeMap::new();
    let known = |outputs: &Outputs<f64>, n: &str| outputs.get(n).ok().map(Tensor::to_f64);
    for (list, is_param) in [(inputs, false), (params, true)] {
        for (k, (name, t)) in list.iter().enumerate() {
            if !is_param && !floats.contains(name) {
                continue;
            }
            let label = if is_param { name.clone() } else { format!("grad.in.{name}") };
            let have = known(&joint, &label);
            let values = t.to_f64();
            for i in 0..values.len() {
                let step = 1e-5 * values[i].abs().max(1.0);
                let moved = |by: f64| {
                    let mut list = list.clone();
                    let mut v = values.clone();
                    v[i] += by;
                    list[k].1 = with_values(t, v);
                    if is_param { at(inputs, &list) } else { at(&list, params) }
                };
                let want = (moved(step) - moved(-step)) / (2.0 * step);
                let have = have.as_ref().map_or(0.0, |h| h[i]);
                assert!(
                    (have - want).abs() <= 2e-7 * (1.0 + want.abs()),
                    "{what}: gradient of {label}[{i}] is {have:e}, differences give {want:e}"
                );
            }
            if let Some(h) = have {
                found.insert(label, h);
            }
        }
    }
    found
}

pub fn named(list: &[(&str, Tensor<f64>)]) -> Named<f64> {
    list.iter().map(|(n, t)| (n.to_string(), t.clone())).collect()
}

pub fn ints(values: &[i64]) -> Tensor<f64> {
    Tensor::ints(vec![values.len()], values.to_vec()).unwrap()
}

pub fn floats(rng: &mut Random, dims: &[usize]) -> Tensor<f64> {
    let n = dims.iter().product();
    Tensor::floats(DType::F32, dims.to_vec(), (0..n).map(|_| rng.real()).collect()).unwrap()
}
