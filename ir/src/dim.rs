//! Sizes: integer polynomials over symbols, with exact division, and sums of named segments.
//!
//! A size is kept in one normal form, so that two sizes are equal exactly when they print the same:
//! terms sorted by monomial, no zero coefficients, quotients cancelled where that is exact.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A named size that is not known when compiling (`T`, `docs`) or, while a spec is checked without
/// a variant, a configuration field (`c.hidden`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Symbol(pub Arc<str>);

impl Symbol {
    /// The symbol of this name.
    pub fn new(name: &str) -> Self {
        Symbol(name.into())
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A factor of a monomial.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Atom {
    /// A symbol.
    Symbol(Symbol),
    /// An exact quotient that does not simplify. Whoever builds one has proved, or will check once
    /// the symbols are known, that the division leaves no remainder.
    Quotient(Box<Poly>, Box<Poly>),
}

/// A product of atoms with their powers, sorted; empty for 1.
type Monomial = Vec<(Atom, u32)>;

/// An integer polynomial over symbols and exact quotients.
///
/// Arithmetic saturates at the limits of `i64`: a size that large is refused by whoever asks for
/// its value long before.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Poly {
    terms: Vec<(Monomial, i64)>,
}

impl Poly {
    /// A constant.
    pub fn constant(value: i64) -> Self {
        Poly { terms: if value == 0 { vec![] } else { vec![(vec![], bounded(value))] } }
    }

    /// A symbol.
    pub fn symbol(name: &str) -> Self {
        Self::atom(Atom::Symbol(Symbol::new(name)))
    }

    fn atom(atom: Atom) -> Self {
        Poly { terms: vec![(vec![(atom, 1)], 1)] }
    }

    /// The normal form of a sum of terms: zeros dropped, quotients cancelled.
    fn from_map(map: BTreeMap<Monomial, i64>) -> Self {
        let mut cancelled = vec![];
        let mut terms = vec![];
        for term in map.into_iter().filter(|(_, c)| *c != 0) {
            match cancel(&term) {
                Some(p) => cancelled.push(p),
                None => terms.push(term),
            }
        }
        cancelled.iter().fold(Poly { terms }, |sum, p| sum.add(p))
    }

