//! One block in many spellings: convolution, SiLU, split, l2 norm, decay and write strength, then the
//! delta rule.

use vlmc_ir::dim::{Dim, Symbol};
use vlmc_ir::graph::{Function, Program, SymbolDecl, Value};
use vlmc_ir::ops::{Op, Scalar};
use vlmc_ir::text::print;
use vlmc_ir::ty::{DType, Ty};
use vlmc_ir::verify::verify;

/// How the block is written.
#[derive(Clone, Debug)]
pub struct Spelling {
    pub name: &'static str,
    /// `x / (1 + e^-x)` and so on instead of named ops.
    pub long: bool,
    /// `x / sqrt(..)` instead of `x * rsqrt(..)`.
    pub divide: bool,
    /// Slices before the convolution.
    pub split_first: bool,
    /// Heads repeated: 0 never, 1 before the norm, 2 after it.
    pub repeat: u8,
    /// Each head on its own, then concatenated.
    pub per_head: bool,
    /// Casts to the type that is there.
    pub casts: bool,
    /// Products with their operands the other way round, and reductions that keep their dim.
    pub turned: bool,
}

pub const PLAIN: Spelling = Spelling {
    name: "named",
    long: false,
    divide: false,
    split_first: false,
    repeat: 0,
    per_head: false,
    casts: false,
    turned: false,
};

pub fn spellings() -> Vec<Spelling> {
    vec![
        PLAIN,
        Spelling { name: "long-hand", long: true, ..PLAIN },
        Spelling { name: "division by a root", divide: true, ..PLAIN },
        Spelling { name: "split first", split_first: true, ..PLAIN },
        Spelling { name: "casts", casts: true, ..PLAIN },
        Spelling { name: "turned", turned: true, ..PLAIN },
        Spelling { name: "repeat after the norm", repeat: 2, ..PLAIN },
        Spelling { name: "repeat before the norm", repeat: 1, ..PLAIN },
        Spelling { name: "head by head", per_head: true, ..PLAIN },
        Spelling {
            name: "head by head, repeat, long-hand, division",
            per_head: true,
            repeat: 1,
            divide: true,
            long: true,
            turned: true,
            ..PLAIN
        },
    ]
}

/// Sizes: key heads, value heads, width of a key, width of a value, taps.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub hk: i64,
    pub hv: i64,
    pub dk: i64,
    pub dv: i64,
    pub taps: i64,
}

pub const SMALL: Sizes = Sizes { hk: 2, hv: 4, dk: 3, dv: 5, taps: 4 };

struct Builder {
    f: Function,
    rows: Dim,
    s: Spelling,
}

impl Builder {
    fn op(&mut self, op: Op, operands: &[Value]) -> Value {
        self.f.push(op, operands).unwrap_or_else(|e| panic!("{}: {e}", self.s.name)).into()
    }

    fn number(&mut self, value: f64, like: Value) -> Value {
        let ty = self.f.ty(like).clone();
        // As the front end does it: a scalar, then a broadcast.
        let one = Op::Constant { value: Scalar(value), dtype: ty.dtype, shape: vec![] };
        let one = self.op(one, &[]);
        self.op(Op::Broadcast { shape: ty.dims, dims: vec![] }, &[one])
    }

    fn mul(&mut self, a: Value, b: Value) -> Value {
        if self.s.turned { self.op(Op::Mul, &[b, a]) } else { self.op(Op::Mul, &[a, b]) }
    }

    fn one_plus_exp(&mut self, x: Value) -> Value {
        let e = self.op(Op::Exp, &[x]);
        let one = self.number(1.0, e);
        self.op(Op::Add, &[one, e])
    }

    fn sigmoid(&mut self, x: Value) -> Value {
        if !self.s.long {
            return self.op(Op::Sigmoid, &[x]);
        }
        let minus = self.op(Op::Neg, &[x]);
        let sum = self.one_plus_exp(minus);
        let one = self.number(1.0, sum);
        self.op(Op::Div, &[one, sum])
    }

    fn silu(&mut self, x: Value) -> Value {
        if self.s.long {
            let minus = self.op(Op::Neg, &[x]);
            let sum = self.one_plus_exp(minus);
            return self.op(Op::Div, &[x, sum]);
        }
        if self.s.turned {
            let s = self.op(Op::Sigmoid, &[x]);
            return self.mul(x, s);
        }
        self.op(Op::Silu, &[x])
    }

    fn softplus(&mut self, x: Value) -> Value {
        if !self.s.long {
            return self.op(Op::Softplus, &[x]);
        }
        let sum = self.one_plus_exp(x);
        self.op(Op::Log, &[sum])
    }

    fn slice(&mut self, x: Value, axis: u32, start: i64, size: i64) -> Value {
        self.op(Op::Slice { axis, start: start.into(), size: size.into() }, &[x])
    }

    /// `x * rsqrt(sum x^2 + eps)` over the last axis of `[T, H, d]`.
    fn norm(&mut self, x: Value) -> Value {
        let ty = self.f.ty(x).clone();
        let square = self.mul(x, x);
        let mut sum = self.op(Op::ReduceSum { axes: vec![2] }, &[square]);
        let mut dims = vec![0, 1];
        if self.s.turned {
            let shape = vec![ty.dims[0].clone(), ty.dims[1].clone(), Dim::from(1)];
            sum = self.op(Op::Reshape { shape }, &[sum]);
            dims = vec![0, 1, 2];
        }
        let eps = self.number(1e-3, sum);
        let sum = self.op(Op::Add, &[sum, eps]);
        let op = if self.s.divide { Op::Sqrt } else { Op::Rsqrt };
        let root = self.op(op, &[sum]);
        let root = self.op(Op::Broadcast { shape: ty.dims, dims }, &[root]);
        if self.s.divide { self.op(Op::Div, &[x, root]) } else { self.mul(x, root) }
    }

