//! Reductions that the lanes of a team do together.

use super::Refusal;
use super::emit::Emitter;
use super::index::{Ix, Var};
use super::ir::{Reg, Unary};
use vlmc_ir::graph::Value;
use vlmc_ir::ty::DType;

impl Emitter<'_, '_> {
    /// Reductions that do not wait for each other.
    pub(crate) fn folds(&mut self, level: &[(Value, Vec<Ix>)]) -> Result<(), Refusal> {
        let mut partial: Vec<Reg> = vec![];
        if self.looped {
            partial = self.looped_folds(level)?;
        } else {
            for (v, at) in level {
                let (of, axes) =
                    self.fold_parts(*v).ok_or_else(|| self.body.refuse(*v, "no reduction"))?;
                let n = self.body.folded(of, &axes)?;
                let before = self.deal(n);
                let mut sum = None;
                for chunk in self.chunks(n) {
                    let j = self.lane_at(chunk.clone(), Ix::constant(n));
                    let index = self.body.unfold(of, at, &axes, j)?;
                    let x = self.value(of, &index)?;
                    let mask = self.mask(&chunk, &Ix::constant(n))?;
                    sum = Some(self.gather(*v, &x, mask, sum));
                }
                let sum = match sum {
                    Some(s) => self.code.splat(s),
                    None => self.neutral(*v),
                };
                partial.push(sum);
                self.deal_back(before);
            }
        }
        // One exchange for all of a kind.
        for fold in [super::ir::Fold::Sum, super::ir::Fold::Max] {
            let of: Vec<usize> =
                (0..level.len()).filter(|i| self.fold_of(level[*i].0) == fold).collect();
            if of.is_empty() {
                continue;
            }
            let values: Vec<Reg> = of.iter().map(|i| partial[*i]).collect();
            let results = self.code.reduce(fold, values);
            for (i, r) in of.iter().zip(results) {
                let (v, at) = level[*i].clone();
                let r = if self.body.dtype(v) == DType::Bf16 {
                    self.code.unary(Unary::Round, r)
                } else {
                    r
                };
                self.learn((v, at), [r].into());
            }
        }
        Ok(())
    }

    /// One loop over the chunks for the reductions of one extent.
    pub(crate) fn looped_folds(&mut self, level: &[(Value, Vec<Ix>)]) -> Result<Vec<Reg>, Refusal> {
        let mut out = vec![None; level.len()];
        let mut extents: Vec<i64> = vec![];
        let mut parts = vec![];
        for (v, _) in level {
            let (of, axes) =
                self.fold_parts(*v).ok_or_else(|| self.body.refuse(*v, "no reduction"))?;
            let n = self.body.folded(of, &axes)?;
            if !extents.contains(&n) {
                extents.push(n);
            }
            parts.push((of, axes, n));
        }
        for n in extents {
            let mine: Vec<usize> = (0..level.len()).filter(|i| parts[*i].2 == n).collect();
            let mut init = vec![];
            for i in &mine {
                let zero = self.neutral(level[*i].0);
                init.push(self.code.splat(zero));
            }
            let (lo, hi) = (self.code.i32(0), self.code.i32(n));
            let dealt = self.deal(n);
            let step = self.span;
            let (var, carried) = self.code.open_for(&init);
            self.enter_chunks();
            let before = self.chunk.replace(var);
            let mut yields = vec![];
            for (i, sum) in mine.iter().zip(&carried) {
                let (v, at) = &level[*i];
                let (of, axes, _) = &parts[*i];
                let chunk = Ix::var(Var::Chunk(n));
                let j = self.lane_at(chunk.clone(), Ix::constant(n));
                let index = self.body.unfold(*of, at, axes, j)?;
                let x = self.value(*of, &index)?;
                let mask = self.mask(&chunk, &Ix::constant(n))?;
                yields.push(self.gather(*v, &x, mask, Some(*sum)));
            }
            self.chunk = before;
            self.leave();
            let results = self.code.close_for((lo, hi, step), var, carried, init, yields);
            self.deal_back(dealt);
            for (i, r) in mine.iter().zip(results) {
                out[*i] = Some(r);
            }
        }
        let zero = self.code.f32(0.0);
        Ok(out.into_iter().map(|r| r.unwrap_or(zero)).collect())
    }
}
