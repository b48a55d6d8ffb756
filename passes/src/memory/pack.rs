//! Offsets for blocks, so that none overlaps another that is live at the same time.
//!
//! Blocks are placed one after the other, each in the smallest gap between its neighbours in time
//! that holds it (best fit); what makes the difference is the order. Several are tried: by size, by
//! size times time (Pisarchyk and Lee, 2020), by time; then the best is varied by moving the blocks
//! that reach highest to the front. The most bytes live together are a lower bound, at which the
//! search stops.

/// A block from one execution to another, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Which block.
    pub block: usize,
    /// The execution that first writes it.
    pub start: usize,
    /// The last that touches it.
    pub end: usize,
    /// Bytes, a multiple of the alignment.
    pub bytes: u64,
}

/// Offsets, span by span.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packing {
    /// Offsets.
    pub offsets: Vec<u64>,
    /// Bytes in all.
    pub bytes: u64,
    /// How many orders were tried.
    pub tried: usize,
}

/// The most bytes live together.
pub fn lower_bound(spans: &[Span]) -> u64 {
    let last = spans.iter().map(|s| s.end).max().unwrap_or(0);
    let mut change = vec![0i128; last + 2];
    for s in spans {
        change[s.start] += i128::from(s.bytes);
        change[s.end + 1] -= i128::from(s.bytes);
    }
    let mut now = 0;
    let sums = change.iter().map(|c| {
        now += c;
        now
    });
    u64::try_from(sums.max().unwrap_or(0)).unwrap_or(0)
}

/// Packs; `effort` orders are tried at most.
pub fn pack(spans: &[Span], effort: usize) -> Packing {
    let bound = lower_bound(spans);
    let time = |s: &Span| (s.end - s.start + 1) as u64;
    type Key = fn(&Span, u64) -> (u64, u64);
    let keys: [Key; 3] = [
        |s, _| (u64::MAX - s.bytes, s.start as u64),
        |s, time| (u64::MAX - s.bytes.saturating_mul(time), s.start as u64),
        |s, _| (s.start as u64, u64::MAX - s.bytes),
    ];
    let mut best = Packing { bytes: u64::MAX, ..Packing::default() };
    let mut order: Vec<usize> = vec![];
    let mut tried = 0;
    let mut attempt = |candidate: Vec<usize>, best: &mut Packing, order: &mut Vec<usize>| {
        tried += 1;
        let (offsets, bytes) = place(spans, &candidate);
        if bytes < best.bytes {
            *best = Packing { offsets, bytes, tried };
            *order = candidate;
            return true;
        }
        false
    };
    for key in keys.iter().take(effort.max(1)) {
        let mut candidate: Vec<usize> = (0..spans.len()).collect();
        candidate.sort_by_key(|i| key(&spans[*i], time(&spans[*i])));
        attempt(candidate, &mut best, &mut order);
        if best.bytes <= bound {
            break;
        }
    }
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for _ in keys.len()..effort {
        if best.bytes <= bound || spans.len() < 2 {
            break;
        }
        let reaches = |i: &usize| best.offsets[*i] + spans[*i].bytes == best.bytes;
        let Some(at) = order.iter().position(reaches) else { break };
        // A place further front, by a generator of Marsaglia's (xorshift).
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let to = if at == 0 {
            (seed % order.len() as u64) as usize
        } else {
            (seed % at as u64) as usize
        };
        let mut candidate = order.clone();
        let moved = candidate.remove(at);
        candidate.insert(to, moved);
        attempt(candidate, &mut best, &mut order);
    }
    best.tried = tried;
    if spans.is_empty() {
        best.bytes = 0;
    }
    best
}

/// Places spans in an order. Returns offsets by span, and bytes in all.
fn place(spans: &[Span], order: &[usize]) -> (Vec<u64>, u64) {
    let mut offsets = vec![0u64; spans.len()];
    // Placed spans by offset.
    let mut placed: Vec<(u64, usize)> = vec![];
    let mut total = 0;
    for i in order {
        let s = &spans[*i];
        let (mut top, mut gap): (u64, Option<(u64, u64)>) = (0, None);
        for (offset, j) in &placed {
            let o = &spans[*j];
            if o.end < s.start || s.end < o.start {
                continue;
            }
            if *offset > top {
                let room = offset - top;
                if room >= s.bytes && gap.is_none_or(|(r, _)| room < r) {
                    gap = Some((room, top));
                }
            }
            top = top.max(offset + o.bytes);
        }
        let offset = gap.map_or(top, |(_, at)| at);
        offsets[*i] = offset;
        total = total.max(offset + s.bytes);
        let at = placed.partition_point(|p| *p < (offset, *i));
        placed.insert(at, (offset, *i));
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(block: usize, start: usize, end: usize, bytes: u64) -> Span {
        Span { block, start, end, bytes }
    }

    #[test]
    fn what_is_not_live_together_shares_a_place() {
        let spans = [span(0, 0, 1, 512), span(1, 1, 2, 256), span(2, 2, 3, 512)];
        let p = pack(&spans, 10);
        assert_eq!((p.bytes, lower_bound(&spans)), (768, 768));
        assert_eq!(p.offsets[0], p.offsets[2]);
    }

    #[test]
    fn the_search_beats_any_one_order() {
        // By size or by time the small ones break the room of the large; 8 units are enough.
        let spans = [
            span(0, 0, 3, 2),
            span(1, 0, 1, 3),
            span(2, 2, 5, 4),
            span(3, 4, 7, 2),
            span(4, 1, 6, 2),
            span(5, 6, 7, 4),
        ];
        let p = pack(&spans, 500);
        for (i, a) in spans.iter().enumerate() {
            for (j, b) in spans.iter().enumerate().skip(i + 1) {
                let together = a.start <= b.end && b.start <= a.end;
                let apart = p.offsets[i] + a.bytes <= p.offsets[j]
                    || p.offsets[j] + b.bytes <= p.offsets[i];
                assert!(!together || apart, "{i} and {j}");
            }
        }
        assert_eq!(lower_bound(&spans), 8);
        assert!(p.bytes <= 9, "{}", p.bytes);
    }

    #[test]
    fn nothing_takes_nothing() {
        assert_eq!(pack(&[], 5).bytes, 0);
    }
}
