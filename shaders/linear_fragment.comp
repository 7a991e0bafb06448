// linear_fragment: out[r][n] = x_scale[r] * w_scale[n] * sum_k weight[n][k] * x[r][k], for few rows, by matrix units (f16 x f16
// -> f32), without shared memory between: each invocation loads the weights and inputs that it holds of the matrices.
// weight int8 [N, K] with one f32 scale a row, K padded to 16 with zeros; x in half form (forms.glsl), rows x_stride bytes
// apart; out f32 [rows, out_stride].
// A subgroup makes OUTPUTS outputs of ROWS rows; SUBS_N of them lie beside each other in a workgroup, and KSPLIT share the
// same outputs, each with its part of the inputs.
// Which elements of a matrix an invocation holds is the device's choice, and is found out (src/gpu/fragment.rs): SHARERS
// invocations share a row of A, and a column of B in the same way. A product does not change when its inputs change places in
// weights and x alike: so an invocation takes 16 consecutive inputs of a row, one load, for its places in the next few
// products. Nobody waits for anybody: each subgroup multiplies what has arrived while DEPTH steps are on their way.
// With `splits` > 1 the inputs are divided among that many workgroups as well: each leaves its sums in `parts`, and the last
// to finish adds them, always in the same order.
// Bytes: N * K from memory; x from caches, N / OUTPUTS times. Operations: 2 * N * K * rows.
// Few waves: operands, sums and what is on its way fill the registers.
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

layout(constant_id = 1) const uint ROWS = 16;
layout(constant_id = 2) const uint OUTPUTS = 32;
layout(constant_id = 3) const uint SUBS_N = 1;
layout(constant_id = 4) const uint KSPLIT = 1;
layout(constant_id = 5) const uint SPAN = 1;    // loads of a row of weights in a step
layout(constant_id = 6) const uint DEPTH = 1;   // steps of weights on their way
layout(constant_id = 7) const uint X_DEPTH = 1; // steps of inputs on their way
// 8 is common.glsl's.
layout(constant_id = 9) const uint SHARERS = 4;
// The matrix units' shape.
layout(constant_id = 10) const uint M = 16;
layout(constant_id = 11) const uint N = 8;
layout(constant_id = 12) const uint K = 16;

const uint SUBGROUPS = SUBS_N * KSPLIT;
const uint SUBGROUP = WORKGROUP / SUBGROUPS;
const uint BM = ROWS;
const uint BN = SUBS_N * OUTPUTS;

// Matrices of a subgroup, rows of each that an invocation holds places of, and how many places of each.
const uint MATS_A = OUTPUTS / M;
const uint MATS_B = ROWS / N;
const uint HELD_A = M * SHARERS > SUBGROUP ? M * SHARERS / SUBGROUP : 1;
const uint HELD_B = N * SHARERS > SUBGROUP ? N * SHARERS / SUBGROUP : 1;
const uint PLACES = K / SHARERS;
// Inputs of a step that the sharers of a row load at once, and in all.
const uint RUN = 16 * SHARERS;
const uint STEP = SPAN * RUN;
const uint W_EACH = MATS_A * HELD_A * SPAN;
const uint X_EACH = MATS_B * HELD_B * SPAN * 2;
const uint ROUND = DEPTH > X_DEPTH ? DEPTH : X_DEPTH;

#define MatrixA coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define MatrixB coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
#define MatrixSum coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

shared float stage[SUBGROUPS * OUTPUTS * N];
shared bool is_last;

