//! A driver as the product's own will be: lists are packets in memory, and the ring that reads them (pm4.rs) runs them in the
//! interpreter.

use super::*;
use crate::driver::{Mapped, failed};
use crate::pm4::{CODE, Ring};
use gfx11::kernel::PUSH_HIGH;
use gfx11::memory::Memory as InterpreterMemory;
use kiln::Result;
use kiln::testing::amdgpu::code::{KernelCode, UserSgprs};
use kiln::testing::amdgpu::copy;
use kiln::testing::amdgpu::packets::{Packets, Placed};
use kiln::testing::lower::caps::Caps;
use kiln::testing::lower::dispatch::Edge;
use kiln::testing::lower::kernels::push::{PUSH_BYTES, Push};
use kiln::testing::replay::driver::{DeviceCommand, HostAccess, Memory, MemoryCopy, Stamps};
use std::collections::HashMap;
use std::time::Duration;

/// The first push block's address: in the window that RADV's code reads them from.
const FIRST_PUSH: u64 = PUSH_HIGH + (1 << 24);
/// The first code's address.
const FIRST_CODE: u64 = PUSH_HIGH + (1 << 32);

/// A fault that is planted in all lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plant {
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

/// See the module.
pub struct PacketDriver {
    inner: Interpreter,
    lists: Vec<Vec<u32>>,
    code: HashMap<Kernel, (u64, Rc<KernelCode>)>,
    next_code: u64,
    next_push: u64,
    ring: RefCell<Ring>,
    plant: Option<Plant>,
}

/// A kernel's code as the product has it.
pub fn code_of(compiler: &mut Compiler, kernel: Kernel) -> KernelCode {
    let code = compiler.get(kernel);
    let [pointer, inline, groups] = code.places.map(|place| place.map(|r| r as u32));
    let user = UserSgprs { pointer, inline, inline_words: code.inline, groups };
    // The packets' writer puts them behind each other.
    let sgprs = user.words(&[], 0, &[0; 3]).map(|(sgpr, _)| sgpr);
    assert!(sgprs.eq((2..).take(user.words(&[], 0, &[0; 3]).count())), "{kernel:?}: {user:?}");
    let [rsrc1, rsrc2, rsrc3] = code.rsrc;
    KernelCode { code: code.code.clone(), rsrc1, rsrc2, rsrc3, limits: code.limits, lds: code.lds as u32, user }
}

