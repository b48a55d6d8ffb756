//! The gradient rule of every op of the table, against central differences.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::{check, named, random};
use vlmc_ir::dim::Dim;
use vlmc_ir::eval::{Real, Tensor};
use vlmc_ir::graph::{Function, Init, Param, Program};
use vlmc_ir::ops::{Class, Gradient, Op, OpInfo, Scalar};
use vlmc_ir::testing::Random;
use vlmc_ir::ty::{DType, MeshAxis, Ty};

/// One application of an op: operand types with constant dims, and their values.
struct Sample {
    op: Op,
    operands: Vec<(Ty, Tensor<f64>)>,
}

struct Maker {
    rng: Random,
    dtype: DType,
}

impl Maker {
    fn size(&mut self) -> i64 {
        self.rng.below(3) as i64 + 1
    }

    fn ty(&self, dims: &[i64]) -> Ty {
        Ty::new(self.dtype, dims.iter().map(|d| Dim::from(*d)).collect())
    }

    fn operand(&mut self, ty: Ty, low: f64, high: f64) -> (Ty, Tensor<f64>) {
        let t = random(&mut self.rng, &ty, low, high);
        (ty, t)
    }

    fn float(&mut self, dims: &[i64]) -> (Ty, Tensor<f64>) {
        self.operand(self.ty(dims), -2.0, 2.0)
    }

    fn single(&mut self, dims: &[i64], low: f64, high: f64) -> (Ty, Tensor<f64>) {
        self.operand(self.ty(dims).with_dtype(DType::F32), low, high)
    }

    fn shape(&mut self, least: usize) -> Vec<i64> {
        (0..least + self.rng.below(3)).map(|_| self.size()).collect()
    }

    /// Numbers that are nowhere near each other, in random order.
    fn apart(&mut self, dims: &[i64]) -> (Ty, Tensor<f64>) {
        let ty = self.ty(dims);
        let n = dims.iter().product::<i64>() as usize;
        let mut values: Vec<f64> = (0..n).map(|i| i as f64 * 0.3 - 1.0).collect();
        for i in (1..n).rev() {
            values.swap(i, self.rng.below(i + 1));
        }
        let sizes = dims.iter().map(|d| *d as usize).collect();
        (ty.clone(), Tensor::floats(ty.dtype, sizes, values).unwrap())
    }

    fn index(&mut self, dims: &[i64], count: i64) -> (Ty, Tensor<f64>) {
        let n = dims.iter().product::<i64>() as usize;
        // From one below to one above what there is.
        let values = (0..n).map(|_| self.rng.below(count as usize + 2) as i64 - 1).collect();
        let sizes = dims.iter().map(|d| *d as usize).collect();
        (self.ty(dims).with_dtype(DType::I32), Tensor::ints(sizes, values).unwrap())
    }

    fn condition(&mut self, dims: &[i64]) -> (Ty, Tensor<f64>) {
        let n = dims.iter().product::<i64>() as usize;
        let values = (0..n).map(|_| self.rng.chance(50)).collect();
        let sizes = dims.iter().map(|d| *d as usize).collect();
        (self.ty(dims).with_dtype(DType::Bool), Tensor::bools(sizes, values).unwrap())
    }
}

/// Rows of packed sequences: a document of length 1, padding inside and at the end, an empty
/// document between others and one behind them.
const ROWS: i64 = 10;
const CU: [i64; 7] = [0, 3, 4, 4, 6, 7, 7];
const PADDED: [i64; 7] = [0, 4, 5, 5, 8, 9, 9];
const VALID: [bool; 10] = [true, true, true, false, true, true, true, false, true, false];

fn boundaries() -> [(Ty, Tensor<f64>); 2] {
    [CU, PADDED].map(|b| {
        let ty = Ty::new(DType::I32, vec![Dim::from(b.len() as i64)]);
        (ty, support::ints(&b))
    })
}

/// Where an elementwise op is smooth. One that is new is tried on both sides of zero.
fn domain(name: &str) -> (f64, f64) {
    match name {
        "log" | "sqrt" | "rsqrt" | "recip" => (0.3, 2.0),
        "softplus" => (-3.0, 3.0),
        _ => (-2.0, 2.0),
    }
}

