//! Random programs for tests of this and other crates (feature `testing`).
//!
//! [`random_program`] makes programs that verify and that [`evaluate`] can run: every symbol has a
//! small fixed value, and inputs whose names start with `cu` or `padded` are segment boundaries.
//! The same seed always gives the same program. An evaluation can still fail, when integers grow
//! past i32; two programs that mean the same then fail both.

mod generate;
mod operands;

pub use generate::random_program;

use crate::dim::Symbol;
use crate::eval::{EvalError, Evaluator, Outputs, Real, Sizes, Tensor};
use crate::graph::{Init, OutputKind, Param, Program, join_name};
use crate::ops::Op;
use crate::ty::DType;
use std::collections::BTreeMap;

/// The symbols of random programs: name, declared multiple, value in evaluations.
pub const SYMBOLS: [(&str, i64, usize); 6] =
    [("T", 1, 6), ("docs", 1, 2), ("D", 1, 4), ("K", 1, 2), ("V", 1, 3), ("H", 2, 4)];

/// Small pseudo-random numbers (xorshift64*, Vigna 2016), the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; seeds that differ give different sequences.
    pub fn new(seed: u64) -> Self {
        // Spreads small seeds over all bits; zero would stay zero for ever.
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut r = Random(mixed | 1);
        r.next();
        r
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from 0 to `n - 1`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 32) as usize).checked_rem(n).unwrap_or(0)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A number from -1 to 1.
    pub fn real(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64 * 2.0 - 1.0
    }
}

/// How often each op and each feature of the language appeared.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// By op name.
    pub ops: BTreeMap<&'static str, usize>,
    /// By feature, see [`Coverage::FEATURES`].
    pub features: BTreeMap<&'static str, usize>,
}

impl Coverage {
    /// Features besides the ops.
    pub const FEATURES: [&'static str; 19] = [
        "layer",
        "segments",
        "quotient",
        "region",
        "nested region",
        "one origin",
        "several origins",
        "name",
        "many results",
        "second result used",
        "host call",
        "each",
        "no decay",
        "constant init",
        "normal init",
        "uniform init",
        "log_uniform init",
        "loss",
        "named output",
    ];

    /// Counts a program.
    pub fn add(&mut self, p: &Program) {
        for f in &p.functions {
            for node in &f.nodes {
                *self.ops.entry(known(&node.op)).or_default() += 1;
                self.node(node);
                if node.operands.iter().any(|v| v.result > 0) {
                    self.feature("second result used");
                }
            }
            self.repeat("nested region", f.regions.iter().filter(|r| r.parent.is_some()).count());
            self.repeat("host call", f.inputs.iter().filter(|i| i.from.is_some()).count());
            for param in &f.params {
                self.param(param);
            }
            for o in &f.outputs {
                self.repeat("named output", usize::from(o.name.is_some()));
                self.repeat("loss", usize::from(matches!(o.kind, OutputKind::Loss { .. })));
            }
        }
    }

    /// The ops and features that have not appeared.
    pub fn missing(&self) -> Vec<&'static str> {
        let ops = Op::all().iter().map(|i| i.name).filter(|n| !self.ops.contains_key(n));
        let features = Self::FEATURES.into_iter().filter(|n| !self.features.contains_key(n));
        ops.chain(features).collect()
    }

    fn feature(&mut self, name: &'static str) {
        self.repeat(name, 1);
    }

    fn repeat(&mut self, name: &'static str, times: usize) {
        debug_assert!(Self::FEATURES.contains(&name));
        if times > 0 {
            *self.features.entry(name).or_default() += times;
        }
    }

    fn param(&mut self, p: &Param) {
        self.repeat("each", usize::from(!p.each.is_empty()));
        self.repeat("no decay", usize::from(!p.decay));
        self.feature(match p.init {
            Init::Constant(_) => "constant init",
            Init::Normal(_) => "normal init",
            Init::Uniform(..) => "uniform init",
            Init::LogUniform(..) => "log_uniform init",
        });
    }

    fn node(&mut self, node: &crate::graph::Node) {
        if let Op::Call { layer: Some(_), .. } = node.op {
            self.feature("layer");
        }
        self.repeat("name", usize::from(node.name.is_some()));
        self.repeat("region", usize::from(node.region.is_some()));
        self.repeat("many results", usize::from(node.tys.len() > 1));
        match node.origins.len() {
            0 => {}
            1 => self.feature("one origin"),
            _ => self.feature("several origins"),
        }
        for ty in &node.tys {
            self.repeat("segments", ty.dims.iter().filter(|d| !d.segments().is_empty()).count());
            let text = ty.to_string();
            self.repeat("quotient", usize::from(text.contains('/')));
        }
    }
}