/// The words of a push block.
pub fn words_of(push: &Push) -> Vec<u32> {
    push.bytes().chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

impl PacketDriver {
    pub fn new(inner: Interpreter, plant: Option<Plant>) -> PacketDriver {
        let (lists, code, ring) = (Vec::new(), HashMap::new(), RefCell::default());
        let (next_code, next_push) = (FIRST_CODE, FIRST_PUSH);
        PacketDriver { inner, lists, code, next_code, next_push, ring, plant }
    }

    pub fn watch(&self) -> Rc<Watch> {
        self.inner.watch()
    }

    /// Puts a kernel's code into memory, once.
    fn place(&mut self, kernel: Kernel) -> (u64, Rc<KernelCode>) {
        let next = &mut self.next_code;
        let placed = self.code.entry(kernel).or_insert_with(|| {
            let mut code = code_of(&mut self.inner.compiler.borrow_mut(), kernel);
            match self.plant {
                Some(Plant::UserSgpr) => code.rsrc2 += 1 << 1,
                Some(Plant::Lds) if code.lds > 0 => code.rsrc2 -= 1 << 15,
                Some(Plant::Registers) => code.rsrc1 -= 1,
                _ => {}
            }
            let at = *next;
            *next = (at + 4 * code.code.len() as u64).next_multiple_of(256);
            self.inner.memory.borrow_mut().add_words(&format!("{CODE} {kernel:?}"), at, &code.code);
            (at, Rc::new(code))
        });
        (placed.0, placed.1.clone())
    }

    fn dispatch(&mut self, packets: &mut Packets, kernel: Kernel, push: &Push, groups: [u32; 3], is_relayed: bool) {
        let (code_at, code) = self.place(kernel);
        let push = words_of(push);
        let at = self.next_push;
        self.next_push += 256;
        // Code loads words behind the block's end with those that it needs.
        let mut block = push.clone();
        block.resize(PUSH_BYTES / 4, 0);
        self.inner.memory.borrow_mut().add_words("a push block", at, &block);
        let push_at = if self.plant == Some(Plant::PushOutside) { at + (1 << 31) } else { at };
        let placed = Placed { code_at, code: &code, push: &push, push_at };
        packets.dispatch(&placed, groups, kernel.workgroup, is_relayed);
    }
}

impl Driver for PacketDriver {
    type Memory = Mapped;
    type Baked = usize;
    type Stamps = Clock;

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn allocate(&self, bytes: u64, heap: usize, access: HostAccess, source: MemorySource) -> Result<Mapped> {
        self.inner.allocate(bytes, heap, access, source)
    }

    fn compile(&mut self, _: &[Kernel]) -> Result<()> {
        Ok(())
    }

    fn bake(&mut self, commands: &[DeviceCommand<'_, PacketDriver>]) -> Result<usize> {
        let mut packets = Packets::default();
        let is_relayed = commands.iter().any(|command| matches!(command, DeviceCommand::Wait(Edge::Relayed)));
        for command in commands {
            match command {
                DeviceCommand::Wait(edge) => packets.edge(*edge),
                DeviceCommand::Run { kernel, push, groups } => {
                    self.dispatch(&mut packets, *kernel, push, *groups, is_relayed)
                }
                DeviceCommand::Fill(memory, range) => {
                    let target = memory.address() + range.start;
                    for (push, groups) in copy::dispatches(None, target, range.end - range.start) {
                        self.dispatch(&mut packets, copy::kernel(), &push, groups, false);
                    }
                }
                DeviceCommand::Copy(c) => {
                    let (from, to) = (c.from.address() + c.from_offset, c.to.address() + c.to_offset);
                    for (push, groups) in copy::dispatches(Some(from), to, c.bytes) {
                        self.dispatch(&mut packets, copy::kernel(), &push, groups, false);
                    }
                }
                DeviceCommand::Stamp(clock, number) => packets.stamp(clock.address + 8 * *number as u64),
            }
        }
        packets.pad();
        if let Some(plant) = self.plant {
            change(&mut packets.words, plant);
        }
        self.lists.push(packets.words);
        Ok(self.lists.len() - 1)
    }

    fn free(&self, _: &[usize]) {}

    fn stamps(&self, count: usize) -> Result<Option<Clock>> {
        let memory = self.inner.memory.clone();
        let mapped = self.inner.allocate(8 * count as u64, 0, HostAccess::Device, MemorySource::Ordinary)?;
        Ok(Some(Clock { memory, address: mapped.address(), times: vec![0; count], _mapped: mapped }))
    }

    /// All is done before it returns. The host sees it once it waits.
    unsafe fn submit(&self, lists: &[usize], _: Option<usize>) -> Result<()> {
        self.inner.each_mapping(|memory, mapping| mapping.to_device(memory));
        if lists.is_empty() {
            return Ok(());
        }
        let mut state = Packets::default();
        state.preamble(self.inner.compiler.borrow().chip.engines());
        state.pad();
        let all: Vec<&[u32]> =
            std::iter::once(&state.words).chain(lists.iter().map(|list| &self.lists[*list])).map(|l| &l[..]).collect();
        let mut ring = self.ring.borrow_mut();
        let done = ring.submit(&mut self.inner.machine.borrow_mut(), &self.inner.memory.borrow(), &all);
        let watch = self.watch();
        watch.steps.set(ring.clock);
        watch.dispatches.set(ring.dispatches);
        done.map_err(failed)
    }

    fn is_done(&self, _: usize) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self, signal: usize, deadline: Duration) -> Result<()> {
        self.inner.wait(signal, deadline)
    }

    fn is_hung(&self) -> bool {
        false
    }

    fn finish(&self) {}
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
            _ => {}
        }
        at += count;
    }
}

/// Counts of instructions as a clock, in the device's memory.
pub struct Clock {
    memory: Rc<RefCell<InterpreterMemory>>,
    address: u64,
    times: Vec<u64>,
    _mapped: Mapped,
}

impl Stamps for Clock {
    fn count(&self) -> usize {
        self.times.len()
    }

    fn fetch(&mut self) -> Result<()> {
        let memory = self.memory.borrow();
        let (buffer, _) = memory.find(self.address, 8).map_err(|what| failed(what.to_string()))?;
        for (i, time) in self.times.iter_mut().enumerate() {
            *time = u64::from(buffer.word(2 * i + 1).0) << 32 | u64::from(buffer.word(2 * i).0);
        }
        Ok(())
    }

