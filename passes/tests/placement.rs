//! Placement: the worked examples of facts/parallel.md sections A1 to A4 and A6, the formulas of
//! A1 beside it, and what must hold of every layout that is accepted.

use vlmc_ir::testing::Random;
use vlmc_passes::partition::letters::{self, LettersError};
use vlmc_passes::partition::placement::{
    Content, Grid, LayoutError, Model, Placement, Split, place,
};

/// The pattern of the public models: every fourth layer is attention.
fn kind(i: u32) -> &'static str {
    if (i + 1).is_multiple_of(4) { "attn" } else { "gdn" }
}

fn model(layers: u32) -> Model {
    let layers = (0..layers).map(|i| kind(i).to_string()).collect();
    Model { layers, vision: true, mtp: 0, tied: false }
}

fn with_mtp(layers: u32) -> Model {
    Model { mtp: 1, ..model(layers) }
}

const EVEN: Split = Split::Even { embedding: false, loss: false };

fn uneven(first: Option<u32>, last: Option<u32>) -> Split {
    Split::Uneven { first, last }
}

fn text(s: &str) -> Split {
    Split::Letters(s.to_string())
}

/// Layers by rank, then chunk: `{0,1}{4,5} | {2,3}{6,7}`.
fn shown(p: &Placement) -> String {
    let rank = |r: u32| -> String {
        (0..p.grid.vpp)
            .map(|v| {
                let layers = p.chunk(r, v).expect("in range").layers();
                let layers: Vec<String> = layers.map(|i| i.to_string()).collect();
                format!("{{{}}}", layers.join(","))
            })
            .collect()
    };
    (0..p.grid.pp).map(rank).collect::<Vec<_>>().join(" | ")
}

fn layers_of(layers: u32, pp: u32, vpp: u32, split: &Split) -> String {
    shown(&place(&model(layers), Grid { pp, vpp }, split).expect("legal"))
}

fn refused(layers: u32, pp: u32, vpp: u32, split: &Split) -> LayoutError {
    place(&model(layers), Grid { pp, vpp }, split).expect_err("refused")
}

/// Facts A1.
#[test]
fn case_5_two_worked_placements() {
    assert_eq!(layers_of(8, 2, 4, &EVEN), "{0}{2}{4}{6} | {1}{3}{5}{7}");
    assert_eq!(layers_of(8, 2, 2, &EVEN), "{0,1}{4,5} | {2,3}{6,7}");
}

#[test]
fn even_split_counts_embedding_and_loss() {
    let both = Split::Even { embedding: true, loss: true };
    // 6 + 2 = 8 in 4 chunks: 2 each, one less at both ends.
    assert_eq!(layers_of(6, 2, 2, &both), "{0}{3,4} | {1,2}{5}");
    let loss = Split::Even { embedding: false, loss: true };
    assert_eq!(layers_of(7, 4, 1, &loss), "{0,1} | {2,3} | {4,5} | {6}");
    // Both may use up a chunk each.
    assert_eq!(layers_of(2, 4, 1, &both), "{} | {0} | {1} | {}");
}

/// Rank 0 is a rank between when only the last has a number of its own.
#[test]
fn case_1_last_layers_alone() {
    assert_eq!(layers_of(10, 3, 2, &uneven(None, Some(2))), "{0,1}{5,6} | {2,3}{7,8} | {4}{9}");
}

/// 80 layers on 16 ranks of 2 chunks trained 64.
#[test]
fn case_2_no_layer_is_dropped() {
    assert_eq!(
        refused(80, 16, 2, &EVEN),
        LayoutError::NotDivisible { layers: 80, counted: 0, pp: 16, vpp: 2 }
    );
    assert!(matches!(refused(10, 2, 2, &EVEN), LayoutError::NotDivisible { .. }));
}

#[test]
fn case_3_thirty_layers_on_four_ranks() {
    assert!(matches!(refused(30, 4, 1, &EVEN), LayoutError::NotDivisible { .. }));
    let seven = layers_of(30, 4, 1, &uneven(Some(7), Some(7)));
    let lengths: Vec<usize> = seven.split(" | ").map(|r| r.split(',').count()).collect();
    assert_eq!(lengths, [7, 8, 8, 7]);
}

/// No rank between divided by zero; fewer than no layers between built 12 of 10.
#[test]
fn case_6_nothing_between_and_less_than_nothing() {
    assert_eq!(layers_of(4, 2, 2, &uneven(Some(2), Some(2))), "{0}{2} | {1}{3}");
    assert_eq!(
        refused(10, 3, 1, &uneven(Some(6), Some(6))),
        LayoutError::TooManyLayers { first: 6, last: 6, layers: 10 }
    );
}

