//! GGUF files that are wrong, each refused by one line that names the key or the tensor.

use kiln::model::checkpoint::gguf::{GgufHeader, MetadataValue as Read};

use super::files::bad_input;
use crate::common::gguf::{GgufFile, Tensor, Value, length_and};

/// A small file with every kind of value.
fn sound() -> GgufFile {
    let mut file = GgufFile::default();
    file.set("general.architecture", Value::text("gemma3"));
    file.set("a.bool", Value::bool(true));
    file.set("a.float", Value::f32(0.5));
    file.set("a.double", Value::raw(12, &0.25f64.to_le_bytes()));
    file.set("a.u64", Value::raw(10, &u64::MAX.to_le_bytes()));
    for (kind, name, bytes) in [(0, "u8", 1), (1, "i8", 1), (2, "u16", 2), (3, "i16", 2), (5, "i32", 4), (11, "i64", 8)]
    {
        file.set(&format!("a.{name}"), Value::raw(kind, &[0xFE; 8][..bytes]));
    }
    file.set("a.texts", Value::texts(&["", "zwölf", "x"]));
    file.set("a.floats", Value::f32s(&[1.0, -2.0]));
    file.set("a.bools", Value::list(7, 3, &[1, 0, 1]));
    file.tensors.push(Tensor::f32("one", &[3], &[1.0, 2.0, 3.0]));
    file.tensors.push(Tensor::new("two", &[2, 64], 8, vec![7; 4 * 34]));
    file.tensors.push(Tensor::new("three", &[1, 256], 14, vec![7; 210]));
    file
}

fn parse(bytes: &[u8]) -> kiln::Result<GgufHeader> {
    GgufHeader::parse("file", bytes, bytes.len())
}

fn refused_bytes(bytes: &[u8]) -> String {
    bad_input(parse(bytes).map(drop))
}

/// The error for the sound file after a change.
fn refused(change: impl FnOnce(&mut GgufFile)) -> String {
    let mut file = sound();
    change(&mut file);
    refused_bytes(&file.bytes())
}

#[test]
fn a_sound_file_is_read_as_it_was_written() {
    for (version, alignment) in [(3, 32), (2, 32), (3, 1), (3, 4096)] {
        let mut file = GgufFile { version, alignment, ..sound() };
        file.set("general.alignment", Value::u32(alignment as u32));
        let bytes = file.bytes();
        let header = parse(&bytes).unwrap();
        let value = |name: &str| &header.metadata[&format!("a.{name}")];
        for (name, wanted) in [
            ("bool", Read::Bool(true)),
            ("float", Read::Float(0.5)),
            ("double", Read::Float(0.25)),
            ("u64", Read::Unsigned(u64::MAX)),
            ("u8", Read::Unsigned(0xFE)),
            ("i8", Read::Signed(-2)),
            ("u16", Read::Unsigned(0xFEFE)),
            ("i16", Read::Signed(-258)),
            ("i32", Read::Signed(-0x0101_0102)),
            ("i64", Read::Signed(-0x0101_0101_0101_0102)),
        ] {
            assert_eq!(*value(name), wanted, "{name}");
        }
        let texts = value("texts").as_array().unwrap();
        assert_eq!(texts.texts().collect::<Vec<_>>(), ["", "zwölf", "x"]);
        assert_eq!((texts.len(), texts.is_empty(), texts.numbers().count()), (3, false, 0));
        let floats = value("floats").as_array().unwrap();
        assert_eq!(floats.numbers().collect::<Vec<_>>(), [Read::Float(1.0), Read::Float(-2.0)]);
        assert_eq!(floats.texts().count(), 0);
        let bools = value("bools").as_array().unwrap().numbers().collect::<Vec<_>>();
        assert_eq!(bools, [true, false, true].map(Read::Bool));
        let names: Vec<_> = header.tensors.iter().map(|t| (t.name.as_str(), t.dtype.name, t.shape.clone())).collect();
        assert_eq!(names, [("one", "F32", vec![3]), ("two", "Q8_0", vec![2, 64]), ("three", "Q6_K", vec![1, 256])]);
        for (tensor, written) in header.tensors.iter().zip(&file.tensors) {
            assert_eq!(bytes[tensor.range.clone()], written.bytes, "{}", tensor.name);
            assert_eq!(tensor.range.start % alignment, 0, "{}", tensor.name);
        }
    }
}

