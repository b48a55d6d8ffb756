//! Initial values of parameters that depend on seed, name and index only.
//!
//! No generator is carried from element to element, so that any rank, shard, chunk or thread makes
//! the same values without talking to the others, and so does a run with another layout.

/// The distribution of one parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Distribution {
    /// Every element this number.
    Constant(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Uniform from a to b.
    Uniform(f64, f64),
    /// The logarithm of a number uniform from a to b.
    LogUniform(f64, f64),
}

/// The values of one parameter, element by element.
#[derive(Clone, Copy, Debug)]
pub struct Initializer {
    key: u64,
    distribution: Distribution,
}

impl Initializer {
    /// Values for the parameter with this checkpoint name.
    pub fn new(seed: u64, name: &str, distribution: Distribution) -> Self {
        Initializer { key: mix(mix(seed) ^ hash(name)), distribution }
    }

    /// The element at a row-major index of the whole parameter.
    pub fn element(&self, index: u64) -> f64 {
        match self.distribution {
            Distribution::Constant(value) => value,
            Distribution::Normal(deviation) => {
                // Box and Muller, 1958. The first number is not 0, so the logarithm is finite.
                let radius = (-2.0 * (1.0 - self.unit(2 * index)).ln()).sqrt();
                let angle = std::f64::consts::TAU * self.unit(2 * index + 1);
                deviation * radius * angle.cos()
            }
            Distribution::Uniform(low, high) => low + (high - low) * self.unit(2 * index),
            Distribution::LogUniform(low, high) => {
                (low + (high - low) * self.unit(2 * index)).ln()
            }
        }
    }

    /// Elements of a row-major range, as they are stored.
    pub fn values(&self, range: std::ops::Range<u64>) -> Vec<f32> {
        range.map(|index| self.element(index) as f32).collect()
    }

    /// A number in [0, 1) for a counter.
    fn unit(&self, counter: u64) -> f64 {
        let bits = mix(self.key.wrapping_add(counter.wrapping_mul(STEP)));
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The odd number nearest to 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a of the bytes of a name.
fn hash(name: &str) -> u64 {
    let step = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(distribution: Distribution) -> (f64, f64) {
        let init = Initializer::new(1, "a.weight", distribution);
        let n = 100_000;
        let values: Vec<f64> = (0..n).map(|i| init.element(i)).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let square = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
        (mean, square.sqrt())
    }

    #[test]
    fn distributions() {
        let (mean, deviation) = moments(Distribution::Normal(0.02));
        assert!(mean.abs() < 3e-4 && (deviation - 0.02).abs() < 3e-4, "{mean} {deviation}");
        let (mean, deviation) = moments(Distribution::Uniform(-1.0, 3.0));
        assert!((mean - 1.0).abs() < 0.02 && (deviation - 4.0 / 12_f64.sqrt()).abs() < 0.02);
        let init = Initializer::new(3, "A_log", Distribution::LogUniform(0.01, 16.0));
        for i in 0..10_000 {
            assert!((0.01..16.0).contains(&init.element(i).exp()));
        }
        assert_eq!(Initializer::new(3, "x", Distribution::Constant(1.0)).values(0..2), [1.0, 1.0]);
    }

    #[test]
    fn values_depend_on_seed_name_and_index_only() {
        let normal = Distribution::Normal(1.0);
        let a = Initializer::new(1, "a", normal);
        assert_eq!(a.values(0..10)[3..7], a.values(3..7));
        assert_ne!(a.values(0..4), Initializer::new(2, "a", normal).values(0..4));
        assert_ne!(a.values(0..4), Initializer::new(1, "b", normal).values(0..4));
        // Reports of other versions and machines were made with these very numbers.
        for (index, expected) in [-1.6797261236768775, 1.6352594286016224, 0.7130667271920286].into_iter().enumerate() {
            let found: f64 = a.element(index as u64);
            assert!((found - expected).abs() < 1e-12, "{index}: {found}");
        }
    }
}
