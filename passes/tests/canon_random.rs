//! The normal form of random graphs of views and arithmetic, which meet in ways that nobody writes
//! down: the numbers stay in f64, and the form of the form is itself.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::{Named, exact, floats};
use vlmc_ir::dim::Dim;
use vlmc_ir::graph::{Function, Program, Value};
use vlmc_ir::ops::{Op, Scalar};
use vlmc_ir::testing::Random;
use vlmc_ir::text::print;
use vlmc_ir::ty::{DType, Ty};
use vlmc_ir::verify::verify;
use vlmc_passes::canon;

const SIZES: [i64; 6] = [1, 2, 3, 4, 6, 12];

struct Maker<'r> {
    f: Function,
    rng: &'r mut Random,
}

impl Maker<'_> {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len())].clone()
    }

    fn size(&self, v: Value, axis: usize) -> i64 {
        self.f.ty(v).dims[axis].size().as_constant().unwrap()
    }

    fn dims(&self, v: Value) -> Vec<i64> {
        (0..self.f.ty(v).rank()).map(|i| self.size(v, i)).collect()
    }

    fn value(&mut self) -> Value {
        let n = self.f.nodes.len();
        // Late values more often, so that graphs are deep.
        let at = n - 1 - self.rng.below(n).min(self.rng.below(n));
        vlmc_ir::graph::NodeId(at as u32).into()
    }

    /// Another value of the type, or a broadcast of one.
    fn like(&mut self, v: Value) -> Value {
        let same: Vec<Value> = self
            .f
            .node_ids()
            .map(Value::from)
            .filter(|w| self.f.ty(*w).same_shape(self.f.ty(v)))
            .collect();
        if self.rng.chance(70) {
            return self.pick(&same);
        }
        let shape = self.f.ty(v).dims.clone();
        if self.rng.chance(30) {
            let value = self.pick(&[0.0, 1.0, -1.0, 2.5]);
            let op = Op::Constant { value: Scalar(value), dtype: DType::F32, shape };
            return self.f.push(op, &[]).unwrap().into();
        }
        let dims: Vec<u32> = (0..shape.len() as u32).filter(|_| self.rng.chance(50)).collect();
        let small: Vec<usize> = dims.iter().map(|d| *d as usize).collect();
        let fits: Vec<Value> = self
            .f
            .node_ids()
            .map(Value::from)
            .filter(|w| {
                let have = &self.f.ty(*w).dims;
                have.len() == small.len()
                    && have.iter().zip(&small).all(|(d, i)| d.same_size(&shape[*i]))
            })
            .collect();
        if fits.is_empty() {
            return self.pick(&same);
        }
        let x = self.pick(&fits);
        self.f.push(Op::Broadcast { shape, dims }, &[x]).unwrap().into()
    }

    fn reshape(&mut self, x: Value) -> Op {
        let mut dims = self.dims(x);
        // Splits an axis, merges two, or adds or drops one of one element.
        match self.rng.below(4) {
            0 if !dims.is_empty() => {
                let i = self.rng.below(dims.len());
                let by = self.pick(&[2, 3]);
                if dims[i] % by == 0 {
                    let outer = dims[i] / by;
                    dims.splice(i..=i, [outer, by]);
                }
            }
            1 if dims.len() > 1 => {
                let i = self.rng.below(dims.len() - 1);
                let merged = dims[i] * dims[i + 1];
                dims.splice(i..=i + 1, [merged]);
            }
            2 => {
                let i = self.rng.below(dims.len() + 1);
                dims.insert(i, 1);
            }
            _ => {
                if let Some(i) = dims.iter().position(|d| *d == 1) {
                    dims.remove(i);
                }
            }
        }
        Op::Reshape { shape: dims.into_iter().map(Dim::from).collect() }
    }

    fn step(&mut self) {
        let x = self.value();
        let rank = self.f.ty(x).rank();
        let axis = self.rng.below(rank.max(1));
        let size = if rank > 0 { self.size(x, axis) } else { 1 };
        let a = axis as u32;
        let (op, operands) = match self.rng.below(14) {
            0 | 1 => {
                let ops = [Op::Neg, Op::Silu, Op::Sigmoid, Op::Tanh, Op::Exp, Op::Sin];
                (self.pick(&ops), vec![x])
            }
            2..=4 => {
                let op = self.pick(&[Op::Add, Op::Sub, Op::Mul, Op::Max]);
                let y = self.like(x);
                (op, vec![x, y])
            }
            5 => (self.reshape(x), vec![x]),
            6 | 7 => {
                let start = self.rng.below(size as usize) as i64;
                let size = 1 + self.rng.below((size - start) as usize) as i64;
                (Op::Slice { axis: a, start: start.into(), size: size.into() }, vec![x])
            }
            8 => {
                let (before, after) = (self.rng.below(3) as i64, self.rng.below(3) as i64);
                (Op::Pad { axis: a, before: before.into(), after: after.into() }, vec![x])
            }
            9 | 10 => {
                let joins = |w: &Value| {
                    self.f.ty(*w).rank() == rank
                        && (0..rank).all(|i| i == axis || self.size(*w, i) == self.size(x, i))
                };
                let fits: Vec<Value> = self.f.node_ids().map(Value::from).filter(joins).collect();
                let others = 1 + self.rng.below(2);
                let mut xs = vec![x];
                (0..others).for_each(|_| xs.push(self.pick(&fits)));
                (Op::Concat { axis: a }, xs)
            }
            11 => (Op::ReduceSum { axes: vec![a] }, vec![x]),
            12 => (Op::Repeat { axis: a, times: self.pick(&[1, 2, 3]).into() }, vec![x]),
            _ => {
                let mut permutation: Vec<u32> = (0..rank as u32).collect();
                let other = self.rng.below(rank.max(1));
                if rank > 0 {
                    permutation.swap(axis, other);
                }
                (Op::Transpose { permutation }, vec![x])
            }
        };
        let elements: i64 = operands.iter().map(|v| self.dims(*v).iter().product::<i64>()).sum();
        if elements < 400 && (rank < 5 || !matches!(op, Op::Reshape { .. })) {
            let _ = self.f.push(op, &operands);
        }
    }
}

