//! Bytes between ranks in a step, and the ways that there are to exchange the same.
//!
//! A number is what the busiest pipeline rank sends. With `C` context-parallel ranks and `R` rows of
//! each:
//!
//! - attention, ring: keys and values go round, `(C - 1) R kv`; again in the backward, with their
//!   gradients in f32. `all-gather` sends as much at once. `a2a` scatters heads and gathers rows:
//!   `(C - 1) / C R (2 q + kv)` each way, for `C` up to the number of key heads.
//! - delta rule, heads: one exchange there and one back, `(C - 1) / C R (in + out)` each way, for
//!   `C` that divide the key heads. `state` passes the affine map of a shard, `M` and `U` in f32,
//!   to the next rank, whatever the rows.
//! - experts: rows go out and come back, `(E - 1) / E` of them, in both directions.
//! - gradients: a reduce-scatter in f32, and the rounded parameters gathered again.

use super::Analysis;
use super::cost::{Cost, Mixer};
use crate::layout::Layout;
use vlmc_artifact::{Alternative, Communication};
use vlmc_passes::partition::placement::Content;

/// Bytes of f32.
const F32: f64 = 4.0;

/// A way to exchange what a mixer needs: its name, and bytes forward and backward.
struct Way {
    name: &'static str,
    bytes: [f64; 2],
    /// Milliseconds that are not hidden by work, forward and backward.
    ms: [f64; 2],
}

/// The ways of a mixer, the one that is taken first.
fn ways(a: &Analysis, layout: &Layout, cost: &Cost, mixer: Mixer) -> Vec<Way> {
    let c = f64::from(layout.cp);
    let element = a.costs.element as f64;
    let rows = a.rows() / c;
    let others = c - 1.0;
    let span = u64::from(layout.cp);
    let message = |bytes: f64| a.device.message_ms(bytes, span);
    let mut out = match mixer {
        Mixer::Attention { query, kv, kv_heads } if layout.cp > 1 => {
            let round = others * rows * kv;
            let ring = [round * element, round * (element + F32)];
            // Rounds hide behind the attention of the round before.
            let hidden = cost.ms.map(|ms| ms / c);
            let exposed = |way: usize| (message(ring[way]) - hidden[way]).max(0.0);
            let mut out = vec![
                Way { name: "ring", bytes: ring, ms: [exposed(0), exposed(1)] },
                Way { name: "all-gather", bytes: ring, ms: ring.map(message) },
            ];
            if kv_heads.is_multiple_of(u64::from(layout.cp)) {
                let bytes = [others / c * rows * (2.0 * query + kv) * element; 2];
                out.push(Way { name: "a2a", bytes, ms: bytes.map(message) });
            }
            out
        }
        Mixer::DeltaRule { input, output, key_heads, state } if layout.cp > 1 => {
            let bytes = [state * F32; 2];
            let hops = bytes.map(|b| others * message(b));
            let mut out = vec![Way { name: "state", bytes, ms: hops }];
            if key_heads.is_multiple_of(u64::from(layout.cp)) {
                let bytes = [others / c * rows * (input + output) * element; 2];
                let ms = bytes.map(|b| message(b) + message(0.0));
                out.push(Way { name: "heads", bytes, ms });
            }
            out
        }
        Mixer::Experts { elements } if layout.ep > 1 => {
            let e = f64::from(layout.ep);
            let once = (e - 1.0) / e * elements / c * element;
            let ms = 2.0 * a.device.message_ms(once, u64::from(layout.ep));
            vec![Way { name: "a2a", bytes: [2.0 * once; 2], ms: [ms; 2] }]
        }
        _ => vec![],
    };
    let time = |w: &Way| w.ms[0] + w.ms[1];
    out.sort_by(|a, b| time(a).total_cmp(&time(b)));
    out
}

/// Milliseconds of a part's exchanges that its own work does not hide, forward and backward: of
/// experts, or of everything else.
pub(super) fn exposed_ms(
    a: &Analysis,
    layout: &Layout,
    cost: &Cost,
    content: Content,
    experts: bool,
) -> [f64; 2] {
    let mut sum = [0.0; 2];
    if content == Content::Vision {
        return sum;
    }
    let own = |m: &&Mixer| matches!(m, Mixer::Experts { .. }) == experts;
    for mixer in cost.mixers.iter().filter(own) {
        if let Some(way) = ways(a, layout, cost, *mixer).first() {
            sum = [sum[0] + way.ms[0], sum[1] + way.ms[1]];
        }
    }
    sum
}

/// Every kind of exchange of a layout.
pub(super) fn communication(a: &Analysis, layout: &Layout) -> Vec<Communication> {
    let mut out = vec![];
    out.extend(sends(a, layout));
    for (kind, is) in [
        (
            "attention",
            &(|m: &Mixer| matches!(m, Mixer::Attention { .. })) as &dyn Fn(&Mixer) -> bool,
        ),
        ("delta rule", &|m: &Mixer| matches!(m, Mixer::DeltaRule { .. })),
        ("experts", &|m: &Mixer| matches!(m, Mixer::Experts { .. })),
    ] {
        out.extend(mixers(a, layout, kind, is));
    }
    out.extend(gradients(a, layout));
    out.extend(embedding(a, layout));
    out
}

fn bytes(v: f64) -> u64 {
    v.max(0.0).round() as u64
}

