// linear_wide: as linear_matrix in plain form, for tiles of many rows:
//   out[r][n] = x_scale[r] * w_scale[n] * sum_k weight[n][k] * x[r][k], f16 x f16 -> f32
// weight int8 [N, K] with one f32 scale a row, K padded to 16 with zeros; x in half form (forms.glsl), rows x_stride bytes
// apart; out f32 [rows, out_stride].
// A workgroup makes a BM x BN tile of out (rows x outputs) in steps of BK inputs, a subgroup WM x WN of it. Such tiles are
// bound by the way from the L2 cache to the processors, which is the faster the more of a line is asked for at once: tiles
// are as large, and then steps as long, as registers and 48 KiB of shared memory allow.
// The loop is without branches. NVIDIA's compiler copies what was loaded behind a branch, or before the last use of what the
// registers held, and so waits for it as soon as it has asked for it. So loads stand behind the barrier behind the stores,
// steps behind the end are multiplied by zeros, and the loop's round is ROUND steps, a multiple of DEPTH. A step's loads are
// stored DEPTH steps later.
// With `splits` > 1 the inputs are divided among that many workgroups as well: each leaves its sums in `parts`, and the last
// to finish adds them, always in the same order.
// Shared memory: max((BM + BN) * (2 * BK + 16), subgroups * M * WN * 4) bytes.
// Bytes: N * K from memory, once where the row tiles of a weight tile run together; x from caches, N / BN times, and weights
// rows / BM times.
// Operations: 2 * N * K * rows.
// Few waves: it is bound by caches and matrix units; operands and sums fill the registers.
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

// Numbered as linear_matrix's.
layout(constant_id = 1) const uint BM = 128;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 64;
layout(constant_id = 4) const uint WM = 32;
layout(constant_id = 5) const uint WN = 32;
layout(constant_id = 7) const uint ROUND = 1;
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

// f16 elements of a 16-byte unit. Rows of a tile lie one unit further apart than they have, so that reading down a column
// of units meets every bank.
const uint PER_UNIT = 8;
const uint UNITS = BK / PER_UNIT + 1;
const uint TILE_UNITS = (BM + BN) * UNITS;
const uint STAGE_UNITS = SUBS_M * SUBS_N * M * WN / 4;
shared uvec4 tiles[TILE_UNITS > STAGE_UNITS ? TILE_UNITS : STAGE_UNITS];
shared bool is_last;