#[test]
fn case_7_empty_stages_are_stages() {
    assert_eq!(layers_of(2, 2, 2, &text("E|t|t|L")), "{}{1} | {0}{}");
    assert_eq!(layers_of(2, 3, 1, &text("Et||tL")), "{0} | {} | {1}");
    assert_eq!(layers_of(6, 2, 2, &text("Ettt|t|t|tL")), "{0,1,2}{4} | {3}{5}");
}

/// Chunk (1, 1) of 8 layers has the kinds of layers 6 and 7; there is none without a number.
#[test]
fn case_10_chunks_have_numbers() {
    let p = place(&model(8), Grid { pp: 2, vpp: 2 }, &EVEN).expect("legal");
    let chunk = p.chunk(1, 1).expect("in range");
    let names: Vec<String> = chunk.layers().map(|i| model(8).name(Content::Layer(i))).collect();
    assert_eq!(names, ["layer:6:gdn", "layer:7:attn"]);
    assert_eq!(p.chunk(1, 2), None);
}

/// With 32 layers in 12, 10, 10 the pattern of the third rank starts at 22.
#[test]
fn kinds_follow_global_numbers() {
    let p = place(&model(32), Grid { pp: 3, vpp: 1 }, &uneven(Some(12), None)).expect("legal");
    let starts: Vec<u32> = p.chunks.iter().map(|c| c.layers().start).collect();
    assert_eq!(starts, [0, 12, 22]);
    let names: Vec<String> =
        p.chunks[2].contents.iter().take(2).map(|c| model(32).name(*c)).collect();
    assert_eq!(names, ["layer:22:gdn", "layer:23:attn"]);
}

#[test]
fn refusals_of_the_facts() {
    assert_eq!(refused(8, 1, 2, &EVEN), LayoutError::OneRank { vpp: 2 });
    assert_eq!(
        refused(8, 3, 1, &uneven(Some(4), Some(4))),
        LayoutError::Middle { layers: 0, ranks: 1 }
    );
    assert_eq!(
        refused(8, 2, 1, &uneven(Some(3), Some(4))),
        LayoutError::Middle { layers: 1, ranks: 0 }
    );
    assert_eq!(
        refused(8, 1, 1, &uneven(Some(4), Some(4))),
        LayoutError::Middle { layers: 0, ranks: -1 }
    );
    assert_eq!(
        refused(9, 4, 1, &uneven(Some(2), Some(2))),
        LayoutError::Middle { layers: 5, ranks: 2 }
    );
    assert_eq!(
        refused(9, 2, 2, &uneven(Some(5), Some(4))),
        LayoutError::Chunks { which: "the first rank", layers: 5, vpp: 2 }
    );
    assert_eq!(
        refused(9, 3, 2, &uneven(Some(4), Some(2))),
        LayoutError::Chunks { which: "a rank between", layers: 3, vpp: 2 }
    );
    assert_eq!(refused(8, 2, 1, &uneven(Some(0), None)), LayoutError::NoLayers { which: "first" });
    assert!(matches!(refused(8, 0, 1, &EVEN), LayoutError::NoChunks { .. }));
    assert!(matches!(refused(0, 1 << 20, 1 << 20, &EVEN), LayoutError::TooManyChunks { .. }));
}

#[test]
fn letters_of_the_facts() {
    let p = place(&model(6), Grid { pp: 2, vpp: 2 }, &text("E|t*3|t*3|L")).expect("legal");
    assert_eq!(shown(&p), "{}{3,4,5} | {0,1,2}{}");
    assert_eq!(p.chunks[0].contents, [Content::Vision, Content::Embed]);
    assert_eq!(p.chunks[3].contents, [Content::FinalNorm, Content::LmHead, Content::Loss]);

    let long = "Et*3|(tt|)*29,m|L";
    assert_eq!(letters::stages(long), Ok(32));
    let p = place(&with_mtp(61), Grid { pp: 16, vpp: 2 }, &text(long)).expect("legal");
    let mtp = p.chunk(14, 1).expect("in range");
    assert_eq!(mtp.contents, [Content::Embed, Content::Mtp(0)]);
    assert_eq!(
        p.chunk(15, 1).expect("in range").contents,
        [Content::LmHead, Content::Loss],
        "the final norm is with the last layer"
    );
    assert_eq!(p.chunk_of(&Content::FinalNorm), p.chunk_of(&Content::Layer(60)));
    assert!(p.mtp_standalone());
}

