//! What the threads of a block have in common: reductions, the documents of their rows, and the ring
//! of rows on the chip.

use super::control::Writer;
use super::gpu::{Printer, document_bits};
use super::ir::{Binary, Fold, Place, Reg, Slot, Ty};

/// Bytes of shared memory that exchanges between warps may use at once.
const EXCHANGE: usize = 32 * 1024;

impl Printer<'_> {
    pub(crate) fn combine(&mut self, fold: Fold, t: Ty, a: &str, b: &str) -> String {
        let op = if fold == Fold::Max { Binary::Max } else { Binary::Add };
        self.binary(op, a, b, t)
    }

    pub(crate) fn reduce(&mut self, results: &[Reg], fold: Fold, values: &[Reg]) {
        let mut names: Vec<String> = values.iter().map(|r| self.name(*r)).collect();
        let width = self.i32(32);
        for off in [16, 8, 4, 2, 1] {
            let off = self.i32(off);
            for (n, r) in names.iter_mut().zip(values) {
                let (v, ok, t) = (self.t.name(), self.t.name(), self.ty(*r));
                self.t.line(format!("{v}, {ok} = gpu.shuffle xor {n}, {off}, {width} : {t}"));
                *n = self.combine(fold, self.kind(*r).ty, n, &v);
            }
        }
        if self.l.warps > 1 {
            let thread = self.thread();
            let team = self.i32((32 * self.l.warps) as i64);
            let lane = self.t.op(format!("arith.remui {thread}, {team} : i32"));
            let team = self.t.op(format!("arith.divui {thread}, {team} : i32"));
            let (c32, zero) = (self.i32(32), self.i32(0));
            let warp = self.t.op(format!("arith.divui {lane}, {c32} : i32"));
            let in_warp = self.t.op(format!("arith.remui {lane}, {c32} : i32"));
            let first = self.t.op(format!("arith.cmpi eq, {in_warp}, {zero} : i32"));
            let (warps, n) = (self.l.warps, names.len());
            self.need(self.l.teams * warps * n * 4);
            let per = self.i32((warps * n * 4) as i64);
            let base = self.t.op(format!("arith.muli {team}, {per} : i32"));
            let four = self.i32(4 * n as i64);
            let mine = self.t.op(format!("arith.muli {warp}, {four} : i32"));
            let mine = self.t.op(format!("arith.addi {base}, {mine} : i32"));
            self.t.line("gpu.barrier");
            self.t.line(format!("scf.if {first} {{"));
            for (i, (v, r)) in names.iter().zip(values).enumerate() {
                let at = self.shared_at(&mine, 4 * i);
                let t = self.ty(*r);
                self.t.line(format!(
                    "llvm.store {v}, {at} {{alignment = 4 : i64}} : {t}, !llvm.ptr<3>"
                ));
            }
            self.t.line("}");
            self.t.line("gpu.barrier");
            for (i, (name, r)) in names.iter_mut().zip(values).enumerate() {
                let (t, kind) = (self.ty(*r), self.kind(*r).ty);
                let mut sum: Option<String> = None;
                for w in 0..warps {
                    let at = self.shared_at(&base, 4 * (w * n + i));
                    let v = self.t.op(format!(
                        "llvm.load {at} {{alignment = 4 : i64}} : !llvm.ptr<3> -> {t}"
                    ));
                    sum = Some(match sum {
                        Some(s) => self.combine(fold, kind, &s, &v),
                        None => v,
                    });
                }
                if let Some(s) = sum {
                    *name = s;
                }
            }
        }
        for (r, n) in results.iter().zip(names) {
            self.set(*r, n);
        }
    }

    pub(crate) fn need(&mut self, bytes: usize) {
        self.shared = self.shared.max(self.ring + bytes);
    }

    /// An address in the exchange area: `base` bytes and a constant.
    pub(crate) fn shared_at(&mut self, base: &str, k: usize) -> String {
        let sm = self.t.op("llvm.mlir.addressof @smem : !llvm.ptr<3>");
        let wide = self.t.op(format!("arith.extui {base} : i32 to i64"));
        let at = self.t.op(format!(
            "llvm.getelementptr {sm}[{wide}] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i8"
        ));
        let k = k + self.ring;
        self.t.op(format!("llvm.getelementptr {at}[{k}] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8"))
    }

    pub(crate) fn teams(&mut self, results: &[Reg], values: &[Reg]) {
        let threads = self.l.lanes * self.l.warps * self.l.teams;
        let lanes = self.l.lanes * self.l.warps;
        let batch = (EXCHANGE / (4 * threads)).max(1);
        let thread = self.thread();
        let (four, count) = (self.i32(4), self.i32(lanes as i64));
        let mine = self.t.op(format!("arith.muli {thread}, {four} : i32"));
        let lane = self.t.op(format!("arith.remui {thread}, {count} : i32"));
        let lane = self.t.op(format!("arith.muli {lane}, {four} : i32"));
        for (results, values) in results.chunks(batch).zip(values.chunks(batch)) {
            self.need(values.len() * threads * 4);
            self.t.line("gpu.barrier");
            for (i, r) in values.iter().enumerate() {
                let (v, at) = (self.name(*r), self.shared_at(&mine, 4 * i * threads));
                self.t.line(format!(
                    "llvm.store {v}, {at} {{alignment = 4 : i64}} : f32, !llvm.ptr<3>"
                ));
            }
            self.t.line("gpu.barrier");
            for (i, r) in results.iter().enumerate() {
                let mut sum: Option<String> = None;
                for team in 0..self.l.teams {
                    let at = self.shared_at(&lane, 4 * (i * threads + team * lanes));
                    let v = self.t.op(format!(
                        "llvm.load {at} {{alignment = 4 : i64}} : !llvm.ptr<3> -> f32"
                    ));
                    sum = Some(match sum {
                        Some(s) => self.f("arith.addf", &s, &v),
                        None => v,
                    });
                }
                if let Some(s) = sum {
                    self.set(*r, s);
                }
            }
        }
    }

    /// Each lane looks at every 32nd document; the lanes' bits are joined.
    pub(crate) fn documents(
        &mut self,
        out: (Reg, Reg),
        base: Reg,
        (cu, padded): (usize, usize),
        count: Reg,
    ) {
        let (base, count) = (self.name(base), self.name(count));
        let (zero, one, step) = (self.i32(0), self.i32(1), self.i32(32));
        let last = self.t.op(format!("arith.subi {count}, {one} : i32"));
        let top = self.t.op(format!("arith.subi {last}, {one} : i32"));
        let thread = self.thread();
        let lane = self.t.op(format!("arith.remui {thread}, {step} : i32"));
        let none = self.t.op("arith.constant 0 : i64");
        let r = self.t.name();
        let (i, a, b) = (self.t.name(), self.t.name(), self.t.name());
        self.t.line(format!("{r}:2 = scf.for {i} = {zero} to {last} step {step} iter_args({a} = {none}, {b} = {none}) -> (i64, i64) : i32 {{"));
        let d = self.t.op(format!("arith.addi {i}, {lane} : i32"));
        let there = self.t.op(format!("arith.cmpi slt, {d}, {last} : i32"));
        let d = self.t.op(format!("arith.minsi {d}, {top} : i32"));
        let wide = self.t.op(format!("arith.extsi {d} : i32 to i64"));
        let entry = |s: &mut Self, buffer: usize, next: bool| {
            let mut at = s.offset(&format!("%b{buffer}"), &wide, 4);
            if next {
                at = s
                    .t
                    .op(format!("llvm.getelementptr {at}[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8"));
            }
            s.t.op(format!("llvm.load {at} {{alignment = 4 : i64}} : !llvm.ptr<1> -> i32"))
        };
        let start = entry(self, padded, false);
        let (c0, c1) = (entry(self, cu, false), entry(self, cu, true));
        let (starts, valid) = document_bits(&mut self.t, &there, &start, (&c0, &c1), &base);
        let s = self.t.op(format!("arith.ori {a}, {starts} : i64"));
        let v = self.t.op(format!("arith.ori {b}, {valid} : i64"));
        self.t.line(format!("scf.yield {s}, {v} : i64, i64"));
        self.t.line("}");
        for (k, r_out) in [(0, out.0), (1, out.1)] {
            let word = format!("{r}#{k}");
            let lo = self.t.op(format!("arith.trunci {word} : i64 to i32"));
            let by = self.t.op("arith.constant 32 : i64");
            let hi = self.t.op(format!("arith.shrui {word}, {by} : i64"));
            let hi = self.t.op(format!("arith.trunci {hi} : i64 to i32"));
            let all = self.i32(-1);
            let lo = self.t.op(format!("nvvm.redux.sync or {lo}, {all} : i32 -> i32"));
            let hi = self.t.op(format!("nvvm.redux.sync or {hi}, {all} : i32 -> i32"));
            let lo = self.t.op(format!("arith.extui {lo} : i32 to i64"));
            let hi = self.t.op(format!("arith.extui {hi} : i32 to i64"));
            let hi = self.t.op(format!("arith.shli {hi}, {by} : i64"));
            let name = self.t.op(format!("arith.ori {lo}, {hi} : i64"));
            self.set(r_out, name);
        }
    }

    pub(crate) fn slot(&mut self, s: &Slot) -> String {
        let threads = self.l.lanes * self.l.warps * self.l.teams;
        let stage = self.name(s.stage);
        let group = self.i32((s.group * threads) as i64);
        let at = self.t.op(format!("arith.muli {stage}, {group} : i32"));
        let thread = self.thread();
        let bytes = self.i32(s.bytes as i64);
        let mine = self.t.op(format!("arith.muli {thread}, {bytes} : i32"));
        let at = self.t.op(format!("arith.addi {at}, {mine} : i32"));
        let sm = self.t.op("llvm.mlir.addressof @smem : !llvm.ptr<3>");
        let wide = self.t.op(format!("arith.extui {at} : i32 to i64"));
        let at = self.t.op(format!(
            "llvm.getelementptr {sm}[{wide}] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i8"
        ));
        self.t.op(format!(
            "llvm.getelementptr {at}[{}] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8",
            s.before * threads
        ))
    }

    pub(crate) fn fetch(&mut self, p: &Place, ok: Option<Reg>, s: &Slot) {
        let from = self.address(p);
        let to = self.slot(s);
        let to = self.t.op(format!("llvm.ptrtoint {to} : !llvm.ptr<3> to i32"));
        let size = self.i32(s.bytes as i64);
        let size = match ok {
            Some(c) => {
                let (c, z) = (self.name(c), self.i32(0));
                self.t.op(format!("arith.select {c}, {size}, {z} : i32"))
            }
            None => size,
        };
        let cache = if s.bytes == 16 { "cg" } else { "ca" };
        self.t.line(format!(
            "llvm.inline_asm has_side_effects asm_dialect = att \"cp.async.{cache}.shared.global [$0], [$1], {}, $2;\", \"r,l,r,~{{memory}}\" {to}, {from}, {size} : (i32, !llvm.ptr<1>, i32) -> ()",
            s.bytes
        ));
    }
}
