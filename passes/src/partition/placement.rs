//! Which parts of a model are on which pipeline rank and chunk.
//!
//! A rank `p` of `P` holds `V` chunks `v`; walking them in the order `g = v * P + p` walks the
//! model from its first layer to its last (interleaved placement). [`place`] is the one function
//! from a grid and a split to the contents of every chunk. Nothing else computes an offset, and
//! nothing reads a rank "of its own".

use super::letters;
use std::fmt;
use std::ops::Range;

pub use super::letters::LettersError;

/// Chunks at most: schedules list their steps one by one.
pub const MAX_CHUNKS: u64 = 1 << 16;

/// A part of a model. Chunks hold their parts in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Content {
    /// The vision tower with its merger, at full depth.
    Vision,
    /// The token embedding. A chunk with MTP holds a replica.
    Embed,
    /// The decoder layer of this number, from 0 over the whole model.
    Layer(u32),
    /// The norm after the last decoder layer.
    FinalNorm,
    /// The multi-token prediction module of this depth, from 0.
    Mtp(u32),
    /// The projection to the vocabulary.
    LmHead,
    /// The losses.
    Loss,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Vision => f.write_str("vision"),
            Content::Embed => f.write_str("embed"),
            Content::Layer(i) => write!(f, "layer:{i}"),
            Content::FinalNorm => f.write_str("final_norm"),
            Content::Mtp(i) => write!(f, "mtp:{i}"),
            Content::LmHead => f.write_str("lm_head"),
            Content::Loss => f.write_str("loss"),
        }
    }
}

/// What placement must know of a model.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    /// The kind of each decoder layer, as in `gdn` and `attn`.
    pub layers: Vec<String>,
    /// Whether there is a vision tower.
    pub vision: bool,
    /// Multi-token prediction modules.
    pub mtp: u32,
    /// Whether the head uses the weight of the embedding.
    pub tied: bool,
}

impl Model {
    /// The name of a part as in `plan.json`: a layer's has its kind, `layer:3:attn`.
    pub fn name(&self, content: Content) -> String {
        match content {
            Content::Layer(i) => match self.layers.get(i as usize) {
                Some(kind) => format!("{content}:{kind}"),
                None => content.to_string(),
            },
            _ => content.to_string(),
        }
    }

    /// The number of decoder layers.
    pub fn depth(&self) -> u64 {
        self.layers.len() as u64
    }
}

/// Pipeline ranks and the chunks on each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Grid {
    /// Pipeline ranks, `P`.
    pub pp: u32,
    /// Chunks of a rank, `V`.
    pub vpp: u32,
}

impl Grid {
    /// All chunks, `P * V`.
    pub fn chunks(self) -> u64 {
        u64::from(self.pp) * u64::from(self.vpp)
    }

    /// The index `g = v * P + p` of a chunk in the order of the model.
    pub fn index(self, p: u32, v: u32) -> usize {
        v as usize * self.pp as usize + p as usize
    }

    /// Rank and chunk `(p, v)` of an index.
    pub fn cell(self, g: usize) -> (u32, u32) {
        let pp = self.pp.max(1) as usize;
        ((g % pp) as u32, (g / pp) as u32)
    }
}

/// How decoder layers are divided among chunks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Split {
    /// Equally many for each chunk. The embedding counts as a layer of the first chunk, the loss as
    /// one of the last, where asked for.
    Even {
        /// Count the embedding.
        embedding: bool,
        /// Count the loss.
        loss: bool,
    },
    /// So many for the first and the last rank, over all of its chunks; the others share the rest.
    Uneven {
        /// Layers of the first rank.
        first: Option<u32>,
        /// Layers of the last rank.
        last: Option<u32>,
    },
    /// Written out, as in `Et*3|t*3|t*3|tmL`; see [`letters`].
    Letters(String),
}

/// A part of the model that one rank runs at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chunk {
    /// The pipeline rank.
    pub pp: u32,
    /// Which of the rank's chunks.
    pub vp: u32,
    /// What it holds, in the order in which it runs. An empty chunk passes on what it receives.
    pub contents: Vec<Content>,
}

impl Chunk {
    /// Whether it holds a part.
    pub fn holds(&self, content: Content) -> bool {
        self.contents.contains(&content)
    }

    /// Its decoder layers, which are in a row.
    pub fn layers(&self) -> Range<u32> {
        let mut layers = self.contents.iter().filter_map(|c| match c {
            Content::Layer(i) => Some(*i),
            _ => None,
        });
        match layers.next() {
            Some(first) => first..layers.next_back().unwrap_or(first) + 1,
            None => 0..0,
        }
    }

    /// Whether it holds a multi-token prediction module.
    pub fn has_mtp(&self) -> bool {
        self.contents.iter().any(|c| matches!(c, Content::Mtp(_)))
    }

