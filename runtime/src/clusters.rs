//! Clusters of a program by their host kernels, while the reference evaluator does the rest.

use crate::device::bound::{self, Bound};
use crate::device::cpu::{Cpu, HostBuffer, HostKernel};
use crate::device::{Device, Set};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use vlmc_artifact::kernels::{HOST, Kernels, Module};
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::{Data, EvalError, Real, Shape, Sizes, Tensor};
use vlmc_ir::graph::{Function, Program};
use vlmc_ir::ty::DType;

/// Every byte of an output before a kernel runs: of floats a number that is none, so that what a
/// kernel should have written and has not is seen.
const UNWRITTEN: u8 = 0xff;

/// The host kernels of an artifact, opened.
pub struct Clusters {
    cpu: Cpu,
    modules: Vec<(Module, HostKernel)>,
    /// The module of a function, by the function's name.
    of: HashMap<String, usize>,
    /// Modules at the sizes that they have run with.
    bound: Mutex<HashMap<Key, Arc<Bound>>>,
}

/// A module and the values of its symbols.
type Key = (usize, Vec<Option<usize>>);

impl Clusters {
    /// Opens the host kernels in an artifact's directory; `None` where it has no kernels at all.
    /// The files are not needed any more afterwards.
    ///
    /// # Errors
    /// When the table contradicts itself or a library does not load.
    pub fn open(directory: &Path) -> Result<Option<Clusters>> {
        let Some(kernels) = Kernels::read(directory)? else { return Ok(None) };
        let cpu = Cpu::open()?;
        let (mut modules, mut index) = (vec![], HashMap::new());
        for m in kernels.modules.into_iter().filter(|m| m.built(HOST).is_some()) {
            let kernel = cpu.load(directory, &m).with_context(|| format!("kernel {}", m.name))?;
            index.insert(m.name.clone(), modules.len());
            modules.push((m, kernel));
        }
        let of = kernels.clusters.into_iter();
        let of = of.filter_map(|c| Some((c.function, *index.get(&c.module)?))).collect();
        Ok(Some(Clusters { cpu, modules, of, bound: Mutex::default() }))
    }

    /// Whether a cluster has a host kernel.
    pub fn has(&self, function: &str) -> bool {
        self.of.contains_key(function)
    }

    /// How many clusters of a program have a host kernel, and how many there are.
    pub fn count(&self, program: &Program) -> (usize, usize) {
        let clusters = program.functions.iter().filter(|f| f.cluster.is_some());
        clusters.fold((0, 0), |(with, all), f| {
            (with + usize::from(self.of.contains_key(&f.name)), all + 1)
        })
    }

    /// The results of a call of a cluster; `None` where it has no kernel for the host. This is what
    /// an evaluation in f32 may have in place of a cluster's body
    /// ([`Evaluator::substitute`](vlmc_ir::eval::Evaluator::substitute)).
    ///
    /// # Errors
    /// When the kernel is not one of this function, or does not run.
    pub fn call<R: Real>(
        &self,
        f: &Function,
        inputs: &[Tensor<R>],
        sizes: &Sizes,
    ) -> Result<Option<Vec<Tensor<R>>>, EvalError> {
        let Some(index) = self.of.get(&f.name) else { return Ok(None) };
        let done = self.run(*index, f, inputs, sizes);
        done.map(Some).map_err(|e| EvalError::new(format!("{e:#}")))
    }

    fn run<R: Real>(
        &self,
        index: usize,
        f: &Function,
        inputs: &[Tensor<R>],
        sizes: &Sizes,
    ) -> Result<Vec<Tensor<R>>> {
        let (module, kernel) =
            self.modules.get(index).ok_or_else(|| anyhow!("there is no module {index}"))?;
        let bound = self.bind(index, module, f, sizes)?;
        if inputs.len() != bound.inputs.len() {
            bail!("{} inputs, not {}", inputs.len(), bound.inputs.len());
        }
        let mut set = Set { inputs: vec![], outputs: vec![], scratch: vec![] };
        for (i, (t, shape)) in inputs.iter().zip(&bound.inputs).enumerate() {
            if t.shape() != *shape {
                bail!("input {i} is {}, not {}", bound::text(&t.shape()), bound::text(shape));
            }
            let bytes = encode(t).with_context(|| format!("input {i}"))?;
            let mut buffer = self.cpu.buffer(bytes.len() as u64)?;
            self.cpu.write(&mut buffer, &bytes, bytes.len() as u64)?;
            set.inputs.push(buffer);
        }
        for shape in &bound.outputs {
            set.outputs.push(self.unwritten(bound::bytes(shape)?)?);
        }
        for bytes in &bound.scratch {
            set.scratch.push(self.unwritten(*bytes)?);
        }
        self.cpu.run(kernel, &bound, &set)?;
        let outputs = bound.outputs.iter().zip(&set.outputs).enumerate();
        let outputs = outputs.map(|(i, (shape, buffer))| {
            decode(shape, &self.cpu.read(buffer)?).with_context(|| format!("output {i}"))
        });
        outputs.collect()
    }

