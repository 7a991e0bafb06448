//! A writer of PM4, the packets of a compute ring of gfx11 and gfx11.5.
//!
//! Names and numbers of packets, registers and fields are those of Mesa 25.0.7's tables of registers (gfx11.json) and
//! packets (pkt3.json). Values follow the packets that RADV 25.0.7 writes for the same dispatches.
//! tests/rdna/differences.rs compares them field by field and lists the differences; tests/rdna/pm4.rs runs whole
//! passes from these words.

use super::code::KernelRegisters;
use crate::lower::dispatch::Edge;

/// Opcodes of packets of type 3.
const DISPATCH_DIRECT: u32 = 0x15;
const EVENT_WRITE: u32 = 0x46;
const RELEASE_MEM: u32 = 0x49;
const ACQUIRE_MEM: u32 = 0x58;
const SET_SH_REG: u32 = 0x76;
/// SHADER_TYPE of a packet's header: of the compute pipe.
const OF_COMPUTE: u32 = 1 << 1;
/// A packet of one word that does nothing.
const NOP: u32 = 0xffff_1000;

/// Byte address of the first register that SET_SH_REG sets.
const SH: u32 = 0xb000;
/// Byte addresses of registers COMPUTE_*: of single ones, and of the first of several that are set together.
const START_X: u32 = 0xb810;
const NUM_THREAD_X: u32 = 0xb81c;
const PIPELINESTAT_ENABLE: u32 = 0xb828;
const PGM_LO: u32 = 0xb830;
const PGM_RSRC1: u32 = 0xb848;
const RESOURCE_LIMITS: u32 = 0xb854;
const DESTINATION_EN_SE0: u32 = 0xb858;
const TMPRING_SIZE: u32 = 0xb860;
const DESTINATION_EN_SE2: u32 = 0xb864;
const THREAD_TRACE_ENABLE: u32 = 0xb878;
const USER_ACCUM_0: u32 = 0xb890;
const PGM_RSRC3: u32 = 0xb8a0;
const STATIC_THREAD_MGMT_SE4: u32 = 0xb8ac;
const USER_DATA_2: u32 = 0xb908;
const DISPATCH_TUNNEL: u32 = 0xb9f4;

/// The registers whose values are remembered, from the first COMPUTE_* to DISPATCH_TUNNEL.
const FIRST: u32 = 0xb800;
const KNOWN: usize = ((DISPATCH_TUNNEL - FIRST) / 4 + 1) as usize;
/// Registers from USER_DATA_2 on: RADV's code without scratch expects nothing in the first two, s0 and s1.
const USER_DATA: usize = 14;

/// All compute units of both arrays of a shader engine.
const ALL_UNITS: u32 = u32::MAX;
/// DISPATCH_INTERLEAVE: workgroups that one shader engine gets before the next one does. RADV's number.
const INTERLEAVE: u32 = 64;

/// DISPATCH_INITIATOR: COMPUTE_SHADER_EN, FORCE_START_AT_000 and CS_W32_EN, waves of 32 lanes. Workgroups start in the
/// order of the dispatches, as a relay needs it (shaders/relay.glsl).
const IN_ORDER: u32 = 1 | 1 << 2 | 1 << 15;
/// The flags of [`IN_ORDER`] with ORDER_MODE and TUNNEL_ENABLE, as RADV sets them: waves start in any order.
const IN_ANY_ORDER: u32 = IN_ORDER | 1 << 6 | 1 << 13;

/// EVENT_WRITE's CS_PARTIAL_FLUSH with its EVENT_INDEX: waits for the end of all dispatches before.
const CS_PARTIAL_FLUSH: u32 = 7 | 4 << 8;
/// RELEASE_MEM's BOTTOM_OF_PIPE_TS with its EVENT_INDEX: at the end of all work before.
const BOTTOM_OF_PIPE: u32 = 0x28 | 5 << 8;
/// RELEASE_MEM's DATA_SEL, the clock's 64 bits, and INT_SEL: once the write is confirmed, and without an interrupt.
const CLOCK: u32 = 3 << 29 | 3 << 24;

