//! Schedules: the worked examples of facts/parallel.md section B, and the closed forms of warm-up,
//! live chunks and bubble against a run by the clock.

use vlmc_passes::partition::placement::Grid;
use vlmc_passes::schedule::combined::Pair;
use vlmc_passes::schedule::simulate::{Times, simulate, simulate_pairs};
use vlmc_passes::schedule::{
    Kind, Phase, Schedule, ScheduleError, in_flight, schedule, table, warmup,
};

fn made(kind: Kind, pp: u32, vpp: u32, m: u32, group: u32) -> Schedule {
    schedule(kind, Grid { pp, vpp }, m, group).expect("legal")
}

/// The slots of a rank as the facts write them: microbatch, then chunk.
fn facts_form(s: &Schedule, rank: usize) -> String {
    let slots = s.ranks[rank].iter();
    let slots: Vec<String> =
        slots.map(|s| format!("{:?}{}{}", s.phase, s.microbatch, s.chunk)).collect();
    slots.join(" ")
}

#[test]
fn interleaved_of_the_facts() {
    let s = made(Kind::Interleaved, 2, 2, 4, 2);
    assert_eq!(
        facts_form(&s, 0),
        "F00 F10 F01 F11 F20 B01 F30 B11 F21 B00 F31 B10 B21 B31 B20 B30"
    );
    assert_eq!(
        facts_form(&s, 1),
        "F00 F10 F01 B01 F11 B11 F20 B00 F30 B10 F21 B21 F31 B31 B20 B30"
    );
    let (microbatches, chunks): (Vec<u32>, Vec<u32>) = table(2, 5, 3).into_iter().unzip();
    assert_eq!(microbatches, [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]);
    assert_eq!(chunks, [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]);
}

/// Facts B1: P 4, m 8, tB = 2 tF: a ratio of 0.375, and peaks of 4, 3, 2, 1.
#[test]
fn one_f_one_b_of_the_facts() {
    let s = made(Kind::OneFOneB, 4, 1, 8, 4);
    let line = simulate(&s, &Times::equal(s.grid, 1.0, 2.0, 0.0)).expect("runs");
    assert_eq!(line.bubble_ratio(), 0.375);
    assert_eq!(s.ranks.iter().map(|r| in_flight(r)).collect::<Vec<_>>(), [4, 3, 2, 1]);
    assert_eq!(
        facts_form(&s, 3).split(' ').take(4).collect::<Vec<_>>(),
        ["F00", "B00", "F10", "B10"]
    );
}

#[test]
fn refusals_of_the_facts() {
    let refused =
        |kind, pp, vpp, m, group| schedule(kind, Grid { pp, vpp }, m, group).expect_err("refused");
    let kind = Kind::Interleaved;
    assert_eq!(
        refused(kind, 4, 2, 3, 4),
        ScheduleError::GroupAboveMicrobatches { group: 4, microbatches: 3 }
    );
    assert_eq!(refused(kind, 4, 2, 8, 3), ScheduleError::GroupBelowRanks { group: 3, pp: 4 });
    assert_eq!(
        refused(kind, 4, 2, 6, 4),
        ScheduleError::Remainder { microbatches: 6, group: 4, rest: 2, pp: 4 }
    );
    assert_eq!(refused(kind, 2, 1, 4, 2), ScheduleError::NeedsChunks { kind });
    assert_eq!(refused(kind, 1, 2, 4, 2), ScheduleError::NeedsRanks { kind, vpp: 2 });
    let kind = Kind::CombinedOneFOneB;
    assert_eq!(refused(kind, 2, 1, 4, 2), ScheduleError::NeedsChunks { kind });
    for kind in [Kind::OneFOneB, Kind::ZbH1] {
        assert_eq!(refused(kind, 2, 2, 4, 2), ScheduleError::OneChunk { kind, vpp: 2 });
    }
    assert_eq!(refused(Kind::GPipe, 2, 2, 0, 2), ScheduleError::Nothing);
    assert!(matches!(
        refused(Kind::GPipe, 1 << 15, 2, 1 << 16, 1 << 15),
        ScheduleError::TooManySlots { .. }
    ));
    // A last group of as many microbatches as ranks or more is fine.
    assert!(schedule(Kind::Interleaved, Grid { pp: 4, vpp: 2 }, 9, 5).is_ok());
}

