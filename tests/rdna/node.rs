//! The product's own driver on a fake render node: its submits are read and run by the ring (pm4.rs), in the interpreter.

use super::*;
use crate::pm4::{CODE, PGM_RSRC1, PGM_RSRC2, Ring, USER_DATA_0};
use gfx11::machine::Machine;
use gfx11::memory::Memory as InterpreterMemory;
use kiln::Result;
use kiln::testing::amdgpu::code::{self, KernelCode, KernelRegisters, UserSgprs};
use kiln::testing::amdgpu::device::RenderDevice;
use kiln::testing::amdgpu::driver::Amdgpu;
use kiln::testing::amdgpu::fake::{Alive, Executes, FakeNode, GpuSpace, PlantedFault};
use kiln::testing::lower::dispatch::Edge;
use kiln::testing::replay::driver::{DeviceCommand, HostAccess, Memory, MemoryCopy};
use nix::errno::Errno;
use std::time::Duration;

/// A fault that is planted in the packets of all lists.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plant {
    /// No acquire stands behind the waits.
    NoAcquire,
    /// Acquires invalidate the scalar caches alone.
    ScalarAlone,
    /// No wait stands before the acquires.
    NoWait,
    /// RSRC2 has a user SGPR too many.
    UserSgpr,
    /// RSRC2 has a unit of LDS too few.
    Lds,
    /// Push blocks are where the code does not look.
    PushOutside,
    /// RSRC1 has eight vector registers too few.
    Registers,
}

