// linear_dot_tile: out[r][n] = w_scale[n] * sum_k weight[n][k] * x[r][k], for many rows r, by packed integer dot products:
// where there are no matrix units.
// weight [N, K] int8 with one f32 scale a row, x in Int16Block; or in another format with scales of groups (weights.glsl), x
// in Int16Sums (activation_layout.glsl). K padded to 16 with zeros; out [rows, N] f32.
// Products and sums of 16 are exact integers; blocks of 16 are added in f32, in their order.
// A workgroup of 128 invocations makes a tile of 64 outputs x 32 rows, each invocation 4 x 4 of it, in steps of two blocks
// through shared memory (4.25 KiB, with scales of groups up to 5), while the next step's are on their way to registers.
// Bytes: the weight's * rows / 32 from caches or memory, 2.25 * K * rows * N / 64 from caches; operations: 2 * N * K * rows,
// as 8 packed dot products for 16 weights of a row.
// Narrow loads: the f32 scale of each block of x, beside its 32 bytes; the scales of each load of a format with scales of
// groups, and high bits where it has them.
#include "common.glsl"
#include "weights.glsl"
#extension GL_EXT_integer_dot_product : require

layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;
    uint64_t x;
    Floats y_out;
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint blocks;     // K / 16
    uint x_padded;   // P of x
    uint x_stride;   // bytes
    uint out_stride; // elements
};

#define OUTPUTS 64
#define ROWS 32
#define STEP 2  // blocks
#define PER 4   // outputs and rows of an invocation, OUTPUTS / PER and ROWS / PER apart

shared uvec4 w_tile[STEP * OUTPUTS];
shared uvec4 x_tile[2 * STEP * ROWS];  // [plane][block][row]
shared float scale_tile[STEP * ROWS];
#ifdef GROUPED
// Both blocks of a step are one group.
shared Factors factors_tile[OUTPUTS];
shared int sum_tile[STEP * ROWS];
Factors factors_next;
uvec4 pairs_next;  // scale and sum of both blocks of a row
#endif
#define X_BLOCKS (PER_LOAD / 16)

Weights w_next;
uvec4 x_next;
float scale_next;

// Asks for the step from block b0 on. Each invocation has one block of an output's weights, one of a plane of a row and, of
// every other invocation, that row's scale for the block. What lies past the last block reads as that one: it is not added.
void fetch(uint b0, uint n0, uint r0, uint live) {
    uint id = gl_LocalInvocationID.x;
    uint output_row = min(n0 + id / STEP, n - 1), block = min(b0 + id % STEP, blocks - 1);
    // Where both blocks of a step are one load, each of two invocations takes one of it.
    uint loads = blocks / X_BLOCKS, in_row = block / X_BLOCKS;
    uint64_t w_row = weight + uint64_t(output_row) * row_bytes(loads);
    w_next = fetch_weights(w_row, in_row, loads);
#ifdef GROUPED
    uint load = output_row * loads + in_row;
    factors_next = factors(fetch_scale(scale_at(uint64_t(scales), load), w_row, in_row, loads), load);
#endif
    uint plane = id % 2, x_block = min(b0 + id / 2 % STEP, blocks - 1), row = min(r0 + id / (2 * STEP), live - 1);
    uint64_t from = x + uint64_t(row) * x_stride;
    x_next = Words4(from + plane * x_padded).at[x_block];
#ifdef GROUPED
    pairs_next = Words4(from + 2 * x_padded).at[x_block / STEP];
#else
    scale_next = plane == 0 ? Floats(from + 2 * x_padded).at[x_block] : 0.0;
#endif
}

