//! Shares of layers that balance time, by dynamic programming.
//!
//! The slowest chunk sets the pace of a pipeline, so the largest time of a chunk is made as small as
//! can be; of the shares that reach it, those with the smallest sum of squares are taken. Both are
//! exact: a prefix of layers in the first chunks is solved once, for every length. Chunks whose
//! memory does not fit are left out where that leaves a solution.

/// Steps of the programme at most; beyond it shares are by count.
const MOST_STEPS: usize = 1 << 28;

/// What layers and the parts at both ends cost.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Loads {
    /// Time of each layer.
    pub layers: Vec<f64>,
    /// Time of what the first chunk has beside layers.
    pub first: f64,
    /// Time of what the last chunk has beside layers.
    pub last: f64,
    /// Memory of chunks, where it is to be regarded.
    pub memory: Option<Memory>,
}

/// What layers and the parts at both ends hold, in bytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    /// Of each layer, whatever is in flight: parameters with their state.
    pub held: Vec<f64>,
    /// Of each layer, for each microbatch in flight.
    pub saved: Vec<f64>,
    /// Of the first chunk's other parts: held, and for each microbatch in flight.
    pub first: [f64; 2],
    /// Of the last chunk's other parts.
    pub last: [f64; 2],
    /// Microbatches in flight on each chunk.
    pub live: Vec<f64>,
    /// Bytes that a chunk may take.
    pub limit: f64,
}

impl Loads {
    /// Time of the layers from `a` to `b` as chunk `g` of `chunks`.
    pub fn time(&self, g: usize, chunks: usize, a: usize, b: usize) -> f64 {
        let ends = at_ends(g, chunks, self.first, self.last);
        self.layers[a..b].iter().sum::<f64>() + ends
    }

    /// Whether these layers fit the memory of the chunk.
    fn fits(&self, g: usize, chunks: usize, a: usize, b: usize) -> bool {
        let Some(m) = &self.memory else { return true };
        let sum = |v: &[f64]| v.get(a..b).map_or(0.0, |v| v.iter().sum::<f64>());
        let ends = |i: usize| at_ends(g, chunks, m.first[i], m.last[i]);
        let live = m.live.get(g).copied().unwrap_or(1.0);
        sum(&m.held) + ends(0) + live * (sum(&m.saved) + ends(1)) <= m.limit
    }
}

fn at_ends(g: usize, chunks: usize, first: f64, last: f64) -> f64 {
    let first = if g == 0 { first } else { 0.0 };
    first + if g + 1 == chunks { last } else { 0.0 }
}

/// Layers of each of `chunks` chunks; chunks may be empty. `None` when no shares fit the memory, or
/// the programme is too large.
pub fn balance(loads: &Loads, chunks: usize) -> Option<Vec<u64>> {
    let n = loads.layers.len();
    if chunks == 0 || n.saturating_add(1).pow(2).saturating_mul(chunks) > MOST_STEPS {
        return None;
    }
    let slowest = programme(loads, chunks, f64::INFINITY, f64::max)?.0;
    let (_, counts) = programme(loads, chunks, slowest, |sum, t| sum + t * t)?;
    Some(counts)
}

/// The least `join` of the chunks' times, none of them above `bound`, and the shares.
fn programme(
    loads: &Loads,
    chunks: usize,
    bound: f64,
    join: fn(f64, f64) -> f64,
) -> Option<(f64, Vec<u64>)> {
    let n = loads.layers.len();
    // Of the first chunks with so many layers: the best, and the layers before the last of them.
    let mut best: Vec<Option<f64>> = vec![None; n + 1];
    best[0] = Some(0.0);
    let mut taken: Vec<Vec<usize>> = vec![];
    for g in 0..chunks {
        let mut next: Vec<Option<f64>> = vec![None; n + 1];
        let mut from = vec![0; n + 1];
        for (a, before) in best.iter().enumerate() {
            let Some(before) = *before else { continue };
            for b in a..=n {
                let t = loads.time(g, chunks, a, b);
                if t > bound {
                    break;
                }
                if !loads.fits(g, chunks, a, b) {
                    break;
                }
                let value = join(before, t);
                if next[b].is_none_or(|v| value < v) {
                    next[b] = Some(value);
                    from[b] = a;
                }
            }
        }
        best = next;
        taken.push(from);
    }
    let value = best[n]?;
    let mut counts = vec![0u64; chunks];
    let mut end = n;
    for g in (0..chunks).rev() {
        let start = taken[g][end];
        counts[g] = (end - start) as u64;
        end = start;
    }
    Some((value, counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlmc_ir::testing::Random;

    /// Every way to share `n` layers among `chunks` chunks.
    fn all(n: usize, chunks: usize) -> Vec<Vec<u64>> {
        if chunks == 1 {
            return vec![vec![n as u64]];
        }
        let rest = |k: usize| all(n - k, chunks - 1).into_iter().map(move |r| (k, r));
        (0..=n).flat_map(rest).map(|(k, r)| [vec![k as u64], r].concat()).collect()
    }

    /// Slowest chunk and sum of squares; `None` where memory does not fit.
    fn value(loads: &Loads, counts: &[u64]) -> Option<(f64, f64)> {
        let (mut a, mut slowest, mut squares) = (0, 0.0f64, 0.0);
        for (g, n) in counts.iter().enumerate() {
            let b = a + *n as usize;
            let t = loads.time(g, counts.len(), a, b);
            if !loads.fits(g, counts.len(), a, b) {
                return None;
            }
            slowest = slowest.max(t);
            squares += t * t;
            a = b;
        }
        Some((slowest, squares))
    }

    #[test]
    fn equals_brute_force() {
        let mut rng = Random::new(8);
        let (mut tried, mut tight) = (0, 0);
        for n in 0..=12usize {
            for chunks in 1..=6usize {
                let mut time = || 1.0 + rng.below(40) as f64 / 4.0;
                let layers: Vec<f64> = (0..n).map(|_| time()).collect();
                let (first, last) = (2.0 * time(), 2.0 * time());
                let memory = (chunks % 2 == 0).then(|| Memory {
                    held: layers.clone(),
                    saved: vec![0.25; n],
                    first: [1.0, 0.5],
                    last: [2.0, 0.5],
                    live: (0..chunks).map(|g| (chunks - g) as f64).collect(),
                    limit: 12.0 + layers.iter().sum::<f64>() / chunks as f64,
                });
                tight += usize::from(memory.is_some());
                let loads = Loads { layers, first, last, memory };
                let best = all(n, chunks)
                    .into_iter()
                    .filter_map(|c| value(&loads, &c))
                    .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
                let found = balance(&loads, chunks).and_then(|c| value(&loads, &c));
                // Times are quarters, so that sums are exact.
                assert_eq!(found, best, "{n} layers, {chunks} chunks");
                tried += 1;
            }
        }
        assert_eq!((tried, tight), (78, 39));
    }

    #[test]
    fn ends_take_fewer_layers() {
        let loads = Loads { layers: vec![1.0; 10], first: 2.0, last: 1.0, memory: None };
        // 13 in 4 chunks: 4 is the least that the slowest can take, 3 3 3 4 the nearest to equal.
        assert_eq!(balance(&loads, 4), Some(vec![1, 3, 3, 3]));
    }
}
