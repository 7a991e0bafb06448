// linear: out[r][n] = sum_k weight[n][k] * x[r][k], for few rows r: each weight is read once for COLUMNS rows.
//   linear:       out [rows, N], weight [N, K]
//   linear_gelu:  out [rows, N] = gelu_tanh(gate) * up, weight [2N, K] with gate's rows before up's
// weight in any weight format (weights.glsl); x, out f32; K padded to 16 with zeros in weight and x.
// With EXPERTS the rows are expert rows, and the weight is [experts, N, K] (experts.glsl).
// A subgroup computes ROWS outputs at a time, striding over the grid; each invocation loads 16 bytes of a weight row at a time.
// Bytes: the weight's + 4 * rows * (K + N); operations: 2 * N * K * rows.
// Narrow loads: the scales of each load of a format with scales of groups; of those with high bits these.
#include "common.glsl"
#include "weights.glsl"
#include "experts.glsl"
layout(constant_id = 1) const uint ROWS = 2;     // output rows of a subgroup
layout(constant_id = 2) const uint COLUMNS = 1;  // rows of x that share a weight load

layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;
    Float4s x;
    Floats y_out;
    Words table;     // experts.glsl
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint k;          // padded inputs
    uint x_stride;   // elements, a multiple of 16
    uint out_stride;
};

#ifdef GELU
#define PARTS 2
#else
#define PARTS 1
#endif

#ifdef GROUPED
#define SCALED(j, q, sum) weigh_sum(load_factors[j], q, sum, xv)
#else
#define SCALED(j, q, sum) (sum)
#endif

// Outputs n0 .. n0 + ROWS for rows r0 .. r0 + COLUMNS.
void compute(uint n0, uint r0, uint live) {
    const uint loads = k / PER_LOAD;
    float sums[PARTS * ROWS * COLUMNS];
    [[unroll]] for (uint i = 0; i < PARTS * ROWS * COLUMNS; ++i) sums[i] = 0;

    for (uint i = gl_SubgroupInvocationID; i < loads; i += gl_SubgroupSize) {
        Weights w[PARTS * ROWS];
#ifdef GROUPED
        Factors load_factors[PARTS * ROWS];
#endif
        [[unroll]] for (uint p = 0; p < PARTS; ++p) {
            [[unroll]] for (uint j = 0; j < ROWS; ++j) {
                // Past the last output: read its row again, and do not store.
                uint row = base + min(n0 + j, n - 1) + p * n;
                uint64_t from = weight + uint64_t(row) * row_bytes(loads);
                w[p * ROWS + j] = fetch_weights(from, i, loads);
#ifdef GROUPED
                uint load = row * loads + i;
                load_factors[p * ROWS + j] = factors(fetch_scale(scale_at(uint64_t(scales), load), from, i, loads), load);
#endif
            }
        }
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
            uint xi = (X_ROW(min(r0 + c, live - 1)) * x_stride + i * PER_LOAD) / 4;
            [[unroll]] for (uint q = 0; q < PER_LOAD / 4; ++q) {
                vec4 xv = x.at[xi + q];
                [[unroll]] for (uint j = 0; j < PARTS * ROWS; ++j) {
                    sums[j * COLUMNS + c] += SCALED(j, q, dot(widen(w[j], q), xv));
                }
            }
        }
    }
    [[unroll]] for (uint i = 0; i < PARTS * ROWS * COLUMNS; ++i) sums[i] = subgroupAdd(sums[i]);
    if (!subgroupElect()) return;
    [[unroll]] for (uint j = 0; j < ROWS; ++j) {
        if (n0 + j >= n) break;
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
            if (r0 + c >= live) break;
            float y = sums[j * COLUMNS + c];
#ifdef WEIGHT_INT8
            y *= scales.at[base + n0 + j];
#endif
#ifdef GELU
            float up = sums[(ROWS + j) * COLUMNS + c];
#ifdef WEIGHT_INT8
            up *= scales.at[n + n0 + j];
#endif
            y = gelu_tanh(y) * up;
#endif
            y_out.at[(r0 + c) * out_stride + n0 + j] = y;
        }
    }
}

void main() {
    prepare_weights();
    uvec2 rows = rows_of(table, gl_WorkGroupID.y, COLUMNS, live_rows(state, which), n);
    uint r0 = rows.x, live = rows.y;
    if (r0 >= live) return;
    uint subgroup = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
    for (uint n0 = subgroup * ROWS; n0 < n; n0 += gl_NumWorkGroups.x * gl_NumSubgroups * ROWS) {
        compute(n0, r0, live);
    }
}
