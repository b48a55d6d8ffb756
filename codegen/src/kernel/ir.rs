//! Kernel IR: what one thread does, in static single assignment with structured control.
//!
//! A launch is a grid of blocks; a block is `teams` teams of `warps` warps. A value is *uniform*, the
//! same for all lanes of a team, or *varying*. On a GPU each lane is a thread and holds one element
//! of a varying value; on the host a team is one vector, and a block is a call. There is no memory
//! but the buffers, and the only exchange between lanes is a reduction.

use vlmc_ir::ty::DType;

/// A value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Reg(pub(crate) u32);

/// The node of the body that something is computed for, if it has a place in the spec.
pub(crate) type Line = Option<u32>;

/// Type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Ty {
    F32,
    I32,
    I64,
    Bool,
}

impl Ty {
    /// One element of it in MLIR.
    pub(crate) fn mlir(self) -> &'static str {
        match self {
            Ty::F32 => "f32",
            Ty::I32 => "i32",
            Ty::I64 => "i64",
            Ty::Bool => "i1",
        }
    }
}

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Kind {
    pub(crate) ty: Ty,
    pub(crate) varying: bool,
}

/// Coordinates of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Special {
    /// Number of the lane in its team.
    Lane,
    /// Number of the team in its block.
    Team,
    BlockX,
    BlockY,
    /// A size, by its index among the kernel's symbols.
    Symbol(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Unary {
    Neg,
    /// `2^x`
    Exp2,
    /// Natural.
    Log,
    Sqrt,
    Rsqrt,
    Recip,
    /// To the nearest whole number.
    Rint,
    /// Of at most half a turn.
    Sin,
    Cos,
    Not,
    /// Rounds to the nearest bf16.
    Round,
    ToF32,
    ToI32,
    ToI64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    /// Toward minus infinity on integers, 0 by 0.
    Div,
    Rem,
    /// Of numbers that are not negative.
    Quotient,
    Remainder,
    Max,
    Min,
    And,
    Or,
    Shr,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Which elements of a buffer: from `uniform + lane + constant` on, `count` neighbours a lane.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Place {
    /// Index among the launch's buffers.
    pub(crate) buffer: usize,
    pub(crate) dtype: DType,
    /// `i64`, uniform.
    pub(crate) uniform: Option<Reg>,
    /// `i32`, varying.
    pub(crate) lane: Option<Reg>,
    pub(crate) constant: i64,
    /// Elements a lane.
    pub(crate) count: usize,
    /// Bytes that the address is a multiple of.
    pub(crate) align: u64,
    /// Whether lane `n + 1` follows lane `n` in memory.
    pub(crate) dense: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fold {
    Sum,
    Max,
}

/// A constant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    Float(f64),
    /// Also for truth: 0 or 1.
    Whole(i64),
}

/// One instruction. Results stand first.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Inst {
    Const(Reg, Number),
    Special(Reg, Special),
    Unary(Reg, Unary, Reg),
    Binary(Reg, Binary, Reg, Reg),
    /// `a * b + c`, rounded once.
    Fma(Reg, Reg, Reg, Reg),
    Compare(Reg, Cmp, Reg, Reg),
    Select(Reg, Reg, Reg, Reg),
    /// The same value in every lane.
    Splat(Reg, Reg),
    Load(Vec<Reg>, Place),
    /// Only lanes where the mask holds.
    Store(Vec<Reg>, Place, Option<Reg>),
    /// Over the lanes of a team; every lane gets the result.
    Reduce(Vec<Reg>, Fold, Vec<Reg>),
    /// Lane by lane over the teams of a block, in their order; every team gets the result.
    Teams(Vec<Reg>, Vec<Reg>),
    /// Starts of documents and valid rows of the 64 rows from `base` on, as bits.
    Documents {
        starts: Reg,
        valid: Reg,
        base: Reg,
        cu: usize,
        padded: usize,
        count: Reg,
    },
    /// A copy of this lane's elements into a slot of its own on the chip; zeros where the condition
    /// does not hold.
    Fetch(Place, Option<Reg>, Slot),
    /// Closes a group of fetches.
    Commit,
    /// Waits until at most this many groups are under way.
    Wait(usize),
    /// Reads a slot.
    Fetched(Vec<Reg>, DType, Slot),
    For {
        results: Vec<Reg>,
        var: Reg,
        lo: Reg,
        hi: Reg,
        step: i64,
        carried: Vec<Reg>,
        init: Vec<Reg>,
        body: Vec<Inst>,
        yields: Vec<Reg>,
    },
    If {
        results: Vec<Reg>,
        condition: Reg,
        then: Vec<Inst>,
        yields: Vec<Reg>,
        otherwise: Vec<Inst>,
        other: Vec<Reg>,
    },
}

/// A lane's own place on the chip: byte `stage * group + offset` of the lane's part, where slots are
/// interleaved so that neighbouring lanes lie side by side.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slot {
    /// The stage of the ring, uniform.
    pub(crate) stage: Reg,
    /// Bytes a lane of the slots before it in its stage.
    pub(crate) before: usize,
    /// Bytes a lane of a whole stage.
    pub(crate) group: usize,
    /// Bytes a lane of this slot.
    pub(crate) bytes: usize,
}

/// A launch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Launch {
    pub(crate) name: String,
    /// Element types of the buffers.
    pub(crate) buffers: Vec<DType>,
    /// Symbols, passed as `i32` after the buffers.
    pub(crate) symbols: usize,
    /// Lanes of a warp: the elements of a vector on the host.
    pub(crate) lanes: usize,
    /// Warps of a team.
    pub(crate) warps: usize,
    pub(crate) teams: usize,
    /// Blocks that fit a multiprocessor at least; 0 for no wish.
    pub(crate) resident: usize,
    /// Stages of the ring, and bytes a lane of each.
    pub(crate) ring: (usize, usize),
    pub(crate) kinds: Vec<Kind>,
    /// For each value what it is computed for.
    pub(crate) lines: Vec<Line>,
    pub(crate) body: Vec<Inst>,
}

impl Launch {
    /// What an instruction is there for: its result's, or that of what it stores.
    pub(crate) fn line(&self, i: &Inst) -> Line {
        let r = match i {
            Inst::Const(r, _)
            | Inst::Special(r, _)
            | Inst::Unary(r, ..)
            | Inst::Binary(r, ..)
            | Inst::Fma(r, ..)
            | Inst::Compare(r, ..)
            | Inst::Select(r, ..)
            | Inst::Splat(r, _) => Some(r),
            Inst::Load(rs, _)
            | Inst::Store(rs, ..)
            | Inst::Reduce(rs, ..)
            | Inst::Teams(rs, _)
            | Inst::Fetched(rs, ..) => rs.first(),
            Inst::Documents { .. }
            | Inst::Fetch(..)
            | Inst::Commit
            | Inst::Wait(_)
            | Inst::For { .. }
            | Inst::If { .. } => None,
        };
        *self.lines.get(r?.0 as usize)?
    }
}
