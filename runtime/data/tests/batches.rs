//! Batch files and host functions.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use common::{Folder, Golden};
use vlmc_data::batch::{BatchFiles, PictureSample, plan_microbatches, write_batches};
use vlmc_data::host_fn::{self, Fill, HOST_FUNCTIONS};
use vlmc_data::pack::PackOptions;
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::{Batch, Dtype, HostData, HostTensor};

type Tensors = BTreeMap<&'static str, HostTensor>;

fn integers(shape: &[usize], values: &[i64]) -> HostTensor {
    HostTensor::new(shape.to_vec(), HostData::I64(values.to_vec())).unwrap()
}

/// Two microbatches of 8 rows: one with an image, one of text alone.
fn small() -> Tensors {
    let mut pixels = vec![0.0; 2 * 4 * 3];
    pixels[..12].copy_from_slice(&[1.0; 12]);
    BTreeMap::from([
        ("input_ids", integers(&[2, 8], &[1, 90, 2, 0, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8])),
        ("labels", integers(&[2, 8], &[1, -100, 2, -100, 3, 4, 5, -100, 1, 2, 3, 4, 5, 6, 7, 8])),
        ("cu_seqlens", integers(&[2, 3], &[0, 3, 6, 0, 8, 8])),
        ("cu_seqlens_padded", integers(&[2, 3], &[0, 4, 8, 0, 8, 8])),
        ("mm_token_type_ids", integers(&[2, 8], &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("image_grid_thw", integers(&[2, 1, 3], &[1, 2, 2, 0, 0, 0])),
        ("pixel_values", HostTensor::new(vec![2, 4, 3], HostData::F32(pixels)).unwrap()),
    ])
}

fn write(folder: &Folder, tensors: &Tensors) -> PathBuf {
    let path = folder.0.join("batch.safetensors");
    let borrowed = tensors.iter().map(|(name, tensor)| (*name, tensor));
    write_file(&path, borrowed, &BTreeMap::new()).unwrap();
    path
}

fn open(folder: &Folder, tensors: &Tensors) -> TensorFile {
    TensorFile::open(write(folder, tensors)).unwrap()
}

fn values(name: &str, args: &[(&str, i64)], batch: &Batch) -> Vec<i64> {
    host_fn::evaluate(name, args, batch).unwrap().to_i64().unwrap()
}

#[test]
fn microbatches_are_read_apart() {
    let folder = Folder::new("apart");
    let file = open(&folder, &small());
    assert_eq!(Batch::count(&file).unwrap(), 2);
    let first = Batch::read(&file, 0).unwrap();
    let labels = values("next_labels", &[], &first);
    assert_eq!(labels, [-100, 2, -100, -100, 4, 5, -100, -100]);
    assert_eq!(values("target_count", &[], &first), [3]);
    assert_eq!(values("next_ids", &[("by", 2)], &first), [2, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(values("seq_idx", &[], &first), [0, 0, 0, 0, 1, 1, 1, 1]);
    let positions = values("mrope_positions", &[], &first);
    assert_eq!(positions[..8], [0, 1, 2, 0, 0, 1, 2, 0]);
    let tokens = [("image_token", 90), ("video_token", 91)];
    assert_eq!(values("feature_index", &tokens, &first), [-1, 0, -1, -1, -1, -1, -1, -1]);
    assert_eq!(values("vision_frames", &[], &first), [0, 4]);
    assert_eq!(host_fn::evaluate("pixel_rows", &[("width", 3)], &first).unwrap().shape, [4, 3]);
    let second = Batch::read(&file, 1).unwrap();
    assert_eq!(second.grids(), []);
    assert_eq!(values("vision_frames", &[], &second), [0]);
    assert_eq!(values("next_labels", &[], &second), [2, 3, 4, 5, 6, 7, 8, -100]);
    assert_eq!(host_fn::evaluate("pixel_rows", &[("width", 3)], &second).unwrap().shape, [0, 3]);
    assert_eq!(host_fn::evaluate("vision_taps", &[("side", 4)], &second).unwrap().shape, [0, 4]);
    let error = Batch::read(&file, 2).unwrap_err().to_string();
    assert_eq!(error, "there is no microbatch 2, the file has 2");
}

#[test]
fn a_golden_model_as_one_pack() {
    let golden = Golden::open("models/dense_tied_multi_padded");
    let ids = golden.tensor("in.input_ids");
    let (rows, length) = (ids.shape[0], ids.shape[1]);
    let mask = golden.integers("in.attention_mask");
    let flat = |name: &str| integers(&[1, rows * length], &golden.integers(name));
    let lengths: Vec<i64> = mask.chunks(length).map(|row| row.iter().sum()).collect();
    let cu: Vec<i64> = (0..=rows).map(|end| lengths[..end].iter().sum()).collect();
    let padded: Vec<i64> = (0..=rows).map(|row| (row * length) as i64).collect();
    let lead = |name: &str| {
        let mut tensor = golden.tensor(name);
        tensor.shape.insert(0, 1);
        tensor
    };
    let tensors: Tensors = BTreeMap::from([
        ("input_ids", flat("in.input_ids")),
        ("labels", flat("in.labels")),
        ("mm_token_type_ids", flat("in.mm_token_type_ids")),
        ("cu_seqlens", integers(&[1, rows + 1], &cu)),
        ("cu_seqlens_padded", integers(&[1, rows + 1], &padded)),
        ("pixel_values", lead("in.pixel_values")),
        ("image_grid_thw", lead("in.image_grid_thw")),
        ("pixel_values_videos", lead("in.pixel_values_videos")),
        ("video_grid_thw", lead("in.video_grid_thw")),
    ]);
    let folder = Folder::new("golden");
    let mut batch = Batch::read(&open(&folder, &tensors), 0).unwrap();
    let expected = golden.integers("in.position_ids");
    assert_eq!(values("mrope_positions", &[], &batch), expected);
    let (images, videos) =
        (golden.tensor("in.pixel_values"), golden.tensor("in.pixel_values_videos"));
    let width = images.shape[1];
    let pixels = host_fn::evaluate("pixel_rows", &[("width", width as i64)], &batch).unwrap();
    assert_eq!(pixels.to_f32(), [images.to_f32(), videos.to_f32()].concat());
    // Without the types the placeholders' ids say the same.
    batch.token_types = None;
    let tokens = [("image_token", 150), ("video_token", 151)];
    assert_eq!(values("mrope_positions", &tokens, &batch), expected);
    let error = host_fn::evaluate("mrope_positions", &[], &batch).unwrap_err().to_string();
    assert!(error.contains("neither `mm_token_type_ids` nor placeholder ids"), "{error}");
    // A larger capacity changes no real row.
    let before = values("feature_index", &tokens, &batch);
    batch.grow(rows * length + 8, rows + 2).unwrap();
    let after = values("feature_index", &tokens, &batch);
    assert_eq!(after[..rows * length], before);
    assert_eq!(after[rows * length..], [-1; 8]);
    assert_eq!(batch.layout.rows(), rows * length + 8);
    batch.check_vocabulary(160).unwrap();
    assert!(batch.check_vocabulary(153).is_err());
}

#[test]
fn batches_that_are_refused() {
    let folder = Folder::new("refused");
    let error = |change: &dyn Fn(&mut Tensors)| {
        let mut tensors = small();
        change(&mut tensors);
        Batch::read(&open(&folder, &tensors), 0).unwrap_err().to_string()
    };
    let value = |name: &'static str, at: usize, value: i64| {
        error(&move |tensors: &mut Tensors| {
            let mut values = tensors[name].to_i64().unwrap();
            values[at] = value;
            let shape = tensors[name].shape.clone();
            tensors.insert(name, integers(&shape, &values));
        })
    };
    assert_eq!(error(&|t| drop(t.remove("labels"))), "the batch lacks `labels`");
    assert_eq!(error(&|t| drop(t.remove("input_ids"))), "the batch lacks `input_ids`");
    assert_eq!(error(&|t| drop(t.remove("pixel_values"))), "`image_grid_thw` needs `pixel_values`");
    assert_eq!(
        error(&|t| drop(t.remove("image_grid_thw"))),
        "`pixel_values` needs `image_grid_thw`"
    );
    assert!(
        error(&|t| drop(t.insert("pixel_value", integers(&[2, 1], &[0, 0]))))
            .starts_with("`pixel_value` is not part of a batch, known are input_ids, labels")
    );
    assert_eq!(
        error(&|t| drop(t.insert("position_ids", integers(&[2, 3, 7], &[0; 42])))),
        "`position_ids` has 7 tokens, `input_ids` has 8"
    );
    assert_eq!(
        error(&|t| drop(t.insert("position_ids", integers(&[3, 2, 8], &[0; 48])))),
        "`position_ids` has the shape [3, 2, 8], it must be [m, 3, T]"
    );
    assert_eq!(
        error(&|t| drop(t.insert("labels", integers(&[1, 8], &[0; 8])))),
        "`labels` has 1 microbatches, `input_ids` has 2"
    );
    assert_eq!(
        error(&|t| {
            let floats = HostTensor::new(vec![2, 8], HostData::F32(vec![0.0; 16])).unwrap();
            t.insert("labels", floats);
        }),
        "`labels` is F32, it must hold I64 or I32"
    );
    let ends = |message: String, end: &str| assert!(message.ends_with(end), "{message}");
    ends(value("cu_seqlens", 1, 7), "microbatch 0: cu_seqlens falls from 7 to 6 at entry 2");
    ends(value("cu_seqlens", 1, 5), "document 0 has 5 tokens in 4 padded rows");
    ends(value("cu_seqlens_padded", 2, 9), "the documents fill 9 rows, the pack has 8");
    ends(
        value("cu_seqlens", 2, 1 << 40),
        "`cu_seqlens` row 2 is 1099511627776, a boundary lies between 0 and 2147483647",
    );
    ends(value("input_ids", 3, -1), "`input_ids` row 3 is -1, it must not be below 0");
    ends(value("labels", 3, -99), "`labels` row 3 is -99, it must be -100 or not below 0");
    ends(
        value("mm_token_type_ids", 2, 3),
        "`mm_token_type_ids` row 2 is 3, known are 0 text, 1 image, 2 video",
    );
    ends(value("mm_token_type_ids", 1, 0), "there are 4 image patches and no image token");
    ends(
        value("image_grid_thw", 1, 4),
        "`image_grid_thw` has 8 patches, `pixel_values` has 4 rows",
    );
    ends(
        value("image_grid_thw", 1, 1),
        "`pixel_values` row 2 is not zero, though `image_grid_thw` ends at 2 patches",
    );
    ends(
        value("image_grid_thw", 0, -1),
        "image_grid_thw row 0 is [-1, 2, 2], a grid needs three values above 0",
    );
    // Four image tokens and no patches.
    let none = error(&|tensors| {
        tensors.remove("image_grid_thw");
        tensors.remove("pixel_values");
        let types = [0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        tensors.insert("mm_token_type_ids", integers(&[2, 8], &types));
    });
    ends(none, "there are 4 image tokens and 0 merged image patches");
}

#[test]
fn calls_that_are_refused() {
    let folder = Folder::new("calls");
    let batch = Batch::read(&open(&folder, &small()), 0).unwrap();
    let error = |name: &str, args: &[(&str, i64)]| {
        host_fn::evaluate(name, args, &batch).unwrap_err().to_string()
    };
    assert!(
        error("positions", &[]).starts_with("there is no host function `positions`, known are")
    );
    assert_eq!(
        error("vision_taps", &[("size", 3)]),
        "`vision_taps` has no argument `size`, it has `side`, `merge`"
    );
    assert_eq!(error("vision_taps", &[]), "`vision_taps` needs the argument `side`");
    assert_eq!(
        error("vision_taps", &[("side", 0)]),
        "`side` of `vision_taps` is 0, it must be at least 1"
    );
    assert_eq!(error("next_labels", &[("by", 1), ("by", 2)]), "`next_labels` is given `by` twice");
    assert_eq!(
        error("pixel_rows", &[("width", 4)]),
        "`pixel_rows`: a patch row has 3 values, the model reads 4"
    );
    assert_eq!(
        error("mrope_positions", &[("merge", 4)]),
        "`mrope_positions`: image 0 has the grid 1x2x2, not a multiple of the merge size 4"
    );
}

#[test]
fn results_have_the_declared_form_and_pad_to_capacity() {
    let folder = Folder::new("forms");
    let batch = Batch::read(&open(&folder, &small()), 0).unwrap();
    for function in HOST_FUNCTIONS {
        let given = |name| match name {
            "image_token" => 90,
            "video_token" => 91,
            "width" => 3,
            _ => 2,
        };
        let args: Vec<(&str, i64)> =
            function.params.iter().map(|param| (param.name, given(param.name))).collect();
        let args = function.bind(&args).unwrap();
        let tensor = function.evaluate(&args, &batch).unwrap();
        assert_eq!(tensor.dtype(), function.dtype, "{}", function.name);
        let size = |dim: &str| match dim {
            "tokens" | "pack" => 8,
            "docs + 1" => 3,
            "patches" => 4,
            "frames + 1" => 2,
            "width" => 3,
            number => number.parse().unwrap(),
        };
        let shape: Vec<usize> = function.dims.iter().map(|dim| size(dim)).collect();
        assert_eq!(tensor.shape, shape, "{}", function.name);
        let room: Vec<usize> = shape.iter().map(|size| size + 2).collect();
        let padded = function.pad(tensor.clone(), &room).unwrap();
        assert_eq!(padded.shape, room);
        assert_eq!(function.fill == Fill::Next, function.name == "seq_idx");
        if let [size] = shape[..] {
            let (old, new) = (tensor.to_i64().unwrap(), padded.to_i64().unwrap());
            assert_eq!(new[..size], old[..]);
            let fill = match function.fill {
                Fill::Zero => 0,
                Fill::Value(value) => value,
                Fill::Last => old[size - 1],
                Fill::Next => old[size - 1] + 1,
            };
            assert_eq!(new[size..], [fill; 2], "{}", function.name);
            assert!(function.pad(tensor, &[size - 1]).is_err());
        }
    }
    let positions = host_fn::find("mrope_positions").unwrap();
    assert_eq!(positions.dtype, Dtype::I64);
    let tensor = positions.evaluate(&[2, -1, -1], &batch).unwrap();
    let padded = positions.pad(tensor, &[3, 10]).unwrap().to_i64().unwrap();
    assert_eq!(padded[..10], [0, 1, 2, 0, 0, 1, 2, 0, 0, 0]);
    assert_eq!(padded[10..13], [0, 1, 2]);
}

/// A sample of four tokens, one of which is an image of 2 x 2 patches of `value`.
fn pictured(value: f32) -> Tensors {
    let pixels = HostTensor::new(vec![4, 1, 3], HostData::F32(vec![value; 12])).unwrap();
    BTreeMap::from([
        ("input_ids", integers(&[4], &[7, 90, 8, 9])),
        ("mm_token_type_ids", integers(&[4], &[0, 1, 0, 0])),
        ("image_grid_thw", integers(&[1, 3], &[1, 2, 2])),
        ("pixel_values", pixels),
    ])
}

#[test]
fn samples_are_packed_into_a_file_that_reads_back() {
    let folder = Folder::new("pack");
    let read = |tensors: &Tensors| PictureSample::read(&open(&folder, tensors));
    let text: Tensors = BTreeMap::from([
        ("input_ids", integers(&[3], &[1, 2, 3])),
        ("labels", integers(&[3], &[-100, 2, 3])),
    ]);
    let samples =
        [read(&pictured(1.0)).unwrap(), read(&text).unwrap(), read(&pictured(2.0)).unwrap()];
    assert_eq!(samples[0].sample.labels, [7, -100, 8, 9]);
    let lengths: Vec<usize> = samples.iter().map(|sample| sample.sample.ids.len()).collect();
    let plan = plan_microbatches(&lengths, 4, 8, None).unwrap();
    assert_eq!(plan, [0..2, 2..3]);
    let options = PackOptions { align: 4, tokens: Some(8), documents: None };
    let batches: Vec<Batch> =
        plan.into_iter().map(|range| Batch::pack(&samples[range], options).unwrap()).collect();
    let path = folder.0.join("packed.safetensors");
    write_batches(&path, &batches).unwrap();
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(Batch::count(&file).unwrap(), 2);
    let first = Batch::read(&file, 0).unwrap();
    assert_eq!(first, Batch { video_grids: None, ..batches[0].clone() });
    assert_eq!(first.input_ids, [7, 90, 8, 9, 1, 2, 3, 0]);
    let second = Batch::read(&file, 1).unwrap();
    assert_eq!(second.layout.cu_seqlens(), [0, 4, 4]);
    assert_eq!(second.layout.cu_seqlens_padded(), [0, 8, 8]);
    assert_eq!(second.image_pixels.values, [2.0; 12]);

    let error = |change: &dyn Fn(&mut Tensors)| {
        let mut tensors = pictured(1.0);
        change(&mut tensors);
        read(&tensors).unwrap_err().to_string()
    };
    assert!(
        error(&|t| drop(t.insert("cu_seqlens", integers(&[2], &[0, 4]))))
            .starts_with("`cu_seqlens` is not part of a sample")
    );
    assert_eq!(
        error(&|t| drop(t.insert("input_ids", integers(&[1, 4], &[0; 4])))),
        "`input_ids` has the shape [1, 4], it must be [T]"
    );
    assert_eq!(
        error(&|t| drop(t.insert("image_grid_thw", integers(&[1, 3], &[1, 4, 4])))),
        "`image_grid_thw` has 16 patches, `pixel_values` has 4 rows"
    );
    assert_eq!(error(&|t| drop(t.remove("pixel_values"))), "`image_grid_thw` needs `pixel_values`");
    assert!(write_batches(&path, &[]).is_err());
    let mut half = batches.clone();
    half[0].position_ids = Some(vec![0; 24]);
    let error = write_batches(&path, &half).unwrap_err().to_string();
    assert_eq!(error, "1 of 2 microbatches have `position_ids`; all or none must");
    let mut none = samples[0].clone();
    none.image_grids.clear();
    let error = Batch::pack(&[none], options).unwrap_err().to_string();
    assert_eq!(error, "there are 1 image tokens and 0 merged image patches");
}

#[test]
fn plans_keep_the_order_and_refuse_what_never_fits() {
    assert_eq!(plan_microbatches(&[5, 3, 8, 1], 4, 12, None).unwrap(), [0..2, 2..4]);
    assert_eq!(plan_microbatches(&[1, 1, 1], 1, 12, Some(2)).unwrap(), [0..2, 2..3]);
    assert_eq!(plan_microbatches(&[], 4, 12, None).unwrap(), []);
    let error = plan_microbatches(&[4, 13], 4, 12, None).unwrap_err().to_string();
    assert_eq!(error, "sample 1 has 13 tokens, more than the 12 of a row");
    assert!(plan_microbatches(&[1], 4, 3, None).is_err());
    assert!(plan_microbatches(&[1], 0, 3, None).is_err());
    assert!(plan_microbatches(&[1], 1, 3, Some(0)).is_err());
}

#[test]
fn files_of_a_run() {
    let folder = Folder::new("files");
    for name in ["b.safetensors", "a.safetensors", "c.txt", ".d.safetensors"] {
        std::fs::write(folder.0.join(name), "").unwrap();
    }
    let found = BatchFiles::find(&folder.0).unwrap();
    let names: Vec<_> = found.paths().iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["a.safetensors", "b.safetensors"]);
    assert_eq!(found.of_step(3), found.paths()[1]);
    assert_eq!(BatchFiles::find(folder.0.join("?.safe*")).unwrap(), found);
    assert_eq!(BatchFiles::find(folder.0.join("c.txt")).unwrap().paths().len(), 1);
    assert!(BatchFiles::find(folder.0.join("x*")).is_err());
    assert!(BatchFiles::find(folder.0.join("none/x")).is_err());
}