    fn heads(&mut self, x: Value, heads: i64, width: i64) -> Value {
        let shape = vec![self.rows.clone(), heads.into(), width.into()];
        self.op(Op::Reshape { shape }, &[x])
    }
}

/// Convolution, SiLU, split, l2 norm, decay and write strength, then the delta rule.
pub fn block(s: &Spelling, z: Sizes, rows: Dim) -> Program {
    let (k, v) = (z.hk * z.dk, z.hv * z.dv);
    let channels = 2 * k + v;
    let mut b = Builder { f: Function::new("main"), rows: rows.clone(), s: s.clone() };
    let f32s = |dims: Vec<Dim>| Ty::new(DType::F32, dims);
    let x = b.f.add_input("x", f32s(vec![rows.clone(), channels.into()]), None);
    let w = b.f.add_input("w", f32s(vec![channels.into(), z.taps.into()]), None);
    let a = b.f.add_input("a", f32s(vec![rows.clone(), z.hv.into()]), None);
    let beta = b.f.add_input("b", f32s(vec![rows, z.hv.into()]), None);
    let decay = b.f.add_input("A_log", f32s(vec![z.hv.into()]), None);
    let bounds = Ty::new(DType::I32, vec![Dim::from(3)]);
    let cu = b.f.add_input("cu", bounds.clone(), None);
    let padded = b.f.add_input("padded", bounds, None);
    let whole = (!s.split_first).then(|| {
        let c = b.op(Op::CausalConv1d, &[x, w, cu, padded]);
        b.silu(c)
    });
    let part = |b: &mut Builder, start: i64, size: i64| match whole {
        Some(mixed) => b.slice(mixed, 1, start, size),
        None => {
            let (x, w) = (b.slice(x, 1, start, size), b.slice(w, 0, start, size));
            let c = b.op(Op::CausalConv1d, &[x, w, cu, padded]);
            b.silu(c)
        }
    };
    let one = |b: &mut Builder, u: Value, heads: i64, scale: f64| {
        let mut u = b.heads(u, heads, z.dk);
        let repeat = Op::Repeat { axis: 1, times: (z.hv / z.hk).into() };
        if b.s.repeat == 1 {
            u = b.op(repeat.clone(), &[u]);
        }
        if b.s.casts {
            u = b.op(Op::Cast { dtype: DType::F32 }, &[u]);
        }
        let mut n = b.norm(u);
        if scale != 1.0 {
            let factor = b.number(scale, n);
            n = b.mul(n, factor);
        }
        if b.s.repeat == 2 { b.op(repeat, &[n]) } else { n }
    };
    let mut keys = vec![];
    for (start, scale) in [(0, 0.5), (k, 1.0)] {
        let u = part(&mut b, start, k);
        keys.push(if s.per_head {
            let heads: Vec<Value> = (0..z.hk)
                .map(|h| {
                    let u = b.slice(u, 1, h * z.dk, z.dk);
                    one(&mut b, u, 1, scale)
                })
                .collect();
            b.op(Op::Concat { axis: 1 }, &heads)
        } else {
            one(&mut b, u, z.hk, scale)
        });
    }
    let values = part(&mut b, 2 * k, v);
    let values = b.heads(values, z.hv, z.dv);
    let beta = b.sigmoid(beta);
    let soft = b.softplus(a);
    let rate = b.op(Op::Exp, &[decay]);
    let rate = b.op(Op::Neg, &[rate]);
    let shape = b.f.ty(soft).dims.clone();
    let rate = b.op(Op::Broadcast { shape, dims: vec![1] }, &[rate]);
    let g = b.mul(rate, soft);
    let rule = b.f.push(Op::GatedDeltaRule, &[keys[0], keys[1], values, g, beta, cu, padded]);
    b.f.add_output(Some("y"), rule.unwrap().into());
    let program = Program { name: "spelling".into(), functions: vec![b.f], ..Program::default() };
    let p = Program {
        symbols: vec![SymbolDecl { symbol: Symbol::new("T"), multiple_of: 1 }],
        ..program
    };
    assert!(verify(&p).is_empty(), "{}: {}", s.name, print::program(&p));
    p
}

/// Gradients of every float input.
pub fn with_gradients(p: &Program) -> Program {
    let inputs = ["x", "w", "a", "b", "A_log"].map(str::to_string).to_vec();
    let options =
        vlmc_passes::autodiff::Options { seeds: vlmc_passes::autodiff::Seeds::Outputs, inputs };
    vlmc_passes::autodiff::differentiate(p, &options).unwrap()
}

/// Random inputs by the names of the block, for 8 rows: two documents, one of one row, with padding
/// between and behind.
pub fn inputs(p: &Program, rng: &mut vlmc_ir::testing::Random) -> super::Named<f64> {
    let main = p.functions.last().unwrap();
    let inputs = main.inputs.iter().map(|input| {
        let t = match &*input.name {
            "cu" => super::ints(&[0, 1, 4]),
            "padded" => super::ints(&[0, 2, 7]),
            _ => {
                let dims = input.ty.dims.iter().map(|d| d.size().eval(&|_| Some(8)).unwrap());
                super::floats(rng, &dims.map(|d| d as usize).collect::<Vec<_>>())
            }
        };
        (input.name.to_string(), t)
    });
    inputs.collect()
}
