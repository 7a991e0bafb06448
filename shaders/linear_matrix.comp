// linear_matrix: out[r][n] = x_scale[r] * w_scale[n] * sum_k weight[n][k] * x[r][k], by matrix units, in two arithmetics:
//   plain: x in F16Row, f16 x f16 -> f32; weights become f16 between registers and shared memory
//   BYTES: x in Int16Row, s8 x s8 -> s32; two products, of the high and of the low bytes, make one: sums are exact
// weight [N, K] int8 with one f32 scale a row, or, in plain, a format with scales of groups (weights.glsl), by which weights
// are multiplied in f16 on their way to shared memory; K padded to 16 with zeros; x per row 2P bytes
// (activation_layout.glsl), P = K padded to 32 with zeros, then one f32 scale, rows x_stride bytes apart; out f32
// [rows, out_stride].
// A workgroup makes a BM x BN tile of out (rows x outputs) in steps of BK inputs; a subgroup WM x WN of it, and of each
// step the KSPLIT-th part of the inputs. While a step is multiplied out of shared memory, the next DEPTH steps' bytes are on
// their way from memory to registers.
// Tiles of many rows are bound by the way from the L2 cache to the processors, which is the faster the more of a line is
// asked for at once: tiles are as large, and then steps as long, as registers and 48 KiB of shared memory allow. Those of
// few rows are bound by memory: of them, several workgroups run on a processor, each with several steps on their way.
// Where it is known how subgroups hold matrices, linear_fragment.comp is faster, but for 33 to 64 rows of small matrices.
// The loop is without branches. NVIDIA's compiler copies what was loaded behind a branch, or before the last use of what the
// registers held, and so waits for it as soon as it has asked for it. So loads stand behind the barrier behind the stores,
// steps behind the end are multiplied by zeros, and the loop's round is ROUND steps, a multiple of DEPTH.
// On an H200, of 108 us for 43008 x 5376 by 32 rows in Int16Row, 33 go without the products, 18 where x is always in the L1
// cache, 14 without barriers; of 816 us for 512 rows in F16Row, 368, 55 and 144: storing, multiplying and waiting take turns.
// Two steps in shared memory, with one barrier a step, took 1.3 to 2 times as long as one.
// With EXPERTS the rows are expert rows, in tiles of at most BM of one expert, and the weight is [experts, n, k] (experts.glsl).
// With `splits` > 1 the inputs are divided among that many workgroups as well: each leaves its sums in `parts`, and the last
// to finish adds them, always in the same order.
// Shared memory: max(tile, subgroups * M * WN * 4) bytes; tile: (BM + BN) * (2 * BK + 16), with BYTES
// (2 * BM + BN) * (BK + 16).
// Bytes: the weight's from memory, once where the row tiles of a weight tile run together; x from caches, N / BN times, and weights
// rows / BM times.
// Operations: 2 * N * K * rows.
// Few waves: operands, sums and what is on its way fill the registers.
// Narrow loads: the scales of each load of a format with scales of groups; of those with high bits these.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#define RELAY
#include "common.glsl"
#include "relay.glsl"
#include "weights.glsl"
#include "tiles.glsl"
#include "experts.glsl"
#include "product.glsl"

layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 32;
layout(constant_id = 5) const uint WN = 32;
layout(constant_id = 6) const uint KSPLIT = 1;
layout(constant_id = 7) const uint ROUND = 1;
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

// Rows of a tile lie one unit further apart than they have, so that reading down a column of units meets every bank.
const uint UNITS = BK / PER_UNIT + 1;
const uint X_ROWS = PLANES * BM;
const uint TILE_UNITS = (X_ROWS + BN) * UNITS;
const uint STAGE_UNITS = SUBGROUPS * M * WN / 4;
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

