//! A compute ring: reads packets strictly and runs their dispatches in the interpreter, each from nothing but the registers that
//! stand when it is sent. Hardware forgives more: here a register that a list did not set itself has no value.

use gfx11::decode;
use gfx11::float::Mode;
use gfx11::machine::{Config, Dispatch, Machine, Report};
use gfx11::memory::Memory;
use gfx11::program::Program;
use gfx11::wave::Wave;
use kiln::testing::amdgpu::code::{KernelRegisters, UserSgprs};
use kiln::testing::amdgpu::packets::{Packets, Placed};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Byte addresses of registers COMPUTE_*, as in gfx11.json of Mesa 25.0.7.
pub const NUM_THREAD_X: u32 = 0xb81c;
pub const PIPELINESTAT_ENABLE: u32 = 0xb828;
pub const PERFCOUNT_ENABLE: u32 = 0xb82c;
pub const PGM_LO: u32 = 0xb830;
pub const PGM_HI: u32 = 0xb834;
pub const PGM_RSRC1: u32 = 0xb848;
pub const PGM_RSRC2: u32 = 0xb84c;
pub const RESOURCE_LIMITS: u32 = 0xb854;
pub const TMPRING_SIZE: u32 = 0xb860;
pub const THREAD_TRACE_ENABLE: u32 = 0xb878;
pub const PGM_RSRC3: u32 = 0xb8a0;
pub const USER_DATA_0: u32 = 0xb900;
const USER_DATA: u32 = 16;

/// Registers of compute that user space may set, first and last, with the bits that they have.
const REGISTERS: [(u32, u32, u32); 19] = [
    (0xb810, 0xb818, u32::MAX),                 // START_X to Z
    (NUM_THREAD_X, 0xb824, u32::MAX),           // NUM_THREAD_X to Z
    (PIPELINESTAT_ENABLE, PERFCOUNT_ENABLE, 1), //
    (PGM_LO, PGM_LO, u32::MAX),
    (PGM_HI, PGM_HI, 0xff),
    // VGPRS, FLOAT_MODE, DX10_CLAMP, WGP_MODE, MEM_ORDERED: others are not RADV's.
    (PGM_RSRC1, PGM_RSRC1, 0x602f_f03f),
    // All but SCRATCH_EN, TRAP_PRESENT and exceptions.
    (PGM_RSRC2, PGM_RSRC2, 0x00ff_9fbe),
    (RESOURCE_LIMITS, RESOURCE_LIMITS, 0x07ff_f3ff),
    (0xb858, 0xb85c, u32::MAX), // DESTINATION_EN_SE0, 1
    (TMPRING_SIZE, TMPRING_SIZE, 0x07ff_ffff),
    (0xb864, 0xb868, u32::MAX), // DESTINATION_EN_SE2, 3
    (THREAD_TRACE_ENABLE, THREAD_TRACE_ENABLE, 1),
    (0xb890, 0xb89c, 0x7f), // USER_ACCUM_0 to 3
    (PGM_RSRC3, PGM_RSRC3, 0x3f0),
    (0xb8ac, 0xb8b8, u32::MAX), // STATIC_THREAD_MGMT_SE4 to 7
    (0xb8bc, 0xb8bc, 0x3ff),    // DISPATCH_INTERLEAVE
    (USER_DATA_0, 0xb93c, u32::MAX),
    (0xb9f4, 0xb9f4, 0x7ff), // DISPATCH_TUNNEL
    (0xb9f8, 0xb9f8, 0),     // DISPATCH_END
];

/// DISPATCH_INITIATOR of waves of 32 lanes that start in any order, and in the order of dispatches.
pub const IN_ANY_ORDER: u32 = 0xa045;
pub const IN_ORDER: u32 = 0x8005;
/// Its CS_W32_EN.
pub const WAVE32: u32 = 1 << 15;
/// CS_PARTIAL_FLUSH with its index.
pub const FLUSH: u32 = 0x407;

