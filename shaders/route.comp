// route: the experts of each row and their gains.
//   scores[r][e] = sum_k router[e][k] * x[r][k] * (1 + w[k]); with CHOOSE_ONLY they are there already
//   chosen[r] = the `used` largest of scores[r], the largest first, of equals the lower e first
//   gains[r] = softmax over these of scores * scale, times factors[e]; scale: without CHOOSE_ONLY also the RMSNorm's
//   rsqrt(mean(x[r]^2) + eps), which all of a row's scores share
// x f32 [rows, x_stride], w f32 [width], router bf16 [experts, width padded to 16], factors f32 [experts]; chosen u32 and gains f32
// [rows, used_stride], and of head rows in the state's word `kept`; experts.glsl's table if `table` is not 0: a tile for each expert of each row.
// A subgroup makes the scores of EACH experts for COLUMNS rows, each in an order that does not depend on these numbers. The last workgroup
// of these rows to finish chooses, by one subgroup a row.
// Bytes, from caches: (2 / COLUMNS + 4 / EACH) * experts * width * rows; operations: 2 * experts * width * rows.
// Narrow loads: none but a few words a row.
#define RELAY
#include "common.glsl"
#include "reduce.glsl"
#include "relay.glsl"
layout(constant_id = 1) const uint COLUMNS = 1;
layout(constant_id = 2) const uint CHOOSE_ONLY = 0;
layout(constant_id = 3) const uint EACH = 1;

layout(push_constant) uniform Push {
    Words state;
    Float4s x;
    Float4s w;
    uint64_t router;
    Floats scores;
    Floats factors;
    Words chosen;
    Floats gains;
    Words table;
    Words arrived;   // a counter for each COLUMNS rows, zero before and after
    uint which;      // state word that counts the rows
    uint width;      // a multiple of 8
    uint x_stride;   // elements
    uint experts;    // at most MOST_EXPERTS
    uint used;
    uint scores_stride;
    uint used_stride;
    uint kept;       // state word for the experts of head rows; 0: none
    float scale;
    float eps;
    uint turn;       // relay.glsl
    uint before;
};

#define MOST_EXPERTS 256
// A copy of a row's scores for each subgroup that chooses.
#define CHOOSERS 4
shared float of_row[CHOOSERS * MOST_EXPERTS];
shared bool is_last;

// Loads of each expert's weights in flight.
const uint UNROLL = COLUMNS == 1 ? 4 : 1;

// The scores of EACH experts from `first_expert` on.
void score(uint first_expert, uint r0, uint live) {
    float sums[EACH * COLUMNS], squares[COLUMNS];
    [[unroll]] for (uint i = 0; i < EACH * COLUMNS; ++i) sums[i] = 0;
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) squares[c] = 0;
    uint loads = width / 8;
    for (uint first = gl_SubgroupInvocationID; first < loads; first += UNROLL * gl_SubgroupSize) {
        uvec4 b[UNROLL * EACH];
        vec4 w_low[UNROLL], w_high[UNROLL], x_low[UNROLL * COLUMNS], x_high[UNROLL * COLUMNS];
        [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
            // Past the row's end its last load is read again, and multiplied by zeros.
            uint i = first + u * gl_SubgroupSize, at = min(i, loads - 1);
            [[unroll]] for (uint e = 0; e < EACH; ++e) {
                uint expert = min(first_expert + e, experts - 1);
                b[u * EACH + e] = Words4(router + uint64_t(expert) * ((width + 15) / 16 * 32)).at[at];
            }
            w_low[u] = 1.0 + w.at[2 * at];
            w_high[u] = 1.0 + w.at[2 * at + 1];
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                uint from = min(r0 + c, live - 1) * (x_stride / 4) + 2 * at;
                x_low[u * COLUMNS + c] = i < loads ? x.at[from] : vec4(0);
                x_high[u * COLUMNS + c] = i < loads ? x.at[from + 1] : vec4(0);
            }
        }
        [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
            [[unroll]] for (uint e = 0; e < EACH; ++e) {
                uvec4 of = b[u * EACH + e];
                vec4 low = vec4(uintBitsToFloat(of.x << 16), uintBitsToFloat(of.x & 0xffff0000u),
                                uintBitsToFloat(of.y << 16), uintBitsToFloat(of.y & 0xffff0000u));
                vec4 high = vec4(uintBitsToFloat(of.z << 16), uintBitsToFloat(of.z & 0xffff0000u),
                                 uintBitsToFloat(of.w << 16), uintBitsToFloat(of.w & 0xffff0000u));
                low *= w_low[u];
                high *= w_high[u];
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                    precise float sum = sums[e * COLUMNS + c] + dot(low, x_low[u * COLUMNS + c]);
                    sum += dot(high, x_high[u * COLUMNS + c]);
                    sums[e * COLUMNS + c] = sum;
                }
            }
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                vec4 a = x_low[u * COLUMNS + c], z = x_high[u * COLUMNS + c];
                squares[c] += dot(a, a) + dot(z, z);
            }
        }
    }
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        float square = subgroup_sum(squares[c]);
        // For the choice, which then writes here.
        bool is_first = first_expert == 0 && gl_SubgroupInvocationID == 0 && r0 + c < live;
        if (is_first) gains.at[(r0 + c) * used_stride] = square;
        [[unroll]] for (uint e = 0; e < EACH; ++e) {
            float sum = subgroup_sum(sums[e * COLUMNS + c]);
            bool is_own = gl_SubgroupInvocationID == 0 && r0 + c < live && first_expert + e < experts;
            if (is_own) scores.at[(r0 + c) * scores_stride + first_expert + e] = sum;
        }
    }
}

