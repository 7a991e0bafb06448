// What the kernels of matrix products by matrix units are given (LinearPush in src/gpu/matrix.rs).
layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;
    uint64_t x;
    Floats y_out;
    Floats parts;    // [splits][rows padded to BM][N padded to BN], where splits > 1
    Words arrived;   // one counter a tile, zero before and after
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint k;          // padded inputs
    uint x_stride;   // bytes, a multiple of 64
    uint out_stride; // elements
    uint splits;     // workgroups that share a tile's inputs
    uint turn;       // relay.glsl
    uint before;
};

layout(buffer_reference, std430, buffer_reference_align = 16) ORDERED readonly buffer Inputs4 { uvec4 at[]; };
