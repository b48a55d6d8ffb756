//! The page: everything in one file that asks the network for nothing.

use super::picture::Picture;
use super::svg::{self, escaped};
use crate::plan::text::{short, size};
use vlmc_artifact::Plan;

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1280px;padding:0 16px;color:#222;background:#fff}\
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 8px;border-bottom:1px solid #ddd}\
p{margin:4px 0;color:#555}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:3px 16px 3px 0;border-bottom:1px solid #eee;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font:12px ui-monospace,monospace}\
svg{width:100%;height:auto}details{margin:6px 0}.warning{color:#9a4a00}\
.key span{display:inline-block;width:12px;height:12px;margin:0 4px 0 14px;vertical-align:-1px}";

/// The page of a plan.
pub(super) fn page(
    plan: &Plan,
    picture: Option<&Picture>,
    drawings: &[(String, String)],
) -> String {
    let title = format!("{} {}", plan.model, plan.variant);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>{0}</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n{1}",
        escaped(title.trim()),
        summary(plan, picture)
    );
    out += &warnings(plan);
    out += &ranks(plan);
    if let Some(p) = picture {
        out += "<h2>Schedule</h2>\n<p class=\"key\">Numbers are microbatches.\
                <span style=\"background:#4c78c8\"></span>forward\
                <span style=\"background:#d98032\"></span>backward\
                <span style=\"background:#8a9a5b\"></span>gradients of weights; \
                lighter and darker bars are further chunks, arrows go from send to receive.</p>\n";
        out += &svg::schedule(p);
        out += "<h2>Memory over time</h2>\n";
        out += &svg::memory(p);
        out += &peaks(plan);
    }
    out += &exchanges(plan);
    out += &fusions(plan);
    out += &near_misses(plan);
    if !drawings.is_empty() {
        out += "<h2>Graphs</h2>\n";
        for (name, text) in drawings {
            let drawing = text.find("<svg").and_then(|at| text.get(at..)).unwrap_or_default();
            out += &format!(
                "<details><summary><code>{}</code></summary>{drawing}</details>\n",
                escaped(name)
            );
        }
    }
    out + "</body></html>\n"
}

/// A table; columns whose head starts with `#` hold numbers.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let number = |i: usize| head.get(i).is_some_and(|h| h.starts_with('#'));
    let class = |i: usize| if number(i) { " class=\"n\"" } else { "" };
    let cells = |tag: &str, row: &mut dyn Iterator<Item = &str>| {
        let cells: String = row
            .enumerate()
            .map(|(i, c)| format!("<{tag}{}>{}</{tag}>", class(i), escaped(c)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let mut out = String::from("<table>\n");
    out += &cells("th", &mut head.iter().map(|h| h.trim_start_matches('#')));
    for row in rows {
        out += &cells("td", &mut row.iter().map(|c| &**c));
    }
    out + "</table>\n"
}

fn summary(plan: &Plan, picture: Option<&Picture>) -> String {
    let (l, s) = (&plan.layout, &plan.schedule);
    let time = picture.map_or(String::new(), |p| format!(", step {:.1} ms", p.end));
    format!(
        "<p>pp {} vpp {} cp {} dp {} ep {}, {} ranks. {} of {} microbatches{time}, \
         bubble {:.1} % of the work.</p>\n",
        l.pp,
        l.vpp,
        l.cp,
        l.dp,
        l.ep,
        plan.world_size,
        escaped(&s.kind),
        s.microbatches,
        100.0 * s.bubble_ratio
    )
}

fn warnings(plan: &Plan) -> String {
    let text =
        |d: &serde_json::Value| d.get("message").and_then(serde_json::Value::as_str).map(escaped);
    let all = plan.diagnostics.iter().filter_map(text);
    all.map(|t| format!("<p class=\"warning\">warning: {t}</p>\n")).collect()
}

fn ranks(plan: &Plan) -> String {
    let ms = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.2}"));
    let rows: Vec<Vec<String>> = plan
        .chunks
        .iter()
        .map(|c| {
            vec![
                c.pp.to_string(),
                c.vp.to_string(),
                short(&c.contents),
                c.inputs.join(" "),
                format!("{:.3}", c.params as f64 / 1e9),
                format!("{:.3}", c.flops_fwd as f64 / 1e12),
                format!("{:.3}", c.flops_bwd as f64 / 1e12),
                ms(c.ms_fwd),
                ms(c.ms_bwd),
            ]
        })
        .collect();
    let head = [
        "#rank",
        "#chunk",
        "holds",
        "reads",
        "#parameters, 1e9",
        "#forward, TFLOP",
        "#backward, TFLOP",
        "#forward, ms",
        "#backward, ms",
    ];
    format!("<h2>Chunks</h2>\n{}", table(&head, &rows))
}

fn peaks(plan: &Plan) -> String {
    let rows: Vec<Vec<String>> = plan
        .memory
        .iter()
        .filter(|m| m.cp == 0)
        .map(|m| {
            let parts = [m.peak_bytes, m.params, m.grads, m.optimizer, m.activations, m.workspace];
            let mut row = vec![m.pp.to_string()];
            row.extend(parts.map(size));
            row.push(m.at_step.clone());
            row
        })
        .collect();
    let head = [
        "#rank",
        "#peak",
        "#parameters",
        "#gradients",
        "#optimizer",
        "#activations",
        "#workspace",
        "reached at",
    ];
    table(&head, &rows)
}

fn exchanges(plan: &Plan) -> String {
    if plan.communication.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = plan
        .communication
        .iter()
        .map(|c| {
            let others: Vec<String> = c
                .alternatives
                .iter()
                .map(|a| format!("{} {}", a.kind, size(a.bytes_per_step)))
                .collect();
            vec![
                c.kind.clone(),
                c.group.clone(),
                size(c.bytes_per_step),
                c.count.to_string(),
                c.place.clone(),
                others.join(", "),
            ]
        })
        .collect();
    let head = ["exchange", "among", "#bytes a step", "#messages", "busiest", "instead"];
    format!("<h2>Exchanges</h2>\n{}", table(&head, &rows))
}

fn fusions(plan: &Plan) -> String {
    if plan.fusions.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = plan
        .fusions
        .iter()
        .map(|f| {
            vec![
                f.rule.clone(),
                f.function.clone(),
                f.direction.clone(),
                f.count.to_string(),
                f.kernel.clone(),
                size(f.bytes_before),
                size(f.bytes_after),
            ]
        })
        .collect();
    let head =
        ["fusion", "function", "direction", "#times", "kernel", "#bytes before", "#bytes after"];
    format!("<h2>Fusions</h2>\n{}", table(&head, &rows))
}

fn near_misses(plan: &Plan) -> String {
    if plan.near_misses.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = plan
        .near_misses
        .iter()
        .map(|n| vec![n.rule.clone(), n.function.clone(), n.at.clone(), n.reason.clone()])
        .collect();
    format!("<h2>Not fused</h2>\n{}", table(&["fusion", "function", "at", "why"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_needs_no_network() {
        let mut plan = super::super::picture::tests::small();
        plan.model = "<M>".to_string();
        let picture = Picture::of(&plan);
        let page =
            page(&plan, picture.as_ref(), &[("a.svg".into(), "<?xml?><svg id=\"g\"/>".into())]);
        assert!(page.contains("<title>&lt;M&gt;</title>") && !page.contains("<M>"));
        assert!(page.contains("<summary><code>a.svg</code></summary><svg id=\"g\"/>"));
        for link in ["src=", "href=", "@import", "url(http"] {
            assert!(!page.contains(link), "{link}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count() + 1);
    }
}