// The choice of a row by one subgroup; `own` is its part of the shared memory.
void choose(uint r, uint own) {
    float by = scale;
    if (CHOOSE_ONLY == 0) by *= inversesqrt(gains.at[r * used_stride] / float(width) + eps);
    // Each invocation reads the scores that it has written.
    for (uint e = gl_SubgroupInvocationID; e < experts; e += gl_SubgroupSize) of_row[own + e] = scores.at[r * scores_stride + e];
    // Read once: after each choice's stores these words would be loaded again.
    uint head = r - state.at[STATE_HEAD_FIRST];
    bool is_kept = kept != 0 && head < state.at[STATE_HEAD_ROWS];
    float largest = 0, sum = 0;
    // The choice before: what comes before it in the order of choices is chosen too.
    float last = 0;
    uint last_expert = 0;
    for (uint i = 0; i < used; ++i) {
        float most = NEG_INF;
        uint best = experts - 1;
        for (uint e = gl_SubgroupInvocationID; e < experts; e += gl_SubgroupSize) {
            float score = of_row[own + e];
            bool is_left = i == 0 || score < last || score == last && e > last_expert;
            if (is_left && score > most) {
                most = score;
                best = e;
            }
        }
        [[unroll]] for (uint apart = 1; apart < MOST_OF_SUBGROUP; apart *= 2) {
            if (apart >= gl_SubgroupSize) continue;
            float other = subgroupShuffleXor(most, apart);
            uint at = subgroupShuffleXor(best, apart);
            if (other > most || other == most && at < best) {
                most = other;
                best = at;
            }
        }
        last = most;
        last_expert = best;
        if (i == 0) largest = most;
        float gain = exp((most - largest) * by);
        sum += gain;
        if (gl_SubgroupInvocationID == i % gl_SubgroupSize) {
            chosen.at[r * used_stride + i] = best;
            gains.at[r * used_stride + i] = gain;
            if (is_kept) state.at[kept + head * used + i] = best;
            if (uint64_t(table) != 0) {
                uint row = r * used + i;
                table.at[4 * row] = best;
                table.at[4 * row + 1] = row;
                table.at[4 * row + 2] = row + 1;
                table.at[4 * row + 3] = 0;
            }
        }
    }
    // Each invocation reads the choices that it has written.
    for (uint i = gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) {
        uint at = r * used_stride + i;
        gains.at[at] = gains.at[at] / sum * factors.at[chosen.at[at]];
    }
}

void run(uint live) {
    uint r0 = gl_WorkGroupID.y * COLUMNS;
    relay_wait(state, turn, before);
    if (CHOOSE_ONLY == 0) {
        uint subgroups = gl_NumWorkGroups.x * gl_NumSubgroups;
        for (uint s = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; s * EACH < experts; s += subgroups) {
            score(s * EACH, r0, live);
        }
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
        barrier();
        if (gl_LocalInvocationID.x == 0) {
            is_last = atomicAdd(arrived.at[gl_WorkGroupID.y], 1, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                                gl_SemanticsAcquireRelease) == gl_NumWorkGroups.x - 1;
            if (is_last) arrived.at[gl_WorkGroupID.y] = 0;
        }
        barrier();
        if (!is_last) return;
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
    }
    if (gl_SubgroupID >= CHOOSERS) return;
    uint choosers = min(gl_NumSubgroups, CHOOSERS);
    for (uint c = gl_SubgroupID; c < COLUMNS && r0 + c < live; c += choosers) choose(r0 + c, gl_SubgroupID * MOST_EXPERTS);
}

void main() {
    uint live = live_rows(state, which);
    if (gl_WorkGroupID.y * COLUMNS < live) run(live);
    relay_pass(state, turn);
}
