//! What each part of a model costs: operations, milliseconds by the cost model, bytes that the
//! backward needs, parameters.
//!
//! A function is counted once and its counts are added for each call. The model of time: products,
//! attention and the delta rule run at the device's rates, rows chosen by data and everything
//! elementwise at the speed of its memory. Elementwise work is taken to be fused as far as can be:
//! what comes from a product is read once by all that is elementwise, and what goes to one is
//! written once. Attention is divided by the documents that fit in a pack, taken as equally long,
//! and halved when it is causal.

use super::device::Device;
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use vlmc_ir::dim::Poly;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, Node, Program, Value};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::{DType, Ty};
use vlmc_passes::partition::parts::Parts;
use vlmc_passes::partition::placement::Content;

/// What mixes tokens in a part, with the sizes that an exchange between ranks depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mixer {
    /// Attention.
    Attention {
        /// Elements of a row of the queries.
        query: f64,
        /// Elements of a row of the keys and values together.
        kv: f64,
        /// Key heads.
        kv_heads: u64,
    },
    /// The gated delta rule.
    DeltaRule {
        /// Elements of a row of all that goes in.
        input: f64,
        /// Elements of a row of the result.
        output: f64,
        /// Key heads.
        key_heads: u64,
        /// Elements of the affine map of a state: `M [dk, dk]` and `U [dk, dv]` of each value head.
        state: f64,
    },
    /// Rows sent to experts.
    Experts {
        /// Elements of all rows that are sent.
        elements: f64,
    },
}

/// What a part costs for a whole microbatch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cost {
    /// Floating-point operations, forward and backward.
    pub flops: [u64; 2],
    /// Milliseconds, forward and backward.
    pub ms: [f64; 2],
    /// Of them, milliseconds of experts.
    pub experts_ms: [f64; 2],
    /// Of the backward, milliseconds of gradients of experts' weights.
    pub experts_weights_ms: f64,
    /// Of the backward, milliseconds of other products; half of them are for weights.
    pub products_ms: f64,
    /// Bytes that the forward keeps for the backward.
    pub saved: f64,
    /// Bytes that a run needs beside what it takes and gives.
    pub workspace: f64,
    /// What mixes tokens or sends rows, with how often.
    pub mixers: Vec<Mixer>,
    /// Names of its parameters.
    pub params: Vec<String>,
}

/// A parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Size {
    /// Elements.
    pub elements: u64,
    /// Whether it is of experts, which ranks share.
    pub of_experts: bool,
}

/// Costs of all parts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Costs {
    /// By part.
    pub parts: IndexMap<Content, Cost>,
    /// Bytes of what one layer hands to the next.
    pub boundary: f64,
    /// Numbers of experts that layers have.
    pub experts: Vec<u64>,
    /// Bytes of an element of the model's dtype.
    pub element: u64,
    /// Sizes of parameters, by full name.
    pub sizes: FxHashMap<String, Size>,
}

impl Costs {
    /// The cost of a part; nothing for one that the program does not have as such.
    pub fn of(&self, content: Content) -> Cost {
        self.parts.get(&content).cloned().unwrap_or_default()
    }
}

/// Counts a model: its forward program, and the joint program made from it.
pub fn costs(
    forward: &Program,
    joint: &Program,
    sizes: &Sizes,
    dtype: DType,
    device: &Device,
) -> Costs {
    let counter = Counter { sizes, device };
    let parts = Parts::of(joint);
    let functions = counter.functions(joint);
    let mut out = Costs { element: dtype.bytes(), ..Costs::default() };
    if let Some(main) = joint.main() {
        counter.main(main, &parts, &functions, &mut out);
    }
    let forward_parts = Parts::of(forward);
    counter.parameters(forward, &forward_parts, &mut out);
    counter.mixers(forward, &forward_parts, &mut out);
    out
}

/// Numbers of experts in a program's layers, each once.
pub fn experts(program: &Program) -> Vec<u64> {
    let mut out = vec![];
    for f in &program.functions {
        for n in f.nodes.iter().filter(|n| matches!(n.op, Op::GroupedContract { .. })) {
            let count = n.operands.get(1).and_then(|w| f.ty(*w).dims.first()?.size().as_constant());
            if let Some(count) = count.and_then(|c| u64::try_from(c).ok())
                && !out.contains(&count)
            {
                out.push(count);
            }
        }
    }
    out.sort_unstable();
    out
}

struct Counter<'a> {
    sizes: &'a Sizes,
    device: &'a Device,
}

/// Counts of a run of a function, callees included.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    flops: u64,
    ms: f64,
    experts_ms: f64,
    experts_weights_ms: f64,
    products_ms: f64,
    workspace: f64,
}

