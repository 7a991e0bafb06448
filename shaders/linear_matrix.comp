// linear_matrix: out[r][n] = x_scale[r] * w_scale[n] * sum_k weight[n][k] * x[r][k], by matrix units, in two arithmetics:
//   plain: x in half form, f16 x f16 -> f32; weights become f16 between registers and shared memory. Tiles of 128 rows and
//     more are linear_wide's
//   BYTES: x in bytes form, s8 x s8 -> s32; two products, of the high and of the low bytes, make one: sums are exact
// weight int8 [N, K] with one f32 scale a row, K padded to 16 with zeros; x per row 2P bytes (forms.glsl), P = K padded to
// 32 with zeros, then one f32 scale, rows x_stride bytes apart; out f32 [rows, out_stride].
// A workgroup makes a BM x BN tile of out (rows x outputs) in steps of BK inputs; a subgroup WM x WN of it, and of each
// step the KSPLIT-th part of the inputs. While a step is multiplied out of shared memory, the next DEPTH steps' bytes are on
// their way from memory to registers; with DEPTH = 0 none are, which leaves registers for more workgroups at a time, whose
// waiting and multiplying overlap. Shared memory holds one step, or with BUFFERS = 2 (DEPTH 1 or more) also the one that is
// being stored. With `splits` > 1 the inputs are divided among that many workgroups as well: each leaves its sums in
// `parts`, and the last to finish adds them, always in the same order.
// Shared memory: max(BUFFERS * tile, subgroups * M * WN * 4) bytes; tile: (BM + BN) * (2 * BK + 16), with BYTES
// (2 * BM + BN) * (BK + 16).
// Bytes: N * K from memory, once where the row tiles of a weight tile run together; x from caches, N / BN times.
// Operations: 2 * N * K * rows.
// Few waves: it is bound by the matrix units, whose operands and sums fill the registers.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#define RELAY
#include "common.glsl"
#include "relay.glsl"
#include "tiles.glsl"

layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;
    uint64_t x;
    Floats y_out;
    Floats parts;    // [splits][rows padded to BM][N padded to BN], where splits > 1
    Words arrived;   // one counter a tile, zero before and after
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint k;          // padded inputs
    uint x_stride;   // bytes, a multiple of 64
    uint out_stride; // elements
    uint splits;     // workgroups that share a tile's inputs
    uint turn;       // relay.glsl
    uint before;
};

layout(buffer_reference, std430, buffer_reference_align = 16) ORDERED readonly buffer Inputs4 { uvec4 at[]; };

layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 32;
layout(constant_id = 5) const uint WN = 32;
layout(constant_id = 6) const uint KSPLIT = 1;
layout(constant_id = 7) const uint BUFFERS = 1;
// 8 is common.glsl's.
layout(constant_id = 9) const uint DEPTH = 1;
// The matrix units' shape.
layout(constant_id = 10) const uint M = 16;
layout(constant_id = 11) const uint N = 16;
layout(constant_id = 12) const uint K = 16;

// Subgroups along a tile's rows and outputs, matrices of a subgroup.
const uint SUBS_M = BM / WM;
const uint SUBS_N = BN / WN;
const uint MATS_M = WM / M;
const uint MATS_N = WN / N;
const uint SUBGROUPS = KSPLIT * SUBS_M * SUBS_N;

// Elements of a 16-byte unit, and planes of x: each is BM rows of a tile.
#ifdef BYTES
#define Element int8_t
#define Sum int
const uint PER_UNIT = 16;
const uint PLANES = 2;
#else
#define Element float16_t
#define Sum float
const uint PER_UNIT = 8;
const uint PLANES = 1;
#endif

