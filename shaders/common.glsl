// What every kernel shares: the step state, buffer-address types and the widening of weights.
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

// Of a group whose elements 0 to 15 lie in the low halves of its bytes and 16 to 31 in the high ones, its elements 4 i to
// 4 i + 3 as bytes 0 to 15.
uint four_nibbles(uvec4 w, uint i) { return (w[i & 3] >> (i / 4 * 4)) & 0x0f0f0f0fu; }

// Weight formats (src/model/format.rs): a load, of 16 bytes if nothing else is said, holds WEIGHTS_PER_LOAD elements, which
// `widen` turns into f32, four at a time. A row takes LOAD_BYTES for each of its loads. Where a load has HIGH_BYTES of high
// bits, those of a row lie behind all its low ones.
//
// With GROUPED a format has a scale for each few elements of a row:
//   Scale         what SCALE_PERIOD loads, counted from the matrix's first, are scaled by, in SCALE_BYTES at `from`, with what
//                 the row itself has at `small`
//   Factors       the same in f32 for one of these loads, by `factors`; `place` says for which
//   weigh         four elements, as `widen` gives them, scaled
//   weigh_sum     a sum of products of four elements with x, scaled
// The packed integer dot products of a format of 32 elements a load take its elements as `block_of` gives them, sixteen bytes
// from 0 on. `times_block_of` gives the second sixteen with fewer instructions where they are the high halves of bytes: 8 less
// and SECOND_TIMES as large, as signed bytes.
//   ZERO          the byte that means 0, where none is subtracted in what follows
//   ZEROS         the same for what `times_block_of` gives of each block, before the second is multiplied
//   weigh_block   the sum of sixteen products of block b, scaled; x is the sum of what was multiplied
//   add_blocks    both blocks' sums, added; precise, so that every tile of a kernel gives the same bits
#ifdef WEIGHT_INT8
#define WEIGHTS_PER_LOAD 16
vec4 widen(uvec4 w, uint i) { return vec4(unpack8(int(w[i]))); }
#endif
#ifdef WEIGHT_INT4
#define WEIGHTS_PER_LOAD 32
#define SCALE_PERIOD 2
#define ZERO 8
vec4 widen(uvec4 w, uint i) { return vec4(unpack8(four_nibbles(w, i))) - 8.0; }
uvec4 block_of(uvec4 w, uint b) { return (w >> (4 * b)) & 0x0f0f0f0fu; }
#define SECOND_IN_PLACE
#define ZEROS vec2(8.0, 0.0)
#endif
#ifdef WEIGHT_Q5_0
#define WEIGHTS_PER_LOAD 32
#define HIGH_BYTES 4
#define SCALE_PERIOD 2
#define ZERO 16
struct Weights {
    uvec4 low;
    uint high;
};
#define fetch_parts(low, high, i) Weights(Words4(low).at[i], Words(high).at[i])
vec4 widen(Weights w, uint i) {
    return vec4(unpack8(four_nibbles(w.low, i) | ((w.high >> i) & 0x01010101u) << 4)) - 16.0;
}
uvec4 block_of(Weights w, uint b) {
    uint h = w.high >> (4 * b);
    return ((w.low >> (4 * b)) & 0x0f0f0f0fu) | (uvec4(h, h >> 1, h >> 2, h >> 3) & 0x01010101u) << 4;
}
#endif
#ifdef WEIGHT_Q8_0
#define WEIGHTS_PER_LOAD 16
#define SCALE_PERIOD 4
#define ZERO 0
vec4 widen(uvec4 w, uint i) { return vec4(unpack8(int(w[i]))); }
#endif
#if defined(WEIGHT_INT4) || defined(WEIGHT_Q5_0) || defined(WEIGHT_Q8_0)
// One f16 scale, two of them in a word.
#define GROUPED
#define SCALE_BYTES 4
#define Scale uint
#define Factors float
#define fetch_scale(from, small) Words(from).at[0]
uint place(uint load) { return load % SCALE_PERIOD / (SCALE_PERIOD / 2) * 16; }
float factors(uint s, uint place) { return unpackHalf2x16(s >> place).x; }
vec4 weigh(float f, uint i, vec4 w) { return f * w; }
float weigh_sum(float f, uint i, float sum, vec4 x) { return f * sum; }
float weigh_block(float f, uint b, float sum, float x) { return f * sum; }
float add_blocks(float to, float f, vec2 sums, vec2 x) {
    precise float y = fma(f, sums.x + sums.y, to);
    return y;
}
#endif
#ifdef WEIGHT_Q4_K
#define GROUPED
#define WEIGHTS_PER_LOAD 32
#define SCALE_PERIOD 8
#define SCALE_BYTES 16
#define ZERO 0
vec4 widen(uvec4 w, uint i) { return vec4(unpack8(four_nibbles(w, i))); }
uvec4 block_of(uvec4 w, uint b) { return (w >> (4 * b)) & 0x0f0f0f0fu; }
#define SECOND_IN_PLACE
#define ZEROS vec2(0.0, -8.0)
#define Scale uvec4
#define Factors vec2
#define fetch_scale(from, small) Words4(from).at[0]
uint place(uint load) { return load % SCALE_PERIOD * 4; }
// What to multiply by, and what to subtract.
vec2 factors(uvec4 s, uint place) {
    uvec3 part = (s.yzw >> place) & 15u;
    return unpackHalf2x16(s.x) * vec2(part.x | (part.z & 3u) << 4, part.y | (part.z & 12u) << 2);
}
vec4 weigh(vec2 f, uint i, vec4 w) { return f.x * w - f.y; }
float weigh_sum(vec2 f, uint i, float sum, vec4 x) { return f.x * sum - f.y * (x.x + x.y + x.z + x.w); }
float weigh_block(vec2 f, uint b, float sum, float x) { return f.x * sum - f.y * x; }
float add_blocks(float to, vec2 f, vec2 sums, vec2 x) {
    precise float y = fma(f.x, sums.x + sums.y, fma(-f.y, x.x + x.y, to));
    return y;
}
#endif
#ifdef WEIGHT_Q6_K
#define GROUPED
#define WEIGHTS_PER_LOAD 32
#define HIGH_BYTES 8
// What a row has of scales, behind its elements: two bytes a load.
#define SMALL_BYTES 2
#define SCALE_PERIOD 16
#define SCALE_BYTES 4
#define ZERO 32
struct Weights {
    uvec4 low;
    uvec2 high;
};
#define fetch_parts(low, high, i) Weights(Words4(low).at[i], Words2(high).at[i])
vec4 widen(Weights w, uint i) {
    uint high = ((w.high[i / 4] >> (i % 4 * 2)) & 0x03030303u) << 4;
    return vec4(unpack8(four_nibbles(w.low, i) | high)) - 32.0;
}
uvec4 block_of(Weights w, uint b) {
    uint h = w.high[b];
    return ((w.low >> (4 * b)) & 0x0f0f0f0fu) | (uvec4(h, h >> 2, h >> 4, h >> 6) & 0x03030303u) << 4;
}
#define Scale uvec2
#define Factors vec2
#define fetch_scale(from, small) uvec2(Words(small).at[0], Words(from).at[0])
// Rows have a multiple of 8 loads, so that the load's place in its row is odd where this one is.
uint place(uint load) { return load % 2 * 16 | load / 8 % 2 * 16 << 8; }
// Of elements 0 to 15, and of 16 to 31.
vec2 factors(uvec2 s, uint place) {
    int two = int(s.x >> (place & 0xffu));
    return unpackHalf2x16(s.y >> (place >> 8)).x * vec2(bitfieldExtract(two, 0, 8), bitfieldExtract(two, 8, 8));
}
vec4 weigh(vec2 f, uint i, vec4 w) { return f[i / 4] * w; }
float weigh_sum(vec2 f, uint i, float sum, vec4 x) { return f[i / 4] * sum; }
float weigh_block(vec2 f, uint b, float sum, float x) { return f[b] * sum; }
float add_blocks(float to, vec2 f, vec2 sums, vec2 x) {
    precise float y = fma(f.x, sums.x, fma(f.y, sums.y, to));
    return y;
}
#endif
#ifdef WEIGHT_BF16
#define WEIGHTS_PER_LOAD 8
vec4 widen(uvec4 w, uint i) {
    uvec2 b = uvec2(w[i * 2], w[i * 2 + 1]);
    return vec4(uintBitsToFloat(b.x << 16), uintBitsToFloat(b.x & 0xffff0000u), uintBitsToFloat(b.y << 16),
                uintBitsToFloat(b.y & 0xffff0000u));
}
#endif
#ifdef SECOND_IN_PLACE
#define SECOND_TIMES 16.0
uvec4 times_block_of(uvec4 w, uint b) { return b == 0 ? w & 0x0f0f0f0fu : (w & 0xf0f0f0f0u) ^ 0x80808080u; }
#else
#define SECOND_TIMES 1.0
#define ZEROS vec2(ZERO)
#define times_block_of block_of
#endif
#ifndef HIGH_BYTES
#define HIGH_BYTES 0
#define Weights uvec4
#define fetch_parts(low, high, i) Words4(low).at[i]
#endif
#ifndef SMALL_BYTES
#define SMALL_BYTES 0
#endif
#define LOAD_BYTES (16 + HIGH_BYTES + SMALL_BYTES)
// Load i of the `loads` of the row at `row`.
#define fetch_weights(row, i, loads) fetch_parts(row, (row) + (loads) * 16, i)
// What it is scaled by; it is the matrix's load `load`.
#define small_of(row, i, loads) ((row) + ((loads) * (16 + HIGH_BYTES) + (i) / 2 * 4))
#define scale_at(scales, load) ((scales) + (load) / SCALE_PERIOD * SCALE_BYTES)
#define scale_of_load(scales, load, row, i, loads) fetch_scale(scale_at(scales, load), small_of(row, i, loads))

float gelu_tanh(float x) {
    // tanh by way of exp, written so that neither end overflows: drivers' tanh may.
    float u = 0.7978845608 * (x + 0.044715 * x * x * x);
    float e = exp(-2.0 * abs(u));
    float t = sign(u) * (1.0 - e) / (1.0 + e);
    return 0.5 * x * (1.0 + t);
}
