//! `vlmc plan` and `vlmc report`: plans of the public models against numbers from elsewhere, and
//! refusals whose remedies are followed.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};
use vlmc::compile::Capacity;
use vlmc::layout::{Facts, Layout, choose};
use vlmc::plan::device::Device;
use vlmc::plan::{Analysis, Planned, auto};
use vlmc::settings::{Merged, Source};
use vlmc::spec;
use vlmc_frontend::elab::{Target, lower};
use vlmc_ir::ty::DType;

fn analysis(model: &str, variant: &str, tokens: usize, patches: usize) -> Analysis {
    let (lib, diags) = spec::load(model).unwrap();
    assert!(diags.is_empty());
    let target = Target {
        function: None,
        args: &[],
        variant: Some(variant),
        settings: &[],
        shapes: &[],
        dtype: DType::Bf16,
    };
    let forward = lower(&lib, &target).program.unwrap();
    let capacity = Capacity { tokens, docs: 1, patches, frames: 16 };
    Analysis::new(&forward, &capacity, DType::Bf16, Device::usual().unwrap()).unwrap()
}

/// A layout from flags without dashes: `pp 4 vpp 2`.
fn layout(a: &Analysis, flags: &str) -> Layout {
    let mut merged = Merged::default();
    let words: Vec<&str> = flags.split(' ').collect();
    for pair in words.chunks_exact(2) {
        merged.set(&format!("layout.{}", pair[0]), pair[1], Source::Flag(format!("--{}", pair[0])));
    }
    let facts = Facts {
        model: &a.model,
        rows: a.rows as u64,
        experts: &a.costs.experts,
        auto: &|layout| auto::shares(a, layout),
    };
    choose(&merged, &facts).unwrap()
}

fn planned(a: &Analysis, flags: &str) -> Planned {
    a.plan(&layout(a, flags)).unwrap()
}

const LARGE: &str = "pp 16 vpp 2 cp 4 ep 32 first-layers 2 last-layers 2 microbatches 64";

#[test]
fn the_largest_model() {
    let a = analysis("qwen3_5_vl", "397b-a17b", 4096, 4096);
    let p = planned(&a, LARGE).plan;
    assert_eq!((p.chunks.len(), p.world_size), (32, 512));
    assert_eq!(p.chunks[0].contents, ["vision", "embed", "layer:0:gdn"]);
    assert_eq!(p.chunks[0].inputs, ["tokens", "pixels", "grid", "positions", "sequence"]);
    assert_eq!(p.chunks[1].contents, ["layer:1:gdn", "layer:2:gdn"]);
    assert_eq!(p.chunks[1].inputs, ["positions", "sequence"]);
    assert_eq!(
        p.chunks[31].contents,
        ["embed", "layer:59:attn", "final_norm", "mtp:0", "lm_head", "loss"]
    );
    // What `vlmc check` counts, and the replica of the embedding, 248320 x 4096.
    let sum: u64 = p.chunks.iter().map(|c| c.params).sum();
    assert_eq!(sum, 403_397_928_944 + 248_320 * 4096);
    // Facts B2: W(p) = 2 (P - p - 1) + (V - 1) N, and one more live chunk.
    let warmup: Vec<usize> = (0..16).map(|r| 2 * (15 - r) + 16).collect();
    assert_eq!(p.schedule.warmup, warmup);
    let live: Vec<usize> = warmup.iter().map(|w| w + 1).collect();
    assert_eq!(p.schedule.in_flight, live);
    assert_eq!(p.schedule.ranks[0].len(), 64 * 2 * 2);
    assert_eq!(p.memory.len(), 16 * 4);
    let kinds: Vec<&str> = p.communication.iter().map(|c| &*c.group).collect();
    assert_eq!(kinds, ["pp", "cp", "cp", "ep", "dp x cp", "embedding"]);
    assert_eq!(planned(&a, LARGE).plan, p, "the same again");
    let text = serde_json::to_string(&p).unwrap();
    assert_eq!(serde_json::from_str::<vlmc_artifact::Plan>(&text).unwrap(), p);
}

