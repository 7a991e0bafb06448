//! The container that libxrt opens (xclbin): the image, and what the kernel's arguments are.
//!
//! Source: the structures of XRT's public header xclbin.h; what stands in them is what its xclbinutil 2.25 writes from
//! the descriptions that Xilinx/mlir-aie makes. A test holds the sections against its bytes.

use super::bytes::Bytes;

/// What the container says of a program.
pub struct Contents<'a> {
    /// The kernel's name, by which libxrt finds it.
    pub kernel: &'a str,
    pub instance: &'a str,
    /// The host's buffers, in order; before them come the operation, the instruction stream and its length.
    pub arguments: &'a [&'a str],
    pub columns: u8,
    pub image: &'a [u8],
    pub image_id: [u8; 16],
}

/// Section kinds.
const METADATA: u32 = 2;
const MEMORIES: u32 = 6;
const CONNECTIVITY: u32 = 7;
const KERNELS: u32 = 8;
const GROUP_MEMORIES: u32 = 26;
const GROUP_CONNECTIVITY: u32 = 27;
const PARTITION: u32 = 32;

/// The number of the kernel in the partition: the one that public tools give.
const KERNEL_ID: u32 = 0x901;
/// Columns of the device at which a partition can start.
const LAST_COLUMN: u8 = 4;
/// Bytes before the first section's header.
const HEAD: usize = 456;
const SECTION_HEADER: usize = 40;

/// The container's bytes. Its time is 0 and its identity follows from its contents, so that it is the same each time.
pub fn pack(contents: &Contents) -> Vec<u8> {
    let sections = sections(contents);
    let mut headers = Bytes::default();
    let mut data = Bytes::default();
    let start = (HEAD + sections.len() * SECTION_HEADER).next_multiple_of(8);
    for (kind, section) in &sections {
        headers.u32(*kind);
        headers.zeros(20);
        headers.u64((start + data.len()) as u64);
        headers.u64(section.len() as u64);
        data.extend(section);
        data.align(8);
    }

    let mut file = Bytes::default();
    file.extend(b"xclbin2\0");
    file.extend(&[0xFF; 4 + 28 + 256]); // no signature
    file.u64(0); // unique number
    file.u64((start + data.len()) as u64);
    file.zeros(16); // time, time of the platform
    file.u16(0); // version: patch, major, minor
    file.extend(&[2, 25]);
    file.zeros(4 + 16 + 64); // mode, actions, interface, platform
    file.extend(&identity(&data));
    file.zeros(16);
    file.u32(sections.len() as u32);
    file.align(8);
    file.extend(&headers);
    file.align(8);
    file.extend(&data);
    file.into_vec()
}

/// The sections by kind, in the order of the file.
pub fn sections(contents: &Contents) -> Vec<(u32, Vec<u8>)> {
    let connections = connections(contents.arguments.len());
    vec![
        (MEMORIES, memories()),
        (PARTITION, partition(contents)),
        (METADATA, metadata(contents).into_bytes()),
        (KERNELS, kernels(contents)),
        (CONNECTIVITY, connectivity(&connections)),
        // As xclbinutil has it: the connections of the memories, then those of their groups, which are the same.
        (GROUP_CONNECTIVITY, connectivity(&connections.repeat(2))),
        (GROUP_MEMORIES, memories()),
    ]
}

fn memories() -> Vec<u8> {
    let mut section = Bytes::default();
    section.u32(2);
    section.zeros(4);
    for (name, kilobytes) in [("HOST", 0x10000), ("SRAM", 0xC000)] {
        section.extend(&[2, 1]); // DRAM, used
        section.zeros(6);
        section.u64(kilobytes);
        section.u64(0x400_0000);
        section.text(name, 16);
    }
    section.into_vec()
}

/// The argument's number and the memory that it is in: the instruction stream is in SRAM, buffers are the host's.
fn connections(arguments: usize) -> Vec<(u32, u32)> {
    let buffers = (0..arguments).map(|index| (index as u32 + 3, 0));
    std::iter::once((1, 1)).chain(buffers).collect()
}

fn connectivity(connections: &[(u32, u32)]) -> Vec<u8> {
    let mut section = Bytes::default();
    section.u32(connections.len() as u32);
    for (argument, memory) in connections {
        section.u32(*argument);
        section.u32(0); // the kernel
        section.u32(*memory);
    }
    section.into_vec()
}

