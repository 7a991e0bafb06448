// attend: out[r][h] = softmax(q[r][h] . K * scale) V over the visible positions of sequence[r], for few rows (flash decoding).
// q f32 [rows, heads * DIM]; keys and values f16, bf16 or f32, in pages (kv.glsl); visible are
// max(0, p - window + 1) ..= p; query head h reads KV head h / (heads / kv_heads). out [rows, heads * DIM] in F32, or in
// Int16Block or F16Row (activation_layout.glsl) where DIM is a multiple of 16. DIM is even and at most 512; GROUP divides
// heads / kv_heads.
// With BEHIND it takes only the rows behind the pass's chunk: beside it attend_matrix.comp takes the chunk.
// With FUSED it also does what head_prepare.comp does: q = rope(norm(q; wq)), k = rope(norm(k; wk)), and k and v into the
// row's page. A workgroup makes the keys of the pass that its row sees by itself, so that they never pass through memory:
// with 1, for rows that are each of a sequence of their own, the row's own key; with n > 1, for up to n rows at consecutive
// positions of one sequence, those of the rows before it too. With NORM_V each of these values passes an RMS norm over its head,
// without weights, as in head_prepare.comp.
// With AHEAD it prepares queries alone, for the position behind the row's: a drafter's, whose row makes no key.
// A workgroup takes GROUP query heads of one KV head, for one part of the row's keys; the grid's z counts the parts. Of n
// subgroups each takes every n-th tile of keys, by an online softmax. The workgroup that finishes a row's heads last adds up
// the parts.
// LANES invocations read a key or a value together, eight elements each. All of a tile's keys and values are asked for before
// any is used, with FUSED before the dispatch waits for the step before it: for up to some thousand keys a row its time is
// latency, not bytes.
// Few waves: 7 with keys in f32 and several rows of one sequence, since a tile's addresses are at hand a tile ahead.
// Bytes per row: keys * kv_heads * 2 * DIM * (2 or 4) for each GROUP of query heads; operations: 4 * keys * heads * DIM.
#define RELAY_COHERENT
#include "common.glsl"
#include "kv.glsl"
#include "relay.glsl"
#include "activation_layout.glsl"
#include "rope.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require
layout(constant_id = 1) const uint DIM = 128;
layout(constant_id = 2) const uint GROUP = 2;
layout(constant_id = 3) const uint FUSED = 0;     // most keys of the pass that a row sees; 0: all come from pages
layout(constant_id = 4) const uint FORM = 0;
layout(constant_id = 5) const uint SUBGROUP = 32;  // invocations of a subgroup
layout(constant_id = 6) const uint BEHIND = 0;     // 1: rows begin behind the chunk
layout(constant_id = 7) const uint NORM_V = 0;     // 1: values of the pass are normed
layout(constant_id = 9) const uint AHEAD = 0;      // 1: queries are prepared, for the position behind the row's

layout(push_constant) uniform Push {
    Words state;
    Floats q;
    Floats k;
    Floats v;
    Floats wq;
    Floats wk;
    Floats frequencies;
    PageTables table;  // u64 [sequence][entries]
    uint64_t y_out;
    uint64_t scratch;  // for each of the grid's rows: counters u32 [heads / GROUP], then parts f32 [heads][parts][DIM padded to 8, 4]
    uint position;     // word index of position[0]
    uint sequence;     // word index of sequence[0]
    uint heads;
    uint kv_heads;
    uint stride;       // of q, k and v: elements
    uint out_stride;   // F32: elements; other layouts: bytes
    uint paging;       // kv.glsl
    uint window;       // 0: all
    float scale;
    float eps;
    uint turn;         // relay.glsl
    uint before;
};

layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer Parts { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Counters { uint at[]; };

// Keys that an invocation has parts of in a tile: with more, registers leave no room for the workgroup beside those of the
// dispatch before. The host knows it too (src/lower/attend.rs).
const uint LOADS = DIM > 256 ? 2 : 4;
// Turns of a workgroup over its keys up to which one part has them all: adding parts up takes longer.
#define ALONE 2

// Eight elements of a key or a value, as they lie in a page.
#ifdef KV_F16
#define ELEMENT_BYTES 2
struct Octet { uvec4 all; };
Octet load8(uint64_t entry, uint o) { return Octet(Words4(entry).at[o]); }
void widen8(Octet x, out vec4 a, out vec4 b) {
    a = vec4(unpackHalf2x16(x.all.x), unpackHalf2x16(x.all.y));
    b = vec4(unpackHalf2x16(x.all.z), unpackHalf2x16(x.all.w));
}
void store8(uint64_t entry, uint o, vec4 a, vec4 b) {
    PackedOut(entry).at[o] = uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}
// What a page gives back of an element.
vec2 through_page(vec2 x) { return unpackHalf2x16(packHalf2x16(clamp(x, -65504.0, 65504.0))); }
#elif defined(KV_BF16)
#include "bf16.glsl"
#define ELEMENT_BYTES 2
struct Octet { uvec4 all; };
Octet load8(uint64_t entry, uint o) { return Octet(Words4(entry).at[o]); }
void widen8(Octet x, out vec4 a, out vec4 b) {
    a = vec4(unpack_bf16(x.all.x), unpack_bf16(x.all.y));
    b = vec4(unpack_bf16(x.all.z), unpack_bf16(x.all.w));
}
void store8(uint64_t entry, uint o, vec4 a, vec4 b) {
    PackedOut(entry).at[o] = uvec4(pack_bf16(a.xy), pack_bf16(a.zw), pack_bf16(b.xy), pack_bf16(b.zw));
}
vec2 through_page(vec2 x) { return unpack_bf16(pack_bf16(x)); }
#else
#define ELEMENT_BYTES 4
struct Octet { uvec4 low, high; };
Octet load8(uint64_t entry, uint o) { return Octet(Words4(entry).at[2 * o], Words4(entry).at[2 * o + 1]); }
void widen8(Octet x, out vec4 a, out vec4 b) {
    a = uintBitsToFloat(x.low);
    b = uintBitsToFloat(x.high);
}
void store8(uint64_t entry, uint o, vec4 a, vec4 b) {
    PackedOut(entry).at[2 * o] = floatBitsToUint(a);
    PackedOut(entry).at[2 * o + 1] = floatBitsToUint(b);
}
vec2 through_page(vec2 x) { return x; }
#endif

const uint PADDED = (DIM + 7) / 8 * 8;
const uint OCTETS = PADDED / 8;
const uint SUBGROUPS = WORKGROUP / SUBGROUP;
// Invocations that share a key: a power of two. Each takes TURNS octets of it; some lie past the end.
const uint ENOUGH = OCTETS > 16 ? 32 : OCTETS > 8 ? 16 : OCTETS > 4 ? 8 : OCTETS > 2 ? 4 : OCTETS > 1 ? 2 : 1;
const uint LANES = ENOUGH < SUBGROUP ? ENOUGH : SUBGROUP;
const uint TURNS = (OCTETS + LANES - 1) / LANES;
const uint WIDTH = LANES * TURNS * 8;
// Keys of one load, keys of a subgroup's tile, keys of all subgroups' tiles.
const uint TOGETHER = SUBGROUP / LANES;
const uint TILE = LOADS * TOGETHER;
const uint BLOCK = SUBGROUPS * TILE;
// Scores of a tile that an invocation ends up with, and invocations that end up with the same.
const uint SCORES = LANES < LOADS ? LOADS / LANES : 1;
const uint SHARE = LANES < LOADS ? 1 : LANES / LOADS;
// Pairs of elements that RoPE turns, for each invocation of a subgroup.
const uint PAIRS = (DIM / 2 + SUBGROUP - 1) / SUBGROUP;
// Quads of a head's sums, and with the highest score and the weights' sum behind them.
const uint QUADS = PADDED / 4;
const uint FOUND = QUADS + 1;
// Bytes that the counters take at the start of the scratch (src/schedule/layout.rs).
const uint COUNTER_BYTES = 4096;
// Parts that are added up with all loads in flight.
const uint ROUND = 8;
const float LOG2_E = 1.44269504;

// GROUP queries, then keys of the pass; of each the first elements of all octets, then the second and so on, so that
// neighbouring invocations read neighbouring words.
const uint VECTORS = GROUP + (FUSED > 1 ? FUSED : 1);
const bool PREPARES = FUSED + AHEAD != 0;
shared float query[VECTORS * WIDTH];
uint place(uint slot, uint e) { return slot * WIDTH + e % 8 * (WIDTH / 8) + e / 8; }

shared vec4 found[SUBGROUPS * GROUP * FOUND];
shared uint finished;

// The sum over invocations that differ in the bits of their number from `from` up to `to`. On an H200 two subgroupAdd
// in its place in `leave` took 450 cycles more.
float add_across(float x, uint from, uint to) {
    [[unroll]] for (uint apart = from; apart < to; apart *= 2) x += subgroupShuffleXor(x, apart);
    return x;
}

vec2 norm_weight[PAIRS], angle[PAIRS];

// What `prepare` needs beside a head's elements: weights, and frequencies, which `turn_to` makes angles of.
void prepare_for(Floats w) {
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) {
        uint j = min(gl_SubgroupInvocationID + i * SUBGROUP, DIM / 2 - 1);
        norm_weight[i] = vec2(w.at[j], w.at[j + DIM / 2]);
        angle[i] = vec2(frequencies.at[j]);
    }
}

