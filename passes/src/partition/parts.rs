//! Which part of a model each node of a program's main belongs to, by the flow of values.
//!
//! Decoder layers are the calls of main's stacks. What they need is the embedding, or the vision
//! tower where it reads pictures; a call behind them that mixes tokens is an MTP module, and what
//! stands between is the final norm; the rest is the head with the losses. The backward of a joint
//! program belongs where its forward does.

use super::assign::layers;
use super::placement::{Content, Model};
use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxHashMap;
use vlmc_ir::graph::{Function, Program, join_name};
use vlmc_ir::ops::Op;

/// Host functions whose results only a vision tower reads.
const PICTURES: &str = "pixel_rows";

/// The parts of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// What placement must know.
    pub model: Model,
    /// The part of each node of main. `None` for what follows from the batch alone and for
    /// arithmetic between the parts of a backward.
    pub nodes: Vec<Option<Content>>,
    /// Whether each node of main belongs to the backward.
    pub backward: Vec<bool>,
    /// Full names of the parameters of each part, in the order of first use.
    pub parameters: IndexMap<Content, IndexSet<String>>,
}

impl Parts {
    /// The parts of a forward or joint program.
    pub fn of(program: &Program) -> Parts {
        let Some(main) = program.main() else { return Parts::default() };
        let mut finder = Finder::new(program, main);
        finder.forward();
        finder.backward();
        finder.finish()
    }
}

struct Finder<'p> {
    program: &'p Program,
    main: &'p Function,
    layers: Vec<usize>,
    backward: Vec<bool>,
    nodes: Vec<Option<Content>>,
}

impl<'p> Finder<'p> {
    fn new(program: &'p Program, main: &'p Function) -> Self {
        let mut backward = vec![false; main.nodes.len()];
        for (i, n) in main.nodes.iter().enumerate() {
            // A total is what the backward starts from; it comes from no batch.
            backward[i] = match &n.op {
                Op::Input { index } => {
                    main.inputs.get(*index as usize).is_some_and(|i| i.from.is_none())
                }
                _ => n.operands.iter().any(|v| backward[v.node.0 as usize]),
            };
        }
        Finder {
            program,
            main,
            layers: layers(program).into_iter().map(|id| id.0 as usize).collect(),
            backward,
            nodes: vec![None; main.nodes.len()],
        }
    }

    /// Nodes that any of `roots` needs, these among them.
    fn needed(&self, roots: &[usize]) -> Vec<bool> {
        let mut needed = vec![false; self.main.nodes.len()];
        roots.iter().for_each(|r| needed[*r] = true);
        for i in (0..self.main.nodes.len()).rev() {
            if needed[i] {
                self.main.nodes[i].operands.iter().for_each(|v| needed[v.node.0 as usize] = true);
            }
        }
        needed
    }

