//! Parts of the models that come along: what is a tower, an embedding, a layer, a norm, a head.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use vlmc_frontend::elab::{Library, Reader, Target, lower};
use vlmc_ir::graph::{OutputKind, Program};
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;
use vlmc_passes::autodiff::{Options, Seeds, differentiate};
use vlmc_passes::partition::parts::Parts;
use vlmc_passes::partition::placement::Content;

struct Models;

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models"))
}

impl Reader for Models {
    fn module(&self, name: &str) -> Option<(String, Vec<u8>)> {
        let name = format!("{name}.vlm");
        Some((name.clone(), std::fs::read(folder().join(&name)).ok()?))
    }

    fn modules(&self) -> Vec<String> {
        vec![]
    }
}

fn lowered(model: &str, variant: &str) -> Program {
    let file = format!("{model}.vlm");
    let text = std::fs::read(folder().join(&file)).unwrap();
    let (library, _) = Library::load(&file, text, &Models);
    let target = Target {
        function: None,
        args: &[],
        variant: Some(variant),
        settings: &[],
        shapes: &[],
        dtype: DType::F32,
    };
    lower(&library, &target).program.unwrap()
}

fn joint(p: &Program) -> Program {
    let mut p = p.clone();
    let main = p.functions.last_mut().unwrap();
    main.outputs.retain(|o| matches!(o.kind, OutputKind::Loss { .. }));
    differentiate(&p, &Options { seeds: Seeds::Totals, ..Options::default() }).unwrap()
}

/// Calls of main by part, as `path` in the order of the program.
fn calls(p: &Program, parts: &Parts, content: Content, backward: bool) -> Vec<String> {
    let main = p.main().unwrap();
    let of = |i: usize| parts.nodes[i] == Some(content) && parts.backward[i] == backward;
    let path = |n: &vlmc_ir::graph::Node| match &n.op {
        Op::Call { path, .. } => Some(path.clone()),
        _ => None,
    };
    main.nodes.iter().enumerate().filter(|(i, _)| of(*i)).filter_map(|(_, n)| path(n)).collect()
}

#[test]
fn parts_of_qwen() {
    let p = lowered("qwen3_5_vl", "tiny");
    for p in [&p, &joint(&p)] {
        let parts = Parts::of(p);
        assert_eq!(parts.model.layers, ["gdn", "gdn", "gdn", "attn"]);
        assert!(parts.model.vision);
        assert_eq!((parts.model.mtp, parts.model.tied), (1, false));
        assert_eq!(calls(p, &parts, Content::Vision, false), ["visual"]);
        assert_eq!(calls(p, &parts, Content::Embed, false), ["embed"]);
        assert_eq!(calls(p, &parts, Content::Layer(2), false), ["decoder.2"]);
        assert_eq!(calls(p, &parts, Content::FinalNorm, false), ["norm"]);
        // The embedding of the tokens after the next is the replica's.
        assert_eq!(calls(p, &parts, Content::Mtp(0), false), ["embed", "mtp"]);
        let head = calls(p, &parts, Content::LmHead, false);
        assert!(head.len() >= 2 && head.iter().all(|h| h == "head"), "{head:?}");
        let of = |c| parts.parameters[&c].iter().map(|s| &**s).collect::<Vec<_>>();
        assert_eq!(of(Content::LmHead), ["lm_head.weight"]);
        assert_eq!(of(Content::FinalNorm), ["model.language_model.norm.weight"]);
        assert!(of(Content::Mtp(0)).contains(&"model.language_model.embed_tokens.weight"));
        assert!(
            of(Content::Layer(3)).iter().all(|n| n.starts_with("model.language_model.layers.3."))
        );
        assert!(of(Content::Vision).iter().all(|n| n.starts_with("model.visual.")));
    }
}

#[test]
fn backward_calls_belong_to_their_forward() {
    let p = joint(&lowered("qwen3_5_vl", "tiny"));
    let parts = Parts::of(&p);
    for content in (0..4).map(Content::Layer).chain([Content::Vision, Content::FinalNorm]) {
        let (f, b) = (calls(&p, &parts, content, false), calls(&p, &parts, content, true));
        assert_eq!(f, b, "{content}");
    }
    assert_eq!(calls(&p, &parts, Content::LmHead, true).len(), 2);
    assert_eq!(calls(&p, &parts, Content::Embed, true), ["embed"]);
}

#[test]
fn parts_of_llama() {
    let parts = Parts::of(&lowered("llama", "tiny"));
    assert_eq!(parts.model.layers, ["attn", "attn"]);
    assert!(!parts.model.vision && parts.model.tied && parts.model.mtp == 0);
    assert!(!Parts::of(&lowered("llama", "8b")).model.tied);
}
