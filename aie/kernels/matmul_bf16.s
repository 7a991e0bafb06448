// C = A B for one core: A of 64 x 128 bf16, B of 128 x 64 bf16, C of 64 x 64 f32.
//
// A lies as tiles of 4 x 8, B as tiles of 8 x 4, C as tiles of 4 x 4, each tile and the tiles row by row: a tile is
// 64 bytes, a row of tiles 1 KiB. A vmac.f with configuration 28 multiplies a tile of A by one of B and adds it to
// one of C.
//
// A block is 4 x 4 tiles of C in 16 accumulators: row i has cm(2i) and cm(2i+1), from left to right bml, bmh, bml,
// bmh. A pass takes two columns of tiles of A: x0..x3 in turn hold tiles of A, x4..x7 and x8..x11 the two rows of
// tiles of B. A tile of B is read for the last time and the next one's load issued in the same cycle; it is there
// when it is read again. A vmac.f issues each cycle of a pass.
//
// The low half of a tile loads through one port, the high half through the other, by a pointer of its own.

.const A = 0x70000          // 16 KiB
.const B = 0x74000          // 16 KiB
.const C = 0x78000          // 16 KiB
.const TILE = 64
.const ROW = 16 * TILE      // of tiles of A, B or C

// The tile's own locks, as the core numbers them: an acquire of -1 waits for 1 and takes it, a release of 1 gives
// it back.
.const A_EMPTY = 48
.const A_FULL = 49
.const B_EMPTY = 50
.const B_FULL = 51
.const C_EMPTY = 52
.const C_FULL = 53

.const TILES = 28           // configuration: 4 x 8 by 8 x 4 bf16, summed in f32
.const FRESH = TILES + 1    // the same, on an accumulator taken as zero

again:
    movxm r7, #-1
    acq #A_FULL, r7
    movxm p0, #A
    movxm p1, #A + 32
    movxm p2, #B
    acq #B_FULL, r7
    movxm p3, #B + 32
    movxm p4, #C
    movxm m0, #ROW - TILE              // A: to the next row
    acq #C_EMPTY, r7
    movxm m1, #TILE - 3 * ROW          // A: to the next pass, from the last row's second tile
    movxm m2, #ROW - 3 * TILE          // B: to the next row
    movxm m5, #ROW - 4 * TILE + 32     // C: to the next row, from the last half tile
    movxm r10, #-ROW                   // A: back to the panel's start ...
    movxm r11, #4 * ROW - ROW          // ... or on to the next
    movxm r12, #4 * TILE - 16 * ROW    // B: to the next panel's start ...
    movxm r13, #-12 * TILE - 16 * ROW  // ... or back to the first
    movxm r14, #32 - 3 * ROW           // C: to the next block of the panel ...
    movxm r15, #32                     // ... or to the next panel
    movxm ls, #pass
    movxm le, #pass_end
    mova r4, #16 ; movx r5, #0         // blocks left; the block's place in its panel of A
    mova r0, #TILES ; movx r1, #FRESH
    mova lc, #7 ; movx r6, #3
    vlda wl4, [p2], #64 ; vldb wh4, [p3], #64
    vlda wl5, [p2], #64 ; vldb wh5, [p3], #64
    vlda wl6, [p2], #64 ; vldb wh6, [p3], #64
    vlda wl7, [p2], m2  ; vldb wh7, [p3], m2
    vlda wl8, [p2], #64 ; vldb wh8, [p3], #64
    vlda wl9, [p2], #64 ; vldb wh9, [p3], #64
    vlda wl10, [p2], #64 ; vldb wh10, [p3], #64
    vlda wl11, [p2], m2  ; vldb wh11, [p3], m2
    vlda wl0, [p0], #64 ; vldb wh0, [p1], #64
    vlda wl1, [p0], m0  ; vldb wh1, [p1], m0
    .nops 5

