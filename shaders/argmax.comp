// argmax:  next[r] = index of the largest x[r][i], the lowest of equals
// softcap: x[r][i] = cap * tanh(x[r][i] / cap), in place
// x [rows, width] f32, next u32 in the step state. One workgroup a row.
// Bytes per row: 4 * width read, and as many written by softcap.
#include "common.glsl"

layout(push_constant) uniform Push {
    Words state;
    Floats x;
    uint which;  // state word that counts the rows
    uint next;   // word index of next[0]
    uint width;
    uint stride;
    float cap;   // softcap only
};

shared float best_value[1024];
shared uint best_index[1024];

void main() {
    uint r = gl_WorkGroupID.y, id = gl_LocalInvocationID.x;
    if (r >= live_rows(state, which)) return;
    float best = NEG_INF;
    uint index = 0;
    for (uint i = id; i < width; i += WORKGROUP) {
        float v = x.at[r * stride + i];
#ifdef SOFTCAP
        // Drivers' tanh may overflow, and their clamp may lose a NaN.
        bool nan = (floatBitsToUint(v) & 0x7fffffffu) > 0x7f800000u;
        v = nan ? v : cap * tanh(clamp(v / cap, -15.0, 15.0));
        x.at[r * stride + i] = v;
#else
        // Strictly greater: an invocation meets its indices in rising order.
        if (v > best) {
            best = v;
            index = i;
        }
#endif
    }
#ifndef SOFTCAP
    best_value[id] = best;
    best_index[id] = index;
    for (uint n = WORKGROUP / 2; n > 0; n /= 2) {
        barrier();
        if (id < n) {
            float other = best_value[id + n];
            uint other_index = best_index[id + n];
            if (other > best_value[id] || (other == best_value[id] && other_index < best_index[id])) {
                best_value[id] = other;
                best_index[id] = other_index;
            }
        }
    }
    if (id == 0) state.at[next + r] = best_index[0];
#endif
}
