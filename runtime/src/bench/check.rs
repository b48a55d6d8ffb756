//! Whether a kernel computes its function, on inputs that are small and awkward.

use super::inputs::{Inputs, Layout, ROWS, decode};
use super::reference::Reference;
use crate::device::bound::{self, Bound};
use crate::device::{Device, Set};
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use vlmc_artifact::kernels::Module;
use vlmc_ir::eval::{Shape, Sizes, Tensor};
use vlmc_ir::graph::{Function, Program, SymbolDecl};
use vlmc_ir::ty::DType;

/// Bytes after each buffer that nobody may write.
const FENCE: u64 = 256;
/// Every byte of a float buffer before the kernel runs: a number that is none.
const NAN: u8 = 0xff;
/// Every byte of another buffer before the kernel runs: an unlikely integer, and no truth value.
const UNLIKELY: u8 = 0x7f;

/// An element of so many times the root of the mean square is far from what normal inputs give.
const DOMINATES: f64 = 32.0;

/// A check at some sizes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// Values of the symbols.
    pub sizes: BTreeMap<String, usize>,
    /// Whether all floats of the inputs are positive, rather than from a normal distribution.
    pub positive: bool,
    /// The outputs in order.
    pub outputs: Vec<Verdict>,
}

/// What is found of an output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// Its name, or else its index.
    pub name: String,
    /// Type and sizes.
    pub shape: String,
    /// Norm of the difference to the reference over the norm of the reference; missing where it is
    /// no number. Of integers and truth values the share that differs.
    pub error: Option<f64>,
    /// Largest error.
    pub tolerance: f64,
    /// Elements that nobody wrote.
    pub unwritten: usize,
    /// Whether the error is a number and not above the tolerance, and everything was written.
    pub passed: bool,
    /// The element that is furthest off: its index, its value and that of the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<(Vec<usize>, String, String)>,
}

/// A kernel with the function that it computes.
pub struct Subject<'a> {
    /// The module.
    pub module: &'a Module,
    /// The function.
    pub function: &'a Function,
    /// Symbols of its program.
    pub symbols: &'a [SymbolDecl],
    /// What its inputs hold.
    pub inputs: Inputs,
    /// What it must give.
    pub reference: Reference,
}

/// A case of a check: inputs, and what must come of them.
pub struct Case {
    positive: bool,
    sizes: Sizes,
    bound: Bound,
    inputs: Vec<Vec<u8>>,
    wanted: Vec<Tensor<f64>>,
}

impl Case {
    fn is_finite(&self) -> bool {
        self.wanted.iter().all(|t| t.to_f64().iter().all(|v| v.is_finite()))
    }
}

/// Whether an element is so much larger than the others that errors of these do not count.
fn is_dominated(t: &Tensor<f64>) -> bool {
    let values = t.to_f64();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    let largest = values.iter().fold(0.0, |l: f64, v| l.max(v.abs()));
    largest * largest > DOMINATES * DOMINATES * squares / values.len().max(1) as f64
}

