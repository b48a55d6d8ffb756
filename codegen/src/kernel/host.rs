//! Kernel IR as a plain function: a team is one vector, and a block is a round of a loop.
//!
//! The function takes the buffers, the symbols, and the ranges of blocks that it shall do.

use super::control::{Writer, control};
use super::gpu::{document_bits, float_compare, floor, whole_compare};
use super::ir::{Binary, Fold, Inst, Launch, Number, Place, Reg, Special, Ty, Unary};
use super::text::{Text, bits};
use rustc_hash::FxHashMap;
use vlmc_ir::ty::DType;

struct Printer<'l> {
    l: &'l Launch,
    t: Text,
    names: FxHashMap<Reg, String>,
}

/// The function's text.
pub(crate) fn print(l: &Launch) -> String {
    let mut p = Printer { l, t: Text::default(), names: FxHashMap::default() };
    p.block(&l.body);
    let pointers = (0..l.buffers.len()).map(|i| format!("%b{i}: !llvm.ptr"));
    let sizes = (0..l.symbols).map(|i| format!("%s{i}: i32"));
    let ranges = ["%x0: i32", "%x1: i32", "%y0: i32", "%y1: i32"].into_iter().map(str::to_string);
    let signature: Vec<String> = pointers.chain(sizes).chain(ranges).collect();
    format!(
        "func.func @{}({}) {{\n%one = arith.constant 1 : i32\nscf.for %y = %y0 to %y1 step %one : i32 {{\nscf.for %x = %x0 to %x1 step %one : i32 {{\n{}}}\n}}\nreturn\n}}\n",
        l.name,
        signature.join(", "),
        p.t.out
    )
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
        self.ty(r)
    }

    fn block(&mut self, insts: &[Inst]) {
        insts.iter().for_each(|i| self.inst(i));
    }

    fn yielded(&mut self, value: Reg, result: Reg) -> String {
        self.as_varying(value, self.varies(result))
    }
}

