// attend_matrix: out[r][h] = softmax(q[r][h] . K * scale) V by matrix units, for the pass's chunk: its first rows, at
// consecutive positions of one sequence. Row r is at position[0] + r. Flash attention: an online softmax over tiles of KT keys.
// q [rows, heads * DIM] f32; keys and values f16 or bf16, in pages (kv.glsl); visible are max(0, p - window + 1) ..= p.
// out in F16Row (activation_layout.glsl): per row f16[P], P = heads * DIM padded to 32 with zeros, then the f32 scale 1 at
// byte 2P, rows out_stride bytes apart. DIM is a multiple of SLICES times the matrix units' shape and at most 512.
// A workgroup takes QT queries: `group` heads of one KV head for QT / group rows; a subgroup M of them. A subgroup's scores
// pass through its own part of shared memory, because only there can rows be reduced; weights return over them as f16.
// Of heads wider than 256 a subgroup's registers hold no M queries and their sums: SLICES subgroups share M queries. Each takes
// a slice of the columns, of queries and keys for its share of every score, and of values. Each adds up the shares of some rows.
// Keys and values are a tile ahead in registers. Queries are in registers too, or in shared memory where the sums fill those.
// Where few workgroups have the queries of a pass, the grid's z divides the keys among them: each leaves its sums, and the last
// to finish adds them.
// Shared memory: max(T KT (DIM + 8) 2 + SLICES QT (KT + 8) 4, QT (DIM + 8) 2) + 4 QT bytes, where T is 2 and with slices 1, as
// values then take their keys' place; with queries in it the sum, not the larger.
// Bytes: keys in view * kv_heads * 2 * DIM * 2 for every QT / group rows, and with n parts n * rows * heads * 2 * (DIM + 4) * 4;
// operations: 4 * keys * heads * DIM * rows.
// Few waves: it is bound by the matrix units, whose operands and sums fill the registers.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "kv.glsl"
#ifdef KV_BF16
#include "bf16.glsl"
// Eight elements as the matrix units take them: f16 has more bits of each, but for those below 2^-14.
uint to_half(uint x) { return packHalf2x16(unpack_bf16(x)); }
uvec4 to_halves(uvec4 all) { return uvec4(to_half(all.x), to_half(all.y), to_half(all.z), to_half(all.w)); }
#define AS_F16(octet) to_halves(octet)
#else
#define AS_F16(octet) octet
#endif

layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Packed4 { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) nonprivate buffer Parts4 { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) nonprivate buffer Counters { uint at[]; };

layout(push_constant) uniform Push {
    Words state;
    Float4s q;
    PageTables table;
    uint64_t y_out;
    Parts4 parts;     // [grid's z][rows padded to the grid's][heads][DIM sums; the highest score, the sum of weights, 0, 0]
    Counters arrived; // one for each of the grid's x and y, zero before and after
    uint position;   // word index of position[0]
    uint sequence;   // word index of sequence[0]
    uint heads;
    uint kv_heads;
    uint group;      // query heads of a workgroup, a divisor of heads / kv_heads
    uint q_stride;   // elements
    uint out_stride; // bytes
    uint paging;     // kv.glsl
    uint window;     // 0: all
    float scale;
};

layout(constant_id = 1) const uint DIM = 128;
layout(constant_id = 2) const uint KT = 32;
layout(constant_id = 3) const uint SUBGROUP = 32;
// The matrix units' shape.
layout(constant_id = 4) const uint M = 16;
layout(constant_id = 5) const uint N = 16;
layout(constant_id = 6) const uint K = 16;
// Whether the grid's z divides the keys: 1 or 0.
layout(constant_id = 7) const uint DIVIDED = 0;

const uint SUBGROUPS = WORKGROUP / SUBGROUP;
// Subgroups that share M queries, and the columns of each. The host knows it too (src/lower/attend_tile.rs).
const uint SLICES = DIM > 256 ? 4 : 1;
const uint WIDTH = DIM / SLICES;
const uint QT = SUBGROUPS / SLICES * M;
// Rows of scores that a subgroup reduces, and invocations that share one.
const uint ROWS = M / SLICES;
const uint LANES = SUBGROUP / ROWS;
const uint QUADS = KT / 4 / LANES;

