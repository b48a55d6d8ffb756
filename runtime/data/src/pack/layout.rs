use std::ops::Range;

use thiserror::Error;

/// Why boundaries were refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum LayoutError {
    #[error("{name} is empty, it needs at least the boundary 0")]
    Empty { name: &'static str },
    #[error("{name} starts at {first}, it must start at 0")]
    Start { name: &'static str, first: i32 },
    #[error("{name} falls from {from} to {to} at entry {entry}")]
    Falls { name: &'static str, entry: usize, from: i32, to: i32 },
    #[error("cu_seqlens has {valid} entries and cu_seqlens_padded has {padded}")]
    Counts { valid: usize, padded: usize },
    #[error("document {document} has {valid} tokens in {padded} padded rows")]
    ValidAbovePadded { document: usize, valid: i32, padded: i32 },
    #[error("the documents fill {rows} rows, the pack has {tokens}")]
    TooManyRows { rows: usize, tokens: usize },
    #[error("{rows} rows do not fit in the 32-bit boundaries")]
    Overflow { rows: usize },
    #[error("the alignment is 0, it must be at least 1")]
    Alignment,
    #[error("attention_mask has {values} values, {batch} rows of {length} need {needed}")]
    MaskLength { values: usize, batch: usize, length: usize, needed: usize },
    #[error("attention_mask holds {value} at row {row} column {column}, it may hold 0 and 1")]
    MaskValue { row: usize, column: usize, value: i64 },
    #[error(
        "attention_mask is 1 again at row {row} column {column} after a 0 at column {zero}; \
         only padding on the right is supported"
    )]
    MaskHole { row: usize, zero: usize, column: usize },
}

/// One document of a pack, in rows of the pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// First row.
    pub start: usize,
    /// Number of real tokens, which come first.
    pub valid: usize,
    /// Number of rows with padding; at least `valid`.
    pub padded: usize,
}

impl Document {
    /// Rows that hold real tokens.
    pub fn valid_rows(self) -> Range<usize> {
        self.start..self.start + self.valid
    }

    /// All rows.
    pub fn rows(self) -> Range<usize> {
        self.start..self.start + self.padded
    }
}

/// Boundaries of the documents of a pack.
///
/// Both arrays have one entry more than there are documents, start at 0 and never fall. Entries
/// that repeat at the end fill an array of fixed size; they are documents without rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceLayout {
    cu_seqlens: Vec<i32>,
    cu_seqlens_padded: Vec<i32>,
}

fn check_boundaries(name: &'static str, cu: &[i32]) -> Result<(), LayoutError> {
    match cu.first() {
        None => return Err(LayoutError::Empty { name }),
        Some(&first) if first != 0 => return Err(LayoutError::Start { name, first }),
        Some(_) => {}
    }
    match cu.windows(2).position(|pair| pair[1] < pair[0]) {
        Some(at) => Err(LayoutError::Falls { name, entry: at + 1, from: cu[at], to: cu[at + 1] }),
        None => Ok(()),
    }
}

fn boundary(rows: usize) -> Result<i32, LayoutError> {
    i32::try_from(rows).map_err(|_| LayoutError::Overflow { rows })
}

impl SequenceLayout {
    /// Boundaries from outside, for a pack of `tokens` rows.
    ///
    /// # Errors
    /// If an array does not start at 0 or falls, the arrays differ in length, a document has more
    /// tokens than rows, or the documents have more than `tokens` rows.
    pub fn new(
        cu_seqlens: Vec<i32>,
        cu_seqlens_padded: Vec<i32>,
        tokens: usize,
    ) -> Result<SequenceLayout, LayoutError> {
        check_boundaries("cu_seqlens", &cu_seqlens)?;
        check_boundaries("cu_seqlens_padded", &cu_seqlens_padded)?;
        if cu_seqlens.len() != cu_seqlens_padded.len() {
            let (valid, padded) = (cu_seqlens.len(), cu_seqlens_padded.len());
            return Err(LayoutError::Counts { valid, padded });
        }
        let pairs = cu_seqlens.windows(2).zip(cu_seqlens_padded.windows(2));
        for (document, (valid, padded)) in pairs.enumerate() {
            // Neither difference can overflow: the entries lie in 0..=i32::MAX and never fall.
            let (valid, padded) = (valid[1] - valid[0], padded[1] - padded[0]);
            if valid > padded {
                return Err(LayoutError::ValidAbovePadded { document, valid, padded });
            }
        }
        let layout = SequenceLayout { cu_seqlens, cu_seqlens_padded };
        let rows = layout.rows();
        if rows > tokens {
            return Err(LayoutError::TooManyRows { rows, tokens });
        }
        Ok(layout)
    }

    /// Documents of the given lengths, each padded up to a multiple of `align`.
    ///
    /// # Errors
    /// If `align` is 0 or the rows do not fit in 32 bits.
    pub fn from_lengths(lengths: &[usize], align: usize) -> Result<SequenceLayout, LayoutError> {
        let (mut valid_end, mut padded_end) = (0usize, 0usize);
        let mut cu_seqlens = vec![0];
        let mut cu_seqlens_padded = vec![0];
        if align == 0 {
            return Err(LayoutError::Alignment);
        }
        for &length in lengths {
            let padded = length.checked_next_multiple_of(align);
            let end = padded.and_then(|padded| padded_end.checked_add(padded));
            padded_end = end.ok_or(LayoutError::Overflow { rows: length })?;
            cu_seqlens_padded.push(boundary(padded_end)?);
            // Not above `padded_end`.
            valid_end += length;
            cu_seqlens.push(boundary(valid_end)?);
        }
        Ok(SequenceLayout { cu_seqlens, cu_seqlens_padded })
    }

