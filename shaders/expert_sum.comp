// expert_sum: out[r] = sum over i < used of gains[r][i] * x[row of (r, i)], in the order of i.
// x f32 [expert rows, x_stride]; gains f32 [rows, used_stride]; out f32 [rows, out_stride]. With GROUPED_ROWS the row of (r, i) is
// place[r * used + i] (group.comp), else r * used + i.
// Bytes per row: 4 * width * (used + 1); operations: 2 * width * used.
#define RELAY
#include "common.glsl"
#include "relay.glsl"
layout(constant_id = 1) const uint GROUPED_ROWS = 0;

layout(push_constant) uniform Push {
    Words state;
    Float4s x;
    Floats gains;
    Words place;
    Float4s y_out;
    uint which;   // state word that counts the rows
    uint width;   // a multiple of 4
    uint used;
    uint x_stride;
    uint used_stride;
    uint out_stride;
    uint turn;    // relay.glsl
    uint before;
};

void sum_row(uint r) {
    uint e = gl_WorkGroupID.x * WORKGROUP + gl_LocalInvocationID.x;
    relay_wait(state, turn, before);
    if (e >= width / 4) return;
    vec4 y = vec4(0);
    for (uint i = 0; i < used; ++i) {
        uint row = r * used + i;
        if (GROUPED_ROWS != 0) row = place.at[row];
        y += gains.at[r * used_stride + i] * x.at[row * (x_stride / 4) + e];
    }
    y_out.at[r * (out_stride / 4) + e] = y;
}

void main() {
    uint r = gl_WorkGroupID.y;
    if (r < live_rows(state, which)) sum_row(r);
    relay_pass(state, turn);
}
