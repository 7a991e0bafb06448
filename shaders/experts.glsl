// How products find their rows. A product of a mixture's experts works on expert rows: each row of the pass once for each expert
// that it uses. A table divides them into tiles, each of rows of one expert: four words, the expert, the tile's first row, one past
// the expert's last row, and 0. An entry without a tile has NO_EXPERT. The table is written by route.comp, a row a tile, or by
// group.comp, which has brought the rows of an expert together.
// 0: not a product of experts; else the number of expert rows that read one row of x.
layout(constant_id = 20) const uint EXPERTS = 0;
#define NO_EXPERT 0xffffffffu

// The first row of the expert's weights.
uint base = 0;

// First row of tile `tile`, of at most `height` rows, and one past the last row that it may have; `n`: outputs.
uvec2 rows_of(Words table, uint tile, uint height, uint live, uint n) {
    if (EXPERTS == 0) return uvec2(tile * height, live);
    uint expert = table.at[4 * tile];
    if (expert == NO_EXPERT) return uvec2(0);
    base = expert * n;
    return uvec2(table.at[4 * tile + 1], table.at[4 * tile + 2]);
}

// The row of x that row r reads.
#define X_ROW(r) (EXPERTS > 1 ? (r) / EXPERTS : (r))