#[test]
fn letters_expand() {
    for (written, stages) in [
        ("Et*3|tL", 2),
        ("E(t|)*0L", 1),
        ("E|*3L", 4),
        ("Et,t,|,tL", 2),
        ("(Et|)*1(t*2|)*2L", 4),
        ("", 1),
    ] {
        assert_eq!(letters::stages(written), Ok(stages), "{written}");
    }
    for (written, error) in [
        ("Et L", LettersError::Character { at: 2, character: ' ' }),
        ("ET|L", LettersError::Character { at: 1, character: 'T' }),
        ("((t*2)|)*2", LettersError::Group { at: 1 }),
        ("E(tt)L", LettersError::Group { at: 1 }),
        ("E(tt", LettersError::Group { at: 1 }),
        ("Ett)*2L", LettersError::Group { at: 3 }),
        ("*3", LettersError::Repeat { at: 0 }),
        ("Et*|L", LettersError::Repeat { at: 2 }),
        ("Et*2*3L", LettersError::Repeat { at: 4 }),
        ("Et*99999999999999999999L", LettersError::TooLong),
        ("E3tL", LettersError::Character { at: 1, character: '3' }),
    ] {
        assert_eq!(letters::stages(written), Err(error), "{written}");
    }
}

#[test]
fn letters_are_checked_against_the_model() {
    let check = |m: &Model, pp, vpp, written: &str| match place(m, Grid { pp, vpp }, &text(written))
    {
        Err(LayoutError::Letters(e)) => e,
        other => panic!("{written}: {other:?}"),
    };
    let (four, mtp) = (model(4), with_mtp(4));
    let count = |letter, found, wanted| LettersError::Count { letter, found, wanted };
    assert_eq!(check(&four, 2, 1, "Ett|tL"), count('t', 3, 4));
    assert_eq!(check(&four, 2, 1, "tt|ttL"), count('E', 0, 1));
    assert_eq!(check(&four, 2, 1, "Ett|Ett"), count('E', 2, 1));
    assert_eq!(check(&four, 2, 1, "Ett|tt"), count('L', 0, 1));
    assert_eq!(check(&four, 2, 1, "Ett|ttmL"), count('m', 1, 0));
    assert_eq!(check(&mtp, 2, 1, "Ett|ttL"), count('m', 0, 1));
    assert_eq!(check(&four, 2, 1, "Ett|t|tL"), LettersError::Stages { stages: 3, pp: 2, vpp: 1 });
    let order = |m: &Model, pp, vpp, written: &str| match check(m, pp, vpp, written) {
        LettersError::Order { letter, .. } => letter,
        other => panic!("{written}: {other:?}"),
    };
    assert_eq!(order(&four, 2, 1, "tEt|ttL"), 'E');
    assert_eq!(order(&four, 2, 1, "|EttttL"), 'E');
    assert_eq!(order(&four, 2, 1, "Ett|tLt"), 'L');
    assert_eq!(order(&four, 2, 1, "EttttL|"), 'L');
    assert_eq!(order(&mtp, 2, 1, "Ett|tmtL"), 'm');
    assert_eq!(order(&Model { mtp: 2, ..model(4) }, 2, 1, "Ettttm|mL"), 'm');
    // Chunk (0, 0) is not the last of rank 0.
    assert_eq!(order(&mtp, 2, 2, "Ettttm|||L"), 'm');
    assert_eq!(order(&four, 2, 1, "Ettv|ttL"), 'v');
    assert_eq!(order(&four, 2, 1, "Ett|vttL"), 'v');
    let blind = Model { vision: false, ..model(4) };
    assert_eq!(check(&blind, 2, 1, "vEtt|ttL"), count('v', 1, 0));
    assert_eq!(
        check(&four, 2, 1, "vEgg|gg*1L"),
        LettersError::Kind { letter: 'g', layer: 3, kind: "attn".to_string() }
    );
    assert_eq!(layers_of(4, 2, 1, &text("vEgg|gaL")), "{0,1} | {2,3}");
}

