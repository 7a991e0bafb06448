// linear_dot: out[r][n] = sum_k weight[n][k] * x[r][k], for few rows r, by packed integer dot products.
//   linear_dot:       out f32 [rows, N], weight [N, K]
//   linear_dot_gelu:  out [rows, N] = gelu_tanh(gate) * up in Int16Block or Int16Sums, weight [2N, K] with gate's rows before
//                     up's
// Layouts: activation_layout.glsl. K padded to 16 with zeros in weight and x.
//   weight int8 with one f32 scale a row, x in Int16Block
//   weight in another format with scales of groups (weights.glsl), x in Int16Sums: with int4's weights as they lie, 0 to 15,
//   the sum of w * x is 8 times that of x too large, and q4_k subtracts multiples of that sum
// Products and sums of 16 are exact integers; blocks of 16 are added in f32, in an order that does not depend on the rows.
// An invocation takes part in ROWS outputs at a time, each of which it shares with SHARERS - 1 others of its subgroup: fewer
// than all where the loads of a row are no multiple of those of a whole subgroup. It has UNROLL loads of 16 bytes of each
// output's row in flight: what has been added makes room for what comes next, of the same row or of the next output's, so that
// the registers are always full of weights that are on their way, also while the step before is waited for.
// With weights of 32 elements a load, a workgroup of one row of x copies that row to shared memory, if it takes at most 14 KiB.
// Each load of weights needs five of x, which would otherwise wait for caches that the relay has emptied. One row of Gemma 3 27B
// in INT4 was 2 % faster on an H100. On AMD, where nothing is relayed, this is not measured.
// With EXPERTS the rows are expert rows, and the weight is [experts, N, K]; of linear_dot_gelu the gates' rows, with the ups'
// `apart` rows behind (experts.glsl).
// A workgroup of linear_dot strides over the grid, one of linear_dot_gelu makes BLOCK outputs, whose block scale it knows.
// Where a workgroup of linear_dot_gelu makes several blocks, each is a stage of the relay: block b is made in stage b over the
// number of workgroups. A kernel that reads them as x waits for each stage when it comes to it, or for all where it copies x.
// Bytes: N * K + 4 * N + rows * (2.25 K + 4 N), with scales of groups the weight's + rows * (2.5 K + 4 N); operations:
// 2 * N * K * rows, as 8 packed dot products for 16 weights.
// Few waves: what covers memory's latency is loads in flight, and variants with up to 24 of them in fewer waves have no less.
// Of small workgroups, a copied row lets fewer run at a time.
// Narrow loads: the f32 scale of each block of x, beside its 32 bytes; the scales of each load of a format with scales of
// groups, and high bits where it has them.
#define RELAY
#include "common.glsl"
#include "relay.glsl"
#include "weights.glsl"
#include "activation_layout.glsl"
#include "experts.glsl"
#extension GL_EXT_integer_dot_product : require
layout(constant_id = 1) const uint ROWS = 2;     // output rows of an invocation
layout(constant_id = 2) const uint COLUMNS = 1;  // rows of x that share a weight load
layout(constant_id = 3) const uint UNROLL = 2;   // loads in flight for each output row
layout(constant_id = 4) const uint BLOCKS = 1;   // loads of a row of weights, of 16 or 32 inputs each
layout(constant_id = 5) const uint SUBGROUP = 32;
layout(constant_id = 6) const uint STAGES = 1;   // linear_dot_gelu: blocks of a workgroup, if each is a stage
layout(constant_id = 7) const uint FORM = FORM_INT16_BLOCK;  // linear_dot_gelu: of the output
// 8 is common.glsl's.
layout(constant_id = 9) const uint SHARERS = 32;  // invocations that share a row of weights

layout(push_constant) uniform Push {
    Words state;
    uint64_t weight;
    Floats scales;
    uint64_t x;
    uint64_t y_out;
    Words table;     // experts.glsl
    uint which;      // state word that counts the rows
    uint n;          // outputs
    uint x_padded;   // P of x
    uint x_stride;   // bytes
    uint out_stride; // elements of f32, or bytes of a packed layout
    uint out_padded; // P of the output in that layout
    uint apart;      // linear_dot_gelu: rows of weights from gate to up
    uint turn;       // relay.glsl
    uint before;
    uint stages;     // of the dispatch before
    uint ahead_low;
    uint ahead_high;
    uint ahead_bytes;
};

