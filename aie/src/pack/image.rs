//! The partition's image: a boot image of Versal devices (PDI) around one object of commands.
//!
//! Source: the public structures of Xilinx/bootgen (imageheadertable-versal.h, partitionheadertable-versal.h), filled in
//! as Debian's bootgen does from the description that Xilinx/mlir-aie gives it; a test holds the bytes against its.

use super::command::{Command, check_sum, encode};

/// Words: width detection of the boot bus, then three headers of 32, 16 and 32 words.
const TABLE: usize = 4;
const IMAGE: usize = TABLE + 32;
const PARTITION: usize = IMAGE + 16;
const DATA: usize = PARTITION + 32;

/// The image's bytes.
pub fn pack(commands: &[Command]) -> Vec<u8> {
    let mut data = encode(commands);
    let length = data.len() as u32;
    data.resize(data.len().next_multiple_of(4), 0);
    let padded = data.len() as u32;

    let mut words = vec![0u32; DATA];
    words[..TABLE].copy_from_slice(&[0xDD, 0x1122_3344, 0x5566_7788, 0x99AA_BBCC]);

    let table = &mut words[TABLE..IMAGE];
    table[0] = 0x4_0000; // version 4
    table[1] = 1; // images
    table[2] = IMAGE as u32;
    table[3] = 1; // partitions
    table[4] = PARTITION as u32;
    table[6] = 0x14CA_8093; // device
    table[10] = u32::from_le_bytes(*b"IDPP");
    table[11] = 32 << 16 | 16 << 8 | 32; // sizes of the headers
    table[12] = (DATA - IMAGE) as u32;
    table[17] = 1; // device, extended
    table[31] = check_sum(&table[..31]);

    let image = &mut words[IMAGE..PARTITION];
    image[0] = PARTITION as u32;
    image[1] = 1; // partitions
    for (word, letters) in image[4..8].iter_mut().zip(b"aie_image\0\0\0\0\0\0\0".chunks(4)) {
        *word = letters.iter().rev().fold(0, |word, letter| word << 8 | u32::from(*letter));
    }
    image[8] = 0x1C00_0000;
    image[15] = check_sum(&image[..15]);

    let partition = &mut words[PARTITION..DATA];
    partition[..3].copy_from_slice(&[padded, length, padded]);
    partition[6..8].copy_from_slice(&[u32::MAX; 2]); // no address to load to
    partition[8] = DATA as u32;
    partition[9] = 0x0200_0006; // configuration commands
    partition[10] = 1; // sections
    partition[31] = check_sum(&partition[..31]);

    words.extend(data);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