// Rows of a tile lie this many units apart: one more than they have, so that reading down a column of units meets every
// bank.
const uint UNITS = BK / PER_UNIT + 1;
const uint W_ROW = PLANES * BM;
const uint BUFFER_UNITS = (W_ROW + BN) * UNITS;
const uint STAGE_UNITS = SUBGROUPS * M * WN / 4;
const uint TILE_UNITS = BUFFERS * BUFFER_UNITS;
const uint SHARED_UNITS = TILE_UNITS > STAGE_UNITS ? TILE_UNITS : STAGE_UNITS;
// NARROW is for matrices of 8 inputs: each unit is two pieces, so that a matrix can begin at either.
#ifdef NARROW
const uint PIECES = 2;
shared uvec2 tiles[SHARED_UNITS * PIECES];
#define STORE_UNIT(to, v) { uvec4 unit = v; tiles[2 * (to)] = unit.xy; tiles[2 * (to) + 1] = unit.zw; }
#else
const uint PIECES = 1;
shared uvec4 tiles[SHARED_UNITS];
#define STORE_UNIT(to, v) { tiles[to] = v; }
#endif
const uint PIECE_ELEMENTS = PER_UNIT / PIECES;
const uint PIECE_WORDS = 4 / PIECES;
shared bool is_last;