/// The name of an op that the generator makes. The match is complete, so that a new op does not
/// compile before someone has come here; [`generate`] needs a rule for it too.
fn known(op: &Op) -> &'static str {
    match op {
        Op::Input { .. } | Op::Param { .. } | Op::Call { .. } => {}
        Op::Constant { .. } | Op::Iota { .. } => {}
        Op::Neg | Op::Exp | Op::Log | Op::Sqrt | Op::Rsqrt | Op::Recip => {}
        Op::Sigmoid | Op::Silu | Op::Softplus | Op::Gelu | Op::GeluTanh | Op::Tanh => {}
        Op::Erf | Op::Sin | Op::Cos | Op::Not | Op::Cast { .. } | Op::StopGradient => {}
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Rem | Op::Max | Op::Min => {}
        Op::Compare { .. } | Op::And | Op::Or | Op::Select => {}
        Op::Reshape { .. } | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Repeat { .. } => {}
        Op::Slice { .. } | Op::Pad { .. } | Op::Concat { .. } => {}
        Op::ReduceSum { .. } | Op::ReduceMax { .. } | Op::Contract { .. } => {}
        Op::GroupedContract { .. } | Op::GroupedOuter { .. } => {}
        Op::Gather | Op::ScatterAdd { .. } | Op::TopK { .. } => {}
        Op::RowValid { .. } | Op::SegmentShift { .. } | Op::CausalConv1d => {}
        Op::CausalConv1dInputGrad | Op::CausalConv1dWeightGrad { .. } => {}
        Op::GatedDeltaRule | Op::Attention { .. } => {}
        Op::GatedDeltaRuleGrad | Op::AttentionGrad { .. } => {}
        Op::AllReduce { .. } | Op::AllGather { .. } => {}
        Op::ReduceScatter { .. } | Op::AllToAll { .. } => {}
        Op::Shard { .. } | Op::Unshard { .. } => {}
    }
    op.name()
}

/// A tensor of small random values, the same for the same name and seed.
fn random_tensor<R: Real>(
    name: &str,
    dtype: DType,
    dims: Vec<usize>,
    seed: u64,
) -> Result<Tensor<R>, EvalError> {
    let mixed = name.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut rng = Random::new(mixed);
    let n = crate::eval::tensor::elements(&dims)?;
    // Boundaries of two segments in T rows: 3 with 2 valid ones, then 2 that are both valid.
    let boundaries = match name {
        _ if name.starts_with("cu") => Some(vec![0, 2, 4]),
        _ if name.starts_with("padded") => Some(vec![0, 3, 5]),
        _ => None,
    };
    if let Some(b) = boundaries {
        return Tensor::ints(dims, b);
    }
    match dtype {
        DType::I32 => Tensor::ints(dims, (0..n).map(|_| rng.below(6) as i64 - 1).collect()),
        DType::Bool => Tensor::bools(dims, (0..n).map(|_| rng.chance(50)).collect()),
        float => {
            let round = |v: f64| if float == DType::Bf16 { v.round_bf16() } else { v };
            let values = (0..n).map(|_| R::from_f64(round(rng.real()))).collect();
            Tensor::floats(float, dims, values)
        }
    }
}

/// Runs the main function of a random program, or of what passes have made of it, on random inputs
/// and parameters, which depend on their names and the seed only.
///
/// # Errors
/// See [`Evaluator::run`].
pub fn evaluate<R: Real>(p: &Program, seed: u64) -> Result<Outputs<R>, EvalError> {
    let mut sizes = Sizes::default();
    for (name, _, value) in SYMBOLS {
        sizes.set(&Symbol::new(name), value);
    }
    let main = p.main().ok_or_else(|| EvalError::new("the program is empty"))?;
    let inputs = main.inputs.iter().map(|i| {
        let dims = sizes.eval_all(&i.ty.dims)?;
        Ok((&*i.name, random_tensor(&i.name, i.ty.dtype, dims, seed)?))
    });
    let inputs: Vec<(&str, Tensor<R>)> = inputs.collect::<Result<_, EvalError>>()?;
    let known = sizes.clone();
    let mut provider = move |name: &str, param: &Param| {
        let name = join_name("param", name);
        random_tensor(&name, param.ty.dtype, known.eval_all(&param.ty.dims)?, seed)
    };
    let mut evaluator = Evaluator::new(p, &mut provider);
    for (name, _, value) in SYMBOLS {
        evaluator = evaluator.with_size(name, value);
    }
    evaluator.run_main(&inputs)
}
