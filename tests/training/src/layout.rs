//! The text form of a layout, as tests and the parity runner take it.

use anyhow::{Context, Result, bail};
use vlmc::compile::Spread;
use vlmc_passes::partition::AttentionForm;
use vlmc_passes::partition::placement::{Grid, Split};
use vlmc_passes::schedule::Kind;

/// A layout from `pp=2,vpp=2,cp=2`. What is not said is 1; there are `2 pp` microbatches, or 1
/// without a pipeline.
///
/// # Errors
/// Names the part that cannot be read.
pub fn parse(text: &str) -> Result<Spread> {
    let mut grid = Grid { pp: 1, vpp: 1 };
    let (mut cp, mut dp) = (1, 1);
    let mut attention = AttentionForm::AllGather;
    let (mut split, mut kind, mut microbatches, mut group) = (None, None, None, None);
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (key, value) = part.split_once('=').with_context(|| format!("`{part}` has no `=`"))?;
        let number = || value.parse::<u32>().with_context(|| format!("`{part}`"));
        match key {
            "pp" => grid.pp = number()?,
            "vpp" => grid.vpp = number()?,
            "cp" => cp = number()? as usize,
            "dp" => dp = number()? as usize,
            "microbatches" => microbatches = Some(number()?),
            "group" => group = Some(number()?),
            "cp-attention" => {
                attention = match value {
                    "all-gather" => AttentionForm::AllGather,
                    "a2a" => AttentionForm::AllToAll,
                    _ => bail!("`{part}`: all-gather or a2a"),
                };
            }
            "layout" => split = Some(Split::Letters(value.to_string())),
            "schedule" => {
                kind = Some(Kind::from_name(value).with_context(|| format!("`{part}`"))?);
            }
            _ => bail!("`{key}` is no part of a layout"),
        }
    }
    let microbatches = microbatches.unwrap_or(if grid.pp > 1 { 2 * grid.pp } else { 1 });
    Ok(Spread {
        grid,
        split: split.unwrap_or(Split::Even { embedding: false, loss: false }),
        kind: kind.unwrap_or(Kind::default_for(grid)),
        microbatches,
        group: group.unwrap_or(grid.pp),
        cp,
        cp_attention: attention,
        dp,
    })
}
