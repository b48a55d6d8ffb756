//! A plan for people: a table of ranks, the schedule as a grid, what goes over links.

use super::{GIB, Planned};
use crate::layout::Layout;
use vlmc_artifact::{Chunk, MemoryPeak};
use vlmc_passes::schedule::simulate::{Times, simulate};
use vlmc_passes::schedule::{Phase, Schedule, Slot};

/// Columns of the grid at most.
const WIDTH: usize = 100;

/// The plan as text.
pub fn text(planned: &Planned, layout: &Layout, device: &str, rows: usize) -> String {
    let plan = &planned.plan;
    let l = &plan.layout;
    let mut out = format!("{} {}   pp {}  vpp {}", plan.model, plan.variant, l.pp, l.vpp);
    for (name, n) in [("cp", l.cp), ("dp", l.dp), ("ep", l.ep)] {
        if n > 1 {
            out += &format!("  {name} {n}");
        }
    }
    out += &format!(
        "   {} of {rows} rows   {}   {device} figures\n",
        plural(plan.schedule.microbatches, "microbatch", "microbatches"),
        plural(plan.world_size, "rank", "ranks"),
    );
    for note in &layout.notes {
        out += &format!("{note}\n");
    }
    out.push('\n');
    out += &ranks(planned);
    out += &totals(planned);
    out.push('\n');
    out += &grid(&planned.schedule, WIDTH);
    out.push('\n');
    for c in &plan.communication {
        out += &format!(
            " {:<28} {:>10}/step  {:<8} {}",
            c.kind,
            size(c.bytes_per_step),
            c.group,
            c.place
        );
        let others: Vec<String> = c
            .alternatives
            .iter()
            .map(|a| format!("{} {}", a.kind, size(a.bytes_per_step)))
            .collect();
        if !others.is_empty() {
            out += &format!("  (instead: {})", others.join(", "));
        }
        out.push('\n');
    }
    let (all, hidden) = planned.exchange;
    if all > 0.0 {
        out += &format!(
            " exchanges of experts {:.1} ms a rank, {:.0} % of them hidden behind work\n",
            all / planned.plan.layout.pp as f64,
            100.0 * hidden / all
        );
    }
    match planned.warnings.as_slice() {
        [] => out += " warnings none\n",
        all => all.iter().for_each(|w| out += &format!(" warning: {w}\n")),
    }
    out
}

