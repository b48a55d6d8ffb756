//! Flags that say how large a step is and how it is spread over ranks.

use crate::Context;
use crate::ui::at_flag;
use vlmc::compile::Capacity;
use vlmc::layout::MOST_MICROBATCHES;
use vlmc::settings::{Merged, Source};
use vlmc_frontend::diag::{Code, Diag};

/// The layout.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct LayoutArgs {
    /// Pipeline ranks [default: 1]
    #[arg(long, value_name = "P")]
    pp: Option<usize>,
    /// Chunks of the model on each pipeline rank [default: 1]
    #[arg(long, value_name = "V")]
    vpp: Option<usize>,
    /// Context-parallel ranks [default: 1]
    #[arg(long, value_name = "C")]
    cp: Option<usize>,
    /// Data-parallel ranks [default: 1]
    #[arg(long, value_name = "D")]
    dp: Option<usize>,
    /// Expert-parallel ranks [default: 1]
    #[arg(long, value_name = "E")]
    ep: Option<usize>,
    /// Tensor-parallel ranks; only 1 [default: 1]
    #[arg(long, value_name = "T")]
    tp: Option<usize>,
    /// Decoder layers of the first pipeline rank, over all of its chunks [default: as the others]
    #[arg(long, value_name = "F")]
    first_layers: Option<usize>,
    /// Decoder layers of the last pipeline rank, over all of its chunks [default: as the others]
    #[arg(long, value_name = "Z")]
    last_layers: Option<usize>,
    /// Count the embedding as a layer of the first chunk [default: off]
    #[arg(long)]
    account_embedding: bool,
    /// Count the loss as a layer of the last chunk [default: off]
    #[arg(long)]
    account_loss: bool,
    /// Where layers go: even, auto, or letters such as "Et*3|(tt|)*2t*3mL" [default: even]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// Microbatches of a step [default: 2 * pp, or 1 on one pipeline rank]
    #[arg(long, value_name = "M")]
    microbatches: Option<usize>,
    /// Microbatches that a chunk takes before its rank turns to the next [default: pp]
    #[arg(long, value_name = "N")]
    group: Option<usize>,
    /// 1f1b, interleaved, gpipe, zb-h1 or combined-1f1b [default: interleaved where vpp > 1, else
    /// 1f1b]
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// Rows of a sequence [default: 4096]
    #[arg(long, value_name = "S")]
    seq: Option<usize>,
    /// Sequences of a microbatch [default: 1]
    #[arg(long, value_name = "B")]
    micro_batch: Option<usize>,
    /// Packs of documents instead of sequences; see --tokens and --max-docs [default: off]
    #[arg(long)]
    packed: bool,
    /// Rows of a pack [default: seq * micro-batch]
    #[arg(long, value_name = "T")]
    tokens: Option<usize>,
    /// Documents of a pack at most [default: micro-batch, or 16 when packed]
    #[arg(long, value_name = "N")]
    max_docs: Option<usize>,
    /// Patches of all pictures of a microbatch at most [default: tokens]
    #[arg(long, value_name = "N")]
    max_patches: Option<usize>,
    /// Frames of all pictures of a microbatch at most; an image is one [default: 16]
    #[arg(long, value_name = "N")]
    max_images: Option<usize>,
}

impl LayoutArgs {
    /// Merges the flags into the settings.
    pub fn merge(&self, merged: &mut Merged) {
        for (key, value) in [
            ("pp", self.pp),
            ("vpp", self.vpp),
            ("cp", self.cp),
            ("dp", self.dp),
            ("ep", self.ep),
            ("tp", self.tp),
            ("first-layers", self.first_layers),
            ("last-layers", self.last_layers),
            ("microbatches", self.microbatches),
            ("group", self.group),
            ("seq", self.seq),
            ("micro-batch", self.micro_batch),
            ("tokens", self.tokens),
            ("max-docs", self.max_docs),
            ("max-patches", self.max_patches),
            ("max-images", self.max_images),
        ] {
            if let Some(v) = value {
                let source = Source::Flag(format!("--{key}"));
                merged.set(&format!("layout.{key}"), v.to_string(), source);
            }
        }
        for (key, value) in [("layout", &self.layout), ("schedule", &self.schedule)] {
            if let Some(v) = value {
                merged.set(&format!("layout.{key}"), v, Source::Flag(format!("--{key}")));
            }
        }
        for (key, is) in [
            ("account-embedding", self.account_embedding),
            ("account-loss", self.account_loss),
            ("packed", self.packed),
        ] {
            if is {
                merged.set(&format!("layout.{key}"), "true", Source::Flag(format!("--{key}")));
            }
        }
    }
}

/// Capacities, and the rows that context parallelism divides.
pub struct Rows {
    /// Sizes that buffers are made for.
    pub of: Capacity,
    /// Rows of a sequence, or of a pack.
    pub divided: usize,
}

/// The capacities that the settings ask for.
///
/// # Errors
/// All that is wrong with them.
pub fn capacity(c: &Context) -> Result<Rows, Vec<Diag>> {
    let mut bad = vec![];
    let packed = c.merged.get("layout.packed") == Some("true");
    let mut get = |key: &str, default: usize| match number(c, key, default) {
        Ok(n) => n,
        Err(d) => {
            bad.push(*d);
            default
        }
    };
    let rows = get("seq", 4096);
    let batch = get("micro-batch", 1);
    let tokens = get("tokens", rows.saturating_mul(batch));
    let of = Capacity {
        tokens,
        docs: get("max-docs", if packed { 16 } else { batch }),
        patches: get("max-patches", tokens),
        frames: get("max-images", 16),
    };
    // Of flags that are in range each, the product may not be.
    if bad.is_empty() && tokens > MOST {
        let message = format!("{rows} rows times {batch} sequences are {tokens} tokens");
        bad.push(
            Diag::error(Code::BadSetting, message)
                .help(format!("the limit is {MOST}; lower `--seq` or `--micro-batch`")),
        );
    }
    let divided = if packed { tokens } else { rows.min(tokens) };
    if bad.is_empty() { Ok(Rows { of, divided }) } else { Err(bad) }
}

/// Rows, documents and the like at most: boundaries and indices are 32-bit.
const MOST: usize = i32::MAX as usize;

/// A setting of the layout as a number from 1 to its limit.
fn number(c: &Context, key: &str, default: usize) -> Result<usize, Box<Diag>> {
    let Some((value, source)) = c.merged.values.get(&format!("layout.{key}")) else {
        return Ok(default);
    };
    let most = if key == "microbatches" { MOST_MICROBATCHES as usize } else { MOST };
    match value.parse::<usize>() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => {
            let message = format!("`{key}` is {value}, it must be a number from 1 to {most}");
            let diag = at_flag(Code::BadSetting, message, &source.to_string(), value, "set here");
            Err(Box::new(diag.help(format!("the default is {default}"))))
        }
    }
}
