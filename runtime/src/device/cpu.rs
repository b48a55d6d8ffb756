//! The host: kernels of a shared object, their blocks dealt out to threads.

use super::bound::{Bound, BoundLaunch, Word};
use super::{Device, Set, median};
use anyhow::{Context, Result, anyhow, bail};
use libloading::Library;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vlmc_artifact::kernels::{HOST, Module, Resources};

/// Most parameters of a function, with the four of the range of blocks.
const MOST_PARAMETERS: usize = 64;
/// Runs of one measurement at least.
const LEAST_RUNS: usize = 5;
/// Runs of one measurement at most.
const MOST_RUNS: usize = 51;
/// A measurement goes on until then, or until it has made all its runs.
const ENOUGH: Duration = Duration::from_millis(500);

/// 256 bytes at a multiple of 256. Kernels write to them through addresses while they are shared,
/// which atomics allow.
#[repr(C, align(256))]
struct Block([AtomicU64; 32]);

impl Block {
    fn set(&self, bytes: [u8; 256]) {
        for (word, b) in self.0.iter().zip(bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(b);
            word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
        }
    }
}

/// Bytes in memory.
pub struct HostBuffer {
    blocks: Vec<Block>,
    bytes: usize,
}

/// A module of a shared object.
pub struct HostKernel {
    /// Addresses of the functions of all launches.
    functions: Vec<usize>,
    /// Where they are; closed when nothing refers to them any more.
    _library: Library,
}

/// The host.
pub struct Cpu {
    threads: usize,
}

/// Calls the function at an address with so many 64-bit arguments as `$a` has: one arm an arity.
macro_rules! call {
    ($f:ident, $a:ident, $args:expr, [$($done:tt)*]) => { let _ = ($f, $args); };
    ($f:ident, $a:ident, $args:expr, [$($done:ident)*] $next:ident $($rest:ident)*) => {
        if let [$($done),*] = $args {
            type Function = unsafe extern "C" fn($(call!(@u64 $done)),*);
            // SAFETY: see `call_blocks`, the only user.
            let function = unsafe { std::mem::transmute::<usize, Function>($f) };
            // SAFETY: as above.
            return unsafe { function($(*$done),*) };
        }
        call!($f, $a, $args, [$($done)* $next] $($rest)*);
    };
    (@u64 $done:ident) => { u64 };
}

impl Cpu {
    /// The host with all its threads.
    ///
    /// # Errors
    /// On a machine whose way of passing arguments is not known.
    pub fn open() -> Result<Cpu> {
        if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
            bail!("host kernels run on 64-bit x86 and Arm under Linux only");
        }
        Ok(Cpu { threads: std::thread::available_parallelism().map_or(1, usize::from) })
    }

    fn launch(&self, function: usize, launch: &BoundLaunch, words: &[Word]) -> Result<()> {
        let [x, y, z] = launch.grid;
        if z != 1 {
            bail!("a grid of {z} layers, the host runs one");
        }
        let words: Vec<u64> = words
            .iter()
            .map(|w| match w {
                Word::Pointer(p) => *p,
                Word::Int(v) => u64::from(*v as u32),
            })
            .collect();
        // Rows of blocks are dealt out, and where these are too few, columns.
        let by_y = y >= x || y as usize >= self.threads;
        std::thread::scope(|scope| {
            for (begin, end) in ranges(if by_y { y } else { x }, self.threads) {
                let range = if by_y { [0, x, begin, end] } else { [begin, end, 0, y] };
                let arguments: Vec<u64> =
                    words.iter().copied().chain(range.map(u64::from)).collect();
                scope.spawn(move || call_blocks(function, &arguments));
            }
        });
        Ok(())
    }

    fn repeat(&self, sets: usize, mut run: impl FnMut(usize) -> Result<()>) -> Result<f64> {
        let sets = sets.max(1);
        (0..sets.min(2)).try_for_each(&mut run)?;
        let begun = Instant::now();
        let mut times = vec![];
        while times.len() < LEAST_RUNS || (times.len() < MOST_RUNS && begun.elapsed() < ENOUGH) {
            let start = Instant::now();
            run(times.len() % sets)?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(median(times))
    }
}

