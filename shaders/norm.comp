// norm, three variants of one RMSNorm, y = x * rsqrt(mean(x^2) + eps) * (1 + w), one workgroup a row:
//   rms_norm:      out[r] = norm(x[first + r]; w)                      first is 0, or head_first for head rows
//   norm_add:      residual[r] += norm(x[r]; w)
//   norm_add_norm: residual[r] += norm(x[r]; w); out[r] = norm(residual[r]; w2)
// x, residual [rows, width] f32, w [width] f32; out in f32, planes or half form (forms.glsl).
// An invocation keeps BLOCKS blocks of 16 elements in registers, WORKGROUP apart, so that memory is waited for once.
// Bytes per row: 4 * width for each of x, residual (twice), 1 to 4 * width for out; 4 to 8 operations an element.
#include "common.glsl"
#include "forms.glsl"
layout(constant_id = 1) const uint BLOCKS = 1;
layout(constant_id = 2) const uint FORM = 0;
layout(constant_id = 3) const uint KEEP = 1;  // write out in f32 beside its form

layout(push_constant) uniform Push {
    Words state;
    Float4s x;
    Float4s w;
    Float4s residual;
    Float4s w2;
    Float4s y_out;
    uint64_t packed;
    uint which;   // state word that counts the rows
    uint gather;  // 1: read row head_first + r
    uint width;   // a multiple of 4
    uint x_stride;
    uint residual_stride;
    uint out_stride;
    uint packed_stride;  // bytes
    uint padded;  // P
    float eps;
    float eps2;
};

// Index of vec4 i of an invocation's block b; past the row's end there is none.
uint at(uint b, uint i) { return (gl_LocalInvocationID.x + b * WORKGROUP) * 4 + i; }
bool inside(uint b, uint i) { return at(b, i) * 4 < width; }

void main() {
    uint r = gl_WorkGroupID.y;
    if (r >= live_rows(state, which)) return;
    uint from = (r + (gather != 0 ? state.at[STATE_HEAD_FIRST] : 0)) * x_stride / 4;
    vec4 v[BLOCKS * 4], weight[BLOCKS * 4];
    float sum = 0;
#ifndef RMS_NORM
    vec4 h[BLOCKS * 4];
    uint to = r * residual_stride / 4;
#endif
#ifdef NORM_ADD_NORM
    vec4 weight2[BLOCKS * 4];
#endif
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            bool there = inside(b, i);
            v[b * 4 + i] = there ? x.at[from + at(b, i)] : vec4(0);
            weight[b * 4 + i] = there ? w.at[at(b, i)] : vec4(0);
#ifndef RMS_NORM
            h[b * 4 + i] = there ? residual.at[to + at(b, i)] : vec4(0);
#endif
#ifdef NORM_ADD_NORM
            weight2[b * 4 + i] = there ? w2.at[at(b, i)] : vec4(0);
#endif
        }
    }
    [[unroll]] for (uint i = 0; i < BLOCKS * 4; ++i) sum += dot(v[i], v[i]);
    float scale = inversesqrt(workgroup_sum(sum) / float(width) + eps);
    [[unroll]] for (uint i = 0; i < BLOCKS * 4; ++i) v[i] = v[i] * scale * (1.0 + weight[i]);

#ifndef RMS_NORM
    float sum2 = 0;
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            vec4 y = h[b * 4 + i] + v[b * 4 + i];
            if (inside(b, i)) residual.at[to + at(b, i)] = y;
            v[b * 4 + i] = y;
            sum2 += dot(y, y);
        }
    }
#endif
#ifdef NORM_ADD_NORM
    float scale2 = inversesqrt(workgroup_sum(sum2) / float(width) + eps2);
    [[unroll]] for (uint i = 0; i < BLOCKS * 4; ++i) v[i] = v[i] * scale2 * (1.0 + weight2[i]);
#endif
#ifndef NORM_ADD
    uint64_t row = packed + uint64_t(r) * packed_stride;
    float row_scale = 1;
    if (FORM == FORM_HALF) {
        uint top = 0;
        [[unroll]] for (uint i = 0; i < BLOCKS * 4; ++i) top = max(top, magnitude(v[i]));
        row_scale = half_scale(workgroup_top(top));
        if (gl_LocalInvocationID.x == 0) ScaleOut(row + 2 * padded).at[0] = row_scale;
    }
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        uint block = gl_LocalInvocationID.x + b * WORKGROUP;
        if (FORM == FORM_F32 || KEEP != 0) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                if (inside(b, i)) y_out.at[r * out_stride / 4 + at(b, i)] = v[b * 4 + i];
            }
        }
        if (FORM != FORM_F32 && block < padded / 16) {
            vec4 part[4] = vec4[4](v[b * 4], v[b * 4 + 1], v[b * 4 + 2], v[b * 4 + 3]);
            if (FORM == FORM_PLANES) write_planes(row, padded, block, part);
            else write_half(row, block, part, row_scale);
        }
    }
#endif
}
