// c = a + b: 1024 bf16 values each, summed in f32 and rounded to the nearest, ties to even.
//
// A pass of eight cycles takes four vectors of 16 values of each input, which the load widens: both come through
// the one port that can, so two cycles a vector is the rate. a is in bml0..bml3, b in bmh0..bmh3, sums in
// bml4..bml7. A sum issues six cycles behind its first load and its store seven behind that, so three passes
// overlap: what belongs to an earlier pass is marked with the number of passes ago.

.const VALUES = 1024
.const PASSES = VALUES / 64
.const A = 0x70000          // 2 KiB
.const B = 0x74000          // 2 KiB
.const C = 0x78000          // 2 KiB

// The tile's own locks, as the core numbers them: an acquire of -1 waits for 1 and takes it, a release of 1 gives
// it back.
.const A_EMPTY = 48
.const A_FULL = 49
.const B_EMPTY = 50
.const B_FULL = 51
.const C_EMPTY = 52
.const C_FULL = 53

.const EVEN = 12            // rounding mode
.const SUM = 28             // configuration

again:
    movxm r7, #-1
    acq #A_FULL, r7
    movxm p0, #A
    movxm p1, #B
    movxm p2, #C
    acq #B_FULL, r7
    movxm ls, #pass
    movxm le, #pass_end
    mova lc, #PASSES - 2
    acq #C_EMPTY, r7
    mov crrnd, #EVEN
    mova r0, #SUM
    nop

// First and second pass, which have no earlier ones.
    vlda.conv.fp32.bf16 bml0, [p0], #32
    vlda.conv.fp32.bf16 bmh0, [p1], #32
    vlda.conv.fp32.bf16 bml1, [p0], #32
    vlda.conv.fp32.bf16 bmh1, [p1], #32
    vlda.conv.fp32.bf16 bml2, [p0], #32
    vlda.conv.fp32.bf16 bmh2, [p1], #32
    vlda.conv.fp32.bf16 bml3, [p0], #32    ; vadd.f bml4, bml0, bmh0, r0
    vlda.conv.fp32.bf16 bmh3, [p1], #32
    vlda.conv.fp32.bf16 bml0, [p0], #32    ; vadd.f bml5, bml1, bmh1, r0            // 1 ago
    vlda.conv.fp32.bf16 bmh0, [p1], #32
    vlda.conv.fp32.bf16 bml1, [p0], #32    ; vadd.f bml6, bml2, bmh2, r0            // 1 ago
    vlda.conv.fp32.bf16 bmh1, [p1], #32
    vlda.conv.fp32.bf16 bml2, [p0], #32    ; vadd.f bml7, bml3, bmh3, r0            // 1 ago
    vlda.conv.fp32.bf16 bmh2, [p1], #32    ; vst.conv.bf16.fp32 bml4, [p2], #32     // 1 ago
    vlda.conv.fp32.bf16 bml3, [p0], #32    ; vadd.f bml4, bml0, bmh0, r0
    vlda.conv.fp32.bf16 bmh3, [p1], #32    ; vst.conv.bf16.fp32 bml5, [p2], #32     // 1 ago

.align 16
pass:
    vlda.conv.fp32.bf16 bml0, [p0], #32    ; vadd.f bml5, bml1, bmh1, r0            // 1 ago
    vlda.conv.fp32.bf16 bmh0, [p1], #32    ; vst.conv.bf16.fp32 bml6, [p2], #32     // 2 ago
    vlda.conv.fp32.bf16 bml1, [p0], #32    ; vadd.f bml6, bml2, bmh2, r0            // 1 ago
    vlda.conv.fp32.bf16 bmh1, [p1], #32    ; vst.conv.bf16.fp32 bml7, [p2], #32     // 2 ago
    vlda.conv.fp32.bf16 bml2, [p0], #32    ; vadd.f bml7, bml3, bmh3, r0            // 1 ago
    vlda.conv.fp32.bf16 bmh2, [p1], #32    ; vst.conv.bf16.fp32 bml4, [p2], #32     // 1 ago
    vlda.conv.fp32.bf16 bml3, [p0], #32    ; vadd.f bml4, bml0, bmh0, r0
.align 16
pass_end:
    vlda.conv.fp32.bf16 bmh3, [p1], #32    ; vst.conv.bf16.fp32 bml5, [p2], #32     // 1 ago

// What the last two passes leave.
    vadd.f bml5, bml1, bmh1, r0                                                     // 1 ago
    vst.conv.bf16.fp32 bml6, [p2], #32                                              // 2 ago
    vadd.f bml6, bml2, bmh2, r0                                                     // 1 ago
    vst.conv.bf16.fp32 bml7, [p2], #32                                              // 2 ago
    vadd.f bml7, bml3, bmh3, r0                                                     // 1 ago
    vst.conv.bf16.fp32 bml4, [p2], #32                                              // 1 ago
    nop
    vst.conv.bf16.fp32 bml5, [p2], #32                                              // 1 ago
    nop
    vst.conv.bf16.fp32 bml6, [p2], #32
    nop
    vst.conv.bf16.fp32 bml7, [p2], #32

    .nops 4
    movx r8, #1
    rel #A_EMPTY, r8
    .nops 3
    rel #B_EMPTY, r8
    j #again
    .nops 2
    rel #C_FULL, r8
    .nops 2
