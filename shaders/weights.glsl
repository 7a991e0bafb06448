// How kernels read weights: INT8 with a scale a row, BF16, or a format with scales of groups, which is data
// (src/model/grouped.rs): its bits and scales are specialization constants.
//   PER_LOAD        weights of a row that are loaded together
//   Weights         what is loaded
//   row_bytes       bytes of a row of so many loads
//   fetch_weights   load `i` of the row at `row`
//   fetch_at        the same of the row that lies `row` bytes from `tile`; few bytes, so that the sum has 32 bits
//   widen           its weights 4 i to 4 i + 3 in f32, before they are scaled
// Of a format with scales of groups, a load has two blocks of 16 weights, 0 and 1:
//   fetch_scale     what a load is scaled by, as it lies in memory
//   factors         the same in f32: what each block is multiplied by, and what is then subtracted
//   weigh           four weights, scaled
//   block_of        the bytes of a block, as packed dot products take them
//   times_blocks    the same of both, but where block 1 is the high halves of bytes: 8 less and SECOND_TIMES as large, as signed
//                   bytes, which takes fewer instructions. ZEROS means 0, before the second is multiplied.
// A component of a vector is chosen by its name: NVIDIA's compiler (580) does not end where many are chosen by an index that
// becomes constant only as loops are unrolled.

#ifdef WEIGHT_INT8
#define PER_LOAD 16
#define Weights uvec4
#define row_bytes(loads) ((loads) * 16)
#define fetch_weights(row, i, loads) Words4(row).at[i]
#define fetch_at(tile, row, i, loads) Words4(tile + ((row) + (i) * 16)).at[0]
vec4 widen(Weights w, uint i) { return vec4(unpack8(int(w[i]))); }
#endif

#ifdef WEIGHT_BF16
#define PER_LOAD 8
#define Weights uvec4
#define row_bytes(loads) ((loads) * 16)
#define fetch_weights(row, i, loads) Words4(row).at[i]
vec4 widen(Weights w, uint i) {
    uvec2 b = uvec2(w[i * 2], w[i * 2 + 1]);
    return vec4(uintBitsToFloat(b.x << 16), uintBitsToFloat(b.x & 0xffff0000u), uintBitsToFloat(b.y << 16),
                uintBitsToFloat(b.y & 0xffff0000u));
}
#endif

#ifdef WEIGHT_GROUPED
#define GROUPED
#define PER_LOAD 32
// Bits of a weight in the first plane, in the second, and the element that means 0.
layout(constant_id = 15) const uint LOW = 4;
layout(constant_id = 16) const uint HIGH = 0;
layout(constant_id = 17) const uint ZERO = 8;
// Whether elements are places in a table.
layout(constant_id = 18) const uint TABLE = 0;
// How they are scaled: Scales in src/model/grouped.rs.
layout(constant_id = 19) const uint SCALES = 0;
#define BY_HALF 0
#define BY_HALF_OFFSET 1
#define BY_SIX_OFFSET 2
#define BY_SIX 3
#define BY_BYTES 4
#define BY_SIX_BY_16 5
#define BY_FOUR_OFFSET 6
// Whether something is subtracted, whether both blocks of a load have one scale, and whether it is a product.
const bool HAS_LEAST = SCALES == BY_HALF_OFFSET || SCALES == BY_SIX_OFFSET || SCALES == BY_FOUR_OFFSET;
const bool IS_SHARED = SCALES < BY_BYTES;
const bool IS_PRODUCT = SCALES > BY_HALF_OFFSET;

const uint FIRST_BYTES = LOW == 2 ? 8 : 16;
const uint SECOND_BYTES = LOW == 8 ? 16 : 4 * HIGH;
// Small scales of 8 loads, behind a row's planes.
const uint SMALL_BYTES = SCALES == BY_SIX_BY_16 ? 12 : SCALES >= BY_BYTES ? 16 : 0;
// Scales beside the rows: those of SCALE_PERIOD loads, counted from the matrix's first, lie in SCALE_BYTES, a whole number of words.
const uint SCALE_PERIOD = SCALES == BY_HALF          ? 2
                          : SCALES == BY_HALF_OFFSET ? 1
                          : SCALES == BY_BYTES       ? 16
                          : SCALES == BY_SIX_BY_16   ? 16
                                                     : 8;
const uint SCALE_BYTES = SCALES == BY_SIX_OFFSET ? 16 : SCALES == BY_SIX ? 8 : 4;

struct Weights {
    uvec4 low;
    uvec4 high;
};

uint row_bytes(uint loads) {
    return (loads * (FIRST_BYTES + SECOND_BYTES) + loads / 8 * SMALL_BYTES + 15) & ~15u;
}

