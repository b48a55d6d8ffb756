//! Coordinates of a thread as registers.

use super::Refusal;
use super::emit::{Emitter, Lanes};
use super::index::{Ix, Var};
use super::ir::{Binary, Cmp, Reg, Special, Ty};
use vlmc_ir::dim::{Poly, Symbol};

impl Emitter<'_, '_> {
    /// Whether every lane of a chunk has elements, where the group ends at `end`.
    pub(crate) fn whole(&self, chunk: &Ix, end: &Ix) -> bool {
        match (chunk.as_constant(), end.as_constant()) {
            (Some(c), Some(n)) => n - c >= self.span,
            (None, Some(n)) => n % self.span == 0,
            _ => false,
        }
    }

    /// The lane coordinate of a chunk of a row of `end` elements, where `end` may depend on the
    /// group.
    pub(crate) fn lane_at(&mut self, chunk: Ix, end: Ix) -> Ix {
        let limit = match (chunk.as_constant(), end.as_constant()) {
            (Some(c), Some(n)) => (n - c).min(self.span),
            _ => self.span,
        };
        let base = if self.whole(&chunk, &end) {
            Ix::var(Var::Lane(limit, self.vector))
        } else {
            let def = Lanes { chunk: chunk.clone(), end, vector: self.vector };
            let id = self.lanes.iter().position(|l| *l == def).unwrap_or_else(|| {
                self.lanes.push(def);
                self.lanes.len() - 1
            });
            Ix::var(Var::Tail(limit, self.vector, id as u32))
        };
        base.plus(&chunk)
    }

    /// Whether a lane's elements of a chunk are there; `None` when all are.
    pub(crate) fn mask(&mut self, chunk: &Ix, end: &Ix) -> Result<Option<Reg>, Refusal> {
        if self.whole(chunk, end) {
            return Ok(None);
        }
        let left = self.index(&end.plus(&chunk.times(-1)), 0)?;
        let lane = self.lane_base();
        Ok(Some(self.code.compare(Cmp::Lt, lane, left)))
    }

    /// First element of this lane in a chunk.
    pub(crate) fn lane_base(&mut self) -> Reg {
        match self.lane {
            Some(r) if self.vector == 1 => r,
            Some(r) => {
                let n = self.code.i32(self.vector);
                self.code.mul(r, n)
            }
            None => self.code.i32(0),
        }
    }

    /// Deals `width` elements out to the lanes until [`Emitter::deal_back`]: as few to each as fill
    /// all lanes.
    pub(crate) fn deal(&mut self, width: i64) -> (i64, i64) {
        let before = (self.vector, self.span);
        let mut v = 1;
        while v < self.most && v * self.team_lanes < width {
            v *= 2;
        }
        while v > 1 && width % v != 0 {
            v /= 2;
        }
        // Chunks of a loop are alike for all.
        self.vector = if self.looped { self.most } else { v };
        self.span = self.vector * self.team_lanes;
        before
    }

    pub(crate) fn deal_back(&mut self, before: (i64, i64)) {
        (self.vector, self.span) = before;
    }

    pub(crate) fn symbol(&mut self, s: &Symbol) -> Result<Reg, Refusal> {
        match self.symbols.iter().position(|t| t == s) {
            Some(i) => Ok(self.code.special(Special::Symbol(i))),
            None => Err(Refusal::new(format!("the size `{s}` is not known to the kernel"))),
        }
    }

    /// A size as `i32`.
    pub(crate) fn size(&mut self, p: &Poly) -> Result<Reg, Refusal> {
        if let Some(n) = p.as_constant() {
            return Ok(self.code.i32(n));
        }
        let Some((s, a, b)) = p.as_linear().map(|(s, a, b)| (s.clone(), a, b)) else {
            return Err(Refusal::new(format!("`{p}` rows are more than a multiple of a size")));
        };
        let s = self.symbol(&s)?;
        let (a, b) = (self.code.i32(a), self.code.i32(b));
        let r = self.code.mul(s, a);
        Ok(self.code.add(r, b))
    }

