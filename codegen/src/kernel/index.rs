//! Where in a tensor an element is, as a formula in the coordinates of a kernel.
//!
//! A kernel walks rows, groups of a row and lanes of a group. An [`Ix`] is a sum of those
//! coordinates with whole factors, of quotients and remainders that do not simplify, and of a
//! constant. Views change indices and nothing else, so a chain of them costs what its last formula
//! costs.

use vlmc_ir::dim::Symbol;

/// A coordinate.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Var {
    /// The first row of the rows that are computed together.
    Row,
    /// The group of the row: below the number given.
    Group(i64),
    /// First element of a lane within its chunk of a group: below the first number, for lanes of the
    /// second number of elements.
    Lane(i64, i64),
    /// The same in a chunk that not all lanes have elements of; by the third number.
    Tail(i64, i64, u32),
    /// First element of a chunk within its group, where chunks are a loop: below the limit given.
    Chunk(i64),
    /// The variable of a loop over something else, below the limit given.
    Loop(u32, i64),
    /// A size that is known when running.
    Size(Symbol),
    /// `floor(x / n)`
    Div(Box<Ix>, i64),
    /// `x - n floor(x / n)`
    Mod(Box<Ix>, i64),
}

/// A sum of coordinates with factors, and a constant.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Ix {
    /// Sorted by coordinate; no factor is 0.
    pub(crate) terms: Vec<(Var, i64)>,
    /// The constant.
    pub(crate) k: i64,
}

impl Ix {
    pub(crate) fn constant(k: i64) -> Self {
        Ix { terms: vec![], k }
    }

    pub(crate) fn var(v: Var) -> Self {
        Ix { terms: vec![(v, 1)], k: 0 }
    }

    pub(crate) fn plus(&self, other: &Ix) -> Ix {
        let mut out = self.clone();
        out.k += other.k;
        for (v, c) in &other.terms {
            match out.terms.binary_search_by(|(w, _)| w.cmp(v)) {
                Ok(i) => {
                    out.terms[i].1 += c;
                    if out.terms[i].1 == 0 {
                        out.terms.remove(i);
                    }
                }
                Err(i) => out.terms.insert(i, (v.clone(), *c)),
            }
        }
        out.rejoin()
    }

    pub(crate) fn add(&self, k: i64) -> Ix {
        Ix { terms: self.terms.clone(), k: self.k + k }
    }

    pub(crate) fn times(&self, n: i64) -> Ix {
        if n == 0 {
            return Ix::constant(0);
        }
        let terms = self.terms.iter().map(|(v, c)| (v.clone(), c * n)).collect();
        Ix { terms, k: self.k * n }
    }

    /// `n floor(x / n) + (x - n floor(x / n))` is `x`.
    fn rejoin(self) -> Ix {
        for (v, c) in &self.terms {
            let Var::Mod(x, n) = v else { continue };
            let quotient = Var::Div(x.clone(), *n);
            if self.terms.iter().any(|(w, d)| *w == quotient && *d == c * n) {
                let terms = self.terms.iter().filter(|(w, _)| w != v && *w != quotient);
                let rest = Ix { terms: terms.cloned().collect(), k: self.k };
                return rest.plus(&x.times(*c));
            }
        }
        self
    }

