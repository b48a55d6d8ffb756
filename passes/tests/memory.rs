//! Memory plans: what is live when, on the host, execution by execution; and the checker against an
//! executor that poisons what is freed.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use support::rank::One;
use vlmc_artifact::Buffer;
use vlmc_artifact::memory::{MemoryPlan, What};
use vlmc_ir::dim::Symbol;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::Program;
use vlmc_ir::testing::Random;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::memory::{ALIGNMENT, report};
use vlmc_passes::recompute::{Choice, apply, sites};

/// Three layers of a small network, with what a layer keeps.
const LAYERS: &str = r#"program "p"
symbol T

func @layer {
  input %x : f32[T, 6]
  param %w = "w" : f32[10, 6] init normal(0.02)
  param %u = "u" : f32[6, 10] init normal(0.02)
  %a = contract %x, %w {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32} : f32[T, 10]  in mlp
  %b = silu %a : f32[T, 10]  in mlp
  %s = mul %b, %a : f32[T, 10]  in mlp
  %y = contract %s, %u {a_batch = [], b_batch = [], a_contract = [1], b_contract = [1], dtype = f32} : f32[T, 6]
  %t = tanh %y : f32[T, 6]
  %z = add %x, %t : f32[T, 6]
  return %z
}

func @main {
  input %x : f32[T, 6] from features()
  %h = call %x {callee = "layer", scope = "l.0", path = "l.0", layer = 0} : f32[T, 6]
  %h_2 = call %h {callee = "layer", scope = "l.1", path = "l.1", layer = 1} : f32[T, 6]
  %h_3 = call %h_2 {callee = "layer", scope = "l.2", path = "l.2", layer = 2} : f32[T, 6]
  %q = mul %h_3, %h_3 : f32[T, 6]
  %sum = reduce_sum %q {axes = [0, 1]} : f32[]
  %count = constant {value = 12.0, dtype = f32, shape = []} : f32[]
  loss "lm" = %sum / %count weight 1.0
}
"#;

fn rows(n: usize) -> Sizes {
    let mut sizes = Sizes::default();
    sizes.set(&Symbol::new("T"), n);
    sizes
}

fn joint() -> Program {
    let p = support::program(LAYERS);
    let options = Options { seeds: Seeds::Counts, ..Options::default() };
    differentiate(&p, &options).unwrap()
}

/// The program as it is, with its layers recomputed, and with groups of two.
fn programs() -> Vec<(&'static str, Program)> {
    let plain = joint();
    let sites = sites(&plain);
    assert_eq!(sites.len(), 3);
    let whole = apply(&plain, &Choice::whole_layers(&sites)).unwrap();
    let groups = Choice {
        groups: vec![sites.iter().take(2).map(|s| s.forward).collect()],
        ..Choice::default()
    };
    let groups = apply(&plain, &groups).unwrap();
    for p in [&whole, &groups] {
        support::sound(p);
    }
    vec![("plain", plain), ("layers", whole), ("groups", groups)]
}

/// The losses and gradients at the end, as bytes.
fn numbers(values: &BTreeMap<Buffer, Vec<u8>>) -> BTreeMap<&Buffer, &Vec<u8>> {
    let wanted = values.iter().filter(|(b, _)| matches!(b, Buffer::LossSum(..) | Buffer::Grad(_)));
    wanted.collect()
}

#[test]
fn plans_run_in_their_places_and_their_timeline_is_what_is_measured() {
    let mut first = None;
    let mut peaks = vec![];
    for (name, program) in programs() {
        for microbatches in [1, 3] {
            let one = One::new(program.clone(), microbatches, rows(5));
            let plan = one.plan(200);
            assert_eq!(one.faults(&plan), [], "{name}");
            for b in &plan.blocks {
                assert_eq!(b.offset % ALIGNMENT, 0, "{name}: {}", b.name);
            }
            let separate = one.execute(&plan, vlmc_runtime::arena::Storage::Separate).unwrap();
            assert_eq!(separate.live, report::timeline(&plan), "{name}");
            let packed = one.execute(&plan, vlmc_runtime::arena::Storage::Packed).unwrap();
            assert_eq!(packed.values, separate.values, "{name}");
            assert_eq!(packed.read, separate.read, "{name}");
            if microbatches == 1 {
                let most = *separate.live.iter().max().unwrap();
                peaks.push((name, most));
                let text: BTreeMap<String, Vec<u8>> = numbers(&packed.values)
                    .into_iter()
                    .map(|(b, v)| (format!("{b:?}"), v.clone()))
                    .collect();
                assert_eq!(text.len(), 7, "one loss, six gradients");
                match &first {
                    None => first = Some(text),
                    Some(first) => assert_eq!(&text, first, "{name}"),
                }
            }
        }
    }
    println!("{peaks:?}");
    assert!(peaks[1].1 < peaks[0].1, "recomputing layers lowers the peak: {peaks:?}");
}