void make_tile() {
    uint live = live_rows(state, which);
    uint split = gl_WorkGroupID.x % splits, row_tile = gl_WorkGroupID.x / splits;
    uint r0 = row_tile * BM, n0 = gl_WorkGroupID.y * BN;
    if (r0 >= live) return;
    uint id = gl_LocalInvocationID.x;
    uint subgroup_k = gl_SubgroupID / SUBS_N, subgroup_n = gl_SubgroupID % SUBS_N;

    // The steps of this split, of all KSPLIT subgroups at a time.
    uint steps = (k + KSPLIT * STEP - 1) / (KSPLIT * STEP);
    uint step_first = split * steps / splits, step_end = (split + 1) * steps / splits, last = step_end - 1;

    // Rows past the end repeat the last one, and inputs past the end others.
    uint64_t w_tile = weight + uint64_t(n0) * k, x_tile = x + uint64_t(r0) * x_stride;
    uint w_last = min(n - n0, BN) - 1, x_last = live - 1 - r0;
    uint scale_at = (k + 31) / 32 * 64;
    uint lane_row = gl_SubgroupInvocationID / SHARERS, lane_part = gl_SubgroupInvocationID % SHARERS;
    uint w_row = subgroup_n * OUTPUTS + lane_row % (M / HELD_A), x_row = lane_row % (N / HELD_B);

    MatrixSum sums[MATS_A * MATS_B];
    [[unroll]] for (uint i = 0; i < MATS_A * MATS_B; ++i) sums[i] = MatrixSum(0);
    uvec4 w_next[DEPTH * W_EACH];
    uvec4 x_next[X_DEPTH * X_EACH];

    // The first input that this invocation takes of a step.
#define FIRST(step, s) ((min(step, last) * KSPLIT + subgroup_k) * STEP + (s) * RUN + lane_part * 16)
#define FETCH_W(slot, step)                                                                                            \
    [[unroll]] for (uint i = 0; i < MATS_A * HELD_A; ++i) {                                                            \
        uint row = min(w_row + i * (M / HELD_A), w_last);                                                              \
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {                                                                   \
            w_next[(slot) * W_EACH + i * SPAN + s] = Words4(w_tile + (row * k + min(FIRST(step, s), k - 16))).at[0];   \
        }                                                                                                              \
    }
#define FETCH_X(slot, step)                                                                                            \
    [[unroll]] for (uint i = 0; i < MATS_B * HELD_B; ++i) {                                                            \
        uint row = min(x_row + i * (N / HELD_B), x_last);                                                              \
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {                                                                   \
            uint64_t from = x_tile + (row * x_stride + 2 * min(FIRST(step, s), k - 16));                               \
            x_next[(slot) * X_EACH + (i * SPAN + s) * 2] = Inputs4(from).at[0];                                        \
            x_next[(slot) * X_EACH + (i * SPAN + s) * 2 + 1] = Inputs4(from).at[1];                                    \
        }                                                                                                              \
    }
    [[unroll]] for (uint d = 0; d < DEPTH; ++d) FETCH_W(d, step_first + d)
    relay_wait(state, turn, before);
    [[unroll]] for (uint d = 0; d < X_DEPTH; ++d) FETCH_X(d, step_first + d)
    for (uint round = step_first; round < step_end; round += ROUND) {
        [[unroll]] for (uint d = 0; d < ROUND; ++d) {
            const uint w_slot = d % DEPTH, x_slot = d % X_DEPTH;
            uint step = round + d;
            [[unroll]] for (uint s = 0; s < SPAN; ++s) {
                uint mask = step <= last && FIRST(step, s) < k ? ALL_BYTES : 0;
                // Products: the h-th takes the h-th PLACES of the sixteen, in the order that half form has.
                [[unroll]] for (uint h = 0; h < 16 / PLACES; ++h) {
                    MatrixA a[MATS_A];
                    [[unroll]] for (uint i = 0; i < MATS_A * HELD_A; ++i) {
                        [[unroll]] for (uint p = 0; p < PLACES; ++p) {
                            const uint from = h * PLACES + p;
                            uvec2 four = widen4(w_next[w_slot * W_EACH + i * SPAN + s][from / 4], mask);
                            a[i / HELD_A][i % HELD_A * PLACES + p] = unpackFloat2x16(four[from / 2 % 2])[from % 2];
                        }
                    }
                    [[unroll]] for (uint j = 0; j < MATS_B; ++j) {
                        MatrixB b;
                        [[unroll]] for (uint i = 0; i < HELD_B; ++i) {
                            [[unroll]] for (uint p = 0; p < PLACES; ++p) {
                                const uint from = h * PLACES + p;
                                uint two = x_next[x_slot * X_EACH + ((j * HELD_B + i) * SPAN + s) * 2 + from / 8][from / 2 % 4];
                                b[i * PLACES + p] = unpackFloat2x16(two)[from % 2];
                            }
                        }
                        [[unroll]] for (uint i = 0; i < MATS_A; ++i) {
                            sums[i * MATS_B + j] = coopMatMulAdd(a[i], b, sums[i * MATS_B + j]);
                        }
                    }
                }
            }
            FETCH_W(w_slot, step + DEPTH)
            FETCH_X(x_slot, step + X_DEPTH)
        }
    }

    // N rows at a time leave through shared memory, where the parts of KSPLIT meet.
    uint padded_n = gl_NumWorkGroups.y * BN;
    uint part_rows = gl_NumWorkGroups.x / splits * BM;
    [[unroll]] for (uint j = 0; j < MATS_B; ++j) {
        barrier();
        [[unroll]] for (uint i = 0; i < MATS_A; ++i) {
            coopMatStore(sums[i * MATS_B + j], stage, gl_SubgroupID * (OUTPUTS * N) + i * M, OUTPUTS,
                         gl_CooperativeMatrixLayoutColumnMajor);
        }
        barrier();
        for (uint e = id; e < N * BN; e += WORKGROUP) {
            uint column = e % BN, row = e / BN;
            uint at = column / OUTPUTS * (OUTPUTS * N) + row * OUTPUTS + column % OUTPUTS;
            float y = 0;
            [[unroll]] for (uint part = 0; part < KSPLIT; ++part) y += stage[at + part * (SUBS_N * OUTPUTS * N)];
            uint r = r0 + j * N + row, o = n0 + column;
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
