// attend: out[r][h] = softmax(q[r][h] . K * scale) V over the visible positions of sequence[r], one workgroup a query
// head and row; flash attention: online softmax over tiles of WORKGROUP keys.
// q, out [rows, heads * dim] f32; ring f16 or f32, [sequence][K, V][kv_heads][capacity][dim padded to 8]; visible are
// max(0, p - window + 1) ..= p. Query head h reads KV head h / (heads / kv_heads). dim is even and at most 256, and
// WORKGROUP at least dim / 2.
// Bytes per row: keys * kv_heads * 2 * dim * (2 or 4), read once per query head of a group (caches serve the rest);
// operations: 4 * keys * heads * dim.
#include "common.glsl"

layout(push_constant) uniform Push {
    Words state;
    Floats q;
    uint64_t ring;
    Floats y_out;
    uint position;  // word index of position[0]
    uint sequence;  // word index of sequence[0]
    uint heads;
    uint kv_heads;
    uint dim;
    uint q_stride;
    uint out_stride;
    uint capacity;
    uint window;    // 0: all
    float scale;
};

#ifdef KV_F16
#define ELEMENT_BYTES 2
#else
#define ELEMENT_BYTES 4
#endif

shared float query[256];
shared float scores[256];
shared vec2 parts[256];

// Eight elements of a key from element i, times the query's.
float dot8(uint64_t key, uint i) {
    vec4 a = vec4(query[i], query[i + 1], query[i + 2], query[i + 3]);
    vec4 b = vec4(query[i + 4], query[i + 5], query[i + 6], query[i + 7]);
#ifdef KV_F16
    uvec4 w = Words4(key).at[i / 8];
    return dot(a, vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y))) + dot(b, vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w)));
#else
    return dot(a, Float4s(key).at[i / 4]) + dot(b, Float4s(key).at[i / 4 + 1]);
#endif
}

// Elements 2i and 2i + 1 of a value.
vec2 value2(uint64_t value, uint i) {
#ifdef KV_F16
    return unpackHalf2x16(Words(value).at[i]);
#else
    return vec2(Floats(value).at[2 * i], Floats(value).at[2 * i + 1]);
#endif
}

// An entry of the ring: no more than `capacity` positions are visible, so at most one turn is passed.
uint wrap(uint entry) { return entry >= capacity ? entry - capacity : entry; }

void main() {
    uint r = gl_WorkGroupID.y, h = gl_WorkGroupID.x, id = gl_LocalInvocationID.x;
    if (r >= live_rows(state, STATE_ROWS)) return;
    uint p = state.at[position + r];
    uint first = window == 0 || p + 1 < window ? 0 : p + 1 - window;
    uint count = p - first + 1;
    uint start = first % capacity;
    uint padded = (dim + 7) / 8 * 8, pairs = padded / 2, groups = WORKGROUP / pairs;
    uint entry_bytes = padded * ELEMENT_BYTES;
    uint64_t half_bytes = uint64_t(kv_heads) * capacity * entry_bytes;
    uint64_t keys = ring + 2 * half_bytes * state.at[sequence + r]
                    + uint64_t(h / (heads / kv_heads)) * capacity * entry_bytes;
    uint64_t values = keys + half_bytes;

    for (uint i = id; i < padded; i += WORKGROUP) {
        query[i] = i < dim ? q.at[r * q_stride + h * dim + i] * scale : 0.0;
    }
    barrier();

    float highest = NEG_INF, total = 0;
    vec2 acc = vec2(0);
    uint pair = id % pairs, group = id / pairs;
    for (uint base = 0; base < count; base += WORKGROUP) {
        float score = NEG_INF;
        if (base + id < count) {
            uint64_t key = keys + uint64_t(wrap(start + base + id)) * entry_bytes;
            score = 0;
            for (uint i = 0; i < padded; i += 8) score += dot8(key, i);
        }
        float tile_highest = max(highest, workgroup_max(score));
        float weight = base + id < count ? exp(score - tile_highest) : 0.0;
        scores[id] = weight;
        float decay = exp(highest - tile_highest);
        total = total * decay + workgroup_sum(weight);
        acc *= decay;
        highest = tile_highest;
        barrier();
        if (group < groups) {
            uint end = min(WORKGROUP, count - base);
            for (uint j = group; j < end; j += groups) {
                uint64_t value = values + uint64_t(wrap(start + base + j)) * entry_bytes;
                acc += scores[j] * value2(value, pair);
            }
        }
        barrier();
    }

    parts[id] = acc;
    barrier();
    if (group == 0 && 2 * pair < dim) {
        for (uint g = 1; g < groups; ++g) acc += parts[g * pairs + pair];
        y_out.at[r * out_stride + h * dim + 2 * pair] = acc.x / total;
        y_out.at[r * out_stride + h * dim + 2 * pair + 1] = acc.y / total;
    }
}
