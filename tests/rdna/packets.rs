//! What RADV tells the hardware for a pass: the product's own replay on the product's own Vulkan driver records and submits it,
//! what stands for the kernel's driver (tests/common/amdgpu.c) keeps the packets, and executes nothing. The interpreter runs
//! the same pass and counts what its kernels store.

use super::*;
use gfx11::kernel::PUSH_HIGH;
use kiln::Result;
use kiln::executor::ExecutorExt;
use kiln::model::presets;
use kiln::testing::amdgpu::copy;
use kiln::testing::amdgpu::packets::{Packets, Placed};
use kiln::testing::lower::caps::Caps;
use kiln::testing::lower::dispatch::Edge;
use kiln::testing::lower::kernels::push::Push;
use kiln::testing::replay::driver::{DeviceCommand, HostAccess, Memory, MemoryCopy};
use kiln::testing::vulkan::memory::Buffer;
use kiln::testing::vulkan::memory::heaps::describe;
use kiln::testing::vulkan::{DeviceChoice, Gpu, Vulkan};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Where Kiln's packets have its kernel for fills and copies, and others behind it: in the window of RADV's code.
const COPY_AT: u64 = PUSH_HIGH | 1 << 30;
/// Names the file that packets are appended to.
pub const PACKETS: &str = "KILN_TEST_PACKETS";
/// RADV's switches; `nocompute` hides the family of queues that only computes.
const SWITCHES: &str = "RADV_DEBUG";
/// Bytes of L2 on these chips.
const L2_BYTES: u64 = 2 << 20;
/// Rows of a chunk.
const CHUNK: usize = 64;

/// A ring of the hardware, as the kernel numbers them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ring {
    Graphics,
    Compute,
}

/// What stands between two dispatches.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Between {
    /// The kernels before are waited for.
    waits: bool,
    /// What caches do, by the bits of GCR_CNTL that are named below.
    caches: u32,
    /// Colours' caches are flushed.
    colours: bool,
}

/// L2 is written back, and invalidated.
const L2_BACK: u32 = 1 << 15;
const L2_GONE: u32 = 1 << 14;
/// The caches of scalars, of a CU and of a shader array are invalidated.
const FIRST_GONE: u32 = 1 << 7 | 1 << 8 | 1 << 9;

/// An edge between kernels of RADV 25.0.7.
const KERNELS: Between = Between { waits: true, caches: FIRST_GONE | L2_GONE | L2_BACK, colours: false };

/// An edge between kernels that make available themselves what they write.
const RELAYED: Between = Between { caches: FIRST_GONE, ..KERNELS };

/// One packet, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Packet {
    /// Workgroups of a kernel of Kiln's.
    Dispatch([u32; 3]),
    /// RADV's own kernel, which fills or copies: it is of waves of 64.
    Own,
    /// Part of what stands between.
    Between(Between),
    /// State, time stamps, prefetches of code.
    Other,
}

/// The packets of an indirect buffer. Whatever RADV is not known to write for these passes is refused.
fn packets(words: &[u32]) -> Vec<Packet> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < words.len() {
        let header = words[at];
        // One word to pad with.
        if header == 0xffff_1000 {
            at += 1;
            continue;
        }
        assert_eq!(header >> 30, 3, "{header:#x} at {at}: no packet of type 3");
        let body = &words[at + 1..][..1 + (header >> 16 & 0x3fff) as usize];
        at += 1 + body.len();
        all.push(packet(header >> 8 & 0xff, body));
    }
    all
}