void turn_to(uint p) {
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) angle[i] = rotation(p, angle[i].x);
}

// rope(norm(x; w)) of one head into query[slot], by one subgroup.
void prepare(Floats x, uint at, uint slot, float factor, bool round_off) {
    vec2 e[PAIRS];
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) {
        uint j = gl_SubgroupInvocationID + i * SUBGROUP, there = min(j, DIM / 2 - 1);
        e[i] = mix(vec2(0), vec2(x.at[at + there], x.at[at + there + DIM / 2]), bvec2(j < DIM / 2));
    }
    float sum = 0;
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) sum += dot(e[i], e[i]);
    float norm = inversesqrt(add_across(sum, 1, SUBGROUP) / float(DIM) + eps);
    [[unroll]] for (uint i = 0; i < PAIRS; ++i) {
        uint j = gl_SubgroupInvocationID + i * SUBGROUP;
        if (j >= DIM / 2) continue;
        vec2 a = e[i] * norm * (1.0 + norm_weight[i]);
        vec2 y = vec2(a.x * angle[i].y - a.y * angle[i].x, a.y * angle[i].y + a.x * angle[i].x);
        if (round_off) y = through_page(y);
        query[place(slot, j)] = y.x * factor;
        query[place(slot, j + DIM / 2)] = y.y * factor;
    }
}

// The keys that this workgroup reads: of positions first + i, i < end. `in_page`: bytes from a page's start to the layer's
// keys of the head; its values lie half_bytes behind them.
uint of_sequence, first, end, in_page, half_bytes;
const uint ENTRY_BYTES = PADDED * ELEMENT_BYTES;

// Where the key of a position lies.
uint64_t key_at(uint p) {
    return table.at[entry_of(paging, of_sequence, p)] + in_page + p % PAGE * ENTRY_BYTES;
}

// This invocation among those that share a key, and which of the keys of one load that is.
uint octet, together;

Octet key[LOADS * TURNS], value[LOADS * TURNS];
vec4 q8[GROUP * TURNS * 2], acc[GROUP * TURNS * 2];
float highest[GROUP], total[GROUP];

// Where the keys lie of the tile that was found last.
uint64_t entry[LOADS];

// Asks the page table for a tile's keys: a tile ahead, so that their loads need not wait for it.
void find(uint base) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) entry[i] = key_at(first + min(base + i * TOGETHER + together, end - 1));
}

// Of the tile that was found last.
void load_keys() {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        [[unroll]] for (uint t = 0; t < TURNS; ++t) key[i * TURNS + t] = load8(entry[i], min(octet + t * LANES, OCTETS - 1));
    }
}

// Of the tile that was found last.
void load_values() {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        uint64_t from = entry[i] + half_bytes;
        [[unroll]] for (uint t = 0; t < TURNS; ++t) value[i * TURNS + t] = load8(from, min(octet + t * LANES, OCTETS - 1));
    }
}

// This invocation's octets of a vector in shared memory.
void take(uint slot, uint t, out vec4 a, out vec4 b) {
    uint o = slot * WIDTH + octet + t * LANES;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        a[i] = query[o + i * (WIDTH / 8)];
        b[i] = query[o + (i + 4) * (WIDTH / 8)];
    }
}

float part[GROUP * LOADS], weight[GROUP * SCORES];

