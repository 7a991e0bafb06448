// What every kernel shares: the step state, buffer-address types, widening of weights, workgroup reductions.
// Weights, KV and arena are reached by 64-bit buffer device addresses that are part of the baked push constants.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

// Accesses that take part in acquire and release, where dispatches may run beside those whose results they need (relay.glsl).
// Of a block `nonprivate` is lost on the way to SPIR-V (the pinned glslang passes `coherent` on to members, not this): what
// keeps such accesses in their order is that no compiler seen moves them across the barriers there.
#if defined(RELAY)
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#define ORDERED nonprivate
#elif defined(RELAY_COHERENT)
// In the older memory model: lavapipe 22.3 takes accesses to shared memory for barriers in the newer one.
#define ORDERED coherent
#else
#define ORDERED
#endif

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(constant_id = 0) const uint WORKGROUP = 128;

layout(buffer_reference, std430, buffer_reference_align = 4) ORDERED buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) ORDERED buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) ORDERED buffer Float4s { vec4 at[]; };
// Of weights and KV, 16 bytes at a time.
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Words4 { uvec4 at[]; };

// The step state's header (src/schedule/layout.rs).
#define STATE_ROWS 0
#define STATE_HEAD_FIRST 1
#define STATE_HEAD_ROWS 2
#define STATE_CHUNK 4

// 1 in passes of one row, which is always live: nothing waits for the state to say so.
layout(constant_id = 8) const uint SINGLE = 0;

// Rows that the step works on: `which` is the header word that counts them.
uint live_rows(Words state, uint which) { return SINGLE != 0 ? 1 : state.at[which]; }

#define NEG_INF uintBitsToFloat(0xff800000u)

// A workgroup has at most 1024 invocations and a subgroup at least 4.
shared float reduce_scratch[256];

// Sum (or maximum) over the workgroup, the same value in every invocation; every invocation must take part. The order of
// additions is fixed by the workgroup's and the subgroup's size.
float workgroup_sum(float x) {
    x = subgroupAdd(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (subgroupElect()) reduce_scratch[gl_SubgroupID] = x;
    barrier();
    float sum = 0;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) sum += reduce_scratch[i];
    return subgroupAdd(sum);
}

float workgroup_max(float x) {
    x = subgroupMax(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (subgroupElect()) reduce_scratch[gl_SubgroupID] = x;
    barrier();
    float m = NEG_INF;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) m = max(m, reduce_scratch[i]);
    return subgroupMax(m);
}

// Of an INT4 group, whose elements 0 to 15 lie in the low halves of its bytes and 16 to 31 in the high ones, those that are its elements 4 i to 4 i + 3, as bytes 0 to 15, 8 of which mean 0.
uint four_nibbles(uvec4 w, uint i) { return (w[i & 3] >> (i / 4 * 4)) & 0x0f0f0f0fu; }

// The scale of an INT4 group, counted from the matrix's first: f16, two of them in a word.
float group_scale(Words scales, uint group) { return unpackHalf2x16(scales.at[group / 2])[group % 2]; }

// Weight formats: one 16-byte load holds WEIGHTS_PER_LOAD elements, which `widen` turns into f32.
#ifdef WEIGHT_INT8
#define WEIGHTS_PER_LOAD 16
vec4 widen(uvec4 w, uint i) { return vec4(unpack8(int(w[i]))); }
#endif
#ifdef WEIGHT_INT4
#define WEIGHTS_PER_LOAD 32
// To be multiplied by the scale of the load, which is a group.
vec4 widen(uvec4 w, uint i) { return vec4(unpack8(four_nibbles(w, i))) - 8.0; }
#endif
#ifdef WEIGHT_BF16
#define WEIGHTS_PER_LOAD 8
vec4 widen(uvec4 w, uint i) {
    uint a = w[2 * i], b = w[2 * i + 1];
    return vec4(uintBitsToFloat(a << 16), uintBitsToFloat(a & 0xffff0000u), uintBitsToFloat(b << 16),
                uintBitsToFloat(b & 0xffff0000u));
}
#endif

float gelu_tanh(float x) {
    // tanh by way of exp, written so that neither end overflows: drivers' tanh may.
    float u = 0.7978845608 * (x + 0.044715 * x * x * x);
    float e = exp(-2.0 * abs(u));
    float t = sign(u) * (1.0 - e) / (1.0 + e);
    return 0.5 * x * (1.0 + t);
}
