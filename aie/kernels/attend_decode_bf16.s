// Attention of one token: O = softmax(Q K) V for up to eight queries of one head of K and V, over any number of
// positions, of which a range is seen. It leaves O, the sums and the maximum in f32, unnormalised, so that parts merge.
//
// K and V come in units of 8 KiB, of 16 positions or a multiple, as the memory tile re-tiles them: of 16 positions, K has
// for each eight of the head's dimensions four tiles of 4 positions by 8, V for each four two tiles of 8 positions by 4.
// A sequence begins with a unit in K's stream that is its header: words, and from byte 64 on the queries, scaled so that a
// score is a power of two's exponent, in tiles of 8 dimensions by 4 queries, the fifth to eighth query's 2 KiB behind.
//
// Word of the header: 0 units, 1 steps of 16 positions in a unit, 2 dimensions / 16 - 1, 3 dimensions / 32 - 1, 4 the first
// position that is seen, 5 that behind the last, 6 quads of queries, 7 bytes of a step, 8 dimensions / 4 + 1, 9 parts of
// 32 bytes that the queries have, 10 the core whose it is, 11 zero; one there, attend_prefill_bf16.s has the rest. All
// cores of a column see all headers and units; each lets those of others go at once. Its own number is at INDEX.
//
// p0 to p7 point at what a piece reads and writes; r9 and r14 at a quad's O and Q, r12 and r13 at a step's K and V, r10 and
// r11 at the units'. r15 is the step's position, r16 to r19 the masks of its four tiles of scores, r28 is 1 in a
// sequence's first step. r2 and r5 count what is left of a step's quads and of a unit's steps, dn2 the
// units; dn0 and dn3 hold what r2 and r5 start with.

.const OWN = 0x70000
.const K = 0                // two units
.const V = 0x4000           // two units
.const RINGS = 0x2000       // from one unit of a ring to the other, and back
.const Q = 0x8000           // 4 KiB
.const CONSTANTS = 0xA000   // as attend_bf16.rs has them
.const INDEX = 0xA400
.const O = 0xB000           // of a quad: the maximum, the sums, O; each a tile of 4 x 4
.const O_BYTES = 66 * 64
.const O_ALL = 18432        // what is sent at a sequence's end

.const K_EMPTY = 48
.const K_FULL = 49
.const V_EMPTY = 50
.const V_FULL = 51
.const O_EMPTY = 52
.const O_FULL = 53

// Where constants lie that are not read in a row.
.const FLOOR = 128
.const K0 = 512
.const MAG = 576
.const ZERO = 960

    mova r0, #28 ; mov crrnd, #12
    mova r1, #60 ; movxm r10, #OWN + K
    mova r4, #2 ; movxm r11, #OWN + V
    mova r7, #-1
    mova r8, #1