impl Run {
    fn add(&mut self, other: Run) {
        self.flops = self.flops.saturating_add(other.flops);
        self.ms += other.ms;
        self.experts_ms += other.experts_ms;
        self.experts_weights_ms += other.experts_weights_ms;
        self.products_ms += other.products_ms;
        self.workspace = self.workspace.max(other.workspace);
    }
}

impl Counter<'_> {
    fn number(&self, size: &Poly) -> f64 {
        let bind = |s: &_| self.sizes.get(s).and_then(|v| i64::try_from(v).ok());
        size.eval(&bind).map_or(0.0, |v| v as f64)
    }

    fn elements(&self, ty: &Ty) -> f64 {
        ty.dims.iter().map(|d| self.number(d.size())).product()
    }

    fn bytes(&self, ty: &Ty) -> f64 {
        self.elements(ty) * ty.dtype.bytes() as f64
    }

    fn flops(&self, f: &Function, n: &Node) -> f64 {
        let operands: Vec<Ty> = n.operands.iter().map(|v| f.ty(*v).clone()).collect();
        self.number(&n.op.flops(&operands, &n.tys))
    }

    /// Runs of all functions but main.
    fn functions(&self, p: &Program) -> FxHashMap<String, Run> {
        let mut out: FxHashMap<String, Run> = FxHashMap::default();
        let callees = p.functions.len().saturating_sub(1);
        for f in &p.functions[..callees] {
            let mut run = Run { ms: self.light_ms(f), ..Run::default() };
            let backward = f.name.ends_with(".bwd");
            for n in &f.nodes {
                run.add(self.node(f, n, backward, &out));
            }
            run.workspace += self.workspace(f);
            out.insert(f.name.clone(), run);
        }
        out
    }

    /// The run of a node: of a callee, or by its operations; elementwise time is counted apart.
    fn node(&self, f: &Function, n: &Node, backward: bool, of: &FxHashMap<String, Run>) -> Run {
        if let Op::Call { callee, .. } = &n.op {
            return of.get(callee.as_str()).copied().unwrap_or_default();
        }
        let flops = self.flops(f, n);
        let ms = if heavy(&n.op) { self.heavy_ms(f, n, flops, backward) } else { 0.0 };
        let of = |is: bool| if is { ms } else { 0.0 };
        let weights = matches!(n.op, Op::GroupedOuter { .. });
        Run {
            flops: flops as u64,
            ms,
            experts_ms: of(weights || matches!(n.op, Op::GroupedContract { .. })),
            experts_weights_ms: of(weights),
            products_ms: of(matches!(n.op, Op::Contract { .. })),
            workspace: 0.0,
        }
    }

    /// Milliseconds of what is no elementwise work.
    fn heavy_ms(&self, f: &Function, n: &Node, flops: f64, backward: bool) -> f64 {
        let d = self.device;
        let operands = n.operands.iter().map(|v| self.bytes(f.ty(*v)));
        let moved: f64 = operands.chain(n.tys.iter().map(|t| self.bytes(t))).sum();
        let at = |rate: f64, flops: f64| flops / rate / 1e9;
        let way = usize::from(backward);
        let ms = match &n.op {
            Op::Contract { .. } => at(d.product_tflops, flops).max(d.memory_ms(moved)),
            Op::GroupedContract { .. } | Op::GroupedOuter { .. } => {
                at(d.grouped_product_tflops[way], flops).max(d.memory_ms(moved))
            }
            Op::Attention { causal, .. } => {
                at(d.attention_tflops[0], self.seen(f, n, 3, flops, *causal))
            }
            Op::AttentionGrad { causal, .. } => {
                at(d.attention_tflops[1], self.seen(f, n, 6, flops, *causal))
            }
            Op::GatedDeltaRule => at(d.delta_rule_tflops[0], flops),
            Op::GatedDeltaRuleGrad => at(d.delta_rule_tflops[1], flops),
            // Rows are read and written once; a table is not read whole.
            _ => d.memory_ms(2.0 * n.tys.iter().map(|t| self.bytes(t)).sum::<f64>()),
        };
        ms + d.launch_us / 1e3
    }

    /// Operations of attention on scores that are not masked: documents do not see each other.
    fn seen(&self, f: &Function, n: &Node, boundaries: usize, flops: f64, causal: bool) -> f64 {
        let entries = n.operands.get(boundaries).map_or(2.0, |v| self.elements(f.ty(*v)));
        let documents = (entries - 1.0).max(1.0);
        flops / documents * if causal { 0.5 } else { 1.0 }
    }

    /// Milliseconds of elementwise work: reads of what it takes and writes of what leaves it.
    fn light_ms(&self, f: &Function) -> f64 {
        let roots = roots(f);
        let root = |v: &Value| roots.get(v).copied().unwrap_or(*v);
        let (mut reads, mut writes) = (FxHashSet::default(), FxHashSet::default());
        let made_light = |v: Value| light(&f.node(v.node).op);
        for n in &f.nodes {
            if matches!(n.op.info().class, Class::View) {
                continue;
            }
            for v in n.operands.iter().map(root) {
                match (light(&n.op), made_light(v)) {
                    (true, false) if n.op.info().class != Class::Source => _ = reads.insert(v),
                    (false, true) => _ = writes.insert(v),
                    _ => {}
                }
            }
        }
        writes.extend(f.output_values().map(|v| root(&v)).filter(|v| made_light(*v)));
        let source = |v: &Value| f.node(v.node).op.info().class == Class::Source;
        // Sums of floats depend on their order.
        let mut moved: Vec<Value> = reads.into_iter().chain(writes.iter().copied()).collect();
        moved.retain(|v| !source(v));
        moved.sort_unstable();
        let bytes: f64 = moved.iter().map(|v| self.bytes(f.ty(*v))).sum();
        self.device.memory_ms(bytes) + writes.len() as f64 * self.device.launch_us / 1e3
    }

    /// Most bytes of values inside a function that are in memory at once.
    fn workspace(&self, f: &Function) -> f64 {
        let roots = roots(f);
        let root = |v: &Value| roots.get(v).copied().unwrap_or(*v);
        let stored = |v: Value| !matches!(f.node(v.node).op, Op::Input { .. } | Op::Param { .. });
        let kept: FxHashSet<Value> = f.output_values().map(|v| root(&v)).collect();
        let mut last: FxHashMap<Value, usize> = FxHashMap::default();
        for (i, n) in f.nodes.iter().enumerate() {
            if heavy(&n.op) || matches!(n.op, Op::Call { .. }) {
                n.operands.iter().map(root).for_each(|v| _ = last.insert(v, i));
            }
            for result in 0..n.tys.len() as u32 {
                let v = Value { node: vlmc_ir::graph::NodeId(i as u32), result };
                if heavy(&n.op) {
                    last.entry(v).or_insert(i);
                }
            }
        }
        // Light users of a product's result keep it until they run.
        for (i, n) in f.nodes.iter().enumerate() {
            for v in n.operands.iter().map(root) {
                if let Some(at) = last.get_mut(&v) {
                    *at = (*at).max(i);
                }
            }
        }
        let mut ends: Vec<f64> = vec![0.0; f.nodes.len() + 1];
        let (mut now, mut most) = (0.0f64, 0.0f64);
        let mut spans: Vec<(usize, usize, f64)> = last
            .iter()
            .filter(|(v, _)| stored(**v) && !kept.contains(v))
            .map(|(v, end)| (v.node.0 as usize, *end, self.bytes(f.ty(*v))))
            .collect();
        spans.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
        let mut next = spans.iter().peekable();
        for i in 0..f.nodes.len() {
            while let Some((_, end, bytes)) = next.next_if(|s| s.0 == i) {
                now += bytes;
                ends[*end] += bytes;
            }
            most = most.max(now);
            now -= ends[i];
        }
        most
    }

    fn main(
        &self,
        main: &Function,
        parts: &Parts,
        functions: &FxHashMap<String, Run>,
        out: &mut Costs,
    ) {
        let mut kept: FxHashSet<Value> = FxHashSet::default();
        for (i, n) in main.nodes.iter().enumerate() {
            let backward = parts.backward[i];
            if let Some(content) = parts.nodes[i] {
                let run = self.node(main, n, backward, functions);
                let cost = out.parts.entry(content).or_default();
                let way = usize::from(backward);
                cost.flops[way] = cost.flops[way].saturating_add(run.flops);
                cost.ms[way] += run.ms;
                cost.experts_ms[way] += run.experts_ms;
                if backward {
                    cost.experts_weights_ms += run.experts_weights_ms;
                    cost.products_ms += run.products_ms;
                }
                cost.workspace = cost.workspace.max(run.workspace);
                if let (Content::Layer(_), false, Some(ty)) = (content, backward, n.tys.first()) {
                    out.boundary = out.boundary.max(self.bytes(ty));
                }
            }
            if backward {
                kept.extend(n.operands.iter().filter(|v| !parts.backward[v.node.0 as usize]));
            }
        }
        let mut kept: Vec<Value> = kept.into_iter().collect();
        kept.sort_unstable();
        for v in kept {
            let made = main.node(v.node);
            let held = matches!(made.op, Op::Param { .. } | Op::Input { .. });
            if let Some(content) = parts.nodes[v.node.0 as usize].filter(|_| !held) {
                out.parts.entry(content).or_default().saved += self.bytes(main.ty(v));
            }
        }
        out.parts.sort_unstable_keys();
    }

    fn parameters(&self, forward: &Program, parts: &Parts, out: &mut Costs) {
        let of_experts = expert_params(forward);
        for (name, p) in forward.parameters() {
            let size = Size {
                elements: self.elements(&p.ty) as u64,
                of_experts: of_experts.contains(&name),
            };
            out.sizes.insert(name, size);
        }
        for (content, names) in &parts.parameters {
            out.parts.entry(*content).or_default().params = names.iter().cloned().collect();
        }
        out.experts = experts(forward);
    }

    fn mixers(&self, forward: &Program, parts: &Parts, out: &mut Costs) {
        let mut of: FxHashMap<&str, Vec<Mixer>> = FxHashMap::default();
        for f in &forward.functions {
            let mut mixers = vec![];
            let mut sent = false;
            for n in &f.nodes {
                let row = |i: usize| n.operands.get(i).map_or(0.0, |v| self.row(f.ty(*v)));
                let dim = |i: usize, d: usize| {
                    n.operands
                        .get(i)
                        .and_then(|v| f.ty(*v).dims.get(d))
                        .map_or(0.0, |d| self.number(d.size()))
                };
                match &n.op {
                    Op::Attention { .. } => mixers.push(Mixer::Attention {
                        query: row(0),
                        kv: row(1) + row(2),
                        kv_heads: dim(1, 1) as u64,
                    }),
                    Op::GatedDeltaRule => mixers.push(Mixer::DeltaRule {
                        input: (0..5).map(row).sum(),
                        output: row(2),
                        key_heads: dim(1, 1) as u64,
                        state: dim(2, 1) * dim(1, 2) * (dim(1, 2) + dim(2, 2)),
                    }),
                    // All products of a block of experts work on the same rows.
                    Op::GroupedContract { .. } if !sent => {
                        sent = true;
                        let elements = n.operands.first().map_or(0.0, |v| self.elements(f.ty(*v)));
                        mixers.push(Mixer::Experts { elements });
                    }
                    Op::Call { callee, .. } => {
                        mixers.extend(of.get(callee.as_str()).into_iter().flatten().copied());
                    }
                    _ => {}
                }
            }
            of.insert(&f.name, mixers);
        }
        let Some(main) = forward.main() else { return };
        for (i, n) in main.nodes.iter().enumerate() {
            if let (Some(content), Op::Call { callee, .. }) = (parts.nodes[i], &n.op) {
                let mixers = of.get(callee.as_str()).into_iter().flatten().copied();
                out.parts.entry(content).or_default().mixers.extend(mixers);
            }
        }
    }

    /// Elements of a row: all but the first dim.
    fn row(&self, ty: &Ty) -> f64 {
        ty.dims.iter().skip(1).map(|d| self.number(d.size())).product()
    }
}