.align 16
block:
// Seven passes. The first takes the accumulators as zero, by r1.
pass:
    // row 0, column 0 of A
    vmac.f bml0, bml0, x0, x4, r1
    vmac.f bmh0, bmh0, x0, x5, r1  ; vlda wl2, [p0], #64      ; vldb wh2, [p1], #64
    vmac.f bml1, bml1, x0, x6, r1
    vmac.f bmh1, bmh1, x0, x7, r1
    // row 0, column 1 of A
    vmac.f bml0, bml0, x1, x8, r0  ; vlda wl3, [p0], m0       ; vldb wh3, [p1], m0
    vmac.f bmh0, bmh0, x1, x9, r0
    vmac.f bml1, bml1, x1, x10, r0
    vmac.f bmh1, bmh1, x1, x11, r0
    // row 1, column 0 of A
    vmac.f bml2, bml2, x2, x4, r1  ; vlda wl0, [p0], #64      ; vldb wh0, [p1], #64
    vmac.f bmh2, bmh2, x2, x5, r1
    vmac.f bml3, bml3, x2, x6, r1
    vmac.f bmh3, bmh3, x2, x7, r1
    // row 1, column 1 of A
    vmac.f bml2, bml2, x3, x8, r0  ; vlda wl1, [p0], m0       ; vldb wh1, [p1], m0
    vmac.f bmh2, bmh2, x3, x9, r0
    vmac.f bml3, bml3, x3, x10, r0
    vmac.f bmh3, bmh3, x3, x11, r0 ; vlda wl2, [p0], #64      ; vldb wh2, [p1], #64
    // row 2, column 0 of A
    vmac.f bml4, bml4, x0, x4, r1
    vmac.f bmh4, bmh4, x0, x5, r1  ; vlda wl3, [p0], m1       ; vldb wh3, [p1], m1
    vmac.f bml5, bml5, x0, x6, r1
    vmac.f bmh5, bmh5, x0, x7, r1
    // row 2, column 1 of A
    vmac.f bml4, bml4, x1, x8, r0  ; vlda wl0, [p0], #64      ; vldb wh0, [p1], #64
    vmac.f bmh4, bmh4, x1, x9, r0
    vmac.f bml5, bml5, x1, x10, r0
    vmac.f bmh5, bmh5, x1, x11, r0 ; vlda wl1, [p0], m0       ; vldb wh1, [p1], m0
    // row 3, column 0 of A
    vmac.f bml6, bml6, x2, x4, r1  ; vlda wl4, [p2], #64      ; vldb wh4, [p3], #64
    vmac.f bmh6, bmh6, x2, x5, r1  ; vlda wl5, [p2], #64      ; vldb wh5, [p3], #64
    vmac.f bml7, bml7, x2, x6, r1  ; vlda wl6, [p2], #64      ; vldb wh6, [p3], #64
    vmac.f bmh7, bmh7, x2, x7, r1  ; vlda wl7, [p2], m2       ; vldb wh7, [p3], m2
    // row 3, column 1 of A
    vmac.f bml6, bml6, x3, x8, r0  ; vlda wl8, [p2], #64      ; vldb wh8, [p3], #64      ; movx r1, #28
    vmac.f bmh6, bmh6, x3, x9, r0  ; vlda wl9, [p2], #64      ; vldb wh9, [p3], #64
    vmac.f bml7, bml7, x3, x10, r0 ; vlda wl10, [p2], #64     ; vldb wh10, [p3], #64
.align 16
pass_end:
    vmac.f bmh7, bmh7, x3, x11, r0 ; vlda wl11, [p2], m2      ; vldb wh11, [p3], m2