/// The number of layers and the offset of a chunk, as the formulas of facts A1 give them.
fn formula(layers: i64, grid: Grid, split: &Split, p: i64, v: i64) -> (i64, i64) {
    let (pp, vpp) = (i64::from(grid.pp), i64::from(grid.vpp));
    match split {
        Split::Even { embedding, loss } => {
            let (a, b) = (i64::from(*embedding), i64::from(*loss));
            let total = layers + a + b;
            let n = total / pp / vpp;
            let (first, last) = (p == 0 && v == 0, p == pp - 1 && v == vpp - 1);
            let count = n - a * i64::from(first) - b * i64::from(last);
            (v * (total / vpp) + p * n - a * i64::from(!first), count)
        }
        Split::Uneven { first, last } => {
            let (f, z) = (first.map_or(0, i64::from), last.map_or(0, i64::from));
            let (has_f, has_z) = (i64::from(first.is_some()), i64::from(last.is_some()));
            let (mid, ranks) = (layers - f - z, pp - has_f - has_z);
            let of_mid = if ranks > 0 { mid / ranks } else { 0 };
            let count = if p == 0 && has_f == 1 {
                f
            } else if p == pp - 1 && has_z == 1 {
                z
            } else {
                of_mid
            } / vpp;
            let per_v = f / vpp + mid / vpp + z / vpp;
            let offset = if p == 0 {
                v * per_v
            } else {
                let before = if ranks > 0 { (p - has_f) * (mid / vpp) / ranks } else { 0 };
                v * per_v + f / vpp + before
            };
            (offset, count)
        }
        Split::Letters(_) => unreachable!("has no formula"),
    }
}

/// What must hold of every placement, whatever the layout.
fn invariants(m: &Model, p: &Placement) {
    let grid = p.grid;
    assert_eq!(p.chunks.len() as u64, grid.chunks());
    let mut next = 0;
    for (g, chunk) in p.chunks.iter().enumerate() {
        assert_eq!(grid.cell(g), (chunk.pp, chunk.vp));
        assert_eq!(grid.index(chunk.pp, chunk.vp), g);
        for i in chunk.layers() {
            assert_eq!(i, next, "layers tile in the order of the chunks");
            assert!(chunk.holds(Content::Layer(i)));
            next += 1;
        }
        assert!(chunk.contents.is_sorted());
        let (first, last) = (g == 0, g + 1 == p.chunks.len());
        assert_eq!(chunk.holds(Content::Vision), first && m.vision);
        assert_eq!(chunk.holds(Content::LmHead), last);
        assert_eq!(chunk.holds(Content::Loss), last);
        assert_eq!(chunk.holds(Content::Embed), first || chunk.has_mtp());
        assert_eq!(chunk.inputs().contains(&"pixels"), first && m.vision);
        assert_eq!(chunk.inputs().contains(&"labels"), last || chunk.has_mtp());
        assert!(chunk.inputs().contains(&"positions") && chunk.inputs().contains(&"sequence"));
        let depths: Vec<Content> =
            chunk.contents.iter().copied().filter(|c| matches!(c, Content::Mtp(_))).collect();
        assert!(depths.is_empty() || depths.len() == m.mtp as usize, "MTP is in one chunk");
    }
    assert_eq!(u64::from(next), m.depth(), "no layer is lost");
    for once in [Content::FinalNorm, Content::LmHead, Content::Loss]
        .into_iter()
        .chain((0..m.mtp).map(Content::Mtp))
    {
        assert_eq!(p.chunks.iter().filter(|c| c.holds(once)).count(), 1, "{once}");
    }
    let norm = p.chunk_of(&Content::FinalNorm);
    if m.mtp > 0 && m.depth() > 0 {
        assert_eq!(norm, p.chunk_of(&Content::Layer(m.depth() as u32 - 1)));
    } else {
        assert_eq!(norm, Some(p.chunks.len() - 1));
    }
}

/// Every accepted layout of up to 32 layers on up to 6 ranks of up to 4 chunks tiles, and agrees
/// with the formulas of the facts.
#[test]
fn layouts_tile_and_follow_the_formulas() {
    let mut accepted = 0;
    for layers in 0..=32u32 {
        for grid in (1..=6).flat_map(|pp| (1..=4).map(move |vpp| Grid { pp, vpp })) {
            let mut splits: Vec<Split> =
                [(false, false), (true, false), (false, true), (true, true)]
                    .into_iter()
                    .map(|(embedding, loss)| Split::Even { embedding, loss })
                    .collect();
            for first in std::iter::once(None).chain((1..=8).map(Some)) {
                splits.extend(
                    std::iter::once(None).chain((1..=8).map(Some)).map(|z| uneven(first, z)),
                );
            }
            for split in splits {
                let m = if layers % 2 == 0 { model(layers) } else { with_mtp(layers) };
                let Ok(p) = place(&m, grid, &split) else { continue };
                accepted += 1;
                invariants(&m, &p);
                let mut at = 0;
                for chunk in &p.chunks {
                    let (rank, stage) = (i64::from(chunk.pp), i64::from(chunk.vp));
                    let (offset, count) = formula(i64::from(layers), grid, &split, rank, stage);
                    let found = (at, chunk.layers().len() as i64);
                    assert_eq!(found, (offset, count), "{layers} {grid:?} {split:?} {chunk:?}");
                    at += count;
                }
            }
        }
    }
    assert!(accepted > 3000, "{accepted}");
}

