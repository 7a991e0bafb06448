// linear_fragment: out[r][n] = x_scale[r] * w_scale[n] * sum_k weight[n][k] * x[r][k], by matrix units (f16 x f16 -> f32), whose
// matrices are made of weights in the registers that loads left them in:
//   plain: for few rows, whose inputs are loaded in the same way; nobody waits for anybody
//   TALL:  for many, whose inputs come through shared memory, STAGES steps of them; of weights with 32 elements a load, HALVES
//          steps share a load
// With GATED, plain only: out[r][n] = gelu_tanh(gate) * up in F16Block, of the products gate and up; weight [2 n, k] with gate's
// rows before up's. Of a workgroup's rows of weights, M of gate and M of up take turns. The largest scale of a row of out, which
// is that row's, goes behind the scale of the row of x, where 0 was.
// With BLOCKS, plain only, x is in F16Block: it is brought to its row's scale on the way.
// weight [n, k] int8 with one f32 scale a row, or a format with scales of groups (weights.glsl), by which weights are
// multiplied in f16 on their way; k padded to 16 with zeros; x in F16Row (activation_layout.glsl), rows
// x_stride bytes apart; out f32 [rows, out_stride], with GATED rows of out_stride bytes.
// Which elements of a matrix an invocation holds is the device's choice, and is found out (shaders/fragment.comp): SHARERS
// invocations share a row of A, and a column of B in the same way. A product does not change when its inputs change places in
// weights and x alike: so an invocation takes the 16 or 32 consecutive inputs of a load of a row for its places in the next
// products.
// A subgroup makes OUTPUTS outputs; SUBS_N of them lie beside each other. PARTS more divide the rows (TALL), or share the same
// outputs, each with its part of the inputs. While steps are multiplied, DEPTH more of weights are on their way from memory.
// With EXPERTS the rows are expert rows, in tiles of at most BM of one expert, and the weight is [experts, n, k] (experts.glsl).
// With `splits` > 1 the inputs are divided among that many workgroups as well: each leaves its sums in `parts`, and the last
// to finish adds them, always in the same order.
// Shared memory: max(x, subgroups * OUTPUTS * N * 4) bytes; x, TALL only: STAGES * BM * (2 * inputs of a step + 16). Without
// TALL, INT8's scales too: 4 * BN; with it, f16 scales of groups: 2 * BN * BATCH.
// Bytes: the weight's from memory, once where the row tiles of a weight tile run together; x from caches, n / OUTPUTS times, with TALL
// n / BN times, and weights rows / BM times, with TALL PARTS times that. Operations: 2 * n * k * rows.
// Few waves: operands, sums and what is on its way fill the registers.
// Narrow loads: of a format with scales of groups those of each load, unless they come in batches; of those with high bits these.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#define RELAY
#include "common.glsl"
#include "relay.glsl"
#include "weights.glsl"
#include "tiles.glsl"
#include "experts.glsl"
#include "product.glsl"
#ifndef TALL
#include "activation_layout.glsl"
#endif

layout(constant_id = 1) const uint BM = 16; // rows of a workgroup
layout(constant_id = 2) const uint OUTPUTS = 32;
layout(constant_id = 3) const uint SUBS_N = 1;
layout(constant_id = 4) const uint PARTS = 1;
layout(constant_id = 5) const uint SPAN = 1;  // loads of a row of weights in a whole step
layout(constant_id = 6) const uint DEPTH = 1; // whole steps of weights on their way
// 8 is common.glsl's.
layout(constant_id = 9) const uint SHARERS = 4;
// The matrix units' shape.
layout(constant_id = 10) const uint M = 16;
layout(constant_id = 11) const uint N = 8;
layout(constant_id = 12) const uint K = 16;