    /// What of a batch it reads. Positions and boundaries of documents go to every chunk, since
    /// they depend on the data; pictures only to the tower, labels only to losses and MTP.
    pub fn inputs(&self) -> Vec<&'static str> {
        let (vision, embed) = (self.holds(Content::Vision), self.holds(Content::Embed));
        let labels = self.holds(Content::Loss) || self.has_mtp();
        [
            ("tokens", embed),
            ("pixels", vision),
            ("grid", vision),
            ("positions", true),
            ("sequence", true),
            ("labels", labels),
        ]
        .into_iter()
        .filter_map(|(name, reads)| reads.then_some(name))
        .collect()
    }
}

/// Every chunk with its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Ranks and chunks.
    pub grid: Grid,
    /// Chunks in the order of the model: by `g = v * P + p`.
    pub chunks: Vec<Chunk>,
}

impl Placement {
    /// The index of the first chunk that holds a part; that of the embedding is 0, replicas come
    /// after it.
    pub fn chunk_of(&self, content: &Content) -> Option<usize> {
        self.chunks.iter().position(|c| c.contents.contains(content))
    }

    /// The chunk of rank `p` and stage `v`.
    pub fn chunk(&self, p: u32, v: u32) -> Option<&Chunk> {
        if p >= self.grid.pp || v >= self.grid.vpp {
            return None;
        }
        self.chunks.get(self.grid.index(p, v))
    }

    /// Whether MTP is on a rank other than the last, so that what later chunks receive is longer.
    pub fn mtp_standalone(&self) -> bool {
        self.chunks.iter().any(|c| c.has_mtp() && c.pp + 1 != self.grid.pp)
    }

