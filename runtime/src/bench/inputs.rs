//! Inputs to check and time kernels with: random numbers, and boundaries of documents that are
//! valid.
//!
//! What an input of integers means is read off the function: it is a boundary where an op takes it
//! as one, and an index below the size of the table or range that it is looked up in.

use anyhow::{Result, bail};
use vlmc_data::init::{Distribution, Initializer};
use vlmc_ir::dim::{Dim, Symbol};
use vlmc_ir::eval::{Data, Real, Shape, Sizes, Tensor};
use vlmc_ir::graph::{Function, SymbolDecl, Value};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::DType;

/// Lengths of the documents of a check, and the padding rows after each: around the sizes of
/// strips, shorter than a stencil, and with no row to spare between some of them.
const LENGTHS: [(usize, usize); 9] =
    [(1, 0), (2, 1), (3, 0), (4, 3), (5, 2), (61, 5), (63, 0), (64, 1), (65, 3)];
/// Rows of a check: those of the documents, and 24 padding rows at the end. A prime number.
pub const ROWS: usize = 307;
/// Boundaries that repeat the last one, as a batch with fewer documents than its capacity has.
const SPARE: usize = 2;
/// Numbers drawn for one input; a larger one repeats them. A prime, so that rows differ.
const PERIOD: usize = 262_139;
/// Integers of which nothing is known are below this.
const SMALL: usize = 8;

/// How the rows are divided into documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// [`LENGTHS`], as many as there are rows for.
    Odd,
    /// One document of all rows.
    Whole,
    /// As many as the boundaries have room for, of uneven lengths, with a few padding rows.
    Uneven,
}

/// What an input holds.
#[derive(Clone, PartialEq, Debug)]
enum Kind {
    /// Numbers or truth values.
    Plain,
    /// Boundaries of the documents of so many rows: without padding rows, or with them.
    Boundary { rows: Dim, padded: bool, alone: bool },
    /// Integers from 0 to below a size; some -1, or some -100 for labels.
    Below { bound: Option<Dim>, lost: Option<i64> },
}

/// What the inputs of a function hold.
pub struct Inputs {
    names: Vec<String>,
    kinds: Vec<Kind>,
    /// Symbols that count documents, not rows.
    counts: Vec<Symbol>,
}

/// The values of an input.
pub struct Drawn {
    /// For the reference.
    pub tensor: Tensor<f64>,
    /// For the device.
    pub bytes: Vec<u8>,
}

impl Inputs {
    /// What the inputs of a function hold.
    ///
    /// # Errors
    /// When a boundary is none, or belongs to rows of which nothing is known.
    pub fn new(f: &Function) -> Result<Inputs> {
        let (mut kinds, mut counts) = (vec![], vec![]);
        for (i, input) in f.inputs.iter().enumerate() {
            let kind = kind(f, i)?;
            if let Kind::Boundary { .. } = &kind {
                let linear = input.ty.dims.first().and_then(|d| d.size().as_linear());
                let Some((symbol, 1, 1)) = linear else {
                    bail!("boundaries `{}` are {}, not of some count + 1", input.name, input.ty);
                };
                counts.push(symbol.clone());
            }
            kinds.push(kind);
        }
        let names = f.inputs.iter().map(|i| i.name.to_string()).collect();
        Ok(Inputs { names, kinds, counts })
    }

    /// Values of the symbols for a check with so many rows; each is raised to the multiple that
    /// its declaration promises.
    pub fn sizes(&self, symbols: &[SymbolDecl], rows: usize) -> Sizes {
        let mut sizes = Sizes::default();
        for s in symbols {
            let documents = LENGTHS.len().min(rows) + SPARE;
            let value = if self.counts.contains(&s.symbol) { documents } else { rows };
            let multiple = usize::try_from(s.multiple_of).unwrap_or(1).max(1);
            sizes.set(&s.symbol, value.next_multiple_of(multiple));
        }
        sizes
    }