    /// The number of terms.
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    /// Its value when it has no symbols.
    pub fn as_constant(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(m, c)] if m.is_empty() => Some(*c),
            _ => None,
        }
    }

    /// The symbol, factor and constant when this is `factor * symbol + constant`.
    pub fn as_linear(&self) -> Option<(&Symbol, i64, i64)> {
        let (constant, m, factor) = match self.terms.as_slice() {
            [(m, factor)] => (0, m, factor),
            [(empty, constant), (m, factor)] if empty.is_empty() => (*constant, m, factor),
            _ => return None,
        };
        match m.as_slice() {
            [(Atom::Symbol(s), 1)] => Some((s, *factor, constant)),
            _ => None,
        }
    }

    /// Whether it is this constant.
    pub fn is(&self, value: i64) -> bool {
        self.as_constant() == Some(value)
    }

    /// Every symbol in it, sorted, once.
    pub fn symbols(&self) -> Vec<Symbol> {
        fn walk(p: &Poly, out: &mut Vec<Symbol>) {
            for (m, _) in &p.terms {
                for (a, _) in m {
                    match a {
                        Atom::Symbol(s) => out.push(s.clone()),
                        Atom::Quotient(n, d) => {
                            walk(n, out);
                            walk(d, out);
                        }
                    }
                }
            }
        }
        let mut out = vec![];
        walk(self, &mut out);
        out.sort();
        out.dedup();
        out
    }

    /// `self + other`
    pub fn add(&self, other: &Poly) -> Poly {
        let mut map: BTreeMap<Monomial, i64> = self.terms.iter().cloned().collect();
        for (m, c) in &other.terms {
            let e = map.entry(m.clone()).or_insert(0);
            *e = bounded(e.saturating_add(*c));
        }
        Self::from_map(map)
    }

    /// `-self`
    pub fn neg(&self) -> Poly {
        Self::from_map(self.terms.iter().map(|(m, c)| (m.clone(), c.saturating_neg())).collect())
    }

    /// `self - other`
    pub fn sub(&self, other: &Poly) -> Poly {
        self.add(&other.neg())
    }

    /// `self * other`
    pub fn mul(&self, other: &Poly) -> Poly {
        if let (Some(a), Some(b)) = (self.as_constant(), other.as_constant()) {
            return Poly::constant(bounded(a.saturating_mul(b)));
        }
        let mut map: BTreeMap<Monomial, i64> = BTreeMap::new();
        for (ma, ca) in &self.terms {
            for (mb, cb) in &other.terms {
                let e = map.entry(multiply(ma, mb)).or_insert(0);
                *e = bounded(e.saturating_add(bounded(ca.saturating_mul(*cb))));
            }
        }
        Self::from_map(map)
    }

    /// `self ** n`
    pub fn pow(&self, n: u32) -> Poly {
        (0..n).fold(Poly::constant(1), |p, _| p.mul(self))
    }

    /// `self / other`, exactly. Division by the constant 0 gives `None`.
    ///
    /// A quotient that does not simplify becomes an atom; see [`Facts::divides`] for who proves it.
    pub fn div(&self, other: &Poly) -> Option<Poly> {
        if other.is(0) {
            return None;
        }
        Some(self.div_evident(other).unwrap_or_else(|| {
            Self::atom(Atom::Quotient(Box::new(self.clone()), Box::new(other.clone())))
        }))
    }

    /// The quotient when its exactness is plain from the form of the two.
    pub fn div_evident(&self, other: &Poly) -> Option<Poly> {
        if self == other {
            return Some(Poly::constant(1));
        }
        let [(dm, dc)] = other.terms.as_slice() else {
            // A sum divides a sum when one ratio serves all terms: (2a + 2b) / (a + b).
            let (first, lead) = (self.terms.first()?, other.terms.first()?);
            let ratio = Poly { terms: vec![first.clone()] }
                .div_evident(&Poly { terms: vec![lead.clone()] })?;
            return (ratio.mul(other) == *self).then_some(ratio);
        };
        let mut terms = BTreeMap::new();
        for (m, c) in &self.terms {
            if c.checked_rem(*dc)? != 0 {
                return None;
            }
            terms.insert(divide(m, dm)?, c / dc);
        }
        Some(Self::from_map(terms))
    }

    /// Its value under a binding of the symbols; `None` if one is unbound, a division is not exact
    /// or the value does not fit.
    pub fn eval(&self, bind: &dyn Fn(&Symbol) -> Option<i64>) -> Option<i64> {
        let mut sum = 0i64;
        for (m, c) in &self.terms {
            let mut v = *c;
            for (a, p) in m {
                let x = match a {
                    Atom::Symbol(s) => bind(s)?,
                    Atom::Quotient(n, d) => {
                        let (n, d) = (n.eval(bind)?, d.eval(bind)?);
                        if n.checked_rem(d)? != 0 {
                            return None;
                        }
                        n / d
                    }
                };
                v = v.checked_mul(x.checked_pow(*p)?)?;
            }
            sum = sum.checked_add(v)?;
        }
        Some(sum)
    }

    /// The polynomial with some symbols replaced; `None` where a division by zero appears.
    pub fn substitute(&self, bind: &dyn Fn(&Symbol) -> Option<Poly>) -> Option<Poly> {
        let mut sum = Poly::default();
        for (m, c) in &self.terms {
            let mut v = Poly::constant(*c);
            for (a, p) in m {
                let x = match a {
                    Atom::Symbol(s) => bind(s).unwrap_or_else(|| Self::atom(a.clone())),
                    Atom::Quotient(n, d) => n.substitute(bind)?.div(&d.substitute(bind)?)?,
                };
                v = v.mul(&x.pow(*p));
            }
            sum = sum.add(&v);
        }
        Some(sum)
    }

    /// Whether it is one term without a sign, which needs no brackets inside a product.
    fn is_plain_term(&self) -> bool {
        match self.terms.as_slice() {
            [] => true,
            [(_, c)] => *c >= 0,
            _ => false,
        }
    }

    /// Its terms as polynomials.
    fn each_term(&self) -> impl Iterator<Item = Poly> + '_ {
        self.terms.iter().map(|t| Poly { terms: vec![t.clone()] })
    }
}

