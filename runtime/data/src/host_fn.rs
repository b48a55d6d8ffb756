//! Named functions that derive an input of the compiled program from a microbatch.
//!
//! The language refers to them by name; the compiler checks a call with [`HostFunction::bind`];
//! the executor calls [`HostFunction::evaluate`] once per microbatch and pads the result to the
//! compiled capacity with [`HostFunction::pad`].

use thiserror::Error;

use crate::batch::{Batch, BatchError};
use crate::pack::{ZigzagError, loss_mask, shift_within_documents, zigzag_indices};
use crate::tensor::{Dtype, HostData, HostTensor, TensorError};
use crate::vision::{
    PlaceholderTokens, VisionError, feature_index, frame_boundaries, position_taps, rotary_ids,
};
use crate::{IGNORED_LABEL, tensor::map_each};

/// An argument of a host function; all are whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the language.
    pub name: &'static str,
    /// Value where the call leaves it out; `None` if it must be given.
    pub default: Option<i64>,
    /// Least value.
    pub least: i64,
}

/// What stands in the rows between the microbatch's size and the compiled capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zero, or false.
    Zero,
    /// This value; only for I64.
    Value(i64),
    /// The last entry again; only for one dim. Boundaries, so that the rest are empty segments.
    Last,
    /// One more than the last entry; only for one dim of I32. Rows that no document owns.
    Next,
}

/// What a context-parallel rank gets of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All of it.
    Whole,
    /// Its rows ([`zigzag_indices`]) along this dim, the one that counts tokens.
    Rows(usize),
    /// Of cumulative counts of valid tokens: those of its rows.
    Valid,
    /// Of cumulative counts of rows: those of its rows.
    Padded,
    /// For each row of the pack, where it is when the rows of all ranks stand one after the other.
    Order,
    /// For each place in that order, the row of the pack.
    Places,
}

type Evaluate = fn(&[i64], &Batch) -> Result<HostTensor, HostFnError>;

/// A host function.
#[derive(Clone, Copy, Debug)]
pub struct HostFunction {
    /// Name in the language.
    pub name: &'static str,
    /// What it gives.
    pub doc: &'static str,
    /// Arguments in order.
    pub params: &'static [Param],
    /// Element type of the result.
    pub dtype: Dtype,
    /// Dims of the result: a number, a symbol of [`DIMS`], a symbol + 1, or an argument's name.
    pub dims: &'static [&'static str],
    /// What fills the capacity.
    pub fill: Fill,
    /// What a context-parallel rank gets.
    pub cut: Cut,
    evaluate: Evaluate,
}

/// Symbols in [`HostFunction::dims`] and what they count.
pub const DIMS: &[(&str, &str)] = &[
    ("tokens", "rows of the pack that a rank has"),
    ("pack", "rows of the pack"),
    ("docs", "documents of the pack"),
    ("patches", "patches of all pictures"),
    ("frames", "frame groups of all pictures; an image is one"),
];

