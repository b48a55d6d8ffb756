//! Chosen clusters become functions of their own, and calls of them.

use super::choose::Kernel;
use super::facts::{Facts, Role, at};
use super::label::Families;
use super::set::Set;
use crate::rewrite::{Rewriter, common_region};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use vlmc_ir::graph::{Function, Node, NodeId, Origin, Value};
use vlmc_ir::ops::{Effect, Op};

/// The bodies of the clusters, and the function that calls them.
pub(super) struct Outlined {
    pub(super) clusters: Vec<Function>,
    pub(super) function: Function,
}

/// What is done at one place of the function: a node, or a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Unit {
    Node(usize),
    Kernel(usize),
}

/// Builds them; `taken` are names of functions that are there.
///
/// # Errors
/// When kernels wait for each other, which choosing has ruled out.
pub(super) fn outline(
    facts: &Facts<'_>,
    kernels: &[Kernel],
    families: &Families<'_, '_>,
    taken: &FxHashSet<&str>,
) -> Result<Outlined, String> {
    let f = facts.f;
    let kernels: &[Kernel] = &placed(facts, kernels);
    let mut maker: BTreeMap<usize, usize> = BTreeMap::new();
    for (k, kernel) in kernels.iter().enumerate() {
        kernel.stores.iter().for_each(|v| {
            maker.insert(*v, k);
        });
    }
    // Numbered in the order of what they store.
    let mut order: Vec<usize> = (0..kernels.len()).collect();
    order.sort_by_key(|k| kernels[*k].stores.first().copied());
    let mut clusters: Vec<Function> = vec![];
    let mut made: Vec<Option<(usize, Vec<Value>)>> = vec![None; kernels.len()];
    let mut names = (0..).map(|n| format!("{}.k{n}", f.name)).filter(|n| !taken.contains(&**n));
    for k in order {
        let name = names.next().unwrap_or_default();
        let (mut function, inputs) = body(facts, &kernels[k], name);
        function.cluster = Some(families.label(&kernels[k]).into());
        made[k] = Some((clusters.len(), inputs));
        clusters.push(function);
    }
    let made: Vec<(usize, Vec<Value>)> = made.into_iter().flatten().collect();
    let unit = |i: usize| maker.get(&i).map_or(Unit::Node(i), |k| Unit::Kernel(*k));
    let needs = |u: Unit| -> Vec<Unit> {
        match u {
            Unit::Node(i) => f.nodes[i].operands.iter().map(|v| unit(at(*v))).collect(),
            Unit::Kernel(k) => made[k].1.iter().map(|v| unit(at(*v))).collect(),
        }
    };
    let mut r = Rewriter::new(f);
    let roots = (0..f.nodes.len())
        .filter(|i| f.nodes[*i].op.info().effect != Effect::Pure)
        .chain(f.output_values().map(at));
    let (mut done, mut open): (FxHashSet<Unit>, FxHashSet<Unit>) = Default::default();
    for root in roots {
        let mut stack = vec![unit(root)];
        while let Some(u) = stack.last().copied() {
            if done.contains(&u) {
                stack.pop();
                continue;
            }
            let missing: Vec<Unit> = needs(u).into_iter().filter(|n| !done.contains(n)).collect();
            if missing.is_empty() {
                match u {
                    Unit::Node(i) => {
                        r.keep(NodeId(i as u32));
                    }
                    Unit::Kernel(k) => {
                        let (cluster, inputs) = &made[k];
                        call(&mut r, facts, &kernels[k], &clusters[*cluster], inputs);
                    }
                }
                done.insert(u);
                stack.pop();
            } else if open.insert(u) {
                stack.extend(missing.into_iter().rev());
            } else {
                return Err("clusters wait for each other".to_string());
            }
        }
    }
    Ok(Outlined { clusters, function: r.finish() })
}

