//! Packing, boundaries and the context-parallel index, on worked cases and on all small cases.
#![allow(clippy::unwrap_used)]

use vlmc_data::SequenceLayout;
use vlmc_data::pack::{
    LayoutError, PackError, PackOptions, Sample, alignment, loss_mask, pack_samples, pad_samples,
    rows_of_batch, shift_within_documents, truncate_sample, zigzag_indices,
};

fn sample(ids: &[i64]) -> Sample {
    Sample { ids: ids.to_vec(), labels: ids.to_vec(), types: vec![0; ids.len()] }
}

const TIGHT: PackOptions = PackOptions { align: 4, tokens: None, documents: None };

#[test]
fn worked_case_of_three_samples() {
    let layout = SequenceLayout::from_lengths(&[5, 8, 3], 4).unwrap();
    assert_eq!(layout.cu_seqlens(), [0, 5, 13, 16]);
    assert_eq!(layout.cu_seqlens_padded(), [0, 8, 16, 20]);
    assert_eq!((layout.rows(), layout.valid_tokens(), layout.max_rows()), (20, 16, 8));
}

#[test]
fn worked_case_of_one_sample() {
    let packed = pack_samples(&[sample(&[10, 11, 12])], TIGHT).unwrap();
    assert_eq!(packed.ids, [10, 11, 12, 0]);
    assert_eq!(packed.labels, [10, 11, 12, -100]);
    assert_eq!(packed.layout.row_valid(4), [true, true, true, false]);
    let shifted = shift_within_documents(&packed.labels, &packed.layout, 1, -100);
    assert_eq!(shifted, [11, 12, -100, -100]);
    assert_eq!(loss_mask(&shifted), [true, true, false, false]);
}

#[test]
fn document_numbers() {
    let layout = SequenceLayout::from_lengths(&[3, 2], 1).unwrap();
    assert_eq!(layout.seq_idx(5), [0, 0, 0, 1, 1]);
    // Rows after the last boundary get a number of their own, also with repeats at the end.
    assert_eq!(layout.seq_idx(7), [0, 0, 0, 1, 1, 2, 2]);
    let repeats = SequenceLayout::new(vec![0, 3, 5, 5, 5], vec![0, 3, 5, 5, 5], 6).unwrap();
    assert_eq!(repeats.seq_idx(6), [0, 0, 0, 1, 1, 2]);
}

#[test]
fn labels_never_cross_a_document() {
    let layout = SequenceLayout::new(vec![0, 3, 5], vec![0, 4, 6], 7).unwrap();
    let labels = [1, 2, 3, 90, 4, 5, 91];
    assert_eq!(
        shift_within_documents(&labels, &layout, 1, -100),
        [2, 3, -100, -100, 5, -100, -100]
    );
    assert_eq!(
        shift_within_documents(&labels, &layout, 2, -100),
        [3, -100, -100, -100, -100, -100, -100]
    );
    assert_eq!(shift_within_documents(&labels, &layout, 9, 0), [0; 7]);
    assert_eq!(shift_within_documents(&labels, &layout, usize::MAX, 0), [0; 7]);
}

#[test]
fn zigzag_worked_cases() {
    assert_eq!(zigzag_indices(&[0, 16], 4, 0).unwrap(), [0, 1, 14, 15]);
    assert_eq!(zigzag_indices(&[0, 16], 4, 1).unwrap(), [2, 3, 12, 13]);
    assert_eq!(zigzag_indices(&[0, 8, 16, 20], 2, 0).unwrap(), [0, 1, 6, 7, 8, 9, 14, 15, 16, 19]);
    assert_eq!(zigzag_indices(&[0, 8], 2, 0).unwrap(), [0, 1, 6, 7]);
    // The second document of a pack starts at its own offset, not at 0.
    assert_eq!(zigzag_indices(&[0, 4, 8], 2, 0).unwrap(), [0, 3, 4, 7]);
    assert_eq!(zigzag_indices(&[0, 3, 5], 1, 0).unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(zigzag_indices(&[0, 4, 4, 4], 2, 1).unwrap(), [1, 2]);
}

#[test]
fn zigzag_refuses_a_document_though_the_total_divides() {
    // 16 rows divide by 8, the documents of 6 and 10 do not.
    let error = zigzag_indices(&[0, 6, 16], 4, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "document 0 has 6 padded rows, not a multiple of 8 (2 x 4 context-parallel ranks)"
    );
    let error = zigzag_indices(&[0, 8, 14, 24], 2, 1).unwrap_err();
    assert!(error.to_string().starts_with("document 1 has 6 padded rows"), "{error}");
    assert!(zigzag_indices(&[0, 8], 2, 2).is_err());
    assert!(zigzag_indices(&[0, 8], 0, 0).is_err());
    assert!(zigzag_indices(&[1, 8], 2, 0).is_err());
    assert!(zigzag_indices(&[0, 8, 4], 2, 0).is_err());
}

#[test]
fn zigzag_shards_tile_every_small_pack_and_balance_causal_work() {
    for cp in 1..=4 {
        let unit = alignment(cp) as i32;
        for first in 0..4 {
            for second in 0..4 {
                let cu = [0, first * unit, (first + second) * unit, (first + second) * unit];
                let shards: Vec<Vec<usize>> =
                    (0..cp).map(|rank| zigzag_indices(&cu, cp, rank).unwrap()).collect();
                let mut all = shards.concat();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..cu[3] as usize));
                // Rows of a document before a row, itself included: what causal attention costs.
                let work = |shard: &Vec<usize>| -> usize {
                    let start = |row: usize| if row < cu[1] as usize { 0 } else { cu[1] as usize };
                    shard.iter().map(|&row| row - start(row) + 1).sum()
                };
                assert!(shards.iter().all(|shard| work(shard) == work(&shards[0])));
                let local = |shard: &Vec<usize>| {
                    shard.iter().filter(|&&row| row < cu[1] as usize).count() * cp
                };
                assert!(shards.iter().all(|shard| local(shard) == cu[1] as usize));
            }
        }
    }
}