    /// The smallest and the largest value, where both are known.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        let (mut lo, mut hi) = (self.k, self.k);
        for (v, c) in &self.terms {
            let (a, b) = match v {
                Var::Row | Var::Size(_) => return None,
                Var::Group(n)
                | Var::Lane(n, _)
                | Var::Tail(n, ..)
                | Var::Chunk(n)
                | Var::Loop(_, n) => (0, n - 1),
                Var::Mod(_, n) => (0, n - 1),
                Var::Div(x, n) => {
                    let (a, b) = x.bounds()?;
                    (a.div_euclid(*n), b.div_euclid(*n))
                }
            };
            lo += (a * c).min(b * c);
            hi += (a * c).max(b * c);
        }
        Some((lo, hi))
    }

    /// Quotient and remainder by `n`, toward minus infinity.
    pub(crate) fn split(&self, n: i64) -> (Ix, Ix) {
        if n == 1 {
            return (self.clone(), Ix::constant(0));
        }
        let (whole, rest): (Vec<_>, Vec<_>) =
            self.terms.iter().cloned().partition(|(_, c)| c % n == 0);
        let whole = whole.into_iter().map(|(v, c)| (v, c / n)).collect();
        let quotient = Ix { terms: whole, k: self.k.div_euclid(n) };
        let rest = Ix { terms: rest, k: self.k.rem_euclid(n) };
        match rest.bounds() {
            Some((lo, hi)) if lo.div_euclid(n) == hi.div_euclid(n) => {
                let q = lo.div_euclid(n);
                (quotient.add(q), rest.add(-q * n))
            }
            _ => {
                let q = Ix::var(Var::Div(Box::new(rest.clone()), n));
                let r = Ix::var(Var::Mod(Box::new(rest), n));
                (quotient.plus(&q), r)
            }
        }
    }

    /// Whether some coordinate in it, at any depth, is one of these.
    fn any(&self, of: &dyn Fn(&Var) -> bool) -> bool {
        self.terms.iter().any(|(v, _)| match v {
            Var::Div(x, _) | Var::Mod(x, _) => x.any(of),
            v => of(v),
        })
    }

    /// Whether it is different from lane to lane.
    pub(crate) fn varies(&self) -> bool {
        self.any(&|v| matches!(v, Var::Lane(..) | Var::Tail(..)))
    }

    /// Whether it is different from row to row.
    pub(crate) fn has_row(&self) -> bool {
        self.any(&|v| matches!(v, Var::Row))
    }

    /// Whether it is different from chunk to chunk of a loop.
    pub(crate) fn has_chunk(&self) -> bool {
        self.any(&|v| matches!(v, Var::Chunk(_)))
    }

    /// Whether it is different from group to group.
    pub(crate) fn has_group(&self) -> bool {
        self.any(&|v| matches!(v, Var::Group(_)))
    }

    /// `Some(k)` for row `Row + k`.
    pub(crate) fn as_row(&self) -> Option<i64> {
        match &self.terms[..] {
            [(Var::Row, 1)] => Some(self.k),
            _ => None,
        }
    }

    /// The value, where it is a constant.
    pub(crate) fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.k)
    }

    /// The factor of the lane, where neighbouring elements of a lane have that distance: `None`
    /// when a quotient or remainder depends on the lane.
    pub(crate) fn lane_stride(&self) -> Option<i64> {
        let mut stride = 0;
        for (v, c) in &self.terms {
            match v {
                Var::Lane(..) | Var::Tail(..) => stride += c,
                Var::Div(x, _) | Var::Mod(x, _) if x.varies() => return None,
                _ => {}
            }
        }
        Some(stride)
    }

    /// Elements of a lane.
    pub(crate) fn vector(&self) -> Option<i64> {
        self.terms.iter().find_map(|(v, _)| match v {
            Var::Lane(_, n) | Var::Tail(_, n, _) => Some(*n),
            Var::Div(x, _) | Var::Mod(x, _) => x.vector(),
            _ => None,
        })
    }

    /// Whether neighbouring lanes may have the same element.
    pub(crate) fn has_tail(&self) -> bool {
        self.terms.iter().any(|(v, _)| matches!(v, Var::Tail(..)))
    }

    /// The largest known number that divides it for `lane` elements a lane.
    pub(crate) fn divisor(&self, lane: i64) -> i64 {
        let mut d = self.k.abs();
        for (v, c) in &self.terms {
            let unit = match v {
                Var::Lane(..) | Var::Tail(..) | Var::Chunk(_) => lane,
                _ => 1,
            };
            d = gcd(d, (c * unit).abs());
        }
        d
    }
}

pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group_lane(width: i64) -> Ix {
        Ix::var(Var::Group(16)).times(width).plus(&Ix::var(Var::Lane(width, 4)))
    }

    #[test]
    fn heads_come_apart() {
        let (head, lane) = group_lane(128).split(128);
        assert_eq!(head, Ix::var(Var::Group(16)));
        assert_eq!(lane, Ix::var(Var::Lane(128, 4)));
    }

    #[test]
    fn a_slice_of_a_head_stays_linear() {
        let (head, lane) = group_lane(512).add(256).split(512);
        // Lanes reach the next head, so that quotients remain.
        assert!(matches!(&head.terms[..], [(Var::Group(16), 1), (Var::Div(..), 1)]));
        assert!(matches!(&lane.terms[..], [(Var::Mod(..), 1)]));
        let half = Ix::var(Var::Group(16)).times(512).plus(&Ix::var(Var::Lane(256, 4))).add(256);
        let (head, lane) = half.split(512);
        assert_eq!(head, Ix::var(Var::Group(16)));
        assert_eq!(lane, Ix::var(Var::Lane(256, 4)).add(256));
    }

    #[test]
    fn quotient_and_remainder_rejoin() {
        let x = Ix::var(Var::Row).plus(&Ix::var(Var::Lane(7, 1)));
        let (q, r) = x.split(5);
        assert_eq!(q.times(5).plus(&r), x);
    }

    #[test]
    fn division_is_toward_minus_infinity() {
        let (q, r) = Ix::constant(-3).split(4);
        assert_eq!((q.as_constant(), r.as_constant()), (Some(-1), Some(1)));
    }

    #[test]
    fn neighbours_of_a_lane() {
        assert_eq!(group_lane(128).lane_stride(), Some(1));
        assert_eq!(group_lane(128).times(4).lane_stride(), Some(4));
        assert_eq!(group_lane(128).split(64).1.lane_stride(), None);
        assert_eq!(group_lane(128).add(64).divisor(4), 4);
    }
}
