// pack, two variants, one workgroup a row: f32 rows into the form (forms.glsl) that the next linear step reads.
//   pack:       out[r] = x[r]
//   gated_gelu: out[r] = gelu_tanh(x[r]) * up[r]
// x, up f32 [rows, width], zeros in the pad columns up to 16; out f32, planes or half.
// An invocation keeps BLOCKS blocks of 16 elements in registers, WORKGROUP apart.
// Bytes per row: 4 or 8 * width read, 2.25, 2 or 4 * width written; about 12 operations an element.
#include "common.glsl"
#include "forms.glsl"
layout(constant_id = 1) const uint BLOCKS = 1;
layout(constant_id = 2) const uint FORM = 1;

layout(push_constant) uniform Push {
    Words state;
    Float4s x;
    Float4s up;
    uint64_t y_out;
    uint which;       // state word that counts the rows
    uint width;
    uint in_stride;   // of x and up: elements
    uint out_stride;  // bytes
    uint padded;      // P
};

void main() {
    uint r = gl_WorkGroupID.y;
    if (r >= live_rows(state, which)) return;
    vec4 v[BLOCKS * 4];
    uint top = 0;
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        uint block = gl_LocalInvocationID.x + b * WORKGROUP;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            // Blocks past the row's last are zeros, as its pad columns are.
            bool there = block * 16 < width;
            uint at = (r * in_stride + block * 16) / 4 + i;
            vec4 y = there ? x.at[at] : vec4(0);
#ifdef GELU
            vec4 u = there ? up.at[at] : vec4(0);
            y = vec4(gelu_tanh(y.x), gelu_tanh(y.y), gelu_tanh(y.z), gelu_tanh(y.w)) * u;
            // Up's columns may lie right behind gate's: past the width there is no padding.
            [[unroll]] for (uint e = 0; e < 4; ++e) y[e] = block * 16 + i * 4 + e < width ? y[e] : 0.0;
#endif
            v[b * 4 + i] = y;
            top = max(top, magnitude(y));
        }
    }
    uint64_t row = y_out + uint64_t(r) * out_stride;
    float row_scale = 1;
    if (FORM == FORM_HALF) {
        row_scale = half_scale(workgroup_top(top));
        if (gl_LocalInvocationID.x == 0) ScaleOut(row + 2 * padded).at[0] = row_scale;
    }
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        uint block = gl_LocalInvocationID.x + b * WORKGROUP;
        vec4 part[4] = vec4[4](v[b * 4], v[b * 4 + 1], v[b * 4 + 2], v[b * 4 + 3]);
        if (FORM == FORM_F32) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                if (block * 16 + i * 4 < width) Float4s(row).at[block * 4 + i] = part[i];
            }
        } else if (block < padded / 16) {
            if (FORM == FORM_PLANES) write_planes(row, padded, block, part);
            else write_half(row, block, part, row_scale);
        }
    }
}
