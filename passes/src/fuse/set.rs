//! Sets of node indices, small and ordered.

/// A set of indices as bits. Sets of one function compare and hash by content.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(super) struct Set {
    words: Vec<u64>,
}

impl Set {
    pub(super) fn of(indices: impl IntoIterator<Item = usize>) -> Self {
        let mut out = Set::default();
        indices.into_iter().for_each(|i| out.insert(i));
        out
    }

    pub(super) fn insert(&mut self, i: usize) {
        if self.words.len() <= i / 64 {
            self.words.resize(i / 64 + 1, 0);
        }
        self.words[i / 64] |= 1 << (i % 64);
    }

    pub(super) fn remove(&mut self, i: usize) {
        if let Some(word) = self.words.get_mut(i / 64) {
            *word &= !(1 << (i % 64));
        }
        // No empty words at the end, so that equal sets are equal.
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    pub(super) fn contains(&self, i: usize) -> bool {
        self.words.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }

    pub(super) fn extend(&mut self, other: &Set) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }

    pub(super) fn meets(&self, other: &Set) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The largest index.
    pub(super) fn last(&self) -> Option<usize> {
        self.iter().next_back()
    }

    pub(super) fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// The indices, increasing.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let bits = |(i, w): (usize, &u64)| {
            let w = *w;
            (0..64).filter(move |b| w >> b & 1 == 1).map(move |b| i * 64 + b)
        };
        self.words.iter().enumerate().flat_map(bits)
    }
}
