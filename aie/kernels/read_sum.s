// Sums of the words that two streams bring, so that the host can tell that all of them came.
//
// Each stream comes in units of 8 KiB. The first unit of the first stream is a run's header: word 0 is how many units
// follow it there, word 1 how many the second stream has. The streams take turns while both have units left. A word is
// added to the sum of its place among 16, modulo 2^32; what is left are the 16 sums of the first stream and then those of
// the second.
//
// A unit takes about 280 cycles and comes in 2,048, so what the core does is not what the streams wait for.
//
// r2, r4, r10 and x0 are the units left, the lock of full units, the next unit and the sums of the stream whose turn it is,
// r3, r5, r11 and x10 those of the other. r7 and r8 are what locks are changed by, r9 the first stream's lock.

.const OWN = 0x70000
.const A = 0                // two units
.const B = 0x4000           // two units
.const RINGS = 0x2000       // from one unit of a ring to the other, and back
.const SUMS = 0x8000        // 128 bytes
.const PARTS = 8192 / 512

// The tile's own locks, as the core numbers them.
.const A_EMPTY = 48
.const A_FULL = 49
.const B_FULL = 51
.const SUMS_EMPTY = 52
.const SUMS_FULL = 53

    mova r0, #0
    mova r7, #-1
    mova r8, #1
    mova r9, #A_FULL
    movxm r6, #RINGS
    movxm r10, #OWN + A
    movxm r11, #OWN + B
    movxm p2, #OWN + SUMS

// A run: its header.
.align 16
run:
    acq #A_FULL, r7
    vbcst.32 x0, r0
    vbcst.32 x10, r0
    mov p0, r10
    mov r4, r9
    mova r5, #B_FULL
    lda r2, [p0, #0]
    lda r3, [p0, #4]
    .nops 6
    rel #A_EMPTY, r8
    xor r10, r10, r6

// A stream's turn: a unit, where it has one left.
.align 16
turn:
    jz r2, #next
    .nops 5
    acq r4, r7
    mov p0, r10
    mov p1, r10
    mova r20, #PARTS
    padda [p1], #32
    nop
.align 16
part:
    vlda wl1, [p0], #64     ; vldb wh1, [p1], #64   ; add r20, r20, #-1
    vlda wl2, [p0], #64     ; vldb wh2, [p1], #64
    vlda wl3, [p0], #64     ; vldb wh3, [p1], #64
    vlda wl4, [p0], #64     ; vldb wh4, [p1], #64
    vlda wl5, [p0], #64     ; vldb wh5, [p1], #64
    vlda wl6, [p0], #64     ; vldb wh6, [p1], #64
    vlda wl7, [p0], #64     ; vldb wh7, [p1], #64
    vlda wl8, [p0], #64     ; vldb wh8, [p1], #64   ; vadd.32 x0, x0, x1
    vadd.32 x0, x0, x2
    vadd.32 x0, x0, x3
    jnz r20, #part
    vadd.32 x0, x0, x4
    vadd.32 x0, x0, x5
    vadd.32 x0, x0, x6
    vadd.32 x0, x0, x7
    vadd.32 x0, x0, x8

    add r20, r4, #-1
    rel r20, r8
    add r2, r2, #-1
    xor r10, r10, r6

// The other's turn. A run ends with the first stream's where nothing is left.
.align 16
next:
    mov r2, r3              ; or r3, r2, r2
    mov r4, r5              ; or r5, r4, r4
    mov r10, r11            ; or r11, r10, r10
    vmov x11, x0
    vmov x0, x10
    vmov x10, x11
    or r20, r2, r3
    xor r21, r4, r9
    or r20, r20, r21
    jnz r20, #turn
    .nops 5

    acq #SUMS_EMPTY, r7
    .nops 4
    vst wl0, [p2, #0]
    vst wh0, [p2, #32]
    vst wl10, [p2, #64]
    vst wh10, [p2, #96]
    .nops 4
    rel #SUMS_FULL, r8
    j #run
    .nops 5