// Halves the scores that each invocation has parts of, `count` from now on, between those `apart` and itself. Selected by
// mix: of ?: the compiler makes branches, with which a tile's scores took 8400 cycles on an H200 instead of 1600.
void halve(uint g, uint apart, uint count) {
    if (apart == 0) return;
    bool upper = (octet & apart) != 0;
    [[unroll]] for (uint j = 0; j < LOADS / 2; ++j) {
        if (j >= count) continue;
        float a = part[g * LOADS + j], b = part[g * LOADS + j + count];
        part[g * LOADS + j] = mix(a, b, upper) + subgroupShuffleXor(mix(b, a, upper), apart);
    }
    if (count == 0) part[g * LOADS] += subgroupShuffleXor(part[g * LOADS], apart);
}

// Adds up what the invocations that share a key have of each of the tile's scores, until each has SCORES of its own, from
// that of load octet / SHARE * SCORES on.
void gather(uint g) {
    halve(g, LANES / 2, LOADS / 2);
    halve(g, LANES / 4, LOADS / 4);
    halve(g, LANES / 8, 0);
    halve(g, LANES / 16, 0);
    halve(g, LANES / 32, 0);
}

// Makes room for scores up to `top`: everything so far shrinks.
void raise(uint g, float top) {
    float decay = exp2(highest[g] - top);
    total[g] *= decay;
    [[unroll]] for (uint t = 0; t < TURNS * 2; ++t) acc[g * TURNS * 2 + t] *= decay;
    highest[g] = top;
}

// The weights of the tile whose keys are loaded.
void score(uint base) {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        [[unroll]] for (uint g = 0; g < GROUP; ++g) part[g * LOADS + i] = 0;
        [[unroll]] for (uint t = 0; t < TURNS; ++t) {
            vec4 a, b;
            widen8(key[i * TURNS + t], a, b);
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                part[g * LOADS + i] += dot(a, q8[(g * TURNS + t) * 2]) + dot(b, q8[(g * TURNS + t) * 2 + 1]);
            }
        }
    }
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        gather(g);
        float top = NEG_INF;
        [[unroll]] for (uint j = 0; j < SCORES; ++j) {
            uint at = base + (octet / SHARE * SCORES + j) * TOGETHER + together;
            part[g * LOADS + j] = mix(part[g * LOADS + j], NEG_INF, at >= end);
            top = max(top, part[g * LOADS + j]);
        }
        [[unroll]] for (uint apart = SHARE; apart < SUBGROUP; apart *= 2) top = max(top, subgroupShuffleXor(top, apart));
        raise(g, max(highest[g], top));
        [[unroll]] for (uint j = 0; j < SCORES; ++j) {
            weight[g * SCORES + j] = exp2(part[g * LOADS + j] - highest[g]);
            total[g] += weight[g * SCORES + j];
        }
    }
}

// Adds the tile's values by their weights.
void add_values() {
    [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        float w[GROUP];
        [[unroll]] for (uint g = 0; g < GROUP; ++g) {
            w[g] = subgroupShuffle(weight[g * SCORES + i % SCORES], together * LANES + i / SCORES * SHARE);
        }
        [[unroll]] for (uint t = 0; t < TURNS; ++t) {
            vec4 a, b;
            widen8(value[i * TURNS + t], a, b);
            [[unroll]] for (uint g = 0; g < GROUP; ++g) {
                acc[(g * TURNS + t) * 2] += w[g] * a;
                acc[(g * TURNS + t) * 2 + 1] += w[g] * b;
            }
        }
    }
}

// A value of the pass, as a page would give it back: that of row r.
vec4 own_value[TURNS * 2];

void load_own_value(uint r, uint kv_head) {
    uint own = r * stride + kv_head * DIM;
    float sum = 0;
    [[unroll]] for (uint i = 0; i < TURNS * 2; ++i) {
        uint e = (octet + i / 2 * LANES) * 8 + i % 2 * 4;
        uint a = own + min(e, DIM - 2), b = own + min(e + 2, DIM - 2);
        vec2 low = mix(vec2(0), vec2(v.at[a], v.at[a + 1]), bvec2(e < DIM));
        vec2 high = mix(vec2(0), vec2(v.at[b], v.at[b + 1]), bvec2(e + 2 < DIM));
        own_value[i] = vec4(low, high);
        sum += dot(own_value[i], own_value[i]);
    }
    float norm = NORM_V != 0 ? inversesqrt(add_across(sum, 1, LANES) / float(DIM) + eps) : 1.0;
    [[unroll]] for (uint i = 0; i < TURNS * 2; ++i) {
        vec4 x = own_value[i] * norm;
        own_value[i] = vec4(through_page(x.xy), through_page(x.zw));
    }
}

