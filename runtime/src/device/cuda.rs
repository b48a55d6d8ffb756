//! The CUDA device, through the driver alone.

mod target;

use super::bound::{Bound, Word};
use super::{Device, Set, median};
use anyhow::{Context, Result, anyhow, bail};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, DriverError,
    LaunchConfig, PushKernelArg, result, sys,
};
use cudarc::nvrtc::Ptx;
use std::path::Path;
use std::sync::Arc;
use target::Arch;
use vlmc_artifact::kernels::{Built, Launch, Module, Resources};

/// Dynamic shared memory up to here needs no leave of the driver.
const PLAIN_SHARED: u32 = 48 * 1024;
/// Replays of a graph, of which the median counts.
const REPLAYS: usize = 21;
/// A graph repeats its calls until it has at least so many.
const LEAST_CALLS: usize = 24;

/// The driver from which on every function used here is there: that of CUDA 12.8.
const LEAST_DRIVER: i32 = 12_080;

/// A GPU.
pub struct Cuda {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    arch: Arch,
    name: String,
}

/// A module on a GPU.
pub struct CudaKernel {
    functions: Vec<CudaFunction>,
    target: String,
    resources: Vec<Resources>,
}

/// What the driver says, in its own words.
fn told(e: DriverError) -> anyhow::Error {
    let text = e.error_string().map(|t| t.to_string_lossy().into_owned());
    anyhow!("{} ({:?})", text.unwrap_or_else(|_| "unknown error".to_string()), e.0)
}

/// Has the driver keep what is freed for the next buffers, rather than give it back to the system
/// whenever the device is waited for.
fn keep_memory(context: &CudaContext) -> Result<()> {
    let mut all = u64::MAX;
    let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the device is that of an open context, the pool that of the device, and the attribute
    // is read from a 64-bit number that lives until the call returns.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device()).map_err(told)?;
        result::mem_pool::set_attribute(pool, threshold, (&raw mut all).cast()).map_err(told)
    }
}

impl Cuda {
    /// Opens a GPU.
    ///
    /// # Errors
    /// When this machine has no driver or no such GPU.
    pub fn open(ordinal: usize) -> Result<Cuda> {
        // SAFETY: this opens and closes the driver's library, whose initialisers are trusted as
        // every other use of the device trusts them.
        if !unsafe { sys::is_culib_present() } {
            bail!("this machine has no CUDA driver: no libcuda was found");
        }
        let mut version = 0;
        // SAFETY: the driver writes one number to the address that it is given.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(told)?;
        if version < LEAST_DRIVER {
            let number = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
            bail!(
                "the driver of this machine is for CUDA {}, and {} is needed",
                number(version),
                number(LEAST_DRIVER)
            );
        }
        let context = CudaContext::new(ordinal)
            .map_err(told)
            .with_context(|| format!("GPU {ordinal} does not open"))?;
        // SAFETY: events order streams for cudarc; all work of this device is on one stream, which
        // keeps its own order, and waits for events would break the capture of graphs.
        unsafe { context.disable_event_tracking() };
        if context.has_async_alloc() {
            keep_memory(&context).context("the memory pool")?;
        }
        let (major, minor) = context.compute_capability().map_err(told)?;
        let name = context.name().map_err(told)?;
        let stream = context.new_stream().map_err(told)?;
        Ok(Cuda { context, stream, arch: Arch::new(major, minor), name })
    }

    /// Loads the assembled form, and where there is none has the driver assemble the PTX.
    fn functions(
        &self,
        artifact: &Path,
        built: &Built,
        module: &Module,
    ) -> Result<Vec<CudaFunction>> {
        let assembled = built.cubin.as_ref().filter(|_| self.arch.runs_cubin(&built.target));
        let path = artifact.join(assembled.unwrap_or(&built.file));
        let name = path.display();
        let image = std::fs::read(&path).with_context(|| name.to_string())?;
        let image = if assembled.is_some() {
            Ptx::from_binary(image)
        } else {
            let text = String::from_utf8(image).with_context(|| name.to_string())?;
            if text.contains('\0') {
                bail!("{name}: is no PTX");
            }
            Ptx::from_src(text)
        };
        let loaded = self.context.load_module(image).map_err(told);
        let loaded = loaded.with_context(|| format!("{name} does not load"))?;
        let functions = module.launches.iter().map(|l| {
            let f = loaded.load_function(&l.symbol).map_err(told);
            let f = f.with_context(|| format!("{name}: function `{}`", l.symbol))?;
            self.allow_shared(l, &f).with_context(|| format!("{name}: `{}`", l.symbol))?;
            Ok(f)
        });
        functions.collect()
    }

