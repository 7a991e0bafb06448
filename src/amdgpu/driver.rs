//! The driver: lists are packets that are written once, and each submit names those that it runs.

use super::code::{KernelCode, KernelRegisters};
use super::copy;
use super::device::{GTT_HEAP, RenderDevice};
use super::memory::GpuBuffer;
use super::packets::{Packets, Placed};
use super::queue::Queue;
use crate::lower::caps::{Caps, DeviceKind};
use crate::lower::dispatch::Edge;
use crate::lower::kernels::Kernel;
use crate::lower::kernels::push::{PUSH_BYTES, Push};
use crate::replay::driver::{
    DeviceCommand, Driver, HostAccess, KernelCompiler, Memory, MemorySource, Readiness, Stamps,
};
use crate::sys::amdgpu::context::{IndirectBuffer, MOST_BUFFER_BYTES};
use crate::{Error, Result, display};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// The alignment of a kernel's code, in bytes.
const CODE_ALIGNMENT: usize = 256;
/// Bytes after code that must be mapped: the instruction fetcher reads three lines ahead.
const CODE_AHEAD: u64 = 192;

/// Finds the code of a kernel for the GPU's chip, or says why there is none.
pub type CodeSource = Box<dyn Fn(&Kernel) -> Result<KernelCode>>;

/// A GPU's driver: its queue, the code of kernels that lists use, and the lists.
pub struct Amdgpu {
    // Dropped first, it waits for what uses the rest.
    queue: Queue,
    device: Rc<RenderDevice>,
    source: CodeSource,
    /// The kernels that lists have used so far.
    kernels: HashMap<Kernel, PlacedCode>,
    /// The GPU memory that has the kernels' code.
    blocks: Vec<GpuBuffer>,
    /// The command list that each submit starts with.
    preamble: BakedList,
    lists: RefCell<Vec<Option<BakedList>>>,
}

/// A kernel's code in the GPU's memory.
struct PlacedCode {
    address: u64,
    registers: KernelRegisters,
}

/// Packets in the GPU's memory, and the push blocks that they name.
struct BakedList {
    packets: IndirectBuffer,
    _memory: GpuBuffer,
    _blocks: Option<GpuBuffer>,
}

impl BakedList {
    fn new(device: &Rc<RenderDevice>, mut packets: Packets, blocks: Option<GpuBuffer>) -> Result<BakedList> {
        packets.pad();
        let bytes = 4 * packets.words.len() as u64;
        if bytes > MOST_BUFFER_BYTES {
            let cause = format!("a list has {} of packets, which are too many", display::bytes(bytes));
            return Err(Error::device(cause, "report this"));
        }
        let mut memory = GpuBuffer::code(device, bytes)?;
        memory.copy_from(bytemuck::cast_slice(&packets.words))?;
        let packets = IndirectBuffer { address: memory.address(), bytes: bytes as u32 };
        Ok(BakedList { packets, _memory: memory, _blocks: blocks })
    }
}

impl Amdgpu {
    /// A driver of an open GPU, with the code that this executable has for its chip.
    ///
    /// # Errors
    /// As [`Amdgpu::new`]. Device: the executable is damaged.
    pub fn of(device: &Rc<RenderDevice>) -> Result<Amdgpu> {
        let own = device.clone();
        Amdgpu::new(device, Box::new(move |kernel| own.code()?.get(kernel).cloned()))
    }

    /// A driver of an open GPU.
    ///
    /// # Errors
    /// Device: the kernel refuses. Refused: there is no room.
    pub fn new(device: &Rc<RenderDevice>, source: CodeSource) -> Result<Amdgpu> {
        let mut packets = Packets::default();
        packets.preamble(device.compute.engines);
        Ok(Amdgpu {
            queue: Queue::new(device)?,
            preamble: BakedList::new(device, packets, None)?,
            device: device.clone(),
            source,
            kernels: HashMap::new(),
            blocks: Vec::new(),
            lists: RefCell::default(),
        })
    }
}

/// A command in the form that packets of the ring have.
#[allow(clippy::large_enum_variant)] // Most packets run kernels.
enum Packet<'a> {
    Edge(Edge),
    Run { kernel: Kernel, push: Push, groups: [u32; 3] },
    Stamp(&'a GpuStamps, usize),
}