    pub(crate) fn var(&mut self, v: &Var, element: i64) -> Result<Reg, Refusal> {
        Ok(match v {
            Var::Row => self.row.ok_or_else(|| Refusal::new("a row where there is none"))?,
            Var::Group(_) => {
                self.group.ok_or_else(|| Refusal::new("a group where there is none"))?
            }
            Var::Chunk(_) => {
                self.chunk.ok_or_else(|| Refusal::new("a chunk where there is none"))?
            }
            Var::Loop(i, _) => self.loops[*i as usize],
            Var::Size(s) => self.symbol(s)?,
            Var::Lane(..) => {
                let base = self.lane_base();
                self.offset(base, element)
            }
            Var::Tail(_, _, id) => {
                // Lanes past the end take the last elements again, which are there.
                let def = self.lanes[*id as usize].clone();
                let last = def.end.plus(&def.chunk.times(-1)).add(-self.vector);
                let last = self.index(&last, 0)?;
                let base = self.lane_base();
                let base = self.code.binary(Binary::Min, base, last);
                self.offset(base, element)
            }
            Var::Div(x, n) => {
                let (x, n) = (self.index(x, element)?, self.code.i32(*n));
                self.code.binary(Binary::Quotient, x, n)
            }
            Var::Mod(x, n) => {
                let (x, n) = (self.index(x, element)?, self.code.i32(*n));
                self.code.binary(Binary::Remainder, x, n)
            }
        })
    }

    pub(crate) fn offset(&mut self, base: Reg, by: i64) -> Reg {
        if by == 0 {
            return base;
        }
        let by = self.code.i32(by);
        self.code.add(base, by)
    }

    /// An index as `i32`, for element `element` of the lane.
    pub(crate) fn index(&mut self, ix: &Ix, element: i64) -> Result<Reg, Refusal> {
        let element = if ix.varies() { element } else { 0 };
        let key = (ix.clone(), element, false);
        if let Some(r) =
            self.visible(key.0.has_row(), key.0.has_chunk()).find_map(|s| s.indices.get(&key))
        {
            return Ok(*r);
        }
        let mut sum: Option<Reg> = None;
        for (v, c) in &ix.terms {
            let mut r = self.var(v, element)?;
            if *c != 1 {
                let c = self.code.i32(*c);
                r = self.code.mul(r, c);
            }
            sum = Some(match sum {
                Some(s) => self.code.add(s, r),
                None => r,
            });
        }
        let r = match sum {
            Some(s) => self.offset(s, ix.k),
            None => self.code.i32(ix.k),
        };
        if let Some(s) = self.scopes.last_mut() {
            s.indices.insert(key, r);
        }
        Ok(r)
    }

    /// Row `Row + k`, put into the rows that there are.
    pub(crate) fn clamped(&mut self, k: i64) -> Result<Reg, Refusal> {
        let key = (Ix::var(Var::Row).add(k), 0, true);
        if let Some(r) =
            self.visible(key.0.has_row(), key.0.has_chunk()).find_map(|s| s.indices.get(&key))
        {
            return Ok(*r);
        }
        let r = self.index(&key.0, 0)?;
        if self.clean {
            return Ok(r);
        }
        let (zero, one) = (self.code.i32(0), self.code.i32(1));
        let rows = self.rows.clone();
        let rows = self.size(&rows)?;
        let last = self.code.binary(Binary::Sub, rows, one);
        let r = self.code.binary(Binary::Min, r, last);
        let r = if k < 0 { self.code.binary(Binary::Max, r, zero) } else { r };
        if let Some(s) = self.scopes.last_mut() {
            s.indices.insert(key, r);
        }
        Ok(r)
    }

    /// Whether row `Row + k` is there.
    pub(crate) fn row_there(&mut self, k: i64) -> Result<Reg, Refusal> {
        if self.clean {
            return Ok(self.code.whole(1, Ty::Bool));
        }
        let r = self.index(&Ix::var(Var::Row).add(k), 0)?;
        let rows = self.rows.clone();
        let rows = self.size(&rows)?;
        Ok(self.code.compare(Cmp::Lt, r, rows))
    }
}