/// GCR_CNTL: invalidates the caches of instructions (GLI), of scalars (GLK), of a unit's vectors (GLV), of a shader
/// array (GL1).
const GLI_INV: u32 = 1;
const GLK_INV: u32 = 1 << 7;
const GLV_INV: u32 = 1 << 8;
const GL1_INV: u32 = 1 << 9;
/// GCR_CNTL: writes back and invalidates the cache of images' metadata (GLM), invalidates L2, and writes L2 back. Every
/// user of the write-back of L2 that was seen has GLM's bits with it.
const GLM_WB_INV: u32 = 1 << 4 | 1 << 5;
const GL2_INV: u32 = 1 << 14;
const GL2_WB: u32 = 1 << 15;
/// Before a kernel that reads other kernels' writes: stores and atomics reach L2, which all units share.
const KERNELS_SEE: u32 = GLK_INV | GLV_INV | GL1_INV;
/// Before the host or another device reads kernels' writes.
const OTHERS_SEE: u32 = GL2_WB | GLM_WB_INV;
/// Before the first kernel of a submit: the host and other devices may have written data and code.
const ALL_SEE: u32 = GLI_INV | KERNELS_SEE | OTHERS_SEE | GL2_INV;

/// A kernel in the device's memory, with the arguments of one dispatch.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    /// The GPU address of the code, a multiple of 256.
    pub code_at: u64,
    /// The register values that the code needs.
    pub registers: &'a KernelRegisters,
    /// The words of the push block.
    pub push: &'a [u32],
    /// The address of the block's copy in the device's memory: the code takes the low half, and has 0xffff8000 as the
    /// high one. The code may load any of [`PUSH_BYTES`](crate::lower::kernels::push::PUSH_BYTES), which are mapped,
    /// however short the block.
    pub push_at: u64,
}

/// A list of packets. It is valid after any other list: it sets each register that it needs, and none to a value that
/// it has set already.
#[derive(Debug, Clone)]
pub struct Packets {
    /// The words of the packets that were appended so far.
    pub words: Vec<u32>,
    /// Registers that the words have set, from [`FIRST`] on.
    known: [Option<u32>; KNOWN],
}

impl Default for Packets {
    fn default() -> Packets {
        Packets { words: Vec::new(), known: [None; KNOWN] }
    }
}

impl Packets {
    /// Appends a packet of type 3.
    fn packet(&mut self, opcode: u32, body: &[u32]) {
        self.words.push(3 << 30 | (body.len() as u32 - 1) << 16 | opcode << 8);
        self.words.extend_from_slice(body);
    }

    /// Sets registers that follow each other, from the first of them that has another value to the last.
    fn set(&mut self, first: u32, values: &[u32]) {
        let known = &mut self.known[((first - FIRST) / 4) as usize..][..values.len()];
        let differs = |i: &usize| known[*i] != Some(values[*i]);
        let Some(start) = (0..values.len()).find(differs) else { return };
        let end = (start..values.len()).rfind(differs).unwrap_or(start) + 1;
        known.iter_mut().zip(values).for_each(|(known, value)| *known = Some(*value));
        // SET_SH_REG: the first register in words from SH, then the values.
        self.words.push(3 << 30 | ((end - start) as u32) << 16 | SET_SH_REG << 8);
        self.words.push((first - SH) / 4 + start as u32);
        self.words.extend_from_slice(&values[start..end]);
    }

    /// Sets up the ring, which other processes share, and makes the host's writes visible: the start of each submit.
    /// `engines`: shader engines of the chip.
    pub fn preamble(&mut self, engines: u32) {
        let units = [0, 1, 2, 3].map(|engine| if engine < engines { ALL_UNITS } else { 0 });
        self.set(START_X, &[0; 3]);
        // PIPELINESTAT_ENABLE, PERFCOUNT_ENABLE.
        self.set(PIPELINESTAT_ENABLE, &[0; 2]);
        self.set(DESTINATION_EN_SE0, &units[..2]);
        self.set(TMPRING_SIZE, &[0]);
        self.set(DESTINATION_EN_SE2, &units[2..]);
        self.set(THREAD_TRACE_ENABLE, &[0]);
        self.set(USER_ACCUM_0, &[0; 4]);
        // None for engines 4 to 7, which gfx11 and gfx11.5 lack; then DISPATCH_INTERLEAVE.
        self.set(STATIC_THREAD_MGMT_SE4, &[0, 0, 0, 0, INTERLEAVE]);
        self.set(DISPATCH_TUNNEL, &[0]);
        self.acquire(ALL_SEE);
    }

