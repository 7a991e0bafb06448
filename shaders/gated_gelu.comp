// gated_gelu: out[r][i] = gelu_tanh(gate[r][i]) * up[r][i], i < width. All f32.
// Bytes per row: 12 * width; about 12 operations an element.
#include "common.glsl"

layout(push_constant) uniform Push {
    Words state;
    Floats gate;
    Floats up;
    Floats y_out;
    uint width;
    uint in_stride;  // of gate and up
    uint out_stride;
};

void main() {
    uint r = gl_WorkGroupID.y, i = gl_WorkGroupID.x * WORKGROUP + gl_LocalInvocationID.x;
    if (r >= live_rows(state, STATE_ROWS) || i >= width) return;
    y_out.at[r * out_stride + i] = gelu_tanh(gate.at[r * in_stride + i]) * up.at[r * in_stride + i];
}
