//! Flags that say how large a step is and how it is spread over ranks.

use crate::Context;
use crate::ui::{Done, at_flag};
use vlmc::compile::Capacity;
use vlmc::settings::Source;
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
    /// Microbatches of a step [default: 1]
    #[arg(long, value_name = "M")]
    microbatches: Option<usize>,
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
    /// Merges the flags, and gives capacities and microbatches. More than one rank is refused.
    pub fn choose(&self, c: &mut Context) -> Done<(Capacity, usize)> {
        for (key, value) in [
            ("pp", self.pp),
            ("vpp", self.vpp),
            ("cp", self.cp),
            ("dp", self.dp),
            ("ep", self.ep),
            ("tp", self.tp),
            ("microbatches", self.microbatches),
            ("seq", self.seq),
            ("micro-batch", self.micro_batch),
            ("tokens", self.tokens),
            ("max-docs", self.max_docs),
            ("max-patches", self.max_patches),
            ("max-images", self.max_images),
        ] {
            if let Some(v) = value {
                let source = Source::Flag(format!("--{key}"));
                c.merged.set(&format!("layout.{key}"), v.to_string(), source);
            }
        }
        if self.packed {
            c.merged.set("layout.packed", "true", Source::Flag("--packed".into()));
        }
        let mut bad = vec![];
        for key in ["pp", "vpp", "cp", "dp", "ep", "tp"] {
            match number(c, key, 1) {
                Ok(1) => {}
                Ok(n) => bad.push(more_than_one(key, n)),
                Err(d) => bad.push(*d),
            }
        }
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
        let capacity = Capacity {
            tokens,
            docs: get("max-docs", if packed { 16 } else { batch }),
            patches: get("max-patches", tokens),
            frames: get("max-images", 16),
        };
        let microbatches = get("microbatches", 1);
        // Of flags that are in range each, the product may not be.
        if bad.is_empty() && tokens > MOST {
            let message = format!("{rows} rows times {batch} sequences are {tokens} tokens");
            bad.push(
                Diag::error(Code::BadSetting, message)
                    .help(format!("the limit is {MOST}; lower `--seq` or `--micro-batch`")),
            );
        }
        if bad.is_empty() { Ok((capacity, microbatches)) } else { Err(c.ui.fail_all(bad)) }
    }
}

/// Rows, documents and the like at most: boundaries and indices are 32-bit.
const MOST: usize = i32::MAX as usize;

/// Microbatches of a step at most: the schedule lists them one by one.
const MOST_MICROBATCHES: usize = 1 << 16;

/// A setting of the layout as a number from 1 to its limit.
fn number(c: &Context, key: &str, default: usize) -> Result<usize, Box<Diag>> {
    let Some((value, source)) = c.merged.values.get(&format!("layout.{key}")) else {
        return Ok(default);
    };
    let most = if key == "microbatches" { MOST_MICROBATCHES } else { MOST };
    match value.parse::<usize>() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => {
            let message = format!("`{key}` is {value}, it must be a number from 1 to {most}");
            let diag = at_flag(Code::BadSetting, message, &source.to_string(), value, "set here");
            Err(Box::new(diag.help(format!("the default is {default}"))))
        }
    }
}

fn more_than_one(key: &str, n: usize) -> Diag {
    let flag = format!("--{key}");
    let (code, why) = match key {
        "tp" => {
            (Code::TensorParallel, "divides layers over ranks, and this compiler keeps them whole")
        }
        _ => (Code::NotYet, "needs more than one rank, and this compiler plans one"),
    };
    at_flag(code, format!("`{flag} {n}` {why}"), &flag, &n.to_string(), "set here")
        .help(format!("compile with `{flag} 1`"))
}
