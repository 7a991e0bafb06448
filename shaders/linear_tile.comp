// linear_tile: out[r][n] = sum_k weight[n][k] * x[r][k], for many rows r, without matrix units.
// weight [N, K] in any weight format (weights.glsl); x [rows, K], out [rows, N] f32; K padded to 16 with zeros.
// A workgroup of 64 invocations makes a 32 x 32 tile of out; each invocation 4 x 4 of it, from f32 tiles of 16 inputs, or
// of 32 where a load of weights has as many, in shared memory (4 or 8 KiB).
// Bytes: the weight's * rows / 32 from caches or memory; operations: 2 * N * K * rows.
// Narrow loads: the scales of each load of a format with scales of groups; of those with high bits these.
#include "common.glsl"
#include "weights.glsl"

layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;
    Float4s x;
    Floats y_out;
    Words table;     // linear.comp takes it
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint k;          // padded inputs
    uint x_stride;   // elements, a multiple of 16
    uint out_stride;
};

#define TILE 32
#if PER_LOAD == 32
#define DEPTH 32
#else
#define DEPTH 16
#endif
// One load's weights as this many vec4; loads that a tile of DEPTH inputs takes per weight row.
#define VECS (PER_LOAD / 4)
#define LOADS (DEPTH / PER_LOAD)

// [input][column], so that an invocation's four columns are one vec4.
shared vec4 w_tile[DEPTH * TILE / 4];
shared vec4 x_tile[DEPTH * TILE / 4];

void put(bool is_weight, uint depth, uint column, float v) {
    if (is_weight) w_tile[depth * TILE / 4 + column / 4][column % 4] = v;
    else x_tile[depth * TILE / 4 + column / 4][column % 4] = v;
}

// The tile of outputs n0 .. n0 + TILE and rows r0 .. r0 + TILE.
void compute(uint n0, uint r0, uint live) {
    uint id = gl_LocalInvocationID.x;
    uint tn = id % 8, tr = id / 8;
    vec4 sums[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));  // [row][4 outputs]

    for (uint k0 = 0; k0 < k; k0 += DEPTH) {
        barrier();
        for (uint i = id; i < TILE * LOADS; i += 64) {
            uint column = i / LOADS, part = i % LOADS;
            uint row = min(n0 + column, n - 1);
            uint loads = k / PER_LOAD, at = k0 / PER_LOAD + part;
            uint64_t from = weight + uint64_t(row) * row_bytes(loads);
            Weights w = fetch_weights(from, at, loads);
#ifdef GROUPED
            uint load = row * loads + at;
            Factors f = factors(fetch_scale(scale_at(uint64_t(scales), load), from, at, loads), load);
#endif
            [[unroll]] for (uint q = 0; q < VECS; ++q) {
                vec4 v = widen(w, q);
#ifdef GROUPED
                v = weigh(f, q, v);
#endif
                [[unroll]] for (uint e = 0; e < 4; ++e) put(true, part * PER_LOAD + q * 4 + e, column, v[e]);
            }
        }
        for (uint i = id; i < TILE * DEPTH / 4; i += 64) {
            uint column = i / (DEPTH / 4), q = i % (DEPTH / 4);
            vec4 v = x.at[(min(r0 + column, live - 1) * x_stride + k0) / 4 + q];
            [[unroll]] for (uint e = 0; e < 4; ++e) put(false, q * 4 + e, column, v[e]);
        }
        barrier();
        [[unroll]] for (uint d = 0; d < DEPTH; ++d) {
            vec4 w = w_tile[d * TILE / 4 + tn], xv = x_tile[d * TILE / 4 + tr];
            [[unroll]] for (uint e = 0; e < 4; ++e) sums[e] += w * xv[e];
        }
    }
    [[unroll]] for (uint e = 0; e < 4; ++e) {
        uint r = r0 + tr * 4 + e;
        if (r >= live) break;
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            uint o = n0 + tn * 4 + j;
            if (o >= n) break;
            float y = sums[e][j];
#ifdef WEIGHT_INT8
            y *= scales.at[o];
#endif
            y_out.at[r * out_stride + o] = y;
        }
    }
}

void main() {
    prepare_weights();
    uint live = live_rows(state, which);
    uint r0 = gl_WorkGroupID.y * TILE;
    if (r0 >= live) return;
    for (uint n0 = gl_WorkGroupID.x * TILE; n0 < n; n0 += gl_NumWorkGroups.x * TILE) compute(n0, r0, live);
}