// Not readonly, as nothing that a relay orders: RADV's acquire makes later loads skip the cache, those of readonly blocks not.
layout(buffer_reference, std430, buffer_reference_align = 16) ORDERED buffer Planes { uvec4 at[]; };

#ifdef GELU
#define PARTS 2
#define BLOCK 16
shared float gated[BLOCK * 8];
#else
#define PARTS 1
#endif

// Outputs of a subgroup at a time; rows of weights of an invocation at a time, loads of each in flight, and rounds of those in
// a row.
const uint OUTPUTS = SUBGROUP / SHARERS * ROWS;
const uint WIDTH = PARTS * ROWS;
const uint SPAN = UNROLL * SHARERS;
const uint ROUNDS = (BLOCKS + SPAN - 1) / SPAN;
const uint X_BLOCKS = PER_LOAD / 16;  // blocks of x of one load

// This invocation among those that share a row, and the first of its outputs among the subgroup's.
const uint PART_BITS = SHARERS - 1;
#define PART (gl_SubgroupInvocationID & PART_BITS)
#define OWN (gl_SubgroupInvocationID / SHARERS * ROWS)

#ifdef GROUPED
// Units of 16 bytes that a row of x takes. It is kept if that is at most 14 KiB, of the 16 that every device has. The order is
// even units of the first plane, odd ones, the same of the second plane, then scales with sums. So neighbouring invocations read
// neighbouring units. Validation refuses the array's size as a single condition.
const uint UNITS = COLUMNS > 1 ? 0 : 5 * BLOCKS;
const uint KEPT = UNITS > 14 * 64 ? 0 : UNITS;
shared uvec4 kept[KEPT + 1];

void keep_x(uint64_t row) {
    for (uint i = gl_LocalInvocationID.x; i < KEPT; i += WORKGROUP) {
        uint plane = i / (2 * BLOCKS), unit = i % (2 * BLOCKS);
        kept[plane == 2 ? i : (2 * plane + unit % 2) * BLOCKS + unit / 2] = Planes(row + plane * x_padded).at[unit];
    }
    barrier();
}
#endif

float sums[WIDTH * COLUMNS];
Weights w[UNROLL * WIDTH];
uint64_t rows[WIDTH];
#ifdef GROUPED
// Scales on their way with the weights; the first load of each row, of what is added and then of what is fetched.
uvec4 w_scale[UNROLL * WIDTH];
uint first_load[2 * WIDTH];
// Where each row has the same scales' places, the lane alone says which they are, and where its first one lies in each row.
const bool LANE_SAYS = BLOCKS % SCALE_PERIOD + SHARERS % SCALE_PERIOD == 0;
uint next_scales[WIDTH];  // bytes behind the matrix's first
#define FACTORS(u, j) factors(w_scale[u * WIDTH + j], LANE_SAYS ? PART : first_load[j] + i)
#else
// Of what is added, and then of what is fetched. One array: of two, of which all of one is copied to the other, RADV of Mesa
// 25.0 reads the copied one even after that has changed.
float scale_of[2 * WIDTH];
#endif

// The block of a row that load u of a round is for, and whether there is such a block.
uint load_in_row(uint round, uint u) { return (round * UNROLL + u) * SHARERS + PART; }
bool is_block(uint round, uint u) {
    return BLOCKS % SPAN == 0 || ROUNDS == 1 && (u + 1) * SHARERS <= BLOCKS || load_in_row(round, u) < BLOCKS;
}

void fetch(uint round, uint u) {
    if (!is_block(round, u)) return;
    uint at = load_in_row(round, u);
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) w[u * WIDTH + j] = fetch_weights(rows[j], at, BLOCKS);
#ifdef GROUPED
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) {
        uint from = LANE_SAYS ? next_scales[j] + (round * UNROLL + u) * (SHARERS / SCALE_PERIOD * SCALE_BYTES)
                              : scale_at(0, first_load[WIDTH + j] + at);
        w_scale[u * WIDTH + j] = fetch_scale(uint64_t(scales) + from, rows[j], at, BLOCKS);
    }
#endif
}

