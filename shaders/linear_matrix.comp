// linear_matrix: out[r][n] = x_scale[r] * w_scale[n] * sum_k weight[n][k] * x[r][k], by matrix units.
// weight int8 [N, K] with one f32 scale a row, K padded to 16 with zeros; x in half form: per row f16[P], P = K padded to
// 32 with zeros, then one f32 scale at byte 2P, rows x_stride bytes apart; out f32 [rows, out_stride].
// A workgroup makes a BM x BN tile of out (rows x outputs) in steps of BK inputs; a subgroup WM x WN of it, and of each
// step the KSPLIT-th part of the inputs. While a step is multiplied out of shared memory, the next one's bytes are on
// their way from memory to registers; weights become f16 between there and shared memory. With `splits` > 1 the inputs
// are divided among that many workgroups as well: each leaves its sums in `parts`, and the last to finish adds them, always
// in the same order.
// Shared memory: max(BUFFERS * (BM + BN) * (BK + 8) * 2, subgroups * M * WN * 4) bytes.
// Bytes: N * K from memory, once where the row tiles of a weight tile run together; x from caches, N / BN times.
// Operations: 2 * N * K * rows.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#include "common.glsl"

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
};

layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 32;
layout(constant_id = 5) const uint WN = 32;
layout(constant_id = 6) const uint KSPLIT = 1;
layout(constant_id = 7) const uint BUFFERS = 1;
// The matrix units' shape.
layout(constant_id = 8) const uint M = 16;
layout(constant_id = 9) const uint N = 16;
layout(constant_id = 10) const uint K = 16;

// Subgroups along a tile's rows and outputs, matrices of a subgroup.
const uint SUBS_M = BM / WM;
const uint SUBS_N = BN / WN;
const uint MATS_M = WM / M;
const uint MATS_N = WN / N;
const uint SUBGROUPS = KSPLIT * SUBS_M * SUBS_N;

// Rows of a tile lie this many 16-byte units apart: 8 f16 more than they have, so that reading down a column of units
// meets every bank.
const uint UNITS = BK / 8 + 1;
const uint BUFFER_UNITS = (BM + BN) * UNITS;
const uint STAGE_UNITS = SUBGROUPS * M * WN / 4;
const uint TILE_UNITS = BUFFERS * BUFFER_UNITS;
shared uvec4 tiles[TILE_UNITS > STAGE_UNITS ? TILE_UNITS : STAGE_UNITS];
shared bool is_last;

