// pack, two variants: f32 rows into the layout (activation_layout.glsl) that the next linear step reads. One or several
// workgroups a row.
//   pack:       out[r] = x[r]
//   gated_gelu: out[r] = gelu_tanh(x[r]) * up[r]
// x, up f32 [rows, width]; out [rows, width] in any layout.
// An invocation keeps VECS times four elements in registers, WORKGROUP apart. Layouts with one scale a row need its largest
// element: where there are few rows, gated_gelu writes f32 in several workgroups a row, each of which leaves its largest in
// `tops`, and pack in as many takes the largest of these.
// Bytes per row: 4 or 8 * width read, 2 to 4 * width written; about 12 operations an element.
#define RELAY
#include "common.glsl"
#include "reduce.glsl"
#include "relay.glsl"
#include "activation_layout.glsl"
layout(constant_id = 1) const uint VECS = 1;
layout(constant_id = 2) const uint FORM = 1;
layout(constant_id = 3) const uint PARTS = 1;  // workgroups of a row
layout(constant_id = 4) const uint GATHER = 0; // with any but 0, row r is made of row list[r] / GATHER

layout(push_constant) uniform Push {
    Words state;
    Floats x;
    Floats up;
    uint64_t y_out;
    Words list;       // with GATHER
    Words tops;       // bits of each part's largest magnitude, [rows, PARTS], with PARTS > 1
    uint which;       // state word that counts the rows
    uint width;       // even
    uint in_stride;   // of x and up: elements
    uint out_stride;  // bytes
    uint padded;      // P
    uint turn;        // relay.glsl
    uint before;
};

uint at(uint i) { return gl_LocalInvocationID.x + (gl_WorkGroupID.x * VECS + i) * WORKGROUP; }

// Four elements of a row from element e; zeros past its end, which need not be that of a vec4.
vec4 load4(Floats row, uint r, uint e) {
    uint from = r * in_stride + e;
    if (e + 4 <= width) return Float4s(uint64_t(row) + 4 * uint64_t(from)).at[0];
    vec4 v = vec4(0);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        if (e + i < width) v[i] = row.at[from + i];
    }
    return v;
}

void pack_row(uint r) {
    relay_wait(state, turn, before);
    uint source = GATHER != 0 ? list.at[r] / GATHER : r;
    vec4 v[VECS];
    uint top = 0;
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        vec4 y = load4(x, source, at(i) * 4);
#ifdef GELU
        vec4 u = load4(up, source, at(i) * 4);
        y = vec4(gelu_tanh(y.x), gelu_tanh(y.y), gelu_tanh(y.z), gelu_tanh(y.w)) * u;
#endif
        v[i] = y;
        top = max(top, magnitude(y));
    }
    uint64_t row = y_out + uint64_t(r) * out_stride;
    bool scaled = FORM == FORM_F16_ROW || FORM == FORM_INT16_ROW;
    if (PARTS == 1) {
        if (scaled) top = workgroup_top(top);
    } else {
#ifdef GELU
        top = workgroup_top(top);
        if (gl_LocalInvocationID.x == 0) tops.at[r * PARTS + gl_WorkGroupID.x] = top;
#else
        top = 0;
        if (scaled) {
            [[unroll]] for (uint i = 0; i < PARTS; ++i) top = max(top, tops.at[r * PARTS + i]);
        }
#endif
    }
    [[unroll]] for (uint i = 0; i < VECS; ++i) {
        if (FORM == FORM_F32) {
            if (at(i) * 4 + 4 <= width) {
                Float4s(row).at[at(i)] = v[i];
            } else {
                [[unroll]] for (uint e = 0; e < 4; ++e) {
                    if (at(i) * 4 + e < width) Floats(row).at[at(i) * 4 + e] = v[i][e];
                }
            }
        }
        if (IS_BLOCKS(FORM)) write_planes4(FORM, row, padded, at(i), v[i]);
        if (FORM == FORM_F16_ROW || FORM == FORM_INT16_ROW) write_row4(FORM, row, padded, at(i), v[i], top);
    }
}

void main() {
    uint r = gl_WorkGroupID.y;
    if (r < live_rows(state, which)) pack_row(r);
    relay_pass(state, turn);
}