fn samples(info: &OpInfo, m: &mut Maker) -> Vec<Sample> {
    let name = info.name;
    // Elementwise ops without attributes need no entry here.
    let op = if info.attributes.is_empty() { from_name(name) } else { None };
    match (info.class, op) {
        (Class::Elementwise, Some(op)) if name != "select" => {
            let dims = m.shape(0);
            let (low, high) = domain(name);
            let operands = match name {
                "max" | "min" => vec![m.apart(&dims), m.float(&dims)],
                "div" => vec![m.float(&dims), {
                    let ty = m.ty(&dims);
                    m.operand(ty, 0.4, 2.0)
                }],
                _ => (0..info.operands.len())
                    .map(|_| {
                        let ty = m.ty(&dims);
                        m.operand(ty, low, high)
                    })
                    .collect(),
            };
            vec![Sample { op, operands }]
        }
        _ => special(name, m),
    }
}

fn from_name(name: &str) -> Option<Op> {
    Op::from_attributes(name, &mut |_, _| None)?.ok()
}

/// What a new op that is not elementwise, or has attributes, needs an entry in.
fn special(name: &str, m: &mut Maker) -> Vec<Sample> {
    let (axis, ranks) = (MeshAxis::Cp, 1);
    let dtype = m.dtype;
    let mut out = vec![];
    let mut one = |op: Op, operands: Vec<(Ty, Tensor<f64>)>| out.push(Sample { op, operands });
    match name {
        "select" => {
            let d = m.shape(0);
            one(Op::Select, vec![m.condition(&d), m.float(&d), m.float(&d)]);
        }
        "cast" => {
            for to in [DType::Bf16, DType::F32] {
                let d = m.shape(0);
                one(Op::Cast { dtype: to }, vec![m.float(&d)]);
            }
        }
        "reshape" => {
            let shape = vec![Dim::from(3), Dim::from(4)];
            one(Op::Reshape { shape }, vec![m.float(&[2, 1, 6])]);
        }
        "transpose" => one(Op::Transpose { permutation: vec![2, 0, 1] }, vec![m.float(&[2, 3, 1])]),
        "broadcast" => {
            let shape: Vec<Dim> = [2, 3, 2, 1].map(Dim::from).to_vec();
            let op = |dims| Op::Broadcast { shape: shape.clone(), dims };
            one(op(vec![1, 2]), vec![m.float(&[3, 1])]);
            one(op(vec![0, 1, 3]), vec![m.float(&[1, 3, 1])]);
            one(op(vec![]), vec![m.float(&[])]);
        }
        "repeat" => {
            for axis in 0..3 {
                one(Op::Repeat { axis, times: Dim::from(3) }, vec![m.float(&[2, 1, 3])]);
            }
        }
        "slice" => {
            let op =
                |start, size| Op::Slice { axis: 1, start: Dim::from(start), size: Dim::from(size) };
            for (start, size) in [(0, 2), (1, 3), (0, 4), (4, 0)] {
                one(op(start, size), vec![m.float(&[2, 4])]);
            }
        }
        "pad" => {
            let op = Op::Pad { axis: 0, before: Dim::from(2), after: Dim::from(1) };
            one(op, vec![m.float(&[3, 2])]);
        }
        "concat" => {
            let parts = vec![m.float(&[2, 1]), m.float(&[2, 3]), m.float(&[2, 2])];
            one(Op::Concat { axis: 1 }, parts);
        }
        "reduce_sum" | "reduce_max" => {
            for axes in [vec![], vec![0], vec![1], vec![0, 2], vec![0, 1, 2]] {
                let x =
                    if name == "reduce_sum" { m.float(&[2, 3, 2]) } else { m.apart(&[2, 3, 2]) };
                let sum = name == "reduce_sum";
                let op = if sum { Op::ReduceSum { axes } } else { Op::ReduceMax { axes } };
                one(op, vec![x]);
            }
        }
        "contract" => {
            let op = |ab: &[u32], bb: &[u32], ac: &[u32], bc: &[u32], dtype| Op::Contract {
                a_batch: ab.to_vec(),
                b_batch: bb.to_vec(),
                a_contract: ac.to_vec(),
                b_contract: bc.to_vec(),
                dtype,
            };
            // x w^T, x w, an outer product, a full sum, and mixed up dims on both sides.
            one(op(&[], &[], &[1], &[1], dtype), vec![m.float(&[3, 2]), m.float(&[4, 2])]);
            one(op(&[], &[], &[1], &[0], dtype), vec![m.float(&[3, 2]), m.float(&[2, 4])]);
            one(op(&[], &[], &[1], &[0], DType::F32), vec![m.float(&[3, 2]), m.float(&[2, 2])]);
            one(op(&[], &[], &[], &[], dtype), vec![m.float(&[3]), m.float(&[2])]);
            one(op(&[], &[], &[0, 1], &[1, 0], dtype), vec![m.float(&[3, 2]), m.float(&[2, 3])]);
            let operands = vec![m.float(&[2, 3, 4, 2, 3]), m.float(&[2, 3, 3, 2])];
            one(op(&[1, 3], &[1, 0], &[0, 4], &[3, 2], dtype), operands);
        }
        "grouped_contract" => {
            for transposed in [false, true] {
                let w = if transposed { [3, 2, 4] } else { [3, 4, 2] };
                let operands = vec![m.float(&[6, 2]), m.float(&w), m.index(&[6], 3)];
                one(Op::GroupedContract { transposed }, operands);
            }
        }
        "grouped_outer" => {
            for dtype in [dtype, DType::F32] {
                let operands = vec![m.float(&[6, 2]), m.float(&[6, 3]), m.index(&[6], 3)];
                one(Op::GroupedOuter { count: Dim::from(3), dtype }, operands);
            }
        }
        "gather" => {
            one(Op::Gather, vec![m.float(&[4, 2]), m.index(&[2, 3], 4)]);
            one(Op::Gather, vec![m.float(&[4]), m.index(&[5], 4)]);
        }
        "scatter_add" => {
            let operands = vec![m.index(&[2, 3], 4), m.float(&[2, 3, 2])];
            one(Op::ScatterAdd { count: Dim::from(4) }, operands);
        }
        "top_k" => {
            for k in [0, 1, 3] {
                one(Op::TopK { k: Dim::from(k) }, vec![m.apart(&[2, 2, 5])]);
            }
        }
        "segment_shift" => {
            for by in [0, 1, -1, 2, 9, i64::MIN, i64::MAX] {
                let [cu, padded] = boundaries();
                let op = Op::SegmentShift { by, fill: Scalar(0.5) };
                one(op, vec![m.float(&[ROWS, 2]), cu, padded]);
            }
        }
        "causal_conv1d" | "causal_conv1d_input_grad" => {
            for taps in [1, 4] {
                let [cu, padded] = boundaries();
                let op = from_name(name).unwrap();
                one(op, vec![m.float(&[ROWS, 3]), m.float(&[3, taps]), cu, padded]);
            }
        }
        "causal_conv1d_weight_grad" => {
            let [cu, padded] = boundaries();
            let op = Op::CausalConv1dWeightGrad { taps: Dim::from(3), dtype };
            one(op, vec![m.float(&[ROWS, 2]), m.float(&[ROWS, 2]), cu, padded]);
        }
        "gated_delta_rule" => {
            for (key_heads, heads, state) in [(1, 1, false), (2, 4, false), (1, 3, true)] {
                let [cu, padded] = boundaries();
                let mut operands = vec![
                    m.float(&[ROWS, key_heads, 2]),
                    m.float(&[ROWS, key_heads, 2]),
                    m.float(&[ROWS, heads, 3]),
                    m.single(&[ROWS, heads], -1.5, 0.0),
                    {
                        let ty = m.ty(&[ROWS, heads]);
                        m.operand(ty, 0.1, 0.9)
                    },
                    cu,
                    padded,
                ];
                if state {
                    operands.push(m.single(&[CU.len() as i64 - 1, heads, 2, 3], -1.0, 1.0));
                }
                one(Op::GatedDeltaRule, operands);
            }
        }
        "attention" => {
            for (heads, causal, window) in [
                (1, true, None),
                (2, true, None),
                (4, false, None),
                (2, true, Some(2)),
                (2, false, Some(1)),
            ] {
                let key_heads = if heads == 4 { 2 } else { 1 };
                let [cu, padded] = boundaries();
                let operands = vec![
                    m.float(&[ROWS, heads, 2]),
                    m.float(&[ROWS, key_heads, 2]),
                    m.float(&[ROWS, key_heads, 3]),
                    cu,
                    padded,
                ];
                let window = window.map(Dim::from);
                one(Op::Attention { scale: Scalar(0.7), causal, window }, operands);
            }
        }
        // On a mesh of one rank; `ir/tests/mesh.rs` has more.
        "all_reduce" => one(Op::AllReduce { axis, ranks }, vec![m.float(&[2, 3])]),
        "all_gather" => one(Op::AllGather { axis, ranks, dim: 0 }, vec![m.float(&[2, 3])]),
        "reduce_scatter" => one(Op::ReduceScatter { axis, ranks, dim: 1 }, vec![m.float(&[2, 3])]),
        "all_to_all" => {
            one(Op::AllToAll { axis, ranks, split: 1, gather: 0 }, vec![m.float(&[2, 3])]);
        }
        "shard" => one(Op::Shard { axis, ranks, dim: 0 }, vec![m.float(&[2, 3])]),
        "unshard" => one(Op::Unshard { axis, ranks, dim: 0 }, vec![m.float(&[2, 3])]),
        other => panic!("no sample of `{other}`: give it one here"),
    }
    out
}

