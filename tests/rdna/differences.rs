//! Kiln's packets beside RADV's for the same commands: what differs, and why it may.

use crate::pm4::{
    self, FLUSH, IN_ANY_ORDER, IN_ORDER, NUM_THREAD_X, PERFCOUNT_ENABLE, PGM_LO, PGM_RSRC2, PIPELINESTAT_ENABLE,
    Packet, THREAD_TRACE_ENABLE, TMPRING_SIZE, USER_DATA_0, WAVE32,
};
use std::collections::{BTreeMap, BTreeSet};

/// What differs in registers and dispatches, and the reason. A value is `None` where a stream never set the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Code lies where the driver puts it.
    CodePlace,
    /// Push blocks lie where the driver puts them.
    PushPlace,
    /// RADV counts what pipelines do, for queries that Kiln never makes.
    Counting,
    /// What another process may have left on: counters of the profiler, scratch and traces. RADV leaves them as they are.
    OthersState,
    /// Workgroups of relayed dispatches start in their order; RADV does not know of relays.
    InOrder,
}

/// Waits and GCR_CNTL between dispatches that nothing but edges are between: RADV's, Kiln's, and the reason of the difference.
pub const EDGES: [(Between, Between, &str); 2] = [
    ((true, 0xc3b0), (true, 0x380), "kernels share L2, and Kiln has no images whose metadata the GLM caches"),
    ((true, 0x380), (true, 0x380), "relayed: RADV knows of no writes"),
];

/// Opcodes of RADV's packets that Kiln does not write: a NOP with a body, which pads; WRITE_DATA and DMA_DATA, which prepare
/// queries and prefetch code; INDIRECT_BUFFER, which goes on in another buffer; SET_UCONFIG_REG, for border colours of images.
const OTHERS: [u32; 5] = [0x10, 0x37, 0x3f, 0x50, 0x79];

/// GL2_WB with GLM_WB and GLM_INV, and GL2_INV.
const WRITTEN_BACK: u32 = 0x8030;
const L2_GONE: u32 = 0x4000;

/// Whether something waits, and the caches' bits.
pub type Between = (bool, u32);

/// A dispatch and the registers that stand when it is sent.
struct Launched {
    registers: BTreeMap<u32, u32>,
    groups: [u32; 3],
    initiator: u32,
    /// What stands before it, and whether nothing but edges does.
    before: Between,
    is_plain: bool,
}

/// The dispatches of a stream but those of fills and copies, and what stands behind the last.
fn dispatches(lists: &[Vec<u32>], is_copy: impl Fn(&BTreeMap<u32, u32>, u32) -> bool) -> (Vec<Launched>, Between) {
    let (mut registers, mut all, mut end) = (BTreeMap::new(), Vec::new(), (false, 0));
    for list in lists {
        // The first dispatch of a list stands behind what ended the one before.
        let (mut before, mut is_plain) = ((false, 0), false);
        for packet in pm4::decode(list).unwrap_or_else(|e| panic!("{e}")) {
            match packet {
                Packet::Set(first, values) => {
                    registers.extend(values.iter().enumerate().map(|(i, value)| (first + 4 * i as u32, *value)));
                }
                Packet::Dispatch(_, initiator) if is_copy(&registers, initiator) => {
                    (before, is_plain) = ((false, 0), true)
                }
                Packet::Dispatch(groups, initiator) => {
                    all.push(Launched { registers: registers.clone(), groups, initiator, before, is_plain });
                    (before, is_plain) = ((false, 0), true);
                }
                Packet::Event(FLUSH) => before.0 = true,
                Packet::Event(other) => panic!("event {other:#x}"),
                Packet::Acquire(caches) => before.1 |= caches,
                Packet::Stamp(_) => is_plain = false,
                Packet::Other(opcode) => assert!(OTHERS.contains(&opcode), "packet {opcode:#x}"),
            }
        }
        end = before;
    }
    (all, end)
}

/// Compares the same lists of two streams, dispatch by dispatch and field by field. `copy_at`: the address of Kiln's kernel
/// for fills and copies. Returns how often each reason held, and the edges that were seen.
pub fn compare(
    radv: &[Vec<u32>],
    kiln: &[Vec<u32>],
    copy_at: u64,
) -> (BTreeMap<Reason, usize>, BTreeSet<(Between, Between)>) {
    let (radv, radv_end) = dispatches(radv, |_, initiator| initiator & WAVE32 == 0);
    let (kiln, kiln_end) = dispatches(kiln, |registers, _| registers.get(&PGM_LO) == Some(&((copy_at >> 8) as u32)));
    assert_eq!(radv.len(), kiln.len());
    let (mut reasons, mut edges) = (BTreeMap::new(), BTreeSet::new());
    for (number, (r, k)) in radv.iter().zip(&kiln).enumerate() {
        let mut note = |reason| *reasons.entry(reason).or_default() += 1;
        assert_eq!(r.groups, k.groups, "dispatch {number}");
        match (r.initiator, k.initiator) {
            (IN_ANY_ORDER, IN_ANY_ORDER) => {}
            (IN_ANY_ORDER, IN_ORDER) => note(Reason::InOrder),
            other => panic!("dispatch {number}: initiators {other:x?}"),
        }
        // User data that no register of the kernel is loaded from is of kernels before.
        let end = USER_DATA_0 + 4 * (r.registers[&PGM_RSRC2] >> 1 & 0x1f);
        let all: BTreeSet<u32> = r.registers.keys().chain(k.registers.keys()).copied().collect();
        for register in all.into_iter().filter(|register| !(end..USER_DATA_0 + 64).contains(register)) {
            let (theirs, ours) = (r.registers.get(&register).copied(), k.registers.get(&register).copied());
            note(match (register, theirs, ours) {
                _ if theirs == ours => continue,
                (PGM_LO, Some(_), Some(_)) => Reason::CodePlace,
                (PIPELINESTAT_ENABLE, Some(1), Some(0)) => Reason::Counting,
                (PERFCOUNT_ENABLE | TMPRING_SIZE | THREAD_TRACE_ENABLE, None, Some(0)) => Reason::OthersState,
                // The caller puts marks where its push blocks are.
                (_, Some(_), Some(mark)) if register == USER_DATA_0 + 8 && mark >> 12 == PUSH_MARK => Reason::PushPlace,
                _ => panic!("dispatch {number}: register {register:#x} is {theirs:x?} for RADV and {ours:x?} for Kiln"),
            });
        }
        assert!(k.registers[&NUM_THREAD_X] > 0);
        // RADV waits for more around stamps.
        if r.is_plain && k.is_plain {
            edges.insert((r.before, k.before));
        }
    }
    // For the host: L2 is written back. RADV invalidates it too, though what it holds is still right.
    for end in [radv_end, kiln_end] {
        assert!(end.0 && end.1 & WRITTEN_BACK == WRITTEN_BACK, "{end:x?}");
    }
    assert_eq!(kiln_end.1 & L2_GONE, 0);
    (reasons, edges)
}

/// The upper bits of the low half of a push block's address where streams are compared.
pub const PUSH_MARK: u32 = 0x9_dead;
