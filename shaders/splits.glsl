    // The end of a kernel that divides a product's inputs among `splits` workgroups, each of which has left its sums of a tile
    // in `parts`. In place, as part of the kernel: as a function it takes AMD's compiler a tenth more code.

    // The last workgroup of a tile adds the parts: what the others stored before they counted themselves is visible to it.
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
    barrier();
    if (id == 0) {
        uint tile = row_tile * gl_NumWorkGroups.y + gl_WorkGroupID.y;
        is_last = atomicAdd(arrived.at[tile], 1, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                            gl_SemanticsAcquireRelease) == splits - 1;
        if (is_last) arrived.at[tile] = 0;
    }
    barrier();
    if (!is_last) return;
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
    for (uint e = id; e < BM * BN; e += WORKGROUP) {
        uint r = r0 + e / BN, o = n0 + e % BN;
        if (r >= live || o >= n) continue;
        float y = 0;
        for (uint part = 0; part < splits; ++part) y += parts.at[(part * part_rows + r) * padded_n + o];
        y_out.at[r * out_stride + o] = y * OUTPUT_SCALE(o) * X_SCALE(r);
    }
