// How a row of a linear step's input lies in memory (ActivationLayout in src/lower). The kernel before the step writes it.
//   F32:        f32, in the slot itself
//   Int16Block: 16-bit fixed point as two int8 planes, one f32 scale per 16 elements, x = scale * (256 * hi + lo):
//               hi int8[P], lo int8[P], scales f32[P / 16]
//   Int16Sums:  as Int16Block, but beside each scale the sum of its 16 whole numbers, for weights whose zero is not 0:
//               hi int8[P], lo int8[P], (scale f32, sum int32)[P / 16]
//   F16Row:     f16 with one f32 scale a row, x = scale * h: f16[P], of each four elements 0 and 2 before 1 and 3, as
//               tiles.glsl widens weights; then the scale at byte 2 P, and 0 behind it
//   F16Block:   as F16Row, but one f32 scale per 16 elements: f16[P], scales f32[P / 16]; the largest of a row lies apart
//   Int16Row:   as Int16Block, but one f32 scale a row: hi int8[P], lo int8[P], then the scale at byte 2 P
// P is the row's width padded to 32, zeros in the padding. Rows lie a fixed number of bytes apart.
#extension GL_KHR_shader_subgroup_shuffle : require
#define FORM_F32 0
#define FORM_INT16_BLOCK 1
#define FORM_F16_ROW 2
#define FORM_INT16_ROW 3
#define FORM_INT16_SUMS 4
#define FORM_F16_BLOCK 5
// The two with a scale per 16 elements.
#define IS_BLOCKS(form) ((form) == FORM_INT16_BLOCK || (form) == FORM_INT16_SUMS)

layout(buffer_reference, std430, buffer_reference_align = 16) ORDERED writeonly buffer PackedOut { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) ORDERED writeonly buffer ScaleOut { float at[]; };

// Bits of |x| that order as the values do; a NaN is above all.
uint magnitude(float x) { return floatBitsToUint(x) & 0x7fffffffu; }

uint magnitude(vec4 v) {
    return max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
}

layout(buffer_reference, std430, buffer_reference_align = 4) ORDERED writeonly buffer WordOut { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) ORDERED writeonly buffer PairOut { uvec2 at[]; };

// What a block's row has beside its planes.
void write_scale(uint form, uint64_t row, uint padded, uint block, float scale, int sum) {
    if (form == FORM_INT16_SUMS) PairOut(row + 2 * padded).at[block] = uvec2(floatBitsToUint(scale), uint(sum));
    else ScaleOut(row + 2 * padded).at[block] = scale;
}

// Four elements, the `i`-th of both planes of an Int16Block, Int16Sums or Int16Row row. `top` is the bits of the largest
// magnitude among those that share their scale. Returns the sum of the four whole numbers.
int write_bytes4(uint64_t row, uint padded, uint i, vec4 v, uint top) {
    float largest = uintBitsToFloat(top);
    // Blocks this small are zero to every sum that they enter.
    float inverse = largest < 1e-30 ? 0.0 : 32512.0 / largest;
    ivec4 q = ivec4(round(v * inverse));
    ivec4 h = (q + 128) >> 8;
    ivec4 l = q - (h << 8);
    if (i >= padded / 4) return 0;
    WordOut(row).at[i] = (uint(h.x) & 255u) | (uint(h.y) & 255u) << 8 | (uint(h.z) & 255u) << 16 | uint(h.w) << 24;
    WordOut(row + padded).at[i] = (uint(l.x) & 255u) | (uint(l.y) & 255u) << 8 | (uint(l.z) & 255u) << 16 | uint(l.w) << 24;
    return q.x + q.y + q.z + q.w;
}

// Four elements, the `i`-th of an Int16Block or Int16Sums row, by each of four neighbouring invocations of a subgroup, which make a block
// together: all four must take part, those past the row's end with zeros. A NaN or an infinity makes the scale such.
void write_planes4(uint form, uint64_t row, uint padded, uint i, vec4 v) {
    uint top = magnitude(v);
    top = max(top, subgroupShuffleXor(top, 1));
    top = max(top, subgroupShuffleXor(top, 2));
    int sum = write_bytes4(row, padded, i, v, top);
    if (form == FORM_INT16_SUMS) {
        sum += subgroupShuffleXor(sum, 1);
        sum += subgroupShuffleXor(sum, 2);
    }
    if (i < padded / 4 && i % 4 == 0) {
        write_scale(form, row, padded, i / 4, uintBitsToFloat(top) * (1.0 / 32512.0), sum);
    }
}

// The scale of an F16Row row, from the bits of its largest magnitude: a power of two that brings it below 2^12, where
// products and sums of many stay well within f32 and small elements well above f16's denormals.
float half_scale(uint top) {
    uint exponent = top >> 23;
    if (exponent == 255) return uintBitsToFloat(top);
    return uintBitsToFloat(uint(clamp(int(exponent) - 11, 1, 253)) << 23);
}

// Four elements, the `i`-th of an F16Row row.
void write_half4(uint64_t row, uint padded, uint i, vec4 v, float scale) {
    vec4 y = v * (1.0 / scale);
    if (i < padded / 4) PairOut(row).at[i] = uvec2(packHalf2x16(y.xz), packHalf2x16(y.yw));
}

// Four elements, the `i`-th of an F16Row or Int16Row row, with the row's scale, from the workgroup's largest magnitude.
void write_row4(uint form, uint64_t row, uint padded, uint i, vec4 v, uint top) {
    float scale = form == FORM_INT16_ROW ? uintBitsToFloat(top) * (1.0 / 32512.0) : half_scale(top);
    if (i == 0) {
        ScaleOut(row + 2 * padded).at[0] = scale;
        ScaleOut(row + 2 * padded).at[1] = 0.0;
    }
    if (form == FORM_INT16_ROW) {
        write_bytes4(row, padded, i, v, top);
    } else {
        write_half4(row, padded, i, v, scale);
    }
}