/// Whether an op becomes part of a fused kernel.
fn light(op: &Op) -> bool {
    match op.info().class {
        Class::Elementwise | Class::Source | Class::View => true,
        Class::Reduction => !matches!(op, Op::TopK { .. }),
        _ => matches!(
            op,
            Op::CausalConv1d
                | Op::CausalConv1dInputGrad
                | Op::CausalConv1dWeightGrad { .. }
                | Op::RowValid { .. }
        ),
    }
}

/// Whether an op is a kernel of its own.
fn heavy(op: &Op) -> bool {
    !light(op) && op.info().class != Class::Structure
}

/// For each result of a view, the value that it arranges anew.
fn roots(f: &Function) -> FxHashMap<Value, Value> {
    let mut out: FxHashMap<Value, Value> = FxHashMap::default();
    for id in f.node_ids() {
        let n = f.node(id);
        if let (Class::View, Some(of)) = (n.op.info().class, n.operands.first()) {
            out.insert(id.into(), out.get(of).copied().unwrap_or(*of));
        }
    }
    out
}

/// Full names of the parameters of experts: weights of products in groups.
fn expert_params(p: &Program) -> FxHashSet<String> {
    let keys: Vec<Vec<&str>> = p
        .functions
        .iter()
        .map(|f| {
            let roots = roots(f);
            let weights = f.nodes.iter().filter_map(|n| match n.op {
                Op::GroupedContract { .. } => n.operands.get(1),
                _ => None,
            });
            let params = weights.filter_map(|w| {
                let root = roots.get(w).copied().unwrap_or(*w);
                match f.node(root.node).op {
                    Op::Param { index } => f.params.get(index as usize).map(|p| p.key.as_str()),
                    _ => None,
                }
            });
            params.collect()
        })
        .collect();
    let scopes = p.scopes().unwrap_or_default();
    let names = scopes.iter().flat_map(|(i, scope)| {
        keys[*i].iter().map(move |key| vlmc_ir::graph::join_name(scope, key))
    });
    names.collect()
}