    /// Nodes that need any of `roots`, these among them.
    fn reached(&self, is_root: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.main.nodes.len()];
        for (i, n) in self.main.nodes.iter().enumerate() {
            reached[i] = is_root(i) || n.operands.iter().any(|v| reached[v.node.0 as usize]);
        }
        reached
    }

    fn forward(&mut self) {
        let main = self.main;
        let before = self.needed(&self.layers);
        let behind = self.reached(|i| self.layers.contains(&i));
        let pictures = self.reached(|i| match main.nodes[i].op {
            Op::Input { index } => main
                .inputs
                .get(index as usize)
                .and_then(|i| i.from.as_ref())
                .is_some_and(|h| h.function == PICTURES),
            _ => false,
        });
        let mixes = self.mixing();
        let mtp: Vec<usize> = (0..main.nodes.len())
            .filter(|i| !before[*i] && behind[*i] && !self.backward[*i])
            .filter(|i| matches!(&main.nodes[*i].op, Op::Call { callee, .. } if mixes.contains_key(&**callee)))
            .collect();
        let before_mtp: Vec<Vec<bool>> = mtp.iter().map(|i| self.needed(&[*i])).collect();
        let heads: Vec<usize> = (0..main.nodes.len())
            .filter(|i| !before[*i] && behind[*i] && !self.backward[*i] && self.is_call(*i))
            .collect();
        let before_heads: Vec<Vec<bool>> = heads.iter().map(|i| self.needed(&[*i])).collect();
        for (i, n) in main.nodes.iter().enumerate() {
            if self.backward[i] || matches!(n.op, Op::Input { .. }) {
                continue;
            }
            let layer = self.layers.iter().position(|l| *l == i);
            let own = mtp.iter().position(|m| *m == i);
            // The module that this is computed for, such as the embedding of further tokens.
            let for_mtp = before_mtp.iter().position(|b| b[i]);
            // A call whose result another call takes.
            let feeds = heads.iter().zip(&before_heads).any(|(h, b)| *h != i && b[i]);
            self.nodes[i] = Some(match (layer, own) {
                (Some(l), _) => Content::Layer(l as u32),
                (_, Some(k)) => Content::Mtp(k as u32),
                _ if before[i] && pictures[i] && self.is_call(i) => Content::Vision,
                _ if before[i] => Content::Embed,
                _ if !behind[i] && for_mtp.is_some() => Content::Mtp(for_mtp.unwrap_or(0) as u32),
                _ if behind[i] && (for_mtp.is_some() || (self.is_call(i) && feeds)) => {
                    Content::FinalNorm
                }
                _ => Content::LmHead,
            });
        }
    }

    fn is_call(&self, i: usize) -> bool {
        matches!(self.main.nodes[i].op, Op::Call { .. })
    }

    /// Functions in which rows see each other, by themselves or by what they call, with the short
    /// name of the op by which they do.
    fn mixing(&self) -> IndexMap<&'p str, &'static str> {
        let mut out: IndexMap<&str, &'static str> = IndexMap::new();
        for f in &self.program.functions {
            let kind = f.nodes.iter().find_map(|n| match &n.op {
                Op::Attention { .. } => Some("attn"),
                Op::GatedDeltaRule => Some("gdn"),
                Op::Call { callee, .. } => out.get(&**callee).copied(),
                _ => None,
            });
            if let Some(kind) = kind {
                out.insert(&f.name, kind);
            }
        }
        out
    }

    /// A backward call goes where the forward call of the same scope, path and layer is; of several
    /// to the last that is free, since the way back is the way there turned round.
    fn backward(&mut self) {
        let mut open: FxHashMap<(&str, &str, Option<u32>), Vec<Content>> = FxHashMap::default();
        for (i, n) in self.main.nodes.iter().enumerate() {
            let Op::Call { scope, path, layer, .. } = &n.op else { continue };
            let list = open.entry((scope, path, *layer)).or_default();
            if self.backward[i] {
                self.nodes[i] = if list.len() > 1 { list.pop() } else { list.last().copied() };
            } else {
                list.extend(self.nodes[i]);
            }
        }
    }

    fn finish(self) -> Parts {
        let mixing = self.mixing();
        // A layer in which rows do not see each other is called by the name of its function.
        let kind = |i: &usize| match &self.main.nodes[*i].op {
            Op::Call { callee, .. } => match mixing.get(&**callee) {
                Some(kind) => kind.to_string(),
                None => callee.strip_suffix(".fwd").unwrap_or(callee).to_string(),
            },
            _ => String::new(),
        };
        let mtp = self.nodes.iter().flatten().filter_map(|c| match c {
            Content::Mtp(k) => Some(*k + 1),
            _ => None,
        });
        let mut parameters: IndexMap<Content, IndexSet<String>> = IndexMap::new();
        for (i, n) in self.main.nodes.iter().enumerate() {
            let Some(content) = self.nodes[i].filter(|_| !self.backward[i]) else { continue };
            let names = parameters.entry(content).or_default();
            match &n.op {
                Op::Param { index } => {
                    names.extend(self.main.params.get(*index as usize).map(|p| p.key.clone()));
                }
                Op::Call { callee, scope, .. } => self.names(callee, scope, names, 0),
                _ => {}
            }
            // A parameter of main is its reader's, too: a tied weight has two places.
            for v in &n.operands {
                if let Op::Param { index } = self.main.node(v.node).op {
                    names.extend(self.main.params.get(index as usize).map(|p| p.key.clone()));
                }
            }
        }
        let none = IndexSet::new();
        let of = |c| parameters.get(&c).unwrap_or(&none);
        let tied = of(Content::Embed).iter().any(|name| of(Content::LmHead).contains(name));
        let model = Model {
            layers: self.layers.iter().map(kind).collect(),
            vision: self.nodes.contains(&Some(Content::Vision)),
            mtp: mtp.max().unwrap_or(0),
            tied,
        };
        Parts { model, nodes: self.nodes, backward: self.backward, parameters }
    }

    /// Full names of what a function and its callees hold.
    fn names(&self, callee: &str, scope: &str, out: &mut IndexSet<String>, depth: usize) {
        let Some(f) = self.program.function(callee) else { return };
        out.extend(f.params.iter().map(|p| join_name(scope, &p.key)));
        // Callees come before callers, so the depth is bounded in verified programs.
        if depth > self.program.functions.len() {
            return;
        }
        for n in &f.nodes {
            if let Op::Call { callee, scope: inner, .. } = &n.op {
                self.names(callee, &join_name(scope, inner), out, depth + 1);
            }
        }
    }
}