// Shared memory in units of 16 bytes: rows of DIM f16 and rows of KT f32, padded against bank conflicts.
const uint ROW_UNITS = DIM / 8 + 1;
const uint SCORE_UNITS = KT / 4 + 2;
const uint VALUES = SLICES > 1 ? 0 : KT * ROW_UNITS;
const uint SCORES = VALUES + KT * ROW_UNITS;
const uint OF_SUBGROUP = M * SCORE_UNITS;
const uint TILE_UNITS = SCORES + SUBGROUPS * OF_SUBGROUP;
const uint QUERY_UNITS = QT * ROW_UNITS;
// With RELOAD queries stay in shared memory, and are loaded anew for each tile of keys.
#ifdef RELOAD
const uint QUERIES = TILE_UNITS, KEPT = 1;
#define KEPT_AS(i) 0
shared uvec4 tiles[QUERIES + QUERY_UNITS];
#else
const uint QUERIES = 0, KEPT = WIDTH / K;
#define KEPT_AS(i) i
shared uvec4 tiles[TILE_UNITS > QUERY_UNITS ? TILE_UNITS : QUERY_UNITS];
#endif
shared float factors[QT];
shared bool is_last;

const uint OCTETS = DIM / 8;
const uint LOADS = KT * OCTETS;
const uint EACH = (LOADS + WORKGROUP - 1) / WORKGROUP;

// Matrices of a row of scores, and of a subgroup's part of a row of outputs.
const uint MATS_S = KT / N;
const uint MATS_O = WIDTH / N;

// Fewest tiles of keys that are worth a part of their own.
#define LEAST_TILES 2
// Parts that are added up with all loads in flight.
#define ROUND 4
// Vectors of a query in a part.
const uint OF_PART = DIM / 4 + 1;

// Stores eight elements of a row of the output, from `column` on.
void put(uint r, uint column, vec4 a, vec4 b) {
    uint64_t to = y_out + uint64_t(r) * out_stride + column * 2;
    Packed4(to).at[0] = uvec4(packHalf2x16(a.xz), packHalf2x16(a.yw), packHalf2x16(b.xz), packHalf2x16(b.yw));
}