/// Activations and their gradients between chunks.
fn sends(a: &Analysis, layout: &Layout) -> Option<Communication> {
    let chunks = &layout.placement.chunks;
    let pp = layout.grid.pp;
    if pp < 2 {
        return None;
    }
    let mtp = chunks.iter().position(|c| c.has_mtp()).unwrap_or(chunks.len());
    // Behind MTP the rows of all of its depths travel along.
    let rows = |from: usize| if from >= mtp { f64::from(1 + a.model.mtp) } else { 1.0 };
    let mut of = vec![(0.0f64, 0usize); pp as usize];
    for g in 0..chunks.len().saturating_sub(1) {
        for rank in [chunks[g].pp, chunks[g + 1].pp] {
            let (sent, count) = &mut of[rank as usize];
            *sent +=
                rows(g) * a.costs.boundary / f64::from(layout.cp) * f64::from(layout.microbatches);
            *count += layout.microbatches as usize;
        }
    }
    let (rank, (most, count)) = of.iter().enumerate().max_by(|x, y| x.1.0.total_cmp(&y.1.0))?;
    Some(Communication {
        kind: "send".to_string(),
        group: "pp".to_string(),
        bytes_per_step: bytes(*most),
        count: *count,
        place: format!("pp rank {rank}"),
        alternatives: vec![],
    })
}

/// Exchanges of one kind of mixer on the rank that has the most of them.
fn mixers(
    a: &Analysis,
    layout: &Layout,
    kind: &str,
    is: &dyn Fn(&Mixer) -> bool,
) -> Option<Communication> {
    let mut best: Option<Communication> = None;
    for p in 0..layout.grid.pp {
        let chunks = a.on(layout, p);
        let contents = chunks.iter().flat_map(|(_, c)| &c.contents);
        let mut sums: Vec<(&str, f64)> = vec![];
        let (mut count, mut taken) = (0usize, "");
        for content in contents.filter(|c| **c != Content::Vision) {
            let cost = a.costs.of(*content);
            for mixer in cost.mixers.iter().filter(|m| is(m)) {
                let ways = ways(a, layout, &cost, *mixer);
                taken = ways.first().map_or(taken, |w| w.name);
                count += 2 * usize::from(!ways.is_empty());
                for w in ways {
                    let n = f64::from(layout.microbatches) * (w.bytes[0] + w.bytes[1]);
                    match sums.iter_mut().find(|(name, _)| *name == w.name) {
                        Some((_, sum)) => *sum += n,
                        None => sums.push((w.name, n)),
                    }
                }
            }
        }
        let Some((_, most)) = sums.iter().find(|(name, _)| *name == taken) else { continue };
        let found = Communication {
            kind: format!("{kind}: {taken}"),
            group: if kind == "experts" { "ep" } else { "cp" }.to_string(),
            bytes_per_step: bytes(*most),
            count: count * layout.microbatches as usize,
            place: format!("pp rank {p}"),
            alternatives: sums
                .iter()
                .filter(|(name, _)| *name != taken)
                .map(|(name, n)| Alternative { kind: name.to_string(), bytes_per_step: bytes(*n) })
                .collect(),
        };
        if best.as_ref().is_none_or(|b| b.bytes_per_step < found.bytes_per_step) {
            best = Some(found);
        }
    }
    best
}

/// Gradients of parameters over the ranks of a stage.
fn gradients(a: &Analysis, layout: &Layout) -> Option<Communication> {
    let replicas = f64::from(layout.cp) * f64::from(layout.dp);
    if replicas < 2.0 {
        return None;
    }
    let element = a.costs.element as f64;
    let of = |p: u32| {
        let chunks = a.on(layout, p);
        let params = a.params(chunks.iter().map(|(_, c)| *c));
        let sum = |each: &dyn Fn(f64, f64) -> f64| -> f64 {
            params
                .iter()
                .map(|(_, s)| {
                    let ep = if s.of_experts { f64::from(layout.ep) } else { 1.0 };
                    let copies = (replicas / ep).max(1.0);
                    each(s.elements as f64 / ep, (copies - 1.0) / copies)
                })
                .sum()
        };
        (sum(&|n, share| share * n * (F32 + element)), sum(&|n, share| 2.0 * share * n * F32))
    };
    let all: Vec<(f64, f64)> = (0..layout.grid.pp).map(of).collect();
    let (rank, (sharded, whole)) = all.iter().enumerate().max_by(|x, y| x.1.0.total_cmp(&y.1.0))?;
    Some(Communication {
        kind: "gradients: reduce-scatter".to_string(),
        group: "dp x cp".to_string(),
        bytes_per_step: bytes(*sharded),
        count: 1,
        place: format!("pp rank {rank}"),
        alternatives: vec![Alternative {
            kind: "all-reduce".to_string(),
            bytes_per_step: bytes(*whole),
        }],
    })
}

/// The gradient of the embedding over the ranks that have a copy.
fn embedding(a: &Analysis, layout: &Layout) -> Option<Communication> {
    let group = layout.placement.embedding_group(&a.model);
    if group.len() < 2 {
        return None;
    }
    let names = a.costs.of(Content::Embed).params;
    let elements: u64 = names.iter().filter_map(|n| a.costs.sizes.get(n)).map(|s| s.elements).sum();
    let n = group.len() as f64;
    let ranks: Vec<String> = group.iter().map(ToString::to_string).collect();
    Some(Communication {
        kind: "embedding: all-reduce".to_string(),
        group: "embedding".to_string(),
        bytes_per_step: bytes(2.0 * (n - 1.0) / n * elements as f64 * F32),
        count: 1,
        place: format!("pp ranks {}", ranks.join(", ")),
        alternatives: vec![],
    })
}
