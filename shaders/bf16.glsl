// bf16: the upper half of an f32. What a cache keeps stays within f16's range, since results of attention may be packed as f16.
const float BF16_MOST = 65280.0;

// The pair of two numbers, each rounded to the nearest, of two equally near ones to the even one.
uint pack_bf16(vec2 x) {
    uvec2 bits = floatBitsToUint(clamp(x, -BF16_MOST, BF16_MOST));
    bits += 0x7fff + (bits >> 16 & 1);
    return bits.x >> 16 | bits.y & 0xffff0000;
}

vec2 unpack_bf16(uint x) { return uintBitsToFloat(uvec2(x << 16, x & 0xffff0000)); }