#[test]
fn boundaries_that_are_refused() {
    let text = |valid: &[i32], padded: &[i32], tokens| {
        SequenceLayout::new(valid.to_vec(), padded.to_vec(), tokens).unwrap_err().to_string()
    };
    assert_eq!(text(&[], &[0], 4), "cu_seqlens is empty, it needs at least the boundary 0");
    assert_eq!(text(&[0, 1], &[1, 2], 4), "cu_seqlens_padded starts at 1, it must start at 0");
    assert_eq!(text(&[0, 3, 2], &[0, 4, 8], 8), "cu_seqlens falls from 3 to 2 at entry 2");
    assert_eq!(
        text(&[0, 3], &[0, 4, 8], 8),
        "cu_seqlens has 2 entries and cu_seqlens_padded has 3"
    );
    assert_eq!(text(&[0, 2, 8], &[0, 4, 8], 8), "document 1 has 6 tokens in 4 padded rows");
    assert_eq!(text(&[0, 4], &[0, 8], 7), "the documents fill 8 rows, the pack has 7");
    assert!(SequenceLayout::new(vec![0], vec![0], 0).is_ok());
    assert!(SequenceLayout::new(vec![0, i32::MIN], vec![0, i32::MAX], 9).is_err());
    assert_eq!(SequenceLayout::from_lengths(&[1], 0), Err(LayoutError::Alignment));
    for lengths in [&[usize::MAX][..], &[usize::MAX - 3, 7], &[1 << 30, 1 << 30]] {
        let error = SequenceLayout::from_lengths(lengths, 4).unwrap_err();
        assert!(matches!(error, LayoutError::Overflow { .. }));
    }
}

#[test]
fn masks() {
    let layout = SequenceLayout::from_mask(&[1, 1, 0, 1, 1, 1, 0, 0, 0], 3, 3).unwrap();
    assert_eq!(layout.cu_seqlens(), [0, 2, 5, 5]);
    assert_eq!(layout.cu_seqlens_padded(), [0, 3, 6, 9]);
    let text = |mask: &[i64]| SequenceLayout::from_mask(mask, 2, 3).unwrap_err().to_string();
    assert!(
        text(&[1, 1, 1, 1, 0, 1])
            .starts_with("attention_mask is 1 again at row 1 column 2 after a 0 at column 1")
    );
    assert!(text(&[0, 1, 1, 1, 1, 1]).contains("row 0 column 1"));
    assert_eq!(
        text(&[1, 1, 2, 1, 1, 1]),
        "attention_mask holds 2 at row 0 column 2, it may hold 0 and 1"
    );
    assert_eq!(text(&[1; 5]), "attention_mask has 5 values, 2 rows of 3 need 6");
}