/// Plants a fault in a list's words.
fn change(words: &mut [u32], plant: Plant) {
    const NOP: u32 = 0xffff_1000;
    let mut at = 0;
    while at < words.len() {
        let count = if words[at] == NOP { 1 } else { 2 + (words[at] >> 16 & 0x3fff) as usize };
        let packet = &mut words[at..at + count];
        match (packet[0] >> 8 & 0xff, plant) {
            (0x58, Plant::NoAcquire) | (0x46, Plant::NoWait) => packet.fill(NOP),
            (0x58, Plant::ScalarAlone) => packet[7] &= !0x300,
            (0x76, _) => {
                let first = 0xb000 + 4 * packet[1];
                for (value, register) in packet[2..].iter_mut().zip((first..).step_by(4)) {
                    match (register, plant) {
                        (PGM_RSRC1, Plant::Registers) => *value -= 1,
                        (PGM_RSRC2, Plant::UserSgpr) => *value += 1 << 1,
                        (PGM_RSRC2, Plant::Lds) if *value >> 15 & 0x1ff != 0 => *value -= 1 << 15,
                        // s2, which points to the push block in nearly all code.
                        (_, Plant::PushOutside) if register == USER_DATA_0 + 8 => *value ^= 1 << 31,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        at += count;
    }
}

/// See the module. Caches live from one submit to the next.
pub struct ExecutingGpu {
    ring: Ring,
    machine: Machine,
    plant: Option<Plant>,
}

impl ExecutingGpu {
    pub fn new(config: Config) -> ExecutingGpu {
        ExecutingGpu { ring: Ring::default(), machine: Machine::new(config), plant: None }
    }
}

impl Executes for ExecutingGpu {
    fn execute(&mut self, ibs: &[(u64, u32)], space: &mut GpuSpace) -> std::result::Result<(), String> {
        let lists = ibs.iter().map(|(address, count)| Ok(space.words(*address, *count as usize)?.to_vec()));
        let mut lists = lists.collect::<std::result::Result<Vec<Vec<u32>>, String>>()?;
        // The first list sets the ring's state.
        self.plant.iter().for_each(|plant| lists[1..].iter_mut().for_each(|list| change(list, *plant)));
        let mut memory = InterpreterMemory::default();
        let mappings: Vec<_> = space.mappings().cloned().collect();
        for mapping in &mappings {
            let (start, count) = (mapping.addresses.start, (mapping.addresses.end - mapping.addresses.start) / 4);
            let name = format!("{} {start:#x}", if mapping.is_executable { CODE } else { "data" });
            memory.add_words(&name, start, space.words(start, count as usize)?);
            if mapping.is_writable {
                memory.watch(&name);
            }
            // What was put there just now is no change.
            memory.take_changed(start, 0, |_, _| {}).map_err(|what| what.to_string())?;
        }
        self.ring.submit(&mut self.machine, &memory, &lists.iter().map(|list| &list[..]).collect::<Vec<_>>())?;
        for mapping in mappings.iter().filter(|mapping| mapping.is_writable) {
            let start = mapping.addresses.start;
            let mut done = Ok(());
            let look = |first: usize, words: &[u32]| {
                let bytes: &[u8] = bytemuck::cast_slice(words);
                match space.bytes_mut(start + 4 * first as u64, bytes.len() as u64) {
                    Ok(place) => place.copy_from_slice(bytes),
                    Err(e) => done = Err(e),
                }
            };
            memory.take_changed(start, 0, look).map_err(|what| what.to_string())?;
            done?;
        }
        Ok(())
    }
}

/// A render node with this GPU, and the product's driver on it, with RADV's code.
fn open(compiler: &Shared, setup: Setup, plant: Option<Plant>) -> (FakeNode, Rc<RenderDevice>, Amdgpu) {
    let chip = compiler.borrow().chip;
    let config = Config { apart: !setup.relay, ..chip.config(setup.seed) };
    let node = FakeNode::new(chip.code(), ExecutingGpu { plant, ..ExecutingGpu::new(config) });
    let device = Rc::new(RenderDevice::open(&node.path()).unwrap_or_else(|e| panic!("{e}")));
    let compiler = compiler.clone();
    let source = move |kernel: &Kernel| Ok(compiler.borrow_mut().product_code(*kernel));
    let driver = Amdgpu::new(&device, Box::new(source)).unwrap_or_else(|e| panic!("{e}"));
    (node, device, driver)
}

/// Loads a model onto the product's driver.
fn load(compiler: &Shared, setup: Setup, checkpoint: &Checkpoint) -> (FakeNode, Replay<Amdgpu>) {
    let (node, device, driver) = open(compiler, setup, None);
    let memory = device.memory().unwrap_or_else(|e| panic!("{e}"));
    (node, setup.load_on(driver, &memory, checkpoint))
}

/// The GPU has run without a fault, and what was taken of it is given back.
fn ended(node: &FakeNode, replay: Replay<Amdgpu>) {
    drop(replay);
    assert_eq!(node.kernel().complaints, [""; 0]);
    assert!(node.kernel().requests.contains(&SUBMIT));
    assert_eq!(node.alive(), Alive::default());
}

/// The number of DRM_AMDGPU_CS.
const SUBMIT: u8 = 0x44;

fn check(compiler: &Shared, name: &'static str, prompt: &str, setup: Setup) {
    let (node, mut replay) = load(compiler, setup, &Checkpoint::open(&golden_dir(name)).unwrap());
    setup.check_on(&mut replay, &Watch::default(), name, prompt);
    ended(&node, replay);
}

#[test]
fn passes_have_the_golden_logits() {
    on_radv("node::passes_have_the_golden_logits", |compiler| {
        for (name, prompt, setup) in [
            ("tiny", "len33", INT8),
            ("tiny", "len16", Setup { chunk: 7, seed: 2, ..INT8 }),
            ("tiny", "len17", Setup { chunk: 1, relay: true, ..INT8 }),
            ("tiny4", "len16", Setup { chunk: 7, ..INT8 }),
        ] {
            check(compiler, name, prompt, setup);
        }
    });
}

/// The other chips, whose code is another: a chunk of a prompt and single rows.
fn check_chip(compiler: &Shared) {
    check(compiler, "tiny4", "len17", INT8);
    check(compiler, "tiny", "len7", Setup { chunk: 1, relay: true, ..INT8 });
}

#[test]
fn passes_on_gfx1150_have_the_golden_logits() {
    on_chip(Chip::Gfx1150, "node::passes_on_gfx1150_have_the_golden_logits", check_chip);
}

#[test]
fn passes_on_gfx1151_have_the_golden_logits() {
    on_chip(Chip::Gfx1151, "node::passes_on_gfx1151_have_the_golden_logits", check_chip);
}

/// A layer of each kind whose rows are whole blocks of every type of GGUF files.
fn grouped_shape() -> Shape {
    let tiny = Checkpoint::open(&golden("tiny")).unwrap().shape().clone();
    Shape { hidden: 256, ffn: 256, vocab: 256, layers: vec![LayerKind::Local, LayerKind::Global], ..tiny }
        .with_heads(4, 2, 64)
}

/// INT4 and types of GGUF files: a chunk and single rows, beside the reference.
fn check_formats(compiler: &Shared) {
    let setup = Setup { chunk: 16, context: 64, ..INT8 };
    check_few(compiler, &Checkpoint::open(&golden("tiny")).unwrap(), Setup { weights: WeightFormat::Int4, ..setup });
    for format in [BlockFormat::Q4K, BlockFormat::Q6K, BlockFormat::Q5K] {
        let (_dir, path) = random_model(&grouped_shape(), 11, |_| format);
        check_few(compiler, &Checkpoint::open(&path).unwrap(), setup);
    }
}

/// A chunk of a prompt, then a row, beside the reference.
fn check_few(compiler: &Shared, checkpoint: &Checkpoint, setup: Setup) {
    let (node, mut replay) = load(compiler, setup, checkpoint);
    let mut reference = setup.reference(checkpoint);
    let row = |p: usize| Row { token: 3 + 7 * p as u32, position: p as u32, sequence: 0 };
    let rows: Vec<Row> = (0..13).map(row).collect();
    for rows in [&rows[..12], &rows[12..]] {
        let head = Some(HeadRows { first: rows.len() - 1, count: 1 });
        replay.forward(rows, head).unwrap_or_else(|e| panic!("{setup:?}: {e}"));
        reference.forward(rows, head).unwrap();
        let error = relative_rms(replay.logits(0).unwrap(), reference.logits(0).unwrap());
        println!("{} rows: {error:.1e}", rows.len());
        assert!(error < 0.015, "{setup:?}: {} rows: {error}", rows.len());
    }
    ended(&node, replay);
}

#[test]
fn each_format_has_the_references_logits() {
    on_radv("node::each_format_has_the_references_logits", check_formats);
}

#[test]
#[ignore = "gfx1151's kernels show it too: tools/test --full runs it"]
fn each_format_on_gfx1150_has_the_references_logits() {
    on_chip(Chip::Gfx1150, "node::each_format_on_gfx1150_has_the_references_logits", check_formats);
}

#[test]
fn each_format_on_gfx1151_has_the_references_logits() {
    on_chip(Chip::Gfx1151, "node::each_format_on_gfx1151_has_the_references_logits", check_formats);
}

/// Prompts of many sequences, rows of each, a chunk beside such rows, and rows in any order.
#[test]
fn rows_of_many_sequences_have_the_references_logits() {
    on_radv("node::rows_of_many_sequences_have_the_references_logits", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let setup = INT8.of_rows();
        let (node, mut replay) = load(compiler, setup, &checkpoint);
        check_rows_on(&mut replay, &checkpoint, setup);
        ended(&node, replay);
    });
}

#[test]
fn drafts_are_the_golden_ones() {
    on_radv("node::drafts_are_the_golden_ones", |compiler| {
        let setup = Setup { sequences: 6, ..INT8 };
        let (node, mut replay) = load(compiler, setup, &with_drafter());
        check_drafts(&mut replay, setup.weights, 0.03, "drafts");
        ended(&node, replay);
    });
}

#[test]
fn passes_submitted_ahead_choose_what_others_do() {
    on_radv("node::passes_submitted_ahead_choose_what_others_do", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        check_ahead::<Amdgpu>(|setup, check| {
            let (node, mut replay) = load(compiler, setup, &checkpoint);
            check(&mut replay);
            ended(&node, replay);
        });
    });
}

/// The logits behind three chunks of a prompt and three rows, or what stopped it. The last of each is one submit, since those
/// before were timed. In f32, whose kernels take part in no relay: those of a relay load each other's results past the first
/// caches. The arena is one that other devices share.
fn logits_with(
    compiler: &Shared,
    checkpoint: &Checkpoint,
    packets: Option<Plant>,
    requests: Option<PlantedFault>,
) -> (Result<Vec<f32>>, String) {
    const CHUNK: usize = 7;
    let arena = MemorySource::Exported;
    let setup = Setup { context: 64, chunk: CHUNK, arithmetic: F32, kv: KvType::F32, arena, ..INT8 };
    let (node, device, driver) = open(compiler, setup, packets);
    node.kernel().planted = requests;
    let run = || -> Result<Vec<f32>> {
        let mut replay = setup.try_load_on(driver, &device.memory()?, checkpoint)?;
        let row = |p: usize| Row { token: 3 + 7 * p as u32, position: p as u32, sequence: 0 };
        let rows: Vec<Row> = (0..3 * CHUNK + 3).map(row).collect();
        let (prompt, single) = rows.split_at(3 * CHUNK);
        for rows in prompt.chunks(CHUNK).chain(single.chunks(1)) {
            replay.forward(rows, Some(HeadRows { first: rows.len() - 1, count: 1 }))?;
        }
        Ok(replay.logits(0)?.to_vec())
    };
    let done = run();
    let complaints = node.kernel().complaints.join("; ");
    (done, complaints)
}

/// What a driver could do wrong that replay asks nothing of: the packets' faults are found by the ring or the interpreter,
/// those of requests by the node, or by the logits.
#[test]
fn planted_faults_are_caught() {
    on_radv("node::planted_faults_are_caught", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let (right, complaints) = logits_with(compiler, &checkpoint, None, None);
        let right = right.unwrap_or_else(|e| panic!("{e}: {complaints}"));
        for (plant, want) in [
            (Plant::NoAcquire, "stale bytes"),
            (Plant::ScalarAlone, "stale bytes"),
            (Plant::NoWait, "nothing orders them"),
            (Plant::UserSgpr, "has not set register"),
            (Plant::Lds, "LDS has"),
            (Plant::PushOutside, "are in no buffer"),
            (Plant::Registers, "vector registers"),
        ] {
            let (done, complaints) = logits_with(compiler, &checkpoint, Some(plant), None);
            let line = done.err().unwrap_or_else(|| panic!("{plant:?} is not caught: {complaints}")).to_string();
            assert!(line.starts_with("Kiln's own work hung the GPU") && !line.contains('\n'), "{plant:?}: {line}");
            assert!(complaints.contains(want), "{plant:?}: {complaints}");
        }
        for (planted, want) in [
            (PlantedFault::LongBuffers, "is not mapped"),
            (PlantedFault::SameAddresses, "past the object's end, or taken"),
            // The deadline ends it, and the node complains of nothing.
            (PlantedFault::EarlyFence, ""),
        ] {
            let (done, complaints) = logits_with(compiler, &checkpoint, None, Some(planted));
            let line = done.err().unwrap_or_else(|| panic!("{planted:?} is not caught: {complaints}")).to_string();
            assert!(!line.contains('\n') && complaints.contains(want), "{planted:?}: {line}: {complaints}");
        }
        // The host then writes and reads other bytes of the arena than the GPU: no request can tell, the logits do.
        let (done, _) = logits_with(compiler, &checkpoint, None, Some(PlantedFault::StaleExport));
        assert!(done.map_or(true, |logits| logits != right), "a stale page of the arena is not caught");
    });
}

/// Code that ends at once, for a GPU that runs nothing.
pub fn code_that_ends() -> KernelCode {
    let user = UserSgprs { pointer: Some(2), inline: None, inline_words: 0, groups: None };
    let registers = KernelRegisters { rsrc1: 0, rsrc2: 0, rsrc3: 0, limits: 0, lds: 0, user };
    KernelCode { words: [0xbfb0_0000].into(), registers }
}

/// Loads a model onto a node whose GPU runs nothing, and runs a pass.
fn load_and_pass(path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let setup = Setup { weights: WeightFormat::Bf16, context: 64, chunk: 4, arena: MemorySource::Exported, ..INT8 };
    let device = Rc::new(RenderDevice::open(path)?);
    let driver = Amdgpu::new(&device, Box::new(|_: &Kernel| Ok(code_that_ends())))?;
    let mut replay = setup.try_load_on(driver, &device.memory()?, checkpoint)?;
    replay.forward(&[Row { token: 1, position: 0, sequence: 0 }], Some(HeadRows { first: 0, count: 1 }))
}

/// Requests that free, among others: GEM_CLOSE, DRM_AMDGPU_CTX and DRM_AMDGPU_GEM_VA.
const FREEING: [u8; 3] = [0x09, 0x42, 0x48];

/// Each request of a load and of a pass fails in turn. Some do without what they asked for: a share of the KV cache, the
/// layout of matrices. A request to free fails silently: the process goes on, and its end frees the rest.
#[test]
fn a_load_and_a_pass_leave_nothing_behind_whichever_request_fails() {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    let (mut failed, mut passed) = (0, false);
    let step = if crate::common::runs_all() { 1 } else { 3 };
    for number in (1..).step_by(step) {
        let node = FakeNode::new(code::Chip::Gfx1150, ());
        node.kernel().fails = Some((number, Errno::EIO));
        let done = load_and_pass(&node.path(), &checkpoint);
        let kernel = node.kernel();
        let (count, last) = (kernel.requests.len(), kernel.requests.get(number - 1).copied());
        assert_eq!(kernel.complaints, [""; 0], "request {number}");
        passed |= last == Some(SUBMIT);
        drop(kernel);
        match done {
            Ok(()) if number > count => break,
            Ok(()) if last.is_some_and(|last| FREEING.contains(&last)) => continue,
            Ok(()) => {}
            Err(e) => {
                let line = e.to_string();
                assert!(line.contains("EIO") && !line.contains('\n'), "request {number}: {line}");
                failed += 1;
            }
        }
        assert_eq!(node.alive(), Alive::default(), "request {number}, {last:#x?}");
    }
    println!("{failed} requests, {:.1} s", start.elapsed().as_secs_f64());
    assert!(failed > 50 / step && passed, "{failed}");
}

/// Words that fills and copies reach, at aligned and other places, and those beside them.
#[test]
fn fills_and_copies_move_each_word_once() {
    const WORDS: usize = 8192;
    on_radv("node::fills_and_copies_move_each_word_once", |compiler| {
        let (node, _, mut driver) = open(compiler, INT8, None);
        let memory = || {
            let access = HostAccess::Host;
            driver.allocate(4 * WORDS as u64, 1, access, MemorySource::Ordinary).unwrap_or_else(|e| panic!("{e}"))
        };
        let (mut from, mut to) = (memory(), memory());
        let words = |start: u32| (0..WORDS as u32).map(|i| start + i).collect::<Vec<u32>>();
        let (source, mut expected) = (words(1 << 20), words(1 << 21));
        from.copy_from(bytemuck::cast_slice(&source)).unwrap_or_else(|e| panic!("{e}"));
        to.copy_from(bytemuck::cast_slice(&expected)).unwrap_or_else(|e| panic!("{e}"));
        let mut commands = Vec::new();
        // Source, target and number, in words: all alignments, less than a lane's words, whole and broken workgroups.
        for (a, b, count) in
            [(0, 0, 1024), (4, 2000, 1027), (3, 3101, 5), (1, 3300, 1500), (2, 5002, 1), (8, 5100, 2048)]
        {
            let (from_offset, to_offset, bytes) = (4 * a as u64, 4 * b as u64, 4 * count as u64);
            commands.push(DeviceCommand::Copy(MemoryCopy { from: &from, from_offset, to: &to, to_offset, bytes }));
            expected[b..b + count].copy_from_slice(&source[a..a + count]);
        }
        commands.push(DeviceCommand::Wait(Edge::Device));
        for (start, end) in [(16, 48), (601, 602), (703, 5000), (7200, 8192)] {
            commands.push(DeviceCommand::Fill(&to, 4 * start as u64..4 * end as u64));
            expected[start..end].fill(0);
        }
        commands.push(DeviceCommand::Wait(Edge::Host));
        let list = driver.bake(&commands).unwrap_or_else(|e| panic!("{e}"));
        drop(commands);
        // SAFETY: memory outlives the submit, which ends before it returns.
        unsafe { driver.submit(&[list], Some(0)) }.unwrap_or_else(|e| panic!("{e}"));
        driver.wait(0, Duration::from_secs(1)).unwrap_or_else(|e| panic!("{e}"));
        let mut found = vec![0; WORDS];
        to.copy_to(bytemuck::cast_slice_mut(&mut found)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found, expected);
        assert_eq!(node.kernel().complaints, [""; 0]);
    });
}
