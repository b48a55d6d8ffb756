//! What rules did, and what stopped them: the raw form of the list of near misses.

use std::collections::BTreeMap;
use vlmc_ir::graph::Origin;

/// How a rule ended at a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// It gave an equal form that was not there before.
    Fired,
    /// A guard stopped it, in these words.
    Refused(String),
}

/// One decision about one value. Equal ones are counted, not repeated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Event {
    /// The function.
    pub function: String,
    /// The rule, `family.name`.
    pub rule: &'static str,
    /// The value as dumps before the pass call it.
    pub value: String,
    /// Where the value comes from.
    pub origin: Option<Origin>,
    /// What came of it.
    pub outcome: Outcome,
}

/// Every decision, with the number of times it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    events: BTreeMap<Event, usize>,
    /// Budgets that were reached, in words. The result is right, but may not be the normal form.
    pub warnings: Vec<String>,
}

impl Log {
    /// Notes a decision.
    pub fn note(&mut self, event: Event) {
        *self.events.entry(event).or_default() += 1;
    }

    /// Adds the decisions of another log.
    pub fn append(&mut self, other: Log) {
        for (event, n) in other.events {
            *self.events.entry(event).or_default() += n;
        }
        for w in other.warnings {
            if !self.warnings.contains(&w) {
                self.warnings.push(w);
            }
        }
    }

    /// Decisions in a fixed order.
    pub fn events(&self) -> impl Iterator<Item = (&Event, usize)> {
        self.events.iter().map(|(e, n)| (e, *n))
    }

    /// How often each rule fired.
    pub fn fired(&self) -> BTreeMap<&'static str, usize> {
        let mut out = BTreeMap::new();
        for (e, n) in self.events() {
            if e.outcome == Outcome::Fired {
                *out.entry(e.rule).or_default() += n;
            }
        }
        out
    }
}