impl Printer<'_> {
    fn vector(&self, e: &str) -> String {
        format!("vector<{}x{e}>", self.l.lanes)
    }

    fn shape(&self, t: Ty, varying: bool) -> String {
        if varying { self.vector(t.mlir()) } else { t.mlir().to_string() }
    }

    fn varies(&self, r: Reg) -> bool {
        self.l.kinds[r.0 as usize].varying
    }

    fn base(&self, r: Reg) -> Ty {
        self.l.kinds[r.0 as usize].ty
    }

    fn ty(&self, r: Reg) -> String {
        self.shape(self.base(r), self.varies(r))
    }

    /// The value, made varying where that is asked for.
    fn as_varying(&mut self, r: Reg, varying: bool) -> String {
        let name = self.name(r);
        if !varying || self.varies(r) {
            return name;
        }
        let (from, to) = (self.base(r).mlir(), self.shape(self.base(r), true));
        self.t.op(format!("vector.broadcast {name} : {from} to {to}"))
    }

    /// A constant of a type that may be a vector.
    fn all(&mut self, value: &str, e: &str, varying: bool) -> String {
        if varying {
            let t = self.vector(e);
            return self.t.op(format!("arith.constant dense<{value}> : {t}"));
        }
        let suffix = if e == "i1" { String::new() } else { format!(" : {e}") };
        self.t.op(format!("arith.constant {value}{suffix}"))
    }

    fn inst(&mut self, i: &Inst) {
        self.t.at = self.l.line(i);
        self.write(i);
        self.t.at = None;
    }

    fn write(&mut self, i: &Inst) {
        match i {
            Inst::Const(r, n) => {
                let text = match (n, self.base(*r)) {
                    (Number::Float(x), Ty::F32) => bits(*x),
                    (Number::Float(x), _) => format!("{}", *x as i64),
                    (Number::Whole(x), Ty::Bool) => {
                        (if *x != 0 { "true" } else { "false" }).to_string()
                    }
                    (Number::Whole(x), _) => x.to_string(),
                };
                let name = self.all(&text, self.base(*r).mlir(), false);
                self.set(*r, name);
            }
            Inst::Special(r, s) => {
                let name = match s {
                    Special::Symbol(i) => format!("%s{i}"),
                    Special::BlockX => "%x".to_string(),
                    Special::BlockY => "%y".to_string(),
                    Special::Team => self.all("0", "i32", false),
                    Special::Lane => {
                        let list: Vec<String> = (0..self.l.lanes).map(|i| i.to_string()).collect();
                        self.all(&format!("[{}]", list.join(", ")), "i32", true)
                    }
                };
                self.set(*r, name);
            }
            Inst::Unary(r, op, a) => {
                let name = self.unary(*r, *op, *a);
                self.set(*r, name);
            }
            Inst::Binary(r, op, a, b) => {
                let v = self.varies(*r);
                let (x, y) = (self.as_varying(*a, v), self.as_varying(*b, v));
                let t = self.shape(self.base(*a), v);
                let name = self.binary(*op, &x, &y, self.base(*a), &t, v);
                self.set(*r, name);
            }
            Inst::Fma(r, a, b, c) => {
                let v = self.varies(*r);
                let (a, b, c) =
                    (self.as_varying(*a, v), self.as_varying(*b, v), self.as_varying(*c, v));
                let t = self.ty(*r);
                let name =
                    self.t.op(format!("llvm.intr.fma({a}, {b}, {c}) : ({t}, {t}, {t}) -> {t}"));
                self.set(*r, name);
            }
            Inst::Compare(r, op, a, b) => {
                let v = self.varies(*r);
                let (x, y) = (self.as_varying(*a, v), self.as_varying(*b, v));
                let t = self.shape(self.base(*a), v);
                let name = if self.base(*a) == Ty::F32 {
                    self.t.op(format!("arith.cmpf {}, {x}, {y} : {t}", float_compare(*op)))
                } else {
                    self.t.op(format!("arith.cmpi {}, {x}, {y} : {t}", whole_compare(*op)))
                };
                self.set(*r, name);
            }
            Inst::Select(r, c, a, b) => {
                let v = self.varies(*r);
                let (a, b) = (self.as_varying(*a, v), self.as_varying(*b, v));
                let t = self.ty(*r);
                let name = if v && self.varies(*c) {
                    let c = self.name(*c);
                    let m = self.vector("i1");
                    self.t.op(format!("arith.select {c}, {a}, {b} : {m}, {t}"))
                } else {
                    let c = self.name(*c);
                    self.t.op(format!("arith.select {c}, {a}, {b} : {t}"))
                };
                self.set(*r, name);
            }
            Inst::Splat(r, a) => {
                let name = self.as_varying(*a, true);
                self.set(*r, name);
            }
            Inst::Load(regs, place) => {
                if let Some(r) = regs.first() {
                    let name = self.load(*r, place);
                    self.set(*r, name);
                }
            }
            Inst::Store(values, place, mask) => {
                if let Some(r) = values.first() {
                    self.store(*r, place, *mask);
                }
            }
            Inst::Reduce(results, fold, values) => {
                for (r, v) in results.iter().zip(values) {
                    let name = self.reduce(*fold, *v);
                    self.set(*r, name);
                }
            }
            Inst::Teams(results, values) => {
                for (r, v) in results.iter().zip(values) {
                    let name = self.name(*v);
                    self.set(*r, name);
                }
            }
            Inst::Documents { starts, valid, base, cu, padded, count } => {
                self.documents((*starts, *valid), *base, (*cu, *padded), *count);
            }
            // The host has caches: plans for it ask for no ring.
            Inst::Fetch(..) | Inst::Commit | Inst::Wait(_) | Inst::Fetched(..) => {}
            Inst::For { .. } | Inst::If { .. } => control(self, i),
        }
    }

    fn unary(&mut self, r: Reg, op: Unary, from: Reg) -> String {
        let (a, v) = (self.name(from), self.varies(from));
        let t = self.ty(from);
        match op {
            Unary::Neg if self.base(from) == Ty::F32 => self.t.op(format!("arith.negf {a} : {t}")),
            Unary::Neg => {
                let z = self.all("0", self.base(from).mlir(), v);
                self.t.op(format!("arith.subi {z}, {a} : {t}"))
            }
            Unary::Not => {
                let one = self.all("true", "i1", v);
                self.t.op(format!("arith.xori {a}, {one} : {t}"))
            }
            Unary::Exp2 => self.t.op(format!("math.exp2 {a} : {t}")),
            Unary::Log => self.t.op(format!("math.log {a} : {t}")),
            Unary::Sqrt => self.t.op(format!("math.sqrt {a} : {t}")),
            Unary::Rsqrt => {
                let (one, s) =
                    (self.all(&bits(1.0), "f32", v), self.t.op(format!("math.sqrt {a} : {t}")));
                self.t.op(format!("arith.divf {one}, {s} : {t}"))
            }
            Unary::Recip => {
                let one = self.all(&bits(1.0), "f32", v);
                self.t.op(format!("arith.divf {one}, {a} : {t}"))
            }
            Unary::Rint => self.t.op(format!("math.roundeven {a} : {t}")),
            Unary::Sin => self.t.op(format!("math.sin {a} : {t}")),
            Unary::Cos => self.t.op(format!("math.cos {a} : {t}")),
            Unary::Round => {
                let halves = self.halves(&a, v);
                self.widen(&halves, v)
            }
            Unary::ToF32 => match self.base(from) {
                Ty::F32 => a,
                b => {
                    let (op, to) = (if b == Ty::Bool { "uitofp" } else { "sitofp" }, self.ty(r));
                    self.t.op(format!("arith.{op} {a} : {t} to {to}"))
                }
            },
            Unary::ToI32 => match self.base(from) {
                Ty::Bool => {
                    let to = self.ty(r);
                    self.t.op(format!("arith.extui {a} : {t} to {to}"))
                }
                Ty::F32 => {
                    let to = self.ty(r);
                    self.t.op(format!("arith.fptosi {a} : {t} to {to}"))
                }
                _ => a,
            },
            Unary::ToI64 => {
                let to = self.ty(r);
                self.t.op(format!("arith.extsi {a} : {t} to {to}"))
            }
        }
    }

    fn binary(&mut self, op: Binary, a: &str, b: &str, base: Ty, t: &str, varying: bool) -> String {
        let float = base == Ty::F32;
        let name = match (op, float) {
            (Binary::Add, true) => "arith.addf",
            (Binary::Sub, true) => "arith.subf",
            (Binary::Mul, true) => "arith.mulf",
            (Binary::Max, true) => "arith.maximumf",
            (Binary::Min, true) => "arith.minimumf",
            (Binary::Div, true) => "arith.divf",
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
                let all = |value: i64| {
                    if varying { format!("dense<{value}>") } else { value.to_string() }
                };
                let mask = if varying { self.vector("i1") } else { "i1".to_string() };
                return floor(&mut self.t, op, a, b, (t, &mask), &all);
            }
        };
        // Products and sums are not joined here: the reference rounds each.
        self.t.op(format!("{name} {a}, {b} : {t}"))
    }

    // ---- memory --------------------------------------------------------------------------------

    fn element(dtype: DType) -> &'static str {
        match dtype {
            DType::Bf16 => "i16",
            DType::F32 => "f32",
            DType::I32 => "i32",
            DType::Bool => "i8",
        }
    }

    /// The address of the first lane, or of each.
    fn address(&mut self, p: &Place, each: bool) -> String {
        let e = Self::element(p.dtype);
        let mut at = format!("%b{}", p.buffer);
        if let Some(u) = p.uniform {
            let u = self.name(u);
            at = self
                .t
                .op(format!("llvm.getelementptr {at}[{u}] : (!llvm.ptr, i64) -> !llvm.ptr, {e}"));
        }
        if p.constant != 0 {
            at = self.t.op(format!(
                "llvm.getelementptr {at}[{}] : (!llvm.ptr) -> !llvm.ptr, {e}",
                p.constant
            ));
        }
        let Some(l) = p.lane else { return at };
        let name = self.name(l);
        if !self.varies(l) {
            let wide = self.t.op(format!("arith.extsi {name} : i32 to i64"));
            return self.t.op(format!(
                "llvm.getelementptr {at}[{wide}] : (!llvm.ptr, i64) -> !llvm.ptr, {e}"
            ));
        }
        let n = self.l.lanes;
        if each {
            let (from, to) = (self.vector("i32"), self.vector("i64"));
            let wide = self.t.op(format!("arith.extsi {name} : {from} to {to}"));
            return self.t.op(format!(
                "llvm.getelementptr {at}[{wide}] : (!llvm.ptr, {to}) -> vector<{n}x!llvm.ptr>, {e}"
            ));
        }
        let from = self.vector("i32");
        let first = self.t.op(format!("vector.extract {name}[0] : i32 from {from}"));
        let wide = self.t.op(format!("arith.extsi {first} : i32 to i64"));
        self.t.op(format!("llvm.getelementptr {at}[{wide}] : (!llvm.ptr, i64) -> !llvm.ptr, {e}"))
    }

    fn load(&mut self, r: Reg, p: &Place) -> String {
        let (e, size) = (Self::element(p.dtype), p.dtype.bytes());
        let v = self.varies(r);
        let raw = if !v {
            let at = self.address(p, false);
            self.t.op(format!("llvm.load {at} {{alignment = {size} : i64}} : !llvm.ptr -> {e}"))
        } else if p.dense {
            let (at, t) = (self.address(p, false), self.vector(e));
            self.t.op(format!("llvm.load {at} {{alignment = {size} : i64}} : !llvm.ptr -> {t}"))
        } else {
            let (at, t, m) = (self.address(p, true), self.vector(e), self.vector("i1"));
            let n = self.l.lanes;
            let all = self.all("true", "i1", true);
            let zero = if e == "f32" { bits(0.0) } else { "0".to_string() };
            let pass = self.all(&zero, e, true);
            self.t.op(format!(
                "llvm.intr.masked.gather {at}, {all}, {pass} {{alignment = {size} : i32}} : (vector<{n}x!llvm.ptr>, {m}, {t}) -> {t}"
            ))
        };
        match p.dtype {
            DType::Bf16 => self.widen(&raw, v),
            DType::Bool => {
                let z = self.all("0", "i8", v);
                let t = if v { self.vector("i8") } else { "i8".to_string() };
                self.t.op(format!("arith.cmpi ne, {raw}, {z} : {t}"))
            }
            _ => raw,
        }
    }

    /// Halves as f32.
    fn widen(&mut self, halves: &str, v: bool) -> String {
        let t = |s: &Self, e: &str| if v { s.vector(e) } else { e.to_string() };
        let (i16, i32, f32) = (t(self, "i16"), t(self, "i32"), t(self, "f32"));
        let w = self.t.op(format!("arith.extui {halves} : {i16} to {i32}"));
        let by = self.all("16", "i32", v);
        let w = self.t.op(format!("arith.shli {w}, {by} : {i32}"));
        self.t.op(format!("arith.bitcast {w} : {i32} to {f32}"))
    }

    /// The nearest bf16, as its bits.
    fn halves(&mut self, a: &str, v: bool) -> String {
        let t = |s: &Self, e: &str| if v { s.vector(e) } else { e.to_string() };
        let (i16, i32, f32) = (t(self, "i16"), t(self, "i32"), t(self, "f32"));
        let w = self.t.op(format!("arith.bitcast {a} : {f32} to {i32}"));
        let (by, one, half) =
            (self.all("16", "i32", v), self.all("1", "i32", v), self.all("32767", "i32", v));
        let odd = self.t.op(format!("arith.shrui {w}, {by} : {i32}"));
        let odd = self.t.op(format!("arith.andi {odd}, {one} : {i32}"));
        let up = self.t.op(format!("arith.addi {w}, {half} : {i32}"));
        let up = self.t.op(format!("arith.addi {up}, {odd} : {i32}"));
        // What is no number stays none.
        let nan = self.t.op(format!("arith.cmpf uno, {a}, {a} : {f32}"));
        let quiet = self.all("2143289344", "i32", v);
        let mask = if v { format!("{}, {i32}", self.vector("i1")) } else { i32.clone() };
        let up = self.t.op(format!("arith.select {nan}, {quiet}, {up} : {mask}"));
        let up = self.t.op(format!("arith.shrui {up}, {by} : {i32}"));
        self.t.op(format!("arith.trunci {up} : {i32} to {i16}"))
    }

    fn store(&mut self, r: Reg, p: &Place, mask: Option<Reg>) {
        let (e, size) = (Self::element(p.dtype), p.dtype.bytes());
        let spread = p.lane.is_some_and(|l| self.varies(l));
        let mut value = self.as_varying(r, spread);
        if self.varies(r) && !spread {
            // One place: the first lane's element.
            let t = self.ty(r);
            value =
                self.t.op(format!("vector.extract {value}[0] : {} from {t}", self.base(r).mlir()));
        }
        value = match p.dtype {
            DType::Bf16 => self.halves(&value, spread),
            DType::Bool => {
                let (from, to) = if spread {
                    (self.vector("i1"), self.vector("i8"))
                } else {
                    ("i1".into(), "i8".into())
                };
                self.t.op(format!("arith.extui {value} : {from} to {to}"))
            }
            _ => value,
        };
        if !spread {
            let at = self.address(p, false);
            self.t.line(format!(
                "llvm.store {value}, {at} {{alignment = {size} : i64}} : {e}, !llvm.ptr"
            ));
            return;
        }
        let (t, m, n) = (self.vector(e), self.vector("i1"), self.l.lanes);
        if p.dense {
            let at = self.address(p, false);
            match mask {
                None => self.t.line(format!(
                    "llvm.store {value}, {at} {{alignment = {size} : i64}} : {t}, !llvm.ptr"
                )),
                Some(k) => {
                    let k = self.as_varying(k, true);
                    self.t.line(format!(
                        "llvm.intr.masked.store {value}, {at}, {k} {{alignment = {size} : i32}} : {t}, {m} into !llvm.ptr"
                    ));
                }
            }
            return;
        }
        let at = self.address(p, true);
        let k = match mask {
            Some(k) => self.as_varying(k, true),
            None => self.all("true", "i1", true),
        };
        self.t.line(format!(
            "llvm.intr.masked.scatter {value}, {at}, {k} {{alignment = {size} : i32}} : {t}, {m} into vector<{n}x!llvm.ptr>"
        ));
    }

    /// By halves: the order of a GPU's lanes.
    fn reduce(&mut self, fold: Fold, r: Reg) -> String {
        let mut v = self.as_varying(r, true);
        let (base, e) = (self.base(r), self.base(r).mlir());
        let mut n = self.l.lanes;
        while n > 1 {
            let (from, to) = (format!("vector<{n}x{e}>"), format!("vector<{}x{e}>", n / 2));
            let list =
                |a: usize, b: usize| (a..b).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
            let lo =
                self.t.op(format!("vector.shuffle {v}, {v} [{}] : {from}, {from}", list(0, n / 2)));
            let hi =
                self.t.op(format!("vector.shuffle {v}, {v} [{}] : {from}, {from}", list(n / 2, n)));
            let op = if fold == Fold::Max { Binary::Max } else { Binary::Add };
            v = self.binary(op, &lo, &hi, base, &to, true);
            n /= 2;
        }
        self.t.op(format!("vector.extract {v}[0] : {e} from vector<1x{e}>"))
    }

    fn documents(&mut self, out: (Reg, Reg), base: Reg, (cu, padded): (usize, usize), count: Reg) {
        let (base, count) = (self.name(base), self.name(count));
        let (zero, one) = (self.all("0", "i32", false), self.all("1", "i32", false));
        let last = self.t.op(format!("arith.subi {count}, {one} : i32"));
        let none = self.all("0", "i64", false);
        let there = self.all("true", "i1", false);
        let r = self.t.name();
        let (i, a, b) = (self.t.name(), self.t.name(), self.t.name());
        self.t.line(format!("{r}:2 = scf.for {i} = {zero} to {last} step {one} iter_args({a} = {none}, {b} = {none}) -> (i64, i64) : i32 {{"));
        let wide = self.t.op(format!("arith.extsi {i} : i32 to i64"));
        let entry = |t: &mut Text, buffer: usize, next: usize| {
            let at = t.op(format!(
                "llvm.getelementptr %b{buffer}[{wide}] : (!llvm.ptr, i64) -> !llvm.ptr, i32"
            ));
            let at =
                t.op(format!("llvm.getelementptr {at}[{next}] : (!llvm.ptr) -> !llvm.ptr, i32"));
            t.op(format!("llvm.load {at} {{alignment = 4 : i64}} : !llvm.ptr -> i32"))
        };
        let start = entry(&mut self.t, padded, 0);
        let (c0, c1) = (entry(&mut self.t, cu, 0), entry(&mut self.t, cu, 1));
        let (starts, valid) = document_bits(&mut self.t, &there, &start, (&c0, &c1), &base);
        let s = self.t.op(format!("arith.ori {a}, {starts} : i64"));
        let v = self.t.op(format!("arith.ori {b}, {valid} : i64"));
        self.t.line(format!("scf.yield {s}, {v} : i64, i64"));
        self.t.line("}");
        self.set(out.0, format!("{r}#0"));
        self.set(out.1, format!("{r}#1"));
    }
}
