//! What dumps call a cluster: families of formulas, from what it computes and from the ops around it,
//! after the choice. Nothing is decided by it, and no name of the spec is read.
//!
//! A cluster may hold parts of several families; its label then has them all, with `+` between. The
//! way back of a family has the same name: the function says which way it is.

use super::choose::Kernel;
use super::facts::{Facts, Role, at};
use super::set::Set;
use std::collections::BTreeSet;
use vlmc_ir::dim::Symbol;
use vlmc_ir::graph::Program;
use vlmc_ir::ops::{Class, Op};

/// Families, in the order in which labels have them, with what they are called for rows that
/// attention sees from both sides: pictures.
const NAMES: [(Family, &str, &str); 13] = [
    (Family::PreDelta, "gdn.pre_gated_delta_rule", "gdn.pre_gated_delta_rule"),
    (Family::Qkv, "attn.qkv_prep", "vision.rotary"),
    (Family::RotaryTables, "attn.rotary_tables", "vision.rotary_tables"),
    (Family::GatedNorm, "norm.gated_rms", "norm.gated_rms"),
    (Family::OutputGate, "attn.output_gate", "vision.output_gate"),
    (Family::Rms, "norm.residual_rms", "vision.rms_norm"),
    (Family::LayerNorm, "norm.residual_layer_norm", "vision.layer_norm"),
    (Family::Router, "moe.router", "moe.router"),
    (Family::Dispatch, "moe.dispatch", "moe.dispatch"),
    (Family::SharedGate, "moe.shared_gate", "moe.shared_gate"),
    (Family::Glu, "mlp.swiglu", "vision.bias_gelu"),
    (Family::CrossEntropy, "loss.cross_entropy", "loss.cross_entropy"),
    (Family::Interpolation, "embed.interpolation", "vision.position_interpolation"),
];

/// A family of formulas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Family {
    /// What a delta rule reads, and what becomes of its gradients.
    PreDelta,
    /// The same of attention.
    Qkv,
    /// Cosines and sines.
    RotaryTables,
    /// What a delta rule's result becomes, normalised and gated.
    GatedNorm,
    /// What attention's result becomes.
    OutputGate,
    /// A root mean square norm, with the sums before it.
    Rms,
    /// A norm that takes the mean away.
    LayerNorm,
    /// Probabilities of experts, the choice, its weights and counts.
    Router,
    /// Rows repeated for the experts that each goes to.
    Dispatch,
    /// A gate of one number a row.
    SharedGate,
    /// An activation, alone or times another value.
    Glu,
    /// Softmax and the one label of each row.
    CrossEntropy,
    /// Looked-up rows, weighted and summed.
    Interpolation,
}

/// Sizes of rows that attention of a program sees from both sides.
pub(super) fn both_sides(p: &Program) -> BTreeSet<Symbol> {
    let mut seen: [BTreeSet<Symbol>; 2] = Default::default();
    for f in &p.functions {
        for n in &f.nodes {
            let (Op::Attention { causal, .. } | Op::AttentionGrad { causal, .. }) = n.op else {
                continue;
            };
            let rows = n.operands.first().and_then(|q| f.ty(*q).dims.first());
            seen[usize::from(causal)].extend(rows.into_iter().flat_map(|d| d.size().symbols()));
        }
    }
    let [both, causal] = seen;
    both.difference(&causal).cloned().collect()
}

/// Which ops of a function belong to which family.
pub(super) struct Families<'p, 'f> {
    facts: &'p Facts<'f>,
    of: Vec<(Family, Set)>,
    both_sides: &'p BTreeSet<Symbol>,
}

impl<'p, 'f> Families<'p, 'f> {
    pub(super) fn new(facts: &'p Facts<'f>, both_sides: &'p BTreeSet<Symbol>) -> Self {
        let mut out = Families { facts, of: vec![], both_sides };
        out.around_cuts();
        // What stands at a sequence op has its name from there.
        let mut taken = Set::default();
        out.of.iter().for_each(|(_, ops)| taken.extend(ops));
        out.softmax(&taken);
        out.motifs(&taken);
        out
    }

    /// The name of a chosen cluster, of which only what its stores need counts.
    pub(super) fn label(&self, kernel: &Kernel) -> String {
        let facts = self.facts;
        let work = Set::of(kernel.ops.iter().filter(|i| !facts.param[*i]));
        let rows = work.iter().find_map(|i| facts.rows(i));
        let picture = rows.is_some_and(|d| {
            let symbols = d.size().symbols();
            !symbols.is_empty() && symbols.iter().all(|s| self.both_sides.contains(s))
        });
        let holds =
            |family: &Family| self.of.iter().any(|(f, ops)| f == family && ops.meets(&work));
        let names = NAMES.iter().filter(|(family, ..)| holds(family));
        let names: Vec<&str> =
            names.map(|(_, text, vision)| if picture { *vision } else { *text }).collect();
        if facts.rowless && self.is_adamw(kernel) {
            return "optim.adamw".to_string();
        }
        if names.is_empty() { self.plain(&work).to_string() } else { names.join("+") }
    }