// 16-byte loads of one step: in all, and of an invocation.
const uint W_LOADS = BN * BK / 16;
const uint X_LOADS = BM * BK / 8;
const uint W_EACH = (W_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint X_EACH = (X_LOADS + WORKGROUP - 1) / WORKGROUP;

// Bytes as f16: 0x6400 + b is 1024 + b, and the sign's flip adds 128.
uint widen2(uint bytes) {
    return packFloat2x16(unpackFloat2x16(bytes) - f16vec2(1152.0hf));
}
uvec2 widen4(uint w) {
    w ^= 0x80808080u;
    uint low = (w & 0xffu) | ((w & 0xff00u) << 8) | 0x64006400u;
    uint high = ((w >> 16) & 0xffu) | ((w >> 8) & 0xff0000u) | 0x64006400u;
    return uvec2(widen2(low), widen2(high));
}

void main() {
    uint live = live_rows(state, which);
    uint split = gl_WorkGroupID.x % splits, row_tile = gl_WorkGroupID.x / splits;
    uint r0 = row_tile * BM, n0 = gl_WorkGroupID.y * BN;
    if (r0 >= live) return;
    uint id = gl_LocalInvocationID.x;

    // The steps of this split.
    uint steps = (k + BK - 1) / BK;
    uint step_first = split * steps / splits, step_end = (split + 1) * steps / splits;

    // Where this invocation's loads begin, and where in shared memory they end. Rows past the end repeat the last one.
    uint64_t w_at[W_EACH];
    uint64_t x_at[X_EACH];
    uint w_k[W_EACH];
    uint x_k[X_EACH];
    [[unroll]] for (uint i = 0; i < W_EACH; ++i) {
        uint load = id + i * WORKGROUP;
        w_k[i] = load % (BK / 16) * 16;
        w_at[i] = weight + uint64_t(min(n0 + load / (BK / 16), n - 1)) * k + w_k[i];
    }
    [[unroll]] for (uint i = 0; i < X_EACH; ++i) {
        uint load = id + i * WORKGROUP;
        x_k[i] = load % (BK / 8) * 8;
        x_at[i] = x + uint64_t(min(r0 + load / (BK / 8), live - 1)) * x_stride + 2 * x_k[i];
    }

    uint subgroup_k = gl_SubgroupID / (SUBS_M * SUBS_N);
    uint subgroup_m = gl_SubgroupID / SUBS_N % SUBS_M, subgroup_n = gl_SubgroupID % SUBS_N;

    coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> sums[MATS_M * MATS_N];
    [[unroll]] for (uint i = 0; i < MATS_M * MATS_N; ++i) {
        sums[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
    }

    uvec4 w_next[W_EACH];
    uvec4 x_next[X_EACH];

    // The tail of the last step reads as zero.
#define FETCH(step)                                                                                                    \
    [[unroll]] for (uint i = 0; i < W_EACH; ++i) {                                                                     \
        w_next[i] = uvec4(0);                                                                                          \
        if ((step) * BK + w_k[i] < k) w_next[i] = Words4(w_at[i] + (step) * BK).at[0];                                 \
    }                                                                                                                  \
    [[unroll]] for (uint i = 0; i < X_EACH; ++i) {                                                                     \
        x_next[i] = uvec4(0);                                                                                          \
        if ((step) * BK + x_k[i] < k) x_next[i] = Words4(x_at[i] + (step) * (2 * BK)).at[0];                           \
    }

    if (step_first < step_end) { FETCH(step_first) }
    for (uint step = step_first; step < step_end; ++step) {
        uint base = (BUFFERS == 1 ? 0 : (step & 1)) * BUFFER_UNITS;
        if (BUFFERS == 1) barrier();
        [[unroll]] for (uint i = 0; i < W_EACH; ++i) {
            uint load = id + i * WORKGROUP;
            if (W_LOADS % WORKGROUP == 0 || load < W_LOADS) {
                uint to = base + (BM + load / (BK / 16)) * UNITS + load % (BK / 16) * 2;
                uvec4 w = w_next[i];
                tiles[to] = uvec4(widen4(w.x), widen4(w.y));
                tiles[to + 1] = uvec4(widen4(w.z), widen4(w.w));
            }
        }
        [[unroll]] for (uint i = 0; i < X_EACH; ++i) {
            uint load = id + i * WORKGROUP;
            if (X_LOADS % WORKGROUP == 0 || load < X_LOADS) {
                tiles[base + load / (BK / 8) * UNITS + load % (BK / 8)] = x_next[i];
            }
        }
        barrier();
        if (step + 1 < step_end) { FETCH(step + 1) }

        [[unroll]] for (uint kk = 0; kk < BK / KSPLIT; kk += K) {
            uint unit = base + (subgroup_k * (BK / KSPLIT) + kk) / 8;
            coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a[MATS_M];
            [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                coopMatLoad(a[i], tiles, unit + (subgroup_m * WM + i * M) * UNITS, UNITS,
                            gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
                coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
                coopMatLoad(b, tiles, unit + (BM + subgroup_n * WN + j * N) * UNITS, UNITS,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
                    sums[i * MATS_N + j] = coopMatMulAdd(a[i], b, sums[i * MATS_N + j]);
                }
            }
        }
    }

    // Sums leave through shared memory, where the parts of KSPLIT meet: M rows of each subgroup at a time.
    uint padded_n = gl_NumWorkGroups.y * BN;
    uint part_rows = gl_NumWorkGroups.x / splits * BM;
    [[unroll]] for (uint i = 0; i < MATS_M; ++i) {
        barrier();
        [[unroll]] for (uint j = 0; j < MATS_N; ++j) {
            coopMatStore(sums[i * MATS_N + j], tiles, gl_SubgroupID * (M * WN / 4) + j * (N / 4), WN / 4,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
        for (uint e = id; e < SUBS_M * M * BN; e += WORKGROUP) {
            uint column = e % BN, row = e / BN;
            uint at = ((row / M * SUBS_N + column / WN) * M + row % M) * WN + column % WN;
            float y = 0;
            [[unroll]] for (uint part = 0; part < KSPLIT; ++part) {
                uint word = at + part * (SUBS_M * SUBS_N * M * WN);
                y += uintBitsToFloat(tiles[word / 4][word % 4]);
            }
            uint r = r0 + row / M * WM + i * M + row % M, o = n0 + column;
            if (splits > 1) {
                parts.at[(split * part_rows + r) * padded_n + o] = y;
            } else if (r < live && o < n) {
                float x_scale = Floats(x + uint64_t(r) * x_stride + (k + 31) / 32 * 64).at[0];
                y_out.at[r * out_stride + o] = y * scales.at[o] * x_scale;
            }
        }
    }
    if (splits == 1) return;

    // The last workgroup of a tile adds the parts: what the others stored before they counted themselves is visible to it.
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
    barrier();
    if (id == 0) {
        uint tile = row_tile * gl_NumWorkGroups.y + gl_WorkGroupID.y;
        is_last = atomicAdd(arrived.at[tile], 1, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                            gl_SemanticsAcquireRelease) == splits - 1;
        if (is_last) arrived.at[tile] = 0;
    }
    barrier();
    if (!is_last) return;
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
    for (uint e = id; e < BM * BN; e += WORKGROUP) {
        uint r = r0 + e / BN, o = n0 + e % BN;
        if (r >= live || o >= n) continue;
        float y = 0;
        for (uint part = 0; part < splits; ++part) y += parts.at[(part * part_rows + r) * padded_n + o];
        float x_scale = Floats(x + uint64_t(r) * x_stride + (k + 31) / 32 * 64).at[0];
        y_out.at[r * out_stride + o] = y * scales.at[o] * x_scale;
    }
}