fn random_graph(rng: &mut Random, steps: usize) -> Program {
    let mut m = Maker { f: Function::new("main"), rng };
    for i in 0..3 {
        let rank = 1 + m.rng.below(3);
        let dims = (0..rank).map(|_| Dim::from(m.pick(&SIZES[..5]))).collect();
        m.f.add_input(&format!("x{i}"), Ty::new(DType::F32, dims), None);
    }
    (0..steps).for_each(|_| m.step());
    let last = m.f.nodes.len() as u32 - 1;
    for i in 0..3 {
        let node = vlmc_ir::graph::NodeId(last - i.min(last));
        m.f.add_output(None, node.into());
    }
    Program { name: "random".into(), functions: vec![m.f], ..Program::default() }
}

fn check(seeds: std::ops::Range<u64>, steps: usize) {
    let (mut changed, mut over, all) = (0, 0, seeds.end - seeds.start);
    for seed in seeds {
        let mut rng = Random::new(seed);
        let p = random_graph(&mut rng, steps);
        assert!(verify(&p).is_empty());
        let text = || format!("seed {seed}\n{}", print::program(&p));
        let (c, log) = canon::program(&p, &canon::Options::default())
            .unwrap_or_else(|e| panic!("{e}\n{}", text()));
        over += usize::from(!log.warnings.is_empty());
        assert!(verify(&c).is_empty(), "{}{}", text(), print::program(&c));
        changed += usize::from(c != p);
        let inputs: Named<f64> = p.functions[0]
            .inputs
            .iter()
            .map(|i| {
                let dims = i.ty.dims.iter().map(|d| d.size().as_constant().unwrap() as usize);
                (i.name.to_string(), floats(&mut rng, &dims.collect::<Vec<_>>()))
            })
            .collect();
        let none: Named<f64> = vec![];
        let (a, b) = (exact(&p, &inputs, &none).unwrap(), exact(&c, &inputs, &none).unwrap());
        for (x, y) in a.0.iter().zip(&b.0) {
            assert_eq!(x.value.dims, y.value.dims);
            for (x, y) in x.value.to_f64().into_iter().zip(y.value.to_f64()) {
                let close = (x - y).abs() <= 1e-9 * (1.0 + x.abs());
                let both = || format!("{x} {y}\n{}{}", text(), print::program(&c));
                assert!(close || !x.is_finite(), "{}", both());
            }
        }
        if !log.warnings.is_empty() {
            continue;
        }
        let again = canon::program(&c, &canon::Options::default()).unwrap().0;
        assert!(again == c, "{}{}{}", text(), print::program(&c), print::program(&again));
    }
    println!("{over} of {all} over budget");
    assert!(changed > 0 && over as u64 <= all / 50);
}

#[test]
fn random_graphs_keep_their_numbers() {
    check(0..300, 14);
}

#[test]
#[ignore = "many graphs"]
fn many_random_graphs_keep_their_numbers() {
    check(1000..5000, 14);
    check(5000..6000, 30);
}