/// Kernels that store to the places that concatenations are: where all pieces of one come from one
/// kernel, the kernel stores the whole, and pieces that nobody else reads are stored nowhere else.
fn placed(facts: &Facts<'_>, kernels: &[Kernel]) -> Vec<Kernel> {
    let f = facts.f;
    let mut users: Vec<Vec<Option<usize>>> = vec![vec![]; f.nodes.len()];
    for (i, node) in f.nodes.iter().enumerate() {
        node.operands.iter().for_each(|v| users[at(*v)].push(Some(i)));
    }
    f.output_values().for_each(|v| users[at(v)].push(None));
    let place = |kernel: &Kernel| {
        let mut out = kernel.clone();
        let mut stores = Set::of(kernel.stores.iter().copied());
        // Reshapes on the way to a concatenation are taken when it is.
        let mut held = stores.clone();
        for (i, node) in f.nodes.iter().enumerate() {
            if facts.role[i] != Role::Row || !facts.live[i] || out.ops.contains(i) {
                continue;
            }
            let whole = node.operands.iter().all(|v| held.contains(at(*v)));
            match &node.op {
                Op::Reshape { .. } if whole => held.insert(i),
                Op::Concat { .. } if whole => {
                    held.insert(i);
                    stores.insert(i);
                    out.ops.insert(i);
                    let mut open: Vec<usize> = node.operands.iter().map(|v| at(*v)).collect();
                    while let Some(x) = open.pop() {
                        if !stores.contains(x) && !out.ops.contains(x) {
                            out.ops.insert(x);
                            open.extend(f.nodes[x].operands.iter().map(|v| at(*v)));
                        }
                        if users[x].iter().all(|u| u.is_some_and(|u| out.ops.contains(u))) {
                            stores.remove(x);
                        }
                    }
                }
                _ => {}
            }
        }
        out.stores = stores.iter().collect();
        out
    };
    kernels.iter().map(place).collect()
}

fn call(
    r: &mut Rewriter<'_>,
    facts: &Facts<'_>,
    kernel: &Kernel,
    cluster: &Function,
    inputs: &[Value],
) {
    let f = facts.f;
    let region = common_region(f, kernel.ops.iter().map(|i| f.nodes[i].region));
    let mut origins: Vec<Origin> = vec![];
    for o in kernel.ops.iter().flat_map(|i| &f.nodes[i].origins) {
        if !origins.contains(o) {
            origins.push(o.clone());
        }
    }
    let node = Node {
        op: Op::Call {
            callee: cluster.name.clone(),
            scope: String::new(),
            path: String::new(),
            layer: None,
        },
        operands: inputs.iter().filter_map(|v| r.value(*v)).collect(),
        tys: kernel.stores.iter().map(|v| facts.ty(*v).clone()).collect(),
        name: kernel.stores.first().and_then(|v| f.nodes[*v].name.clone()),
        region: region.map(|id| r.region(id)),
        origins,
    };
    let id = r.add(node);
    for (result, v) in kernel.stores.iter().enumerate() {
        r.replace(NodeId(*v as u32), vec![Value { node: id, result: result as u32 }]);
    }
}

/// The function of a cluster, and the values that its inputs are.
fn body(facts: &Facts<'_>, kernel: &Kernel, name: String) -> (Function, Vec<Value>) {
    let f = facts.f;
    // Only what the stored values need, with views of what is loaded, and constants.
    let mut inside = vec![false; f.nodes.len()];
    let mut open = kernel.stores.clone();
    let within = |i: usize| {
        kernel.ops.contains(i)
            || facts.role[i] == Role::Free
            || (facts.role[i] == Role::Leaf && !f.nodes[i].operands.is_empty())
    };
    let mut loaded: Vec<Value> = vec![];
    while let Some(i) = open.pop() {
        if std::mem::replace(&mut inside[i], true) {
            continue;
        }
        for v in &f.nodes[i].operands {
            if within(at(*v)) {
                open.push(at(*v));
            } else if !loaded.contains(v) {
                loaded.push(*v);
            }
        }
    }
    loaded.sort_unstable();
    let mut out = Function::new(name);
    let mut values: BTreeMap<Value, Value> = BTreeMap::new();
    let mut taken: FxHashSet<Arc<str>> = FxHashSet::default();
    for (n, v) in loaded.iter().enumerate() {
        let node = f.node(v.node);
        let mut name: Arc<str> = node.name.clone().unwrap_or_else(|| format!("in{n}").into());
        while !taken.insert(name.clone()) {
            name = format!("{name}.{n}").into();
        }
        let ty = f.ty(*v).clone();
        values.insert(*v, out.add_input(&name, ty, None));
    }
    for (i, node) in f.nodes.iter().enumerate().filter(|(i, _)| inside[*i]) {
        let operands = node.operands.iter().filter_map(|v| values.get(v).copied()).collect();
        let name = node.name.clone().filter(|n| taken.insert(n.clone()));
        let id = out.push_node(node.op.clone(), operands, node.tys.clone(), name);
        out.nodes[id.0 as usize].origins.clone_from(&node.origins);
        values.insert(facts.value(i), id.into());
    }
    for v in &kernel.stores {
        if let Some(new) = values.get(&facts.value(*v)) {
            out.add_output(None, *new);
        }
    }
    (out, loaded)
}
