//! The model's latencies against distances of independent source: what an instruction does is seen at exactly that
//! distance, and not one cycle before. A latency that is one off on purpose fails.

use kiln_aie::assemble;
use kiln_aie::isa::Isa;
use kiln_aie::pack::array::{CORE_CONTROL, PROGRAM, Tile};
use kiln_aie::pack::command::Command;
use kiln_aie::pack::image;

use crate::machine::{Fault, Latencies, Machine, narrow};

const CORE: Tile = Tile::new(0, 2);

/// Two instructions, and the least distance in cycles at which the second sees what the first does, or is allowed.
struct Probe {
    first: &'static str,
    second: &'static str,
    cycles: usize,
}

/// The distances of tests/suite/distances.rs that concern what the model has, and two that follow from them: a store that
/// rounds is in memory two cycles later than others, and pointers move in one cycle.
fn probes() -> Vec<Probe> {
    let probe = |first, second, cycles| Probe { first, second, cycles };
    vec![
        probe("vlda wl4, [p0], #32", "vst wl4, [p1], #32", 7),
        probe("vldb wl4, [p0], #32", "vst wl4, [p1], #32", 7),
        probe("vlda amll2, [p0, #0]", "vst amll2, [p1], #32", 7),
        probe("vlda.conv.fp32.bf16 bml2, [p0], #32", "vst.conv.bf16.fp32 bml2, [p1], #32", 7),
        probe("vmac.f bml2, bml2, x0, x1, r1", "vst amll2, [p1], #32", 6),
        probe("vlda.conv.fp32.bf16 bml0, [p2], #32", "vmac.f bml3, bml0, x0, x1, r0", 5),
        probe("vmac.f bml0, bml0, x0, x1, r0", "vmac.f bml3, bml0, x0, x1, r0", 4),
        probe("vadd.f bml2, bml0, bml1, r0", "vst.conv.bf16.fp32 bml2, [p1], #32", 6),
        probe("vlda.conv.fp32.bf16 bml0, [p2], #32", "vadd.f bml3, bml0, bml1, r0", 5),
        probe("mova r0, #29", "vmac.f bml3, bml0, x0, x1, r0", 1),
        probe("padda [p1], #32", "vst wl0, [p1], #32", 1),
        probe("vst.conv.bf16.fp32 bml1, [p0, #0]", "vlda wl3, [p0], #32", 3),
        probe("vst wl0, [p1], #32", "rel #48, r8", 4),
        probe("vlda wl4, [p0], #32", "acq #49, r7", 4),
        probe("rel #48, r8", "vst wl0, [p1], #32", 4),
        probe("acq #49, r7", "vlda wl4, [p0], #32", 4),
        probe("vst.conv.bf16.fp32 bml0, [p1], #32", "rel #48, r8", 6),
        probe("acq #49, r7", "vst.conv.bf16.fp32 bml0, [p1], #32", 2),
        // From here on by the itineraries alone (AIE2Schedule.td: II_MUL, II_VBLOG, II_VUPS, II_VSRS, II_VUNPACK,
        // II_VLDA_UPS).
        probe("mul r2, r2, r7", "mov m0, r2", 2),
        probe("vband x3, x0, x1", "vst wl3, [p1], #32", 2),
        probe("vups.s32.s16 bml3, wl0, s0", "vst amll3, [p1], #32", 3),
        probe("vsrs.s16.s32 wl3, bml0, s0", "vst wl3, [p1], #32", 4),
        probe("vunpack.s16.s8 x3, wl0", "vst wl3, [p1], #32", 7),
        probe("vlda.ups.s32.s16 bml3, s0, [p0, #0]", "vst amll3, [p1], #32", 9),
        // The load reads the shift late: a move before its seventh stage is seen.
        probe("vlda.ups.s32.s16 bml3, s0, [p0, #0]", "mov s0, #3", 6),
        // The sixth bundle behind a branch does not issue.
        probe("j #END", "padda [p1], #32", 6),
    ]
}