// The scores of a key of the pass, which is in shared memory; with `write`, it and its value also go to `own`, in the row's page.
void score_own(uint key_slot, bool write, uint64_t own, out float scores[GROUP]) {
    [[unroll]] for (uint g = 0; g < GROUP; ++g) scores[g] = 0;
    [[unroll]] for (uint t = 0; t < TURNS; ++t) {
        vec4 a, b;
        take(key_slot, t, a, b);
        [[unroll]] for (uint g = 0; g < GROUP; ++g) {
            scores[g] += dot(a, q8[(g * TURNS + t) * 2]) + dot(b, q8[(g * TURNS + t) * 2 + 1]);
        }
        uint o = octet + t * LANES;
        if (write && together == 0 && o < OCTETS) {
            store8(own, o, a, b);
            store8(own + half_bytes, o, own_value[2 * t], own_value[2 * t + 1]);
        }
    }
    [[unroll]] for (uint g = 0; g < GROUP; ++g) scores[g] = add_across(scores[g], 1, LANES);
}

// Begins with the row's own key and value.
void begin_with_own(bool write, uint64_t entry) {
    float scores[GROUP];
    score_own(GROUP, write, entry, scores);
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        highest[g] = scores[g];
        // Sums of weights count each SHARE times.
        total[g] = gl_SubgroupInvocationID == 0 ? float(SHARE) : 0.0;
        [[unroll]] for (uint t = 0; t < TURNS * 2; ++t) {
            acc[g * TURNS * 2 + t] = mix(vec4(0), own_value[t], bvec4(together == 0));
        }
    }
}

// Adds one of several keys of the pass, with its value.
void add_own(uint key_slot, bool write, uint64_t entry) {
    float scores[GROUP];
    score_own(key_slot, write, entry, scores);
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        raise(g, max(highest[g], scores[g]));
        float w = exp2(scores[g] - highest[g]);
        total[g] += gl_SubgroupInvocationID == 0 ? w * float(SHARE) : 0.0;
        [[unroll]] for (uint t = 0; t < TURNS * 2; ++t) {
            acc[g * TURNS * 2 + t] += mix(vec4(0), w * own_value[t], bvec4(together == 0));
        }
    }
}

// What a subgroup found, into shared memory.
void leave() {
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        uint to = (gl_SubgroupID * GROUP + g) * FOUND;
        [[unroll]] for (uint t = 0; t < TURNS * 2; ++t) {
            vec4 sum;
            [[unroll]] for (uint c = 0; c < 4; ++c) sum[c] = add_across(acc[g * TURNS * 2 + t][c], LANES, SUBGROUP);
            uint o = octet + t / 2 * LANES;
            if (together == 0 && o < OCTETS) found[to + o * 2 + t % 2] = sum;
        }
        float weights = add_across(total[g], 1, SUBGROUP) * (1.0 / float(SHARE));
        if (gl_SubgroupInvocationID == 0) found[to + QUADS] = vec4(highest[g], weights, 0, 0);
    }
}

// The subgroups' sums of quad e of head g, in proportion to `top`, the highest score.
vec4 merge(uint g, uint e, out float top, out float weights) {
    top = NEG_INF;
    [[unroll]] for (uint n = 0; n < SUBGROUPS; ++n) top = max(top, found[(n * GROUP + g) * FOUND + QUADS].x);
    vec4 sum = vec4(0);
    weights = 0;
    [[unroll]] for (uint n = 0; n < SUBGROUPS; ++n) {
        uint from = (n * GROUP + g) * FOUND;
        float share = exp2(found[from + QUADS].x - top);
        sum += share * found[from + e];
        weights += share * found[from + QUADS].y;
    }
    return sum;
}

