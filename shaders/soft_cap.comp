// soft_cap: x[r] = cap * tanh(x[r] / cap), in place; an invocation an element.
// x [rows, width] f32.
// Bytes per row: 8 * width; about 6 operations an element.
#include "common.glsl"

layout(push_constant) uniform Push {
    Words state;
    Floats x;
    uint which;   // state word that counts the rows
    uint width;
    uint stride;  // elements
    float cap;
};

void main() {
    uint r = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    if (r >= live_rows(state, which) || i >= width) return;
    uint at = r * stride + i;
    // tanh(y) is 1 - 2 / (exp(2 y) + 1), at either end too: GLSL's tanh may be infinity over infinity there.
    x.at[at] = cap * (1.0 - 2.0 / (exp(2.0 * x.at[at] / cap) + 1.0));
}
