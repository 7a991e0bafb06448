// norm, three variants of one RMSNorm, y = x * rsqrt(mean(x^2) + eps) * (1 + w), one workgroup a row:
//   rms_norm:      out[r] = norm(x[first + r]; w)                      first is 0, or head_first for head rows
//   norm_add:      residual[r] += norm(x[r]; w)
//   norm_add_norm: residual[r] += norm(x[r]; w); out[r] = norm(residual[r]; w2)
// x, residual, out [rows, width] f32, w [width] f32.
// Bytes per row: 4 * width for each of x, residual (twice) and out; 4 to 8 operations an element.
#include "common.glsl"

layout(push_constant) uniform Push {
    Words state;
    Floats x;
    Floats w;
    Floats residual;
    Floats w2;
    Floats y_out;
    uint which;   // state word that counts the rows
    uint gather;  // 1: read row head_first + r
    uint width;
    uint x_stride;
    uint residual_stride;
    uint out_stride;
    float eps;
    float eps2;
};

void main() {
    uint r = gl_WorkGroupID.y;
    if (r >= live_rows(state, which)) return;
    uint from = (r + (gather != 0 ? state.at[STATE_HEAD_FIRST] : 0)) * x_stride;
    float sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < width; i += WORKGROUP) {
        float v = x.at[from + i];
        sum += v * v;
    }
    float scale = inversesqrt(workgroup_sum(sum) / float(width) + eps);
#ifdef RMS_NORM
    for (uint i = gl_LocalInvocationID.x; i < width; i += WORKGROUP) {
        y_out.at[r * out_stride + i] = x.at[from + i] * scale * (1.0 + w.at[i]);
    }
#else
    float sum2 = 0;
    for (uint i = gl_LocalInvocationID.x; i < width; i += WORKGROUP) {
        float h = residual.at[r * residual_stride + i] + x.at[from + i] * scale * (1.0 + w.at[i]);
        residual.at[r * residual_stride + i] = h;
        sum2 += h * h;
    }
#endif
#ifdef NORM_ADD_NORM
    // Each invocation reads back only what it wrote itself.
    float scale2 = inversesqrt(workgroup_sum(sum2) / float(width) + eps2);
    for (uint i = gl_LocalInvocationID.x; i < width; i += WORKGROUP) {
        y_out.at[r * out_stride + i] = residual.at[r * residual_stride + i] * scale2 * (1.0 + w2.at[i]);
    }
#endif
}
