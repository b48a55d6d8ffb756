//! Documents with numbers that follow from a seed.

use anyhow::Result;
use vlmc_data::batch::{Batch, PictureSample, PixelRows};
use vlmc_data::init::{Distribution, Initializer};
use vlmc_data::pack::{PackOptions, Sample};
use vlmc_data::vision::Grid;

/// The placeholder of an image in the small variant.
const IMAGE_TOKEN: i64 = 1000;
/// Values of a patch row there: 3 channels, 2 frames, 4 x 4 pixels.
const PATCH_WIDTH: usize = 96;

/// Text of `length` tokens with ids in `from..from + 100`; every fourth label is ignored.
pub fn document(seed: u64, length: usize, from: i64) -> PictureSample {
    let uniform = Initializer::new(seed, "ids", Distribution::Uniform(0.0, 100.0));
    let ids: Vec<i64> = (0..length as u64).map(|i| from + uniform.element(i) as i64).collect();
    let labels = ids.iter().enumerate().map(|(i, id)| if i % 4 == 3 { -100 } else { *id });
    PictureSample {
        sample: Sample { labels: labels.collect(), types: vec![0; length], ids },
        ..PictureSample::default()
    }
}

/// The same with an image of `4 x 4` patches, that is 4 rows, from the third token on.
pub fn image_document(seed: u64, length: usize, from: i64) -> PictureSample {
    let mut d = document(seed, length, from);
    for row in 2..6 {
        d.sample.ids[row] = IMAGE_TOKEN;
        d.sample.labels[row] = -100;
        d.sample.types[row] = 1;
    }
    let normal = Initializer::new(seed, "pixels", Distribution::Normal(1.0));
    d.image_grids = vec![Grid { t: 1, h: 4, w: 4 }];
    d.image_pixels =
        PixelRows { width: PATCH_WIDTH, values: normal.values(0..16 * PATCH_WIDTH as u64) };
    d
}

/// The documents in one microbatch, each padded to a multiple of `align`.
///
/// # Errors
/// When they contradict themselves.
pub fn pack(documents: &[PictureSample], align: usize) -> Result<Batch> {
    Ok(Batch::pack(documents, PackOptions { align, tokens: None, documents: None })?)
}
