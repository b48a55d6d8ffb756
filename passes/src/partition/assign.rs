//! Which stage and which phase each node of the joint main belongs to.
//!
//! The layers of main's stacks are placed by the caller, everything else follows from the flow of
//! values: what layers need goes before them, what needs layers goes behind them, and a backward
//! call goes where its forward call is. Values that follow from the inputs of the batch alone, such
//! as masks and tables of angles, are *copied* to each stage that reads them rather than sent.

use super::PartitionError;
use crate::recompute::is_replay;
use rustc_hash::FxHashMap;
use vlmc_ir::graph::{Function, NodeId, OutputKind, Program, Value};
use vlmc_ir::ops::{Class, Op};

/// Where the layers of main go. Stages are numbered in the order of the pipeline, `v * P + p`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stages {
    /// How many there are.
    pub count: usize,
    /// The stage of each layer of main's stacks, never falling.
    pub layers: Vec<usize>,
    /// The stage of layers behind the stacks, which predict further tokens.
    pub mtp: usize,
}

impl Stages {
    /// Everything in one stage.
    pub fn one(layers: usize) -> Stages {
        Stages { count: 1, layers: vec![0; layers], mtp: 0 }
    }

    /// The last stage, which has the losses.
    pub fn last(&self) -> usize {
        self.count.saturating_sub(1)
    }
}

/// Forward or backward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
}

/// Where a node is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In every program that reads it.
    Copied,
    /// In one program.
    In(Phase, usize),
}

impl Place {
    pub(super) fn stage(self) -> Option<usize> {
        match self {
            Place::Copied => None,
            Place::In(_, stage) => Some(stage),
        }
    }
}

/// The calls of main that are layers of a stack, in the order of the forward pass.
pub fn layers(program: &Program) -> Vec<NodeId> {
    let Some(main) = program.main() else { return vec![] };
    let late = after_totals(main);
    let is_layer = |id: &NodeId| {
        matches!(main.node(*id).op, Op::Call { layer: Some(_), .. }) && !late[id.0 as usize]
    };
    main.node_ids().filter(is_layer).collect()
}

/// The calls of main behind the stacks that mix tokens: layers that predict further tokens.
pub fn further_layers(program: &Program) -> Vec<NodeId> {
    let Some(main) = program.main() else { return vec![] };
    let before = ancestors(main, &layers(program));
    let late = after_totals(main);
    let open = |id: &NodeId| {
        let i = id.0 as usize;
        let Op::Call { callee, .. } = &main.node(*id).op else { return false };
        !before[i] && !late[i] && mixes(program, callee)
    };
    main.node_ids().filter(open).collect()
}

/// Whether a function or one that it calls mixes the tokens of a sequence.
fn mixes(program: &Program, function: &str) -> bool {
    program.function(function).is_some_and(|f| {
        f.nodes.iter().any(|n| match &n.op {
            Op::Attention { .. } | Op::GatedDeltaRule => true,
            // Callees come before callers, so this ends.
            Op::Call { callee, .. } => mixes(program, callee),
            _ => false,
        })
    })
}

/// Nodes that any of `roots` needs, these among them.
fn ancestors(main: &Function, roots: &[NodeId]) -> Vec<bool> {
    let mut needed = vec![false; main.nodes.len()];
    roots.iter().for_each(|r| needed[r.0 as usize] = true);
    for i in (0..main.nodes.len()).rev() {
        if needed[i] {
            main.nodes[i].operands.iter().for_each(|v| needed[v.node.0 as usize] = true);
        }
    }
    needed
}

/// Whether each node follows from a loss's total, and so belongs to the backward pass.
fn after_totals(main: &Function) -> Vec<bool> {
    let mut late = vec![false; main.nodes.len()];
    for (i, n) in main.nodes.iter().enumerate() {
        late[i] = match &n.op {
            Op::Input { index } => {
                main.inputs.get(*index as usize).is_some_and(|i| i.from.is_none())
            }
            // What is made again for the backward pass belongs to it, whatever it is made from.
            _ if is_replay(main, NodeId(i as u32)) => true,
            _ => n.operands.iter().any(|v| late[v.node.0 as usize]),
        };
    }
    late
}

/// The places of main's nodes.
pub(super) struct Assigner<'p> {
    main: &'p Function,
    program: &'p Program,
    stages: &'p Stages,
    late: Vec<bool>,
    copied: Vec<bool>,
    users: Vec<Vec<usize>>,
    places: Vec<Option<Place>>,
}