#[test]
fn a_pack_of_fixed_capacity_gives_every_row_an_owner() {
    let options = PackOptions { align: 4, tokens: Some(16), documents: Some(4) };
    let packed = pack_samples(&[sample(&[1, 2, 3]), sample(&[4, 5])], options).unwrap();
    assert_eq!(packed.layout.cu_seqlens(), [0, 3, 5, 5, 5]);
    assert_eq!(packed.layout.cu_seqlens_padded(), [0, 4, 16, 16, 16]);
    assert_eq!(packed.ids[..8], [1, 2, 3, 0, 4, 5, 0, 0]);
    let empty = pack_samples(&[], options).unwrap();
    assert_eq!(empty.layout.cu_seqlens_padded(), [0, 16, 16, 16, 16]);
    assert_eq!(empty.layout.valid_tokens(), 0);
    let error = |samples: &[Sample], tokens, documents| {
        let options = PackOptions { align: 4, tokens: Some(tokens), documents: Some(documents) };
        pack_samples(samples, options).unwrap_err().to_string()
    };
    let five = sample(&[1; 5]);
    assert_eq!(
        error(std::slice::from_ref(&five), 4, 1),
        "the samples need 8 rows after alignment to 4, the pack has 4"
    );
    assert_eq!(
        error(&[five.clone(), five.clone()], 16, 1),
        "there are 2 samples, the pack has room for 1 documents"
    );
    assert_eq!(
        error(std::slice::from_ref(&five), 10, 1),
        "2 rows would be added at the end, not a multiple of the alignment 4"
    );
    let crooked = Sample { labels: vec![1], ..five };
    assert_eq!(error(&[crooked], 8, 1), "sample 0 has 5 ids, 1 labels and 5 token types");
}

#[test]
fn padding_rounds_up_and_packing_its_rows_gives_the_samples_back() {
    let samples = [sample(&[1, 2, 3, 4, 5]), sample(&[6, 7])];
    let padded = pad_samples(&samples, 9, 4, Some(100), false).unwrap();
    assert_eq!(padded.length, 8);
    assert_eq!(padded.ids[8..], [6, 7, 9, 9, 9, 9, 9, 9]);
    assert_eq!(padded.labels[5..8], [-100; 3]);
    assert_eq!(padded.mask, [1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
    let sizes = (2, 8);
    let back = rows_of_batch(&padded.ids, &padded.labels, &padded.types, &padded.mask, sizes);
    assert_eq!(back.unwrap(), samples);
    assert_eq!(pad_samples(&samples, 9, 4, Some(12), true).unwrap().length, 12);
    assert_eq!(pad_samples(&samples, 9, 4, Some(6), false).unwrap().length, 8);
    let error = |length, exact| pad_samples(&samples, 9, 4, length, exact).unwrap_err();
    assert_eq!(error(None, false), PackError::NoLength);
    assert_eq!(error(Some(10), true), PackError::RowAlignment { seq_length: 10, align: 4 });
    assert_eq!(error(Some(4), false), PackError::Long { sample: 0, length: 5, target: 4 });
}

#[test]
fn truncation_never_loses_a_picture() {
    let mut long = sample(&[1, 2, 3, 4]);
    long.types = vec![0, 1, 0, 0];
    assert_eq!(truncate_sample(&mut long, 9), Ok(false));
    assert_eq!(truncate_sample(&mut long, 2), Ok(true));
    assert_eq!(long.ids, [1, 2]);
    let error = truncate_sample(&mut long, 1).unwrap_err();
    assert_eq!(error, PackError::CutsImage { length: 2, seq_length: 1, at: 1 });
}

#[test]
fn growing_and_shrinking_the_room_for_documents() {
    let mut layout = SequenceLayout::from_lengths(&[2, 2], 1).unwrap();
    layout.fill_documents(4).unwrap();
    assert_eq!(layout.cu_seqlens(), [0, 2, 4, 4, 4]);
    layout.fill_documents(2).unwrap();
    assert_eq!(layout.cu_seqlens(), [0, 2, 4]);
    assert_eq!(layout.fill_documents(1), Err(LayoutError::Counts { valid: 3, padded: 2 }));
    assert_eq!(layout.cover(3), Err(LayoutError::TooManyRows { rows: 4, tokens: 3 }));
}

#[test]
fn labels_are_shifted_before_the_cut() {
    // Two ranks, 8 tokens: the label of position 1 on rank 0 is token 2, which rank 1 holds.
    let tokens: Vec<i64> = (0..8).collect();
    let layout = SequenceLayout::from_lengths(&[8], alignment(2)).unwrap();
    let labels = shift_within_documents(&tokens, &layout, 1, -100);
    let rows = zigzag_indices(layout.cu_seqlens_padded(), 2, 0).unwrap();
    let local: Vec<i64> = rows.iter().map(|&row| labels[row]).collect();
    assert_eq!(local, [1, 2, 7, -100]);
}

#[test]
fn rows_past_the_end_are_left_out() {
    let layout = SequenceLayout::from_lengths(&[3, 4], 1).unwrap();
    assert_eq!(layout.row_valid(2), [true, true]);
    assert_eq!(layout.seq_idx(4), [0, 0, 0, 1]);
    assert_eq!(shift_within_documents(&[1, 2, 3, 4], &layout, 1, 0), [2, 3, 0, 0]);
}
