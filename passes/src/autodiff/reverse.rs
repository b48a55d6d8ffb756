//! The backward sweep over one function.

use super::saved::SavedSet;
use super::total::total;
use super::{AutodiffError, GradientOf, Target, unique};
use rustc_hash::{FxHashMap, FxHashSet};
use vlmc_ir::graph::{Function, NodeId, Program, Value, join_name};
use vlmc_ir::ops::Op;
use vlmc_ir::ops::grad::GradBuilder;
use vlmc_ir::text::{cursor::is_word, print};
use vlmc_ir::ty::DType;

/// Calls nested deeper than this are refused, so that no program can exhaust the stack.
const MAX_DEPTH: usize = 64;

/// A function with the nodes of its gradients behind its own.
#[derive(Clone, Debug)]
pub(super) struct Joint {
    /// The function. Results of forward calls and operands of backward calls are those of
    /// [`super::split::connect`] only once it is known what the callees keep.
    pub(super) function: Function,
    /// The number of its own nodes.
    pub(super) forward: usize,
    /// Its calls that have a backward call.
    pub(super) calls: Vec<CallPair>,
    /// What it computes: gradients of inputs by index, then of parameters in the order of use.
    pub(super) gradients: Vec<GradientOf>,
}

/// A call and the call of its backward function, whose operands are the gradients given.
#[derive(Clone, Debug)]
pub(super) struct CallPair {
    pub(super) forward: NodeId,
    pub(super) backward: NodeId,
    /// Index of what is called in [`Differentiator::templates`].
    pub(super) template: usize,
}

/// A function as differentiated for some of its results and inputs.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// Name of the function, with a number when it is differentiated in several ways.
    pub(super) name: String,
    pub(super) forward_name: String,
    pub(super) backward_name: String,
    /// The function that it was made from, by index.
    pub(super) source: usize,
    /// The nodes in [`Joint::function`] of the gradients given, one for each result that has one.
    pub(super) douts: Vec<NodeId>,
    pub(super) joint: Joint,
    pub(super) saved: SavedSet,
}

/// What makes two calls of a function need different backward functions.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    function: usize,
    given: Vec<bool>,
    wanted: Vec<Option<DType>>,
}

/// The state of differentiating a program.
pub(super) struct Differentiator<'p> {
    pub(super) program: &'p Program,
    pub(super) index: FxHashMap<&'p str, usize>,
    pub(super) varied: FxHashMap<(usize, Vec<bool>), Vec<bool>>,
    /// Callees before callers.
    pub(super) templates: Vec<Template>,
    /// `None` for those through which no gradient passes.
    known: FxHashMap<Key, Option<usize>>,
    names: FxHashSet<String>,
    depth: usize,
}

impl<'p> Differentiator<'p> {
    pub(super) fn new(program: &'p Program) -> Self {
        Differentiator {
            program,
            index: program.functions.iter().enumerate().map(|(i, f)| (&*f.name, i)).collect(),
            varied: FxHashMap::default(),
            templates: vec![],
            known: FxHashMap::default(),
            names: program.functions.iter().map(|f| f.name.clone()).collect(),
            depth: 0,
        }
    }