/// `0 .. n` in at most `parts` ranges that are not empty.
fn ranges(n: u32, parts: usize) -> Vec<(u32, u32)> {
    let parts = u64::from(n).min(parts as u64);
    let at = |i: u64| (u64::from(n) * i / parts.max(1)) as u32;
    (0..parts).map(|i| (at(i), at(i + 1))).collect()
}

/// Runs a range of the blocks of a launch.
///
/// The function of a host module has the parameters that the artifact's table lists: addresses,
/// then 32-bit numbers, and the two ranges of blocks. On 64-bit x86 and Arm under Linux each of them
/// takes one 64-bit register or place on the stack, of which a 32-bit parameter reads the lower
/// half, so passing 64-bit numbers to all of them gives every parameter its value. The addresses are
/// of buffers as large as the table says, which stay until all threads have ended. That the function
/// keeps within them, and that blocks do not disturb each other, is the promise of the compiler that
/// wrote the object.
fn call_blocks(function: usize, arguments: &[u64]) {
    call!(function, a, arguments, []
        a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14 a15 a16 a17 a18 a19 a20 a21 a22 a23 a24
        a25 a26 a27 a28 a29 a30 a31 a32 a33 a34 a35 a36 a37 a38 a39 a40 a41 a42 a43 a44 a45 a46
        a47 a48 a49 a50 a51 a52 a53 a54 a55 a56 a57 a58 a59 a60 a61 a62 a63 a64);
}

impl HostBuffer {
    fn address(&self) -> u64 {
        self.blocks.as_ptr() as u64
    }
}

impl Device for Cpu {
    type Buffer = HostBuffer;
    type Kernel = HostKernel;

    fn name(&self) -> String {
        format!("host, {} threads", self.threads)
    }

    fn cache_bytes(&self) -> u64 {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
        let kilobytes = text.ok().and_then(|t| t.trim().strip_suffix('K')?.parse::<u64>().ok());
        kilobytes.map_or(32 << 20, |k| k << 10)
    }

    fn load(&self, artifact: &Path, module: &Module) -> Result<HostKernel> {
        let built = module.built(HOST).ok_or_else(|| anyhow!("no build for the host"))?;
        let path = artifact.join(&built.file);
        // A name without a slash would be searched for in the system's folders.
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        // SAFETY: opening a shared object runs its initialisers. This one belongs to the artifact
        // that the user wants run, and comes from the compiler, which writes none.
        let library = unsafe { Library::new(&path) };
        let library = library.with_context(|| format!("{} does not load", path.display()))?;
        let mut functions = vec![];
        for l in &module.launches {
            let parameters = l.arguments.len() + module.symbols.len() + 4;
            if parameters > MOST_PARAMETERS {
                bail!("`{}` has {parameters} parameters, at most {MOST_PARAMETERS}", l.symbol);
            }
            // SAFETY: the symbol is only taken as an address here; `call_blocks` says with what it
            // is called.
            let symbol = unsafe { library.get::<unsafe extern "C" fn()>(l.symbol.as_bytes()) };
            let symbol =
                symbol.with_context(|| format!("{}: function `{}`", path.display(), l.symbol))?;
            functions.push(*symbol as usize);
        }
        Ok(HostKernel { functions, _library: library })
    }

    fn resources(&self, _: &HostKernel) -> Vec<Resources> {
        vec![]
    }