fn packet(opcode: u32, body: &[u32]) -> Packet {
    let between = |waits, caches, colours| Packet::Between(Between { waits, caches, colours });
    match opcode {
        // CLEAR_STATE, CONTEXT_CONTROL, PFP_SYNC_ME, NOP, the jump to the next buffer, and registers.
        0x12 | 0x28 | 0x42 | 0x10 | 0x3f | 0x69 | 0x76 | 0x79 | 0x9b => Packet::Other,
        // DISPATCH_DIRECT.
        0x15 if body[3] & 0x8000 != 0 => Packet::Dispatch([body[0], body[1], body[2]]),
        0x15 => Packet::Own,
        // EVENT_WRITE: the end of kernels, colours' flushes, the ends of other shaders, and counting for statistics.
        0x46 => match body[0] & 0x3f {
            7 => between(true, 0, false),
            0x2c | 0x2e => between(false, 0, true),
            0xf | 0x10 | 0x19 | 0x1a => Packet::Other,
            other => panic!("event {other:#x}"),
        },
        // RELEASE_MEM: at the end of all work before; a time stamp touches no cache.
        0x49 if body[0] & 0x3f == 0x28 => Packet::Other,
        0x49 => {
            let bits = [(30, 7), (14, 8), (15, 9), (20, 14), (21, 15)];
            between(true, bits.iter().map(|(from, to)| (body[0] >> from & 1) << to).sum(), true)
        }
        // WRITE_DATA and DMA_DATA: zeroes for time stamps, and prefetches.
        0x37 | 0x50 => Packet::Other,
        // ACQUIRE_MEM.
        0x58 => between(false, body[6] & (FIRST_GONE | L2_GONE | L2_BACK), false),
        other => panic!("packet {other:#x} with {body:x?}"),
    }
}

/// A pass's dispatches as packets, each with what stands before it, and what stands behind the last.
#[derive(Debug, Default)]
struct Sent {
    dispatches: Vec<(Between, [u32; 3])>,
    end: Between,
    words: usize,
}

impl Sent {
    fn of(words: &[&[u32]]) -> Sent {
        let mut sent = Sent { words: words.iter().map(|w| w.len()).sum(), ..Sent::default() };
        for packet in words.iter().flat_map(|words| packets(words)) {
            let e = &mut sent.end;
            match packet {
                Packet::Dispatch(groups) => sent.dispatches.push((std::mem::take(&mut sent.end), groups)),
                Packet::Between(b) => {
                    let (waits, colours) = (e.waits | b.waits, e.colours | b.colours);
                    *e = Between { waits, caches: e.caches | b.caches, colours };
                }
                Packet::Own | Packet::Other => {}
            }
        }
        sent
    }

    /// What stands between two dispatches.
    fn edges(&self) -> impl Iterator<Item = Between> {
        self.dispatches.iter().skip(1).map(|d| d.0)
    }
}

/// What replay asks of a driver.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Run(Kernel, [u32; 3]),
    Wait(Edge),
    Other,
}

type Asks = Rc<RefCell<Vec<Asked>>>;

/// Kiln's Vulkan driver, and what it is asked to submit.
struct Recorder {
    vulkan: Vulkan,
    lists: Vec<(<Vulkan as Driver>::Baked, Vec<Asked>, Vec<u32>)>,
    asks: Asks,
    /// Kiln's packets for what is submitted.
    kiln: Rc<RefCell<Vec<Vec<u32>>>>,
    compiler: Shared,
    chip: Chip,
    /// The first word of memory that the host maps, by its address.
    mapped: RefCell<HashMap<u64, *mut u32>>,
    /// Where the kernel that looks for the layout of matrices writes what it finds.
    found: Option<u64>,
}

impl Recorder {
    fn new(gpu: &Rc<Gpu>, compiler: &Shared) -> Recorder {
        let (vulkan, chip, compiler) = (Vulkan::new(gpu).unwrap(), compiler.borrow().chip, compiler.clone());
        let (asks, kiln, mapped) = (Asks::default(), Rc::default(), RefCell::default());
        Recorder { vulkan, lists: Vec::new(), asks, kiln, compiler, chip, mapped, found: None }
    }