    /// Workgroups of a kernel, of `workgroup` lanes each.
    pub fn dispatch(&mut self, kernel: &Placed, groups: [u32; 3], workgroup: u32, is_relayed: bool) {
        let KernelRegisters { rsrc1, rsrc2, rsrc3, limits, ref user, .. } = *kernel.registers;
        // PGM_LO and PGM_HI: bits 8 to 39 and 40 to 47 of the address.
        self.set(PGM_LO, &[(kernel.code_at >> 8) as u32, (kernel.code_at >> 40) as u32 & 0xff]);
        self.set(PGM_RSRC1, &[rsrc1, rsrc2]);
        self.set(RESOURCE_LIMITS, &[limits]);
        self.set(PGM_RSRC3, &[rsrc3]);
        self.set(NUM_THREAD_X, &[workgroup, 1, 1]);
        // The words follow each other from s2 on.
        let (mut data, mut count) = ([0; USER_DATA], 0);
        for (place, (_, word)) in data.iter_mut().zip(user.words(kernel.push, kernel.push_at as u32, &groups)) {
            *place = word;
            count += 1;
        }
        self.set(USER_DATA_2, &data[..count]);
        // DISPATCH_DIRECT: workgroups in x, y and z, then DISPATCH_INITIATOR.
        let initiator = if is_relayed { IN_ORDER } else { IN_ANY_ORDER };
        let [x, y, z] = groups;
        self.packet(DISPATCH_DIRECT, &[x, y, z, initiator]);
        let header = self.words.len() - 5;
        self.words[header] |= OF_COMPUTE;
    }

    /// Makes the packets that follow wait for all work before.
    pub fn edge(&mut self, edge: Edge) {
        let caches = match edge {
            Edge::None => return,
            // Fills and copies are kernels, too. Earlier submits' writes are in L2, and the preamble of each submit has
            // made other devices' writes visible.
            Edge::Kernels | Edge::Relayed | Edge::Fill | Edge::Device => KERNELS_SEE,
            // Linux's fence at the end of each submit writes L2 back too. This edge does not rely on that fence.
            Edge::Host => OTHERS_SEE,
        };
        // EVENT_WRITE: the event.
        self.packet(EVENT_WRITE, &[CS_PARTIAL_FLUSH]);
        self.acquire(caches);
    }

    /// Appends a packet that flushes or invalidates caches, for all of memory.
    fn acquire(&mut self, caches: u32) {
        const POLL_INTERVAL: u32 = 10;
        // ACQUIRE_MEM: 0, size in units of 256 bytes, low and high, base, low and high, poll interval, GCR_CNTL.
        self.packet(ACQUIRE_MEM, &[0, u32::MAX, 0xff_ffff, 0, 0, POLL_INTERVAL, caches]);
    }

    /// Writes the clock's 64 bits to an address, a multiple of eight, when all work before has ended.
    pub fn stamp(&mut self, address: u64) {
        // RELEASE_MEM: event, selections, address, low and high, data, which the clock replaces, and a context's
        // number.
        self.packet(RELEASE_MEM, &[BOTTOM_OF_PIPE, CLOCK, address as u32, (address >> 32) as u32, 0, 0, 0]);
    }

