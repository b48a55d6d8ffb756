//! The proof of rank steps against a simulator that runs them: what the proof accepts runs, and
//! what hangs or fails when it runs is refused.

use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};
use vlmc_artifact::{Buffer, Mesh, Schedule, Step};
use vlmc_ir::testing::Random;
use vlmc_passes::check::schedule::{Fault, Signature, check};
use vlmc_passes::partition::placement::Grid;
use vlmc_passes::schedule::{Kind, Phase, schedule};

type Programs = IndexMap<String, Signature>;

fn value(m: usize, name: String) -> Buffer {
    Buffer::Value(m, name)
}

/// The steps of a chain of stages: what compilation makes, in small. Stage `g` takes `h.(g-1)`,
/// keeps `s.g` for its backward, which takes `d.(g+1)` and gives `d.g` and the gradient of `w.g`;
/// the first and the last stage share a weight, too.
fn steps(kind: Kind, grid: Grid, m: u32, group: u32) -> (Schedule, Programs) {
    let slots = schedule(kind, grid, m, group).expect("legal");
    let last = grid.chunks() as usize - 1;
    let ty = |s: &str| s.to_string();
    let mut programs = Programs::new();
    programs.insert(
        "counts".into(),
        Signature { inputs: vec![("ids".into(), ty("i"))], outputs: vec![ty("n")] },
    );
    for g in 0..=last {
        let mut inputs = vec![("positions".to_string(), ty("i"))];
        inputs.extend((g > 0).then(|| (format!("h.{}", g - 1), format!("t{}", g - 1))));
        let mut outputs = vec![ty("saved")];
        outputs.extend((g < last).then(|| format!("t{g}")));
        outputs.extend((g == last).then(|| [ty("f"), ty("f")]).into_iter().flatten());
        programs.insert(format!("fwd.{g}"), Signature { inputs, outputs });
        let mut inputs = vec![(format!("s.{g}"), ty("saved"))];
        inputs.push(if g == last {
            ("lm.total".into(), ty("f"))
        } else {
            (format!("d.{}", g + 1), format!("u{}", g + 1))
        });
        let mut outputs = vec![ty("w")];
        outputs.extend((g > 0).then(|| format!("u{g}")));
        outputs.extend((g == 0 || g == last).then(|| ty("e")));
        programs.insert(format!("bwd.{g}"), Signature { inputs, outputs });
    }
    let mut ranks = vec![];
    for (p, list) in slots.ranks.iter().enumerate() {
        let rank_of = |g: usize| grid.cell(g).0 as usize;
        let mut out = vec![];
        for i in 0..m as usize {
            out.push(Step::Load { microbatch: i });
            out.push(Step::Run {
                program: "counts".into(),
                microbatch: Some(i),
                inputs: vec![("ids".into(), Buffer::Input(i, "ids".into()))],
                outputs: vec![Buffer::LossCount(i, "lm".into())],
            });
        }
        out.push(Step::Totals);
        for s in list {
            let (g, i) = (grid.index(p as u32, s.chunk), s.microbatch as usize);
            let (h, d, saved) = (
                |g: usize| value(i, format!("h.{g}")),
                |g: usize| value(i, format!("d.{g}")),
                value(i, format!("s.{g}")),
            );
            let remote = |g: usize| rank_of(g) != p;
            if s.phase == Phase::F {
                if g > 0 && remote(g - 1) {
                    out.push(Step::Receive { from: rank_of(g - 1), buffers: vec![h(g - 1)] });
                }
                let mut inputs =
                    vec![("positions".to_string(), Buffer::Input(i, "positions".into()))];
                inputs.extend((g > 0).then(|| (format!("h.{}", g - 1), h(g - 1))));
                let mut outputs = vec![saved];
                if g < last {
                    outputs.push(h(g));
                } else {
                    outputs.push(Buffer::LossSum(i, "lm".into()));
                    outputs.push(Buffer::LossCount(i, "lm".into()));
                }
                out.push(Step::Run {
                    program: format!("fwd.{g}"),
                    microbatch: Some(i),
                    inputs,
                    outputs,
                });
                if g > 0 {
                    out.push(Step::Free { buffers: vec![h(g - 1)] });
                }
                if g < last && remote(g + 1) {
                    out.push(Step::Send { to: rank_of(g + 1), buffers: vec![h(g)] });
                    out.push(Step::Free { buffers: vec![h(g)] });
                }
                continue;
            }
            if g < last && remote(g + 1) {
                out.push(Step::Receive { from: rank_of(g + 1), buffers: vec![d(g + 1)] });
            }
            let mut inputs = vec![(format!("s.{g}"), saved.clone())];
            inputs.push(if g == last {
                ("lm.total".to_string(), Buffer::TotalCount("lm".into()))
            } else {
                (format!("d.{}", g + 1), d(g + 1))
            });
            let mut outputs = vec![Buffer::LocalGrad(format!("w.{g}"))];
            outputs.extend((g > 0).then(|| d(g)));
            let tied = g == 0 || g == last;
            outputs.extend(tied.then(|| Buffer::LocalGrad("e".into())));
            out.push(Step::Run {
                program: format!("bwd.{g}"),
                microbatch: Some(i),
                inputs,
                outputs,
            });
            let mut params = vec![format!("w.{g}")];
            params.extend(tied.then(|| "e".to_string()));
            out.push(Step::Accumulate { params });
            let mut free = vec![saved];
            free.extend((g < last).then(|| d(g + 1)));
            if g > 0 && remote(g - 1) {
                out.push(Step::Send { to: rank_of(g - 1), buffers: vec![d(g)] });
                free.push(d(g));
            }
            out.push(Step::Free { buffers: free });
        }
        for i in 0..m as usize {
            let names = ["ids", "positions"];
            let buffers = names.map(|n| Buffer::Input(i, n.into())).to_vec();
            out.push(Step::Free { buffers });
        }
        let mut params: Vec<String> =
            (0..grid.vpp).map(|v| format!("w.{}", grid.index(p as u32, v))).collect();
        let ends = [0, rank_of(last)];
        if ends.contains(&p) {
            params.push("e".into());
            if ends[0] != ends[1] {
                out.push(Step::Tie { param: "e".into(), ranks: ends.to_vec() });
            }
        }
        let squares = params.iter().map(|p| Buffer::GradSquares(p.clone())).collect();
        let grads: Vec<(String, Buffer)> =
            params.iter().map(|p| (p.clone(), Buffer::Grad(p.clone()))).collect();
        let types = |n| vec![ty("f"); n];
        programs.insert(
            format!("squares.{p}"),
            Signature {
                inputs: params.iter().map(|p| (p.clone(), ty("w"))).collect(),
                outputs: types(params.len()),
            },
        );
        out.push(Step::Run {
            program: format!("squares.{p}"),
            microbatch: None,
            inputs: grads.clone(),
            outputs: squares,
        });
        out.push(Step::Norm);
        let mut read = grads;
        read.push(("norm".into(), Buffer::GradNorm));
        let mut inputs: Vec<(String, String)> =
            params.iter().map(|p| (p.clone(), ty("w"))).collect();
        inputs.push(("norm".into(), ty("f")));
        programs
            .insert(format!("optimizer.{p}"), Signature { inputs, outputs: types(params.len()) });
        out.push(Step::Run {
            program: format!("optimizer.{p}"),
            microbatch: None,
            inputs: read,
            outputs: params.iter().map(|p| Buffer::Master(p.clone())).collect(),
        });
        out.push(Step::Free { buffers: params.iter().map(|p| Buffer::Grad(p.clone())).collect() });
        out.push(Step::Publish { params });
        ranks.push(out);
    }
    let mesh = Mesh { pp: grid.pp as usize, cp: 1, dp: 1 };
    (Schedule { mesh, microbatches: m as usize, ranks }, programs)
}

