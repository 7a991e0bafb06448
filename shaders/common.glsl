// What every kernel shares: the step state and buffer-address types.
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
// Of weights, 8 bytes at a time.
layout(buffer_reference, std430, buffer_reference_align = 8) ORDERED buffer Words2 { uvec2 at[]; };

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

float gelu_tanh(float x) {
    // tanh by way of exp, written so that neither end overflows: drivers' tanh may.
    float u = 0.7978845608 * (x + 0.044715 * x * x * x);
    float e = exp(-2.0 * abs(u));
    float t = sign(u) * (1.0 - e) / (1.0 + e);
    return 0.5 * x * (1.0 + t);
}
