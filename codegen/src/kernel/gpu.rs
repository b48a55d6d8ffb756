//! Kernel IR as a `gpu.module`: a lane is a thread.
//!
//! Special functions are the device's own approximations, by inline assembly without side effects,
//! so that they schedule freely.

use super::control::{Writer, control};
use super::ir::{Binary, Cmp, Inst, Kind, Launch, Number, Place, Reg, Special, Ty, Unary};
use super::text::{Text, bits};
use rustc_hash::FxHashMap;
use std::f64::consts::LN_2;
use vlmc_ir::ty::DType;

pub(crate) struct Printer<'l> {
    pub(crate) l: &'l Launch,
    pub(crate) t: Text,
    names: FxHashMap<Reg, String>,
    /// Bytes of shared memory, the ring first.
    pub(crate) shared: usize,
    pub(crate) ring: usize,
}

/// A module of these functions.
pub(crate) fn module(name: &str, functions: &[String], shared: bool) -> String {
    let shared = if shared {
        "llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>\n"
    } else {
        ""
    };
    let functions = functions.concat();
    format!(
        "module attributes {{gpu.container_module}} {{\ngpu.module @{name} {{\n{shared}{functions}}}\n}}\n"
    )
}

/// The function's text, and the bytes of dynamic shared memory of a block.
pub(crate) fn print(l: &Launch) -> (String, usize) {
    let threads = l.lanes * l.warps * l.teams;
    let ring = l.ring.0 * l.ring.1 * threads;
    let mut p = Printer { l, t: Text::default(), names: FxHashMap::default(), shared: ring, ring };
    p.block(&l.body);
    let pointers = (0..l.buffers.len()).map(|i| format!("%b{i}: !llvm.ptr<1>"));
    let sizes = (0..l.symbols).map(|i| format!("%s{i}: i32"));
    let signature: Vec<String> = pointers.chain(sizes).collect();
    let mut attributes = format!("nvvm.maxntid = array<i32: {threads}>");
    if l.resident > 0 {
        attributes += &format!(", nvvm.minctasm = {} : i32", l.resident);
    }
    let name = &l.name;
    let text = format!(
        "gpu.func @{name}({}) kernel attributes {{{attributes}}} {{\n{}gpu.return\n}}\n",
        signature.join(", "),
        p.t.out
    );
    (text, p.shared)
}

impl Writer for Printer<'_> {
    fn text(&mut self) -> &mut Text {
        &mut self.t
    }

    fn name(&self, r: Reg) -> String {
        self.names.get(&r).cloned().unwrap_or_else(|| format!("%r{}", r.0))
    }

    fn set(&mut self, r: Reg, name: String) {
        self.names.insert(r, name);
    }

    fn typed(&self, r: Reg) -> String {
        self.ty(r).to_string()
    }

    fn block(&mut self, insts: &[Inst]) {
        let mut rest = insts;
        loop {
            rest = match rest {
                // The device rounds two at once.
                [
                    Inst::Unary(first, Unary::Round, a),
                    Inst::Unary(second, Unary::Round, b),
                    more @ ..,
                ] => {
                    self.t.at = self.l.line(&rest[0]);
                    self.round((*first, *second), (*a, *b));
                    self.t.at = None;
                    more
                }
                [one, more @ ..] => {
                    self.inst(one);
                    more
                }
                [] => return,
            };
        }
    }

    fn yielded(&mut self, value: Reg, _: Reg) -> String {
        self.name(value)
    }
}