// Adds the products of load u of a round.
void add_block(uint round, uint u, uint r0, uint live) {
    if (!is_block(round, u)) return;
    uint i = load_in_row(round, u);
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        uint64_t row = x + uint64_t(X_ROW(min(r0 + c, live - 1))) * x_stride;
#ifdef GROUPED
        uvec4 hi[2], lo[2], scale_sum;
        if (KEPT > 0) {
            hi = uvec4[2](kept[i], kept[BLOCKS + i]);
            lo = uvec4[2](kept[2 * BLOCKS + i], kept[3 * BLOCKS + i]);
            scale_sum = kept[4 * BLOCKS + i];
        } else {
            hi = uvec4[2](Planes(row).at[2 * i], Planes(row).at[2 * i + 1]);
            lo = uvec4[2](Planes(row + x_padded).at[2 * i], Planes(row + x_padded).at[2 * i + 1]);
            scale_sum = Planes(row + 2 * x_padded).at[i];
        }
        precise vec2 x_scale = uintBitsToFloat(scale_sum.xz), x_sum = x_scale * vec2(ivec2(scale_sum.yw));
        precise vec2 zero = ZEROS * x_sum, by = x_scale * vec2(1.0, 1.0 / SECOND_TIMES);
        [[unroll]] for (uint j = 0; j < WIDTH; ++j) {
            precise vec2 y;
            uvec4 block[2];
            times_blocks(w[u * WIDTH + j], block);
            [[unroll]] for (uint b = 0; b < 2; ++b) {
                int high = 0, low = 0;
                [[unroll]] for (uint q = 0; q < 4; ++q) {
                    high += dotPacked4x8EXT(int(block[b][q]), int(hi[b][q]));
                    low += dotPacked4x8EXT(int(block[b][q]), int(lo[b][q]));
                }
                // At most 16 * 63 * 32512, or 16 * 8 * 32512 times 16.
                y[b] = fma(by[b], float(high * 256 + low), -zero[b]);
            }
            sums[j * COLUMNS + c] = add_blocks(sums[j * COLUMNS + c], FACTORS(u, j), y, x_sum);
        }
#else
        uvec4 hi = Planes(row).at[i], lo = Planes(row + x_padded).at[i];
        float scale = Floats(row + 2 * x_padded).at[i];
        [[unroll]] for (uint j = 0; j < WIDTH; ++j) {
            int high = 0, low = 0;
            [[unroll]] for (uint q = 0; q < 4; ++q) {
                high += dotPacked4x8EXT(int(w[u * WIDTH + j][q]), int(hi[q]));
                low += dotPacked4x8EXT(int(w[u * WIDTH + j][q]), int(lo[q]));
            }
            // At most 16 * 128 * 127 * 256 + ...: well within 31 bits.
            sums[j * COLUMNS + c] += scale * float(high * 256 + low);
        }
#endif
    }
}

// What is fetched from here on is of the subgroup's outputs from `first` on.
void turn_to(uint first) {
    uint n0 = first + OWN;
    [[unroll]] for (uint p = 0; p < PARTS; ++p) {
        [[unroll]] for (uint j = 0; j < ROWS; ++j) {
            // Past the last output: read its row again, and do not store.
            uint o = base + min(n0 + j, n - 1) + p * apart;
            rows[p * ROWS + j] = weight + uint64_t(o) * row_bytes(BLOCKS);
#ifdef GROUPED
            first_load[WIDTH + p * ROWS + j] = o * BLOCKS;
            next_scales[p * ROWS + j] = scale_at(0, o * BLOCKS + PART);
#else
            scale_of[WIDTH + p * ROWS + j] = scales.at[o];
#endif
        }
    }
}

// An end past every block, for which all stages are waited for. Each workgroup must, since who waits for this kernel relies on
// everything before it.
#define ALL_BLOCKS 0xffffffffu

// Stages of the dispatch before that were waited for.
uint reached = 0;

// Waits until blocks of x before `end` are there; the whole workgroup takes part, and asks for the same.
void wait_for(uint end) {
    if (before == 0 || reached == stages) return;
    uint needed = stages == 1 ? 1 : min((end - 1) / before + 1, stages);
    if (needed <= reached) return;
    relay_wait_for(state, turn, before, stages - needed);
    reached = needed;
}

// Asks for the first round of the subgroup's outputs from n0 on, and for the next product's weights. Then waits for x and copies
// it, where it is kept.
void begin(uint n0, uint r0) {
    turn_to(n0);
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) fetch(0, u);
    relay_ask(ahead_low, ahead_high, ahead_bytes);
#ifdef GROUPED
    if (KEPT > 0) {
        wait_for(ALL_BLOCKS);
        keep_x(x + uint64_t(X_ROW(r0)) * x_stride);
    }
#endif
}

