//! Modules at known sizes: bytes of buffers, blocks of launches, arguments in order.

use super::Set;
use anyhow::{Context, Result, anyhow, bail};
use vlmc_artifact::kernels::{Argument, Launch, Module, Operand, Size};
use vlmc_ir::dim::{Dim, Symbol};
use vlmc_ir::eval::{Shape, Sizes};
use vlmc_ir::graph::Function;
use vlmc_ir::text::cursor::Cursor;
use vlmc_ir::ty::DType;

/// Most blocks by x.
const MOST_X: u64 = i32::MAX as u64;
/// Most blocks by y and by z.
const MOST_YZ: u64 = 65_535;
/// More bytes than this are no tensor but a mistake.
const MOST_BYTES: u64 = 1 << 42;

/// A module at known sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Bound {
    /// Inputs.
    pub inputs: Vec<Shape>,
    /// Outputs.
    pub outputs: Vec<Shape>,
    /// Bytes of each scratch buffer.
    pub scratch: Vec<u64>,
    /// Values of the symbols.
    pub symbols: Vec<i32>,
    /// Launches.
    pub launches: Vec<BoundLaunch>,
}

/// A launch at known sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundLaunch {
    /// Blocks by x, y and z; with a 0 there is nothing to do.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Pointers, in order.
    pub arguments: Vec<Argument>,
}

/// A parameter of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// An address.
    Pointer(u64),
    /// A number.
    Int(i32),
}

/// Reads a dim.
///
/// # Errors
/// When it is none.
pub fn dim(text: &str) -> Result<Dim> {
    let mut c = Cursor::new(text);
    let dim = c.dim().map_err(|e| anyhow!("the dim `{text}`: {e}"))?;
    if c.at_end() { Ok(dim) } else { bail!("the dim `{text}` goes on after its end") }
}

/// The value of a [`Size`].
///
/// # Errors
/// When its dim is none or has no value.
pub fn size(size: &Size, sizes: &Sizes) -> Result<u64> {
    size.value(|text| -> Result<u64> { Ok(sizes.eval(&dim(text)?)? as u64) })
}

/// Bytes of a tensor.
///
/// # Errors
/// When no device can hold so many.
pub fn bytes(shape: &Shape) -> Result<u64> {
    shape
        .dims
        .iter()
        .try_fold(shape.dtype.bytes(), |n, d| n.checked_mul(*d as u64))
        .filter(|n| *n <= MOST_BYTES)
        .ok_or_else(|| anyhow!("{}{:?} is too large", shape.dtype, shape.dims))
}

/// A type at known sizes, as people read it.
pub fn text(shape: &Shape) -> String {
    let dims: Vec<String> = shape.dims.iter().map(ToString::to_string).collect();
    format!("{}[{}]", shape.dtype, dims.join(", "))
}

fn shape(operand: &Operand, sizes: &Sizes) -> Result<Shape> {
    let dtype = DType::from_name(&operand.dtype);
    let dtype = dtype.ok_or_else(|| anyhow!("unknown dtype `{}`", operand.dtype))?;
    let dims = operand.dims.iter().map(|d| Ok(sizes.eval(&dim(d)?)?)).collect::<Result<_>>()?;
    let shape = Shape { dtype, dims };
    bytes(&shape)?;
    Ok(shape)
}

fn launch(l: &Launch, sizes: &Sizes) -> Result<BoundLaunch> {
    let mut grid = [0; 3];
    for (i, most) in [MOST_X, MOST_YZ, MOST_YZ].into_iter().enumerate() {
        let blocks = size(&l.grid[i], sizes)?;
        let axis = ["x", "y", "z"][i];
        grid[i] = u32::try_from(blocks)
            .ok()
            .filter(|b| u64::from(*b) <= most)
            .ok_or_else(|| anyhow!("{blocks} blocks by {axis}, at most {most} can be launched"))?;
    }
    Ok(BoundLaunch {
        grid,
        block: l.block,
        shared_bytes: l.shared_bytes,
        arguments: l.arguments.clone(),
    })
}