/// What the refused remainder would cost: facts B2 say 19 time units of bubble instead of 9. The
/// time unit is a forward; a backward takes two.
#[test]
fn a_small_last_group_stalls() {
    let grid = Grid { pp: 4, vpp: 2 };
    let bubble =
        |s: &Schedule| simulate(s, &Times::equal(grid, 1.0, 2.0, 0.0)).expect("runs").bubble(0);
    assert_eq!(bubble(&made(Kind::Interleaved, 4, 2, 8, 4)), 9.0);
    let slots = |p: u32| {
        let (table, w) = (table(2, 6, 4), warmup(Kind::Interleaved, grid, 6, 4, p) as usize);
        let slot =
            |phase, (microbatch, chunk)| vlmc_passes::schedule::Slot { phase, microbatch, chunk };
        let back = |j: usize| slot(Phase::B, (table[j].0, 1 - table[j].1));
        let mut slots: Vec<_> = table[..w].iter().map(|f| slot(Phase::F, *f)).collect();
        for j in 0..table.len() {
            slots.extend(table.get(w + j).map(|f| slot(Phase::F, *f)));
            slots.push(back(j));
        }
        slots
    };
    let ranks = (0..4).map(slots).collect();
    let stalled = Schedule { kind: Kind::Interleaved, grid, microbatches: 6, group: 4, ranks };
    assert_eq!(bubble(&stalled), 19.0);
}

/// Every slot once, and a forward before its backward before its gradients of weights.
fn complete(s: &Schedule) {
    let (m, vpp) = (s.microbatches, s.grid.vpp);
    for rank in &s.ranks {
        let phases = if s.kind == Kind::ZbH1 { 3 } else { 2 };
        let mut place = std::collections::BTreeMap::new();
        for (at, slot) in rank.iter().enumerate() {
            assert!(place.insert((slot.microbatch, slot.chunk, slot.phase), at).is_none());
        }
        assert_eq!(place.len() as u32, m * vpp * phases);
        for (i, v) in (0..m).flat_map(|i| (0..vpp).map(move |v| (i, v))) {
            let of = |phase| place.get(&(i, v, phase)).copied();
            assert!(of(Phase::F) < of(Phase::B));
            assert!(phases == 2 || of(Phase::B) < of(Phase::W));
        }
    }
}

/// P to 8, V to 4, several m and N: warm-up, live chunks and bubble of facts B1 and B2.
#[test]
fn closed_forms() {
    let mut tried = 0;
    for (pp, vpp) in (1..=8u32).flat_map(|pp| (1..=4u32).map(move |vpp| (pp, vpp))) {
        for (group, m) in [0, 1, 3].into_iter().flat_map(|d| (1..=20u32).map(move |m| (pp + d, m)))
        {
            let grid = Grid { pp, vpp };
            let kind = Kind::default_for(grid);
            let Ok(s) = schedule(kind, grid, m, group) else { continue };
            tried += 1;
            complete(&s);
            let line = simulate(&s, &Times::equal(grid, 1.0, 2.0, 0.0)).expect("runs");
            for (p, rank) in s.ranks.iter().enumerate() {
                let behind = pp - 1 - p as u32;
                let all = m * vpp;
                let (warm, live) = if vpp == 1 {
                    (m.min(behind), m.min(behind + 1))
                } else {
                    let w = all.min(2 * behind + (vpp - 1) * group);
                    (w, all.min(w + 1))
                };
                // The forward of the first pair follows the warm-up.
                let leading = rank.iter().take_while(|s| s.phase == Phase::F).count() as u32;
                assert_eq!(leading, all.min(warm + 1), "{grid:?} {m} {group} {p}");
                assert_eq!(warmup(kind, grid, m, group, p as u32), u64::from(warm));
                assert_eq!(in_flight(rank), live, "{grid:?} {m} {group} {p}");
                let bubble = f64::from(pp - 1) * 3.0;
                assert_eq!(line.bubble(p), bubble, "{grid:?} m {m} N {group} rank {p}");
            }
            let ratio = f64::from(pp - 1) / f64::from(vpp * m);
            assert!((line.bubble_ratio() - ratio).abs() < 1e-12);
        }
    }
    assert!(tried > 500, "{tried}");
}