/// Commands with fills and copies as kernels.
fn packets_of<'a>(commands: &[DeviceCommand<'a, Amdgpu>]) -> Vec<Packet<'a>> {
    let mut all = Vec::with_capacity(commands.len());
    for command in commands {
        let mut copies = |from, to, bytes| {
            let runs = copy::dispatches(from, to, bytes);
            all.extend(runs.map(|(push, groups)| Packet::Run { kernel: copy::kernel(), push, groups }));
        };
        match command {
            DeviceCommand::Fill(memory, range) => copies(None, memory.address() + range.start, range.end - range.start),
            DeviceCommand::Copy(copy) => {
                let (from, to) = (copy.from.address() + copy.from_offset, copy.to.address() + copy.to_offset);
                copies(Some(from), to, copy.bytes);
            }
            DeviceCommand::Wait(edge) => all.push(Packet::Edge(*edge)),
            DeviceCommand::Run { kernel, push, groups } => {
                all.push(Packet::Run { kernel: *kernel, push: *push, groups: *groups });
            }
            DeviceCommand::Stamp(stamps, number) => all.push(Packet::Stamp(stamps, *number)),
        }
    }
    all
}

impl Driver for Amdgpu {
    type Memory = GpuBuffer;
    type Baked = usize;
    type Stamps = GpuStamps;

    fn caps(&self) -> &Caps {
        &self.device.caps
    }

    fn allocate(&self, bytes: u64, heap: usize, access: HostAccess, source: MemorySource) -> Result<GpuBuffer> {
        let data = |is_shared| GpuBuffer::data(&self.device, bytes, heap, access, is_shared);
        match source {
            MemorySource::Exported => data(true),
            MemorySource::Auto if self.device.caps.kind == DeviceKind::Integrated => data(true).or_else(|e| {
                log::warn!("{} is no dma-buf, and no other device can share it: {e}", display::bytes(bytes));
                data(false)
            }),
            MemorySource::Auto | MemorySource::Ordinary => data(false),
        }
    }

    fn compile(&mut self, kernels: &[Kernel]) -> Result<()> {
        let mut new: Vec<Kernel> = kernels.iter().copied().filter(|k| !self.kernels.contains_key(k)).collect();
        new.sort_unstable();
        new.dedup();
        if new.is_empty() {
            return Ok(());
        }
        let mut bytes: Vec<u8> = Vec::new();
        let mut places = Vec::new();
        for kernel in new {
            let KernelCode { words, registers } = (self.source)(&kernel)?;
            bytes.resize(bytes.len().next_multiple_of(CODE_ALIGNMENT), 0);
            let address = bytes.len() as u64;
            bytes.extend_from_slice(bytemuck::cast_slice(&words));
            places.push((kernel, PlacedCode { address, registers }));
        }
        let mut block = GpuBuffer::code(&self.device, bytes.len() as u64 + CODE_AHEAD)?;
        block.copy_from(&bytes)?;
        places.iter_mut().for_each(|(_, placed)| placed.address += block.address());
        self.kernels.extend(places);
        self.blocks.push(block);
        Ok(())
    }