/// The smallest i64 has no text form, since a sign is written apart from its number.
fn bounded(v: i64) -> i64 {
    v.max(-i64::MAX)
}

fn multiply(a: &Monomial, b: &Monomial) -> Monomial {
    let mut map: BTreeMap<Atom, u32> = a.iter().cloned().collect();
    for (atom, p) in b {
        *map.entry(atom.clone()).or_insert(0) += p;
    }
    map.into_iter().collect()
}

fn divide(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut map: BTreeMap<Atom, u32> = a.iter().cloned().collect();
    for (atom, p) in b {
        let have = map.get_mut(atom)?;
        *have = have.checked_sub(*p)?;
    }
    Some(map.into_iter().filter(|(_, p)| *p > 0).collect())
}

/// `c (n / d) rest = q n (rest / dm) + r (n / d) rest`, where `d = dc dm` is one term, `dm` is found
/// in the monomial and `c = q dc + r` with `0 <= r < |dc|`. `None` when nothing cancels.
///
/// Without the remainder `3 (n / 2)` and `n + n / 2` would be two forms of one size.
fn cancel((m, c): &(Monomial, i64)) -> Option<Poly> {
    for (i, (atom, p)) in m.iter().enumerate() {
        let Atom::Quotient(n, d) = atom else { continue };
        let [(dm, dc)] = d.terms.as_slice() else { continue };
        let mut rest = m.clone();
        rest[i].1 = p - 1;
        rest.retain(|(_, p)| *p > 0);
        let (Some(q), Some(r)) = (c.checked_div_euclid(*dc), c.checked_rem_euclid(*dc)) else {
            continue;
        };
        if q == 0 {
            continue;
        }
        if let Some(rest) = divide(&rest, dm) {
            let whole = n.mul(&Poly { terms: vec![(rest, q)] });
            let left = if r == 0 { vec![] } else { vec![(m.clone(), r)] };
            return Some(whole.add(&Poly { terms: left }));
        }
    }
    None
}

impl From<i64> for Poly {
    fn from(value: i64) -> Self {
        Poly::constant(value)
    }
}

impl fmt::Display for Poly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // The constant sorts first; people write it last.
        let (constant, rest): (Vec<_>, Vec<_>) = self.terms.iter().partition(|(m, _)| m.is_empty());
        for (i, (m, c)) in rest.into_iter().chain(constant).enumerate() {
            let sign = match (i, *c < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            f.write_str(sign)?;
            let c = c.unsigned_abs();
            let mut factors: Vec<String> = vec![];
            if c != 1 || m.is_empty() {
                factors.push(c.to_string());
            }
            for (a, p) in m {
                let text = match a {
                    Atom::Symbol(s) => s.to_string(),
                    Atom::Quotient(n, d) if n.is_plain_term() => {
                        format!("({n} / {})", Bracketed(d))
                    }
                    Atom::Quotient(n, d) => format!("(({n}) / {})", Bracketed(d)),
                };
                factors.extend((0..*p).map(|_| text.clone()));
            }
            f.write_str(&factors.join("*"))?;
        }
        Ok(())
    }
}

/// A divisor, in brackets unless it is one factor.
struct Bracketed<'a>(&'a Poly);

impl fmt::Display for Bracketed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = self.0;
        let single = match p.terms.as_slice() {
            [] => true,
            [(m, c)] => *c >= 0 && (m.is_empty() || (*c == 1 && m.len() == 1 && m[0].1 == 1)),
            _ => false,
        };
        if single { write!(f, "{p}") } else { write!(f, "({p})") }
    }
}

