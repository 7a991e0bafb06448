// Reductions over a workgroup of whole subgroups.
#extension GL_KHR_shader_subgroup_shuffle : require

// A workgroup has at most 1024 invocations and a subgroup at least 4.
shared float reduce_scratch[256];

// Sum (or maximum) over a subgroup whose invocations all take part, the same value in each. NVIDIA's driver allows for some that
// do not in subgroupAdd, which takes longer: with it in the norms and products of one row, 24 layers of Gemma 3 27B in INT4 took
// 2.8 % longer on an H200.
#define MOST_OF_SUBGROUP 128
float subgroup_sum(float x) {
    [[unroll]] for (uint apart = 1; apart < MOST_OF_SUBGROUP; apart *= 2) {
        if (apart < gl_SubgroupSize) x += subgroupShuffleXor(x, apart);
    }
    return x;
}

float subgroup_max(float x) {
    [[unroll]] for (uint apart = 1; apart < MOST_OF_SUBGROUP; apart *= 2) {
        if (apart < gl_SubgroupSize) x = max(x, subgroupShuffleXor(x, apart));
    }
    return x;
}

// Sum (or maximum) over a workgroup of whole subgroups, the same value in every invocation; every invocation must take part. The
// order of additions is fixed by the workgroup's and the subgroup's size.
float workgroup_sum(float x) {
    x = subgroup_sum(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (gl_SubgroupInvocationID == 0) reduce_scratch[gl_SubgroupID] = x;
    barrier();
    float sum = 0;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) sum += reduce_scratch[i];
    return subgroup_sum(sum);
}

float workgroup_max(float x) {
    x = subgroup_max(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (gl_SubgroupInvocationID == 0) reduce_scratch[gl_SubgroupID] = x;
    barrier();
    float m = NEG_INF;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) m = max(m, reduce_scratch[i]);
    return subgroup_max(m);
}

// The largest of magnitudes (activation_layout.glsl).
uint workgroup_top(uint top) {
    top = subgroupMax(top);
    barrier();
    if (gl_SubgroupInvocationID == 0) reduce_scratch[gl_SubgroupID] = uintBitsToFloat(top);
    barrier();
    uint all = 0;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        all = max(all, floatBitsToUint(reduce_scratch[i]));
    }
    return subgroupMax(all);
}