/// Whatever is cut off, what is there is never read past its end, and the line says so.
#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let (head, data) = sound().parts();
    let whole = [&head[..], &data].concat();
    let end = whole.len() - (32 - 210 % 32);
    assert!(parse(&whole[..end]).is_ok(), "the padding of the last tensor may be missing");
    for keep in 0..end {
        let line = refused_bytes(&whole[..keep]);
        assert!(line.contains("truncated"), "{keep}: {line}");
    }
}

#[test]
fn another_format_or_version_is_refused_by_name() {
    assert!(
        refused_bytes(b"GGML............................")
            .contains("it is no GGUF file; give a GGUF file, or a model's directory")
    );
    for (version, words) in [(0, "version 0"), (1, "version 1;"), (4, "version 4; versions 2 and 3 are read")] {
        assert!(refused(|f| f.version = version).contains(words), "{version}");
    }
    assert!(refused(|f| f.version = 3 << 24).contains("big-endian"));
}

#[test]
fn counts_and_lengths_are_believed_only_as_far_as_there_are_bytes() {
    for count in [u64::MAX, u64::MAX / 13, 1 << 63, 1 << 40, 1000] {
        assert!(refused(|f| f.claims[0] = Some(count)).contains("tensors, and has room for"), "{count}");
        assert!(refused(|f| f.claims[1] = Some(count)).contains("keys, and has room for"), "{count}");
        for kind in [0, 4, 6, 7, 8, 10] {
            let line = refused(|f| f.set("list", Value::list(kind, count, &[0; 16])));
            assert!(line.contains("list") && line.contains("truncated"), "{count} of {kind}: {line}");
        }
        let mut file = sound();
        file.set("text", Value::raw(8, &count.to_le_bytes()));
        let line = refused_bytes(&file.bytes());
        assert!(line.contains("the value of text takes"), "{line}");
        let mut head = sound().parts().0;
        // The length of the first key's name.
        head[24..32].copy_from_slice(&count.to_le_bytes());
        assert!(refused_bytes(&head).contains("the name of key 0 takes"));
    }
    // As many as a file of 2 MB has room for, and no model has.
    let many = GgufFile { claims: [None, Some(1 << 17)], ..GgufFile::default() };
    let mut bytes = many.bytes();
    bytes.resize(2 << 20, 0);
    assert!(refused_bytes(&bytes).contains("131072 keys; at most 65536"));
}

#[test]
fn values_of_no_type_and_lists_of_lists_are_refused() {
    assert!(refused(|f| f.set("x", Value::raw(13, &[0; 8]))).contains("the value of x has the unknown type 13"));
    assert!(refused(|f| f.set("x", Value::list(14, 1, &[0]))).contains("a list, has the unknown type 14"));
    assert!(refused(|f| f.set("x", Value::list(9, 1, &[0; 16]))).contains("x is a list of lists"));
    assert!(refused(|f| f.set("x", Value::raw(7, &[2]))).contains("x is neither true nor false"));
    assert!(refused(|f| f.set("x", Value::list(7, 2, &[1, 3]))).contains("neither true nor false"));
}