    fn bake(&mut self, commands: &[DeviceCommand<'_, Amdgpu>]) -> Result<usize> {
        let commands = packets_of(commands);
        let kernels = commands.iter().filter_map(|command| match command {
            Packet::Run { kernel, .. } => Some(*kernel),
            Packet::Edge(_) | Packet::Stamp(..) => None,
        });
        let kernels: Vec<Kernel> = kernels.collect();
        self.compile(&kernels)?;
        let mut blocks = GpuBuffer::code(&self.device, (PUSH_BYTES * kernels.len()) as u64)?;
        let (mut packets, mut pushes, mut edge) = (Packets::default(), Vec::<u8>::new(), Edge::None);
        for command in &commands {
            match command {
                Packet::Edge(next) => {
                    packets.edge(*next);
                    edge = *next;
                }
                Packet::Run { kernel, push, groups } => {
                    let PlacedCode { address, registers } = &self.kernels[kernel];
                    let words: &[u32] = &bytemuck::pod_collect_to_vec(push.bytes());
                    let push_at = blocks.address() + pushes.len() as u64;
                    let placed = Placed { code_at: *address, registers, push: words, push_at };
                    pushes.extend_from_slice(push.bytes());
                    pushes.resize(pushes.len().next_multiple_of(PUSH_BYTES), 0);
                    packets.dispatch(&placed, *groups, kernel.workgroup, edge == Edge::Relayed);
                }
                Packet::Stamp(stamps, number) => packets.stamp(stamps.memory.address() + 8 * *number as u64),
            }
        }
        blocks.copy_from(&pushes)?;
        let list = BakedList::new(&self.device, packets, Some(blocks))?;
        let lists = self.lists.get_mut();
        let free = lists.iter().position(Option::is_none).unwrap_or(lists.len());
        lists.resize_with(lists.len().max(free + 1), || None);
        lists[free] = Some(list);
        Ok(free)
    }

    fn free(&self, lists: &[usize]) {
        let mut baked = self.lists.borrow_mut();
        lists.iter().for_each(|&list| baked[list] = None);
    }

    fn stamps(&self, count: usize) -> Result<Option<GpuStamps>> {
        if !self.device.caps.has_clock {
            return Ok(None);
        }
        let memory = GpuBuffer::data(&self.device, 8 * count as u64, GTT_HEAP, HostAccess::Host, false)?;
        let seconds = 1e-3 / f64::from(self.device.compute.clock);
        Ok(Some(GpuStamps { memory, seconds, ticks: vec![0; count] }))
    }

    unsafe fn submit(&self, lists: &[usize], signal: Option<usize>) -> Result<()> {
        let baked = self.lists.borrow();
        let packets = lists.iter().filter_map(|&list| baked[list].as_ref()).map(|list| list.packets);
        self.queue.submit(self.preamble.packets, packets, signal)
    }

    fn is_done(&self, signal: usize) -> Result<bool> {
        Ok(self.queue.is_done(signal))
    }

    fn wait(&self, signal: usize, deadline: Duration) -> Result<()> {
        self.queue.wait(signal, deadline)
    }

    fn is_hung(&self) -> bool {
        self.device.is_hung.get()
    }

    fn finish(&self) {
        self.queue.finish();
    }

    fn compiler(&mut self) -> impl KernelCompiler {
        ShippedKernels(self)
    }
}

/// Kernels that are there or are not: none is compiled.
struct ShippedKernels<'a>(&'a Amdgpu);

impl KernelCompiler for ShippedKernels<'_> {
    fn readiness(&mut self, kernel: Kernel) -> Readiness {
        let is_there = self.0.kernels.contains_key(&kernel) || (self.0.source)(&kernel).is_ok();
        if is_there { Readiness::Ready } else { Readiness::LeftOut }
    }

    fn may_lack(&self) -> bool {
        true
    }
}

/// Timestamps that command lists write, by the GPU's clock.
pub struct GpuStamps {
    memory: GpuBuffer,
    /// The length of a tick of the clock, in seconds.
    seconds: f64,
    ticks: Vec<u64>,
}

impl Stamps for GpuStamps {
    fn count(&self) -> usize {
        self.ticks.len()
    }

    fn fetch(&mut self) -> Result<()> {
        self.memory.copy_to(bytemuck::cast_slice_mut(&mut self.ticks))
    }