fn kernels(contents: &Contents) -> Vec<u8> {
    let mut section = Bytes::default();
    section.u32(1);
    section.zeros(4);
    section.u32(7); // kernel of a processing system ...
    section.u32(KERNEL_ID << 16 | 1); // ... which is the array
    section.u64(u64::MAX);
    section.text(&format!("{}:{}", contents.kernel, contents.instance), 64);
    section.into_vec()
}

/// The partition: how wide, where it can start, and its image.
fn partition(contents: &Contents) -> Vec<u8> {
    const SIZE: usize = 184;
    const IMAGE: usize = 96;
    const GROUP: usize = 96;
    // What the fixed parts point to follows them; offsets count from the section's start.
    let mut heap = Bytes::default();
    let name = heap.put(SIZE, &[0]);
    let commit = heap.put(SIZE, &[0]);
    let columns: Vec<u8> =
        (1..=LAST_COLUMN + 1 - contents.columns).flat_map(|column| u16::from(column).to_le_bytes()).collect();
    let starts = heap.put(SIZE, &columns);
    let image = heap.put(SIZE, contents.image);
    let group_name = heap.put(SIZE, b"DPU\0");
    let kernels = heap.put(SIZE, &u64::from(KERNEL_ID).to_le_bytes());
    let before = heap.put(SIZE, &0xC1u64.to_le_bytes());

    let mut group = Bytes::default();
    group.u32(group_name);
    group.u32(1); // primary
    group.u64(1); // image
    group.array(1, kernels);
    group.array(1, before);
    group.zeros(GROUP - group.len());
    let groups = heap.put(SIZE, &group);

    let mut entry = Bytes::default();
    entry.extend(&contents.image_id);
    entry.array(contents.image.len() as u32, image);
    entry.array(1, groups);
    entry.zeros(IMAGE - entry.len());
    let images = heap.put(SIZE, &entry);

    let mut section = Bytes::default();
    section.u32(0); // version
    section.u32(name);
    section.u32(2048); // operations a cycle
    section.zeros(4);
    section.u64(23423); // fingerprints, which nothing reads
    section.u64(12345);
    section.u16(u16::from(contents.columns));
    section.zeros(6);
    section.array(columns.len() as u32 / 2, starts);
    section.zeros(72);
    section.array(1, images);
    section.u32(commit);
    section.zeros(SIZE - section.len());
    section.extend(&heap);
    section.into_vec()
}

/// The kernel's arguments, as XRT reads them.
fn metadata(contents: &Contents) -> String {
    let argument = |id: usize, name: &str, qualifier: u32, size: usize, offset: usize, kind: &str| {
        format!(
            "          <arg name=\"{name}\" addressQualifier=\"{qualifier}\" id=\"{id}\" size=\"{size:#x}\" \
             offset=\"{offset:#04x}\" hostOffset=\"0x0\" hostSize=\"{size:#x}\" type=\"{kind}\"/>\n"
        )
    };
    let mut arguments = argument(0, "opcode", 0, 8, 0, "uint64_t");
    arguments += &argument(1, "instr", 1, 8, 8, "char *");
    arguments += &argument(2, "ninstr", 0, 4, 16, "uint32_t");
    for (index, name) in contents.arguments.iter().enumerate() {
        arguments += &argument(3 + index, name, 1, 8, 20 + 8 * index, "char *");
    }
    let (kernel, instance) = (contents.kernel, contents.instance);
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<project>\n  <platform>\n    <device>\n      <core>\n        \
         <kernel name=\"{kernel}\" language=\"c\" type=\"dpu\">\n          \
         <extended-data subtype=\"1\" functional=\"0\" dpu_kernel_id=\"{KERNEL_ID:#x}\"/>\n{arguments}          \
         <instance name=\"{instance}\"/>\n        </kernel>\n      </core>\n    </device>\n  </platform>\n</project>\n"
    )
}

/// 128 bits that follow from the contents, by FNV-1a from two starts: they tell containers apart, and prove nothing.
pub fn identity(data: &[u8]) -> [u8; 16] {
    let hash =
        |start: u64| data.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&hash(0xCBF2_9CE4_8422_2325).to_le_bytes());
    identity[8..].copy_from_slice(&hash(0x8422_2325_CBF2_9CE4).to_le_bytes());
    identity
}
