//! The machines that kernels are made for.

use std::fmt;
use std::str::FromStr;

/// A machine that kernels are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Hopper with its own instructions (`wgmma`); the code runs on nothing else.
    Sm90a,
    /// Hopper and newer.
    Sm90,
    /// Ampere and newer.
    Sm80,
    /// Blackwell and newer.
    Sm100,
    /// x86-64 with AVX2 and FMA (the `x86-64-v3` level), not the machine that compiles.
    Host,
}

impl Target {
    /// Every target, in the order of their names.
    pub const ALL: [Target; 5] =
        [Target::Host, Target::Sm100, Target::Sm80, Target::Sm90, Target::Sm90a];

    /// The name in flags and manifests, which is also what `ptxas` and LLVM call a GPU.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Sm90a => "sm_90a",
            Target::Sm90 => "sm_90",
            Target::Sm80 => "sm_80",
            Target::Sm100 => "sm_100",
            Target::Host => "host",
        }
    }

    /// Whether kernels for it are PTX.
    pub const fn is_gpu(self) -> bool {
        !matches!(self, Target::Host)
    }

    /// LLVM's name of the PTX version that is emitted, or nothing for the host. 8.6 is the first
    /// that knows every target here.
    pub const fn ptx_feature(self) -> Option<&'static str> {
        if self.is_gpu() { Some("+ptx86") } else { None }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no target `{0}`: the targets are host, sm_100, sm_80, sm_90, sm_90a")]
pub struct UnknownTarget(pub String);

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(name: &str) -> Result<Target, UnknownTarget> {
        Target::ALL
            .into_iter()
            .find(|target| target.name() == name)
            .ok_or_else(|| UnknownTarget(name.to_owned()))
    }
}
