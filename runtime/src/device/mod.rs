//! Where kernels run: buffers of bytes, launches, and the time that they take.

pub mod bound;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;

use anyhow::Result;
use bound::Bound;
use std::path::Path;
use vlmc_artifact::kernels::{Module, Resources};

/// A device that runs the kernels of an artifact.
pub trait Device {
    /// Bytes on the device.
    type Buffer;
    /// A module, ready to be launched.
    type Kernel;

    /// What it is, in words.
    fn name(&self) -> String;

    /// Bytes of the last cache: what lies there is read faster than memory.
    fn cache_bytes(&self) -> u64;

    /// Loads a module.
    ///
    /// # Errors
    /// When the artifact has no build of it for this device, or the build does not load.
    fn load(&self, artifact: &Path, module: &Module) -> Result<Self::Kernel>;

    /// What each launch needs, as the artifact or the device says.
    fn resources(&self, kernel: &Self::Kernel) -> Vec<Resources>;

    /// The target that a module was loaded for.
    fn target<'k>(&self, kernel: &'k Self::Kernel) -> &'k str;

    /// A buffer of `bytes` bytes, at a multiple of 256. Its contents are undefined.
    ///
    /// # Errors
    /// When there is no room.
    fn buffer(&self, bytes: u64) -> Result<Self::Buffer>;

    /// Sets every byte of a buffer.
    ///
    /// # Errors
    /// When the device fails.
    fn fill(&self, buffer: &mut Self::Buffer, byte: u8) -> Result<()>;

    /// Fills a buffer from its start with `bytes`, over and over until `upto`.
    ///
    /// # Errors
    /// When the device fails, or `upto` is beyond the end of the buffer.
    fn write(&self, buffer: &mut Self::Buffer, bytes: &[u8], upto: u64) -> Result<()>;

    /// The bytes of a buffer.
    ///
    /// # Errors
    /// When the device fails.
    fn read(&self, buffer: &Self::Buffer) -> Result<Vec<u8>>;

    /// Runs all launches of a module and waits for their end.
    ///
    /// # Errors
    /// When a launch fails.
    fn run(&self, kernel: &Self::Kernel, bound: &Bound, set: &Set<Self::Buffer>) -> Result<()>;

    /// Seconds of a run: the median over repetitions that take the sets in turn.
    ///
    /// # Errors
    /// When a launch fails.
    fn time(&self, kernel: &Self::Kernel, bound: &Bound, sets: &[Set<Self::Buffer>])
    -> Result<f64>;

    /// Seconds of a copy on the device that moves so many bytes, half of them read and half
    /// written, measured as [`Device::time`] does with `sets` pairs of buffers in turn.
    ///
    /// # Errors
    /// When there is no room, or the device fails.
    fn time_copy(&self, bytes: u64, sets: usize) -> Result<f64>;
}

/// The buffers of one run.
pub struct Set<B> {
    /// One an input.
    pub inputs: Vec<B>,
    /// One an output.
    pub outputs: Vec<B>,
    /// One a scratch buffer.
    pub scratch: Vec<B>,
}

/// The middle of some times; the mean of the two in the middle of an even number of them.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let n = times.len();
    match n {
        0 => 0.0,
        _ => (times[n / 2] + times[(n - 1) / 2]) / 2.0,
    }
}