    /// Pads to a size that an indirect buffer may have, which cannot be empty.
    pub fn pad(&mut self) {
        const ALIGNED: usize = 8;
        let words = self.words.len().max(1).next_multiple_of(ALIGNED);
        self.words.resize(words, NOP);
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::UserSgprs;
    use super::*;

    const PUSH_HIGH: u64 = 0xffff_8000 << 32;
    const ACQUIRE: [u32; 7] = [0xc006_5800, 0, 0xffff_ffff, 0xff_ffff, 0, 0, 10];

    /// RADV's rms_norm of 64 lanes for gfx1103: the push pointer and eight inline words.
    fn rms_norm() -> KernelRegisters {
        let user = UserSgprs { pointer: Some(2), inline: Some(3), inline_words: 0x303f, groups: None };
        KernelRegisters { rsrc1: 0x602c_0003, rsrc2: 0x1_0516, rsrc3: 0, limits: 0, lds: 1024, user }
    }

    #[test]
    fn a_dispatch_sets_what_the_list_has_not_set() {
        let registers = rms_norm();
        let push: Vec<u32> = (0..32).map(|i| 0x100 + i).collect();
        let mut packets = Packets::default();
        let placed =
            Placed { code_at: PUSH_HIGH | 0x700, registers: &registers, push: &push, push_at: PUSH_HIGH | 0x40004 };
        packets.dispatch(&placed, [7, 5, 3], 64, false);
        let whole: &[&[u32]] = &[
            &[0xc002_7600, 0x20c, 7, 0x80],
            &[0xc002_7600, 0x212, 0x602c_0003, 0x1_0516],
            &[0xc001_7600, 0x215, 0],
            &[0xc001_7600, 0x228, 0],
            &[0xc003_7600, 0x207, 64, 1, 1],
            &[0xc009_7600, 0x242, 0x40004, 0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x10c, 0x10d],
            &[0xc003_1502, 7, 5, 3, 0xa045],
        ];
        assert_eq!(packets.words, whole.concat());
        assert!(packets.words.len() <= 48);
        // The same kernel: its arguments as far as they differ, and its grid.
        packets.words.clear();
        let placed = Placed { push: &[&push[..2], &[9], &push[3..]].concat(), ..placed };
        packets.dispatch(&placed, [9, 1, 1], 64, true);
        assert_eq!(packets.words, [0xc001_7600, 0x245, 9, 0xc003_1502, 9, 1, 1, 0x8005]);
        packets.words.clear();
        packets.dispatch(&placed, [9, 1, 1], 64, false);
        assert_eq!(packets.words, [0xc003_1502, 9, 1, 1, 0xa045]);
        // The grid is an argument of some kernels, and another kernel's code is in the same window.
        packets.words.clear();
        let user = UserSgprs { pointer: None, inline: Some(2), inline_words: 1, groups: Some(3) };
        let other = KernelRegisters { user, ..registers };
        let placed = Placed { code_at: PUSH_HIGH | 0x900, registers: &other, push: &push, push_at: 0 };
        packets.dispatch(&placed, [4, 2, 1], 64, false);
        let whole: &[&[u32]] =
            &[&[0xc001_7600, 0x20c, 9], &[0xc004_7600, 0x242, 0x100, 4, 2, 1], &[0xc003_1502, 4, 2, 1, 0xa045]];
        assert_eq!(packets.words, whole.concat());
    }

    #[test]
    fn edges_wait_and_move_no_cache_that_they_need_not() {
        for (edge, caches) in [
            (Edge::Kernels, 0x380),
            (Edge::Relayed, 0x380),
            (Edge::Fill, 0x380),
            (Edge::Device, 0x380),
            (Edge::Host, 0x8030),
        ] {
            let mut packets = Packets::default();
            packets.edge(edge);
            assert_eq!(packets.words, [&[0xc000_4600, 0x407][..], &ACQUIRE, &[caches]].concat(), "{edge:?}");
        }
        let mut packets = Packets::default();
        packets.edge(Edge::None);
        assert!(packets.words.is_empty());
    }

    #[test]
    fn a_submit_begins_with_the_state_of_the_ring_and_fresh_caches() {
        let mut packets = Packets::default();
        packets.preamble(2);
        let words = &packets.words;
        assert!(words.ends_with(&[&ACQUIRE[..], &[0xc3b1]].concat()));
        let has = |part: &[u32]| words.windows(part.len()).any(|at| at == part);
        assert!(has(&[0xc002_7600, 0x216, u32::MAX, u32::MAX]) && has(&[0xc002_7600, 0x219, 0, 0]));
        assert!(has(&[0xc005_7600, 0x22b, 0, 0, 0, 0, 64]));
    }

    #[test]
    fn stamps_and_padding() {
        let mut packets = Packets::default();
        packets.stamp(0xffff_8001_0000_1008);
        let stamp = [0xc006_4900, 0x528, 0x6300_0000, 0x1008, 0xffff_8001, 0, 0, 0];
        assert_eq!(packets.words, stamp);
        packets.pad();
        assert_eq!(packets.words, stamp);
        packets.edge(Edge::Kernels);
        packets.pad();
        assert_eq!((packets.words.len(), &packets.words[18..]), (24, &[0xffff_1000; 6][..]));
        let mut empty = Packets::default();
        empty.pad();
        assert_eq!(empty.words, [0xffff_1000; 8]);
    }
}