impl Printer<'_> {
    pub(crate) fn kind(&self, r: Reg) -> Kind {
        self.l.kinds[r.0 as usize]
    }

    pub(crate) fn ty(&self, r: Reg) -> &'static str {
        self.kind(r).ty.mlir()
    }

    pub(crate) fn i32(&mut self, v: i64) -> String {
        self.t.op(format!("arith.constant {v} : i32"))
    }

    fn f32(&mut self, v: f64) -> String {
        self.t.op(format!("arith.constant {} : f32", bits(v)))
    }

    pub(crate) fn f(&mut self, op: &str, a: &str, b: &str) -> String {
        self.t.binary(op, a, b, "f32")
    }

    fn fma(&mut self, a: &str, b: &str, c: &str) -> String {
        self.t.op(format!("llvm.intr.fma({a}, {b}, {c}) : (f32, f32, f32) -> f32"))
    }

    /// Assembly of one operand and one result, without side effects.
    fn asm(&mut self, op: &str, a: &str) -> String {
        self.t.op(format!(
            "llvm.inline_asm asm_dialect = att \"{op} $0, $1;\", \"=f,f\" {a} : (f32) -> f32"
        ))
    }

    fn round(&mut self, (first, second): (Reg, Reg), (a, b): (Reg, Reg)) {
        let (a, b) = (self.name(a), self.name(b));
        let word = self.t.op(format!(
            "llvm.inline_asm asm_dialect = att \"cvt.rn.bf16x2.f32 $0, $1, $2;\", \"=r,f,f\" {b}, {a} : (f32, f32) -> i32"
        ));
        self.halves(&word, (first, second));
    }

    /// The two halves of a word of bf16.
    fn halves(&mut self, word: &str, (first, second): (Reg, Reg)) {
        let (s, m) = (self.i32(16), self.i32(-65536));
        let lo = self.t.op(format!("arith.shli {word}, {s} : i32"));
        let hi = self.t.op(format!("arith.andi {word}, {m} : i32"));
        for (half, r) in [(lo, first), (hi, second)] {
            let name = self.t.op(format!("arith.bitcast {half} : i32 to f32"));
            self.set(r, name);
        }
    }

    fn inst(&mut self, i: &Inst) {
        self.t.at = self.l.line(i);
        self.write(i);
        self.t.at = None;
    }

    fn write(&mut self, i: &Inst) {
        match i {
            Inst::Const(r, n) => {
                let t = self.ty(*r);
                let text = match (n, self.kind(*r).ty) {
                    (Number::Float(x), Ty::F32) => bits(*x),
                    (Number::Float(x), _) => format!("{}", *x as i64),
                    (Number::Whole(x), Ty::Bool) => {
                        (if *x != 0 { "true" } else { "false" }).to_string()
                    }
                    (Number::Whole(x), _) => x.to_string(),
                };
                let suffix = if t == "i1" { String::new() } else { format!(" : {t}") };
                let name = self.t.op(format!("arith.constant {text}{suffix}"));
                self.set(*r, name);
            }
            Inst::Special(r, s) => {
                let name = self.special(*s);
                self.set(*r, name);
            }
            Inst::Unary(r, op, a) => {
                let a = (*a, self.name(*a));
                let name = self.unary(*op, a.0, &a.1);
                self.set(*r, name);
            }
            Inst::Binary(r, op, a, b) => {
                let (x, y) = (self.name(*a), self.name(*b));
                let name = self.binary(*op, &x, &y, self.kind(*a).ty);
                self.set(*r, name);
            }
            Inst::Fma(r, a, b, c) => {
                let (a, b, c) = (self.name(*a), self.name(*b), self.name(*c));
                let name = self.fma(&a, &b, &c);
                self.set(*r, name);
            }
            Inst::Compare(r, op, a, b) => {
                let (x, y) = (self.name(*a), self.name(*b));
                let t = self.ty(*a);
                let name = if self.kind(*a).ty == Ty::F32 {
                    self.t.op(format!("arith.cmpf {}, {x}, {y} : {t}", float_compare(*op)))
                } else {
                    self.t.op(format!("arith.cmpi {}, {x}, {y} : {t}", whole_compare(*op)))
                };
                self.set(*r, name);
            }
            Inst::Select(r, c, a, b) => {
                let (c, a, b) = (self.name(*c), self.name(*a), self.name(*b));
                let t = self.ty(*r);
                let name = self.t.op(format!("arith.select {c}, {a}, {b} : {t}"));
                self.set(*r, name);
            }
            Inst::Splat(r, a) => {
                let a = self.name(*a);
                self.set(*r, a);
            }
            Inst::Load(regs, place) => self.load(regs, place),
            Inst::Store(values, place, mask) => self.store(values, place, *mask),
            Inst::Reduce(results, fold, values) => self.reduce(results, *fold, values),
            Inst::Teams(results, values) => self.teams(results, values),
            Inst::Documents { starts, valid, base, cu, padded, count } => {
                self.documents((*starts, *valid), *base, (*cu, *padded), *count);
            }
            Inst::Fetch(place, ok, slot) => self.fetch(place, *ok, slot),
            Inst::Commit => self.t.line("nvvm.cp.async.commit.group"),
            Inst::Wait(n) => self.t.line(format!("nvvm.cp.async.wait.group {n}")),
            Inst::Fetched(regs, dtype, slot) => {
                let at = self.slot(slot);
                self.words(regs, &at, 3, *dtype, slot.bytes as u64);
            }
            Inst::For { .. } | Inst::If { .. } => control(self, i),
        }
    }

    pub(crate) fn thread(&mut self) -> String {
        self.t.op("nvvm.read.ptx.sreg.tid.x : i32")
    }

    fn special(&mut self, s: Special) -> String {
        let team = (self.l.lanes * self.l.warps) as i64;
        match s {
            Special::Symbol(i) => format!("%s{i}"),
            Special::BlockX => self.t.op("nvvm.read.ptx.sreg.ctaid.x : i32"),
            Special::BlockY => self.t.op("nvvm.read.ptx.sreg.ctaid.y : i32"),
            Special::Lane => {
                let (t, n) = (self.thread(), self.i32(team));
                if self.l.teams == 1 { t } else { self.t.op(format!("arith.remui {t}, {n} : i32")) }
            }
            Special::Team => {
                let (t, n) = (self.thread(), self.i32(team));
                self.t.op(format!("arith.divui {t}, {n} : i32"))
            }
        }
    }

    fn unary(&mut self, op: Unary, from: Reg, a: &str) -> String {
        match op {
            Unary::Neg if self.kind(from).ty == Ty::F32 => self.t.op(format!("arith.negf {a} : f32")),
            Unary::Neg => {
                let (z, t) = (self.i32(0), self.ty(from));
                self.t.op(format!("arith.subi {z}, {a} : {t}"))
            }
            Unary::Not => {
                let one = self.t.op("arith.constant true");
                self.t.op(format!("arith.xori {a}, {one} : i1"))
            }
            Unary::Exp2 => self.asm("ex2.approx.ftz.f32", a),
            Unary::Log => {
                let (k, x) = (self.f32(LN_2), self.asm("lg2.approx.f32", a));
                self.f("arith.mulf", &x, &k)
            }
            Unary::Sqrt => self.asm("sqrt.approx.f32", a),
            Unary::Rsqrt => self.asm("rsqrt.approx.f32", a),
            Unary::Recip => self.asm("rcp.approx.ftz.f32", a),
            Unary::Rint => self.asm("cvt.rni.f32.f32", a),
            Unary::Sin => self.asm("sin.approx.ftz.f32", a),
            Unary::Cos => self.asm("cos.approx.ftz.f32", a),
            Unary::Round => {
                let h = self.t.op(format!(
                    "llvm.inline_asm asm_dialect = att \"cvt.rn.bf16.f32 $0, $1;\", \"=h,f\" {a} : (f32) -> i16"
                ));
                self.widen(&h)
            }
            Unary::ToF32 => match self.kind(from).ty {
                Ty::Bool => self.t.op(format!("arith.uitofp {a} : i1 to f32")),
                Ty::F32 => a.to_string(),
                t => self.t.op(format!("arith.sitofp {a} : {} to f32", t.mlir())),
            },
            Unary::ToI32 => match self.kind(from).ty {
                Ty::Bool => self.t.op(format!("arith.extui {a} : i1 to i32")),
                Ty::F32 => self.t.op(format!(
                    "llvm.inline_asm asm_dialect = att \"cvt.rzi.s32.f32 $0, $1;\", \"=r,f\" {a} : (f32) -> i32"
                )),
                _ => a.to_string(),
            },
            Unary::ToI64 => self.t.op(format!("arith.extsi {a} : i32 to i64")),
        }
    }

    /// A bf16's bits as f32.
    fn widen(&mut self, half: &str) -> String {
        let w = self.t.op(format!("arith.extui {half} : i16 to i32"));
        let s = self.i32(16);
        let w = self.t.op(format!("arith.shli {w}, {s} : i32"));
        self.t.op(format!("arith.bitcast {w} : i32 to f32"))
    }

    pub(crate) fn binary(&mut self, op: Binary, a: &str, b: &str, t: Ty) -> String {
        let float = t == Ty::F32;
        let name = match (op, float) {
            (Binary::Add, true) => "arith.addf",
            (Binary::Sub, true) => "arith.subf",
            (Binary::Mul, true) => "arith.mulf",
            (Binary::Max, true) => "arith.maximumf",
            (Binary::Min, true) => "arith.minimumf",
            (Binary::Div, true) => {
                return self.t.op(format!(
                    "llvm.inline_asm asm_dialect = att \"div.full.ftz.f32 $0, $1, $2;\", \"=f,f,f\" {a}, {b} : (f32, f32) -> f32"
                ));
            }
            (Binary::Add, _) => "arith.addi",
            (Binary::Sub, _) => "arith.subi",
            (Binary::Mul, _) => "arith.muli",
            (Binary::Max, _) => "arith.maxsi",
            (Binary::Min, _) => "arith.minsi",
            (Binary::And, _) => "arith.andi",
            (Binary::Or, _) => "arith.ori",
            (Binary::Shr, _) => "arith.shrui",
            (Binary::Quotient, _) => "arith.divui",
            (Binary::Remainder, _) => "arith.remui",
            (Binary::Div | Binary::Rem, _) => {
                return floor(&mut self.t, op, a, b, (t.mlir(), "i1"), &|v| v.to_string());
            }
        };
        self.t.binary(name, a, b, t.mlir())
    }

    // ---- memory --------------------------------------------------------------------------------

    pub(crate) fn address(&mut self, p: &Place) -> String {
        let size = p.dtype.bytes();
        let mut at = format!("%b{}", p.buffer);
        // The part of the lane first: it is the same for all rows.
        if let Some(l) = p.lane {
            let l = self.name(l);
            let wide = self.t.op(format!("arith.extsi {l} : i32 to i64"));
            at = self.offset(&at, &wide, size);
        }
        if let Some(u) = p.uniform {
            let u = self.name(u);
            at = self.offset(&at, &u, size);
        }
        if p.constant != 0 {
            let k = p.constant * size as i64;
            at = self
                .t
                .op(format!("llvm.getelementptr {at}[{k}] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8"));
        }
        at
    }

    pub(crate) fn offset(&mut self, at: &str, by: &str, size: u64) -> String {
        let element = match size {
            1 => "i8",
            2 => "i16",
            _ => "i32",
        };
        self.t.op(format!(
            "llvm.getelementptr {at}[{by}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, {element}"
        ))
    }

    fn load(&mut self, regs: &[Reg], p: &Place) {
        let at = self.address(p);
        self.words(regs, &at, 1, p.dtype, p.align);
    }

    /// Elements at an address.
    fn words(&mut self, regs: &[Reg], at: &str, space: u32, dtype: DType, align: u64) {
        let n = regs.len();
        let load = |t: &mut Text, ty: &str| {
            t.op(format!(
                "llvm.load {at} {{alignment = {align} : i64}} : !llvm.ptr<{space}> -> {ty}"
            ))
        };
        match dtype {
            DType::Bf16 if n == 1 => {
                let h = load(&mut self.t, "i16");
                let name = self.widen(&h);
                self.set(regs[0], name);
            }
            DType::Bf16 => {
                let words = n / 2;
                let v = load(
                    &mut self.t,
                    &if words == 1 { "i32".to_string() } else { format!("vector<{words}xi32>") },
                );
                for w in 0..words {
                    let word = if words == 1 {
                        v.clone()
                    } else {
                        self.t.op(format!("vector.extract {v}[{w}] : i32 from vector<{words}xi32>"))
                    };
                    self.halves(&word, (regs[2 * w], regs[2 * w + 1]));
                }
            }
            DType::F32 | DType::I32 => {
                let e = if dtype == DType::F32 { "f32" } else { "i32" };
                let v = load(
                    &mut self.t,
                    &if n == 1 { e.to_string() } else { format!("vector<{n}x{e}>") },
                );
                for (i, r) in regs.iter().enumerate() {
                    let name = if n == 1 {
                        v.clone()
                    } else {
                        self.t.op(format!("vector.extract {v}[{i}] : {e} from vector<{n}x{e}>"))
                    };
                    self.set(*r, name);
                }
            }
            DType::Bool => {
                let v = load(
                    &mut self.t,
                    &if n == 1 { "i8".to_string() } else { format!("vector<{n}xi8>") },
                );
                for (i, r) in regs.iter().enumerate() {
                    let b = if n == 1 {
                        v.clone()
                    } else {
                        self.t.op(format!("vector.extract {v}[{i}] : i8 from vector<{n}xi8>"))
                    };
                    let z = self.t.op("arith.constant 0 : i8");
                    let name = self.t.op(format!("arith.cmpi ne, {b}, {z} : i8"));
                    self.set(*r, name);
                }
            }
        }
    }

    fn store(&mut self, values: &[Reg], p: &Place, mask: Option<Reg>) {
        if let Some(m) = mask {
            let m = self.name(m);
            self.t.line(format!("scf.if {m} {{"));
        }
        let at = self.address(p);
        let names: Vec<String> = values.iter().map(|r| self.name(*r)).collect();
        let n = names.len();
        let (parts, e): (Vec<String>, &str) = match p.dtype {
            DType::Bf16 if n == 1 => {
                let h = self.t.op(format!(
                    "llvm.inline_asm asm_dialect = att \"cvt.rn.bf16.f32 $0, $1;\", \"=h,f\" {} : (f32) -> i16",
                    names[0]
                ));
                (vec![h], "i16")
            }
            DType::Bf16 => {
                let pack = |t: &mut Text, c: &[String]| {
                    t.op(format!(
                    "llvm.inline_asm asm_dialect = att \"cvt.rn.bf16x2.f32 $0, $1, $2;\", \"=r,f,f\" {}, {} : (f32, f32) -> i32",
                    c[1], c[0]
                ))
                };
                (names.chunks(2).map(|c| pack(&mut self.t, c)).collect(), "i32")
            }
            DType::F32 => (names, "f32"),
            DType::I32 => (names, "i32"),
            DType::Bool => (
                names.iter().map(|b| self.t.op(format!("arith.extui {b} : i1 to i8"))).collect(),
                "i8",
            ),
        };
        let n = parts.len();
        let (value, t) = if n == 1 {
            (parts[0].clone(), e.to_string())
        } else {
            let t = format!("vector<{n}x{e}>");
            let v = self.t.op(format!("vector.from_elements {} : {t}", parts.join(", ")));
            (v, t)
        };
        self.t.effect(format!(
            "llvm.store {value}, {at} {{alignment = {} : i64}} : {t}, !llvm.ptr<1>",
            p.align
        ));
        if mask.is_some() {
            self.t.line("}");
        }
    }
}