/// A program of one op; float operands are inputs, or parameters.
fn program_of(s: &Sample, as_params: bool) -> Program {
    let mut f = Function::new("main");
    let mut operands = vec![];
    for (i, (ty, _)) in s.operands.iter().enumerate() {
        let name = format!("x{i}");
        operands.push(if as_params && ty.dtype.is_float() {
            f.add_param(Param {
                name: name.as_str().into(),
                key: name.clone(),
                each: vec![],
                ty: ty.clone(),
                init: Init::Constant(0.0),
                decay: true,
            })
        } else {
            f.add_input(&name, ty.clone(), None)
        });
    }
    let node = f.push(s.op.clone(), &operands).unwrap_or_else(|e| panic!("{:?}: {e}", s.op));
    for result in 0..f.node(node).tys.len() as u32 {
        f.add_output(Some(&format!("y{result}")), vlmc_ir::graph::Value { node, result });
    }
    Program { name: "op".into(), functions: vec![f], ..Program::default() }
}

#[test]
fn every_rule_against_central_differences() {
    let mut checked = 0;
    for info in Op::all().iter().filter(|i| matches!(i.gradient, Gradient::Rule(_))) {
        for round in 0..3 {
            for dtype in [DType::F32, DType::Bf16] {
                let mut m = Maker { rng: Random::new(round * 100 + checked), dtype };
                for s in samples(info, &mut m) {
                    let inputs = |params: bool| {
                        let list = s.operands.iter().enumerate();
                        let list = list.filter(|(_, (ty, _))| ty.dtype.is_float() == params);
                        list.map(|(i, (_, t))| (format!("x{i}"), t.clone())).collect::<Vec<_>>()
                    };
                    let what = format!("{:?} in {dtype}", s.op);
                    let all = [inputs(false), inputs(true)].concat();
                    let p = program_of(&s, false);
                    let found = check(&what, &p, &all, &vec![]);
                    rows_that_are_not_valid_get_zero(info, &s, &found);
                    check(&what, &program_of(&s, true), &inputs(false), &inputs(true));
                    checked += 1;
                }
            }
        }
    }
    println!("{checked} applications of ops checked");
}