    fn unwritten(&self, bytes: u64) -> Result<HostBuffer> {
        let mut buffer = self.cpu.buffer(bytes)?;
        self.cpu.fill(&mut buffer, UNWRITTEN)?;
        Ok(buffer)
    }

    fn bind(&self, index: usize, m: &Module, f: &Function, sizes: &Sizes) -> Result<Arc<Bound>> {
        let values = m.symbols.iter().map(|s| sizes.get(&Symbol::new(s))).collect();
        let key = (index, values);
        // A thread that panicked has inserted nothing by half.
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = bound.get(&key) {
            return Ok(bound.clone());
        }
        let new = Arc::new(Bound::of(m, f, sizes)?);
        bound.insert(key, new.clone());
        Ok(new)
    }
}

/// The elements of a tensor as a kernel reads them.
pub(crate) fn encode<R: Real>(t: &Tensor<R>) -> Result<Vec<u8>> {
    Ok(match &t.data {
        // What the evaluator holds as bf16 is rounded already: its upper half is the number.
        Data::Float(v) if t.dtype == DType::Bf16 => {
            let upper = |x: &R| ((narrow(*x).to_bits() >> 16) as u16).to_le_bytes();
            v.iter().flat_map(upper).collect()
        }
        Data::Float(v) => v.iter().flat_map(|x| narrow(*x).to_le_bytes()).collect(),
        Data::Int(v) => {
            let bytes = v.iter().map(|x| Ok(i32::try_from(*x)?.to_le_bytes()));
            bytes.collect::<Result<Vec<_>>>()?.into_flattened()
        }
        Data::Bool(v) => v.iter().map(|x| u8::from(*x)).collect(),
    })
}

fn narrow<R: Real>(x: R) -> f32 {
    x.to_f64() as f32
}

/// A tensor of what a kernel wrote.
pub(crate) fn decode<R: Real>(shape: &Shape, bytes: &[u8]) -> Result<Tensor<R>> {
    let float = |bits: u32| R::from_f64(f64::from(f32::from_bits(bits)));
    let two = |b: &[u8]| u32::from(u16::from_le_bytes([b[0], b[1]])) << 16;
    let four = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let dims = shape.dims.clone();
    Ok(match shape.dtype {
        DType::Bf16 => {
            let values = bytes.chunks_exact(2).map(|b| float(two(b))).collect();
            Tensor::floats(DType::Bf16, dims, values)?
        }
        DType::F32 => {
            let values = bytes.chunks_exact(4).map(|b| float(four(b))).collect();
            Tensor::floats(DType::F32, dims, values)?
        }
        DType::I32 => {
            let values = bytes.chunks_exact(4).map(|b| i64::from(four(b) as i32)).collect();
            Tensor::ints(dims, values)?
        }
        DType::Bool => {
            let values = bytes.iter().map(|b| match b {
                0 => Ok(false),
                1 => Ok(true),
                b => Err(anyhow!("{b} is no truth value")),
            });
            Tensor::bools(dims, values.collect::<Result<_>>()?)?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_survive_the_way_there_and_back() {
        let round = |t: Tensor<f32>| {
            let bytes = encode(&t).expect("bytes");
            assert_eq!(bytes.len() as u64, bound::bytes(&t.shape()).expect("small"));
            assert_eq!(decode::<f32>(&t.shape(), &bytes).expect("a tensor"), t);
        };
        let floats = vec![1.0, -0.0, f32::INFINITY, 0.007_812_5, -3.0, 1e38f32.round_bf16()];
        round(Tensor::floats(DType::Bf16, vec![2, 3], floats.clone()).expect("a tensor"));
        round(Tensor::floats(DType::F32, vec![6], floats).expect("a tensor"));
        round(Tensor::ints(vec![3], vec![-1, i64::from(i32::MIN), 7]).expect("a tensor"));
        round(Tensor::bools(vec![2], vec![true, false]).expect("a tensor"));
        round(Tensor::zeros(DType::F32, vec![0, 4]).expect("a tensor"));
        let nan = Tensor::floats(DType::Bf16, vec![1], vec![f32::NAN]).expect("a tensor");
        let back = decode::<f32>(&nan.shape(), &encode(&nan).expect("bytes")).expect("a tensor");
        assert!(back.to_f64()[0].is_nan());
        let wide = Tensor::<f32>::ints(vec![1], vec![1 << 40]).expect("a tensor");
        assert!(encode(&wide).is_err());
        let bool = Shape { dtype: DType::Bool, dims: vec![1] };
        assert!(decode::<f32>(&bool, &[UNWRITTEN]).is_err());
    }
}
