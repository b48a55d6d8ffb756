//! Feeds arbitrary bytes to the header parser, and checks what it accepts.
//!
//! ```text
//! RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz safetensors_header \
//!     tests/fuzz/corpus/safetensors_header tests/fuzz/seeds/safetensors_header
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vlmc_data::safetensors::parse_header;

/// What any accepted header has to fulfil, reckoned anew.
fn check(bytes: &[u8], file_bytes: u64) {
    let Ok(header) = parse_header(bytes, file_bytes) else {
        return;
    };
    let mut end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap());
    for (name, info) in &header.tensors {
        assert_eq!(info.range.start, end, "{name}");
        end = info.range.end;
        let elements = info.shape.iter().map(|&dim| dim as u128).product::<u128>();
        let bits = elements * u128::from(info.dtype.bits());
        assert_eq!(u128::from(info.range.end - info.range.start) * 8, bits, "{name}");
        assert_eq!(header.get(name), Some(info), "{name}");
    }
    assert_eq!(end, file_bytes);
}

fuzz_target!(|data: &[u8]| {
    check(data, data.len() as u64);
    // The length in front is hard to hit, so the same bytes are tried as the JSON part alone, with
    // a buffer whose length the first byte gives.
    if let Some((&buffer, json)) = data.split_first() {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json);
        check(&bytes, bytes.len() as u64 + u64::from(buffer));
    }
});
