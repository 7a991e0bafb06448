//! Distances between instructions, of independent source.

use kiln_aie::assemble;
use kiln_aie::isa::Isa;

/// Two instructions and how many cycles the second must at least be behind the first.
pub struct Distance {
    pub first: &'static str,
    pub second: &'static str,
    pub cycles: usize,
    pub kind: Kind,
}

#[derive(PartialEq)]
pub enum Kind {
    /// Any closer is an error.
    Least,
    /// Exactly so many cycles is an error, a port taken twice; one more or one fewer is not.
    Never,
}

/// Distances as the public LLVM backend's own scheduling tests have them (Xilinx/llvm-aie,
/// llvm/test/CodeGen/AIE/aie2/schedule/, the file named before each group), and as its compiler places instructions.
pub fn distances() -> Vec<Distance> {
    let least = |first, second, cycles| Distance { first, second, cycles, kind: Kind::Least };
    let never = |first, second, cycles| Distance { first, second, cycles, kind: Kind::Never };
    vec![
        // load.mir; measured on a Phoenix, too: a loop with six idle cycles between the two takes nine cycles a pass
        // (jdominick05/ryzen-ai-xdna1-quantization, results/aie/aie2_isa_static.log).
        least("lda r2, [p0, #0]", "add r2, r17, r2", 7),
        least("lda r2, [p0], #4", "add r2, r17, r2", 7),
        // memory_w.mir, memory_am.mir
        least("vlda wl0, [p0, #0]", "vst wl0, [p1, #0]", 7),
        least("vlda wl0, [p0], #32", "vst wl0, [p1], #32", 7),
        least("vlda wl0, [p0], m0", "vst wl0, [p1, #0]", 7),
        least("vlda amll0, [p0, #0]", "vst amll0, [p1, #0]", 7),
        least("vlda amll0, [p0], #32", "vst amll0, [p1], #32", 7),
        // bf16_mac.s of a public course on XDNA (clang 20.0.0 of llvm-aie): loads, vmac.f and store of one tile product.
        least("vldb wh2, [p0, #0]", "vmac.f bmh0, bmh0, x0, x2, r0", 7),
        least("vldb wh2, [p0], #32", "vmac.f bmh0, bmh0, x2, x0, r0", 7),
        least("vldb wh2, [p0], m0", "vmac.f bmh0, bmh0, x2, x0, r0", 7),
        least("vlda wh0, [p3, #0]", "vmac.f bmh0, bmh0, x0, x2, r0", 7),
        least("vlda wh0, [p3], #32", "vmac.f bmh0, bmh0, x2, x0, r0", 7),
        least("vlda amhl0, [p2, #0]", "vmac.f bmh0, bmh0, x0, x2, r0", 5),
        least("vmac.f bmh0, bmh0, x0, x2, r0", "vst amhh0, [p2, #32]", 6),
        least("vmac.f bmh0, bmh0, x0, x2, r0", "vst amhh0, [p2], #32", 6),
        least("vmac.f bmh0, bmh0, x0, x2, r0", "vst amhh0, [p2], m2", 6),
        least("mova r0, #28", "vmac.f bmh0, bmh0, x0, x2, r0", 1),
        // The same stages: an accumulator is read in stage 3 and written in stage 6.
        least("vmac.f bml1, bml1, x0, x2, r0", "vmac.f bml1, bml1, x0, x2, r0", 4),
        least("vmul.f bml1, x0, x2, r0", "vmac.f bml1, bml1, x0, x2, r0", 4),
        // postpipeliner/conv2d_bf16.mir: a shuffled vector is multiplied two cycles later.
        least("vshuffle x9, x1, x9, r24", "vmac.f bml6, bml6, x9, x7, r29", 2),
        // mov_bypass.mir
        least("vband x0, x0, x4", "vmov wl0, wh0", 2),
        least("vmov wh1, wh0", "vconv.fp32.bf16 bmh0, wh1", 2),
        least("vmov bml1, bml0", "vmov bml2, bml1", 2),
        // mul.mir
        least("mul r12, r6, r7", "add r13, r12, r8", 2),
        // negative_latencies/bypass.mir
        least("vmac cm0, cm2, x2, x3, r1", "vst amll0, [p0, #0]", 5),
        least("vband x0, x2, x4", "vst wh0, [p0, #0]", 2),
        // Conversions: vlda.conv writes in stage 7 (resource/cm_wm.mir), vadd.f reads accumulators in stage 3
        // (resource/cm_rm.mir), vst.conv reads in stage 1 (the same).
        least("vlda.conv.fp32.bf16 bml0, [p0], #32", "vadd.f bml2, bml0, bml1, r0", 5),
        least("vlda.conv.fp32.bf16 bml1, [p0], #32", "vadd.f bml2, bml0, bml1, r0", 5),
        least("vlda.conv.fp32.bf16 bml1, [p0], #32", "vst.conv.bf16.fp32 bml1, [p1], #32", 7),
        least("vadd.f bml2, bml0, bml1, r0", "vst.conv.bf16.fp32 bml2, [p1], #32", 6),
        // control_regs/crRnd.mir, control_regs/crF2FMask.mir: the rounding mode is read in stage 1.
        least("mov crrnd, #12", "vst.conv.bf16.fp32 bml2, [p1], #32", 1),
        // acqrel-load-store.mir, acqrel-hb.mir, interblock/rel-store-mbb-border.mir
        least("lda r6, [p1, #4]", "acq #0, r0", 4),
        least("vlda.conv.fp32.bf16 bml0, [p0], #32", "acq #0, r0", 4),
        least("vlda wl0, [p0], #32", "rel #0, r0", 4),
        least("vldb wl0, [p0], #32", "rel #0, r0", 4),
        least("vldb wl0, [p0], m0", "rel #0, r0", 4),
        least("vlda wl0, [p0], m0", "rel #0, r0", 4),
        least("acq #0, r0", "lda r6, [p1, #4]", 4),
        least("acq #0, r0", "vlda wl0, [p0], #32", 4),
        least("acq #0, r0", "vldb wl0, [p0], #32", 4),
        least("acq #0, r0", "vlda.conv.fp32.bf16 bml0, [p0], #32", 4),
        least("st r6, [p0, #0]", "acq #0, r0", 4),
        least("acq #0, r0", "st r6, [p0, #0]", 4),
        least("vst amll0, [p0], #32", "rel #0, r0", 4),
        least("vst amll0, [p0], m2", "rel #0, r0", 4),
        least("rel #0, r0", "vst amll0, [p0], #32", 4),
        // acqrel-load-store.mir: stores that convert reach memory in stage 7, two later.
        least("vst.conv.bf16.fp32 bml2, [p1], #32", "rel #0, r0", 6),
        least("acq #0, r0", "vst.conv.bf16.fp32 bml2, [p1], #32", 2),
        // resource/semaphore.mir
        never("acq #0, r0", "acq #1, r0", 3),
        never("rel #0, r0", "rel #1, r0", 3),
        never("acq #0, r0", "rel #1, r0", 3),
        // delay_slots/ports.mir, resource/w_wa.mir
        never("lda r6, [p1, #4]", "mova r1, #1", 6),
        never("vlda wl0, [p0, #0]", "vsrs.d8.s32 wl3, cm0, s0", 3),
        never("vlda wl0, [p0], #32", "vsrs.d8.s32 wl3, cm0, s0", 3),
        never("vlda wl0, [p0, #0]", "vconv.bf16.fp32 wl3, bml0", 5),
        never("vlda wl0, [p0], m0", "vconv.bf16.fp32 wl3, bml0", 5),
        // resource/cm_wm.mir
        never("vups.s64.d32 cm8, x2, s2", "vshuffle bmh7, x0, x1, r0", 1),
        never("vups.s64.d32 cm8, x2, s2", "vconv.fp32.bf16 bml5, wl1", 1),
        never("vlda amll0, [p0, #0]", "vshuffle bmh7, x0, x1, r0", 5),
        never("vlda.conv.fp32.bf16 bml0, [p0, #0]", "vshuffle bmh7, x0, x1, r0", 5),
        never("vlda.conv.fp32.bf16 bml0, [p0], #32", "vshuffle bmh7, x0, x1, r0", 5),
        // resource/cm_wa.mir
        never("vaddmac.f bml2, bml2, bml5, x3, x4, r5", "vmul cm0, x0, x1, r0", 1),
        never("vclr bml2", "vmul cm3, x0, x1, r0", 1),
        never("vmul.f bml2, x0, x1, r0", "vclr cm4", 1),
        never("vmac.f bml2, bml2, x0, x1, r0", "vclr cm4", 1),
        never("vadd.f bml2, bml5, bmh5, r0", "vclr cm4", 1),
        // resource/cm_rm.mir
        never("vadd.f bml0, bml1, bml2, r5", "vmov cm3, cm4", 2),
        never("vadd.f bml0, bml1, bml2, r5", "vsrs.s8.s32 wl1, cm5, s0", 2),
        never("vadd.f bml0, bml3, bml2, r5", "vst.conv.bf16.fp32 bml1, [p0, #0]", 2),
        never("vadd.f bml0, bml3, bml2, r5", "vst.conv.bf16.fp32 bml1, [p0], #32", 2),
        never("vadd.f bml0, bml3, bml2, r5", "vst amll4, [p0], #32", 2),
        never("vadd.f bml0, bml3, bml2, r5", "vst amll4, [p0], m2", 2),
        // By the itineraries alone (AIE2Schedule.td: II_VCLRf, II_VCONV, II_VCMP, II_VMAX_LT, II_VSEL, II_VSHIFT).
        least("vclr bml2", "vst amll2, [p1, #0]", 6),
        least("vconv.bf16.fp32 wl3, bml0", "vst wl3, [p1, #0]", 2),
        least("vlt.s32 r20, x0, x1", "or r1, r20, r20", 2),
        least("vmax_lt.s32 x2, r20, x0, x1", "vst wl2, [p1, #0]", 2),
        least("vmax_lt.s32 x2, r20, x0, x1", "or r1, r20, r20", 2),
        least("vsel.32 x2, x0, x1, r16", "vst wl2, [p1, #0]", 2),
        least("vshift x2, x0, x1, r1", "vst wl2, [p1, #0]", 2),
        // By them alone, too: integer sums and products, shifts down and up, broadcasts.
        least("vsub cm0, cm1, cm2, r1", "vst amll0, [p0, #0]", 5),
        least("vlda amll1, [p0, #0]", "vsub cm0, cm1, cm2, r1", 5),
        least("vlda amll2, [p0, #0]", "vsub cm0, cm1, cm2, r1", 5),
        least("vlda amll2, [p0, #0]", "vmac cm0, cm2, x2, x3, r1", 5),
        least("vsrs.s16.s32 x0, cm0, s0", "vst wl0, [p0, #0]", 4),
        least("vups.s32.s16 cm0, x0, s0", "vst amll0, [p0, #0]", 3),
        least("vbcst.16 x0, r1", "vst wl0, [p0, #0]", 2),
        least("vextbcst.32 x0, x1, r1", "vst wl0, [p0, #0]", 2),
        // And the forms of loads and stores that the tests above have not beside a lock: all access memory in stage 5
        // (II_VLDA_W, II_VLDA_AM, II_VLDB, II_VST_W, II_VST_POSTINC_W, II_VST_AM).
        least("acq #0, r0", "vlda wl0, [p0, #0]", 4),
        least("acq #0, r0", "vlda amll0, [p0, #0]", 4),
        least("acq #0, r0", "vldb wl0, [p0, #0]", 4),
        least("vst wl0, [p0, #0]", "rel #0, r0", 4),
        least("vst wl0, [p0], #32", "rel #0, r0", 4),
        least("vst amll0, [p0, #0]", "rel #0, r0", 4),
        // resource/r_rv.mir
        never("vmul cm0, x0, x1, r0", "st r13, [p0, #0]", 0),
        never("vmac.f bml0, bml0, x0, x1, r0", "st r13, [p0, #0]", 0),
        never("vadd.f bml0, bml0, bml1, r0", "st r13, [p0, #0]", 0),
    ]
}

