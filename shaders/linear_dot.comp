// linear_dot: out[r][n] = sum_k weight[n][k] * x[r][k], for few rows r, by packed integer dot products.
//   linear_dot:       out f32 [rows, N], weight [N, K]
//   linear_dot_gelu:  out [rows, N] = gelu_tanh(gate) * up in planes, weight [2N, K] with gate's rows before up's
// weight int8 with one f32 scale a row; x in planes (forms.glsl); K padded to 16 with zeros in both. Products and sums of 16
// are exact integers; blocks of 16 are added in f32, in an order that the tiling over rows does not change.
// A team computes ROWS outputs at a time, each invocation UNROLL loads of 16 weights of each. Teams are subgroups or, with
// SHARED, the whole workgroup: then the rows being read at any time lie close together, few pages of memory wide, and no
// more of them are walked to at once than the device can do beside reading. A workgroup of linear_dot strides over the
// grid, one of linear_dot_gelu makes BLOCK outputs, whose block scale it knows.
// Bytes: N * K + 4 * N + rows * (2.25 K + 4 N); operations: 2 * N * K * rows, as 8 packed dot products for 16 weights.
// Narrow loads: the f32 scale of each block of x, beside 32 bytes of planes.
#include "common.glsl"
#include "forms.glsl"
#extension GL_EXT_integer_dot_product : require
layout(constant_id = 1) const uint ROWS = 2;     // output rows of a team
layout(constant_id = 2) const uint COLUMNS = 1;  // rows of x that share a weight load
layout(constant_id = 3) const uint UNROLL = 2;   // loads in flight for each output row
layout(constant_id = 4) const uint SHARED = 0;   // 1: a workgroup is one team

layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;
    uint64_t x;
    uint64_t y_out;
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint k;          // padded inputs, of 16
    uint x_padded;   // P of x
    uint x_stride;   // bytes
    uint out_stride; // elements of f32, or bytes of planes
    uint out_padded; // P of the planes
};

#ifdef GELU
#define PARTS 2
#define BLOCK 16
shared float gated[BLOCK * 8];
#else
#define PARTS 1
#endif

const uint SUMS = PARTS * ROWS * COLUMNS;
// What subgroups of one team leave for each other, in turns; a workgroup has at most 32 of them where this is used.
shared float found[SHARED != 0 ? 2 * 32 * SUMS : 1];
uint turn = 0;

float sums[SUMS];
uvec4 w[UNROLL * PARTS * ROWS];
float row_scales[PARTS * ROWS];

// Adds the products of block i, whose weights begin at w[from].
void accumulate(uint i, uint from, uint r0, uint live) {
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        uint64_t row = x + uint64_t(min(r0 + c, live - 1)) * x_stride;
        uvec4 hi = Words4(row).at[i], lo = Words4(row + x_padded).at[i];
        float scale = Floats(row + 2 * x_padded).at[i];
        [[unroll]] for (uint j = 0; j < PARTS * ROWS; ++j) {
            int high = 0, low = 0;
            [[unroll]] for (uint q = 0; q < 4; ++q) {
                high += dotPacked4x8EXT(int(w[from + j][q]), int(hi[q]));
                low += dotPacked4x8EXT(int(w[from + j][q]), int(lo[q]));
            }
            // At most 16 * 128 * 127 * 256 + ...: well within 31 bits.
            sums[j * COLUMNS + c] += scale * float(high * 256 + low);
        }
    }
}

