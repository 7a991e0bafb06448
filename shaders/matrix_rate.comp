// matrix_rate: the matrix units' ceiling. Every subgroup multiplies matrices that it holds in registers, 16 products a
// round into 16 sums that do not depend on each other.
// No bytes; operations: subgroups * rounds * 16 * 2 * M * N * K.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#include "common.glsl"

layout(push_constant) uniform Push {
    Words sink;
    uint rounds;
};

layout(constant_id = 1) const uint M = 16;
layout(constant_id = 2) const uint N = 16;
layout(constant_id = 3) const uint K = 16;
layout(constant_id = 4) const uint SUBGROUPS = 4;

// f16 pairs to load operands from, then room for one result of each subgroup.
const uint OPERAND_WORDS = 4 * K * (M > N ? M : N) / 2;
const uint RESULT_WORDS = SUBGROUPS * M * N;
shared uint words[OPERAND_WORDS > RESULT_WORDS ? OPERAND_WORDS : RESULT_WORDS];

void main() {
    uint id = gl_LocalInvocationID.x;
    // Small values of both signs, so that sums stay finite and no operand is zero.
    for (uint i = id; i < OPERAND_WORDS; i += WORKGROUP) {
        uint h = (i * 2654435761u) >> 7;
        words[i] = packHalf2x16(vec2(float(h % 1021) - 510.5, float(h / 1021 % 1021) - 510.5) / 512.0);
    }
    barrier();
    coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a[4];
    coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b[4];
    coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> sums[16];
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        coopMatLoad(a[i], words, i * M * K / 2, K / 2, gl_CooperativeMatrixLayoutRowMajor);
        coopMatLoad(b[i], words, i * N * K / 2, K / 2, gl_CooperativeMatrixLayoutColumnMajor);
    }
    [[unroll]] for (uint i = 0; i < 16; ++i) {
        sums[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
    }
    for (uint round = 0; round < rounds; ++round) {
        [[unroll]] for (uint i = 0; i < 16; ++i) sums[i] = coopMatMulAdd(a[i / 4], b[i % 4], sums[i]);
    }
    [[unroll]] for (uint i = 1; i < 16; ++i) sums[0] = sums[0] + sums[i];
    barrier();
    coopMatStore(sums[0], words, gl_SubgroupID * M * N, N, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    // Stored only where it equals a value that it practically never has.
    if (words[id % RESULT_WORDS] == 0x9e3779b9u) sink.at[0] = words[id % RESULT_WORDS];
}