// As above, of parts of the keys.
vec4 merge_parts(uint64_t from, uint parts, uint e, out float weights) {
    float top = NEG_INF;
    vec4 sum = vec4(0);
    weights = 0;
    for (uint s0 = 0; s0 < parts; s0 += ROUND) {
        vec4 ends[ROUND], sums[ROUND];
        [[unroll]] for (uint s = 0; s < ROUND; ++s) {
            uint at = min(s0 + s, parts - 1) * FOUND;
            ends[s] = Parts(from).at[at + QUADS];
            sums[s] = Parts(from).at[at + e];
        }
        float higher = top;
        [[unroll]] for (uint s = 0; s < ROUND; ++s) higher = max(higher, ends[s].x);
        float decay = exp2(top - higher);
        sum *= decay;
        weights *= decay;
        [[unroll]] for (uint s = 0; s < ROUND; ++s) {
            float share = exp2(mix(ends[s].x, NEG_INF, s0 + s >= parts) - higher);
            sum += share * sums[s];
            weights += share * ends[s].y;
        }
        top = higher;
    }
    return sum;
}

// Stores quad i of this workgroup's heads.
void put(uint r, uint i, vec4 v) {
    uint h0 = gl_WorkGroupID.x * GROUP;
    uint64_t row = y_out + uint64_t(r) * out_stride * (FORM == FORM_F32 ? 4 : 1);
    if (FORM == FORM_F32) {
        uint e = i % QUADS * 4, to = (h0 + i / QUADS) * DIM + e;
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            if (e + c < DIM) Floats(row).at[to + c] = v[c];
        }
        return;
    }
    uint padded = (heads * DIM + 31) / 32 * 32;
    // Values lie within f16's range, since a page's do: no scale is needed.
    if (IS_BLOCKS(FORM)) write_planes4(FORM, row, padded, h0 * QUADS + i, v);
    else write_half4(row, padded, h0 * QUADS + i, v, 1.0);
    if (FORM == FORM_F16_ROW && gl_WorkGroupID.x == 0 && i == 0) {
        ScaleOut(row + 2 * padded).at[0] = 1.0;
        for (uint at = heads * QUADS; at < padded / 4; ++at) write_half4(row, padded, at, vec4(0), 1.0);
    }
}

// The position of vector j in shared memory: a query of the row at p, or one of `owns` keys up to the row's own.
uint position_of(uint j, uint p, uint owns) { return FUSED <= 1 || j < GROUP ? p + AHEAD : p + 1 - owns + (j - GROUP); }