impl Distance {
    /// What is wrong with a table by this distance, if anything.
    pub fn refute(&self, isa: &Isa) -> Option<String> {
        let apart = |cycles: usize| {
            let text = match cycles {
                0 => format!("{} ; {}", self.first, self.second),
                1 => format!("{}\n{}", self.first, self.second),
                _ => format!("{}\n.nops {}\n{}", self.first, cycles - 1, self.second),
            };
            assemble(isa, "distance", &format!("{text}\n.nops 10\ndone"))
        };
        let name = format!("{} .. {}", self.first, self.second);
        let (good, bad) = match self.kind {
            Kind::Least => (vec![self.cycles], (self.cycles > 1).then(|| self.cycles - 1)),
            Kind::Never => (vec![self.cycles + 1], Some(self.cycles)),
        };
        for cycles in good {
            if let Err(errors) = apart(cycles) {
                return Some(format!("{name}, {cycles} cycles: {}", errors[0]));
            }
        }
        if let Some(cycles) = bad {
            let errors = apart(cycles).err().unwrap_or_default();
            let expected = if self.kind == Kind::Least { "1 cycle missing" } else { "takes the port" };
            if !errors.iter().any(|error| error.message.contains(expected)) {
                return Some(format!("{name}, {cycles} cycles: no error says {expected:?}: {errors:?}"));
            }
        }
        None
    }
}