/// What is known about divisibility.
#[derive(Clone, Default, Debug)]
pub struct Facts {
    known: Vec<(Poly, Poly)>,
}

impl Facts {
    /// Records that `divisor` divides `value`.
    pub fn assume_divides(&mut self, divisor: Poly, value: Poly) {
        self.known.push((divisor, value));
    }

    /// Whether `divisor` is known to divide `value`: evidently, by a recorded fact (times anything),
    /// or term by term.
    pub fn divides(&self, divisor: &Poly, value: &Poly) -> bool {
        if value.is(0) || value.div_evident(divisor).is_some() || self.by_fact(divisor, value) {
            return true;
        }
        // divisor | n / d exactly when divisor * d | n.
        if let [(m, 1)] = value.terms.as_slice()
            && let [(Atom::Quotient(n, d), 1)] = m.as_slice()
        {
            return self.divides(&divisor.mul(d), n);
        }
        value.len() > 1
            && value
                .each_term()
                .all(|t| t.div_evident(divisor).is_some() || self.by_fact(divisor, &t))
    }

    fn by_fact(&self, divisor: &Poly, value: &Poly) -> bool {
        self.known.iter().any(|(d, k)| {
            // d | k gives divisor | value when divisor | d and k | value, and d * a | k * a too.
            (d.div_evident(divisor).is_some() && value.div_evident(k).is_some())
                || divisor.div_evident(d).is_some_and(|a| value.div_evident(&k.mul(&a)).is_some())
        }) || self.known.iter().any(|(d, k)| {
            // A fact about a quotient: d | n / m says d * m | n.
            let [(m, 1)] = k.terms.as_slice() else { return false };
            let [(Atom::Quotient(n, q), 1)] = m.as_slice() else { return false };
            d.mul(q).div_evident(divisor).is_some() && value.div_evident(n).is_some()
        })
    }
}

/// One dim of a tensor: a size, possibly a sum of named segments.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Dim {
    size: Poly,
    segments: Vec<(Arc<str>, Poly)>,
}

impl Dim {
    /// A dim without segments.
    pub fn new(size: impl Into<Poly>) -> Self {
        Dim { size: size.into(), segments: vec![] }
    }

    /// A symbol.
    pub fn symbol(name: &str) -> Self {
        Dim::new(Poly::symbol(name))
    }

    /// The sum of named segments, in order. Fewer than two segments name nothing apart.
    pub fn from_segments(segments: Vec<(Arc<str>, Poly)>) -> Self {
        let size = segments.iter().fold(Poly::default(), |s, (_, p)| s.add(p));
        Dim { size, segments }
    }

    /// The number of elements.
    pub fn size(&self) -> &Poly {
        &self.size
    }

    /// The named segments in order; empty when the dim is not divided.
    pub fn segments(&self) -> &[(Arc<str>, Poly)] {
        &self.segments
    }

    /// Whether both have the same number of elements, whatever their segments.
    pub fn same_size(&self, other: &Dim) -> bool {
        self.size == other.size
    }

    /// Applies a function to the size, or to every segment.
    pub fn try_map(&self, f: &dyn Fn(&Poly) -> Option<Poly>) -> Option<Dim> {
        if self.segments.is_empty() {
            return Some(Dim::new(f(&self.size)?));
        }
        let segments: Option<Vec<_>> =
            self.segments.iter().map(|(n, p)| Some((n.clone(), f(p)?))).collect();
        Some(Dim::from_segments(segments?))
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Dim::new(value)
    }
}

impl From<Poly> for Dim {
    fn from(value: Poly) -> Self {
        Dim::new(value)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return write!(f, "{}", self.size);
        }
        for (i, (name, p)) in self.segments.iter().enumerate() {
            let plus = if i > 0 { " + " } else { "" };
            // A sum inside a segment would read as the next segment, a sign as a part of a sum.
            if p.is_plain_term() {
                write!(f, "{plus}{name}: {p}")?;
            } else {
                write!(f, "{plus}{name}: ({p})")?;
            }
        }
        Ok(())
    }
}

