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

// Four INT4 weights, the low or the high halves of a word's bytes, of which 8 means 0, as f16 in the same order, times the scale
// of their group. With a scale of 0 they become zeros.
uvec2 widen_int4(uint w, bool high, float16_t scale) {
    uint magic = 0x64006400u, bits = high ? 0x00f000f0u : 0x000f000fu;
    f16vec2 even = unpackFloat2x16(w & bits | magic), odd = unpackFloat2x16(w >> 8 & bits | magic), by = f16vec2(scale);
    // High halves have made 1024 + 16 q: nothing is rounded here.
    f16vec2 step = f16vec2(high ? 0.0625hf : 1.0hf), offset = f16vec2(high ? 72.0hf : 1032.0hf);
    return uvec2(packFloat2x16((even * step - offset) * by), packFloat2x16((odd * step - offset) * by));
}

// Four weights in f32 as f16 in the same order.
uvec2 halves(vec4 w) { return uvec2(packFloat2x16(f16vec2(w.xz)), packFloat2x16(f16vec2(w.yw))); }

// Where rows have 4 units, 5 apart: the order of a tile's rows in which eight invocations that store together, two or four
// a row, meet eight different banks.
uint bank_order(uint i, uint parts) {
    if (parts == 2) return (i & ~6u) | ((i & 2u) << 1) | ((i & 4u) >> 1);
    if (parts == 4) return (i & ~7u) | ((i & 1u) << 2) | ((i & 6u) >> 1);
    return i;
}
