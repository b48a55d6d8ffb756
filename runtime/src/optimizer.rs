//! Numbers of the optimizer that change from step to step.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// How the learning rate runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// It stays.
    Constant,
    /// Half a cosine from the top to the least.
    Cosine,
    /// Warm-up, stable, decay: it stays, then falls along a line over the last tenth.
    Wsd,
}

/// AdamW and its schedule.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Optimizer {
    /// Largest learning rate.
    pub lr: f64,
    /// Least learning rate, at the end.
    pub min_lr: f64,
    /// Steps over which it rises along a line from 0.
    pub warmup: u64,
    /// Steps of the whole training; where the rate reaches its least.
    pub total: u64,
    /// Its course after the warm-up.
    pub decay: Decay,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, a step and unit of learning rate.
    pub weight_decay: f64,
    /// Decays every parameter, those declared `no_decay` too.
    pub decay_all: bool,
    /// Largest norm of the gradients; 0 for any.
    pub clip: f64,
}

impl Optimizer {
    /// Whether it can train at all.
    ///
    /// # Errors
    /// Names the first number that makes no sense.
    pub fn check(&self) -> Result<()> {
        for (name, v) in [
            ("lr", self.lr),
            ("min-lr", self.min_lr),
            ("eps", self.eps),
            ("weight-decay", self.weight_decay),
            ("clip", self.clip),
        ] {
            if !v.is_finite() || v < 0.0 {
                bail!("{name} is {v}, it must be a number that is not below 0");
            }
        }
        for (name, v) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&v) {
                bail!("{name} is {v}, it must be from 0 to below 1");
            }
        }
        if self.eps == 0.0 {
            bail!("eps is 0, it must be above 0: a second moment may be 0 too");
        }
        if self.min_lr > self.lr {
            bail!("min-lr is {}, above lr, which is {}", self.min_lr, self.lr);
        }
        if self.warmup > self.total {
            bail!("warmup is {} steps of a training of {}", self.warmup, self.total);
        }
        Ok(())
    }

    /// The learning rate of step `step`, from 0.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.lr * (step + 1) as f64 / self.warmup as f64;
        }
        let span = self.total.saturating_sub(self.warmup).max(1) as f64;
        let done = ((step - self.warmup) as f64 / span).min(1.0);
        match self.decay {
            Decay::Constant => self.lr,
            Decay::Cosine => {
                let share = (1.0 + (std::f64::consts::PI * done).cos()) / 2.0;
                self.min_lr + (self.lr - self.min_lr) * share
            }
            Decay::Wsd => {
                let fall = ((done - 0.9) / 0.1).clamp(0.0, 1.0);
                self.lr + (self.min_lr - self.lr) * fall
            }
        }
    }

    /// The scalar inputs of the optimizer's program at step `step`, from 0.
    pub fn scalars(&self, step: u64) -> [(&'static str, f64); 9] {
        let t = i32::try_from(step + 1).unwrap_or(i32::MAX);
        [
            ("clip", self.clip),
            ("lr", self.rate(step)),
            ("beta1", self.beta1),
            ("beta2", self.beta2),
            ("eps", self.eps),
            ("decay", self.weight_decay),
            ("no_decay", if self.decay_all { self.weight_decay } else { 0.0 }),
            ("correction1", 1.0 - self.beta1.powi(t)),
            ("correction2", 1.0 - self.beta2.powi(t)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(decay: Decay) -> Optimizer {
        Optimizer {
            lr: 1.0,
            min_lr: 0.1,
            warmup: 10,
            total: 110,
            decay,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            decay_all: false,
            clip: 1.0,
        }
    }

    #[test]
    fn rates_at_hand_computed_steps() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        for decay in [Decay::Constant, Decay::Cosine, Decay::Wsd] {
            close(with(decay).rate(0), 0.1);
            close(with(decay).rate(9), 1.0);
            close(with(decay).rate(10), 1.0);
        }
        close(with(Decay::Cosine).rate(60), 0.55);
        close(with(Decay::Cosine).rate(110), 0.1);
        close(with(Decay::Cosine).rate(999), 0.1);
        close(with(Decay::Wsd).rate(99), 1.0);
        close(with(Decay::Wsd).rate(105), 0.55);
        close(with(Decay::Wsd).rate(110), 0.1);
        close(with(Decay::Constant).rate(999), 1.0);
    }
}