impl<'p> Assigner<'p> {
    pub(super) fn new(program: &'p Program, main: &'p Function, stages: &'p Stages) -> Self {
        let mut users = vec![vec![]; main.nodes.len()];
        for (i, n) in main.nodes.iter().enumerate() {
            n.operands.iter().for_each(|v| users[v.node.0 as usize].push(i));
        }
        let mut copied = vec![false; main.nodes.len()];
        for (i, n) in main.nodes.iter().enumerate() {
            let light = match n.op.info().class {
                Class::Elementwise | Class::View | Class::Source => true,
                Class::Reduction => !matches!(n.op, Op::TopK { .. }),
                _ => matches!(n.op, Op::Input { .. } | Op::Param { .. } | Op::RowValid { .. }),
            };
            copied[i] = light && n.operands.iter().all(|v| copied[v.node.0 as usize]);
        }
        Assigner {
            main,
            program,
            stages,
            late: after_totals(main),
            copied,
            users,
            places: vec![None; main.nodes.len()],
        }
    }

    /// Places every node.
    ///
    /// # Errors
    /// When the placement of layers contradicts the flow of values.
    pub(super) fn run(mut self) -> Result<Vec<Place>, PartitionError> {
        let layers = layers(self.program);
        if layers.len() != self.stages.layers.len() {
            return Err(PartitionError::new(format!(
                "{} layers are placed, the model has {}",
                self.stages.layers.len(),
                layers.len()
            )));
        }
        for (i, copied) in self.copied.iter().enumerate() {
            if *copied {
                self.places[i] = Some(Place::Copied);
            }
        }
        for (id, stage) in layers.iter().zip(&self.stages.layers) {
            self.places[id.0 as usize] = Some(Place::In(Phase::Forward, *stage));
        }
        self.forward(&layers);
        self.backward()?;
        let places: Vec<Place> = self.places.iter().map(|p| p.unwrap_or(Place::Copied)).collect();
        self.check(&places)?;
        Ok(places)
    }