    /// Differentiates a function. `seed` builds what gradients start from: pairs of a forward value
    /// and a gradient of it.
    pub(super) fn function(
        &mut self,
        index: usize,
        inputs: &[Option<DType>],
        seed: impl FnOnce(&mut GradBuilder) -> Result<Vec<(Value, Value)>, AutodiffError>,
    ) -> Result<Joint, AutodiffError> {
        let f = &self.program.functions[index];
        let forward = f.nodes.len();
        let wanted = self.wanted(f, inputs);
        let mut b = GradBuilder::new(f.clone(), wanted);
        let seeds = seed(&mut b)?;
        let mut sweep = Sweep {
            contributions: f.nodes.iter().map(|n| vec![vec![]; n.tys.len()]).collect(),
            calls: vec![],
            inputs: vec![],
            params: FxHashMap::default(),
        };
        for (v, gradient) in seeds {
            sweep.add(&mut b, v, gradient)?;
        }
        for i in (0..forward).rev() {
            self.step(&mut b, &mut sweep, NodeId(i as u32)).map_err(|e| {
                if e.message.contains("\n  in @") {
                    return e;
                }
                let line = print::node_line(f, i);
                AutodiffError::new(format!("{}\n  in @{}:\n    {line}", e.message, f.name))
            })?;
        }
        b.set_origins(&[]);
        let mut gradients = sweep.inputs;
        gradients.sort_by_key(|(i, _)| *i);
        let mut gradients: Vec<(Target, Value)> =
            gradients.into_iter().map(|(i, v)| (Target::Input(i), v)).collect();
        for name in self.parameter_names(f) {
            let Some(contributions) = sweep.params.remove(&name) else { continue };
            let Some(first) = contributions.first() else { continue };
            let dims = b.function().ty(*first).dims.clone();
            if let Some(v) = total(&mut b, &contributions, &dims)? {
                gradients.push((Target::Param(name), v));
            }
        }
        let gradients = gradients
            .into_iter()
            .map(|(target, value)| GradientOf { target, value, ty: b.ty(value) })
            .collect();
        Ok(Joint { function: b.finish(), forward, calls: sweep.calls, gradients })
    }

