// attend: out[r][h] = softmax(q[r][h] . K * scale) V over the visible positions of sequence[r]; flash decoding: a workgroup
// takes GROUP query heads of one KV head for one part of the keys, of as many as the grid's z, each of its subgroups every n-th tile of
// keys by an online softmax; the workgroup that finishes a row's heads last adds up the parts.
// With FUSED, for passes of one row, it also does what stands before attention: q = rope(norm(q; wq)), k = rope(norm(k; wk)),
// and k and v into the KV ring; the row's own key never passes through memory.
// q f32 [rows, heads * DIM]; ring f16 or f32, [sequence][K, V][kv_heads][capacity][DIM padded to 8]; visible are
// max(0, p - window + 1) ..= p; query head h reads KV head h / (heads / kv_heads). out f32, or planes or half form
// (forms.glsl) where DIM is a multiple of 16. DIM is even and at most 256; GROUP divides heads / kv_heads.
// Bytes per row: keys * kv_heads * 2 * DIM * (2 or 4) for each GROUP of query heads; operations: 4 * keys * heads * DIM.
#define RELAY_COHERENT
#include "common.glsl"
#include "relay.glsl"
#include "forms.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require
layout(constant_id = 1) const uint DIM = 128;
layout(constant_id = 2) const uint GROUP = 2;
layout(constant_id = 3) const uint FUSED = 0;
layout(constant_id = 4) const uint FORM = 0;
layout(constant_id = 5) const uint SUBGROUP = 32;  // invocations of a subgroup

layout(push_constant) uniform Push {
    Words state;
    Floats q;
    Floats k;
    Floats v;
    Floats wq;
    Floats wk;
    Floats frequencies;
    Words ring;
    uint64_t y_out;
    uint64_t scratch;  // counters u32 [rows][heads / GROUP], then parts f32 [rows][heads][parts][DIM + 2]
    uint position;     // word index of position[0]
    uint sequence;     // word index of sequence[0]
    uint heads;
    uint kv_heads;
    uint stride;       // of q, k and v: elements
    uint out_stride;   // elements of f32, bytes of a form
    uint capacity;
    uint window;       // 0: all
    float scale;
    float eps;
    uint turn;         // relay.glsl
    uint before;
};

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Shared { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Counters { uint at[]; };

#ifdef KV_F16
#define ELEMENT_BYTES 2
#else
#define ELEMENT_BYTES 4
#endif

const uint PADDED = (DIM + 7) / 8 * 8;
const uint OCTETS = PADDED / 8;
const uint SUBGROUPS = WORKGROUP / SUBGROUP;
// Keys whose values a subgroup adds at a time, and the octets of each that one invocation takes.
const uint TOGETHER = SUBGROUP > OCTETS ? SUBGROUP / OCTETS : 1;
const uint TURNS = (OCTETS + SUBGROUP - 1) / SUBGROUP;
// Pairs of elements that RoPE turns, for each invocation of a subgroup.
const uint PAIRS = (DIM / 2 + SUBGROUP - 1) / SUBGROUP;
// Bytes that the counters take at the start of the scratch (src/schedule/layout.rs).
const uint COUNTER_BYTES = 4096;
// Rounds of parts that are added up with all loads in flight.
const uint ROUND = 8;

shared float query[(GROUP + 1) * 256];        // GROUP queries, then the row's own key
shared float found[SUBGROUPS * GROUP * (PADDED + 2)];  // of each subgroup: sums, then the highest score and the weights' sum
shared float result[GROUP * 256];
shared uint finished;

// Eight elements of an entry, from octet o.
void load8(uint64_t entry, uint o, out vec4 a, out vec4 b) {
#ifdef KV_F16
    uvec4 w = Words4(entry).at[o];
    a = vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    b = vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w));
#else
    a = Float4s(entry).at[2 * o];
    b = Float4s(entry).at[2 * o + 1];
#endif
}