    fn allow_shared(&self, l: &Launch, f: &CudaFunction) -> Result<()> {
        let most = self.attribute(
            sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?;
        if u64::from(l.shared_bytes) > most {
            bail!("{} bytes of shared memory, this GPU has {most} for a block", l.shared_bytes);
        }
        if l.shared_bytes <= PLAIN_SHARED {
            return Ok(());
        }
        let dynamic =
            sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        f.set_attribute(dynamic, i32::try_from(l.shared_bytes)?).map_err(told)
    }

    fn attribute(&self, a: sys::CUdevice_attribute) -> Result<u64> {
        Ok(u64::try_from(self.context.attribute(a).map_err(told)?)?)
    }

    fn address(&self, buffer: &CudaSlice<u8>) -> u64 {
        // All work is on this one stream, so there is nothing for the guard to wait for.
        let (address, _guard) = buffer.device_ptr(&self.stream);
        address
    }

    /// Puts all launches on the stream.
    fn enqueue(&self, k: &CudaKernel, bound: &Bound, set: &Set<CudaSlice<u8>>) -> Result<()> {
        for (i, (l, f)) in bound.launches.iter().zip(&k.functions).enumerate() {
            if l.grid.contains(&0) {
                continue;
            }
            let words = bound.pack(i, set, &|b| self.address(b))?;
            let mut builder = self.stream.launch_builder(f);
            for w in &words {
                match w {
                    Word::Pointer(p) => builder.arg(p),
                    Word::Int(v) => builder.arg(v),
                };
            }
            let [x, y, z] = l.grid;
            let config = LaunchConfig {
                grid_dim: (x, y, z),
                block_dim: (l.block, 1, 1),
                shared_mem_bytes: l.shared_bytes,
            };
            // SAFETY: the parameters are those that the artifact's table lists for this function,
            // in its order and widths: 64-bit addresses, then 32-bit numbers. The addresses are of
            // buffers in `set`, as large as the table says at the sizes of `bound`, and they live
            // until the stream is synchronised. That the function keeps within them is the
            // promise of the compiler that wrote the table.
            unsafe { builder.launch(config) }
                .map_err(told)
                .with_context(|| format!("launch {i} of {x} x {y} x {z} blocks"))?;
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().map_err(told)
    }

    /// A graph of what `enqueue` puts on the stream.
    fn capture(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<CudaGraph> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(told)?;
        let enqueued = enqueue();
        // A stream that captures does nothing else, so the capture ends whatever happened.
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(told);
        enqueued?;
        graph?.ok_or_else(|| anyhow!("the graph is empty"))
    }

    /// Seconds of one of the `calls` calls in a graph: the median over replays.
    fn replay(&self, graph: &CudaGraph, calls: usize) -> Result<f64> {
        let event = || {
            let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
            self.context.new_event(Some(flags)).map_err(told)
        };
        graph.upload().map_err(told)?;
        for _ in 0..2 {
            graph.launch().map_err(told)?;
        }
        self.synchronize()?;
        let (begin, end) = (event()?, event()?);
        let mut times = vec![];
        for _ in 0..REPLAYS {
            begin.record(&self.stream).map_err(told)?;
            graph.launch().map_err(told)?;
            end.record(&self.stream).map_err(told)?;
            self.synchronize()?;
            let ms = begin.elapsed_ms(&end).map_err(told)?;
            times.push(f64::from(ms) / 1e3 / calls as f64);
        }
        Ok(median(times))
    }
}

/// How often a graph goes through `sets` sets.
fn rounds(sets: usize) -> usize {
    LEAST_CALLS.div_ceil(sets.max(1)).max(2)
}

impl Device for Cuda {
    type Buffer = CudaSlice<u8>;
    type Kernel = CudaKernel;

    fn name(&self) -> String {
        format!("{} ({})", self.name, self.arch)
    }

    fn cache_bytes(&self) -> u64 {
        let l2 = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        self.attribute(l2).unwrap_or(64 << 20)
    }

    fn load(&self, artifact: &Path, module: &Module) -> Result<CudaKernel> {
        let built = self.arch.choose(&module.targets).ok_or_else(|| {
            let have: Vec<&str> = module.targets.iter().map(|b| &*b.target).collect();
            anyhow!("no build for {}, only for {}", self.arch, have.join(", "))
        })?;
        let functions = self.functions(artifact, built, module)?;
        let mut resources = built.resources.clone();
        if resources.is_empty() {
            for (f, l) in functions.iter().zip(&module.launches) {
                let number = |v: std::result::Result<i32, DriverError>| -> Result<u32> {
                    Ok(u32::try_from(v.map_err(told)?)?)
                };
                resources.push(Resources {
                    registers: number(f.num_regs())?,
                    spill_bytes: number(f.local_size_bytes())?,
                    shared_bytes: number(f.shared_size_bytes())? + l.shared_bytes,
                });
            }
        }
        Ok(CudaKernel { functions, target: built.target.clone(), resources })
    }

    fn resources(&self, kernel: &CudaKernel) -> Vec<Resources> {
        kernel.resources.clone()
    }

    fn target<'k>(&self, kernel: &'k CudaKernel) -> &'k str {
        &kernel.target
    }

