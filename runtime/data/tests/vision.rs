//! Picture tables against the public implementation's.
#![allow(clippy::unwrap_used)]

mod common;

use common::Golden;
use vlmc_data::vision::{
    PlaceholderTokens, VisionError, feature_index, frame_boundaries, grids_of, position_taps,
    rotary_ids,
};
use vlmc_data::{Grid, SequenceLayout};

fn check(case: &str) {
    let golden = Golden::open(&format!("ops/{case}"));
    let grids = golden.grids("in.grid_thw");
    let table = golden.0.info("param.pos_embed.weight").unwrap().shape[0];
    let taps = position_taps(&grids, table.isqrt(), 2).unwrap();
    let rows = golden.integers("mid.pos_taps");
    let weights = golden.tensor("mid.pos_weights").to_f32();
    assert_eq!((taps.rows.len(), taps.weights.len()), (rows.len(), weights.len()), "{case}");
    for at in 0..rows.len() {
        let close = (taps.weights[at] - weights[at]).abs() <= 2e-6;
        // A tap of no weight may be any row.
        let same = taps.rows[at] == rows[at] || weights[at].abs() <= 2e-6;
        assert!(close && same, "{case}: patch {} tap {}", at / 4, at % 4);
    }
    assert_eq!(rotary_ids(&grids, 2).unwrap(), golden.integers("mid.rope_position_ids"), "{case}");
    let frames: Vec<i64> = frame_boundaries(&grids).unwrap().into_iter().map(i64::from).collect();
    assert_eq!(frames, golden.integers("mid.cu_seqlens"), "{case}");
}

#[test]
fn golden_cases() {
    check("vision_1x4x6");
    check("vision_two_images");
    check("vision_video_p16");
}

#[test]
fn taps_stay_inside_the_table_and_their_weights_sum_to_one() {
    for side in [1, 2, 7, 48] {
        for h in 1..=25 {
            for w in [1, 2, 48, 97] {
                let taps = position_taps(&[Grid { t: 1, h, w }], side, 1).unwrap();
                for (rows, weights) in taps.rows.chunks(4).zip(taps.weights.chunks(4)) {
                    let limit = (side * side) as i64;
                    assert!(rows.iter().all(|row| (0..limit).contains(row)));
                    assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
                    assert!(weights.iter().all(|&weight| weight >= 0.0));
                }
                // Corners are aligned: the last patch reads the last row alone.
                if h > 1 && w > 1 {
                    let total: f64 = taps
                        .rows
                        .iter()
                        .zip(&taps.weights)
                        .rev()
                        .take(4)
                        .filter(|(row, _)| **row == (side * side - 1) as i64)
                        .map(|(_, weight)| f64::from(*weight))
                        .sum();
                    assert!((total - 1.0).abs() < 1e-6, "side {side} grid {h} x {w}");
                }
            }
        }
    }
}

const TOKENS: PlaceholderTokens = PlaceholderTokens { image: 150, video: 151 };

#[test]
fn features_are_images_then_videos_wherever_they_stand() {
    // By hand: a video before an image in the text, and an image token in a padding row.
    let layout = SequenceLayout::new(vec![0, 6, 8], vec![0, 7, 10], 10).unwrap();
    let ids = [5, 151, 151, 5, 150, 6, 150, 150, 7, 150];
    let images = [Grid { t: 1, h: 2, w: 2 }, Grid { t: 1, h: 2, w: 2 }];
    let videos = [Grid { t: 2, h: 2, w: 2 }];
    let index = feature_index(&ids, None, &layout, (&images, &videos), TOKENS, 2).unwrap();
    assert_eq!(index, [-1, 2, 3, -1, 0, -1, -1, 1, -1, -1]);
}

#[test]
fn the_golden_pack_fills_every_feature_once() {
    let golden = Golden::open("models/dense_tied_multi_padded");
    let ids = golden.tensor("in.input_ids");
    let mask = golden.integers("in.attention_mask");
    let layout = SequenceLayout::from_mask(&mask, ids.shape[0], ids.shape[1]).unwrap();
    let ids = ids.to_i64().unwrap();
    let types = golden.integers("in.mm_token_type_ids");
    let images = golden.grids("in.image_grid_thw");
    let videos = golden.grids("in.video_grid_thw");
    let pictures = (images.as_slice(), videos.as_slice());
    let index = feature_index(&ids, Some(&types), &layout, pictures, TOKENS, 2).unwrap();
    let patches = golden.0.info("in.pixel_values").unwrap().shape[0];
    let frames = golden.0.info("in.pixel_values_videos").unwrap().shape[0];
    let placed = |mark| {
        let rows = types.iter().zip(&index).filter(move |row| *row.0 == mark);
        rows.map(|row| *row.1).collect::<Vec<_>>()
    };
    let (images, all) = ((patches / 4) as i64, ((patches + frames) / 4) as i64);
    assert_eq!(placed(1), (0..images).collect::<Vec<_>>());
    assert_eq!(placed(2), (images..all).collect::<Vec<_>>());
    assert!(placed(0).iter().all(|&row| row == -1));
}

#[test]
fn contradictions_are_refused() {
    let layout = SequenceLayout::from_lengths(&[3], 1).unwrap();
    let image = [Grid { t: 1, h: 2, w: 2 }];
    let of = |ids: &[i64], types: Option<&[i64]>, tokens| {
        feature_index(ids, types, &layout, (&image, &[]), tokens, 2).unwrap_err().to_string()
    };
    assert_eq!(
        of(&[1, 150, 150], None, TOKENS),
        "there are 2 image tokens and 1 merged image patches"
    );
    assert_eq!(
        of(&[1, 150, 1], Some(&[0, 0, 0]), TOKENS),
        "row 1 has token 150 and the token type 0, they disagree"
    );
    let same = PlaceholderTokens { image: 9, video: 9 };
    assert_eq!(of(&[1, 150, 1], None, same), "the image and the video token are both 9");
    let frames = [Grid { t: 2, h: 2, w: 2 }];
    let error = feature_index(&[150], None, &layout, (&frames, &[]), TOKENS, 2).unwrap_err();
    assert_eq!(error, VisionError::ImageFrames { picture: 0, grid: frames[0] });
}

#[test]
fn grids_drop_only_zero_rows_at_the_end() {
    let grids = grids_of("grid", &[1, 2, 4, 0, 0, 0]).unwrap();
    assert_eq!(grids, [Grid { t: 1, h: 2, w: 4 }]);
    let error = grids_of("grid", &[0, 0, 0, 1, 2, 4]).unwrap_err();
    assert_eq!(error.to_string(), "grid row 0 is [0, 0, 0], a grid needs three values above 0");
    assert!(grids_of("grid", &[1, -2, 4]).is_err());
    assert!(grids_of("grid", &[1, 2]).is_err());
    let huge = [Grid { t: 1, h: usize::MAX / 2, w: 4 }];
    assert_eq!(rotary_ids(&huge, 1), Err(VisionError::Overflow));
    assert_eq!(frame_boundaries(&huge), Err(VisionError::Overflow));
    assert_eq!(position_taps(&huge, 0, 1), Err(VisionError::Side { side: 0, max: 65536 }));
    assert_eq!(rotary_ids(&huge, 0), Err(VisionError::MergeZero));
}
