//! From values to blocks: who shares a place, and from when to when.

use super::flatten::Flat;
use super::pack::Span;
use super::{MemoryError, aligned, pool_of};
use vlmc_artifact::Buffer;
use vlmc_artifact::memory::{Block, Execution, Pool, What};

/// What is live when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Live {
    /// Every block; offsets are 0.
    pub blocks: Vec<Block>,
    /// Every execution with what it frees.
    pub executions: Vec<Execution>,
    /// Where results of the step are.
    pub results: Vec<(Buffer, usize)>,
}

impl Live {
    /// Bytes of blocks that come and go, live during each execution: before what it frees is free.
    pub fn timeline(&self) -> Vec<u64> {
        self.walk(|b| b.bytes)
    }

    /// The most bytes of such blocks at a time, each up to the alignment.
    pub fn peak(&self) -> u64 {
        self.walk(|b| aligned(b.bytes)).into_iter().max().unwrap_or(0)
    }

    /// The execution of the peak.
    pub fn peak_at(&self) -> usize {
        let all = self.walk(|b| aligned(b.bytes));
        let most = all.iter().copied().max().unwrap_or(0);
        all.iter().position(|b| *b == most).unwrap_or(0)
    }

    /// Bytes of all blocks that stay, each up to the alignment.
    pub fn resident(&self) -> u64 {
        self.blocks.iter().filter(|b| b.resident()).map(|b| aligned(b.bytes)).sum()
    }

    /// Blocks that are live during an execution.
    pub fn at(&self, execution: usize) -> Vec<usize> {
        let spans = self.spans();
        let live = spans.iter().filter(|s| s.start <= execution && execution <= s.end);
        live.map(|s| s.block).collect()
    }

    fn walk(&self, bytes: impl Fn(&Block) -> u64) -> Vec<u64> {
        let mut change = vec![0i128; self.executions.len() + 1];
        for s in self.spans() {
            let b = i128::from(bytes(&self.blocks[s.block]));
            change[s.start] += b;
            change[s.end + 1] -= b;
        }
        let mut now = 0i128;
        let sums = change.iter().map(|c| {
            now += c;
            u64::try_from(now).unwrap_or(0)
        });
        sums.take(self.executions.len()).collect()
    }

    /// From when to when blocks that come and go are live.
    pub fn spans(&self) -> Vec<Span> {
        let last = self.executions.len().saturating_sub(1);
        let mut spans: Vec<Option<Span>> = vec![None; self.blocks.len()];
        for (i, e) in self.executions.iter().enumerate() {
            for b in e.writes.iter().filter(|b| !self.blocks[**b].resident()) {
                let bytes = aligned(self.blocks[*b].bytes);
                spans[*b].get_or_insert(Span { block: *b, start: i, end: last, bytes });
            }
            for b in &e.frees {
                if let Some(s) = &mut spans[*b] {
                    s.end = i;
                }
            }
        }
        spans.into_iter().flatten().collect()
    }
}

/// Gives values their blocks.
pub(super) fn blocks(flat: Flat) -> Result<Live, MemoryError> {
    let end = flat.works.len();
    let mut last: Vec<usize> = vec![0; flat.items.len()];
    for (i, w) in flat.works.iter().enumerate() {
        w.reads.iter().chain(&w.writes).for_each(|v| last[*v] = i);
    }
    flat.results.iter().for_each(|(_, v)| last[*v] = end);
    // Blocks in the order of values, those that stay first.
    let mut blocks: Vec<Block> = vec![];
    let mut of: Vec<Option<usize>> = vec![None; flat.items.len()];
    for (v, item) in flat.items.iter().enumerate() {
        if let Some(buffer) = item.stays.clone() {
            let Some(pool) = pool_of(&buffer) else { continue };
            let buffer = Some(buffer);
            of[v] = Some(blocks.len());
            let (name, bytes) = (item.name.clone(), item.bytes);
            blocks.push(Block { name, pool, offset: 0, bytes, buffer });
        }
    }
    // What stays is read until it is replaced: up to the last read before the copy to it.
    let in_place: Vec<Option<usize>> = {
        let mut out = vec![None; flat.items.len()];
        for (v, (target, _)) in &flat.targets {
            let copies = |w: &super::flatten::Work| {
                matches!(w.what, What::Copy { .. }) && w.writes == [*target]
            };
            let copy = flat.works.iter().rposition(copies).unwrap_or(end);
            let reads = flat.works[..copy].iter().rposition(|w| w.reads.contains(target));
            let made = flat.works.iter().position(|w| w.writes.contains(v));
            let fits = made.is_some_and(|m| {
                reads.is_none_or(|r| r < m || (r == m && flat.works[m].pointwise))
                    && flat.items[*v].bytes == flat.items[*target].bytes
            });
            if fits {
                out[*v] = of[*target];
            }
        }
        out
    };
    let mut executions: Vec<Execution> = vec![];
    let mut freed_at: Vec<usize> = vec![];
    for (i, w) in flat.works.iter().enumerate() {
        // A result that was made in its place needs no copy.
        if let (What::Copy { .. }, [v]) = (&w.what, &w.reads[..])
            && in_place[*v].is_some()
        {
            freed_at.push(executions.len());
            continue;
        }
        let lost = || MemoryError::new(format!("`{}` reads what is not made", w.name));
        let reads = w.reads.iter().map(|v| of[*v]).collect::<Option<Vec<_>>>();
        let reads = reads.ok_or_else(lost)?;
        let mut taken: Vec<usize> = vec![];
        for v in &w.writes {
            if of[*v].is_some() {
                continue;
            }
            let item = &flat.items[*v];
            let operand = w.reads.iter().zip(&reads).find(|(r, b)| {
                w.pointwise
                    && last[**r] == i
                    && !blocks[**b].resident()
                    && blocks[**b].bytes == item.bytes
                    && !taken.contains(b)
                    // Another value may be in the same block still.
                    && !flat.results.iter().any(|(_, v)| v == *r)
            });
            of[*v] = Some(match (in_place[*v], operand) {
                (Some(b), _) => b,
                (None, Some((_, b))) => {
                    taken.push(*b);
                    *b
                }
                (None, None) => {
                    let (name, bytes) = (item.name.clone(), item.bytes);
                    let pool = Pool::Activations;
                    blocks.push(Block { name, pool, offset: 0, bytes, buffer: None });
                    blocks.len() - 1
                }
            });
        }
        let writes = w.writes.iter().map(|v| of[*v]).collect::<Option<Vec<_>>>();
        let writes = writes.ok_or_else(lost)?;
        freed_at.push(executions.len());
        executions.push(Execution {
            name: w.name.clone(),
            what: w.what.clone(),
            reads,
            writes,
            frees: vec![],
        });
    }
    // A block is free after the last use of the last value in it.
    let mut uses: Vec<usize> = vec![0; blocks.len()];
    for (v, b) in of.iter().enumerate() {
        if let Some(b) = b {
            uses[*b] = uses[*b].max(last[v]);
        }
    }
    for (b, until) in uses.into_iter().enumerate() {
        if !blocks[b].resident() && until < end {
            let at = freed_at[until].min(executions.len().saturating_sub(1));
            executions[at].frees.push(b);
        }
    }
    let results = flat.results.iter().filter_map(|(b, v)| Some((b.clone(), of[*v]?))).collect();
    Ok(Live { blocks, executions, results })
}