    fn seconds(&self, from: usize, to: usize) -> f64 {
        self.ticks[to].wrapping_sub(self.ticks[from]) as f64 * self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::{Chip, UserSgprs};
    use super::super::fake::{Alive, Executes, FakeNode, GpuSpace};
    use super::super::tests::open;
    use super::*;
    use crate::lower::kernels::push::CopyPush;
    use crate::replay::driver::MemoryCopy;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// A dispatch as packets say it: the code's address, the user SGPRs from s2 on, the grid.
    #[derive(Debug, Clone, PartialEq)]
    struct Dispatched {
        code: u64,
        user: Vec<u32>,
        groups: [u32; 3],
    }

    /// The dispatches that submits have run, a list for each indirect buffer.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<Vec<Dispatched>>>>);

    impl Executes for Log {
        fn execute(&mut self, ibs: &[(u64, u32)], memory: &mut GpuSpace) -> std::result::Result<(), String> {
            for &(address, words) in ibs {
                let list = read(memory.words(address, words as usize)?, memory)?;
                self.0.lock().unwrap().push(list);
            }
            Ok(())
        }
    }

    /// Reads packets as far as these tests look at them, and checks that code is where the GPU may run it.
    fn read(mut words: &[u32], memory: &GpuSpace) -> std::result::Result<Vec<Dispatched>, String> {
        let (mut registers, mut all) = (BTreeMap::new(), Vec::new());
        while let [header, rest @ ..] = words {
            if *header == 0xffff_1000 {
                words = rest;
                continue;
            }
            let (body, next) = rest.split_at_checked((header >> 16 & 0x3fff) as usize + 1).ok_or("cut short")?;
            words = next;
            match (header >> 30, header >> 8 & 0xff) {
                (3, 0x76) => registers.extend((body[0]..).zip(body[1..].iter().copied())),
                (3, 0x15) => {
                    let at = |register: u32| registers.get(&register).copied();
                    let (low, high) = (at(0x20c).ok_or("no code")?, at(0x20d).ok_or("no code")?);
                    let code = 0xffff << 48 | u64::from(high) << 40 | u64::from(low) << 8;
                    memory.words(code, 4)?;
                    let user = (0x242..).map_while(at).collect();
                    all.push(Dispatched { code, user, groups: [body[0], body[1], body[2]] });
                }
                (3, 0x46 | 0x58) => {}
                (3, 0x49) => memory.bytes(u64::from(body[3]) << 32 | u64::from(body[2]), 8).map(drop)?,
                other => return Err(format!("packet {other:x?}")),
            }
        }
        Ok(all)
    }

    /// Code that is a kernel's own, and takes its push block from memory.
    fn code_of(kernel: &Kernel) -> Result<KernelCode> {
        let user = UserSgprs { pointer: Some(2), inline: None, inline_words: 0, groups: None };
        match kernel.workgroup {
            1024 => Err(Error::device("there is no code for it", "use another")),
            lanes => {
                let registers = KernelRegisters { rsrc1: lanes, rsrc2: 0, rsrc3: 0, limits: 0, lds: 0, user };
                Ok(KernelCode { words: vec![lanes; 99].into(), registers })
            }
        }
    }

    fn kernel(workgroup: u32) -> Kernel {
        Kernel { workgroup, ..copy::kernel() }
    }

    fn driver() -> (FakeNode, Log, Amdgpu) {
        let log = Log::default();
        let node = FakeNode::new(Chip::Gfx1150, log.clone());
        let driver = Amdgpu::new(&open(&node), Box::new(code_of)).unwrap();
        (node, log, driver)
    }

    fn run(driver: &Amdgpu, lists: &[usize]) {
        // SAFETY: the lists are baked, and are waited for.
        unsafe { driver.submit(lists, Some(0)) }.unwrap();
        driver.wait(0, Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn a_list_runs_kernels_with_their_code_and_their_push_blocks() {
        let (node, log, mut driver) = driver();
        let (first, second) = (kernel(32), kernel(64));
        let push = |words| Push::new(&CopyPush { source: 1 << 40 | 5, target: 7, words });
        let run_of = |kernel, words, groups| DeviceCommand::Run { kernel, push: push(words), groups };
        let list = driver.bake(&[
            DeviceCommand::Wait(Edge::Device),
            run_of(first, 1, [3, 2, 1]),
            run_of(second, 2, [1, 1, 1]),
            DeviceCommand::Wait(Edge::Kernels),
            run_of(first, 3, [9, 1, 1]),
        ]);
        let list = list.unwrap();
        run(&driver, &[list, list]);
        let ran = log.0.lock().unwrap().clone();
        assert_eq!((ran.len(), ran[0].len()), (3, 0), "the preamble, then the list twice");
        assert_eq!(ran[1], ran[2]);
        let state = node.kernel();
        for (dispatch, (kernel_of, words, groups)) in
            ran[1].iter().zip([(first, 1, [3, 2, 1]), (second, 2, [1, 1, 1]), (first, 3, [9, 1, 1])])
        {
            assert_eq!(dispatch.groups, groups);
            let code = code_of(&kernel_of).unwrap().words;
            assert_eq!(state.space().words(dispatch.code, code.len()).unwrap(), &code[..]);
            let block = state.space().bytes(0xffff_8000 << 32 | u64::from(dispatch.user[0]), 20).unwrap();
            assert_eq!(block, &push(words).bytes()[..20]);
        }
        assert_eq!(state.complaints, [""; 0]);
    }

    #[test]
    fn fills_and_copies_are_dispatches_and_stamps_have_the_clocks_rate() {
        let (node, log, mut driver) = driver();
        let data = |driver: &Amdgpu| driver.allocate(4096, 0, HostAccess::None, MemorySource::Ordinary).unwrap();
        let (from, to) = (data(&driver), data(&driver));
        let mut stamps = driver.stamps(2).unwrap().unwrap();
        let copy = MemoryCopy { from_offset: 64, bytes: 128, ..MemoryCopy::new(&from, &to, 0) };
        let commands = [
            DeviceCommand::Stamp(&stamps, 0),
            DeviceCommand::Fill(&to, 0..4096),
            DeviceCommand::Wait(Edge::Device),
            DeviceCommand::Copy(copy),
            DeviceCommand::Stamp(&stamps, 1),
        ];
        let list = driver.bake(&commands).unwrap();
        run(&driver, &[list]);
        assert_eq!(log.0.lock().unwrap()[1].len(), 2);
        assert_eq!(node.kernel().complaints, [""; 0]);
        stamps.memory.copy_from(bytemuck::bytes_of(&[5_000_000u64, 7_500_000])).unwrap();
        stamps.fetch().unwrap();
        assert!((stamps.seconds(0, 1) - 0.025).abs() < 1e-12, "100 MHz");
    }

    #[test]
    fn a_kernel_without_code_is_an_error_that_leaves_nothing() {
        let (node, _, mut driver) = driver();
        let alive = node.alive();
        let e = driver.compile(&[kernel(32), kernel(1024)]).unwrap_err();
        assert_eq!(e.to_string(), "there is no code for it; use another");
        assert_eq!(node.alive(), alive);
        driver.compile(&[kernel(32), kernel(32)]).unwrap();
        driver.compile(&[kernel(32)]).unwrap();
        assert_eq!(node.alive(), Alive { objects: alive.objects + 1, mappings: alive.mappings + 1, ..alive });
    }

    #[test]
    fn lists_that_are_freed_give_their_memory_back() {
        let (node, _, mut driver) = driver();
        let kernel = kernel(32);
        let push = Push::new(&CopyPush { source: 0, target: 0, words: 0 });
        let bake =
            |driver: &mut Amdgpu| driver.bake(&[DeviceCommand::Run { kernel, push, groups: [1, 1, 1] }]).unwrap();
        let (one, two) = (bake(&mut driver), bake(&mut driver));
        let alive = node.alive();
        driver.free(&[one]);
        assert_eq!(node.alive(), Alive { objects: alive.objects - 2, mappings: alive.mappings - 2, ..alive });
        assert_eq!(bake(&mut driver), one);
        assert_eq!(node.alive(), alive);
        driver.free(&[one, two]);
        drop(driver);
        assert_eq!(node.alive(), Alive::default());
    }

    #[test]
    fn a_pass_makes_one_request() {
        let (node, _, mut driver) = driver();
        let kernel = kernel(32);
        let push = Push::new(&CopyPush { source: 0, target: 0, words: 0 });
        let list = driver.bake(&[DeviceCommand::Run { kernel, push, groups: [1, 1, 1] }]).unwrap();
        let before = node.kernel().requests.len();
        // SAFETY: the list is baked, and is waited for.
        unsafe { driver.submit(&[list; 100], Some(1)) }.unwrap();
        assert!(driver.is_done(1).unwrap());
        assert_eq!(node.kernel().requests[before..], [0x44]);
        driver.wait(1, Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn memory_is_shared_where_replay_leaves_it_open() {
        let (_node, _, driver) = driver();
        for (source, is_shared) in
            [(MemorySource::Auto, true), (MemorySource::Exported, true), (MemorySource::Ordinary, false)]
        {
            let memory = driver.allocate(64, GTT_HEAP, HostAccess::Host, source).unwrap();
            assert_eq!(memory.dma_buf().is_some(), is_shared, "{source:?}");
        }
    }
}
