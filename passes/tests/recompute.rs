//! Recompute on the templates of the models: what it frees, and what its programs look like.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use support::models::{joint, sizes};
use support::rank::One;
use support::sound;
use vlmc_artifact::Buffer;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::Program;
use vlmc_passes::memory::{self, report};
use vlmc_passes::recompute::candidates::gain;
use vlmc_passes::recompute::planner::{self, Method, Problem};
use vlmc_passes::recompute::{
    Candidate, Choice, Granularity, apply, candidates, cost, full, is_replay, selective, sites,
};
use vlmc_runtime::arena::Storage;

fn table(all: &[Candidate]) {
    for c in all {
        println!(
            "{:20} {:24} x{:3} {:9.1} MB {:8.1} GFLOP {:8.1} us",
            c.template,
            c.region,
            c.sites.len(),
            c.freed as f64 / 1e6,
            c.work.flops as f64 / 1e9,
            c.work.micros
        );
    }
}

#[test]
fn every_choice_gives_a_sound_program() {
    for variant in ["9b", "proxy"] {
        let (joint, fused) = joint(variant, &["vision.depth=2"]);
        for p in [&joint, &fused] {
            let sites = sites(p);
            let all = candidates(p, &joint, &sites, &sizes(8192)).unwrap();
            table(&all);
            sound(&apply(p, &Choice::whole_layers(&sites)).unwrap());
            for c in &all {
                let mut choice = Choice::default();
                c.sites.iter().for_each(|s| choice.discard(*s, c.results.iter().copied()));
                sound(&apply(p, &choice).unwrap());
            }
            for how in [Granularity::Uniform(1), Granularity::Uniform(3), Granularity::Block(2)] {
                sound(&apply(p, &full(&sites, how)).unwrap());
            }
        }
    }
}

/// The peak of one rank that runs a program.
fn peak(program: &Program, sizes: &Sizes) -> u64 {
    let one = One::new(program.clone(), 1, sizes.clone());
    let live = one.with(memory::simulate).unwrap();
    live.resident() + live.peak()
}

/// What is tried for bit equality: nothing, each region alone, pairs, whole layers in several ways.
fn choices(p: &Program, joint: &Program, sizes: &Sizes) -> Vec<(String, Choice)> {
    let sites = sites(p);
    let all = candidates(p, joint, &sites, sizes).unwrap();
    let mut names: Vec<&str> = all.iter().filter(|c| c.freed > 0).map(|c| &*c.region).collect();
    names.sort_unstable();
    names.dedup();
    let of = |regions: &[&str]| {
        let mut choice = Choice::default();
        for c in all.iter().filter(|c| regions.contains(&&*c.region)) {
            c.sites.iter().for_each(|s| choice.discard(*s, c.results.iter().copied()));
        }
        choice
    };
    let mut out = vec![];
    for (i, a) in names.iter().enumerate() {
        out.push((a.to_string(), of(&[a])));
        for b in
            names[i + 1..].iter().filter(|b| !a.starts_with("value ") && !b.starts_with("value "))
        {
            out.push((format!("{a} and {b}"), of(&[a, b])));
        }
    }
    out.push(("whole layers".to_string(), Choice::whole_layers(&sites)));
    for how in [
        Granularity::Uniform(1),
        Granularity::Uniform(2),
        Granularity::Uniform(3),
        Granularity::Block(2),
    ] {
        out.push((format!("{how:?}"), full(&sites, how)));
    }
    out
}

/// Losses and gradients of a tiny model, executed in the places of its memory plan with what is
/// freed poisoned. The plan is proved first, and its timeline is what is measured.
fn run(name: &str, program: &Program) -> BTreeMap<String, Vec<u8>> {
    let one = One::new(program.clone(), 1, sizes(16));
    let plan = one.plan(3);
    assert_eq!(one.faults(&plan), [], "{name}");
    let separate = one.execute(&plan, Storage::Separate).unwrap();
    assert_eq!(separate.live, report::timeline(&plan), "{name}");
    let packed = one.execute(&plan, Storage::Packed).unwrap();
    assert_eq!(packed.read, separate.read, "{name}");
    let wanted = packed
        .values
        .into_iter()
        .filter(|(b, _)| matches!(b, Buffer::LossSum(..) | Buffer::Grad(_)));
    wanted.map(|(b, v)| (format!("{b:?}"), v)).collect()
}

