//! The batch of `make demo`: made again here, and equal to the file of the repository.

use std::path::Path;
use vlmc_data::batch::{Batch, PictureSample, PixelRows, write_batches};
use vlmc_data::pack::{PackOptions, Sample};
use vlmc_data::vision::Grid;

/// Sizes of the `tiny` variant.
const VOCABULARY: u64 = 1000;
const IMAGE: i64 = 1000;
const WIDTH: usize = 3 * 2 * 4 * 4;

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn text(&mut self, n: usize) -> Vec<i64> {
        (0..n).map(|_| (self.next() % VOCABULARY) as i64).collect()
    }
}

/// Text with an image of `h` x `w` patches behind the first few words.
fn sample(numbers: &mut Numbers, words: usize, image: Option<(usize, usize)>) -> PictureSample {
    let mut ids = numbers.text(words);
    let mut types = vec![0; words];
    let mut sample = PictureSample::default();
    if let Some((h, w)) = image {
        let rows = h * w / 4;
        ids.splice(4..4, std::iter::repeat_n(IMAGE, rows));
        types.splice(4..4, std::iter::repeat_n(1, rows));
        let values = (0..h * w * WIDTH).map(|_| (numbers.next() % 512) as f32 / 256.0 - 1.0);
        sample.image_pixels = PixelRows { width: WIDTH, values: values.collect() };
        sample.image_grids = vec![Grid { t: 1, h, w }];
    }
    let label = |(&id, &kind): (&i64, &i64)| if kind == 0 { id } else { -100 };
    let labels = ids.iter().zip(&types).map(label).collect();
    sample.sample = Sample { ids, labels, types };
    sample
}

#[test]
fn the_demo_batch_is_what_this_makes() {
    let mut numbers = Numbers(7);
    let options = PackOptions { align: 8, tokens: Some(64), documents: Some(2) };
    let batches: Vec<Batch> = [(20, 24, (4, 6)), (30, 13, (6, 4))]
        .into_iter()
        .map(|(first, second, image)| {
            let samples =
                [sample(&mut numbers, first, Some(image)), sample(&mut numbers, second, None)];
            Batch::pack(&samples, options).expect("the samples fit")
        })
        .collect();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/batch.safetensors");
    let made = std::env::temp_dir().join(format!("vlmc-demo-{}.safetensors", std::process::id()));
    write_batches(&made, &batches).expect("written");
    let bytes = std::fs::read(&made).expect("read");
    let _ = std::fs::remove_file(&made);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&kept, bytes).expect("the batch can be written");
    } else {
        assert!(std::fs::read(&kept).ok() == Some(bytes), "run with BLESS=1 to accept");
    }
}
