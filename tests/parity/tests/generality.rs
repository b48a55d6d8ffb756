//! Formulas that no model of the repository has: they fuse, and their host kernels give what the
//! program gives without fusion, forward and gradients.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc::eval::{
    Inputs, Precision, Request, Tensors, float_inputs, fused, program, run, run_with,
    with_gradients,
};
use vlmc::kernels::host;
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_frontend::elab::Library;
use vlmc_ir::graph::{Param, Program};

/// Largest error of f32 kernels, relative to the norm of a tensor, where the reference evaluator in
/// f32 is not itself worse.
const TOLERANCE: f64 = 1e-5;

/// A pack: valid and padded lengths of its documents, and rows after the last.
type Pack = (&'static [(usize, usize)], usize);

const ONES: &[(usize, usize)] = &[(1, 1), (1, 4), (3, 3), (63, 64), (1, 1), (65, 72), (2, 2)];
const PACKS: &[Pack] = &[
    (&[(1, 1)], 0),
    (&[(3, 3)], 0),
    (&[(63, 63)], 0),
    (&[(64, 64)], 0),
    (&[(65, 65)], 0),
    (ONES, 5),
    (&[(5, 8), (0, 0), (1, 8)], 16),
];

/// What comes before a delta rule, with places for what varies.
const MIXER: &str = "
use std.{l2norm, layer_norm, rms_normalize}

module Mixer(h: int, kh: int, d: int, taps: int) {
  param conv : [q: kh * d + k: kh * d + v: h * d, taps]  init normal(0.02)
  param A_log : f32[h]  init ones
  param dt_bias : [h]  init ones
  param norm : f32[d]  init ones

  fn forward(
    qkv: [T, q: kh * d + k: kh * d + v: h * d],
    a: [T, h],
    b: [T, h],
    z: [T, h, d],
    seq: Sequence,
  ) -> [T, h, d] {
    let mixed     = ACT(causal_conv1d(qkv, conv, seq))
    let (q, k, v) = split(mixed)
    let q         = NORM(q as [T, kh, d]) * d ** -0.5
    let k         = NORM(k as [T, kh, d])
    let v         = v as [T, h, d]
    let beta      = sigmoid(b)
    let g         = -exp(A_log) * softplus(f32(a) + f32(dt_bias))
    let (o, _)    = gated_delta_rule(q, k, v, g, beta, seq)
    narrow(norm * f32(narrow(rms_normalize(o))) * GATE(f32(z)))
  }
}
";

/// Rows without a sequence: a residual, a norm, a gate, and a chain of ops.
const ROWS: &str = "
use std.{layer_norm, zero_centered_rms_norm}

module Rows(n: int) {
  param w : [n]  init ones
  param b : [n]  init zeros

  fn forward(x: [T, n], y: [T, n], z: [T, n]) -> ([T, n], [T, n]) {
    let h = x + y
    (h, BODY)
  }
}
";

struct Case {
    text: String,
    function: &'static str,
    args: Vec<(&'static str, usize)>,
    /// The value of all elements of an input or parameter, in place of a drawn one.
    given: Vec<(&'static str, f64)>,
}

impl Case {
    fn mixer(heads: usize, key_heads: usize, dim: usize, taps: usize) -> Case {
        let args = vec![("h", heads), ("kh", key_heads), ("d", dim), ("taps", taps)];
        let (text, function) = (MIXER.to_string(), "Mixer");
        Case { text, function, args, given: vec![] }
            .with("ACT", "silu")
            .with("NORM", "l2norm")
            .with("GATE", "silu")
    }

    fn rows(n: usize, body: &str) -> Case {
        let text = ROWS.replace("BODY", body);
        Case { text, function: "Rows", args: vec![("n", n)], given: vec![] }
    }

    /// Fills a place of the text; one that is filled already keeps what it has.
    fn with(mut self, place: &str, what: &str) -> Case {
        self.text = self.text.replace(place, what);
        self
    }

    fn changed(mut self, from: &str, to: &str) -> Case {
        assert!(self.text.contains(from), "{from}");
        self.text = self.text.replace(from, to);
        self
    }

    fn given(mut self, name: &'static str, value: f64) -> Case {
        self.given.push((name, value));
        self
    }

    /// A tensor by its name: given, or drawn.
    fn tensor(&self, name: &str, shape: Vec<usize>) -> HostTensor {
        let n = shape.iter().product();
        let given = self.given.iter().find(|(g, _)| *g == name);
        let values = match given {
            Some((_, v)) => vec![*v; n],
            None => drawn(name, n),
        };
        HostTensor::new(shape, HostData::F64(values)).unwrap()
    }

    fn lowered(&self, shapes: &[(String, Vec<usize>)]) -> Program {
        let reader = vlmc::spec::FileReader::embedded();
        let (library, diags) = Library::load("m.vlm", self.text.as_bytes().to_vec(), &reader);
        assert!(!diags.has_errors(), "{diags:?}\n{}", self.text);
        let request = Request {
            function: Some(self.function),
            args: self.args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            variant: None,
            settings: vec![],
            shapes: shapes.to_vec(),
            precision: Precision::F32,
        };
        let lowered = program(&library, &request);
        lowered.program.unwrap_or_else(|| panic!("{:?}\n{}", lowered.diags, self.text))
    }

    /// Inputs of a pack; those that the program does not have are not used.
    fn inputs(&self, p: &Program, pack: &Pack) -> Tensors {
        let rows = pack.0.iter().map(|(_, padded)| padded).sum::<usize>() + pack.1;
        let mut all = Tensors::new();
        for i in &p.main().unwrap().inputs {
            let t = match &*i.name {
                "seq.cu_seqlens" => boundaries(pack.0.iter().map(|d| d.0)),
                "seq.cu_seqlens_padded" => boundaries(pack.0.iter().map(|d| d.1)),
                "seq.positions" => {
                    HostTensor::new(vec![3, rows], HostData::I64(vec![0; 3 * rows])).unwrap()
                }
                name => {
                    let size = |d: &vlmc_ir::dim::Dim| d.size().as_constant();
                    let dims = i.ty.dims.iter().map(|d| size(d).map_or(rows, |n| n as usize));
                    self.tensor(name, dims.collect())
                }
            };
            all.insert(i.name.to_string(), t);
        }
        all
    }

    /// Compares the fused program with the program itself over all packs.
    fn check(&self) {
        let plain = self.lowered(&[]);
        let joint = with_gradients(&plain, &float_inputs(&plain)).unwrap();
        let clusters = fused(&joint).unwrap();
        let (kernels, refused) = host(&clusters).unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        let (with, all) = kernels.count(&clusters);
        assert!(with == all && all >= 1, "{with} of {all}");
        let mut param = |name: &str, p: &Param| {
            let dims = p.ty.dims.iter().map(|d| d.size().as_constant().unwrap() as usize);
            Ok(self.tensor(name, dims.collect()))
        };
        for pack in PACKS {
            let inputs = self.inputs(&joint, pack);
            let inputs = Inputs::Named(&inputs);
            let no = |_: &str| false;
            let exact = run(&joint, Precision::F64, &inputs, &mut param, &no).unwrap();
            let f32 = run(&joint, Precision::F32, &inputs, &mut param, &no).unwrap();
            let have =
                run_with(&clusters, Precision::F32, Some(&kernels), &inputs, &mut param, &no)
                    .unwrap();
            let both = [(&exact.outputs, &f32.outputs, &have.outputs)];
            let gradients = [(&exact.gradients, &f32.gradients, &have.gradients)];
            for (exact, f32, have) in both.into_iter().chain(gradients) {
                assert_eq!(exact.len(), have.len());
                for (name, want) in exact {
                    let off = error(&have[name], want);
                    let most = TOLERANCE.max(4.0 * error(&f32[name], want));
                    assert!(off <= most, "{pack:?}: {name} is off by {off:.1e} > {most:.1e}");
                }
            }
        }
    }
}

fn boundaries(lengths: impl Iterator<Item = usize>) -> HostTensor {
    let mut all = vec![0i64];
    all.extend(lengths.scan(0, |sum, n| {
        *sum += n as i64;
        Some(*sum)
    }));
    HostTensor::new(vec![all.len()], HostData::I64(all)).unwrap()
}

/// Numbers of about unit size that depend on the name.
fn drawn(name: &str, n: usize) -> Vec<f64> {
    let mut state = name
        .bytes()
        .fold(0x9e37_79b9_7f4a_7c15u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 40) as u32) / f64::from(1u32 << 24)
    };
    // An f32 number each, so that both precisions start from the same.
    (0..n).map(|_| f64::from((next() + next() + next() + next() - 2.0) as f32 * 1.5)).collect()
}

/// Norm of the difference over the norm; the former alone where the latter is nothing.
fn error(have: &HostTensor, want: &HostTensor) -> f64 {
    let (a, b) = (have.to_f64(), want.to_f64());
    assert_eq!(a.len(), b.len());
    let norm = b.iter().map(|v| v * v).sum::<f64>().sqrt();
    let off = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    assert!(norm.is_finite() && off.is_finite(), "no number");
    if norm < 1e-30 { off } else { off / norm }
}

fn taps(n: usize) {
    Case::mixer(2, 2, 16, n).check();
}

fn dim(n: usize) {
    Case::mixer(2, 1, n, 4).check();
}

#[test]
fn two_taps() {
    taps(2);
}

#[test]
fn three_taps() {
    taps(3);
}

#[test]
fn eight_taps() {
    taps(8);
}

#[test]
#[ignore = "one more spec beside a dozen that always run: for test-all"]
fn other_taps() {
    [4, 5, 6, 7].into_iter().for_each(taps);
}

#[test]
fn no_activation() {
    let plain = "let mixed     = causal_conv1d(qkv, conv, seq)";
    Case::mixer(2, 2, 16, 4)
        .changed("let mixed     = silu(causal_conv1d(qkv, conv, seq))", plain)
        .check();
}

#[test]
fn heads_of_72() {
    dim(72);
}

#[test]
#[ignore = "one more spec beside a dozen that always run: for test-all"]
fn heads_of_other_dims() {
    [64, 96, 128].into_iter().for_each(dim);
}

#[test]
#[ignore = "compiles kernels of many sizes for a minute: for test-all"]
fn heads_of_256() {
    dim(256);
}

#[test]
fn five_heads() {
    Case::mixer(5, 5, 8, 4).check();
}

#[test]
fn no_l2norm() {
    // Keys of unit size would make the state grow: they are made small instead.
    Case::mixer(2, 2, 16, 4)
        .changed("l2norm(q", "f32(q")
        .changed("l2norm(k", "0.1 * f32(k")
        .check();
}

#[test]
fn a_sigmoid_and_a_tanh_gate() {
    Case::mixer(2, 2, 16, 4).changed("silu(f32(z))", "sigmoid(f32(z))").check();
    Case::mixer(2, 2, 16, 4).changed("silu(f32(z))", "tanh(f32(z))").check();
}

#[test]
fn layer_norm_for_rms_norm() {
    Case::rows(24, "layer_norm(h, w, b) * sigmoid(z)").check();
    Case::rows(72, "layer_norm(h, w, b) * tanh(z)").check();
}

#[test]
fn rms_norm_of_an_odd_width() {
    Case::rows(37, "zero_centered_rms_norm(h, w) * silu(z)").check();
}

#[test]
fn a_chain_that_nobody_has_seen() {
    let chain = "where(h > z, tanh(h * 0.7) * exp(-(z * z)), softplus(z - h) / (1.0 + h * h)) \
                 + sqrt(x * x + y * y + 0.5) * w - cos(z + b) * sigmoid(-x)";
    Case::rows(40, chain).check();
}

#[test]
fn extreme_decays_are_finite_and_right() {
    extremes(&[(-100.0, -5.0), (100.0, 3.0)]);
}

#[test]
#[ignore = "one more spec beside a dozen that always run: for test-all"]
fn other_extreme_decays() {
    extremes(&[(-100.0, 3.0), (0.0, -5.0), (0.0, 3.0), (30.0, -5.0), (30.0, 3.0), (100.0, -5.0)]);
}

fn extremes(values: &[(f64, f64)]) {
    for (alpha, log) in values {
        Case::mixer(3, 3, 8, 4)
            .given("a", *alpha)
            .given("A_log", *log)
            .given("dt_bias", 0.0)
            .check();
    }
}