// All of O is sent, what a sequence leaves of it too.
    movxm p1, #OWN + CONSTANTS + ZERO
    vlda wl0, [p1, #0] ; movxm p3, #OWN + O
    movxm r20, #O_ALL / 128
    .nops 6
.align 16
fresh:
    add r20, r20, #-1
    jnz r20, #fresh
    nop
    vst wl0, [p3], #32
    vst wl0, [p3], #32
    vst wl0, [p3], #32
    vst wl0, [p3], #32
    .nops 4

// A sequence: its header, and the queries behind it.
.align 16
sequence:
    acq #K_FULL, r7
    .nops 4
    movxm p3, #OWN + INDEX
    lda r27, [p3, #0] ; mov p0, r10
    lda r22, [p0, #0] ; mov p1, r10
    lda r23, [p0, #4] ; movxm p2, #OWN + Q
    lda r26, [p0, #8]
    lda r3, [p0, #12]
    lda r24, [p0, #16]
    lda r25, [p0, #20]
    lda r31, [p0, #24]
    lda r29, [p0, #28] ; mov dn2, r22
    lda r30, [p0, #32] ; mov dn3, r23
    lda r20, [p0, #36]
    lda r21, [p0, #40]
    lda r19, [p0, #44]
    padda [p1], #64
    nop
    mov dn0, r31
    .nops 4
    ne r21, r21, r27
    jnz r21, #other
    .nops 5
.align 16
queries:
    vlda wl0, [p1], #32 ; add r20, r20, #-1
    nop
    jnz r20, #queries
    .nops 4
    vst wl0, [p2], #32
    .nops 4
    rel #K_EMPTY, r8
    movxm r20, #RINGS
    xor r10, r10, r20
    mova r28, #1
    mova r15, #0
    acq #O_EMPTY, r7
    .nops 3
// O and the sums are 0, and so is the maximum.
    movxm p1, #OWN + CONSTANTS + ZERO
    vlda wl0, [p1, #0] ; movxm p3, #OWN + O
    vlda wl1, [p1, #-64] ; movxm r20, #2 * O_BYTES / 128
    .nops 6
.align 16
zeros:
    add r20, r20, #-1
    jnz r20, #zeros
    nop
    vst wl0, [p3], #32
    vst wl0, [p3], #32
    vst wl0, [p3], #32
    vst wl0, [p3], #32
    movxm p3, #OWN + O
    vst wl1, [p3, #0] ; movxm p2, #OWN + O + O_BYTES
    vst wl1, [p3, #32]
    vst wl1, [p2, #0]
    vst wl1, [p2, #32]

// A unit of K and one of V: steps of 16 positions.
.align 16
unit:
    .nops 4
    acq #K_FULL, r7
    mov r12, r10
    mov r13, r11
    mov r5, dn3
    acq #V_FULL, r7

// Whether of a step some is before the first position that is seen, or from the last on.
.align 16
step:
    mova r31, #0 ; sub r20, r24, r15
    mova r23, #16 ; sub r21, r25, r15
    lt r22, r31, r20
    lt r31, r21, r23
    or r22, r22, r31
    jnz r22, #edge
    mova r16, #0 ; movx r17, #0
    mova r18, #0 ; movx r19, #0
    movxm r9, #OWN + O
    movxm r14, #OWN + Q
    mov r2, dn0
.align 16
quad:
    mov p0, r12
    mov p1, r12
    paddb [p1], #32 ; mov p2, r14
    mov p3, r14

// Scores of 16 positions by four queries: four tiles of K by one of Q for each eight of the head's dimensions. Of two
// sets of registers one is loaded while the other is multiplied, 8 to 11 cycles behind the first load.
    vclr bml1 ; vlda wl1, [p0], #64 ; vldb wh1, [p1], #64 ; padds [p3], #32
    vclr bmh1 ; vlda wl0, [p2], #64 ; vldb wh0, [p3], #64
    vlda wl2, [p0], #64 ; vldb wh2, [p1], #64 ; movxm ls, #dims
    vlda wl3, [p0], #64 ; vldb wh3, [p1], #64 ; movxm le, #dims_end
    vlda wl4, [p0], #64 ; vldb wh4, [p1], #64 ; mov lc, r26
    vlda wl6, [p0], #64 ; vldb wh6, [p1], #64 ; mov p4, r9
    vlda wl5, [p2], #64 ; vldb wh5, [p3], #64
    vlda wl7, [p0], #64 ; vldb wh7, [p1], #64
    vmul.f bml0, x1, x0, r0 ; vlda wl8, [p0], #64 ; vldb wh8, [p1], #64
    vmul.f bmh0, x2, x0, r0 ; vlda wl9, [p0], #64 ; vldb wh9, [p1], #64
.align 16
dims:
    vmac.f bml1, bml1, x3, x0, r0 ; vlda wl1, [p0], #64 ; vldb wh1, [p1], #64
    vmac.f bmh1, bmh1, x4, x0, r0 ; vlda wl0, [p2], #64 ; vldb wh0, [p3], #64
    vlda wl2, [p0], #64 ; vldb wh2, [p1], #64
    vmac.f bml0, bml0, x6, x5, r0 ; vlda wl3, [p0], #64 ; vldb wh3, [p1], #64
    vmac.f bmh0, bmh0, x7, x5, r0 ; vlda wl4, [p0], #64 ; vldb wh4, [p1], #64
    vmac.f bml1, bml1, x8, x5, r0 ; vlda wl6, [p0], #64 ; vldb wh6, [p1], #64
    vmac.f bmh1, bmh1, x9, x5, r0 ; vlda wl5, [p2], #64 ; vldb wh5, [p3], #64
    vlda wl7, [p0], #64 ; vldb wh7, [p1], #64
    vmac.f bml0, bml0, x1, x0, r0 ; vlda wl8, [p0], #64 ; vldb wh8, [p1], #64
.align 16
dims_end:
    vmac.f bmh0, bmh0, x2, x0, r0 ; vlda wl9, [p0], #64 ; vldb wh9, [p1], #64
    vmac.f bml1, bml1, x3, x0, r0 ; vlda amll4, [p4], #32
    vmac.f bmh1, bmh1, x4, x0, r0 ; vlda amlh4, [p4], #96
    nop
    vmac.f bml0, bml0, x6, x5, r0
    vmac.f bmh0, bmh0, x7, x5, r0
    vmac.f bml1, bml1, x8, x5, r0
    vmac.f bmh1, bmh1, x9, x5, r0

// Scores less the maximum so far, as integers: 1.5 * 2^16 more leaves 128 times the score in the lower half. What is
// masked is far below all others.
    vadd.f bml0, bml0, bml4, r0 ; mov p0, r9
    vadd.f bmh0, bmh0, bml4, r0 ; movxm p1, #OWN + CONSTANTS
    vadd.f bml1, bml1, bml4, r0 ; vlda wl8, [p1], #64 ; movxm p2, #OWN + CONSTANTS + 32
    vadd.f bmh1, bmh1, bml4, r0 ; vlda wl9, [p1], #64 ; vldb wh8, [p2], #64
    vlda wl5, [p1], #64 ; vldb wh9, [p2], #64
    vlda wl6, [p1], #64 ; vldb wh5, [p2], #64
    vlda wl7, [p1], #64 ; vldb wh6, [p2], #64 ; vmov x0, bml0
    vldb wh7, [p2], #64 ; vmov x1, bmh0
    vmov x2, bml1
    vmov x3, bmh1
    vsel.32 x0, x0, x8, r16
    vsel.32 x1, x1, x8, r17
    vsel.32 x2, x2, x8, r18
    vsel.32 x3, x3, x8, r19
    vmax_lt.s32 x4, r20, x0, x1
    vmax_lt.s32 x10, r21, x2, x3
    vmax_lt.s32 x4, r20, x4, x10
    vlt.s32 r20, x9, x4
    nop
    or r20, r20, r28
// Where one is larger than the maximum by 16 or more, or at a sequence's first step, the maximum is set anew.
    jnz r20, #grow
    .nops 3
    vlda wl8, [p1], #64 ; vldb wh8, [p2], #64
    vlda wl9, [p1], #64 ; vldb wh9, [p2], #64

// 2^y of y = n + f, f in 128ths: 1 + f is a bf16 whose bits are f's with those of 1, and 2^f a polynomial of it, times 2^n
// by adding to the exponent.
.align 16
exponents:
    vlda amll4, [p0, #64] ; movxm p3, #OWN + CONSTANTS + K0
    vlda amll8, [p3, #0] ; vmax_lt.s32 x0, r20, x0, x5
    vlda amlh8, [p3, #32] ; movxm p3, #OWN + CONSTANTS + ZERO
    vldb wl11, [p3, #0] ; vmax_lt.s32 x1, r21, x1, x5
    vmax_lt.s32 x2, r22, x2, x5
    vlda wh5, [p3, #0] ; vmax_lt.s32 x3, r23, x3, x5
    vlda amlh4, [p0, #96] ; mov p6, r13
    mov p5, r13
    paddb [p5], #32 ; vshuffle x4, x0, x1, r4
    vshuffle x10, x2, x3, r4
    vband x0, x4, x6
    vlda wh4, [p3, #0] ; vband x1, x4, x7
    vbor x1, x1, x8
    vldb wl6, [p3, #0] ; vband x2, x10, x6
    vmul.f bml0, x1, x9, r1 ; vlda wl7, [p1], #64 ; vldb wh7, [p2], #64 ; vband x3, x10, x7
    vbor x3, x3, x8
    mov p7, r9
    vmul.f bml1, x3, x9, r1 ; padds [p7], #128 ; movxm ls, #tiles
    movxm le, #tiles_end
    mov lc, r3
    vconv.bf16.fp32 wl4, bml0
    vmul.f bmh0, x1, x7, r1
    vmul.f bmh1, x3, x7, r1
    vmac.f bml2, bml8, x1, x4, r1 ; vconv.bf16.fp32 wl5, bml1
    nop
    vmac.f bml3, bml8, x3, x5, r1
    nop
    vconv.bf16.fp32 wh11, bmh0
    vconv.bf16.fp32 wh6, bmh1
    vmac.f bmh2, bml8, x1, x11, r1 ; vconv.bf16.fp32 wl1, bml2
    vmac.f bmh3, bml8, x3, x6, r1
    vconv.bf16.fp32 wl3, bml3
    vlda amll0, [p4], #32 ; vldb wh9, [p5], #32
    vlda amlh0, [p4], #32 ; vldb wl7, [p5], #32
    vlda wl9, [p6], #128 ; vldb wh7, [p5], #64
    vlda amhl0, [p4], #32 ; vldb wh4, [p5], #32 ; vconv.bf16.fp32 wh1, bmh2
    vlda amhh0, [p4], #32 ; vldb wl5, [p5], #32 ; vconv.bf16.fp32 wh3, bmh3
    vlda wl4, [p6], #128 ; vldb wh5, [p5], #64 ; vadd.16 x1, x1, x0
    vlda amll1, [p4], #32 ; vldb wh6, [p5], #32 ; vadd.16 x3, x3, x2
    vlda amlh1, [p4], #32 ; vldb wl0, [p5], #32 ; vshuffle x10, x1, x1, r0
    vlda wl6, [p6], #128 ; vldb wh0, [p5], #64
    vmac.f bml0, bml0, x10, x9, r0 ; vlda amhl1, [p4], #32 ; vldb wh2, [p5], #32
    vlda amhh1, [p4], #32 ; vldb wl1, [p5], #32 ; vshuffle x11, x3, x3, r0
    vmac.f bml4, bml4, x10, x8, r0 ; vlda wl2, [p6], #128 ; vldb wh1, [p5], #64
    vmac.f bmh0, bmh0, x10, x4, r0 ; vlda amll2, [p4], #32 ; vldb wh9, [p5], #32
    vmac.f bml0, bml0, x11, x7, r0 ; vlda amlh2, [p4], #32 ; vldb wl7, [p5], #32
    vlda wl9, [p6], #128 ; vldb wh7, [p5], #64
    vmac.f bml1, bml1, x10, x6, r0 ; vlda amhl2, [p4], #32 ; vldb wh4, [p5], #32
    vmac.f bmh0, bmh0, x11, x5, r0 ; vlda amhh2, [p4], #32 ; vldb wl5, [p5], #32
    vmac.f bml4, bml4, x11, x8, r0 ; vlda wl4, [p6], #128 ; vldb wh5, [p5], #64
    vmac.f bmh1, bmh1, x10, x2, r0 ; vlda amll3, [p4], #32 ; vldb wh6, [p5], #32
    vmac.f bml1, bml1, x11, x0, r0 ; vlda amlh3, [p4], #32 ; vldb wl0, [p5], #32 ; vst amll0, [p7], #32
    vlda wl6, [p6], #128 ; vldb wh0, [p5], #64 ; vst amlh0, [p7], #32
    vmac.f bml2, bml2, x10, x9, r0 ; vlda amhl3, [p4], #32 ; vldb wh2, [p5], #32
    vmac.f bmh1, bmh1, x11, x1, r0 ; vlda amhh3, [p4], #32 ; vldb wl1, [p5], #32 ; vst amhl0, [p7], #32
    vlda wl2, [p6], #128 ; vldb wh1, [p5], #64 ; vst amhh0, [p7], #32
// O += P V, four dimensions a tile and three cycles: eight tiles a pass. A tile is loaded, multiplied 9 and 13 cycles
// later and stored 19 and 20, so what a pass does not end is done in the next one.
.align 16
tiles:
    vmac.f bmh2, bmh2, x10, x4, r0 ; vlda amll0, [p4], #32 ; vldb wh9, [p5], #32
    vmac.f bml2, bml2, x11, x7, r0 ; vlda amlh0, [p4], #32 ; vldb wl7, [p5], #32 ; vst amll1, [p7], #32
    vlda wl9, [p6], #128 ; vldb wh7, [p5], #64 ; vst amlh1, [p7], #32
    vmac.f bml3, bml3, x10, x6, r0 ; vlda amhl0, [p4], #32 ; vldb wh4, [p5], #32
    vmac.f bmh2, bmh2, x11, x5, r0 ; vlda amhh0, [p4], #32 ; vldb wl5, [p5], #32 ; vst amhl1, [p7], #32
    vlda wl4, [p6], #128 ; vldb wh5, [p5], #64 ; vst amhh1, [p7], #32
    vmac.f bmh3, bmh3, x10, x2, r0 ; vlda amll1, [p4], #32 ; vldb wh6, [p5], #32
    vmac.f bml3, bml3, x11, x0, r0 ; vlda amlh1, [p4], #32 ; vldb wl0, [p5], #32 ; vst amll2, [p7], #32
    vlda wl6, [p6], #128 ; vldb wh0, [p5], #64 ; vst amlh2, [p7], #32
    vmac.f bml0, bml0, x10, x9, r0 ; vlda amhl1, [p4], #32 ; vldb wh2, [p5], #32
    vmac.f bmh3, bmh3, x11, x1, r0 ; vlda amhh1, [p4], #32 ; vldb wl1, [p5], #32 ; vst amhl2, [p7], #32
    vlda wl2, [p6], #128 ; vldb wh1, [p5], #64 ; vst amhh2, [p7], #32
    vmac.f bmh0, bmh0, x10, x4, r0 ; vlda amll2, [p4], #32 ; vldb wh9, [p5], #32
    vmac.f bml0, bml0, x11, x7, r0 ; vlda amlh2, [p4], #32 ; vldb wl7, [p5], #32 ; vst amll3, [p7], #32
    vlda wl9, [p6], #128 ; vldb wh7, [p5], #64 ; vst amlh3, [p7], #32
    vmac.f bml1, bml1, x10, x6, r0 ; vlda amhl2, [p4], #32 ; vldb wh4, [p5], #32
    vmac.f bmh0, bmh0, x11, x5, r0 ; vlda amhh2, [p4], #32 ; vldb wl5, [p5], #32 ; vst amhl3, [p7], #32
    vlda wl4, [p6], #128 ; vldb wh5, [p5], #64 ; vst amhh3, [p7], #32
    vmac.f bmh1, bmh1, x10, x2, r0 ; vlda amll3, [p4], #32 ; vldb wh6, [p5], #32
    vmac.f bml1, bml1, x11, x0, r0 ; vlda amlh3, [p4], #32 ; vldb wl0, [p5], #32 ; vst amll0, [p7], #32
    vlda wl6, [p6], #128 ; vldb wh0, [p5], #64 ; vst amlh0, [p7], #32
    vmac.f bml2, bml2, x10, x9, r0 ; vlda amhl3, [p4], #32 ; vldb wh2, [p5], #32
    vmac.f bmh1, bmh1, x11, x1, r0 ; vlda amhh3, [p4], #32 ; vldb wl1, [p5], #32 ; vst amhl0, [p7], #32
.align 16
tiles_end:
    vlda wl2, [p6], #128 ; vldb wh1, [p5], #64 ; vst amhh0, [p7], #32
    vmac.f bmh2, bmh2, x10, x4, r0 ; vst amll4, [p0, #64]
    vmac.f bml2, bml2, x11, x7, r0 ; vst amll1, [p7], #32 ; add r2, r2, #-1
    vst amlh1, [p7], #32
    vmac.f bml3, bml3, x10, x6, r0 ; vst amlh4, [p0, #96]
    vmac.f bmh2, bmh2, x11, x5, r0 ; vst amhl1, [p7], #32
    vst amhh1, [p7], #32
    vmac.f bmh3, bmh3, x10, x2, r0
    vmac.f bml3, bml3, x11, x0, r0 ; vst amll2, [p7], #32
    vst amlh2, [p7], #32
    nop
    vmac.f bmh3, bmh3, x11, x1, r0 ; vst amhl2, [p7], #32
    vst amhh2, [p7], #32
    nop
    vst amll3, [p7], #32 ; jnz r2, #quad
    vst amlh3, [p7], #32
    movxm r9, #OWN + O + O_BYTES
    vst amhl3, [p7], #32 ; movxm r14, #OWN + Q + 2048
    vst amhh3, [p7], #32
    nop

.align 16
next_step:
    add r5, r5, #-1
    jnz r5, #step
    mova r28, #0 ; add r12, r12, r29
    add r13, r13, r29
    add r15, r15, #16
    .nops 2
    movxm r20, #RINGS
    rel #K_EMPTY, r8
    xor r10, r10, r20
    xor r11, r11, r20
    mov r20, dn2
    rel #V_EMPTY, r8
    add r20, r20, #-1
    mov dn2, r20
    jnz r20, #unit
    .nops 5
    rel #O_FULL, r8
    j #sequence
    .nops 5

// Another core's sequence: its units are let go as they come.
.align 16
other:
    jnz r19, #prefill
    .nops 5
    rel #K_EMPTY, r8
    movxm r20, #RINGS
    xor r10, r10, r20
.align 16
others_unit:
    add r22, r22, #-1
    acq #K_FULL, r7
    .nops 3
    acq #V_FULL, r7
    xor r10, r10, r20
    xor r11, r11, r20
    nop
    rel #K_EMPTY, r8
    nop
    jnz r22, #others_unit
    nop
    rel #V_EMPTY, r8
    .nops 3
    j #sequence
    .nops 5

// A step of which not all is seen, or nothing: masks of four bits a position, 1 where it is not, and rows of 0 in V.
.align 16
edge:
    ge r22, r20, r23
    lt r31, r21, r8
    or r22, r22, r31
    jnz r22, #next_step
    mova r9, #0
    mova r14, #4
    .nops 3
    add r22, r20, #0
    lt r27, r22, r9
    sel.nez r22, r9, r22, r27
    lt r27, r22, r14
    sel.nez r22, r22, r14, r27
    lshl r22, r22, r4
    lshl r22, r8, r22
    add r22, r22, #-1
    add r23, r21, #0
    lt r27, r23, r9
    sel.nez r23, r9, r23, r27
    lt r27, r23, r14
    sel.nez r23, r23, r14, r27
    lshl r23, r23, r4
    lshl r23, r8, r23
    add r23, r23, #-1
    movxm r31, #0xFFFF
    xor r23, r23, r31
    or r16, r22, r23
    add r22, r20, #-4
    lt r27, r22, r9
    sel.nez r22, r9, r22, r27
    lt r27, r22, r14
    sel.nez r22, r22, r14, r27
    lshl r22, r22, r4
    lshl r22, r8, r22
    add r22, r22, #-1
    add r23, r21, #-4
    lt r27, r23, r9
    sel.nez r23, r9, r23, r27
    lt r27, r23, r14
    sel.nez r23, r23, r14, r27
    lshl r23, r23, r4
    lshl r23, r8, r23
    add r23, r23, #-1
    movxm r31, #0xFFFF
    xor r23, r23, r31
    or r17, r22, r23
    add r22, r20, #-8
    lt r27, r22, r9
    sel.nez r22, r9, r22, r27
    lt r27, r22, r14
    sel.nez r22, r22, r14, r27
    lshl r22, r22, r4
    lshl r22, r8, r22
    add r22, r22, #-1
    add r23, r21, #-8
    lt r27, r23, r9
    sel.nez r23, r9, r23, r27
    lt r27, r23, r14
    sel.nez r23, r23, r14, r27
    lshl r23, r23, r4
    lshl r23, r8, r23
    add r23, r23, #-1
    movxm r31, #0xFFFF
    xor r23, r23, r31
    or r18, r22, r23
    add r22, r20, #-12
    lt r27, r22, r9
    sel.nez r22, r9, r22, r27
    lt r27, r22, r14
    sel.nez r22, r22, r14, r27
    lshl r22, r22, r4
    lshl r22, r8, r22
    add r22, r22, #-1
    add r23, r21, #-12
    lt r27, r23, r9
    sel.nez r23, r9, r23, r27
    lt r27, r23, r14
    sel.nez r23, r23, r14, r27
    lshl r23, r23, r4
    lshl r23, r8, r23
    add r23, r23, #-1
    movxm r31, #0xFFFF
    mova r31, #16 ; xor r23, r23, r31
    or r19, r22, r23
    lshl r22, r17, r31
    or r22, r22, r16
    lshl r23, r19, r31
    or r23, r23, r18
    movxm p1, #OWN + CONSTANTS + ZERO
    vlda wl2, [p1, #0] ; add r20, r30, #-1
    vlda wh2, [p1, #32] ; mov p1, r13
    .nops 7
.align 16
rows:
    vlda wl0, [p1, #0] ; add r20, r20, #-1
    vlda wh0, [p1, #32]
    vlda wl1, [p1, #64]
    vlda wh1, [p1, #96]
    .nops 4
    vsel.16 x0, x0, x2, r22
    nop
    vst wl0, [p1], #32 ; vsel.16 x1, x1, x2, r23
    vst wh0, [p1], #32
    jnz r20, #rows
    nop
    vst wl1, [p1], #32
    vst wh1, [p1], #32
    .nops 2
    j #quad
    movxm r9, #OWN + O
    movxm r14, #OWN + Q
    .nops 3

// The maximum of each query over the positions, in whole numbers, and not less than before but in the first step; what the
// scores, the sums and the maximum change by.
.align 16
grow:
    mova r22, #32 ; movxm p1, #OWN + CONSTANTS + MAG
    mova r23, #16 ; vshift x5, x4, x4, r22
    vlda wl8, [p1, #0] ; vmax_lt.s32 x4, r20, x4, x5
    vlda wh8, [p1, #32] ; vshift x5, x4, x4, r23
    vlda wl9, [p1, #64] ; vmax_lt.s32 x4, r20, x4, x5
    vlda wh9, [p1, #96] ; mov p2, r9
    vlda wl6, [p1, #128] ; paddb [p2], #96 ; mov p3, r9
    vlda wh6, [p1, #160] ; padds [p3], #64
    vlda wl7, [p1, #192]
    vlda wh7, [p1, #224]
    vlda wl11, [p1, #320]
    vlda wh11, [p1, #352]
    vlda wl5, [p1, #384]
    vlda wh5, [p1, #416]
    mova r22, #0
    mova r23, #18 ; sub r22, r22, r28
    .nops 2
    mova r22, #34 ; vsel.32 x10, x11, x9, r22
    vmax_lt.s32 x4, r20, x4, x10
    vlda wl6, [p0, #0] ; vband x4, x4, x6
    vlda wh6, [p0, #32] ; vsub.32 x4, x4, x11
    vsub.32 x0, x0, x4
    vsub.32 x1, x1, x4
    vsub.32 x2, x2, x4
    vsub.32 x3, x3, x4
    .nops 2
    vsub.32 x6, x6, x4
    vsub.32 x4, x5, x4
    vst wl6, [p0, #0]
    vst wh6, [p0, #32]
    vlda wl10, [p1, #256]
    vlda wh10, [p1, #288] ; mov p1, r9
    padda [p1], #64
    .nops 5
    vmax_lt.s32 x4, r20, x4, x10
    vmin_ge.s32 x4, r20, x4, x7
    vshuffle x4, x4, x4, r22
    vshuffle x4, x4, x4, r4
    vshuffle x4, x5, x4, r23
    mov r20, r30
    jnz r28, #grown
    .nops 5
// The sums and O, by adding to exponents; what would have none left is 0.
.align 16
rescale:
    vlda wl6, [p1], #64 ; vldb wh6, [p2], #64 ; add r20, r20, #-1
    .nops 6
    vband x7, x6, x8
    vband x6, x6, x9
    vadd.32 x7, x7, x4
    vmax_lt.s32 x7, r21, x7, x5
    vbor x7, x7, x6
    jnz r20, #rescale
    .nops 2
    vst wl7, [p3], #32
    vst wh7, [p3], #32
    nop
.align 16
grown:
    movxm p1, #OWN + CONSTANTS + FLOOR
    vlda wl5, [p1], #64 ; movxm p2, #OWN + CONSTANTS + FLOOR + 32
    vlda wl6, [p1], #64 ; vldb wh5, [p2], #64
    vlda wl7, [p1], #64 ; vldb wh6, [p2], #64
    vldb wh7, [p2], #64
    .nops 2
    j #exponents
    .nops 3
    vlda wl8, [p1], #64 ; vldb wh8, [p2], #64
    vlda wl9, [p1], #64 ; vldb wh9, [p2], #64
