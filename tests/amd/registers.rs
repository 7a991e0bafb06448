//! What the code of a set runs with is what RADV tells the hardware: kernels of the golden models' passes are submitted by
//! Kiln's Vulkan driver, and the registers at each dispatch are those of the set.

use super::{Chip, list, order, radv, takes_all};
use bytemuck::{Pod, Zeroable};
use kiln::testing::amdgpu::code::{CodeSet, KernelRegisters};
use kiln::testing::lower::dispatch::Edge;
use kiln::testing::lower::kernels::Kernel;
use kiln::testing::lower::kernels::push::{Field, Push, PushBlock};
use kiln::testing::replay::driver::{DeviceCommand, Driver};
use kiln::testing::vulkan::{DeviceChoice, Gpu, Vulkan};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

const CHILD: &str = "KILN_TEST_REGISTERS_CHILD";
/// Names the file that packets are appended to (tests/common/amdgpu.c).
const PACKETS: &str = "KILN_TEST_PACKETS";
const TEST: &str = "registers::registers_are_those_that_radv_writes";

/// All push words, each another one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct Numbered([u32; 32]);

impl PushBlock for Numbered {
    const FIELDS: &'static [Field] = &[];
}

/// Registers by their addresses in bytes.
type Registers = HashMap<u32, u32>;

const NUM_THREAD: u32 = 0xb81c;
const RSRC1: u32 = 0xb848;
const RSRC2: u32 = 0xb84c;
const LIMITS: u32 = 0xb854;
const RSRC3: u32 = 0xb8a0;
const USER_DATA: u32 = 0xb900;
/// Packets that set registers, and the one that dispatches, whose initiator has a bit for waves of 32.
const SET_SH_REG: [u32; 2] = [0x76, 0x9b];
const DISPATCH_DIRECT: u32 = 0x15;
const WAVES_OF_32: u32 = 1 << 15;

#[test]
fn registers_are_those_that_radv_writes() {
    if std::env::var_os(CHILD).is_some() {
        let chip = Chip::ALL.into_iter().find(|chip| std::env::var("KILN_TEST_CHIP").unwrap() == chip.name()).unwrap();
        return check(chip);
    }
    if radv::is_missing() {
        return;
    }
    for chip in Chip::ALL {
        let packets = tempfile::NamedTempFile::new().unwrap();
        println!("{}", radv::run(TEST, chip.name(), &[(CHILD, Path::new("1")), (PACKETS, packets.path())]));
    }
}

fn check(chip: Chip) {
    let models = list::small().filter(|(name, ..)| ["tiny", "tiny4", "moe4"].contains(&name.as_str()));
    let kernels = models
        .flat_map(|(_, shape, drafter)| list::of_model(&shape, drafter.as_ref(), chip, list::Weights::OF_SMALL[0]));
    let mut kernels: Vec<Kernel> = kernels.collect();
    kernels.sort_by_key(order);
    kernels.dedup();
    let kernels: Vec<Kernel> = kernels.into_iter().step_by(if takes_all() { 1 } else { 4 }).collect();
    let set = CodeSet::of(chip).unwrap();
    let gpu = Rc::new(Gpu::open(DeviceChoice::Best).unwrap());
    let mut vulkan = Vulkan::new(&gpu).unwrap();
    let numbers = std::array::from_fn(|i| 0x1000 + i as u32);
    let push = Push::new(&Numbered(numbers));
    let groups = |i: usize| [2 + i as u32, 3, 4];
    let runs = kernels.iter().enumerate().flat_map(|(i, &kernel)| {
        [DeviceCommand::Wait(Edge::Kernels), DeviceCommand::Run { kernel, push, groups: groups(i) }]
    });
    let list = vulkan.bake(&runs.collect::<Vec<_>>()).unwrap();
    // SAFETY: nothing executes what is submitted.
    unsafe { vulkan.submit(&[list], None) }.unwrap();
    let dispatches = dispatches(&std::fs::read(std::env::var_os(PACKETS).unwrap()).unwrap());
    assert_eq!(dispatches.len(), kernels.len());
    for (i, (kernel, (registers, grid))) in kernels.iter().zip(&dispatches).enumerate() {
        assert_eq!(*grid, groups(i), "{kernel:?}");
        compare(kernel, &set.get(kernel).unwrap().registers, registers, &numbers, grid);
    }
    println!("{}: {} kernels", chip.name(), kernels.len());
}

fn compare(kernel: &Kernel, own: &KernelRegisters, registers: &Registers, push: &[u32], grid: &[u32; 3]) {
    let register = |at: u32| registers.get(&at).copied().unwrap_or_else(|| panic!("{kernel:?}: {at:#x} is not set"));
    let KernelRegisters { rsrc1, rsrc2, rsrc3, limits, lds, user } = *own;
    assert_eq!([RSRC1, RSRC2, RSRC3, LIMITS].map(register), [rsrc1, rsrc2, rsrc3, limits], "{kernel:?}");
    let threads = [0, 4, 8].map(|at| register(NUM_THREAD + at));
    assert_eq!(threads, [kernel.workgroup, 1, 1], "{kernel:?}");
    assert_eq!(512 * (register(RSRC2) >> 15 & 0x1ff), lds, "{kernel:?}");
    let low = user.pointer.map_or(0, |sgpr| register(USER_DATA + 4 * sgpr));
    for (sgpr, word) in user.words(push, low, grid) {
        assert_eq!(register(USER_DATA + 4 * sgpr), word, "{kernel:?}: s{sgpr}");
    }
}

/// The registers and the grid of each of Kiln's dispatches among captured packets.
fn dispatches(bytes: &[u8]) -> Vec<(Registers, [u32; 3])> {
    let words: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
    let (mut all, mut registers, mut rest) = (Vec::new(), Registers::new(), &words[..]);
    while let [_ring, count, behind @ ..] = rest {
        let (mut buffer, behind) = behind.split_at(*count as usize);
        rest = behind;
        while let [header, behind @ ..] = buffer {
            // A word to pad with is a packet of its own.
            let length = if *header == 0xffff_1000 { 0 } else { 1 + (header >> 16 & 0x3fff) as usize };
            let (body, behind) = behind.split_at(length);
            buffer = behind;
            match (header >> 8 & 0xff, body) {
                (opcode, [first, values @ ..]) if SET_SH_REG.contains(&opcode) => {
                    let places = (0xb000 + 4 * (first & 0xffff)..).step_by(4);
                    registers.extend(places.zip(values.iter().copied()));
                }
                (DISPATCH_DIRECT, &[x, y, z, initiator]) if initiator & WAVES_OF_32 != 0 => {
                    all.push((registers.clone(), [x, y, z]));
                }
                _ => {}
            }
        }
    }
    all
}
