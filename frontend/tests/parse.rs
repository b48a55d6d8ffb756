//! Parsing: trees, the owned tree, robustness.

use vlmc_frontend::diag::render::{self, Format};
use vlmc_frontend::source::Sources;
use vlmc_frontend::syntax::{self, Parse};

const SAMPLE: &str = include_str!("data/all_forms.vlm");

fn parse(text: &str) -> (Parse, String) {
    let mut sources = Sources::new();
    let file = sources.add("test.vlm", text);
    let parse = syntax::parse(file, text);
    assert_eq!(parse.tree.text().to_string(), text, "the tree must have every byte");
    let shown = render::all(&parse.diags, &sources, Format::PLAIN);
    (parse, shown)
}

#[test]
fn every_form_parses() {
    let (parse, shown) = parse(SAMPLE);
    assert_eq!(shown, "");
    assert_eq!(parse.file.items.len(), 15);
}
