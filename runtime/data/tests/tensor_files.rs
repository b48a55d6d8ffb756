//! Tensor files: what is read and written, and what is refused.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{Folder, golden_folder};
use half::{bf16, f16};
use vlmc_data::safetensors::{
    FileError, TensorFile, TensorFolder, TensorSpec, TensorWriter, parse_header, write_file,
};
use vlmc_data::{Dtype, HostData, HostTensor};

/// A file: length, header, then `buffer` bytes of zero.
fn bytes_of(header: &str, buffer: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + buffer, 0);
    bytes
}

fn refused(header: &str, buffer: usize) -> String {
    let bytes = bytes_of(header, buffer);
    parse_header(&bytes, bytes.len() as u64).unwrap_err().to_string()
}

fn entry(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

#[test]
fn a_header_by_hand() {
    let header = format!(
        r#"{{{},"__metadata__":{{"format":"pt"}},{},{}}}  "#,
        entry("b", "F32", "[2,2]", 3, 19),
        entry("a", "U8", "[3]", 0, 3),
        entry("none", "I64", "[0,7]", 3, 3)
    );
    let bytes = bytes_of(&header, 19);
    let parsed = parse_header(&bytes, bytes.len() as u64).unwrap();
    let names: Vec<&str> = parsed.tensors.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(names, ["a", "none", "b"]);
    assert_eq!(parsed.metadata["format"], "pt");
    let start = 8 + header.len() as u64;
    let b = parsed.get("b").unwrap();
    assert_eq!((b.dtype, b.shape.as_slice()), (Dtype::F32, &[2, 2][..]));
    assert_eq!(b.range, start + 3..start + 19);
    assert!(parsed.get("c").is_none());
    let scalar = bytes_of(&format!("{{{}}}", entry("s", "F64", "[]", 0, 8)), 8);
    assert!(parse_header(&scalar, scalar.len() as u64).is_ok());
    let empty = bytes_of("{}", 0);
    assert!(parse_header(&empty, 10).unwrap().tensors.is_empty());
    let packed = bytes_of(&format!("{{{}}}", entry("f", "F4", "[3,2]", 0, 3)), 3);
    assert!(parse_header(&packed, packed.len() as u64).is_ok());
}

#[test]
fn lengths_that_are_refused() {
    let text = |bytes: &[u8], file| parse_header(bytes, file).unwrap_err().to_string();
    assert_eq!(text(&[], 0), "a file of 0 bytes is too short for the 8 bytes of a header length");
    assert_eq!(
        text(&u64::MAX.to_le_bytes(), u64::MAX),
        "the header claims 18446744073709551615 bytes, more than the limit of 100000000"
    );
    assert_eq!(
        text(&9u64.to_le_bytes(), 16),
        "the header claims 9 bytes, the file has 8 after the length"
    );
    assert_eq!(
        text(&8u64.to_le_bytes(), 16),
        "8 bytes were given of a header that ends at byte 16"
    );
}

#[test]
fn headers_that_are_refused() {
    let one = |dtype, shape, begin, end| format!("{{{}}}", entry("w", dtype, shape, begin, end));
    let two = |first: String, second: String| format!("{{{first},{second}}}");
    assert_eq!(refused("[1,2]", 0), "the header does not start with an opening brace");
    assert_eq!(refused(" {}", 0), "the header does not start with an opening brace");
    assert!(refused("{", 0).starts_with("the header is not what the format asks for"));
    assert!(refused("{}x", 0).contains("trailing"));
    assert_eq!(
        refused(&one("F31", "[1]", 0, 4), 4),
        "`w` has the dtype `F31`, which the format does not know"
    );
    assert!(refused(&one("F32", "[-1]", 0, 4), 4).contains("-1"));
    assert!(refused(&one("F32", "[1.5]", 0, 4), 4).contains("1.5"));
    assert!(refused(r#"{"w":{"dtype":"F32","shape":[1]}}"#, 4).contains("data_offsets"));
    assert!(refused(r#"{"w":{"dtype":"F32","dtype":"F32"}}"#, 4).contains("duplicate"));
    assert_eq!(
        refused(&one("F32", "[1]", 4, 0), 4),
        "`w` ends at byte 0 before it begins at byte 4"
    );
    assert_eq!(refused(&one("F32", "[1]", 0, 4), 3), "`w` ends at byte 4 of a buffer of 3 bytes");
    assert_eq!(
        refused(&one("F32", "[2]", 0, 4), 4),
        "`w` spans 4 bytes, its shape and dtype need 8"
    );
    assert!(refused(&one("F32", "[4294967296,4294967296]", 0, 4), 4).contains("overflows"));
    // A product that wraps around to 0 must not look empty.
    assert!(refused(&one("U8", "[4294967296,4294967296]", 0, 0), 0).contains("overflows"));
    assert!(refused(&one("F4", "[3]", 0, 1), 1).contains("whole number of bytes"));
    let rank = format!("[{}1]", "1,".repeat(32));
    assert_eq!(refused(&one("U8", &rank, 0, 1), 1), "`w` has 33 dims, more than the limit of 32");
    let again = two(entry("w", "U8", "[1]", 0, 1), entry("w", "U8", "[1]", 1, 2));
    assert_eq!(refused(&again, 2), "the header names `w` twice");
    let empty_again = two(entry("w", "U8", "[0]", 0, 0), entry("w", "U8", "[1]", 0, 1));
    assert_eq!(refused(&empty_again, 1), "the header names `w` twice");
    assert_eq!(
        refused(r#"{"__metadata__":{},"__metadata__":{}}"#, 0),
        "the header names `__metadata__` twice"
    );
    assert_eq!(
        refused(r#"{"__metadata__":{"a":"1","a":"2"}}"#, 0),
        "the header names `__metadata__.a` twice"
    );
    assert!(refused(r#"{"__metadata__":{"a":1}}"#, 0).contains("expected a string"));
    let overlap = two(entry("a", "U8", "[3]", 0, 3), entry("b", "U8", "[2]", 2, 4));
    assert_eq!(refused(&overlap, 4), "`b` begins at byte 2, before the end of `a` at byte 3");
    let hole = two(entry("a", "U8", "[3]", 0, 3), entry("b", "U8", "[2]", 4, 6));
    assert_eq!(refused(&hole, 6), "bytes 3 to 4 of the buffer belong to no tensor");
    assert_eq!(
        refused(&one("F32", "[1]", 0, 4), 9),
        "bytes 4 to 9 of the buffer belong to no tensor"
    );
    let mut bytes = bytes_of("{\"\u{e9}\":1}", 0);
    bytes[10] = 0xff;
    let error = parse_header(&bytes, bytes.len() as u64).unwrap_err();
    assert!(matches!(error, FileError::NotUtf8 { at: 2 }), "{error}");
}

#[test]
fn deep_nesting_is_an_error_and_no_stack_overflow() {
    let header = format!(r#"{{"w":{}"#, "[".repeat(1_000_000));
    assert!(refused(&header, 0).contains("the header is not what the format asks for"));
}

#[test]
fn every_golden_file_opens_and_can_be_copied() {
    let folder = Folder::new("copy");
    let mut count = 0;
    for part in ["ops", "models"] {
        for found in std::fs::read_dir(golden_folder().join(part)).unwrap() {
            let path = found.unwrap().path();
            if path.extension().is_none_or(|end| end != "safetensors") {
                continue;
            }
            let file = TensorFile::open(&path).unwrap();
            let tensors: Vec<(&str, HostTensor)> =
                file.names().map(|name| (name, file.read(name).unwrap())).collect();
            let copy = folder.0.join("copy.safetensors");
            let borrowed = tensors.iter().map(|(name, tensor)| (*name, tensor));
            write_file(&copy, borrowed, file.metadata()).unwrap();
            let copy = TensorFile::open(&copy).unwrap();
            assert!(file.names().eq(copy.names()));
            for (name, tensor) in &tensors {
                assert_eq!(&copy.read(name).unwrap(), tensor, "{} {name}", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn bytes_of_each_dtype() {
    let folder = Folder::new("dtypes");
    let path = folder.0.join("a.safetensors");
    // Bit patterns of 1.0 and -2.0, and little-endian integers, by hand.
    let cases: Vec<(&str, &[u8], HostData)> = vec![
        ("F64", &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f], HostData::F64(vec![1.0])),
        ("F32", &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], HostData::F32(vec![1.0, -2.0])),
        (
            "BF16",
            &[0x80, 0x3f, 0, 0xc0],
            HostData::BF16(vec![bf16::from_f32(1.0), bf16::from_f32(-2.0)]),
        ),
        ("F16", &[0, 0x3c, 0, 0xc0], HostData::F16(vec![f16::from_f32(1.0), f16::from_f32(-2.0)])),
        ("I64", &[0xfe, 255, 255, 255, 255, 255, 255, 255], HostData::I64(vec![-2])),
        ("I32", &[1, 2, 0, 0, 255, 255, 255, 255], HostData::I32(vec![513, -1])),
        ("I16", &[1, 2], HostData::I16(vec![513])),
        ("I8", &[255], HostData::I8(vec![-1])),
        ("U8", &[255, 7], HostData::U8(vec![255, 7])),
        ("BOOL", &[1, 0], HostData::Bool(vec![true, false])),
    ];
    for (dtype, raw, data) in cases {
        let header =
            format!("{{{}}}", entry("w", dtype, &format!("[{}]", data.len()), 0, raw.len() as u64));
        let mut bytes = bytes_of(&header, 0);
        bytes.extend(raw);
        std::fs::write(&path, &bytes).unwrap();
        let tensor = TensorFile::open(&path).unwrap().read("w").unwrap();
        assert_eq!(tensor.data, data);
        write_file(&path, [("w", &tensor)], &BTreeMap::new()).unwrap();
        let written = std::fs::read(&path).unwrap();
        assert!(written.ends_with(raw) && (written.len() - raw.len()).is_multiple_of(8), "{dtype}");
        assert_eq!(TensorFile::open(&path).unwrap().read("w").unwrap(), tensor);
    }
    let mut bytes = bytes_of(&format!("{{{}}}", entry("w", "BOOL", "[2]", 0, 2)), 2);
    *bytes.last_mut().unwrap() = 3;
    std::fs::write(&path, &bytes).unwrap();
    let error = TensorFile::open(&path).unwrap().read("w").unwrap_err();
    assert_eq!(error.to_string(), "`w` has the value 3 at element 1, a BOOL is 0 or 1");
    std::fs::write(&path, bytes_of(&format!("{{{}}}", entry("w", "F4", "[2]", 0, 1)), 1)).unwrap();
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.read("w").unwrap_err().to_string(), "`w` is F4, which cannot be read here");
    assert!(file.read_rows("w", 0..1).is_err());
}

#[test]
fn a_huge_sparse_file_is_opened_and_read_in_part() {
    let folder = Folder::new("sparse");
    let path = folder.0.join("huge.safetensors");
    // 4 TB of zeros that take no room on the disk.
    let (rows, columns) = (1u64 << 20, 1u64 << 20);
    let size = rows * columns * 4;
    let shape = format!("[{rows},{columns}]");
    let header = format!(
        "{{{},{}}}",
        entry("small", "U8", "[2]", size, size + 2),
        entry("large", "F32", &shape, 0, size)
    );
    std::fs::write(&path, bytes_of(&header, 0)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    if file.set_len(8 + header.len() as u64 + size + 2).is_err() {
        // The disk's own limit on the length of a file.
        return;
    }
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.read("small").unwrap().data, HostData::U8(vec![0, 0]));
    let row = file.read_rows("large", (1 << 20) - 1..1 << 20).unwrap();
    assert_eq!(row.shape, [1, 1 << 20]);
}

#[test]
fn a_claim_of_much_data_in_a_short_file_is_refused_before_anything_is_allocated() {
    let folder = Folder::new("claim");
    let path = folder.0.join("claim.safetensors");
    let header = format!("{{{}}}", entry("w", "F32", "[250000000000]", 0, 1_000_000_000_000));
    std::fs::write(&path, bytes_of(&header, 16)).unwrap();
    let error = TensorFile::open(&path).unwrap_err();
    assert_eq!(error.to_string(), "`w` ends at byte 1000000000000 of a buffer of 16 bytes");
    std::fs::write(&path, [0xff; 12]).unwrap();
    assert!(matches!(TensorFile::open(&path), Err(FileError::HeaderTooLong { .. })));
    std::fs::write(&path, [1; 3]).unwrap();
    assert!(matches!(TensorFile::open(&path), Err(FileError::NoLength { file_bytes: 3 })));
    let error = TensorFile::open(folder.0.join("none")).unwrap_err();
    assert!(matches!(error, FileError::Io { action: "read", .. }), "{error}");
}

#[test]
fn rows_are_read_alone() {
    let folder = Folder::new("rows");
    let path = folder.0.join("a.safetensors");
    let tensor = HostTensor::new(vec![3, 2], HostData::I32(vec![1, 2, 3, 4, 5, 6])).unwrap();
    let scalar = HostTensor::new(vec![], HostData::F32(vec![1.0])).unwrap();
    write_file(&path, [("w", &tensor), ("s", &scalar)], &BTreeMap::new()).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let rows = file.read_rows("w", 1..3).unwrap();
    assert_eq!((rows.shape, rows.data), (vec![2, 2], HostData::I32(vec![3, 4, 5, 6])));
    assert!(file.read_rows("w", 2..2).unwrap().is_empty());
    let error = file.read_rows("w", 2..4).unwrap_err();
    assert_eq!(error.to_string(), "rows 2 to 4 were asked of `w`, which has the shape [3, 2]");
    assert!(file.read_rows("s", 0..1).is_err());
    assert_eq!(file.read("x").unwrap_err().to_string(), "there is no tensor `x`");
}

#[test]
fn a_writer_that_does_not_finish_leaves_the_old_file_and_no_rubbish() {
    let folder = Folder::new("writer");
    let path = folder.0.join("a.safetensors");
    let old = HostTensor::vector(HostData::U8(vec![1, 2]));
    write_file(&path, [("old", &old)], &BTreeMap::new()).unwrap();
    let spec = |name: &str| TensorSpec { name: name.into(), dtype: Dtype::U8, shape: vec![2] };
    let specs = vec![spec("a"), spec("b")];
    let mut writer = TensorWriter::create(&path, specs.clone(), &BTreeMap::new()).unwrap();
    writer.write(&old).unwrap();
    let wrong = HostTensor::vector(HostData::I8(vec![1, 2]));
    assert_eq!(
        writer.write(&wrong).unwrap_err().to_string(),
        "`b` was declared as U8 [2], the tensor given is I8 [2]"
    );
    let error = writer.finish().unwrap_err();
    assert_eq!(error.to_string(), "1 of 2 declared tensors were written");
    assert!(TensorFile::open(&path).unwrap().contains("old"));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    let twice = vec![spec("a"), spec("a")];
    let error = TensorWriter::create(&path, twice, &BTreeMap::new()).unwrap_err();
    assert_eq!(error.to_string(), "the header names `a` twice");
    let mut writer = TensorWriter::create(&path, specs, &BTreeMap::new()).unwrap();
    writer.write(&old).unwrap();
    writer.write(&old).unwrap();
    assert!(matches!(writer.write(&old), Err(FileError::TooMany { given: 3, declared: 2 })));
    writer.finish().unwrap();
    assert!(TensorFile::open(&path).unwrap().names().eq(["a", "b"]));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    let nowhere = folder.0.join("missing/a.safetensors");
    assert!(write_file(nowhere, [("old", &old)], &BTreeMap::new()).is_err());
}

#[test]
fn folders_with_and_without_an_index() {
    let folder = Folder::new("folder");
    let of = |value| HostTensor::vector(HostData::U8(vec![value]));
    let (one, two) = (of(1), of(2));
    let first = folder.0.join("m-1.safetensors");
    let second = folder.0.join("m-2.safetensors");
    assert!(matches!(TensorFolder::open(&folder.0), Err(FileError::EmptyFolder { .. })));
    write_file(&first, [("a", &one)], &BTreeMap::new()).unwrap();
    write_file(&second, [("b", &two)], &BTreeMap::new()).unwrap();
    let check = || {
        let open = TensorFolder::open(&folder.0).unwrap();
        assert!(open.names().eq(["a", "b"]));
        assert_eq!(open.read("b").unwrap(), two);
        assert_eq!(open.info("a").unwrap().shape, [1]);
        assert!(matches!(open.read("c"), Err(FileError::Missing { .. })));
    };
    check();
    assert!(TensorFolder::open(&first).unwrap().names().eq(["a"]));
    let index = folder.0.join("model.safetensors.index.json");
    let map = r#"{"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#;
    std::fs::write(&index, map).unwrap();
    check();
    std::fs::write(&index, r#"{"weight_map":{"a":"m-2.safetensors"}}"#).unwrap();
    let error = TensorFolder::open(&folder.0).unwrap_err();
    assert!(error.to_string().contains("does not hold it"), "{error}");
    for path in ["../m-1.safetensors", "/etc/m-1.safetensors", "..", ""] {
        std::fs::write(&index, format!(r#"{{"weight_map":{{"a":"{path}"}}}}"#)).unwrap();
        let error = TensorFolder::open(&folder.0).unwrap_err();
        assert!(matches!(error, FileError::IndexPath { .. }), "{path}: {error}");
    }
    std::fs::remove_file(&index).unwrap();
    write_file(&second, [("a", &two)], &BTreeMap::new()).unwrap();
    assert!(matches!(TensorFolder::open(&folder.0), Err(FileError::TwoFiles { .. })));
}

#[test]
fn damaged_headers_never_panic() {
    // Every byte of a real header, changed in a few ways, and every truncation.
    let path = golden_folder().join("ops/positions_text_image.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let end = 8 + usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
    assert!(parse_header(&bytes, bytes.len() as u64).is_ok());
    for at in 0..end {
        for value in [0, b'0', b'9', b'"', b'}', b' ', 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _ = parse_header(&damaged, damaged.len() as u64);
        }
        assert!(parse_header(&bytes[..at], at as u64).is_err());
    }
}
