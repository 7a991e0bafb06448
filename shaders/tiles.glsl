// What the kernels of matrix products do to bytes on their way to the matrix units. Needs f16 arithmetic.

// Four weights as f16, elements 0 and 2 before 1 and 3: bytes become f16 by putting them behind 0x64, which makes 1024 + b,
// where the sign's flip has added 128 to b. x comes in the same order (F16Row in
// activation_layout.glsl). With a mask of no bits they become zeros.
#define ALL_BYTES 0x00ff00ffu
uvec2 widen4(uint w, uint mask) {
    f16vec2 offset = f16vec2(1152.0hf);
    uint even = (w & mask) ^ 0x64806480u, odd = ((w >> 8) & mask) ^ 0x64806480u;
    return uvec2(packFloat2x16(unpackFloat2x16(even) - offset), packFloat2x16(unpackFloat2x16(odd) - offset));
}

#ifdef GROUPED
// A load's scales (Parts in weights.glsl) in f16. Products of factors and elements are whole numbers, which f16 holds up to 2048
// exactly, so that little is rounded before the last product.
struct Multiplier {
    float16_t d;
    f16vec2 factor;
    f16vec2 least;
};

// Past a row's inputs, where there is no load, weights become zeros.
Multiplier multiplier(uvec4 s, uint load, bool is_input) {
    Parts p = parts_of(s, load);
    Multiplier by = Multiplier(is_input ? unpackFloat2x16(p.d).x : 0.0hf, f16vec2(1.0hf), f16vec2(0.0hf));
    if (IS_PRODUCT) by.factor = f16vec2(p.factor);
    if (HAS_LEAST) by.least = f16vec2(is_input ? unpackFloat2x16(p.m).x : 0.0hf) * f16vec2(p.least);
    return by;
}

// Weights 4 i to 4 i + 3 of a load as f16 in the same order, scaled.
uvec2 widen_scaled(Weights w, uint i, Multiplier by) {
    const uint b = i / 4;
    f16vec2 factor = f16vec2(IS_SHARED || b == 0 ? by.factor.x : by.factor.y), d = f16vec2(by.d), even, odd;
    if (IN_PLACE) {
        // Low halves make 1024 + q, high ones 1024 + 16 q.
        uint word = part(w.low, i % 4), magic = 0x64006400u, bits = b == 0 ? 0x000f000fu : 0x00f000f0u;
        f16vec2 each = f16vec2(b == 0 ? 1.0hf : 0.0625hf);
        f16vec2 offset = f16vec2(float16_t(float(ZERO)) + (b == 0 ? 1024.0hf : 64.0hf));
        // Nothing is rounded here, whether the driver fuses it or not.
        even = unpackFloat2x16(word & bits | magic) * each - offset;
        odd = unpackFloat2x16(word >> 8 & bits | magic) * each - offset;
    } else {
        uint four = four_of(w, b, i % 4);
        bool is_signed = LOW == 8 || TABLE != 0;
        uint magic = is_signed ? 0x64806480u : 0x64006400u;
        f16vec2 offset = f16vec2(is_signed ? 1152.0hf : 1024.0hf + float16_t(float(ZERO)));
        even = unpackFloat2x16((four & 0x00ff00ffu) ^ magic) - offset;
        odd = unpackFloat2x16((four >> 8 & 0x00ff00ffu) ^ magic) - offset;
    }
    if (IS_PRODUCT) {
        even *= factor;
        odd *= factor;
    }
    if (HAS_LEAST) {
        f16vec2 least = f16vec2(IS_SHARED || b == 0 ? by.least.x : by.least.y);
        even = fma(even, d, -least);
        odd = fma(odd, d, -least);
    } else {
        even *= d;
        odd *= d;
    }
    return uvec2(packFloat2x16(even), packFloat2x16(odd));
}
#endif

// Where rows have 4 units, 5 apart: the order of a tile's rows in which eight invocations that store together, two or four
// a row, meet eight different banks.
uint bank_order(uint i, uint parts) {
    if (parts == 2) return (i & ~6u) | ((i & 2u) << 1) | ((i & 4u) >> 1);
    if (parts == 4) return (i & ~7u) | ((i & 1u) << 2) | ((i & 6u) >> 1);
    return i;
}