impl Bound {
    /// A module at these sizes.
    ///
    /// # Errors
    /// When a symbol has no value, or something is too large.
    pub fn new(module: &Module, sizes: &Sizes) -> Result<Bound> {
        let shapes = |what: &str, operands: &[Operand]| -> Result<Vec<Shape>> {
            let one = |(i, o)| shape(o, sizes).with_context(|| format!("{what} {i}"));
            operands.iter().enumerate().map(one).collect()
        };
        let mut scratch = vec![];
        for (i, s) in module.scratch.iter().enumerate() {
            let n = size(s, sizes).with_context(|| format!("scratch {i}"))?;
            if n > MOST_BYTES {
                bail!("scratch {i} of {n} bytes is too large");
            }
            scratch.push(n);
        }
        let mut symbols = vec![];
        for name in &module.symbols {
            let value = sizes.get(&Symbol::new(name));
            let value = value.ok_or_else(|| anyhow!("the symbol {name} has no value"))?;
            symbols.push(i32::try_from(value).with_context(|| format!("{name} is {value}"))?);
        }
        let mut launches = vec![];
        for l in &module.launches {
            launches.push(launch(l, sizes).with_context(|| format!("launch `{}`", l.symbol))?);
        }
        Ok(Bound {
            inputs: shapes("input", &module.inputs)?,
            outputs: shapes("output", &module.outputs)?,
            scratch,
            symbols,
            launches,
        })
    }

    /// A module at some sizes, which must be those of the function that it computes.
    ///
    /// # Errors
    /// As [`Bound::new`], or when the two differ.
    pub fn of(module: &Module, f: &Function, sizes: &Sizes) -> Result<Bound> {
        let bound = Bound::new(module, sizes)?;
        let inputs: Vec<_> = f.inputs.iter().map(|i| &i.ty).collect();
        let outputs: Vec<_> = f.output_values().map(|v| f.ty(v)).collect();
        for (what, have, tys) in
            [("inputs", &bound.inputs, inputs), ("outputs", &bound.outputs, outputs)]
        {
            if have.len() != tys.len() {
                bail!("{} {what}, but @{} has {}", have.len(), f.name, tys.len());
            }
            for (i, (have, ty)) in have.iter().zip(tys).enumerate() {
                let wanted = Shape { dtype: ty.dtype, dims: sizes.eval_all(&ty.dims)? };
                if *have != wanted {
                    let (have, wanted) = (text(have), text(&wanted));
                    bail!("{what}[{i}] is {have}, but that of @{} is {wanted}", f.name);
                }
            }
        }
        Ok(bound)
    }

    /// Bytes of all inputs and outputs, each once.
    ///
    /// # Errors
    /// When they are more than any device holds.
    pub fn traffic(&self) -> Result<u64> {
        self.inputs.iter().chain(&self.outputs).try_fold(0, |n, s| Ok(n + bytes(s)?))
    }