// What the ring would give back of two elements.
vec2 through_ring(vec2 x) {
#ifdef KV_F16
    return unpackHalf2x16(packHalf2x16(clamp(x, -65504.0, 65504.0)));
#else
    return x;
#endif
}

// An entry of the ring: no more than `capacity` positions are visible, so at most one turn is passed.
uint wrap(uint entry) { return entry >= capacity ? entry - capacity : entry; }

// The sine and cosine of element j's angle at a position.
vec2 rotation(uint p, uint j) {
    float angle = float(p) * frequencies.at[j];
    // Drivers' sin and cos lose accuracy as the angle grows: take whole turns off first. 2 pi is in three parts, the first
    // two of so few bits that their products are exact, with or without a fused multiply-add.
    float turns = round(angle * 0.15915494);
    angle = ((angle - turns * 6.28125) - turns * 0.001934051513671875) - turns * 1.2556659e-6;
    return vec2(sin(angle), cos(angle));
}

vec2 norm_weight[PAIRS], angle[PAIRS];

// What `prepare` needs beside a head's elements.
void prepare_for(Floats w, uint p) {
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) {
        uint j = gl_SubgroupInvocationID + i * SUBGROUP;
        bool there = j < DIM / 2;
        norm_weight[i] = there ? vec2(w.at[j], w.at[j + DIM / 2]) : vec2(0);
        angle[i] = there ? rotation(p, j) : vec2(0);
    }
}

// rope(norm(x; w)) of one head into query[slot], by one subgroup.
void prepare(Floats x, uint at, uint slot, float factor, bool round_off) {
    vec2 e[PAIRS];
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) {
        uint j = gl_SubgroupInvocationID + i * SUBGROUP;
        e[i] = j < DIM / 2 ? vec2(x.at[at + j], x.at[at + j + DIM / 2]) : vec2(0);
    }
    float sum = 0;
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) sum += dot(e[i], e[i]);
    float norm = inversesqrt(subgroupAdd(sum) / float(DIM) + eps);
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) {
        uint j = gl_SubgroupInvocationID + i * SUBGROUP;
        if (j >= DIM / 2) continue;
        vec2 a = e[i] * norm * (1.0 + norm_weight[i]);
        vec2 y = vec2(a.x * angle[i].y - a.y * angle[i].x, a.y * angle[i].y + a.x * angle[i].x);
        if (round_off) y = through_ring(y);
        query[slot * 256 + j] = y.x * factor;
        query[slot * 256 + j + DIM / 2] = y.y * factor;
    }
}

// Stores two elements of the row's own key or value.
void store2(uint64_t entry, uint i, vec2 x) {
#ifdef KV_F16
    Words(entry).at[i] = packHalf2x16(clamp(x, -65504.0, 65504.0));
#else
    Floats(entry).at[2 * i] = x.x;
    Floats(entry).at[2 * i + 1] = x.y;
#endif
}

float highest[GROUP], total[GROUP];
vec4 acc[GROUP * TURNS * 2];

// Makes room for scores up to `top`: everything so far shrinks.
void raise(uint g, float top) {
    float decay = exp(highest[g] - top);
    total[g] *= decay;
    [[unroll]] for (uint t = 0; t < TURNS * 2; ++t) acc[g * TURNS * 2 + t] *= decay;
    highest[g] = top;
}

