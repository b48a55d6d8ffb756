//! Helpers of the evaluator's tests: programs from text, golden data.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;
use vlmc_ir::eval::{EvalError, Evaluator, Outputs, Real, Tensor};
use vlmc_ir::graph::{Param, Program};
use vlmc_ir::text::{cursor::Cursor, parse};
use vlmc_ir::ty::{DType, Ty};
use vlmc_ir::verify::verify;

/// Parses and verifies; panics with the rendered error.
pub fn program(text: &str) -> Program {
    let p = parse::program(text).unwrap_or_else(|e| panic!("{}", parse::render(text, &e)));
    if let Some(e) = verify(&p).first() {
        panic!("{}", e.render(&p));
    }
    p
}

pub fn no_params<R: Real>(name: &str, _: &Param) -> Result<Tensor<R>, EvalError> {
    Err(EvalError::new(format!("no parameter {name}")))
}

/// Runs the last function of a program without parameters.
pub fn run<R: Real>(p: &Program, inputs: &[(&str, Tensor<R>)]) -> Result<Outputs<R>, EvalError> {
    let mut provider = no_params;
    Evaluator::new(p, &mut provider).run_main(inputs)
}

/// Runs the last function with the parameters of a golden case, by their checkpoint names.
pub fn run_with_params<R: Real>(
    p: &Program,
    g: &Golden,
    inputs: &[(&str, Tensor<R>)],
) -> Outputs<R> {
    let mut provider = |name: &str, param: &Param| -> Result<Tensor<R>, EvalError> {
        let dims = param.ty.dims.iter().map(|d| d.size().as_constant().unwrap() as usize);
        Ok(g.float(&format!("param.{name}"), &dims.collect::<Vec<_>>()))
    };
    Evaluator::new(p, &mut provider).run_main(inputs).unwrap_or_else(|e| panic!("{e}"))
}

/// A text with `linear X, W : TYPE` short for the product of rows with a stored weight.
pub fn expand(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("= linear ") {
        Some((left, right)) => {
            let (operands, ty) = right.split_once(" : ").unwrap();
            format!(
                "{left}= contract {operands} {{a_batch = [], b_batch = [], a_contract = [1], \
                 b_contract = [1], dtype = f32}} : {ty}\n"
            )
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

pub fn ty(text: &str) -> Ty {
    Cursor::new(text).ty().unwrap()
}

/// A tensor of a type without symbols; bf16 values are taken as given.
pub fn tensor<R: Real>(ty_text: &str, values: &[f64]) -> Tensor<R> {
    let ty = ty(ty_text);
    let dims: Vec<usize> =
        ty.dims.iter().map(|d| d.size().as_constant().unwrap() as usize).collect();
    match ty.dtype {
        DType::I32 => Tensor::ints(dims, values.iter().map(|v| *v as i64).collect()),
        DType::Bool => Tensor::bools(dims, values.iter().map(|v| *v != 0.0).collect()),
        d => Tensor::floats(d, dims, values.iter().map(|v| R::from_f64(*v)).collect()),
    }
    .unwrap_or_else(|e| panic!("{ty_text}: {e}"))
}

/// A golden case: tensors and tolerances.
pub struct Golden {
    bytes: Vec<u8>,
    facts: serde_json::Value,
}

impl Golden {
    pub fn load(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/ops").join(name);
        let bytes = std::fs::read(path.with_extension("safetensors")).unwrap();
        let facts = std::fs::read(path.with_extension("json")).unwrap();
        Golden { bytes, facts: serde_json::from_slice(&facts).unwrap() }
    }

    pub fn has(&self, name: &str) -> bool {
        self.facts["tensors"].get(name).is_some()
    }

    pub fn raw(&self, name: &str) -> (Vec<usize>, Vec<f64>) {
        let all = safetensors::SafeTensors::deserialize(&self.bytes).unwrap();
        let t = all.tensor(name).unwrap();
        let b = t.data();
        let values = match t.dtype() {
            safetensors::Dtype::F32 => b
                .chunks_exact(4)
                .map(|c| f32::from_le_bytes(c.try_into().unwrap()).into())
                .collect(),
            safetensors::Dtype::I64 => b
                .chunks_exact(8)
                .map(|c| i64::from_le_bytes(c.try_into().unwrap()) as f64)
                .collect(),
            safetensors::Dtype::I32 => b
                .chunks_exact(4)
                .map(|c| i32::from_le_bytes(c.try_into().unwrap()).into())
                .collect(),
            d => panic!("{name} is {d:?}"),
        };
        (t.shape().to_vec(), values)
    }

    /// An f32 tensor under other dims.
    pub fn float<R: Real>(&self, name: &str, dims: &[usize]) -> Tensor<R> {
        Tensor::from_f64(dims.to_vec(), &self.raw(name).1).unwrap()
    }

    pub fn int<R: Real>(&self, name: &str, dims: &[usize]) -> Tensor<R> {
        let values = self.raw(name).1.iter().map(|v| *v as i64).collect();
        Tensor::ints(dims.to_vec(), values).unwrap()
    }

    /// Compares with a reference tensor at its own tolerance (see the README of the data).
    pub fn check(&self, name: &str, have: &[f64]) {
        self.check_where(name, have, &|_| true);
    }

    /// As [`Golden::check`], of the elements whose index `keep` accepts.
    pub fn check_where(&self, name: &str, have: &[f64], keep: &dyn Fn(usize) -> bool) {
        let (_, want) = self.raw(name);
        assert_eq!(have.len(), want.len(), "{name}");
        let kept = |v: &[f64]| -> Vec<f64> {
            v.iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, x)| *x).collect()
        };
        let (have, want) = (kept(have), kept(&want));
        let errors = &self.facts["errors_vs_float64"][name];
        let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
        let error = norm(&mut have.iter().zip(&want).map(|(a, b)| a - b));
        let size = norm(&mut want.iter().copied());
        let tolerance = errors["fp32_rel_l2_tol"].as_f64().unwrap_or(1e-5);
        let rms = size / (want.len() as f64).sqrt();
        if rms < 1e-7 {
            assert!(error <= 1e-6, "{name}: {error:e}");
        } else {
            assert!(error <= tolerance * size, "{name}: {:e} above {tolerance:e}", error / size);
        }
    }
}

/// `[a, b, c]` of row-major data with the first two dims exchanged.
pub fn exchange(values: &[f64], a: usize, b: usize, c: usize) -> Vec<f64> {
    let mut out = vec![];
    for j in 0..b {
        for i in 0..a {
            out.extend_from_slice(&values[(i * b + j) * c..(i * b + j + 1) * c]);
        }
    }
    out
}