// Adds up the outputs that were begun, for rows r0 .. r0 + COLUMNS, each invocation its part of the inputs; with `more`, asks
// for the first round of outputs from `next` on.
void add(bool more, uint next, uint r0, uint live) {
    [[unroll]] for (uint i = 0; i < WIDTH * COLUMNS; ++i) sums[i] = 0;
#ifdef GROUPED
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) first_load[j] = first_load[WIDTH + j];
#else
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) scale_of[j] = scale_of[WIDTH + j];
#endif
    for (uint round = 0; round + 1 < ROUNDS; ++round) {
        wait_for((round + 1) * SPAN * X_BLOCKS);
        [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
            add_block(round, u, r0, live);
            fetch(round + 1, u);
        }
    }
    wait_for(ALL_BLOCKS);
    if (more) turn_to(next);
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
        add_block(ROUNDS - 1, u, r0, live);
        if (more) fetch(0, u);
    }
}

// The invocations' parts together, times the scales of the weights' rows where they have one.
void finish() {
    [[unroll]] for (uint i = 0; i < WIDTH * COLUMNS; ++i) {
        [[unroll]] for (uint apart = 1; apart < SHARERS; apart *= 2) sums[i] += subgroupShuffleXor(sums[i], apart);
#ifndef GROUPED
        sums[i] *= scale_of[i / COLUMNS];
#endif
    }
}

#ifdef GELU
void run(uint r0, uint live) {
    // The host makes OUTPUTS times the subgroups a divisor of BLOCK, and no more workgroups than there are blocks.
    uint step = gl_NumSubgroups * OUTPUTS, blocks = (n + BLOCK - 1) / BLOCK, stage = 0;
    begin(gl_WorkGroupID.x * BLOCK + gl_SubgroupID * OUTPUTS, r0);
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        for (uint o = gl_SubgroupID * OUTPUTS; o < BLOCK; o += step) {
            bool here = o + step < BLOCK;
            uint next = here ? block : block + gl_NumWorkGroups.x;
            add(next < blocks, next * BLOCK + (here ? o + step : gl_SubgroupID * OUTPUTS), r0, live);
            finish();
            if (PART == 0) {
                [[unroll]] for (uint j = 0; j < ROWS; ++j) {
                    uint at = o + OWN + j;
                    bool inside = block * BLOCK + at < n;
                    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                        float gate = sums[j * COLUMNS + c], up = sums[(ROWS + j) * COLUMNS + c];
                        gated[c * BLOCK + at] = inside ? gelu_tanh(gate) * up : 0.0;
                    }
                }
            }
        }
        barrier();
        uint c = gl_LocalInvocationID.x / 4, quarter = gl_LocalInvocationID.x % 4;
        if (c < COLUMNS && r0 + c < live) {
            vec4 v;
            [[unroll]] for (uint e = 0; e < 4; ++e) v[e] = gated[c * BLOCK + quarter * 4 + e];
            write_planes4(FORM, y_out + uint64_t(r0 + c) * out_stride, out_padded, block * 4 + quarter, v);
        }
        if (STAGES > 1 && turn != 0) relay_pass(state, turn + stage++ * RELAY_STRIDE);
        else barrier();
    }
    // Of the last stage there may be fewer blocks than workgroups.
    if (STAGES > 1 && turn != 0 && stage < STAGES) relay_pass(state, turn + stage * RELAY_STRIDE);
}
#else
void run(uint r0, uint live) {
    uint each = gl_NumSubgroups * OUTPUTS, step = gl_NumWorkGroups.x * each, own = gl_SubgroupID * OUTPUTS;
    uint first = gl_WorkGroupID.x * each;
    begin(first + own, r0);
    // All subgroups together, since they wait together; what lies past the last output is not stored.
    for (uint base = first; base < n; base += step) {
        uint n0 = base + own;
        add(base + step < n, n0 + step, r0, live);
        finish();
        if (PART != 0) continue;
        [[unroll]] for (uint j = 0; j < ROWS; ++j) {
            uint o = n0 + OWN + j;
            if (o >= n) break;
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                if (r0 + c < live) Floats(y_out).at[(r0 + c) * out_stride + o] = sums[j * COLUMNS + c];
            }
        }
    }
}
#endif

void main() {
    prepare_weights();
    // The table says which weights to load.
    if (EXPERTS != 0) wait_for(ALL_BLOCKS);
    uvec2 rows_here = rows_of(table, gl_WorkGroupID.y, COLUMNS, live_rows(state, which), n);
    if (rows_here.x < rows_here.y) run(rows_here.x, rows_here.y);
    relay_take(state);
    if (STAGES == 1) relay_pass(state, turn);
}