    /// The values of input `i`. Floats are drawn from a normal distribution, or with `positive`
    /// from 1/8 to 2, which any function takes. The same arguments give the same values.
    ///
    /// # Errors
    /// When the rows of a boundary have no size, or the tensor is too large.
    pub fn draw(
        &self,
        i: usize,
        shape: &Shape,
        sizes: &Sizes,
        layout: Layout,
        seed: u64,
        positive: bool,
    ) -> Result<Drawn> {
        let n = vlmc_ir::eval::tensor::elements(&shape.dims)?;
        let bytes = self.bytes(i, shape, sizes, layout, seed, positive)?;
        let period = bytes.len() / shape.dtype.bytes() as usize;
        let at = |k: usize| k % period.max(1);
        let data = match shape.dtype {
            DType::Bf16 | DType::F32 => {
                let values = decode(shape.dtype, &bytes);
                Data::Float((0..n).map(|k| values[at(k)]).collect::<Vec<f64>>().into())
            }
            DType::I32 => {
                let values = decode(shape.dtype, &bytes);
                Data::Int((0..n).map(|k| values[at(k)] as i64).collect::<Vec<i64>>().into())
            }
            DType::Bool => Data::Bool((0..n).map(|k| bytes[at(k)] != 0).collect::<Vec<_>>().into()),
        };
        let tensor = Tensor::new(shape.dtype, shape.dims.clone(), data)?;
        Ok(Drawn { tensor, bytes })
    }

    /// The bytes of input `i`: all of them, or so many that they may be repeated.
    ///
    /// # Errors
    /// See [`Inputs::draw`].
    pub fn bytes(
        &self,
        i: usize,
        shape: &Shape,
        sizes: &Sizes,
        layout: Layout,
        seed: u64,
        positive: bool,
    ) -> Result<Vec<u8>> {
        let n = vlmc_ir::eval::tensor::elements(&shape.dims)?;
        let distribution =
            if positive { Distribution::Uniform(0.125, 2.0) } else { Distribution::Normal(1.0) };
        let draw = Initializer::new(seed, &self.names[i], distribution);
        let count = n.min(PERIOD) as u64;
        Ok(match (&self.kinds[i], shape.dtype) {
            (Kind::Boundary { rows, padded, alone }, DType::I32) => {
                let rows = sizes.eval(rows)?;
                let last = n.saturating_sub(1);
                ints(boundaries(layout, rows, last, *padded, *alone))
            }
            (Kind::Below { bound, lost }, DType::I32) => {
                let bound = match bound {
                    Some(dim) => sizes.eval(dim)?.max(1),
                    None => SMALL,
                };
                let uniform = Distribution::Uniform(0.0, 1.0);
                let pick = Initializer::new(seed, &self.names[i], uniform);
                ints((0..count).map(|k| {
                    let (value, chance) = (pick.element(2 * k), pick.element(2 * k + 1));
                    match lost {
                        Some(lost) if chance < 0.125 => *lost,
                        _ => ((value * bound as f64) as i64).min(bound as i64 - 1),
                    }
                }))
            }
            (_, DType::Bool) => (0..count).map(|k| u8::from(draw.element(k) > 0.5)).collect(),
            (_, DType::Bf16) => {
                let bits = |v: f32| (v.round_bf16().to_bits() >> 16) as u16;
                draw.values(0..count).into_iter().flat_map(|v| bits(v).to_le_bytes()).collect()
            }
            (_, DType::F32 | DType::I32) => {
                draw.values(0..count).into_iter().flat_map(f32::to_le_bytes).collect()
            }
        })
    }
}

impl Inputs {
    /// Other numbers for input `i` from those drawn, for one of many sets: what it may hold at any
    /// place is moved on, boundaries and indices stay.
    pub fn varied(&self, i: usize, dtype: DType, bytes: &[u8], set: usize) -> Vec<u8> {
        let mut out = bytes.to_vec();
        if self.kinds[i] == Kind::Plain && !out.is_empty() {
            let by = set * 4099 * dtype.bytes() as usize % out.len();
            out.rotate_left(by);
        }
        out
    }
}

/// The values of some bytes, as they lie in memory.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let two = |b: &[u8]| u32::from(u16::from_le_bytes([b[0], b[1]]));
    let four = |b: &[u8]| [b[0], b[1], b[2], b[3]];
    match dtype {
        DType::Bf16 => {
            bytes.chunks_exact(2).map(|b| f64::from(f32::from_bits(two(b) << 16))).collect()
        }
        DType::F32 => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(four(b)))).collect()
        }
        DType::I32 => {
            bytes.chunks_exact(4).map(|b| f64::from(i32::from_le_bytes(four(b)))).collect()
        }
        DType::Bool => bytes.iter().map(|b| f64::from(*b)).collect(),
    }
}