// Sums of outputs n0 .. n0 + ROWS for rows r0 .. r0 + COLUMNS, in every invocation of the team.
void compute(uint n0, uint r0, uint live) {
    const uint loads = k / 16;
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0;
    uint64_t rows[PARTS * ROWS];
    [[unroll]] for (uint p = 0; p < PARTS; ++p) {
        [[unroll]] for (uint j = 0; j < ROWS; ++j) {
            // Past the last output: read its row again, and do not store.
            rows[p * ROWS + j] = weight + uint64_t(min(n0 + j, n - 1) + p * n) * k;
        }
    }
    // Asked for now, so that nothing waits for them behind the sums.
    [[unroll]] for (uint p = 0; p < PARTS; ++p) {
        [[unroll]] for (uint j = 0; j < ROWS; ++j) row_scales[p * ROWS + j] = scales.at[min(n0 + j, n - 1) + p * n];
    }
    uint i = SHARED != 0 ? gl_LocalInvocationID.x : gl_SubgroupInvocationID;
    const uint team = SHARED != 0 ? WORKGROUP : gl_SubgroupSize;
    for (; i + (UNROLL - 1) * team < loads; i += UNROLL * team) {
        [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
            [[unroll]] for (uint j = 0; j < PARTS * ROWS; ++j) {
                w[u * PARTS * ROWS + j] = Words4(rows[j]).at[i + u * team];
            }
        }
        [[unroll]] for (uint u = 0; u < UNROLL; ++u) accumulate(i + u * team, u * PARTS * ROWS, r0, live);
    }
    for (; i < loads; i += team) {
        [[unroll]] for (uint j = 0; j < PARTS * ROWS; ++j) w[j] = Words4(rows[j]).at[i];
        accumulate(i, 0, r0, live);
    }
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = subgroupAdd(sums[i]);
    if (SHARED != 0) {
        uint base = turn * 32 * SUMS;
        turn = 1 - turn;
        if (subgroupElect()) {
            [[unroll]] for (uint i = 0; i < SUMS; ++i) found[base + gl_SubgroupID * SUMS + i] = sums[i];
        }
        barrier();
        [[unroll]] for (uint i = 0; i < SUMS; ++i) {
            float sum = gl_SubgroupInvocationID < gl_NumSubgroups ? found[base + gl_SubgroupInvocationID * SUMS + i] : 0.0;
            for (uint s = gl_SubgroupSize; s < gl_NumSubgroups; s += gl_SubgroupSize) {
                uint from = s + gl_SubgroupInvocationID;
                if (from < gl_NumSubgroups) sum += found[base + from * SUMS + i];
            }
            sums[i] = subgroupAdd(sum);
        }
    }
}

// Teams of a workgroup, and the invocation that stores its team's outputs.
uint teams() { return SHARED != 0 ? 1 : gl_NumSubgroups; }
uint team_index() { return SHARED != 0 ? 0 : gl_SubgroupID; }
bool stores() { return SHARED != 0 ? gl_LocalInvocationID.x == 0 : subgroupElect(); }

#ifdef GELU
void main() {
    uint live = live_rows(state, which);
    uint r0 = gl_WorkGroupID.y * COLUMNS;
    if (r0 >= live) return;
    // The host makes ROWS times the teams a divisor of BLOCK.
    uint blocks = (n + BLOCK - 1) / BLOCK;
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        for (uint o = team_index() * ROWS; o < BLOCK; o += teams() * ROWS) {
            uint n0 = block * BLOCK + o;
            compute(n0, r0, live);
            if (stores()) {
                [[unroll]] for (uint j = 0; j < ROWS; ++j) {
                    bool inside = n0 + j < n;
                    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                        float gate = sums[j * COLUMNS + c] * row_scales[j];
                        float up = sums[(ROWS + j) * COLUMNS + c] * row_scales[ROWS + j];
                        gated[c * BLOCK + o + j] = inside ? gelu_tanh(gate) * up : 0.0;
                    }
                }
            }
        }
        barrier();
        uint c = gl_LocalInvocationID.x;
        if (c < COLUMNS && r0 + c < live) {
            vec4 v[4];
            [[unroll]] for (uint e = 0; e < 16; ++e) v[e / 4][e % 4] = gated[c * BLOCK + e];
            write_planes(y_out + uint64_t(r0 + c) * out_stride, out_padded, block, v);
        }
        barrier();
    }
}
#else
void main() {
    uint live = live_rows(state, which);
    uint r0 = gl_WorkGroupID.y * COLUMNS;
    if (r0 >= live) return;
    uint first = (gl_WorkGroupID.x * teams() + team_index()) * ROWS;
    for (uint n0 = first; n0 < n; n0 += gl_NumWorkGroups.x * teams() * ROWS) {
        compute(n0, r0, live);
        if (!stores()) continue;
        [[unroll]] for (uint j = 0; j < ROWS; ++j) {
            if (n0 + j >= n) break;
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                if (r0 + c < live) Floats(y_out).at[(r0 + c) * out_stride + n0 + j] = sums[j * COLUMNS + c] * row_scales[j];
            }
        }
    }
}
#endif