/// The product of some dims.
pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Poly {
    dims.into_iter().fold(Poly::constant(1), |p, d| p.mul(d.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(name: &str) -> Poly {
        Poly::symbol(name)
    }

    #[test]
    fn normal_form_is_order_independent() {
        let a = s("K").mul(&2.into()).add(&s("V"));
        let b = s("V").add(&s("K")).add(&s("K"));
        assert_eq!(a, b);
        assert_eq!(a.to_string(), "2*K + V");
        assert_eq!(s("docs").add(&1.into()).to_string(), "docs + 1");
        assert_eq!(s("a").sub(&s("a")).to_string(), "0");
    }

    #[test]
    fn quotients_cancel() {
        let heads = s("hidden").div(&s("d")).expect("not zero");
        assert_eq!(heads.to_string(), "(hidden / d)");
        assert_eq!(heads.mul(&s("d")), s("hidden"));
        assert_eq!(s("d").mul(&heads).mul(&s("T")), s("hidden").mul(&s("T")));
        let half = s("R").div(&2.into()).expect("not zero");
        assert_eq!(half.mul(&2.into()), s("R"));
        assert_eq!(half.add(&half), s("R").div(&2.into()).expect("not zero").mul(&2.into()));
        assert!(s("x").div(&0.into()).is_none());
        // Products of sums with quotients do not depend on the order.
        let (a, b) = (s("K").mul(&2.into()).add(&s("V")), s("K").add(&s("V")).add(&1.into()));
        assert_eq!(a.mul(&half).mul(&b), a.mul(&b).mul(&half));
        assert_eq!(half.mul(&3.into()), s("R").add(&half));
    }

    #[test]
    fn evident_division() {
        let v = s("a").mul(&s("b")).mul(&6.into()).add(&s("b").mul(&4.into()));
        let q = v.div_evident(&s("b").mul(&2.into())).expect("divides");
        assert_eq!(q.to_string(), "3*a + 2");
        let sum = s("a").add(&s("b"));
        assert_eq!(sum.mul(&3.into()).div_evident(&sum), Some(3.into()));
        assert!(s("a").add(&1.into()).div_evident(&2.into()).is_none());
    }

    #[test]
    fn facts_prove_division() {
        let mut facts = Facts::default();
        assert!(!facts.divides(&s("k"), &s("v")));
        facts.assume_divides(s("k"), s("v"));
        assert!(facts.divides(&s("k"), &s("v").mul(&s("d"))));
        assert!(facts.divides(&s("k"), &s("v").add(&s("k").mul(&2.into()))));
        assert!(!facts.divides(&s("k"), &s("v").add(&1.into())));
        let head = s("hidden").div(&s("heads")).expect("not zero");
        facts.assume_divides(4.into(), head.clone());
        assert!(facts.divides(&2.into(), &head));
        let half = head.div(&2.into()).expect("not zero");
        assert!(facts.divides(&2.into(), &half));
        assert!(!facts.divides(&4.into(), &half));
    }

    #[test]
    fn evaluation_checks_exactness() {
        let q = s("a").div(&s("b")).expect("not zero");
        let bind = |a: i64, b: i64| {
            move |x: &Symbol| match &*x.0 {
                "a" => Some(a),
                "b" => Some(b),
                _ => None,
            }
        };
        assert_eq!(q.eval(&bind(12, 4)), Some(3));
        assert_eq!(q.eval(&bind(13, 4)), None);
        assert_eq!(q.eval(&bind(13, 0)), None);
        assert_eq!(s("c").eval(&bind(1, 1)), None);
        let sub = q.substitute(&|x| (&*x.0 == "b").then(|| 2.into())).expect("not zero");
        assert_eq!(sub.to_string(), "(a / 2)");
    }

    #[test]
    fn segments_add_up() {
        let d = Dim::from_segments(vec![("q".into(), s("K")), ("v".into(), s("V").add(&1.into()))]);
        assert_eq!(d.size(), &s("K").add(&s("V")).add(&1.into()));
        assert_eq!(d.to_string(), "q: K + v: (V + 1)");
    }
}
