//! Preprocessing against the public processors' numbers.
#![allow(clippy::unwrap_used)]

mod common;

use common::Golden;
use vlmc_data::preprocess::{
    Normalize, PatchSizes, PixelBounds, SampleOptions, VideoError, frame_times, image_size,
    patch_rows, sample_frames, timestamp_text, video_size,
};

#[test]
fn golden_sizes() {
    let golden = Golden::open("ops/preprocess_a");
    let sizes = golden.integers("in.image_hw");
    let expected = golden.integers("out.resized_hw");
    for (size, expected) in sizes.chunks(2).zip(expected.chunks(2)) {
        let (h, w) = (size[0] as usize, size[1] as usize);
        let found = image_size(h, w, PixelBounds::IMAGE).unwrap();
        assert_eq!([found.0 as i64, found.1 as i64], expected, "{h} x {w}");
    }
    let sizes = golden.integers("in.video_thw");
    let expected = golden.integers("out.video_resized_hw");
    for (size, expected) in sizes.chunks(3).zip(expected.chunks(2)) {
        let [t, h, w] = [size[0] as usize, size[1] as usize, size[2] as usize];
        let found = video_size(t, h, w, 2, PixelBounds::VIDEO).unwrap();
        assert_eq!([found.0 as i64, found.1 as i64], expected, "{t} x {h} x {w}");
    }
}

#[test]
fn golden_pixels() {
    let golden = Golden::open("ops/preprocess_a");
    let image = golden.tensor("in.image_u8_chw");
    let vlmc_data::HostData::U8(bytes) = &image.data else { panic!("not bytes") };
    let sizes = (1, image.shape[1], image.shape[2]);
    let (rows, grid) =
        patch_rows(bytes, sizes, &Normalize::default(), PatchSizes::RELEASED).unwrap();
    assert_eq!([grid], golden.grids("out.image_grid_thw")[..]);
    assert_eq!(rows, golden.tensor("out.pixel_values").to_f32());
}

#[test]
fn sizes_that_are_refused() {
    let text = |h, w| image_size(h, w, PixelBounds::IMAGE).unwrap_err().to_string();
    assert_eq!(text(201, 1), "the sides of 201 x 1 pixels have a ratio above 200");
    assert_eq!(text(0, 5), "a picture of 0 x 5 pixels cannot be resized, sides are 1 to 16777216");
    assert!(image_size(200, 1, PixelBounds::IMAGE).is_ok());
    let error = video_size(1, 64, 64, 2, PixelBounds::VIDEO).unwrap_err();
    assert_eq!(error.to_string(), "1 frames are fewer than the 2 of a temporal patch");
}

#[test]
fn the_area_of_a_video_counts_rounded_frames() {
    // By hand: 5 frames count as 4 (2.5 pairs round to 2), which just fits; 7 count as 8.
    let bounds = PixelBounds { factor: 32, min_pixels: 1, max_pixels: 4 * 64 * 64 };
    assert_eq!(video_size(5, 64, 64, 2, bounds).unwrap(), (64, 64));
    assert_eq!(video_size(6, 64, 64, 2, bounds).unwrap(), (32, 32));
    let bounds = PixelBounds { min_pixels: 7 * 64 * 64 + 1, max_pixels: 1 << 20, ..bounds };
    assert_eq!(video_size(7, 64, 64, 2, bounds).unwrap(), (64, 64));
    assert_eq!(video_size(6, 64, 64, 2, bounds).unwrap(), (96, 96));
}

#[test]
fn sizes_are_whole_blocks_within_the_bounds() {
    for h in (1..4000).step_by(61) {
        for w in (1..4000).step_by(83) {
            let Ok((height, width)) = image_size(h, w, PixelBounds::IMAGE) else { continue };
            assert!(height % 32 == 0 && width % 32 == 0 && height > 0 && width > 0);
            assert!(height * width <= PixelBounds::IMAGE.max_pixels, "{h} x {w}");
            assert!(height * width >= PixelBounds::IMAGE.min_pixels, "{h} x {w}");
        }
    }
}

#[test]
fn odd_frame_counts_repeat_the_last() {
    // One channel, patch 1, merge 1: each patch is its two frames.
    let normalize = Normalize { mean: vec![0.0], deviation: vec![1.0 / 255.0] };
    let sizes = PatchSizes { patch: 1, merge: 1, temporal: 2 };
    let (rows, grid) = patch_rows(&[10, 11, 20, 21, 30, 31], (3, 1, 2), &normalize, sizes).unwrap();
    assert_eq!((grid.t, grid.h, grid.w), (2, 1, 2));
    assert_eq!(rows, [10.0, 20.0, 11.0, 21.0, 30.0, 30.0, 31.0, 31.0]);
}

