// linear_dot: out[r][n] = sum_k weight[n][k] * x[r][k], for few rows r, by packed integer dot products.
//   linear_dot:       out f32 [rows, N], weight [N, K]
//   linear_dot_gelu:  out [rows, N] = gelu_tanh(gate) * up in planes, weight [2N, K] with gate's rows before up's
// weight int8 with one f32 scale a row; x in planes (forms.glsl); K padded to 16 with zeros in both. Products and sums of 16
// are exact integers; blocks of 16 are added in f32, in an order that the tiling over rows does not change.
// A subgroup computes ROWS outputs at a time, each invocation UNROLL loads of 16 weights of each. A workgroup of linear_dot
// strides over the grid, one of linear_dot_gelu makes BLOCK outputs, whose block scale it knows.
// Bytes: N * K + 4 * N + rows * (2.25 K + 4 N); operations: 2 * N * K * rows, as 8 packed dot products for 16 weights.
// Narrow loads: the f32 scale of each block of x, beside 32 bytes of planes.
#define RELAY
#include "common.glsl"
#include "relay.glsl"
#include "forms.glsl"
#extension GL_EXT_integer_dot_product : require
layout(constant_id = 1) const uint ROWS = 2;     // output rows of a subgroup
layout(constant_id = 2) const uint COLUMNS = 1;  // rows of x that share a weight load
layout(constant_id = 3) const uint UNROLL = 2;   // loads in flight for each output row

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
    uint turn;       // relay.glsl
    uint before;
};

layout(buffer_reference, std430, buffer_reference_align = 16) ORDERED readonly buffer Planes { uvec4 at[]; };

#ifdef GELU
#define PARTS 2
#define BLOCK 16
shared float gated[BLOCK * 8];
#else
#define PARTS 1
#endif

const uint SUMS = PARTS * ROWS * COLUMNS;
float sums[SUMS];
uvec4 w[UNROLL * PARTS * ROWS];
float row_scales[PARTS * ROWS], kept_scales[PARTS * ROWS];

// Adds the products of block i, whose weights begin at w[from].
void add_block(uint i, uint from, uint r0, uint live) {
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        uint64_t row = x + uint64_t(min(r0 + c, live - 1)) * x_stride;
        uvec4 hi = Planes(row).at[i], lo = Planes(row + x_padded).at[i];
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

uint64_t rows[PARTS * ROWS];

// Whether a round of UNROLL loads from i on lies within the rows.
bool is_round(uint i) { return i + (UNROLL - 1) * gl_SubgroupSize < k / 16; }

void fetch(uint i) {
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
        [[unroll]] for (uint j = 0; j < PARTS * ROWS; ++j) {
            w[u * PARTS * ROWS + j] = Words4(rows[j]).at[i + u * gl_SubgroupSize];
        }
    }
}

void add_round(uint i, uint r0, uint live) {
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) add_block(i + u * gl_SubgroupSize, u * PARTS * ROWS, r0, live);
}

// Asks for what outputs n0 .. n0 + ROWS begin with: their scales and the first round of their weights.
void begin(uint n0) {
    [[unroll]] for (uint p = 0; p < PARTS; ++p) {
        [[unroll]] for (uint j = 0; j < ROWS; ++j) {
            // Past the last output: read its row again, and do not store.
            uint o = min(n0 + j, n - 1) + p * n;
            rows[p * ROWS + j] = weight + uint64_t(o) * k;
            row_scales[p * ROWS + j] = scales.at[o];
        }
    }
    if (is_round(gl_SubgroupInvocationID)) fetch(gl_SubgroupInvocationID);
}

// Adds up the outputs that were begun, for rows r0 .. r0 + COLUMNS: each invocation its part of the inputs.
void add(uint r0, uint live) {
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0;
    uint i = gl_SubgroupInvocationID;
    if (is_round(i)) {
        add_round(i, r0, live);
        for (i += UNROLL * gl_SubgroupSize; is_round(i); i += UNROLL * gl_SubgroupSize) {
            fetch(i);
            add_round(i, r0, live);
        }
    }
    for (; i < k / 16; i += gl_SubgroupSize) {
        [[unroll]] for (uint j = 0; j < PARTS * ROWS; ++j) w[j] = Words4(rows[j]).at[i];
        add_block(i, 0, r0, live);
    }
}

void keep_scales() {
    [[unroll]] for (uint j = 0; j < PARTS * ROWS; ++j) kept_scales[j] = row_scales[j];
}

// The invocations' parts together, times the scales of the weights' rows.
void finish() {
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = subgroupAdd(sums[i]) * kept_scales[i / COLUMNS];
}

#ifdef GELU
void run(uint r0, uint live) {
    // The host makes ROWS times the subgroups a divisor of BLOCK, and no more workgroups than there are blocks.
    uint step = gl_NumSubgroups * ROWS, blocks = (n + BLOCK - 1) / BLOCK;
    begin(gl_WorkGroupID.x * BLOCK + gl_SubgroupID * ROWS);
    relay_wait(state, turn, before);
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        for (uint o = gl_SubgroupID * ROWS; o < BLOCK; o += step) {
            add(r0, live);
            // What comes next is on its way while this is finished.
            keep_scales();
            bool more = o + step < BLOCK;
            uint next = more ? block : block + gl_NumWorkGroups.x;
            if (next < blocks) begin(next * BLOCK + (more ? o + step : gl_SubgroupID * ROWS));
            finish();
            if (subgroupElect()) {
                [[unroll]] for (uint j = 0; j < ROWS; ++j) {
                    bool inside = block * BLOCK + o + j < n;
                    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                        float gate = sums[j * COLUMNS + c], up = sums[(ROWS + j) * COLUMNS + c];
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
void run(uint r0, uint live) {
    uint step = gl_NumWorkGroups.x * gl_NumSubgroups * ROWS;
    uint first = (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID) * ROWS;
    begin(min(first, n - 1));
    relay_wait(state, turn, before);
    for (uint n0 = first; n0 < n; n0 += step) {
        add(r0, live);
        // What comes next is on its way while this is finished.
        keep_scales();
        if (n0 + step < n) begin(n0 + step);
        finish();
        if (!subgroupElect()) continue;
        [[unroll]] for (uint j = 0; j < ROWS; ++j) {
            if (n0 + j >= n) break;
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                if (r0 + c < live) Floats(y_out).at[(r0 + c) * out_stride + n0 + j] = sums[j * COLUMNS + c];
            }
        }
    }
}
#endif

void main() {
    uint live = live_rows(state, which);
    uint r0 = gl_WorkGroupID.y * COLUMNS;
    if (r0 < live) run(r0, live);
    relay_pass(state, turn);
}