void attend_row() {
    uint r = gl_WorkGroupID.y, id = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID;
    if (BEHIND != 0) r += state.at[STATE_CHUNK];
    if (r >= live_rows(state, STATE_ROWS)) return;
    // What does not hang on the step before is asked for ahead of it.
    bool prepares = FUSED <= 1 && gl_SubgroupID < GROUP * (FUSED + AHEAD) + FUSED;
    if (prepares) prepare_for(gl_SubgroupID < GROUP ? wq : wk);
    uint h0 = gl_WorkGroupID.x * GROUP, kv_head = h0 / (heads / kv_heads);
    uint p = state.at[position + r], slot = state.at[sequence + r];
    first = window == 0 || p + 1 < window ? 0 : p + 1 - window;
    // Rows of the pass whose keys this row sees and the workgroup makes: `owns` of them, the last is the row itself.
    uint owns = FUSED, own_from = r;
    if (FUSED > 1) {
        owns = min(r, p - first) + 1;
        own_from = r + 1 - owns;
        prepares = gl_SubgroupID < GROUP + owns;
        if (prepares) prepare_for(gl_SubgroupID < GROUP ? wq : wk);
    }
    // Keys to be read: the others are at hand.
    uint count = p - first + 1 - owns;
    // Few keys are not worth adding parts up for.
    uint splits = gl_NumWorkGroups.z, part = ALONE * BLOCK;
    if (count > part) part = ((count + splits - 1) / splits + BLOCK - 1) / BLOCK * BLOCK;
    uint parts = max(1, (count + part - 1) / part), split = gl_WorkGroupID.z;
    if (split >= parts) return;
    bool last_part = split == parts - 1;
    end = min(count, split * part + part);
    octet = lane % LANES;
    together = lane / LANES;
    half_bytes = kv_heads * PAGE * ENTRY_BYTES;
    in_page = 2 * half_bytes * layer_place(paging) + kv_head * PAGE * ENTRY_BYTES;
    of_sequence = slot;
    // From gl_SubgroupID itself: with the subgroups in another order a token took 4 to 6 % longer on an H200, probably because
    // the compiler no longer saw that a subgroup branches as one.
    uint base = split * part + gl_SubgroupID * TILE;
    if (base < end) find(base);
    uint64_t own_at = FUSED != 0 ? key_at(p) : 0;
    if (PREPARES && base < end) {
        load_keys();
        load_values();
        find(base + BLOCK);
    }
    if (prepares) turn_to(position_of(gl_SubgroupID, p, owns));
    relay_wait(state, turn, before);
    if (!PREPARES && base < end) {
        load_keys();
        load_values();
        find(base + BLOCK);
    }

    // By the subgroup that has the fewest keys.
    bool has_own = FUSED == 1 && last_part && gl_SubgroupID == SUBGROUPS - 1;
    if (has_own) load_own_value(r, kv_head);

    // Queries into shared memory, scaled so that weights are powers of two.
    if (PREPARES) {
        for (uint j = gl_SubgroupID; j < GROUP + owns; j += SUBGROUPS) {
            bool is_key = j >= GROUP;
            if (j != gl_SubgroupID) {
                prepare_for(is_key ? wk : wq);
                turn_to(position_of(j, p, owns));
            }
            uint key_row = FUSED > 1 ? own_from + j - GROUP : r;
            if (is_key) prepare(k, key_row * stride + kv_head * DIM, j, 1.0, true);
            else prepare(q, r * stride + (h0 + j) * DIM, j, scale * LOG2_E, false);
        }
        for (uint i = DIM + id; i < WIDTH; i += WORKGROUP) {
            [[unroll]] for (uint j = 0; j < VECTORS; ++j) query[place(j, i)] = 0;
        }
    } else {
        for (uint i = id; i < GROUP * WIDTH; i += WORKGROUP) {
            uint j = i / WIDTH, e = i % WIDTH;
            query[place(j, e)] = e < DIM ? q.at[r * stride + (h0 + j) * DIM + e] * scale * LOG2_E : 0.0;
        }
    }
    barrier();

    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
        [[unroll]] for (uint t = 0; t < TURNS; ++t) take(g, t, q8[(g * TURNS + t) * 2], q8[(g * TURNS + t) * 2 + 1]);
        highest[g] = NEG_INF;
        total[g] = 0;
    }
    [[unroll]] for (uint i = 0; i < GROUP * TURNS * 2; ++i) acc[i] = vec4(0);
    bool writes = h0 % (heads / kv_heads) == 0;
    if (has_own) begin_with_own(writes, own_at);
    if (FUSED > 1 && last_part) {
        for (uint i = SUBGROUPS - 1 - gl_SubgroupID; i < owns; i += SUBGROUPS) {
            load_own_value(own_from + i, kv_head);
            add_own(GROUP + i, writes && i == owns - 1, own_at);
        }
    }
    while (base < end) {
        uint next = base + BLOCK;
        score(base);
        if (next < end) load_keys();
        add_values();
        if (next < end) {
            load_values();
            find(next + BLOCK);
        }
        base = next;
    }
    leave();
    barrier();

    uint64_t all_parts = scratch + COUNTER_BYTES + 16 * uint64_t((gl_WorkGroupID.y * heads + h0) * splits) * FOUND;
    for (uint i = id; i < GROUP * QUADS; i += WORKGROUP) {
        uint g = i / QUADS, e = i % QUADS;
        float top, weights;
        vec4 sum = merge(g, e, top, weights);
        if (parts == 1) {
            put(r, i, sum / weights);
        } else {
            Parts to = Parts(all_parts + 16 * uint64_t((g * splits + split) * FOUND));
            to.at[e] = sum;
            if (e == 0) to.at[QUADS] = vec4(top, weights, 0, 0);
        }
    }
    if (parts == 1) return;

    // Parts into one, by the workgroup that comes last.
    Counters counter = Counters(scratch + 4 * (uint64_t(gl_WorkGroupID.y) * (heads / GROUP) + gl_WorkGroupID.x));
    relay_barrier();
    if (id == 0) {
        relay_release();
        finished = atomicAdd(counter.at[0], 1);
        relay_acquire();
    }
    relay_barrier();
    if (finished != parts - 1) return;
    if (id == 0) counter.at[0] = 0;
    for (uint i = id; i < GROUP * QUADS; i += WORKGROUP) {
        float weights;
        vec4 sum = merge_parts(all_parts + 16 * uint64_t(i / QUADS * splits) * FOUND, parts, i % QUADS, weights);
        put(r, i, sum / weights);
    }
}

void main() {
    attend_row();
    relay_pass(state, turn);
}