    /// Kiln's own packets for a list.
    fn packets(&self, commands: &[DeviceCommand<'_, Recorder>]) -> Vec<u32> {
        let mut packets = Packets::default();
        let mut places = HashMap::new();
        let is_relayed = commands.iter().any(|command| matches!(command, DeviceCommand::Wait(Edge::Relayed)));
        let mut number = 0;
        let mut dispatch = |packets: &mut Packets, kernel: Kernel, push: &Push, groups| {
            let code = self.compiler.borrow_mut().product_code(kernel);
            let next = COPY_AT + 256 * (1 + places.len() as u64);
            let code_at = if kernel == copy::kernel() { COPY_AT } else { *places.entry(kernel).or_insert(next) };
            let push_at = PUSH_HIGH | u64::from(differences::PUSH_MARK) << 12 | (4 * number % 4096);
            number += 1;
            let push: &[u32] = &bytemuck::pod_collect_to_vec(push.bytes());
            let placed = Placed { code_at, registers: &code.registers, push, push_at };
            packets.dispatch(&placed, groups, kernel.workgroup, is_relayed && kernel != copy::kernel());
        };
        for command in commands {
            match command {
                DeviceCommand::Wait(edge) => packets.edge(*edge),
                DeviceCommand::Run { kernel, push, groups } => dispatch(&mut packets, *kernel, push, *groups),
                DeviceCommand::Fill(memory, range) => {
                    let copies = copy::dispatches(None, memory.address() + range.start, range.end - range.start);
                    copies.for_each(|(push, groups)| dispatch(&mut packets, copy::kernel(), &push, groups));
                }
                DeviceCommand::Copy(c) => {
                    let (from, to) = (c.from.address() + c.from_offset, c.to.address() + c.to_offset);
                    let copies = copy::dispatches(Some(from), to, c.bytes);
                    copies.for_each(|(push, groups)| dispatch(&mut packets, copy::kernel(), &push, groups));
                }
                DeviceCommand::Stamp(_, number) => packets.stamp(8 * *number as u64),
            }
        }
        packets.pad();
        packets.words
    }
}

/// The same command for Kiln's Vulkan driver.
fn of_vulkan<'a>(command: &DeviceCommand<'a, Recorder>) -> DeviceCommand<'a, Vulkan> {
    match *command {
        DeviceCommand::Run { kernel, push, groups } => DeviceCommand::Run { kernel, push, groups },
        DeviceCommand::Wait(edge) => DeviceCommand::Wait(edge),
        DeviceCommand::Fill(memory, ref range) => DeviceCommand::Fill(memory, range.clone()),
        DeviceCommand::Copy(MemoryCopy { from, from_offset, to, to_offset, bytes }) => {
            DeviceCommand::Copy(MemoryCopy { from, from_offset, to, to_offset, bytes })
        }
        DeviceCommand::Stamp(stamps, number) => DeviceCommand::Stamp(stamps, number),
    }
}

impl Driver for Recorder {
    type Memory = Buffer;
    type Baked = usize;
    type Stamps = <Vulkan as Driver>::Stamps;

    fn caps(&self) -> &Caps {
        self.vulkan.caps()
    }

    fn allocate(&self, bytes: u64, heap: usize, access: HostAccess, source: MemorySource) -> Result<Buffer> {
        let mut buffer = self.vulkan.allocate(bytes, heap, access, source)?;
        // SAFETY: nothing has been submitted that uses it.
        if let Some(bytes) = unsafe { buffer.bytes_mut() } {
            let word = bytes.as_mut_ptr().cast();
            self.mapped.borrow_mut().insert(buffer.address(), word);
        }
        Ok(buffer)
    }

    /// Baking compiles what it needs.
    fn compile(&mut self, _: &[Kernel]) -> Result<()> {
        Ok(())
    }

    fn bake(&mut self, commands: &[DeviceCommand<'_, Recorder>]) -> Result<usize> {
        self.found = commands.iter().find_map(|command| match command {
            DeviceCommand::Run { kernel, push, .. } if kernel.module == Module::Fragment => {
                Some(u64::from_le_bytes(push.bytes()[..8].try_into().unwrap()))
            }
            _ => None,
        });
        let asked = |command: &DeviceCommand<'_, Recorder>| match command {
            DeviceCommand::Run { kernel, groups, .. } => Asked::Run(*kernel, *groups),
            DeviceCommand::Wait(edge) => Asked::Wait(*edge),
            _ => Asked::Other,
        };
        let buffer = self.vulkan.bake(&commands.iter().map(of_vulkan).collect::<Vec<_>>())?;
        let kiln = self.packets(commands);
        self.lists.push((buffer, commands.iter().map(asked).collect(), kiln));
        Ok(self.lists.len() - 1)
    }

