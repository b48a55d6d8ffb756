//! Applies rules until nothing new comes, within budgets that count work and never time.
//!
//! A round looks for matches in a graph that stands still, then applies them one by one. The number
//! of e-nodes is checked before each node that is added, the number of matches in rule bodies.
//! Rounds look only at classes near what the last one changed; when such a round finds nothing, one
//! over everything must agree before the graph counts as saturated.

use super::language::{ENode, Graph};
use super::term::{Found, Term, Unbuilt, View, build};
use egg::{Id, Language};
use std::collections::{BTreeMap, BTreeSet};
use vlmc_ir::ops::Op;

/// A directional rule.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// `family.name`
    pub(super) name: &'static str,
    /// Whether it may apply to an e-node of this op.
    pub(super) on: fn(&Op) -> bool,
    /// Finds terms that equal the e-node.
    pub(super) body: Body,
}

/// Class, op and children of the e-node.
pub(super) type Body = fn(View<'_>, Id, &Op, &[Id], &mut Found);

/// Budgets for one function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// E-nodes.
    pub nodes: usize,
    /// Matches found in one round.
    pub matches: usize,
    /// Terms from one rule at one e-node.
    pub terms: usize,
    /// Rounds.
    pub rounds: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { nodes: 12_000, matches: 30_000, terms: 200, rounds: 60 }
    }
}

/// What a rule did at a class, as the driver reports it.
pub(super) enum Report {
    Fired,
    Refused(String),
}

/// How many levels of children rules look at.
const DEPTH: usize = 3;

/// Saturates; `report` hears of each decision with the class it is about. Returns the budgets that
/// were reached.
///
/// # Errors
/// When a rule makes equal what has different types.
pub(super) fn saturate(
    graph: &mut Graph,
    rules: &[Rule],
    limits: Limits,
    report: &mut dyn FnMut(&Graph, &'static str, Id, Report),
) -> Result<Vec<String>, String> {
    let mut warnings: BTreeSet<String> = BTreeSet::new();
    graph.rebuild();
    sound(graph)?;
    let mut near: Option<BTreeSet<Id>> = None;
    let mut before = shapes(graph);
    for _ in 0..limits.rounds {
        let matches = search(graph, rules, limits, near.as_ref(), report, &mut warnings);
        let changed = apply(graph, rules, limits, &matches, report, &mut warnings)?;
        graph.rebuild();
        sound(graph)?;
        if graph.total_size() >= limits.nodes {
            return Ok(warnings.into_iter().collect());
        }
        if changed {
            let now = shapes(graph);
            near = Some(neighbours(graph, &before, &now));
            before = now;
        } else if near.take().is_none() {
            return Ok(warnings.into_iter().collect());
        }
    }
    warnings.insert(format!("{} rounds are not enough", limits.rounds));
    Ok(warnings.into_iter().collect())
}

fn sound(graph: &Graph) -> Result<(), String> {
    graph.analysis.wrong.clone().map_or(Ok(()), Err)
}

/// The number of e-nodes of each class.
fn shapes(graph: &Graph) -> BTreeMap<Id, usize> {
    graph.classes().map(|c| (c.id, c.nodes.len())).collect()
}

/// Classes that changed, and those a few levels above them.
fn neighbours(
    graph: &Graph,
    before: &BTreeMap<Id, usize>,
    now: &BTreeMap<Id, usize>,
) -> BTreeSet<Id> {
    let mut near: BTreeSet<Id> =
        now.iter().filter(|(id, n)| before.get(id) != Some(n)).map(|(id, _)| *id).collect();
    for _ in 0..DEPTH {
        let above: Vec<Id> = graph
            .classes()
            .filter(|c| c.nodes.iter().any(|n| n.children().iter().any(|k| near.contains(k))))
            .map(|c| c.id)
            .collect();
        near.extend(above);
    }
    near
}

/// A rule's result at a class: the rule's index, the class and the term.
type Match = (usize, Id, Term);

fn search(
    graph: &Graph,
    rules: &[Rule],
    limits: Limits,
    near: Option<&BTreeSet<Id>>,
    report: &mut dyn FnMut(&Graph, &'static str, Id, Report),
    warnings: &mut BTreeSet<String>,
) -> Vec<Match> {
    let mut classes: Vec<Id> = match near {
        Some(near) => near.iter().copied().collect(),
        None => graph.classes().map(|c| c.id).collect(),
    };
    classes.sort_unstable();
    let view = View { graph };
    let mut out: Vec<Match> = vec![];
    for class in classes {
        let mut nodes: Vec<&ENode> = graph[class].nodes.iter().collect();
        nodes.sort_unstable();
        for n in nodes {
            let Some(op) = graph.analysis.op(n) else { continue };
            for (i, rule) in rules.iter().enumerate().filter(|(_, r)| (r.on)(op)) {
                let room = limits.terms.min(limits.matches.saturating_sub(out.len()));
                let mut found = Found { room, ..Found::default() };
                (rule.body)(view, class, op, &n.children, &mut found);
                if found.full {
                    warnings.insert(format!("`{}` finds more than is looked at", rule.name));
                }
                for guard in found.refused {
                    report(graph, rule.name, class, Report::Refused(guard));
                }
                out.extend(found.terms.into_iter().map(|t| (i, class, t)));
            }
        }
    }
    out
}

/// Returns whether something became equal that was not.
fn apply(
    graph: &mut Graph,
    rules: &[Rule],
    limits: Limits,
    matches: &[Match],
    report: &mut dyn FnMut(&Graph, &'static str, Id, Report),
    warnings: &mut BTreeSet<String>,
) -> Result<bool, String> {
    let mut changed = false;
    for (i, class, term) in matches {
        let (name, class) = (rules[*i].name, graph.find(*class));
        let made = match build(graph, class, term, limits.nodes) {
            Ok(made) => made,
            Err(Unbuilt::IllTyped) => continue,
            Err(Unbuilt::Full) => {
                warnings.insert(format!("{} e-nodes are not enough for `{name}`", limits.nodes));
                return Ok(changed);
            }
        };
        if graph.find(made) == class {
            continue;
        }
        if graph[made].data.tys != graph[class].data.tys {
            let ty = |id: Id| View { graph }.ty(id).to_string();
            return Err(format!("`{name}` takes {} for {}", ty(made), ty(class)));
        }
        report(graph, name, class, Report::Fired);
        changed |= graph.union_trusted(class, made, name);
    }
    Ok(changed)
}