impl<'a> Subject<'a> {
    /// A module with the function of a program that it computes.
    ///
    /// # Errors
    /// When there is no such function, or it is no cluster.
    pub fn new(module: &'a Module, program: &'a Program, function: &str) -> Result<Subject<'a>> {
        let reference = Reference::new(program, function)?;
        let function = program.function(function);
        let function = function.ok_or_else(|| anyhow!("no such function"))?;
        let inputs = Inputs::new(function)?;
        Ok(Subject { module, function, symbols: &program.symbols, inputs, reference })
    }

    /// The module at some sizes, which must be those of the function.
    ///
    /// # Errors
    /// When the two differ.
    pub fn bind(&self, sizes: &Sizes) -> Result<Bound> {
        Bound::of(self.module, self.function, sizes)
    }

    /// Many rows in awkward documents, and one row; a function of constant sizes has one case.
    /// This takes no device, but all the time that the reference evaluator needs.
    ///
    /// # Errors
    /// When the module does not fit its function, or the function gives no finite numbers.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let mut cases: Vec<Case> = vec![];
        for rows in [ROWS, 1] {
            let sizes = self.inputs.sizes(self.symbols, rows);
            let bound = self.bind(&sizes).with_context(|| format!("{rows} rows"))?;
            let same =
                |c: &Case| c.bound.inputs == bound.inputs && c.bound.outputs == bound.outputs;
            if cases.iter().any(same) {
                continue;
            }
            // A function that takes a root or a quotient may give no number for normal inputs, or
            // one so large that errors of the others do not count. Positive inputs are beside these
            // then, or instead of them.
            let case = |positive| self.case(&sizes, &bound, positive);
            let normal = case(false).with_context(|| format!("{rows} rows"))?;
            let is_finite = normal.is_finite();
            if !is_finite || normal.wanted.iter().any(is_dominated) {
                let positive = case(true).with_context(|| format!("{rows} rows"))?;
                if positive.is_finite() {
                    cases.push(positive);
                } else if !is_finite {
                    bail!("@{} gives no finite numbers to compare with", self.function.name);
                }
            }
            if is_finite {
                cases.push(normal);
            }
        }
        Ok(cases)
    }

    fn case(&self, sizes: &Sizes, bound: &Bound, positive: bool) -> Result<Case> {
        let (mut tensors, mut inputs) = (vec![], vec![]);
        for (i, shape) in bound.inputs.iter().enumerate() {
            let drawn = self.inputs.draw(i, shape, sizes, Layout::Odd, 1, positive)?;
            let n = usize::try_from(bound::bytes(shape)?)?;
            inputs.push(drawn.bytes.iter().copied().cycle().take(n).collect());
            tensors.push(drawn.tensor);
        }
        let wanted = self.reference.run(sizes, &tensors)?;
        Ok(Case { positive, sizes: sizes.clone(), bound: bound.clone(), inputs, wanted })
    }

    /// Runs a kernel on the inputs of a case and judges what it gives.
    ///
    /// # Errors
    /// When it does not run, or touches what it should not.
    pub fn check<D: Device>(&self, device: &D, kernel: &D::Kernel, case: &Case) -> Result<Check> {
        let sizes = named(self.symbols, &case.sizes);
        let outputs = self.outputs(device, kernel, case).with_context(|| at(&sizes))?;
        Ok(Check { sizes, positive: case.positive, outputs })
    }

    fn outputs<D: Device>(
        &self,
        device: &D,
        kernel: &D::Kernel,
        case: &Case,
    ) -> Result<Vec<Verdict>> {
        let bound = &case.bound;
        let set = poisoned(device, bound, &case.inputs)?;
        device.run(kernel, bound, &set)?;
        let mut verdicts = vec![];
        for (i, (shape, buffer)) in bound.outputs.iter().zip(&set.outputs).enumerate() {
            let have = device.read(buffer)?;
            let end = fenced(&have, bound::bytes(shape)?, fill_of(shape));
            let end = end.with_context(|| format!("output {i}"))?;
            let tolerance = self.reference.tolerances[i];
            let (name, wanted) = (self.output_name(i), case.wanted[i].to_f64());
            verdicts.push(judge(name, shape, &have[..end], &wanted, tolerance));
        }
        for (i, (n, buffer)) in bound.scratch.iter().zip(&set.scratch).enumerate() {
            fenced(&device.read(buffer)?, *n, NAN).with_context(|| format!("scratch {i}"))?;
        }
        for (i, (bytes, buffer)) in case.inputs.iter().zip(&set.inputs).enumerate() {
            if device.read(buffer)?[..bytes.len()] != **bytes {
                bail!("it writes to input {i}");
            }
        }
        Ok(verdicts)
    }

    fn output_name(&self, i: usize) -> String {
        let output = self.function.outputs.get(i);
        let node = output.map(|o| self.function.node(o.value.node));
        let name = output.and_then(|o| o.name.clone()).or(node.and_then(|n| n.name.clone()));
        name.map_or_else(|| format!("output {i}"), |n| n.to_string())
    }
}

/// Sizes in a line.
pub fn at(sizes: &BTreeMap<String, usize>) -> String {
    let all: Vec<String> = sizes.iter().map(|(n, v)| format!("{n} {v}")).collect();
    all.join("  ")
}

/// The values of the symbols by name.
pub fn named(symbols: &[SymbolDecl], sizes: &Sizes) -> BTreeMap<String, usize> {
    let one = |s: &SymbolDecl| Some((s.symbol.to_string(), sizes.get(&s.symbol)?));
    symbols.iter().filter_map(one).collect()
}

/// Buffers with these inputs, all else filled with what no kernel writes, and a fence after each.
pub fn poisoned<D: Device>(
    device: &D,
    bound: &Bound,
    inputs: &[Vec<u8>],
) -> Result<Set<D::Buffer>> {
    let filled = |n: u64, byte: u8| -> Result<D::Buffer> {
        let mut b = device.buffer(n + FENCE)?;
        device.fill(&mut b, byte)?;
        Ok(b)
    };
    let mut set = Set { inputs: vec![], outputs: vec![], scratch: vec![] };
    for (shape, bytes) in bound.inputs.iter().zip(inputs) {
        // Reading past the end of an input gives no number either.
        let n = bound::bytes(shape)?;
        let mut b = filled(n, NAN)?;
        device.write(&mut b, bytes, n)?;
        set.inputs.push(b);
    }
    for shape in &bound.outputs {
        set.outputs.push(filled(bound::bytes(shape)?, fill_of(shape))?);
    }
    for n in &bound.scratch {
        set.scratch.push(filled(*n, NAN)?);
    }
    Ok(set)
}

fn fill_of(shape: &Shape) -> u8 {
    if shape.dtype.is_float() { NAN } else { UNLIKELY }
}

/// Elements that still have the bytes that they were filled with. No computed number is such a
/// not-a-number: it has every bit of its fraction set.
pub fn unwritten(shape: &Shape, bytes: &[u8]) -> usize {
    let fill = fill_of(shape);
    let size = shape.dtype.bytes() as usize;
    bytes.chunks_exact(size).filter(|e| e.iter().all(|b| *b == fill)).count()
}

