// group: brings the expert rows of a pass that use one expert together, and divides them into tiles (experts.glsl).
//   place[i] = the row of chosen[i] behind those of lower experts; list[place[i]] = i
//   table:    tiles of at most `height` rows, of ascending experts; the rest of its `tiles` entries have none
// chosen u32 [rows, used_stride], of which `used` a row count; list, place u32 [rows * used]. One workgroup. Where in its expert's
// rows a row stands may differ from run to run; no result depends on it.
// Bytes: 12 * rows * used + 16 * tiles; operations: few.
// Few waves: the work is a few passes over some thousand words.
#define RELAY
#include "common.glsl"
#include "relay.glsl"
layout(constant_id = 1) const uint SORTS = 1;  // 0: rows stay in their order, each a tile; list and place are not made

layout(push_constant) uniform Push {
    Words state;
    Words chosen;
    Words table;
    Words list;
    Words place;
    uint which;   // state word that counts the expert rows
    uint experts; // at most MOST_EXPERTS
    uint used;
    uint used_stride;
    uint height;
    uint tiles;
    uint turn;    // relay.glsl
    uint before;
};

#define MOST_EXPERTS 256
#define NO_EXPERT 0xffffffffu
shared uint counts[MOST_EXPERTS];
shared uint next[MOST_EXPERTS];
shared uint all_tiles;

uint expert_of(uint i) { return chosen.at[i / used * used_stride + i % used]; }

void main() {
    uint id = gl_LocalInvocationID.x;
    relay_wait(state, turn, before);
    uint live = live_rows(state, which);
    if (SORTS == 0) {
        for (uint i = id; i < tiles; i += WORKGROUP) {
            table.at[4 * i] = i < live ? expert_of(i) : NO_EXPERT;
            table.at[4 * i + 1] = i;
            table.at[4 * i + 2] = i + 1;
            table.at[4 * i + 3] = 0;
        }
        relay_pass(state, turn);
        return;
    }
    for (uint e = id; e < experts; e += WORKGROUP) counts[e] = 0;
    barrier();
    for (uint i = id; i < live; i += WORKGROUP) atomicAdd(counts[expert_of(i)], 1);
    barrier();
    for (uint e = id; e < experts; e += WORKGROUP) {
        uint row = 0, tile = 0;
        for (uint of = 0; of < e; ++of) {
            row += counts[of];
            tile += (counts[of] + height - 1) / height;
        }
        next[e] = row;
        uint end = row + counts[e];
        for (uint first = row; first < end; first += height) {
            table.at[4 * tile] = e;
            table.at[4 * tile + 1] = first;
            table.at[4 * tile + 2] = end;
            table.at[4 * tile + 3] = 0;
            ++tile;
        }
        if (e == experts - 1) all_tiles = tile;
    }
    barrier();
    for (uint tile = all_tiles + id; tile < tiles; tile += WORKGROUP) table.at[4 * tile] = NO_EXPERT;
    for (uint i = id; i < live; i += WORKGROUP) {
        uint at = atomicAdd(next[expert_of(i)], 1);
        place.at[i] = at;
        list.at[at] = i;
    }
    relay_pass(state, turn);
}