#ifdef TALL
layout(constant_id = 7) const uint STAGES = 1;
layout(constant_id = 13) const uint HALVES = 1; // steps that share a load of weights; 1 where it has fewer than 32 elements
// f16 scales of groups: whether BATCH of a row are loaded together and lie in shared memory. Then a row has whole batches, and a batch
// whole steps; HALVES is 2 and DEPTH 1. Else each scale is loaded with its weights, which takes as long as loading eight.
layout(constant_id = 14) const uint IN_BATCHES = 0;
#else
layout(constant_id = 13) const uint GATED = 0;
layout(constant_id = 14) const uint BLOCKS = 0;
#endif
// HALVES steps are a whole step: together they take whole loads. Without HALVED each step is one.
#if defined(TALL) && defined(GROUPED)
#define HALVED
#define USED (PER_LOAD / HALVES)             // elements of a load that a step takes
#define STEPS_OF(whole) ((whole) * HALVES)   // steps of so many whole ones
#define WHOLE_STEP(step) ((step) / HALVES)   // the whole step that a step is part of
#define IN_LOAD(d, e) ((d) % HALVES * USED + e) // the place in its load of the e-th element that step d takes
#define ENDS_LOAD(d, t) (d % HALVES == HALVES - 1 && t == USED / TAKEN - 1) // whether the load is used up with the t-th TAKEN
#else
#define USED PER_LOAD
#define STEPS_OF(whole) (whole)
#define WHOLE_STEP(step) (step)
#define IN_LOAD(d, e) (e)
#define ENDS_LOAD(d, t) (t == USED / TAKEN - 1)
#endif
#ifdef TALL
const uint SUBS_M = PARTS, KSPLIT = 1, ROUND = STEPS_OF(DEPTH) > STAGES ? STEPS_OF(DEPTH) : STAGES;
#else
const uint SUBS_M = 1, KSPLIT = PARTS, ROUND = DEPTH;
#endif
const uint BN = SUBS_N * OUTPUTS;
const uint WM = BM / SUBS_M;
const uint SUBGROUPS = SUBS_N * PARTS;
const uint SUBGROUP = WORKGROUP / SUBGROUPS;

// Matrices of a subgroup, rows of each that an invocation holds places of, and how many places of each.
const uint MATS_A = OUTPUTS / M, MATS_B = WM / N;
const uint HELD_A = M * SHARERS > SUBGROUP ? M * SHARERS / SUBGROUP : 1;
const uint HELD_B = N * SHARERS > SUBGROUP ? N * SHARERS / SUBGROUP : 1;
const uint PLACES = K / SHARERS;
const uint RUN = USED * SHARERS; // inputs that the sharers of a row of weights take in a step, of one load each
const uint STEP = SPAN * RUN;    // inputs of a step
const uint X_LOADS = USED / 8;   // loads of x for what a step takes of a load of weights
// Elements of a load that an invocation multiplies at a time: as many as a load of x holds, or a product takes.
const uint TAKEN = PLACES > 8 ? PLACES : 8;
const uint TAKEN_X = TAKEN / 8;
const uint W_EACH = MATS_A * HELD_A * SPAN;

#define MatrixA coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define MatrixB coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
#define MatrixSum coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

const uint OUT_UNITS = SUBGROUPS * OUTPUTS * N / 4;
#ifdef TALL
// A step's x, a row one 16-byte unit further from the next than it has, so that reading down a column meets every bank. Of it
// an invocation loads X_EACH units, one in each pass of the workgroup over the rows.
const uint X_UNITS = STEP / 8, UNITS = X_UNITS + 1, STAGE = BM * UNITS;
const uint X_PASS = WORKGROUP / X_UNITS;
const uint X_EACH = (BM + X_PASS - 1) / X_PASS;
shared uvec4 tiles[STAGES * STAGE > OUT_UNITS ? STAGES * STAGE : OUT_UNITS];
#else
const uint X_EACH = MATS_B * HELD_B * SPAN * X_LOADS;
const uint X_BLOCKS = PER_LOAD / 16;
shared uvec4 tiles[OUT_UNITS];