/// Products of the tiny llama by hand: per row and layer, q and o 64 x 64, k and v 64 x 32, three
/// of 64 x 128; the head 64 x 512. A product has two operations; its backward has two products.
/// Attention has two products forward and five backward, of all pairs of rows, 4 heads of 16.
#[test]
fn operations_by_hand() {
    let t = 1024u64;
    let p = planned(&analysis("llama", "tiny", t as usize, 16), "pp 1").plan;
    let layers = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128);
    let products = 2 * t * (layers + 64 * 512);
    let pairs = 2 * t * t * 4 * 16 * 2;
    let (forward, backward) = (products + 2 * pairs, 2 * products + 5 * pairs);
    let near = |found: u64, wanted: u64| found >= wanted && found < wanted + wanted / 10;
    // The rest is elementwise.
    assert!(near(p.chunks[0].flops_fwd, forward), "{} {forward}", p.chunks[0].flops_fwd);
    assert!(near(p.chunks[0].flops_bwd, backward), "{} {backward}", p.chunks[0].flops_bwd);
    // Of what goes from layer to layer: rows of 64 in bf16, to the next and back, twice.
    let p = planned(&analysis("llama", "tiny", t as usize, 16), "pp 2 microbatches 2").plan;
    assert_eq!(p.communication[0].bytes_per_step, 2 * t * 64 * 2);
    assert_eq!(p.communication[0].count, 2);
}

/// Facts C5 and C6 by hand: 9b with 4 key heads of 256, 16 key and 32 value heads of 128.
#[test]
fn exchanges_by_hand() {
    let t = 8192u64;
    let a = analysis("qwen3_5_vl", "9b", t as usize, 4096);
    let p = planned(&a, "pp 1 cp 4 microbatches 2").plan;
    let find = |word: &str| p.communication.iter().find(|c| c.kind.starts_with(word)).unwrap();
    // 8 layers and one in MTP; 3 rounds of keys and values of a quarter of the rows, in bf16, and
    // again in the backward with f32 gradients.
    let round = (t / 4) * 2 * 4 * 256;
    let ring = 9 * 2 * 3 * round * (2 + 2 + 4);
    assert_eq!(
        (&*find("attention").kind, find("attention").bytes_per_step),
        ("attention: ring", ring)
    );
    // The state of 32 heads is M and U, 128 x 128 each, in f32: 4 MiB, there and back, 24 layers.
    let state = 24 * 2 * 2 * (32 * 2 * 128 * 128 * 4);
    assert_eq!((&*find("delta").kind, find("delta").bytes_per_step), ("delta rule: state", state));
    // It does not depend on the rows, the exchange of heads does.
    let heads = |p: &vlmc_artifact::Plan| {
        p.communication
            .iter()
            .find_map(|c| c.alternatives.iter().find(|a| a.kind == "heads").cloned())
    };
    let b = analysis("qwen3_5_vl", "9b", 2 * t as usize, 4096);
    let q = planned(&b, "pp 1 cp 4 microbatches 2").plan;
    let again = q.communication.iter().find(|c| c.kind.starts_with("delta")).unwrap();
    assert_eq!(again.bytes_per_step, state);
    assert_eq!(heads(&q).unwrap().bytes_per_step, 2 * heads(&p).unwrap().bytes_per_step);
}

/// The point 8: on the 9b with its tower, the shares that auto takes make a shorter step by
/// the clock than the even split.
#[test]
fn auto_beats_the_even_split() {
    let a = analysis("qwen3_5_vl", "9b", 8192, 4096);
    for flags in ["pp 4", "pp 4 vpp 2", "pp 8 microbatches 16"] {
        let even = planned(&a, flags).timeline.makespan;
        let layout = layout(&a, &format!("{flags} layout auto"));
        let auto = a.plan(&layout).unwrap().timeline.makespan;
        assert!(auto < 0.95 * even, "{flags}: {auto} and even {even}");
        assert!(layout.notes.iter().any(|n| n.contains("by cost")), "{:?}", layout.notes);
    }
}

/// The point 9: the combined schedule hides most of what the interleaved one exposes.
#[test]
fn combined_hides_the_exchanges_of_experts() {
    let a = analysis("qwen3_5_vl", "35b-a3b", 8192, 4096);
    let flags = "pp 4 vpp 2 ep 8 microbatches 64";
    let plain = planned(&a, flags);
    let combined = planned(&a, &format!("{flags} schedule combined-1f1b"));
    assert!(plain.exchange.0 > 0.0 && plain.exchange.1.abs() < 1e-3, "{:?}", plain.exchange);
    assert!((combined.exchange.0 - plain.exchange.0).abs() < 1e-6);
    let share = combined.exchange.1 / combined.exchange.0;
    assert!(share >= 0.8, "{share}");
    assert!(combined.timeline.makespan < plain.timeline.makespan);
}

fn vlmc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vlmc")).args(args).output().unwrap()
}

/// Words as a shell splits them.
fn words(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => out.push(String::new()),
            c => out.last_mut().unwrap().push(c),
        }
    }
    out
}