    /// The last stage of a forward node's operands.
    fn operands_stage(&self, i: usize, phase: Phase) -> impl Iterator<Item = usize> + '_ {
        self.main.nodes[i].operands.iter().filter_map(move |v| {
            match self.places[v.node.0 as usize] {
                Some(Place::In(p, stage)) if p == phase => Some(stage),
                _ => None,
            }
        })
    }

    fn forward(&mut self, layers: &[NodeId]) {
        let before = ancestors(self.main, layers);
        let further = further_layers(self.program);
        let before_further = ancestors(self.main, &further);
        let elements = |main: &Function, v: Value| {
            let dims = &main.ty(v).dims;
            dims.iter().map(|d| d.size().as_constant().unwrap_or(1 << 20)).product::<i64>()
        };
        for i in 0..self.main.nodes.len() {
            if self.places[i].is_some() || self.late[i] {
                continue;
            }
            let reached = self.operands_stage(i, Phase::Forward).max();
            let n = &self.main.nodes[i];
            let stage = if before[i] {
                match reached {
                    Some(stage) => stage,
                    // What only reads the batch waits until the places of its users are known.
                    None => continue,
                }
            } else if further.iter().any(|f| f.0 as usize == i) {
                self.stages.mtp
            } else if before_further[i] {
                reached.unwrap_or(self.stages.mtp)
            } else if n.op.info().class == Class::Elementwise
                && let Some(stage) = reached
                && let Some(first) = n.operands.first()
                && elements(self.main, Value { node: NodeId(i as u32), result: 0 })
                    <= elements(self.main, *first)
            {
                // A sum over layers goes along with the pipeline.
                stage
            } else {
                self.stages.last()
            };
            self.places[i] = Some(Place::In(Phase::Forward, stage));
        }
        for i in (0..self.main.nodes.len()).rev() {
            if self.places[i].is_none() && !self.late[i] {
                let first = self.users[i].iter().filter_map(|u| self.places[*u]?.stage()).min();
                self.places[i] = Some(Place::In(Phase::Forward, first.unwrap_or(0)));
            }
        }
    }

    fn backward(&mut self) -> Result<(), PartitionError> {
        let partners = self.partners();
        for (backward, forward) in partners {
            if let Some(stage) = self.places[forward].and_then(Place::stage) {
                self.places[backward] = Some(Place::In(Phase::Backward, stage));
            }
        }
        // What flows back is computed as soon as it can be.
        for i in 0..self.main.nodes.len() {
            if self.places[i].is_none()
                && let Some(stage) = self.operands_stage(i, Phase::Backward).min()
            {
                self.places[i] = Some(Place::In(Phase::Backward, stage));
            }
        }
        // What starts from the totals is computed for the first who reads it.
        for i in (0..self.main.nodes.len()).rev() {
            if self.places[i].is_none() {
                let first = self.users[i].iter().filter_map(|u| self.places[*u]?.stage()).max();
                let stage = first.unwrap_or(self.stages.last());
                self.places[i] = Some(Place::In(Phase::Backward, stage));
            }
        }
        // A second sweep: what was computed from those.
        for i in 0..self.main.nodes.len() {
            if self.late[i]
                && !matches!(self.main.nodes[i].op, Op::Call { .. })
                && let Some(stage) = self.operands_stage(i, Phase::Backward).min()
            {
                self.places[i] = Some(Place::In(Phase::Backward, stage));
            }
        }
        Ok(())
    }

    /// Backward calls with their forward calls: those of the same scope, path and layer that share
    /// the most values, and of equals the last that has no partner yet, since the way back is the
    /// way there turned round.
    fn partners(&self) -> Vec<(usize, usize)> {
        let mut open: FxHashMap<(&str, &str, Option<u32>), Vec<usize>> = FxHashMap::default();
        let mut out = vec![];
        for (i, n) in self.main.nodes.iter().enumerate() {
            let Op::Call { scope, path, layer, .. } = &n.op else { continue };
            let key = (&**scope, &**path, *layer);
            if !self.late[i] {
                open.entry(key).or_default().push(i);
                continue;
            }
            let Some(list) = open.get_mut(&key) else { continue };
            let shared = |f: usize| {
                let theirs = &self.main.nodes[f].operands;
                let ours = n.operands.iter();
                ours.filter(|v| v.node.0 as usize == f || theirs.contains(v)).count()
            };
            let best = (0..list.len()).max_by_key(|at| (shared(list[*at]), *at));
            if let Some(at) = best {
                out.push((i, list.remove(at)));
            }
        }
        out
    }

    /// Forward values only go up, and backward values only down.
    fn check(&self, places: &[Place]) -> Result<(), PartitionError> {
        for (i, n) in self.main.nodes.iter().enumerate() {
            for v in &n.operands {
                let (from, to) = (places[v.node.0 as usize], places[i]);
                let wrong = match (from, to) {
                    (Place::In(Phase::Forward, a), Place::In(Phase::Forward, b)) => a > b,
                    (Place::In(Phase::Backward, a), Place::In(Phase::Backward, b)) => a < b,
                    (Place::In(Phase::Backward, _), Place::In(Phase::Forward, _)) => true,
                    (Place::In(..), Place::Copied) => true,
                    _ => false,
                };
                if wrong {
                    return Err(PartitionError::new(format!(
                        "internal error: a value of stage {from:?} is read in {to:?}:\n    {}",
                        vlmc_ir::text::print::node_line(self.main, i)
                    )));
                }
            }
        }
        Ok(())
    }

    /// Gradients as the sums that each stage adds to them: `None` where the value has one stage.
    pub(super) fn shares(
        main: &Function,
        places: &[Place],
    ) -> FxHashMap<Value, Vec<(usize, Vec<Value>)>> {
        let mut uses: FxHashMap<Value, usize> = FxHashMap::default();
        let operands = main.nodes.iter().flat_map(|n| n.operands.iter().copied());
        operands.chain(main.output_values()).for_each(|v| *uses.entry(v).or_default() += 1);
        let mut out = FxHashMap::default();
        for o in main.outputs.iter().filter(|o| matches!(o.kind, OutputKind::Gradient)) {
            let mut leaves = vec![];
            let mut open = vec![o.value];
            while let Some(v) = open.pop() {
                let n = main.node(v.node);
                match n.op {
                    Op::Add if uses.get(&v) == Some(&1) => open.extend(n.operands.iter().rev()),
                    _ => leaves.push(v),
                }
            }
            let mut groups: Vec<(usize, Vec<Value>)> = vec![];
            for v in leaves {
                let stage = places[v.node.0 as usize].stage().unwrap_or(0);
                match groups.iter_mut().find(|(s, _)| *s == stage) {
                    Some((_, list)) => list.push(v),
                    None => groups.push((stage, vec![v])),
                }
            }
            if groups.len() > 1 {
                groups.sort_by_key(|(stage, _)| *stage);
                out.insert(o.value, groups);
            }
        }
        out
    }
}