fn bit_equal(settings: &[&str], all: bool) {
    let (joint, fused) = joint("tiny", settings);
    for (kind, p) in [("unfused", &joint), ("fused", &fused)] {
        let want = run(kind, p);
        assert!(want.len() > 50);
        let mut tried = 0;
        for (name, choice) in choices(p, &joint, &sizes(16)) {
            // In CI named regions alone, and whole layers.
            if !all && (name.contains(" and ") || name.starts_with("value ")) {
                continue;
            }
            let q = apply(p, &choice).unwrap();
            sound(&q);
            let have = run(&name, &q);
            let differ: Vec<&String> =
                want.keys().filter(|k| have.get(*k) != want.get(*k)).collect();
            assert!(differ.is_empty() && have.len() == want.len(), "{kind} {name}: {differ:?}");
            tried += 1;
        }
        println!("{kind}: {tried} choices are bit-equal");
        assert!(tried >= 8);
    }
}

#[test]
fn a_tiny_model_is_bit_equal_however_it_is_recomputed() {
    bit_equal(&["text.mtp_layers=1"], false);
}

#[test]
#[ignore = "the full table"]
fn every_pair_of_regions_is_bit_equal() {
    bit_equal(&["text.mtp_layers=1"], true);
    bit_equal(&["text.mtp_layers=1", "text.experts=0", "text.ffn=192"], true);
}

/// With the region before it on, too, the gated norm is replayed after what it reads.
#[test]
fn case_81_chained_regions_replay_in_producer_order() {
    let (joint, fused) = joint("9b", &["vision.depth=1"]);
    let sites = sites(&fused);
    let all = candidates(&fused, &joint, &sites, &sizes(8192)).unwrap();
    let names = ["gdn_norm_out", "gdn_qkv"].map(String::from);
    let choice = selective(&all, &names).unwrap();
    let p = apply(&fused, &choice).unwrap();
    sound(&p);
    let bwd = p.function("Layer.gdn.bwd.r1").unwrap();
    let replays: Vec<&str> = bwd
        .node_ids()
        .filter(|id| is_replay(bwd, *id))
        .map(|id| bwd.node(id).name.as_deref().unwrap_or(bwd.node(id).op.name()))
        .collect();
    println!("{replays:?}");
    let at = |name: &str| replays.iter().position(|r| *r == name);
    // The normalised input before the products, and nothing behind what is kept.
    assert!(at("x") < at("mixer.qkv"), "{replays:?}");
    assert!(!replays.contains(&"gated_delta_rule"), "{replays:?}");
    // in_proj output, z, a and b: bf16[8192, 8192 + 4096 + 32 + 32].
    let qkv = all.iter().find(|c| c.template == "Layer.gdn" && c.region == "gdn_qkv").unwrap();
    assert_eq!(qkv.freed, 8192 * (8192 + 4096 + 64) * 2);
    assert_eq!(qkv.sites.len(), 24);
}

/// Must show 5: bytes that a layer leaves behind for backward, its input counted and its output not.
#[test]
fn layers_of_the_9b_keep_what_they_may() {
    let (_, fused) = joint("9b", &["vision.depth=1"]);
    let main = fused.main().unwrap();
    for (template, most) in [("Layer.gdn", 815_000_000), ("Layer.attention", 780_000_000)] {
        let all = sites(&fused);
        let site = all.iter().find(|s| s.template() == template).unwrap();
        let f = fused.function(&site.forward_name).unwrap();
        let kept = site.kept.iter().map(|k| f.ty(f.outputs[k.result as usize].value));
        let input = main.ty(main.node(site.forward).operands[0]);
        let bytes: u64 = kept.chain([input]).map(|ty| cost::bytes_of(ty, &sizes(8192))).sum();
        println!("{template}: {bytes}");
        assert!(bytes <= most, "{template} leaves {bytes} bytes behind");
    }
}