/// Layouts of letters with layers, an MTP module and empty stages anywhere they may be.
#[test]
fn random_layouts_of_letters_tile() {
    let mut rng = Random::new(1);
    let mut accepted = 0;
    for _ in 0..3000 {
        let grid = Grid { pp: 2 + rng.below(5) as u32, vpp: 1 + rng.below(3) as u32 };
        let end = grid.chunks() as usize - 1;
        let (mut layers, mut stages) = (0, vec![]);
        let mtp = (rng.below(2) == 1)
            .then(|| grid.index(rng.below(grid.pp as usize) as u32, grid.vpp - 1));
        for g in 0..=end {
            let n = if mtp.is_some_and(|at| g > at) { 0 } else { rng.below(4) };
            layers += n;
            let mut stage = if g == 0 { "E".to_string() } else { String::new() };
            stage += &"t".repeat(n);
            stage += if mtp == Some(g) { "m" } else { "" };
            stage += if g == end { "L" } else { "" };
            stages.push(stage);
        }
        let m = Model { mtp: u32::from(mtp.is_some()), ..model(layers as u32) };
        let written = stages.join("|");
        let p = place(&m, grid, &Split::Letters(written.clone())).expect(&written);
        invariants(&m, &p);
        if let Some(at) = mtp {
            assert_eq!(p.chunk_of(&Content::Mtp(0)), Some(at), "{written}");
        }
        accepted += 1;
    }
    assert_eq!(accepted, 3000);
}

/// Facts A4.
#[test]
fn ranks_with_a_copy_of_the_embedding() {
    let grid = Grid { pp: 4, vpp: 1 };
    let group = |m: &Model, split: &Split| place(m, grid, split).expect("legal").embedding_group(m);
    assert_eq!(group(&model(4), &EVEN), [0]);
    assert_eq!(group(&Model { tied: true, ..model(4) }, &EVEN), [0, 3]);
    assert_eq!(group(&with_mtp(4), &EVEN), [0, 3]);
    let apart = text("Ett|tt|m|L");
    assert_eq!(group(&with_mtp(4), &apart), [0, 2]);
    assert_eq!(group(&Model { tied: true, ..with_mtp(4) }, &apart), [0, 2, 3]);
    let one = place(&Model { tied: true, ..with_mtp(4) }, Grid { pp: 1, vpp: 1 }, &EVEN);
    let one = one.expect("legal");
    assert_eq!(one.embedding_group(&Model { tied: true, ..with_mtp(4) }), [0]);
}

/// The statements of facts A6 that are about placement: 1, 2, 4 and 7. 10 layers a virtual stage
/// on 16 GPUs are their reported check.
#[test]
fn statements_of_the_virtual_pipeline() {
    let (pp, vpp) = (4, 2);
    let m = with_mtp(80);
    let p = place(&m, Grid { pp, vpp }, &EVEN).expect("legal");
    for rank in 0..pp {
        let chunks: Vec<_> = (0..vpp).map(|v| p.chunk(rank, v).expect("in range")).collect();
        // 4: V chunks a rank, stages 0..V-1, first and last where A3 says.
        assert_eq!(chunks.iter().map(|c| c.vp).collect::<Vec<_>>(), [0, 1]);
        for chunk in chunks {
            // 1: the kinds are the pattern of the whole model on the chunk's layers.
            assert_eq!(chunk.layers().len(), 10);
            let names: Vec<String> = chunk.layers().map(|i| m.name(Content::Layer(i))).collect();
            let wanted: Vec<String> =
                chunk.layers().map(|i| format!("layer:{i}:{}", kind(i))).collect();
            assert_eq!(names, wanted);
            let (first, last) = ((rank, chunk.vp) == (0, 0), (rank, chunk.vp) == (3, 1));
            // 2: MTP on the last chunk of the last rank only. 7: the tower on the first only.
            assert_eq!(chunk.has_mtp(), last);
            assert_eq!(chunk.holds(Content::Vision), first);
        }
    }
    // 3: there is no chunk without its stage.
    assert_eq!(p.chunk(0, 2), None);
    assert_eq!(p.chunk(4, 0), None);
}