#[test]
fn reports_name_what_is_live() {
    let one = One::new(joint(), 1, rows(5));
    let plan = one.plan(200);
    let most = report::timeline(&plan).into_iter().max().unwrap();
    let live: u64 = report::at_peak(&plan).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(live, most);
    let csv = report::csv(&plan);
    assert_eq!(csv.lines().count(), plan.blocks.len() + 1);
    assert!(csv.contains("\"l.1.a\",activations,"), "{csv}");
    assert!(report::svg(&plan).starts_with("<svg"));
    let trace: serde_json::Value = serde_json::from_str(&report::trace(&plan)).unwrap();
    assert_eq!(trace["traceEvents"].as_array().unwrap().len(), 2 * plan.executions.len());
}

/// One small change of a plan; `None` where this one has no place.
fn mutation(plan: &MemoryPlan, rng: &mut Random) -> Option<(String, MemoryPlan)> {
    let mut p = plan.clone();
    let n = p.executions.len();
    let replays: Vec<usize> = (0..n)
        .filter(|i| matches!(p.executions[*i].what, What::Node { replay: true, .. }))
        .collect();
    match rng.below(4) {
        0 => {
            let at = 1 + rng.below(n - 1);
            let frees = p.executions[at].frees.len();
            if frees == 0 {
                return None;
            }
            let block = p.executions[at].frees.remove(rng.below(frees));
            p.executions[at - 1].frees.push(block);
            Some((format!("free of {block} before {at}"), p))
        }
        1 => {
            let block = rng.below(p.blocks.len());
            let b = &mut p.blocks[block];
            let up = rng.chance(50);
            let bytes = p.pools[0].max(p.pools[1]).max(p.pools[3]);
            b.offset = if up { b.offset + ALIGNMENT } else { b.offset.checked_sub(ALIGNMENT)? };
            // The pool grows where it must.
            p.pools.iter_mut().for_each(|size| *size = bytes + 2 * ALIGNMENT);
            Some((format!("block {block} moved"), p))
        }
        2 => {
            let (a, b) = (*replays.get(rng.below(replays.len()))?, rng.below(replays.len()));
            let b = replays[b];
            if a == b {
                return None;
            }
            p.executions.swap(a, b);
            Some((format!("replays {a} and {b} swapped"), p))
        }
        _ => {
            let at = *replays.get(rng.below(replays.len()))?;
            p.executions.remove(at);
            Some((format!("replay {at} dropped"), p))
        }
    }
}

/// Whether each execution reads what it reads in the plan that is right, and the end is the same.
fn harmless(one: &One, right: &vlmc_runtime::arena::Outcome, key: &Keys, p: &MemoryPlan) -> bool {
    let Ok(have) = one.execute(p, vlmc_runtime::arena::Storage::Packed) else { return false };
    let same = p
        .executions
        .iter()
        .zip(&have.read)
        .all(|(e, read)| key.get(&what(e)).is_some_and(|at| right.read[*at] == *read));
    same && numbers(&have.values) == numbers(&right.values)
        && have.values.iter().all(|(b, v)| matches!(b, Buffer::Grad(_)) || right.values[b] == *v)
}

type Keys = BTreeMap<String, usize>;

fn what(e: &vlmc_artifact::memory::Execution) -> String {
    format!("{:?}", e.what)
}