fn rows_that_are_not_valid_get_zero(
    info: &OpInfo,
    s: &Sample,
    found: &std::collections::BTreeMap<String, Vec<f64>>,
) {
    if info.class != Class::Sequence {
        return;
    }
    for (i, (_, t)) in s.operands.iter().enumerate() {
        if let Some(g) = found.get(&format!("grad.in.x{i}"))
            && t.dims[0] == VALID.len()
        {
            for (row, g) in g.chunks(g.len() / VALID.len()).enumerate() {
                assert!(VALID[row] || g.iter().all(|g| *g == 0.0), "{:?} row {row}: {g:?}", s.op);
            }
        }
    }
}

/// What carries no gradient says so, and nothing else does.
#[test]
fn the_table_says_what_carries_no_gradient() {
    let with = |f: fn(&Gradient) -> bool| {
        Op::all().iter().filter(|i| f(&i.gradient)).map(|i| i.name).collect::<Vec<_>>()
    };
    assert_eq!(
        with(|g| matches!(g, Gradient::None)),
        ["constant", "iota", "not", "stop_gradient", "rem", "compare", "and", "or", "row_valid"]
    );
    assert_eq!(with(|g| matches!(g, Gradient::Once)), ["gated_delta_rule_grad", "attention_grad"]);
}

