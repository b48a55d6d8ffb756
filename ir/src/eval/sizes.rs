//! Values of the symbols in one evaluation.

use super::EvalError;
use crate::dim::{Dim, Poly, Symbol};
use crate::graph::SymbolDecl;
use rustc_hash::FxHashMap;

/// Values of symbols.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    values: FxHashMap<Symbol, usize>,
}

impl Sizes {
    /// Gives a symbol a value.
    pub fn set(&mut self, symbol: &Symbol, value: usize) {
        self.values.insert(symbol.clone(), value);
    }

    /// The value of a symbol.
    pub fn get(&self, symbol: &Symbol) -> Option<usize> {
        self.values.get(symbol).copied()
    }

    fn value(&self, symbol: &Symbol) -> Option<i64> {
        self.get(symbol).and_then(|v| i64::try_from(v).ok())
    }

    /// The value of a dim.
    ///
    /// # Errors
    /// When a symbol has no value, a division is not exact or the size is negative.
    pub fn eval(&self, dim: &Dim) -> Result<usize, EvalError> {
        let value = dim.size().eval(&|s| self.value(s));
        value.and_then(|v| usize::try_from(v).ok()).ok_or_else(|| {
            let unknown: Vec<String> = dim
                .size()
                .symbols()
                .iter()
                .filter(|s| self.get(s).is_none())
                .map(Symbol::to_string)
                .collect();
            EvalError::new(match (unknown.is_empty(), value) {
                (false, _) => format!("the size {dim} needs a value for {}", unknown.join(", ")),
                (true, Some(v)) => format!("the size {dim} is {v}"),
                (true, None) => format!("the size {dim} is not a whole number that fits"),
            })
        })
    }

    /// The values of dims.
    ///
    /// # Errors
    /// See [`Sizes::eval`].
    pub fn eval_all(&self, dims: &[Dim]) -> Result<Vec<usize>, EvalError> {
        dims.iter().map(|d| self.eval(d)).collect()
    }

    /// Finds the symbols that the given sizes determine: those that stand alone in a dim as
    /// `factor * symbol + constant`, once the symbols found so far are put in. Nothing is checked
    /// against values that are known already; whoever asks compares the evaluated dims.
    ///
    /// # Errors
    /// When no whole number solves a dim.
    pub fn solve<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a Dim, usize)>,
    ) -> Result<(), EvalError> {
        let mut open: Vec<(&Dim, usize)> = pairs.into_iter().collect();
        loop {
            let before = open.len();
            let mut rest = vec![];
            for (dim, have) in open {
                let known = |s: &Symbol| self.value(s).map(Poly::constant);
                let reduced = dim.size().substitute(&known);
                match reduced.as_ref().and_then(Poly::as_linear) {
                    Some((symbol, factor, constant)) => {
                        let value = solve_linear(have, factor, constant).ok_or_else(|| {
                            EvalError::new(format!("no {symbol} makes {dim} the size {have}"))
                        })?;
                        self.set(symbol, value);
                    }
                    None => rest.push((dim, have)),
                }
            }
            open = rest;
            if open.len() == before {
                return Ok(());
            }
        }
    }

    /// Checks the values that are known against the declarations.
    ///
    /// # Errors
    /// When a value is not the multiple that its declaration promises.
    pub fn check(&self, symbols: &[SymbolDecl]) -> Result<(), EvalError> {
        for s in symbols {
            let Some(v) = self.value(&s.symbol) else { continue };
            if v.checked_rem(s.multiple_of) != Some(0) {
                return Err(EvalError::new(format!(
                    "{} is {v}, which is no multiple of {}",
                    s.symbol, s.multiple_of
                )));
            }
        }
        Ok(())
    }
}

fn solve_linear(have: usize, factor: i64, constant: i64) -> Option<usize> {
    let rest = i64::try_from(have).ok()?.checked_sub(constant)?;
    if rest.checked_rem(factor)? != 0 {
        return None;
    }
    usize::try_from(rest / factor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_are_solved() {
        let s = Poly::symbol;
        let dims = [
            Dim::new(s("T").mul(&s("h"))),
            Dim::new(s("docs").add(&1.into())),
            Dim::new(s("h").mul(&4.into())),
        ];
        let mut sizes = Sizes::default();
        sizes.solve(dims.iter().zip([24, 6, 8])).expect("solvable");
        for (name, value) in [("T", 12), ("docs", 5), ("h", 2)] {
            assert_eq!(sizes.get(&Symbol::new(name)), Some(value));
        }
        assert!(Sizes::default().solve([(&dims[2], 9)]).is_err());
        assert!(Sizes::default().solve([(&dims[1], 0)]).is_err());
    }
}