/// One packet.
#[derive(Debug, Clone, PartialEq)]
pub enum Packet<'a> {
    /// The first register's address, and values.
    Set(u32, &'a [u32]),
    Dispatch([u32; 3], u32),
    Event(u32),
    /// GCR_CNTL of an acquire of all memory.
    Acquire(u32),
    /// The address that the clock is written to.
    Stamp(u64),
    /// The opcode of a packet that Kiln does not write.
    Other(u32),
}

/// Words as packets, or the place of the first that is none.
pub fn decode(words: &[u32]) -> Result<Vec<Packet<'_>>, String> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < words.len() {
        let header = words[at];
        at += 1;
        // One word to pad with.
        if header == 0xffff_1000 {
            continue;
        }
        let count = 1 + (header >> 16 & 0x3fff) as usize;
        let body = words.get(at..at + count).ok_or(format!("word {at}: a packet of {count} words is cut short"))?;
        all.push(packet(header, body).map_err(|e| format!("word {at}, {header:#x} {body:x?}: {e}"))?);
        at += count;
    }
    Ok(all)
}

fn packet(header: u32, body: &[u32]) -> Result<Packet<'_>, String> {
    if header >> 30 != 3 || header & 0xfd != 0 {
        return Err("no packet of type 3 without conditions".into());
    }
    let (opcode, is_of_compute) = (header >> 8 & 0xff, header & 2 != 0);
    if is_of_compute != (opcode == 0x15) {
        return Err("the header's SHADER_TYPE is that of dispatches".into());
    }
    match (opcode, body) {
        (0x76, [first, values @ ..]) if !values.is_empty() => {
            let first = 0xb000 + 4 * first;
            for (i, value) in values.iter().enumerate() {
                let register = first + 4 * i as u32;
                let is_it = |(from, to, _): &&(u32, u32, u32)| (*from..=*to).contains(&register);
                let known = REGISTERS.iter().find(is_it).ok_or(format!("register {register:#x} is out of range"))?;
                if value & !known.2 != 0 {
                    return Err(format!("register {register:#x} has no such bits: {value:#x}"));
                }
            }
            Ok(Packet::Set(first, values))
        }
        (0x15, [x, y, z, initiator]) => Ok(Packet::Dispatch([*x, *y, *z], *initiator)),
        (0x46, [event]) => Ok(Packet::Event(*event)),
        (0x58, [0, 0xffff_ffff, 0xff_ffff, 0, 0, 10, caches]) if caches & !0x7ffff == 0 => Ok(Packet::Acquire(*caches)),
        (0x49, [0x528, 0x6300_0000, low, high, 0, 0, 0]) => Ok(Packet::Stamp(u64::from(*high) << 32 | u64::from(*low))),
        (0x76 | 0x15 | 0x46 | 0x58 | 0x49, _) => Err("its words are wrong".into()),
        (other, _) => Ok(Packet::Other(other)),
    }
}

/// A dispatch that waits for what is before it.
struct Launch {
    program: Arc<Program>,
    grid: [u32; 3],
    threads: [u32; 3],
    /// Values of user SGPRs from s2 on, and COMPUTE_PGM_RSRC1 and 2.
    user: Vec<u32>,
    rsrc: [u32; 2],
}

impl Launch {
    fn lds(&self) -> usize {
        512 * (self.rsrc[1] >> 15 & 0x1ff) as usize
    }

    fn mode(&self) -> Mode {
        Mode { float: (self.rsrc[0] >> 12) as u8, ..Mode::RADV }
    }

