//! The joint program cut into a forward and a backward program a stage.
//!
//! Each part is a program of its own whose main holds the nodes of one stage and phase. A value that
//! another part reads is an output of the part that makes it and an input, without a source, of each
//! part that reads it; both have its name. What crosses stages is sent straight to where it is read.
//! A gradient whose terms come from several stages, as that of a tied weight does, is an output of
//! each of them: the terms are summed over stages once a step, not once a microbatch.

use super::PartitionError;
use super::assign::{Assigner, Phase, Place, Stages};
use indexmap::{IndexMap, IndexSet};
use rustc_hash::{FxHashMap, FxHashSet};
use vlmc_ir::graph::{Function, NodeId, Output, OutputKind, Program, Value};
use vlmc_ir::ops::Op;

/// A value that one part makes and others read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crossing {
    /// Its name, as output and as input.
    pub name: String,
    /// Where it is made.
    pub from: (Phase, usize),
    /// The parts that read it, in the order in which they run.
    pub to: Vec<(Phase, usize)>,
    /// Its type.
    pub ty: vlmc_ir::ty::Ty,
}

/// The program of one stage in one phase.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// Its stage.
    pub stage: usize,
    /// Its phase.
    pub phase: Phase,
    /// The program.
    pub program: Program,
}

impl Part {
    /// The name of its program: `fwd.STAGE` or `bwd.STAGE`.
    pub fn name(&self) -> String {
        name(self.phase, self.stage)
    }
}

fn name(phase: Phase, stage: usize) -> String {
    match phase {
        Phase::Forward => format!("fwd.{stage}"),
        Phase::Backward => format!("bwd.{stage}"),
    }
}

/// A program in parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Cut {
    /// The parts that have something to do, forward by stage, then backward by stage.
    pub parts: Vec<Part>,
    /// What passes between them, in the order of the joint main.
    pub crossings: Vec<Crossing>,
}

impl Cut {
    /// The part of a stage and phase; `None` when it has nothing to do.
    pub fn part(&self, phase: Phase, stage: usize) -> Option<&Part> {
        self.parts.iter().find(|p| p.phase == phase && p.stage == stage)
    }
}

/// Cuts a joint program. Its main must not be fused yet: clusters would span stages.
///
/// # Errors
/// When the stages do not fit the program.
pub fn cut(joint: &Program, stages: &Stages) -> Result<Cut, PartitionError> {
    let Some(main) = joint.main() else { return Err(PartitionError::new("the program is empty")) };
    let places = Assigner::new(joint, main, stages).run()?;
    let shares = Assigner::shares(main, &places);
    let mut cutter = Cutter { joint, main, places, shares, last: stages.last() };
    let names = cutter.names();
    let mut parts = vec![];
    let mut crossings: IndexMap<Value, Crossing> = IndexMap::new();
    for phase in [Phase::Forward, Phase::Backward] {
        for stage in 0..stages.count {
            let wanted = cutter.wanted(phase, stage);
            if wanted.is_empty() {
                continue;
            }
            for v in cutter.reads(phase, stage, &wanted) {
                let Place::In(p, s) = cutter.places[v.node.0 as usize] else { continue };
                let crossing = crossings.entry(v).or_insert_with(|| Crossing {
                    name: names[&v].clone(),
                    from: (p, s),
                    to: vec![],
                    ty: main.ty(v).clone(),
                });
                crossing.to.push((phase, stage));
            }
        }
    }
    crossings.sort_unstable_keys();
    for phase in [Phase::Forward, Phase::Backward] {
        for stage in 0..stages.count {
            let wanted = cutter.wanted(phase, stage);
            let given = crossings.iter().filter(|(_, c)| c.from == (phase, stage));
            let given: Vec<(Value, String)> = given.map(|(v, c)| (*v, c.name.clone())).collect();
            if !wanted.is_empty() {
                let program = cutter.build(phase, stage, &wanted, &given, &names)?;
                parts.push(Part { stage, phase, program });
            }
        }
    }
    let mut crossings: Vec<Crossing> = crossings.into_values().collect();
    // Backward parts run from the last stage to the first.
    for c in &mut crossings {
        c.to.sort_by_key(|(phase, stage)| match phase {
            Phase::Forward => (0, *stage),
            Phase::Backward => (1, stages.count - stage),
        });
    }
    Ok(Cut { parts, crossings })
}