    fn target<'k>(&self, _: &'k HostKernel) -> &'k str {
        HOST
    }

    fn buffer(&self, bytes: u64) -> Result<HostBuffer> {
        let bytes = usize::try_from(bytes)?;
        let n = bytes.div_ceil(256).max(1);
        let mut blocks = vec![];
        blocks.try_reserve_exact(n).with_context(|| format!("no room for {bytes} bytes"))?;
        blocks.resize_with(n, || Block(Default::default()));
        Ok(HostBuffer { blocks, bytes })
    }

    fn fill(&self, buffer: &mut HostBuffer, byte: u8) -> Result<()> {
        buffer.blocks.iter().for_each(|b| b.set([byte; 256]));
        Ok(())
    }

    fn write(&self, buffer: &mut HostBuffer, bytes: &[u8], upto: u64) -> Result<()> {
        let upto = usize::try_from(upto)?;
        if upto > buffer.bytes {
            bail!("{upto} bytes into a buffer of {}", buffer.bytes);
        }
        if bytes.is_empty() || upto == 0 {
            return Ok(());
        }
        let (mut source, mut left) = (bytes.iter().cycle(), upto);
        for block in &buffer.blocks {
            if left == 0 {
                break;
            }
            let mut all = contents(block);
            let n = left.min(256);
            all[..n].iter_mut().zip(&mut source).for_each(|(to, from)| *to = *from);
            block.set(all);
            left -= n;
        }
        Ok(())
    }

    fn read(&self, buffer: &HostBuffer) -> Result<Vec<u8>> {
        let mut all: Vec<u8> = buffer.blocks.iter().flat_map(contents).collect();
        all.truncate(buffer.bytes);
        Ok(all)
    }

    fn run(&self, k: &HostKernel, bound: &Bound, set: &Set<HostBuffer>) -> Result<()> {
        for (i, (l, f)) in bound.launches.iter().zip(&k.functions).enumerate() {
            let words = bound.pack(i, set, &HostBuffer::address)?;
            self.launch(*f, l, &words).with_context(|| format!("launch {i}"))?;
        }
        Ok(())
    }

    fn time(&self, k: &HostKernel, bound: &Bound, sets: &[Set<HostBuffer>]) -> Result<f64> {
        self.repeat(sets.len(), |i| sets.get(i).map_or(Ok(()), |s| self.run(k, bound, s)))
    }

    fn time_copy(&self, bytes: u64, sets: usize) -> Result<f64> {
        let half = usize::try_from(bytes / 2)?.max(1);
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> =
            (0..sets.max(1)).map(|i| (vec![i as u8 | 1; half], vec![0xff; half])).collect();
        let chunk = half.div_ceil(self.threads);
        self.repeat(pairs.len(), |i| {
            let Some((from, to)) = pairs.get_mut(i) else { return Ok(()) };
            std::thread::scope(|scope| {
                for (a, b) in from.chunks(chunk).zip(to.chunks_mut(chunk)) {
                    scope.spawn(move || b.copy_from_slice(a));
                }
            });
            Ok(())
        })
    }
}

fn contents(block: &Block) -> [u8; 256] {
    let mut all = [0; 256];
    for (bytes, word) in all.chunks_exact_mut(8).zip(&block.0) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_dealt_out_once() {
        for (n, parts) in [(0, 4), (1, 4), (7, 3), (8, 8), (100, 7), (3, 1)] {
            let mut next = 0;
            for (begin, end) in ranges(n, parts) {
                assert!(begin == next && begin < end);
                next = end;
            }
            assert_eq!(next, n);
        }
    }

    #[test]
    fn buffers_keep_their_bytes() {
        let cpu = Cpu::open().expect("this machine");
        let mut b = cpu.buffer(300).expect("room");
        assert_eq!(b.address() % 256, 0);
        cpu.fill(&mut b, 0xff).expect("filled");
        cpu.write(&mut b, &[1, 2, 3], 260).expect("written");
        let all = cpu.read(&b).expect("read");
        assert_eq!(all.len(), 300);
        assert_eq!(all[..5], [1, 2, 3, 1, 2]);
        assert_eq!(all[257..262], [3, 1, 2, 0xff, 0xff]);
        assert!(cpu.write(&mut b, &[1], 301).is_err());
    }

    /// Keeps what it was called with.
    extern "C" fn seven(to: *mut u64, a: i32, b: i32, x0: i32, x1: i32, y0: i32, y1: i32) {
        let all = [a, b, x0, x1, y0, y1];
        let digits = all.iter().fold(0u64, |n, v| n * 100 + *v as u64);
        // SAFETY: the test passes the address of a number that outlives the call.
        unsafe { to.write(digits) };
    }

    #[test]
    fn arguments_arrive() {
        let mut result = 0u64;
        let address = (&raw mut result) as u64;
        call_blocks(seven as *const () as usize, &[address, 11, 12, 13, 14, 15, 16]);
        assert_eq!(result, 111_213_141_516);
    }
}