void store() {
    uint id = gl_LocalInvocationID.x, x_block = id / 2 % STEP, row = id / (2 * STEP);
#ifdef GROUPED
    w_tile[id % STEP * OUTPUTS + id / STEP] = block_of(w_next, id % STEP);
#else
    w_tile[id % STEP * OUTPUTS + id / STEP] = w_next;
#endif
#ifdef GROUPED
    if (id % STEP == 0) factors_tile[id / STEP] = factors_next;
    if (id % (2 * STEP) == 0) {
        [[unroll]] for (uint b = 0; b < STEP; ++b) {
            scale_tile[b * ROWS + row] = uintBitsToFloat(pairs_next[2 * b]);
            sum_tile[b * ROWS + row] = int(pairs_next[2 * b + 1]);
        }
    }
#endif
    x_tile[(id % 2 * STEP + x_block) * ROWS + row] = x_next;
#ifndef GROUPED
    if (id % 2 == 0) scale_tile[x_block * ROWS + row] = scale_next;
#endif
}

// The tile of outputs n0 .. n0 + OUTPUTS and rows r0 .. r0 + ROWS.
void compute(uint n0, uint r0, uint live) {
    uint tn = gl_LocalInvocationID.x % (OUTPUTS / PER), tr = gl_LocalInvocationID.x / (OUTPUTS / PER);
    float sums[PER * PER];  // [row][output]
    [[unroll]] for (uint i = 0; i < PER * PER; ++i) sums[i] = 0;
    fetch(0, n0, r0, live);
    for (uint b0 = 0; b0 < blocks; b0 += STEP) {
        barrier();
        store();
        barrier();
        fetch(b0 + STEP, n0, r0, live);
        [[unroll]] for (uint b = 0; b < STEP; ++b) {
            if (b0 + b >= blocks) break;
            uvec4 w[PER];
            [[unroll]] for (uint j = 0; j < PER; ++j) w[j] = w_tile[b * OUTPUTS + tn + j * (OUTPUTS / PER)];
#ifdef GROUPED
            Factors f[PER];
            [[unroll]] for (uint j = 0; j < PER; ++j) f[j] = factors_tile[tn + j * (OUTPUTS / PER)];
#define SCALED(j, y) weigh_block(f[j], b, scale * float((y) - int(ZERO) * sum), scale * float(sum))
#else
#define SCALED(j, y) (scale * float(y))
#endif
            [[unroll]] for (uint e = 0; e < PER; ++e) {
                uint row = tr + e * (ROWS / PER);
                uvec4 hi = x_tile[b * ROWS + row], lo = x_tile[(STEP + b) * ROWS + row];
                float scale = scale_tile[b * ROWS + row];
#ifdef GROUPED
                int sum = sum_tile[b * ROWS + row];
#endif
                [[unroll]] for (uint j = 0; j < PER; ++j) {
                    int high = 0, low = 0;
                    [[unroll]] for (uint q = 0; q < 4; ++q) {
                        high += dotPacked4x8EXT(int(w[j][q]), int(hi[q]));
                        low += dotPacked4x8EXT(int(w[j][q]), int(lo[q]));
                    }
                    // At most 16 * 128 * 127 * 256 + ...: well within 31 bits.
                    sums[e * PER + j] += SCALED(j, high * 256 + low);
                }
            }
        }
    }
    [[unroll]] for (uint e = 0; e < PER; ++e) {
        uint r = r0 + tr + e * (ROWS / PER);
        [[unroll]] for (uint j = 0; j < PER; ++j) {
            uint o = n0 + tn + j * (OUTPUTS / PER);
#ifdef GROUPED
            if (r < live && o < n) y_out.at[r * out_stride + o] = sums[e * PER + j];
#else
            if (r < live && o < n) y_out.at[r * out_stride + o] = sums[e * PER + j] * scales.at[o];
#endif
        }
    }
}

void main() {
    prepare_weights();
    uint live = live_rows(state, which);
    uint r0 = gl_WorkGroupID.y * ROWS;
    if (r0 >= live) return;
    // More outputs than the grid's x counts go on in its z.
    uint n0 = (gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x) * OUTPUTS;
    if (n0 < n) compute(n0, r0, live);
}