    fn seconds(&self, from: usize, to: usize) -> f64 {
        (self.times[to] as f64 - self.times[from] as f64) * 1e-9
    }
}

/// A model's passes by packets have the golden logits.
fn check_by_packets(compiler: &Shared, name: &'static str, prompt: &str, setup: Setup) {
    let driver = setup.packet_driver(compiler, None);
    let watch = driver.watch();
    let replay = setup.load_on(driver, &memory(), &Checkpoint::open(&golden_dir(name)).unwrap());
    setup.check_on(replay, &watch, name, prompt);
    assert!(watch.dispatches.get() > 0);
}

#[test]
fn passes_by_packets_have_the_golden_logits() {
    on_radv("ring::passes_by_packets_have_the_golden_logits", |compiler| {
        for (name, prompt, setup) in [
            ("tiny", "len33", INT8),
            ("tiny", "len16", Setup { chunk: 7, seed: 2, ..INT8 }),
            ("tiny", "len17", Setup { chunk: 1, relay: true, behind: true, ..INT8 }),
            ("tiny", "len7", Setup { chunk: 1, relay: true, ..INT8 }),
            ("tiny4", "len33", INT8),
            ("tiny4", "len16", Setup { chunk: 1, ..INT8 }),
        ] {
            check_by_packets(compiler, name, prompt, setup);
        }
    });
}

#[test]
fn passes_by_packets_on_gfx1151_have_the_golden_logits() {
    on_chip(Chip::Gfx1151, "ring::passes_by_packets_on_gfx1151_have_the_golden_logits", |compiler| {
        for (name, setup) in [("tiny", INT8), ("tiny4", Setup { chunk: 7, ..INT8 })] {
            check_by_packets(compiler, name, "len17", setup);
        }
    });
}

/// The logits behind three chunks of a prompt and three rows, or what stopped it. The last of each is one submit, since those
/// before were timed. In f32, whose kernels take part in no relay: those of a relay load each other's results past the first caches.
fn logits_with(compiler: &Shared, checkpoint: &Checkpoint, plant: Option<Plant>) -> Result<Vec<f32>> {
    const CHUNK: usize = 7;
    let setup = Setup { context: 64, chunk: CHUNK, arithmetic: F32, kv: KvType::F32, ..INT8 };
    let mut replay = setup.try_load_on(setup.packet_driver(compiler, plant), &memory(), checkpoint)?;
    let row = |p: usize| Row { token: 3 + 7 * p as u32, position: p as u32, sequence: 0 };
    let rows: Vec<Row> = (0..3 * CHUNK + 3).map(row).collect();
    let (prompt, single) = rows.split_at(3 * CHUNK);
    for rows in prompt.chunks(CHUNK).chain(single.chunks(1)) {
        replay.forward(rows, Some(HeadRows { first: rows.len() - 1, count: 1 }))?;
    }
    Ok(replay.logits(0)?.to_vec())
}

#[test]
fn planted_faults_of_packets_are_caught() {
    on_radv("ring::planted_faults_of_packets_are_caught", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let right = logits_with(compiler, &checkpoint, None).unwrap_or_else(|e| panic!("{e}"));
        for (plant, want) in [
            (Plant::NoAcquire, "stale bytes"),
            (Plant::ScalarAlone, "stale bytes"),
            (Plant::NoWait, "nothing orders them"),
            (Plant::UserSgpr, "has not set register"),
            (Plant::Lds, "LDS has"),
            (Plant::PushOutside, "are in no buffer"),
            (Plant::Registers, "vector registers"),
        ] {
            match logits_with(compiler, &checkpoint, Some(plant)) {
                Ok(logits) => panic!("{plant:?} is not caught; the logits are right: {}", logits == right),
                Err(e) => assert!(e.to_string().contains(want), "{plant:?}: {e}"),
            }
        }
    });
}

/// Words that fills and copies reach, at aligned and other places, and those beside them.
#[test]
fn fills_and_copies_move_each_word_once() {
    const WORDS: usize = 8192;
    on_radv("ring::fills_and_copies_move_each_word_once", |compiler| {
        let mut driver = INT8.packet_driver(compiler, None);
        let memory = || {
            let access = HostAccess::Host;
            driver.allocate(4 * WORDS as u64, 0, access, MemorySource::Ordinary).unwrap_or_else(|e| panic!("{e}"))
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
    });
}