#[test]
fn rows_come_in_merge_blocks() {
    let normalize = Normalize { mean: vec![0.0], deviation: vec![1.0 / 255.0] };
    let sizes = PatchSizes { patch: 1, merge: 2, temporal: 1 };
    let (rows, _) = patch_rows(&[0, 1, 2, 3, 4, 5, 6, 7], (1, 2, 4), &normalize, sizes).unwrap();
    assert_eq!(rows, [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    let error = patch_rows(&[0; 6], (1, 2, 3), &normalize, sizes).unwrap_err();
    assert_eq!(error.to_string(), "2 x 3 pixels do not divide into blocks of 2 x 2");
    let error = patch_rows(&[0; 7], (1, 2, 4), &normalize, sizes).unwrap_err();
    assert_eq!(error.to_string(), "7 bytes were given for 1 frames of 1 x 2 x 4");
}

#[test]
fn frames_are_evenly_spaced() {
    // By hand: 10 s at 30 a second gives 20 frames over 0..=299, 299 / 19 apart.
    let frames = sample_frames(300, 30.0, SampleOptions::default()).unwrap();
    assert_eq!(frames.len(), 20);
    assert_eq!(frames[..4], [0, 16, 31, 47]);
    assert_eq!(frames[19], 299);
    // Half a second: lifted to 4; two frames in all: both; an hour: cut to 768.
    assert_eq!(sample_frames(15, 30.0, SampleOptions::default()).unwrap(), [0, 5, 9, 14]);
    assert_eq!(sample_frames(2, 30.0, SampleOptions::default()).unwrap(), [0, 1]);
    assert_eq!(sample_frames(1, 30.0, SampleOptions::default()).unwrap(), [0]);
    assert_eq!(sample_frames(108_000, 30.0, SampleOptions::default()).unwrap().len(), 768);
    let none = sample_frames(0, 30.0, SampleOptions::default());
    assert_eq!(none, Err(VideoError::NoFrames));
    for fps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(sample_frames(10, fps, SampleOptions::default()).is_err());
    }
}

#[test]
fn times_are_means_of_pairs() {
    let times = frame_times(&[0, 15, 30, 45, 60], 30.0, 2).unwrap();
    assert_eq!(times, [0.25, 1.25, 2.0]);
    let text: Vec<String> = times.into_iter().map(timestamp_text).collect();
    // Python and Rust both print the tie 0.25 to the even digit.
    assert_eq!(text, ["<0.2 seconds>", "<1.2 seconds>", "<2.0 seconds>"]);
}

#[cfg(feature = "images")]
#[test]
fn picture_files() {
    use image::{ImageFormat, Rgb, RgbImage};
    use vlmc_data::preprocess::image_patches;

    let encode = |width, height, pixel: fn(u32, u32) -> Rgb<u8>| {
        let mut file = std::io::Cursor::new(Vec::new());
        RgbImage::from_fn(width, height, pixel).write_to(&mut file, ImageFormat::Png).unwrap();
        file.into_inner()
    };
    let patches = |file: &[u8]| {
        image_patches(file, PixelBounds::IMAGE, &Normalize::default(), PatchSizes::RELEASED)
    };
    // 100 x 200 pixels become 192 x 384, as in the golden sizes; a flat colour stays flat.
    let (rows, grid) = patches(&encode(200, 100, |_, _| Rgb([255, 0, 51]))).unwrap();
    assert_eq!((grid.t, grid.h, grid.w), (1, 12, 24));
    assert_eq!(rows.len(), 12 * 24 * 1536);
    for row in rows.chunks(1536) {
        assert!(row[..512].iter().all(|&value| value == 1.0));
        assert!(row[512..1024].iter().all(|&value| value == -1.0));
        assert!(row[1024..].iter().all(|&value| (value + 0.6).abs() < 1e-6));
    }
    // Without a resize the pixels come through as they are.
    let (rows, _) = patches(&encode(256, 256, |x, y| Rgb([x as u8, y as u8, 0]))).unwrap();
    assert_eq!(rows[1], (1.0 - 127.5) / 127.5);
    assert_eq!(rows[512 + 16], (1.0 - 127.5) / 127.5);
    assert!(patches(b"no picture").is_err());
    let thin = patches(&encode(300, 1, |_, _| Rgb([0; 3]))).unwrap_err();
    assert_eq!(thin.to_string(), "the sides of 1 x 300 pixels have a ratio above 200");
}