/// Ties: halves to two equal operands, equal parts to equal maxima.
#[test]
fn equal_ones_share() {
    let p = support::program(
        "program \"t\"\nfunc @main {\n  input %a : f32[2]\n  input %b : f32[2]\n\
         %m = max %a, %b : f32[2]\n  %n = min %a, %b : f32[2]\n\
         %r = reduce_max %a {axes = [0]} : f32[]\n\
         return \"m\" = %m\n return \"n\" = %n\n return \"r\" = %r\n}",
    );
    let options = vlmc_passes::autodiff::Options {
        seeds: vlmc_passes::autodiff::Seeds::Outputs,
        inputs: vec!["a".into(), "b".into()],
    };
    let d = support::gradients_of(&p, &options);
    let t = |v: &[f64]| Tensor::from_f64(vec![v.len()], v).unwrap();
    let one = Tensor::from_f64(vec![], &[3.0]).unwrap();
    let inputs = named(&[
        ("a", t(&[1.0, 1.0])),
        ("b", t(&[1.0, 2.0])),
        ("dout.m", t(&[2.0, 2.0])),
        ("dout.n", t(&[4.0, 4.0])),
        ("dout.r", one),
    ]);
    let out = support::exact(&d, &inputs, &vec![]).unwrap();
    assert_eq!(support::get(&out, "grad.in.a"), [1.0 + 2.0 + 1.5, 0.0 + 4.0 + 1.5]);
    assert_eq!(support::get(&out, "grad.in.b"), [1.0 + 2.0, 2.0]);
}

/// Derivatives far out are finite in f32 and have the value of the limit.
#[test]
fn nothing_overflows_far_out() {
    for info in Op::all().iter().filter(|i| i.class == Class::Elementwise) {
        let smooth = ["sigmoid", "silu", "softplus", "gelu", "gelu_tanh", "tanh", "erf"];
        if !smooth.contains(&info.name) {
            continue;
        }
        let op = from_name(info.name).unwrap();
        let far = [-3e38, -1e20, -1e6, -90.0, -20.5, 20.5, 90.0, 1e6, 1e20, 3e38];
        let ty = Ty::new(DType::F32, vec![Dim::from(far.len() as i64)]);
        let x = Tensor::<f32>::from_f64(vec![far.len()], &far).unwrap();
        let s =
            Sample { op, operands: vec![(ty, Tensor::from_f64(vec![far.len()], &far).unwrap())] };
        let options = vlmc_passes::autodiff::Options {
            seeds: vlmc_passes::autodiff::Seeds::Outputs,
            inputs: vec!["x0".into()],
        };
        let d = support::gradients_of(&program_of(&s, false), &options);
        let ones = Tensor::<f32>::from_f64(vec![far.len()], &vec![1.0; far.len()]).unwrap();
        let inputs = vec![("x0".to_string(), x), ("dout.y0".to_string(), ones)];
        let out = support::exact(&d, &inputs, &vec![]).unwrap();
        let dx = out.get("grad.in.x0").unwrap().to_f64();
        let flat = ["sigmoid", "tanh", "erf"].contains(&info.name);
        for (x, d) in far.iter().zip(&dx) {
            let want = if flat || *x < 0.0 { 0.0 } else { 1.0 };
            assert!((d - want).abs() < 1e-6, "{} at {x:e}: {d:e}", info.name);
        }
    }
    assert!(f32::from_f64(1e39).is_infinite());
}