#[test]
fn the_checker_rejects_what_a_poisoning_executor_shows_to_be_wrong() {
    let ones: Vec<(&str, One)> = programs()
        .into_iter()
        .filter(|(name, _)| *name != "plain")
        .map(|(name, p)| (name, One::new(p, 1, rows(45))))
        .collect();
    let mut rng = Random::new(5);
    let (mut wrong, mut fine, mut tried) = (0, 0, 0);
    let mut by_kind: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let prepared: Vec<_> = ones
        .iter()
        .map(|(name, one)| {
            let plan = one.plan(300);
            let right = one.execute(&plan, vlmc_runtime::arena::Storage::Packed).unwrap();
            let key: Keys = plan.executions.iter().map(what).zip(0..).collect();
            assert_eq!(key.len(), plan.executions.len());
            (name, one, plan, right, key)
        })
        .collect();
    while tried < 10_000 {
        let (name, one, plan, right, key) = &prepared[rng.below(prepared.len())];
        let Some((kind, p)) = mutation(plan, &mut rng) else { continue };
        tried += 1;
        let faults = one.faults(&p);
        let good = harmless(one, right, key, &p);
        assert_eq!(faults.is_empty(), good, "{name}: {kind}: {faults:?}");
        let word = kind.split(' ').next().unwrap().to_string();
        by_kind.entry(word).or_default()[usize::from(good)] += 1;
        if good {
            fine += 1;
        } else {
            wrong += 1;
            let f = &faults[0];
            // Both steps are named, where there is one to blame.
            let titles = [Some(f.at), f.by].into_iter().flatten();
            for i in titles.filter(|i| *i < p.executions.len()) {
                let title = format!("{i} `{}`", p.executions[i].name);
                assert!(f.message.contains(&title), "{kind}: {f:?}");
            }
            if !kind.contains("dropped") {
                assert!(faults.iter().any(|f| f.by.is_some() || f.message.contains("made")));
            }
        }
    }
    println!("{wrong} wrong, {fine} harmless: {by_kind:?}");
    assert!(wrong > 1000 && fine > 100, "{wrong} wrong, {fine} harmless: {by_kind:?}");
}

/// From when to when each block is live.
fn lives(plan: &MemoryPlan) -> Vec<(usize, usize)> {
    let last = plan.executions.len();
    let mut lives = vec![(usize::MAX, last); plan.blocks.len()];
    for (i, e) in plan.executions.iter().enumerate() {
        e.writes.iter().for_each(|b| lives[*b].0 = lives[*b].0.min(i));
        e.frees.iter().for_each(|b| lives[*b].1 = i);
    }
    lives
}

/// A value that is made again is in one block at a time: what was there first is free before.
#[test]
fn case_77_no_copy_stays_beside_a_restored_value() {
    let (_, program) = programs().remove(1);
    let plan = One::new(program, 1, rows(5)).plan(200);
    let lives = lives(&plan);
    let replayed: Vec<&str> = plan
        .executions
        .iter()
        .filter(|e| matches!(e.what, What::Node { replay: true, .. }))
        .map(|e| &*e.name)
        .collect();
    assert!(replayed.len() >= 3, "{replayed:?}");
    for name in replayed {
        let of: Vec<usize> =
            (0..plan.blocks.len()).filter(|b| plan.blocks[*b].name == name).collect();
        for (i, a) in of.iter().enumerate() {
            for b in &of[i + 1..] {
                let (a, b) = (lives[*a], lives[*b]);
                assert!(a.1 < b.0 || b.1 < a.0, "`{name}` is twice there: {a:?} and {b:?}");
            }
        }
    }
}

/// After the backward pass of a layer nothing of it is left but what it gives: the gradient of its
/// input.
#[test]
fn case_82_nothing_of_a_layer_outlives_its_backward_pass() {
    for (name, program) in programs() {
        let plan = One::new(program, 1, rows(5)).plan(200);
        let lives = lives(&plan);
        for layer in ["l.0.", "l.1.", "l.2."] {
            let of_layer = |e: &&vlmc_artifact::memory::Execution| e.name.starts_with(layer);
            let last = plan.executions.iter().rposition(|e| of_layer(&e)).unwrap();
            let left: Vec<&str> = plan
                .blocks
                .iter()
                .zip(&lives)
                .filter(|(b, (from, to))| {
                    b.buffer.is_none()
                        && b.name.starts_with(layer)
                        && *from <= last
                        && *to > last + 1
                })
                .map(|(b, _)| &*b.name)
                .collect();
            assert!(left.len() <= 1, "{name}: {left:?} are left of {layer}");
        }
    }
}