    /// The parameters of launch `index` in order: an address for each pointer, then the symbols.
    ///
    /// # Errors
    /// When there is no such launch or buffer.
    pub fn pack<B>(
        &self,
        index: usize,
        set: &Set<B>,
        address: &dyn Fn(&B) -> u64,
    ) -> Result<Vec<Word>> {
        let launch = self.launches.get(index).ok_or_else(|| anyhow!("no launch {index}"))?;
        let pointers = launch.arguments.iter().map(|a| {
            let (list, i) = match *a {
                Argument::Input(i) => (&set.inputs, i),
                Argument::Output(i) => (&set.outputs, i),
                Argument::Scratch(i) => (&set.scratch, i),
            };
            let buffer = list.get(i as usize).ok_or_else(|| anyhow!("no buffer for {a:?}"))?;
            Ok(Word::Pointer(address(buffer)))
        });
        pointers.chain(self.symbols.iter().map(|s| Ok(Word::Int(*s)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> Module {
        let operand = |dtype: &str, dims: &[&str]| Operand {
            dtype: dtype.to_string(),
            dims: dims.iter().map(ToString::to_string).collect(),
        };
        Module {
            name: "m".to_string(),
            targets: vec![],
            symbols: vec!["docs".to_string(), "T".to_string()],
            inputs: vec![
                operand("bf16", &["2*T", "gate: 64 + up: 32"]),
                operand("i32", &["docs + 1"]),
            ],
            outputs: vec![operand("f32", &[])],
            scratch: vec![Size::of(24, "T", 16)],
            launches: vec![
                Launch {
                    symbol: "m".to_string(),
                    grid: [Size::constant(3), Size::of(1, "2*T", 16), Size::constant(1)],
                    block: 64,
                    shared_bytes: 0,
                    arguments: vec![Argument::Scratch(0), Argument::Input(1), Argument::Input(0)],
                },
                Launch {
                    symbol: "sum".to_string(),
                    grid: [Size::constant(1), Size::constant(1), Size::constant(1)],
                    block: 32,
                    shared_bytes: 0,
                    arguments: vec![Argument::Scratch(0), Argument::Output(0)],
                },
            ],
        }
    }

    fn sizes(t: usize, docs: usize) -> Sizes {
        let mut s = Sizes::default();
        s.set(&Symbol::new("T"), t);
        s.set(&Symbol::new("docs"), docs);
        s
    }

    #[test]
    fn a_module_is_bound() {
        let b = Bound::new(&module(), &sizes(17, 3)).expect("bound");
        assert_eq!(b.inputs[0], Shape { dtype: DType::Bf16, dims: vec![34, 96] });
        assert_eq!(b.inputs[1], Shape { dtype: DType::I32, dims: vec![4] });
        assert_eq!(b.launches[0].grid, [3, 3, 1]);
        assert_eq!(b.scratch, [48]);
        assert_eq!(b.traffic().expect("small"), 34 * 96 * 2 + 16 + 4);
    }

    #[test]
    fn parameters_are_pointers_then_symbols() {
        let b = Bound::new(&module(), &sizes(17, 3)).expect("bound");
        let set = Set { inputs: vec![10, 11], outputs: vec![20], scratch: vec![30] };
        let address = |b: &u64| *b;
        let p = Word::Pointer;
        let tail = [Word::Int(3), Word::Int(17)];
        let words = b.pack(0, &set, &address).expect("packed");
        assert_eq!(words, [p(30), p(11), p(10), tail[0], tail[1]]);
        let words = b.pack(1, &set, &address).expect("packed");
        assert_eq!(words, [p(30), p(20), tail[0], tail[1]]);
        assert!(b.pack(2, &set, &address).is_err());
        let short = Set { inputs: vec![], outputs: vec![20], scratch: vec![30] };
        assert!(b.pack(0, &short, &address).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = |m: &Module, s: &Sizes| format!("{:#}", Bound::new(m, s).expect_err("refused"));
        let mut few = Sizes::default();
        few.set(&Symbol::new("T"), 4);
        assert_eq!(error(&module(), &few), "the symbol docs has no value");
        assert_eq!(
            error(&module(), &sizes(1 << 20, 1)),
            "launch `m`: 131072 blocks by y, at most 65535 can be launched"
        );
        let mut m = module();
        m.inputs[1].dims[0] = "T +".to_string();
        assert!(error(&m, &sizes(4, 1)).starts_with("input 1: the dim `T +`: "));
        m.inputs[1].dims[0] = "T T".to_string();
        assert_eq!(error(&m, &sizes(4, 1)), "input 1: the dim `T T` goes on after its end");
        m.inputs[1].dims[0] = "T*T*T*T*T*T".to_string();
        assert!(error(&m, &sizes(1000, 1)).contains("is too large"));
    }
}