    fn buffer(&self, bytes: u64) -> Result<CudaSlice<u8>> {
        // The driver has no buffers of no bytes.
        let n = usize::try_from(bytes.max(1))?;
        // SAFETY: the contents are undefined until written, which any bytes are fit for.
        unsafe { self.stream.alloc::<u8>(n) }
            .map_err(told)
            .with_context(|| format!("no room for {bytes} bytes"))
    }

    fn fill(&self, buffer: &mut CudaSlice<u8>, byte: u8) -> Result<()> {
        let (address, n) = (self.address(buffer), buffer.len());
        self.context.bind_to_thread().map_err(told)?;
        // SAFETY: the address and the number of bytes are those of a buffer that is borrowed
        // exclusively, and the stream is that of its allocation.
        unsafe { result::memset_d8_async(address, byte, n, self.stream.cu_stream()) }
            .map_err(told)?;
        self.synchronize()
    }

    fn write(&self, buffer: &mut CudaSlice<u8>, bytes: &[u8], upto: u64) -> Result<()> {
        let upto = usize::try_from(upto)?;
        if upto > buffer.len() {
            bail!("{upto} bytes into a buffer of {}", buffer.len());
        }
        let first = bytes.len().min(upto);
        if first == 0 {
            return Ok(());
        }
        let mut start = buffer.slice_mut(..first);
        self.stream.memcpy_htod(&bytes[..first], &mut start).map_err(told)?;
        // Doubling keeps the period: what is there is a whole number of repetitions.
        let mut done = first;
        while done < upto {
            let n = done.min(upto - done);
            let (have, mut rest) = buffer.split_at_mut(done);
            let mut target = rest.slice_mut(..n);
            self.stream.memcpy_dtod(&have.slice(..n), &mut target).map_err(told)?;
            done += n;
        }
        self.synchronize()
    }

    fn read(&self, buffer: &CudaSlice<u8>) -> Result<Vec<u8>> {
        let bytes = self.stream.clone_dtoh(buffer).map_err(told)?;
        self.synchronize()?;
        Ok(bytes)
    }

    fn run(&self, k: &CudaKernel, bound: &Bound, set: &Set<CudaSlice<u8>>) -> Result<()> {
        self.enqueue(k, bound, set)?;
        self.synchronize()
    }

    fn time(&self, k: &CudaKernel, bound: &Bound, sets: &[Set<CudaSlice<u8>>]) -> Result<f64> {
        // What the first launch of a function does besides is no part of any graph.
        sets.iter().take(1).try_for_each(|s| self.run(k, bound, s))?;
        let rounds = rounds(sets.len());
        let graph = self.capture(|| {
            let mut calls = (0..rounds).flat_map(|_| sets);
            calls.try_for_each(|set| self.enqueue(k, bound, set))
        })?;
        self.replay(&graph, rounds * sets.len())
    }

    fn time_copy(&self, bytes: u64, sets: usize) -> Result<f64> {
        // Whole pages: a copy of an odd number of bytes takes another, slower path.
        let half = (bytes / 2).max(1).next_multiple_of(4096);
        let mut pairs = vec![];
        for i in 0..sets.max(1) {
            let (mut from, mut to) = (self.buffer(half)?, self.buffer(half)?);
            let noise: Vec<u8> = (0..65_537u64).map(|j| (j * j + i as u64) as u8).collect();
            self.write(&mut from, &noise, half)?;
            self.fill(&mut to, 0xff)?;
            pairs.push((from, to));
        }
        let rounds = rounds(pairs.len());
        let calls = rounds * pairs.len();
        let graph = self.capture(|| {
            (0..rounds).try_for_each(|_| {
                let mut all = pairs.iter_mut();
                all.try_for_each(|(from, to)| self.stream.memcpy_dtod(from, to).map_err(told))
            })
        })?;
        self.replay(&graph, calls)
    }
}