    /// Ranks with a copy of the embedding's weight, increasing: they sum its gradient. A last rank
    /// with only the head is one of them when the head is tied.
    pub fn embedding_group(&self, model: &Model) -> Vec<u32> {
        let copy = |c: &&Chunk| c.holds(Content::Embed) || (model.tied && c.holds(Content::LmHead));
        let mut ranks: Vec<u32> = self.chunks.iter().filter(copy).map(|c| c.pp).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

/// Why a model does not fit a layout. The numbers are those that make it so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// No ranks, or no chunks.
    #[error("pp {pp} x vpp {vpp} has no chunks")]
    NoChunks {
        /// Pipeline ranks.
        pp: u32,
        /// Chunks of a rank.
        vpp: u32,
    },
    /// More than [`MAX_CHUNKS`].
    #[error("pp {pp} x vpp {vpp} are {} chunks, more than {MAX_CHUNKS}", u64::from(*pp) * u64::from(*vpp))]
    TooManyChunks {
        /// Pipeline ranks.
        pp: u32,
        /// Chunks of a rank.
        vpp: u32,
    },
    /// Interleaving needs another rank to interleave with.
    #[error("one pipeline rank cannot interleave {vpp} chunks")]
    OneRank {
        /// Chunks of the rank.
        vpp: u32,
    },
    /// An even split leaves a rest.
    #[error("{total} layers do not fill pp {pp} x vpp {vpp} evenly", total = layers + counted)]
    NotDivisible {
        /// Decoder layers.
        layers: u64,
        /// The embedding and the loss, where they count as layers.
        counted: u64,
        /// Pipeline ranks.
        pp: u32,
        /// Chunks of a rank.
        vpp: u32,
    },
    /// A first or last rank of no layers.
    #[error("the {which} rank cannot have 0 layers")]
    NoLayers {
        /// `first` or `last`.
        which: &'static str,
    },
    /// The first and last rank take more layers than there are.
    #[error("{first} and {last} layers are more than {layers}")]
    TooManyLayers {
        /// Of the first rank.
        first: u64,
        /// Of the last rank.
        last: u64,
        /// Of the model.
        layers: u64,
    },
    /// The layers between do not fit the ranks between: none of one of them, or a rest.
    #[error("{layers} layers do not fill {ranks} ranks evenly")]
    Middle {
        /// Layers left for the ranks between.
        layers: u64,
        /// Ranks between; negative when the first and the last rank are one.
        ranks: i64,
    },
    /// The layers of a rank do not fill its chunks.
    #[error("{layers} layers of {which} do not fill {vpp} chunks evenly")]
    Chunks {
        /// `the first rank`, `the last rank` or `a rank between`.
        which: &'static str,
        /// Its layers.
        layers: u64,
        /// Chunks of a rank.
        vpp: u32,
    },
    /// The layout is written wrongly, or does not fit the model.
    #[error(transparent)]
    Letters(#[from] LettersError),
}

/// Places a model on a grid.
///
/// The vision tower and the embedding are in the first chunk, head and losses in the last; MTP is
/// in the last too unless the layout writes it elsewhere, and has a replica of the embedding with
/// it. The final norm is in the last chunk, or, with MTP, where the last decoder layer is, since
/// MTP starts from there. The rules are those of Megatron-LM's pipeline layouts.
///
/// # Errors
/// See [`LayoutError`].
pub fn place(model: &Model, grid: Grid, split: &Split) -> Result<Placement, LayoutError> {
    let Grid { pp, vpp } = grid;
    if pp == 0 || vpp == 0 {
        return Err(LayoutError::NoChunks { pp, vpp });
    }
    if grid.chunks() > MAX_CHUNKS {
        return Err(LayoutError::TooManyChunks { pp, vpp });
    }
    if pp == 1 && vpp > 1 {
        return Err(LayoutError::OneRank { vpp });
    }
    let last = grid.chunks() as usize - 1;
    let (counts, mtp) = match split {
        Split::Even { embedding, loss } => {
            (even(model.depth(), grid, u64::from(*embedding), u64::from(*loss))?, last)
        }
        Split::Uneven { first, last: z } => (uneven(model.depth(), grid, *first, *z)?, last),
        Split::Letters(text) => {
            let cells = letters::read(text, model, grid)?;
            (cells.layers, cells.mtp.unwrap_or(last))
        }
    };
    Ok(fill(model, grid, &counts, mtp))
}

/// Layers of each chunk, equally many: `k = (L + a + b) / (P V)`, less what else counts as one.
fn even(layers: u64, grid: Grid, a: u64, b: u64) -> Result<Vec<u64>, LayoutError> {
    let Grid { pp, vpp } = grid;
    let total = layers + a + b;
    if !total.is_multiple_of(grid.chunks()) {
        return Err(LayoutError::NotDivisible { layers, counted: a + b, pp, vpp });
    }
    let mut counts = vec![total / grid.chunks(); grid.chunks() as usize];
    // Where something counts, the total is not 0 and so each chunk has one to give.
    if let Some(first) = counts.first_mut() {
        *first -= a;
    }
    if let Some(last) = counts.last_mut() {
        *last -= b;
    }
    Ok(counts)
}

/// Layers of each chunk when the first and the last rank have numbers of their own.
fn uneven(
    layers: u64,
    grid: Grid,
    first: Option<u32>,
    last: Option<u32>,
) -> Result<Vec<u64>, LayoutError> {
    let vpp = u64::from(grid.vpp);
    for (which, n) in [("first", first), ("last", last)] {
        if n == Some(0) {
            return Err(LayoutError::NoLayers { which });
        }
    }
    let (f, z) = (first.map_or(0, u64::from), last.map_or(0, u64::from));
    let Some(between) = layers.checked_sub(f + z) else {
        return Err(LayoutError::TooManyLayers { first: f, last: z, layers });
    };
    let ranks = i64::from(grid.pp) - i64::from(first.is_some()) - i64::from(last.is_some());
    let middle = match u64::try_from(ranks) {
        Ok(0) if between == 0 => 0,
        Ok(n) if n > 0 && between > 0 && between.is_multiple_of(n) => between / n,
        _ => return Err(LayoutError::Middle { layers: between, ranks }),
    };
    for (which, n) in [("the first rank", f), ("the last rank", z), ("a rank between", middle)] {
        if !n.is_multiple_of(vpp) {
            return Err(LayoutError::Chunks { which, layers: n, vpp: grid.vpp });
        }
    }
    let of = |p: u32| match (first, last) {
        (Some(_), _) if p == 0 => f / vpp,
        (_, Some(_)) if p + 1 == grid.pp => z / vpp,
        _ => middle / vpp,
    };
    Ok((0..grid.vpp).flat_map(|_| (0..grid.pp).map(of)).collect())
}

/// Hands out layers in the order of the chunks, then puts the other parts where they belong.
fn fill(model: &Model, grid: Grid, counts: &[u64], mtp: usize) -> Placement {
    let end = counts.len().saturating_sub(1);
    let mut next = 0u32;
    let mut chunks: Vec<Chunk> = counts
        .iter()
        .enumerate()
        .map(|(g, n)| {
            let (pp, vp) = grid.cell(g);
            let layers = next..next + *n as u32;
            next = layers.end;
            Chunk { pp, vp, contents: layers.map(Content::Layer).collect() }
        })
        .collect();
    let with_mtp = model.mtp > 0;
    let norm = match chunks.iter().rposition(|c| !c.contents.is_empty()) {
        Some(g) if with_mtp => g,
        _ => end,
    };
    for (g, chunk) in chunks.iter_mut().enumerate() {
        let more = [
            (Content::Vision, g == 0 && model.vision),
            (Content::Embed, g == 0 || (with_mtp && g == mtp)),
            (Content::FinalNorm, g == norm),
            (Content::LmHead, g == end),
            (Content::Loss, g == end),
        ];
        chunk.contents.extend(more.into_iter().filter_map(|(c, here)| here.then_some(c)));
        if g == mtp {
            chunk.contents.extend((0..model.mtp).map(Content::Mtp));
        }
        chunk.contents.sort_unstable();
    }
    Placement { grid, chunks }
}
