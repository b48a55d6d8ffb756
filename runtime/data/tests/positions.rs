//! Position ids against the public implementation's, and what is refused.
#![allow(clippy::unwrap_used)]

mod common;

use common::Golden;
use vlmc_data::positions::{Pictures, PositionError, mrope_positions};
use vlmc_data::vision::{PictureKind, VisionError};
use vlmc_data::{Grid, SequenceLayout};

/// Builds the positions of a golden case as one pack of its rows, and compares all of them.
fn check(case: &str, with_deltas: bool) {
    let golden = Golden::open(case);
    let ids = golden.tensor("in.input_ids");
    let [batch, length] = ids.shape[..] else { panic!("{case}: {:?}", ids.shape) };
    let mask = golden.integers("in.attention_mask");
    let layout = SequenceLayout::from_mask(&mask, batch, length).unwrap();
    let types = if golden.0.contains("in.mm_token_type_ids") {
        golden.integers("in.mm_token_type_ids")
    } else {
        vec![0; batch * length]
    };
    let images = golden.grids("in.image_grid_thw");
    let videos = golden.grids("in.video_grid_thw");
    let none = images.is_empty() && videos.is_empty();
    let pictures = (!none).then_some(Pictures { images: &images, videos: &videos });
    let positions = mrope_positions(&types, &layout, pictures, 2).unwrap();
    let expected = if with_deltas { "out.position_ids" } else { "in.position_ids" };
    assert_eq!(positions.ids, golden.integers(expected), "{case}");
    if with_deltas {
        assert_eq!(positions.deltas, golden.integers("out.rope_deltas"), "{case}");
    }
}

#[test]
fn golden_cases() {
    check("ops/positions_text_image", true);
    check("ops/positions_mixed_padded", true);
}

#[test]
fn golden_models() {
    for name in [
        "dense_image",
        "dense_tied_multi_padded",
        "moe_image_aux",
        "dense_text_mtp",
        "moe_image_mtp",
    ] {
        check(&format!("models/{name}"), false);
    }
}

const GRID_2X2: Grid = Grid { t: 1, h: 4, w: 4 };

#[test]
fn a_pack_restarts_at_each_document_and_consumes_pictures_in_order() {
    // By hand. Document 0: text, 2x2 image, text, two rows of padding. Document 1: 1x2 image
    // with no text before it, text.
    let layout = SequenceLayout::new(vec![0, 6, 9], vec![0, 8, 12], 13).unwrap();
    let types = [0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0];
    let images = [GRID_2X2, Grid { t: 1, h: 2, w: 4 }];
    let pictures = Some(Pictures { images: &images, videos: &[] });
    let positions = mrope_positions(&types, &layout, pictures, 2).unwrap();
    let expected = [
        [0, 1, 1, 1, 1, 3, 0, 0, 0, 0, 2, 0, 0],
        [0, 1, 1, 2, 2, 3, 0, 0, 0, 0, 2, 0, 0],
        [0, 1, 2, 1, 2, 3, 0, 0, 0, 1, 2, 0, 0],
    ];
    assert_eq!(positions.ids, expected.concat());
    assert_eq!(positions.deltas, [4 - 6, 3 - 3]);
}

#[test]
fn pictures_side_by_side_share_a_run() {
    let layout = SequenceLayout::from_lengths(&[4], 1).unwrap();
    let images = [Grid { t: 1, h: 1, w: 2 }, Grid { t: 1, h: 2, w: 1 }];
    let pictures = Some(Pictures { images: &images, videos: &[] });
    let positions = mrope_positions(&[1; 4], &layout, pictures, 1).unwrap();
    assert_eq!(positions.ids, [[0, 0, 2, 2], [0, 0, 2, 3], [0, 1, 2, 2]].concat());
}

#[test]
fn text_without_grids_counts_through_padding() {
    let layout = SequenceLayout::new(vec![0, 2, 3], vec![0, 4, 6], 7).unwrap();
    let positions = mrope_positions(&[0; 7], &layout, None, 2).unwrap();
    assert_eq!(positions.ids[..7], [0, 1, 2, 3, 0, 1, 0]);
    assert_eq!(positions.ids[7..14], positions.ids[..7]);
    assert_eq!(positions.deltas, [0, 0]);
    // The same pack in a batch that has grids, though none of this microbatch.
    let pictures = Some(Pictures { images: &[], videos: &[] });
    let positions = mrope_positions(&[0; 7], &layout, pictures, 2).unwrap();
    assert_eq!(positions.ids[..7], [0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn tokens_without_patches_are_refused_with_both_counts() {
    let layout = SequenceLayout::from_lengths(&[6], 1).unwrap();
    let types = [0, 1, 1, 1, 1, 0];
    let error = mrope_positions(&types, &layout, None, 2).unwrap_err();
    assert_eq!(error.to_string(), "there are 4 image tokens and 0 merged image patches");
    let images = [GRID_2X2, GRID_2X2];
    let pictures = Some(Pictures { images: &images, videos: &[] });
    let error = mrope_positions(&types, &layout, pictures, 2).unwrap_err();
    let kind = PictureKind::Image;
    assert_eq!(error, VisionError::Count { kind, tokens: 4, rows: 8 }.into());
}

#[test]
fn a_run_that_ends_inside_a_picture_is_refused() {
    let layout = SequenceLayout::from_lengths(&[5], 1).unwrap();
    let pictures = Some(Pictures { images: &[GRID_2X2], videos: &[] });
    let error = mrope_positions(&[1, 1, 0, 1, 1], &layout, pictures, 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "document 0: 2 image tokens from row 0 on do not hold the 4 merged patches of image 0 \
         (1x4x4)"
    );
}

#[test]
fn other_contradictions_are_refused() {
    let layout = SequenceLayout::from_lengths(&[2, 2], 1).unwrap();
    let video = [Grid { t: 2, h: 2, w: 4 }];
    let pictures = Some(Pictures { images: &[], videos: &video });
    let error = mrope_positions(&[2; 4], &layout, pictures, 2).unwrap_err();
    assert_eq!(error, PositionError::SplitVideo { picture: 0, first: 0, second: 1 });
    let odd = [Grid { t: 1, h: 3, w: 4 }];
    let pictures = Some(Pictures { images: &odd, videos: &[] });
    let error = mrope_positions(&[0; 4], &layout, pictures, 2).unwrap_err();
    assert_eq!(error.to_string(), "image 0 has the grid 1x3x4, not a multiple of the merge size 2");
    let error = mrope_positions(&[0, 7, 0, 0], &layout, None, 2).unwrap_err();
    assert_eq!(error, PositionError::TokenType { row: 1, token_type: 7 });
    let error = mrope_positions(&[0; 3], &layout, None, 2).unwrap_err();
    assert_eq!(error, PositionError::Rows { types: 3, rows: 4 });
}