void main() {
    uint live = live_rows(state, STATE_CHUNK);
    uint tile_rows = QT / group;
    // The last rows first: they see the most keys.
    uint r0 = (gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y) * tile_rows;
    if (r0 >= live) return;
    uint id = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID;
    uint h0 = gl_WorkGroupID.x * group;
    uint p0 = state.at[position];

    // Keys that some row of the tile sees, from position `first` on.
    uint p_first = p0 + r0, p_last = p0 + min(r0 + tile_rows, live) - 1;
    uint first = window == 0 || p_first + 1 < window ? 0 : p_first + 1 - window;
    uint count = p_last - first + 1;
    // Those of this workgroup: whole tiles.
    uint key_tiles = (count + KT - 1) / KT, splits = 1;
    if (DIVIDED != 0) splits = clamp(key_tiles / LEAST_TILES, 1, gl_NumWorkGroups.z);
    uint each = (key_tiles + splits - 1) / splits * KT, split = gl_WorkGroupID.z;
    splits = (count + each - 1) / each;
    if (split >= splits) return;
    uint end = min(count, (split + 1) * each);
    const uint entry_bytes = DIM * 2;
    uint half_bytes = kv_heads * PAGE * entry_bytes;
    uint keys = 2 * half_bytes * layer_place(paging) + h0 / (heads / kv_heads) * PAGE * entry_bytes;
    uint values = keys + half_bytes;
    uint of_sequence = state.at[sequence];

    uvec4 k_next[EACH];
    uvec4 v_next[EACH];
    // Behind the last key all reads as zero: what a page holds there may be no number, which no weight would cancel.
#define FETCH(next, from, base)                                                                                        \
    [[unroll]] for (uint i = 0; i < EACH; ++i) {                                                                       \
        uint load = id + i * WORKGROUP, key = (base) + load / OCTETS;                                                  \
        next[i] = uvec4(0);                                                                                            \
        if (key < end && load < LOADS) {                                                                               \
            uint p = first + key;                                                                                      \
            uint64_t page = table.at[entry_of(paging, of_sequence, p)];                                                \
            next[i] = Words4(page + from + p % PAGE * entry_bytes + load % OCTETS * 16).at[0];                         \
        }                                                                                                              \
    }
#define STORE(next, to)                                                                                                \
    [[unroll]] for (uint i = 0; i < EACH; ++i) {                                                                       \
        uint load = id + i * WORKGROUP;                                                                                \
        if (LOADS % WORKGROUP == 0 || load < LOADS)                                                                    \
            tiles[(to) + load / OCTETS * ROW_UNITS + load % OCTETS] = AS_F16(next[i]);                                 \
    }
    FETCH(k_next, keys, split * each)
    if (SLICES == 1) {
        FETCH(v_next, values, split * each)
    }

    // Queries, scaled so that weights are powers of 2. Those past the end repeat the last row's.
    float q_scale = scale * 1.4426950408889634;
    for (uint i = id; i < QT * OCTETS; i += WORKGROUP) {
        uint j = i / OCTETS, r = min(r0 + j / group, live - 1);
        uint at = (r * q_stride + (h0 + j % group) * DIM) / 4 + i % OCTETS * 2;
        vec4 a = q.at[at] * q_scale, b = q.at[at + 1] * q_scale;
        tiles[QUERIES + j * ROW_UNITS + i % OCTETS] =
            uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
    }
    barrier();
    // The M queries of this subgroup, and its slice of their columns, in units.
    uint set = gl_SubgroupID / SLICES, slice = gl_SubgroupID % SLICES, own_units = slice * (WIDTH / 8);
    coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> query[KEPT];
#define LOAD_QUERY(to, i)                                                                                              \
    coopMatLoad(query[to], tiles, QUERIES + set * M * ROW_UNITS + own_units + (i) * (K / 8), ROW_UNITS,                \
                gl_CooperativeMatrixLayoutRowMajor);
#ifndef RELOAD
    [[unroll]] for (uint i = 0; i < KEPT; ++i) LOAD_QUERY(i, i)
    barrier();
#endif

    coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> sums[MATS_O];
    [[unroll]] for (uint i = 0; i < MATS_O; ++i) {
        sums[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
    }

    // This invocation's row of the M queries' scores, and what of it.
    uint row = slice * ROWS + lane / LANES, part = lane % LANES;
    uint j = set * M + row;
    uint p = p0 + min(r0 + j / group, live - 1);
    // The subgroup's scores, and the first of those that share its queries.
    uint own_scores = SCORES + gl_SubgroupID * OF_SUBGROUP, scores = SCORES + set * SLICES * OF_SUBGROUP;
    float highest = NEG_INF, total = 0;

    for (uint base = split * each; base < end; base += KT) {
        // With slices a tile of keys or values is on its way at a time, each while the other is in use.
        STORE(k_next, 0)
        if (SLICES > 1) {
            FETCH(v_next, values, base)
        } else {
            FETCH(k_next, keys, base + KT)
        }
        barrier();

        coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> s[MATS_S];
        [[unroll]] for (uint n = 0; n < MATS_S; ++n) {
            s[n] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
            [[unroll]] for (uint i = 0; i < WIDTH / K; ++i) {
#ifdef RELOAD
                LOAD_QUERY(0, i)
#endif
                coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> key;
                coopMatLoad(key, tiles, n * N * ROW_UNITS + own_units + i * (K / 8), ROW_UNITS,
                            gl_CooperativeMatrixLayoutColumnMajor);
                s[n] = coopMatMulAdd(query[KEPT_AS(i)], key, s[n]);
            }
            coopMatStore(s[n], tiles, own_scores + n * (N / 4), SCORE_UNITS, gl_CooperativeMatrixLayoutRowMajor);
        }
        if (SLICES > 1) barrier();
        else subgroupBarrier();

        vec4 weights[QUADS];
        float tile_highest = NEG_INF;
        [[unroll]] for (uint c = 0; c < QUADS; ++c) {
            uint unit = scores + row * SCORE_UNITS + c * LANES + part;
            weights[c] = uintBitsToFloat(tiles[unit]);
            [[unroll]] for (uint n = 1; n < SLICES; ++n) weights[c] += uintBitsToFloat(tiles[unit + n * OF_SUBGROUP]);
        }
        // Tiles that every row sees whole need no mask.
        uint k_first = first + base;
        bool whole = k_first + KT - 1 <= p_first && (window == 0 || k_first + window > p_last);
        if (!whole) {
            [[unroll]] for (uint c = 0; c < QUADS; ++c) {
                [[unroll]] for (uint e = 0; e < 4; ++e) {
                    uint key = k_first + (c * LANES + part) * 4 + e;
                    if (key > p || (window != 0 && key + window <= p)) weights[c][e] = NEG_INF;
                }
            }
        }
        [[unroll]] for (uint c = 0; c < QUADS; ++c) {
            vec4 w = weights[c];
            tile_highest = max(tile_highest, max(max(w.x, w.y), max(w.z, w.w)));
        }
        [[unroll]] for (uint step = 1; step < LANES; step *= 2) {
            tile_highest = max(tile_highest, subgroupShuffleXor(tile_highest, step));
        }
        tile_highest = max(highest, tile_highest);
        // A row that has seen nothing yet has no highest score to subtract.
        float offset = tile_highest == NEG_INF ? 0.0 : tile_highest;
        float decay = exp2(highest - offset);
        highest = tile_highest;
        float sum = 0;
        [[unroll]] for (uint c = 0; c < QUADS; ++c) {
            weights[c] = exp2(weights[c] - offset);
            sum += weights[c].x + weights[c].y + weights[c].z + weights[c].w;
        }
        [[unroll]] for (uint step = 1; step < LANES; step *= 2) sum += subgroupShuffleXor(sum, step);
        total = total * decay + sum;
        if (part == 0) factors[j] = decay;
        subgroupBarrier();
        [[unroll]] for (uint c = 0; c < QUADS; ++c) {
            uint at = c * LANES + part;
            uint unit = scores + row * SCORE_UNITS + at / 2, word = at % 2 * 2;
            tiles[unit][word] = packHalf2x16(weights[c].xy);
            tiles[unit][word + 1] = packHalf2x16(weights[c].zw);
        }
        // Column-major columns 0 apart: every column is the rows' factors.
#define SCALE_SUMS                                                                                                     \
    coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> factor;                                            \
    coopMatLoad(factor, factors, set * M, 0, gl_CooperativeMatrixLayoutColumnMajor);                                   \
    [[unroll]] for (uint i = 0; i < MATS_O; ++i) sums[i] = sums[i] * factor;
        if (SLICES == 1 && subgroupMin(decay) < 1.0) {
            SCALE_SUMS
        }

        STORE(v_next, VALUES)
        if (SLICES > 1) {
            FETCH(k_next, keys, base + KT)
        } else {
            FETCH(v_next, values, base + KT)
        }
        barrier();
        if (SLICES > 1) {
            SCALE_SUMS
        }

        [[unroll]] for (uint n = 0; n < KT / K; ++n) {
            coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> weight;
            coopMatLoad(weight, tiles, scores + n * (K / 8), SCORE_UNITS, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < MATS_O; ++i) {
                coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> value;
                coopMatLoad(value, tiles, VALUES + n * K * ROW_UNITS + own_units + i * (N / 8), ROW_UNITS,
                            gl_CooperativeMatrixLayoutRowMajor);
                sums[i] = coopMatMulAdd(weight, value, sums[i]);
            }
        }
        // Values, weights and factors are read before the next tile takes their place.
        if (SLICES > 1) barrier();
    }

    // Vectors of this workgroup's first query in its part, and from a part to the next.
    uint of_rows = gl_NumWorkGroups.y * tile_rows * heads * OF_PART;
    uint own = split * of_rows + (r0 * heads + h0) * OF_PART;
    // Sums leave through the scores' memory, as many matrices at a time as it holds.
    if (part == 0) factors[j] = splits == 1 ? 1.0 / total : 1.0;
    if (SLICES > 1) barrier();
    [[unroll]] for (uint chunk = 0; chunk < MATS_O; chunk += MATS_S) {
        subgroupBarrier();
        [[unroll]] for (uint i = 0; i < MATS_S; ++i) {
            if (chunk + i < MATS_O) {
                coopMatStore(sums[chunk + i], tiles, own_scores + i * (N / 4), SCORE_UNITS,
                             gl_CooperativeMatrixLayoutRowMajor);
            }
        }
        subgroupBarrier();
#ifdef RELOAD
        // Unrolled: RADV keeps the loop around another loop, and with it the sums in memory. On NVIDIA this costs 2 % of a chunk.
        [[unroll]] for (uint from = 0; from < M * (KT / 8); from += SUBGROUP) {
            uint e = from + lane;
            if (e >= M * (KT / 8)) continue;
#else
        for (uint e = lane; e < M * (KT / 8); e += SUBGROUP) {
#endif
            uint query_row = e / (KT / 8), eighth = e % (KT / 8), within = chunk * N + eighth * 8;
            uint at = set * M + query_row, r = r0 + at / group, column = slice * WIDTH + within;
            if (at / group >= tile_rows || r >= live || within >= WIDTH) continue;
            uint unit = own_scores + query_row * SCORE_UNITS + eighth * 2;
            vec4 a = uintBitsToFloat(tiles[unit]) * factors[at], b = uintBitsToFloat(tiles[unit + 1]) * factors[at];
            if (DIVIDED == 0 || splits == 1) {
                put(r, (h0 + at % group) * DIM + column, a, b);
            } else {
                uint to = own + (at / group * heads + at % group) * OF_PART + column / 4;
                parts.at[to] = a;
                parts.at[to + 1] = b;
            }
        }
    }
    if (DIVIDED != 0 && splits > 1) {
        if (part == 0 && j / group < tile_rows && r0 + j / group < live) {
            parts.at[own + (j / group * heads + j % group) * OF_PART + DIM / 4] = vec4(highest, total, 0, 0);
        }
        // What the others stored before they counted themselves is visible to the last.
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
        barrier();
        if (id == 0) {
            uint tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
            is_last = atomicAdd(arrived.at[tile], 1, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                                gl_SemanticsAcquireRelease) == splits - 1;
            if (is_last) arrived.at[tile] = 0;
        }
        barrier();
        if (!is_last) return;
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
        for (uint i = id; i < min(tile_rows, live - r0) * group * OCTETS; i += WORKGROUP) {
            uint at = i / OCTETS, eighth = i % OCTETS;
            uint from = ((r0 + at / group) * heads + h0 + at % group) * OF_PART;
            float top = NEG_INF, weight = 0;
            vec4 a = vec4(0), b = vec4(0);
            for (uint s0 = 0; s0 < splits; s0 += ROUND) {
                vec4 ends[ROUND], low[ROUND], high[ROUND];
                [[unroll]] for (uint s = 0; s < ROUND; ++s) {
                    uint there = min(s0 + s, splits - 1) * of_rows + from;
                    ends[s] = parts.at[there + DIM / 4];
                    low[s] = parts.at[there + eighth * 2];
                    high[s] = parts.at[there + eighth * 2 + 1];
                }
                float higher = top;
                [[unroll]] for (uint s = 0; s < ROUND; ++s) higher = max(higher, ends[s].x);
                // A row's window may lie behind all keys of these parts.
                float offset = higher == NEG_INF ? 0.0 : higher, decay = exp2(top - offset);
                a *= decay;
                b *= decay;
                weight *= decay;
                [[unroll]] for (uint s = 0; s < ROUND; ++s) {
                    float scaled = s0 + s < splits ? exp2(ends[s].x - offset) : 0.0;
                    a += scaled * low[s];
                    b += scaled * high[s];
                    weight += scaled * ends[s].y;
                }
                top = higher;
            }
            put(r0 + at / group, (h0 + at % group) * DIM + eighth * 8, a / weight, b / weight);
        }
    }
    // The rows' padding and scale, once.
    if (h0 != 0) return;
    uint width = heads * DIM, padded = (width + 31) / 32 * 32;
    for (uint r = r0 + id; r < min(r0 + tile_rows, live); r += WORKGROUP) {
        uint64_t to = y_out + uint64_t(r) * out_stride;
        for (uint c = width; c < padded; c += 8) Packed4(to + c * 2).at[0] = uvec4(0);
        Floats(to + padded * 2).at[0] = 1.0;
    }
}
