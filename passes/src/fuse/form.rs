//! How the row arithmetic around delta rules is spread over launches.
//!
//! The region of a delta rule is what its queries, keys, values, gates and betas are made of, up to
//! the cuts before, and what the gradients of these become. A form is a limit on the clusters of that
//! region; by itself none is preferred, and costs decide.

use super::body::Body;
use super::device::taps;
use super::facts::{Facts, Role, at};
use super::grow::rule_of;
use super::legality::sections;
use super::set::Set;
use std::collections::BTreeSet;
use vlmc_ir::ops::Op;

/// A form of the region of a delta rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Costs decide.
    #[default]
    Auto,
    /// Stencils and lane reductions are launches of their own, and so is each section.
    Unfused,
    /// Each section is a launch.
    Streamed,
    /// One launch stores all.
    Mega,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 4] = [Form::Auto, Form::Unfused, Form::Streamed, Form::Mega];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Form::Auto => "auto",
            Form::Unfused => "unfused",
            Form::Streamed => "streamed",
            Form::Mega => "mega",
        }
    }
}

impl std::str::FromStr for Form {
    type Err = String;

    fn from_str(name: &str) -> Result<Form, String> {
        Form::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| {
            let known = Form::ALL.map(Form::name).join(", ");
            format!("there is no form `{name}`, only {known}")
        })
    }
}

/// The regions of a function's delta rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions {
    /// Row ops.
    ops: Set,
    /// For each delta rule what is stored for it, or made of its gradients.
    pub(super) groups: Vec<Set>,
}

/// Operands of a delta rule and of its gradient: queries, keys, values, gates and betas.
const OPERANDS: usize = 5;

impl Regions {
    pub(super) fn new(facts: &Facts<'_>) -> Self {
        let f = facts.f;
        let mut out = Regions::default();
        for (i, node) in f.nodes.iter().enumerate().filter(|(i, _)| facts.live[*i]) {
            let back = matches!(node.op, Op::GatedDeltaRuleGrad);
            if !back && !matches!(node.op, Op::GatedDeltaRule) {
                continue;
            }
            let mut group = Set::default();
            let mut open: Vec<usize> =
                node.operands.iter().take(OPERANDS).map(|v| at(*v)).collect();
            let mut seen = Set::default();
            while let Some(a) = open.pop() {
                if facts.role[a] != Role::Row || facts.param[a] || seen.contains(a) {
                    continue;
                }
                seen.insert(a);
                if facts.stored.contains(a) {
                    group.insert(a);
                }
                open.extend(f.nodes[a].operands.iter().map(|v| at(*v)));
            }
            out.groups.push(group);
            if back {
                let of = |a: usize| facts.below[a].iter().any(|b| facts.root(b) == i);
                let made = |a: &usize| facts.role[*a] == Role::Row && of(*a);
                let made = Set::of((0..f.nodes.len()).filter(|a| facts.live[*a]).filter(made));
                out.groups.push(Set::of(made.iter().filter(|a| facts.stored.contains(*a))));
                seen.extend(&made);
            }
            out.ops.extend(&seen);
        }
        out.groups.retain(|g| !g.is_empty());
        out
    }

    /// Whether a form lets a body be.
    ///
    /// # Errors
    /// The reason, in words for the list of near misses.
    pub(super) fn check(&self, form: Form, facts: &Facts<'_>, body: &Body) -> Result<(), String> {
        if matches!(form, Form::Auto | Form::Mega) {
            return Ok(());
        }
        let work: Vec<usize> = body.ops.iter().filter(|i| !facts.param[*i]).collect();
        let inside = |i: &usize| self.ops.contains(*i);
        let of = work.iter().zip(sections(facts, &work));
        let apart: BTreeSet<usize> = of.filter(|(i, _)| inside(i)).map(|(_, s)| s).collect();
        if apart.len() > 1 {
            return Err(format!("the form `{}` gives each section a launch", form.name()));
        }
        let any = |test: &dyn Fn(usize) -> bool| work.iter().any(|i| inside(i) && test(*i));
        if form == Form::Unfused
            && any(&|i| taps(facts, i) > 0.0)
            && any(&|i| rule_of(facts, i) == "absorb.reduce")
        {
            let form = form.name();
            return Err(format!("the form `{form}` keeps stencils and lane reductions apart"));
        }
        Ok(())
    }
}