// Eight elements of x times a power of two.
uvec4 times(uvec4 eight, float16_t by) {
    [[unroll]] for (uint i = 0; i < 4; ++i) eight[i] = packFloat2x16(unpackFloat2x16(eight[i]) * f16vec2(by));
    return eight;
}
#endif
shared bool is_last;
#if defined(TALL) && defined(GROUPED)
#define BATCHED (IN_BATCHES != 0)
const uint BATCH = 8;
// A batch of each row of weights, two scales a word.
shared uint scale_batch[BATCHED ? BN * BATCH / 2 : 1];
const uint BATCH_WHOLE = BATCHED ? BATCH / (SPAN * SHARERS) : 1; // whole steps that take it
const uint BATCH_EACH = (BN + WORKGROUP - 1) / WORKGROUP;        // rows of which an invocation loads a batch
#define SPLIT_FIRST(split) STEPS_OF((split) * (steps / BATCH_WHOLE) / splits * BATCH_WHOLE)
#define OWN_SCALE if (!BATCHED)
#define ROW_BY(i, s) row_by[(i) * SPAN + (s)]
#else
#define SPLIT_FIRST(split) STEPS_OF((split) * steps / splits)
#define OWN_SCALE
#define ROW_BY(i, s) row_by[i]
#endif
#if !defined(TALL) && !defined(GROUPED)
// The scales of the tile's rows of weights.
shared float scale_of_row[BN];
#undef OUTPUT_SCALE
#define OUTPUT_SCALE(o) scale_of_row[(o) - n0]
#define FOUR_SCALES(column)                                                                                            \
    vec4(scale_of_row[column], scale_of_row[(column) + 1], scale_of_row[(column) + 2], scale_of_row[(column) + 3])
#else
#define FOUR_SCALES(column) 1.0
#endif

// Outputs of a tile, and where its i-th row of weights lies behind the first. Rows past the end repeat the last one.
#ifdef TALL
#define TILE_OUTPUTS BN
#define ROW(i) min(i, last_row)
#else
const uint TILE_OUTPUTS = GATED != 0 ? BN / 2 : BN;
#define ROW(i) (GATED != 0 ? min((i) / (2 * M) * M + (i) % M, last_row) + (i) / M % 2 * n : min(i, last_row))
#endif

#ifndef TALL
// Four outputs of gate (0) or up (1), of one of the N rows whose sums lie in shared memory.
vec4 four_sums(uint row, uint o, uint up) {
    uint column = (o / M * 2 + up) * M + o % M;
    uint at = (column / OUTPUTS * N + row) * OUTPUTS + column % OUTPUTS;
    vec4 y = vec4(0);
    [[unroll]] for (uint part = 0; part < KSPLIT; ++part) {
        y += uintBitsToFloat(tiles[(at + part * (SUBS_N * OUTPUTS * N)) / 4]);
    }
    return y * FOUR_SCALES(column);
}

// The gated GELU of N rows from r on and of TILE_OUTPUTS outputs from n0 on, whose sums lie in shared memory. Neighbouring
// invocations make four outputs each of a row: four of them a block.
void leave_gated(uint r, uint n0, uint live) {
    const uint QUADS = TILE_OUTPUTS / 4, NEAR = QUADS < SUBGROUP ? QUADS : SUBGROUP;
    for (uint e = gl_LocalInvocationID.x; e < N * QUADS; e += WORKGROUP) {
        uint row = e / QUADS, o = n0 + e % QUADS * 4;
        uint of_x = min(r + row, live - 1);
        float x_scale = X_SCALE(of_x);
        vec4 gate = four_sums(row, e % QUADS * 4, 0) * x_scale, up = four_sums(row, e % QUADS * 4, 1) * x_scale;
        vec4 y = vec4(gelu_tanh(gate.x), gelu_tanh(gate.y), gelu_tanh(gate.z), gelu_tanh(gate.w)) * up;
        if (o >= n) y = vec4(0);
        uint top = magnitude(y);
        top = max(top, subgroupShuffleXor(top, 1));
        top = max(top, subgroupShuffleXor(top, 2));
        float scale = half_scale(top);
        uint largest = floatBitsToUint(scale);
        [[unroll]] for (uint apart = 4; apart < NEAR; apart *= 2) {
            largest = max(largest, subgroupShuffleXor(largest, apart));
        }
        if (r + row >= live) continue;
        uint64_t to = uint64_t(y_out) + uint64_t(r + row) * out_stride;
        uint padded = (n + 31) / 32 * 32;
        write_half4(to, padded, o / 4, y, scale);
        if (o % 16 == 0 && o < padded) ScaleOut(to + 2 * padded).at[o / 16] = scale;
        if (e % NEAR == 0) atomicMax(Words(x_scales + uint64_t(r + row) * x_scale_stride).at[1], largest);
    }
}
#endif

