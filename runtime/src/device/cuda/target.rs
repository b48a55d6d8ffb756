//! Which build of a module a GPU can run.

use std::fmt;
use vlmc_artifact::kernels::Built;

/// The architecture of a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arch {
    major: i32,
    minor: i32,
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// `sm_90a` as (9, 0, whether it is for this architecture only).
fn parse(target: &str) -> Option<(i32, i32, bool)> {
    let digits = target.strip_prefix("sm_")?;
    let (digits, only) = match digits.strip_suffix('a') {
        Some(digits) => (digits, true),
        None => (digits, false),
    };
    let split = digits.len().checked_sub(1).filter(|n| *n > 0)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((digits[..split].parse().ok()?, digits[split..].parse().ok()?, only))
}

impl Arch {
    /// The architecture of this compute capability.
    pub fn new(major: i32, minor: i32) -> Self {
        Arch { major, minor }
    }

    /// Whether assembled code for a target runs: that of the same generation, not newer.
    pub fn runs_cubin(self, target: &str) -> bool {
        parse(target).is_some_and(|(major, minor, only)| {
            major == self.major && if only { minor == self.minor } else { minor <= self.minor }
        })
    }

    /// The build to take: the one made for this very architecture, else the newest whose PTX runs.
    pub fn choose(self, builds: &[Built]) -> Option<&Built> {
        let mine = (self.major, self.minor);
        let rank = |b: &Built| {
            let (major, minor, only) = parse(&b.target)?;
            let fits = if only { (major, minor) == mine } else { (major, minor) <= mine };
            fits.then_some((major, minor, only))
        };
        builds.iter().filter(|b| rank(b).is_some()).max_by_key(|b| rank(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builds(targets: &[&str]) -> Vec<Built> {
        let built = |t: &&str| Built {
            target: t.to_string(),
            file: format!("{t}.ptx"),
            cubin: None,
            resources: vec![],
        };
        targets.iter().map(built).collect()
    }

    #[test]
    fn the_best_build_is_chosen() {
        let all = builds(&["host", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_x", "sm_9"]);
        let target = |major, minor, builds: &[Built]| {
            Arch::new(major, minor).choose(builds).map(|b| b.target.clone())
        };
        assert_eq!(target(9, 0, &all).as_deref(), Some("sm_90a"));
        assert_eq!(target(8, 9, &all).as_deref(), Some("sm_80"));
        assert_eq!(target(10, 0, &all).as_deref(), Some("sm_100"));
        assert_eq!(target(12, 0, &builds(&["sm_90a", "sm_80"])).as_deref(), Some("sm_80"));
        assert_eq!(target(12, 0, &builds(&["sm_90a", "host"])), None);
        assert_eq!(target(7, 5, &all), None);
    }

    #[test]
    fn assembled_code_stays_in_its_generation() {
        assert!(Arch::new(8, 9).runs_cubin("sm_80"));
        assert!(!Arch::new(9, 0).runs_cubin("sm_80"));
        assert!(!Arch::new(8, 0).runs_cubin("sm_86"));
        assert!(Arch::new(9, 0).runs_cubin("sm_90a"));
        assert!(!Arch::new(10, 3).runs_cubin("sm_100a"));
        assert!(!Arch::new(9, 0).runs_cubin("host"));
    }
}