struct Cutter<'p> {
    joint: &'p Program,
    main: &'p Function,
    places: Vec<Place>,
    /// Gradients that are made in several stages.
    shares: FxHashMap<Value, Vec<(usize, Vec<Value>)>>,
    last: usize,
}

impl Cutter<'_> {
    /// A name for each value: the node's, or the call's path with the number of the result.
    fn names(&self) -> FxHashMap<Value, String> {
        let inputs = self.main.inputs.iter().map(|i| i.name.to_string());
        let outputs = self.main.outputs.iter().filter_map(|o| o.name.as_deref());
        // Crossings are outputs of parts, beside those of main.
        let mut taken: FxHashSet<String> = inputs.chain(outputs.map(str::to_string)).collect();
        let mut out = FxHashMap::default();
        for id in self.main.node_ids() {
            let n = self.main.node(id);
            let base = match (&n.op, &n.name) {
                (Op::Call { path, .. }, _) if !path.is_empty() => path.clone(),
                (_, Some(name)) => name.to_string(),
                _ => n.op.name().to_string(),
            };
            for result in 0..n.tys.len() as u32 {
                let base = if n.tys.len() > 1 { format!("{base}.{result}") } else { base.clone() };
                let mut name = base.clone();
                let mut again = 2;
                while !taken.insert(name.clone()) {
                    name = format!("{base}_{again}");
                    again += 1;
                }
                out.insert(Value { node: id, result }, name);
            }
        }
        out
    }

    /// The outputs of main that a part gives, with the terms that it sums for each.
    fn outputs(&self, phase: Phase, stage: usize) -> Vec<(&Output, Vec<Value>)> {
        let mut out = vec![];
        for o in &self.main.outputs {
            let is_gradient = matches!(o.kind, OutputKind::Gradient);
            if let Some(groups) = self.shares.get(&o.value).filter(|_| is_gradient) {
                let group = groups.iter().find(|(s, _)| *s == stage && phase == Phase::Backward);
                out.extend(group.map(|(_, terms)| (o, terms.clone())));
                continue;
            }
            let place = match self.places[o.value.node.0 as usize] {
                Place::In(p, s) => (p, s),
                Place::Copied if is_gradient => (Phase::Backward, 0),
                Place::Copied => (Phase::Forward, self.last),
            };
            // A loss is given where its sum is made; its count may come from elsewhere.
            if place == (phase, stage) {
                out.push((o, vec![o.value]));
            }
        }
        out
    }

    /// Nodes that sum the terms of a gradient over stages, which no part computes.
    fn spread(&self) -> FxHashSet<NodeId> {
        let mut out = FxHashSet::default();
        for (v, groups) in &self.shares {
            let leaves: FxHashSet<Value> =
                groups.iter().flat_map(|(_, l)| l.iter().copied()).collect();
            let mut open = vec![*v];
            while let Some(v) = open.pop() {
                if !leaves.contains(&v) && out.insert(v.node) {
                    open.extend(self.main.node(v.node).operands.iter().copied());
                }
            }
        }
        out
    }

    /// The values that a part computes on behalf of others or as outputs: all nodes placed in it.
    fn wanted(&self, phase: Phase, stage: usize) -> Vec<Value> {
        let spread = self.spread();
        let mut out = vec![];
        for id in self.main.node_ids() {
            if self.places[id.0 as usize] == Place::In(phase, stage) && !spread.contains(&id) {
                let results = self.main.node(id).tys.len() as u32;
                out.extend((0..results).map(|result| Value { node: id, result }));
            }
        }
        for (o, terms) in self.outputs(phase, stage) {
            out.extend(terms);
            if let OutputKind::Loss { count, .. } = o.kind {
                out.push(count);
            }
        }
        out
    }

    /// The values made elsewhere that a part needs.
    fn reads(&self, phase: Phase, stage: usize, wanted: &[Value]) -> IndexSet<Value> {
        let mut reads = IndexSet::new();
        let mut seen = FxHashSet::default();
        let mut open: Vec<Value> = wanted.to_vec();
        while let Some(v) = open.pop() {
            match self.places[v.node.0 as usize] {
                Place::In(p, s) if (p, s) != (phase, stage) => {
                    reads.insert(v);
                }
                _ if seen.insert(v.node) => {
                    open.extend(self.main.node(v.node).operands.iter().copied());
                }
                _ => {}
            }
        }
        reads
    }

    fn build(
        &mut self,
        phase: Phase,
        stage: usize,
        wanted: &[Value],
        given: &[(Value, String)],
        names: &FxHashMap<Value, String>,
    ) -> Result<Program, PartitionError> {
        let reads = self.reads(phase, stage, wanted);
        let mut needed: FxHashSet<NodeId> = FxHashSet::default();
        let mut open: Vec<Value> = wanted.iter().copied().filter(|v| !reads.contains(v)).collect();
        while let Some(v) = open.pop() {
            if needed.insert(v.node) {
                let operands = self.main.node(v.node).operands.iter().copied();
                open.extend(operands.filter(|v| !reads.contains(v)));
            }
        }
        let mut f = Function::new(name(phase, stage));
        f.regions.clone_from(&self.main.regions);
        let mut map: FxHashMap<Value, Value> = FxHashMap::default();
        let mut sorted: Vec<Value> = reads.iter().copied().collect();
        sorted.sort_unstable();
        for v in sorted {
            let new = f.add_input(&names[&v], self.main.ty(v).clone(), None);
            // An input may have any name, a node may not.
            f.nodes[new.node.0 as usize].name = None;
            map.insert(v, new);
        }
        for id in self.main.node_ids().filter(|id| needed.contains(id)) {
            let mut n = self.main.node(id).clone();
            match &mut n.op {
                Op::Input { index } => {
                    f.inputs.push(self.main.inputs[*index as usize].clone());
                    *index = f.inputs.len() as u32 - 1;
                }
                Op::Param { index } => {
                    f.params.push(self.main.params[*index as usize].clone());
                    *index = f.params.len() as u32 - 1;
                }
                _ => {}
            }
            n.operands.iter_mut().for_each(|v| *v = map.get(v).copied().unwrap_or(*v));
            let new = NodeId(f.nodes.len() as u32);
            for result in 0..n.tys.len() as u32 {
                map.entry(Value { node: id, result }).or_insert(Value { node: new, result });
            }
            f.nodes.push(n);
        }
        let mut outputs = vec![];
        for (o, terms) in self.outputs(phase, stage) {
            let mut value = None;
            for t in &terms {
                let t = map.get(t).copied().unwrap_or(*t);
                value = Some(match value {
                    None => t,
                    Some(sum) => f.push(Op::Add, &[sum, t]).map_err(PartitionError::from)?.into(),
                });
            }
            let kind = match o.kind {
                OutputKind::Loss { count, weight } => {
                    OutputKind::Loss { count: map.get(&count).copied().unwrap_or(count), weight }
                }
                ref other => other.clone(),
            };
            let value = value.unwrap_or(o.value);
            outputs.push(Output { name: o.name.clone(), value, kind });
        }
        f.outputs = outputs;
        for (v, name) in given {
            f.add_output(Some(name), map.get(v).copied().unwrap_or(*v));
        }
        let mut program = Program { functions: self.joint.functions.clone(), ..self.joint.clone() };
        program.functions.pop();
        program.functions.push(f);
        crate::autodiff::drop_unreached(&mut program);
        Ok(program)
    }
}
