// What attention of many tokens does seldom, as the third part of attend_prefill_bf16.s's program: positions that not all
// rows see, and maxima that grow.

// Rows of V of which the core's queries see nothing are 0, whatever they were.
.align 16
pre_edge:
    mova r18, #16 ; lt r16, r31, r20
    lt r17, r21, r18
    mova r18, #1023 ; or r6, r16, r17
    lt r27, r18, r21
    sel.nez r21, r18, r21, r27
    mova r18, #-1024
    lt r27, r20, r18
    sel.nez r20, r18, r20, r27
    jz r6, #pre_block
    mova r6, #1
    .nops 4
    mova r19, #2 ; movxm p7, #OWN + IOTA
    vlda wl11, [p7, #0] ; vbcst.16 x9, r21
    vlda wh11, [p7, #32] ; add r21, r21, #-8 ; mov p1, r13
    movxm p7, #OWN + CONSTANTS + ZERO
    vlda wl2, [p7, #0]
    vlda wh2, [p7, #32]
    .nops 3
    vge.s16 r16, x11, x9
    vbcst.16 x9, r20
    add r20, r20, #-8 ; vlt.s16 r17, x11, x9
    vbcst.16 x9, r21
    or r16, r16, r17
    vge.s16 r17, x11, x9
    vbcst.16 x9, r20
    vlt.s16 r18, x11, x9
    nop
    or r17, r17, r18
    mov r18, r26
    lshl r18, r18, r19
    .nops 2
.align 16
pre_rows:
    vlda wl0, [p1, #0] ; add r18, r18, #-1
    vlda wh0, [p1, #32]
    vlda wl1, [p1, #64]
    vlda wh1, [p1, #96]
    .nops 4
    vsel.16 x0, x0, x2, r16
    nop
    vst wl0, [p1], #32 ; vsel.16 x1, x1, x2, r17
    vst wh0, [p1], #32
    jnz r18, #pre_rows
    nop
    vst wl1, [p1], #32
    vst wh1, [p1], #32
    .nops 2
    j #pre_block
    add r22, r9, #0
    .nops 4

// Scores of which not all count: what a row does not see becomes the least there is.
.align 16
special:
    .nops 4
    mov r16, dj1
    jz r16, #unmasked
    .nops 5
    mova r17, #1023 ; vsrs.s16.s32 x0, cm0, s0 ; movxm p6, #OWN + LIMITS
    lda r16, [p6, #16] ; vsrs.s16.s32 x1, cm1, s0
    lda r19, [p6, #20]
    mova r21, #5
    .nops 4
    sub r16, r16, r15
    lt r27, r17, r16
    sel.nez r16, r17, r16, r27
    mova r17, #-1024 ; add r18, r16, #-8
    sub r19, r19, r15
    lt r27, r19, r17
    sel.nez r19, r17, r19, r27
    add r20, r19, #-8 ; mov r27, dn0
    sub r27, r27, r2
    lshl r27, r27, r21
    movxm r21, #OWN + TOKENS
    add r27, r27, r21
    mov p7, r27
    vlda wl8, [p7, #0]
    mova r27, #16 ; movxm p7, #OWN + IOTA
    vlda wl11, [p7, #0]
    vlda wh11, [p7, #32]
    vlda wl6, [p7, #64]
    vlda wh6, [p7, #96]
    nop
    vextbcst.32 x9, x8, #0
    vextbcst.32 x10, x8, #1
    vshuffle x9, x9, x10, r27
    vsub.16 x9, x11, x9
    vbcst.16 x10, r16
    vge.s16 r17, x9, x10
    vbcst.16 x10, r19
    vlt.s16 r21, x9, x10
    vbcst.16 x10, r18
    or r17, r17, r21
    vsel.16 x0, x0, x6, r17
    vge.s16 r17, x9, x10
    vbcst.16 x10, r20
    vlt.s16 r21, x9, x10
    vextbcst.32 x9, x8, #2
    or r17, r17, r21 ; vextbcst.32 x10, x8, #3
    vshuffle x9, x9, x10, r27
    vsub.16 x9, x11, x9
    vbcst.16 x10, r16
    vups.s32.s16 cm0, x0, s0
    vsrs.s16.s32 x0, cm2, s0 ; vsel.16 x1, x1, x6, r17
    vge.s16 r17, x9, x10
    vbcst.16 x10, r19
    vlt.s16 r21, x9, x10
    vbcst.16 x10, r18
    or r17, r17, r21 ; vups.s32.s16 cm1, x1, s0
    vsrs.s16.s32 x1, cm3, s0 ; vsel.16 x0, x0, x6, r17
    vge.s16 r17, x9, x10
    vbcst.16 x10, r20
    vlt.s16 r21, x9, x10
    vextbcst.32 x9, x8, #4
    or r17, r17, r21 ; vextbcst.32 x10, x8, #5
    vshuffle x9, x9, x10, r27
    vsub.16 x9, x11, x9
    vbcst.16 x10, r16
    vups.s32.s16 cm2, x0, s0
    vsrs.s16.s32 x0, cm4, s0 ; vsel.16 x1, x1, x6, r17
    vge.s16 r17, x9, x10
    vbcst.16 x10, r19
    vlt.s16 r21, x9, x10
    vbcst.16 x10, r18
    or r17, r17, r21 ; vups.s32.s16 cm3, x1, s0
    vsrs.s16.s32 x1, cm5, s0 ; vsel.16 x0, x0, x6, r17
    vge.s16 r17, x9, x10
    vbcst.16 x10, r20
    vlt.s16 r21, x9, x10
    vextbcst.32 x9, x8, #6
    or r17, r17, r21 ; vextbcst.32 x10, x8, #7
    vshuffle x9, x9, x10, r27
    vsub.16 x9, x11, x9
    vbcst.16 x10, r16
    vups.s32.s16 cm4, x0, s0
    vsrs.s16.s32 x0, cm6, s0 ; vsel.16 x1, x1, x6, r17
    vge.s16 r17, x9, x10
    vbcst.16 x10, r19
    vlt.s16 r21, x9, x10
    vbcst.16 x10, r18
    or r17, r17, r21 ; vups.s32.s16 cm5, x1, s0
    vsrs.s16.s32 x1, cm7, s0 ; vsel.16 x0, x0, x6, r17
    vge.s16 r17, x9, x10
    vbcst.16 x10, r20
    vlt.s16 r21, x9, x10
    vups.s32.s16 cm6, x0, s0
    or r17, r17, r21
    vsel.16 x1, x1, x6, r17
    nop
    vups.s32.s16 cm7, x1, s0
    .nops 3
.align 16
unmasked:
    .nops 2
    mov r16, dn1
    jnz r16, #pre_grow
    .nops 5
    j #weights
    .nops 5

// A score is larger than what the weights are made for: whole scores first.
.align 16
regrow:
    mova r6, #1 ; movxm r23, #OWN + COARSE
    mova m3, #-32 ; mov dn1, r6
    movxm r22, #OWN + COARSE
    j #pre_block
    .nops 5

.align 16
pre_grow:
    mova r18, #4 ; vsrs.s16.s32 x0, cm0, s0 ; movxm p7, #OWN + MAXIMA
    vsrs.s16.s32 x1, cm1, s0 ; mov p0, r9
    vsrs.s16.s32 x2, cm2, s0 ; mov p1, r9
    vsrs.s16.s32 x3, cm3, s0 ; movxm p2, #OWN + MAXIMA
    vsrs.s16.s32 x4, cm4, s0
    vsrs.s16.s32 x5, cm5, s0 ; vmax_lt.s16 x0, r17, x0, x1
    vsrs.s16.s32 x6, cm6, s0
    vst wl0, [p7], #32 ; vmax_lt.s16 x2, r17, x2, x3
    vsrs.s16.s32 x7, cm7, s0
    vst wh0, [p7], #32 ; vmax_lt.s16 x4, r17, x4, x5
    vst wl2, [p7], #32
    vst wh2, [p7], #32
    vst wl4, [p7], #32 ; vmax_lt.s16 x6, r17, x6, x7
    vst wh4, [p7], #32
    vst wl6, [p7], #32
    vst wh6, [p7], #32
    .nops 4
.align 16
pre_quad:
    vlda wl4, [p2], #32 ; movxm p7, #OWN + PEAK
    vlda wh4, [p2], #32 ; mov r19, r26
    mova r16, #32 ; mov p3, p0
    vlda wl8, [p7, #0] ; mov p4, p0
    vlda wh8, [p7, #32] ; padds [p4], #64
    vlda wl6, [p0, #0] ; movxm p7, #OWN + CONSTANTS + MAG
    vlda wh6, [p0, #32]
    vlda wl10, [p7, #256]
    vlda wh10, [p7, #288] ; vshift x5, x4, x4, r16
    mova r16, #16 ; vmax_lt.s16 x4, r17, x4, x5
    vlda wl9, [p7, #64] ; vshift x5, x4, x4, r16
    mova r16, #8 ; vmax_lt.s16 x4, r17, x4, x5
    vlda wh9, [p7, #96] ; vshift x5, x4, x4, r16
    mova r16, #34 ; vmax_lt.s16 x4, r17, x4, x5
    vlda wl5, [p7, #384]
    vlda wh5, [p7, #416] ; vups.s32.s16 bml0, wl4, s3
    padda [p3], #64
    nop
    vmov x4, bml0
    nop
    vsub.32 x4, x8, x4
    vlda wl8, [p7, #0] ; vmin_ge.s32 x4, r17, x6, x4
    vlda wh8, [p7, #32] ; vsub.32 x7, x4, x6
    vst wl4, [p0, #0] ; vmax_lt.s32 x7, r17, x7, x10
    vst wh4, [p0, #32] ; vshuffle x7, x7, x7, r16
    mova r16, #18 ; vshuffle x7, x7, x7, r4
    vshuffle x7, x5, x7, r16
    mova r16, #2
    lshl r19, r19, r16
    add r19, r19, #1
    .nops 1
.align 16
pre_rescale:
    vlda wl6, [p3], #32 ; add r19, r19, #-1
    vlda wh6, [p3], #32
    .nops 6
    vband x3, x6, x8
    vband x6, x6, x9
    vadd.32 x3, x3, x7
    vmax_lt.s32 x3, r21, x3, x5
    vbor x3, x3, x6
    jnz r19, #pre_rescale
    .nops 2
    vst wl3, [p4], #32
    vst wh3, [p4], #32
    nop
    add r18, r18, #-1
    jnz r18, #pre_quad
    mov r16, p0
    mov r17, m1
    add r16, r16, r17
    add r16, r16, #32
    mov p0, r16
    add r22, r9, #0 ; mov dn1, r31
    mov r6, dj1
    movxm r23, #OWN + FINE
    mov m3, m1
    mov dn5, r31
    j #pre_block
    .nops 5
