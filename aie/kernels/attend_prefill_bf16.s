// Attention of many tokens: O = softmax(Q K) V for the queries of up to 4,096 / D rows a core, D the head's dimensions, of
// one head of K and V. The four cores of a column have rows of their own and the same units of K and V. What is left is as
// in attend_decode_bf16.s, whose program this is the second part of: of each quad of queries the maximum, the sums and O.
//
// K's stream begins with a unit of parameters and the queries of cores 0 and 1, a unit each, V's with those of cores 2
// and 3. Words of the parameters: 0 units, 1 steps of 16 positions in a unit, 2 dimensions / 16, 3 dimensions / 16 - 1,
// 6 blocks of 16 rows, 7 bytes of a step, 8 bytes of a quad's part of O, 10 no core's number, 11 one. From byte 64 on 256
// bytes of each core: the first position that any of its rows sees, that behind the last, the last of the first ones, the
// first of the ends, and where its token 0 ends and begins to see; from byte 64 of it on the tokens of its rows. Queries
// are scaled as for decode, for each 16 rows and eight dimensions four tiles of 8 by 4.
//
// Of a step and 16 rows: scores in sixteen accumulators; less the maximum, in 128ths, with the bits of 2^0, as signed
// halves of words; those are a bf16's bits but for the curve of 2^f, which is a product of three integers; and O += P V,
// four dimensions at a time. A maximum is 16 above the scores that it comes from. Where a weight is 1 or more all scores
// are made again in whole numbers, for a new maximum; O and the sums are scaled; and the step is done anew.
//
// r24 and r25 are the positions that the core sees, r28 and dn4 those that all its rows see. r15 is the step's position,
// r12 and r13 its K and V, r14 and r9 the rows' Q and O, r2 and r5 count rows and steps, dn2 units. dj1 says whether the
// step is an edge, dn1 whether scores are whole, dn5 whether weights are looked at; r22 and r23 point at the maximum and
// at what is taken from scores' bits.

.const FINE = 0xA440
.const COARSE = 0xA480
.const CURVE = 0xA4C0
.const IOTA = 0xA600
.const UNSEEN = 0xA640
.const FIRST = 0xA680
.const PEAK = 0xA6C0
.const TOKENS = 0xF800
.const MAXIMA = 0xF880
.const LIMITS = 0xF980