#[test]
fn exact_plans_are_those_of_brute_force() {
    let (joint, fused) = joint("tiny", &["text.mtp_layers=0", "vision.depth=1"]);
    let sizes = sizes(64);
    let all_sites = sites(&fused);
    let wanted = ["gdn_qkv", "layer"];
    let all: Vec<Candidate> = candidates(&fused, &joint, &all_sites, &sizes)
        .unwrap()
        .into_iter()
        .filter(|c| c.template.starts_with("Layer.") && wanted.contains(&&*c.region))
        .collect();
    let decisions: Vec<_> =
        all.iter().flat_map(|c| c.sites.iter().map(move |s| (*s, c.results.clone()))).collect();
    assert!((7..=planner::EXACT).contains(&decisions.len()), "{}", decisions.len());
    let mut of = |p: &Program| Ok(peak(p, &sizes));
    let pool = Problem {
        program: &fused,
        sites: &all_sites,
        candidates: &all,
        sizes: &sizes,
        peak: &mut of,
    }
    .pool()
    .unwrap();
    assert_eq!(pool.method, Method::Exact(decisions.len()));
    // Every combination, by counting in base two.
    let mut table: Vec<(u64, f64)> = vec![];
    for mask in 0..1usize << decisions.len() {
        let mut choice = Choice::default();
        for (i, (site, results)) in decisions.iter().enumerate() {
            if mask & (1 << i) != 0 {
                choice.discard(*site, results.iter().copied());
            }
        }
        let p = apply(&fused, &choice).unwrap();
        table.push((peak(&p, &sizes), cost::Costs::new(&p, &sizes).main().micros));
    }
    let mut limits: Vec<u64> = table.iter().map(|(peak, _)| *peak).collect();
    limits.sort_unstable();
    limits.dedup();
    println!("{} limits, {} plans", limits.len(), pool.plans.len());
    for limit in &limits {
        let want =
            table.iter().filter(|(p, _)| p <= limit).map(|(_, c)| *c).fold(f64::MAX, f64::min);
        assert_eq!(pool.best(*limit).unwrap().micros, want, "limit {limit}");
    }
    assert!(pool.best(limits[0] - 1).is_none());
    assert_eq!(pool.smallest(), limits[0]);
}

/// Limits from what suffices without recompute down to the least.
fn sweep(variant: &str, settings: &[&str]) {
    let (joint, fused) = joint(variant, settings);
    let sizes = sizes(8192);
    let all_sites = sites(&fused);
    let all = candidates(&fused, &joint, &all_sites, &sizes).unwrap();
    let mut of = |p: &Program| Ok(peak(p, &sizes));
    let mut problem = Problem {
        program: &fused,
        sites: &all_sites,
        candidates: &all,
        sizes: &sizes,
        peak: &mut of,
    };
    let pool = problem.pool().unwrap();
    let presets: Vec<_> =
        planner::presets(&all_sites, &all).iter().map(|c| problem.simulate(c).unwrap()).collect();
    let none = &pool.plans[0];
    assert!(none.choice.is_empty());
    let (low, high) = (pool.smallest(), none.peak);
    println!("{variant}: {} plans, {low} to {high} bytes", pool.plans.len());
    println!("| limit GB | extra time | best preset |");
    let (mut before, mut better) = (f64::MAX, 0);
    for i in 0..=16 {
        let limit = low + (high - low) / 16 * i;
        let best = pool.best(limit).unwrap();
        assert!(best.peak <= limit && best.micros <= before, "limit {limit}");
        before = best.micros;
        let fitting = presets.iter().filter(|p| p.peak <= limit);
        let preset = fitting.map(|p| p.micros).fold(none.micros.max(f64::MAX), f64::min);
        assert!(best.micros <= preset);
        better += usize::from(best.micros < preset && limit < high);
        let extra = |micros: f64| match micros == f64::MAX {
            true => "none fits".to_string(),
            false => format!("{:.2} %", 100.0 * (micros / none.micros - 1.0)),
        };
        println!("| {:.2} | {} | {} |", limit as f64 / 1e9, extra(best.micros), extra(preset));
    }
    assert!(pool.best(low - 1).is_none());
    assert!(better >= 3, "better than every preset on {better} limits");
}

#[test]
#[ignore = "minutes; the table of docs/recompute.md"]
fn sweep_of_the_9b() {
    sweep("9b", &["vision.depth=4"]);
}

#[test]
#[ignore = "minutes; the table of docs/recompute.md"]
fn sweep_of_the_35b() {
    sweep("35b-a3b", &["vision.depth=4"]);
}

/// Must show 2: the table of docs/recompute.md.
#[test]
#[ignore = "the table of docs/recompute.md"]
fn table_of_regions() {
    for variant in ["9b", "proxy"] {
        let (joint, fused) = joint(variant, &[]);
        let sizes = sizes(8192);
        let all_sites = sites(&fused);
        let all = candidates(&fused, &joint, &all_sites, &sizes).unwrap();
        let without = peak(&fused, &sizes);
        println!("{variant}: {:.3} GB without", without as f64 / 1e9);
        println!(
            "| function | region | calls | freed, MB a call | extra GFLOP a call | peak, GB |"
        );
        for c in all.iter().filter(|c| !c.region.starts_with("value ")) {
            let mut choice = Choice::default();
            c.sites.iter().for_each(|s| choice.discard(*s, c.results.iter().copied()));
            let with = peak(&apply(&fused, &choice).unwrap(), &sizes);
            println!(
                "| {} | {} | {} | {:.1} | {:.1} | {:.3} |",
                c.template,
                c.region,
                c.sites.len(),
                c.freed as f64 / 1e6,
                c.work.flops as f64 / 1e9,
                with as f64 / 1e9
            );
        }
        for how in [Granularity::Uniform(1), Granularity::Uniform(4)] {
            let with = peak(&apply(&fused, &full(&all_sites, how)).unwrap(), &sizes);
            println!("| every layer | {how:?} |  |  |  | {:.3} |", with as f64 / 1e9);
        }
    }
}