fn ints(values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    values.into_iter().flat_map(|v| (v as i32).to_le_bytes()).collect()
}

/// Cumulative lengths of `count` documents in so many rows: of the valid rows, or with the padding
/// rows after them. Boundaries that stand `alone` are both, so there is no padding between them.
fn boundaries(layout: Layout, rows: usize, count: usize, padded: bool, alone: bool) -> Vec<i64> {
    let mut sum = 0;
    let mut all = vec![0];
    for (valid, padding) in documents(layout, rows, count, alone) {
        sum += valid + if padded { padding } else { 0 };
        all.push(sum as i64);
    }
    all.resize(count + 1, sum as i64);
    all
}

/// Valid rows of each document and the padding rows after them, `rows` in all at most.
fn documents(layout: Layout, rows: usize, count: usize, alone: bool) -> Vec<(usize, usize)> {
    let (mut all, mut left) = (vec![], rows);
    let weights: usize = (0..count).map(weight).sum();
    for i in 0..count {
        let (valid, padding) = match layout {
            Layout::Whole => (left, 0),
            Layout::Odd => match LENGTHS.get(i) {
                Some(l) => *l,
                None => break,
            },
            Layout::Uneven if i + 1 == count => (left, 0),
            Layout::Uneven => (rows * weight(i) / weights.max(1), i % 4),
        };
        let valid = valid.min(left);
        let padding = if alone { 0 } else { padding.min(left - valid) };
        left -= valid + padding;
        all.push((valid, padding));
        if left == 0 {
            break;
        }
    }
    all
}

/// Uneven shares, from 1 to 13.
fn weight(i: usize) -> usize {
    1 + i * 7 % 13
}

fn kind(f: &Function, index: usize) -> Result<Kind> {
    let input = &f.inputs[index];
    if input.ty.dtype != DType::I32 {
        return Ok(Kind::Plain);
    }
    let name = input.name.rsplit('.').next().unwrap_or(&input.name);
    let mut boundary: Option<(Dim, bool)> = None;
    let mut alone = false;
    for node in &f.nodes {
        let slots = node.op.info().operands;
        let takes = |slot: &str| {
            let at = slots.iter().position(|s| *s == slot);
            at.and_then(|at| node.operands.get(at)).is_some_and(|v| is_input(f, *v, index))
        };
        let (valid, padded) = (takes("cu_seqlens"), takes("cu_seqlens_padded"));
        alone |= valid && padded;
        if valid || padded {
            let rows = match &node.op {
                Op::RowValid { rows } => Some(rows.clone()),
                _ => node.operands.first().and_then(|v| f.ty(*v).dims.first().cloned()),
            };
            boundary = rows.map(|rows| (rows, padded && !valid));
        }
    }
    if let Some((rows, padded)) = boundary {
        return Ok(Kind::Boundary { rows, padded, alone });
    }
    if name.starts_with("cu_") {
        bail!("nothing says what rows the boundaries `{}` belong to", input.name);
    }
    let bound = bound(f, index);
    Ok(if name.contains("label") {
        Kind::Below { bound, lost: Some(-100) }
    } else if name.contains("position") {
        // Positions of rows: below the longest dim.
        let longest = input.ty.dims.last().cloned();
        Kind::Below { bound: bound.or(longest), lost: None }
    } else {
        Kind::Below { bound, lost: Some(-1) }
    })
}

fn is_input(f: &Function, v: Value, index: usize) -> bool {
    matches!(f.node(v.node).op, Op::Input { index: i } if i as usize == index)
}

