// What the kernels of matrix products by matrix units are given (LinearMatrixPush in src/lower/kernels/push/blocks.rs).
layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;   // int8: f32, one an output; else those of the format
    uint64_t x;
    uint64_t x_scales;  // f32 of row 0, x_scale_stride bytes before that of row 1
    Floats y_out;
    Floats parts;    // [splits][rows padded to BM][N padded to BN], where splits > 1
    Words arrived;   // one counter a tile, zero before and after
    Words table;     // experts.glsl
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint k;          // padded inputs
    uint x_stride;   // bytes, a multiple of 64
    uint x_scale_stride;
    uint out_stride; // elements
    uint splits;     // workgroups that share a tile's inputs
    uint turn;       // relay.glsl
    uint before;
    uint ahead_low;
    uint ahead_high;
    uint ahead_bytes;
};

// Not readonly, as nothing that a relay orders: RADV's acquire makes later loads skip the cache, those of readonly blocks not.
layout(buffer_reference, std430, buffer_reference_align = 16) ORDERED buffer Inputs4 { uvec4 at[]; };

// Loads of a row of weights and their bytes, and what is left to multiply an output's sum by.
#ifdef GROUPED
#define OUTPUT_SCALE(o) 1.0
#else
#define OUTPUT_SCALE(o) scales.at[base + (o)]
#endif
#define LOADS (k / PER_LOAD)
#define ROW_BYTES row_bytes(LOADS)
#define X_SCALE(r) Floats(x_scales + uint64_t(r) * x_scale_stride).at[0]
// Leaves the sum of output `o` of row `r`: beside the other splits' where there are several, else scaled where it belongs.
#define LEAVE(r, o, sum)                                                                                               \
    if (splits > 1) {                                                                                                  \
        parts.at[(split * part_rows + (r)) * padded_n + (o)] = (sum);                                                  \
    } else if ((r) < live && (o) < n) {                                                                                \
        y_out.at[(r) * out_stride + (o)] = (sum) * OUTPUT_SCALE(o) * X_SCALE(r);                                          \
    }