// The eighth pass, while its first rows are stored. It sets the pointers to the next block, so that its loads are
// that one's: r5 is 3 in the last block of a panel of A.
    // row 0, column 0 of A
    vmac.f bml0, bml0, x0, x4, r1  ; ltu r27, r5, r6
    vmac.f bmh0, bmh0, x0, x5, r1  ; vlda wl2, [p0], #64      ; vldb wh2, [p1], #64      ; sel.nez r20, r10, r11, r27
    vmac.f bml1, bml1, x0, x6, r1  ; sel.nez r21, r12, r13, r27 ; mov m3, r20
    vmac.f bmh1, bmh1, x0, x7, r1  ; sel.nez r22, r14, r15, r27 ; mov m4, r21
    // row 0, column 1 of A
    vmac.f bml0, bml0, x1, x8, r0  ; vlda wl3, [p0], m0       ; vldb wh3, [p1], m0       ; padds [p2], m4      ; add r5, r5, #1 ; mov m6, r22
    vmac.f bmh0, bmh0, x1, x9, r0  ; padds [p3], m4      ; and r5, r5, r6
    vmac.f bml1, bml1, x1, x10, r0 ; movx lc, #7
    vmac.f bmh1, bmh1, x1, x11, r0 ; add r4, r4, #-1
    // row 1, column 0 of A
    vmac.f bml2, bml2, x2, x4, r1  ; vlda wl0, [p0], #64      ; vldb wh0, [p1], #64
    vmac.f bmh2, bmh2, x2, x5, r1
    vmac.f bml3, bml3, x2, x6, r1
    vmac.f bmh3, bmh3, x2, x7, r1
    // row 1, column 1 of A
    vmac.f bml2, bml2, x3, x8, r0  ; vlda wl1, [p0], m0       ; vldb wh1, [p1], m0
    vmac.f bmh2, bmh2, x3, x9, r0
    vmac.f bml3, bml3, x3, x10, r0 ; vst amll0, [p4], #32
    vmac.f bmh3, bmh3, x3, x11, r0 ; vlda wl2, [p0], #64      ; vldb wh2, [p1], #64      ; vst amlh0, [p4], #32
    // row 2, column 0 of A
    vmac.f bml4, bml4, x0, x4, r1  ; vst amhl0, [p4], #32
    vmac.f bmh4, bmh4, x0, x5, r1  ; vlda wl3, [p0], m1       ; vldb wh3, [p1], m1       ; vst amhh0, [p4], #32
    vmac.f bml5, bml5, x0, x6, r1  ; padda [p0], m3           ; paddb [p1], m3           ; vst amll1, [p4], #32
    vmac.f bmh5, bmh5, x0, x7, r1  ; vst amlh1, [p4], #32
    // row 2, column 1 of A
    vmac.f bml4, bml4, x1, x8, r0  ; vlda wl0, [p0], #64      ; vldb wh0, [p1], #64      ; vst amhl1, [p4], #32
    vmac.f bmh4, bmh4, x1, x9, r0  ; vst amhh1, [p4], m5
    vmac.f bml5, bml5, x1, x10, r0 ; vst amll2, [p4], #32
    vmac.f bmh5, bmh5, x1, x11, r0 ; vlda wl1, [p0], m0       ; vldb wh1, [p1], m0       ; vst amlh2, [p4], #32
    // row 3, column 0 of A
    vmac.f bml6, bml6, x2, x4, r1  ; vlda wl4, [p2], #64      ; vldb wh4, [p3], #64      ; vst amhl2, [p4], #32
    vmac.f bmh6, bmh6, x2, x5, r1  ; vlda wl5, [p2], #64      ; vldb wh5, [p3], #64      ; vst amhh2, [p4], #32
    vmac.f bml7, bml7, x2, x6, r1  ; vlda wl6, [p2], #64      ; vldb wh6, [p3], #64      ; vst amll3, [p4], #32
    vmac.f bmh7, bmh7, x2, x7, r1  ; vlda wl7, [p2], m2       ; vldb wh7, [p3], m2       ; vst amlh3, [p4], #32
    // row 3, column 1 of A
    vmac.f bml6, bml6, x3, x8, r0  ; vlda wl8, [p2], #64      ; vldb wh8, [p3], #64      ; vst amhl3, [p4], #32 ; movx r1, #29
    vmac.f bmh6, bmh6, x3, x9, r0  ; vlda wl9, [p2], #64      ; vldb wh9, [p3], #64      ; vst amhh3, [p4], m5
    vmac.f bml7, bml7, x3, x10, r0 ; vlda wl10, [p2], #64     ; vldb wh10, [p3], #64     ; vst amll4, [p4], #32
    vmac.f bmh7, bmh7, x3, x11, r0 ; vlda wl11, [p2], m2      ; vldb wh11, [p3], m2      ; vst amlh4, [p4], #32

// The rest of the block's stores.
    vst amhl4, [p4], #32
    vst amhh4, [p4], #32
    vst amll5, [p4], #32
    vst amlh5, [p4], #32
    vst amhl5, [p4], #32
    vst amhh5, [p4], m5
    vst amll6, [p4], #32
    vst amlh6, [p4], #32
    vst amhl6, [p4], #32 ; jnz r4, #block
    vst amhh6, [p4], #32
    vst amll7, [p4], #32
    vst amlh7, [p4], #32
    vst amhl7, [p4], #32
    vst amhh7, [p4], m6

    .nops 2
    movx r8, #1
    nop
    rel #A_EMPTY, r8
    .nops 3
    rel #B_EMPTY, r8
    j #again
    .nops 2
    rel #C_FULL, r8
    .nops 2