/// Facts B3: the bubble of ZB-H1 is (P-1)(F+B-W), and it holds P activations at most.
#[test]
fn zb_h1_of_the_facts() {
    for pp in 1..=8u32 {
        for m in pp..=20 {
            let s = made(Kind::ZbH1, pp, 1, m, pp);
            complete(&s);
            for (f, b, w) in [(1.0, 1.0, 1.0), (2.0, 2.0, 1.0), (4.0, 5.0, 3.0)] {
                let line = simulate(&s, &Times::equal(s.grid, f, b, w)).expect("runs");
                let bubble = line.makespan - f64::from(m) * (f + b + w);
                assert_eq!(bubble, f64::from(pp - 1) * (f + b - w), "P {pp} m {m} {f} {b} {w}");
            }
            assert!(s.ranks.iter().all(|r| in_flight(r) <= pp), "P {pp} m {m}");
        }
    }
}

/// All forwards before any backward; the bubble is that of 1F1B.
#[test]
fn gpipe() {
    for (pp, vpp, m) in [(1, 1, 3), (4, 1, 8), (2, 2, 4), (4, 2, 8), (3, 3, 6)] {
        let s = made(Kind::GPipe, pp, vpp, m, pp);
        complete(&s);
        assert!(s.ranks.iter().all(|r| in_flight(r) == m * vpp));
        let line = simulate(&s, &Times::equal(s.grid, 1.0, 2.0, 0.0)).expect("runs");
        assert_eq!(line.bubble(0), f64::from(pp - 1) * 3.0, "P {pp} V {vpp} m {m}");
    }
}

/// One more forward of warm-up, so that the two halves of a pair never depend on each other.
#[test]
fn combined_pairs_are_independent() {
    for (pp, vpp, m) in [(1, 1, 4), (2, 2, 4), (4, 2, 8), (3, 3, 6), (8, 4, 16)] {
        let s = made(Kind::CombinedOneFOneB, pp, vpp, m, pp);
        complete(&s);
        for (p, rank) in s.ranks.iter().enumerate() {
            let w = warmup(s.kind, s.grid, m, pp, p as u32) as usize;
            let plain =
                if pp == 1 { 0 } else { warmup(Kind::Interleaved, s.grid, m, pp, p as u32) };
            assert_eq!(w as u64, (plain + 1).min(u64::from(m * vpp)));
            for pair in rank[w..rank.len() - w].chunks_exact(2) {
                assert_eq!((pair[0].phase, pair[1].phase), (Phase::F, Phase::B));
                let of = |s: &vlmc_passes::schedule::Slot| (s.microbatch, s.chunk);
                assert_ne!(of(&pair[0]), of(&pair[1]), "rank {p}: {} {}", pair[0], pair[1]);
            }
        }
        assert!(simulate(&s, &Times::equal(s.grid, 1.0, 2.0, 0.0)).is_ok());
    }
}

/// Pairs start together, for all P, V, m and N that are legal, and never wait in a circle.
#[test]
fn combined_pairs_run() {
    let grids = (1..=6u32).flat_map(|pp| (1..=3u32).map(move |vpp| Grid { pp, vpp }));
    let mut tried = 0;
    for grid in grids {
        for (m, more) in (1..=14u32).flat_map(|m| (0..3u32).map(move |more| (m, more))) {
            let kind = Kind::CombinedOneFOneB;
            let Ok(s) = schedule(kind, grid, m, grid.pp + more) else { continue };
            let times = Times::equal(grid, 1.0, 2.0, 0.0);
            // No time is saved, so the pair takes as long as its halves.
            let line = simulate_pairs(&s, &times, &|_, _| Pair { forward: 1.0, backward: 3.0 });
            let line = line.expect("runs");
            let all = f64::from(3 * m * grid.vpp);
            assert!((0..grid.pp as usize).all(|p| line.busy(p) == all), "{grid:?} {m} {more}");
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

/// A schedule in which two ranks wait for each other is told with their slots.
#[test]
fn a_deadlock_is_told() {
    let mut s = made(Kind::OneFOneB, 2, 1, 2, 2);
    s.ranks[0].swap(0, 2);
    let told = simulate(&s, &Times::equal(s.grid, 1.0, 2.0, 0.0)).expect_err("waits");
    assert_eq!(told.to_string(), "no rank can go on: rank 0 at B0.0, rank 1 at F0.0");
}