    /// New weights and moments of a parameter, the weights by the root of a moment.
    fn is_adamw(&self, kernel: &Kernel) -> bool {
        kernel.stores.len() == 3 && kernel.ops.iter().any(|i| matches!(self.facts.op(i), Op::Sqrt))
    }

    fn plain(&self, work: &Set) -> &'static str {
        let any = |test: &dyn Fn(usize) -> bool| work.iter().any(test);
        if any(&|i| self.facts.sums_rows(i)) {
            "row.sum"
        } else if any(&|i| self.facts.op(i).info().class == Class::Reduction) {
            "row.reduce"
        } else if any(&|i| self.facts.op(i).info().class == Class::Elementwise) {
            "row.elementwise"
        } else {
            "row.view"
        }
    }

    fn add(&mut self, family: Family, ops: Set) {
        match self.of.iter_mut().find(|(f, _)| *f == family) {
            Some((_, known)) => known.extend(&ops),
            None => self.of.push((family, ops)),
        }
    }

    /// Row ops that some values are made of, back to the cuts.
    fn up(&self, from: impl IntoIterator<Item = usize>) -> Set {
        let facts = self.facts;
        let (mut out, mut open) = (Set::default(), Vec::from_iter(from));
        while let Some(i) = open.pop() {
            if facts.role[i] == Role::Row && !facts.param[i] && !out.contains(i) {
                out.insert(i);
                open.extend(facts.f.nodes[i].operands.iter().map(|v| at(*v)));
            }
        }
        out
    }

    /// Row ops that are made of a node, on to the cuts.
    fn down(&self, from: usize) -> Set {
        let facts = self.facts;
        let (mut out, mut reached) = (Set::default(), Set::of([from]));
        for (i, node) in facts.f.nodes.iter().enumerate().skip(from + 1) {
            let reads = node.operands.iter().any(|v| reached.contains(at(*v)));
            if !reads || !facts.live[i] || facts.role[i] == Role::Cut {
                continue;
            }
            reached.insert(i);
            if facts.role[i] == Role::Row && !facts.param[i] {
                out.insert(i);
            }
        }
        out
    }

    /// What is made of a node, with all that goes into the same results.
    fn around(&self, from: usize) -> Set {
        let down = self.down(from);
        self.up(down.iter())
    }

    /// What is made of the result of the cut that a gradient comes from, likewise.
    fn of_gradient(&self, gradient: Vec<usize>) -> Set {
        let facts = self.facts;
        let mut out = self.up(gradient);
        let reads = |i: usize| facts.f.nodes[i].operands.iter().map(|v| facts.root(at(*v)));
        let cuts = out.iter().flat_map(reads).filter(|a| facts.role[*a] == Role::Cut);
        for cut in cuts.collect::<BTreeSet<usize>>() {
            out.extend(&self.around(cut));
        }
        out
    }

    fn around_cuts(&mut self) {
        let facts = self.facts;
        for (i, node) in facts.f.nodes.iter().enumerate().filter(|(i, _)| facts.live[*i]) {
            let operands = |some: std::ops::Range<usize>| {
                some.filter_map(|n| node.operands.get(n)).map(|v| at(*v)).collect::<Vec<usize>>()
            };
            match &node.op {
                Op::GatedDeltaRule => {
                    self.add(Family::PreDelta, self.up(operands(0..5)));
                    self.add(Family::GatedNorm, self.around(i));
                }
                Op::GatedDeltaRuleGrad => {
                    self.add(Family::PreDelta, self.up(operands(0..5)));
                    self.add(Family::GatedNorm, self.of_gradient(operands(5..6)));
                    self.add(Family::PreDelta, self.around(i));
                }
                Op::Attention { .. } => {
                    self.add(Family::Qkv, self.up(operands(0..3)));
                    self.add(Family::OutputGate, self.around(i));
                }
                Op::AttentionGrad { .. } => {
                    self.add(Family::Qkv, self.up(operands(0..3)));
                    self.add(Family::OutputGate, self.of_gradient(operands(5..6)));
                    self.add(Family::Qkv, self.around(i));
                }
                Op::TopK { .. } => {
                    self.add(Family::Router, self.up(operands(0..1)));
                    self.add(Family::Router, self.down(i));
                }
                Op::GroupedContract { .. } | Op::GroupedOuter { .. } => {
                    let rows = self.up(operands(0..2));
                    let repeat = |i: &usize| matches!(facts.op(*i), Op::Repeat { .. });
                    self.add(Family::Dispatch, Set::of(rows.iter().filter(repeat)));
                }
                // Rows that are weighted and summed, or what becomes of their gradients; rows that
                // are used as they are make no family.
                Op::Gather => {
                    let down = self.down(i);
                    if self.any(&down, &|op| matches!(op, Op::ReduceSum { .. })) {
                        self.add(Family::Interpolation, down);
                    }
                }
                Op::ScatterAdd { .. } => {
                    let up = self.up(operands(0..node.operands.len()));
                    if self.any(&up, &|op| matches!(op, Op::Mul)) {
                        self.add(Family::Interpolation, up);
                    }
                }
                _ => {}
            }
        }
    }

    fn any(&self, ops: &Set, test: &dyn Fn(&Op) -> bool) -> bool {
        ops.iter().any(|i| test(self.facts.op(i)))
    }

    /// Softmaxes, with all that goes into the same results: a router's where experts are chosen or
    /// were, a cross entropy's where one label of each row is looked for.
    fn softmax(&mut self, taken: &Set) {
        let facts = self.facts;
        let f = facts.f;
        let is = |i: usize, test: &dyn Fn(&Op) -> bool| test(facts.op(i));
        let operand = |i: usize, n: usize| f.nodes[i].operands.get(n).map(|v| at(*v));
        for e in 0..f.nodes.len() {
            let shifted = is(e, &|op| matches!(op, Op::Exp))
                && operand(e, 0).is_some_and(|s| {
                    let max = |i: usize| is(i, &|op| matches!(op, Op::ReduceMax { .. }));
                    is(s, &|op| matches!(op, Op::Sub)) && self.up([s]).iter().any(max)
                });
            if !shifted || !facts.live[e] || taken.contains(e) {
                continue;
            }
            let mut down = self.down(e);
            down.insert(e);
            let all = self.up(down.iter());
            let labels = |rank: usize| {
                all.iter().any(|i| {
                    let ints = |v: usize| self.whole_numbers(v) == Some(rank);
                    is(i, &|op| matches!(op, Op::Compare { .. }))
                        && f.nodes[i].operands.iter().any(|v| ints(at(*v)))
                })
            };
            let logs = all.iter().any(|i| is(i, &|op| matches!(op, Op::Log)));
            let chooses = f.nodes.iter().any(|n| matches!(n.op, Op::TopK { .. })) || labels(2);
            if chooses {
                self.add(Family::Router, all);
            } else if logs || labels(1) {
                self.add(Family::CrossEntropy, all);
            }
        }
    }

    /// The rank of the whole numbers that a value shows through views: 1 is one a row.
    fn whole_numbers(&self, mut v: usize) -> Option<usize> {
        let f = self.facts.f;
        loop {
            match (&f.nodes[v].op, f.nodes[v].operands.first()) {
                (Op::Broadcast { .. } | Op::Reshape { .. } | Op::StopGradient, Some(x)) => {
                    v = at(*x);
                }
                (Op::Iota { .. } | Op::Constant { .. }, _) => return None,
                _ => break,
            }
        }
        let ty = f.nodes[v].tys.first()?;
        (ty.dtype == vlmc_ir::ty::DType::I32).then(|| {
            let one = |d: &&vlmc_ir::dim::Dim| d.size().is(1);
            ty.rank() - ty.dims.iter().filter(one).count()
        })
    }

    /// Formulas that need no cut to be known by.
    fn motifs(&mut self, taken: &Set) {
        let facts = self.facts;
        for i in (0..facts.f.nodes.len()).filter(|i| facts.live[*i]) {
            if facts.role[i] != Role::Row || facts.param[i] || taken.contains(i) {
                continue;
            }
            match facts.op(i) {
                Op::Rsqrt => {
                    let up = self.up([i]);
                    let sums = up.iter().filter(|a| {
                        matches!(facts.op(*a), Op::ReduceSum { .. }) && !facts.sums_rows(*a)
                    });
                    let sums: Vec<usize> = sums.collect();
                    // A mean is taken away before squares are summed.
                    let between = |d: &usize| {
                        let after = |s: &usize| facts.before[*d].contains(*s);
                        let before = |s: &usize| facts.before[*s].contains(*d);
                        matches!(facts.op(*d), Op::Sub)
                            && sums.iter().any(after)
                            && sums.iter().any(before)
                    };
                    let centred = up.iter().any(|d| between(&d));
                    let family = if centred { Family::LayerNorm } else { Family::Rms };
                    if !sums.is_empty() {
                        self.add(family, Set::of([i]));
                    }
                }
                Op::Silu | Op::Gelu | Op::GeluTanh | Op::Tanh | Op::Erf => {
                    self.add(Family::Glu, Set::of([i]));
                }
                Op::Sigmoid => {
                    let lanes = facts.ty(i).dims.last().is_some_and(|d| d.size().is(1));
                    let family = if lanes && facts.ty(i).rank() > 1 {
                        Family::SharedGate
                    } else {
                        Family::Glu
                    };
                    self.add(family, Set::of([i]));
                }
                Op::Cos | Op::Sin => self.add(Family::RotaryTables, Set::of([i])),
                _ => {}
            }
        }
    }
}
