// norm, three variants of one RMSNorm, y = x * rsqrt(mean(x^2) + eps) * (1 + w), one workgroup a row:
//   rms_norm:      out[r] = norm(x[first + r]; w)       first is 0, or head_first for head rows; a draft reads x[source[r]]
//   norm_add:      residual[r] = (residual[r] + norm(x[r]; w)) * scalar
//   norm_add_norm: residual[r] = (residual[r] + norm(x[r]; w)) * scalar; out[r] = norm(residual[r]; w2)
//                  with TWICE also out2[r] = norm(residual[r]; w3), in a packed layout as out
// x, residual [rows, width] f32, w [width] f32; out [rows, width] in any layout (activation_layout.glsl).
// An invocation keeps VECS times four elements in registers, WORKGROUP apart, so that memory is waited for once.
// Bytes per row: 4 * width for each of x, residual (twice), 2 to 4 * width for out; 4 to 8 operations an element.
#define RELAY
#include "common.glsl"
#include "reduce.glsl"
#include "relay.glsl"
#include "activation_layout.glsl"
layout(constant_id = 1) const uint VECS = 1;
layout(constant_id = 2) const uint FORM = 0;
layout(constant_id = 3) const uint KEEP = 1;  // write out in F32 beside layout FORM
layout(constant_id = 4) const uint SCALED = 0;  // 0: the scalar is 1
layout(constant_id = 5) const uint TWICE = 0;   // norm_add_norm: two outputs

layout(push_constant) uniform Push {
    Words state;
    Float4s x;
    Float4s w;
    Float4s residual;
    Float4s w2;
    Floats scalar;
    Float4s y_out;
    uint64_t packed;
    Float4s w3;
    uint64_t packed2;
    uint which;   // state word that counts the rows
    uint gather;  // 1: read row head_first + r; above 1: the row in state word gather + r
    uint width;   // a multiple of 4
    uint x_stride;
    uint residual_stride;
    uint out_stride;
    uint packed_stride;  // bytes
    uint padded;  // P
    float eps;
    float eps2;
    uint turn;    // relay.glsl
    uint before;
};

// Index of an invocation's i-th vec4; past the row's end there is none.
uint at(uint i) { return gl_LocalInvocationID.x + i * WORKGROUP; }
bool inside(uint i) { return at(i) * 4 < width; }

#ifndef NORM_ADD
// Leaves a packed row.
void leave(uint64_t row, vec4 v[VECS]) {
    uint top = 0;
    if (FORM == FORM_F16_ROW || FORM == FORM_INT16_ROW) {
        [[unroll]] for (uint i = 0; i < VECS; ++i) top = max(top, magnitude(v[i]));
        top = workgroup_top(top);
    }
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        if (IS_BLOCKS(FORM)) write_planes4(FORM, row, padded, at(i), v[i]);
        if (FORM == FORM_F16_ROW || FORM == FORM_INT16_ROW) write_row4(FORM, row, padded, at(i), v[i], top);
    }
}
#endif

void norm_row(uint r) {
#ifdef RMS_NORM
    uint source = gather > 1 ? state.at[gather + r] : r + (gather != 0 ? state.at[STATE_HEAD_FIRST] : 0);
#else
    uint source = r;
#endif
    uint from = source * x_stride / 4;
    vec4 v[VECS], weight[VECS];
    float sum = 0;
#ifndef RMS_NORM
    vec4 h[VECS];
    uint to = r * residual_stride / 4;
#endif
#ifdef NORM_ADD_NORM
    vec4 weight2[VECS];
#endif
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        weight[i] = inside(i) ? w.at[at(i)] : vec4(0);
#ifdef NORM_ADD_NORM
        weight2[i] = inside(i) ? w2.at[at(i)] : vec4(0);
#endif
    }
    relay_wait(state, turn, before);
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        v[i] = inside(i) ? x.at[from + at(i)] : vec4(0);
#ifndef RMS_NORM
        h[i] = inside(i) ? residual.at[to + at(i)] : vec4(0);
#endif
    }
    [[unroll]] for (uint i = 0; i < VECS; ++i) sum += dot(v[i], v[i]);
    float scale = inversesqrt(workgroup_sum(sum) / float(width) + eps);
    [[unroll]] for (uint i = 0; i < VECS; ++i) v[i] = v[i] * scale * (1.0 + weight[i]);

#ifndef RMS_NORM
    float sum2 = 0;
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        v[i] += h[i];
        if (SCALED != 0) v[i] *= scalar.at[0];
        if (inside(i)) residual.at[to + at(i)] = v[i];
        sum2 += dot(v[i], v[i]);
    }
#endif
#ifdef NORM_ADD_NORM
    float scale2 = inversesqrt(workgroup_sum(sum2) / float(width) + eps2);
    if (TWICE != 0) {
        [[unroll]] for (uint i = 0; i < VECS; ++i) h[i] = v[i] * scale2 * (1.0 + (inside(i) ? w3.at[at(i)] : vec4(0)));
        leave(packed2 + uint64_t(r) * packed_stride, h);
    }
    [[unroll]] for (uint i = 0; i < VECS; ++i) v[i] = v[i] * scale2 * (1.0 + weight2[i]);
#endif
#ifndef NORM_ADD
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        if ((FORM == FORM_F32 || KEEP != 0) && inside(i)) y_out.at[r * out_stride / 4 + at(i)] = v[i];
    }
    leave(packed + uint64_t(r) * packed_stride, v);
#endif
}

void main() {
    uint r = gl_WorkGroupID.y;
    if (r < live_rows(state, which)) norm_row(r);
    relay_pass(state, turn);
}
