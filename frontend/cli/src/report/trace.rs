//! The schedule for other programs: a Chrome trace, which Perfetto shows too, and a table.

use super::picture::Picture;
use serde_json::{Value, json};
use vlmc_passes::schedule::Phase;

/// The schedule as a Chrome trace: a thread a rank, a flow from each send to its receive, and a
/// counter of memory. Times are in microseconds.
pub(super) fn chrome(p: &Picture) -> String {
    let us = |ms: f64| (ms * 1e6).round() / 1e3;
    let mut events: Vec<Value> = vec![];
    for (rank, runs) in p.ranks.iter().enumerate() {
        events.push(json!({
            "name": "thread_name", "ph": "M", "pid": 0, "tid": rank,
            "args": { "name": format!("rank {rank}") },
        }));
        for r in runs {
            let phase = match r.slot.phase {
                Phase::F => "forward",
                Phase::B => "backward",
                Phase::W => "weights",
            };
            events.push(json!({
                "name": r.slot.to_string(), "cat": phase, "ph": "X", "pid": 0, "tid": rank,
                "ts": us(r.start), "dur": us(r.end - r.start),
                "args": { "microbatch": r.slot.microbatch, "chunk": r.slot.chunk },
            }));
        }
    }
    for (id, a) in p.arrows.iter().enumerate() {
        let name = if a.slot.phase == Phase::F { "activation" } else { "gradient" };
        events.push(json!({
            "name": name, "cat": "send", "ph": "s", "id": id, "pid": 0, "tid": a.from.0,
            "ts": us(a.from.1),
        }));
        events.push(json!({
            "name": name, "cat": "send", "ph": "f", "bp": "e", "id": id, "pid": 0, "tid": a.to.0,
            "ts": us(a.to.1),
        }));
    }
    for (rank, memory) in p.memory.iter().enumerate() {
        for (t, bytes) in memory {
            events.push(json!({
                "name": format!("memory of rank {rank}"), "ph": "C", "pid": 0, "ts": us(*t),
                "args": { "bytes": bytes },
            }));
        }
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// The schedule as a table.
pub(super) fn csv(p: &Picture) -> String {
    let mut out = String::from("rank,slot,phase,microbatch,chunk,start_ms,end_ms\n");
    for (rank, runs) in p.ranks.iter().enumerate() {
        for (i, r) in runs.iter().enumerate() {
            out += &format!(
                "{rank},{i},{:?},{},{},{:.6},{:.6}\n",
                r.slot.phase, r.slot.microbatch, r.slot.chunk, r.start, r.end
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::picture::Picture;
    use super::*;

    #[test]
    fn every_receive_has_its_send() {
        let plan = super::super::picture::tests::small();
        let picture = Picture::of(&plan).expect("a schedule");
        let trace: Value = serde_json::from_str(&chrome(&picture)).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("a list");
        let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).collect::<Vec<_>>();
        assert_eq!(of("X").len(), 8);
        assert_eq!((of("s").len(), of("f").len()), (4, 4));
        for (s, f) in of("s").iter().zip(of("f")) {
            assert_eq!(s["id"], f["id"]);
            assert!(s["ts"].as_f64() <= f["ts"].as_f64() && s["tid"] != f["tid"]);
        }
        assert_eq!(csv(&picture).lines().nth(3), Some("0,2,B,0,0,4.000000,6.000000"));
    }
}
