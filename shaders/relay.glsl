// Relay: a dispatch that needs what the one before it writes runs beside it, without a barrier between them. Where dispatches
// need nothing of each other, they share a counter and count as one here. Each workgroup
// adds 1 to its dispatch's counter at its end. The workgroups of the next dispatch start as soon as there is room, ask for the
// weights that they begin with, and then wait until the counter has reached the number of workgroups before them. So neither a
// dispatch's start nor the first latency of memory and of address translation is waited for.
// This needs a device that starts workgroups in the order of dispatches, so that those waited for are running or done;
// src/replay/measure/tuning/choose.rs tries it. Where a wait does not end, the step state says so and the pass is refused.
// On AMD's GPUs, of which that order is not known and whose barriers are dear, a relayed dispatch starts when the one before it
// has ended, by a barrier that makes nothing available (Edge::Relayed in src/replay/list.rs). Workgroups have made available
// what they wrote when they count, so it is seen though no cache is written back, and the wait for the counter ends at once.
//
// Stages: a dispatch whose workgroups make one part of its output after the other may have a counter for each such part. The
// next dispatch can begin on the first parts while the last are made.
//
// Asking ahead: weights have thousands of pages of memory, of which a GPU remembers few addresses, and the first load of each
// page waits for a walk of its tables. So a product also loads a word from each page of the next product's weights, while it
// has its own to compute. Without that, one row of Gemma 3 27B took 3 to 4 % longer on an H200 than with one layer's weights for
// all layers, and 4 to 16 rows 6 to 9 %.
//
// What a kernel is given behind its push block (RelayPush in src/lower/kernels/push/blocks.rs):
//   turn:   the word of the step state, or behind it, that counts this dispatch's workgroups, of the first stage where it has
//           several; 0 where nobody waits for them. The last counter of the dispatch before stands before it
//   before: workgroups of the dispatch before that are waited for, 0 where a barrier was
//   stages: stages of the dispatch before; only kernels that wait for them one by one take it
//   ahead_low, ahead_high, ahead_bytes: the weights of the next product; only products take them

// Words between counters: a cache line.
#define RELAY_STRIDE 32
#define STATE_RELAY_TIMEOUT 3
// Bytes of the pages that NVIDIA's driver makes of large allocations.
#define PAGE_OF_MEMORY (2u << 20)
// Looks at a counter before giving up: about a second.
#define RELAY_LOOKS (1u << 20)

#ifdef RELAY_COHERENT
layout(buffer_reference, std430, buffer_reference_align = 4) coherent volatile buffer Signals { uint at[]; };
uint look(Words words, uint i) { return Signals(words).at[i]; }
void relay_acquire() { memoryBarrierBuffer(); }
void relay_release() { memoryBarrierBuffer(); }
void relay_barrier() {
    groupMemoryBarrier();
    barrier();
}
#else
uint look(Words words, uint i) { return atomicLoad(words.at[i], gl_ScopeDevice, 0, gl_SemanticsRelaxed); }
void relay_acquire() {
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
}
void relay_release() {
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
}
void relay_barrier() {
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
}
#endif

// One invocation acquires and releases for its workgroup: each time costs the processor its cache. Waits for the stage that is
// `behind` others before the last.
void relay_wait_for(Words state, uint turn, uint before, uint behind) {
    if (before == 0) return;
    if (gl_LocalInvocationID.x == 0) {
        uint looks = 0;
        while (look(state, turn - (1 + behind) * RELAY_STRIDE) < before) {
            if (++looks % 1024 != 0) continue;
            if (looks >= RELAY_LOOKS) atomicOr(state.at[STATE_RELAY_TIMEOUT], 1u);
            if (look(state, STATE_RELAY_TIMEOUT) != 0) break;
        }
        relay_acquire();
    }
    relay_barrier();
}

void relay_wait(Words state, uint turn, uint before) { relay_wait_for(state, turn, before, 0); }

// What the load that asked ahead brought.
uint relay_asked = 0;

// Asks for the pages of `bytes` bytes of weights: a subgroup of each workgroup for as many as it has invocations, since few
// processors share what they remember. On an H200 a quarter of these gained one row next to nothing.
void relay_ask(uint low, uint high, uint bytes) {
    if (bytes == 0 || gl_SubgroupID != 0) return;
    uint group = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint skipped = low % PAGE_OF_MEMORY, pages = (skipped + bytes - 1) / PAGE_OF_MEMORY + 1;
    uint page = (group * gl_SubgroupSize + gl_SubgroupInvocationID) % pages;
    uint behind = page == 0 ? 0 : page * PAGE_OF_MEMORY - skipped;
    relay_asked = Words((uint64_t(high) << 32 | low) + behind).at[0];
}

// A use of what was asked for, without which no load is made. Nothing changes.
void relay_take(Words state) {
    if (relay_asked == 0x5eed5eedu) atomicOr(state.at[STATE_RELAY_TIMEOUT], 0u);
}

void relay_pass(Words state, uint turn) {
    if (turn == 0) return;
    relay_barrier();
    if (gl_LocalInvocationID.x == 0) {
        relay_release();
        atomicAdd(state.at[turn], 1u);
    }
}