// 16-byte loads of one step: of a row, in all, and of an invocation.
const uint W_PARTS = BK / 16;
const uint X_PARTS = BK / PER_UNIT;
const uint W_LOADS = BN * W_PARTS;
const uint X_LOADS = PLANES * BM * X_PARTS;
const uint W_EACH = (W_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint X_EACH = (X_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint SLOTS = DEPTH > 0 ? DEPTH : 1;

#define MatrixA coopmat<Element, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define MatrixB coopmat<Element, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
#define MatrixSum coopmat<Sum, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define MatrixF32 coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

uint w_row(uint load) { return UNITS == 5 ? bank_order(load / W_PARTS, W_PARTS) : load / W_PARTS; }
uint x_row(uint load) { return UNITS == 5 ? bank_order(load / X_PARTS, X_PARTS) : load / X_PARTS; }

void make_tile() {
    uint live = live_rows(state, which);
    uint split = gl_WorkGroupID.x % splits, row_tile = gl_WorkGroupID.x / splits;
    uint r0 = row_tile * BM, n0 = gl_WorkGroupID.y * BN;
    if (r0 >= live) return;
    uint id = gl_LocalInvocationID.x;

    // The steps of this split.
    uint steps = (k + BK - 1) / BK;
    uint step_first = split * steps / splits, step_end = (split + 1) * steps / splits;

    // P, and where the rows' scales are.
    uint padded = (k + 31) / 32 * 32, scale_at = 2 * padded;

    // Where this invocation's loads begin, and where in shared memory they end. Rows past the end repeat the last one.
    uint64_t w_tile = weight + uint64_t(n0) * k, x_tile = x + uint64_t(r0) * x_stride;
    uint w_at[W_EACH];
    uint x_at[X_EACH];
    uint w_to[W_EACH];
    uint x_to[X_EACH];
    [[unroll]] for (uint i = 0; i < W_EACH; ++i) {
        uint load = id + i * WORKGROUP, part = load % W_PARTS, row = w_row(load);
        w_at[i] = min(row, n - 1 - n0) * k + part * 16;
        w_to[i] = (W_ROW + row) * UNITS + part * (16 / PER_UNIT);
    }
    [[unroll]] for (uint i = 0; i < X_EACH; ++i) {
        uint load = id + i * WORKGROUP, part = load % X_PARTS, row = x_row(load);
        uint plane = PLANES == 1 ? 0 : row / BM;
        x_at[i] = min(row - plane * BM, live - 1 - r0) * x_stride + plane * padded + part * 16;
        x_to[i] = row * UNITS + part;
    }

    uint subgroup_k = gl_SubgroupID / (SUBS_M * SUBS_N);
    uint subgroup_m = gl_SubgroupID / SUBS_N % SUBS_M, subgroup_n = gl_SubgroupID % SUBS_N;
    uint first_k = subgroup_k * (BK / KSPLIT);
    uint a_at = subgroup_m * WM * UNITS * PIECES + first_k / PIECE_ELEMENTS;
    uint b_at = (W_ROW + subgroup_n * WN) * UNITS * PIECES + first_k / PIECE_ELEMENTS;

    MatrixSum sums[MATS_M * MATS_N];
#ifdef BYTES
    MatrixSum low_sums[MATS_M * MATS_N];
#endif
    [[unroll]] for (uint i = 0; i < MATS_M * MATS_N; ++i) {
        sums[i] = MatrixSum(0);
#ifdef BYTES
        low_sums[i] = sums[i];
#endif
    }

    // Steps on their way: the s-th is in slot s % SLOTS.
    uvec4 w_next[SLOTS * W_EACH];
    uvec4 x_next[SLOTS * X_EACH];

    // What lies behind the inputs' end reads as zero.
#define FETCH_W(slot, step)                                                                                            \
    [[unroll]] for (uint i = 0; i < W_EACH; ++i) {                                                                     \
        uint at = (step) * BK + (id + i * WORKGROUP) % W_PARTS * 16;                                                   \
        w_next[(slot) * W_EACH + i] = uvec4(0);                                                                        \
        if ((step) < step_end && at < k) w_next[(slot) * W_EACH + i] = Words4(w_tile + (w_at[i] + (step) * BK)).at[0]; \
    }
#define FETCH_X(slot, step)                                                                                            \
    [[unroll]] for (uint i = 0; i < X_EACH; ++i) {                                                                     \
        uint at = (step) * BK + (id + i * WORKGROUP) % X_PARTS * PER_UNIT;                                             \
        x_next[(slot) * X_EACH + i] = uvec4(0);                                                                        \
        if ((step) < step_end && at < k) {                                                                             \
            x_next[(slot) * X_EACH + i] = Inputs4(x_tile + (x_at[i] + (step) * BK * (16 / PER_UNIT))).at[0];            \
        }                                                                                                              \
    }
#define FETCH(slot, step) FETCH_W(slot, step) FETCH_X(slot, step)
#ifdef BYTES
#define STORE_W(to, loaded) STORE_UNIT(to, loaded)
#define STORE_X(to, loaded) STORE_UNIT(to, loaded)
#else
#define STORE_W(to, loaded)                                                                                            \
    STORE_UNIT(to, uvec4(widen4(loaded.x, ALL_BYTES), widen4(loaded.y, ALL_BYTES)))                                                          \
    STORE_UNIT((to) + 1, uvec4(widen4(loaded.z, ALL_BYTES), widen4(loaded.w, ALL_BYTES)))
#define STORE_X(to, loaded) STORE_UNIT(to, uvec4(reorder4(loaded.x, loaded.y), reorder4(loaded.z, loaded.w)))
#endif
#define STORE(slot, base)                                                                                              \
    [[unroll]] for (uint i = 0; i < W_EACH; ++i) {                                                                     \
        if (W_LOADS % WORKGROUP == 0 || id + i * WORKGROUP < W_LOADS) {                                                \
            STORE_W((base) + w_to[i], w_next[(slot) * W_EACH + i])                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    [[unroll]] for (uint i = 0; i < X_EACH; ++i) {                                                                     \
        if (X_LOADS % WORKGROUP == 0 || id + i * WORKGROUP < X_LOADS) {                                                \
            STORE_X((base) + x_to[i], x_next[(slot) * X_EACH + i])                                                     \
        }                                                                                                              \
    }

    // A tile's matrices: of x's rows, from the given plane, and of weights.
#define LOAD_A(a, i, plane)                                                                                            \
    coopMatLoad(a, tiles, a_at_step + ((plane) * BM + (i) * M) * UNITS * PIECES, UNITS * PIECES,                       \
                gl_CooperativeMatrixLayoutRowMajor);
#define LOAD_B(b, j)                                                                                                   \
    coopMatLoad(b, tiles, b_at_step + (j) * N * UNITS * PIECES, UNITS * PIECES, gl_CooperativeMatrixLayoutColumnMajor);

    [[unroll]] for (uint d = 0; d < DEPTH; ++d) { FETCH_W(d, step_first + d) }
    relay_wait(state, turn, before);
    [[unroll]] for (uint d = 0; d < DEPTH; ++d) { FETCH_X(d, step_first + d) }
    if (BUFFERS == 2) {
        STORE(0, 0)
        FETCH(0, step_first + DEPTH)
        barrier();
    }
    for (uint round = step_first; round < step_end; round += SLOTS) {
        [[unroll]] for (uint d = 0; d < SLOTS; ++d) {
            uint step = round + d;
            if (step >= step_end) break;
            uint base = 0;
            if (DEPTH == 0) {
                FETCH(0, step)
                barrier();
                STORE(0, 0)
                barrier();
            } else if (BUFFERS == 1) {
                barrier();
                STORE(d, 0)
                FETCH(d, step + DEPTH)
                barrier();
            } else {
                const uint next = (d + 1) % SLOTS;
                base = ((step - step_first) & 1) * BUFFER_UNITS;
                STORE(next, BUFFER_UNITS - base)
                FETCH(next, step + 1 + DEPTH)
            }
            // The longer side of a subgroup's tile passes through while the shorter one stays in registers.
            [[unroll]] for (uint kk = 0; kk < BK / KSPLIT; kk += K) {
                uint a_at_step = base * PIECES + a_at + kk / PIECE_ELEMENTS;
                uint b_at_step = base * PIECES + b_at + kk / PIECE_ELEMENTS;
                if (PLANES * MATS_M > MATS_N) {
                    MatrixB b[MATS_N];
                    [[unroll]] for (uint j = 0; j < MATS_N; ++j) LOAD_B(b[j], j)
                    [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                        MatrixA a;
                        LOAD_A(a, i, 0)
                        [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                            sums[i * MATS_N + j] = coopMatMulAdd(a, b[j], sums[i * MATS_N + j]);
                        }
#ifdef BYTES
                        LOAD_A(a, i, 1)
                        [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                            low_sums[i * MATS_N + j] = coopMatMulAdd(a, b[j], low_sums[i * MATS_N + j]);
                        }
#endif
                    }
                } else {
                    MatrixA a[PLANES * MATS_M];
                    [[unroll]] for (uint i = 0; i < PLANES * MATS_M; ++i) LOAD_A(a[i], i % MATS_M, i / MATS_M)
                    [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                        MatrixB b;
                        LOAD_B(b, j)
                        [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                            sums[i * MATS_N + j] = coopMatMulAdd(a[i], b, sums[i * MATS_N + j]);
#ifdef BYTES
                            low_sums[i * MATS_N + j] = coopMatMulAdd(a[MATS_M + i], b, low_sums[i * MATS_N + j]);
#endif
                        }
                    }
                }
            }
            if (BUFFERS == 2) barrier();
        }
    }

#ifdef BYTES
#define RESULT(i) (MatrixF32(sums[i]) * 256.0 + MatrixF32(low_sums[i]))
#else
#define RESULT(i) sums[i]
#endif
    // Sums leave through shared memory, where the parts of KSPLIT meet: M rows of each subgroup at a time.
    uint padded_n = gl_NumWorkGroups.y * BN;
    uint part_rows = gl_NumWorkGroups.x / splits * BM;
    [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
        barrier();
        [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
            coopMatStore(RESULT(i * MATS_N + j), tiles, (gl_SubgroupID * (M * WN) + j * N) / PIECE_WORDS,
                         WN / PIECE_WORDS, gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
        for (uint e = id; e < SUBS_M * M * BN; e += WORKGROUP) {
            uint column = e % BN, row = e / BN;
            uint at = ((row / M * SUBS_N + column / WN) * M + row % M) * WN + column % WN;
            float y = 0;
            [[unroll]] for (uint part = 0; part < KSPLIT; ++part) {
                uint word = at + part * (SUBS_M * SUBS_N * M * WN);
                y += uintBitsToFloat(tiles[word / PIECE_WORDS][word % PIECE_WORDS]);
            }
            uint r = r0 + row / M * WM + i * M + row % M, o = n0 + column;
            if (splits > 1) {
                parts.at[(split * part_rows + r) * padded_n + o] = y;
            } else if (r < live && o < n) {
                float x_scale = Floats(x + uint64_t(r) * x_stride + scale_at).at[0];
                y_out.at[r * out_stride + o] = y * scales.at[o] * x_scale;
            }
        }
    }
    if (splits == 1) return;
#include "splits.glsl"
}

void main() {
    make_tile();
    relay_pass(state, turn);
}