void make_tile() {
    // The table says which weights to load.
    if (EXPERTS != 0) relay_wait(state, turn, before);
    uint split = gl_WorkGroupID.x % splits, row_tile = gl_WorkGroupID.x / splits;
    uvec2 rows = rows_of(table, row_tile, BM, live_rows(state, which), n);
    uint r0 = rows.x, live = rows.y, n0 = gl_WorkGroupID.y * TILE_OUTPUTS;
    if (r0 >= live) return;
    uint id = gl_LocalInvocationID.x;
    uint subgroup_n = gl_SubgroupID % SUBS_N, subgroup_part = gl_SubgroupID / SUBS_N;
    uint subgroup_k = KSPLIT > 1 ? subgroup_part : 0, subgroup_m = SUBS_M > 1 ? subgroup_part : 0;

    // The steps of this split, of all KSPLIT subgroups at a time.
    uint steps = (k + STEPS_OF(KSPLIT * STEP) - 1) / STEPS_OF(KSPLIT * STEP);
    uint step_first = SPLIT_FIRST(split), step_end = SPLIT_FIRST(split + 1), last = step_end - 1;

    // Rows past the end repeat the last one, and inputs past the end others.
    uint64_t w_tile = weight + uint64_t(base + n0) * ROW_BYTES, x_tile = x + uint64_t(r0) * x_stride;
    uint last_row = min(n - n0, TILE_OUTPUTS) - 1, x_last = live - 1 - r0;
    uint scale_at = (k + 31) / 32 * 64;
    uint lane_row = gl_SubgroupInvocationID / SHARERS, lane_part = gl_SubgroupInvocationID % SHARERS;
    uint w_row = subgroup_n * OUTPUTS + lane_row % (M / HELD_A), x_row = lane_row % (N / HELD_B);

    // The first input of the load that this invocation takes of a step's s-th run.
#define FIRST(step, s)                                                                                                 \
    ((WHOLE_STEP(min(step, last)) * KSPLIT + subgroup_k) * STEPS_OF(STEP) + (s) * STEPS_OF(RUN) + lane_part * PER_LOAD)
    Weights w_next[DEPTH * W_EACH];
#define LOAD_IN_ROW(step, s) (min(FIRST(step, s), k - PER_LOAD) / PER_LOAD)
    // Where the s-th run of the i-th row of weights lies, of the steps in `slot`; and of those that step d takes.
#define W_PLACE(slot, i, s) ((slot) * W_EACH + (i) * SPAN + (s))
#define W_TAKEN(i, s) W_PLACE(WHOLE_STEP(d) % DEPTH, i, s)
#ifdef GROUPED
    // Their scales, and which of the matrix's loads an invocation takes of the i-th row of weights in a step's s-th run.
    uvec4 w_scale[DEPTH * W_EACH];
#define LOAD_OF(i, step, s) ((base + n0 + ROW(w_row + (i) * (M / HELD_A))) * LOADS + LOAD_IN_ROW(step, s))
#define FETCH_SCALE(slot, i, row, step, s)                                                                             \
    OWN_SCALE w_scale[W_PLACE(slot, i, s)] =                                                                           \
        fetch_scale(scale_at(uint64_t(scales), LOAD_OF(i, step, s)), w_tile + (row) * ROW_BYTES, LOAD_IN_ROW(step, s), LOADS);
    // The last bits of the matrix's load. Of two scales in a word, where pairs of invocations share a row, a load's half is the same
    // in every step.
#define LAST_BITS(i, step, s)                                                                                          \
    (SCALES == BY_HALF && SHARERS % 2 == 0 ? (base + n0 + ROW(w_row + (i) * (M / HELD_A))) & LOADS ^ lane_part                \
                                           : LOAD_OF(i, step, s))
#define WIDEN(i, step, s, from) widen_scaled(w_next[W_TAKEN(i, s)], (from) / 4, ROW_BY(i, s))
#ifdef BATCHED
    // The scale's place in its batch.
#define IN_BATCH(step, s) (((WHOLE_STEP(step) * SPAN + (s)) * SHARERS + lane_part) % BATCH)
#define MULTIPLIER(i, step, s, is_input)                                                                               \
    (BATCHED ? multiplier(uvec4(scale_batch[((w_row + (i) * (M / HELD_A)) * BATCH + IN_BATCH(step, s)) / 2], 0, 0, 0),  \
                          IN_BATCH(step, s), is_input)                                                                 \
             : multiplier(w_scale[W_TAKEN(i, s)], LAST_BITS(i, step, s), is_input))
    // The batch of the i-th row that this invocation loads. Past the tile's rows it is the last row's, and not stored.
    uvec4 batch_next[BATCH_EACH];
#define BATCH_ROW(i) ((i) * WORKGROUP + id)
#define FETCH_BATCH(batch)                                                                                             \
    [[unroll]] for (uint i = 0; i < BATCH_EACH; ++i) {                                                                 \
        uint from = (base + n0 + min(BATCH_ROW(i), last_row)) * LOADS + min((batch) * BATCH, LOADS - BATCH);                  \
        batch_next[i] = Words4(uint64_t(scales) + 2 * uint64_t(from)).at[0];                                           \
    }
#define STORE_BATCH                                                                                                    \
    [[unroll]] for (uint i = 0; i < BATCH_EACH; ++i) {                                                                 \
        if (BATCH_ROW(i) >= BN) continue;                                                                              \
        [[unroll]] for (uint c = 0; c < 4; ++c) scale_batch[BATCH_ROW(i) * (BATCH / 2) + c] = batch_next[i][c];        \
    }
#else
#define MULTIPLIER(i, step, s, is_input) multiplier(w_scale[W_TAKEN(i, s)], LAST_BITS(i, step, s), is_input)
#endif
#else
#define FETCH_SCALE(slot, i, row, step, s)
#define WIDEN(i, step, s, from) widen4(w_next[W_TAKEN(i, s)][from / 4], mask)
#endif
#define FETCH_W(slot, step)                                                                                            \
    [[unroll]] for (uint i = 0; i < MATS_A * HELD_A; ++i) {                                                            \
        uint row = ROW(w_row + i * (M / HELD_A));                                                                      \
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {                                                                   \
            w_next[W_PLACE(slot, i, s)] = fetch_at(w_tile, row * ROW_BYTES, LOAD_IN_ROW(step, s), LOADS);             \
            FETCH_SCALE(slot, i, row, step, s)                                                                         \
        }                                                                                                              \
    }
    // The q-th eight of the inputs that this invocation takes of the s-th run, of its i-th row of the j-th matrix.
#ifdef TALL
    uvec4 x_next[X_EACH];
    uint x_line = id / X_UNITS, x_part = id % X_UNITS;
    uint x_from = (subgroup_m * WM + x_row) * UNITS + lane_part * X_LOADS;
#define X_HELD(j, i, s, q) tiles[stage + x_from + ((j) * N + (i) * (N / HELD_B)) * UNITS + (s) * X_LOADS * SHARERS + (q)]
#ifdef HALVED
    // A row of x has the parts of a load one behind the other. A step takes one part of each load.
#define X_BYTE(step)                                                                                                   \
    ((WHOLE_STEP(step) * STEPS_OF(X_UNITS) + x_part / X_LOADS * STEPS_OF(X_LOADS) + (step) % HALVES * X_LOADS +        \
      x_part % X_LOADS) * 16)
#else
#define X_BYTE(step) ((step) * STEP * 2 + x_part * 16)
#endif
#define FETCH_X(step)                                                                                                  \
    {                                                                                                                  \
        uint from = min(X_BYTE(min(step, last)), scale_at - 16);                                                       \
        [[unroll]] for (uint i = 0; i < X_EACH; ++i) {                                                                 \
            x_next[i] = Inputs4(x_tile + (min(x_line + i * X_PASS, x_last) * x_stride + from)).at[0];                  \
        }                                                                                                              \
    }
#define STORE_X(stage)                                                                                                 \
    [[unroll]] for (uint i = 0; i < X_EACH; ++i) {                                                                     \
        uint line = x_line + i * X_PASS;                                                                               \
        if (BM % X_PASS == 0 || line < BM) tiles[(stage) + line * UNITS + x_part] = x_next[i];                         \
    }
#else
    uvec4 x_next[X_EACH];
    // With BLOCKS: of each block of x that is on its way, its scale; and of each row the inverse of its own.
    float x_by[MATS_B * HELD_B * SPAN * X_BLOCKS], inverse[MATS_B * HELD_B];
#define X_PLACE(j, i, s) (((j) * HELD_B + (i)) * SPAN + (s))
#define X_LOADED(j, i, s, q) x_next[X_PLACE(j, i, s) * X_LOADS + (q)]
#define X_HELD(j, i, s, q)                                                                                             \
    (BLOCKS == 0 ? X_LOADED(j, i, s, q)                                                                                \
                 : times(X_LOADED(j, i, s, q),                                                                         \
                         float16_t(x_by[X_PLACE(j, i, s) * X_BLOCKS + (q) / 2] * inverse[(j) * HELD_B + (i)])))
#define FETCH_X(step)                                                                                                  \
    [[unroll]] for (uint i = 0; i < MATS_B * HELD_B; ++i) {                                                            \
        uint row = min(x_row + i * (N / HELD_B), x_last);                                                              \
        [[unroll]] for (uint s = 0; s < SPAN; ++s) {                                                                   \
            uint first = min(FIRST(step, s), k - PER_LOAD);                                                            \
            uint64_t from = x_tile + (row * x_stride + 2 * first);                                                     \
            [[unroll]] for (uint q = 0; q < X_LOADS; ++q) {                                                            \
                x_next[(i * SPAN + s) * X_LOADS + q] = Inputs4(from).at[q];                                            \
            }                                                                                                          \
            if (BLOCKS == 0) continue;                                                                                 \
            [[unroll]] for (uint b = 0; b < X_BLOCKS; ++b) {                                                           \
                x_by[(i * SPAN + s) * X_BLOCKS + b] =                                                                  \
                    Floats(x_tile + (row * x_stride + scale_at)).at[first / 16 + b];                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
#endif

    [[unroll]] for (uint d = 0; d < DEPTH; ++d) FETCH_W(d, step_first + STEPS_OF(d))
    relay_ask(ahead_low, ahead_high, ahead_bytes);
#if !defined(TALL) && !defined(GROUPED)
    for (uint i = id; i < BN; i += WORKGROUP) scale_of_row[i] = scales.at[base + n0 + ROW(i)];
#endif
#ifdef BATCHED
    if (BATCHED) {
        FETCH_BATCH(WHOLE_STEP(step_first) / BATCH_WHOLE)
        STORE_BATCH
    }
#endif
    if (EXPERTS == 0) relay_wait(state, turn, before);
#ifdef TALL
    FETCH_X(step_first)
    if (STAGES == 2) {
        STORE_X(0)
        FETCH_X(step_first + 1)
    }
#else
    [[unroll]] for (uint i = 0; i < MATS_B * HELD_B; ++i) {
        if (BLOCKS != 0) inverse[i] = 1.0 / X_SCALE(r0 + min(x_row + i * (N / HELD_B), x_last));
    }
    FETCH_X(step_first)
#endif
    // This waits for the word that relay_ask asked for. What is needed next is on its way by now.
    relay_take(state);
    MatrixSum sums[MATS_A * MATS_B];
    [[unroll]] for (uint i = 0; i < MATS_A * MATS_B; ++i) sums[i] = MatrixSum(0);
    for (uint round = step_first; round < step_end; round += ROUND) {
#ifdef BATCHED
        Multiplier row_by[MATS_A * HELD_A * SPAN];
#endif
        [[unroll]] for (uint d = 0; d < ROUND; ++d) {
            uint step = round + d;
#ifdef TALL
            // With two stages one is written while the other is read.
            const uint stage = d % STAGES * STAGE;
            if (STAGES == 1) {
                STORE_X(0)
                barrier();
                FETCH_X(step + 1)
            } else {
                barrier();
                STORE_X(STAGE - stage)
                FETCH_X(step + 2)
            }
#endif
#ifdef BATCHED
            // In a batch's last round, a whole step, the next batch is loaded. It is stored in the second half: all have read
            // their scales in the first one, and a barrier lies between.
            if (BATCHED && WHOLE_STEP(round) % BATCH_WHOLE == BATCH_WHOLE - 1) {
                if (d == 0) FETCH_BATCH(WHOLE_STEP(round) / BATCH_WHOLE + 1)
                if (d == 1) STORE_BATCH
            }
#endif
            [[unroll]] for (uint s = 0; s < SPAN; ++s) {
#ifdef BATCHED
                bool is_input = BATCHED || step <= last && FIRST(step, s) < k;
                [[unroll]] for (uint i = 0; d % HALVES == 0 && i < MATS_A * HELD_A; ++i) {
                    ROW_BY(i, s) = MULTIPLIER(i, step, s, is_input);
                }
#elif defined(GROUPED)
                bool is_input = step <= last && FIRST(step, s) < k;
                Multiplier row_by[MATS_A * HELD_A];
                [[unroll]] for (uint i = 0; i < MATS_A * HELD_A; ++i) {
                    row_by[i] = MULTIPLIER(i, step, s, is_input);
                }
#else
                uint mask = step <= last && FIRST(step, s) < k ? ALL_BYTES : 0;
#endif
                [[unroll]] for (uint t = 0; t < USED / TAKEN; ++t) {
                    MatrixA a[TAKEN / PLACES * MATS_A];
                    [[unroll]] for (uint h = 0; h < TAKEN / PLACES; ++h) {
                        [[unroll]] for (uint i = 0; i < MATS_A * HELD_A; ++i) {
                            uvec2 four;
                            [[unroll]] for (uint p = 0; p < PLACES; ++p) {
                                const uint from = IN_LOAD(d, t * TAKEN + h * PLACES + p);
                                if (p == 0 || from % 4 == 0) four = WIDEN(i, step, s, from);
                                f16vec2 two = unpackFloat2x16(from / 2 % 2 == 0 ? four.x : four.y);
                                a[h * MATS_A + i / HELD_A][i % HELD_A * PLACES + p] = from % 2 == 0 ? two.x : two.y;
                            }
                        }
                    }
                    if (s == SPAN - 1 && ENDS_LOAD(d, t)) FETCH_W(WHOLE_STEP(d) % DEPTH, step + STEPS_OF(DEPTH))
                    [[unroll]] for (uint j = 0; j < MATS_B; ++j) {
                        uvec4 held[HELD_B * TAKEN_X];
                        [[unroll]] for (uint i = 0; i < HELD_B * TAKEN_X; ++i) {
                            held[i] = X_HELD(j, i / TAKEN_X, s, t * TAKEN_X + i % TAKEN_X);
                        }
                        [[unroll]] for (uint h = 0; h < TAKEN / PLACES; ++h) {
                            MatrixB b;
                            [[unroll]] for (uint i = 0; i < HELD_B; ++i) {
                                [[unroll]] for (uint p = 0; p < PLACES; ++p) {
                                    const uint from = h * PLACES + p;
                                    uint two = held[i * TAKEN_X + from / 8][from / 2 % 4];
                                    b[i * PLACES + p] = unpackFloat2x16(two)[from % 2];
                                }
                            }
                            [[unroll]] for (uint i = 0; i < MATS_A; ++i) {
                                sums[i * MATS_B + j] = coopMatMulAdd(a[h * MATS_A + i], b, sums[i * MATS_B + j]);
                            }
                        }
                    }
                }
            }
#ifdef TALL
            if (STAGES == 1) barrier();
#else
            FETCH_X(step + 1)
#endif
        }
    }

#ifdef TALL
    // Whole tiles go straight to memory, where rows are aligned as a matrix's must be.
    if (splits == 1 && r0 + BM <= live && n0 + BN <= n && out_stride % 4 == 0 && uint64_t(y_out) % 16 == 0) {
        barrier();
        for (uint i = id; i < BM + BN; i += WORKGROUP) {
            float scale = i < BM ? X_SCALE(r0 + i) : OUTPUT_SCALE(n0 + i - BM);
            tiles[i / 4][i % 4] = floatBitsToUint(scale);
        }
        barrier();
        // Columns, or rows, 0 apart: all are the outputs' scales, or the rows'.
        MatrixSum out_scales[MATS_A];
        [[unroll]] for (uint i = 0; i < MATS_A; ++i) {
            coopMatLoad(out_scales[i], tiles, (BM + subgroup_n * OUTPUTS + i * M) / 4, 0,
                        gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint j = 0; j < MATS_B; ++j) {
            uint row = subgroup_m * WM + j * N;
            MatrixSum row_scales;
            coopMatLoad(row_scales, tiles, row / 4, 0, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < MATS_A; ++i) {
                coopMatStore(sums[i * MATS_B + j] * out_scales[i] * row_scales, y_out.at,
                             (r0 + row) * out_stride + n0 + subgroup_n * OUTPUTS + i * M, out_stride,
                             gl_CooperativeMatrixLayoutColumnMajor);
            }
        }
        return;
    }
#endif
    // Others leave through shared memory, where the parts of KSPLIT meet: N rows of each subgroup at a time.
    uint padded_n = gl_NumWorkGroups.y * BN;
    uint part_rows = gl_NumWorkGroups.x / splits * BM;
    [[unroll]] for (uint j = 0; j < MATS_B; ++j) {
        barrier();
        [[unroll]] for (uint i = 0; i < MATS_A; ++i) {
            coopMatStore(sums[i * MATS_B + j], tiles, (gl_SubgroupID * (OUTPUTS * N) + i * M) / 4, OUTPUTS / 4,
                         gl_CooperativeMatrixLayoutColumnMajor);
        }
        barrier();
#ifndef TALL
        if (GATED != 0) {
            leave_gated(r0 + j * N, n0, live);
            continue;
        }
#endif
        for (uint e = id; e < SUBS_M * N * BN; e += WORKGROUP) {
            uint column = e % BN, row = e / BN;
            uint at = ((row / N * SUBS_N + column / OUTPUTS) * N + row % N) * OUTPUTS + column % OUTPUTS;
            float y = 0;
            [[unroll]] for (uint part = 0; part < KSPLIT; ++part) {
                uint word = at + part * (SUBS_N * OUTPUTS * N);
                y += uintBitsToFloat(tiles[word / 4][word % 4]);
            }
            uint r = r0 + row / N * WM + j * N + row % N, o = n0 + column;
            LEAVE(r, o, y)
        }
    }
    if (splits == 1) return;
#include "splits.glsl"
}

void main() {
    prepare_weights();
    make_tile();
    relay_pass(state, turn);
}
