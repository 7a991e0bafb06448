// What passes between the host and a choice of tokens, for each head row (src/schedule/choice.rs says what each word means).
#define BLOCK 1024
#define PARTS 16
#define MOST_LISTED 512
#define MOST_EDITS 384

#define ASK_WANT 0
#define ASK_SCALE 1
#define ASK_UNIT 2
#define ASK_MASKED 3
#define ASK_EDITS 4
#define ASK_EDIT_IDS 8

#define FOUND_COUNT 0
#define FOUND_FLOOR 1
#define FOUND_PICKED 2
#define FOUND_LIST 4
#define FOUND_EDITED (FOUND_LIST + 2 * MOST_LISTED)
#define FOUND_PICKED_LOGITS (FOUND_EDITED + MOST_EDITS)

// NaN or +inf.
bool is_unsound(float logit) {
    uint bits = floatBitsToUint(logit);
    return (bits & 0x7f800000u) == 0x7f800000u && bits != 0xff800000u;
}
