// Relay: a dispatch that needs what the one before it writes need not stand behind a barrier. Its workgroups start as soon as
// there is room for them beside the last of the one before, ask for the weights that they begin with, and then wait until
// that one's workgroups have all passed on: each adds 1 to its dispatch's counter at its end. So neither the start of a
// dispatch nor the first latency of memory and of address translation is waited for between two of them.
// It takes a device that starts workgroups in the order of dispatches, so that whoever is waited for is running or done;
// src/gpu/measure/tuning.rs tries it. Where a wait does not end, the step state says so and the pass is refused.
//
// A dispatch whose workgroups make one part of its output after the other may have a counter for each such stage, so that the
// next dispatch can begin on the first parts while the last are made: the workgroups of a dispatch do not end all at once.
// `turn` is the word of the step state, or behind it, that counts this dispatch's workgroups, of the first stage where it has
// several; 0 where nobody waits for them. `before` is how many workgroups of the dispatch before it are waited for, 0 where a
// barrier was; its last stage's counter is the one before `turn`.

// Words between counters: a cache line.
#define RELAY_STRIDE 32
#define STATE_STALLED 3
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
            if (looks >= RELAY_LOOKS) atomicOr(state.at[STATE_STALLED], 1u);
            if (look(state, STATE_STALLED) != 0) break;
        }
        relay_acquire();
    }
    relay_barrier();
}

void relay_wait(Words state, uint turn, uint before) { relay_wait_for(state, turn, before, 0); }

void relay_pass(Words state, uint turn) {
    if (turn == 0) return;
    relay_barrier();
    if (gl_LocalInvocationID.x == 0) {
        relay_release();
        atomicAdd(state.at[turn], 1u);
    }
}
