//! What has to hold for every pack, on many that are made up.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::Folder;
use vlmc_data::pack::{
    PackOptions, Sample, alignment, pack_samples, pad_samples, rows_of_batch,
    shift_within_documents, zigzag_indices,
};
use vlmc_data::positions::{Pictures, mrope_positions};
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::vision::{frame_boundaries, position_taps, rotary_ids};
use vlmc_data::{Grid, HostData, HostTensor, SequenceLayout};

/// A small generator; the numbers need no quality, only to come again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// A document with its pictures, merge size 2.
#[derive(Default)]
struct Document {
    types: Vec<i64>,
    images: Vec<Grid>,
    videos: Vec<Grid>,
}

fn document(random: &mut Random) -> Document {
    let mut made = Document::default();
    for _ in 0..random.below(5) {
        let text = random.below(4);
        made.types.extend(vec![0; text]);
        let (h, w) = (2 + 2 * random.below(3), 2 + 2 * random.below(3));
        match random.below(3) {
            0 => {
                made.images.push(Grid { t: 1, h, w });
                made.types.extend(vec![1; h * w / 4]);
            }
            1 => {
                let t = 1 + random.below(3);
                made.videos.push(Grid { t, h, w });
                for _ in 0..t {
                    made.types.push(0);
                    made.types.extend(vec![2; h * w / 4]);
                }
            }
            _ => {}
        }
    }
    made
}

#[test]
fn a_document_has_the_positions_it_has_alone() {
    let mut random = Random(1);
    for round in 0..300 {
        let documents: Vec<Document> =
            (0..random.below(5)).map(|_| document(&mut random)).collect();
        let align = 1 + random.below(8);
        let samples: Vec<Sample> = documents
            .iter()
            .map(|document| {
                let ids = vec![1; document.types.len()];
                Sample { labels: ids.clone(), ids, types: document.types.clone() }
            })
            .collect();
        let options = PackOptions { align, tokens: None, documents: Some(6) };
        let packed = pack_samples(&samples, options).unwrap();
        let images: Vec<Grid> = documents.iter().flat_map(|d| d.images.clone()).collect();
        let videos: Vec<Grid> = documents.iter().flat_map(|d| d.videos.clone()).collect();
        let pictures = Some(Pictures { images: &images, videos: &videos });
        let pack = mrope_positions(&packed.types, &packed.layout, pictures, 2).unwrap();
        let tokens = packed.ids.len();
        let mut seen = vec![false; tokens];
        for (place, document) in packed.layout.documents().zip(&documents) {
            let length = document.types.len();
            let alone = SequenceLayout::from_lengths(&[length], 1).unwrap();
            let pictures = Some(Pictures { images: &document.images, videos: &document.videos });
            let alone = mrope_positions(&document.types, &alone, pictures, 2).unwrap();
            for axis in 0..3 {
                let rows = axis * tokens + place.start..axis * tokens + place.start + length;
                assert_eq!(pack.ids[rows], alone.ids[axis * length..(axis + 1) * length]);
            }
            seen[place.valid_rows()].fill(true);
        }
        for row in (0..tokens).filter(|&row| !seen[row]) {
            assert!((0..3).all(|axis| pack.ids[axis * tokens + row] == 0), "round {round}");
        }
    }
}

#[test]
fn a_batch_and_its_pack_hold_the_same_documents() {
    let mut random = Random(2);
    for _ in 0..200 {
        let samples: Vec<Sample> = (0..1 + random.below(4))
            .map(|_| {
                let ids: Vec<i64> = (0..random.below(9)).map(|_| random.below(99) as i64).collect();
                Sample { labels: ids.clone(), types: vec![0; ids.len()], ids }
            })
            .collect();
        let align = 1 + random.below(5);
        let padded = pad_samples(&samples, 99, align, Some(20), false).unwrap();
        assert!(padded.length.is_multiple_of(align));
        let size = (samples.len(), padded.length);
        let back = rows_of_batch(&padded.ids, &padded.labels, &padded.types, &padded.mask, size);
        assert_eq!(back.unwrap(), samples);
        let options = PackOptions { align, tokens: None, documents: None };
        let packed = pack_samples(&samples, options).unwrap();
        for (place, sample) in packed.layout.documents().zip(&samples) {
            assert_eq!(packed.ids[place.valid_rows()], sample.ids);
        }
    }
}

/// Boundaries of up to five documents, some empty, with room up to `tokens`.
fn layout(random: &mut Random, align: usize) -> (SequenceLayout, usize) {
    let lengths: Vec<usize> = (0..random.below(6)).map(|_| random.below(20)).collect();
    let layout = SequenceLayout::from_lengths(&lengths, align).unwrap();
    let tokens = layout.rows() + random.below(5);
    (layout, tokens)
}

#[test]
fn shifts_agree_with_the_row_by_row_rule() {
    let mut random = Random(3);
    for _ in 0..300 {
        let align = 1 + random.below(6);
        let (layout, tokens) = layout(&mut random, align);
        let by = random.below(4);
        let values: Vec<i64> = (0..tokens as i64).collect();
        let owners = layout.seq_idx(tokens);
        let valid = layout.row_valid(tokens);
        let expected: Vec<i64> = (0..tokens)
            .map(|row| {
                let next = row + by;
                let same = next < tokens && owners[row] == owners[next];
                if same && valid[row] && valid[next] { next as i64 } else { -1 }
            })
            .collect();
        assert_eq!(shift_within_documents(&values, &layout, by, -1), expected);
    }
}