// The parameters, and what follows from them.
.align 16
prefill:
    mova r16, #8 ; mov dj3, r27
    mova r31, #0 ; lshl r27, r27, r16 ; mov s0, #0
    mova r16, #32 ; add r27, r27, r10 ; mov s1, #4
    sub r17, r30, r16 ; mov p1, r27
    padda [p1], #64 ; mov m1, r17
    vlda wl4, [p1, #0] ; mov m3, r17
    vlda wl0, [p1, #64] ; movxm p3, #OWN + LIMITS
    vlda wl1, [p1, #96] ; movxm p2, #OWN + TOKENS
    vlda wl2, [p1, #128] ; movxm m0, #256
    vlda wl3, [p1, #160] ; movxm dj2, #OWN + O
    mova r16, #3 ; movxm dj4, #OWN + Q
    lda r24, [p1, #0] ; mul r17, r30, r16 ; mov s2, #14
    mova r16, #32 ; vst wl4, [p3, #0] ; mov s3, #7
    lda r25, [p1, #4] ; vst wl0, [p2, #0] ; sub r17, r16, r17 ; mov crsat, #1
    mova r16, #2 ; vst wl1, [p2, #32] ; mov m2, r17
    lda r28, [p1, #8] ; vst wl2, [p2, #64] ; lshl r17, r30, r16 ; mov dn1, r31
    lda dn4, [p1, #12] ; vst wl3, [p2, #96] ; mov dj0, r17
    movxm r30, #824
    mov dj1, r31
    movxm r23, #OWN + FINE
    .nops 4
    rel #K_EMPTY, r8
    movxm r20, #RINGS
    xor r10, r10, r20
// The four cores' queries: two units by K's stream, two by V's.
    mova r16, #0
    .nops 4
.align 16
by_k:
    acq #K_FULL, r7
    mov r17, dj3
    ne r17, r17, r16
    jnz r17, #not_by_k
    mov p0, r10
    movxm p1, #OWN + Q
    .nops 3
    mova r18, #64
.align 16
take_by_k:
    vlda wl0, [p0], #32
    vlda wl1, [p0], #32
    vlda wl2, [p0], #32
    vlda wl3, [p0], #32
    add r18, r18, #-1
    jnz r18, #take_by_k
    nop
    vst wl0, [p1], #32
    vst wl1, [p1], #32
    vst wl2, [p1], #32
    vst wl3, [p1], #32
    .nops 4
.align 16
not_by_k:
    .nops 4
    rel #K_EMPTY, r8
    add r16, r16, #1
    xor r10, r10, r20
    mova r18, #2
    ne r18, r18, r16
    jnz r18, #by_k
    .nops 5
.align 16
by_v:
    acq #V_FULL, r7
    mov r17, dj3
    ne r17, r17, r16
    jnz r17, #not_by_v
    mov p0, r11
    movxm p1, #OWN + Q
    .nops 3
    mova r18, #64
.align 16
take_by_v:
    vlda wl0, [p0], #32
    vlda wl1, [p0], #32
    vlda wl2, [p0], #32
    vlda wl3, [p0], #32
    add r18, r18, #-1
    jnz r18, #take_by_v
    nop
    vst wl0, [p1], #32
    vst wl1, [p1], #32
    vst wl2, [p1], #32
    vst wl3, [p1], #32
    .nops 4
.align 16
not_by_v:
    .nops 4
    rel #V_EMPTY, r8
    add r16, r16, #1
    xor r11, r11, r20
    mova r18, #4
    ne r18, r18, r16
    jnz r18, #by_v
    .nops 5
    acq #O_EMPTY, r7
    .nops 3
// O and the sums are 0, and the maximum is below all scores.
    mova r15, #0 ; movxm p0, #OWN + CONSTANTS + ZERO
    vlda wl0, [p0, #0] ; movxm p1, #OWN + O
    movxm p0, #OWN + FIRST
    vlda wl1, [p0, #0] ; mov r17, m1
    .nops 6
    movxm r18, #O_ALL / 192
.align 16
clear:
    vst wl0, [p1], #32 ; add r18, r18, #-1
    jnz r18, #clear
    vst wl0, [p1], #32
    vst wl0, [p1], #32
    vst wl0, [p1], #32
    vst wl0, [p1], #32
    vst wl0, [p1], #32
    movxm p1, #OWN + O
    mova r18, #2
    mov r17, dn0
    lshl r18, r17, r18
.align 16
clear_maxima:
    add r18, r18, #-1
    jnz r18, #clear_maxima
    vst wl1, [p1], #32
    vst wl1, [p1], m1
    .nops 3

// A unit of K and one of V.
.align 16
pre_unit:
    .nops 4
    acq #K_FULL, r7
    mov r12, r10
    mov r13, r11
    mov r5, dn3
    acq #V_FULL, r7
    .nops 2

// Whether a step is seen by none of the rows, or not by all.
.align 16
pre_step:
    mova r16, #16 ; sub r20, r24, r15 ; mov r2, dn0
    sub r21, r25, r15 ; mov dn5, r8
    ge r22, r20, r16
    lt r17, r21, r8
    or r22, r22, r17
    sub r18, r28, r15 ; mov r17, dn4
    sub r19, r17, r15
    lt r6, r31, r18
    lt r17, r19, r16
    mova r16, #-4 ; or r6, r6, r17
    lshl r17, r19, r16 ; mov dj1, r6
    lt r27, r17, r5
    sel.nez r17, r17, r5, r27
    mov r27, r6
    jnz r22, #pre_skip
    sel.nez r17, r8, r17, r27
    mul r17, r17, r2
    movxm r9, #OWN + O
    movxm r14, #OWN + Q
    mov dn6, r17
    jnz r6, #pre_edge
    add r22, r9, #0
    .nops 4

// Scores of 16 positions by 16 queries.
.align 16
pre_block:
    mova r20, #29 ; mov p3, r14
    padds [p3], #32 ; mov p1, r12
    padda [p1], #32 ; vldb wh4, [p3], #64 ; mov p2, r14
    vlda wl4, [p2], #64 ; vldb wh0, [p1], m0 ; mov p0, r12
    vlda wl0, [p0], #256 ; vldb wh5, [p3], #64 ; mov p7, r22
    vlda wl5, [p2], #64 ; vldb wh6, [p3], #64 ; movxm ls, #scores
    vlda wl6, [p2], #64 ; vldb wh7, [p3], #64 ; movxm le, #scores_end
    vlda wl7, [p2], #64 ; vldb wh8, [p3], #64 ; mov lc, r26
    vlda wl8, [p2], #64 ; vldb wh1, [p1], #-192
    vlda wl1, [p0], #-192 ; vldb wh9, [p3], #64
    vlda wl9, [p2], #64 ; vldb wh10, [p3], #64
    vlda wl10, [p2], #64 ; vldb wh11, [p3], #64
    vlda wl11, [p2], #64
    vlda amll8, [p7], #32
    vlda amlh8, [p7], m3
    vlda amhl8, [p7], #32
    vlda amhh8, [p7], m3
.align 16
scores:
    vmac.f bml0, bml0, x0, x4, r20
    vmac.f bml2, bml2, x0, x5, r20 ; vlda wl2, [p0], #256 ; vldb wh2, [p1], m0
    vmac.f bml4, bml4, x0, x6, r20
    vmac.f bml6, bml6, x0, x7, r20
    vmac.f bml0, bml0, x1, x8, r0 ; vlda wl3, [p0], #-192 ; vldb wh3, [p1], #-192
    vmac.f bml2, bml2, x1, x9, r0
    vmac.f bml4, bml4, x1, x10, r0
    vmac.f bml6, bml6, x1, x11, r0
    vmac.f bmh0, bmh0, x2, x4, r20 ; vlda wl0, [p0], #256 ; vldb wh0, [p1], m0
    vmac.f bmh2, bmh2, x2, x5, r20
    vmac.f bmh4, bmh4, x2, x6, r20
    vmac.f bmh6, bmh6, x2, x7, r20
    vmac.f bmh0, bmh0, x3, x8, r0 ; vlda wl1, [p0], #-192 ; vldb wh1, [p1], #-192
    vmac.f bmh2, bmh2, x3, x9, r0
    vmac.f bmh4, bmh4, x3, x10, r0
    vmac.f bmh6, bmh6, x3, x11, r0 ; vlda wl2, [p0], #256 ; vldb wh2, [p1], m0
    vmac.f bml1, bml1, x0, x4, r20
    vmac.f bml3, bml3, x0, x5, r20
    vmac.f bml5, bml5, x0, x6, r20 ; vlda wl3, [p0], #64 ; vldb wh3, [p1], #64
    vmac.f bml7, bml7, x0, x7, r20
    vmac.f bml1, bml1, x1, x8, r0
    vmac.f bml3, bml3, x1, x9, r0 ; vlda wl0, [p0], #256 ; vldb wh0, [p1], m0
    vmac.f bml5, bml5, x1, x10, r0
    vmac.f bml7, bml7, x1, x11, r0 ; vlda wl1, [p0], #-192 ; vldb wh1, [p1], #-192
    vmac.f bmh1, bmh1, x2, x4, r20 ; vlda wl4, [p2], #64 ; vldb wh4, [p3], #64
    vmac.f bmh3, bmh3, x2, x5, r20 ; vlda wl5, [p2], #64 ; vldb wh5, [p3], #64
    vmac.f bmh5, bmh5, x2, x6, r20 ; vlda wl6, [p2], #64 ; vldb wh6, [p3], #64
    vmac.f bmh7, bmh7, x2, x7, r20 ; vlda wl7, [p2], #64 ; vldb wh7, [p3], #64
    vmac.f bmh1, bmh1, x3, x8, r0 ; vlda wl8, [p2], #64 ; vldb wh8, [p3], #64 ; movx r20, #28
    vmac.f bmh3, bmh3, x3, x9, r0 ; vlda wl9, [p2], #64 ; vldb wh9, [p3], #64
    vmac.f bmh5, bmh5, x3, x10, r0 ; vlda wl10, [p2], #64 ; vldb wh10, [p3], #64
.align 16
scores_end:
    vmac.f bmh7, bmh7, x3, x11, r0 ; vlda wl11, [p2], #64 ; vldb wh11, [p3], #64
    vadd.f bml0, bml0, bml8, r0
    vadd.f bmh0, bmh0, bml8, r0
    vadd.f bml1, bml1, bml8, r0
    vadd.f bmh1, bmh1, bml8, r0
    vadd.f bml2, bml2, bmh8, r0 ; vlda amll8, [p7], #32
    vadd.f bmh2, bmh2, bmh8, r0 ; vlda amlh8, [p7], m3
    vadd.f bml3, bml3, bmh8, r0
    vadd.f bmh3, bmh3, bmh8, r0
    vlda amhl8, [p7], #32
    vlda amhh8, [p7], m3
    vadd.f bml4, bml4, bml8, r0 ; mov p7, r23
    vadd.f bmh4, bmh4, bml8, r0
    vadd.f bml5, bml5, bml8, r0
    vadd.f bmh5, bmh5, bml8, r0
    vadd.f bml6, bml6, bmh8, r0 ; vlda amll8, [p7, #0]
    vadd.f bmh6, bmh6, bmh8, r0 ; vlda amlh8, [p7, #0]
    vadd.f bml7, bml7, bmh8, r0
    vadd.f bmh7, bmh7, bmh8, r0
    vlda amhl8, [p7, #0]
    vlda amhh8, [p7, #0]
    .nops 4
    vsub cm0, cm0, cm8, r31
    vsub cm2, cm2, cm8, r31
    vsub cm4, cm4, cm8, r31 ; jnz r6, #special
    vsub cm6, cm6, cm8, r31
    vsub cm1, cm1, cm8, r31
    vsub cm3, cm3, cm8, r31
    vsub cm5, cm5, cm8, r31
    vsub cm7, cm7, cm8, r31
// 2^score
.align 16
weights:
    movxm p7, #OWN + CURVE
    vlda wl9, [p7, #64] ; mov p4, r9
    vlda wh9, [p7, #96] ; vsrs.s16.s32 x0, cm0, s0 ; mov p6, r13
    vlda wl10, [p7, #128] ; vsrs.s16.s32 x2, cm2, s0 ; mov p0, r9
    vlda wh10, [p7, #160] ; mov p5, r9
    vlda amll8, [p7, #0] ; padds [p5], #128 ; mov p1, r9
    vlda amlh8, [p7, #0] ; padds [p1], #64 ; movxm ls, #values
    vlda amhl8, [p7, #0] ; movxm le, #values_end
    vlda amhh8, [p7, #0] ; vsrs.s16.s32 x6, cm6, s0 ; mov lc, r3
    padda [p4], #128 ; vsrs.s16.s32 x4, cm4, s0 ; vmax_lt.s16 x0, r16, x0, x9
    padda [p0], #64 ; vsrs.s16.s32 x1, cm1, s0 ; vband x8, x0, x9
    vsrs.s16.s32 x3, cm3, s0 ; vmax_lt.s16 x2, r17, x2, x9
    vmax_lt.s16 x6, r17, x6, x9
    vmac cm0, cm8, x8, x10, r30 ; vmax_lt.s16 x4, r16, x4, x9
    vband x5, x6, x9
    vband x7, x4, x9
    vmac cm0, cm0, x8, x8, r30 ; vband x11, x2, x9
    vmac cm6, cm8, x5, x10, r30 ; vmax_lt.s16 x1, r16, x1, x9
    vmac cm4, cm8, x7, x10, r30 ; vmax_lt.s16 x3, r17, x3, x9
    vmac cm2, cm8, x11, x10, r30
    vmac cm6, cm6, x5, x5, r30
    vmac cm4, cm4, x7, x7, r30 ; vups.s32.s16 cm0, x0, s2 ; vsrs.s16.s32 x0, cm0, s1
    vmac cm2, cm2, x11, x11, r30
    .nops 2
    vmac cm0, cm0, x8, x0, r30 ; vups.s32.s16 cm6, x6, s2 ; vsrs.s16.s32 x6, cm6, s1
    vband x8, x1, x9
    vups.s32.s16 cm4, x4, s2 ; vsrs.s16.s32 x4, cm4, s1
    vmac cm1, cm8, x8, x10, r30 ; vups.s32.s16 cm2, x2, s2 ; vsrs.s16.s32 x2, cm2, s1
    vmac cm6, cm6, x5, x6, r30
    vsrs.s16.s32 x5, cm5, s0
    vmac cm1, cm1, x8, x8, r30 ; vsrs.s16.s32 x0, cm0, s2
    vmac cm4, cm4, x7, x4, r30
    vmac cm2, cm2, x11, x2, r30 ; vsrs.s16.s32 x7, cm7, s0
    vsrs.s16.s32 x6, cm6, s2 ; vband x11, x3, x9
    vmax_lt.s16 x5, r16, x5, x9
    vmac cm3, cm8, x11, x10, r30 ; vups.s32.s16 cm1, x1, s2 ; vsrs.s16.s32 x1, cm1, s1
    vsrs.s16.s32 x4, cm4, s2 ; vmax_lt.s16 x7, r17, x7, x9
    vsrs.s16.s32 x2, cm2, s2 ; vshuffle bmh0, x0, x0, r0
    vmac cm3, cm3, x11, x11, r30 ; vband x0, x5, x9
    vmac cm1, cm1, x8, x1, r30 ; vshuffle x6, x6, x6, r0
    vmac cm5, cm8, x0, x10, r30 ; vband x8, x7, x9
    vlda wl9, [p7, #-896] ; vshuffle x4, x4, x4, r0
    vmac cm7, cm8, x8, x10, r30 ; vlda wh9, [p7, #-864] ; vshuffle x2, x2, x2, r0
    vmac cm5, cm5, x0, x0, r30 ; vldb wl10, [p6], #32 ; vups.s32.s16 cm3, x3, s2 ; vsrs.s16.s32 x3, cm3, s1
    vldb wh10, [p6], #32 ; mov r17, dn5
    vmac cm7, cm7, x8, x8, r30
    vsrs.s16.s32 x1, cm1, s2
    vmac cm3, cm3, x11, x3, r30
    vups.s32.s16 cm5, x5, s2 ; vsrs.s16.s32 x5, cm5, s1
    vmul.f bmh1, x2, x9, r0 ; vmax_lt.s16 x11, r18, x4, x6
    vups.s32.s16 cm7, x7, s2 ; vsrs.s16.s32 x7, cm7, s1
    nop
    vmac cm5, cm5, x0, x5, r30 ; vsrs.s16.s32 x3, cm3, s2 ; vshuffle x1, x1, x1, r0
    vmul.f bml3, x4, x9, r0 ; vmov x0, bmh0
    vmul.f bmh3, x6, x9, r0 ; vmax_lt.s16 x11, r18, x11, x1
    vmul.f bml1, x0, x9, r0 ; vmax_lt.s16 x11, r18, x11, x0
    vshuffle x3, x3, x3, r0
    vmac cm7, cm7, x8, x7, r30 ; vsrs.s16.s32 x5, cm5, s2 ; vmax_lt.s16 x11, r18, x11, x2
    vmac.f bmh1, bmh1, x3, x9, r0 ; vlda amll5, [p0], #32 ; vldb wl8, [p6], #32 ; vmax_lt.s16 x11, r18, x11, x3
    vmac.f bml1, bml1, x1, x9, r0 ; vlda amlh5, [p0], m1 ; vldb wh8, [p6], #32
    vlda amhl5, [p0], #32
    vlda amhh5, [p0], m1 ; vshuffle x5, x5, x5, r0
    vsrs.s16.s32 x7, cm7, s2 ; vmax_lt.s16 x11, r18, x11, x5
    vmac.f bml3, bml3, x5, x9, r0 ; vlda amll7, [p0], #32
    vadd.f bml5, bml5, bml1, r0 ; vlda amlh7, [p0], m1
    vlda amhl7, [p0], #32
    vadd.f bmh5, bmh5, bmh1, r0 ; vlda amhh7, [p0], m1
    vshuffle x7, x7, x7, r0
    vlda amll2, [p4], #32 ; vmax_lt.s16 x11, r18, x11, x7
    vmac.f bmh3, bmh3, x7, x9, r0 ; vlda amlh2, [p4], m1 ; vge.s16 r16, x11, x9
    vadd.f bml7, bml7, bml3, r0 ; vlda amhl2, [p4], #32
    vlda amhh2, [p4], m1 ; nez r16, r16
    vlda amll4, [p4], #32 ; and r16, r16, r17
    vadd.f bmh7, bmh7, bmh3, r0 ; vlda amlh4, [p4], m1 ; jnz r16, #regrow
    vlda amhl4, [p4], #32
    vlda amhh4, [p4], m2
    vlda amll6, [p4], #32
    vmac.f bml2, bml2, x0, x10, r0 ; vlda amlh6, [p4], m1 ; vldb wl9, [p6], #32
    vmac.f bmh2, bmh2, x2, x10, r0 ; vlda amhl6, [p4], #32 ; vldb wh9, [p6], #32
    vmac.f bml4, bml4, x4, x10, r0 ; vlda amhh6, [p4], m1 ; vst amll5, [p1], #32
    vmac.f bmh4, bmh4, x6, x10, r0 ; vlda amll0, [p4], #32 ; vst amlh5, [p1], m1
    vmac.f bml2, bml2, x1, x8, r0 ; vlda amlh0, [p4], m1 ; vldb wl11, [p6], #32 ; vst amhl5, [p1], #32
    vmac.f bmh2, bmh2, x3, x8, r0 ; vlda amhl0, [p4], #32 ; vldb wh11, [p6], #32 ; vst amhh5, [p1], m1
    vmac.f bml4, bml4, x5, x8, r0 ; vlda amhh0, [p4], m2 ; vst amll7, [p1], #32
    vmac.f bmh4, bmh4, x7, x8, r0 ; vlda amll1, [p4], #32 ; vst amlh7, [p1], m1
    vmac.f bml6, bml6, x0, x9, r0 ; vlda amlh1, [p4], m1 ; vldb wl10, [p6], #32 ; vst amhl7, [p1], #32
    vmac.f bmh6, bmh6, x2, x9, r0 ; vlda amhl1, [p4], #32 ; vldb wh10, [p6], #32 ; vst amhh7, [p1], m1
    vmac.f bml0, bml0, x4, x9, r0 ; vlda amhh1, [p4], m1 ; vst amll2, [p5], #32
    vmac.f bmh0, bmh0, x6, x9, r0 ; vlda amll3, [p4], #32 ; vst amlh2, [p5], m1
    vmac.f bml6, bml6, x1, x11, r0 ; vlda amlh3, [p4], m1 ; vldb wl8, [p6], #32 ; vst amhl2, [p5], #32
    vmac.f bmh6, bmh6, x3, x11, r0 ; vlda amhl3, [p4], #32 ; vldb wh8, [p6], #32 ; vst amhh2, [p5], m1
    vmac.f bml0, bml0, x5, x11, r0 ; vlda amhh3, [p4], m2 ; vst amll4, [p5], #32
    vmac.f bmh0, bmh0, x7, x11, r0 ; vlda amll5, [p4], #32 ; vst amlh4, [p5], m1
    vmac.f bml1, bml1, x0, x10, r0 ; vlda amlh5, [p4], m1 ; vldb wl9, [p6], #32 ; vst amhl4, [p5], #32
    vmac.f bmh1, bmh1, x2, x10, r0 ; vlda amhl5, [p4], #32 ; vldb wh9, [p6], #32 ; vst amhh4, [p5], m2
    vmac.f bml3, bml3, x4, x10, r0 ; vlda amhh5, [p4], m1 ; vst amll6, [p5], #32
    vmac.f bmh3, bmh3, x6, x10, r0 ; vlda amll7, [p4], #32 ; vst amlh6, [p5], m1
    vmac.f bml1, bml1, x1, x8, r0 ; vlda amlh7, [p4], m1 ; vldb wl11, [p6], #32 ; vst amhl6, [p5], #32
    vmac.f bmh1, bmh1, x3, x8, r0 ; vlda amhl7, [p4], #32 ; vldb wh11, [p6], #32 ; vst amhh6, [p5], m1
    vmac.f bml3, bml3, x5, x8, r0 ; vlda amhh7, [p4], m2 ; vst amll0, [p5], #32
    vmac.f bmh3, bmh3, x7, x8, r0 ; vlda amll2, [p4], #32 ; vst amlh0, [p5], m1
    vmac.f bml5, bml5, x0, x9, r0 ; vlda amlh2, [p4], m1 ; vldb wl10, [p6], #32 ; vst amhl0, [p5], #32
    vmac.f bmh5, bmh5, x2, x9, r0 ; vlda amhl2, [p4], #32 ; vldb wh10, [p6], #32 ; vst amhh0, [p5], m2
.align 16
values:
    vmac.f bml7, bml7, x4, x9, r0 ; vlda amhh2, [p4], m1 ; vst amll1, [p5], #32
    vmac.f bmh7, bmh7, x6, x9, r0 ; vlda amll4, [p4], #32 ; vst amlh1, [p5], m1
    vmac.f bml5, bml5, x1, x11, r0 ; vlda amlh4, [p4], m1 ; vldb wl8, [p6], #32 ; vst amhl1, [p5], #32
    vmac.f bmh5, bmh5, x3, x11, r0 ; vlda amhl4, [p4], #32 ; vldb wh8, [p6], #32 ; vst amhh1, [p5], m1
    vmac.f bml7, bml7, x5, x11, r0 ; vlda amhh4, [p4], m2 ; vst amll3, [p5], #32
    vmac.f bmh7, bmh7, x7, x11, r0 ; vlda amll6, [p4], #32 ; vst amlh3, [p5], m1
    vmac.f bml2, bml2, x0, x10, r0 ; vlda amlh6, [p4], m1 ; vldb wl9, [p6], #32 ; vst amhl3, [p5], #32
    vmac.f bmh2, bmh2, x2, x10, r0 ; vlda amhl6, [p4], #32 ; vldb wh9, [p6], #32 ; vst amhh3, [p5], m2
    vmac.f bml4, bml4, x4, x10, r0 ; vlda amhh6, [p4], m1 ; vst amll5, [p5], #32
    vmac.f bmh4, bmh4, x6, x10, r0 ; vlda amll0, [p4], #32 ; vst amlh5, [p5], m1
    vmac.f bml2, bml2, x1, x8, r0 ; vlda amlh0, [p4], m1 ; vldb wl11, [p6], #32 ; vst amhl5, [p5], #32
    vmac.f bmh2, bmh2, x3, x8, r0 ; vlda amhl0, [p4], #32 ; vldb wh11, [p6], #32 ; vst amhh5, [p5], m1
    vmac.f bml4, bml4, x5, x8, r0 ; vlda amhh0, [p4], m2 ; vst amll7, [p5], #32
    vmac.f bmh4, bmh4, x7, x8, r0 ; vlda amll1, [p4], #32 ; vst amlh7, [p5], m1
    vmac.f bml6, bml6, x0, x9, r0 ; vlda amlh1, [p4], m1 ; vldb wl10, [p6], #32 ; vst amhl7, [p5], #32
    vmac.f bmh6, bmh6, x2, x9, r0 ; vlda amhl1, [p4], #32 ; vldb wh10, [p6], #32 ; vst amhh7, [p5], m2
    vmac.f bml0, bml0, x4, x9, r0 ; vlda amhh1, [p4], m1 ; vst amll2, [p5], #32
    vmac.f bmh0, bmh0, x6, x9, r0 ; vlda amll3, [p4], #32 ; vst amlh2, [p5], m1
    vmac.f bml6, bml6, x1, x11, r0 ; vlda amlh3, [p4], m1 ; vldb wl8, [p6], #32 ; vst amhl2, [p5], #32
    vmac.f bmh6, bmh6, x3, x11, r0 ; vlda amhl3, [p4], #32 ; vldb wh8, [p6], #32 ; vst amhh2, [p5], m1
    vmac.f bml0, bml0, x5, x11, r0 ; vlda amhh3, [p4], m2 ; vst amll4, [p5], #32
    vmac.f bmh0, bmh0, x7, x11, r0 ; vlda amll5, [p4], #32 ; vst amlh4, [p5], m1
    vmac.f bml1, bml1, x0, x10, r0 ; vlda amlh5, [p4], m1 ; vldb wl9, [p6], #32 ; vst amhl4, [p5], #32
    vmac.f bmh1, bmh1, x2, x10, r0 ; vlda amhl5, [p4], #32 ; vldb wh9, [p6], #32 ; vst amhh4, [p5], m2
    vmac.f bml3, bml3, x4, x10, r0 ; vlda amhh5, [p4], m1 ; vst amll6, [p5], #32
    vmac.f bmh3, bmh3, x6, x10, r0 ; vlda amll7, [p4], #32 ; vst amlh6, [p5], m1
    vmac.f bml1, bml1, x1, x8, r0 ; vlda amlh7, [p4], m1 ; vldb wl11, [p6], #32 ; vst amhl6, [p5], #32
    vmac.f bmh1, bmh1, x3, x8, r0 ; vlda amhl7, [p4], #32 ; vldb wh11, [p6], #32 ; vst amhh6, [p5], m1
    vmac.f bml3, bml3, x5, x8, r0 ; vlda amhh7, [p4], m2 ; vst amll0, [p5], #32
    vmac.f bmh3, bmh3, x7, x8, r0 ; vlda amll2, [p4], #32 ; vst amlh0, [p5], m1
    vmac.f bml5, bml5, x0, x9, r0 ; vlda amlh2, [p4], m1 ; vldb wl10, [p6], #32 ; vst amhl0, [p5], #32
.align 16
values_end:
    vmac.f bmh5, bmh5, x2, x9, r0 ; vlda amhl2, [p4], #32 ; vldb wh10, [p6], #32 ; vst amhh0, [p5], m2
    vmac.f bml7, bml7, x4, x9, r0 ; mova r20, #29 ; vst amll1, [p5], #32 ; add r2, r2, #-1 ; mov r16, dj0
    vmac.f bmh7, bmh7, x6, x9, r0 ; vst amlh1, [p5], m1 ; add r27, r2, #0 ; mov r21, dn6
    vmac.f bml5, bml5, x1, x11, r0 ; vst amhl1, [p5], #32 ; add r9, r9, r16 ; mov r18, dj4
    vmac.f bmh5, bmh5, x3, x11, r0 ; vst amhh1, [p5], m1 ; add r14, r14, r29 ; mov r17, dj2
    vmac.f bml7, bml7, x5, x11, r0 ; vst amll3, [p5], #32 ; add r21, r21, #-1 ; mov r19, dn0
    vmac.f bmh7, bmh7, x7, x11, r0 ; vst amlh3, [p5], m1 ; sel.nez r16, r31, r29, r27 ; mov dn6, r21
    vst amhl3, [p5], #32 ; sel.nez r14, r14, r18, r27 ; mov dn5, r8
    mova r18, #16 ; vst amhh3, [p5], m2 ; add r12, r12, r16 ; mov p3, r14
    vst amll5, [p5], #32 ; sel.nez r9, r9, r17, r27 ; mov p1, r12
    padda [p1], #32 ; vst amlh5, [p5], m1 ; add r13, r13, r16 ; mov p2, r14
    vlda wl4, [p2], #64 ; vldb wh0, [p1], m0 ; vst amhl5, [p5], #32 ; sel.nez r16, r31, r18, r27 ; mov p0, r12
    vlda wl0, [p0], #256 ; vldb wh1, [p1], #-192 ; vst amhh5, [p5], m1 ; add r15, r15, r16 ; add.nc r22, r9, #0
    vlda wl5, [p2], #64 ; vst amll7, [p5], #32 ; sel.nez r16, r31, r8, r27 ; mov p7, r22
    vlda wl6, [p2], #64 ; vst amlh7, [p5], m1 ; sel.nez r2, r2, r19, r27 ; mov lc, r26
    vlda wl7, [p2], #64 ; vst amhl7, [p5], #32 ; sub r5, r5, r16
    vlda wl8, [p2], #64 ; vst amhh7, [p5], m2 ; movxm ls, #scores
    vlda wl1, [p0], #-192 ; padds [p3], #32 ; movxm le, #scores_end
    vlda wl9, [p2], #64 ; vldb wh4, [p3], #64
    vlda wl10, [p2], #64 ; vldb wh5, [p3], #64
    vlda wl11, [p2], #64 ; vldb wh6, [p3], #64 ; jnz r21, #scores
    vlda amll8, [p7], #32 ; vldb wh7, [p3], #64
    vlda amlh8, [p7], m3 ; vldb wh8, [p3], #64
    vlda amhl8, [p7], #32 ; vldb wh9, [p3], #64
    vlda amhh8, [p7], m3 ; vldb wh10, [p3], #64
    vldb wh11, [p3], #64
    jnz r5, #pre_step
    .nops 5
    j #pre_unit_end
    .nops 5
.align 16
pre_skip:
    add r5, r5, #-1
    jnz r5, #pre_step
    add r12, r12, r29
    add r13, r13, r29
    add r15, r15, #16
    .nops 2
.align 16
pre_unit_end:
    .nops 2
    movxm r20, #RINGS
    rel #K_EMPTY, r8
    xor r10, r10, r20
    xor r11, r11, r20
    mov r20, dn2
    rel #V_EMPTY, r8
    add r20, r20, #-1
    mov dn2, r20
    jnz r20, #pre_unit
    .nops 5
    rel #O_FULL, r8
    j #sequence
    .nops 5