/// A region repeats what its ops share once; one op at a time repeats it for each.
#[test]
fn case_80_a_region_pays_where_single_ops_do_not() {
    let (joint, fused) = joint("9b", &["vision.depth=1"]);
    let all_sites = sites(&fused);
    let sizes = sizes(8192);
    let all = candidates(&fused, &joint, &all_sites, &sizes).unwrap();
    let region = all.iter().find(|c| c.template == "Layer.gdn" && c.region == "gdn_qkv").unwrap();
    let site = all_sites.iter().find(|s| s.forward == region.sites[0]).unwrap();
    let main = fused.main().unwrap();
    let (mut bytes, mut micros) = (0, 0.0);
    for result in &region.results {
        let (freed, work) =
            gain(&fused, main, site, &std::collections::BTreeSet::from([*result]), &sizes).unwrap();
        bytes += freed;
        micros += work.micros;
    }
    assert_eq!(bytes, region.freed, "the same bytes");
    assert!(region.work.micros < micros, "{} and {micros} us", region.work.micros);
}

const LONGER: &str = r#"program "p"
symbol T

func @core.fwd {
  input %q : f32[T, 64]
  %o = reduce_sum %q {axes = [1]} : f32[T]  in core_attn
  return %o
  return "saved.o" = %o
}

func @core.bwd {
  input %o : f32[T]
  input %d : f32[T]
  %g = mul %o, %d : f32[T]
  %gq = broadcast %g {shape = [T, 8], dims = [0]} : f32[T, 8]
  return "grad.in.q" = %gq
}

func @main {
  input %x : f32[T, 64] from features()
  input %d : f32[T] from features()
  %q = exp %x : f32[T, 64]
  %y = call %q {callee = "core.fwd", scope = "l", path = "l", layer = 0} : (f32[T], f32[T])
  %w = broadcast %d {shape = [T, 64], dims = [0]} : f32[T, 64]
  %v = mul %w, %w : f32[T, 64]
  %s = reduce_sum %v {axes = [1]} : f32[T]
  %t = mul %s, %y#0 : f32[T]
  %g = call %y#1, %t {callee = "core.bwd", scope = "l", path = "l", layer = 0} : (f32[T, 8])
  return "g" = %g
}
"#;

/// To make a small value again a large one is kept for longer: the peak rises, and no planner takes
/// it.
#[test]
fn case_78_what_raises_the_peak_is_not_chosen() {
    let p = support::program(LONGER);
    let sizes = sizes(256);
    let all_sites = sites(&p);
    let all = candidates(&p, &p, &all_sites, &sizes).unwrap();
    let core = all.iter().find(|c| c.region == "core_attn").unwrap();
    assert_eq!(core.freed, 0, "its input is kept instead, which is larger");
    let mut choice = Choice::default();
    choice.discard(core.sites[0], core.results.iter().copied());
    let with = peak(&apply(&p, &choice).unwrap(), &sizes);
    let without = peak(&p, &sizes);
    assert!(with > without, "{with} with it, {without} without");
    let mut of = |p: &Program| Ok(peak(p, &sizes));
    let pool =
        Problem { program: &p, sites: &all_sites, candidates: &all, sizes: &sizes, peak: &mut of }
            .pool()
            .unwrap();
    assert!(pool.best(without).unwrap().choice.is_empty());
    assert!(pool.best(without - 1).is_none());
}

/// Two microbatches with the shared experts recomputed are the two without.
#[test]
fn case_85_microbatches_with_shared_experts_replayed() {
    let (joint, fused) = joint("tiny", &["text.mtp_layers=0", "vision.depth=1"]);
    let all = candidates(&fused, &joint, &sites(&fused), &sizes(16)).unwrap();
    let choice = selective(&all, &["shared_experts".to_string()]).unwrap();
    let replayed = apply(&fused, &choice).unwrap();
    assert!(replayed != fused);
    let [a, b] = [fused, replayed].map(|p| {
        let one = One::new(p, 2, sizes(16));
        let plan = one.plan(3);
        assert_eq!(one.faults(&plan), []);
        let values = one.execute(&plan, Storage::Packed).unwrap().values;
        let wanted =
            values.into_iter().filter(|(b, _)| matches!(b, Buffer::LossSum(..) | Buffer::Grad(_)));
        wanted.collect::<BTreeMap<_, _>>()
    });
    assert!(a.len() > 50 && a == b);
}
