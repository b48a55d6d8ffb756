//! Drawings by hand: a schedule is rectangles, memory is lines.

use super::picture::{Picture, Run};
use std::fmt::Write as _;
use vlmc_passes::schedule::Phase;

const WIDTH: f64 = 1180.0;
const LEFT: f64 = 64.0;
const ROW: f64 = 34.0;
const BAR: f64 = 18.0;

/// Arrows that are drawn at most; more would cover the bars.
const ARROWS: usize = 600;

/// Colours of forwards, backwards and gradients of weights, by chunk.
const FORWARD: [&str; 4] = ["#4c78c8", "#7ba6e8", "#335a9e", "#a9c6f2"];
const BACKWARD: [&str; 4] = ["#d98032", "#eeae6c", "#a85c1c", "#f5cfa3"];
const WEIGHT: &str = "#8a9a5b";

fn color(run: &Run) -> &'static str {
    let i = run.slot.chunk as usize % FORWARD.len();
    match run.slot.phase {
        Phase::F => FORWARD[i],
        Phase::B => BACKWARD[i],
        Phase::W => WEIGHT,
    }
}

/// Text as it may stand in SVG and HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn head(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"5\" \
         markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" fill=\"#555\"/></marker></defs>\n",
        LEFT + WIDTH + 16.0
    )
}

/// A scale in milliseconds under a drawing.
fn scale(out: &mut String, end: f64, y: f64) {
    let step = nice(end / 8.0);
    let mut t = 0.0;
    while t <= end + 1e-9 && step > 0.0 {
        let x = LEFT + WIDTH * t / end;
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {:.1}v5\" stroke=\"#888\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\" fill=\"#555\">{}</text>",
            y,
            y + 17.0,
            number(t)
        );
        t += step;
    }
    let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#555\">ms</text>", 8.0, y + 17.0);
}

/// One, two or five of some power of ten, at least so much.
fn nice(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 0.0;
    }
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|n| *n >= least).unwrap_or(least)
}

fn number(v: f64) -> String {
    let text = format!("{v:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The schedule: a row a rank, forwards blue, backwards orange, arrows from send to receive.
pub(super) fn schedule(p: &Picture) -> String {
    let height = 14.0 + ROW * p.ranks.len() as f64 + 30.0;
    let end = p.end.max(1e-9);
    let x = |t: f64| LEFT + WIDTH * t / end;
    let y = |rank: usize| 10.0 + ROW * rank as f64;
    let mut out = head(height);
    for (rank, runs) in p.ranks.iter().enumerate() {
        let _ = writeln!(
            out,
            "<text x=\"8\" y=\"{:.1}\" fill=\"#222\">rank {rank}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{BAR}\" fill=\"#f1f1ef\"/>",
            y(rank) + 13.0,
            y(rank)
        );
        for (i, r) in runs.iter().enumerate() {
            let (a, b) = (x(r.start), x(r.end));
            // Two that run beside each other share the height.
            let beside = runs.get(i + 1).is_some_and(|n| n.start < r.end)
                || i.checked_sub(1).is_some_and(|i| runs[i].end > r.start);
            let (top, bar) = match r.slot.phase {
                _ if !beside => (y(rank), BAR),
                Phase::F => (y(rank), BAR / 2.0),
                Phase::B | Phase::W => (y(rank) + BAR / 2.0, BAR / 2.0),
            };
            let _ = write!(
                out,
                "<rect x=\"{a:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{bar}\" fill=\"{}\" \
                 stroke=\"#fff\" stroke-width=\".5\"><title>{} on rank {rank}: {:.3} to {:.3} ms\
                 </title></rect>",
                top,
                (b - a).max(0.2),
                color(r),
                r.slot,
                r.start,
                r.end
            );
            let digits = r.slot.microbatch.to_string();
            if !beside && b - a > 5.0 + 6.5 * digits.len() as f64 {
                let _ = write!(
                    out,
                    "<text x=\"{:.2}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#fff\" \
                     pointer-events=\"none\">{digits}</text>",
                    (a + b) / 2.0,
                    y(rank) + 13.0
                );
            }
            out.push('\n');
        }
    }
    if p.arrows.len() <= ARROWS {
        for a in &p.arrows {
            let ((from, sent), (to, got)) = (a.from, a.to);
            let edge = |rank: usize, other: usize| y(rank) + if other > rank { BAR } else { 0.0 };
            let _ = writeln!(
                out,
                "<path d=\"M{:.2} {:.1}L{:.2} {:.1}\" stroke=\"#555\" stroke-width=\".7\" \
                 stroke-opacity=\".55\" marker-end=\"url(#tip)\"><title>rank {from} to rank {to} for \
                 {}</title></path>",
                x(sent),
                edge(from, to),
                x(got),
                edge(to, from),
                a.slot
            );
        }
    } else {
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#555\">{} arrows are left out; \
             schedule.trace.json has them</text>",
            height - 2.0,
            p.arrows.len()
        );
    }
    scale(&mut out, end, 10.0 + ROW * p.ranks.len() as f64);
    out + "</svg>\n"
}

/// Memory of each rank over time, as steps, with the peak written beside it.
pub(super) fn memory(p: &Picture) -> String {
    const LINE: f64 = 44.0;
    let end = p.end.max(1e-9);
    let peak_of = |m: &[(f64, u64)]| m.iter().map(|(_, b)| *b).max().unwrap_or(0);
    let most = p.memory.iter().map(|m| peak_of(m)).max().unwrap_or(0).max(1) as f64;
    let height = 14.0 + LINE * p.memory.len() as f64 + 30.0;
    let x = |t: f64| LEFT + WIDTH * t / end;
    let mut out = head(height);
    for (rank, m) in p.memory.iter().enumerate() {
        let floor = 10.0 + LINE * (rank + 1) as f64 - 6.0;
        let y = |b: u64| floor - (LINE - 12.0) * b as f64 / most;
        let mut path = format!("M{LEFT} {floor:.1}");
        let mut last = floor;
        for (t, b) in m {
            let _ = write!(path, "L{:.2} {last:.2}", x(*t));
            last = y(*b);
            let _ = write!(path, "V{last:.2}");
        }
        let _ = write!(path, "H{:.2}V{floor:.1}z", LEFT + WIDTH);
        let peak = peak_of(m);
        let at = m.iter().find(|(_, b)| *b == peak).map_or(0.0, |(t, _)| *t);
        let _ = writeln!(
            out,
            "<text x=\"8\" y=\"{:.1}\" fill=\"#222\">rank {rank}</text>\
             <path d=\"{path}\" fill=\"#c9d6ea\" stroke=\"#4c78c8\" stroke-width=\".8\"/>\
             <circle cx=\"{:.2}\" cy=\"{:.2}\" r=\"2.5\" fill=\"#a85c1c\"/>\
             <text x=\"{:.2}\" y=\"{:.2}\" fill=\"#a85c1c\">{}</text>",
            floor - 4.0,
            x(at),
            y(peak),
            (x(at) + 5.0).min(LEFT + WIDTH - 60.0),
            y(peak) - 2.0,
            crate::plan::text::size(peak)
        );
    }
    scale(&mut out, end, 10.0 + LINE * p.memory.len() as f64);
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_numbers() {
        assert_eq!([0.7, 3.0, 11.0, 0.0].map(nice), [1.0, 5.0, 20.0, 0.0]);
        assert_eq!([0.0, 1.5, 20.0].map(number), ["0", "1.5", "20"]);
        assert_eq!(escaped("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }
}
