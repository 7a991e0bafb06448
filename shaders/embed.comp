// embed: out[r][i] = table[token[r]][i] * scale, r < rows, i < hidden. With CHOSEN the pass follows one that has just made a
// choice for each row: token[r] becomes next[r] first, and position[r] one more (1) or stays (2, a draft's step).
// table [vocab, hidden] in any weight format, out [rows, hidden] f32. One workgroup a row.
// Bytes per row: the table's row read, hidden * 4 written; operations: one product an element.
#include "common.glsl"
#include "weights.glsl"
layout(constant_id = 1) const uint CHOSEN = 0;

layout(push_constant) uniform Push {
    Words state;
    uint64_t table;   // row 0
    Floats scales;    // int8: f32, one a row; else those of the format
    Float4s x_out;
    uint token;       // word index of token[0]
    uint position;    // and of position[0]
    uint next;        // and of next[0]
    uint cols;        // padded
    uint out_stride;  // elements
    uint count;       // hidden
    float scale;
};

void main() {
    prepare_weights();
    uint r = gl_WorkGroupID.y;
    if (r >= live_rows(state, STATE_ROWS)) return;
    uint id = state.at[(CHOSEN != 0 ? next : token) + r];
    if (CHOSEN != 0 && gl_LocalInvocationID.x == 0) {
        state.at[token + r] = id;
        if (CHOSEN == 1) state.at[position + r] += 1;
    }
    uint loads = cols / PER_LOAD;
    uint64_t row = table + uint64_t(id) * row_bytes(loads);
#ifdef WEIGHT_INT8
    float s = scales.at[id] * scale;
#else
    float s = scale;
#endif
    for (uint i = gl_LocalInvocationID.x; i < loads; i += WORKGROUP) {
        Weights w = fetch_weights(row, i, loads);
#ifdef GROUPED
        uint load = id * loads + i;
        Factors f = factors(fetch_scale(scale_at(uint64_t(scales), load), row, i, loads), load);
#define WEIGHED(j) weigh(f, j, widen(w, j))
#else
#define WEIGHED(j) widen(w, j)
#endif
        [[unroll]] for (uint j = 0; j < PER_LOAD / 4; ++j) {
            // Padding is zero in the table, so the slot's pad columns stay zero.
            x_out.at[(r * out_stride + i * PER_LOAD) / 4 + j] = WEIGHED(j) * s;
        }
    }
}
