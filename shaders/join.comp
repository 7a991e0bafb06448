// join: the end of a layer with experts; norm(x; w) = x * rsqrt(mean(x^2) + eps) * (1 + w):
//   both = norm(x[r]; dense) + norm(sum over i < USED of gains[r][i] * parts[row of (r, i)]; experts)
//   residual[r] = (residual[r] + norm(both; w)) * scalar;  out[r] = norm(residual[r]; next), where there is a next layer
// x, residual f32 [rows, stride], parts f32 [expert rows, stride], gains f32 [rows, used_stride]; out [rows, width] in any layout
// (activation_layout.glsl). The row of (r, i) is as in expert_sum.comp. One workgroup a row. An invocation keeps VECS times four
// elements in registers, WORKGROUP apart.
// Bytes per row: 4 * width * (USED + 3), 2 to 4 * width for out; about 30 operations an element.
#define RELAY
#include "common.glsl"
#include "reduce.glsl"
#include "relay.glsl"
#include "activation_layout.glsl"
layout(constant_id = 1) const uint VECS = 1;
layout(constant_id = 2) const uint FORM = 0;
layout(constant_id = 3) const uint GROUPED_ROWS = 0;
layout(constant_id = 4) const uint NEXT = 1;    // 0: out is not made
layout(constant_id = 5) const uint SCALED = 0;  // 0: the scalar is 1
layout(constant_id = 6) const uint USED = 1;    // experts of a row

layout(push_constant) uniform Push {
    Words state;
    Float4s x;
    Float4s parts;
    Floats gains;
    Words place;
    Float4s residual;
    uint64_t y_out;
    uint64_t weights;  // what the next four are behind, in floats
    Float4s next;
    uint dense;
    uint experts;
    uint w;
    uint scalar;
    uint which;        // state word that counts the rows
    uint width;        // a multiple of 4
    uint stride;       // elements
    uint used_stride;
    uint out_stride;   // bytes
    uint padded;       // P of out
    float eps;
    uint turn;         // relay.glsl
    uint before;
};

// Index of an invocation's i-th vec4; past the row's end there is none.
uint at(uint i) { return gl_LocalInvocationID.x + i * WORKGROUP; }
bool inside(uint i) { return at(i) * 4 < width; }
vec4 weight_of(uint vector, uint i) {
    return inside(i) ? 1.0 + Float4s(weights + 4 * uint64_t(vector)).at[at(i)] : vec4(0);
}

// The inverse root of the mean square of what all invocations hold.
float norm_of(vec4 v[VECS]) {
    float sum = 0;
    [[unroll]] for (uint i = 0; i < VECS; ++i) sum += dot(v[i], v[i]);
    return inversesqrt(workgroup_sum(sum) / float(width) + eps);
}

void join(uint r) {
    vec4 of_dense[VECS], of_experts[VECS], of_both[VECS], of_next[VECS];
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        of_dense[i] = weight_of(dense, i);
        of_experts[i] = weight_of(experts, i);
        of_both[i] = weight_of(w, i);
        of_next[i] = NEXT != 0 && inside(i) ? 1.0 + next.at[at(i)] : vec4(0);
    }
    relay_wait(state, turn, before);
    vec4 v[VECS], m[VECS], h[VECS];
    uint from = r * (stride / 4);
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        v[i] = inside(i) ? x.at[from + at(i)] : vec4(0);
        h[i] = inside(i) ? residual.at[from + at(i)] : vec4(0);
        m[i] = vec4(0);
    }
    uint rows[USED];
    [[unroll]] for (uint e = 0; e < USED; ++e) rows[e] = GROUPED_ROWS != 0 ? place.at[r * USED + e] : r * USED + e;
    [[unroll]] for (uint e = 0; e < USED; ++e) {
        float gain = gains.at[r * used_stride + e];
        [[unroll]] for (uint i = 0; i < VECS; ++i) {
            if (inside(i)) m[i] += gain * parts.at[rows[e] * (stride / 4) + at(i)];
        }
    }
    float by = norm_of(v), by_experts = norm_of(m);
    [[unroll]] for (uint i = 0; i < VECS; ++i) v[i] = v[i] * by * of_dense[i] + m[i] * by_experts * of_experts[i];
    by = norm_of(v);
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        v[i] = v[i] * by * of_both[i] + h[i];
        if (SCALED != 0) v[i] *= Floats(weights).at[scalar];
        if (inside(i)) residual.at[from + at(i)] = v[i];
    }
    if (NEXT == 0) return;
    by = norm_of(v);
    [[unroll]] for (uint i = 0; i < VECS; ++i) v[i] = v[i] * by * of_next[i];
    uint64_t row = y_out + uint64_t(r) * out_stride;
    uint top = 0;
    if (FORM == FORM_F16_ROW || FORM == FORM_INT16_ROW) {
        [[unroll]] for (uint i = 0; i < VECS; ++i) top = max(top, magnitude(v[i]));
        top = workgroup_top(top);
    }
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        if (FORM == FORM_F32 && inside(i)) Float4s(row).at[at(i)] = v[i];
        if (IS_BLOCKS(FORM)) write_planes4(FORM, row, padded, at(i), v[i]);
        if (FORM == FORM_F16_ROW || FORM == FORM_INT16_ROW) write_row4(FORM, row, padded, at(i), v[i], top);
    }
}

void main() {
    uint r = gl_WorkGroupID.y;
    if (r < live_rows(state, which)) join(r);
    relay_pass(state, turn);
}