// 16-byte loads of one step: of a row, in all, and of an invocation, one in each pass of the workgroup over the rows.
const uint W_PARTS = BK / 16;
const uint X_PARTS = BK / PER_UNIT;
const uint W_LOADS = BN * W_PARTS;
const uint X_LOADS = BM * X_PARTS;
const uint W_EACH = (W_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint X_EACH = (X_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint W_PASS = WORKGROUP / W_PARTS;
const uint X_PASS = WORKGROUP / X_PARTS;

#define MatrixA coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define MatrixB coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
#define MatrixSum coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

// The order of a tile's rows in shared memory (tiles.glsl), which is one of eight rows, and so of a pass.
uint order(uint i, uint parts) { return UNITS == 5 && X_PASS % 8 == 0 ? bank_order(i, parts) : i; }

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

    // Rows past the end repeat the last one, and inputs past the end others.
    uint64_t w_tile = weight + uint64_t(n0) * k, x_tile = x + uint64_t(r0) * x_stride;
    uint w_last = n - 1 - n0, x_last = live - 1 - r0, last = step_end - 1;
    uint w_part = id % W_PARTS, x_part = id % X_PARTS;
    uint w_row = order(id / W_PARTS, W_PARTS), x_row = order(id / X_PARTS, X_PARTS);
    uint w_to = (BM + w_row) * UNITS + w_part * 2, x_to = x_row * UNITS + x_part;

    uint subgroup_m = gl_SubgroupID / SUBS_N, subgroup_n = gl_SubgroupID % SUBS_N;
    uint a_at = subgroup_m * WM * UNITS, b_at = (BM + subgroup_n * WN) * UNITS;

    MatrixSum sums[MATS_M * MATS_N];
    [[unroll]] for (uint i = 0; i < MATS_M * MATS_N; ++i) sums[i] = MatrixSum(0);

    // Steps on their way: the s-th is in slot s % DEPTH.
    uvec4 w_next[DEPTH * W_EACH];
    uvec4 x_next[DEPTH * X_EACH];

#define FETCH_W(slot, step)                                                                                            \
    {                                                                                                                  \
        uint from = min((step) * BK + w_part * 16, k - 16);                                                            \
        [[unroll]] for (uint i = 0; i < W_EACH; ++i) {                                                                 \
            uint row = min(w_row + i * W_PASS, w_last);                                                                \
            w_next[(slot) * W_EACH + i] = Words4(w_tile + (row * k + from)).at[0];                                     \
        }                                                                                                              \
    }
#define FETCH_X(slot, step)                                                                                            \
    {                                                                                                                  \
        uint from = min(2 * min(step, last) * BK + x_part * 16, 2 * padded - 16);                                      \
        [[unroll]] for (uint i = 0; i < X_EACH; ++i) {                                                                 \
            uint row = min(x_row + i * X_PASS, x_last);                                                                \
            x_next[(slot) * X_EACH + i] = Inputs4(x_tile + (row * x_stride + from)).at[0];                             \
        }                                                                                                              \
    }

    [[unroll]] for (uint d = 0; d < DEPTH; ++d) FETCH_W(d, step_first + d)
    relay_wait(state, turn, before);
    [[unroll]] for (uint d = 0; d < DEPTH; ++d) FETCH_X(d, step_first + d)
    for (uint round = step_first; round < step_end; round += ROUND) {
        [[unroll]] for (uint d = 0; d < ROUND; ++d) {
            const uint slot = d % DEPTH;
            uint step = round + d;
            uint mask = step <= last && step * BK + w_part * 16 < k ? 0x00ff00ffu : 0;
            [[unroll]] for (uint i = 0; i < W_EACH; ++i) {
                uvec4 w = w_next[slot * W_EACH + i];
                uint to = w_to + i * W_PASS * UNITS;
                if (W_LOADS % WORKGROUP == 0 || id + i * WORKGROUP < W_LOADS) {
                    tiles[to] = uvec4(widen4(w.x, mask), widen4(w.y, mask));
                    tiles[to + 1] = uvec4(widen4(w.z, mask), widen4(w.w, mask));
                }
            }
            [[unroll]] for (uint i = 0; i < X_EACH; ++i) {
                uvec4 v = x_next[slot * X_EACH + i];
                if (X_LOADS % WORKGROUP == 0 || id + i * WORKGROUP < X_LOADS) {
                    tiles[x_to + i * X_PASS * UNITS] = uvec4(reorder4(v.x, v.y), reorder4(v.z, v.w));
                }
            }
            barrier();
            FETCH_W(slot, step + DEPTH)
            FETCH_X(slot, step + DEPTH)
            [[unroll]] for (uint kk = 0; kk < BK; kk += K) {
                MatrixA a[MATS_M];
                MatrixB b[MATS_N];
                [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                    coopMatLoad(a[i], tiles, a_at + i * M * UNITS + kk / PER_UNIT, UNITS,
                                gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                    coopMatLoad(b[j], tiles, b_at + j * N * UNITS + kk / PER_UNIT, UNITS,
                                gl_CooperativeMatrixLayoutColumnMajor);
                }
                [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                    [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                        sums[i * MATS_N + j] = coopMatMulAdd(a[i], b[j], sums[i * MATS_N + j]);
                    }
                }
            }
            barrier();
        }
    }

    // Whole tiles go straight to memory, where rows are aligned as a matrix's must be.
    if (splits == 1 && r0 + BM <= live && n0 + BN <= n && out_stride % 4 == 0 && uint64_t(y_out) % 16 == 0) {
        for (uint i = id; i < BM + BN; i += WORKGROUP) {
            float scale = i < BM ? Floats(x_tile + uint64_t(i) * x_stride + scale_at).at[0] : scales.at[n0 + i - BM];
            tiles[i / 4][i % 4] = floatBitsToUint(scale);
        }
        barrier();
        // Columns, or rows, 0 apart: all are the rows' scales, or the outputs'.
        MatrixSum row_scales[MATS_M];
        [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
            coopMatLoad(row_scales[i], tiles, (subgroup_m * WM + i * M) / 4, 0, gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
            uint column = subgroup_n * WN + j * N;
            MatrixSum column_scales;
            coopMatLoad(column_scales, tiles, (BM + column) / 4, 0, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                coopMatStore(sums[i * MATS_N + j] * column_scales * row_scales[i], y_out.at,
                             (r0 + subgroup_m * WM + i * M) * out_stride + n0 + column, out_stride,
                             gl_CooperativeMatrixLayoutRowMajor);
            }
        }
        return;
    }
    // Others leave through shared memory, M rows of each subgroup at a time.
    uint padded_n = gl_NumWorkGroups.y * BN;
    uint part_rows = gl_NumWorkGroups.x / splits * BM;
    [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
        barrier();
        [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
            coopMatStore(sums[i * MATS_N + j], tiles, (gl_SubgroupID * (M * WN) + j * N) / 4, WN / 4,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
        for (uint e = id; e < SUBS_M * M * BN; e += WORKGROUP) {
            uint column = e % BN, row = e / BN;
            uint word = ((row / M * SUBS_N + column / WN) * M + row % M) * WN + column % WN;
            float y = uintBitsToFloat(tiles[word / 4][word % 4]);
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