    /// Passes the gradients of one node's results on to its operands.
    fn step(
        &mut self,
        b: &mut GradBuilder,
        sweep: &mut Sweep,
        id: NodeId,
    ) -> Result<(), AutodiffError> {
        let contributions = std::mem::take(&mut sweep.contributions[id.0 as usize]);
        if contributions.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let node = b.function().node(id).clone();
        b.set_origins(&node.origins);
        let mut douts = vec![];
        for (c, ty) in contributions.iter().zip(&node.tys) {
            douts.push(total(b, c, &ty.dims)?);
        }
        let gradients = match &node.op {
            Op::Input { index } => {
                sweep.inputs.extend(douts.first().copied().flatten().map(|v| (*index as usize, v)));
                return Ok(());
            }
            Op::Param { index } => {
                let key = &self.program_param(b, *index)?;
                sweep.params.entry(key.clone()).or_default().extend(douts.into_iter().flatten());
                return Ok(());
            }
            Op::Call { .. } => self.call(b, sweep, id, &douts)?,
            _ => b.apply(id, &douts)?,
        };
        for (v, gradient) in node.operands.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                sweep.add(b, *v, gradient)?;
            }
        }
        Ok(())
    }

    fn program_param(&self, b: &GradBuilder, index: u32) -> Result<String, AutodiffError> {
        let param = b.function().params.get(index as usize);
        param.map(|p| p.key.clone()).ok_or_else(|| AutodiffError::new("there is no such parameter"))
    }

    /// Calls the backward function. Returns the gradients of the arguments.
    fn call(
        &mut self,
        b: &mut GradBuilder,
        sweep: &mut Sweep,
        id: NodeId,
        douts: &[Option<Value>],
    ) -> Result<Vec<Option<Value>>, AutodiffError> {
        let node = b.function().node(id).clone();
        let Op::Call { callee, scope, path, layer } = &node.op else { return Ok(vec![]) };
        let function = self.index.get(&**callee).copied();
        let function =
            function.ok_or_else(|| AutodiffError::new(format!("there is no @{callee}")))?;
        let key = Key {
            function,
            given: douts.iter().map(Option::is_some).collect(),
            wanted: node.operands.iter().map(|v| b.wanted(*v)).collect(),
        };
        let Some(template) = self.template(key)? else { return Ok(vec![]) };
        let t = &self.templates[template];
        let op = Op::Call {
            callee: t.backward_name.clone(),
            scope: scope.clone(),
            path: path.clone(),
            layer: *layer,
        };
        let operands = douts.iter().copied().flatten().collect();
        let tys = t.joint.gradients.iter().map(|g| g.ty.clone()).collect();
        let backward = b.function_mut().push_node(op, operands, tys, None);
        if let Some(n) = b.function_mut().nodes.last_mut() {
            n.origins.clone_from(&node.origins);
        }
        sweep.calls.push(CallPair { forward: id, backward, template });
        let mut gradients = vec![None; node.operands.len()];
        for (result, g) in t.joint.gradients.iter().enumerate() {
            let value = Value { node: backward, result: result as u32 };
            match &g.target {
                Target::Input(i) => gradients[*i] = Some(value),
                Target::Param(name) => {
                    sweep.params.entry(join_name(scope, name)).or_default().push(value);
                }
            }
        }
        Ok(gradients)
    }

    /// The function as differentiated for these results and inputs.
    fn template(&mut self, key: Key) -> Result<Option<usize>, AutodiffError> {
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        if self.depth == MAX_DEPTH {
            return Err(AutodiffError::new(format!("calls nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let f = &self.program.functions[key.function];
        let mut douts = vec![];
        let joint = self.function(key.function, &key.wanted, |b| {
            let mut seeds = vec![];
            for (i, o) in f.outputs.iter().enumerate().filter(|(i, _)| key.given[*i]) {
                let label = o.name.as_deref().filter(|n| is_word(n));
                let label = label.map_or_else(|| format!("d_{i}"), |n| format!("d_{n}"));
                let ty = f.ty(o.value).clone();
                let input = add_input(b.function_mut(), &label, ty);
                douts.push(input.node);
                seeds.push((o.value, input));
            }
            Ok(seeds)
        })?;
        self.depth -= 1;
        let template = (!joint.gradients.is_empty()).then_some(self.templates.len());
        if template.is_some() {
            let names = &mut self.names;
            let mut fresh = |suffix: &str| {
                let name = unique(&format!("{}{suffix}", f.name), |n| names.contains(n));
                names.insert(name.clone());
                name
            };
            let (forward_name, backward_name) = (fresh(".fwd"), fresh(".bwd"));
            let name = forward_name.replacen(".fwd", "", 1);
            self.templates.push(Template {
                name,
                forward_name,
                backward_name,
                source: key.function,
                douts,
                joint,
                saved: SavedSet::default(),
            });
        }
        self.known.insert(key, template);
        Ok(template)
    }

    /// Names of the parameters below a function, each once, in the order of
    /// [`Program::parameters`].
    fn parameter_names(&self, f: &Function) -> Vec<String> {
        let mut names = Names::default();
        self.collect_names(f, "", 0, &mut names);
        names.list
    }

    fn collect_names(&self, f: &Function, scope: &str, depth: usize, names: &mut Names) {
        for p in &f.params {
            let name = join_name(scope, &p.key);
            if names.known.insert(name.clone()) {
                names.list.push(name);
            }
        }
        for node in &f.nodes {
            let Op::Call { callee, scope: inner, .. } = &node.op else { continue };
            let Some(i) = self.index.get(&**callee).copied() else { continue };
            let inner = join_name(scope, inner);
            // A function has the same names each time it is called in one scope.
            if depth < MAX_DEPTH && names.scopes.insert((i, inner.clone())) {
                self.collect_names(&self.program.functions[i], &inner, depth + 1, names);
            }
        }
    }
}

/// Names of parameters, as they are collected.
#[derive(Default)]
struct Names {
    list: Vec<String>,
    known: FxHashSet<String>,
    scopes: FxHashSet<(usize, String)>,
}

/// Adds an input with this name, or one like it that is free.
pub(super) fn add_input(f: &mut Function, name: &str, ty: vlmc_ir::ty::Ty) -> Value {
    let name = unique(name, |n| f.inputs.iter().any(|i| &*i.name == n));
    let input = f.add_input(&name, ty, None);
    // An input may be called anything, a node may not.
    if !is_word(&name) || name.bytes().all(|b| b.is_ascii_digit()) {
        f.nodes[input.node.0 as usize].name = None;
    }
    input
}

/// What has been collected in one sweep.
struct Sweep {
    /// For each result of each forward node, the gradients that its users gave.
    contributions: Vec<Vec<Vec<Value>>>,
    calls: Vec<CallPair>,
    inputs: Vec<(usize, Value)>,
    params: FxHashMap<String, Vec<Value>>,
}

impl Sweep {
    /// Adds a gradient of a forward value, when it is wanted.
    fn add(&mut self, b: &mut GradBuilder, v: Value, gradient: Value) -> Result<(), AutodiffError> {
        if let Some(dtype) = b.wanted(v) {
            let gradient = b.cast(gradient, dtype)?;
            self.contributions[v.node.0 as usize][v.result as usize].push(gradient);
        }
        Ok(())
    }
}