fn plural(n: usize, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

/// Bytes in a unit that leaves few digits.
pub fn size(bytes: u64) -> String {
    let b = bytes as f64;
    match b {
        _ if b >= GIB => format!("{:.1} GiB", b / GIB),
        _ if b >= GIB / 1024.0 => format!("{:.1} MiB", b / GIB * 1024.0),
        _ => format!("{:.1} KiB", b / 1024.0),
    }
}

fn ranks(planned: &Planned) -> String {
    let plan = &planned.plan;
    let mut rows = vec![];
    let mut head = vec!["rank".to_string()];
    head.extend((0..plan.layout.vpp).map(|v| format!("chunk {v}")));
    head.extend(["params", "peak", "fills the peak", "fwd/bwd ms"].map(String::from));
    rows.push(head);
    for p in 0..plan.layout.pp {
        let mut chunks: Vec<&Chunk> = plan.chunks.iter().filter(|c| c.pp == p).collect();
        chunks.sort_by_key(|c| c.vp);
        let mut row = vec![p.to_string()];
        row.extend(chunks.iter().map(|c| short(&c.contents)));
        let params: u64 = chunks.iter().map(|c| c.params).sum();
        row.push(format!("{:.2} B", params as f64 / 1e9));
        let memory = plan.memory.iter().find(|m| m.pp == p && m.cp == 0);
        row.push(memory.map_or(String::new(), |m| size(m.peak_bytes)));
        row.push(memory.map_or(String::new(), |m| fills(m, planned, p)));
        let ms =
            |of: fn(&Chunk) -> Option<f64>| -> f64 { chunks.iter().filter_map(|c| of(c)).sum() };
        row.push(format!("{:.1} / {:.1}", ms(|c| c.ms_fwd), ms(|c| c.ms_bwd)));
        rows.push(row);
    }
    columns(&rows)
}

/// The largest piece of a peak.
fn fills(m: &MemoryPeak, planned: &Planned, p: usize) -> String {
    let pieces = [
        ("parameters", m.params),
        ("gradients", m.grads),
        ("optimizer", m.optimizer),
        ("activations", m.activations),
        ("workspace", m.workspace),
    ];
    let Some((name, most)) = pieces.into_iter().max_by_key(|(_, n)| *n) else {
        return String::new();
    };
    let live = planned.plan.schedule.in_flight.get(p).copied().unwrap_or(0);
    let live = if name == "activations" { format!(" ({live} in flight)") } else { String::new() };
    format!("{name} {}{live}", size(most))
}

/// Contents in short: a letter a layer, the kinds of which stand in the full names.
pub fn short(contents: &[String]) -> String {
    let mut words: Vec<String> = vec![];
    let mut last: Option<char> = None;
    let first = contents.iter().find_map(|c| letter(c));
    for c in contents {
        match letter(c) {
            Some(kind) => {
                // A new group where the pattern starts again.
                let goes_on = last.is_some_and(|l| kind == l || Some(kind) != first);
                match words.last_mut() {
                    Some(word) if goes_on => word.push(kind),
                    _ => words.push(kind.to_string()),
                }
                last = Some(kind);
            }
            None => {
                words.push(c.clone());
                last = None;
            }
        }
    }
    let word = |w: String| match w.chars().next() {
        Some(c) if w.len() > 6 && last_is_layers(&w, c) => format!("{c}*{}", w.len()),
        _ => w,
    };
    let words: Vec<String> = words.into_iter().map(word).collect();
    if words.is_empty() { "-".to_string() } else { words.join(" ") }
}

fn last_is_layers(word: &str, letter: char) -> bool {
    word.chars().all(|c| c == letter)
}

/// The first letter of a layer's kind.
fn letter(content: &str) -> Option<char> {
    content.strip_prefix("layer:")?.split(':').nth(1)?.chars().next()
}

fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, w) in row.iter().zip(&widths) {
            line += &format!(" {cell:<w$} ");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn totals(planned: &Planned) -> String {
    let s = &planned.plan.schedule;
    let warmup: Vec<String> = s.warmup.iter().map(ToString::to_string).collect();
    format!(
        " step {:.1} ms   bubble {:.1} % of the work ({}, warm-up {})\n",
        planned.timeline.makespan,
        100.0 * s.bubble_ratio,
        s.kind,
        warmup.join(" "),
    )
}

/// The schedule with a column for each slot, as if all took as long: forwards of chunk 0 are `F`,
/// of chunk 1 `f`, of others `F` with the chunk behind a point.
pub fn grid(schedule: &Schedule, width: usize) -> String {
    let times = Times::equal(schedule.grid, 1.0, 1.0, 1.0);
    let Ok(line) = simulate(schedule, &times) else { return String::new() };
    let cell = |s: &Slot| {
        let phase = match s.phase {
            Phase::F => 'F',
            Phase::B => 'B',
            Phase::W => 'W',
        };
        match s.chunk {
            0 => format!("{phase}{}", s.microbatch),
            1 if schedule.grid.vpp == 2 => {
                format!("{}{}", phase.to_ascii_lowercase(), s.microbatch)
            }
            v => format!("{phase}{}.{v}", s.microbatch),
        }
    };
    let widest = schedule.ranks.iter().flatten().map(|s| cell(s).len()).max().unwrap_or(1);
    let slots = line.makespan.round() as usize;
    let shown = slots.min(width.saturating_sub(10) / widest).max(1);
    let mut out = String::new();
    for (p, (rank, spans)) in schedule.ranks.iter().zip(&line.ranks).enumerate() {
        let mut row = vec![String::from("."); shown];
        for (slot, span) in rank.iter().zip(spans) {
            if let Some(place) = row.get_mut(span.start.round() as usize) {
                *place = cell(slot);
            }
        }
        let row: String = row.iter().map(|c| format!("{c:<widest$}")).collect();
        let end = if shown < slots { "…" } else { "|" };
        out += &format!(" rank {p:>2} |{row}{end}\n");
    }
    if shown < slots {
        out += &format!(" {shown} of {slots} slots; `--json` has all\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlmc_passes::partition::placement::Grid;
    use vlmc_passes::schedule::{Kind, schedule};

    /// The worked example of facts B2, in the time of the clock.
    #[test]
    fn a_grid() {
        let s = schedule(Kind::Interleaved, Grid { pp: 2, vpp: 2 }, 4, 2).expect("legal");
        assert_eq!(
            grid(&s, 100),
            // Rank 0 waits for the gradients of microbatches 2 and 3 from rank 1's second chunk.
            " rank  0 |F0F1f0f1F2b0F3b1f2B0f3B1. b2. b3B2B3|\n\
             \u{20}rank  1 |. F0F1f0b0f1b1F2B0F3B1f2b2f3b3B2B3. |\n"
        );
        assert!(grid(&s, 30).ends_with(" 10 of 18 slots; `--json` has all\n"));
    }

    #[test]
    fn contents_in_short() {
        let all = ["vision", "embed", "layer:0:gdn", "layer:1:gdn", "layer:2:gdn", "layer:3:attn"];
        let more = ["layer:4:gdn", "final_norm"];
        let all: Vec<String> = all.iter().chain(&more).map(|s| s.to_string()).collect();
        assert_eq!(short(&all), "vision embed ggga g final_norm");
        assert_eq!(short(&[]), "-");
        let same: Vec<String> = (0..9).map(|i| format!("layer:{i}:attn")).collect();
        assert_eq!(short(&same), "a*9");
    }
}