    fn free(&self, lists: &[usize]) {
        self.vulkan.free(&lists.iter().map(|list| self.lists[*list].0).collect::<Vec<_>>());
    }

    fn stamps(&self, count: usize) -> Result<Option<Self::Stamps>> {
        self.vulkan.stamps(count)
    }

    unsafe fn submit(&self, lists: &[usize], signal: Option<usize>) -> Result<()> {
        self.asks.borrow_mut().extend(lists.iter().flat_map(|list| self.lists[*list].1.iter().copied()));
        let buffers: Vec<_> = lists.iter().map(|list| self.lists[*list].0).collect();
        let mut state = Packets::default();
        state.preamble(self.chip.engines());
        self.kiln.borrow_mut().push(state.words);
        self.kiln.borrow_mut().extend(lists.iter().map(|list| self.lists[*list].2.clone()));
        // SAFETY: as the caller promises.
        unsafe { self.vulkan.submit(&buffers, signal) }?;
        if let Some(word) = self.found.and_then(|address| self.mapped.borrow().get(&address).copied()) {
            // What the kernel finds on these chips, which the interpreter's pass shows: one lane has a row of a matrix.
            // SAFETY: replay holds the memory, and reads it once it has waited.
            unsafe { word.write(1) };
        }
        Ok(())
    }

    fn is_done(&self, signal: usize) -> Result<bool> {
        self.vulkan.is_done(signal)
    }

    fn wait(&self, signal: usize, deadline: Duration) -> Result<()> {
        self.vulkan.wait(signal, deadline)
    }

    fn is_hung(&self) -> bool {
        self.vulkan.is_hung()
    }

    fn finish(&self) {
        self.vulkan.finish();
    }
}

/// A pass as it was asked for and as it was sent, with the words of its packets by ring.
struct Captured {
    asked: Vec<Asked>,
    rings: Vec<Ring>,
    sent: Sent,
    words: Vec<Vec<u32>>,
}

/// Takes what the file has gained.
fn captured(asks: &Asks, seen: &mut usize) -> Captured {
    let bytes = std::fs::read(std::env::var_os(PACKETS).unwrap()).unwrap();
    let words: Vec<u32> = bytes[*seen..].chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
    *seen = bytes.len();
    let (mut rings, mut all, mut at) = (Vec::new(), Vec::new(), 0);
    while at < words.len() {
        rings.push(match words[at] {
            0 => Ring::Graphics,
            1 => Ring::Compute,
            other => panic!("ring {other}"),
        });
        let count = words[at + 1] as usize;
        all.push(&words[at + 2..][..count]);
        at += 2 + count;
    }
    let sent = Sent::of(&all);
    Captured { asked: asks.take(), rings, sent, words: all.iter().map(|words| words.to_vec()).collect() }
}

/// Two chunks of a prompt, then two rows after it: of each the second is one submit, since the first was timed.
fn passes_of() -> Vec<Vec<Row>> {
    let row = |p: usize| Row { token: p as u32, position: p as u32, sequence: 0 };
    let rows = |first: usize, count: usize| (first..first + count).map(row).collect();
    vec![rows(0, CHUNK), rows(CHUNK, CHUNK), rows(2 * CHUNK, 1), rows(2 * CHUNK + 1, 1)]
}

fn run<D: Driver>(replay: &mut Replay<D>, rows: &[Row]) {
    let head = HeadRows { first: rows.len() - 1, count: 1 };
    replay.forward(rows, Some(head)).unwrap_or_else(|e| panic!("{e}"));
}

/// Where and how the packets are made.
#[derive(Debug, Clone, Copy)]
struct Place {
    chip: Chip,
    ring: Ring,
    relay: bool,
}

const PLACES: [Place; 4] = [
    Place { chip: Chip::Gfx1103, ring: Ring::Compute, relay: false },
    Place { chip: Chip::Gfx1103, ring: Ring::Compute, relay: true },
    Place { chip: Chip::Gfx1103, ring: Ring::Graphics, relay: false },
    Place { chip: Chip::Gfx1151, ring: Ring::Compute, relay: false },
];