// 16-byte loads of one step: of a row, in all, and of an invocation, one in each pass of the workgroup over the rows.
const uint W_PARTS = BK / PER_LOAD;
const uint X_PARTS = BK / PER_UNIT;
const uint W_LOADS = BN * W_PARTS;
const uint X_LOADS = X_ROWS * X_PARTS;
const uint W_EACH = (W_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint X_EACH = (X_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint W_PASS = WORKGROUP / W_PARTS;
const uint X_PASS = WORKGROUP / X_PARTS;

#define MatrixA coopmat<Element, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define MatrixB coopmat<Element, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
#define MatrixSum coopmat<Sum, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define MatrixF32 coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

// The order of a tile's rows in shared memory (tiles.glsl), which is one of eight rows, and so of a pass.
uint order(uint i, uint parts) { return UNITS == 5 && X_PASS % 8 == 0 ? bank_order(i, parts) : i; }

void make_tile() {
    // The table says which weights to load.
    if (EXPERTS != 0) relay_wait(state, turn, before);
    uint split = gl_WorkGroupID.x % splits, row_tile = gl_WorkGroupID.x / splits;
    uvec2 rows = rows_of(table, row_tile, BM, live_rows(state, which), n);
    uint r0 = rows.x, live = rows.y, n0 = gl_WorkGroupID.y * BN;
    if (r0 >= live) return;
    uint id = gl_LocalInvocationID.x;

    // The steps of this split.
    uint steps = (k + BK - 1) / BK;
    uint step_first = split * steps / splits, step_end = (split + 1) * steps / splits;

    // P, where the rows' scales are, and bytes of a row of a plane.
    uint padded = (k + 31) / 32 * 32, scale_at = 2 * padded, plane_bytes = scale_at / PLANES;

    // Rows past the end repeat the last one, and inputs past the end others.
    uint64_t w_tile = weight + uint64_t(base + n0) * ROW_BYTES, x_tile = x + uint64_t(r0) * x_stride;
    uint w_last = min(n - n0, BN) - 1, x_last = live - 1 - r0, last = step_end - 1;
    uint w_part = id % W_PARTS, x_part = id % X_PARTS;
    uint w_row = order(id / W_PARTS, W_PARTS), x_row = order(id / X_PARTS, X_PARTS);
    uint w_to = (X_ROWS + w_row) * UNITS + w_part * (PER_LOAD / PER_UNIT), x_to = x_row * UNITS + x_part;

    uint subgroup_k = gl_SubgroupID / (SUBS_M * SUBS_N);
    uint subgroup_m = gl_SubgroupID / SUBS_N % SUBS_M, subgroup_n = gl_SubgroupID % SUBS_N;
    uint first_k = subgroup_k * (BK / KSPLIT);
    uint a_at = subgroup_m * WM * UNITS * PIECES + first_k / PIECE_ELEMENTS;
    uint b_at = (X_ROWS + subgroup_n * WN) * UNITS * PIECES + first_k / PIECE_ELEMENTS;

    MatrixSum sums[PLANES * MATS_M * MATS_N];
    [[unroll]] for (uint i = 0; i < PLANES * MATS_M * MATS_N; ++i) sums[i] = MatrixSum(0);

    // Steps on their way: the s-th is in slot s % DEPTH.
#define LOAD_IN_ROW(step) min(min(step, last) * W_PARTS + w_part, LOADS - 1)
    Weights w_next[DEPTH * W_EACH];
#ifdef GROUPED
    // Their scales, and which of the matrix's loads an invocation takes as its i-th of a step.
    uvec4 w_scale[DEPTH * W_EACH];
#define LOAD_OF(i, step) ((base + n0 + min(w_row + (i) * W_PASS, w_last)) * LOADS + LOAD_IN_ROW(step))
#define FETCH_SCALE(slot, i, row, step)                                                                                \
    w_scale[(slot) * W_EACH + i] =                                                                                     \
        fetch_scale(scale_at(uint64_t(scales), LOAD_OF(i, step)), w_tile + (row) * ROW_BYTES, LOAD_IN_ROW(step), LOADS);
#else
#define FETCH_SCALE(slot, i, row, step)
#endif
    uvec4 x_next[DEPTH * X_EACH];

    // Where a row of x begins, counted through its planes.
#ifdef BYTES
#define X_AT(row) (min((row) % BM, x_last) * x_stride + min((row) / BM, 1) * padded)
#else
#define X_AT(row) (min(row, x_last) * x_stride)
#endif
#define FETCH_W(slot, step)                                                                                            \
    {                                                                                                                  \
        uint load = LOAD_IN_ROW(step);                                                                                 \
        [[unroll]] for (uint i = 0; i < W_EACH; ++i) {                                                                 \
            uint row = min(w_row + i * W_PASS, w_last);                                                                \
            w_next[(slot) * W_EACH + i] = fetch_at(w_tile, row * ROW_BYTES, load, LOADS);                              \
            FETCH_SCALE(slot, i, row, step)                                                                            \
        }                                                                                                              \
    }
#define FETCH_X(slot, step)                                                                                            \
    {                                                                                                                  \
        uint from = min(min(step, last) * BK * (16 / PER_UNIT) + x_part * 16, plane_bytes - 16);                       \
        [[unroll]] for (uint i = 0; i < X_EACH; ++i) {                                                                 \
            x_next[(slot) * X_EACH + i] = Inputs4(x_tile + (X_AT(x_row + i * X_PASS) + from)).at[0];               \
        }                                                                                                              \
    }
#ifdef BYTES
#define STORE_W(to, loaded, mask) STORE_UNIT(to, (loaded) & (mask))
#define ALL 0xffffffffu
#elif defined(GROUPED)
#define STORE_WEIGHED(to, loaded, i, by)                                                                               \
    STORE_UNIT((to) + (i), uvec4(widen_scaled(loaded, 2 * (i), by), widen_scaled(loaded, 2 * (i) + 1, by)))
#else
#define STORE_W(to, loaded, mask)                                                                                      \
    STORE_UNIT(to, uvec4(widen4(loaded.x, mask), widen4(loaded.y, mask)))                                              \
    STORE_UNIT((to) + 1, uvec4(widen4(loaded.z, mask), widen4(loaded.w, mask)))
#define ALL ALL_BYTES
#endif

    [[unroll]] for (uint d = 0; d < DEPTH; ++d) FETCH_W(d, step_first + d)
    relay_ask(ahead_low, ahead_high, ahead_bytes);
    if (EXPERTS == 0) relay_wait(state, turn, before);
    [[unroll]] for (uint d = 0; d < DEPTH; ++d) FETCH_X(d, step_first + d)
    relay_take(state);
    for (uint round = step_first; round < step_end; round += ROUND) {
        [[unroll]] for (uint d = 0; d < ROUND; ++d) {
            const uint slot = d % DEPTH;
            uint step = round + d;
#ifdef GROUPED
            bool is_input = step <= last && step * BK + w_part * PER_LOAD < k;
#else
            uint mask = step <= last && step * BK + w_part * 16 < k ? ALL : 0;
#endif
            [[unroll]] for (uint i = 0; i < W_EACH; ++i) {
                if (W_LOADS % WORKGROUP == 0 || id + i * WORKGROUP < W_LOADS) {
#ifdef GROUPED
                    uint at = w_to + i * W_PASS * UNITS;
                    Multiplier by = multiplier(w_scale[slot * W_EACH + i], LOAD_OF(i, step), is_input);
                    [[unroll]] for (uint u = 0; u < PER_LOAD / 8; ++u) {
                        STORE_WEIGHED(at, w_next[slot * W_EACH + i], u, by)
                    }
#else
                    STORE_W(w_to + i * W_PASS * UNITS, w_next[slot * W_EACH + i], mask)
#endif
                }
            }
            [[unroll]] for (uint i = 0; i < X_EACH; ++i) {
                if (X_LOADS % WORKGROUP == 0 || id + i * WORKGROUP < X_LOADS) {
                    STORE_UNIT(x_to + i * X_PASS * UNITS, x_next[slot * X_EACH + i])
                }
            }
            barrier();
            FETCH_W(slot, step + DEPTH)
            FETCH_X(slot, step + DEPTH)
            [[unroll]] for (uint kk = 0; kk < BK / KSPLIT; kk += K) {
                MatrixA a[PLANES * MATS_M];
                MatrixB b[MATS_N];
                [[unroll]] for (uint i = 0; i < PLANES * MATS_M; ++i) {
                    uint row = i / MATS_M * BM + i % MATS_M * M;
                    coopMatLoad(a[i], tiles, a_at + row * UNITS * PIECES + kk / PIECE_ELEMENTS, UNITS * PIECES,
                                gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                    coopMatLoad(b[j], tiles, b_at + j * N * UNITS * PIECES + kk / PIECE_ELEMENTS, UNITS * PIECES,
                                gl_CooperativeMatrixLayoutColumnMajor);
                }
                [[unroll]] for (uint i = 0; i < PLANES * MATS_M; ++i) {
                    [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                        sums[i * MATS_N + j] = coopMatMulAdd(a[i], b[j], sums[i * MATS_N + j]);
                    }
                }
            }
            barrier();
        }
    }

#ifdef BYTES
#define RESULT(i) (MatrixF32(sums[i]) * 256.0 + MatrixF32(sums[MATS_M * MATS_N + (i)]))
#else
#define RESULT(i) sums[i]
#endif
    // Whole tiles go straight to memory, where rows are aligned as a matrix's must be.
    if (KSPLIT == 1 && splits == 1 && r0 + BM <= live && n0 + BN <= n && out_stride % 4 == 0 && uint64_t(y_out) % 16 == 0) {
        for (uint i = id; i < BM + BN; i += WORKGROUP) {
            float scale = i < BM ? X_SCALE(r0 + i) : OUTPUT_SCALE(n0 + i - BM);
            tiles[i / PIECE_WORDS][i % PIECE_WORDS] = floatBitsToUint(scale);
        }
        barrier();
        // Columns, or rows, 0 apart: all are the rows' scales, or the outputs'.
        MatrixF32 row_scales[MATS_M];
        [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
            coopMatLoad(row_scales[i], tiles, (subgroup_m * WM + i * M) / PIECE_WORDS, 0, gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
            uint column = subgroup_n * WN + j * N;
            MatrixF32 column_scales;
            coopMatLoad(column_scales, tiles, (BM + column) / PIECE_WORDS, 0, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                coopMatStore(RESULT(i * MATS_N + j) * column_scales * row_scales[i], y_out.at,
                             (r0 + subgroup_m * WM + i * M) * out_stride + n0 + column, out_stride,
                             gl_CooperativeMatrixLayoutRowMajor);
            }
        }
        return;
    }
    // Others leave through shared memory, where the parts of KSPLIT meet: M rows of each subgroup at a time.
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
            LEAVE(r, o, y)
        }
    }
    if (splits == 1) return;
#include "splits.glsl"
}

void main() {
    prepare_weights();
    make_tile();
    relay_pass(state, turn);
}
