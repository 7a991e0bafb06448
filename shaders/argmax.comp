// argmax: next[r] = index of the largest x[r][i], the lowest of equals; GROUPS workgroups a row, the last of which to finish
// compares what all found. finite[r] = 1 where that value is a finite number, else 0.
// x [rows, width] f32; next, finite u32 in the step state.
// Bytes per row: 4 * width read; operations: one comparison an element.
#include "common.glsl"
layout(constant_id = 1) const uint GROUPS = 1;

layout(push_constant) uniform Push {
    Words state;
    Floats x;
    uint64_t scratch;  // counters u32 [rows], then parts [rows][GROUPS] of value and index
    uint which;   // state word that counts the rows
    uint next;    // word index of next[0]
    uint finite;  // word index of finite[0]
    uint width;
    uint stride;
};

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Shared { uint at[]; };

#define COUNTER_BYTES 4096

shared float best_value[1024];
shared uint best_index[1024];
shared uint finished;

void take(float v, uint i, inout float best, inout uint index) {
    if (v > best || (v == best && i < index)) {
        best = v;
        index = i;
    }
}

// The workgroup's best, in invocation 0.
void reduce(inout float best, inout uint index) {
    uint id = gl_LocalInvocationID.x;
    barrier();
    best_value[id] = best;
    best_index[id] = index;
    for (uint n = WORKGROUP / 2; n > 0; n /= 2) {
        barrier();
        if (id < n) {
            take(best_value[id + n], best_index[id + n], best, index);
            best_value[id] = best;
            best_index[id] = index;
        }
    }
}

void main() {
    uint r = gl_WorkGroupID.y, id = gl_LocalInvocationID.x, group = gl_WorkGroupID.x;
    if (r >= live_rows(state, which)) return;
    uint step = gl_NumWorkGroups.x * WORKGROUP;
    float best = NEG_INF;
    uint index = 0xffffffffu;
    for (uint i = group * WORKGROUP + id; i < width; i += step) take(x.at[r * stride + i], i, best, index);
    reduce(best, index);
    if (GROUPS > 1) {
        Shared counter = Shared(scratch + 4 * r), parts = Shared(scratch + COUNTER_BYTES + 8 * uint64_t(r) * GROUPS);
        if (id == 0) {
            parts.at[2 * group] = floatBitsToUint(best);
            parts.at[2 * group + 1] = index;
            memoryBarrierBuffer();
            finished = atomicAdd(counter.at[0], 1);
        }
        barrier();
        if (finished != GROUPS - 1) return;
        memoryBarrierBuffer();
        best = NEG_INF;
        index = 0xffffffffu;
        for (uint i = id; i < GROUPS; i += WORKGROUP) {
            take(uintBitsToFloat(parts.at[2 * i]), parts.at[2 * i + 1], best, index);
        }
        reduce(best, index);
        if (id == 0) counter.at[0] = 0;
    }
    if (id == 0) {
        bool sound = index < width && best < uintBitsToFloat(0x7f800000u) && best > NEG_INF;
        state.at[next + r] = sound ? index : 0;
        state.at[finite + r] = sound ? 1 : 0;
    }
}
