// read: the read ceiling. Every invocation reads 16-byte words of a buffer and keeps their XOR; the result is stored only
// where it equals a value that it practically never has, so that nothing but the reads is left.
// Bytes: 16 * words, all read; operations: one XOR for 4 bytes.
#include "common.glsl"

layout(push_constant) uniform Push {
    Words4 data;
    Words sink;
    uint words;
};

void main() {
    uint step = gl_NumWorkGroups.x * WORKGROUP;
    uvec4 acc = uvec4(0);
    uint i = gl_WorkGroupID.x * WORKGROUP + gl_LocalInvocationID.x;
    for (; i + 3 * step < words; i += 4 * step) {
        // Four loads in flight.
        uvec4 a = data.at[i], b = data.at[i + step], c = data.at[i + 2 * step], d = data.at[i + 3 * step];
        acc ^= a ^ b ^ c ^ d;
    }
    for (; i < words; i += step) acc ^= data.at[i];
    if (acc == uvec4(0x9e3779b9u, 0x7f4a7c15u, 0xf39cc060u, 0x5cedc834u)) sink.at[3] = acc.x;
}