/// Quotient and remainder toward minus infinity, 0 by 0; of a type and its truth's type, where
/// constants are written by `all`.
pub(crate) fn floor(
    t: &mut Text,
    op: Binary,
    a: &str,
    b: &str,
    (ty, mask): (&str, &str),
    all: &dyn Fn(i64) -> String,
) -> String {
    let (zero, one) = (
        t.op(format!("arith.constant {} : {ty}", all(0))),
        t.op(format!("arith.constant {} : {ty}", all(1))),
    );
    let choose = |t: &mut Text, c: &str, a: &str, b: &str| {
        let types = if mask == "i1" { ty.to_string() } else { format!("{mask}, {ty}") };
        t.op(format!("arith.select {c}, {a}, {b} : {types}"))
    };
    let none = t.op(format!("arith.cmpi eq, {b}, {zero} : {ty}"));
    let by = choose(t, &none, &one, b);
    let q = t.op(format!("arith.divsi {a}, {by} : {ty}"));
    let r = t.op(format!("arith.remsi {a}, {by} : {ty}"));
    let rest = t.op(format!("arith.cmpi ne, {r}, {zero} : {ty}"));
    let sign = t.op(format!("arith.xori {r}, {by} : {ty}"));
    let apart = t.op(format!("arith.cmpi slt, {sign}, {zero} : {ty}"));
    let fix = t.op(format!("arith.andi {rest}, {apart} : {mask}"));
    let out = if op == Binary::Div {
        let less = t.op(format!("arith.subi {q}, {one} : {ty}"));
        choose(t, &fix, &less, &q)
    } else {
        let more = t.op(format!("arith.addi {r}, {by} : {ty}"));
        choose(t, &fix, &more, &r)
    };
    choose(t, &none, &zero, &out)
}

