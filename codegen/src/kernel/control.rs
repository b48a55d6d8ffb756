//! Loops and branches as MLIR, which both targets write alike.

use super::ir::{Inst, Reg};
use super::text::Text;

/// A writer of kernel IR for one target.
pub(crate) trait Writer {
    /// The lines.
    fn text(&mut self) -> &mut Text;
    /// The name of a value.
    fn name(&self, r: Reg) -> String;
    /// Gives a value a name.
    fn set(&mut self, r: Reg, name: String);
    /// Its type.
    fn typed(&self, r: Reg) -> String;
    /// Instructions in order.
    fn block(&mut self, insts: &[Inst]);
    /// The name of a value in the form in which `result` takes it.
    fn yielded(&mut self, value: Reg, result: Reg) -> String;
}

/// Writes a loop or a branch.
pub(crate) fn control(w: &mut impl Writer, i: &Inst) {
    match i {
        Inst::For { results, var, lo, hi, step, carried, init, body, yields } => {
            let step = w.text().op(format!("arith.constant {step} : i32"));
            let (lo, hi, v) = (w.name(*lo), w.name(*hi), w.name(*var));
            let types: Vec<String> = init.iter().map(|r| w.typed(*r)).collect();
            let head = format!("scf.for {v} = {lo} to {hi} step {step}");
            if init.is_empty() {
                w.text().line(format!("{head} : i32 {{"));
                w.block(body);
                w.text().line("}");
                return;
            }
            let pair = |(c, i): (&Reg, &Reg)| format!("{} = {}", w.name(*c), w.name(*i));
            let pairs: Vec<String> = carried.iter().zip(init).map(pair).collect();
            let out = w.text().name();
            let (pairs, list) = (pairs.join(", "), types.join(", "));
            w.text().line(format!(
                "{out}:{} = {head} iter_args({pairs}) -> ({list}) : i32 {{",
                init.len()
            ));
            w.block(body);
            end(w, yields, results, &list);
            w.text().line("}");
            take(w, results, &out);
        }
        Inst::If { results, condition, then, yields, otherwise, other } => {
            let c = w.name(*condition);
            let types: Vec<String> = results.iter().map(|r| w.typed(*r)).collect();
            let (out, list) = (w.text().name(), types.join(", "));
            if results.is_empty() {
                w.text().line(format!("scf.if {c} {{"));
            } else {
                w.text().line(format!("{out}:{} = scf.if {c} -> ({list}) {{", results.len()));
            }
            w.block(then);
            end(w, yields, results, &list);
            if !otherwise.is_empty() || !results.is_empty() {
                w.text().line("} else {");
                w.block(otherwise);
                end(w, other, results, &list);
            }
            w.text().line("}");
            take(w, results, &out);
        }
        _ => {}
    }
}

fn end(w: &mut impl Writer, values: &[Reg], results: &[Reg], types: &str) {
    if values.is_empty() {
        return;
    }
    let names: Vec<String> = values.iter().zip(results).map(|(v, r)| w.yielded(*v, *r)).collect();
    w.text().line(format!("scf.yield {} : {types}", names.join(", ")));
}

fn take(w: &mut impl Writer, results: &[Reg], out: &str) {
    for (i, r) in results.iter().enumerate() {
        w.set(*r, format!("{out}#{i}"));
    }
}
