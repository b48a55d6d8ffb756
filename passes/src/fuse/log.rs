//! Decisions of fusion: the raw form of the list of near misses.

use super::facts::Facts;
pub use crate::canon::{Event, Outcome};
use vlmc_ir::text::print::Labels;

/// Every decision, counted, and the budgets that were reached.
pub type Log = LogOf;

/// See [`Log`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogOf {
    /// Decisions.
    pub decisions: crate::canon::Log,
}

impl LogOf {
    pub(super) fn note(
        &mut self,
        facts: &Facts<'_>,
        rule: &'static str,
        about: usize,
        outcome: Outcome,
    ) {
        if rule == "seed" && outcome == Outcome::Fired {
            return;
        }
        let value = facts.value(about);
        self.decisions.note(Event {
            function: facts.f.name.clone(),
            rule,
            value: Labels::new(facts.f).value(value),
            origin: facts.f.node(value.node).origins.first().cloned(),
            outcome,
        });
    }

    pub(super) fn warn(&mut self, warning: String) {
        if !self.decisions.warnings.contains(&warning) {
            self.decisions.warnings.push(warning);
        }
    }
}
