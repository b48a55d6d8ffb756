//! Recompute on the templates of the models: what it frees, and what its programs look like.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::models::{joint, sizes};
use support::sound;
use vlmc_passes::recompute::{Candidate, Choice, Granularity, apply, candidates, full, sites};

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