#[test]
fn text_that_is_not_utf_8_is_refused() {
    let bad = length_and(b"a\xFFb");
    assert!(refused(|f| f.set("x", Value::raw(8, &bad))).contains("the value of x is not UTF-8"));
    assert!(refused(|f| f.set("x", Value::list(8, 1, &bad))).contains("element 0 of the value of x is not UTF-8"));
    let bytes = sound().bytes();
    for (name, what) in [(&b"a.bool"[..], "the name of key 1"), (b"one", "the name of tensor 0")] {
        let mut bytes = bytes.clone();
        let at = bytes.windows(name.len()).position(|w| w == name).unwrap();
        bytes[at] = 0xC0;
        assert!(refused_bytes(&bytes).contains(&format!("{what} is not UTF-8")));
    }
}

#[test]
fn what_is_there_twice_is_refused() {
    assert!(refused(|f| f.keys.push(("a.bool".into(), Value::bool(true)))).contains("key a.bool is there twice"));
    assert!(refused(|f| f.tensors.push(f.tensors[0].clone())).contains("tensor one is there twice"));
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    for value in [Value::u32(0), Value::u32(24), Value::u32(1 << 31), Value::text("32"), Value::f32(32.0)] {
        assert!(refused(|f| f.set("general.alignment", value)).contains("general.alignment is"));
    }
    // Another alignment than the file was written with.
    assert!(refused(|f| f.set("general.alignment", Value::u32(64))).contains("tensor two lies at byte 32"));
}

#[test]
fn tensors_that_do_not_lie_where_they_have_to_are_refused() {
    for offset in [1, 31, 33, 64, 1 << 40, u64::MAX, u64::MAX - 31] {
        let line = refused(|f| f.tensor("two").offset = Some(offset));
        assert!(line.contains(&format!("tensor two lies at byte {offset} of the data; wanted 32")), "{line}");
    }
    // Overlap.
    assert!(refused(|f| f.tensor("three").offset = Some(32)).contains("tensor three lies at byte 32"));
}

#[test]
fn dimensions_that_are_wrong_for_a_type_are_refused() {
    let dims = |name: &'static str, dims: &[u64]| refused(|f| f.tensor(name).dims = dims.to_vec());
    assert!(
        dims("three", &[1, 128]).contains("tensor three is Q6_K in rows of 128, which are not whole blocks of 256")
    );
    assert!(dims("two", &[128, 1]).contains("tensor two is Q8_0 in rows of 1"));
    assert!(dims("two", &[1 << 40, 1 << 40]).contains("overflows"));
    assert!(dims("two", &[u64::MAX, 32]).contains("overflows"));
    assert!(dims("one", &[u64::MAX / 4]).contains("tensor one has 18446744073709551612 bytes"));
    assert!(dims("one", &[1; 5]).contains("tensor one has 5 dimensions"));
    assert!(dims("one", &[1 << 20]).contains("tensor one has 4194304 bytes from byte 0 of the data"));
    assert!(dims("one", &[30]).contains("tensor two lies at byte 32 of the data; wanted 128"));
    for code in [4, 5, 31, 42, u32::MAX] {
        let line = refused(|f| f.tensor("one").kind = code);
        assert!(line.contains(&format!("tensor one has the unknown type {code}")), "{line}");
    }
}

/// Random damage is refused or read, and what is read lies within the file.
#[test]
fn damage_is_never_read_past_the_end() {
    let (mut random, sound) = (crate::common::Random(0x6775_6600_0001), sound().bytes());
    let mut accepted = 0;
    for _ in 0..4000 {
        let mut bytes = sound.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = [0, 1, 0x7F, 0x80, 0xFF, random.bits() as u8][random.below(6)];
        }
        bytes.truncate(bytes.len() - [0, random.below(bytes.len())][random.below(2)]);
        if let Ok(header) = parse(&bytes) {
            accepted += 1;
            assert!(header.tensors.iter().all(|tensor| tensor.range.end <= bytes.len()));
            header.metadata.values().filter_map(Read::as_array).for_each(|list| {
                assert_eq!(list.texts().count() + list.numbers().count(), list.len());
            });
        }
    }
    assert!(accepted > 100, "{accepted}: the damage is too great to test much");
}
