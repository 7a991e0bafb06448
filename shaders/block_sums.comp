// block_sums: for each block of 1024 of a row's logits, the largest eligible one and the sum of exp(scale * (l - largest)) over
// the eligible ones, and the largest of each of its 16 parts (part g: elements g, g + 16, ...). One workgroup a block. A token
// is eligible if it is none of the row's edits, is allowed, and its logit is above -inf. Rows that ask for nothing end at once.
// x f32 [rows, width]; ask u32 [rows, ASK_WORDS]; allowed: a bit a token; sums f32 [rows, blocks, 2]; tops f32 [rows, blocks, 16].
// Bytes per row: 4 * width read, width / 14 written; operations: an exp and two comparisons an element.
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
    uint which;  // state word that counts the rows
    uint width;
    uint stride;
    uint ask_stride;
    uint allowed_stride;
    uint sums_stride;
    uint tops_stride;
};

shared uint edited[BLOCK / 32];  // a bit for each element of the block
shared float lane_tops[256];     // one for each lane

void main() {
    uint r = gl_WorkGroupID.y, block = gl_WorkGroupID.x, id = gl_LocalInvocationID.x;
    if (r >= live_rows(state, which)) return;
    uint asked = r * ask_stride;
    if (ask.at[asked + ASK_WANT] == 0) return;
    if (id < BLOCK / 32) edited[id] = 0;
    barrier();
    uint edits = min(ask.at[asked + ASK_EDITS], MOST_EDITS);
    for (uint i = id; i < edits; i += WORKGROUP) {
        uint k = ask.at[asked + ASK_EDIT_IDS + i] - block * BLOCK;
        if (k < BLOCK) atomicOr(edited[k / 32], 1u << (k % 32));
    }
    barrier();

    bool masked = ask.at[asked + ASK_MASKED] != 0;
    float value[4];
    float largest = NEG_INF, unsound = 0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        uint k = id + j * 256, i = block * BLOCK + k;
        value[j] = NEG_INF;
        if (i < width) {
            float l = x.at[r * stride + i];
            bool eligible = (edited[k / 32] >> (k % 32) & 1) == 0;
            if (masked) eligible = eligible && (allowed.at[r * allowed_stride + i / 32] >> (i % 32) & 1) != 0;
            if (is_unsound(l)) {
                unsound = 1;
            } else if (eligible) {
                value[j] = l;
            }
        }
        largest = max(largest, value[j]);
    }
    // Lanes of one part are 16 apart.
    lane_tops[id] = largest;
    barrier();
    if (id < PARTS) {
        float top = NEG_INF;
        for (uint i = id; i < 256; i += PARTS) top = max(top, lane_tops[i]);
        tops.at[r * tops_stride + block * PARTS + id] = top;
    }
    largest = workgroup_max(largest);
    barrier();
    unsound = workgroup_max(unsound);
    float scale = uintBitsToFloat(ask.at[asked + ASK_SCALE]);
    float sum = 0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (value[j] > NEG_INF) sum += exp((value[j] - largest) * scale);
    }
    sum = workgroup_sum(sum);
    if (id == 0) {
        uint at = r * sums_stride + 2 * block;
        sums.at[at] = unsound != 0 ? 0x7fc00000u : floatBitsToUint(largest);
        sums.at[at + 1] = unsound != 0 ? 0x7fc00000u : floatBitsToUint(sum);
    }
}
