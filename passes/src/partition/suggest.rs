//! Layouts that are legal and near one that is not.

use super::letters;
use super::placement::{Grid, Model, Split, place};

/// Layers of a first or last rank that are tried at most.
const TRIED: u64 = 64;

/// Layouts near a refused one, best first: the same grid in other shares, then other grids. Each
/// has been placed.
pub fn alternatives(model: &Model, grid: Grid, split: &Split) -> Vec<(Grid, Split)> {
    let legal = |(grid, split): &(Grid, Split)| place(model, *grid, split).is_ok();
    let mut out: Vec<(Grid, Split)> = vec![];
    let mut add = |found: Option<(Grid, Split)>| {
        if let Some(found) = found
            && !out.contains(&found)
        {
            out.push(found);
        }
    };
    if !matches!(split, Split::Letters(_)) {
        add(uneven(model, grid).map(|s| (grid, s)).filter(legal));
    }
    add(Some((grid, balanced(model, grid))).filter(legal));
    let even = Split::Even { embedding: false, loss: false };
    let of = |pp, vpp| (Grid { pp, vpp }, even.clone());
    let around = |n: u32| {
        let limit = u32::try_from(model.depth()).unwrap_or(u32::MAX).max(2).saturating_add(2);
        let below = (1..n.min(limit)).rev();
        let above = n.saturating_add(1)..limit.max(n.saturating_add(2)).min(n.saturating_add(65));
        below.take(64).chain(above)
    };
    add(around(grid.vpp).map(|vpp| of(grid.pp, vpp)).find(legal));
    add(around(grid.pp).map(|pp| of(pp, grid.vpp)).find(legal));
    out.truncate(3);
    out
}

/// Numbers of layers for the first and the last rank that leave the ranks as equal as can be.
fn uneven(model: &Model, grid: Grid) -> Option<Split> {
    let (pp, vpp) = (u64::from(grid.pp), u64::from(grid.vpp));
    let layers = model.depth();
    if pp < 2 || vpp == 0 || grid.chunks() > super::placement::MAX_CHUNKS {
        return None;
    }
    // Multiples of V around the mean, those under it first.
    let mean = layers / pp / vpp;
    let from = (mean + 2).saturating_sub(TRIED).max(1);
    let some: Vec<u64> = (from..=mean + 2).map(|k| k * vpp).collect();
    let mut best: Option<(u64, Split)> = None;
    for f in std::iter::once(None).chain(some.iter().copied().map(Some)) {
        for z in std::iter::once(None).chain(some.iter().copied().map(Some)) {
            let between = layers.checked_sub(f.unwrap_or(0) + z.unwrap_or(0));
            let ranks = pp - u64::from(f.is_some()) - u64::from(z.is_some());
            let middle = match (between, ranks) {
                (Some(0), 0) => None,
                (Some(n), r) if r > 0 && n > 0 && n.is_multiple_of(r * vpp) => Some(n / r),
                _ => continue,
            };
            let shares: Vec<u64> = [f, z, middle].into_iter().flatten().collect();
            let (Some(most), Some(least)) = (shares.iter().max(), shares.iter().min()) else {
                continue;
            };
            let number = |n: Option<u64>| n.and_then(|n| u32::try_from(n).ok());
            let split = Split::Uneven { first: number(f), last: number(z) };
            if best.as_ref().is_none_or(|(spread, _)| most - least < *spread) {
                best = Some((most - least, split));
            }
        }
    }
    best.map(|(_, split)| split)
}

/// Shares that differ by one layer at most, as letters. Chunks with more are the second and those
/// after it, since the first has the embedding.
pub fn balanced(model: &Model, grid: Grid) -> Split {
    let chunks = grid.chunks().clamp(1, super::placement::MAX_CHUNKS);
    let (each, more) = (model.depth() / chunks, model.depth() % chunks);
    let counts: Vec<u64> = (0..chunks).map(|g| each + u64::from(g > 0 && g <= more)).collect();
    Split::Letters(letters::write(&counts, counts.len().saturating_sub(1), model.mtp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(layers: usize) -> Model {
        Model { layers: vec!["gdn".to_string(); layers], ..Model::default() }
    }

    #[test]
    fn thirty_layers_on_four_ranks() {
        let grid = Grid { pp: 4, vpp: 2 };
        let found = alternatives(&model(30), grid, &Split::Even { embedding: false, loss: false });
        assert_eq!(
            found,
            [
                (grid, Split::Uneven { first: None, last: Some(6) }),
                (grid, Split::Letters("Et*3|(t*4|)*6t*3L".to_string())),
                (Grid { pp: 3, vpp: 2 }, Split::Even { embedding: false, loss: false }),
            ]
        );
    }

    #[test]
    fn one_rank_gets_fewer_chunks_or_more_ranks() {
        let even = Split::Even { embedding: false, loss: false };
        let found = alternatives(&model(8), Grid { pp: 1, vpp: 2 }, &even);
        assert_eq!(found, [(Grid { pp: 1, vpp: 1 }, even.clone()), (Grid { pp: 2, vpp: 2 }, even)]);
    }

    #[test]
    fn nothing_is_suggested_that_is_not_legal() {
        for layers in 0..40 {
            for grid in (0..7).flat_map(|pp| (0..5).map(move |vpp| Grid { pp, vpp })) {
                for split in [
                    Split::Even { embedding: true, loss: false },
                    Split::Uneven { first: Some(3), last: Some(1) },
                    Split::Letters("Et|L".to_string()),
                ] {
                    let m = Model { mtp: 1, ..model(layers) };
                    for (grid, split) in alternatives(&m, grid, &split) {
                        assert!(place(&m, grid, &split).is_ok(), "{layers} {grid:?} {split:?}");
                    }
                }
            }
        }
    }
}
