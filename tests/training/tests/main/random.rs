//! Packs of random documents, with padding, room and microbatches as they come, against the
//! documents alone.

use vlmc_data::batch::{Batch, PictureSample, PixelRows};
use vlmc_data::init::{Distribution, Initializer};
use vlmc_data::pack::Sample;
use vlmc_data::vision::Grid;
use vlmc_training_tests::{Model, document, largest_difference, pack};

/// Whole numbers that follow from a seed.
struct Numbers(u64, u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.1 += 1;
        let uniform = Initializer::new(self.0, "numbers", Distribution::Uniform(0.0, n as f64));
        (uniform.element(self.1) as usize).min(n - 1)
    }
}

/// A document of pieces: text, images, videos of several frames with text before each.
fn random_document(r: &mut Numbers, seed: u64) -> PictureSample {
    let mut d = PictureSample::default();
    let text = |s: &mut Sample, n: usize, r: &mut Numbers| {
        for _ in 0..n {
            let id = r.below(1000) as i64;
            s.ids.push(id);
            s.labels.push(if r.below(4) == 0 { -100 } else { id });
            s.types.push(0);
        }
    };
    let placeholders = |s: &mut Sample, n: usize, id: i64| {
        s.ids.extend(vec![id; n]);
        s.labels.extend(vec![-100; n]);
        s.types.extend(vec![id - 999; n]);
    };
    let pieces = 1 + r.below(3);
    let n = 1 + r.below(4);
    text(&mut d.sample, n, r);
    for _ in 1..pieces {
        let (h, w) = (2 * (1 + r.below(2)), 2 * (1 + r.below(2)));
        if r.below(2) == 0 {
            d.image_grids.push(Grid { t: 1, h, w });
            placeholders(&mut d.sample, h * w / 4, 1000);
        } else {
            d.video_grids.push(Grid { t: 2, h, w });
            for _ in 0..2 {
                text(&mut d.sample, 1, r);
                placeholders(&mut d.sample, h * w / 4, 1001);
            }
        }
        let n = 1 + r.below(5);
        text(&mut d.sample, n, r);
    }
    let pixels = |name: &str, grids: &[Grid]| {
        let rows: usize = grids.iter().map(|g| g.t * g.h * g.w).sum();
        let normal = Initializer::new(seed, name, Distribution::Normal(1.0));
        PixelRows {
            width: if rows > 0 { 96 } else { 0 },
            values: normal.values(0..96 * rows as u64),
        }
    };
    d.image_pixels = pixels("images", &d.image_grids);
    d.video_pixels = pixels("videos", &d.video_grids);
    d
}

const SMALL: [&str; 3] = ["text.layers=2", "text.pattern=[gdn,attention]", "vision.depth=1"];

fn random_packs(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let r = &mut Numbers(seed, 0);
        let experts = r.below(2) == 0;
        let tied = format!("tied={}", r.below(2) == 0);
        let settings = [&SMALL[..], &[tied.as_str(), "text.z_loss_weight=0.1"]].concat();
        let model = Model::small(experts, &settings).unwrap();
        let count = 1 + r.below(4);
        let documents: Vec<_> =
            (0..count as u64).map(|i| random_document(r, 100 * seed + i)).collect();
        let alone: Vec<Batch> =
            documents.iter().map(|d| pack(std::slice::from_ref(d), 1).unwrap()).collect();
        let want = model.gradients::<f64>(&alone, 0, false).unwrap();
        let cut = r.below(count) + 1;
        let align = [1, 2, 4, 8][r.below(4)];
        let parts: Vec<Batch> = [&documents[..cut], &documents[cut..]]
            .into_iter()
            .filter(|p| !p.is_empty())
            .map(|p| pack(p, align).unwrap())
            .collect();
        let room = r.below(10);
        let ran = model.gradients::<f64>(&parts, room, r.below(2) == 0).unwrap();
        let lengths: Vec<usize> = documents.iter().map(|d| d.sample.ids.len()).collect();
        let what = format!("seed {seed}: {lengths:?} cut {cut} align {align} room {room} {tied}");
        assert_eq!(ran.losses.len(), want.losses.len());
        for (name, (sum, count)) in &want.losses {
            let (other, other_count) = ran.losses[name];
            assert_eq!(other_count, *count, "{what} {name}");
            assert!((sum - other).abs() <= 1e-10 * sum.abs(), "{what} {name}: {sum} {other}");
        }
        let (error, at) = largest_difference(&ran.gradients, &want.gradients).unwrap();
        assert!(error < 1e-10, "{what}: {at} differs by {error:.1e}");
    }
}

#[test]
fn ten_packs() {
    random_packs(1..11);
}

#[test]
#[ignore = "a hundred packs, some minutes without optimisation"]
fn hundred_packs() {
    random_packs(11..111);
}

/// A microbatch without any document, as a rank has that got none: it adds nothing, not even to the
/// losses of the router.
#[test]
fn a_microbatch_without_documents() {
    let full = pack(&[document(1, 9, 0)], 1).unwrap();
    let empty = pack(&[], 1).unwrap();
    for aux in ["stacked", "per_layer"] {
        let aux = format!("text.aux_loss={aux}");
        let settings = [&SMALL[..], &[aux.as_str(), "text.z_loss_weight=0.1"]].concat();
        let model = Model::small(true, &settings).unwrap();
        let alone = model.gradients::<f64>(std::slice::from_ref(&full), 0, false).unwrap();
        let both = [full.clone(), empty.clone()];
        let both = model.gradients::<f64>(&both, 0, true).unwrap();
        assert!(
            (both.loss - alone.loss).abs() <= 1e-14 * alone.loss,
            "{} {}",
            both.loss,
            alone.loss
        );
        assert_eq!(both.losses, alone.losses);
        let (error, at) = largest_difference(&both.gradients, &alone.gradients).unwrap();
        assert!(error < 1e-14, "{at} {error}");
        let none = model.gradients::<f32>(std::slice::from_ref(&empty), 4, true).unwrap();
        assert_eq!(none.loss, 0.0);
        assert!(none.gradients.values().flatten().all(|v| *v == 0.0));
    }
}

/// Room for no picture at all.
#[test]
fn no_room_for_pictures() {
    let batch = pack(&[document(1, 9, 0)], 1).unwrap();
    let model = Model::small(false, &SMALL).unwrap();
    let with = model.gradients::<f64>(std::slice::from_ref(&batch), 0, false).unwrap();
    let none = model.gradients_in_room::<f64>(std::slice::from_ref(&batch), 0).unwrap();
    assert_eq!(with.loss, none.loss);
    let (error, at) = largest_difference(&none.gradients, &with.gradients).unwrap();
    assert_eq!(error, 0.0, "{at}");
}
