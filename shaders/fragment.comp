// fragment: found = how the invocations of a subgroup hold the matrices A [M, K] and B [K, N] of f16, which linear_fragment.comp
// relies on. A line is a row of A or a column of B. The bit of value `sharers` (1, 2, 4, 8) is set where that many neighbours
// share a line, each with K / sharers places of it; and, where a subgroup has fewer such groups than there are lines, further
// lines equally far apart, in the same way. The inputs at an invocation's places are the same in every line of A and B.
// Matrices are loaded whose elements say where they stand. One workgroup of one subgroup. Bytes: 4; operations: none.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_shuffle : require
#pragma use_vulkan_memory_model
#include "common.glsl"

layout(push_constant) uniform Push {
    Words found;
};

// The matrix units' shape.
layout(constant_id = 10) const uint M = 16;
layout(constant_id = 11) const uint N = 8;
layout(constant_id = 12) const uint K = 16;
const uint SUBGROUP = WORKGROUP;

// Element [line][k] is line * K + k: up to 255, which f16 holds.
const uint LINES = M > N ? M : N;
shared uvec4 tile[LINES * K / 8];

// Whether `held`, the element at place `e` of `lines` rows or columns, stands where `sharers` invocations would hold it, and
// its input is the one that the first sharers hold at that place.
#define STANDS(held, e, lines, sharers, inputs)                                                                        \
    {                                                                                                                  \
        uint rows = lines * sharers > SUBGROUP ? lines * sharers / SUBGROUP : 1, places = K / sharers;                 \
        uint line = gl_SubgroupInvocationID / sharers % (lines / rows) + (e) / places * (lines / rows);                \
        uint input_ = uint(held) - line * K;                                                                           \
        uint first = subgroupShuffle(inputs[(e) % places], gl_SubgroupInvocationID % sharers);                         \
        stands = stands && (e) < rows * places && input_ < K && input_ == first;                                       \
    }

void main() {
    uint id = gl_SubgroupInvocationID;
    for (uint i = id; i < LINES * K / 2; i += SUBGROUP) tile[i / 4][i % 4] = packHalf2x16(vec2(2 * i, 2 * i + 1));
    barrier();
    coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
    coopMatLoad(a, tile, 0, K / 8, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(b, tile, 0, K / 8, gl_CooperativeMatrixLayoutColumnMajor);
    uint bits = 0;
    [[unroll]] for (uint s = 0; s < 4; ++s) {
        const uint sharers = 1u << s;
        if (sharers > SUBGROUP) continue;
        // The inputs that this invocation holds of its first row of A.
        uint inputs[K];
        [[unroll]] for (uint e = 0; e < a.length(); ++e) if (e < K / sharers) inputs[e] = uint(a[e]) % K;
        bool stands = a.length() >= K / sharers;
        [[unroll]] for (uint e = 0; e < a.length(); ++e) STANDS(a[e], e, M, sharers, inputs)
        [[unroll]] for (uint e = 0; e < b.length(); ++e) STANDS(b[e], e, N, sharers, inputs)
        if (subgroupMin(stands ? 1u : 0u) == 1) bits |= sharers;
    }
    if (id == 0) found.at[0] = bits;
}
