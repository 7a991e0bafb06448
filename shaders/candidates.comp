// candidates: what the host needs to choose a row's token. One workgroup a row:
// - the list: every eligible token (block_sums.comp) of at least the floor, the want-th largest part; where that lists more
//   than there is room for, the want-th largest logit. Of the logits only the parts above the floor are read.
// - the edits' logits;
// - the picked block's logits: that in which the part `unit` of all blocks' sums ends.
// Where one token is wanted, none is edited and no block is picked, that token is the row's next: next[r] = the likeliest
// eligible token, the lowest of equals. It stays as it was where more are as likely than the list has room for.
// Rows that ask for nothing end at once.
// x f32 [rows, width]; ask u32 [rows, ASK_WORDS]; allowed: a bit a token; sums f32 [rows, blocks, 2]; tops f32 [rows, blocks, 16];
// found u32 [rows, found_stride]; next u32 in the step state.
// Bytes per row: width / 4 + want * 256 read, some 4 kB written; operations: 120 comparisons a part.
#include "common.glsl"
#include "reduce.glsl"
#include "choice.glsl"

layout(push_constant) uniform Push {
    Words state;
    Floats x;
    Words ask;
    Words allowed;
    Words sums;
    Floats tops;
    Words found;
    uint which;  // state word that counts the rows
    uint width;
    uint stride;
    uint ask_stride;
    uint allowed_stride;
    uint sums_stride;
    uint tops_stride;
    uint found_stride;
    uint next;  // word index of next[0]
};

#define QUEUE 1024
#define KEYS 8
#define TRIALS 16
// Elements of a part.
#define EACH (BLOCK / PARTS)

shared uint edits[MOST_EDITS];
shared uint edit_count;
shared uint queue[QUEUE];    // the parts that may hold candidates
shared uint queued, listed;
shared uint lowest;          // id in the list
shared float weights[1024];  // of each block
shared uint picked;
shared uint counts[3][TRIALS];  // parts of at least each trial; three steps' in turn

// Ascends with the value; 0 for what is not eligible. Both zeros are one value.
uint key_of(float v) {
    if (v == NEG_INF) return 0;
    if (v == 0.0) return 0x80000000u;
    uint bits = floatBitsToUint(v);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

float value_of(uint key) { return uintBitsToFloat((key >> 31) != 0 ? key & 0x7fffffffu : ~key); }

// Over the workgroup; every invocation must take part.
uint count(uint n) { return uint(workgroup_sum(float(n)) + 0.5); }

// The id of element `e` of the queued parts.
uint element(uint e) {
    uint part = queue[e / EACH];
    return part / PARTS * BLOCK + part % PARTS + PARTS * (e % EACH);
}

// The key of element `e` of the queued parts if it is at least `least` and eligible, else 0.
uint candidate(uint e, uint least) {
    uint r = gl_WorkGroupID.y, i = element(e);
    if (i >= width) return 0;
    float l = x.at[r * stride + i];
    if (is_unsound(l)) return 0;
    uint key = key_of(l);
    if (key < least) return 0;
    if (ask.at[r * ask_stride + ASK_MASKED] != 0 && (allowed.at[r * allowed_stride + i / 32] >> (i % 32) & 1) == 0) return 0;
    for (uint n = 0; n < edit_count; n++) {
        if (edits[n] == i) return 0;
    }
    return key;
}

// Lists the candidates of at least `least`, as far as there is room.
void list_from(uint least) {
    uint out_row = gl_WorkGroupID.y * found_stride;
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        listed = 0;
        lowest = 0xffffffffu;
    }
    barrier();
    for (uint e = gl_LocalInvocationID.x; e < queued * EACH; e += WORKGROUP) {
        if (candidate(e, least) == 0) continue;
        uint at = atomicAdd(listed, 1);
        if (at >= MOST_LISTED) continue;
        uint i = element(e);
        atomicMin(lowest, i);
        found.at[out_row + FOUND_LIST + 2 * at] = i;
        found.at[out_row + FOUND_LIST + 2 * at + 1] = floatBitsToUint(x.at[gl_WorkGroupID.y * stride + i]);
    }
    barrier();
}

