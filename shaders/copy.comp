// copy: copies words from one place to another, or writes zeros where there is no source: what a driver without fills and copies of
// its own runs for them (src/amdgpu/copy.rs). An invocation moves four words, in one load and one store where both places are
// aligned to 16 bytes. The places do not overlap.
// Bytes: 4 * words read, as many written; no operations.
#include "common.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer OutWords4 { uvec4 at[]; };

layout(push_constant) uniform Push {
    uint64_t source;  // 0: zeros
    uint64_t target;
    uint words;
};

// Loads stand in branches: a choice by an operator may load from address 0.
void main() {
    uint first = 4 * (gl_WorkGroupID.x * WORKGROUP + gl_LocalInvocationID.x);
    if (((uint(source) | uint(target)) & 15) == 0 && first + 4 <= words) {
        uvec4 four = uvec4(0);
        if (source != 0) four = Words4(source).at[first / 4];
        OutWords4(target).at[first / 4] = four;
        return;
    }
    uint end = min(first + 4, words);
    for (uint i = first; i < end; ++i) {
        uint one = 0;
        if (source != 0) one = Words(source).at[i];
        Words(target).at[i] = one;
    }
}