// Load `i` from where its row's planes begin.
Weights fetch_planes(uint64_t first, uint64_t second, uint i) {
    Weights w = Weights(uvec4(0), uvec4(0));
    if (LOW == 2) w.low.xy = Words2(first).at[i];
    else w.low = Words4(first).at[i];
    if (LOW == 8) w.high = Words4(second).at[i];
    else if (HIGH == 2) w.high.xy = Words2(second).at[i];
    else if (HIGH == 1) w.high.x = Words(second).at[i];
    return w;
}
#define fetch_weights(row, i, loads) fetch_planes(row, (row) + (loads) * FIRST_BYTES, i)
#define fetch_at(tile, row, i, loads)                                                                                  \
    fetch_planes(tile + ((row) + (i) * FIRST_BYTES), tile + ((row) + (loads) * FIRST_BYTES + (i) * SECOND_BYTES), 0)

uint part(uvec4 v, uint i) { return i < 2 ? (i == 0 ? v.x : v.y) : (i == 2 ? v.z : v.w); }

// A byte of two elements as the values that they stand for, in the low and in the high byte.
shared uint pairs_of_values[TABLE != 0 ? 256 : 1];

int value_of(uint q) {
    uint four = q < 8 ? (q < 4 ? 0xbfad9881u : 0xf6eaddcfu) : (q < 12 ? 0x26190d01u : 0x71594535u);
    return int(four >> (q % 4 * 8));
}

// Fills the table, where the format has one. All invocations of a workgroup take part.
void prepare_weights() {
    if (TABLE == 0) return;
    for (uint i = gl_LocalInvocationID.x; i < 256; i += WORKGROUP) {
        pairs_of_values[i] = uint(value_of(i & 15u) & 255) | uint(value_of(i >> 4) & 255) << 8;
    }
    barrier();
}

// Four values of either block, from a word of the first plane.
uvec2 look_up(uint word) {
    uint a = pairs_of_values[word & 255u], b = pairs_of_values[word >> 8 & 255u];
    uint c = pairs_of_values[word >> 16 & 255u], d = pairs_of_values[word >> 24];
    uint even = a | c << 16, odd = b | d << 16;
    return uvec2(even & 0x00ff00ffu | (odd & 0x00ff00ffu) << 8, even >> 8 & 0x00ff00ffu | odd & 0xff00ff00u);
}

// Weights 4 i to 4 i + 3 of block b as bytes.
uint four_of(Weights w, uint b, uint i) {
    if (LOW == 8) return part(b == 0 ? w.low : w.high, i);
    if (TABLE != 0) {
        uvec2 four = look_up(part(w.low, i));
        return b == 0 ? four.x : four.y;
    }
    uint four;
    if (LOW == 4) four = (part(w.low, i) >> (4 * b)) & 0x0f0f0f0fu;
    else four = ((b == 0 ? w.low.x : w.low.y) >> (2 * i)) & 0x03030303u;
    if (HIGH == 2) four |= (((b == 0 ? w.high.x : w.high.y) >> (2 * i)) & 0x03030303u) << LOW;
    if (HIGH == 1) four |= ((w.high.x >> (4 * b + i)) & 0x01010101u) << LOW;
    return four;
}

uvec4 block_of(Weights w, uint b) {
    if (LOW == 8) return b == 0 ? w.low : w.high;
    if (LOW == 4 && HIGH == 0 && TABLE == 0) return (w.low >> (4 * b)) & 0x0f0f0f0fu;
    return uvec4(four_of(w, b, 0), four_of(w, b, 1), four_of(w, b, 2), four_of(w, b, 3));
}

// Whether the halves of bytes are the elements.
const bool IN_PLACE = LOW == 4 && HIGH == 0 && TABLE == 0;
#define SECOND_TIMES (IN_PLACE ? 16.0 : 1.0)
#define ZEROS (IN_PLACE ? vec2(float(ZERO), float(ZERO) - 8.0) : vec2(float(ZERO)))
void times_blocks(Weights w, out uvec4 block[2]) {
    if (IN_PLACE) {
        block[0] = w.low & 0x0f0f0f0fu;
        block[1] = (w.low & 0xf0f0f0f0u) ^ 0x80808080u;
    } else if (TABLE != 0) {
        uvec2 four[4] = uvec2[4](look_up(w.low.x), look_up(w.low.y), look_up(w.low.z), look_up(w.low.w));
        block[0] = uvec4(four[0].x, four[1].x, four[2].x, four[3].x);
        block[1] = uvec4(four[0].y, four[1].y, four[2].y, four[3].y);
    } else {
        block[0] = block_of(w, 0);
        block[1] = block_of(w, 1);
    }
}

vec4 widen(Weights w, uint i) { return vec4(unpack8(int(four_of(w, i / 4, i % 4)))) - float(ZERO); }

#define scale_at(scales, load) ((scales) + (load) / SCALE_PERIOD * SCALE_BYTES)