impl Probe {
    /// What a core leaves in its memory with the two so many cycles apart.
    fn run(&self, latencies: Latencies, cycles: usize) -> Result<Vec<u8>, Fault> {
        let mut lines: Vec<String> = [
            "movxm p0, #0x70000",
            "movxm p2, #0x70020",
            "movxm p1, #0x70100",
            "movxm m0, #0",
            "mova r0, #28",
            "mova r1, #29",
            "mova r7, #-1",
            "mova r8, #1",
            "mov crrnd, #12",
            "mov crsat, #1",
            "mov s0, #2",
            "mov r2, #32",
            "vlda wl0, [p0, #0]",
            "vlda wh0, [p0, #32]",
            "vlda wl1, [p0, #64]",
            "vlda wh1, [p0, #0]",
            "vlda wl3, [p0, #64]",
            "vlda.conv.fp32.bf16 bml0, [p0, #0]",
            "vlda.conv.fp32.bf16 bml1, [p0, #64]",
            "vlda.conv.fp32.bf16 bml3, [p0, #0]",
        ]
        .map(String::from)
        .to_vec();
        let idle = |count: usize| std::iter::repeat_n("nop".to_string(), count);
        lines.extend(idle(10));
        if cycles == 0 {
            lines.push(format!("{} ; {}", self.first, self.second));
        } else {
            lines.push(self.first.to_string());
            lines.extend(idle(cycles - 1));
            lines.push(self.second.to_string());
        }
        lines.extend(idle(12));
        let end = lines.len();
        // What registers hold by now is stored, too.
        lines.push("padda [p1], m0".into());
        lines.extend(["vst wl3, [p1], #32", "vst amll3, [p1], #32", "vst amll0, [p1], #32"].map(String::from));
        lines.extend(idle(12));
        lines.push("acq #63, r7".into()); // nothing releases it
        lines.extend(idle(12));

        let isa = Isa::aie2();
        let encode = |target: usize| -> Vec<Vec<u8>> {
            let lines = lines.iter().map(|line| line.replace("END", &target.to_string()));
            lines
                .map(|line| isa.encode_bundle(&assemble::bundle(&isa, &line).expect("a bundle")).expect("bytes"))
                .collect()
        };
        let target: usize = encode(0)[..end].iter().map(Vec::len).sum();
        let mut code = encode(target).concat();
        code.resize(code.len().next_multiple_of(4), 0);
        let words =
            |bytes: &[u8]| bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("a word"))).collect();
        let values = (0..64).map(|index| narrow(1.0 + index as f32 / 8.0));
        let data: Vec<u8> = values.flat_map(u16::to_le_bytes).collect();
        let commands = [
            Command::block(CORE.address(PROGRAM), words(&code)),
            Command::block(CORE.address(0), words(&data)),
            Command::block(CORE.address(0x100), vec![0xEEEE_EEEE; 64]),
            Command::write(CORE.lock(1), 1),
            Command::mask_write(CORE.address(CORE_CONTROL), 1, 1),
        ];
        let mut machine = Machine::new(1, latencies);
        machine.load_image(&image::pack(&commands))?;
        machine.settle()?;
        let memory = machine.memory((0, 2))?;
        // Five stores at most, from as many places. What was not written shows where they went.
        let stored = (0..8).map(|index| memory.bytes(0x100 + 32 * index, 32));
        let stored = stored.collect::<Result<Vec<_>, Fault>>()?;
        Ok(stored.into_iter().flat_map(|bytes| bytes.unwrap_or_else(|| vec![0xEE; 32])).collect())
    }

    /// What is wrong with latencies by this probe, if anything.
    fn refute(&self, latencies: Latencies) -> Option<String> {
        let [before, at, after] =
            [self.cycles - 1, self.cycles, self.cycles + 1].map(|cycles| self.run(latencies, cycles));
        let name = format!("{} .. {}", self.first, self.second);
        if at.is_err() || at != after {
            return Some(format!("{name}: {} cycles are too few: {at:?}", self.cycles));
        }
        (before == at).then(|| format!("{name}: a cycle fewer than {} will do", self.cycles))
    }
}

#[test]
fn latencies_are_exact() {
    let refuted: Vec<String> = probes().iter().filter_map(|probe| probe.refute(Latencies::default())).collect();
    assert!(refuted.is_empty(), "{}", refuted.join("\n"));
}

#[test]
fn every_latency_that_is_one_off_is_caught() {
    for index in 0..Latencies::default().each().len() {
        for longer in [true, false] {
            let mut latencies = Latencies::default();
            let (name, value) = latencies.each().into_iter().nth(index).expect("a latency");
            if *value == 1 && !longer {
                continue; // what issues together sees nothing of each other
            }
            *value = if longer { *value + 1 } else { *value - 1 };
            let caught = probes().iter().any(|probe| probe.refute(latencies).is_some());
            assert!(caught, "{name}: {}", if longer { "a cycle more" } else { "a cycle less" });
        }
    }
}
