// KV pages (src/schedule/kv.rs): PAGE positions of a sequence, for each layer of a pool a part [K, V][kv_heads][PAGE][dim padded to 8].
// A page table has the address of the page of positions PAGE * n .. at entry n % entries.
const uint PAGE = 64;
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer PageTables { uint64_t at[]; };

// What a push block says of them in one word: the number of a table's entries as a power of two in 8 bits, and above them the
// layer's place: how many parts its own lies after the page's first one.
uint layer_place(uint paging) { return paging >> 8; }

// Index among all sequences' entries of that for position p of a sequence.
uint entry_of(uint paging, uint sequence, uint p) {
    uint bits = paging & 0xff;
    return (sequence << bits) + bitfieldExtract(p / PAGE, 0, int(bits));
}