#[test]
fn zigzag_agrees_with_the_per_row_rule() {
    // The other form of the same index: local row o of a document of n rows belongs to the
    // document's row rank * a + o in the first half and n - (rank + 1) * b + (o - a) in the second.
    let mut random = Random(4);
    for _ in 0..300 {
        let cp = 2 + random.below(4);
        let (layout, _) = layout(&mut random, alignment(cp));
        for rank in 0..cp {
            let mut expected = Vec::new();
            for document in layout.documents() {
                let local = document.padded / cp;
                let (a, b) = (local.div_ceil(2), local / 2);
                expected.extend((0..local).map(|o| {
                    let row = if o < a {
                        rank * a + o
                    } else {
                        document.padded - (rank + 1) * b + (o - a)
                    };
                    document.start + row
                }));
            }
            let found = zigzag_indices(layout.cu_seqlens_padded(), cp, rank).unwrap();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn boundaries_are_accepted_if_and_only_if_they_are_sound() {
    let mut random = Random(5);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let count = 1 + random.below(4);
        let mut array = |start: i32| {
            let mut at = start;
            (0..count)
                .map(|entry| {
                    if entry > 0 {
                        at += random.below(7) as i32 - 1;
                    }
                    at
                })
                .collect::<Vec<i32>>()
        };
        let (valid, padded) = (array(0), array(0));
        let tokens = random.below(16);
        let rises = |cu: &[i32]| cu.windows(2).all(|pair| pair[0] <= pair[1]);
        let sound = rises(&valid)
            && rises(&padded)
            && (1..count).all(|at| valid[at] - valid[at - 1] <= padded[at] - padded[at - 1])
            && padded[count - 1] <= tokens as i32;
        let made = SequenceLayout::new(valid, padded, tokens);
        assert_eq!(made.is_ok(), sound);
        if let Ok(mut layout) = made {
            accepted += 1;
            let documents = layout.documents().len();
            let before = layout.clone();
            layout.cover(tokens).unwrap();
            layout.fill_documents(documents.max(1) + 2).unwrap();
            assert_eq!(layout.rows(), tokens);
            assert_eq!(layout.valid_tokens(), before.valid_tokens());
            // Real rows stay where they were.
            let real = |layout: &SequenceLayout| layout.row_valid(tokens);
            assert_eq!(real(&layout), real(&before));
        } else {
            refused += 1;
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
}

#[test]
fn tables_of_several_pictures_are_those_of_each() {
    let mut random = Random(6);
    for _ in 0..100 {
        let merge = 1 + random.below(3);
        let grids: Vec<Grid> = (0..random.below(4))
            .map(|_| Grid {
                t: 1 + random.below(3),
                h: merge * (1 + random.below(4)),
                w: merge * (1 + random.below(4)),
            })
            .collect();
        let side = 1 + random.below(9);
        let taps = position_taps(&grids, side, merge).unwrap();
        let rotary = rotary_ids(&grids, merge).unwrap();
        let frames = frame_boundaries(&grids).unwrap();
        let (mut rows, mut ids, mut ends) = (Vec::new(), Vec::new(), vec![0]);
        for &grid in &grids {
            // Each frame is the picture of one frame again.
            let frame = [Grid { t: 1, ..grid }];
            for _ in 0..grid.t {
                rows.extend(position_taps(&frame, side, merge).unwrap().rows);
                ids.extend(rotary_ids(&frame, merge).unwrap());
                ends.push(ends[ends.len() - 1] + (grid.h * grid.w) as i32);
            }
        }
        assert_eq!((taps.rows, rotary, frames), (rows, ids, ends));
    }
    // Each block of merge x merge rows covers one square of the frame.
    let ids = rotary_ids(&[Grid { t: 1, h: 6, w: 9 }], 3).unwrap();
    for block in ids.chunks(18) {
        let corner: Vec<i64> = block[..2].iter().map(|at| at / 3).collect();
        assert!(block.chunks(2).all(|at| [at[0] / 3, at[1] / 3] == corner[..]));
    }
}

#[test]
fn files_of_any_shapes_read_back() {
    let mut random = Random(7);
    let folder = Folder::new("properties");
    let path = folder.0.join("a.safetensors");
    for _ in 0..60 {
        let tensors: Vec<(String, HostTensor)> = (0..random.below(6))
            .map(|number| {
                let shape: Vec<usize> = (0..random.below(4)).map(|_| random.below(4)).collect();
                let count = shape.iter().product();
                let data = match random.below(3) {
                    0 => HostData::U8((0..count).map(|_| random.below(256) as u8).collect()),
                    1 => HostData::F32((0..count).map(|_| random.below(99) as f32).collect()),
                    _ => HostData::Bool((0..count).map(|_| random.below(2) == 1).collect()),
                };
                // Names that JSON has to escape.
                (format!("\"\\\u{e9}\n{number}"), HostTensor::new(shape, data).unwrap())
            })
            .collect();
        let borrowed = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let metadata = BTreeMap::from([("key".to_owned(), "\u{1f600}\"".to_owned())]);
        write_file(&path, borrowed, &metadata).unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.metadata(), &metadata);
        assert_eq!(file.names().len(), tensors.len());
        for (name, tensor) in &tensors {
            assert_eq!(&file.read(name).unwrap(), tensor);
        }
    }
}
