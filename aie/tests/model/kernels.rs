//! The programs on the model: what is checked in, byte for byte.

use crate::machine::{HostMemory, narrow, widen};
use crate::program::{Program, Random, matmul, read_sum, to_bytes, vector_add};

/// A checked-in output.
pub fn output(name: &str, extension: &str) -> Vec<u8> {
    let path = format!("{}/../src/npu/programs/{name}.{extension}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn assert_right(program: &Program) {
    let name = program.design.name;
    let (container, sequence) = (output(name, "xclbin"), output(name, "txn"));
    program.refute(&container, &sequence).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    // The driver takes the image alone.
    let mut machine = program.machine();
    machine.load_image(&output(name, "pdi")).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    program.exercise(&mut machine, &sequence).unwrap_or_else(|fault| panic!("{name}: {fault}"));
}

#[test]
fn vector_add_is_exact_on_four_columns() {
    assert_right(&vector_add(1));
}

#[test]
fn every_word_read_is_in_its_sum() {
    assert_right(&read_sum(1));
}

#[test]
fn product_is_exact_where_sums_are() {
    assert_right(&matmul(1));
}

/// Each of 16 steps of a sum rounds once, by at most half a unit in the last place of what is summed up by then, which is
/// at most the sum of the products' magnitudes.
#[test]
fn product_of_random_values_is_within_its_bound() {
    let mut random = Random(7);
    let [a, b]: [Vec<u16>; 2] = [0, 1].map(|_| (0..64 * 128).map(|_| random.bf16()).collect());
    let mut machine = matmul(0).machine();
    machine.load_container(&output("matmul_bf16", "xclbin")).unwrap_or_else(|fault| panic!("{fault}"));
    machine.host[0].memory = HostMemory::of(&to_bytes(&a));
    machine.host[1].memory = HostMemory::of(&to_bytes(&b));
    machine.host[2].memory = HostMemory::new(64 * 64 * 4);
    machine.run(&output("matmul_bf16", "txn")).unwrap_or_else(|fault| panic!("{fault}"));
    let bytes = machine.host[2].memory.bytes().expect("all of C");
    let mut rounded = 0;
    for (index, found) in bytes.chunks(4).enumerate() {
        let found = f64::from(f32::from_le_bytes(found.try_into().expect("four bytes")));
        let (row, column) = (index / 64, index % 64);
        let products = (0..128).map(|k| f64::from(widen(a[128 * row + k])) * f64::from(widen(b[64 * k + column])));
        let products: Vec<f64> = products.collect();
        let (sum, most) = (products.iter().sum::<f64>(), products.iter().map(|product| product.abs()).sum::<f64>());
        let bound = 16.0 * 2f64.powi(-24) * most;
        assert!((found - sum).abs() <= bound, "C[{row}][{column}] = {found}, not {sum} within {bound}");
        rounded += usize::from(found != sum);
    }
    assert!(rounded > 1000, "{rounded} of 4096 sums are not exact: the values are too tame for a bound");
}

#[test]
fn bf16_rounds_to_nearest_even() {
    let cases = [(0x3F80_0000, 0x3F80), (0x3F80_8000, 0x3F80), (0x3F80_8001, 0x3F81), (0x3F81_8000, 0x3F82)];
    for (bits, expected) in cases {
        assert_eq!(narrow(f32::from_bits(bits)), expected);
    }
}