/// Runs steps as an executor does, with types for values. An error is a hang or a failure.
fn simulate(s: &Schedule, programs: &Programs) -> Result<(), String> {
    let n = s.ranks.len();
    let mut memory: Vec<BTreeMap<Buffer, String>> = vec![BTreeMap::new(); n];
    let mut mail: BTreeMap<(usize, usize, Buffer), String> = BTreeMap::new();
    let mut at = vec![0usize; n];
    // Who has come to the meeting that is going on, by name.
    let mut come: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut met = vec![BTreeSet::<String>::new(); n];
    let stays = |b: &Buffer| {
        matches!(
            b,
            Buffer::Param(_)
                | Buffer::Master(_)
                | Buffer::Moment1(_)
                | Buffer::Moment2(_)
                | Buffer::Scalar(_)
        )
    };
    loop {
        let mut moved = false;
        for p in 0..n {
            while let Some(step) = s.ranks[p].get(at[p]) {
                let get = |memory: &BTreeMap<Buffer, String>, b: &Buffer| {
                    if stays(b) {
                        Ok("w".to_string())
                    } else {
                        memory.get(b).cloned().ok_or(format!("{b:?} is read before it is made"))
                    }
                };
                let all: Vec<usize> = (0..n).collect();
                let meeting = match step {
                    Step::Norm => Some(("norm".to_string(), all)),
                    Step::Tie { param, ranks } => {
                        get(&memory[p], &Buffer::Grad(param.clone()))?;
                        Some((param.clone(), ranks.clone()))
                    }
                    _ => None,
                };
                if let Some((name, ranks)) = meeting {
                    come.entry(name.clone()).or_default().insert(p);
                    if !ranks.iter().all(|r| come[&name].contains(r)) {
                        break;
                    }
                    if name == "norm" {
                        memory[p].insert(Buffer::GradNorm, "f".into());
                    }
                    met[p].insert(name);
                    at[p] += 1;
                    moved = true;
                    continue;
                }
                match step {
                    Step::Load { microbatch } => {
                        if *microbatch >= s.microbatches {
                            return Err("no microbatch".into());
                        }
                        for name in ["ids", "positions"] {
                            memory[p].insert(Buffer::Input(*microbatch, name.into()), "i".into());
                        }
                    }
                    Step::Run { program, inputs, outputs, .. } => {
                        let signature = programs.get(program).ok_or("no program")?;
                        for (name, ty) in &signature.inputs {
                            let (_, b) = inputs
                                .iter()
                                .find(|(n, _)| n == name)
                                .ok_or("an input has no value")?;
                            let found = get(&memory[p], b)?;
                            if found != *ty && matches!(b, Buffer::Value(..)) {
                                return Err(format!("{b:?} has another shape"));
                            }
                        }
                        if signature.outputs.len() != outputs.len() {
                            return Err("results for buffers".into());
                        }
                        for (b, ty) in outputs.iter().zip(&signature.outputs) {
                            memory[p].insert(b.clone(), ty.clone());
                        }
                    }
                    Step::Totals => {
                        for m in 0..s.microbatches {
                            get(&memory[p], &Buffer::LossCount(m, "lm".into()))?;
                        }
                        memory[p].insert(Buffer::TotalCount("lm".into()), "f".into());
                    }
                    Step::Accumulate { params } => {
                        for name in params {
                            let local = Buffer::LocalGrad(name.clone());
                            memory[p].remove(&local).ok_or("no gradient")?;
                            memory[p].insert(Buffer::Grad(name.clone()), "w".into());
                        }
                    }
                    Step::Send { to, buffers } => {
                        for b in buffers {
                            let v = get(&memory[p], b)?;
                            if mail.insert((p, *to, b.clone()), v).is_some() {
                                return Err("sent again before it was received".into());
                            }
                        }
                    }
                    Step::Receive { from, buffers } => {
                        let there = |b: &Buffer| mail.contains_key(&(*from, p, b.clone()));
                        if !buffers.iter().all(there) {
                            break;
                        }
                        for b in buffers {
                            let v = mail.remove(&(*from, p, b.clone())).unwrap_or_default();
                            memory[p].insert(b.clone(), v);
                        }
                    }
                    Step::Free { buffers } => buffers.iter().for_each(|b| _ = memory[p].remove(b)),
                    Step::Reduce { params } => {
                        for name in params {
                            get(&memory[p], &Buffer::Grad(name.clone()))?;
                        }
                    }
                    _ => {}
                }
                at[p] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    match (0..n).find(|p| at[*p] < s.ranks[*p].len()) {
        Some(p) => Err(format!("rank {p} hangs at step {}", at[p])),
        None if !mail.is_empty() => Err("a message is never received".into()),
        None => Ok(()),
    }
}

/// A random legal layout.
fn random(rng: &mut Random) -> (Schedule, Programs) {
    loop {
        let grid = Grid { pp: 1 + rng.below(5) as u32, vpp: 1 + rng.below(3) as u32 };
        let kinds = [Kind::OneFOneB, Kind::Interleaved, Kind::GPipe, Kind::CombinedOneFOneB];
        let (kind, m) = (kinds[rng.below(4)], 1 + rng.below(9) as u32);
        let group = grid.pp + rng.below(3) as u32;
        if schedule(kind, grid, m, group).is_ok() && (grid.pp > 1 || grid.vpp == 1) {
            return steps(kind, grid, m, group);
        }
    }
}

/// One small change somewhere.
fn mutate(s: &mut Schedule, rng: &mut Random) {
    let p = rng.below(s.ranks.len());
    let n = s.ranks[p].len();
    let (i, j) = (rng.below(n), rng.below(n));
    match rng.below(8) {
        0 => _ = s.ranks[p].remove(i),
        1 => s.ranks[p].swap(i, j),
        2 => {
            let step = s.ranks[p].remove(i);
            s.ranks[p].insert(j.min(n - 1), step);
        }
        3 => {
            let step = s.ranks[p][i].clone();
            s.ranks[p].insert(j, step);
        }
        // A peer, a microbatch, a buffer or a program of another step.
        4 => {
            let other = rng.below(s.ranks.len() + 1);
            match &mut s.ranks[p][i] {
                Step::Send { to, .. } => *to = other,
                Step::Receive { from, .. } => *from = other,
                Step::Tie { ranks, .. } => _ = ranks.pop(),
                Step::Load { microbatch } => *microbatch += 1,
                _ => {}
            }
        }
        5 => {
            let all: Vec<Buffer> = s.ranks[p]
                .iter()
                .flat_map(|s| match s {
                    Step::Send { buffers, .. } | Step::Receive { buffers, .. } => buffers.clone(),
                    _ => vec![],
                })
                .collect();
            if let (
                Step::Send { buffers, .. } | Step::Receive { buffers, .. } | Step::Free { buffers },
                false,
            ) = (&mut s.ranks[p][i], all.is_empty())
            {
                buffers[0] = all[rng.below(all.len())].clone();
            }
        }
        6 => {
            if let Step::Run { inputs, outputs, .. } = &mut s.ranks[p][i] {
                if rng.below(2) == 0 { _ = outputs.pop() } else { _ = inputs.pop() }
            }
        }
        _ => {
            let programs: Vec<String> = s.ranks[p]
                .iter()
                .filter_map(|s| match s {
                    Step::Run { program, .. } => Some(program.clone()),
                    _ => None,
                })
                .collect();
            if let Step::Run { program, .. } = &mut s.ranks[p][i] {
                *program = programs[rng.below(programs.len())].clone();
            }
        }
    }
}

#[test]
fn random_layouts_are_accepted_and_run() {
    let mut rng = Random::new(6);
    for _ in 0..2000 {
        let (s, programs) = random(&mut rng);
        assert_eq!(check(&s, &programs), Ok(()));
        assert_eq!(simulate(&s, &programs), Ok(()));
    }
}

/// Every mutated program that hangs or fails is refused; mutations that do no harm do not count.
#[test]
fn what_hangs_or_fails_is_refused() {
    let mut rng = Random::new(60);
    let (mut failing, mut cycles) = (0, 0);
    while failing < 10_000 {
        let (mut s, programs) = random(&mut rng);
        mutate(&mut s, &mut rng);
        let Err(why) = simulate(&s, &programs) else { continue };
        failing += 1;
        let faults = check(&s, &programs).expect_err(&format!("{why}: {s:?}"));
        cycles += usize::from(faults.iter().any(|f| matches!(f, Fault::Cycle { .. })));
        assert!(faults.iter().all(|f| !f.to_string().is_empty()));
    }
    assert!(cycles > 100, "{cycles} of the mutations make ranks wait in a circle");
}

/// Two ranks that each wait for the other's value before they send their own.
#[test]
fn a_circle_is_named() {
    let (mut s, programs) = steps(Kind::OneFOneB, Grid { pp: 2, vpp: 1 }, 1, 2);
    let place = |s: &Schedule, p: usize, is: &dyn Fn(&Step) -> bool| {
        s.ranks[p].iter().position(is).expect("a step")
    };
    // Rank 0 waits for the gradient before it sends the activation.
    let receive = place(&s, 0, &|s| matches!(s, Step::Receive { .. }));
    let run = place(&s, 0, &|s| matches!(s, Step::Run { program, .. } if program == "fwd.0"));
    let step = s.ranks[0].remove(receive);
    s.ranks[0].insert(run, step);
    let faults = check(&s, &programs).expect_err("refused");
    assert_eq!(
        faults.last().expect("a fault").to_string(),
        "ranks wait for each other: rank0: receive d.1(0) from 1 -> rank0: send h.0(0) to 1 -> \
         rank1: receive h.0(0) from 0 -> rank1: send d.1(0) to 0 -> rank0: receive d.1(0) from 1"
    );
}

#[test]
fn shapes_of_messages_are_compared() {
    let (s, mut programs) = steps(Kind::OneFOneB, Grid { pp: 2, vpp: 1 }, 1, 2);
    programs["fwd.1"].inputs[1].1 = "another".to_string();
    let faults = check(&s, &programs).expect_err("refused");
    assert_eq!(faults.len(), 1);
    assert!(
        matches!(&faults[0], Fault::Shape { made, read, .. } if made == "t0" && read == "another")
    );
}

/// The buffer of a send is freed after it, not before.
#[test]
fn case_16_a_value_is_freed_after_it_is_sent() {
    let (mut s, programs) = steps(Kind::Interleaved, Grid { pp: 4, vpp: 4 }, 8, 4);
    let send = s.ranks[0].iter().position(|s| matches!(s, Step::Send { .. })).expect("a send");
    s.ranks[0].swap(send, send + 1);
    let faults = check(&s, &programs).expect_err("refused");
    assert!(matches!(&faults[0], Fault::Missing { at, .. } if (at.rank, at.step) == (0, send + 1)));
}