void main() {
    uint r = gl_WorkGroupID.y, id = gl_LocalInvocationID.x;
    if (r >= live_rows(state, which)) return;
    uint asked = r * ask_stride, out_row = r * found_stride;
    uint want = ask.at[asked + ASK_WANT];
    if (want == 0) return;
    uint blocks = (width + BLOCK - 1) / BLOCK, parts = blocks * PARTS;
    if (id == 0) {
        queued = 0;
        picked = 0xffffffffu;
        edit_count = min(ask.at[asked + ASK_EDITS], MOST_EDITS);
    }
    barrier();
    for (uint i = id; i < edit_count; i += WORKGROUP) {
        uint token = ask.at[asked + ASK_EDIT_IDS + i];
        edits[i] = token;
        if (token < width) found.at[out_row + FOUND_EDITED + i] = floatBitsToUint(x.at[r * stride + token]);
    }

    // The parts' keys: some stay in registers, those of a vocabulary above half a million are read again each time.
    uint keys[KEYS];
    [[unroll]] for (uint j = 0; j < KEYS; j++) {
        uint p = id + j * WORKGROUP;
        keys[j] = p < parts ? key_of(tops.at[r * tops_stride + p]) : 0;
    }
    // Four bits at a time: each step counts the parts for all fifteen trials.
    uint least = 0;
    if (id < TRIALS) counts[0][id] = 0;
    barrier();
    for (uint turn = 0; turn < 8; turn++) {
        uint shift = 28 - 4 * turn, n[TRIALS];
        [[unroll]] for (uint t = 1; t < TRIALS; t++) {
            uint trial = least | t << shift;
            n[t] = 0;
            [[unroll]] for (uint j = 0; j < KEYS; j++) n[t] += keys[j] >= trial ? 1 : 0;
        }
        for (uint p = id + KEYS * WORKGROUP; p < parts; p += WORKGROUP) {
            uint key = key_of(tops.at[r * tops_stride + p]);
            [[unroll]] for (uint t = 1; t < TRIALS; t++) n[t] += key >= (least | t << shift) ? 1 : 0;
        }
        [[unroll]] for (uint t = 1; t < TRIALS; t++) {
            uint sum = subgroupAdd(n[t]);
            if (subgroupElect() && sum > 0) atomicAdd(counts[turn % 3][t], sum);
        }
        // Nobody reads these any more: everyone has passed the barrier of the turn before.
        if (id < TRIALS) counts[(turn + 1) % 3][id] = 0;
        barrier();
        uint digit = 0;
        for (uint t = 1; t < TRIALS; t++) digit = counts[turn % 3][t] >= want ? t : digit;
        least |= digit << shift;
    }
    least = max(least, 1);
    for (uint p = id; p < parts; p += WORKGROUP) {
        if (key_of(tops.at[r * tops_stride + p]) < least) continue;
        uint at = atomicAdd(queued, 1);
        if (at < QUEUE) queue[at] = p;
    }
    barrier();
    // So many parts have an equal largest logit that there is no room for them.
    bool is_full = queued > QUEUE;
    if (!is_full) {
        list_from(least);
        if (listed > MOST_LISTED) {
            // At least so many are as large as `least`.
            uint bound = 0;
            for (int bit = 31; bit >= 0; bit--) {
                uint trial = bound | 1u << bit, n = 0;
                if (trial > least) {
                    for (uint e = id; e < queued * EACH; e += WORKGROUP) n += candidate(e, trial) != 0 ? 1 : 0;
                    if (count(n) < want) continue;
                }
                bound = trial;
            }
            least = bound;
            list_from(least);
        }
    }

    float unit = uintBitsToFloat(ask.at[asked + ASK_UNIT]);
    if (unit >= 0 && blocks <= 1024) {
        float scale = uintBitsToFloat(ask.at[asked + ASK_SCALE]), largest = NEG_INF, sum = 0;
        for (uint b = id; b < blocks; b += WORKGROUP) {
            largest = max(largest, uintBitsToFloat(sums.at[r * sums_stride + 2 * b]));
        }
        barrier();
        largest = workgroup_max(largest);
        for (uint b = id; b < blocks; b += WORKGROUP) {
            float block_sum = uintBitsToFloat(sums.at[r * sums_stride + 2 * b + 1]);
            float top = uintBitsToFloat(sums.at[r * sums_stride + 2 * b]);
            float weight = block_sum > 0 ? block_sum * exp((top - largest) * scale) : 0;
            weights[b] = weight;
            sum += weight;
        }
        sum = workgroup_sum(sum);
        barrier();
        if (id == 0) {
            float left = unit * sum;
            for (uint b = 0; b < blocks; b++) {
                if (!(weights[b] > 0)) continue;
                picked = b;
                left -= weights[b];
                if (left < 0) break;
            }
        }
        barrier();
        if (picked < blocks) {
            for (uint k = id; k < BLOCK; k += WORKGROUP) {
                uint i = picked * BLOCK + k;
                if (i < width) found.at[out_row + FOUND_PICKED_LOGITS + k] = floatBitsToUint(x.at[r * stride + i]);
            }
        }
    }
    if (id == 0) {
        found.at[out_row + FOUND_COUNT] = is_full ? 0xffffffffu : listed;
        found.at[out_row + FOUND_FLOOR] = floatBitsToUint(least == 1 ? NEG_INF : value_of(least));
        found.at[out_row + FOUND_PICKED] = picked;
        bool is_one = want == 1 && edit_count == 0 && unit < 0;
        if (is_one && !is_full && listed > 0 && listed <= MOST_LISTED) state.at[next + r] = lowest;
    }
}
