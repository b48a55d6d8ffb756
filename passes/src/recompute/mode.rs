//! `--recompute`, as text and as a choice.

use super::apply::Choice;
use super::candidates::Candidate;
use super::site::Site;
use std::fmt;
use std::str::FromStr;

/// Regions that Megatron-LM and this compiler name. A model may lack some.
pub const KNOWN_REGIONS: [&str; 10] = [
    "core_attn",
    "gdn",
    "gdn_norm_out",
    "gdn_qkv",
    "layer",
    "layernorm",
    "mlp",
    "moe",
    "moe_act",
    "shared_experts",
];

/// Which layers are recomputed whole; Megatron's `--recompute-method` and `--recompute-num-layers`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granularity {
    /// All of them, in groups of so many.
    Uniform(usize),
    /// The first so many, each by itself.
    Block(usize),
}

/// What is recomputed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Nothing.
    #[default]
    None,
    /// Whole layers.
    Full(Granularity),
    /// These regions, wherever they are.
    Selective(Vec<String>),
    /// What fits a memory limit at the least extra time.
    Auto,
}

/// Text that is no mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct UnknownMode {
    /// In words.
    pub message: String,
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let (word, rest) = text.split_once('=').map_or((text, None), |(w, r)| (w, Some(r)));
        let number = |n: &str| match n.parse::<usize>() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(UnknownMode { message: format!("`{n}` is no number of layers") }),
        };
        match (word, rest) {
            ("none", None) => Ok(Mode::None),
            ("auto", None) => Ok(Mode::Auto),
            ("full", None) => Ok(Mode::Full(Granularity::Uniform(1))),
            ("full", Some(how)) => match how.split_once(':') {
                Some(("uniform", n)) => Ok(Mode::Full(Granularity::Uniform(number(n)?))),
                Some(("block", n)) => Ok(Mode::Full(Granularity::Block(number(n)?))),
                _ => Err(UnknownMode {
                    message: format!("`full={how}`: it is `full=uniform:N` or `full=block:N`"),
                }),
            },
            ("selective", Some(list)) => {
                let names = list.split(',').map(str::trim).filter(|n| !n.is_empty());
                let names: Vec<String> = names.map(str::to_string).collect();
                if names.is_empty() {
                    return Err(UnknownMode { message: "`selective=` names no region".into() });
                }
                Ok(Mode::Selective(names))
            }
            _ => Err(UnknownMode {
                message: format!(
                    "`{text}` is none of none, full, full=uniform:N, full=block:N, \
                     selective=A,B, auto"
                ),
            }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::None => write!(f, "none"),
            Mode::Full(Granularity::Uniform(1)) => write!(f, "full"),
            Mode::Full(Granularity::Uniform(n)) => write!(f, "full=uniform:{n}"),
            Mode::Full(Granularity::Block(n)) => write!(f, "full=block:{n}"),
            Mode::Selective(names) => write!(f, "selective={}", names.join(",")),
            Mode::Auto => write!(f, "auto"),
        }
    }
}

/// The choice of `full`: layers are the sites that are layers of a stack.
pub fn full(sites: &[Site], how: Granularity) -> Choice {
    let layers: Vec<&Site> = sites.iter().filter(|s| s.layer.is_some()).collect();
    let mut choice = Choice::default();
    match how {
        Granularity::Uniform(n) if n > 1 => {
            // A group of one keeps as much as a layer by itself, whose replay is finer.
            for group in layers.chunks(n) {
                match group {
                    [one] => choice.discard(one.forward, one.kept.iter().map(|k| k.result)),
                    more => choice.groups.push(more.iter().map(|s| s.forward).collect()),
                }
            }
        }
        Granularity::Uniform(_) => {
            for s in layers {
                choice.discard(s.forward, s.kept.iter().map(|k| k.result));
            }
        }
        Granularity::Block(n) => {
            for s in layers.into_iter().take(n) {
                choice.discard(s.forward, s.kept.iter().map(|k| k.result));
            }
        }
    }
    choice
}

/// The choice of `selective`.
///
/// # Errors
/// A name that no candidate has and that is no known region.
pub fn selective(candidates: &[Candidate], names: &[String]) -> Result<Choice, UnknownMode> {
    let mut choice = Choice::default();
    for name in names {
        let of: Vec<&Candidate> = candidates.iter().filter(|c| c.region == *name).collect();
        if of.is_empty() && !KNOWN_REGIONS.contains(&&**name) {
            let mut known: Vec<&str> = candidates.iter().map(|c| &*c.region).collect();
            known.sort_unstable();
            known.dedup();
            return Err(UnknownMode {
                message: format!("there is no region `{name}`, only {}", known.join(", ")),
            });
        }
        for c in of {
            for site in &c.sites {
                choice.discard(*site, c.results.iter().copied());
            }
        }
    }
    Ok(choice)
}