    /// Sets a wave's scalar registers: user data, then what RSRC2 asks the hardware for.
    fn enter(&self, w: &mut Wave, id: [u32; 3]) {
        self.user.iter().enumerate().for_each(|(i, value)| w.set_s(2 + i, *value));
        let mut r = 2 + self.user.len();
        for (axis, id) in id.into_iter().enumerate() {
            if self.rsrc[1] >> (7 + axis) & 1 != 0 {
                w.set_s(r, id);
                r += 1;
            }
        }
        if self.rsrc[1] >> 10 & 1 != 0 {
            let waves = self.threads.iter().product::<u32>().div_ceil(32);
            w.set_s(r, waves | w.id << 20);
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Ring {
    /// Registers and their values, as far as the list that is read knows them.
    registers: BTreeMap<u32, u32>,
    /// Code by its address.
    programs: HashMap<u64, Arc<Program>>,
    beside: Vec<Launch>,
    /// Where the clock is to be written when those have ended.
    stamps: Vec<u64>,
    /// Dispatches so far, and instructions, which are the clock.
    pub dispatches: usize,
    pub clock: u64,
}

/// Words of the code that begins with these: as far as the first end of the program behind which no branch goes.
fn length_of(words: &[u32]) -> Result<usize, String> {
    let (mut at, mut furthest) = (0, 0);
    loop {
        let inst = decode::decode(words, at).map_err(|refused| format!("{refused:?}"))?;
        let (name, next) = (inst.opcode.name, at + inst.dwords);
        if name.contains("branch") {
            let target = next as i64 + i64::from(inst.get("simm16") as i16);
            furthest = furthest.max(target as usize);
        }
        if name == "s_endpgm" && at >= furthest {
            return Ok(next);
        }
        at = next;
    }
}

/// Names of the buffers in the interpreter's memory that hold code begin so.
pub const CODE: &str = "code of";

impl Ring {
    /// Runs what one submit sends: a list that sets the ring's state, then others.
    pub fn submit(&mut self, machine: &mut Machine, memory: &Memory, lists: &[&[u32]]) -> Result<(), String> {
        // Another process may have had the ring.
        self.registers.clear();
        let mut state = None;
        for list in lists {
            if list.is_empty() || list.len() % 8 != 0 {
                return Err(format!("a list of {} words: no multiple of eight", list.len()));
            }
            for packet in decode(list)? {
                self.execute(machine, memory, packet)?;
            }
            // What a list sets, the next one does not know.
            self.registers.clone_from(state.get_or_insert_with(|| self.registers.clone()));
        }
        self.flush(machine, memory)
    }

    fn execute(&mut self, machine: &mut Machine, memory: &Memory, packet: Packet) -> Result<(), String> {
        match packet {
            Packet::Set(first, values) => {
                self.registers.extend(values.iter().enumerate().map(|(i, value)| (first + 4 * i as u32, *value)));
            }
            Packet::Dispatch(grid, initiator) => {
                let launch = self.launch(memory, grid, initiator)?;
                self.beside.push(launch);
            }
            Packet::Event(FLUSH) => self.flush(machine, memory)?,
            Packet::Event(other) => return Err(format!("event {other:#x}")),
            Packet::Acquire(caches) => {
                let has = |bit: u32| caches >> bit & 1 != 0;
                machine.invalidate_some(has(7), has(8), has(9));
            }
            Packet::Stamp(address) => {
                if !address.is_multiple_of(8) || memory.find(address, 8).is_err() {
                    return Err(format!("a stamp at {address:#x}, which is not mapped or not aligned"));
                }
                self.stamps.push(address);
            }
            Packet::Other(opcode) => return Err(format!("packet {opcode:#x}, which Kiln does not write")),
        }
        Ok(())
    }

    fn register(&self, register: u32) -> Result<u32, String> {
        let value = self.registers.get(&register).copied();
        value.ok_or(format!("a dispatch, but the list has not set register {register:#x}"))
    }

    /// A dispatch as the registers have it.
    fn launch(&mut self, memory: &Memory, grid: [u32; 3], initiator: u32) -> Result<Launch, String> {
        if ![IN_ANY_ORDER, IN_ORDER].contains(&initiator) {
            return Err(format!("DISPATCH_INITIATOR {initiator:#x}"));
        }
        // The ring's state, of which the dispatch uses no value here.
        for register in [0xb810, 0xb814, 0xb818, 0xb858, 0xb85c, TMPRING_SIZE, 0xb864, 0xb868, 0xb8bc, 0xb9f4] {
            self.register(register)?;
        }
        let [rsrc1, rsrc2] = [self.register(PGM_RSRC1)?, self.register(PGM_RSRC2)?];
        self.register(PGM_RSRC3)?;
        self.register(RESOURCE_LIMITS)?;
        let mut threads = [0; 3];
        for (i, count) in threads.iter_mut().enumerate() {
            *count = self.register(NUM_THREAD_X + 4 * i as u32)?;
        }
        if !(1..=1024).contains(&threads.iter().map(|n| u64::from(*n)).product::<u64>()) {
            return Err(format!("workgroups of {threads:?} lanes"));
        }
        // Local ids: x, or as many as TIDIG_COMP_CNT says, are in v0.
        if rsrc2 >> 11 & 3 == 0 && threads[1..] != [1, 1] {
            return Err(format!("workgroups of {threads:?} lanes, whose code knows x alone"));
        }
        // An address has 48 bits, of which the highest is repeated.
        let code = u64::from(self.register(PGM_HI)?) << 40 | u64::from(self.register(PGM_LO)?) << 8;
        let program = self.program(memory, ((code << 16) as i64 >> 16) as u64)?;
        let (needs, has) = (program.vector_registers(), 8 * (1 + (rsrc1 & 0x3f) as usize));
        if needs > has {
            return Err(format!("code with {needs} vector registers, of which RSRC1 has {has}"));
        }
        if (rsrc2 >> 15 & 0x1ff) > 128 {
            return Err(format!("more LDS than a workgroup can have: RSRC2 {rsrc2:#x}"));
        }
        let count = rsrc2 >> 1 & 0x1f;
        if !(2..=USER_DATA).contains(&count) {
            return Err(format!("{count} user SGPRs"));
        }
        let user = (2..count).map(|i| self.register(USER_DATA_0 + 4 * i)).collect::<Result<_, _>>()?;
        Ok(Launch { program, grid, threads, user, rsrc: [rsrc1, rsrc2] })
    }

    /// The code at an address: a buffer that begins there.
    fn program(&mut self, memory: &Memory, address: u64) -> Result<Arc<Program>, String> {
        if let Some(program) = self.programs.get(&address) {
            return Ok(program.clone());
        }
        let found = memory.find(address, 4).ok().filter(|(buffer, _)| buffer.name.starts_with(CODE));
        let (buffer, at) = found.ok_or(format!("no code at {address:#x}"))?;
        let words = &buffer.contents()[at..];
        let code = length_of(words).map(|length| &words[..length]);
        let program = code.and_then(|code| Program::new(code).map_err(|fault| fault.to_string()));
        let program = Arc::new(program.map_err(|e| format!("the code at {address:#x} of {}: {e}", buffer.name))?);
        self.programs.insert(address, program.clone());
        Ok(program)
    }

    /// Runs the dispatches that have nothing between them to their ends.
    fn flush(&mut self, machine: &mut Machine, memory: &Memory) -> Result<(), String> {
        let launches = std::mem::take(&mut self.beside);
        self.dispatches += launches.len();
        if !launches.is_empty() {
            self.clock += run(machine, memory, &launches)?.steps;
        }
        for address in self.stamps.drain(..) {
            memory.write(address, &[self.clock as u32, (self.clock >> 32) as u32]).map_err(|what| what.to_string())?;
        }
        Ok(())
    }
}

fn run(machine: &mut Machine, memory: &Memory, launches: &[Launch]) -> Result<Report, String> {
    let enters: Vec<_> = launches.iter().map(|l| move |w: &mut Wave, id: [u32; 3]| l.enter(w, id)).collect();
    let dispatches = launches.iter().zip(&enters).map(|(launch, enter)| Dispatch {
        program: &launch.program,
        grid: launch.grid,
        threads: launch.threads,
        lds: launch.lds(),
        wave64: false,
        mode: launch.mode(),
        enter,
    });
    machine.run_beside(memory, &dispatches.collect::<Vec<_>>()).map_err(|fault| fault.to_string())
}

#[test]
fn wrong_packets_are_refused() {
    let pad: &[u32] = &[0xffff_1000];
    for (words, want) in [
        (&[0xc000_1300, 0][..], "packet 0x13, which Kiln does not write"),
        (&[0x8000_1000], "no packet of type 3"),
        (&[0xc002_7600, 0x20c, 7], "is cut short"),
        (&[0xc000_7600, 0x20c], "its words are wrong"),
        (&[0xc001_7600, 0x200, 0], "register 0xb800 is out of range"),
        (&[0xc002_7600, 0x24f, 0, 0], "register 0xb940 is out of range"),
        (&[0xc001_7600, 0x213, 1], "register 0xb84c has no such bits: 0x1"),
        (&[0xc003_1500, 1, 1, 1, IN_ANY_ORDER], "SHADER_TYPE"),
        (&[0xc002_1502, 1, 1, 1], "its words are wrong"),
        (&[0xc003_1502, 1, 1, 1, 0x2047], "DISPATCH_INITIATOR 0x2047"),
        (&[0xc003_1502, 1, 1, 1, IN_ANY_ORDER], "has not set register"),
        (&[0xc000_4600, 0x40f], "event 0x40f"),
        (&[0xc006_5800, 0, 4, 0, 0, 0, 10, 0x380], "its words are wrong"),
        (&[0xc006_4900, 0x528, 0x6300_0000, 0x1000, 0, 0, 0, 0], "a stamp at 0x1000, which is not mapped"),
    ] {
        let (mut machine, memory) = (Machine::new(Config::gfx1103(1)), Memory::default());
        let mut list = words.to_vec();
        while want != "is cut short" && list.len() % 8 != 0 {
            list.extend(pad);
        }
        // A list that is cut short has whole units all the same.
        let list = if want == "is cut short" { [pad.repeat(5), list].concat() } else { list };
        let refused = Ring::default().submit(&mut machine, &memory, &[&list]).unwrap_err();
        assert!(refused.contains(want), "{words:x?}: {refused}");
    }
}

/// A dispatch in a list that sets nothing of it: what the list before has set counts as lost.
#[test]
fn a_list_that_relies_on_the_one_before_is_refused() {
    let (mut machine, mut memory) = (Machine::new(Config::gfx1103(1)), Memory::default());
    // s_endpgm.
    memory.add_words(&format!("{CODE} nothing"), 1 << 20, &[0xbfb0_0000]);
    let user = UserSgprs { pointer: None, inline: Some(2), inline_words: 1, groups: None };
    let registers = KernelRegisters { rsrc1: 0x602c_0000, rsrc2: 3 << 1, rsrc3: 0, limits: 0, lds: 0, user };
    let placed = Placed { code_at: 1 << 20, registers: &registers, push: &[7], push_at: 0 };
    let mut state = Packets::default();
    state.preamble(1);
    state.pad();
    let mut list = Packets::default();
    list.dispatch(&placed, [1, 1, 1], 32, false);
    list.pad();
    let whole = list.words.clone();
    list.words.clear();
    list.dispatch(&placed, [2, 1, 1], 32, false);
    list.pad();
    let mut run = |lists: &[&[u32]]| Ring::default().submit(&mut machine, &memory, lists);
    assert_eq!(run(&[&state.words, &whole, &whole]), Ok(()));
    let refused = run(&[&state.words, &whole, &list.words]).unwrap_err();
    assert!(refused.contains("has not set register"), "{refused}");
    assert!(run(&[&whole]).unwrap_err().contains("has not set register 0xb810"));
}