void attend_row() {
    uint r = gl_WorkGroupID.y, id = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID;
    if (r >= live_rows(state, STATE_ROWS)) return;
    uint h0 = gl_WorkGroupID.x * GROUP, kv_head = h0 / (heads / kv_heads);
    uint p = state.at[position + r];
    uint first = window == 0 || p + 1 < window ? 0 : p + 1 - window;
    // Keys to be read: with FUSED the row's own is at hand.
    uint count = p - first + 1 - FUSED;
    uint splits = gl_NumWorkGroups.z;
    uint part = max((count + splits - 1) / splits, WORKGROUP);
    part = (part + WORKGROUP - 1) / WORKGROUP * WORKGROUP;
    uint parts = max(1, (count + part - 1) / part), split = gl_WorkGroupID.z;
    if (split >= parts) return;
    bool last_part = split == parts - 1;
    uint begin = split * part, end = min(count, begin + part);

    uint entry_bytes = PADDED * ELEMENT_BYTES;
    uint64_t half_bytes = uint64_t(kv_heads) * capacity * entry_bytes;
    uint64_t keys = uint64_t(ring) + 2 * half_bytes * state.at[sequence + r]
                    + uint64_t(kv_head) * capacity * entry_bytes;
    uint64_t values = keys + half_bytes;

    // What does not hang on the step before is asked for ahead of it: weights of norms, and of the first keys and values a word
    // of each line, so that they are in the cache.
    if (FUSED != 0) prepare_for(gl_SubgroupID < GROUP ? wq : wk, p);
    uint start = first % capacity, ahead = 0;
    if (begin + id < end) {
        uint64_t entry = uint64_t(wrap(start + begin + id)) * entry_bytes;
        [[unroll]] for (uint line = 0; line < (DIM * ELEMENT_BYTES + 127) / 128; ++line) {
            ahead ^= Words(keys + entry).at[line * 32] ^ Words(values + entry).at[line * 32];
        }
    }
    relay_wait(state, turn, before);
    // Never so; else the compiler would leave the words out.
    if (ahead == 0x9e3779b9u && window == 0xffffffffu) state.at[STATE_STALLED] = ahead;

    // The row's own value, as the ring would give it back.
    uint own = r * stride + kv_head * DIM, octet = lane % OCTETS, together = lane / OCTETS;
    vec4 own_value[TURNS * 2];
    if (FUSED != 0) {
        [[unroll]] for (uint i = 0; i < TURNS * 2; ++i) {
            uint e = (octet + i / 2 * SUBGROUP) * 8 + i % 2 * 4;
            vec2 a = e < DIM ? vec2(v.at[own + e], v.at[own + e + 1]) : vec2(0);
            vec2 b = e + 2 < DIM ? vec2(v.at[own + e + 2], v.at[own + e + 3]) : vec2(0);
            own_value[i] = vec4(through_ring(a), through_ring(b));
        }
    }

    // Queries into shared memory, scaled.
    if (FUSED != 0) {
        for (uint j = gl_SubgroupID; j <= GROUP; j += SUBGROUPS) {
            bool is_key = j == GROUP;
            if (j != gl_SubgroupID) prepare_for(is_key ? wk : wq, p);
            if (is_key) prepare(k, r * stride + kv_head * DIM, j, 1.0, true);
            else prepare(q, r * stride + (h0 + j) * DIM, j, scale, false);
        }
        for (uint i = DIM + id; i < PADDED; i += WORKGROUP) {
            [[unroll]] for (uint j = 0; j <= GROUP; ++j) query[j * 256 + i] = 0;
        }
    } else {
        for (uint i = id; i < GROUP * PADDED; i += WORKGROUP) {
            uint j = i / PADDED, e = i % PADDED;
            query[j * 256 + e] = e < DIM ? q.at[r * stride + (h0 + j) * DIM + e] * scale : 0.0;
        }
    }
    barrier();

    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        highest[g] = NEG_INF;
        total[g] = 0;
    }
    [[unroll]] for (uint i = 0; i < GROUP * TURNS * 2; ++i) acc[i] = vec4(0);
    for (uint base = begin + gl_SubgroupID * SUBGROUP; base < end; base += WORKGROUP) {
        // An invocation a key: scores.
        uint mine = min(base + lane, end - 1);
        uint64_t key = keys + uint64_t(wrap(start + mine)) * entry_bytes;
        float score[GROUP];
        [[unroll]] for (uint g = 0; g < GROUP; ++g) score[g] = 0;
        [[unroll]] for (uint o = 0; o < OCTETS; ++o) {
            vec4 a, b;
            load8(key, o, a, b);
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                uint e = g * 256 + o * 8;
                score[g] += dot(a, vec4(query[e], query[e + 1], query[e + 2], query[e + 3]))
                            + dot(b, vec4(query[e + 4], query[e + 5], query[e + 6], query[e + 7]));
            }
        }
        float weight[GROUP];
        [[unroll]] for (uint g = 0; g < GROUP; ++g) {
            if (base + lane >= end) score[g] = NEG_INF;
            raise(g, max(highest[g], subgroupMax(score[g])));
            weight[g] = exp(score[g] - highest[g]);
            total[g] += subgroupAdd(weight[g]);
        }
        // An invocation an octet of some keys: values.
        [[unroll]] for (uint j = 0; j < SUBGROUP; j += TOGETHER) {
            uint other = j + together;
            bool there = together < TOGETHER && other < SUBGROUP && base + other < end;
            uint64_t value = values + uint64_t(wrap(start + min(base + other, end - 1))) * entry_bytes;
            float w[GROUP];
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                w[g] = subgroupShuffle(weight[g], min(other, SUBGROUP - 1));
                if (!there) w[g] = 0;
            }
            [[unroll]] for (uint t = 0; t < TURNS; ++t) {
                uint o = octet + t * SUBGROUP;
                if (TURNS > 1 && o >= OCTETS) continue;
                vec4 a, b;
                load8(value, o, a, b);
                [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                    acc[(g * TURNS + t) * 2] += w[g] * a;
                    acc[(g * TURNS + t) * 2 + 1] += w[g] * b;
                }
            }
        }
    }

    // The row's own key and value.
    if (FUSED != 0 && last_part) {
        if (gl_SubgroupID == 0) {
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                float score = 0;
                for (uint e = lane; e < DIM; e += SUBGROUP) score += query[g * 256 + e] * query[GROUP * 256 + e];
                score = subgroupAdd(score);
                raise(g, max(highest[g], score));
                float weight = exp(score - highest[g]);
                total[g] += weight;
                if (together != 0) continue;
                [[unroll]] for (uint t = 0; t < TURNS * 2; ++t) acc[g * TURNS * 2 + t] += weight * own_value[t];
            }
        }
        if (h0 % (heads / kv_heads) == 0) {
            uint64_t entry = uint64_t(p % capacity) * entry_bytes;
            for (uint i = id; i < PADDED / 2; i += WORKGROUP) {
                store2(keys + entry, i, vec2(query[GROUP * 256 + 2 * i], query[GROUP * 256 + 2 * i + 1]));
                bool there = 2 * i < DIM;
                store2(values + entry, i, there ? vec2(v.at[own + 2 * i], v.at[own + 2 * i + 1]) : vec2(0));
            }
        }
    }

    // Subgroups into one: sums over the keys taken together, then over subgroups.
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        uint to = (gl_SubgroupID * GROUP + g) * (PADDED + 2);
        [[unroll]] for (uint t = 0; t < TURNS; ++t) {
            [[unroll]] for (uint i = 0; i < 2; ++i) {
                vec4 mine = acc[(g * TURNS + t) * 2 + i], sum = mine;
                [[unroll]] for (uint n = 1; n < TOGETHER; ++n) {
                    sum += subgroupShuffle(mine, min(lane + n * OCTETS, SUBGROUP - 1));
                }
                uint o = octet + t * SUBGROUP;
                if (together == 0 && o < OCTETS) {
                    [[unroll]] for (uint e = 0; e < 4; ++e) found[to + o * 8 + i * 4 + e] = sum[e];
                }
            }
        }
        if (lane == 0) {
            found[to + PADDED] = highest[g];
            found[to + PADDED + 1] = total[g];
        }
    }
    barrier();
    uint64_t counters = scratch + 4 * (uint64_t(r) * (heads / GROUP) + gl_WorkGroupID.x);
    uint64_t all_parts = scratch + COUNTER_BYTES + 4 * uint64_t(r * heads + h0) * splits * (DIM + 2);
    for (uint i = id; i < GROUP * DIM; i += WORKGROUP) {
        uint g = i / DIM, e = i % DIM;
        float top = NEG_INF, sum = 0, weights = 0;
        [[unroll]] for (uint n = 0; n < SUBGROUPS; ++n) top = max(top, found[(n * GROUP + g) * (PADDED + 2) + PADDED]);
        [[unroll]] for (uint n = 0; n < SUBGROUPS; ++n) {
            uint from = (n * GROUP + g) * (PADDED + 2);
            float share = exp(found[from + PADDED] - top);
            sum += share * found[from + e];
            weights += share * found[from + PADDED + 1];
        }
        result[g * 256 + e] = sum / weights;
        if (parts > 1) {
            Shared to = Shared(all_parts + 4 * uint64_t((g * splits + split) * (DIM + 2)));
            to.at[e] = sum;
            if (e == 0) {
                to.at[DIM] = top;
                to.at[DIM + 1] = weights;
            }
        }
    }

    // Parts into one, by the workgroup that comes last.
    if (parts > 1) {
        memoryBarrierBuffer();
        barrier();
        if (id == 0) finished = atomicAdd(Counters(counters).at[0], 1);
        barrier();
        if (finished != parts - 1) return;
        memoryBarrierBuffer();
        for (uint i = id; i < GROUP * DIM; i += WORKGROUP) {
            uint g = i / DIM, e = i % DIM;
            float top = NEG_INF, sum = 0, weights = 0;
            for (uint s0 = 0; s0 < parts; s0 += ROUND) {
                float tops[ROUND], sums[ROUND], shares[ROUND];
                [[unroll]] for (uint s = 0; s < ROUND; ++s) {
                    Shared from = Shared(all_parts + 4 * uint64_t((g * splits + min(s0 + s, parts - 1)) * (DIM + 2)));
                    tops[s] = s0 + s < parts ? from.at[DIM] : NEG_INF;
                    sums[s] = from.at[e];
                    shares[s] = from.at[DIM + 1];
                }
                float higher = top;
                [[unroll]] for (uint s = 0; s < ROUND; ++s) higher = max(higher, tops[s]);
                float decay = exp(top - higher);
                sum *= decay;
                weights *= decay;
                [[unroll]] for (uint s = 0; s < ROUND; ++s) {
                    float share = exp(tops[s] - higher);
                    sum += share * sums[s];
                    weights += share * shares[s];
                }
                top = higher;
            }
            result[g * 256 + e] = sum / weights;
        }
        if (id == 0) Counters(counters).at[0] = 0;
    }
    barrier();

    uint64_t row = y_out + uint64_t(r) * out_stride * (FORM == FORM_F32 ? 4 : 1);
    if (FORM == FORM_F32) {
        for (uint i = id; i < GROUP * DIM; i += WORKGROUP) {
            Floats(row).at[h0 * DIM + i] = result[i / DIM * 256 + i % DIM];
        }
        return;
    }
    uint padded = (heads * DIM + 31) / 32 * 32;
    for (uint i = id; i < GROUP * DIM / 16; i += WORKGROUP) {
        uint at = i * 16 / DIM * 256 + i * 16 % DIM;
        vec4 part16[4];
        [[unroll]] for (uint e = 0; e < 16; ++e) part16[e / 4][e % 4] = result[at + e];
        // Values lie within f16's range, since the ring's do: no scale is needed.
        if (FORM == FORM_PLANES) write_planes(row, padded, h0 * DIM / 16 + i, part16);
        else write_half(row, h0 * DIM / 16 + i, part16, 1.0);
    }
    if (FORM == FORM_HALF && gl_WorkGroupID.x == 0 && id == 0) {
        ScaleOut(row + 2 * padded).at[0] = 1.0;
        vec4 zeros[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));
        if (heads * DIM < padded) write_half(row, padded / 16 - 1, zeros, 1.0);
    }
}

void main() {
    attend_row();
    relay_pass(state, turn);
}