#[test]
fn radv_sends_a_dispatch_for_each_and_no_wider_edges() {
    in_places("packets::radv_sends_a_dispatch_for_each_and_no_wider_edges", |place| {
        check_packets(place, "tiny", &Checkpoint::open(&golden("tiny")).unwrap());
    });
}

/// As many layers as Gemma 3 27B has, and a layer of its size. docs/figures.md has the table.
#[test]
#[ignore]
fn packets_of_many_layers_and_of_a_large_one() {
    in_places("packets::packets_of_many_layers_and_of_a_large_one", |place| {
        check_packets(place, "deep62", &Checkpoint::open(&golden("deep62")).unwrap());
        // What kernels store depends neither on the ring nor much on the chip, and takes the interpreter a minute.
        if place.ring == Ring::Graphics || place.chip != Chip::Gfx1103 {
            return;
        }
        let full = presets::preset("gemma3-27b").unwrap();
        let (_dir, checkpoint) = costs::model_of(WeightFormat::Int8, full.ffn);
        check_packets(place, "a layer of 27B", &checkpoint);
    });
}

/// Runs `body` in a child process for each place.
fn in_places(test: &str, body: impl Fn(Place)) {
    if let Ok(place) = std::env::var(CHILD) {
        return body(PLACES[place.parse::<usize>().unwrap()]);
    }
    if radv::is_missing() {
        return;
    }
    for (i, place) in PLACES.iter().enumerate() {
        let (file, number) = (tempfile::NamedTempFile::new().unwrap(), i.to_string());
        let mut variables = vec![(CHILD, Path::new(&number)), (PACKETS, file.path())];
        if place.ring == Ring::Graphics {
            variables.push((SWITCHES, Path::new("nocompute")));
        }
        println!("{}", radv::run(test, place.chip.name(), &variables));
    }
}

/// Runs passes of a model by the Vulkan driver and in the interpreter, and compares what was asked for, what was sent
/// and what ran. Prints a row of a table for each kind of pass.
fn check_packets(place: Place, name: &str, checkpoint: &Checkpoint) {
    let Place { chip, ring, relay } = place;
    let compiler = Rc::new(RefCell::new(Compiler::new(chip)));
    let setup = Setup { chunk: CHUNK, relay, behind: true, ..INT8 };
    let gpu = Rc::new(Gpu::open(DeviceChoice::Best).unwrap());
    let recorder = Recorder::new(&gpu, &compiler);
    let (asks, kiln) = (recorder.asks.clone(), recorder.kiln.clone());
    let mut sent = setup.load_on(recorder, &describe(&gpu), checkpoint);
    let (mut ran, watch) = setup.load(&compiler, checkpoint);
    let mut seen = 0;
    captured(&asks, &mut seen);
    kiln.take();
    let (mut reasons, mut edges) = (BTreeMap::new(), BTreeSet::new());
    for rows in passes_of() {
        watch.groups.take();
        run(&mut ran, &rows);
        run(&mut sent, &rows);
        let (captured, groups) = (captured(&asks, &mut seen), watch.groups.take());
        check_pass(place, &captured, &groups);
        let kiln = kiln.take();
        if ring == Ring::Compute {
            let (more, between) = differences::compare(&captured.words, &kiln, COPY_AT);
            more.into_iter().for_each(|(reason, count)| *reasons.entry(reason).or_insert(0) += count);
            edges.extend(between);
        }
        let is_whole = captured.asked.iter().filter(|asked| **asked == Asked::Wait(Edge::Host)).count() == 1;
        if !is_whole {
            continue;
        }
        let (sent, back) = (&captured.sent, written_back(&captured.sent, &groups));
        let count = |has: fn(&Between) -> bool| sent.edges().filter(has).count();
        let colours = sent.dispatches.iter().filter(|d| d.0.colours).count() + usize::from(sent.end.colours);
        println!(
            "| {name} | {} | {} | {ring:?} | {} | {} | {} | {} | {colours} | {} | {} | {} |",
            rows.len(),
            chip.name(),
            if relay { "yes" } else { "no" },
            sent.dispatches.len(),
            count(|b| b.waits),
            count(|b| b.caches & L2_BACK != 0),
            back.iter().sum::<u64>(),
            back.iter().max().unwrap(),
            4 * sent.words,
        );
        if ring == Ring::Compute {
            println!("Kiln's own packets: {} bytes", 4 * kiln.iter().map(Vec::len).sum::<usize>());
        }
    }
    if ring == Ring::Compute {
        println!("what differs from RADV's: {reasons:?}, edges {edges:x?}");
        let is_meant = |(theirs, ours): &(differences::Between, differences::Between)| {
            differences::EDGES.iter().any(|(radv, kiln, _)| (radv, kiln) == (theirs, ours))
        };
        assert!(edges.iter().all(is_meant), "{place:?}: {edges:x?}");
        assert!(!edges.is_empty() && reasons[&differences::Reason::CodePlace] > 0, "{place:?}: {reasons:?}");
    }
}