/// The bits of one document among the 64 rows from `base` on: where it starts, and its valid rows.
pub(crate) fn document_bits(
    t: &mut Text,
    there: &str,
    start: &str,
    (c0, c1): (&str, &str),
    base: &str,
) -> (String, String) {
    let c = |t: &mut Text, v: i64, ty: &str| t.op(format!("arith.constant {v} : {ty}"));
    let (zero, sixty_four) = (c(t, 0, "i32"), c(t, 64, "i32"));
    let (none, one, all) = (c(t, 0, "i64"), c(t, 1, "i64"), c(t, -1, "i64"));
    let s = t.op(format!("arith.subi {start}, {base} : i32"));
    let length = t.op(format!("arith.subi {c1}, {c0} : i32"));
    let e = t.op(format!("arith.addi {s}, {length} : i32"));
    let inside = t.op(format!("arith.cmpi ult, {s}, {sixty_four} : i32"));
    let inside = t.op(format!("arith.andi {inside}, {there} : i1"));
    let lo = t.op(format!("arith.maxsi {s}, {zero} : i32"));
    let lo = t.op(format!("arith.minsi {lo}, {sixty_four} : i32"));
    let hi = t.op(format!("arith.minsi {e}, {sixty_four} : i32"));
    let some = t.op(format!("arith.cmpi slt, {lo}, {hi} : i32"));
    let some = t.op(format!("arith.andi {some}, {there} : i1"));
    // Shifts by 64 mean nothing: each is kept below.
    let top = c(t, 63, "i32");
    let at = t.op(format!("arith.minsi {lo}, {top} : i32"));
    let at = t.op(format!("arith.extui {at} : i32 to i64"));
    let bit = t.op(format!("arith.shli {one}, {at} : i64"));
    let starts = t.op(format!("arith.select {inside}, {bit}, {none} : i64"));
    let rows = t.op(format!("arith.subi {hi}, {lo} : i32"));
    let spare = t.op(format!("arith.subi {sixty_four}, {rows} : i32"));
    let spare = t.op(format!("arith.maxsi {spare}, {zero} : i32"));
    let spare = t.op(format!("arith.minsi {spare}, {top} : i32"));
    let spare = t.op(format!("arith.extui {spare} : i32 to i64"));
    let run = t.op(format!("arith.shrui {all}, {spare} : i64"));
    let run = t.op(format!("arith.shli {run}, {at} : i64"));
    let valid = t.op(format!("arith.select {some}, {run}, {none} : i64"));
    (starts, valid)
}

pub(crate) fn float_compare(c: Cmp) -> &'static str {
    match c {
        Cmp::Eq => "oeq",
        Cmp::Ne => "une",
        Cmp::Lt => "olt",
        Cmp::Le => "ole",
        Cmp::Gt => "ogt",
        Cmp::Ge => "oge",
    }
}

pub(crate) fn whole_compare(c: Cmp) -> &'static str {
    match c {
        Cmp::Eq => "eq",
        Cmp::Ne => "ne",
        Cmp::Lt => "slt",
        Cmp::Le => "sle",
        Cmp::Gt => "sgt",
        Cmp::Ge => "sge",
    }
}