/// Every refusal of facts A and B: one code, the numbers, and a remedy that is then accepted.
#[test]
fn remedies_of_refusals_are_legal() {
    let nine = "qwen3_5_vl --variant 9b";
    for (code, flags) in [
        ("V0302", "--pp 3"),
        ("V0302", "--pp 4 --vpp 3"),
        ("V0302", "--pp 7 --account-loss"),
        ("V0303", "--pp 3 --first-layers 20 --last-layers 20"),
        ("V0303", "--pp 4 --first-layers 7"),
        ("V0303", "--pp 2 --vpp 2 --first-layers 15 --last-layers 17"),
        ("V0303", "--pp 4 --first-layers 0"),
        ("V0303", "--pp 1 --first-layers 16 --last-layers 16"),
        ("V0304", "--pp 2 --layout \"Et*16|t*15mL\""),
        ("V0304", "--pp 2 --layout \"Et*16|t*16L\""),
        ("V0304", "--pp 2 --layout \"Et*16|t*8|t*8mL\""),
        ("V0304", "--pp 2 --layout \"Et*16|t*16 mL\""),
        ("V0304", "--pp 2 --layout \"Ea*16|t*16mL\""),
        ("V0304", "--pp 2 --layout \"E((t*2)|)*2L\""),
        ("V0305", "--pp 1 --vpp 2"),
        ("V0307", "--pp 2 --vpp 2 --schedule 1f1b"),
        ("V0307", "--pp 2 --vpp 2 --schedule zb-h1"),
        ("V0307", "--pp 2 --schedule interleaved"),
        ("V0307", "--pp 2 --schedule combined-1f1b"),
        ("V0308", "--pp 4 --vpp 2 --microbatches 3"),
        ("V0308", "--pp 4 --vpp 2 --microbatches 6"),
        ("V0308", "--pp 4 --vpp 2 --group 3"),
        ("V0311", "--pp 4096 --vpp 4096"),
    ] {
        let args = words(&format!("plan {nine} {flags}"));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let told = vlmc(&args);
        let text = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(told.status.code(), Some(1), "{flags}\n{text}");
        assert!(text.starts_with(&format!("error[{code}]: ")), "{flags}\n{text}");
        let remedies: Vec<&str> = text
            .lines()
            .filter_map(|l| l.strip_prefix("help: legal is `")?.strip_suffix('`'))
            .collect();
        assert!(!remedies.is_empty(), "{flags}\n{text}");
        for remedy in remedies {
            // A remedy of grid and shares stands alone; one of the schedule is added.
            let given =
                if remedy.starts_with("--pp") { String::new() } else { format!("{flags} ") };
            let replaced: Vec<&str> = words_of_flags(remedy);
            let mut kept = vec![];
            let given = words(given.trim());
            let mut rest = given.iter().map(String::as_str).peekable();
            while let Some(word) = rest.next() {
                if replaced.contains(&word) {
                    rest.next();
                } else if !word.is_empty() {
                    kept.push(word);
                }
            }
            let remedy = words(remedy);
            let mut args = vec!["plan", "qwen3_5_vl", "--variant", "9b", "--json"];
            args.extend(kept);
            args.extend(remedy.iter().map(String::as_str));
            let done = vlmc(&args);
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{flags}: {args:?}\n{text}");
        }
    }
}

/// The names of the flags in a remedy.
fn words_of_flags(remedy: &str) -> Vec<&str> {
    remedy.split(' ').filter(|w| w.starts_with("--")).collect()
}

#[test]
fn a_report_is_written_and_made_again() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan-report");
    let _ = std::fs::remove_dir_all(&folder);
    let shown = folder.display().to_string();
    let flags = "plan qwen3_5_vl --variant 9b --pp 2 --vpp 2 -o";
    let mut args: Vec<&str> = flags.split(' ').collect();
    args.push(&shown);
    assert!(vlmc(&args).status.success());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let names = ["report.html", "schedule.svg", "schedule.trace.json", "schedule.csv"];
    let first = names.map(read);
    assert!(first[0].contains("<svg") && first[0].ends_with("</html>\n"));
    let trace: serde_json::Value = serde_json::from_str(&first[2]).unwrap();
    let of = |ph: &str| {
        trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == ph).count()
    };
    // 4 microbatches through 4 chunks, two ways; 3 of 4 chunks send on, all to the other rank.
    assert_eq!((of("X"), of("s"), of("f")), (32, 24, 24));
    assert_eq!(first[3].lines().count(), 33);
    assert!(vlmc(&["report", &shown]).status.success());
    assert_eq!(names.map(read), first);
    std::fs::write(folder.join("plan.json"), "{}").unwrap();
    let told = vlmc(&["report", &shown]);
    assert_eq!(told.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&told.stderr).starts_with("error[V0604]"));
}