/// Why a host function could not be called.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum HostFnError {
    #[error("there is no host function `{name}`, known are {}", names())]
    Unknown { name: String },
    #[error("`{function}` has no argument `{argument}`, it has {known}")]
    UnknownArgument { function: &'static str, argument: String, known: String },
    #[error("`{function}` is given `{argument}` twice")]
    Twice { function: &'static str, argument: &'static str },
    #[error("`{function}` needs the argument `{argument}`")]
    MissingArgument { function: &'static str, argument: &'static str },
    #[error("`{argument}` of `{function}` is {value}, it must be at least {least}")]
    Value { function: &'static str, argument: &'static str, value: i64, least: i64 },
    #[error("`{function}` takes {expected} arguments, {given} were given")]
    Count { function: &'static str, expected: usize, given: usize },
    #[error("`{function}` gives {shape:?}, the program has room for {capacity:?}")]
    Capacity { function: &'static str, shape: Vec<usize>, capacity: Vec<usize> },
    #[error(transparent)]
    Zigzag(#[from] ZigzagError),
    #[error("`{function}`: {error}")]
    Batch { function: &'static str, error: BatchError },
    #[error(transparent)]
    Data(#[from] BatchError),
}

impl From<VisionError> for HostFnError {
    fn from(error: VisionError) -> HostFnError {
        HostFnError::Data(error.into())
    }
}

impl From<TensorError> for HostFnError {
    fn from(error: TensorError) -> HostFnError {
        HostFnError::Data(error.into())
    }
}

fn names() -> String {
    HOST_FUNCTIONS.iter().map(|function| function.name).collect::<Vec<_>>().join(", ")
}

const MERGE: Param = Param { name: "merge", default: Some(2), least: 1 };
const SIDE: Param = Param { name: "side", default: None, least: 1 };
const BY: Param = Param { name: "by", default: Some(1), least: 0 };
const WIDTH: Param = Param { name: "width", default: None, least: 1 };
const IMAGE: Param = Param { name: "image_token", default: None, least: 0 };
const VIDEO: Param = Param { name: "video_token", default: None, least: 0 };
/// An id of -1 stands for "not given".
const MAYBE_IMAGE: Param = Param { name: "image_token", default: Some(-1), least: -1 };
const MAYBE_VIDEO: Param = Param { name: "video_token", default: Some(-1), least: -1 };

/// All host functions.
pub static HOST_FUNCTIONS: &[HostFunction] = &[
    HostFunction {
        name: "input_ids",
        doc: "token ids; 0 in rows that fill the capacity",
        params: &[],
        dtype: Dtype::I64,
        dims: &["tokens"],
        fill: Fill::Zero,
        cut: Cut::Rows(0),
        evaluate: |_, batch| Ok(vector(batch.input_ids.clone())),
    },
    HostFunction {
        name: "next_ids",
        doc: "token id `by` rows ahead in the same document; 0 past its last token",
        params: &[BY],
        dtype: Dtype::I64,
        dims: &["tokens"],
        fill: Fill::Zero,
        cut: Cut::Rows(0),
        evaluate: |args, batch| {
            let by = size(args[0]);
            Ok(vector(shift_within_documents(&batch.input_ids, &batch.layout, by, 0)))
        },
    },
    HostFunction {
        name: "next_labels",
        doc: "label `by` rows ahead in the same document; -100 past its last token and in padding",
        params: &[BY],
        dtype: Dtype::I64,
        dims: &["tokens"],
        fill: Fill::Value(IGNORED_LABEL),
        cut: Cut::Rows(0),
        evaluate: |args, batch| Ok(vector(labels_ahead(batch, args[0]))),
    },
    HostFunction {
        name: "target_count",
        doc: "how many rows have a label `by` rows ahead: the count that divides the loss",
        params: &[BY],
        dtype: Dtype::I64,
        dims: &[],
        fill: Fill::Zero,
        cut: Cut::Whole,
        evaluate: |args, batch| {
            let mask = loss_mask(&labels_ahead(batch, args[0]));
            let count = mask.into_iter().filter(|&counts| counts).count() as i64;
            Ok(HostTensor::new(vec![], HostData::I64(vec![count]))?)
        },
    },
    HostFunction {
        name: "cu_seqlens",
        doc: "cumulative counts of real tokens of the documents",
        params: &[],
        dtype: Dtype::I32,
        dims: &["docs + 1"],
        fill: Fill::Last,
        cut: Cut::Valid,
        evaluate: |_, batch| Ok(boundaries(batch.layout.cu_seqlens())),
    },
    HostFunction {
        name: "cu_seqlens_padded",
        doc: "cumulative counts of rows of the documents",
        params: &[],
        dtype: Dtype::I32,
        dims: &["docs + 1"],
        fill: Fill::Last,
        cut: Cut::Padded,
        evaluate: |_, batch| Ok(boundaries(batch.layout.cu_seqlens_padded())),
    },
    HostFunction {
        name: "seq_idx",
        doc: "number of the document that owns each row; one above all of them in rows without owner",
        params: &[],
        dtype: Dtype::I32,
        dims: &["tokens"],
        fill: Fill::Next,
        cut: Cut::Rows(0),
        evaluate: |_, batch| {
            Ok(HostTensor::vector(HostData::I32(batch.layout.seq_idx(batch.tokens()))))
        },
    },
    HostFunction {
        name: "row_valid",
        doc: "whether a row holds a real token",
        params: &[],
        dtype: Dtype::BOOL,
        dims: &["tokens"],
        fill: Fill::Zero,
        cut: Cut::Rows(0),
        evaluate: |_, batch| {
            Ok(HostTensor::vector(HostData::Bool(batch.layout.row_valid(batch.tokens()))))
        },
    },
    HostFunction {
        name: "mrope_positions",
        doc: "time, height and width position of each row, restarting in each document; the \
              file's `position_ids` if it brings them",
        params: &[MERGE, MAYBE_IMAGE, MAYBE_VIDEO],
        dtype: Dtype::I64,
        dims: &["3", "tokens"],
        fill: Fill::Zero,
        cut: Cut::Rows(1),
        evaluate: |args, batch| {
            let ids = match &batch.position_ids {
                Some(ids) => ids.clone(),
                None => {
                    let tokens = PlaceholderTokens { image: args[1], video: args[2] };
                    let given = (tokens.image >= 0 || tokens.video >= 0).then_some(tokens);
                    batch.build_positions(size(args[0]), given)?.ids
                }
            };
            Ok(HostTensor::new(vec![3, batch.tokens()], HostData::I64(ids))?)
        },
    },
    HostFunction {
        name: "pixel_rows",
        doc: "patch rows of all images, then all videos; `width` values each",
        params: &[WIDTH],
        dtype: Dtype::F32,
        dims: &["patches", "width"],
        fill: Fill::Zero,
        cut: Cut::Whole,
        evaluate: |args, batch| Ok(batch.pixel_rows(size(args[0]))?),
    },
    HostFunction {
        name: "vision_taps",
        doc: "the four rows of a `side` x `side` position table that each patch mixes",
        params: &[SIDE, MERGE],
        dtype: Dtype::I64,
        dims: &["patches", "4"],
        fill: Fill::Zero,
        cut: Cut::Whole,
        evaluate: |args, batch| {
            let taps = position_taps(&batch.grids(), size(args[0]), size(args[1]))?;
            Ok(HostTensor::new(vec![taps.rows.len() / 4, 4], HostData::I64(taps.rows))?)
        },
    },
    HostFunction {
        name: "vision_tap_weights",
        doc: "the weights of those four rows",
        params: &[SIDE, MERGE],
        dtype: Dtype::F32,
        dims: &["patches", "4"],
        fill: Fill::Zero,
        cut: Cut::Whole,
        evaluate: |args, batch| {
            let taps = position_taps(&batch.grids(), size(args[0]), size(args[1]))?;
            Ok(HostTensor::new(vec![taps.weights.len() / 4, 4], HostData::F32(taps.weights))?)
        },
    },
    HostFunction {
        name: "vision_rotary_ids",
        doc: "row and column of each patch in its frame",
        params: &[MERGE],
        dtype: Dtype::I64,
        dims: &["patches", "2"],
        fill: Fill::Zero,
        cut: Cut::Whole,
        evaluate: |args, batch| {
            let ids = rotary_ids(&batch.grids(), size(args[0]))?;
            Ok(HostTensor::new(vec![ids.len() / 2, 2], HostData::I64(ids))?)
        },
    },
    HostFunction {
        name: "vision_frames",
        doc: "cumulative patch counts of the frames",
        params: &[],
        dtype: Dtype::I32,
        dims: &["frames + 1"],
        fill: Fill::Last,
        cut: Cut::Whole,
        evaluate: |_, batch| {
            Ok(HostTensor::vector(HostData::I32(frame_boundaries(&batch.grids())?)))
        },
    },
    HostFunction {
        name: "feature_index",
        doc: "the merged feature row that overwrites each row's embedding, or -1; features are \
              those of the images, then those of the videos",
        params: &[IMAGE, VIDEO, MERGE],
        dtype: Dtype::I64,
        dims: &["tokens"],
        fill: Fill::Value(-1),
        cut: Cut::Rows(0),
        evaluate: |args, batch| {
            Ok(vector(feature_index(
                &batch.input_ids,
                batch.token_types.as_deref(),
                &batch.layout,
                (batch.image_grids(), batch.video_grids()),
                PlaceholderTokens { image: args[0], video: args[1] },
                size(args[2]),
            )?))
        },
    },
    HostFunction {
        name: "pack_cu_seqlens",
        doc: "cumulative counts of real tokens of the documents, on every context-parallel rank those of the pack",
        params: &[],
        dtype: Dtype::I32,
        dims: &["docs + 1"],
        fill: Fill::Last,
        cut: Cut::Whole,
        evaluate: |_, batch| Ok(boundaries(batch.layout.cu_seqlens())),
    },
    HostFunction {
        name: "pack_cu_seqlens_padded",
        doc: "cumulative counts of rows of the documents, on every context-parallel rank those of the pack",
        params: &[],
        dtype: Dtype::I32,
        dims: &["docs + 1"],
        fill: Fill::Last,
        cut: Cut::Whole,
        evaluate: |_, batch| Ok(boundaries(batch.layout.cu_seqlens_padded())),
    },
    HostFunction {
        name: "pack_rows",
        doc: "for each row of a context-parallel rank, its row in the pack",
        params: &[],
        dtype: Dtype::I64,
        dims: &["tokens"],
        fill: Fill::Zero,
        cut: Cut::Rows(0),
        evaluate: |_, batch| Ok(row_numbers(batch)),
    },
    HostFunction {
        name: "pack_order",
        doc: "for each row of the pack, its place when the rows of all context-parallel ranks stand one \
              after the other",
        params: &[],
        dtype: Dtype::I64,
        dims: &["pack"],
        fill: Fill::Zero,
        cut: Cut::Order,
        evaluate: |_, batch| Ok(row_numbers(batch)),
    },
    HostFunction {
        name: "pack_places",
        doc: "for each place in that order, the row of the pack",
        params: &[],
        dtype: Dtype::I64,
        dims: &["pack"],
        fill: Fill::Zero,
        cut: Cut::Places,
        evaluate: |_, batch| Ok(row_numbers(batch)),
    },
];

fn boundaries(cu: &[i32]) -> HostTensor {
    HostTensor::vector(HostData::I32(cu.to_vec()))
}

fn row_numbers(batch: &Batch) -> HostTensor {
    vector((0..batch.tokens() as i64).collect())
}

fn vector(values: Vec<i64>) -> HostTensor {
    HostTensor::vector(HostData::I64(values))
}

/// An argument whose `least` was checked to be 0 or more.
fn size(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

fn labels_ahead(batch: &Batch, by: i64) -> Vec<i64> {
    shift_within_documents(&batch.labels, &batch.layout, size(by), IGNORED_LABEL)
}

/// The host function called `name`.
///
/// # Errors
/// [`HostFnError::Unknown`], with all names.
pub fn find(name: &str) -> Result<&'static HostFunction, HostFnError> {
    HOST_FUNCTIONS
        .iter()
        .find(|function| function.name == name)
        .ok_or_else(|| HostFnError::Unknown { name: name.to_owned() })
}

/// Finds, binds and evaluates in one go.
///
/// # Errors
/// As [`find`], [`HostFunction::bind`] and [`HostFunction::evaluate`].
pub fn evaluate(
    name: &str,
    args: &[(&str, i64)],
    batch: &Batch,
) -> Result<HostTensor, HostFnError> {
    let function = find(name)?;
    function.evaluate(&function.bind(args)?, batch)
}

impl HostFunction {
    /// Puts named arguments in order and fills in defaults.
    ///
    /// # Errors
    /// If a name is unknown, given twice or missing, or a value is too small.
    pub fn bind(&self, args: &[(&str, i64)]) -> Result<Vec<i64>, HostFnError> {
        let function = self.name;
        let mut values: Vec<Option<i64>> = vec![None; self.params.len()];
        for &(name, value) in args {
            let Some(at) = self.params.iter().position(|param| param.name == name) else {
                let known: Vec<_> =
                    self.params.iter().map(|param| format!("`{}`", param.name)).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let argument = name.to_owned();
                return Err(HostFnError::UnknownArgument { function, argument, known });
            };
            if values[at].replace(value).is_some() {
                return Err(HostFnError::Twice { function, argument: self.params[at].name });
            }
        }
        let fill = |(param, value): (&Param, Option<i64>)| {
            let argument = param.name;
            value.or(param.default).ok_or(HostFnError::MissingArgument { function, argument })
        };
        let values: Vec<i64> =
            self.params.iter().zip(values).map(fill).collect::<Result<_, _>>()?;
        self.check(&values)?;
        Ok(values)
    }

    fn check(&self, args: &[i64]) -> Result<(), HostFnError> {
        let function = self.name;
        if args.len() != self.params.len() {
            let (expected, given) = (self.params.len(), args.len());
            return Err(HostFnError::Count { function, expected, given });
        }
        for (param, &value) in self.params.iter().zip(args) {
            if value < param.least {
                let (argument, least) = (param.name, param.least);
                return Err(HostFnError::Value { function, argument, value, least });
            }
        }
        Ok(())
    }

    /// Evaluates with arguments in order, as [`HostFunction::bind`] gives them. The result has
    /// the sizes of the microbatch.
    ///
    /// # Errors
    /// If the arguments are not as bound, or the microbatch contradicts itself.
    pub fn evaluate(&self, args: &[i64], batch: &Batch) -> Result<HostTensor, HostFnError> {
        self.check(args)?;
        (self.evaluate)(args, batch).map_err(|error| match error {
            HostFnError::Data(error) => HostFnError::Batch { function: self.name, error },
            error => error,
        })
    }

    /// Evaluates for one of `ranks` context-parallel ranks, of a microbatch that is enlarged to the
    /// compiled capacity.
    ///
    /// # Errors
    /// As [`HostFunction::evaluate`], and if the ranks do not divide a document.
    pub fn evaluate_share(
        &self,
        args: &[i64],
        batch: &Batch,
        ranks: usize,
        rank: usize,
    ) -> Result<HostTensor, HostFnError> {
        let all = self.evaluate(args, batch)?;
        let padded = batch.layout.cu_seqlens_padded();
        let rows = |rank: usize| zigzag_indices(padded, ranks, rank);
        match self.cut {
            Cut::Whole => Ok(all),
            Cut::Rows(dim) => Ok(all.select(dim, &rows(rank)?)?),
            Cut::Padded => {
                let share = |v: &i32| v / i32::try_from(ranks).unwrap_or(i32::MAX);
                Ok(HostTensor::vector(HostData::I32(padded.iter().map(share).collect())))
            }
            Cut::Valid => {
                let own = rows(rank)?;
                let valid = batch.layout.row_valid(batch.tokens());
                let mut cu = vec![0i32];
                for d in batch.layout.documents() {
                    let has = |row: &&usize| d.rows().contains(row) && valid[**row];
                    let count = own.iter().filter(has).count();
                    let before = cu.last().copied().unwrap_or(0);
                    cu.push(before.saturating_add(i32::try_from(count).unwrap_or(i32::MAX)));
                }
                cu.resize(padded.len(), cu.last().copied().unwrap_or(0));
                Ok(HostTensor::vector(HostData::I32(cu)))
            }
            Cut::Places | Cut::Order => {
                let mut places = vec![];
                for rank in 0..ranks {
                    places.extend(rows(rank)?.into_iter().map(|row| row as i64));
                }
                if self.cut == Cut::Order {
                    let mut order = vec![0; places.len()];
                    for (place, row) in places.iter().enumerate() {
                        order[size(*row)] = place as i64;
                    }
                    places = order;
                }
                Ok(vector(places))
            }
        }
    }

    /// Enlarges a result to the compiled `capacity`, dim by dim, with [`HostFunction::fill`].
    ///
    /// # Errors
    /// [`HostFnError::Capacity`] if the result is larger in any dim or has another rank.
    pub fn pad(&self, tensor: HostTensor, capacity: &[usize]) -> Result<HostTensor, HostFnError> {
        let fits = tensor.shape.len() == capacity.len()
            && tensor.shape.iter().zip(capacity).all(|(size, room)| size <= room);
        if !fits {
            let (shape, capacity) = (tensor.shape, capacity.to_vec());
            return Err(HostFnError::Capacity { function: self.name, shape, capacity });
        }
        let shape = tensor.shape;
        let data = match (tensor.data, self.fill) {
            (HostData::I64(values), Fill::Value(value)) => {
                HostData::I64(enlarge(&values, &shape, capacity, value))
            }
            (HostData::I32(values), Fill::Next) => {
                let next = values.last().map_or(0, |last| last.saturating_add(1));
                HostData::I32(enlarge(&values, &shape, capacity, next))
            }
            (data, Fill::Last) => map_each!(data, values => {
                let last = values.last().copied().unwrap_or_default();
                enlarge(&values, &shape, capacity, last)
            }),
            (data, _) => map_each!(data, values => {
                enlarge(&values, &shape, capacity, Default::default())
            }),
        };
        Ok(HostTensor::new(capacity.to_vec(), data)?)
    }
}

/// Copies the block `values` of `shape` into the low corner of a block of `capacity`.
fn enlarge<T: Copy>(values: &[T], shape: &[usize], capacity: &[usize], fill: T) -> Vec<T> {
    let (Some((&size, shape)), Some((&room, capacity))) =
        (shape.split_first(), capacity.split_first())
    else {
        return values.to_vec();
    };
    let inner = shape.iter().product::<usize>();
    let mut out = Vec::new();
    for at in 0..size {
        out.extend(enlarge(&values[at * inner..(at + 1) * inner], shape, capacity, fill));
    }
    out.resize(room * capacity.iter().product::<usize>(), fill);
    out
}