/// The most bytes that each write-back of L2 can have to write: what kernels have stored since the last one, as far as L2 holds it.
fn written_back(sent: &Sent, groups: &[driver::Group]) -> Vec<u64> {
    let (mut all, mut at) = (Vec::new(), 0);
    for (runs, stored) in groups {
        if at == 0 || sent.dispatches[at].0.caches & L2_BACK != 0 {
            all.push(0);
        }
        *all.last_mut().unwrap() += stored;
        at += runs.len();
    }
    all.into_iter().map(|bytes| bytes.min(L2_BYTES)).collect()
}

fn check_pass(place: Place, captured: &Captured, groups: &[driver::Group]) {
    let Captured { asked, rings, sent, .. } = captured;
    assert!(!rings.is_empty() && rings.iter().all(|ring| *ring == place.ring), "{place:?}: {rings:?}");
    // What was asked for has run in the interpreter, kernel by kernel, and was sent.
    let runs = || {
        asked.iter().filter_map(|asked| match asked {
            Asked::Run(kernel, groups) => Some((*kernel, *groups)),
            _ => None,
        })
    };
    let ran = groups.iter().flat_map(|group| group.0.iter().copied());
    assert!(runs().eq(ran), "{place:?}: the interpreter runs other kernels");
    let dispatches = sent.dispatches.iter().map(|d| d.1);
    assert!(runs().map(|run| run.1).eq(dispatches), "{place:?}: RADV sends other dispatches");
    // What stands between two of them is what was asked for, and no more.
    let mut edges = sent.dispatches.iter().map(|d| d.0);
    let mut waits = Vec::new();
    for asked in asked {
        match asked {
            Asked::Wait(Edge::None) => {}
            Asked::Run(kernel, _) => {
                let edge = edges.next().unwrap();
                match waits.as_slice() {
                    [] => assert_eq!(edge, Between::default(), "{place:?}: before {kernel:?}, which waits for nothing"),
                    [Edge::Relayed] => assert_eq!(edge, RELAYED, "{place:?}: before {kernel:?}"),
                    [Edge::Kernels, ..] if waits.iter().all(|wait| *wait == Edge::Kernels) => {
                        assert_eq!(edge, KERNELS, "{place:?}: before {kernel:?}")
                    }
                    _ => assert!(
                        edge.waits && edge.caches & KERNELS.caches == KERNELS.caches,
                        "{place:?}: {edge:?} before {kernel:?}, which waits for {waits:?}"
                    ),
                }
                waits.clear();
            }
            Asked::Wait(edge) => waits.push(*edge),
            // A fill, a copy or a stamp: RADV may wait there for more.
            Asked::Other => waits.push(Edge::Device),
        }
    }
    // The host sees what the pass has written.
    assert!(sent.end.waits && sent.end.caches & L2_BACK != 0, "{place:?}: {:?} at the end", sent.end);
    let colours = sent.edges().any(|edge| edge.colours) || sent.end.colours;
    assert_eq!(colours, place.ring == Ring::Graphics, "{place:?}");
}