/// The size below which an input of integers points somewhere: rows of the table that it looks up,
/// or the range that it is compared with.
fn bound(f: &Function, index: usize) -> Option<Dim> {
    // Whether each node only moves the input.
    let mut moved: Vec<bool> = vec![];
    // The range that each node counts through or moves.
    let mut ranges: Vec<Option<Dim>> = vec![];
    let mut found = None;
    for node in &f.nodes {
        let of = |i: usize| node.operands.get(i).map(|v| v.node.0 as usize);
        let is = |i: usize| of(i).is_some_and(|n| moved[n]);
        let range = |i: usize| of(i).and_then(|n| ranges[n].clone());
        let dim = |i: usize| node.operands.get(i).and_then(|v| f.ty(*v).dims.first().cloned());
        let here = match &node.op {
            Op::Gather if is(1) => dim(0),
            Op::ScatterAdd { count } if is(0) => Some(count.clone()),
            Op::GroupedContract { .. } if is(2) => dim(1),
            Op::GroupedOuter { count, .. } if is(2) => Some(count.clone()),
            Op::Compare { .. } if is(0) => range(1),
            Op::Compare { .. } if is(1) => range(0),
            _ => None,
        };
        found = found.or(here);
        let view = node.op.info().class == Class::View;
        moved.push(match &node.op {
            Op::Input { index: i } => *i as usize == index,
            _ => view && is(0),
        });
        ranges.push(match &node.op {
            Op::Iota { shape, axis } => shape.get(*axis as usize).cloned(),
            _ if view => range(0),
            _ => None,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlmc_ir::text::parse;

    fn function(text: &str) -> Function {
        let text = format!("program \"p\"\nsymbol T\nsymbol docs\n\n{text}");
        let p = parse::program(&text).unwrap_or_else(|e| panic!("{}", parse::render(&text, &e)));
        p.functions[0].clone()
    }

    fn mask() -> Function {
        function(
            "func @f cluster \"c\" {\n  input %s.cu : i32[docs + 1]\n  \
             input %s.padded : i32[docs + 1]\n  input %x : bf16[2*T, 8]\n  \
             input %labels : i32[T]\n  \
             %v = row_valid %s.cu, %s.padded {rows = 2*T} : bool[2*T]\n  \
             %b = broadcast %labels {shape = [T, 12], dims = [0]} : i32[T, 12]\n  \
             %i = iota {shape = [12], axis = 0} : i32[12]\n  \
             %j = broadcast %i {shape = [T, 12], dims = [1]} : i32[T, 12]\n  \
             %c = compare %j, %b {kind = eq} : bool[T, 12]\n  \
             return %v\n  return %c\n  return %x\n}\n",
        )
    }

    fn shape(dtype: DType, dims: &[usize]) -> Shape {
        Shape { dtype, dims: dims.to_vec() }
    }

    fn symbols() -> Vec<SymbolDecl> {
        let one = |name: &str| SymbolDecl { symbol: Symbol::new(name), multiple_of: 1 };
        vec![one("T"), one("docs")]
    }

    fn draw(inputs: &Inputs, i: usize, s: &Shape, sizes: &Sizes, layout: Layout) -> Vec<f64> {
        inputs.draw(i, s, sizes, layout, 1, false).expect("drawn").tensor.to_f64()
    }

    #[test]
    fn documents_are_as_asked() {
        let inputs = Inputs::new(&mask()).expect("known");
        let sizes = inputs.sizes(&symbols(), ROWS);
        assert_eq!(sizes.get(&Symbol::new("T")), Some(307));
        assert_eq!(sizes.get(&Symbol::new("docs")), Some(11));
        let s = shape(DType::I32, &[12]);
        let valid = draw(&inputs, 0, &s, &sizes, Layout::Odd);
        let padded = draw(&inputs, 1, &s, &sizes, Layout::Odd);
        let lengths = |c: &[f64]| c.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
        let wanted = [1.0, 2.0, 3.0, 4.0, 5.0, 61.0, 63.0, 64.0, 65.0, 0.0, 0.0];
        assert_eq!(lengths(&valid), wanted);
        let room = lengths(&padded);
        assert!(room.iter().zip(wanted).all(|(room, valid)| *room >= valid));
        assert_ne!(valid, padded);
        assert!(padded[9] < 2.0 * 307.0, "padding rows at the end");
        // A single row is one document.
        let sizes = inputs.sizes(&symbols(), 1);
        let n = sizes.get(&Symbol::new("docs")).expect("a count") + 1;
        let s = shape(DType::I32, &[n]);
        assert_eq!(draw(&inputs, 1, &s, &sizes, Layout::Odd)[..2], [0.0, 1.0]);
    }

    #[test]
    fn boundaries_are_valid() {
        for layout in [Layout::Odd, Layout::Whole, Layout::Uneven] {
            for (rows, count) in [(0, 0), (1, 1), (1, 5), (7, 3), (307, 11), (8192, 16)] {
                for alone in [false, true] {
                    let valid = boundaries(layout, rows, count, false, alone);
                    let padded = boundaries(layout, rows, count, true, alone);
                    assert_eq!((valid.len(), padded.len()), (count + 1, count + 1));
                    assert_eq!((valid[0], padded[0]), (0, 0));
                    for i in 0..count {
                        let (v, p) = (valid[i + 1] - valid[i], padded[i + 1] - padded[i]);
                        assert!(0 <= v && v <= p, "{layout:?} {rows} {count}");
                    }
                    assert!(padded[count] <= rows as i64);
                    assert!(!alone || valid == padded);
                }
            }
            let (valid, padded) = (
                boundaries(layout, 8192, 16, false, false),
                boundaries(layout, 8192, 16, true, false),
            );
            assert_eq!(valid == padded, layout == Layout::Whole);
        }
        let uneven = boundaries(Layout::Uneven, 8192, 16, true, false);
        assert_eq!(uneven[16], 8192);
        assert!(uneven.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(boundaries(Layout::Whole, 8192, 3, true, false), [0, 8192, 8192, 8192]);
    }

    #[test]
    fn labels_point_into_their_range() {
        let inputs = Inputs::new(&mask()).expect("known");
        let sizes = inputs.sizes(&symbols(), ROWS);
        let labels = draw(&inputs, 3, &shape(DType::I32, &[307]), &sizes, Layout::Odd);
        assert!(labels.iter().all(|v| *v == -100.0 || (0.0..12.0).contains(v)));
        for wanted in [-100.0, 0.0, 11.0] {
            assert!(labels.contains(&wanted), "{wanted} never comes");
        }
    }

    #[test]
    fn bytes_and_tensor_are_one() {
        let inputs = Inputs::new(&mask()).expect("known");
        let sizes = inputs.sizes(&symbols(), ROWS);
        for (i, s) in [
            (2, shape(DType::Bf16, &[614, 8])),
            (2, shape(DType::F32, &[614, 8])),
            (3, shape(DType::I32, &[307])),
            (2, shape(DType::Bool, &[307])),
        ] {
            let drawn = |seed| inputs.draw(i, &s, &sizes, Layout::Odd, seed, false).expect("drawn");
            let one = drawn(1);
            assert_eq!(decode(s.dtype, &one.bytes), one.tensor.to_f64());
            assert_eq!(one.bytes, drawn(1).bytes);
            assert_ne!(one.bytes, drawn(2).bytes);
        }
        let s = shape(DType::F32, &[64, 8]);
        let positive = inputs.draw(2, &s, &sizes, Layout::Odd, 1, true).expect("drawn");
        assert!(positive.tensor.to_f64().iter().all(|v| (0.125..=2.0).contains(v)));
    }

    #[test]
    fn sets_vary() {
        let inputs = Inputs::new(&mask()).expect("known");
        let bytes: Vec<u8> = (0..20_000u32).flat_map(|v| (v as f32).to_le_bytes()).collect();
        let moved = decode(DType::F32, &inputs.varied(2, DType::F32, &bytes, 2));
        assert_eq!((moved.len(), moved[0], moved[1]), (20_000, 8198.0, 8199.0));
        assert_eq!(inputs.varied(2, DType::F32, &bytes, 0), bytes);
        assert_eq!(inputs.varied(0, DType::I32, &bytes, 2), bytes);
        assert!(inputs.varied(2, DType::F32, &[], 1).is_empty());
    }

    #[test]
    fn large_inputs_repeat() {
        let inputs = Inputs::new(&mask()).expect("known");
        let s = shape(DType::Bf16, &[PERIOD + 5]);
        let bytes = inputs.bytes(2, &s, &Sizes::default(), Layout::Whole, 1, false).expect("drawn");
        assert_eq!(bytes.len(), 2 * PERIOD);
        let drawn = inputs.draw(2, &s, &Sizes::default(), Layout::Whole, 1, false).expect("drawn");
        let values = drawn.tensor.to_f64();
        assert_eq!((values.len(), values[PERIOD + 2]), (PERIOD + 5, values[2]));
    }
}
