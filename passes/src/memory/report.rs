//! The memory plan for people: tables, a picture, counters of a trace.

use std::fmt::Write;
use vlmc_artifact::MemoryPlan;
use vlmc_artifact::memory::{Pool, What};

/// From when to when a block of a plan is live, as indices of executions.
fn spans(p: &MemoryPlan) -> Vec<Option<(usize, usize)>> {
    let last = p.executions.len().saturating_sub(1);
    let mut spans: Vec<Option<(usize, usize)>> =
        p.blocks.iter().map(|b| b.resident().then_some((0, last))).collect();
    for (i, e) in p.executions.iter().enumerate() {
        for b in e.writes.iter().filter(|b| !p.blocks[**b].resident()) {
            spans[*b].get_or_insert((i, last));
        }
        for b in &e.frees {
            if let Some(s) = &mut spans[*b] {
                s.1 = i;
            }
        }
    }
    spans
}

/// Bytes of activations that are live during each execution.
pub fn timeline(p: &MemoryPlan) -> Vec<u64> {
    let mut change = vec![0i128; p.executions.len() + 1];
    for (b, s) in p.blocks.iter().zip(spans(p)) {
        if let (false, Some((from, to))) = (b.resident(), s) {
            change[from] += i128::from(b.bytes);
            change[to + 1] -= i128::from(b.bytes);
        }
    }
    let mut now = 0;
    let sums = change.iter().map(|c| {
        now += c;
        u64::try_from(now).unwrap_or(0)
    });
    sums.take(p.executions.len()).collect()
}

/// The execution during which the most is live.
pub fn peak_at(p: &MemoryPlan) -> usize {
    let t = timeline(p);
    let most = t.iter().copied().max().unwrap_or(0);
    t.iter().position(|b| *b == most).unwrap_or(0)
}

/// `memory.csv`: every block with its place, and from when to when it is live.
pub fn csv(p: &MemoryPlan) -> String {
    let mut out = String::from("name,pool,offset,bytes,first,last,made_by,last_used_by\n");
    let quoted = |s: &str| format!("\"{}\"", s.replace('"', "\"\""));
    let name = |i: usize| p.executions.get(i).map_or("", |e| &*e.name);
    for (b, s) in p.blocks.iter().zip(spans(p)) {
        let Some((from, to)) = s else { continue };
        let _ = writeln!(
            out,
            "{},{},{},{},{from},{to},{},{}",
            quoted(&b.name),
            b.pool.name(),
            b.offset,
            b.bytes,
            quoted(if b.resident() { "" } else { name(from) }),
            quoted(if b.resident() { "" } else { name(to) }),
        );
    }
    out
}

/// What is live at the peak, the largest first: name and bytes.
pub fn at_peak(p: &MemoryPlan) -> Vec<(String, u64)> {
    let at = peak_at(p);
    let live = p
        .blocks
        .iter()
        .zip(spans(p))
        .filter(|(b, s)| !b.resident() && s.is_some_and(|(from, to)| from <= at && at <= to));
    let mut out: Vec<(String, u64)> = live.map(|(b, _)| (b.name.clone(), b.bytes)).collect();
    out.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    out
}

/// `memory.txt`: the pools, the peak, and what is live then.
pub fn text(p: &MemoryPlan) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:>14} bytes in all", p.peak());
    for pool in Pool::ALL {
        let _ = writeln!(out, "{:>14} {}", p.pool(pool), pool.name());
    }
    let activations = p.pool(Pool::Activations);
    let gap = activations.saturating_sub(p.lower_bound);
    let percent = 100.0 * gap as f64 / p.lower_bound.max(1) as f64;
    let _ =
        writeln!(out, "activations are packed {gap} bytes above the lower bound ({percent:.2} %)");
    if let Some(e) = p.executions.get(peak_at(p)) {
        let live = at_peak(p);
        let _ = writeln!(out, "\nat the peak, `{}`, {} values are live:", e.name, live.len());
        for (name, bytes) in live {
            let _ = writeln!(out, "{bytes:>14} {name}");
        }
    }
    out
}

/// Counters of a Chrome trace: live bytes during each execution. Times are numbers of executions.
pub fn trace(p: &MemoryPlan) -> String {
    let mut out = String::from("{\"traceEvents\":[\n");
    let all = timeline(p);
    for (i, (e, bytes)) in p.executions.iter().zip(&all).enumerate() {
        let comma = if i + 1 == all.len() { "" } else { "," };
        let name: String =
            e.name.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect();
        let _ = writeln!(
            out,
            "{{\"name\":\"activations\",\"ph\":\"C\",\"pid\":0,\"ts\":{i},\
             \"args\":{{\"bytes\":{bytes}}}}},\n\
             {{\"name\":\"{name}\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":{i},\"dur\":1}}{comma}"
        );
    }
    out.push_str("]}\n");
    out
}

/// `memory.svg`: live bytes of activations over the executions; replays are marked.
pub fn svg(p: &MemoryPlan) -> String {
    let (width, height, left, top) = (960.0, 320.0, 90.0, 30.0);
    let all = timeline(p);
    let most = all.iter().copied().max().unwrap_or(0).max(1) as f64;
    let n = all.len().max(1) as f64;
    let x = |i: usize| left + width * i as f64 / n;
    let y = |b: f64| top + height * (1.0 - b / most);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        left + width + 20.0,
        top + height + 40.0
    );
    for (i, e) in p.executions.iter().enumerate() {
        if matches!(e.what, What::Node { replay: true, .. }) {
            let _ = writeln!(
                out,
                "<rect x=\"{:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{height}\" \
                 fill=\"#f2d9a6\"/>",
                x(i),
                width / n
            );
        }
    }
    let mut path = format!("M{:.2} {:.2}", x(0), y(0.0));
    for (i, b) in all.iter().enumerate() {
        let _ =
            write!(path, "L{:.2} {:.2}L{:.2} {:.2}", x(i), y(*b as f64), x(i + 1), y(*b as f64));
    }
    let _ = writeln!(
        out,
        "<path d=\"{path}L{:.2} {:.2}Z\" fill=\"#9db8d6\" stroke=\"#2b4a6f\"/>",
        x(all.len()),
        y(0.0)
    );
    for part in 0..=4 {
        let b = most * f64::from(part) / 4.0;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.2}\" text-anchor=\"end\">{:.2} GB</text>",
            left - 6.0,
            y(b) + 4.0,
            b / 1e9
        );
    }
    let peak = peak_at(p);
    let name = p.executions.get(peak).map_or("", |e| &*e.name);
    let escaped = name.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        out,
        "<text x=\"{left}\" y=\"18\">activations by execution; peak {:.3} GB at {escaped}; \
         replays on yellow</text>\n</svg>",
        most / 1e9
    );
    out
}