// What is beside the rows at `from`, and behind the row at `row` of load `i` of `loads`. In x, or where there are small scales in
// them: those of the load in x, of SIX_BY_16 their high bits in z, and what is beside the rows in y.
uvec4 fetch_scale(uint64_t from, uint64_t row, uint i, uint loads) {
    if (SCALES == BY_SIX_OFFSET) return Words4(from).at[0];
    if (SCALES == BY_SIX) return uvec4(Words2(from).at[0], 0, 0);
    uint one = Words(from).at[0];
    if (SCALES < BY_BYTES) return uvec4(one, 0, 0, 0);
    Words small = Words(row + loads * (FIRST_BYTES + SECOND_BYTES));
    if (SCALES == BY_SIX_BY_16) return uvec4(small.at[i / 8 * 3 + i % 8 / 4], one, small.at[i / 8 * 3 + 2], 0);
    return uvec4(small.at[i / 2], one, 0, 0);
}

// A load's scales: of each block a factor, which a product is multiplied by as well, and what is subtracted times what.
struct Parts {
    uint d;        // f16 in the low half
    uint m;        // the same
    ivec2 factor;  // of d
    ivec2 least;   // of m
};

// `load`: the load's place among the matrix's, of which the last 4 bits matter.
Parts parts_of(uvec4 s, uint load) {
    Parts p = Parts(s.x, 0, ivec2(1), ivec2(0));
    uint i = load % 8;
    if (SCALES == BY_HALF) p.d = s.x >> (load % 2 * 16);
    if (SCALES == BY_HALF_OFFSET) {
        p.m = s.x >> 16;
        p.least = ivec2(-1);
    }
    if (SCALES == BY_SIX_OFFSET) {
        uvec3 six = (s.yzw >> (4 * i)) & 15u;
        p.m = s.x >> 16;
        p.factor = ivec2(int(six.x | (six.z & 3u) << 4));
        p.least = ivec2(int(six.y | (six.z & 12u) << 2));
    }
    if (SCALES == BY_SIX) {
        p.factor = ivec2(int((s.y >> (4 * i)) & 15u | ((s.x >> (16 + 2 * i)) & 3u) << 4) - 32);
    }
    if (SCALES == BY_BYTES) {
        int two = int(s.x >> (load % 2 * 16));
        p.d = s.y >> (load / 8 % 2 * 16);
        p.factor = ivec2(bitfieldExtract(two, 0, 8), bitfieldExtract(two, 8, 8));
    }
    if (SCALES == BY_SIX_BY_16) {
        uint low = s.x >> (load % 4 * 8), high = s.z >> (4 * i);
        p.d = s.y >> (load / 8 % 2 * 16);
        p.factor = ivec2(uvec2(low & 15u | (high & 3u) << 4, (low >> 4) & 15u | (high & 12u) << 2)) - 32;
    }
    if (SCALES == BY_FOUR_OFFSET) {
        uint two = s.x >> (load % 2 * 16);
        p.d = s.y;
        p.m = s.y >> 16;
        p.factor = ivec2(uvec2(two, two >> 8) & 15u);
        p.least = ivec2(uvec2(two >> 4, two >> 12) & 15u);
    }
    return p;
}

struct Factors {
    vec2 scale;
    vec2 least;
};

Factors factors(uvec4 s, uint load) {
    Parts p = parts_of(s, load);
    Factors f = Factors(vec2(unpackHalf2x16(p.d).x), vec2(0));
    if (IS_PRODUCT) f.scale *= vec2(p.factor);
    if (HAS_LEAST) f.least = unpackHalf2x16(p.m).x * vec2(p.least);
    return f;
}

float scale_of(Factors f, uint i) { return IS_SHARED || i < 4 ? f.scale.x : f.scale.y; }
float least_of(Factors f, uint i) { return IS_SHARED || i < 4 ? f.least.x : f.least.y; }

// Weights 4 i to 4 i + 3, as `widen` gives them, scaled; and a sum of their products with x.
vec4 weigh(Factors f, uint i, vec4 w) { return HAS_LEAST ? scale_of(f, i) * w - least_of(f, i) : scale_of(f, i) * w; }
float weigh_sum(Factors f, uint i, float sum, vec4 x) {
    float y = scale_of(f, i) * sum;
    return HAS_LEAST ? y - least_of(f, i) * (x.x + x.y + x.z + x.w) : y;
}

// The sum of sixteen products of block b, scaled; x is the sum of what was multiplied.
float weigh_block(Factors f, uint b, float sum, float x) {
    float y = scale_of(f, 4 * b) * sum;
    return HAS_LEAST ? y - least_of(f, 4 * b) * x : y;
}

// Both blocks' sums, added; precise, so that every tile of a kernel gives the same bits.
float add_blocks(float to, Factors f, vec2 sums, vec2 x) {
    precise float y = to;
    if (HAS_LEAST) {
        if (IS_SHARED) y = fma(-f.least.x, x.x + x.y, y);
        else y = fma(-f.least.x, x.x, fma(-f.least.y, x.y, y));
    }
    if (IS_SHARED) y = fma(f.scale.x, sums.x + sums.y, y);
    else y = fma(f.scale.x, sums.x, fma(f.scale.y, sums.y, y));
    return y;
}
#endif

#ifndef WEIGHT_GROUPED
#define prepare_weights()
#endif