    /// The rows of a batch `[batch, length]`, padded on the right as `mask` says (1 real, 0
    /// padding, row-major).
    ///
    /// # Errors
    /// If the mask has another size, another value, or a 1 after a 0 in one row.
    pub fn from_mask(
        mask: &[i64],
        batch: usize,
        length: usize,
    ) -> Result<SequenceLayout, LayoutError> {
        let needed = batch.saturating_mul(length);
        if mask.len() != needed {
            return Err(LayoutError::MaskLength { values: mask.len(), batch, length, needed });
        }
        let mut cu_seqlens = vec![0];
        let mut valid_end = 0;
        for row in 0..batch {
            let values = &mask[row * length..(row + 1) * length];
            if let Some(column) = values.iter().position(|&value| value != 0 && value != 1) {
                return Err(LayoutError::MaskValue { row, column, value: values[column] });
            }
            let zero = values.iter().position(|&value| value == 0).unwrap_or(length);
            if let Some(after) = values[zero..].iter().position(|&value| value == 1) {
                return Err(LayoutError::MaskHole { row, zero, column: zero + after });
            }
            valid_end += zero;
            cu_seqlens.push(boundary(valid_end)?);
        }
        let padded: Result<Vec<i32>, _> = (0..=batch).map(|row| boundary(row * length)).collect();
        Ok(SequenceLayout { cu_seqlens, cu_seqlens_padded: padded? })
    }

    /// Cumulative counts of real tokens, one entry more than documents.
    pub fn cu_seqlens(&self) -> &[i32] {
        &self.cu_seqlens
    }

    /// Cumulative counts of rows, one entry more than documents.
    pub fn cu_seqlens_padded(&self) -> &[i32] {
        &self.cu_seqlens_padded
    }

    /// All documents, those without rows among them.
    pub fn documents(&self) -> impl ExactSizeIterator<Item = Document> {
        let count = self.cu_seqlens.len() - 1;
        (0..count).map(|at| Document {
            start: self.cu_seqlens_padded[at] as usize,
            valid: (self.cu_seqlens[at + 1] - self.cu_seqlens[at]) as usize,
            padded: (self.cu_seqlens_padded[at + 1] - self.cu_seqlens_padded[at]) as usize,
        })
    }

    /// Rows that belong to documents.
    pub fn rows(&self) -> usize {
        self.cu_seqlens_padded.last().map_or(0, |&end| end as usize)
    }

    /// Real tokens.
    pub fn valid_tokens(&self) -> usize {
        self.cu_seqlens.last().map_or(0, |&end| end as usize)
    }

    /// Rows of the longest document, padding counted.
    pub fn max_rows(&self) -> usize {
        self.documents().map(|document| document.padded).max().unwrap_or(0)
    }

    /// Lengthens the last document that has rows, by padding, until the documents fill `tokens`
    /// rows. A pack without documents gets one that is all padding.
    ///
    /// # Errors
    /// If there are more than `tokens` rows, or `tokens` does not fit in 32 bits.
    pub fn cover(&mut self, tokens: usize) -> Result<(), LayoutError> {
        let rows = self.rows();
        if rows > tokens {
            return Err(LayoutError::TooManyRows { rows, tokens });
        }
        let end = boundary(tokens)?;
        if self.cu_seqlens_padded.len() == 1 {
            self.cu_seqlens.push(0);
            self.cu_seqlens_padded.push(end);
            return Ok(());
        }
        let last = rows as i32;
        // The end of the last document with rows is the first entry that equals the total. In a
        // pack of none but empty documents that would be entry 0, which must stay 0.
        for entry in self.cu_seqlens_padded.iter_mut().skip(1).rev() {
            if *entry != last {
                break;
            }
            *entry = end;
        }
        Ok(())
    }

    /// Repeats the last boundaries until there is room for `documents` documents.
    ///
    /// # Errors
    /// [`LayoutError::Counts`] if there are more already; trailing empty ones do not count.
    pub fn fill_documents(&mut self, documents: usize) -> Result<(), LayoutError> {
        while self.cu_seqlens.len() > documents + 1 {
            let last = self.cu_seqlens_padded.len() - 1;
            if self.cu_seqlens_padded[last] != self.cu_seqlens_padded[last - 1] {
                return Err(LayoutError::Counts { valid: last + 1, padded: documents + 1 });
            }
            self.cu_seqlens.pop();
            self.cu_seqlens_padded.pop();
        }
        let (valid, rows) = (self.valid_tokens() as i32, self.rows() as i32);
        self.cu_seqlens.resize(documents + 1, valid);
        self.cu_seqlens_padded.resize(documents + 1, rows);
        Ok(())
    }

    /// Number of the document that owns each row, `[tokens]`. Rows after the last boundary get
    /// one number more than the last document with rows. Rows of documents past `tokens` are left
    /// out.
    pub fn seq_idx(&self, tokens: usize) -> Vec<i32> {
        let mut owners = vec![0; tokens];
        let mut after = 0;
        for (number, document) in (0i32..).zip(self.documents()) {
            if document.padded > 0 {
                let rows = document.rows();
                owners[rows.start.min(tokens)..rows.end.min(tokens)].fill(number);
                after = number + 1;
            }
        }
        owners[self.rows().min(tokens)..].fill(after);
        owners
    }

    /// Whether each row holds a real token, `[tokens]`. Rows of documents past `tokens` are left out.
    pub fn row_valid(&self, tokens: usize) -> Vec<bool> {
        let mut valid = vec![false; tokens];
        for document in self.documents() {
            let rows = document.valid_rows();
            valid[rows.start.min(tokens)..rows.end.min(tokens)].fill(true);
        }
        valid
    }
}