/// Where the contents of a buffer end and its fence begins.
fn fenced(bytes: &[u8], n: u64, fill: u8) -> Result<usize> {
    let n = usize::try_from(n)?;
    match bytes.get(n..) {
        Some(fence) if fence.iter().all(|b| *b == fill) => Ok(n),
        _ => bail!("it is written to beyond its end"),
    }
}

/// Compares an output with the reference.
fn judge(name: String, shape: &Shape, bytes: &[u8], wanted: &[f64], tolerance: f64) -> Verdict {
    let have = decode(shape.dtype, bytes);
    let unwritten = unwritten(shape, bytes);
    let exact = matches!(shape.dtype, DType::I32 | DType::Bool);
    let (mut difference, mut norm, mut worst) = (0.0, 0.0, (0.0, None));
    for (i, (h, w)) in have.iter().zip(wanted).enumerate() {
        let off = (h - w).abs();
        difference += if exact { f64::from(u8::from(off != 0.0)) } else { off * off };
        norm += w * w;
        // What is no number is furthest off.
        let off = if off.is_nan() { f64::INFINITY } else { off };
        if off > worst.0 {
            worst = (off, Some(i));
        }
    }
    let error = if exact {
        difference / (wanted.len().max(1) as f64)
    } else if difference == 0.0 {
        0.0
    } else {
        (difference / norm).sqrt()
    };
    let passed = unwritten == 0 && have.len() == wanted.len() && error <= tolerance;
    let worst = worst.1.filter(|_| !passed).map(|i| {
        let (h, w) = (have[i], wanted[i]);
        (index(i, &shape.dims), format!("{h:e}"), format!("{w:e}"))
    });
    Verdict {
        name,
        shape: bound::text(shape),
        error: error.is_finite().then_some(error),
        tolerance,
        unwritten,
        passed,
        worst,
    }
}

/// The index by dims of a row-major position.
fn index(mut at: usize, dims: &[usize]) -> Vec<usize> {
    let mut all: Vec<usize> = dims
        .iter()
        .rev()
        .map(|d| {
            let i = at % (*d).max(1);
            at /= (*d).max(1);
            i
        })
        .collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(dtype: DType, have: &[u8], wanted: &[f64], tolerance: f64) -> Verdict {
        let shape = Shape { dtype, dims: vec![wanted.len() / 2, 2] };
        judge("y".to_string(), &shape, have, wanted, tolerance)
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn errors_are_relative_to_the_norm() {
        let wanted = [3.0, 0.0, 0.0, 4.0];
        let v = verdict(DType::F32, &floats(&[3.0, 0.5, 0.0, 4.0]), &wanted, 0.2);
        assert_eq!((v.error, v.passed, v.worst), (Some(0.1), true, None));
        let v = verdict(DType::F32, &floats(&[3.0, 0.0, 0.5, 4.0]), &wanted, 0.01);
        assert!(!v.passed);
        assert_eq!(v.worst, Some((vec![1, 0], "5e-1".to_string(), "0e0".to_string())));
    }

    #[test]
    fn what_is_no_number_never_passes() {
        for bad in [f32::NAN, f32::INFINITY, f32::from_bits(u32::MAX)] {
            let v = verdict(DType::F32, &floats(&[1.0, bad]), &[1.0, 1.0], 1e9);
            assert!(!v.passed && v.error.is_none());
            assert_eq!(v.unwritten, usize::from(bad.to_bits() == u32::MAX));
            assert_eq!(v.worst.expect("named").0, [0, 1]);
        }
        // A reference of zeros allows zeros only.
        assert!(verdict(DType::F32, &floats(&[0.0, 0.0]), &[0.0, 0.0], 0.0).passed);
        assert!(!verdict(DType::F32, &floats(&[0.0, 1e-30]), &[0.0, 0.0], 1.0).passed);
    }

    #[test]
    fn integers_are_equal_and_written() {
        let ints = |v: &[i32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        assert!(verdict(DType::I32, &ints(&[-1, 5]), &[-1.0, 5.0], 0.0).passed);
        assert!(!verdict(DType::I32, &ints(&[-1, 6]), &[-1.0, 5.0], 0.0).passed);
        let v = verdict(DType::Bool, &[1, UNLIKELY], &[1.0, 1.0], 0.0);
        assert_eq!((v.passed, v.unwritten), (false, 1));
    }

    #[test]
    fn large_elements_hide_the_others() {
        let t = |v: Vec<f64>| Tensor::from_f64(vec![v.len()], &v).expect("a tensor");
        let mut values = vec![1.0; 10_000];
        assert!(!is_dominated(&t(values.clone())));
        values[7] = 3000.0;
        assert!(is_dominated(&t(values)));
        assert!(!is_dominated(&t(vec![0.0; 4])) && !is_dominated(&t(vec![])));
    }

    #[test]
    fn fences_are_watched() {
        assert_eq!(fenced(&[1, 2, 9, 9], 2, 9).expect("whole"), 2);
        assert!(fenced(&[1, 2, 3, 9], 2, 9).is_err());
    }
}
